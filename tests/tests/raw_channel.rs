//! Access for callers that drive a channel themselves: claims, memory ranges, and when interrupts can be disabled.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_card::CardDescription;
use fpga_driver::{Card, CardAddr, CardRange, ChannelName, Direction, Error, OpenOptions, ResourceError};
use fpga_registers::xdma::{ChannelBlock, Target, channel_base};
use fpga_sim::SimNetwork;
use fpga_tests::cards::{described, network, open, open_with};

const H2C0: ChannelName = ChannelName { direction: Direction::H2c, number: 0 };
const C2H1: ChannelName = ChannelName { direction: Direction::C2h, number: 1 };

fn card() -> (SimNetwork, Card) {
    let network = network(CardDescription::default());
    let card = open(&network);
    (network, card)
}

#[track_caller]
fn assert_in_use<T: core::fmt::Debug>(result: Result<T, Error<ResourceError>>) {
    let error = result.unwrap_err();
    assert!(matches!(error.kind, ResourceError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("mock:0"), "{error}");
}

#[test]
fn raw_channel_excludes_other_owners_until_dropped() {
    let (_network, card) = card();
    let raw = card.raw_channel(H2C0).unwrap();
    assert_eq!(raw.name(), H2C0);
    let identifier = ChannelBlock::IDENTIFIER.read(raw.registers(), channel_base(Direction::H2c, 0)).unwrap();
    assert!(identifier.is(Target::H2cChannel), "{identifier:?}");
    assert_in_use(card.h2c(0));
    assert_in_use(card.raw_channel(H2C0));
    // Other channels are free.
    drop(card.raw_channel(C2H1).unwrap());
    drop(raw);
    let owner = card.h2c(0).unwrap();
    assert_in_use(card.raw_channel(H2C0));
    drop(owner);
    drop(card.raw_channel(H2C0).unwrap());
}

#[test]
fn raw_channel_unknown_number_is_refused() {
    let (_network, card) = card();
    let missing = ChannelName { number: 4, ..H2C0 };
    let error = card.raw_channel(missing).unwrap_err();
    assert!(matches!(error.kind, ResourceError::NoSuchChannel { .. }), "{error}");
}

#[test]
fn raw_channel_interrupt_exists_only_while_enabled() {
    let (_network, card) = card();
    assert!(!card.has_interrupts());
    assert!(card.raw_channel(C2H1).unwrap().interrupt().is_none());
    card.enable_interrupts().unwrap();
    assert!(card.has_interrupts());
    let raw = card.raw_channel(C2H1).unwrap();
    // Vectors are given to the channels from host to card first.
    let (_, vector) = raw.interrupt().unwrap();
    assert_eq!(vector, usize::from(card.info().xdma.h2c_channels) + 1);
    drop(raw);
    card.disable_interrupts().unwrap();
    assert!(!card.has_interrupts());
    assert!(card.raw_channel(C2H1).unwrap().interrupt().is_none());
}

#[test]
fn disable_interrupts_with_owner_is_refused_and_changes_nothing() {
    let (_network, card) = card();
    card.enable_interrupts().unwrap();
    let channel = card.c2h(1).unwrap();
    assert_in_use(card.disable_interrupts());
    assert!(card.has_interrupts());
    drop(channel);
    let cdma = card.cdma().unwrap();
    assert_in_use(card.disable_interrupts());
    assert!(card.has_interrupts());
    drop(cdma);
    let interrupt = card.user_interrupt(0).unwrap();
    assert_in_use(card.disable_interrupts());
    assert!(card.has_interrupts());
    drop(interrupt);
    // Refusals keep no claim: every channel and the engine are free, and interrupts can be disabled and enabled again.
    card.disable_interrupts().unwrap();
    assert!(!card.has_interrupts());
    for name in card.info().xdma.channels() {
        drop(card.raw_channel(name).unwrap());
    }
    drop(card.cdma().unwrap());
    card.enable_interrupts().unwrap();
    assert!(card.has_interrupts());
}

#[test]
fn memory_ranges_are_those_of_ni_or_options() {
    let (_network, card) = card();
    let ni = card.info().ni.as_ref().unwrap();
    let ranges = card.memory_ranges().unwrap();
    assert!(ranges.contains(&ni.memory), "{ranges:?}");

    // A card without a network interface has no known range, unless the options give one.
    let plain = network(described("pci: { subsystem_device: 7 }"));
    assert_eq!(open(&plain).memory_ranges(), None);
    let given = CardRange::new(CardAddr::new(0x1000), 0x10_0000);
    let card = open_with(&plain, OpenOptions::default().card_memory(given));
    assert_eq!(card.memory_ranges(), Some(&[given][..]));
}
