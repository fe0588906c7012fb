//! What the vendor documents say about two blocks of FPGA logic, and nothing else:
//!
//! * [`xdma`]: the PCIe DMA engine of *DMA/Bridge Subsystem for PCI Express* (AMD document PG195 v4.2), its
//!   registers, descriptors and write-backs;
//! * [`cdma`]: the card-internal copy engine *AXI Central Direct Memory Access* (PG034 v4.1);
//! * [`pci`]: the few parts of PCI configuration space that software for such cards touches;
//! * [`catalog`]: every register as data, for register browsers and dumps.
//!
//! A driver and a simulated card share this package, so it holds facts and no behaviour: nothing here decides when a
//! register is accessed. Blocks are `#[repr(C)]` structures of typed cells over `volatile_register`; offsets come
//! from those structures; a [`Reg`] gives typed access through any [`RegisterIo`].
//!
//! The value types are made by `bitfield-struct`: a setter such as `with_extra` *panics* if the number does not
//! fit its
//! field. For numbers that come from elsewhere use the `_checked` setters or the constructors named `of`, which say
//! what becomes of a number that is too large.
//!
//! Where the documents disagree with each other or with the field, the item says so and why it is as it is; the
//! list is in [`errata`].

#![no_std]
#![forbid(unsafe_code)]
#![expect(clippy::result_unit_err, reason = "bitfield-struct gives its checked setters the error type ()")]

#[macro_use]
mod macros;

pub mod access;
pub mod addr;
#[doc(hidden)]
pub mod cast;
pub mod catalog;
pub mod cdma;
pub mod decode;
pub mod errata;
pub mod pci;
mod words;
pub mod xdma;

pub use access::{AccessKind, Cell, PureRead, Rc, Reg, RegisterIo, Ro, Rw, Rw1c, W1c, W1s, Wo, Writable};
pub use addr::{BarOffset, CardAddr, Iova};
pub use decode::{Decoded, DecodedField, Doc, Field, FieldKind, RegisterValue};
/// The volatile cells that the block structures are made of, for the backend that maps a BAR.
pub use volatile_register;
