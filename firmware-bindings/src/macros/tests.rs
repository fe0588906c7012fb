//! Tests of the macros, with declarations that are in no map.

#![expect(dead_code, unreachable_pub, reason = "the macros declare public items, of which tests use some")]

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::catalog::{AccessKind, UnknownValue};
use crate::generated::BlockType;

contract_enums! {
    /// Phases, numbered with gaps and not in ascending order.
    pub enum Phase: u16 {
        /// First.
        Idle = 4,
        /// Second.
        Running = 0x0200,
        /// Third.
        Stopped = 1,
    }

    /// An enum as wide as a register.
    pub enum Wide: u32 {
        /// Its only value.
        Last = 0xffff_ffff,
    }
}

contract_bits! {
    /// Bits with a gap, not in ascending order.
    pub struct Modes: u8 {
        /// Highest bit.
        [7] STRICT;
        /// Lowest bit.
        [0] FAST;
    }
}

contract_blocks! {
    /// Control of a pump. "Quotes" and \ stay as they are.
    pub mod pump: BlockType::Ni, version 3, offset 0x2000, size 0x0100 {
        /// State.
        ro STATE: 0x0000 "state" = 4 values Phase;
        /// Commands.
        wo COMMAND: 0x0004 "command" fields command {
            /// All but the flag.
            [31:1] CODE CODE_SHIFT "code";
            /// Repeat it.
            [0:0] REPEAT "repeat";
        };
        /// Volume.
        rw VOLUME_LOW VOLUME_HIGH:
            0x0008 "volume_low" = 0xffff_ffff,
            0x000c "volume_high" = 1;
        /// Pressures.
        rw PRESSURE[PRESSURE_COUNT = 3]:
            0x0010 "pressure_0",
            0x0014 "pressure_1",
            0x0018 "pressure_2";
        /// The whole register is one field.
        rw LIMIT: 0x0020 "limit" = 0 fields limit {
            /// All bits.
            [31:0] VALUE VALUE_SHIFT "value";
        };
    }

    /// Without registers, at a lower offset.
    pub mod empty: BlockType::Cdma, version 1, offset 0x1000, size 0x0010 {
    }
}

contract_layouts! {
    /// Two integers and a reserved rest.
    pub mod record [16] {
        /// Kind.
        u8 KIND: 0;
        /// Reserved.
        bytes[7] RESERVED: 1;
        /// Address.
        u64 ADDRESS: 8;
    }

    /// As a record, and a count.
    pub mod counted: record [20] {
        /// Count.
        u32 COUNT: 16;
    }

    /// As a counted record, and a flag.
    pub mod flagged: counted [21] {
        /// Flag.
        u8 FLAG: 20;
    }
}

#[test]
fn enum_lists_keep_statement_order() {
    assert_eq!(Phase::ALL, [Phase::Idle, Phase::Running, Phase::Stopped]);
    assert_eq!(Phase::VALUES, [(4, "Idle"), (0x200, "Running"), (1, "Stopped")]);
}

#[test]
fn enum_comparison_follows_numbers() {
    assert!(Phase::Stopped < Phase::Idle && Phase::Idle < Phase::Running);
}

#[test]
fn enum_layout_is_stated_representation() {
    assert_eq!((size_of::<Phase>(), size_of::<Wide>()), (2, 4));
}

#[test]
fn enum_value_and_name_are_constants() {
    const RUNNING: (u16, &str) = (Phase::Running.value(), Phase::Running.name());
    assert_eq!(RUNNING, (0x200, "Running"));
    assert_eq!(Wide::Last.value(), u32::MAX);
}

#[test]
fn enum_known_number_converts_back() {
    for &phase in Phase::ALL {
        assert_eq!(Phase::try_from(phase.value()), Ok(phase));
    }
    assert_eq!(Wide::try_from(u32::MAX), Ok(Wide::Last));
}

#[test]
fn enum_unknown_number_is_refused_with_name_and_number() {
    assert_eq!(Phase::try_from(0x201), Err(UnknownValue { of: "Phase", value: 0x201 }));
    assert_eq!(Wide::try_from(0), Err(UnknownValue { of: "Wide", value: 0 }));
}

#[test]
fn enum_display_pads_name() {
    assert_eq!(
        format!("[{:>8}] [{:<8}] {}", Phase::Idle, Phase::Idle, Phase::Idle),
        "[    Idle] [Idle    ] Idle"
    );
}

#[test]
fn bits_names_keep_statement_order() {
    assert_eq!(Modes::NAMES, [(Modes::STRICT, "STRICT"), (Modes::FAST, "FAST")]);
    assert_eq!((Modes::STRICT.bits(), Modes::FAST.bits(), Modes::ALL.bits()), (0x80, 0x01, 0x81));
}

#[test]
fn bits_operations_are_constants() {
    const BOTH: Modes = Modes::from_bits(0x01).with(Modes::STRICT);
    const FACTS: (bool, bool, bool) = (BOTH.contains(Modes::FAST), BOTH.is_empty(), Modes::NONE.is_empty());
    assert_eq!((BOTH, FACTS), (Modes::ALL, (true, false, true)));
    assert_eq!(Modes::FAST | Modes::STRICT, BOTH);
}

#[test]
fn bits_contains_requires_every_bit() {
    assert!(!Modes::FAST.contains(Modes::ALL));
    assert!(Modes::FAST.contains(Modes::NONE));
}

