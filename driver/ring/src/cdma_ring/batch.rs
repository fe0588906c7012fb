//! Conversion of queued descriptors to their image in card memory, and of the engine's progress reports to counts.

use fpga_registers::CardAddr;
use fpga_registers::cdma::{SgDescriptor, SgStatus};

use super::config::ENTRY_BYTES;
use super::{ProgressFault, Ring, Token};
use fpga_registers::cast::{index, low32};

/// Offset of the control word in a descriptor: its length.
const CONTROL_OFFSET: u64 = 0x18;
/// Offset of the status word in a descriptor.
const STATUS_OFFSET: u64 = 0x1C;

/// The host's copy of the ring: entry `index` is 64 bytes at `64 x index`, as in card memory.
///
/// The ring writes descriptors here; the caller copies the slices that a [`Batch`] names from here to card memory. An implementation must
/// ignore an index outside the image rather than panic; the ring never produces one.
pub trait DescriptorImage {
    /// Stores descriptor `index`, each word little-endian.
    fn write(&mut self, index: u32, words: [u32; 16]);
}

/// Consecutive descriptors, in the image and in card memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescriptorSlice {
    /// First ring entry.
    pub index: u32,
    /// Number of descriptors.
    pub descriptors: u32,
    /// Card address of the first one.
    pub card: CardAddr,
}

impl DescriptorSlice {
    /// Offset in the image, in bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.index as u64 * ENTRY_BYTES
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.descriptors as u64 * ENTRY_BYTES
    }
}

/// Queued descriptors to be written to card memory: one slice, or two where the ring wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "write the descriptors to card memory, then post them"]
pub struct Batch {
    pieces: [DescriptorSlice; 2],
    /// Number of descriptors in all slices.
    pub descriptors: u32,
    /// Card address of the last descriptor's length word, and the expected value: one read there shows that the preceding writes have
    /// arrived.
    pub arrival: (CardAddr, u32),
}

impl Batch {
    /// Slices to write, in the order in which the engine will read them.
    pub fn pieces(&self) -> impl Iterator<Item = DescriptorSlice> + use<> {
        self.pieces.into_iter().filter(|piece| piece.descriptors != 0)
    }
}

/// Status word to read: when it reports Completed, everything up to its descriptor is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Card address of the status word.
    pub status: CardAddr,
    /// Ring entry.
    pub index: u32,
    /// Completed count if the status word reports Completed.
    end: u64,
}

/// A posted descriptor that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingDescriptor {
    /// Operation that it belongs to.
    pub token: Token,
    /// Ring entry.
    pub index: u32,
    /// Source address.
    pub source: CardAddr,
    /// Destination address.
    pub destination: CardAddr,
    /// Length in bytes.
    pub length: u32,
    /// Bytes of the operation that earlier descriptors cover, including bytes moved before by other means.
    pub offset: u64,
}

impl<T> Ring<T> {
    /// Fills `image` with descriptors that are marked complete and linked to each other, for a ring in which nothing is posted: an engine
    /// that runs past its tail halts at the first of them ([`Cdmasr::sg_internal_error`]) instead of executing a stale descriptor. Write
    /// the whole image to card memory before the engine starts.
    ///
    /// [`Cdmasr::sg_internal_error`]: fpga_registers::cdma::Cdmasr::sg_internal_error
    pub fn guard<I: DescriptorImage + ?Sized>(&self, image: &mut I) {
        let mut words = [0; 16];
        words[7] = SgStatus::new().with_completed(true).into_bits();
        for at in 0..self.config.entries {
            [words[0], words[1]] = self.next_words(at);
            image.write(at, words);
        }
    }

    /// Returns the start address for the engine: the value for the current-descriptor register.
    #[must_use]
    pub const fn start_address(&self) -> CardAddr {
        self.address(low32(self.completed) & self.entry_mask)
    }

