//! Printed form of every register. The snapshot is the specification: read it when it changes.

use std::fmt::Write;

use fpga_registers::BarOffset;
use fpga_registers::catalog::CardLayout;
use fpga_registers::xdma::{
    ChannelStatus, DescriptorControl, Direction, Identifier, PollWriteback, StatusError, StreamWriteback,
    Target,
};

/// Values as seen on cards, by the end of the register's name.
const SEEN: &[(&str, u32)] = &[
    ("h2c0.identifier", 0x1FC0_0006),
    ("c2h0.identifier", 0x1FC1_8006),
    ("irq.identifier", 0x1FC2_0006),
    ("h2c0.control", 0x00F8_3E1F),
    ("c2h0.control", 0x0CF8_3E18),
    (".status", 0x0000_0006),
    (".status", 0x0000_0201),
    (".status", 0x0008_C410),
    (".status_rc", 0x0000_0004),
    (".completed", 0x0000_0040),
    (".alignments", 0x0001_0140),
    (".performance_control", 0x0000_0005),
    (".performance_cycles_high", 0x0001_03FF),
    (".adjacent", 0x0000_003F),
    (".credits", 0x0000_0020),
    (".halt", 0x0001_0003),
    (".user_enable", 0x0000_0005),
    (".channel_enable", 0x0000_0003),
    (".user_vectors0", 0x0504_0302),
    ("config.identifier", 0x1FC3_0006),
    ("h2c0_sgdma.identifier", 0x1FC4_0006),
    ("c2h0_sgdma.identifier", 0x1FC5_0006),
    ("config.bus_device_function", 0x0000_6500),
    ("config.pcie_max_payload", 0x0000_0001),
    ("config.pcie_max_payload", 0x0000_0007),
    ("config.interrupt_mode", 0x0000_0002),
    ("config.data_width", 0x0000_0002),
    ("config.user_max_payload", 0x0000_0025),
    ("cdma.cr", 0x0001_700A),
    ("cdma.sr", 0x0001_000A),
    ("cdma.sr", 0x0001_5052),
    ("cdma.btt", 0x0000_1000),
];

#[test]
fn display_every_register_of_card() {
    let card = CardLayout::new(1, 1).with_msix_vectors(1).with_cdma(BarOffset::new(0x1000));
    let mut text = String::new();
    let mut used = vec![false; SEEN.len()];
    for register in card.registers() {
        let name = register.name().to_string();
        let mut values: Vec<u32> = register.reset().into_iter().collect();
        for ((end, value), used) in SEEN.iter().zip(&mut used) {
            if name.ends_with(end) {
                values.push(*value);
                *used = true;
            }
        }
        values.extend([0, u32::MAX]);
        let mut printed = Vec::new();
        writeln!(text, "{name} at {:#06x}, {}", register.address(), register.access()).unwrap();
        for value in values {
            if !printed.contains(&value) {
                writeln!(text, "    {}", register.decode(value)).unwrap();
                printed.push(value);
            }
        }
    }
    assert!(used.iter().all(|used| *used), "a value belongs to no register");
    insta::assert_snapshot!(text);
}

#[test]
fn display_values_show_fields() {
    assert_eq!(
        Identifier::of(Target::C2hChannel, 1, true).to_string(),
        "0x1fc18106 version=6(2017.1 or later) channel=1 stream target=1(c2h_channel) subsystem=0x1fc"
    );
    // Without a direction the meaning of bits 13:9 is unknown.
    let status = ChannelStatus::from_bits(0x0000_0201);
    assert_eq!(status.to_string(), "0x00000201 busy read_error=0x1 write_error=0x0 descriptor_error=none");
    assert_eq!(
        status.describe(Direction::H2c).to_string(),
        "0x00000201 busy read_error=unsupported_request write_error=none descriptor_error=none"
    );
    assert_eq!(
        status.describe(Direction::C2h).to_string(),
        "0x00000201 busy read_error=decode_error write_error=none descriptor_error=none"
    );
    // Bits that have no name in this direction print by number.
    assert_eq!(
        ChannelStatus::from_bits(0x0000_4800).describe(Direction::C2h).to_string(),
        "0x00004800 read_error=bit11 write_error=bit14 descriptor_error=none"
    );
    assert_eq!(
        DescriptorControl::from_bits(0xAD4B_0013).to_string(),
        "0xad4b0013 stop completed eop next_adjacent=0 magic=0xad4b"
    );
    assert_eq!(PollWriteback::from_bits(0x8000_0007).to_string(), "0x80000007 count=7 error");
    assert_eq!(StreamWriteback::new(1, true).status.to_string(), "0x52b40001 eop magic=0x52b4");
    assert_eq!(StatusError::MagicStopped.to_string(), "a fetched descriptor lacks the magic number");
    assert_eq!(Direction::H2c.to_string(), "h2c");
}

/// Listings describe a register or a field by its documentation, formatted for a terminal.
#[test]
fn display_documentation_text_is_available() {
    use fpga_registers::decode::Doc;
    let card = CardLayout::new(4, 4).with_cdma(BarOffset::new(0x1000));
    for block in card.blocks() {
        for register in block.registers() {
            assert!(!register.doc().is_empty(), "{block}.{}", register.name());
            for field in register.fields().iter().filter(|field| !field.is_reserved()) {
                let doc = field.doc().to_string();
                assert!(
                    !doc.is_empty() && !doc.contains(['`', '[', ']']),
                    "{block}.{}: {doc:?}",
                    register.name()
                );
            }
        }
    }
    let status = card.find("h2c0.status").unwrap();
    assert_eq!(status.doc().to_string(), "Events and errors; ones written clear bits.");
    for (text, shown) in [
        (" See [`errata`](crate::errata), X11. ", "See errata, X11."),
        ("[`MAGIC`], else (or not) `it` stops", "MAGIC, else (or not) it stops"),
        ("a ] b (c) [d](e) (f", "a  b (c) d (f"),
        ("", ""),
    ] {
        assert_eq!(Doc::new(text).to_string(), shown);
    }
}
