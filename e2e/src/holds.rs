//! Named points in a service's code where a test can make it wait, abort or panic. Only services that are built with
//! the feature `hold-points` look at them. A point acts while a file of its name stands in the directory that
//! `SAGA_HOLDS` names; a service that reaches it leaves `<point>.reached` beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use crate::eventually::{State, eventually};

/// What a service does at the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Wait until the point is released.
    Hold,
    /// End at once, as by a kill.
    Abort,
    /// Panic.
    Panic,
}

/// How long a point may take to be reached.
const REACHED_WITHIN: Duration = Duration::from_secs(30);

/// The hold points of one process.
#[derive(Clone, Debug)]
pub struct Holds {
    directory: PathBuf,
}

impl Holds {
    /// # Errors
    /// The directory cannot be made.
    pub fn new(directory: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        Ok(Holds { directory })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the point act from now on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn arm(&self, point: &str, action: Action) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.reached(point)))?;
        let word = match action {
            Action::Hold => "hold",
            Action::Abort => "abort",
            Action::Panic => "panic",
        };
        // Written aside and renamed: the service never reads half a word.
        let aside = self.directory.join(format!(".{point}"));
        fs::write(&aside, word)?;
        fs::rename(aside, self.directory.join(point))
    }

    /// Waits until a service has come to the point.
    ///
    /// # Errors
    /// None came within half a minute.
    pub async fn wait_reached(&self, point: &str) -> anyhow::Result<()> {
        eventually(REACHED_WITHIN, &format!("hold point {point} is reached"), async || {
            Ok(if self.reached(point).exists() { State::Reached(()) } else { State::pending("not reached") })
        })
        .await
    }

    /// Lets whoever waits at the point go on, and those who come later pass.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn release(&self, point: &str) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.directory.join(point)))
    }

    fn reached(&self, point: &str) -> PathBuf {
        self.directory.join(format!("{point}.reached"))
    }
}

fn absent_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
