//! Several schemes at the same time: registers, reported values, and refusals.

use super::*;
use fpga_firmware::event::Outcome;
use fpga_firmware::generated::{Capabilities, Scheme, sending};
use fpga_firmware::window::CommandFields;

const ALL: u32 = 0x33;
const SELECTIVE: u32 = 1 << 5;
const WINDOW: u32 = 1 << 1;
/// Numbers of schemes that no card runs.
const RESERVED: [u32; 2] = [2, 3];

/// Node with `scheme` as default and other schemes, with memory opened to all nodes.
fn node_with_scheme(id: u32, scheme: u32, others: u32) -> CardTestbed {
    let mut testbed = node(id);
    testbed.ni_write(ni::CONTROL, 0);
    testbed.ni_write(ni::SCHEME, scheme);
    testbed.ni_write(ni::SCHEMES_ON, others);
    assert_eq!((testbed.ni_read(ni::SCHEME), testbed.ni_read(ni::SCHEMES_ON)), (scheme, others));
    testbed.ni_write(ni::CONTROL, ni::control::ENABLE | ni::control::EVENT_ENABLE);
    open(&mut testbed);
    testbed
}

/// Command with `scheme`, of 1000 bytes.
fn command(sequence: u32, to: u32, scheme: Option<Scheme>) -> WindowHeader {
    WindowHeader {
        kind: WindowKind::Command,
        packet_count: 0,
        base: CardAddr::new(0x1000),
        command: CommandFields { number: 70 + sequence, priority: 0, timeout_ns: 0, scheme },
        ..header(sequence, to, 1000)
    }
}

fn ends(events: &[Event]) -> Vec<(Outcome, u32, u16)> {
    let sent = events.iter().filter(|event| event.outcome() != Some(Outcome::Progress));
    sent.filter_map(|event| Some((event.outcome()?, event.op.get(), event.index))).collect()
}

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

/// Both ways of sending at the same time, into one table of memory windows; counters are sums.
#[test]
fn ni_segments_and_messages_share_windows() {
    let (mut a, mut b) = (node_with_scheme(1, 0, ALL), node_with_scheme(2, 0, ALL));
    let data: Vec<u8> = (0..1000_u32).map(|n| n as u8).collect();
    a.poke(0x1000, &data);
    let mut sequence = 0;
    for scheme in Scheme::ALL {
        sequence += 1;
        if *scheme == Scheme::Registry {
            fill(&mut a, 0, &header(sequence, 2, 1000), &data, sequence);
        } else {
            fill(&mut a, u64::from(scheme.value()), &command(sequence, 2, Some(*scheme)), &[], sequence);
        }
    }
    exchange(&mut a, &mut b, |_| 0);
    assert_eq!(b.memory(TARGET + 3, 1000), data);
    let told = a.events();
    let mut done = ends(&told);
    done.sort_by_key(|(_, number, _)| *number);
    assert_eq!(done, (72..=74).map(|number| (Outcome::Done, number, 0)).collect::<Vec<_>>());
    assert_eq!(told.iter().filter(|event| event.kind == EventKind::Ack).count(), 2);
    let told = b.events();
    assert_eq!(told.iter().filter(|event| event.kind == EventKind::Notice).count(), 4);
    assert_eq!(b.counter(counters::REGISTRATIONS), 4);
    assert_eq!(b.counter(counters::COMPLETIONS), 4);
    // The registry's entries come first, contexts follow.
    let half = b.ni_read(ni::REGISTRY_ENTRIES).div_ceil(2);
    for event in told.iter().filter(|event| event.kind == EventKind::Registered) {
        let of_message = event.segment != 0;
        assert_eq!(u32::from(event.index) >= half, of_message, "{event:?}");
    }
}

