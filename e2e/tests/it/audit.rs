//! The audit: silent over what really happens; and for each invariant one planted violation, which it finds and no
//! other.

mod elsewhere;

use std::collections::BTreeSet;
use std::rc::Rc;

use e2e::audit::{INVARIANTS, Report, Sources, Verdict, audit};
use e2e::{Settings, Shop, Stack, State, eventually};
use serde_json::json;

use crate::scenarios::shop_of;
use crate::shop::{Placed, SOON, comes_to, order, place};

/// One order for each end that there is.
struct Orders {
    shipped: Placed,
    declined: Placed,
    undone: Placed,
    waiting: Placed,
}

async fn some_orders(stack: &Stack) -> anyhow::Result<Orders> {
    let shipped = place(stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let declined = place(stack, &order("KEYBOARD", 1, "pm_declined", "standard")).await?;
    let undone = place(stack, &order("KEYBOARD", 1, "pm_ok", "rejected")).await?;
    let waiting = place(stack, &order("UNICORN", 1, "pm_refund_fails", "standard")).await?;
    comes_to(stack, &shipped, "completed").await?;
    comes_to(stack, &declined, "cancelled").await?;
    comes_to(stack, &undone, "cancelled").await?;
    comes_to(stack, &waiting, "needs_attention").await?;
    Ok(Orders { shipped, declined, undone, waiting })
}

fn violated(report: &Report) -> BTreeSet<&'static str> {
    report.invariants.iter().filter(|one| one.verdict == Verdict::Violated).map(|one| one.id).collect()
}

/// The orders that an invariant names.
fn named(report: &Report, id: &str) -> BTreeSet<String> {
    let findings = report.invariants.iter().filter(|one| one.id == id);
    findings.flat_map(|one| &one.violations).filter_map(|violation| violation.order.clone()).collect()
}

/// Looks until exactly these are violated: the broker and a session are told of with a delay.
async fn finds(shop: &Shop, expected: &[&'static str]) -> anyhow::Result<Report> {
    eventually(SOON, &format!("{expected:?} are violated"), async || {
        let report = audit(&Sources::of(shop), None).await?;
        let is_it = violated(&report) == expected.iter().copied().collect();
        Ok(if is_it { State::Reached(report) } else { State::pending(report) })
    })
    .await
}

#[tokio::test]
async fn over_what_really_happens_the_audit_finds_nothing() -> anyhow::Result<()> {
    let stack = Rc::new(Stack::start(Settings::default()).await?);
    let shop = shop_of(&stack)?;
    let Orders { waiting, .. } = some_orders(&stack).await?;
    let report = audit(&Sources::of(&shop), Some(SOON)).await?;
    let verdicts: Vec<_> = report.invariants.iter().map(|one| (one.id, one.verdict)).collect();
    let expected = |id: &'static str| (id, if id == "I12" { Verdict::Skipped } else { Verdict::Ok });
    assert_eq!(verdicts, INVARIANTS.iter().map(|one| expected(one.id)).collect::<Vec<_>>(), "{report:#?}");
    assert_eq!(json!(report.orders), json!({"completed": 1, "cancelled": 2, "needs_attention": 1}));

    // While something is under way, only what always holds is looked at.
    stack.payment().pause()?;
    let open = place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?;
    let report = audit(&Sources::of(&shop), None).await?;
    stack.payment().resume()?;
    assert!(violated(&report).is_empty(), "{report:#?}");
    assert!(report.under_way.iter().any(|what| what.contains(&open.order)), "{:#?}", report.under_way);
    assert!(!report.under_way.iter().any(|what| what.contains(&waiting.order)), "{:#?}", report.under_way);
    assert_eq!(report.invariants.iter().filter(|one| one.verdict == Verdict::Partly).count(), 4, "{report:#?}");
    Ok(())
}

#[tokio::test]
async fn each_violation_that_is_planted_in_the_tables_is_found_and_no_other() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let Orders { shipped, declined, undone, waiting } = some_orders(&stack).await?;
    let entry = "insert into sandbox.ledger (party, key, order_id, effect, account, amount, currency) values";
    let age = "interval '1 hour'";
    let plants = [
        (
            "I1",
            &shipped,
            format!(
                "{entry} ('provider', 'planted', '{0}', 'capture', 'customer', -7900, 'EUR'),
                     ('provider', 'planted', '{0}', 'capture', 'shop', 7900, 'EUR')",
                shipped.order
            ),
        ),
        (
            "I2",
            &shipped,
            format!(
                "update inventory.reservations set status = 'reserved' where order_id = '{}';
             update inventory.stock set reserved = reserved + 1, shipped = shipped - 1 where sku = 'KEYBOARD'",
                shipped.order
            ),
        ),
        ("I3", &undone, format!("{entry} ('carrier', 'planted', '{}', 'ship', 'parcel', 1, null)", undone.order)),
        (
            "I4",
            &undone,
            format!("update payments.payments set status = 'captured' where order_id = '{}'", undone.order),
        ),
        (
            "I5",
            &shipped,
            format!(
                "delete from inventory.inbox where consumer = 'inventory.events' and key = '{}';
             update orders.outbox_history set published_at = published_at - {age} where aggregate_id = '{}'",
                shipped.saga, shipped.order
            ),
        ),
        (
            "I6",
            &waiting,
            format!(
                "insert into shipping.inbox (consumer, message_id, key, message_type)
             values ('shipping.commands', '{0}', '{0}', 'CancelShipment')",
                waiting.saga
            ),
        ),
        (
            "I9",
            &undone,
            format!(
                "update orders.outbox_history set published_at = published_at - {age}
             where aggregate_id = '{}' and event_type = 'RefundPayment'",
                undone.order
            ),
        ),
        (
            "I10",
            &declined,
            format!(
                "update orders.idempotency_keys set body = jsonb_set(body, '{{total,amount}}', '1')
             where body ->> 'orderId' = '{}'",
                declined.order
            ),
        ),
    ];
    let client = stack.order().client()?;
    let database = stack.auditor_url();
    let sources = Sources { database: &database, orders: Some(&client), shop: None };
    let mut expected = BTreeSet::new();
    for (id, at, sql) in plants {
        let before = audit(&sources, Some(SOON)).await?;
        assert_eq!(violated(&before), expected, "before {id}: {before:#?}");
        stack.database.execute(&sql).await?;
        expected.insert(id);
        let report = audit(&sources, Some(SOON)).await?;
        assert_eq!(violated(&report), expected, "after {id}: {report:#?}");
        assert_eq!(named(&report, id), BTreeSet::from([at.order.clone()]), "{report:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_not_what_the_tables_say_is_found() -> anyhow::Result<()> {
    let (stack, other) = tokio::try_join!(Stack::start(Settings::default()), Stack::start(Settings::default()))?;
    let Orders { shipped, .. } = some_orders(&stack).await?;
    // The tables of one shop, the answers of another.
    let (database, client) = (stack.auditor_url(), other.order().client()?);
    let report = audit(&Sources { database: &database, orders: Some(&client), shop: None }, None).await?;
    assert_eq!(violated(&report), BTreeSet::from(["I10"]), "{report:#?}");
    assert!(named(&report, "I10").contains(&shipped.order), "{report:#?}");
    Ok(())
}

#[tokio::test]
async fn an_audit_over_nothing_says_that_it_proves_nothing() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    let database = stack.auditor_url();
    let report = audit(&Sources { database: &database, orders: None, shop: None }, Some(SOON)).await?;
    assert_eq!(violated(&report), BTreeSet::from(["I13"]), "{report:#?}");
    Ok(())
}
