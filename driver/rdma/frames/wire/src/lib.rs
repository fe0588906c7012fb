//! Formats of frame streams, and a subscriber's slots: what publishers and subscribers share, on cards and as software nodes.
//!
//! | Module | Content |
//! |---|---|
//! | [`blocks`] | frame header, status and credit: blocks in card memory |
//! | [`messages`] | messages of the bootstrap over TCP |
//! | [`Arrivals`] | a subscriber's slots: counters only, without I/O |
//! | [`Sequence`], [`GapDetector`] | sequence numbers, and gaps between them |

mod arrivals;
pub mod blocks;
pub mod messages;
mod sequence;

pub use arrivals::{ArrivalError, Arrivals, FramePosition, MAX_SLOTS, possible_slots};
pub use sequence::{GapDetector, OutOfSequence, Sequence};
