//! A channel's share of the descriptor RAM: fetched descriptors that wait for execution.

use fpga_registers::cast::index;
use fpga_registers::cast::{high32, low32};
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::xdma::descriptor::{self, DescriptorControl};
use std::ops::Range;

pub(super) const DESCRIPTOR_BYTES: usize = size_of::<[u32; 8]>();
const BLOCK_LIMIT: usize = 64;
const LENGTH: u32 = descriptor::MAX_LEN;
/// Length above which the long-descriptor quirk applies.
const LONG: u32 = 4096;
pub(super) const MAGIC: u32 = descriptor::MAGIC as u32;
pub(super) const STOP: u32 = DescriptorControl::from_bits(0).with_stop(true).into_bits();

/// A descriptor as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    /// Magic, adjacency and flags.
    pub(super) control: u32,
    /// Bits 27:0; the other bits are not implemented.
    pub(super) length: u32,
    pub(super) source: u64,
    pub(super) destination: u64,
    next: u64,
}

impl Fetched {
    #[inline]
    pub(super) fn new(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        Self {
            control: low32(word(0)),
            length: high32(word(0)) & LENGTH,
            source: word(1),
            destination: word(2),
            next: word(3),
        }
    }

    /// Descriptor that results from an all-ones answer.
    const ONES: Self =
        Self { control: u32::MAX, length: LENGTH, source: u64::MAX, destination: u64::MAX, next: u64::MAX };
}

/// End of the buffer that takes the place of a further descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) enum FetchEnd {
    /// The completer refused the read.
    Refused,
    /// Beyond a 4 KiB boundary, or lost to the long-descriptor quirk: no magic arrives.
    Garbage,
}

/// Head of the buffer.
pub(super) enum Head {
    Descriptor(Fetched),
    /// The completer refused the read of this descriptor.
    Refused(Fetched),
    /// Nothing was fetched.
    Empty,
}

pub(super) type Slots = Box<[[u8; DESCRIPTOR_BYTES]]>;

/// Ring of fetched descriptors; later edits of host memory are not seen.
#[derive(Debug)]
pub(super) struct Prefetch {
    /// Slots; their number is a power of two, at least `capacity`.
    slots: Slots,
    /// Counts of removed and added descriptors; their difference is at most `capacity`.
    taken: usize,
    filled: usize,
    pub(super) capacity: usize,
    end: Option<FetchEnd>,
    /// Address of the next block, and its number of descriptors.
    pub(super) next: u64,
    pub(super) block: usize,
    /// After a Stop or an error: no more fetches in this run.
    pub(super) ended: bool,
    /// For the quirk: a long descriptor was fetched in this run; number of multi-descriptor blocks fetched.
    pub(super) long_seen: bool,
    pub(super) blocks: u32,
}

