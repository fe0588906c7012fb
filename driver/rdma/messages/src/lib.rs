//! Messages between hosts over endpoints of FPGA cards.
//!
//! A [`Messenger`] sends and receives messages of any length, with or without tags, and reads, writes and atomically changes the registered
//! memory of other hosts. All data moves through the cards: host memory, XDMA channel, card memory, network interface.
//!
//! # Protocol
//!
//! Every messenger has a region of card memory that its peers may write, with a ring for each peer ([`Messenger`] keeps the other end of it).
//!
//! ```text
//! sender                                                       receiver
//! record (header, data) -> staging -H2C-> card -> network -> ring of the sender -C2H-> host memory -> matching
//!                                                          <- doorbell: units of the ring are free again
//! large data: announcement record                          -> matching
//!                                                          <- grant record: landing slots
//!             parts -> staging -H2C-> card -> network      -> landing slots -C2H-> host memory -> application
//!                                                          <- doorbell: slot is free again
//! ```
//!
//! * The RDMA transport delivers each transfer once, in any order. Records are processed in the order of their positions in the ring, so
//!   messages match in the order in which they were sent.
//! * A doorbell is a transfer of one byte whose address is its meaning.
//! * A session begins with a hello in both directions, which tells the peer its ring and the key of the region. A messenger that is dropped
//!   ends its sessions by a record, after everything that it has sent; the peer accepts nothing more from that process.

mod address;
mod areas;
mod buffers;
mod card;
mod completion;
mod error;
mod handle;
mod hello;
mod inbound;
mod layout;
#[cfg(feature = "sim")]
mod linked;
mod matching;
mod messenger;
mod open_cards;
mod operation;
mod options;
mod peer;
mod port;
mod region;
mod request;
mod staging;
mod unexpected;
mod wire;

pub use address::{Address, MAX_TEXT, ParseAddressError, PeerId};
pub use card::MIN_TRANSFERS;
pub use completion::{Completion, CompletionKind, Failure};
pub use error::MessengerError;
pub use handle::Messenger;
pub use messenger::{MAX_INJECT, PostError};
pub use options::{LinkChoice, MessengerOptions};
pub use region::{RegionError, Regions, RemoteAccess};
pub use request::{
    AccessRequest, AtomicCall, AtomicRequest, AtomicUnit, CompleteWhen, HostMemory, HostRange, HostRanges,
    MAX_RANGES, Peek, ReceiveRequest, RemoteRange, SendRequest, TagPattern, Token,
};
