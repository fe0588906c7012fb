//! Single cards: built from a card file, opened, inspected without the driver, and checked after closing.

use std::path::Path;

use fpga_card::CardDescription;
use fpga_driver::{BarOffset, Card, CardAddr, Direction, OpenOptions};
use fpga_pci::DmaPoolStats;
use fpga_protocol::Nanos;
use fpga_registers::xdma::{
    ChannelBlock, MAX_CHANNELS, PerChannel, SGDMA_COMMON_BASE, SgdmaCommonBlock, channel_base,
};
use fpga_sim::SimNetwork;
use proptest::test_runner::{Config, RngSeed};

/// Number of the BAR with the XDMA registers on a built-in card; the user BAR has the number below it.
pub const DMA_BAR: u8 = 1;

/// Description of a card from `sections` of a card file. Missing sections are those of the built-in card.
#[must_use]
pub fn described(sections: &str) -> CardDescription {
    let text = format!("schema_version: 3\n{sections}");
    CardDescription::parse(Path::new("test.yaml"), &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Description of a card with the given numbers of channels.
#[must_use]
pub fn with_channels(h2c: u8, c2h: u8) -> CardDescription {
    described(&format!("xdma: {{ h2c_channels: {h2c}, c2h_channels: {c2h} }}"))
}

/// A network with this card only.
#[must_use]
pub fn network(description: CardDescription) -> SimNetwork {
    SimNetwork::builder().card(description).build().expect("a valid card description")
}

/// A network with this card only, whose virtual time advances fast while it is idle: for tests that wait for seconds of virtual time.
#[must_use]
pub fn fast_network(description: CardDescription) -> SimNetwork {
    let builder = SimNetwork::builder().card(description).time(Nanos::new(100), Nanos::from_micros(50));
    builder.build().expect("a valid card description")
}

/// Opens card 0 with default options.
#[must_use]
pub fn open(network: &SimNetwork) -> Card {
    Card::from_backend(network.backend(0)).expect("the card opens")
}

/// Opens card 0.
#[must_use]
pub fn open_with(network: &SimNetwork, options: OpenOptions) -> Card {
    Card::from_backend_with(network.backend(0), options).expect("the card opens")
}

/// Reads card `card`'s memory without the driver.
#[must_use]
pub fn peek(network: &SimNetwork, card: usize, at: CardAddr, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    network.with_card(card, |card| card.peek(at, &mut bytes)).expect("a card").expect("card memory");
    bytes
}

/// Writes card `card`'s memory without the driver.
pub fn poke(network: &SimNetwork, card: usize, at: CardAddr, bytes: &[u8]) {
    network.with_card(card, |card| card.poke(at, bytes)).expect("a card").expect("card memory");
}

/// Reads a register of card `card` without side effects and without counting the access.
#[must_use]
pub fn register(network: &SimNetwork, card: usize, bar: u8, at: BarOffset) -> u32 {
    let mut bytes = [0; 4];
    network.with_card(card, |card| card.bar_peek(bar, at.get(), &mut bytes)).expect("a card");
    u32::from_le_bytes(bytes)
}

/// Whether no channel of card `card` runs or has its Run bit set.
#[must_use]
pub fn channels_idle(network: &SimNetwork, card: usize) -> bool {
    [Direction::H2c, Direction::C2h].into_iter().all(|direction| {
        (0..MAX_CHANNELS).all(|number| {
            let base = channel_base(direction, number);
            let read = |offset| register(network, card, DMA_BAR, offset);
            // Bit 0 is Run in the control register and Busy in the status register.
            read(ChannelBlock::CONTROL.address(base)) & 1 == 0
                && read(ChannelBlock::STATUS.address(base)) & 1 == 0
        })
    })
}

/// Stops (`on`) or resumes descriptor fetches of channel 0 of this direction. A halted engine stays busy and makes no progress.
pub fn halt(card: &Card, direction: Direction, on: bool) {
    let register =
        if on { SgdmaCommonBlock::HALT_SET.offset() } else { SgdmaCommonBlock::HALT_CLEAR.offset() };
    let channel = PerChannel::one(direction, 0).into_bits();
    card.dma_bar().write32(SGDMA_COMMON_BASE.offset_by(register), channel).expect("the register");
}

/// Asserts the state after the last handle is dropped: no memory mapped, no bus mastering, no interrupts, no channel running.
pub fn assert_closed(network: &SimNetwork, card: usize) {
    assert_eq!(network.mapped_bytes(card), 0, "memory is still mapped for card {card}");
    let (bus_master, msix) = network
        .with_card(card, |card| (card.config().bus_master(), card.config().msix_enabled()))
        .expect("card");
    assert!(!bus_master, "card {card} may still do DMA");
    assert!(!msix, "card {card} may still interrupt");
    assert!(channels_idle(network, card), "a channel of card {card} still runs");
}

/// Asserts that the pool counts `in_use` allocations in use and `quarantined` in quarantine.
pub fn assert_pool(card: &Card, in_use: usize, quarantined: usize) -> DmaPoolStats {
    let stats = card.memory().stats();
    assert_eq!((stats.in_use, stats.quarantined), (in_use, quarantined), "{stats:?}");
    assert_eq!(card.memory().quarantined().len(), quarantined, "one record per quarantined allocation");
    let listed: usize = card.memory().quarantined().iter().map(|record| record.length).sum();
    assert_eq!(stats.quarantined_bytes, listed);
    stats
}

/// Configuration for `cases` cases that are the same in every run.
#[must_use]
pub fn seeded(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5EED), ..Config::default() }
}
