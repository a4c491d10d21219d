//! What operators do: every verb says first what it would do, needs the token and a reason, does it once, and is told in
//! the timeline and the trace.

use anyhow::ensure;
use e2e::otlp::Collector;
use e2e::stack::client::{Answer, send};
use e2e::{Service, Settings, Stack, State, eventually};
use reqwest::Method;
use serde_json::{Value, json};

use crate::shop::{SOON, books_balance, comes_to, order, place, queue_is_empty};

/// Deadlines that no test outlasts.
fn slow() -> Settings {
    Settings::default().set(Service::Order, "STEP_DEADLINE_MS", "600000")
}

fn acting(which: &Value, dry_run: bool) -> Value {
    json!({"which": which, "act": {"reason": "the cause is mended", "actor": "ada", "dryRun": dry_run}})
}

async fn act(stack: &Stack, service: Service, path: &str, which: &Value, dry_run: bool) -> anyhow::Result<Answer> {
    stack.process(service).client()?.ops_post(path, &acting(which, dry_run)).await
}

async fn list(stack: &Stack, service: Service, path: &str) -> anyhow::Result<Vec<Value>> {
    let answer = stack.process(service).client()?.ops_get(path).await?;
    ensure!(answer.status == 200, "{path}: {}", answer.text);
    Ok(answer.body["rows"].as_array().cloned().unwrap_or_default())
}

/// Waits until the list has as many.
async fn listed(stack: &Stack, service: Service, path: &str, count: usize) -> anyhow::Result<Vec<Value>> {
    eventually(SOON, &format!("{count} rows in {path}"), async || {
        let rows = list(stack, service, path).await?;
        Ok(if rows.len() == count { State::Reached(rows) } else { State::pending(rows) })
    })
    .await
}

#[tokio::test]
async fn a_parked_command_is_found_taken_up_again_and_told_in_timeline_and_trace() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(slow().otlp(collector.endpoint())).await?;
    // A table that is not there is a bug, and no retry helps.
    stack.database.execute("alter table inventory.reservations rename to aside").await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let parked = listed(&stack, Service::Inventory, "/ops/inbox?status=parked", 1).await?.remove(0);
    assert_eq!((&parked["type"], &parked["errorCode"]), (&json!("ReserveStock"), &json!("database.42P01")));
    assert_eq!(parked["correlationId"], placed.correlation.as_str());
    stack.database.execute("alter table inventory.aside rename to reservations").await?;
    let id = parked["messageId"].as_str().unwrap_or_default();
    let shown = stack.inventory().client()?.ops_get(&format!("/ops/messages/{id}")).await?;
    assert_eq!(
        (&shown.body[0]["table"], &shown.body[0]["row"]["body"]["eventType"]),
        (&json!("inbox"), &json!("ReserveStock"))
    );
    let which = json!({"messageId": id});
    let would = act(&stack, Service::Inventory, "/ops/inbox/retry", &which, true).await?;
    assert_eq!((would.status, &would.body["changed"][0]["now"]), (200, &json!("retrying")), "{}", would.text);
    assert_eq!(list(&stack, Service::Inventory, "/ops/inbox?status=parked").await?.len(), 1, "a dry run does nothing");
    let did = act(&stack, Service::Inventory, "/ops/inbox/retry", &which, false).await?;
    assert_eq!((did.status, &did.body["changed"][0]["was"]), (200, &json!("parked")), "{}", did.text);
    comes_to(&stack, &placed, "completed").await?;
    let done = act(&stack, Service::Inventory, "/ops/inbox/retry", &which, false).await?;
    assert_eq!((done.status, &done.body["code"]), (409, &json!("message.not_possible")), "{}", done.text);
    let timeline = stack.order().client()?.ops_get(&format!("/ops/timeline/{}", placed.order)).await?.body;
    let entries = timeline["entries"].as_array().cloned().unwrap_or_default();
    let told = entries.iter().find(|entry| entry["kind"] == "operator").cloned().unwrap_or_default();
    assert_eq!(
        (&told["service"], &told["what"], &told["eventId"]),
        (&json!("inventory"), &json!("retry message"), &json!(id))
    );
    assert_eq!(told["detail"], "ReserveStock, by ada: the cause is mended");
    eventually(SOON, "the act has a trace of its own that links to the order's", async || {
        let spans = collector.spans();
        let acts = spans.iter().filter(|span| span.service == "inventory" && span.name.contains("/ops/inbox/retry"));
        let mut linked = acts.filter(|span| span.links.iter().any(|(trace, _)| *trace == placed.trace));
        let is_it = linked.clone().count() == 1 && linked.all(|span| span.trace_id != placed.trace);
        Ok(if is_it { State::Reached(()) } else { State::pending(spans.len()) })
    })
    .await?;
    let for_all = stack.order().get(&format!("/orders/{}/timeline", placed.order)).await?.text;
    assert!(for_all.contains("retry message") && !for_all.contains("ada"), "{for_all}");
    books_balance(&stack).await
}

