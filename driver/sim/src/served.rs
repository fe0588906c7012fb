//! A card of the world as a vfio-user device: other processes open it through a UNIX socket.
//!
//! The client may be QEMU (`vfio-user-pci`), whose guest then has the card on its PCI bus, or any other program that speaks
//! protocol 0.1. What it sees is the model itself: registers, configuration space and interrupts by message, its own
//! memory through the files that it passes. Nothing that it sends makes the server panic, hang or leak: its files and mappings are
//! limited, and so is the time that it keeps the server waiting (per turn and in all) and the log lines that it causes.
//!
//! | Module | What |
//! |---|---|
//! | [`Session`] | answers one client's messages: no socket, no thread |
//! | [`CardServer`] | the socket: one client at a time, one after the other; drives the card between their messages |
//! | [`Listener`] | a socket's place in the file system |
//!
//! What the kernel's vfio-pci does for a program that opens a real card, the server does too: memory decoding is on and bus
//! mastering off at the start, errors are reported, MSI-X and MSI are enabled with the first event descriptor, the legacy line masks itself. When
//! the client goes, however it goes, bus mastering is switched off first, then its memory and its interrupts are let go. The
//! card is not reset: public XDMA cards cannot be, and the next client finds what the last one left.

mod client;
mod device;
mod error;
mod irqs;
mod listener;
mod log;
mod server;
mod session;
mod wait_budget;

pub use error::ServeError;
pub use listener::{Listener, SocketFile};
pub use log::LogLimit;
pub use server::{CardServer, LiveServeCounts, MessageCount, ServeCounts};
pub use session::{Next, Session};
