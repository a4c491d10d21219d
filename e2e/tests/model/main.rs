//! The saga in a hostile world, by the functions that the services run on: the orchestrator's, the participants', the
//! third parties'. Whatever was ever sent can be delivered at any time, in any order, any number of times, or never.
//! Handlers begin, hear from the third party and commit in moves of their own and die between any two; a request may
//! land after its caller has given up. Deadlines fire at any time; customers and operators act without limit.
//!
//! Bounded are: one saga, no more than two pieces in stock, at most three handlers of one command at once. The broker,
//! the database and the code around the functions are not here; they are in the other tests.

mod explore;
mod merge;
mod moves;
mod mutants;
mod play;
mod promises;
mod rest;
mod rules;
mod tell;
mod third_party;
mod walk;
mod world;

use std::collections::BTreeSet;
use std::time::Instant;

use order::domain::{Attempt, Event, Saga, transition};

use explore::Explored;
use moves::{Bounds, Model};

const ONE_EACH: Bounds = Bounds { handlers: 1, parks: false, settles: true, stock_moves: 1, merges: true };
const TWO_EACH: Bounds = Bounds { handlers: 2, stock_moves: 0, ..ONE_EACH };
const PARKING: Bounds = Bounds { parks: true, stock_moves: 0, ..ONE_EACH };

/// Cells of the orchestrator's table, states by events, that can be reached; and those that change something.
const REACHABLE_CELLS: usize = 205;
const CHANGING_CELLS: usize = 31;

#[test]
fn no_reachable_state_breaks_a_promise() {
    println!("one handler each: {}", explore_all(ONE_EACH));
}

#[test]
fn handlers_at_once_break_no_promise() {
    println!("two handlers each: {}", explore_all(TWO_EACH));
}

#[test]
fn parked_and_lost_commands_break_no_promise() {
    println!("parking and loss: {}", explore_all(PARKING));
}

#[test]
fn each_mutant_is_caught() {
    for mutant in mutants::ALL {
        let model = Model { rules: mutant.rules, bounds: mutant.bounds };
        let (explored, broken) = Explored::all(model, mutant.judge);
        let Some(broken) = broken.or_else(|| explored.broken_rest()) else {
            panic!("not caught in {} states: {}", explored.worlds.len(), mutant.name);
        };
        let trace = explored.trace(&broken);
        println!("{}\n  {} moves: {}\n    {}", mutant.name, trace.len(), broken.promise, trace.join("\n    "));
        assert_eq!(broken.promise, mutant.breaks, "{}", mutant.name);
    }
}

#[test]
fn random_walks_break_no_promise() {
    walk::walk(0x5A6A, 200_000);
}

#[test]
fn every_reachable_cell_of_the_table_is_visited() {
    let mut cells = BTreeSet::new();
    let mut walks = 0;
    while cells.len() < REACHABLE_CELLS && walks < 20 {
        walks += 1;
        cells.extend(walk::walk(walks, 50_000));
        // Deadlines are read under the saga's lock: one of an earlier undo cannot come, and is no event of the table.
        cells.retain(|(_, event)| !matches!(event, Event::UndoDeadline(_, Attempt::Stale)));
    }
    let changes = |state, event| {
        [false, true].into_iter().any(|has_settled| transition(Saga { state, has_settled }, event).is_some())
    };
    let changing = cells.iter().filter(|(state, event)| changes(*state, *event)).count();
    println!("{} cells visited in {walks} walks, {changing} of them change something", cells.len());
    assert_eq!((cells.len(), changing), (REACHABLE_CELLS, CHANGING_CELLS));
}

/// Visits every state within `bounds` and says how many there are.
fn explore_all(bounds: Bounds) -> String {
    let begun = Instant::now();
    let (explored, broken) = Explored::all(Model { rules: rules::REAL, bounds }, promises::all);
    if let Some(broken) = broken.or_else(|| explored.broken_rest()) {
        panic!("{}\n    {}", broken.promise, explored.trace(&broken).join("\n    "));
    }
    let (states, moves, depth) = (explored.worlds.len(), explored.moves, explored.depth);
    format!("{states} states, {moves} moves, depth {depth}, {:.1} s", begun.elapsed().as_secs_f32())
}
