//! Key slots: within this process two messages of one key never run at once. Who comes second waits here.

use std::collections::{HashMap, VecDeque};

/// The keys that run, and what waits behind each.
pub(super) struct Slots<T>(HashMap<String, VecDeque<T>>);

impl<T> Slots<T> {
    pub(super) fn new() -> Slots<T> {
        Slots(HashMap::new())
    }

    /// Takes the key's slot and returns the item, or puts it in line and returns nothing.
    pub(super) fn enter(&mut self, key: &str, item: T) -> Option<T> {
        match self.0.get_mut(key) {
            Some(line) => {
                line.push_back(item);
                None
            }
            None => {
                self.0.insert(key.to_owned(), VecDeque::new());
                Some(item)
            }
        }
    }

    /// Frees the slot. The next in line, if there is one, has it now.
    pub(super) fn leave(&mut self, key: &str) -> Option<T> {
        let next = self.0.get_mut(key)?.pop_front();
        if next.is_none() {
            self.0.remove(key);
        }
        next
    }

    /// Frees the slot and sends the whole line away.
    pub(super) fn disperse(&mut self, key: &str) -> Vec<T> {
        self.0.remove(key).map(Vec::from).unwrap_or_default()
    }

    /// The keys whose slots are taken.
    pub(super) fn busy(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_runs_one_at_a_time_and_in_order() {
        let mut slots = Slots::new();
        assert_eq!(slots.enter("a", 1), Some(1));
        assert_eq!(slots.enter("a", 2), None);
        assert_eq!(slots.enter("b", 3), Some(3));
        assert_eq!(slots.enter("a", 4), None);
        assert_eq!(slots.leave("a"), Some(2));
        assert_eq!(slots.disperse("a"), [4]);
        assert_eq!(slots.enter("a", 5), Some(5));
        assert_eq!(slots.leave("a"), None);
        assert_eq!(slots.leave("b"), None);
        assert!(slots.busy().is_empty());
    }
}
