//! Violations that do not stand in the tables: at the broker, in sessions of the database, in traces and in logs.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::rc::Rc;

use anyhow::Context as _;
use e2e::audit::{Report, Sources, audit};
use e2e::{Jaeger, Settings, Stack, State, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};

use super::{Orders, finds, named, some_orders, violated};
use crate::scenarios::shop_of;
use crate::shop::SOON;

/// What does not hold of an invariant.
fn told<'a>(report: &'a Report, id: &str) -> BTreeSet<&'a str> {
    let findings = report.invariants.iter().filter(|one| one.id == id);
    findings.flat_map(|one| &one.violations).map(|violation| violation.what.as_str()).collect()
}

#[tokio::test]
async fn a_strange_queue_is_found() -> anyhow::Result<()> {
    let stack = Rc::new(Stack::start(Settings::default()).await?);
    let shop = shop_of(&stack)?;
    some_orders(&stack).await?;
    finds(&shop, &[]).await?;

    let queue = format!("queues/{}/stray", stack.vhost.name());
    stack.vhost.call(Method::PUT, &queue, Some(json!({"durable": true}))).await?;
    finds(&shop, &["I8"]).await?;
    stack.vhost.call(Method::DELETE, &queue, None).await?;
    finds(&shop, &[]).await?;
    Ok(())
}

#[tokio::test]
async fn a_session_that_stays_waits_or_keeps_a_lock_is_found() -> anyhow::Result<()> {
    let stack = Rc::new(Stack::start(Settings::default()).await?);
    let shop = shop_of(&stack)?;
    some_orders(&stack).await?;
    finds(&shop, &[]).await?;

    let url = stack.database_url(e2e::Service::Order);
    for (left, what) in [
        ("begin; select 1 from sagas", "no session is left in a transaction"),
        ("select pg_advisory_lock(4711)", "the only advisory locks that stay are those of the relays"),
    ] {
        let mut session = PgConnection::connect(&url).await?;
        session.execute(left).await?;
        let report = finds(&shop, &["I11"]).await?;
        assert_eq!(told(&report, "I11"), BTreeSet::from([what]), "{report:#?}");
        session.close().await?;
        finds(&shop, &[]).await?;
    }

    // Who waits, and who lets him wait. Nobody reads or writes with such a lock here.
    let lock = "begin; lock table orders.products in share row exclusive mode";
    let mut keeps = PgConnection::connect(stack.database.url()).await?;
    keeps.execute(lock).await?;
    let mut waits = PgConnection::connect(stack.database.url()).await?;
    let waiting = tokio::spawn(async move { waits.execute(lock).await.map(drop) });
    eventually(SOON, "both are found", async || {
        let report = audit(&Sources::of(&shop), None).await?;
        let seen: BTreeSet<String> = told(&report, "I11").into_iter().map(str::to_owned).collect();
        let both = ["no session is left in a transaction", "nobody waits for a lock"].map(str::to_owned);
        Ok(if seen == BTreeSet::from(both) { State::Reached(()) } else { State::pending(report) })
    })
    .await?;
    keeps.close().await?;
    waiting.await??;
    finds(&shop, &[]).await?;
    Ok(())
}

#[tokio::test]
async fn an_error_and_a_warning_without_a_code_are_found() -> anyhow::Result<()> {
    let stack = Rc::new(Stack::start(Settings::default()).await?);
    let shop = shop_of(&stack)?;
    let Orders { shipped, declined, .. } = some_orders(&stack).await?;
    finds(&shop, &[]).await?;
    let mut log = OpenOptions::new().append(true).open(stack.directory().join("order.log"))?;
    let now = time::OffsetDateTime::now_utc().format(&time::format_description::well_known::Rfc3339)?;
    let at = format!("{}Z", now.get(..23).context("milliseconds")?);
    let mut expected = BTreeSet::new();
    for (level, order) in [("ERROR", shipped.order), ("WARN", declined.order)] {
        let line = format!(
            r#"{{"timestamp":"{at}","level":"{level}","errorType":"Technical","orderId":"{order}","message":"planted"}}"#
        );
        writeln!(log, "{line}")?;
        expected.insert(order);
        let report = finds(&shop, &["I14"]).await?;
        assert_eq!(named(&report, "I14"), expected, "{report:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_span_without_its_parent_and_an_order_in_a_second_trace_are_found() -> anyhow::Result<()> {
    let site = Stack::start_empty(Settings::default()).await?;
    let Some(jaeger) = Jaeger::start(site.directory()).await? else {
        eprintln!("NOT RUN: this machine has no Jaeger; name one with JAEGER or put `jaeger` on the PATH");
        return Ok(());
    };
    let stack = Rc::new(Stack::start(Settings::default().otlp(jaeger.endpoint())).await?);
    let mut shop = shop_of(&stack)?;
    shop.at.jaeger = Some(jaeger.page());
    let Orders { shipped, undone, .. } = some_orders(&stack).await?;
    eventually(SOON, "the traces are looked at", async || {
        let report = audit(&Sources::of(&shop), None).await?;
        if !violated(&report).is_empty() {
            return Ok(State::Lost(format!("{report:#?}")));
        }
        let traces = report.invariants.iter().find(|one| one.id == "I12").and_then(|one| one.note.clone());
        let is_it = traces.as_deref() == Some("3 traces of the newest orders");
        Ok(if is_it { State::Reached(()) } else { State::pending(traces) })
    })
    .await?;

    let export = async |service: &str, span: Value| {
        let service = json!([{"key": "service.name", "value": {"stringValue": service}}]);
        let spans =
            json!({"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [{"spans": [span]}]}]});
        let sent = reqwest::Client::builder().no_proxy().build()?.post(format!("{}/v1/traces", jaeger.endpoint()));
        sent.json(&spans).send().await?.error_for_status()?;
        anyhow::Ok(())
    };
    let span = json!({"traceId": undone.trace, "spanId": "00000000000000a1", "parentSpanId": "00000000000000b2",
                      "name": "planted", "kind": 1, "startTimeUnixNano": "1", "endTimeUnixNano": "2"});
    export("payment", span).await?;
    let report = finds(&shop, &["I12"]).await?;
    assert_eq!(named(&report, "I12"), BTreeSet::from([undone.order.clone()]), "{report:#?}");

    // The order's own trace is one that the participants know nothing of: theirs are spans of a second one.
    let other = "0123456789abcdef0123456789abcdef";
    let span = json!({"traceId": other, "spanId": "00000000000000c3", "name": "planted", "kind": 2,
                      "startTimeUnixNano": "1", "endTimeUnixNano": "2"});
    export("order", span).await?;
    let elsewhere = format!(
        r#"update orders.orders set trace = '{{"traceparent": "00-{other}-00000000000000c3-01"}}' where id = '{}'"#,
        shipped.order
    );
    stack.database.execute(&elsewhere).await?;
    eventually(SOON, "the second trace is found", async || {
        let report = audit(&Sources::of(&shop), None).await?;
        let is_it = named(&report, "I12") == BTreeSet::from([undone.order.clone(), shipped.order.clone()])
            && told(&report, "I12").contains("a shipped order has one trace, through all services");
        Ok(if is_it { State::Reached(()) } else { State::pending(report) })
    })
    .await?;
    // Who is killed takes spans along: what was placed before its start is not judged.
    stack.payment().kill().await?;
    stack.payment().restart().await?;
    finds(&shop, &[]).await.map(drop)
}
