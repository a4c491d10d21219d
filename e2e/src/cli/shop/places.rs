//! Where everything of a shop is.

use e2e::shop::{Origin, Whereabouts};

use super::show::{QUIET, columns, show, styled};

/// Shows it: what a person may want to open or log in to.
pub(crate) fn places(at: &Whereabouts) {
    let title = ["", "for everybody", "API page", "for operators"].map(|title| styled(QUIET, title));
    let services = at.services.iter().map(|(service, listeners)| {
        let (http, ops) = (listeners.http, listeners.ops);
        [service.name().to_owned(), format!("http://{http}"), format!("http://{http}/docs"), format!("http://{ops}")]
    });
    columns([title].into_iter().chain(services));
    show("");
    let place = |name: &str, at: &str| [name.to_owned(), at.to_owned()];
    let none = "none: name one with JAEGER, or put `jaeger` on the PATH";
    let token = format!("export OPS_TOKEN={}", at.ops_token);
    let rest = [
        place("Jaeger", at.jaeger.as_deref().unwrap_or(none)),
        place("RabbitMQ", &at.broker_page),
        place("PostgreSQL", &at.postgres),
        place("operators' token", &token),
        place("logs", &at.logs),
    ];
    let data = at.data.as_ref().map(|data| {
        let kept = if at.origin == Origin::Native { " (kept for the next time, forgotten with --fresh)" } else { "" };
        place("data", &format!("{}{kept}", data.display()))
    });
    columns(rest.into_iter().chain(data));
    show("");
}
