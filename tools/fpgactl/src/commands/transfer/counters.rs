//! Counters and occupancies of the receiving network interface, read over its registers: after the fact, where a read costs
//! nothing that matters.

use fpga_driver::Card;
use fpga_driver::endpoint::EndpointError;
use fpga_driver::firmware::generated::{BlockType, counters, escape, registry};

use crate::error::CliError;

/// What is read, as register offsets in the counters block.
const REGISTERS: [u32; 6] = [
    counters::DUPLICATES,
    counters::TOMBSTONE_HITS,
    counters::ESCAPE_HITS,
    counters::ESCAPE_DROPPED,
    counters::REGISTRATIONS,
    counters::RX_PACKETS,
];

/// Counts since the first reading. The registers have 32 bits and wrap; read often enough they give 64.
#[derive(Debug, Default)]
pub(super) struct NiCounters {
    last: [u32; REGISTERS.len()],
    sums: [u64; REGISTERS.len()],
}

impl NiCounters {
    /// Starts to count.
    pub(super) fn new(card: &Card) -> Result<Self, CliError> {
        Ok(Self { last: read_all(card)?, sums: [0; REGISTERS.len()] })
    }

    /// Adds what was counted since the last reading.
    pub(super) fn update(&mut self, card: &Card) -> Result<(), CliError> {
        let now = read_all(card)?;
        for ((sum, last), now) in self.sums.iter_mut().zip(self.last).zip(now) {
            *sum += u64::from(now.wrapping_sub(last));
        }
        self.last = now;
        Ok(())
    }

    /// Packets that were there already: of a segment under way, or of one that is complete.
    pub(super) const fn duplicates(&self) -> u64 {
        self.sums[0] + self.sums[1]
    }

    /// Packets that entered the escape channel.
    pub(super) const fn escape_hits(&self) -> u64 {
        self.sums[2]
    }

    /// Packets that the escape channel could not keep.
    pub(super) const fn escape_dropped(&self) -> u64 {
        self.sums[3]
    }

    /// Segments that entered the registry.
    pub(super) const fn registrations(&self) -> u64 {
        self.sums[4]
    }

    /// Packets that arrived.
    pub(super) const fn received(&self) -> u64 {
        self.sums[5]
    }

    /// Registry entries and escape slots in use now.
    pub(super) fn occupancy(&self, card: &Card) -> Result<(u64, u64), CliError> {
        let registry = read(card, BlockType::Registry, registry::OCCUPANCY)?;
        let escape = read(card, BlockType::Escape, escape::OCCUPANCY)?;
        Ok((registry.into(), escape.into()))
    }
}

fn read_all(card: &Card) -> Result<[u32; REGISTERS.len()], CliError> {
    let mut values = [0; REGISTERS.len()];
    for (value, register) in values.iter_mut().zip(REGISTERS) {
        *value = read(card, BlockType::Counters, register)?;
    }
    Ok(values)
}

fn read(card: &Card, block: BlockType, register: u32) -> Result<u32, CliError> {
    let absent = || EndpointError::NoInterface { card: card.name().into() };
    let identity = card.info().identity.as_ref().ok_or_else(absent)?;
    let block = identity.block(block).map_err(|_| absent())?;
    let bar = card.user_bar().ok_or_else(absent)?;
    bar.read32(block.at(register)).map_err(|source| CliError::Mmio { card: card.name().to_owned(), source })
}
