//! A real Jaeger finds a trace by its correlation id.

use std::time::Duration;

use e2e::{Jaeger, Settings, Stack, State, eventually};

use crate::otlp::{export, request};

#[tokio::test]
async fn jaeger_finds_a_trace_by_its_correlation_id() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    let Some(jaeger) = Jaeger::start(stack.directory()).await? else {
        eprintln!("NOT RUN: this machine has no Jaeger; name one with JAEGER or put `jaeger` on the PATH");
        return Ok(());
    };
    let trace_id: [u8; 16] = *b"a-trace-of-ours!";

    export(&jaeger.endpoint(), &request(trace_id)).await?;

    let found = eventually(Duration::from_secs(10), "Jaeger has the trace", async || {
        let traces = jaeger.traces("order", "correlation.id", "c-4711").await?;
        Ok(if traces.is_empty() { State::pending(traces) } else { State::Reached(traces) })
    })
    .await?;
    assert_eq!(found[0]["traceID"], "612d74726163652d6f662d6f75727321");
    assert!(jaeger.traces("order", "correlation.id", "another").await?.is_empty());
    Ok(())
}
