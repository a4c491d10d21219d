//! What customers order, and how they behave: number by number from the seed, whatever happens meanwhile.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;

use super::plan::Plan;
use crate::scenario::{Order, order_body};

const IN_STOCK: [&str; 4] = ["KEYBOARD", "MOUSE", "MONITOR", "HEADSET"];

/// How an order may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// As the faults have it.
    Open,
    /// Whatever happens, it is not shipped.
    Lost,
}

/// Goods if they are special, payment, shipping, how it may end, and how often of a hundred.
type Kind = (Option<&'static str>, &'static str, &'static str, Fate, u32);

const KINDS: [Kind; 14] = [
    (None, "pm_ok", "standard", Fate::Open, 56),
    (None, "pm_declined", "standard", Fate::Lost, 7),
    (None, "pm_flaky_2", "standard", Fate::Open, 5),
    (None, "pm_rate_limited", "standard", Fate::Open, 3),
    (None, "pm_flaky_2_declined", "standard", Fate::Lost, 2),
    (None, "pm_timeout", "standard", Fate::Lost, 2),
    (None, "pm_timeout_charged", "standard", Fate::Lost, 2),
    (None, "pm_timeout_late", "standard", Fate::Lost, 1),
    (Some("UNICORN"), "pm_ok", "standard", Fate::Lost, 7),
    (Some("LAST_ONE"), "pm_ok", "standard", Fate::Open, 3),
    (None, "pm_ok", "flaky_2", Fate::Open, 5),
    (None, "pm_ok", "rejected", Fate::Lost, 4),
    (None, "pm_ok", "timeout", Fate::Lost, 1),
    (None, "pm_ok", "timeout_created", Fate::Lost, 2),
];

/// One customer.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) body: Value,
    pub(super) fate: Fate,
    /// Changes their mind so long after the order was accepted.
    pub(super) cancels_after: Option<Duration>,
    /// Sends the same once more so long after it was answered.
    pub(super) repeats_after: Option<Duration>,
}

impl Wish {
    pub(super) fn of(plan: &Plan, number: u64) -> Wish {
        let (seed, is_plain) = (plan.seed, plan.away.is_some());
        // Each number has a source of its own: how many there will be depends on the machine.
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
        let kind = KINDS.choose_weighted(&mut random, |kind| kind.4).unwrap_or(&KINDS[0]);
        let (goods, payment, shipping, mut fate, _) = if is_plain { KINDS[0] } else { *kind };
        let sku = goods.or_else(|| IN_STOCK.choose(&mut random).copied()).unwrap_or(IN_STOCK[0]);
        let [sku, payment, shipping] = [sku, payment, shipping].map(str::to_owned);
        let quantity = random.random_range(1..=3);
        let order = Order { sku, payment, shipping, quantity, ..Order::default() };
        let mut later = |share| {
            let milliseconds = random.random_range(0..3_000);
            (!is_plain && random.random_bool(share)).then_some(Duration::from_millis(milliseconds))
        };
        let (cancels_after, repeats_after) = (later(0.08), later(0.1));
        if order.sku == "LAST_ONE" && order.quantity > 1 {
            fate = Fate::Lost;
        }
        Wish { body: order_body(&order), fate, cancels_after, repeats_after }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, KINDS, Wish};
    use crate::chaos::plan::{Away, Plan};

    #[test]
    fn customers_of_a_seed_are_always_the_same_and_of_all_kinds() {
        let of = |seed, number| format!("{:?}", Wish::of(&Plan::of(seed, 60, 1.0), number));
        assert_eq!(of(3, 17), of(3, 17));
        assert_ne!(of(3, 17), of(4, 17));
        assert_eq!(KINDS.iter().map(|kind| kind.4).sum::<u32>(), 100);
        let plan = Plan::of(1, 60, 1.0);
        let wishes: Vec<Wish> = (0..2_000).map(|number| Wish::of(&plan, number)).collect();
        let ordered = |kind: &super::Kind| {
            wishes.iter().any(|wish| wish.body["paymentMethod"] == kind.1 && wish.body["shipping"]["service"] == kind.2)
        };
        assert!(KINDS.iter().all(ordered));
        let share = |is: fn(&Wish) -> bool| wishes.iter().filter(|wish| is(wish)).count();
        assert!(share(|wish| wish.cancels_after.is_some()) > 80);
        assert!(share(|wish| wish.repeats_after.is_some()) > 80);
        assert!((200..1_000).contains(&share(|wish| wish.fate == Fate::Lost)));
        let plan = Plan::away(Away::Broker, 1, 60, 1.0);
        let fine = (0..200).map(|number| Wish::of(&plan, number));
        assert!(fine.clone().all(|wish| wish.fate == Fate::Open && wish.cancels_after.is_none()));
        assert!(fine.map(|wish| wish.body).all(|body| body["paymentMethod"] == "pm_ok"));
    }
}
