//! What every service shows: its description, its health, its figures, and to operators only, its verbs.

use std::collections::BTreeSet;

use e2e::{Service, Settings, Stack};
use reqwest::Method;
use serde_json::{Value, json};

use crate::shop::{books_balance, comes_to, order, place};

#[tokio::test]
async fn every_service_describes_its_interface_and_has_a_page_for_it() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    for (service, paths) in [
        (Service::Order, vec!["/orders", "/orders/{id}", "/orders/{id}/cancel", "/orders/{id}/timeline"]),
        (Service::Payment, vec!["/payments/{orderId}"]),
        (Service::Inventory, vec!["/stock", "/stock/{sku}", "/stock/{sku}/receipts"]),
        (Service::Shipping, vec!["/shipments/{orderId}"]),
        (Service::Sandbox, vec!["/ledger"]),
    ] {
        let process = stack.process(service);
        let described = process.get("/openapi.json").await?;
        let known: BTreeSet<&str> =
            described.body["paths"].as_object().into_iter().flatten().map(|(path, _)| path.as_str()).collect();
        for path in paths {
            assert!(known.contains(path), "{service:?} {path}: {known:?}");
        }
        for path in ["/docs/", "/"] {
            let page = process.get(path).await?;
            assert!(page.status == 200 && page.text.contains("swagger"), "{service:?} {path}: {}", page.status);
        }
        for path in ["/ops/sagas", "/metrics", "/health/ready", "/switches", "/ops/switches"] {
            assert_eq!(process.get(path).await?.status, 404, "{service:?} {path} is not for everybody");
        }
    }
    Ok(())
}

#[tokio::test]
async fn health_and_figures_are_open_to_operators_and_verbs_need_the_token() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await?;
    for service in Service::ALL {
        let client = stack.process(service).client()?;
        let live = client.ops_get("/health/live").await?;
        let ready = client.ops_get("/health/ready").await?;
        assert_eq!((live.status, ready.status), (200, 200), "{service:?}: {}", ready.text);
        let figures = client.ops_get("/metrics").await?.text;
        let mut expected = Vec::new();
        if service.has_broker() {
            expected.extend(["outbox_published_total", "outbox_pending", "messaging_handled_total"]);
        }
        if service == Service::Order {
            expected.extend(["saga_transitions_total", "http_server_request_duration"]);
        }
        for name in expected {
            assert!(figures.contains(name), "{service:?} {name}: {figures}");
        }
        assert!(!figures.contains(&placed.order), "an id is a label");
    }
    let ops = stack.order().client()?;
    for token in [None, Some("wrong")] {
        let request = reqwest::Client::new().get(format!("{}/ops/sagas", ops.ops_url()));
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        let refused = e2e::stack::client::send(request).await?;
        assert_eq!(refused.status, 401, "{token:?}: {}", refused.text);
    }
    let listed = e2e::stack::client::send(ops.ops_request(Method::GET, "/ops/sagas?state=completed")).await?;
    assert_eq!(listed.body[0]["sagaId"], json!(placed.saga), "{}", listed.text);
    let mistyped = e2e::stack::client::send(ops.ops_request(Method::GET, "/ops/sagas?state=needs-attention")).await?;
    assert_eq!((mistyped.status, &mistyped.body["code"]), (400, &json!("request.query")), "{}", mistyped.text);
    Ok(())
}

#[tokio::test]
async fn orders_are_listed_page_by_page_without_skipping() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let mut placed = Vec::new();
    for _ in 0..7 {
        placed.push(place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?.order);
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = stack.order().get(&format!("/orders?limit=3{after}")).await?;
        assert_eq!(page.status, 200, "{}", page.text);
        seen.extend(page.body["orders"].as_array().into_iter().flatten().map(|order| order["orderId"].clone()));
        match page.body["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, placed.iter().map(|id| json!(id)).collect::<Vec<Value>>());
    for query in ["limit=0", "limit=101", "limit=x", "status=nothing", "after=1", "unknown=1", "correlationId="] {
        let refused = stack.order().get(&format!("/orders?{query}")).await?;
        assert!((400..500).contains(&refused.status), "{query}: {} {}", refused.status, refused.text);
    }
    Ok(())
}

#[tokio::test]
async fn each_role_reaches_its_own_schema_and_no_other() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    let tables = [
        ("orders", "sagas"),
        ("payments", "payments"),
        ("inventory", "stock"),
        ("shipping", "shipments"),
        ("sandbox", "ledger"),
    ];
    for (role, _) in tables {
        for (schema, table) in tables {
            for (verb, statement) in [
                ("select", format!("select count(*) from {schema}.{table}")),
                ("create", format!("create table {schema}.mine (id int)")),
                ("drop", format!("drop table {schema}.{table}")),
                ("truncate", format!("truncate {schema}.{table}")),
            ] {
                let tried =
                    stack.database.execute(&format!("set local role {role}_service; {statement}; rollback")).await;
                let allowed = role == schema && verb == "select";
                assert_eq!(tried.is_ok(), allowed, "{role} {verb} {schema}: {tried:?}");
            }
        }
    }
    for statement in ["update sandbox.ledger set amount = 0", "delete from sandbox.ledger"] {
        let tried = stack.database.execute(&format!("set local role sandbox_service; {statement}; rollback")).await;
        assert!(tried.is_err(), "the ledger is append-only: {statement}");
    }
    Ok(())
}
