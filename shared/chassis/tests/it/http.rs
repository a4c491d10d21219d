use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{get, post};
use chassis::http::Front;
use chassis::settings::Sampling;
use chassis::{Correlation, Json, Path, Problem, Query};
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::client::Listener;

#[derive(Deserialize, garde::Validate, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    #[garde(length(chars, min = 1, max = 64))]
    name: String,
    #[garde(range(min = 1, max = 100))]
    quantity: i64,
}

#[derive(Deserialize, garde::Validate)]
#[serde(deny_unknown_fields)]
struct Page {
    #[garde(inner(range(min = 1, max = 200)))]
    limit: Option<u32>,
}

#[utoipa::path(post, path = "/orders", request_body = Order, responses((status = 202)))]
async fn place(correlation: Correlation, Json(order): Json<Order>) -> String {
    format!("{} {} {}", order.name, order.quantity, correlation.or("own-id"))
}

async fn list(Query(page): Query<Page>) -> String {
    format!("{:?}", page.limit)
}

async fn find(Path(id): Path<uuid::Uuid>) -> Result<String, Problem> {
    Err(Problem::not_found("order.not_found", format!("there is no order {id}")))
}

fn routes() -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(place))
        .route("/orders", get(list))
        .route("/orders/{id}", get(find))
        .route("/panic", get(|| async { panic!("on purpose") as &'static str }))
}

async fn service() -> anyhow::Result<Listener> {
    Listener::start(Front::new(16, Sampling::Always).service("shop", routes())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_cancels_nothing() -> anyhow::Result<()> {
    let (begun, go, finished) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let handler = {
        let (begun, go, finished) = (begun.clone(), go.clone(), finished.clone());
        move || async move {
            begun.notify_one();
            go.notified().await;
            finished.store(true, Ordering::SeqCst);
        }
    };
    let front = Front::new(16, Sampling::Always);
    let listener = Listener::start(front.cover(Router::new().route("/work", post(handler)))).await?;
    let mut client = TcpStream::connect(listener.address).await?;
    client.write_all(b"POST /work HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n").await?;
    begun.notified().await;
    drop(client);
    listener.stop.cancel();
    while !listener.served.is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(!finished.load(Ordering::SeqCst));
    go.notify_one();
    front.drained().await;
    assert!(finished.load(Ordering::SeqCst));
    Ok(())
}

#[tokio::test]
async fn a_stop_does_not_wait_for_idle_connections() -> anyhow::Result<()> {
    let listener = service().await?;
    let silent = TcpStream::connect(listener.address).await?;
    let mut half = TcpStream::connect(listener.address).await?;
    half.write_all(b"GET /orders HTTP/1.1\r\nhost:").await?;
    let begun = Instant::now();
    listener.stop.cancel();
    while !listener.served.is_finished() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(begun.elapsed() < Duration::from_millis(2_500), "{:?}", begun.elapsed());
    drop((silent, half));
    Ok(())
}

#[tokio::test]
async fn what_is_routed_nowhere_and_what_panics_are_problems() -> anyhow::Result<()> {
    let listener = service().await?;
    for (line, status, code) in [
        ("GET /nothing", 404, "request.not_found"),
        ("DELETE /orders", 405, "request.method_not_allowed"),
        ("BREW /orders", 405, "request.method_not_allowed"),
        ("GET /orders/4711", 400, "request.path"),
        ("GET /orders/a%00b", 400, "request.malformed"),
        ("GET /orders/%ff", 400, "request.path"),
        ("GET /orders/0195a5e5-4f0c-7000-8000-000000000000", 404, "order.not_found"),
        ("GET /orders?limit=x", 400, "request.query"),
        ("GET /orders?other=1", 400, "request.query"),
        ("GET /orders?limit=1000000000", 422, "request.invalid"),
        ("GET /panic", 500, "internal"),
    ] {
        let answer = listener.send(line, "", b"").await?;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{line}");
        assert!(!answer.body.contains("on purpose"), "{answer:?}");
    }
    Ok(())
}

#[tokio::test]
async fn no_body_of_a_stranger_makes_more_than_a_problem() -> anyhow::Result<()> {
    let listener = service().await?;
    let good = br#"{"name":"a","quantity":1}"#;
    assert_eq!(listener.post_json("/orders", good).await?.body, "a 1 own-id");
    assert_eq!(listener.send("POST /orders", "", good).await?.code(), "request.content_type");
    let headers = "content-type: text/plain\r\n";
    assert_eq!(listener.send("POST /orders", headers, good).await?.status, 415);
    let long = format!(r#"{{"name":"{}","quantity":1}}"#, "x".repeat(70_000));
    let too_long = listener.post_json("/orders", long.as_bytes()).await?;
    assert_eq!((too_long.status, too_long.code().as_str()), (413, "request.too_large"));
    let deep = "[".repeat(10_000);
    let bodies: [&[u8]; 10] = [
        b"",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        deep.as_bytes(),
        br#"{"name":"\u0000","quantity":1}"#,
        br#"{"name":"\ud800","quantity":1}"#,
        br#"{"name":"a","name":"b","quantity":1}"#,
        br#"{"name":"a","quantity":1e400}"#,
        br#"{"name":"a","quantity":1,"total":0}"#,
        br#"{"name":null,"quantity":[]}"#,
    ];
    for body in bodies {
        let answer = listener.post_json("/orders", body).await?;
        let code = answer.code();
        assert!(matches!(answer.status, 400 | 422), "{answer:?}");
        assert!(matches!(code.as_str(), "request.malformed" | "request.invalid"), "{answer:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_caller_s_correlation_id_comes_back_or_is_refused() -> anyhow::Result<()> {
    let listener = service().await?;
    let send = async |id: &str| {
        let headers = format!("content-type: application/json\r\nx-correlation-id: {id}\r\n");
        listener.send("POST /orders", &headers, br#"{"name":"a","quantity":1}"#).await
    };
    let answer = send("order:4711").await?;
    assert_eq!(answer.body, "a 1 order:4711");
    assert!(answer.head.contains("x-correlation-id: order:4711"), "{answer:?}");
    for bad in ["", "a b", "é", &"x".repeat(129)] {
        assert_eq!(send(bad).await?.code(), "request.correlation_id", "{bad}");
    }
    Ok(())
}

#[tokio::test]
async fn trace_headers_of_strangers_are_never_an_error() -> anyhow::Result<()> {
    let listener = service().await?;
    let state = "a=b,".repeat(2_000);
    let baggage = "k=v,".repeat(200);
    for headers in [
        "traceparent: nonsense\r\n".to_owned(),
        "traceparent: 00-00000000000000000000000000000000-0000000000000000-00\r\n".to_owned(),
        format!("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\ntracestate: {state}\r\n"),
        format!("baggage: {baggage}\r\n"),
    ] {
        assert_eq!(listener.send("GET /orders", &headers, b"").await?.status, 200, "{headers:.80}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_can_run_are_told_to_come_again() -> anyhow::Result<()> {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, go) = (begun.clone(), go.clone());
        move || async move {
            begun.notify_one();
            go.notified().await;
        }
    };
    let front = Front::new(1, Sampling::Always);
    let listener = Listener::start(front.cover(Router::new().route("/work", post(handler)))).await?;
    let first = listener.send("POST /work", "", b"");
    let second = async {
        begun.notified().await;
        let refused = listener.send("POST /work", "", b"").await;
        go.notify_one();
        refused
    };
    let (first, second) = tokio::join!(first, second);
    let second = second?;
    assert_eq!((first?.status, second.status, second.code().as_str()), (200, 503, "overloaded"));
    assert!(second.head.contains("retry-after: 1"), "{second:?}");
    Ok(())
}

#[tokio::test]
async fn the_description_names_the_routes_and_the_form_of_errors() -> anyhow::Result<()> {
    let listener = service().await?;
    let answer = listener.send("GET /openapi.json", "", b"").await?;
    let description: serde_json::Value = serde_json::from_str(&answer.body)?;
    assert_eq!(description["info"]["title"], "shop");
    let place = &description["paths"]["/orders"]["post"];
    let problem = &place["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"];
    assert_eq!(problem, "#/components/schemas/Problem");
    assert!(description["components"]["schemas"]["Problem"]["properties"]["code"].is_object());
    assert_eq!(listener.send("GET /docs/", "", b"").await?.status, 200);
    Ok(())
}
