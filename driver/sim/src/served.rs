//! A simulated card as a vfio-user device: other processes open it through a UNIX socket.
//!
//! The client may be QEMU (`vfio-user-pci`), whose guest then has the card on its PCI bus, or any other program that implements protocol
//! 0.1. It accesses the model itself: registers, configuration space, interrupts by message, and its own memory through the files that it
//! passes. No client message makes the server panic, hang or leak. The client's files and mappings are limited, as are the time that it
//! keeps the server waiting (per unit of work and in total) and the log lines that it causes.
//!
//! | Module | Content |
//! |---|---|
//! | [`Session`] | answers one client's messages: no socket, and a thread only for reads that wait for a design |
//! | [`CardServer`] | the socket: one client at a time, one after the other; drives the card between their messages |
//! | [`Listener`] | socket file in the file system |
//!
//! The server provides what the kernel's vfio-pci does for a program that opens a real card: memory decoding is on and bus mastering off at
//! the start, errors are reported, MSI-X and MSI are enabled with the first event descriptor, and INTx masks itself when it fires. When the
//! client disconnects for any reason, bus mastering is switched off first, then its memory and its interrupts are released. The card is not
//! reset: public XDMA cards cannot be, so the next client finds the state that the last one left.

mod alarm;
mod client;
mod counts;
mod device;
mod error;
mod irqs;
mod listener;
mod posted;
mod server;
mod session;
mod slow_reads;
mod spin;
mod wait_budget;

pub(crate) use alarm::ServerAlarm;
pub use counts::{LiveServeCounts, MessageCount, ServeCounts};
pub use error::ServeError;
pub use listener::{Listener, SocketFile};
pub use server::CardServer;
pub use session::{Next, Session};

/// Minimum `max_data_xfer_size` of a client: a page. Smaller sizes would split one page of a transfer into a thousand messages.
const MIN_DATA: u32 = 4096;
