//! Every cell of the saga's table: 12 states × 27 events. The cells that change something are written out; that all
//! others change nothing is checked for each of them.

use std::collections::BTreeMap;

use super::Attempt::{Latest, Stale};
use super::state::STATUSES;
use super::*;

const SETTLED_BEFORE: [bool; 2] = [false, true];

fn states() -> Vec<State> {
    let each = |state: fn(Step) -> State| Step::ALL.map(state);
    let mut states = Vec::new();
    states.extend(each(State::Running));
    states.extend(each(State::Compensating));
    states.extend(each(State::NeedsAttention));
    states.extend([State::Completed, State::Cancelled, State::Settled]);
    states
}

fn events() -> Vec<Event> {
    let mut events = Vec::new();
    for step in Step::ALL {
        events.extend([
            Event::Done(step),
            Event::Rejected(step),
            Event::Failed(step),
            Event::DoDeadline(step),
            Event::Undone(step),
            Event::UndoFailed(step, Latest),
            Event::UndoFailed(step, Stale),
            Event::UndoDeadline(step, Latest),
        ]);
    }
    events.extend([Event::Cancel, Event::Retry, Event::Settle]);
    events
}

type Cell = (State, Option<(Step, Direction)>, Option<OrderEvent>, Option<Mark>);

/// The table, row by row, as it stands in the documentation of the saga. `has_settled`: a step was settled before.
fn table(has_settled: bool) -> BTreeMap<(State, Event), Cell> {
    use Direction::{Do, Undo};
    use State::{Cancelled, Compensating, Completed, NeedsAttention, Running, Settled};
    use Step::{Inventory, Payment, Shipping};
    let mut cells = BTreeMap::new();
    let ends = |settled: bool| {
        if settled { (Settled, OrderEvent::OrderSettled) } else { (Cancelled, OrderEvent::OrderCancelled) }
    };

    for (at, next, event) in [(Payment, Inventory, Some(OrderEvent::OrderPaid)), (Inventory, Shipping, None)] {
        cells.insert(
            (Running(at), Event::Done(at)),
            (Running(next), Some((next, Do)), event, Some((at, Do, Status::Done))),
        );
    }
    cells.insert(
        (Running(Shipping), Event::Done(Shipping)),
        (Completed, None, Some(OrderEvent::OrderShipped), Some((Shipping, Do, Status::Done))),
    );
    let (end, told) = ends(has_settled);
    cells.insert(
        (Running(Payment), Event::Rejected(Payment)),
        (end, None, Some(told), Some((Payment, Do, Status::Rejected))),
    );
    for (at, before) in [(Inventory, Payment), (Shipping, Inventory)] {
        cells.insert(
            (Running(at), Event::Rejected(at)),
            (Compensating(before), Some((before, Undo)), None, Some((at, Do, Status::Rejected))),
        );
    }
    for at in Step::ALL {
        for (event, status) in [
            (Event::Failed(at), Status::Failed),
            (Event::DoDeadline(at), Status::Overdue),
            (Event::Cancel, Status::Abandoned),
        ] {
            cells.insert((Running(at), event), (Compensating(at), Some((at, Undo)), None, Some((at, Do, status))));
        }
        for state in [Compensating(at), NeedsAttention(at)] {
            let cell = match at {
                Payment => {
                    let (end, told) = ends(has_settled);
                    (end, None, Some(told), Some((at, Undo, Status::Done)))
                }
                Inventory => (Compensating(Payment), Some((Payment, Undo)), None, Some((at, Undo, Status::Done))),
                Shipping => (Compensating(Inventory), Some((Inventory, Undo)), None, Some((at, Undo, Status::Done))),
            };
            cells.insert((state, Event::Undone(at)), cell);
        }
        for (event, status) in
            [(Event::UndoFailed(at, Latest), Status::Failed), (Event::UndoDeadline(at, Latest), Status::Overdue)]
        {
            cells.insert(
                (Compensating(at), event),
                (NeedsAttention(at), None, Some(OrderEvent::OrderNeedsAttention), Some((at, Undo, status))),
            );
        }
        cells.insert((NeedsAttention(at), Event::Retry), (Compensating(at), Some((at, Undo)), None, None));
    }
    for (at, before) in [(Inventory, Payment), (Shipping, Inventory)] {
        cells.insert(
            (NeedsAttention(at), Event::Settle),
            (Compensating(before), Some((before, Undo)), None, Some((at, Undo, Status::Settled))),
        );
    }
    cells.insert(
        (NeedsAttention(Payment), Event::Settle),
        (Settled, None, Some(OrderEvent::OrderSettled), Some((Payment, Undo, Status::Settled))),
    );
    cells
}

#[test]
fn every_cell_of_the_table_does_what_the_table_says() {
    assert_eq!(states().len() * events().len(), 324);
    for has_settled in SETTLED_BEFORE {
        let table = table(has_settled);
        // Two of them, a failed reservation and a failed release, are answers that inventory never gives.
        assert_eq!(table.len(), 33);
        for state in states() {
            for event in events() {
                let got = transition(Saga { state, has_settled }, event);
                let cell = got.map(|t| (t.saga.state, t.command, t.event, t.mark));
                assert_eq!(cell, table.get(&(state, event)).copied(), "{state:?} × {event:?}");
            }
        }
    }
}

#[test]
fn a_settled_step_is_remembered_to_the_end() {
    let saga = Saga { state: State::NeedsAttention(Step::Shipping), has_settled: false };
    let settled = transition(saga, Event::Settle).unwrap().saga;
    let released = transition(settled, Event::Undone(Step::Inventory)).unwrap().saga;
    let refunded = transition(released, Event::Undone(Step::Payment)).unwrap();
    assert_eq!(refunded.saga.state, State::Settled);
    assert_eq!(refunded.event, Some(OrderEvent::OrderSettled));
}

#[test]
fn deadlines_of_an_earlier_undo_change_nothing() {
    for state in states() {
        for step in Step::ALL {
            let saga = Saga { state, has_settled: false };
            assert_eq!(transition(saga, Event::UndoDeadline(step, Stale)), None);
        }
    }
}

#[test]
fn ignored_answers_say_why() {
    let failed = |attempt| Event::UndoFailed(Step::Payment, attempt);
    assert_eq!(ignored(failed(Stale), Status::Failed, Status::Failed), Ignored::Stale);
    assert_eq!(ignored(failed(Latest), Status::Failed, Status::Failed), Ignored::Repeated);
    assert_eq!(ignored(Event::Done(Step::Payment), Status::Done, Status::Overdue), Ignored::Late);
    assert_eq!(ignored(Event::Done(Step::Payment), Status::Done, Status::Done), Ignored::Repeated);
}

#[test]
fn the_failure_of_an_overdue_undo_is_shown_while_it_waits_for_a_person() {
    let saga = Saga { state: State::NeedsAttention(Step::Payment), has_settled: false };
    let failed = Some((Step::Payment, Direction::Undo, Status::Failed));
    assert_eq!(shown(saga, Event::UndoFailed(Step::Payment, Latest), Status::Overdue), failed);
    assert_eq!(shown(saga, Event::UndoFailed(Step::Payment, Stale), Status::Overdue), None);
    assert_eq!(shown(saga, Event::UndoFailed(Step::Payment, Latest), Status::Failed), None);
}

#[test]
fn states_and_statuses_keep_their_names() {
    for state in states() {
        let (name, step) = state.names();
        assert_eq!(State::named(name, step), Some(state));
    }
    for (status, name) in STATUSES {
        assert_eq!((status.name(), Status::named(name)), (name, Some(status)));
    }
}
