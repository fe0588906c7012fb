//! Values that a program's own state guarantees.

/// `debug_expect` for values whose absence is a defect of the program, not of its input.
pub trait DebugExpect {
    /// Returns `self`. With debug assertions it panics with `guarantee` if the value is absent, so that tests find the defect; without them
    /// the caller's neutral value takes its place.
    #[must_use]
    #[track_caller]
    fn debug_expect(self, guarantee: &'static str) -> Self;
}

impl<T> DebugExpect for Option<T> {
    #[inline]
    fn debug_expect(self, guarantee: &'static str) -> Self {
        debug_assert!(self.is_some(), "{guarantee}");
        self
    }
}

impl<T, E> DebugExpect for Result<T, E> {
    #[inline]
    fn debug_expect(self, guarantee: &'static str) -> Self {
        debug_assert!(self.is_ok(), "{guarantee}");
        self
    }
}
