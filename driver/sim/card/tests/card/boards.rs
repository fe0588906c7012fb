//! Built-in card descriptions: each can be built and matches the board in its name.

use crate::foreign_drivers::GuestMachine;
use crate::support::*;
use crate::xdma::{DATA, DESCRIPTORS};
use fpga_card::description::WritebackRule;
use fpga_card::{BarRole, CardDescription, DescriptionError};

/// Expected properties of a board, typed independently of the description.
struct Board {
    name: &'static str,
    device: u16,
    /// PCIe generation and number of lanes.
    link: (u8, u8),
    width: u16,
    channels: (u8, u8),
    vectors: u16,
    memory: (u64, u64),
    /// Index, role, size in bytes, address bits.
    bars: &'static [(u8, BarRole, u64, u8)],
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DMA_SIZE: u64 = 64 * KIB;

/// Builds a row of the table. `numbers`: device id, data width in bits, interrupt vectors.
const fn board(
    name: &'static str,
    [device, width, vectors]: [u16; 3],
    link: (u8, u8),
    channels: (u8, u8),
    memory: (u64, u64),
    bars: &'static [(u8, BarRole, u64, u8)],
) -> Board {
    Board { name, device, link, width, channels, vectors, memory, bars }
}

#[rustfmt::skip]
const BOARDS: [Board; 10] = {
    use BarRole::{Bypass, Dma, User};
    [
        board("default", [0x903F, 512, 32], (3, 16), (4, 4), (0, 8 * GIB),
            &[(0, User, 64 * KIB, 32), (1, Dma, DMA_SIZE, 32), (2, Bypass, 64 * MIB, 64)]),
        board("us-plus-x16", [0x903F, 512, 32], (3, 16), (4, 4), (0, 64 * GIB),
            &[(0, User, MIB, 64), (2, Dma, DMA_SIZE, 64), (4, Bypass, 256 * MIB, 64)]),
        board("us-plus-x16-no-bypass", [0x903F, 512, 24], (3, 16), (4, 4), (0, 8 * GIB),
            &[(0, User, MIB, 32), (1, Dma, DMA_SIZE, 32)]),
        board("us-x8", [0x8038, 256, 20], (3, 8), (2, 2), (0, 2 * GIB),
            &[(0, User, MIB, 32), (1, Dma, DMA_SIZE, 32)]),
        board("7-series-gen3-x8", [0x7038, 256, 20], (3, 8), (2, 2), (0, 8 * GIB),
            &[(0, Dma, DMA_SIZE, 64), (2, Bypass, 8 * GIB, 64)]),
        board("7-series-gen2-x8", [0x7028, 128, 18], (2, 8), (1, 1), (2 * GIB, GIB),
            &[(0, User, 64 * KIB, 32), (1, Dma, DMA_SIZE, 32), (2, Bypass, 16 * MIB, 32)]),
        board("artix-x4", [0x7024, 64, 0], (2, 4), (1, 1), (0, GIB), &[(0, Dma, DMA_SIZE, 32)]),
        board("artix-x1", [0x7021, 64, 0], (2, 1), (1, 1), (0, 128 * KIB), &[(0, Dma, DMA_SIZE, 32)]),
        board("us-plus-x8-stream", [0x9038, 256, 20], (3, 8), (2, 2), STREAM, &[(0, Dma, DMA_SIZE, 64)]),
        board("us-plus-x8-source", [0x9038, 256, 20], (3, 8), (1, 2), STREAM, &[(0, Dma, DMA_SIZE, 64)]),
    ]
};

/// Channels of an AXI4-Stream build do not access memory.
const STREAM: (u64, u64) = (0, 0);

fn testbed(board: &Board) -> CardTestbed {
    CardTestbed::with(CardDescription::builtin(board.name).expect(board.name))
}

fn dma_bar(board: &Board) -> u8 {
    board.bars.iter().find(|bar| bar.1 == BarRole::Dma).expect("every board has one").0
}

fn config(testbed: &mut CardTestbed, at: u16) -> u32 {
    let mut bytes = [0; 4];
    testbed.card.config_read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

#[test]
fn boards_every_name_has_board_and_row() {
    let names: Vec<_> = CardDescription::builtins().map(|builtin| builtin.name).collect();
    let mut expected: Vec<_> = BOARDS.iter().map(|board| board.name).collect();
    expected.push("quirky");
    assert_eq!(names, expected);
    for builtin in CardDescription::builtins() {
        assert!(!builtin.about.is_empty() && !builtin.about.contains('\n') && builtin.about.len() <= 100);
    }
    let mut described: Vec<_> =
        names.iter().map(|name| CardDescription::builtin(name).expect(name).name).collect();
    described.sort();
    described.dedup();
    assert_eq!(described.len(), names.len(), "no two have one name in reports");
    let error = CardDescription::builtin("us-plus-x32").unwrap_err();
    assert!(matches!(&error, DescriptionError::UnknownName { name, .. } if name == "us-plus-x32"));
    assert!(error.to_string().contains("us-plus-x16"), "{error}");
}

#[test]
fn boards_config_space_matches_description() {
    for board in &BOARDS {
        let mut testbed = testbed(board);
        let name = board.name;
        assert_eq!(config(&mut testbed, 0), u32::from(board.device) << 16 | 0x10EE, "{name}");
        // Software reads the user BAR only on cards whose subsystem id announces this project's blocks.
        let ours = board.bars.iter().any(|bar| bar.1 == BarRole::User);
        assert_eq!(config(&mut testbed, 0x2C) >> 16, if ours { 0x4E49 } else { 0x0007 }, "{name}");
        let (speed, lanes) = (u32::from(board.link.0), u32::from(board.link.1));
        for at in [0x7C, 0x80] {
            let word = if at == 0x7C { config(&mut testbed, at) } else { config(&mut testbed, at) >> 16 };
            assert_eq!((word & 0xF, word >> 4 & 0x3F), (speed, lanes), "{name}: link at {at:#x}");
        }
        let chain = GuestMachine::new(CardDescription::builtin(name).expect(name)).capabilities();
        if board.vectors == 0 {
            // One message, 64-bit address, no masks (according to listings of a 7024 and a 7021).
            assert_eq!(chain, [0x01, 0x05, 0x10], "{name}");
            assert_eq!(config(&mut testbed, 0x48) >> 16, 0x0080, "{name}");
        } else {
            assert_eq!(chain, [0x01, 0x05, 0x11, 0x10], "{name}");
            assert_eq!(
                (config(&mut testbed, 0x60) >> 16 & 0x7FF) + 1,
                board.vectors.into(),
                "{name}: vectors"
            );
        }
        let seven = board.device >> 12 == 7;
        assert_eq!(config(&mut testbed, 0x40) >> 16, if seven { 0x7803 } else { 0x0003 }, "{name}: PME");
        for (at, offset) in [(0x64, 0x8000), (0x68, 0x8FE0)].into_iter().filter(|_| board.vectors > 0) {
            assert_eq!(
                config(&mut testbed, at),
                offset | u32::from(dma_bar(board)),
                "{name}: table at {at:#x}"
            );
        }
        // BARs as firmware sizes them.
        for at in (0x10..0x28).step_by(4) {
            testbed.card.config_write(at, &[0xFF; 4]);
        }
        let mut found = Vec::new();
        let mut index = 0;
        while index < 6 {
            let low = config(&mut testbed, 0x10 + 4 * index);
            let wide = low & 0b110 == 0b100;
            let high = if wide { config(&mut testbed, 0x14 + 4 * index) } else { u32::MAX };
            let mask = u64::from(high) << 32 | u64::from(low & !0xF);
            if low != 0 {
                found.push((index as u8, (!mask).wrapping_add(1), if wide { 64 } else { 32 }));
            }
            index += if wide { 2 } else { 1 };
        }
        let expected: Vec<_> = board.bars.iter().map(|bar| (bar.0, bar.2, bar.3)).collect();
        assert_eq!(found, expected, "{name}: BARs");
        let roles: Vec<_> = testbed.card.bars().iter().map(|bar| (bar.index, bar.role)).collect();
        assert_eq!(roles, board.bars.iter().map(|bar| (bar.0, bar.1)).collect::<Vec<_>>(), "{name}");
    }
}

/// Vendor's numbering: family, then generation and lanes in the last two digits.
#[test]
fn boards_device_ids_follow_vendor_pattern() {
    for board in &BOARDS {
        let lanes = match board.device & 0xF {
            0xF => 16,
            digit => digit,
        };
        assert_eq!(
            (board.device >> 4 & 0xF, lanes),
            (board.link.0.into(), board.link.1.into()),
            "{}",
            board.name
        );
        let family = match board.device >> 12 {
            9 => "UltraScale+",
            8 => "UltraScale ",
            _ => "7",
        };
        let about =
            CardDescription::builtins().find(|builtin| builtin.name == board.name).expect("listed").about;
        assert!(about.contains(family), "{}: {about}", board.name);
        // The link rate equals the rate of the data path at a clock that the core supports.
        let gigabits = f64::from(board.link.1) * if board.link.0 == 3 { 8.0 } else { 4.0 };
        let clock = gigabits * 1000.0 / f64::from(board.width);
        assert!([62.5, 125.0, 250.0].contains(&clock), "{}: {clock} MHz", board.name);
    }
}

#[test]
fn boards_registers_match_description() {
    for board in &BOARDS {
        let mut testbed = testbed(board);
        let (name, dma) = (board.name, dma_bar(board));
        let code = [64, 128, 256, 512].iter().position(|width| *width == board.width).expect("a width");
        assert_eq!(testbed.read(dma, 0x3018), code as u32, "{name}: width");
        for (base, count) in [(0x0000, board.channels.0), (0x1000, board.channels.1)] {
            for channel in 0..4 {
                let word = testbed.read(dma, base + 0x100 * channel);
                let stream = if board.memory == STREAM { 1 << 15 } else { 0 };
                let expected = 0x1FC0_0006 | (base as u32) << 4 | stream | (channel as u32) << 8;
                let present = channel < u64::from(count);
                assert_eq!(
                    word,
                    if present { expected } else { 0 },
                    "{name}: channel {channel} at {base:#x}"
                );
            }
        }
        for (index, role, ..) in board.bars {
            match role {
                BarRole::User => assert_eq!(testbed.read(*index, 0x1004) & 2, 2, "{name}: an idle CDMA"),
                BarRole::Bypass => {
                    let at = testbed.card.description().bars.bypass.as_ref().expect("described").card_address;
                    testbed.poke(at, &[1, 2, 3, 4]);
                    assert_eq!(testbed.read(*index, 0), 0x0403_0201, "{name}");
                }
                _ => {}
            }
        }
    }
}

/// Descriptors of every channel reach both ends of card memory; one byte further is a decode error.
#[test]
fn boards_channels_reach_whole_memory_only() {
    for board in BOARDS.iter().filter(|board| board.memory != STREAM) {
        let mut testbed = testbed(board);
        let (name, dma) = (board.name, dma_bar(board));
        let (first, size) = board.memory;
        let data = pattern(256, 5);
        testbed.host.put(DATA, &data);
        let cases = [
            (first, true),
            (first + size - 256, true),
            (first + size - 255, false),
            (first.wrapping_sub(1), false),
        ];
        for (card, reached) in cases {
            for channel in 0..u64::from(board.channels.0) {
                for (base, source, destination) in [(0, DATA, card), (0x1000, card, DATA + 0x1000)] {
                    let base = base + 0x100 * channel;
                    testbed.host.descriptor(DESCRIPTORS, MAGIC | STOP, 256, source, destination, 0);
                    testbed.write(dma, base + 0x0C, 1);
                    for (at, value) in
                        [(0x4080, DESCRIPTORS as u32), (0x4084, 0), (0x4088, 0), (0x04, 0x00FF_FE7F)]
                    {
                        testbed.write(dma, base + at, value);
                    }
                    testbed.run();
                    let decode = if base < 0x1000 { 1 << 14 } else { 1 << 9 };
                    let expected = if reached { 0b10 } else { decode };
                    assert_eq!(testbed.read(dma, base + 0x40), expected, "{name}: {base:#x} at {card:#x}");
                }
            }
            if reached {
                assert_eq!(testbed.host.get(DATA + 0x1000, 256), data, "{name}: {card:#x}");
            }
        }
    }
}

#[test]
fn boards_quirky_has_every_quirk() {
    let description = CardDescription::builtin("quirky").expect("built in");
    assert!(description.xdma.long_descriptor_quirk);
    assert_eq!(description.xdma.completed_writeback, WritebackRule::FlagAndEnable);
    let quirks = description.quirks.clone();
    // Written out in full, so that a new quirk cannot be forgotten here.
    assert_eq!(
        format!("{quirks:?}"),
        "QuirksDescription { every_second_read_fails: true, busy_after_error: true, early_msix_writes_lost: true, \
         silent_user_bar: true, silent_memory: Some(RangeDescription { base: 8589869056, size: 65536 }), \
         intx_disable_ignored: true }"
    );
    let silent = quirks.silent_memory.expect("a range");
    assert_eq!(silent.base + silent.size, description.memory.base + description.memory.size);
    let mut testbed = CardTestbed::with(description);
    assert_eq!([testbed.read(DMA, 0x2000), testbed.read(DMA, 0x2000)], [0x1FC2_0006, u32::MAX]);
    assert_eq!(testbed.read(USER, 0), u32::MAX);
}

#[test]
fn boards_readme_table_is_current() {
    let table = include_str!("../../cards/README.md");
    for builtin in CardDescription::builtins() {
        let row = table.lines().find(|line| line.starts_with(&format!("| `{}` |", builtin.name)));
        let row = row.unwrap_or_else(|| panic!("no row for {}", builtin.name));
        let description = CardDescription::builtin(builtin.name).expect("built in");
        for part in [
            format!("{:04X}", description.pci.device),
            format!("Gen{} x{}", description.link.speed, description.link.width),
            format!("{} bit", description.xdma.data_width),
            format!("{} + {}", description.xdma.h2c_channels, description.xdma.c2h_channels),
            format!("| {} |", description.interrupts.msix_vectors),
        ] {
            assert!(row.contains(&part), "{}: {part} is not in {row}", builtin.name);
        }
    }
}
