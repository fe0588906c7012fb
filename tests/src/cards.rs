//! Single cards: built from a card file, opened, looked at behind the driver's back, and checked after closing.

use std::path::Path;

use fpga_card::CardDescription;
use fpga_driver::pci::DmaPoolStats;
use fpga_driver::protocol::Nanos;
use fpga_driver::registers::xdma::{
    ChannelBlock, MAX_CHANNELS, PerChannel, SGDMA_COMMON_BASE, SgdmaCommonBlock, channel_base,
};
use fpga_driver::sim::SimNetwork;
use fpga_driver::{BarOffset, Card, CardAddr, Direction, OpenOptions};
use proptest::test_runner::{Config, RngSeed};

/// Number of the BAR with the XDMA registers on a built-in card; the user BAR is the one before.
pub const DMA_BAR: u8 = 1;

/// The card that `sections` of a card file describe; what they leave out is as on the built-in card.
#[must_use]
pub fn described(sections: &str) -> CardDescription {
    let text = format!("schema_version: 3\n{sections}");
    CardDescription::parse(Path::new("test.yaml"), &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A card with so many channels.
#[must_use]
pub fn with_channels(h2c: u8, c2h: u8) -> CardDescription {
    described(&format!("xdma: {{ h2c_channels: {h2c}, c2h_channels: {c2h} }}"))
}

/// A network with this card alone.
#[must_use]
pub fn network(description: CardDescription) -> SimNetwork {
    SimNetwork::builder().card(description).build().expect("a card that can be built")
}

/// A network with this card alone where idle time flies: for tests that wait for seconds of virtual time.
#[must_use]
pub fn fast_network(description: CardDescription) -> SimNetwork {
    let builder = SimNetwork::builder().card(description).time(Nanos::new(100), Nanos::from_micros(50));
    builder.build().expect("a card that can be built")
}

/// Opens card 0 with default options.
#[must_use]
pub fn open(network: &SimNetwork) -> Card {
    Card::open(network.backend(0)).expect("the card opens")
}

/// Opens card 0.
#[must_use]
pub fn open_with(network: &SimNetwork, options: OpenOptions) -> Card {
    Card::open_with(network.backend(0), options).expect("the card opens")
}

/// Card 0's memory, behind the driver's back.
#[must_use]
pub fn peek(network: &SimNetwork, card: usize, at: CardAddr, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    network.with_card(card, |card| card.peek(at, &mut bytes)).expect("a card").expect("card memory");
    bytes
}

/// Writes card memory behind the driver's back.
pub fn poke(network: &SimNetwork, card: usize, at: CardAddr, bytes: &[u8]) {
    network.with_card(card, |card| card.poke(at, bytes)).expect("a card").expect("card memory");
}

/// A register of card `card`, read without side effects and without being counted.
#[must_use]
pub fn register(network: &SimNetwork, card: usize, bar: u8, at: BarOffset) -> u32 {
    let mut bytes = [0; 4];
    network.with_card(card, |card| card.bar_peek(bar, at.get(), &mut bytes)).expect("a card");
    u32::from_le_bytes(bytes)
}

/// Whether no channel of card `card` runs or may run.
#[must_use]
pub fn channels_idle(network: &SimNetwork, card: usize) -> bool {
    [Direction::H2c, Direction::C2h].into_iter().all(|direction| {
        (0..MAX_CHANNELS).all(|number| {
            let base = channel_base(direction, number);
            let read = |offset| register(network, card, DMA_BAR, offset);
            // Bit 0 is run in the control register, busy in the status register.
            read(ChannelBlock::CONTROL.address(base)) & 1 == 0
                && read(ChannelBlock::STATUS.address(base)) & 1 == 0
        })
    })
}

/// Channel 0 of this direction may not fetch descriptors: its engine is busy and does nothing, until it may again.
pub fn halt(card: &Card, direction: Direction, on: bool) {
    let register =
        if on { SgdmaCommonBlock::HALT_SET.offset() } else { SgdmaCommonBlock::HALT_CLEAR.offset() };
    let channel = PerChannel::one(direction, 0).into_bits();
    card.dma_bar().write32(SGDMA_COMMON_BASE.offset_by(register), channel).expect("the register");
}

/// After the last handle is gone: no memory mapped, no right to do DMA, no interrupts, no channel running.
pub fn assert_closed(network: &SimNetwork, card: usize) {
    assert_eq!(network.mapped_bytes(card), 0, "memory is still mapped for card {card}");
    let (bus_master, msix) = network
        .with_card(card, |card| (card.config().bus_master(), card.config().msix_enabled()))
        .expect("card");
    assert!(!bus_master, "card {card} may still do DMA");
    assert!(!msix, "card {card} may still interrupt");
    assert!(channels_idle(network, card), "a channel of card {card} still runs");
}

/// What the pool counts must be `in_use` pieces out and `quarantined` put away.
pub fn assert_pool(card: &Card, in_use: usize, quarantined: usize) -> DmaPoolStats {
    let stats = card.memory().stats();
    assert_eq!((stats.in_use, stats.quarantined), (in_use, quarantined), "{stats:?}");
    assert_eq!(card.memory().quarantined().len(), quarantined, "one record per piece");
    let listed: usize = card.memory().quarantined().iter().map(|record| record.length).sum();
    assert_eq!(stats.quarantined_bytes, listed);
    stats
}

/// `cases` cases that are the same in every run.
#[must_use]
pub fn seeded(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5EED), ..Config::default() }
}