#[tokio::test]
async fn a_wiped_broker_is_repaired_by_a_replay_and_nothing_is_done_twice() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(slow().otlp(collector.endpoint())).await?;
    let keyboard = order("KEYBOARD", 1, "pm_ok", "standard");
    let before = place(&stack, &keyboard).await?;
    comes_to(&stack, &before, "completed").await?;
    // Some commands wait in a queue that is wiped, and some answers in another.
    stack.payment().kill().await?;
    let mut placed = Vec::new();
    for _ in 0..5 {
        placed.push(place(&stack, &keyboard).await?);
    }
    let unpublished = "/ops/outbox";
    listed(&stack, Service::Order, unpublished, 0).await?;
    let wipe = async |queue: &str| {
        stack.vhost.call(Method::DELETE, &format!("queues/{}/{queue}", stack.vhost.name()), None).await.map(drop)
    };
    wipe("payment.commands").await?;
    stack.payment().restart().await?;
    let later = place(&stack, &keyboard).await?;
    comes_to(&stack, &later, "completed").await?;
    let since = json!({"since": "2020-01-01T00:00:00Z"});
    let would = act(&stack, Service::Order, "/ops/history/replay", &since, true).await?;
    let count = would.body["changed"].as_array().map_or(0, Vec::len);
    // Three commands and at least two events of each order that is through, a command and an event of each that hangs.
    assert!(count >= 2 * 5 + 5 * 2, "{count}: {}", would.text);
    assert_eq!(stack.database.value("select count(*) from orders.outbox").await?, json!(0), "a dry run does nothing");
    stack.order().kill().await?;
    stack.order().restart().await?;
    let did = act(&stack, Service::Order, "/ops/history/replay", &since, false).await?;
    assert_eq!(did.body["changed"].as_array().map(Vec::len), Some(count), "{}", did.text);
    for placed in &placed {
        comes_to(&stack, placed, "completed").await?;
    }
    // Answers that are wiped come again from whoever gave them.
    stack.order().holds().arm("consumer.remembered", e2e::Action::Abort)?;
    let hanging = place(&stack, &keyboard).await?;
    stack.order().ended().await?;
    let answered = stack.database.value("select count(*) from payments.outbox_history");
    assert_eq!(answered.await?, json!(8));
    wipe("order.replies").await?;
    stack.order().holds().release("consumer.remembered")?;
    stack.order().restart().await?;
    let saga = json!({"sagaId": hanging.saga});
    let did = act(&stack, Service::Payment, "/ops/history/replay", &saga, false).await?;
    assert_eq!(did.body["changed"][0]["type"], "PaymentCaptured", "{}", did.text);
    comes_to(&stack, &hanging, "completed").await?;
    queue_is_empty(&stack, "order.replies").await?;
    eventually(SOON, "what is replayed is in the trace of who replays it, and that links to its origin", async || {
        let spans = collector.spans();
        let replays: Vec<_> = spans
            .iter()
            .filter(|span| span.service == "payment" && span.name.contains("/ops/history/replay"))
            .collect();
        let links = replays.iter().any(|span| span.links.iter().any(|(trace, _)| *trace == hanging.trace));
        let within = replays.iter().any(|root| {
            spans.iter().any(|span| span.trace_id == root.trace_id && span.name == "process order.replies")
        });
        Ok(if links && within { State::Reached(()) } else { State::pending((replays.len(), links, within)) })
    })
    .await?;
    books_balance(&stack).await
}

