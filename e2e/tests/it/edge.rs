//! Bad input over HTTP, and idempotency keys: always 4xx with a stable code, never 500, nothing half stored.

use std::time::Duration;

use e2e::{Proxy, Servers, Service, Settings, Stack};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::shop::{books_balance, comes_to, order, patient, place, place_under};

/// Posts raw bytes with a key.
async fn post_raw(stack: &Stack, body: Vec<u8>, content_type: &str) -> anyhow::Result<(u16, Value)> {
    let client = stack.order().client()?;
    let key = format!("raw-{:016x}", rand::random::<u64>());
    let request = client.request(Method::POST, "/orders").header("Idempotency-Key", key);
    let answer = e2e::stack::client::send(request.header("Content-Type", content_type).body(body)).await?;
    Ok((answer.status, answer.body))
}

async fn stored(stack: &Stack) -> anyhow::Result<Value> {
    stack
        .database
        .value(
            "select (select count(*) from orders.orders) + (select count(*) from orders.sagas)
                  + (select count(*) from orders.outbox_log) + (select count(*) from orders.idempotency_keys)",
        )
        .await
}

#[tokio::test]
async fn bad_orders_are_refused_with_a_code_and_store_nothing() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let good = order("KEYBOARD", 1, "pm_ok", "standard");
    let with = |pointer: &str, value: Value| {
        let mut body = good.clone();
        if let Some(field) = body.pointer_mut(pointer) {
            *field = value;
        }
        body.to_string().into_bytes()
    };
    let mut bad: Vec<(&str, Vec<u8>)> = Vec::new();
    for (what, body) in [
        ("empty", ""),
        ("not JSON", "{"),
        ("null", "null"),
        ("an array", "[]"),
        ("a number", "1e400"),
        ("a lone surrogate", r#"{"customerId":"\ud800"}"#),
        ("duplicate keys", r#"{"customerId":"a","customerId":"b"}"#),
    ] {
        bad.push((what, body.as_bytes().to_vec()));
    }
    bad.push(("invalid UTF-8", vec![b'{', b'"', 0xff, b'"', b':', b'1', b'}']));
    bad.push(("a deep one", ["[".repeat(10_000), "]".repeat(10_000)].concat().into_bytes()));
    bad.push(("a byte order mark", [b"\xef\xbb\xbf".to_vec(), good.to_string().into_bytes()].concat()));
    for quantity in
        [json!(0), json!(-1), json!(i64::MAX), json!(1.5), json!("1"), json!(null), json!(9_007_199_254_740_993_i64)]
    {
        bad.push(("a quantity", with("/items/0/quantity", quantity)));
    }
    for text in [json!(""), json!("  "), json!("a\u{0}b"), json!("x".repeat(10_000)), json!(7), json!(null), json!([])]
    {
        bad.push(("a customer", with("/customerId", text.clone())));
        bad.push(("a sku", with("/items/0/sku", text.clone())));
        bad.push(("a method", with("/paymentMethod", text.clone())));
        bad.push(("a street", with("/shipping/street", text)));
    }
    bad.push(("no items", with("/items", json!([]))));
    bad.push(("too many items", with("/items", json!(vec![json!({"sku": "MOUSE", "quantity": 1}); 51]))));
    bad.push(("a country", with("/shipping/country", json!("Germany"))));
    bad.push(("an unknown sku", with("/items/0/sku", json!("NOTHING"))));
    for extra in ["status", "total", "orderId", "sagaState"] {
        let mut body = good.clone();
        body[extra] = json!("completed");
        bad.push(("an unknown field", body.to_string().into_bytes()));
    }
    bad.push(("half a megabyte", with("/shipping/name", json!("x".repeat(500_000)))));
    let before = stored(&stack).await?;
    for (what, body) in bad {
        let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        let (status, problem) = post_raw(&stack, body, "application/json").await?;
        assert!((400..500).contains(&status), "{what}: {status} {problem} for {shown}");
        assert!(problem["code"].as_str().is_some_and(|code| code.contains('.')), "{what}: {problem}");
        assert_eq!(problem["retryable"], false, "{what}");
        assert!(problem["traceId"].as_str().is_some_and(|id| id.len() == 32), "{what}: {problem}");
    }
    let (status, _) = post_raw(&stack, good.to_string().into_bytes(), "text/plain").await?;
    assert_eq!(status, 415);
    assert_eq!(stored(&stack).await?, before);
    let placed = place(&stack, &good).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await
}

#[tokio::test]
async fn a_key_is_needed_and_bounded_and_belongs_to_one_order() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let good = order("KEYBOARD", 1, "pm_ok", "standard");
    let client = stack.order().client()?;
    let without = e2e::stack::client::send(client.request(Method::POST, "/orders").json(&good)).await?;
    assert_eq!((without.status, &without.body["code"]), (400, &json!("request.idempotency_key_missing")));
    for key in ["", " ", "k\u{e4}", &"k".repeat(256)] {
        let answer = stack.order().post("/orders", &good, key).await?;
        assert_eq!(answer.status, 400, "{key:?}: {}", answer.text);
    }
    // An invalid request does not burn its key.
    let answer = stack.order().post("/orders", &order("NOTHING", 1, "pm_ok", "standard"), "4711").await?;
    assert_eq!((answer.status, &answer.body["code"]), (422, &json!("order.unknown_sku")));
    let first = place_under(&stack, &good, "4711").await?;
    let second = place_under(&stack, &good, "4711").await?;
    assert_eq!(first.order, second.order);
    let answer = stack.order().post("/orders", &order("KEYBOARD", 2, "pm_ok", "standard"), "4711").await?;
    assert_eq!((answer.status, &answer.body["code"]), (422, &json!("request.idempotency_key_reused")));
    let mut other = good.clone();
    other["customerId"] = json!("c-2");
    assert_ne!(place_under(&stack, &other, "4711").await?.order, first.order, "keys belong to their caller");
    comes_to(&stack, &first, "completed").await?;
    stack.order().kill().await?;
    stack.order().restart().await?;
    assert_eq!(place_under(&stack, &good, "4711").await?.order, first.order, "a key outlives the process");
    assert_eq!(stack.database.value("select count(*) from orders.orders").await?, json!(2));
    books_balance(&stack).await
}

