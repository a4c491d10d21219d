//! Log lines: the fields of an event and of every span around it in one object, under the names that the project's
//! logs have everywhere. A line reads alone. A log that nobody reads any more is no reason to fail.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;

use opentelemetry::trace::TraceContextExt as _;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::macros::format_description;
use tracing::dispatcher::WeakDispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::settings::LogForm;

const TIMESTAMP: &[FormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
const CLOCK: &[FormatItem<'_>] = format_description!("[hour]:[minute]:[second].[subsecond digits:3]");

/// Attributes of spans that say how the machine works, not what happened; and the outcome, which a line has as its status.
const NOISE: &[&str] = &["otel.", "messaging.", "http.", "url.", "server.", "log.", "rpc.", "outcome"];

/// Writes log lines to the standard output.
pub(crate) struct Logs {
    service: &'static str,
    form: LogForm,
    dispatch: OnceLock<WeakDispatch>,
}

impl Logs {
    pub(crate) fn new(service: &'static str, form: LogForm) -> Logs {
        Logs { service, form, dispatch: OnceLock::new() }
    }

    /// The trace of the innermost span. No extension may be borrowed here: the tracing layer takes them itself.
    fn trace_id(&self, span: &Id) -> Option<String> {
        let dispatch = self.dispatch.get()?.upgrade()?;
        let context = tracing_opentelemetry::get_otel_context(span, &dispatch)?;
        let span = context.span();
        span.span_context().is_valid().then(|| span.span_context().trace_id().to_string())
    }
}

impl<S> Layer<S> for Logs
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        drop(self.dispatch.set(dispatch.downgrade()));
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        if let Some(scope) = context.event_scope(event) {
            fields.take_all(scope);
        }
        event.record(&mut fields);
        if let Some(span) = context.event_span(event)
            && let Some(trace_id) = self.trace_id(&span.id())
        {
            fields.named.insert("traceId".to_owned(), Value::String(trace_id));
        }
        let now = OffsetDateTime::now_utc();
        let message = fields.message.take().unwrap_or_else(|| event.metadata().name().to_owned());
        let level = *event.metadata().level();
        let line = match self.form {
            LogForm::Json => json_line(now, level, self.service, &message, &fields.named),
            LogForm::Pretty => pretty_line(now, level, self.service, &message, &fields.named),
        };
        // A pipe that is closed: there is nobody left to tell.
        drop(std::io::stdout().lock().write_all(line.as_bytes()));
    }
}

fn json_line(
    now: OffsetDateTime,
    level: Level,
    service: &str,
    message: &str,
    fields: &BTreeMap<String, Value>,
) -> String {
    let text = |value: &str| Value::from(value).to_string();
    let mut line = format!(
        r#"{{"timestamp":"{}","level":"{level}","service":{},"message":{}"#,
        now.format(TIMESTAMP).unwrap_or_default(),
        text(service),
        text(message)
    );
    for (name, value) in fields {
        line.push_str(&format!(",{}:{value}", text(name)));
    }
    line.push_str("}\n");
    line
}

fn pretty_line(
    now: OffsetDateTime,
    level: Level,
    service: &str,
    message: &str,
    fields: &BTreeMap<String, Value>,
) -> String {
    let clock = now.format(CLOCK).unwrap_or_default();
    let mut line = format!("{clock} {level:<5} {service:<9} {}", message.escape_debug());
    for (name, value) in fields {
        line.push_str(&format!(" {name}={value}"));
    }
    line.push('\n');
    line
}

/// What was recorded, under the names that the log uses.
#[derive(Default)]
struct Fields {
    message: Option<String>,
    named: BTreeMap<String, Value>,
}

impl Fields {
    /// Outer spans first, so that what is nearer to the event wins.
    fn take_all<'a, S: LookupSpan<'a>>(&mut self, scope: Scope<'a, S>) {
        for span in scope.from_root() {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                self.named.extend(of_span.named.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
    }

    fn set(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        } else if let Some(name) = log_name(field.name()) {
            self.named.insert(name, value);
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set(field, value.to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }
}

/// `saga.id` is `sagaId` in the log, and so on; `None` for what has no place there.
fn log_name(name: &str) -> Option<String> {
    if name == "messaging.message.id" {
        return Some("eventId".to_owned());
    }
    if NOISE.iter().any(|prefix| name.starts_with(prefix)) {
        return None;
    }
    let mut words = name.split(['.', '_']).filter(|word| !word.is_empty());
    let mut camel = words.next()?.to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.extend(letters);
    }
    Some(camel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_project_s_logs_and_noise_is_left_out() {
        for (name, expected) in [
            ("correlation.id", Some("correlationId")),
            ("saga.id", Some("sagaId")),
            ("order.id", Some("orderId")),
            ("messaging.message.id", Some("eventId")),
            ("idempotency.key", Some("idempotencyKey")),
            ("attempt", Some("attempt")),
            ("error.type", Some("errorType")),
            ("error.code", Some("errorCode")),
            ("step.name", Some("stepName")),
            ("http_address", Some("httpAddress")),
            ("httpAddress", Some("httpAddress")),
            ("otel.kind", None),
            ("messaging.system", None),
        ] {
            assert_eq!(log_name(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_line_is_one_json_object_whatever_is_in_it() {
        let fields = BTreeMap::from([("sagaId".to_owned(), Value::from("a\"b\n")), ("attempt".to_owned(), 2.into())]);
        let line = json_line(OffsetDateTime::UNIX_EPOCH, Level::INFO, "order", "two\nlines \"quoted\"", &fields);
        let parsed: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["timestamp"], "1970-01-01T00:00:00.000Z");
        assert_eq!(parsed["level"], "INFO");
        assert_eq!(parsed["message"], "two\nlines \"quoted\"");
        assert_eq!(parsed["attempt"], 2);
        assert_eq!(line.matches('\n').count(), 1);
    }
}