    /// Writes queued descriptors to `image`. Returns `None` if nothing is queued, the previous batch is not posted yet, or the ring is
    /// faulted. Their status words are zero: a stale Completed would stop the engine.
    pub fn publish<I: DescriptorImage + ?Sized>(&mut self, image: &mut I) -> Option<Batch> {
        if self.published != self.posted || self.staged == self.posted || self.faulted {
            return None;
        }
        let first = low32(self.posted) & self.entry_mask;
        let count = low32(self.staged - self.posted);
        for n in self.posted..self.staged {
            let at = low32(n) & self.entry_mask;
            image.write(at, self.words(at));
        }
        self.published = self.staged;
        let before_wrap = count.min(self.config.entries - first);
        let last = low32(self.staged - 1) & self.entry_mask;
        let arrival = CardAddr::new(self.address(last).get() + CONTROL_OFFSET);
        Some(Batch {
            pieces: [
                DescriptorSlice { index: first, descriptors: before_wrap, card: self.address(first) },
                DescriptorSlice { index: 0, descriptors: count - before_wrap, card: self.config.base },
            ],
            descriptors: count,
            arrival: (arrival, self.staged_entries[index(last)].length),
        })
    }

    /// Posts the published batch, which is in card memory. Returns the new tail, to be written to the tail-descriptor register; `None` if
    /// nothing was published.
    pub fn post(&mut self) -> Option<CardAddr> {
        if self.published == self.posted {
            return None;
        }
        self.posted = self.published;
        Some(self.tail())
    }

    /// Address of the last posted descriptor, for an engine that is restarted; `None` if nothing is posted.
    #[must_use]
    pub const fn posted_tail(&self) -> Option<CardAddr> {
        if self.completed == self.posted { None } else { Some(self.tail()) }
    }

    /// Address of the last posted descriptor.
    const fn tail(&self) -> CardAddr {
        self.address(low32(self.posted.wrapping_sub(1)) & self.entry_mask)
    }

    /// Status word to poll: that of the descriptor that was the last one posted when the previous probe succeeded. Each poll costs one
    /// read, independent of the number of batches posted meanwhile. `None` if nothing is posted.
    pub const fn probe(&mut self) -> Option<Probe> {
        if self.completed == self.posted {
            return None;
        }
        if self.probe_end <= self.completed {
            self.probe_end = self.posted;
        }
        Some(self.probe_at(self.probe_end))
    }

    /// Status word of `token`'s last descriptor; `None` if it is not posted, or complete.
    #[must_use]
    pub fn probe_for(&self, token: Token) -> Option<Probe> {
        let number = token.number();
        if !self.operations.numbers().contains(&number) {
            return None;
        }
        let end = self.operations.slot(number).end;
        (end > self.completed && end <= self.posted).then(|| self.probe_at(end))
    }

    const fn probe_at(&self, end: u64) -> Probe {
        let at = low32(end.wrapping_sub(1)) & self.entry_mask;
        Probe { status: CardAddr::new(self.address(at).get() + STATUS_OFFSET), index: at, end }
    }

    /// Processes the status word that `probe` named. Descriptors complete in order, so a Completed one completes all before it. Returns the
    /// number of newly completed descriptors.
    ///
    /// # Errors
    /// Error bits, or a word that is not a status. Nothing is marked complete, and the ring accepts nothing more until it has been drained.
    pub fn complete_status(&mut self, probe: Probe, word: u32) -> Result<u32, ProgressFault> {
        let status = SgStatus::from_bits(word);
        let known = SgStatus::ERRORS.with_completed(true).into_bits();
        if word & !known != 0 {
            self.faulted = true;
            return Err(ProgressFault::NotAStatus { word });
        }
        if status.has_error() {
            self.faulted = true;
            return Err(ProgressFault::Descriptor { index: probe.index, status });
        }
        // A probe from before a drain reports no progress.
        if !status.completed() || probe.end > self.posted {
            return Ok(0);
        }
        Ok(self.completed_to(probe.end))
    }

    /// Processes the current-descriptor register: the descriptors before the named one are complete. The named one is complete only if it
    /// is the last one posted and the engine was idle (`idle`: the status register's Idle bit, read after the last tail write; without an
    /// error bit). Returns the number of newly completed descriptors.
    ///
    /// One entry of the ring stays free, so the descriptor before the oldest posted one is not posted: an engine that has not moved since
    /// it last stopped can be distinguished from one that has wrapped around the ring.
    ///
    /// # Errors
    /// [`ProgressFault::NotPosted`]. Nothing is marked complete, and the ring accepts nothing more until it has been drained.
    pub fn complete_current(&mut self, current: CardAddr, idle: bool) -> Result<u32, ProgressFault> {
        let Some(distance) = self.distance(current) else {
            self.faulted = true;
            return Err(ProgressFault::NotPosted { address: current });
        };
        let outstanding = self.posted - self.completed;
        if distance < outstanding {
            let finished = idle && distance + 1 == outstanding;
            return Ok(self.completed_to(self.completed + distance + u64::from(finished)));
        }
        // The engine is where it last stopped: no progress.
        if distance == u64::from(self.entry_mask) {
            return Ok(0);
        }
        self.faulted = true;
        Err(ProgressFault::NotPosted { address: current })
    }

