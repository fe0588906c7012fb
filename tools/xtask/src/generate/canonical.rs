//! Canonical text: the input of the contract's checksum.
//!
//! One line per item, in map order, each ended by one line feed; ASCII. It contains everything on which software and bitstream could
//! disagree (names, numbers, access kinds, reset values, bit positions, layouts). It does not contain doc texts, comments and the YAML's
//! own formatting.

use std::fmt::Write as _;

use super::contract::{Block, Contract, Layout, words};

/// Canonical text of `contract`.
pub(super) fn text(contract: &Contract) -> String {
    let mut out = format!("contract {}.{}\n", contract.contract.major, contract.contract.minor);
    for c in &contract.constants {
        line(&mut out, &format!("constant {} {} {:#x}", c.name, c.integer.name(), c.value));
    }
    for e in &contract.enums {
        line(&mut out, &format!("enum {} {}", e.name, e.repr.name()));
        for v in &e.variants {
            line(&mut out, &format!("value {}.{} {}", e.name, v.name, v.value));
        }
    }
    for b in &contract.bitsets {
        line(&mut out, &format!("bitset {} {}", b.name, b.repr.name()));
        for bit in &b.bits {
            line(&mut out, &format!("bit {}.{} {}", b.name, bit.name, bit.bit));
        }
    }
    for block in &contract.blocks {
        write_block(&mut out, block);
    }
    for layout in &contract.layouts {
        write_layout(&mut out, contract, layout);
    }
    out
}

fn write_block(out: &mut String, block: &Block) {
    line(
        out,
        &format!(
            "block {} {} {} {:#x} {:#x}",
            block.name, block.block_type, block.version, block.offset, block.size
        ),
    );
    for register in &block.registers {
        let values = register.values.as_deref().unwrap_or("-");
        for (name, offset, reset) in words(register) {
            let reset = reset.map_or_else(|| "-".into(), |value| format!("{value:#x}"));
            let access = register.access.name();
            line(out, &format!("register {}.{name} {offset:#x} {access} {reset} {values}", block.name));
        }
        for field in &register.fields {
            let (high, low) = (field.bits.high(), field.bits.low());
            line(out, &format!("field {}.{}.{} {high}:{low}", block.name, register.name, field.name));
        }
    }
}

fn write_layout(out: &mut String, contract: &Contract, layout: &Layout) {
    let packet = layout.packet.as_deref().unwrap_or("-");
    line(out, &format!("layout {} {} {packet}", layout.name, layout.size));
    for member in contract.members(layout) {
        line(
            out,
            &format!("member {}.{} {} {}", layout.name, member.name, member.offset, member.type_name()),
        );
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
