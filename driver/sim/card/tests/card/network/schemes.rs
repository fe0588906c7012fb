//! Several schemes at the same time: registers, reported values, and refusals.

use super::*;
use fpga_firmware::generated::{Capabilities, Scheme};

const ALL: u32 = 0x33;
const SELECTIVE: u32 = 1 << 5;
const WINDOW: u32 = 1 << 1;
/// Numbers of schemes that no card runs.
const RESERVED: [u32; 2] = [2, 3];

#[test]
fn ni_scheme_change_needs_disabled_interface() {
    let mut testbed = node(1);
    assert!(Capabilities::from_bits(testbed.read(USER, 0x10)).contains(Capabilities::MIXED));
    assert_eq!(testbed.ni_read(ni::SCHEMES_ON), 0);
    let refused = |testbed: &mut CardTestbed, register, value| {
        let old = testbed.ni_read(register);
        testbed.ni_write(register, value);
        testbed.run();
        let told = testbed.events();
        let counted = told.iter().any(|event| {
            event.fault_reason() == Some(FaultReason::BadSetting)
                && event.count == ni::BLOCK_OFFSET + register
                || event.fault_reason() == Some(FaultReason::BadSetting) && event.count == register
        });
        assert!(counted, "{told:?}");
        assert_eq!(testbed.ni_read(register), old);
    };
    refused(&mut testbed, ni::SCHEMES_ON, SELECTIVE);
    testbed.ni_write(ni::CONTROL, ni::control::EVENT_ENABLE);
    for value in [1 << 6, u32::MAX, ALL | 1 << 2, 1 << 3] {
        refused(&mut testbed, ni::SCHEMES_ON, value);
    }
    for number in RESERVED {
        refused(&mut testbed, ni::SCHEME, number);
    }
    for value in [ALL, 0, 1, SELECTIVE, ALL] {
        testbed.ni_write(ni::SCHEMES_ON, value);
        assert_eq!(testbed.ni_read(ni::SCHEMES_ON), value);
    }
    // A reset of the interface keeps it, like all settings.
    testbed.ni_write(ni::CONTROL, ni::control::RESET);
    assert_eq!(testbed.ni_read(ni::SCHEMES_ON), ALL);
    assert!(testbed.events().is_empty(), "nothing of this was refused");

    let mut alone = small();
    alone.ni.commands = 0;
    let mut alone = prepare(CardTestbed::with(alone));
    assert!(!Capabilities::from_bits(alone.read(USER, 0x10)).contains(Capabilities::MIXED));
    alone.ni_write(ni::CONTROL, ni::control::EVENT_ENABLE);
    refused(&mut alone, ni::SCHEMES_ON, SELECTIVE);
    alone.ni_write(ni::SCHEMES_ON, 1);
    assert_eq!(alone.ni_read(ni::SCHEMES_ON), 1);

    // One entry cannot belong to both the registry and a context.
    let mut one = small();
    one.ni.registry_entries = 1;
    let mut one = prepare(CardTestbed::with(one));
    one.ni_write(ni::CONTROL, ni::control::EVENT_ENABLE);
    refused(&mut one, ni::SCHEMES_ON, SELECTIVE);
    one.ni_write(ni::SCHEME, Scheme::Selective.value());
    one.ni_write(ni::SCHEMES_ON, WINDOW);
    assert_eq!((one.ni_read(ni::SCHEME), one.ni_read(ni::SCHEMES_ON)), (5, WINDOW));
    refused(&mut one, ni::SCHEME, 0);
}

#[test]
fn ni_scheme_parameters_kept_while_disabled() {
    let mut testbed = node(1);
    testbed.ni_write(ni::CONTROL, ni::control::EVENT_ENABLE);
    let window = |scheme: u32| ni::SCHEME_WINDOW + 4 * scheme;
    let write = |testbed: &mut CardTestbed, register, value| {
        let old = testbed.ni_read(register);
        testbed.ni_write(register, value);
        testbed.run();
        let refused =
            testbed.events().iter().any(|event| event.fault_reason() == Some(FaultReason::BadSetting));
        let found = testbed.ni_read(register);
        assert_eq!(found, if refused { old } else { value }, "{register:#x}");
        !refused
    };
    // The same for every set of active schemes.
    for on in [0, ALL] {
        testbed.ni_write(ni::SCHEMES_ON, on);
        // Registry, receiver window, two reserved numbers, adaptive window, selective.
        for (scheme, most) in (0..).zip([0, 128, 0, 0, 128, 512]) {
            for (value, fits) in [(most, true), (most + 1, false), (u32::MAX, false), (0, true)] {
                assert_eq!(write(&mut testbed, window(scheme), value), fits, "{scheme}: {value}");
            }
        }
        for (register, value, fits) in [
            (ni::RECEIVER_WINDOW_OPTIONS, 0xFF01, true),
            (ni::RECEIVER_WINDOW_OPTIONS, 2, false),
            (ni::RECEIVER_WINDOW_OPTIONS, 0x1_0000, false),
            (ni::ADAPTIVE_OPTIONS, 256 << 8 | 1, true),
            (ni::ADAPTIVE_OPTIONS, 257 << 8, false),
            (ni::ADAPTIVE_OPTIONS, 2, false),
            (ni::ADAPTIVE_WALK_NS, u32::MAX, true),
            (ni::CONGESTION, 0, true),
            (ni::CONGESTION, ni::congestion::WINDOW, true),
            (ni::CONGESTION, 2, false),
            (ni::PATHS, 0, false),
            (ni::PATHS, 257, false),
            (ni::PATHS, 256, true),
        ] {
            assert_eq!(write(&mut testbed, register, value), fits, "{register:#x}: {value:#x}");
        }
    }
    testbed.ni_write(ni::CONTROL, ni::control::ENABLE | ni::control::EVENT_ENABLE);
    assert!(!write(&mut testbed, window(Scheme::Selective.value()), 7));
    assert!(!write(&mut testbed, ni::CONGESTION, 0));
    // A reset of the interface keeps them, a hardware reset does not.
    testbed.ni_write(ni::CONTROL, ni::control::RESET);
    assert_eq!(testbed.ni_read(ni::ADAPTIVE_WALK_NS), u32::MAX);
}
