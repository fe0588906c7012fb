//! A channel's share of the descriptor RAM: descriptors that were fetched and wait for execution.

use super::channel::Channel;
use super::engine::Rules;
use crate::fault_log::FaultKind;
use crate::host::HostPort;
use crate::link::Lanes;
use fpga_registers::Iova;
use fpga_registers::xdma::descriptor::{self, DescriptorControl};

const DESCRIPTOR_BYTES: usize = size_of::<[u32; 8]>();
const FETCH_BOUNDARY: u64 = descriptor::BLOCK_BOUNDARY as u64;
const BLOCK_LIMIT: usize = 64;
const LENGTH: u32 = descriptor::MAX_LEN;
/// Descriptors above this length are the subject of the long-descriptor quirk.
const LONG: u32 = 4096;
pub(super) const MAGIC: u32 = descriptor::MAGIC as u32;
pub(super) const STOP: u32 = DescriptorControl::from_bits(0).with_stop(true).into_bits();

/// A descriptor as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    /// Magic, adjacency and flags.
    pub(super) control: u32,
    /// Bits 27:0; the others do not exist.
    pub(super) length: u32,
    pub(super) source: u64,
    pub(super) destination: u64,
    next: u64,
}

impl Fetched {
    #[inline]
    fn new(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        Self {
            control: super::channel::low(word(0)),
            length: super::channel::high(word(0)) & LENGTH,
            source: word(1),
            destination: word(2),
            next: word(3),
        }
    }

    /// What an engine makes of an answer that is all ones.
    const ONES: Self =
        Self { control: u32::MAX, length: LENGTH, source: u64::MAX, destination: u64::MAX, next: u64::MAX };
}

/// What follows the last descriptor in the buffer instead of another one.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The completer refused the read.
    Refused,
    /// Beyond a 4 KiB boundary, or lost to the long-descriptor quirk: no magic arrives.
    Garbage,
}

/// What the engine finds at the head of the buffer.
pub(super) enum Head {
    Descriptor(Fetched),
    /// The completer refused the read that this descriptor was asked for with.
    Refused(Fetched),
    /// Nothing was fetched.
    Empty,
}

/// A ring of descriptors as they were read; later edits of host memory are never seen.
#[derive(Debug)]
pub(super) struct Prefetch {
    /// A power of two of them, at least `capacity`.
    slots: Box<[[u8; DESCRIPTOR_BYTES]]>,
    /// Counts of what was taken out and put in; their difference is at most `capacity`.
    taken: usize,
    filled: usize,
    capacity: usize,
    end: Option<End>,
    /// Where the next block lies, and how many descriptors it has.
    next: u64,
    block: usize,
    /// A Stop, an error: nothing more is fetched in this run.
    ended: bool,
    /// For the quirk: a long descriptor was fetched in this run, and multi-descriptor blocks fetched.
    long_seen: bool,
    blocks: u32,
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

    const fn len(&self) -> usize {
        self.filled.wrapping_sub(self.taken)
    }

    const fn place(&self, count: usize) -> usize {
        count & (self.slots.len() - 1)
    }

