//! Posting: selection of descriptors, blocks and control words.

use alloc::boxed::Box;
use fpga_registers::invariant::DebugExpect as _;

use fpga_registers::xdma::{DescriptorControl, Direction};
use fpga_registers::{CardAddr, Iova};

use super::config::{DESCRIPTOR_BYTES, MAX_CREDITS, PAGE_DESCRIPTORS, REPORT_BYTES};
use super::{CardSide, CompletionPolicy, DescriptorMemory, HostRange, LONG, Ring, RingConfig, Staged, Token};
use fpga_registers::cast::{index, low32};

/// Doorbell values of one run: those of the channel's SGDMA registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the run is posted in memory; write the registers so that the engine sees it"]
pub struct Run {
    /// Address of the first descriptor, for SGDMA 0x80/0x84.
    pub first: Iova,
    /// Number of descriptors that follow the first one in its block, for SGDMA 0x88.
    pub adjacent: u8,
    /// Ring entry of the first descriptor.
    pub first_index: u32,
    /// Number of descriptors in the run: the completed count that ends it. In credit mode, those posted at its start.
    pub descriptors: u32,
}

/// Doorbell values in credit mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "write the credits so that the engine fetches the posted descriptors"]
pub struct CreditGrant {
    /// Present if the run begins: the engine must be started before it gets the credits.
    pub start: Option<Run>,
    /// Credits to add, for SGDMA 0x8C: 1..=1023.
    pub credits: u32,
}

/// The first descriptor that the device has not reported: the position of an engine that stopped in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingDescriptor {
    /// Operation that it belongs to.
    pub token: Token,
    /// Ring entry.
    pub index: u32,
    /// Host address.
    pub host: Iova,
    /// Card address (0 on a stream).
    pub card: CardAddr,
    /// Length in bytes.
    pub length: u32,
    /// Bytes of the operation that earlier descriptors cover.
    pub offset: u64,
}

impl<T> Ring<T> {
    /// Posts queued descriptors as one run. Returns `None` if a run is in progress, nothing is queued or the ring is faulted.
    ///
    /// The device's completed count starts at zero with each run, and a poll-mode write-back word still holds the last run's count: clear
    /// it before the doorbell.
    pub fn start_run<M: DescriptorMemory + ?Sized>(&mut self, memory: &mut M) -> Option<Run> {
        if self.open || self.is_running() || !self.has_queued() || self.faulted {
            return None;
        }
        let start = self.run_end;
        let end = self.run_limit(start);
        let mut block = start;
        let mut block_end = self.block_end(start, end);
        let adjacent = extra(start, block_end);
        let shape = self.shape;
        let mut reports = ReportInterval::default();
        while block < end {
            // The last descriptor of a block contains the size of the next block, since the engine sizes each fetch by the last descriptor
            // of the previous fetch.
            let next_end = if block_end < end { self.block_end(block_end, end) } else { block_end };
            // The last descriptor of the run is written separately: it stops the engine.
            let whole = if block_end == end { block_end - 1 } else { block_end };
            let following = extra(block_end, next_end).into();
            self.write_block(memory, (&shape, &mut reports), block, whole, block_end, following);
            block = block_end;
            block_end = next_end;
        }
        let last = end - 1;
        let at = low32(last) & self.entry_mask;
        let mut words = shape.words(at, self.entry(last), PLAIN);
        words[0] |= STOP;
        words[3] = 0;
        memory.write(at, words);
        self.run_start = start;
        self.written_back = start;
        self.run_end = end;
        let first_index = low32(start) & self.entry_mask;
        Some(Run { first: self.address(first_index), adjacent, first_index, descriptors: low32(end - start) })
    }

    /// Posts queued descriptors to the run of a ring in credit mode, as many as the credit counter permits; begins the run if there is
    /// none. `None` if nothing can be posted now, or the ring is faulted.
    ///
    /// Start the engine before it gets the credits: its credits are cleared while it is stopped. The write-back word must be zero when the
    /// run begins.
    pub fn post_credits<M: DescriptorMemory + ?Sized>(&mut self, memory: &mut M) -> Option<CreditGrant> {
        let start = self.run_end;
        // The engine may not have fetched descriptors that it has not reported: their credits may still be in the counter.
        let room = u64::from(MAX_CREDITS).saturating_sub(start - self.completed);
        let end = self.staged.min(start + room);
        if start == end || self.faulted || (!self.open && self.is_running()) {
            return None;
        }
        // The quirk concerns a whole run, not the descriptors in flight: a run has either blocks or long descriptors. The kind can change
        // only between two runs, so the current one must have finished; a run without blocks accepts short descriptors meanwhile.
        let lone = self.config.long_run_descriptors.is_some() && self.long_until > start;
        if self.open && lone != self.single_descriptor_blocks {
            match (self.is_running(), lone) {
                (true, true) => return None,
                (true, false) => {}
                (false, _) => self.open = false,
            }
        }
        if !self.open {
            self.single_descriptor_blocks = lone;
        }
        let shape = self.shape;
        // Written together, just before the doorbell: the engine prefetches beyond its credits, line by line, and a cache line that it
        // holds has to be fetched back for every descriptor written into it.
        let mut reports = ReportInterval::default();
        for count in start..end {
            let at = low32(count) & self.entry_mask;
            let staged = self.entry(count);
            let mut words = shape.words(at, staged, self.template(at) | reports.bit(staged));
            if count == end - 1 {
                words[0] |= COMPLETED;
            }
            memory.write(at, words);
        }
        let begins = !self.open;
        if begins {
            self.open = true;
            self.run_start = start;
            self.written_back = start;
        }
        self.run_end = end;
        let first_index = low32(start) & self.entry_mask;
        let adjacent = if self.single_descriptor_blocks { 0 } else { fixed_extra(&self.config, first_index) };
        let credits = low32(end - start);
        let run = Run { first: self.address(first_index), adjacent, first_index, descriptors: credits };
        Some(CreditGrant { start: begins.then_some(run), credits })
    }

