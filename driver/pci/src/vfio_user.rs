//! The vfio-user protocol: a PCI function served by another process on a UNIX socket.
//!
//! Registers are read and written by messages, memory and interrupts are shared by passing file descriptors. The
//! protocol is version 0.1 as `docs/interop/vfio-user.rst` of QEMU describes it; where QEMU, libvfio-user or the crate
//! `vfio_user` do something else, the place in [`wire`] says so.
//!
//! | Module | What |
//! |---|---|
//! | [`wire`] | every message, typed, for client and server; bytes in, bytes out, no I/O |
//! | [`socket`] | whole messages over a socket, with their file descriptors, each by a deadline |

pub mod socket;
pub mod wire;
