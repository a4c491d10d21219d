//! What a drill orders: one order that fails, among others that do not, in an order that tells nothing. Faults are the
//! sandbox's test values, order by order: nothing is switched on, and nobody else's orders are struck.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};

use crate::scenario::Order;

/// What is never in stock.
const UNICORN: &str = "UNICORN";
const IN_STOCK: [&str; 4] = ["KEYBOARD", "MOUSE", "MONITOR", "HEADSET"];

/// What an order asks for: goods, or any that are in stock; how it is paid; how it is sent.
type Wish = (Option<&'static str>, &'static str, &'static str);

/// The failures, so that step, attempt, the reach of the undo and its end all differ.
pub const FAILURES: [Wish; 14] = [
    (None, "pm_declined", "standard"),
    (None, "pm_flaky_2_declined", "standard"),
    (None, "pm_timeout", "standard"),
    (None, "pm_timeout_charged", "standard"),
    (Some(UNICORN), "pm_ok", "standard"),
    (Some(UNICORN), "pm_flaky_2", "standard"),
    (Some(UNICORN), "pm_refund_fails", "standard"),
    (None, "pm_ok", "rejected"),
    (None, "pm_flaky_2", "flaky_2_rejected"),
    (None, "pm_ok", "timeout"),
    (None, "pm_ok", "timeout_created"),
    (None, "pm_refund_fails", "rejected"),
    (None, "pm_refund_fails", "flaky_2_rejected"),
    (None, "pm_refund_fails", "timeout"),
];

/// They stumble and are shipped all the same: a line that tells of an error is not yet a failure.
const STUMBLES: [Wish; 3] =
    [(None, "pm_flaky_2", "standard"), (None, "pm_ok", "flaky_2"), (None, "pm_rate_limited", "standard")];

const FINE: Wish = (None, "pm_ok", "standard");

/// What a drill orders.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which of the [`FAILURES`] is among the orders.
    pub failure: usize,
    pub orders: Vec<Order>,
}

impl Plan {
    /// The plan of a seed, always the same.
    pub fn of(seed: u64) -> Plan {
        let mut random = StdRng::seed_from_u64(seed);
        let failure = random.random_range(0..FAILURES.len());
        let mut wishes = vec![FAILURES[failure]];
        wishes.extend(STUMBLES.choose(&mut random));
        wishes.extend(vec![FINE; random.random_range(2..=4)]);
        wishes.shuffle(&mut random);
        let orders = wishes.into_iter().map(|wish| order(wish, &mut random)).collect();
        Plan { failure, orders }
    }
}

fn order((goods, payment, shipping): Wish, random: &mut StdRng) -> Order {
    let sku = goods.unwrap_or_else(|| IN_STOCK[random.random_range(0..IN_STOCK.len())]);
    let [sku, payment, shipping] = [sku, payment, shipping].map(str::to_owned);
    Order { sku, payment, shipping, quantity: random.random_range(1..=3), ..Order::default() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{FAILURES, Plan};

    #[test]
    fn a_seed_always_orders_the_same_and_seeds_find_every_failure_at_every_place() {
        assert_eq!(format!("{:?}", Plan::of(7)), format!("{:?}", Plan::of(7)));
        let plans: Vec<Plan> = (0..300).map(Plan::of).collect();
        let failures: BTreeSet<usize> = plans.iter().map(|plan| plan.failure).collect();
        assert_eq!(failures.len(), FAILURES.len());
        let place = |plan: &Plan| {
            let (_, payment, shipping) = FAILURES[plan.failure];
            plan.orders.iter().position(|order| (&*order.payment, &*order.shipping) == (payment, shipping))
        };
        let places: BTreeSet<Option<usize>> = plans.iter().map(place).collect();
        assert_eq!(places, (0..6).map(Some).collect());
    }
}
