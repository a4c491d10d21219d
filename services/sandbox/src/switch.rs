//! Faults that somebody switches on while everything runs, for a share of all requests. Which requests a switch
//! strikes follows from its seed and the number of requests that have met it: the same again each time.

use crate::domain::Stance;
use crate::fault::{Lands, Plan, Refusal};

/// Whose switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// The payment provider.
    Provider,
    /// The carrier.
    Carrier,
}

/// What a switch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 503.
    Unavailable,
    /// 429 with `Retry-After: 1`.
    RateLimited,
    /// No answer, no effect.
    Timeout,
    /// The answer comes later, by the switch's delay.
    Slow,
    /// What was taken is not given back.
    Refuse,
}

/// Every switch there is.
pub const SWITCHES: [(&str, Party, Kind); 10] = [
    ("provider_unavailable", Party::Provider, Kind::Unavailable),
    ("provider_rate_limited", Party::Provider, Kind::RateLimited),
    ("provider_timeout", Party::Provider, Kind::Timeout),
    ("provider_slow", Party::Provider, Kind::Slow),
    ("refund_refused", Party::Provider, Kind::Refuse),
    ("carrier_unavailable", Party::Carrier, Kind::Unavailable),
    ("carrier_rate_limited", Party::Carrier, Kind::RateLimited),
    ("carrier_timeout", Party::Carrier, Kind::Timeout),
    ("carrier_slow", Party::Carrier, Kind::Slow),
    ("recall_refused", Party::Carrier, Kind::Refuse),
];

impl Party {
    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Party::Provider => "provider",
            Party::Carrier => "carrier",
        }
    }

    /// The party with this name.
    pub fn named(name: &str) -> Option<Party> {
        [Party::Provider, Party::Carrier].into_iter().find(|party| party.name() == name)
    }
}

/// A switch as one request met it.
#[derive(Clone, PartialEq, Debug)]
pub struct Met {
    /// Its name.
    pub name: String,
    /// The share that it strikes, 0 to 1.
    pub rate: f64,
    /// What makes two runs alike or different.
    pub seed: i64,
    /// How slow, in milliseconds.
    pub delay_ms: i32,
    /// The how-manieth request this is for it.
    pub number: i64,
}

/// What the switches do to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interference {
    /// The request is not even looked at.
    pub instead: Option<Plan>,
    /// The answer comes so much later.
    pub delay_ms: u64,
    /// Whether something is given back; `None`: as its test value says.
    pub stance: Option<Stance>,
}

/// What the switches that a request has met do to it, all together.
pub fn interfere(met: &[Met]) -> Interference {
    let mut result = Interference { instead: None, delay_ms: 0, stance: None };
    for switch in met.iter().filter(|switch| strikes(switch)) {
        match SWITCHES.iter().find(|(name, ..)| *name == switch.name).map(|(.., kind)| *kind) {
            Some(Kind::Unavailable) => result.instead = Some(Plan::Refuse(Refusal::Unavailable)),
            Some(Kind::RateLimited) => result.instead = Some(Plan::Refuse(Refusal::RateLimited)),
            Some(Kind::Timeout) => result.instead = Some(Plan::Hold(Lands::Never)),
            Some(Kind::Slow) => result.delay_ms += u64::try_from(switch.delay_ms).unwrap_or_default(),
            Some(Kind::Refuse) => result.stance = Some(Stance::Refuses),
            None => {}
        }
    }
    result
}

fn strikes(switch: &Met) -> bool {
    chance(switch.seed, switch.number) < switch.rate
}

/// A number from 0 up to 1 that follows from seed and number: `SplitMix64`, of which the upper half is enough.
fn chance(seed: i64, number: i64) -> f64 {
    let mut z = seed.cast_unsigned().wrapping_add(number.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let [a, b, c, d, ..] = z.to_be_bytes();
    f64::from(u32::from_be_bytes([a, b, c, d])) / 2f64.powi(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(rate: f64, seed: i64) -> Vec<i64> {
        let met = |number| Met { name: "provider_timeout".to_owned(), rate, seed, delay_ms: 0, number };
        (1..=10_000).filter(|number| interfere(&[met(*number)]).instead.is_some()).collect()
    }

    #[test]
    fn a_switch_strikes_the_share_that_it_says_and_the_same_requests_each_time() {
        for rate in [0.01, 0.3, 0.5, 0.9] {
            let share = struck(rate, 7).len() as f64 / 10_000.0;
            assert!((share - rate).abs() < 0.02, "{rate}: {share}");
            assert_eq!(struck(rate, 7), struck(rate, 7));
            assert_ne!(struck(rate, 7), struck(rate, 8));
        }
        assert_eq!(struck(0.0, 1).len(), 0);
        assert_eq!(struck(1.0, 1).len(), 10_000);
    }

    #[test]
    fn switches_add_up() {
        let met = |name: &str, delay_ms| Met { name: name.to_owned(), rate: 1.0, seed: 1, delay_ms, number: 1 };
        let both = interfere(&[met("provider_slow", 500), met("refund_refused", 0)]);
        assert_eq!(both, Interference { instead: None, delay_ms: 500, stance: Some(Stance::Refuses) });
    }
}
