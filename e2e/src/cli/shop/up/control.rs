//! The socket through which other `saga` commands find the shop, kill and start its parts, and stop it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use e2e::shop::{Act, Disturbed, Part, Whereabouts, native};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use super::Native;

/// Requests that wait for the one before.
const WAITING: usize = 16;

/// The socket. Dropping it removes it.
pub(super) struct Control {
    path: PathBuf,
    listener: std::cell::Cell<Option<UnixListener>>,
}

enum Wish {
    Act(Part, Act, oneshot::Sender<anyhow::Result<()>>),
    Stop,
}

#[derive(Clone)]
struct Desk {
    at: Whereabouts,
    disturbed: Arc<Mutex<Disturbed>>,
    wishes: mpsc::Sender<Wish>,
}

impl Control {
    /// Opens it, for its user only. Whoever has the lock of the directory may take over the socket of the last run.
    pub(super) fn listen(directory: &Path) -> anyhow::Result<Control> {
        let path = native::socket()?;
        debug_assert_eq!(path.parent(), Some(directory));
        if path.exists() {
            fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path).with_context(|| format!("opening {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Control { path, listener: std::cell::Cell::new(Some(listener)) })
    }

    /// Answers until somebody wants everything stopped. One part is acted on at a time.
    pub(super) async fn serve(&self, native: &Native) -> anyhow::Result<()> {
        let (wishes, mut wanted) = mpsc::channel(WAITING);
        let routes = Router::new()
            .route("/", get(async |State(desk): State<Desk>| Json(desk.at)))
            .route("/disturbed", get(disturbed))
            .route("/stop", post(stop))
            .route("/{part}/{act}", post(act))
            .with_state(Desk { at: native.at.clone(), disturbed: native.disturbed.clone(), wishes });
        let listener = self.listener.take().context("it is served once")?;
        // Questions are answered while a part is acted on.
        let acting = async {
            while let Some(Wish::Act(part, act, done)) = wanted.recv().await {
                let _ = done.send(native.act(part, act).await);
            }
        };
        tokio::select! {
            ended = axum::serve(listener, routes).into_future() => ended.context("the control socket"),
            () = acting => Ok(()),
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

async fn disturbed(State(desk): State<Desk>) -> Json<Disturbed> {
    Json(desk.disturbed.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

async fn stop(State(desk): State<Desk>) -> StatusCode {
    match desk.wishes.send(Wish::Stop).await {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn act(State(desk): State<Desk>, UrlPath((part, act)): UrlPath<(Part, Act)>) -> (StatusCode, String) {
    let (done, answer) = oneshot::channel();
    if desk.wishes.send(Wish::Act(part, act, done)).await.is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "everything is being stopped".to_owned());
    }
    match answer.await {
        Ok(Ok(())) => (StatusCode::OK, String::new()),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "everything is being stopped".to_owned()),
    }
}