#[test]
fn bits_default_is_empty() {
    assert_eq!(Modes::default(), Modes::NONE);
}

#[test]
fn bits_unknown_bits_are_kept() {
    let modes = Modes::from_bits(0x47);
    assert_eq!((modes.bits(), modes.unknown()), (0x47, Modes::from_bits(0x46)));
}

#[test]
fn bits_display_empty_set_is_dash() {
    assert_eq!(Modes::NONE.to_string(), "-");
}

#[test]
fn bits_display_names_then_unknown_bits_as_number() {
    assert_eq!(Modes::ALL.to_string(), "STRICT|FAST");
    assert_eq!(Modes::from_bits(0x47).to_string(), "FAST|0x46");
    assert_eq!(Modes::from_bits(0x06).to_string(), "0x6");
}

#[test]
fn block_constants_are_those_of_statement() {
    const FACTS: (BlockType, u16, u32, u32) =
        (pump::BLOCK_TYPE, pump::BLOCK_VERSION, pump::BLOCK_OFFSET, pump::BLOCK_SIZE);
    assert_eq!(FACTS, (BlockType::Ni, 3, 0x2000, 0x100));
}

#[test]
fn block_list_keeps_statement_order() {
    let listed: Vec<_> =
        BLOCKS.iter().map(|block| (block.name, block.block_type, block.default_offset)).collect();
    assert_eq!(listed, [("pump", BlockType::Ni, 0x2000), ("empty", BlockType::Cdma, 0x1000)]);
    assert_eq!((BLOCKS[0].version, BLOCKS[0].size), (3, 0x100));
    assert!(BLOCKS[1].registers.is_empty());
}

#[test]
fn register_constants_are_offsets_of_first_words() {
    const OFFSETS: [u32; 6] =
        [pump::STATE, pump::COMMAND, pump::VOLUME_LOW, pump::VOLUME_HIGH, pump::PRESSURE, pump::LIMIT];
    assert_eq!(OFFSETS, [0, 4, 8, 12, 16, 32]);
    assert_eq!(pump::PRESSURE_COUNT, 3);
}

#[test]
fn register_words_are_listed_with_access_and_reset() {
    let listed: Vec<_> = BLOCKS[0]
        .registers
        .iter()
        .map(|register| (register.offset(), register.name(), register.access(), register.reset()))
        .collect();
    let expected = [
        (0, "state", AccessKind::ReadOnly, Some(4)),
        (4, "command", AccessKind::WriteOnly, None),
        (8, "volume_low", AccessKind::ReadWrite, Some(u32::MAX)),
        (12, "volume_high", AccessKind::ReadWrite, Some(1)),
        (16, "pressure_0", AccessKind::ReadWrite, None),
        (20, "pressure_1", AccessKind::ReadWrite, None),
        (24, "pressure_2", AccessKind::ReadWrite, None),
        (32, "limit", AccessKind::ReadWrite, Some(0)),
    ];
    assert_eq!(listed, expected);
}

#[test]
fn register_value_name_comes_from_stated_enum() {
    let state = BLOCKS[0].register_at(pump::STATE).unwrap();
    assert_eq!((state.value_name(0x200), state.value_name(2)), (Some("Running"), None));
    assert!(BLOCKS[0].register_at(pump::COMMAND).unwrap().values().is_empty());
}

#[test]
fn doc_texts_have_no_leading_space() {
    assert_eq!(BLOCKS[0].doc, "Control of a pump. \"Quotes\" and \\ stay as they are.");
    let volumes = [2, 3].map(|index| BLOCKS[0].registers[index].doc().to_string());
    assert_eq!(volumes, ["Volume.", "Volume."]);
    assert_eq!(BLOCKS[0].registers[1].fields()[1].doc().to_string(), "Repeat it.");
}

#[test]
fn field_masks_cover_stated_bits() {
    assert_eq!((pump::command::CODE, pump::command::CODE_SHIFT), (0xffff_fffe, 1));
    assert_eq!(pump::command::REPEAT, 1);
    assert_eq!((pump::limit::VALUE, pump::limit::VALUE_SHIFT), (u32::MAX, 0));
}

#[test]
fn field_decode_agrees_with_masks() {
    let command = BLOCKS[0].register_at(pump::COMMAND).unwrap();
    let raw = 0x8000_0005;
    let decoded: Vec<_> =
        command.decode(raw).fields().map(|decoded| (decoded.name(), decoded.value())).collect();
    let expected = (raw & pump::command::CODE) >> pump::command::CODE_SHIFT;
    assert_eq!(decoded, [("code", expected), ("repeat", raw & pump::command::REPEAT)]);
}

#[test]
fn layout_constants_are_size_and_offsets() {
    const FACTS: [usize; 4] = [record::LAYOUT_SIZE, record::KIND, record::RESERVED, record::ADDRESS];
    assert_eq!(FACTS, [16, 0, 1, 8]);
}

#[test]
fn layout_child_has_members_of_all_ancestors_and_own_size() {
    const FACTS: [usize; 4] = [flagged::LAYOUT_SIZE, flagged::FLAG, flagged::COUNT, flagged::ADDRESS];
    assert_eq!(FACTS, [21, 20, 16, 8]);
    assert_eq!((counted::LAYOUT_SIZE, counted::KIND), (20, 0));
}
