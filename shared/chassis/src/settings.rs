//! The command line: what to do, and the settings that every service has. Each setting is an option and an environment
//! variable; `--help` tells them all with their defaults. Values that are secrets never appear there.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use messaging::{AfterPublish, Failure, RelaySettings};
use sqlx::postgres::PgConnectOptions;

use crate::cleaning::Retention;

/// Who a service is, and where it listens if nobody says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The name in logs, traces and metrics, at the database and at the broker.
    pub name: &'static str,
    /// The port for everybody.
    pub http_port: u16,
    /// The port for operators.
    pub ops_port: u16,
}

/// What the process is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Verb {
    /// Run the service
    Serve,
    /// Run only the service's relay, beside instances that have theirs off
    Relay,
    /// Ask the running service whether it is ready; the exit code tells
    Health,
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogForm {
    /// One JSON object a line
    Json,
    /// For a person at a terminal
    Pretty,
}

/// Which traces are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sampling {
    /// All, whatever flag the caller sends
    Always,
    /// As the caller's flag says; all where there is none
    Parent,
}

/// In which trace retries and deadlines are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TraceLater {
    /// In that of their order
    Continue,
    /// Each in one of its own, which links to that of the order
    Link,
}

/// What becomes of published rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Published {
    /// They move to the history
    Archive,
    /// They are deleted
    Delete,
}

/// The settings that every service has.
#[derive(Args, Clone)]
pub struct Common {
    /// PostgreSQL, with the role of the service
    #[arg(long, env, hide_env_values = true, value_name = "postgres://ROLE:PASSWORD@HOST:5432/DATABASE")]
    database_url: Option<String>,

    /// RabbitMQ, with the user of the service
    #[arg(long, env, hide_env_values = true, value_name = "amqp://USER:PASSWORD@HOST:5672/VHOST")]
    amqp_url: Option<String>,

    /// Where everybody's requests are taken; port 0 takes a free one
    #[arg(long, env, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub http_address: SocketAddr,

    /// Where operators' requests are taken
    #[arg(long, env, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub ops_address: SocketAddr,

    /// The bearer token for /ops
    #[arg(long, env, hide_env_values = true, value_name = "TOKEN")]
    ops_token: Option<String>,

    /// A file that holds the token
    #[arg(long, env, value_name = "FILE")]
    ops_token_file: Option<PathBuf>,

    /// Whether this is a demo that nobody else can reach: only there may the operators' token be missing, or one that
    /// everybody knows
    #[arg(long, env, value_name = "SWITCH", default_value = "off")]
    pub saga_demo: Switch,

    /// Requests that run at once; more are answered 503
    #[arg(long, env, value_name = "NUMBER", default_value_t = 512)]
    pub http_at_once: usize,

    /// Threads that run the service. It waits for its database and its broker most of the time: one thread does not hand
    /// work from one to another, and answers sooner than two up to thousands of messages a second
    #[arg(long, env, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub worker_threads: u16,

    /// Where traces go (OTLP over HTTP, base URL); without it they only give ids to logs and answers
    #[arg(long, env, value_name = "URL")]
    otel_exporter_otlp_endpoint: Option<String>,

    /// Which traces are kept
    #[arg(long, env, value_name = "WHICH", default_value = "always")]
    pub trace_sampling: Sampling,

    /// In which trace retries and deadlines are shown
    #[arg(long, env, value_name = "WHERE", default_value = "continue")]
    pub trace_later: TraceLater,

    /// How log lines look
    #[arg(long, env, value_name = "FORM", default_value = "json")]
    pub saga_log: LogForm,

    /// Which log lines are written, by level and module; traces are not touched by it
    #[arg(long, env, value_name = "FILTER", default_value = "info")]
    pub rust_log: String,

    /// Jaeger's page, for the links in answers
    #[arg(long, env, value_name = "URL", default_value = "http://localhost:16686")]
    pub jaeger_ui_url: String,

    /// Whether this process publishes; off where `relay` runs as a process of its own
    #[arg(long, env, value_name = "SWITCH", default_value = "on")]
    pub relay: Switch,

    /// What becomes of published rows
    #[arg(long, env, value_name = "WHAT", default_value = "archive")]
    pub outbox_after_publish: Published,

    /// The longest time between two looks at the outbox, in milliseconds
    #[arg(long, env, value_name = "MS", default_value_t = 200)]
    pub outbox_poll_ms: u64,

    /// How long published rows can be replayed, in days
    #[arg(long, env, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub outbox_history_days: u32,

    /// How long consumers remember what they have seen, in days: a repetition that comes later has its effect again. At
    /// least a day more than published rows can be replayed
    #[arg(long, env, value_name = "DAYS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=3_660))]
    pub inbox_days: u32,

    /// How long requests are remembered by their Idempotency-Key, in days
    #[arg(long, env, value_name = "DAYS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub idempotency_days: u32,

    /// How often what is older is looked for, in seconds
    #[arg(long, env, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub clean_every_s: u32,
}

impl Common {
    /// How to reach the database.
    ///
    /// # Errors
    /// Permanent if it is missing or no URL. The value is not told: it holds a password.
    pub fn database(&self, identity: Identity) -> Result<PgConnectOptions, Failure> {
        let url = given(self.database_url.as_deref())
            .ok_or_else(|| Failure::permanent("settings.database_url", "DATABASE_URL is missing"))?;
        let is_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
        let options: PgConnectOptions = is_postgres.then(|| url.parse().ok()).flatten().ok_or_else(|| {
            Failure::permanent("settings.database_url", "DATABASE_URL is not a postgres:// URL that can be read")
        })?;
        Ok(options.application_name(identity.name))
    }

