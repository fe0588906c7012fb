//! Every constant of this package against tables that were typed from other sources than the code.
//!
//! A row cites where its facts were read. Where a vendor page could not be read, the row says which source restates
//! it.

mod pci;
mod pg034;
mod pg195_fields;
mod pg195_memory;
mod pg195_registers;
mod table;
