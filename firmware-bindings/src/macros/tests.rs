//! What the macros derive, shown on statements that are in no map.

#![expect(dead_code, unreachable_pub, reason = "the macros declare public items, of which tests use some")]

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::catalog::UnknownValue;

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

#[test]
fn enum_lists_keep_statement_order() {
    assert_eq!(Phase::ALL, [Phase::Idle, Phase::Running, Phase::Stopped]);
    let listed: Vec<_> = Phase::VALUES.iter().map(|known| (known.value, known.name)).collect();
    assert_eq!(listed, [(4, "Idle"), (0x200, "Running"), (1, "Stopped")]);
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