    /// Where the broker is.
    ///
    /// # Errors
    /// Permanent if it is missing.
    pub fn amqp_url(&self) -> Result<&str, Failure> {
        given(self.amqp_url.as_deref()).ok_or_else(|| Failure::permanent("settings.amqp_url", "AMQP_URL is missing"))
    }

    /// The operators' token, if there is one.
    ///
    /// # Errors
    /// Permanent if the file cannot be read.
    pub fn ops_token(&self) -> Result<Option<String>, Failure> {
        if let Some(file) = &self.ops_token_file {
            let token = std::fs::read_to_string(file).map_err(|error| {
                Failure::permanent("settings.ops_token_file", "OPS_TOKEN_FILE cannot be read").caused_by(error)
            })?;
            return Ok(given(Some(token.trim())).map(str::to_owned));
        }
        Ok(given(self.ops_token.as_deref()).map(str::to_owned))
    }

    /// Where traces go, without a slash at the end.
    pub(crate) fn otlp_endpoint(&self) -> Option<&str> {
        given(self.otel_exporter_otlp_endpoint.as_deref()).map(|url| url.trim_end_matches('/'))
    }

    /// What is kept how long.
    ///
    /// # Errors
    /// Permanent if consumers would forget what can still be replayed.
    pub(crate) fn retention(&self) -> Result<Retention, Failure> {
        let days = |days: u32| Duration::from_secs(u64::from(days) * 24 * 60 * 60);
        if self.inbox_days <= self.outbox_history_days {
            let context = format!(
                "INBOX_DAYS is {} and OUTBOX_HISTORY_DAYS is {}: what is replayed would have its effect again. INBOX_DAYS \
                 has to be greater",
                self.inbox_days, self.outbox_history_days
            );
            return Err(Failure::permanent("settings.inbox_days", context));
        }
        Ok(Retention {
            history: days(self.outbox_history_days),
            inbox: days(self.inbox_days),
            keys: days(self.idempotency_days),
            every: Duration::from_secs(self.clean_every_s.into()),
        })
    }

    /// How the relay works.
    pub(crate) fn relay_settings(&self) -> RelaySettings {
        let after_publish = match self.outbox_after_publish {
            Published::Archive => AfterPublish::Archive,
            Published::Delete => AfterPublish::Delete,
        };
        RelaySettings {
            poll: Duration::from_millis(self.outbox_poll_ms.max(1)),
            after_publish,
            ..RelaySettings::default()
        }
    }
}

/// An empty variable is one that is not set: compose files cannot leave one out.
fn given(value: Option<&str>) -> Option<&str> {
    value.map(str::trim).filter(|value| !value.is_empty())
}

#[derive(Parser)]
struct CommandLine<S: Args> {
    /// What to do
    #[arg(value_enum, default_value = "serve")]
    verb: Verb,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    own: S,
}

/// Reads the command line and the environment; ends the process with a clear line where they are wrong.
pub(crate) fn parse<S: Args>(identity: Identity) -> (Verb, Common, S) {
    match parse_from(identity, std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(error) => error.exit(),
    }
}

fn parse_from<S: Args>(
    identity: Identity,
    words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> Result<(Verb, Common, S), clap::Error> {
    let command = CommandLine::<S>::command()
        .name(identity.name)
        .about(format!("Runs the service `{}`", identity.name))
        .long_about(None)
        .mut_arg("http_address", |arg| arg.default_value(format!("127.0.0.1:{}", identity.http_port)))
        .mut_arg("ops_address", |arg| arg.default_value(format!("127.0.0.1:{}", identity.ops_port)));
    let mut matches = command.try_get_matches_from(words)?;
    let line = CommandLine::<S>::from_arg_matches_mut(&mut matches)?;
    Ok((line.verb, line.common, line.own))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity { name: "payment", http_port: 8002, ops_port: 9002 };

    #[derive(Args)]
    struct Own {
        #[arg(long, default_value_t = 4)]
        attempts: u32,
    }

    #[test]
    fn the_ports_are_the_service_s_own_and_the_verb_is_serve_unless_said_otherwise() {
        let (verb, common, own) = parse_from::<Own>(IDENTITY, ["payment", "--attempts", "2"]).unwrap();
        assert_eq!((verb, own.attempts), (Verb::Serve, 2));
        assert_eq!(common.http_address.port(), 8002);
        assert_eq!(common.ops_address.port(), 9002);
        let (verb, ..) = parse_from::<Own>(IDENTITY, ["payment", "relay"]).unwrap();
        assert_eq!(verb, Verb::Relay);
    }

    #[test]
    fn an_inbox_that_forgets_what_can_be_replayed_is_refused() {
        let parse = |inbox: &str| {
            let words = ["payment", "--outbox-history-days", "7", "--inbox-days", inbox];
            parse_from::<Own>(IDENTITY, words).unwrap().1.retention()
        };
        assert!(parse("8").is_ok());
        assert_eq!(parse("7").unwrap_err().code(), "settings.inbox_days");
    }

    #[test]
    fn a_url_that_cannot_be_read_is_refused_without_telling_its_password() {
        let words = ["payment", "--database-url", "mysql://u:hunter2@h/d", "--amqp-url", ""];
        let (_, common, _) = parse_from::<Own>(IDENTITY, words).unwrap();
        let failure = common.database(IDENTITY).unwrap_err();
        assert!(!failure.chain().contains("hunter2"), "{failure:?}");
        assert_eq!(common.amqp_url().unwrap_err().to_string(), "AMQP_URL is missing");
    }
}
