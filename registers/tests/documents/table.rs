//! Format and comparison of the tables of the document tests.

use fpga_registers::catalog::RegisterSpec;
use fpga_registers::{AccessKind, Field};

/// A register as a document states it: offset, this package's name, access, reset, source.
pub(crate) type RegisterRow = (u32, &'static str, AccessKind, Option<u32>, &'static str);

/// A field as a document states it: bits as `high:low` or `bit`, this package's name, source.
pub(crate) type FieldRow = (&'static str, &'static str, &'static str);

/// Compares the registers of the block with the table: same registers, same order, same facts.
pub(crate) fn compare_registers(block: &str, ours: &[RegisterSpec], table: &[RegisterRow]) {
    assert_eq!(ours.len(), table.len(), "{block}: number of registers");
    for (spec, (offset, name, access, reset, source)) in ours.iter().zip(table) {
        assert_eq!(spec.name(), *name, "{block} at {offset:#x}: name ({source})");
        assert_eq!(spec.offset(), *offset, "{block}.{name}: offset ({source})");
        assert_eq!(spec.access(), *access, "{block}.{name}: access ({source})");
        assert_eq!(spec.reset(), *reset, "{block}.{name}: reset ({source})");
    }
}

/// Compares the non-reserved fields of the value with the table: same fields at the same bits.
pub(crate) fn compare_fields(value: &str, ours: &[Field], table: &[FieldRow]) {
    let ours: Vec<&Field> = ours.iter().filter(|field| !field.is_reserved()).collect();
    assert_eq!(ours.len(), table.len(), "{value}: number of fields");
    for (bits, name, source) in table {
        let found = ours.iter().find(|field| field.name() == *name).map(|field| (field.high(), field.low()));
        assert!(found.is_some(), "{value} has no field {name} ({source})");
        assert_eq!(found, high_and_low(bits), "{value}.{name}: bits ({source})");
    }
}

/// Parses `high:low` or `bit`; `None` for any other text, which no field has.
fn high_and_low(bits: &str) -> Option<(u8, u8)> {
    let (high, low) = bits.split_once(':').unwrap_or((bits, bits));
    high.parse().ok().zip(low.parse().ok())
}
