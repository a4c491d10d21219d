//! Death at every seam: for each window in which a process can die, in each service that has it and in each direction
//! of the saga, the process is really killed there and started again, and everything agrees afterwards.

mod aside;
mod death;
mod edge;
mod migrating;
mod overdue;
mod passage;
mod report;
mod table;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use anyhow::Context as _;
use e2e::{Service, Settings, Stack, workspace};
use futures::future::try_join_all;

use crate::readme::sources;
use crate::shop::patient;
use death::Death;
use passage::{Passage, pass, pass_with_a_backlog, passages};
use table::{How, SEAMS};

/// Shops in which orders pass side by side.
const SHOPS: usize = 3;

/// The carrier soon says that it has no answer, and shipping asks it once, so undos come soon also on a slow machine;
/// payment outlasts the death of its provider.
fn settings() -> Settings {
    patient()
        .set(Service::Payment, "CALL_ATTEMPTS", "20")
        .set(Service::Shipping, "CALL_ATTEMPTS", "1")
        .set(Service::Sandbox, "TIMEOUT_MS", "300")
        .set(Service::Sandbox, "LATE_MS", "4000")
}

#[tokio::test]
async fn every_process_that_is_killed_at_a_seam_goes_on_as_if_nothing_had_happened() -> anyhow::Result<()> {
    let waiting = RefCell::new(VecDeque::from(passages()));
    let shops = try_join_all((0..SHOPS).map(|_| orders(&waiting)));
    let (shops, requests, messages, others) = tokio::try_join!(shops, requests(), messages(), others())?;
    let mut deaths: Vec<Death> = shops.into_iter().chain([requests, messages, others]).flatten().collect();
    deaths.sort_by_key(|death| (std::ptr::from_ref(death.seam), death.direction.name(), death.service));
    report::publish(&report::table(&deaths)?, &report::details(&deaths))
}

/// One order after the other passes, and kills whom it passes.
async fn orders(waiting: &RefCell<VecDeque<Passage>>) -> anyhow::Result<Vec<Death>> {
    let stack = Stack::start(settings()).await?;
    let mut deaths = Vec::new();
    loop {
        let next = waiting.borrow_mut().pop_front();
        let Some(passage) = next else { return Ok(deaths) };
        let (seam, direction, _) = &passage;
        let at = format!("{} ({})", seam.point, direction.name());
        deaths.extend(pass(&stack, passage).await.context(at)?);
    }
}

async fn requests() -> anyhow::Result<Vec<Death>> {
    let stack = Stack::start(settings()).await?;
    let mut deaths = edge::edges(&stack).await?;
    deaths.extend(aside::late(&stack).await?);
    Ok(deaths)
}

async fn messages() -> anyhow::Result<Vec<Death>> {
    let stack = Stack::start(settings()).await?;
    let mut deaths = aside::poison(&stack).await?;
    for seam in SEAMS.iter().filter(|seam| seam.how == How::Backlog) {
        for direction in seam.directions {
            deaths.extend(pass_with_a_backlog(&stack, seam, *direction).await?);
        }
    }
    deaths.extend(aside::unreadable(&stack).await?);
    Ok(deaths)
}

async fn others() -> anyhow::Result<Vec<Death>> {
    let stack = Stack::start(overdue::settings()).await?;
    let mut deaths = overdue::deadlines(&stack).await?;
    deaths.extend(migrating::migrating().await?);
    Ok(deaths)
}

#[test]
fn every_point_in_the_code_has_its_row_and_every_row_its_point() -> anyhow::Result<()> {
    let mut text = String::new();
    for directory in ["shared/messaging/src", "services"] {
        sources(&workspace().join(directory), &mut text)?;
    }
    // A point is named where it stands: `hold::point("relay.read")`, and so `point_of` and `during`.
    let named = text.split("hold::").skip(1).filter_map(|rest| {
        let (function, arguments) = rest.split_once('(')?;
        let name = arguments.trim_start().strip_prefix('"')?.split('"').next()?;
        ["point", "point_of", "during"].contains(&function).then(|| name.to_owned())
    });
    let in_code: BTreeSet<String> = named.collect();
    let migrations = SEAMS.iter().filter(|seam| seam.how == How::Migrating).map(|seam| seam.point);
    let mut in_table = report::points();
    migrations.for_each(|point| assert!(in_table.remove(point)));
    assert_eq!(in_code, in_table.into_iter().map(str::to_owned).collect());
    Ok(())
}