    /// Batch mode: writes entries `from..to` of the block that ends at `block_end`; each entry contains the number of descriptors that
    /// follow its successor.
    #[inline]
    fn write_block<M: DescriptorMemory + ?Sized>(
        &self,
        memory: &mut M,
        (shape, reports): (&DescriptorTemplate, &mut ReportInterval),
        from: u64,
        to: u64,
        block_end: u64,
        following: u64,
    ) {
        // A block never wraps, so its entries are consecutive.
        let at = low32(from) & self.entry_mask;
        let count = low32(to.saturating_sub(from));
        let entries = self
            .staged_entries
            .get(index(at)..index(at + count))
            .debug_expect("a block does not wrap")
            .unwrap_or_default();
        // For the descriptor at `from`: the descriptors after its successor, within the block.
        let mut left = block_end - from;
        for (at, staged) in (at..).zip(entries) {
            left -= 1;
            let nxt_adj = if left == 0 { following } else { left - 1 };
            let control = PLAIN | nxt_adj << NXT_ADJ_SHIFT | reports.bit(*staged);
            memory.write(at, shape.words(at, *staged, control));
        }
    }

    /// Control word of entry `at` in credit mode, without length and report bits.
    #[inline]
    fn template(&self, at: u32) -> u64 {
        if self.single_descriptor_blocks {
            PLAIN
        } else {
            self.templates.get(index(at)).debug_expect("a template for each entry").copied().unwrap_or(PLAIN)
        }
    }

    /// Descriptor at which an engine without further progress stands; `None` if nothing is posted.
    #[must_use]
    pub fn pending_descriptor(&self) -> Option<PendingDescriptor> {
        if !self.is_running() {
            return None;
        }
        let staged = self.entry(self.completed);
        // Operations are in order, so the first one that ends beyond the completed count owns the descriptor.
        let mut first = self.freed;
        let owner = self.operations.numbers().find(|number| {
            let end = first + u64::from(self.operations.slot(*number).descriptors);
            let pending = end > self.completed;
            if !pending {
                first = end;
            }
            pending
        })?;
        Some(PendingDescriptor {
            token: Token::new(owner),
            index: low32(self.completed) & self.entry_mask,
            host: Iova::new(staged.host),
            card: CardAddr::new(staged.card),
            length: staged.length(),
            offset: self.bytes_between(first, self.completed),
        })
    }

    /// Host ranges of all descriptors that are posted and not reported: the memory that the device may still access.
    pub fn posted(&self) -> impl Iterator<Item = HostRange> {
        (self.completed..self.run_end).map(|count| {
            let staged = self.entry(count);
            HostRange::new(Iova::new(staged.host), staged.length().into())
        })
    }

    /// End of the run that starts at `start`: all queued descriptors, or fewer where long descriptors must stay within one short block
    /// (quirk 1).
    fn run_limit(&self, start: u64) -> u64 {
        let Some(limit) = self.config.long_run_descriptors else { return self.staged };
        if self.longest <= LONG {
            return self.staged;
        }
        let one_block = self.block_end(start, start + u64::from(limit));
        if self.long_until <= start {
            return self.staged;
        }
        for count in start..self.staged {
            if u64::from(self.entry(count).length()) <= LONG {
                continue;
            }
            // A long one beyond the block waits for the next run; one inside it ends this run with the block.
            return if count >= one_block { count } else { self.staged.min(one_block) };
        }
        self.staged
    }

    /// End of the block that starts at `start`: at a page boundary of descriptor memory, at the ring's end, at
    /// `end`, or after the configured count.
    fn block_end(&self, start: u64, end: u64) -> u64 {
        let (_, to_edge) = position(&self.config, low32(start) & self.entry_mask);
        end.min(start + to_edge.min(u64::from(self.config.block_descriptors)))
    }

