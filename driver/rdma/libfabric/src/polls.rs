//! Calls of a program that make a card progress: one of its endpoints makes all of them progress.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Number of such calls.
#[derive(Debug, Default)]
pub(crate) struct Polls(AtomicU64);

/// Cards of this process, by node id.
static CARDS: Mutex<Vec<(u32, Weak<Polls>)>> = Mutex::new(Vec::new());

impl Polls {
    /// Returns the calls for the card with a node id.
    pub(crate) fn of_card(node: u32) -> Arc<Self> {
        let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
        cards.retain(|(_, polls)| polls.strong_count() > 0);
        let known = cards.iter().find(|(known, _)| *known == node);
        known.and_then(|(_, polls)| polls.upgrade()).unwrap_or_else(|| {
            let polls = Arc::default();
            cards.push((node, Arc::downgrade(&polls)));
            polls
        })
    }

    #[inline]
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_those_of_all_endpoints_of_a_card() {
        let (first, second, other) =
            (Polls::of_card(1 << 31), Polls::of_card(1 << 31), Polls::of_card(3 << 30));
        first.count();
        second.count();
        assert_eq!((first.number(), second.number(), other.number()), (2, 2, 0));
        drop((first, second));
        assert_eq!(Polls::of_card(1 << 31).number(), 0);
    }
}
