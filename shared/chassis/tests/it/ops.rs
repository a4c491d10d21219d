use axum::Router;
use axum::routing::get;
use chassis::ops::{Token, guard};

use crate::client::Listener;

async fn operators(token: Option<&str>) -> anyhow::Result<Listener> {
    let verbs = Router::new().route("/outbox", get(|| async { "rows" }));
    Listener::start(guard(verbs, Token::new(token))).await
}

#[tokio::test]
async fn operators_show_their_token() -> anyhow::Result<()> {
    let listener = operators(Some("secret")).await?;
    let good = listener.send("GET /ops/outbox", "authorization: Bearer secret\r\n", b"").await?;
    assert_eq!(good.body, "rows");
    for headers in ["", "authorization: Bearer wrong\r\n", "authorization: Bearer \r\n", "authorization: secret\r\n"] {
        for path in ["/ops/outbox", "/ops/nothing"] {
            let refused = listener.send(&format!("GET {path}"), headers, b"").await?;
            assert_eq!((refused.status, refused.code().as_str()), (401, "ops.unauthorized"), "{path} {headers}");
            assert!(refused.head.contains("www-authenticate: bearer"), "{refused:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn without_a_token_nobody_is_let_in() -> anyhow::Result<()> {
    let listener = operators(None).await?;
    for headers in ["", "authorization: Bearer \r\n", "authorization: Bearer x\r\n"] {
        assert_eq!(listener.send("GET /ops/outbox", headers, b"").await?.status, 401);
    }
    Ok(())
}
