//! Visits every state that can be reached, breadth first, so that the first broken promise has a shortest trace.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::moves::{Model, Move};
use crate::promises::Judge;
use crate::rest::{self, When};
use crate::tell;
use crate::world::World;

/// A number of a visited state.
pub(crate) type Id = u32;

/// A promise that does not hold, and the move that breaks it, if a single one does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken {
    pub(crate) promise: &'static str,
    pub(crate) state: Id,
    pub(crate) last: Option<Move>,
}

/// All that was visited.
pub(crate) struct Explored {
    model: Model,
    pub(crate) worlds: Vec<World>,
    /// The moves between states, by the state that they leave.
    steps: Vec<(Id, When)>,
    pub(crate) moves: usize,
    pub(crate) depth: usize,
    first_steps: Vec<usize>,
    parents: Vec<Option<(Id, Move)>>,
    ids: HashMap<World, Id, BuildHasherDefault<Mixer>>,
}

impl Explored {
    /// Visits states until none is new or a promise is broken.
    pub(crate) fn all(model: Model, judge: Judge) -> (Explored, Option<Broken>) {
        let mut explored = Explored {
            model,
            worlds: Vec::new(),
            steps: Vec::new(),
            moves: 0,
            depth: 0,
            first_steps: Vec::new(),
            parents: Vec::new(),
            ids: HashMap::default(),
        };
        for available in [0, 1] {
            explored.visit(World::start(available, model.bounds.stock_moves), None);
        }
        let broken = explored.explore(judge);
        (explored, broken)
    }

    fn explore(&mut self, judge: Judge) -> Option<Broken> {
        let mut at = 0;
        let mut level_end = self.worlds.len();
        while at < self.worlds.len() {
            if at == level_end {
                self.depth += 1;
                level_end = self.worlds.len();
            }
            let world = self.worlds[at];
            let state = id(at);
            self.first_steps.push(self.steps.len());
            for played in self.model.moves(&world) {
                self.moves += 1;
                let next = self.model.play(&world, played);
                if next == world {
                    continue;
                }
                if let Some(promise) = judge(&world, played, &next) {
                    return Some(Broken { promise, state, last: Some(played) });
                }
                let to = self.visit(next, Some((state, played)));
                self.steps.push((to, rest::when(&world, played)));
            }
            at += 1;
        }
        self.first_steps.push(self.steps.len());
        None
    }

    fn visit(&mut self, world: World, parent: Option<(Id, Move)>) -> Id {
        let next = id(self.worlds.len());
        match self.ids.entry(world) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                free.insert(next);
                self.worlds.push(world);
                self.parents.push(parent);
                next
            }
        }
    }

    /// The moves out of a state.
    pub(crate) fn steps_from(&self, state: usize) -> &[(Id, When)] {
        &self.steps[self.first_steps[state]..self.first_steps[state + 1]]
    }

    /// The shortest way to a broken promise, one line for each move after the order's creation.
    pub(crate) fn trace(&self, broken: &Broken) -> Vec<String> {
        let line = |state: Id, played| {
            let before = &self.worlds[state as usize];
            tell::line(before, played, &self.model.play(before, played))
        };
        let mut lines: Vec<String> = broken.last.iter().map(|played| line(broken.state, *played)).collect();
        let mut state = broken.state;
        while let Some((parent, played)) = self.parents[state as usize] {
            lines.push(line(parent, played));
            state = parent;
        }
        lines.reverse();
        lines
    }
}

pub(crate) fn id(index: usize) -> Id {
    Id::try_from(index).expect("fewer than four billion states")
}

/// A quick hash; nobody chooses the states with ill intent.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
