//! Tests of the functions that programs call, over a loopback in place of cards.

mod access;
mod calls;
mod completions;
mod fixture;
pub(crate) mod loopback;
mod messages;
