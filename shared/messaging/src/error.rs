//! A technical failure has a class before it has a message. The class alone decides what happens to a message: run it
//! again at once, later, never, or hold everything until our own database or broker is back. Rejections by the rules
//! of the business are no failures: they commit and are answered.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

mod sqlstate;

/// What can be done about a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Two transactions met (serialization failure, deadlock): run again at once, count nothing.
    Conflict,
    /// No answer yet; the same message may succeed later.
    Transient,
    /// A bug or a broken contract; no retry can help.
    Permanent,
    /// Our own database or broker is away: hold, count nothing.
    Unavailable,
}

/// A technical failure: its class, a stable code, what was being done, and the cause.
pub struct Failure {
    class: Class,
    code: Cow<'static, str>,
    context: Cow<'static, str>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure of the given class. `code` is stable and short (`provider.timeout`), `context` says what was being
    /// done, for a person.
    pub fn new(class: Class, code: impl Into<Cow<'static, str>>, context: impl Into<Cow<'static, str>>) -> Failure {
        Failure { class, code: code.into(), context: context.into(), retry_after: None, source: None }
    }

    /// No answer yet: the same message may succeed later.
    pub fn transient(code: impl Into<Cow<'static, str>>, context: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(Class::Transient, code, context)
    }

    /// A bug or a broken contract: no retry can help.
    pub fn permanent(code: impl Into<Cow<'static, str>>, context: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(Class::Permanent, code, context)
    }

    /// Our own database or broker is away.
    pub fn unavailable(code: impl Into<Cow<'static, str>>, context: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(Class::Unavailable, code, context)
    }

    /// The same failure with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        self.source = Some(source.into());
        self
    }

    /// The same failure, not to be tried again before this time is over (a third party's `Retry-After`).
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Failure {
        self.retry_after = Some(delay);
        self
    }

    /// The same failure for one more of those who share it, with its causes as text.
    #[must_use]
    pub fn share(&self) -> Failure {
        let copy = Failure::new(self.class, self.code.clone(), self.chain());
        Failure { retry_after: self.retry_after, ..copy }
    }

    /// What can be done about it.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The stable code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The shortest wait that a third party asked for, if it did.
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Context and every cause, on one line.
    pub fn chain(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            line.push_str(": ");
            line.push_str(&error.to_string());
            cause = error.source();
        }
        line
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: {}", self.class, self.code, self.chain())
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// When the database last refused to write because it is read-only.
static READ_ONLY: Mutex<Option<Instant>> = Mutex::new(None);

/// How long ago the database last refused to write because it is read-only: after a fail-over, connections that were
/// opened before may lead to a server that will never take a write again. Let go of them.
pub fn read_only_seen() -> Option<Duration> {
    READ_ONLY.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Failure {
        let (class, code) = sqlstate::classify(&error);
        if code == "database.25006" {
            *READ_ONLY.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        Failure::new(class, code, "the database refused or was away").caused_by(error)
    }
}

/// What the client says is always about the connection: a message is never at fault for it.
impl From<lapin::Error> for Failure {
    fn from(error: lapin::Error) -> Failure {
        let context = match error.kind() {
            lapin::ErrorKind::ParsingError(_) => {
                "the AMQP client cannot read what the broker sent: if it comes again at each start, the first message of \
                 the queue has a name that is no UTF-8 and must be taken out by hand"
            }
            _ => "the broker refused or was away",
        };
        Failure::unavailable("broker", context).caused_by(error)
    }
}

/// One word at the call site that says what can be done about an error.
pub trait Classify<T> {
    /// No answer yet: the same message may succeed later.
    ///
    /// # Errors
    /// The error, as a transient [`Failure`].
    fn transient(self, code: &'static str) -> Result<T, Failure>;

    /// A bug or a broken contract: no retry can help.
    ///
    /// # Errors
    /// The error, as a permanent [`Failure`].
    fn permanent(self, code: &'static str) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Classify<T> for Result<T, E> {
    fn transient(self, code: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure::transient(code, code).caused_by(error))
    }

    fn permanent(self, code: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure::permanent(code, code).caused_by(error))
    }
}
