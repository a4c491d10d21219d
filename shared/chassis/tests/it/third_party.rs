use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use chassis::ThirdParty;
use messaging::{Class, Failure};
use serde_json::{Value, json};

use crate::client::Listener;

async fn call(listener: &Listener, path: &'static str) -> Result<Value, Failure> {
    let party = ThirdParty::new("provider", &format!("http://{}/", listener.address), Duration::from_millis(300))?;
    party.post(path, "order:4711", &json!({ "key": "k" })).await
}

#[tokio::test]
async fn every_answer_of_a_third_party_is_classified() -> anyhow::Result<()> {
    let router = Router::new()
        .route(
            "/good",
            post(|headers: HeaderMap| async move {
                axum::Json(json!({ "id": headers["x-correlation-id"].to_str().unwrap_or_default() }))
            }),
        )
        .route("/page", post(|| async { "<html>" }))
        .route("/long", post(|| async { "x".repeat(100_000) }))
        .route("/busy", post(|| async { (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")]) }))
        .route("/away", post(|| async { StatusCode::SERVICE_UNAVAILABLE }))
        .route("/wrong", post(|| async { StatusCode::UNPROCESSABLE_ENTITY }))
        .route("/slow", post(|| async { tokio::time::sleep(Duration::from_secs(5)).await }));
    let listener = Listener::start(router).await?;
    assert_eq!(call(&listener, "/good").await?, json!({ "id": "order:4711" }));
    for (path, class, code) in [
        ("/page", Class::Transient, "provider.unreadable"),
        ("/long", Class::Transient, "provider.unreadable"),
        ("/busy", Class::Transient, "provider.rate_limited"),
        ("/away", Class::Transient, "provider.unavailable"),
        ("/slow", Class::Transient, "provider.timeout"),
        ("/wrong", Class::Permanent, "provider.refused"),
        ("/none", Class::Permanent, "provider.refused"),
    ] {
        let failure = call(&listener, path).await.expect_err(path);
        assert_eq!((failure.class(), failure.code()), (class, code), "{path}");
    }
    assert_eq!(call(&listener, "/busy").await.expect_err("busy").wait(), Some(Duration::from_secs(7)));
    Ok(())
}

#[tokio::test]
async fn a_third_party_that_is_not_there_may_come_back() -> anyhow::Result<()> {
    let listener = Listener::start(Router::new()).await?;
    listener.stop.cancel();
    while !listener.served.is_finished() {
        tokio::task::yield_now().await;
    }
    let failure = call(&listener, "/good").await.expect_err("nobody is there");
    assert_eq!((failure.class(), failure.code()), (Class::Transient, "provider.unreachable"));
    Ok(())
}

#[test]
fn only_a_plain_http_url_is_taken() {
    for url in ["", "sandbox:8005", "https://sandbox", "file:///etc/passwd"] {
        assert!(ThirdParty::new("provider", url, Duration::from_secs(1)).is_err(), "{url}");
    }
}