#[test]
fn ni_registry_entries_name_scheme() {
    let (mut a, mut b) = (node_with_scheme(1, 0, ALL), node_with_scheme(2, 0, ALL));
    let peek = |testbed: &mut CardTestbed, block: u32, index: u32, flags: u32| {
        testbed.write(USER, u64::from(block), index);
        testbed.read(USER, u64::from(block + flags))
    };
    fill(&mut a, 0, &header(1, 2, 1000), &[1; 1000], 1);
    fill(&mut a, 1, &command(2, 2, Some(Scheme::Selective)), &[], 2);
    a.run();
    // Only the first packet of each arrives.
    let mut frames: Vec<_> = std::iter::from_fn(|| a.card.take_frame()).collect();
    let is_start = |frame: &[u8]| match Packet::parse(frame) {
        Ok(Packet::Data(data)) => data.header().start.is_some(),
        Ok(Packet::Message(message)) => {
            matches!(message.read(), Ok((fpga_firmware::wire::Message::Data(header), _)) if header.index == 0)
        }
        _ => false,
    };
    frames.retain(|frame| is_start(frame));
    assert_eq!(frames.len(), 2);
    for frame in frames {
        b.card.receive_frame(Nanos::new(b.now), &frame);
    }
    let half = b.ni_read(ni::REGISTRY_ENTRIES).div_ceil(2);
    let block = registry::BLOCK_OFFSET;
    assert_eq!(b.read(USER, u64::from(block + registry::OCCUPANCY)), 2);
    assert_eq!(b.read(USER, u64::from(block + registry::HIGH_WATER)), 2);
    let mut found = Vec::new();
    for index in 0..2 * half {
        let flags = peek(&mut b, block, index, registry::FLAGS);
        if flags & registry::flags::VALID != 0 {
            found.push((index >= half, (flags & registry::flags::SCHEME) >> registry::flags::SCHEME_SHIFT));
        }
    }
    assert_eq!(found, [(false, 0), (true, 5)]);
    let flags = peek(&mut a, sending::BLOCK_OFFSET, 0, sending::FLAGS);
    assert_eq!((flags & sending::flags::SCHEME) >> sending::flags::SCHEME_SHIFT, 5);
}

#[test]
fn ni_inactive_scheme_is_refused() {
    let (mut a, mut b) = (node_with_scheme(1, 0, SELECTIVE | WINDOW), node_with_scheme(2, 0, WINDOW));
    a.ni_write(ni::HELLO, 2);
    exchange(&mut a, &mut b, |_| 0);
    let [hello] = a.events().try_into().expect("one event");
    assert_eq!((hello.kind, hello.segment), (EventKind::Hello, 1 | WINDOW));
    // Scheme not active at the receiver: refused there. Not active here, or none given where the default is the registry: not accepted.
    let schemes = [
        (Some(Scheme::Selective), (Outcome::Refused, NackReason::Scheme.value().into())),
        (Some(Scheme::AdaptiveWindow), (Outcome::NotTaken, 0)),
        (None, (Outcome::NotTaken, 0)),
        (Some(Scheme::ReceiverWindow), (Outcome::Done, 0)),
    ];
    for (n, (scheme, (outcome, reason))) in (1..).zip(schemes) {
        fill(&mut a, 0, &command(n, 2, scheme), &[], n);
        exchange(&mut a, &mut b, |_| 0);
        assert_eq!(ends(&a.events()), [(outcome, 70 + n, reason)], "{scheme:?}");
    }
    // Where only the registry is active, a command is not a valid window, and a message packet is refused with the reason "scheme".
    let (mut c, mut d) = (node_with_scheme(3, 0, 0), node_with_scheme(4, 5, 0));
    fill(&mut c, 0, &command(1, 4, Some(Scheme::Selective)), &[], 1);
    c.run();
    assert_eq!(c.events()[0].fault_reason(), Some(FaultReason::BadHeader));
    // The default of a node with message schemes only need not be given.
    fill(&mut d, 0, &command(1, 3, None), &[], 1);
    exchange(&mut d, &mut c, |_| 0);
    assert_eq!(ends(&d.events()), [(Outcome::Refused, 71, NackReason::Scheme.value().into())]);
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