#[tokio::test]
async fn fifty_posts_at_once_with_one_key_make_one_order_and_fifty_equal_answers() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let good = order("KEYBOARD", 1, "pm_ok", "standard");
    let posts = join_all((0..50).map(|_| stack.order().post("/orders", &good, "one-key"))).await;
    let mut answers = Vec::new();
    for post in posts {
        let answer = post?;
        assert_eq!(answer.status, 202, "{}", answer.text);
        answers.push(answer.text);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    assert_eq!(stack.database.value("select count(*) from orders.sagas").await?, json!(1));
    books_balance(&stack).await
}

#[tokio::test]
async fn a_receipt_of_stock_counts_once_per_key() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let body = json!({"quantity": 5});
    let posts = join_all((0..20).map(|_| stack.inventory().post("/stock/UNICORN/receipts", &body, "r-1"))).await;
    for post in posts {
        let answer = post?;
        assert_eq!((answer.status, answer.body["available"].as_i64()), (200, Some(5)), "{}", answer.text);
    }
    for (path, body, status) in [
        ("/stock/NOTHING/receipts", json!({"quantity": 1}), 404),
        ("/stock/UNICORN/receipts", json!({"quantity": 0}), 422),
        ("/stock/UNICORN/receipts", json!({"quantity": i64::MAX}), 422),
        ("/stock/UNICORN/receipts", json!({"quantity": 6}), 422),
    ] {
        let key = if body["quantity"] == 6 { "r-1" } else { "r-2" };
        let answer = stack.inventory().post(path, &body, key).await?;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text);
    }
    Ok(())
}

#[tokio::test]
async fn clients_who_send_slowly_or_do_not_read_hold_nobody_up() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default().set(Service::Order, "HTTP_AT_ONCE", "4")).await?;
    let address = stack.order().client()?.url().trim_start_matches("http://").to_owned();
    let reads_nothing = "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: order\r\n\r\n";
    let stops_in_the_body = "POST /orders HTTP/1.1\r\nHost: order\r\nContent-Type: application/json\r\n\
                             Idempotency-Key: slow\r\nContent-Length: 500\r\n\r\n{";
    let mut slow = Vec::new();
    for number in 0..20 {
        let mut stream = TcpStream::connect(&address).await?;
        stream.write_all(if number < 10 { reads_nothing } else { stops_in_the_body }.as_bytes()).await?;
        slow.push(stream);
        if number == 9 {
            // Answered when the readers are: they hold nothing any more.
            place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?;
        }
    }
    for number in 0..5 {
        let answer =
            stack.order().post("/orders", &order("MOUSE", 1, "pm_ok", "standard"), &format!("s-{number}")).await?;
        assert_eq!(answer.status, 202, "{}", answer.text);
    }
    let listed =
        e2e::stack::client::send(stack.order().client()?.ops_request(reqwest::Method::GET, "/ops/sagas")).await?;
    assert_eq!(listed.status, 200, "{}", listed.text);
    books_balance(&stack).await?;
    // Who sends nothing more is told so, and let go.
    let mut answer = String::new();
    drop(tokio::time::timeout(Duration::from_secs(20), slow.swap_remove(19).read_to_string(&mut answer)).await?);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("\"retryable\":true"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_client_who_leaves_cancels_nothing_and_loses_nothing() -> anyhow::Result<()> {
    // A slow way to the database leaves many requests in the middle of their transaction.
    let proxy = Proxy::start(Servers::of_this_run()?.postgres.address()).await?;
    let stack = Stack::start(patient().postgres_through(Service::Order, proxy.address())).await?;
    proxy.delay(Duration::from_millis(5), Duration::ZERO);
    let body = order("MOUSE", 1, "pm_ok", "standard").to_string();
    let address = stack.order().client()?.url().trim_start_matches("http://").to_owned();
    let leave = |number: usize| {
        let (address, body) = (address.clone(), body.clone());
        async move {
            let Ok(mut stream) = TcpStream::connect(&address).await else { return };
            let request = format!(
                "POST /orders HTTP/1.1\r\nHost: order\r\nContent-Type: application/json\r\nIdempotency-Key: g-{number}\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            drop(stream.write_all(request.as_bytes()).await);
            tokio::time::sleep(Duration::from_micros((number as u64 * 37) % 2_000)).await;
        }
    };
    let mut accepted = Vec::new();
    for round in 0..100 {
        join_all((0..50).map(|n| leave(round * 50 + n))).await;
        accepted.push(place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?);
    }
    // Repeating a request whose client left finds either the order it made or none.
    for number in [0, 2_499, 4_999] {
        place_under(&stack, &order("MOUSE", 1, "pm_ok", "standard"), &format!("g-{number}")).await?;
    }
    let status = stack.order().terminate().await?;
    assert!(status.success(), "{status}");
    proxy.heal();
    proxy.delay(Duration::ZERO, Duration::ZERO);
    stack.order().restart().await?;
    for placed in &accepted {
        comes_to(&stack, placed, "completed").await?;
    }
    let log = stack.order().logs().join("\n");
    assert!(!log.contains("already a transaction") && !log.contains("no transaction in progress"));
    books_balance(&stack).await
}
