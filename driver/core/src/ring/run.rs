//! Publishing a run: which descriptors, in which blocks, with which control words.

use fpga_registers::xdma::{DescriptorControl, Direction};
use fpga_registers::{CardAddr, Iova};

use super::config::{DESCRIPTOR_BYTES, PAGE_DESCRIPTORS};
use super::{CardSide, DescriptorMemory, Report, Ring, RingConfig, Staged, Token};
use crate::cast::{index, low32};

/// What the doorbell needs: the values of the channel's SGDMA registers for one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the run is posted in memory; the registers have to be written for the engine to see it"]
pub struct Run {
    /// First descriptor's address, for SGDMA 0x80/0x84.
    pub first: Iova,
    /// Descriptors that follow the first one in its block, for SGDMA 0x88.
    pub adjacent: u8,
    /// Ring entry of the first descriptor.
    pub first_index: u32,
    /// Descriptors in the run: the completed count that ends it.
    pub descriptors: u32,
}

/// The first descriptor that the device has not reported: where an engine that stopped in error stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingDescriptor {
    /// The operation it belongs to.
    pub token: Token,
    /// Its ring entry.
    pub index: u32,
    /// Its host address.
    pub host: Iova,
    /// Its card address (0 on a stream).
    pub card: CardAddr,
    /// Bytes it covers.
    pub length: u32,
    /// Bytes of the operation that earlier descriptors cover.
    pub offset: u64,
}

impl<T> Ring<T> {
    /// Publishes queued descriptors as one run, unless a run is still going, nothing is queued or the ring is
    /// faulted.
    ///
    /// The device's completed count starts from zero with each run, and a poll-mode write-back word still holds
    /// the last run's count: clear it before the doorbell.
    pub fn start_run<M: DescriptorMemory + ?Sized>(&mut self, memory: &mut M) -> Option<Run> {
        if self.is_running() || !self.has_queued() || self.faulted {
            return None;
        }
        let start = self.run_end;
        let end = self.run_limit(start);
        let mut block = start;
        let mut block_end = self.block_end(start, end);
        let adjacent = extra(start, block_end);
        let last = low32(end.wrapping_sub(1)) & self.entry_mask;
        let shape = Shape::new(&self.config, last);
        while block < end {
            // The last descriptor of a block carries the size of the next block, as the engine sizes each fetch by
            // the last descriptor of the fetch before.
            let next_end = if block_end < end { self.block_end(block_end, end) } else { block_end };
            // A block never wraps, so its entries lie in a row.
            let at = low32(block) & self.entry_mask;
            let length = low32(block_end - block);
            let extras =
                (1..length).rev().map(|left| left - 1).chain([u32::from(extra(block_end, next_end))]);
            let entries = self.staged_entries.iter().skip(index(at)).zip(extras);
            for (index, (staged, nxt_adj)) in (at..at + length).zip(entries) {
                memory.write(index, shape.words(index, staged, nxt_adj));
            }
            block = block_end;
            block_end = next_end;
        }
        self.run_start = start;
        self.run_end = end;
        let first_index = low32(start) & self.entry_mask;
        Some(Run { first: self.address(first_index), adjacent, first_index, descriptors: low32(end - start) })
    }

    /// The descriptor at which an engine that reported no further stands; `None` if no run is posted.
    #[must_use]
    pub fn pending_descriptor(&self) -> Option<PendingDescriptor> {
        if !self.is_running() {
            return None;
        }
        let at = low32(self.completed) & self.entry_mask;
        let staged = self.staged_entries[index(at)];
        // Operations are in order, so the first one that ends beyond the completed count owns the descriptor.
        let mut first = self.freed;
        let token = (self.first_operation..self.next_operation).map(|n| self.token(n)).find(|token| {
            let end = self.slots[index(token.slot)].end;
            let pending = end > self.completed;
            if !pending {
                first = end;
            }
            pending
        })?;
        let offset = (first..self.completed)
            .map(|n| u64::from(self.staged_entries[index(low32(n) & self.entry_mask)].length))
            .sum();
        Some(PendingDescriptor {
            token,
            index: at,
            host: Iova::new(staged.host),
            card: CardAddr::new(staged.card),
            length: staged.length,
            offset,
        })
    }