    fn address(&self, at: u32) -> Iova {
        // `validate` checked that the whole descriptor memory is inside the address space.
        Iova::new(self.base().get() + u64::from(at) * DESCRIPTOR_BYTES)
    }
}

const PLAIN: u64 = DescriptorControl::new().into_bits() as u64;
const COMPLETED: u64 = DescriptorControl::from_bits(0).with_completed(true).into_bits() as u64;
const STOP: u64 = COMPLETED | DescriptorControl::from_bits(0).with_stop(true).into_bits() as u64;
const EOP: u64 = DescriptorControl::from_bits(0).with_eop(true).into_bits() as u64;
const NXT_ADJ_SHIFT: u32 = DescriptorControl::from_bits(0).with_next_adjacent(1).into_bits().trailing_zeros();

/// Bytes of long descriptors posted since the last descriptor that reports its completion; see [`REPORT_BYTES`].
#[derive(Debug, Default)]
struct ReportInterval(u64);

impl ReportInterval {
    /// Returns the Completed bit if this descriptor is to report, else 0.
    #[inline]
    const fn bit(&mut self, staged: Staged) -> u64 {
        let length = staged.length() as u64;
        // Many small operations are one batch to the host, and cost it one interrupt.
        self.0 += if length > LONG { length } else { 0 };
        if self.0 >= REPORT_BYTES && staged.shape & Staged::ENDS_OPERATION != 0 {
            self.0 = 0;
            return COMPLETED;
        }
        0
    }
}

/// Common parts of the descriptors of one ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorTemplate {
    base: u64,
    entry_mask: u32,
    /// Control bits of a descriptor that ends an operation.
    at_operation_end: u64,
    host_is_source: bool,
    card_side: CardSide,
}

impl DescriptorTemplate {
    pub(super) fn new(config: &RingConfig) -> Self {
        let at_operation_end = DescriptorControl::from_bits(0)
            .with_completed(matches!(config.report, CompletionPolicy::EachOperation))
            .with_eop(matches!(config.card_side, CardSide::StreamOut { .. }));
        Self {
            base: config.base.get(),
            entry_mask: config.entries - 1,
            at_operation_end: at_operation_end.into_bits().into(),
            host_is_source: matches!(config.direction, Direction::H2c),
            card_side: config.card_side,
        }
    }

    /// Words of ring entry `at` with the given start of its control word; [`Descriptor`] defines their layout, and the tests read them
    /// through it.
    ///
    /// [`Descriptor`]: fpga_registers::xdma::Descriptor
    #[inline]
    fn words(&self, at: u32, staged: Staged, control: u64) -> [u64; 4] {
        let mut control = control | staged.shape & Staged::LENGTH;
        if staged.shape & Staged::ENDS_OPERATION != 0 {
            control |= self.at_operation_end;
            if staged.shape & Staged::CONTINUES_PACKET != 0 {
                control &= !EOP;
            }
        }
        let next = self.base + u64::from((at + 1) & self.entry_mask) * DESCRIPTOR_BYTES;
        let card = match self.card_side {
            CardSide::Memory | CardSide::FixedAddress => staged.card,
            CardSide::StreamOut { .. } => 0,
            CardSide::StreamIn { writebacks } => writebacks.get() + u64::from(at) * 32,
        };
        let (source, destination) =
            if self.host_is_source { (staged.host, card) } else { (card, staged.host) };
        [control, source, destination, next]
    }
}

/// Position of entry `at` in its page of descriptor memory, and the number of entries to the end of the page or the ring.
fn position(config: &RingConfig, at: u32) -> (u64, u64) {
    let at = u64::from(at);
    let page_position = (config.base.get() / DESCRIPTOR_BYTES + at) % PAGE_DESCRIPTORS;
    (page_position, (PAGE_DESCRIPTORS - page_position).min(u64::from(config.entries) - at))
}

/// Number of descriptors adjacent to entry `at` where blocks are fixed parts of the ring, counted from each page's first descriptor: a
/// descriptor's successor and its adjacency never change.
fn fixed_extra(config: &RingConfig, at: u32) -> u8 {
    let (page_position, to_edge) = position(config, at);
    let block = u64::from(config.block_descriptors);
    extra(0, to_edge.min(block - page_position % block))
}

/// Control words for `Ring::templates`.
pub(super) fn templates(config: &RingConfig) -> Box<[u64]> {
    let successor = |at: u32| (at + 1) & (config.entries - 1);
    (0..config.entries)
        .map(|at| PLAIN | u64::from(fixed_extra(config, successor(at))) << NXT_ADJ_SHIFT)
        .collect()
}

/// Returns the number of descriptors of `first..end` after the first; blocks hold at most 64.
fn extra(first: u64, end: u64) -> u8 {
    u8::try_from(end.saturating_sub(first).saturating_sub(1))
        .debug_expect("a block has at most 64 descriptors")
        .unwrap_or(0)
}
