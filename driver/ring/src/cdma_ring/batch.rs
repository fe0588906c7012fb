//! From queued descriptors to what is written into card memory, and back from what the engine says to counts.

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
/// The ring writes descriptors here; the caller moves the pieces that a [`Batch`] names from here to card memory. An index
/// outside it must be ignored rather than panic; the ring never produces one.
pub trait DescriptorImage {
    /// Stores descriptor `index`, each word little-endian.
    fn write(&mut self, index: u32, words: [u32; 16]);
}

/// Descriptors that lie together, in the image and in card memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescriptorSlice {
    /// First ring entry.
    pub index: u32,
    /// How many.
    pub descriptors: u32,
    /// Where the first one belongs in card memory.
    pub card: CardAddr,
}

impl DescriptorSlice {
    /// Where it starts in the image, in bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.index as u64 * ENTRY_BYTES
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.descriptors as u64 * ENTRY_BYTES
    }
}

/// Queued descriptors on their way into card memory: one piece, or two where the ring wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the descriptors have to be written to card memory, and then posted"]
pub struct Batch {
    pieces: [DescriptorSlice; 2],
    /// Descriptors in all pieces.
    pub descriptors: u32,
    /// The last descriptor's length word in card memory and what it must read as: one read there shows that the writes before
    /// it have arrived.
    pub arrival: (CardAddr, u32),
}

impl Batch {
    /// What to write, in the order in which the engine will come by.
    pub fn pieces(&self) -> impl Iterator<Item = DescriptorSlice> + use<> {
        self.pieces.into_iter().filter(|piece| piece.descriptors != 0)
    }
}

/// A status word worth reading: when it says Completed, everything up to its descriptor is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Where the status word lies in card memory.
    pub status: CardAddr,
    /// Its ring entry.
    pub index: u32,
    /// The count that it proves.
    end: u64,
}

/// A posted descriptor that the engine has not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingDescriptor {
    /// The operation it belongs to.
    pub token: Token,
    /// Its ring entry.
    pub index: u32,
    /// Where it copies from.
    pub source: CardAddr,
    /// Where it copies to.
    pub destination: CardAddr,
    /// Bytes it covers.
    pub length: u32,
    /// Bytes of the operation that earlier descriptors cover, and those moved before.
    pub offset: u64,
}

impl<T> Ring<T> {
    /// Fills `image` with descriptors that are marked complete and lead to each other, for a ring in which nothing is posted:
    /// an engine that runs past its tail halts at the first of them ([`Cdmasr::sg_internal_error`]) instead of copying
    /// something old. The whole image then belongs into card memory before the engine starts.
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

    /// Where an engine that starts now has to begin: the address for the current-descriptor register.
    #[must_use]
    pub const fn start_address(&self) -> CardAddr {
        self.address(low32(self.completed) & self.entry_mask)
    }

    /// Writes queued descriptors to `image`, unless nothing is queued, the batch before was not posted yet, or the ring is
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

    /// The published batch is in card memory: hands it to the engine. Returns the new tail, to be written to the
    /// tail-descriptor register; `None` if nothing was published.
    pub fn post(&mut self) -> Option<CardAddr> {
        if self.published == self.posted {
            return None;
        }
        self.posted = self.published;
        Some(self.tail())
    }

    /// Address of the last posted descriptor, for an engine that starts anew; `None` if nothing is posted.
    #[must_use]
    pub const fn posted_tail(&self) -> Option<CardAddr> {
        if self.completed == self.posted { None } else { Some(self.tail()) }
    }

    /// Address of the last posted descriptor.
    const fn tail(&self) -> CardAddr {
        self.address(low32(self.posted.wrapping_sub(1)) & self.entry_mask)
    }

    /// The status word to look at: of the descriptor that was the last one posted when the probe before came true. However many
    /// batches are posted meanwhile, each look costs one read. `None` if nothing is posted.
    pub const fn probe(&mut self) -> Option<Probe> {
        if self.completed == self.posted {
            return None;
        }
        if self.probe_end <= self.completed {
            self.probe_end = self.posted;
        }
        Some(self.probe_at(self.probe_end))
    }

