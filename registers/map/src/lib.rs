//! Register maps that users write for their own designs: a YAML file describes the registers on the user BAR of a card, which only the
//! designer of the card knows.
//!
//! | To | Use |
//! |---|---|
//! | read a map, with errors that name line and key | [`RegisterMap`] |
//! | read and write registers and fields by name | [`Registers`], over anything that implements [`RegisterIo`](fpga_registers::RegisterIo): a `Bar` |
//! | have them as types, checked by the compiler | [`bindings`], in a build script |
//! | begin the RTL with the same offsets and fields | [`rtl`] |
//! | suggest names for a mistyped one | [`nearest`], [`hint`] |
//! | complete and check maps in an editor | [`JSON_SCHEMA`] |
//!
//! `docs/guide/register-maps.md` describes the file key by key.

mod access;
mod assemble;
pub mod bindings;
mod check;
mod error;
mod locate;
mod map;
mod name;
pub mod rtl;
pub mod schema;

pub use access::{AccessError, Registers, rest};
pub use check::RegisterFault;
pub use error::{MapError, NameError, Problem};
pub use map::{MapField, MapRegister, Named, RegisterMap, Values, parse_number};
pub use name::{hint, nearest};

/// The JSON Schema of maps, for editors.
pub const JSON_SCHEMA: &str = include_str!("../register-map.schema.json");
