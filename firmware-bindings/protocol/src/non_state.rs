//! State that does not take part in comparisons.

use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};

/// Value kept beside a state, such as a counter or a cache. It is never compared and never hashed, so that a search
/// over reachable states treats states that differ only here as equal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NonState<T>(pub(crate) T);

impl<T> PartialEq for NonState<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for NonState<T> {}

impl<T> Hash for NonState<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<T> Deref for NonState<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for NonState<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
