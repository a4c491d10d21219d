//! A listener on a free port, and a client that speaks bytes: whatever a library would never send.

use std::net::SocketAddr;

use axum::Router;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Serves until dropped.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) served: tokio::task::JoinHandle<()>,
}

impl Listener {
    pub(crate) async fn start(router: Router) -> anyhow::Result<Listener> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, stop) = (listener.local_addr()?, CancellationToken::new());
        let served = tokio::spawn(chassis::http::server::serve(listener, router, stop.clone()));
        Ok(Listener { address, stop, served })
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) async fn exchange(&self, request: &[u8]) -> anyhow::Result<Answer> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(request).await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        Answer::parse(&bytes)
    }

    /// Sends a request and closes the connection after the answer.
    pub(crate) async fn send(&self, line: &str, headers: &str, body: &[u8]) -> anyhow::Result<Answer> {
        let head = format!(
            "{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        );
        self.exchange(&[head.as_bytes(), body].concat()).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &[u8]) -> anyhow::Result<Answer> {
        self.send(&format!("POST {path}"), "content-type: application/json\r\n", body).await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> anyhow::Result<Answer> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| anyhow::anyhow!("no answer: {text:?}"))?;
        let status = head.split(' ').nth(1).unwrap_or_default().parse()?;
        Ok(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    }

    /// The code of a problem, after a check that it is one.
    pub(crate) fn code(&self) -> String {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let body: serde_json::Value = serde_json::from_str(&self.body).expect("a problem is JSON");
        assert_eq!(body["status"], self.status, "{body}");
        assert!(body["title"].is_string() && body["detail"].is_string() && body["retryable"].is_boolean(), "{body}");
        body["code"].as_str().unwrap_or_default().to_owned()
    }
}
