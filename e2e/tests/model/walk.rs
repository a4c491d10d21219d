//! Random walks where nothing is merged and the bounds are wide. They also check the merging: whatever happens is known
//! to the merged world.

use std::collections::BTreeSet;

use contracts::step::Direction;
use order::domain::{Event, State};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::moves::{Bounds, Model, Move, events};
use crate::promises;
use crate::rules;
use crate::third_party::Mood;
use crate::world::{HANDLERS, World};

/// Everything at once.
const WIDE: Bounds = Bounds { handlers: HANDLERS, parks: true, settles: true, stock_moves: 2, merges: false };
/// Moves of one saga.
const LENGTH: u32 = 256;

/// A cell of the orchestrator's table.
pub(crate) type Cell = (State, Event);

/// Walks `moves` moves, a new saga every [`LENGTH`], and returns the cells of the table that it saw.
pub(crate) fn walk(seed: u64, moves: u32) -> BTreeSet<Cell> {
    let model = Model { rules: rules::REAL, bounds: WIDE };
    let merged = Model { rules: rules::REAL, bounds: Bounds { merges: true, ..WIDE } };
    let mut random = StdRng::seed_from_u64(seed);
    let mut cells = BTreeSet::new();
    let mut world = World::start(1, WIDE.stock_moves);
    for number in 0..moves {
        if number % LENGTH == 0 {
            world = World::start(random.random_range(0..2), WIDE.stock_moves);
        }
        cells.extend(events(&world, &WIDE).into_iter().map(|event| (world.saga.state, event)));
        let possible = model.moves(&world);
        let played = *possible.choose(&mut random).expect("something can always happen");
        if random.random_range(0..odds(played)) > 0 {
            continue;
        }
        let next = model.play(&world, played);
        if let Some(broken) = promises::all(&world, played, &next) {
            panic!("seed {seed}, move {number}: {broken}, by {played:?} from {world:?}");
        }
        if number % 8 == 0 {
            let is_known = knows(&merged, &world, &next);
            assert!(is_known, "seed {seed}, move {number}: the merged world does not know {played:?} from {world:?}");
        }
        world = next;
    }
    cells
}

/// Whether a move between two states is one between the states that they are merged into.
fn knows(merged: &Model, before: &World, after: &World) -> bool {
    let (mut before, mut after) = (*before, *after);
    merged.merge(&mut before);
    merged.merge(&mut after);
    before == after || merged.moves(&before).into_iter().any(|played| merged.play(&before, played) == after)
}

/// One in how many times a move is made that was chosen: what ends a saga early, or leads nowhere, is seldom made.
fn odds(played: Move) -> u32 {
    match played {
        Move::Order(Event::Cancel | Event::Failed(_) | Event::DoDeadline(_)) | Move::Park(..) => 24,
        Move::Hear(_, Direction::Do, _, Mood::Unwilling) | Move::Land(_, Direction::Do, Mood::Unwilling) => 12,
        Move::Die(..) | Move::GiveUp(..) => 4,
        Move::Order(Event::UndoDeadline(..) | Event::Settle) | Move::Receive | Move::Sell => 3,
        _ => 1,
    }
}