    /// Returns whether `current` names the first descriptor after all posted ones: the position of an engine that ran past its tail.
    #[must_use]
    pub fn is_past_tail(&self, current: CardAddr) -> bool {
        self.distance(current) == Some(self.posted - self.completed)
    }

    /// Returns whether `current` names the last posted descriptor.
    #[must_use]
    pub fn is_tail(&self, current: CardAddr) -> bool {
        self.posted != self.completed && self.tail() == current
    }

    /// Marks everything posted as complete, for a caller that has seen the engine past its tail. Returns the number of newly completed
    /// descriptors.
    pub const fn complete_all(&mut self) -> u32 {
        self.completed_to(self.posted)
    }

    /// Returns the number of entries from the oldest descriptor that is not complete to `address`.
    fn distance(&self, address: CardAddr) -> Option<u64> {
        let offset = address.get().checked_sub(self.config.base.get())?;
        if !offset.is_multiple_of(ENTRY_BYTES) || offset >= self.config.bytes() {
            return None;
        }
        let at = low32(offset / ENTRY_BYTES);
        Some(u64::from(at.wrapping_sub(low32(self.completed)) & self.entry_mask))
    }

    const fn completed_to(&mut self, end: u64) -> u32 {
        let step = end.saturating_sub(self.completed);
        self.completed += step;
        low32(step)
    }

    /// Descriptor at which an engine without further progress stands; `None` if nothing is posted.
    #[must_use]
    pub fn pending_descriptor(&self) -> Option<PendingDescriptor> {
        if self.completed == self.posted {
            return None;
        }
        let at = low32(self.completed) & self.entry_mask;
        let staged = self.staged_entries[index(at)];
        // Operations are in order, so the first one that ends beyond the completed count owns the descriptor.
        let mut first = self.freed;
        let token = self.operations.numbers().map(Token::new).find(|token| {
            let end = self.operations.slot(token.number()).end;
            let pending = end > self.completed;
            if !pending {
                first = end;
            }
            pending
        })?;
        let moved = self.operations.slot(token.number()).moved;
        let offset = moved.saturating_add(self.bytes_between(first, self.completed));
        Some(PendingDescriptor {
            token,
            index: at,
            source: CardAddr::new(staged.source),
            destination: CardAddr::new(staged.destination),
            length: staged.length,
            offset,
        })
    }

    /// Words of ring entry `at`; [`SgDescriptor`] defines their layout.
    fn words(&self, at: u32) -> [u32; 16] {
        let staged = &self.staged_entries[index(at)];
        let (source, destination) = (CardAddr::new(staged.source), CardAddr::new(staged.destination));
        let (source_low, source_high) = source.to_low_high();
        let (destination_low, destination_high) = destination.to_low_high();
        let [next_low, next_high] = self.next_words(at);
        let head = [
            next_low,
            next_high,
            source_low,
            source_high,
            destination_low,
            destination_high,
            // Limited to the length field's bits when it was staged.
            staged.length,
            0,
        ];
        let mut words = [0; 16];
        words[..8].copy_from_slice(&head);
        words
    }

    fn next_words(&self, at: u32) -> [u32; 2] {
        let (low, high) = self.address((at + 1) & self.entry_mask).to_low_high();
        [low, high]
    }

    pub(super) const fn address(&self, at: u32) -> CardAddr {
        // `validate` checked that the whole descriptor memory is inside the address space.
        CardAddr::new(self.config.base.get() + at as u64 * ENTRY_BYTES)
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(SgDescriptor, control) as u64 == CONTROL_OFFSET);
    assert!(offset_of!(SgDescriptor, status) as u64 == STATUS_OFFSET);
};