#[tokio::test]
async fn an_order_is_cancelled_by_an_operator_once_and_only_while_it_can_be() -> anyhow::Result<()> {
    let stack = Stack::start(slow()).await?;
    let keyboard = order("KEYBOARD", 1, "pm_ok", "standard");
    let shipped = place(&stack, &keyboard).await?;
    comes_to(&stack, &shipped, "completed").await?;
    stack.inventory().kill().await?;
    let placed = place(&stack, &keyboard).await?;
    let at_inventory = "/ops/sagas?state=running&step=inventory";
    let found = eventually(SOON, "the saga is at inventory", async || {
        let answer = stack.order().client()?.ops_get(at_inventory).await?;
        Ok(if answer.body[0].is_object() { State::Reached(answer.body) } else { State::pending(answer.text) })
    })
    .await?;
    assert_eq!((found.as_array().map(Vec::len), &found[0]["orderId"]), (Some(1), &json!(placed.order)));
    for (filter, count) in [
        (format!("correlationId={}", placed.correlation), 1),
        ("correlationId=nobody".to_owned(), 0),
        ("olderThan=3600".to_owned(), 0),
        ("olderThan=0".to_owned(), 2),
        ("step=shipping".to_owned(), 0),
    ] {
        let answer = stack.order().client()?.ops_get(&format!("/ops/sagas?{filter}")).await?;
        assert_eq!(answer.body.as_array().map(Vec::len), Some(count), "{filter}: {}", answer.text);
    }
    let cancel = async |saga: &str, dry_run: bool| {
        let body = json!({"reason": "the customer called", "actor": "ada", "dryRun": dry_run});
        stack.order().client()?.ops_post(&format!("/ops/sagas/{saga}/cancel"), &body).await
    };
    let would = cancel(&placed.saga, true).await?;
    assert_eq!(
        (would.status, &would.body["command"], &would.body["status"]),
        (200, &json!("ReleaseStock"), &json!("cancelling"))
    );
    assert_eq!(stack.order().get(&format!("/orders/{}", placed.order)).await?.body["status"], "pending");
    assert_eq!(cancel(&placed.saga, false).await?.body["already"], false);
    assert_eq!(cancel(&placed.saga, false).await?.body["already"], true);
    stack.inventory().restart().await?;
    comes_to(&stack, &placed, "cancelled").await?;
    assert_eq!(cancel(&placed.saga, false).await?.body["already"], true);
    let late = cancel(&shipped.saga, false).await?;
    assert_eq!((late.status, &late.body["code"]), (409, &json!("saga.ended")), "{}", late.text);
    let acts = stack.database.value("select jsonb_agg(verb order by id) from orders.operator_actions").await?;
    assert_eq!(acts, json!(["cancel"]));
    books_balance(&stack).await
}

#[tokio::test]
async fn no_verb_acts_without_token_reason_or_criterion_or_on_nonsense() -> anyhow::Result<()> {
    let stack = Stack::start(slow()).await?;
    let client = stack.payment().client()?;
    let verbs = ["inbox/retry", "inbox/skip", "inbox/discard", "outbox/retry", "outbox/discard", "history/replay"];
    for verb in verbs {
        let path = format!("/ops/{verb}");
        let which = json!({"messageId": "0192c0de-0000-7000-8000-000000000000"});
        let stranger = reqwest::Client::builder().no_proxy().build()?.post(format!("{}{path}", client.ops_url()));
        assert_eq!(send(stranger.json(&acting(&which, false))).await?.status, 401, "{path}");
        let everybody = client.request(Method::POST, &path).json(&acting(&which, false));
        assert_eq!(send(everybody).await?.status, 404, "{path} is not for everybody");
        let unknown = client.ops_post(&path, &acting(&which, false)).await?;
        assert_eq!((unknown.status, &unknown.body["code"]), (404, &json!("message.not_found")), "{path}");
        let everything = client.ops_post(&path, &acting(&json!({}), false)).await?;
        assert_eq!((everything.status, &everything.body["code"]), (400, &json!("request.which")), "{path}");
        let misplaced = match verb {
            "history/replay" => json!({"messageId": which["messageId"], "putOff": true}),
            _ if verb.starts_with("outbox") => json!({"putOff": true, "since": "2020-01-01T00:00:00Z"}),
            _ => json!({"type": "CapturePayment"}),
        };
        let misplaced = client.ops_post(&path, &acting(&misplaced, false)).await?;
        assert_eq!((misplaced.status, &misplaced.body["code"]), (400, &json!("request.which")), "{path}");
        let long = "x".repeat(10_000);
        for body in [
            json!({"which": which}),
            json!({"which": which, "act": {"reason": "", "dryRun": false}}),
            json!({"which": which, "act": {"reason": "  \t "}}),
            json!({"which": which, "act": {"reason": long}}),
            json!({"which": which, "act": {"reason": "fine", "actor": "a\u{0}b"}}),
            json!({"which": {"messageId": long}, "act": {"reason": "fine"}}),
            json!({"which": {"messageId": 7}, "act": {"reason": "fine"}}),
            json!({"which": {"everything": true}, "act": {"reason": "fine"}}),
            json!({"which": {"messageId": which["messageId"], "limit": 0}, "act": {"reason": "fine"}}),
            json!({"which": {"messageId": which["messageId"], "olderThan": -1}, "act": {"reason": "fine"}}),
        ] {
            let answer = client.ops_post(&path, &body).await?;
            assert_eq!(answer.status, 422, "{path} {body:.200}: {}", answer.text);
        }
    }
    for path in [
        "inbox?status=everything",
        "inbox?limit=0",
        "inbox?limit=1000000000",
        "inbox?after=x",
        "inbox?consumer=%00",
        "outbox?sagaId=x",
        "outbox?since=yesterday",
        "history?limit=-1",
        "messages/%00",
        "messages/nobody",
        "messages/%F0%9F%98%80",
    ] {
        let answer = client.ops_get(&format!("/ops/{path}")).await?;
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.text);
    }
    assert_eq!(stack.database.value("select count(*) from payments.operator_actions").await?, json!(0));
    Ok(())
}