    /// The status word of `token`'s last descriptor; `None` if it is not posted, or complete.
    #[must_use]
    pub fn probe_for(&self, token: Token) -> Option<Probe> {
        let number = token.number();
        if number < self.first_operation || number >= self.next_operation {
            return None;
        }
        let end = self.slot_end(number);
        (end > self.completed && end <= self.posted).then(|| self.probe_at(end))
    }

    const fn probe_at(&self, end: u64) -> Probe {
        let at = low32(end.wrapping_sub(1)) & self.entry_mask;
        Probe { status: CardAddr::new(self.address(at).get() + STATUS_OFFSET), index: at, end }
    }

    /// Takes the status word that `probe` named. Descriptors complete in order, so a Completed one completes all before it.
    /// Returns how many descriptors that newly finishes.
    ///
    /// # Errors
    /// Error bits, or a word that is no status. Nothing is marked complete, and the ring accepts nothing more until it has been
    /// drained.
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
        // A probe from before a drain proves nothing new.
        if !status.completed() || probe.end > self.posted {
            return Ok(0);
        }
        Ok(self.completed_to(probe.end))
    }

    /// Takes the current-descriptor register: the descriptors before the one that it names are complete; that one itself only
    /// if it is the last one posted and the engine was idle (`idle`: the status register's Idle bit, read after the last tail
    /// write; without an error bit). Returns how many descriptors that newly finishes.
    ///
    /// One entry of the ring stays free, so that the descriptor before the oldest posted one is none of the posted ones: an
    /// engine that has not moved since it last stopped is told from one that has gone all the way round.
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
        // Where it stopped last: no news.
        if distance == u64::from(self.entry_mask) {
            return Ok(0);
        }
        self.faulted = true;
        Err(ProgressFault::NotPosted { address: current })
    }

    /// Whether `current` names the first descriptor behind everything posted: where an engine stands that ran past its tail.
    #[must_use]
    pub fn is_past_tail(&self, current: CardAddr) -> bool {
        self.distance(current) == Some(self.posted - self.completed)
    }

    /// Whether `current` names the last posted descriptor.
    #[must_use]
    pub fn is_tail(&self, current: CardAddr) -> bool {
        self.posted != self.completed && self.tail() == current
    }

    /// Everything posted is complete: for a caller who has seen the engine past its tail. Returns how many descriptors that
    /// newly finishes.
    pub const fn complete_all(&mut self) -> u32 {
        self.completed_to(self.posted)
    }

    /// How many entries `address` lies behind the oldest descriptor that is not complete.
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

    /// The descriptor at which an engine stands that completed no further; `None` if nothing is posted.
    #[must_use]
    pub fn pending_descriptor(&self) -> Option<PendingDescriptor> {
        if self.completed == self.posted {
            return None;
        }
        let at = low32(self.completed) & self.entry_mask;
        let staged = self.staged_entries[index(at)];
        // Operations are in order, so the first one that ends beyond the completed count owns the descriptor.
        let mut first = self.freed;
        let token = (self.first_operation..self.next_operation).map(Token::new).find(|token| {
            let end = self.slot_end(token.number());
            let pending = end > self.completed;
            if !pending {
                first = end;
            }
            pending
        })?;
        let by_the_engine: u64 = (first..self.completed)
            .map(|n| u64::from(self.staged_entries[index(low32(n) & self.entry_mask)].length))
            .sum();
        let moved = self.slots[index(low32(token.number()) & self.operation_mask)].moved;
        let offset = moved.saturating_add(by_the_engine);
        Some(PendingDescriptor {
            token,
            index: at,
            source: CardAddr::new(staged.source),
            destination: CardAddr::new(staged.destination),
            length: staged.length,
            offset,
        })
    }

    fn slot_end(&self, operation: u64) -> u64 {
        self.slots[index(low32(operation) & self.operation_mask)].end
    }

    /// The sixteen words of ring entry `at`; [`SgDescriptor`] has their layout.
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
            // Cut to the length field's bits when it was staged.
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
        // `validate` checked that the whole descriptor memory lies inside the address space.
        CardAddr::new(self.config.base.get() + at as u64 * ENTRY_BYTES)
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(SgDescriptor, control) as u64 == CONTROL_OFFSET);
    assert!(offset_of!(SgDescriptor, status) as u64 == STATUS_OFFSET);
};
