//! The vfio-user protocol: a PCI function served by another process on a UNIX socket.
//!
//! Registers are accessed by messages; register writes to a server of this project, through a ring in shared memory. Memory and interrupts are shared by passing file descriptors. The protocol is version 0.1 as
//! `docs/interop/vfio-user.rst` of QEMU describes it; [`wire`] documents where QEMU, libvfio-user or the crate `vfio_user` differ.
//!
//! | Module | Content |
//! |---|---|
//! | [`wire`] | every message, typed, for client and server; bytes in, bytes out, no I/O |
//! | [`socket`] | whole messages over a socket, with their file descriptors, each by a deadline |
//!
//! [`VfioUserBackend`] is the client: a [`Backend`](fpga_pci::Backend) like any other. It does not trust the server: replies are validated,
//! a missing reply ends the connection unless it is that of a register access, and a file of the server is only mapped if it is sealed against shrinking.

mod backend;
mod bar;
mod connection;
mod error;
mod interrupts;
mod memory;
mod open;
mod posted;
pub mod socket;
pub mod wire;

pub use backend::VfioUserBackend;
pub use error::VfioUserOpenError;
pub use open::{MESSAGE_TIMEOUT_VARIABLE, VfioUserOptions};
pub use socket::ConnectError;
