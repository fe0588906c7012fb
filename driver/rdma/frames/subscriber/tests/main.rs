//! Integration tests of the package, in one binary, which links once.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::panic, reason = "a panic is the failure report")]

mod bed;
mod delivery;
mod joining;
