//! The primitives that threads share state by: the standard library's, or loom's, which tries every interleaving.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic,
    thread::{Thread, park_timeout},
};

#[cfg(loom)]
pub(crate) use loom::{sync::atomic, thread::Thread};

/// Without a timeout: a wake-up that is lost is to be found.
#[cfg(loom)]
pub(crate) fn park_timeout(_: std::time::Duration) {
    loom::thread::park();
}
