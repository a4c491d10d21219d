//! What happened, line by line and as it happened: each request with its answer, each fault with its begin and end. It
//! stands in a file, so that a run that fails can be read, and in memory for the judge.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

/// The file, in the directory of the run.
const FILE: &str = "history.jsonl";

/// What a customer wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Wanted {
    Order,
    /// The same order once more, under its key, although it was answered.
    Repeat,
    Cancel,
}

/// One request and what came of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    /// Seconds since the load began.
    pub(super) at: f64,
    pub(super) seconds: f64,
    pub(super) number: u64,
    pub(super) wanted: Wanted,
    pub(super) key: String,
    pub(super) attempt: u32,
    /// `None`: no answer came, and whether it took effect is unknown.
    pub(super) status: Option<u16>,
    pub(super) retry_after: bool,
    pub(super) order: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) said: Option<String>,
}

/// The history of a run.
pub(super) struct History {
    begin: Instant,
    file: RefCell<BufWriter<File>>,
    requests: RefCell<Vec<Request>>,
}

impl History {
    /// Begins one. Its clock starts now.
    pub(super) fn begin(directory: &Path) -> anyhow::Result<History> {
        let path: PathBuf = directory.join(FILE);
        let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(History { begin: Instant::now(), file: RefCell::new(BufWriter::new(file)), requests: RefCell::default() })
    }

    pub(super) fn began(&self) -> Instant {
        self.begin
    }

    /// Seconds since it began.
    pub(super) fn now(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    pub(super) fn request(&self, request: Request) {
        self.write(&json!({"request": request}));
        self.requests.borrow_mut().push(request);
    }

    /// Anything else.
    pub(super) fn note(&self, what: &str, note: &impl Serialize) {
        self.write(&json!({"at": self.now(), what: note}));
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.borrow().clone()
    }

    fn write(&self, line: &serde_json::Value) {
        // A full disk spoils the file, and not the verdict.
        let mut file = self.file.borrow_mut();
        let _ = writeln!(file, "{line}").and_then(|()| file.flush());
    }
}
