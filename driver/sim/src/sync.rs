//! Synchronisation primitives: the standard library's, or loom's, which explores every interleaving.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic,
    thread::{Thread, park_timeout},
};

#[cfg(loom)]
pub(crate) use loom::{sync::atomic, thread::Thread};

/// Parks without a timeout, so that loom detects a lost wake-up.
#[cfg(loom)]
pub(crate) fn park_timeout(_: std::time::Duration) {
    loom::thread::park();
}
