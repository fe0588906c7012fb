//! Comparison of every constant of this package with independently typed tables.
//!
//! A row cites the source of its facts. If a vendor page could not be read, the row names the source that restates it.

mod pci;
mod pg034;
mod pg195_fields;
mod pg195_memory;
mod pg195_registers;
mod table;
