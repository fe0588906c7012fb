//! Programs that know nothing of this project, on simulated cards.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod nodes;
mod programs;
mod random;
mod support;
