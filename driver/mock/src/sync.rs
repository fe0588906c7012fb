//! The primitives that threads share state by: the standard library's, or loom's, which tries every interleaving.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
