//! Faults by test values, the way the sandboxes of real providers do it: a payment method or a shipping service says
//! how its requests go. What is not known is declined.

use crate::domain::{Decision, Stance, Verdict};

/// How requests with a test value go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behaviour {
    /// What the third party thinks of it.
    pub verdict: Verdict,
    /// What happens on the way.
    pub fault: Option<Fault>,
    /// Whether it is given back.
    pub stance: Stance,
    /// Why it is declined, if it is.
    pub code: Option<&'static str>,
}

/// What happens to requests on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The first attempts are refused for now.
    Refused(Refusal, i32),
    /// No attempt is ever answered.
    TimesOut(Lands),
}

/// How a request is refused for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// 503.
    Unavailable,
    /// 429 with `Retry-After: 1`.
    RateLimited,
}

/// When a request that times out takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lands {
    /// Never.
    Never,
    /// At once; only the answer is missing.
    AtOnce,
    /// Seconds later, unless the key is cancelled meanwhile.
    Late,
}

/// What is done with one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// It is decided and answered.
    Answer,
    /// It is refused for now, and decides nothing.
    Refuse(Refusal),
    /// Its answer never comes.
    Hold(Lands),
}

const GOOD: Behaviour = Behaviour { verdict: Verdict::Take, fault: None, stance: Stance::Agrees, code: None };

fn faulty(fault: Fault) -> Behaviour {
    Behaviour { fault: Some(fault), ..GOOD }
}

fn declined(code: &'static str) -> Behaviour {
    Behaviour { verdict: Verdict::Decline, code: Some(code), ..GOOD }
}

/// Refused for now twice, then declined for good.
fn declined_in_the_end(code: &'static str) -> Behaviour {
    Behaviour { fault: Some(Fault::Refused(Refusal::Unavailable, 2)), ..declined(code) }
}

/// How a payment method behaves.
pub fn payment_method(method: &str) -> Behaviour {
    match method {
        "pm_ok" => GOOD,
        "pm_declined" => declined("card_declined"),
        "pm_timeout" => faulty(Fault::TimesOut(Lands::Never)),
        "pm_timeout_charged" => faulty(Fault::TimesOut(Lands::AtOnce)),
        "pm_timeout_late" => faulty(Fault::TimesOut(Lands::Late)),
        "pm_flaky_2" => faulty(Fault::Refused(Refusal::Unavailable, 2)),
        "pm_flaky_2_declined" => declined_in_the_end("card_declined"),
        "pm_rate_limited" => faulty(Fault::Refused(Refusal::RateLimited, 2)),
        "pm_refund_fails" => Behaviour { stance: Stance::Refuses, ..GOOD },
        _ => declined("unknown_method"),
    }
}

/// How a shipping service behaves.
pub fn shipping_service(service: &str) -> Behaviour {
    match service {
        "standard" => GOOD,
        "rejected" => declined("address_not_served"),
        "timeout" => faulty(Fault::TimesOut(Lands::Never)),
        "timeout_created" => faulty(Fault::TimesOut(Lands::AtOnce)),
        "timeout_late" => faulty(Fault::TimesOut(Lands::Late)),
        "flaky_2" => faulty(Fault::Refused(Refusal::Unavailable, 2)),
        "flaky_2_rejected" => declined_in_the_end("address_not_served"),
        "cancel_fails" => Behaviour { stance: Stance::Refuses, ..GOOD },
        _ => declined("unknown_service"),
    }
}

/// What is done with the n-th attempt of a key. A key that was declined, given back or cancelled is always answered:
/// its faults lie behind it.
pub fn plan(fault: Option<Fault>, decision: Option<Decision>, attempt: i32) -> Plan {
    match (fault, decision) {
        (Some(Fault::TimesOut(lands)), None | Some(Decision::Taken)) => Plan::Hold(lands),
        (Some(Fault::Refused(refusal, attempts)), None) if attempt <= attempts => Plan::Refuse(refusal),
        _ => Plan::Answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_declined() {
        for value in ["", "pm_", "STANDARD", "pm_ok ", "x"] {
            assert_eq!(payment_method(value).verdict, Verdict::Decline, "{value}");
            assert_eq!(shipping_service(value).verdict, Verdict::Decline, "{value}");
        }
    }

    #[test]
    fn a_flaky_method_fails_twice_and_then_works() {
        let fault = payment_method("pm_flaky_2").fault;
        let plans: Vec<Plan> = (1..=4).map(|attempt| plan(fault, None, attempt)).collect();
        let refused = Plan::Refuse(Refusal::Unavailable);
        assert_eq!(plans, [refused, refused, Plan::Answer, Plan::Answer]);
    }

    #[test]
    fn what_is_declined_in_the_end_is_refused_for_now_before() {
        for behaviour in [payment_method("pm_flaky_2_declined"), shipping_service("flaky_2_rejected")] {
            let plans: Vec<Plan> = (1..=3).map(|attempt| plan(behaviour.fault, None, attempt)).collect();
            let refused = Plan::Refuse(Refusal::Unavailable);
            assert_eq!((plans, behaviour.verdict), (vec![refused, refused, Plan::Answer], Verdict::Decline));
        }
    }

    #[test]
    fn a_time_out_never_answers_until_the_key_is_cancelled() {
        for method in ["pm_timeout", "pm_timeout_charged", "pm_timeout_late"] {
            let fault = payment_method(method).fault;
            assert!(matches!(plan(fault, None, 9), Plan::Hold(_)), "{method}");
            assert!(matches!(plan(fault, Some(Decision::Taken), 9), Plan::Hold(_)), "{method}");
            assert_eq!(plan(fault, Some(Decision::Cancelled), 9), Plan::Answer, "{method}");
            assert_eq!(plan(fault, Some(Decision::GivenBack), 9), Plan::Answer, "{method}");
        }
    }
}
