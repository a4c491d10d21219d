use super::Bench;
use super::report::Report;
use crate::Stack;
pub(super) async fn run(_bench: &Bench<'_>, _stack: &Stack, _rows: usize) -> anyhow::Result<Report> {
    anyhow::bail!("not yet")
}
