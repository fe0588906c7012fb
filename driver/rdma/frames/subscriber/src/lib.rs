//! Subscriber of frame streams for programs on any operating system: a receiving node in software, over UDP.
//!
//! The publisher is `fpga_frames::Publisher` on a card whose network link speaks UDP. This package takes the place of a card at the other
//! end: it acknowledges packets, writes them into its own memory, returns credits, and delivers frames with explicit gaps. Besides the
//! standard library it uses the packet formats of `fpga-firmware` and the receiver of `fpga-protocol`.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use fpga_frames_subscriber::{Event, Subscriber, SubscriberOptions};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let options = SubscriberOptions::new(2, "10.0.0.1:7001".parse()?);
//!     let mut subscriber = Subscriber::join("10.0.0.1:7400".parse()?, &options)?;
//!     loop {
//!         match subscriber.next(Duration::from_secs(1))? {
//!             Some(Event::Frame(frame)) => println!("frame {}: {} bytes", frame.sequence(), frame.data().len()),
//!             Some(Event::Gap { missed, .. }) => println!("{missed} frames missed"),
//!             Some(Event::Ended { .. }) => return Ok(()),
//!             Some(other) => println!("{other:?}"),
//!             None => println!("no frame for a second"),
//!         }
//!     }
//! }
//! ```
//!
//! | Module | Content |
//! |---|---|
//! | `join`, `bootstrap` | link, conversation over TCP |
//! | `packet` | datagrams |
//! | `node` | receiving node: a receiver as in a card's network interface |
//! | `memory`, `credit`, `stream` | state of a stream; formats and slots are those of `fpga-frames-wire` |
//! | `subscriber` | public types, the receiving thread |
#![warn(clippy::indexing_slicing)]

mod bootstrap;
mod credit;
mod error;
mod join;
mod memory;
mod node;
mod packet;
mod stream;
mod subscriber;

pub use error::{InvalidData, JoinError, StreamError};
pub use fpga_frames_wire::blocks::{BlockError, FrameHeader, VERSION};
pub use fpga_frames_wire::{ArrivalError, OutOfSequence, Sequence};
pub use join::SubscriberOptions;
pub use node::NodeCounts;
pub use subscriber::{Counts, Event, Frame, Subscriber};