    /// Where the run that starts at `start` ends: at everything queued, or earlier where long descriptors must
    /// stay within one short block (quirk 1).
    fn run_limit(&self, start: u64) -> u64 {
        let Some(limit) = self.config.long_run_descriptors else { return self.staged };
        if self.config.max_descriptor_length <= 4096 {
            return self.staged;
        }
        let one_block = self.block_end(start, start + u64::from(limit));
        for n in start..self.staged {
            let long = self.staged_entries[index(low32(n) & self.entry_mask)].length > 4096;
            if !long {
                continue;
            }
            // A long one beyond the block waits for the next run; one inside it ends this run with the block.
            return if n >= one_block { n } else { self.staged.min(one_block) };
        }
        self.staged
    }

    /// End of the block that starts at `start`: at a page boundary of descriptor memory, at the ring's end, at
    /// `end`, or after the configured count.
    fn block_end(&self, start: u64, end: u64) -> u64 {
        let at = u64::from(low32(start) & self.entry_mask);
        let page_position = (self.config.base.get() / DESCRIPTOR_BYTES + at) % PAGE_DESCRIPTORS;
        let to_page_end = PAGE_DESCRIPTORS - page_position;
        let to_ring_end = u64::from(self.config.entries) - at;
        let longest = to_page_end.min(to_ring_end).min(u64::from(self.config.block_descriptors));
        end.min(start + longest)
    }

    fn address(&self, at: u32) -> Iova {
        // `validate` checked that the whole descriptor memory lies inside the address space.
        Iova::new(self.config.base.get() + u64::from(at) * DESCRIPTOR_BYTES)
    }
}

/// What the descriptors of one run have in common, worked out once.
#[derive(Clone, Copy)]
struct Shape {
    base: u64,
    entry_mask: u32,
    /// Entry of the run's last descriptor.
    last: u32,
    /// Control bits of a descriptor that ends an operation.
    at_operation_end: u32,
    host_is_source: bool,
    card_side: CardSide,
}

impl Shape {
    fn new(config: &RingConfig, last: u32) -> Self {
        let at_operation_end = DescriptorControl::from_bits(0)
            .with_completed(matches!(config.report, Report::EachOperation))
            .with_eop(matches!(config.card_side, CardSide::StreamOut));
        Self {
            base: config.base.get(),
            entry_mask: config.entries - 1,
            last,
            at_operation_end: at_operation_end.into_bits(),
            host_is_source: matches!(config.direction, Direction::H2c),
            card_side: config.card_side,
        }
    }

    /// The eight words of ring entry `at`; [`Descriptor`] has their layout, and the tests read them through it.
    ///
    /// [`Descriptor`]: fpga_registers::xdma::Descriptor
    #[inline]
    fn words(&self, at: u32, staged: &Staged, nxt_adj: u32) -> [u32; 8] {
        const PLAIN: u32 = DescriptorControl::new().into_bits();
        const STOP: u32 = DescriptorControl::from_bits(0).with_stop(true).with_completed(true).into_bits();
        const NXT_ADJ_SHIFT: u32 =
            DescriptorControl::from_bits(0).with_next_adjacent(1).into_bits().trailing_zeros();

        let is_last = at == self.last;
        let mut control = PLAIN | nxt_adj << NXT_ADJ_SHIFT;
        if staged.ends_operation {
            control |= self.at_operation_end;
        }
        let mut next = self.base + u64::from((at + 1) & self.entry_mask) * DESCRIPTOR_BYTES;
        if is_last {
            control |= STOP;
            next = 0;
        }
        let card = match self.card_side {
            CardSide::Memory | CardSide::FixedAddress => staged.card,
            CardSide::StreamOut => 0,
            CardSide::StreamIn { writebacks } => writebacks.get() + u64::from(at) * 32,
        };
        let (source, destination) =
            if self.host_is_source { (staged.host, card) } else { (card, staged.host) };
        let high = |address: u64| low32(address >> 32);
        [
            control,
            staged.length,
            low32(source),
            high(source),
            low32(destination),
            high(destination),
            low32(next),
            high(next),
        ]
    }
}

/// Descriptors of `first..end` after the first; blocks hold at most 64.
fn extra(first: u64, end: u64) -> u8 {
    u8::try_from(end.saturating_sub(first).saturating_sub(1)).unwrap_or(0)
}