impl Prefetch {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(BLOCK_LIMIT);
        Self {
            slots: vec![[0; DESCRIPTOR_BYTES]; capacity.next_power_of_two()].into_boxed_slice(),
            taken: 0,
            filled: 0,
            capacity,
            end: None,
            next: 0,
            block: 0,
            ended: false,
            long_seen: false,
            blocks: 0,
        }
    }

    pub(super) const fn clear(&mut self) {
        (self.taken, self.filled) = (0, 0);
        self.end = None;
    }

    /// Empties the buffer for a run whose first block has `adjacent` + 1 descriptors at `first`.
    pub(super) fn begin(&mut self, first: u64, adjacent: u32) {
        self.clear();
        self.next = first;
        self.block = block_size(adjacent);
        self.ended = false;
        self.long_seen = false;
        self.blocks = 0;
    }

    pub(super) const fn len(&self) -> usize {
        self.filled.wrapping_sub(self.taken)
    }

    const fn place(&self, count: usize) -> usize {
        count & (self.slots.len() - 1)
    }

    /// Number of descriptors that may be executed until the next block fits into the buffer, if only missing space prevents the fetch;
    /// otherwise the number of descriptors in the buffer.
    pub(super) fn until_fetch(&self, count: usize) -> usize {
        if self.ended || count == 0 { self.len() } else { (self.len() + count).saturating_sub(self.capacity) }
    }

    /// Descriptor that [`pop`](Self::pop) returns next, if one was fetched.
    pub(super) fn head(&self) -> Option<Fetched> {
        (self.filled != self.taken).then(|| self.slots.get(self.place(self.taken)).map(Fetched::new))?
    }

    /// The descriptor `count` places behind [`head`](Self::head).
    pub(super) fn peek(&self, count: usize) -> Option<Fetched> {
        let at = self.place(self.taken.wrapping_add(count));
        (count < self.len()).then(|| self.slots.get(at).map(Fetched::new))?
    }

    pub(super) fn pop(&mut self) -> Head {
        if self.filled != self.taken {
            let fetched = self.slots.get(self.place(self.taken)).map(Fetched::new);
            self.taken = self.taken.wrapping_add(1);
            return fetched.map_or(Head::Empty, Head::Descriptor);
        }
        match self.end.take() {
            Some(FetchEnd::Refused) => Head::Refused(Fetched::ONES),
            Some(FetchEnd::Garbage) => Head::Descriptor(Fetched::ONES),
            None => Head::Empty,
        }
    }

    /// Takes the slots out, with the range of the first contiguous descriptors, at most `most`. The rest of the channel stays accessible
    /// meanwhile. Return the slots with [`Self::give_back`].
    #[inline]
    pub(super) fn take_out(&mut self, most: usize) -> (Slots, Range<usize>) {
        let slots = std::mem::take(&mut self.slots);
        let start = self.taken & (slots.len() - 1);
        let end = slots.len().min(start + most.min(self.len()));
        (slots, start..end)
    }

    /// Reverses [`Self::take_out`] and removes the first `used` descriptors.
    #[inline]
    pub(super) fn give_back(&mut self, slots: Slots, used: usize) {
        self.slots = slots;
        self.taken = self.taken.wrapping_add(used);
    }

    /// The next `count` free slots, in two parts where the ring wraps.
    pub(super) fn vacant(&mut self, count: usize) -> [&mut [u8]; 2] {
        if self.filled == self.taken {
            (self.taken, self.filled) = (0, 0);
        }
        let place = self.place(self.filled);
        let (start, rest) = self.slots.split_at_mut(place);
        let head = count.min(rest.len());
        [
            rest.get_mut(..head).debug_expect("free slots").unwrap_or_default().as_flattened_mut(),
            start.get_mut(..count - head).debug_expect("free slots").unwrap_or_default().as_flattened_mut(),
        ]
    }

    /// Adds `count` descriptors that were read into the vacant slots, up to the one after which nothing is to be fetched.
    pub(super) fn accept(&mut self, count: usize, watch_length: bool) {
        const NO_STOP: u32 = 0xFFFF << 16 | STOP;
        let (start, rest) = self.slots.split_at(self.place(self.filled));
        let head = rest.get(..count).unwrap_or(rest);
        let tail = start.get(..count - head.len()).debug_expect("free slots").unwrap_or_default();
        let last_in = |part: &[[u8; DESCRIPTOR_BYTES]]| {
            part.iter().position(|slot| Fetched::new(slot).control & NO_STOP != MAGIC << 16)
        };
        let last = last_in(head).or_else(|| last_in(tail).map(|index| head.len() + index));
        let taken_over = last.map_or(count, |index| index + 1);
        if watch_length {
            let mut lengths = head.iter().chain(tail).take(taken_over).map(|slot| Fetched::new(slot).length);
            self.long_seen |= lengths.any(|length| length > LONG);
        }
        if last.is_some() {
            self.ended = true;
        } else if let Some(last) = tail.last().or(head.last()).map(Fetched::new) {
            self.next = last.next;
            self.block = block_size(last.control >> 8);
        }
        self.filled = self.filled.wrapping_add(taken_over);
    }

    /// Adds a descriptor that user logic has loaded.
    pub(super) fn push(&mut self, control: u32, length: u32, source: u64, destination: u64) {
        let words = [u64::from(control) | u64::from(length & LENGTH) << 32, source, destination, 0];
        let [slot, _] = self.vacant(1);
        for (place, word) in slot.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.filled = self.filled.wrapping_add(1);
    }

    pub(super) fn end(&mut self, end: FetchEnd) {
        self.end = Some(end);
        self.ended = true;
    }
}

/// Returns the number of descriptors in a block; `Nxt_adj` counts the extra ones.
fn block_size(adjacent: u32) -> usize {
    index(adjacent & 0x3F) + 1
}