    /// How many descriptors may be executed until the next block fits into the buffer, if nothing but room holds the
    /// fetch back; otherwise how many there are.
    fn until_fetch(&self, count: usize) -> usize {
        if self.ended || count == 0 { self.len() } else { (self.len() + count).saturating_sub(self.capacity) }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<Fetched> {
        if self.filled == self.taken {
            return None;
        }
        self.slots.get(self.place(self.taken)).map(Fetched::new)
    }

    /// Forgets what [`Self::front`] showed.
    #[inline]
    pub(super) const fn drop_front(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    pub(super) fn pop(&mut self) -> Head {
        if let Some(fetched) = self.front() {
            self.drop_front();
            return Head::Descriptor(fetched);
        }
        match self.end.take() {
            Some(End::Refused) => Head::Refused(Fetched::ONES),
            Some(End::Garbage) => Head::Descriptor(Fetched::ONES),
            None => Head::Empty,
        }
    }

    /// The next `count` free slots, in two parts where the ring turns over.
    fn vacant(&mut self, count: usize) -> [&mut [u8]; 2] {
        if self.filled == self.taken {
            (self.taken, self.filled) = (0, 0);
        }
        let place = self.place(self.filled);
        let (start, rest) = self.slots.split_at_mut(place);
        let head = count.min(rest.len());
        [
            rest.get_mut(..head).unwrap_or_default().as_flattened_mut(),
            start.get_mut(..count - head).unwrap_or_default().as_flattened_mut(),
        ]
    }

    /// Takes over `count` descriptors that were read into the vacant slots, up to the one after which nothing is to be
    /// fetched.
    fn accept(&mut self, count: usize, watch_length: bool) {
        const GOES_ON: u32 = 0xFFFF << 16 | STOP;
        let mut last = None;
        for _ in 0..count {
            let Some(fetched) = self.slots.get(self.place(self.filled)).map(Fetched::new) else { return };
            self.filled = self.filled.wrapping_add(1);
            if watch_length {
                self.long_seen |= fetched.length > LONG;
            }
            if fetched.control & GOES_ON != MAGIC << 16 {
                self.ended = true;
                return;
            }
            last = Some(fetched);
        }
        if let Some(last) = last {
            self.next = last.next;
            self.block = block_size(last.control >> 8);
        }
    }

    fn end(&mut self, end: End) {
        self.end = Some(end);
        self.ended = true;
    }
}

/// `Nxt_adj` counts the extra descriptors.
fn block_size(adjacent: u32) -> usize {
    usize::try_from(adjacent & 0x3F).unwrap_or(0) + 1
}

impl Channel {
    fn fetch_count(&self) -> usize {
        let wanted = self.engine.prefetch.block;
        if self.fetch_halted {
            0
        } else if self.credit_mode {
            wanted.min(usize::try_from(self.credits).unwrap_or(0))
        } else {
            wanted
        }
    }

    /// Descriptors that are executed before the next fetch; 0 if a fetch is due, or if there are none.
    #[inline]
    pub(super) fn until_fetch(&self) -> usize {
        self.engine.prefetch.until_fetch(self.fetch_count())
    }

    pub(super) fn may_fetch(&self) -> bool {
        let prefetch = &self.engine.prefetch;
        let count = self.fetch_count();
        !prefetch.ended && count > 0 && prefetch.len() + count <= prefetch.capacity
    }

    /// Reads the next block, or as much of it as there are credits for.
    pub(super) fn fetch<H: HostPort + ?Sized>(&mut self, rules: Rules, lanes: &mut Lanes<'_, H>) {
        let count = self.fetch_count();
        let unit = self.unit;
        let prefetch = &mut self.engine.prefetch;
        // Bits 4:0 do not exist in a descriptor address.
        let start = prefetch.next & !31;
        let before_boundary = (FETCH_BOUNDARY - start % FETCH_BOUNDARY) / DESCRIPTOR_BYTES as u64;
        let readable = usize::try_from(before_boundary).unwrap_or(count).min(count);
        lanes.counters.descriptor_fetches += 1;
        let mut arrived = readable;
        let [head, tail] = prefetch.vacant(readable);
        let behind = Iova::new(start.wrapping_add(head.len() as u64));
        let mut read = lanes.read(unit, FaultKind::DescriptorFetchRefused, Iova::new(start), head);
        if read.is_ok() && !tail.is_empty() {
            read = lanes.read(unit, FaultKind::DescriptorFetchRefused, behind, tail);
        }
        if read.is_err() {
            // Find out how many did arrive: hardware reads them in several requests.
            arrived = 0;
            let slots =
                head.chunks_exact_mut(DESCRIPTOR_BYTES).chain(tail.chunks_exact_mut(DESCRIPTOR_BYTES));
            for slot in slots {
                let at = start.wrapping_add((arrived * DESCRIPTOR_BYTES) as u64);
                if !lanes.bus_master || lanes.host.read(Iova::new(at), slot).is_err() {
                    break;
                }
                arrived += 1;
            }
        }
        if self.credit_mode {
            self.credits -= u32::try_from(count).unwrap_or(0).min(self.credits);
        }
        let quirk = rules.long_descriptor_quirk && prefetch.long_seen && prefetch.blocks > 0 && count > 1;
        prefetch.blocks = prefetch.blocks.saturating_add(u32::from(count > 1));
        if quirk && arrived > 0 {
            prefetch.end(End::Garbage);
            return;
        }
        prefetch.accept(arrived, rules.long_descriptor_quirk);
        if prefetch.ended {
            return;
        }
        if arrived < readable {
            prefetch.end(End::Refused);
        } else if readable < count {
            lanes.faults.push(FaultKind::BlockCrossesPage, unit, start, u32::try_from(count).unwrap_or(0));
            prefetch.end(End::Garbage);
        }
    }
}
