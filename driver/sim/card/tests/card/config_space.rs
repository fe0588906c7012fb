//! Configuration space against tables typed from the specifications: PCI Local Bus 3.0 (6.1, 6.2), PCI Power Management 1.2, PCI Express
//! 5.0 (chapter 7).

use crate::support::*;
use fpga_card::description::{BarDescription, BarName, RomDescription};
use fpga_card::{
    BarRole, Card, CardDescription, CorrectableError, ErrorMessage, PciError, UncorrectableError,
};

/// Offset, value after power-on, writable bits, write-1-to-clear bits, section.
type Row = (u16, u32, u32, u32, &'static str);

/// Default card; every double word that is not listed reads as 0 and is not writable.
const DEFAULT: &[Row] = &[
    (0x00, 0x903F_10EE, 0, 0, "PCIe 7.5.1.1.1/2 ids"),
    (0x04, 0x0010_0000, 0x0000_0546, 0xF900_0000, "PCIe 7.5.1.1.3/4 command, status"),
    (0x08, 0x0580_0000, 0, 0, "PCIe 7.5.1.1.5/6 revision, class: memory, other"),
    (0x0C, 0, 0x0000_00FF, 0, "PCIe 7.5.1.1.7-9 cache line; no latency timer; type 0; no BIST"),
    (0x10, 0x0000_0000, 0xFFFF_0000, 0, "PCIe 7.5.1.2.1 BAR 0, 64 KiB, 32 bit"),
    (0x14, 0x0000_0000, 0xFFFF_0000, 0, "BAR 1, 64 KiB, 32 bit"),
    (0x18, 0x0000_000C, 0xFC00_0000, 0, "BAR 2, 64 MiB, 64 bit, prefetchable"),
    (0x1C, 0, 0xFFFF_FFFF, 0, "BAR 2, upper half"),
    (0x2C, 0x4E49_10EE, 0, 0, "PCIe 7.5.1.2.3 subsystem"),
    (0x34, 0x0000_0040, 0, 0, "PCIe 7.5.1.1.11 capabilities pointer"),
    (0x3C, 0x0000_0100, 0x0000_00FF, 0, "PCIe 7.5.1.1.12/13 interrupt line, pin INTA"),
    (0x40, 0x0003_4801, 0, 0, "PM 3.2.3: version 3, no D1, D2, PME"),
    (0x44, 0x0000_0008, 0x0000_0003, 0, "PM 3.2.4: D0, no soft reset"),
    (0x48, 0x008A_6005, 0x0071_0000, 0, "PCIe 7.7.1: 32 messages, 64 bit"),
    (0x4C, 0, 0xFFFF_FFFC, 0, "MSI address"),
    (0x50, 0, 0xFFFF_FFFF, 0, "MSI upper address"),
    (0x54, 0, 0x0000_FFFF, 0, "MSI data"),
    (0x60, 0x001F_7011, 0xC000_0000, 0, "PCIe 7.7.2: 32 entries"),
    (0x64, 0x0000_8001, 0, 0, "MSI-X table in BAR 1 (PG195: 0x8000)"),
    (0x68, 0x0000_8FE1, 0, 0, "MSI-X pending bits (PG195: 0x8FE0)"),
    (0x70, 0x0002_0010, 0, 0, "PCIe 7.5.3.2: version 2, endpoint, last"),
    (0x74, 0x0000_8022, 0, 0, "PCIe 7.5.3.3: 512 B, extended tag, role-based errors, FLReset-"),
    (0x78, 0x0000_2810, 0x0000_79FF, 0x000F_0000, "PCIe 7.5.3.4/5 device control, status"),
    (0x7C, 0x0040_0103, 0, 0, "PCIe 7.5.3.6: 8 GT/s, x16"),
    (0x80, 0x1103_0000, 0x0000_00CB, 0, "PCIe 7.5.3.7/8 link control, status"),
    (0x94, 0x0000_0012, 0, 0, "PCIe 7.5.3.15: completion timeout range B, can be disabled"),
    (0x98, 0, 0x0000_001F, 0, "PCIe 7.5.3.16 device control 2"),
    (0x9C, 0x0000_000E, 0, 0, "PCIe 7.5.3.18: 2.5, 5 and 8 GT/s"),
    (0xA0, 0x001E_0003, 0x0000_FFBF, 0, "PCIe 7.5.3.19/20 link control 2, status 2"),
    (0x100, 0x1502_0001, 0, 0, "PCIe 7.8.4.1: version 2, next at 0x150"),
    (0x104, 0, 0, 0x001F_F030, "PCIe 7.8.4.2 uncorrectable status"),
    (0x108, 0, 0x001F_F030, 0, "PCIe 7.8.4.3 uncorrectable mask"),
    (0x10C, 0x0006_2030, 0x001F_F030, 0, "PCIe 7.8.4.4 severity"),
    (0x110, 0, 0, 0x0000_31C1, "PCIe 7.8.4.5 correctable status"),
    (0x114, 0x0000_2000, 0x0000_31C1, 0, "PCIe 7.8.4.6: advisory non-fatal masked"),
    (0x150, 0x1C01_0003, 0, 0, "PCIe 7.9.3.1 serial number, next at 0x1C0"),
    (0x154, 0x0100_0A35, 0, 0, "PCIe 7.9.3.2 lower half"),
    (0x158, 0x0000_0001, 0, 0, "PCIe 7.9.3.2 upper half"),
    (0x1C0, 0x0001_0019, 0, 0, "PCIe 7.7.3.1 Secondary PCI Express, version 1, last"),
    (0x1C8, 0, 0, 0x0000_FFFF, "PCIe 7.7.3.3 lane error status, 16 lanes"),
    (0x1CC, 0x7F00_7F00, 0, 0, "PCIe 7.7.3.4 equalization control, lanes 0 and 1"),
    (0x1D0, 0x7F00_7F00, 0, 0, "lanes 2 and 3"),
    (0x1D4, 0x7F00_7F00, 0, 0, "lanes 4 and 5"),
    (0x1D8, 0x7F00_7F00, 0, 0, "lanes 6 and 7"),
    (0x1DC, 0x7F00_7F00, 0, 0, "lanes 8 and 9"),
    (0x1E0, 0x7F00_7F00, 0, 0, "lanes 10 and 11"),
    (0x1E4, 0x7F00_7F00, 0, 0, "lanes 12 and 13"),
    (0x1E8, 0x7F00_7F00, 0, 0, "lanes 14 and 15"),
];

fn read(card: &mut Card, at: u16) -> u32 {
    let mut bytes = [0; 4];
    card.config_read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn write(card: &mut Card, at: u16, value: u32) {
    card.config_write(at, &value.to_le_bytes());
}

fn half(card: &mut Card, at: u16) -> u16 {
    let mut bytes = [0; 2];
    card.config_read(at, &mut bytes);
    u16::from_le_bytes(bytes)
}

fn with(set: impl FnOnce(&mut CardDescription)) -> Card {
    let mut description = small();
    set(&mut description);
    Card::new(description).expect("valid")
}

/// Checks all of configuration space: the effect of writing 1 and 0 to each bit.
fn check(rows: &[Row]) {
    for at in (0..0x1000).step_by(4) {
        let row = rows.iter().find(|row| row.0 == at).copied();
        let (_, reset, writable, _, section) = row.unwrap_or((at, 0, 0, 0, "no capability at this offset"));
        let mut card = Card::new(small()).expect("valid");
        assert_eq!(read(&mut card, at), reset, "{at:#x} after power-on: {section}");
        write(&mut card, at, u32::MAX);
        assert_eq!(read(&mut card, at), reset | writable, "{at:#x} after ones: {section}");
        write(&mut card, at, 0);
        assert_eq!(read(&mut card, at), reset & !writable, "{at:#x} after zeros: {section}");
        card.reset();
        // Link control 2 and error reporting are sticky (PCIe 7.4).
        let sticky = if (0x104..0x12C).contains(&at) || at == 0xA0 { writable } else { 0 };
        assert_eq!(read(&mut card, at), reset & !sticky, "{at:#x} after a reset: {section}");
        card.reprogram();
        assert_eq!(read(&mut card, at), reset, "{at:#x} after power was off: {section}");
    }
}

#[test]
fn config_space_every_bit_follows_access_rule() {
    check(DEFAULT);
}

#[test]
fn config_space_any_width_and_alignment_agree() {
    let mut whole = with(|_| ());
    for at in (0..0x200_u16).step_by(4) {
        write(&mut whole, at, 0x5A5A_A5A5_u32.rotate_left(u32::from(at)) & !(1 << 31));
    }
    let mut expected = vec![0; 0x1000];
    whole.config_read(0, &mut expected);
    for width in [1_usize, 2, 3, 4, 5, 8, 16] {
        let mut card = with(|_| ());
        let bytes: Vec<u8> = (0..0x200_u16)
            .step_by(4)
            .flat_map(|at| (0x5A5A_A5A5_u32.rotate_left(u32::from(at)) & !(1 << 31)).to_le_bytes())
            .collect();
        for (index, part) in bytes.chunks(width).enumerate() {
            card.config_write((index * width) as u16, part);
        }
        let mut seen = vec![0; 0x1000];
        for (index, part) in seen.chunks_mut(width).enumerate() {
            card.config_read((index * width) as u16, part);
        }
        assert_eq!(seen, expected, "{width} bytes at a time");
    }
    let mut past = [0; 6];
    whole.config_read(0xFFD, &mut past);
    assert_eq!(past, [0, 0, 0, 0xFF, 0xFF, 0xFF], "no answer beyond 4 KiB");
}

#[test]
fn config_space_bars_are_sized() {
    let sizes = |card: &mut Card| -> Vec<u32> {
        (0x10..0x28_u16)
            .step_by(4)
            .map(|at| {
                write(card, at, u32::MAX);
                read(card, at)
            })
            .collect()
    };
    let bar = |size, width, prefetchable| {
        let mut bar = BarDescription::new(size);
        (bar.width, bar.prefetchable) = (width, prefetchable);
        Some(bar)
    };
    // PCIe 7.5.1.2.1: bit 0 memory, bits 2:1 type (00: 32 bit, 10: 64 bit), bit 3 prefetchable.
    let cases: [(_, _, _, [u32; 6]); 5] = [
        (bar(128, 32, None), bar(0x1_0000, 32, None), None, [0xFFFF_FF80, 0xFFFF_0000, 0, 0, 0, 0]),
        (
            bar(1 << 20, 64, None),
            bar(0x1_0000, 64, None),
            bar(1 << 33, 64, None),
            [0xFFF0_0004, u32::MAX, 0xFFFF_0004, u32::MAX, 0x0000_000C, 0xFFFF_FFFE],
        ),
        (None, bar(0x1_0000, 64, Some(true)), None, [0xFFFF_000C, u32::MAX, 0, 0, 0, 0]),
        (
            bar(0x1000, 32, Some(true)),
            bar(0x1_0000, 32, None),
            bar(1 << 31, 32, Some(true)),
            [0xFFFF_F008, 0xFFFF_0000, 0x8000_0008, 0, 0, 0],
        ),
        (
            None,
            bar(0x1_0000, 32, None),
            bar(1 << 20, 64, Some(false)),
            [0xFFFF_0000, 0xFFF0_0004, u32::MAX, 0, 0, 0],
        ),
    ];
    for (user, dma, bypass, expected) in cases {
        let mut card = with(|description| {
            (description.bars.user, description.bars.dma, description.bars.bypass) = (user, dma, bypass);
        });
        assert_eq!(sizes(&mut card), expected);
    }
    // Other orders; the MSI-X table follows its BAR.
    for (order, roles, table) in [
        (
            [BarName::Dma, BarName::User, BarName::Bypass],
            [BarRole::Dma, BarRole::User, BarRole::Bypass],
            0x8000,
        ),
        (
            [BarName::Bypass, BarName::User, BarName::Dma],
            [BarRole::Bypass, BarRole::User, BarRole::Dma],
            0x8003,
        ),
    ] {
        let mut card = with(|description| description.bars.order = order);
        let seen: Vec<_> = card.bars().iter().map(|bar| bar.role).collect();
        assert_eq!(seen, roles);
        assert_eq!(read(&mut card, 0x64), table);
    }
}

#[test]
fn config_space_expansion_rom_is_sized_and_decoded() {
    let mut card = with(|description| {
        let text = "{ size: 0x10000 }";
        let file = format!("schema_version: 3\nbars:\n  rom: {text}\n");
        let parsed = CardDescription::parse(std::path::Path::new("rom.yaml"), &file).expect("a ROM");
        let rom: Option<RomDescription> = parsed.bars.rom;
        description.bars.rom = rom;
    });
    assert_eq!((card.config().rom_size(), read(&mut card, 0x30)), (0x1_0000, 0));
    write(&mut card, 0x30, 0xFFFF_F800);
    assert_eq!(read(&mut card, 0x30), 0xFFFF_0000, "sized with the decoder off (PCI 6.2.5.2)");
    write(&mut card, 0x30, 0xFE00_0001);
    assert!(!card.config().rom_decoding(), "memory decoding is off");
    card.set_command(true, false);
    assert!(card.config().rom_decoding());
    let mut bytes = [0; 7];
    card.rom_read(3, &mut bytes);
    assert_eq!(bytes, [0xFF; 7], "no image: no signature");
    let mut without = with(|_| ());
    write(&mut without, 0x30, u32::MAX);
    assert_eq!((read(&mut without, 0x30), without.config().rom_size()), (0, 0));
}

#[test]
fn config_space_missing_capabilities_leave_chain() {
    let walk = |card: &mut Card| {
        let mut seen = Vec::new();
        let mut at = (read(card, 0x34) & 0xFF) as u16;
        while at != 0 {
            let head = read(card, at);
            seen.push(((head & 0xFF) as u8, at));
            at = (head >> 8 & 0xFF) as u16;
            assert!(seen.len() < 10);
        }
        seen
    };
    let mut full = with(|_| ());
    assert_eq!(walk(&mut full), [(0x01, 0x40), (0x05, 0x48), (0x11, 0x60), (0x10, 0x70)]);
    let mut bare = with(|description| {
        (description.interrupts.msi_vectors, description.interrupts.msix_vectors) = (0, 0);
        (description.interrupts.pin, description.pci.aer, description.pci.serial) = (0, false, None);
    });
    assert_eq!(walk(&mut bare), [(0x01, 0x40), (0x10, 0x70)]);
    assert_eq!((read(&mut bare, 0x3C), read(&mut bare, 0x100)), (0, 0x0001_0019));
    let mut serial = with(|description| {
        description.pci.aer = false;
        description.pci.serial = Some(0x1122_3344_5566_7788);
    });
    assert_eq!(
        [0x100, 0x104, 0x108].map(|at| read(&mut serial, at)),
        [0x1C01_0003, 0x5566_7788, 0x1122_3344],
        "the first extended capability is at 0x100, whichever it is"
    );
}

#[test]
fn config_space_sizes_and_speeds_follow_description() {
    let links = [
        (1, 1, 0x0040_0011, 0x1011_0000, 0x0000_0002, 0),
        (2, 4, 0x0040_0042, 0x1042_0000, 0x0000_0006, 0x0000_0002),
        (4, 8, 0x0040_0084, 0x1084_0000, 0x0000_001E, 0x001E_0004),
    ];
    for (speed, width, capabilities, status, speeds, control) in links {
        let mut card = with(|description| {
            (description.link.speed, description.link.width) = (speed, width);
        });
        let seen = [0x7C, 0x80, 0x9C, 0xA0].map(|at| read(&mut card, at));
        assert_eq!(seen, [capabilities, status, speeds, control]);
    }
    for (bytes, code) in [(128, 0), (256, 1), (1024, 3), (4096, 5)] {
        let mut card = with(|description| description.pci.max_payload = bytes);
        assert_eq!(read(&mut card, 0x74) & 7, code);
    }
    for (messages, control) in [(1, 0x0080), (4, 0x0084), (16, 0x0088)] {
        let mut card = with(|description| {
            (description.interrupts.msi_vectors, description.interrupts.msi_masking) = (messages, true);
        });
        assert_eq!(half(&mut card, 0x4A), control | 1 << 8, "{messages} messages with masks");
        write(&mut card, 0x58, u32::MAX);
        assert_eq!(read(&mut card, 0x58), (1_u32 << messages) - 1, "as many mask bits as messages");
        write(&mut card, 0x5C, u32::MAX);
        assert_eq!(read(&mut card, 0x5C), 0, "pending bits are the function's");
    }
}

#[test]
fn config_space_unknown_power_state_is_not_entered() {
    let mut testbed = CardTestbed::new();
    for (wanted, state) in [(1, 0), (2, 0), (3, 3), (2, 3), (1, 3), (0, 0)] {
        testbed.card.config_write(0x44, &[wanted]);
        assert_eq!(half(&mut testbed.card, 0x44) & 3, state, "after asking for D{wanted}");
        let identifier = testbed.read(DMA, 0x3000);
        assert_eq!(identifier == u32::MAX, state == 3, "registers answer in D0 alone");
    }
    testbed.write(DMA, 0x90, 6);
    testbed.card.config_write(0x44, &[3]);
    testbed.card.config_write(0x44, &[0]);
    assert_eq!(testbed.read(DMA, 0x90), 6, "NoSoftRst+: nothing is lost on the way");
    assert!(testbed.card.config().bus_master());
}

#[test]
fn config_space_flr_present_as_described() {
    for flr in [false, true] {
        let mut description = small();
        description.pci.flr = flr;
        let mut testbed = CardTestbed::with(description);
        assert_eq!(read(&mut testbed.card, 0x74) >> 28 & 1, u32::from(flr));
        testbed.card.config_write(0x10, &0x1234_0000_u32.to_le_bytes());
        testbed.card.config_write(0x78, &0x5830_u16.to_le_bytes());
        testbed.card.config_write(0x80, &[0x40]);
        testbed.write(DMA, 0x90, 6);
        testbed.poke(0, b"kept");
        testbed.card.config_write(0x78, &0xD830_u16.to_le_bytes());
        if flr {
            assert_eq!(half(&mut testbed.card, 0x78), 0x2830, "payload size stays (PCIe 6.6.2)");
            assert_eq!(half(&mut testbed.card, 0x80), 0x40, "negotiated link parameters stay too");
            assert_eq!((read(&mut testbed.card, 0x10), half(&mut testbed.card, 0x04)), (0, 0));
        } else {
            assert_eq!(half(&mut testbed.card, 0x78), 0x5830, "the bit reads as 0 and does nothing");
        }
        testbed.card.set_command(true, true);
        assert_eq!(testbed.read(DMA, 0x90), if flr { 0 } else { 6 });
        assert_eq!(testbed.memory(0, 4), b"kept");
    }
}

#[test]
fn config_space_errors_are_logged_and_reported_as_enabled() {
    for error in UncorrectableError::ALL {
        for fatal in [false, true] {
            let bit = 1_u32 << *error as u8;
            let mut testbed = CardTestbed::new();
            write(&mut testbed.card, 0x10C, if fatal { bit } else { 0 });
            testbed.card.report_error(PciError::Uncorrectable(*error));
            testbed.run();
            assert!(testbed.host.errors.is_empty(), "{error:?}: reporting is not enabled");
            assert_eq!(read(&mut testbed.card, 0x104), bit, "{error:?} is logged all the same");
            assert_eq!(read(&mut testbed.card, 0x118), u32::from(*error as u8), "first error");
            let detected = if fatal { 0b0100 } else { 0b0010 }
                | if *error == UncorrectableError::UnsupportedRequest { 0b1000 } else { 0 };
            assert_eq!(half(&mut testbed.card, 0x7A), detected, "{error:?} in device status");
            write(&mut testbed.card, 0x104, 0);
            assert_eq!(read(&mut testbed.card, 0x104), bit, "zeros clear nothing");
            write(&mut testbed.card, 0x104, u32::MAX);
            assert_eq!((read(&mut testbed.card, 0x104), read(&mut testbed.card, 0x118)), (0, 0));
            // Enabled in device control.
            testbed.card.set_error_reporting(true);
            testbed.card.report_error(PciError::Uncorrectable(*error));
            testbed.run();
            let message = if fatal { ErrorMessage::Fatal } else { ErrorMessage::NonFatal };
            assert_eq!(testbed.host.errors, [message], "{error:?}");
            // Masked.
            write(&mut testbed.card, 0x108, bit);
            testbed.card.report_error(PciError::Uncorrectable(*error));
            testbed.run();
            assert_eq!(testbed.host.errors.len(), 1, "{error:?} masked");
        }
    }
    for error in CorrectableError::ALL {
        let mut testbed = CardTestbed::new();
        testbed.card.set_error_reporting(true);
        write(&mut testbed.card, 0x114, 0);
        testbed.card.report_error(PciError::Correctable(*error));
        testbed.run();
        assert_eq!(testbed.host.errors, [ErrorMessage::Correctable], "{error:?}");
        assert_eq!(read(&mut testbed.card, 0x110), 1 << *error as u8);
        assert_eq!(half(&mut testbed.card, 0x7A), 1);
        testbed.card.config_write(0x7A, &[1]);
        testbed.card.config_write(0x110, &[0xFF; 4]);
        assert_eq!((read(&mut testbed.card, 0x110), half(&mut testbed.card, 0x7A)), (0, 0));
    }
}

#[test]
fn config_space_system_errors_follow_command_register() {
    let mut testbed = CardTestbed::new();
    testbed.card.config_write(0x04, &0x0106_u16.to_le_bytes());
    testbed.card.report_error(PciError::Uncorrectable(UncorrectableError::PoisonedTlp));
    testbed.run();
    assert_eq!(testbed.host.errors, [ErrorMessage::NonFatal]);
    assert_eq!(half(&mut testbed.card, 0x06) & 1 << 14, 1 << 14, "signalled system error");
    testbed.card.reset();
    assert_eq!(read(&mut testbed.card, 0x104), 1 << 12, "the log survives a reset (sticky)");
    assert_eq!(half(&mut testbed.card, 0x06), 0x10);
}

#[test]
fn config_space_refused_requests_show_in_status() {
    let mut testbed = CardTestbed::new();
    testbed.start(0, 0x0BAD_0000, 0, 0x00F8_3E1F);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 1 << 19, "descriptor fetch refused");
    assert_eq!(half(&mut testbed.card, 0x06) & 0xF900, 1 << 13, "received master abort (PCIe 7.5.1.1.4)");
    testbed.card.config_write(0x06, &0xFFFF_u16.to_le_bytes());
    assert_eq!(half(&mut testbed.card, 0x06), 0x0010, "cleared by writing ones; the capability bit stays");
}

/// According to listings of 7-series cards; off by default.
#[test]
fn config_space_pme_support_as_described() {
    let mut card = with(|description| description.pci.pme = true);
    assert_eq!(half(&mut card, 0x42), 0x7803, "from D0, D1, D2 and D3hot");
    card.config_write(0x44, &[0xFF, 0xFF]);
    assert_eq!(half(&mut card, 0x44), 0x010B, "asked to, in D3hot; it never did");
    let mut card = with(|_| ());
    assert_eq!(half(&mut card, 0x42), 0x0003);
}

/// Functions whose link supports 8 GT/s have the capability (7.7.3), with an entry for each lane; slower ones do not.
#[test]
fn config_space_secondary_pcie_follows_speed_and_width() {
    for (speed, width, header, errors) in [
        (1, 4, 0, 0),
        (2, 8, 0, 0),
        (3, 1, 0x0001_0019, 1),
        (3, 8, 0x0001_0019, 0xFF),
        (5, 16, 0x0001_0019, 0xFFFF),
    ] {
        let mut card = with(|description| {
            (description.link.speed, description.link.width) = (speed, width);
        });
        assert_eq!(read(&mut card, 0x150) >> 20, if speed > 2 { 0x1C0 } else { 0 }, "{speed}");
        assert_eq!(read(&mut card, 0x1C0), header, "{speed}");
        let lanes = (0..16).filter(|lane| half(&mut card, 0x1CC + 2 * lane) == 0x7F00).count();
        assert_eq!(lanes, if speed > 2 { usize::from(width) } else { 0 }, "{speed} x{width}");
        write(&mut card, 0x1C8, u32::MAX);
        assert_eq!(read(&mut card, 0x1C8), 0, "{errors:#x}: nothing was set");
    }
    let mut alone = with(|description| (description.pci.aer, description.pci.serial) = (false, None));
    assert_eq!(read(&mut alone, 0x100), 0x0001_0019, "the first extended capability is at 0x100");
}
