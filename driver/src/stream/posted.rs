//! Parts of a stream that are posted and were not returned.

use core::hash::{BuildHasher as _, Hasher as _};
use std::collections::VecDeque;
use std::hash::RandomState;

/// Posted parts, and the value that tells an untouched buffer.
#[derive(Debug)]
pub(super) struct PostedParts {
    /// Number of the oldest descriptor that is posted as a part and was not returned.
    pub(super) first: u64,
    /// Lengths of the parts from that one on, in bytes.
    pub(super) lengths: VecDeque<u32>,
    /// First bytes of a buffer before the card writes to it: random, so that no data is mistaken for it.
    pub(super) untouched: u64,
}

impl PostedParts {
    pub(super) fn new() -> Self {
        Self { first: 0, lengths: VecDeque::new(), untouched: RandomState::new().build_hasher().finish() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.lengths.clear();
    }
}
