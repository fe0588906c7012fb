//! Macros with which [`generated`](crate::generated) declares the contract.
//!
//! `cargo xtask generate` writes one declaration per item of `map/ni.yaml`. The macros derive everything else from it, so that each number
//! and each doc text appears once in the generated file:
//!
//! | Macro | Declares | Derives |
//! |---|---|---|
//! | `contract_enums!` | number and name of each value | the enum, its lists of values, conversions, `Display` |
//! | `contract_bits!` | number and name of each bit | the bit set, its operations, `Display` |
//! | `contract_blocks!` | words and fields of each register | constants for offsets and masks, `BLOCKS` |
//! | `contract_layouts!` | type and offset of each member | constants for offsets |
//!
//! A doc comment precedes every item and every part of it. The macros do not check numbers: the generator refuses a map
//! with duplicate, overlapping or misaligned items.

#[macro_use]
mod offsets;
#[macro_use]
mod values;
