//! DMA op table: one entry per packet in flight, named by an op number (docs/protocol.md 4.4).
//!
//! State transitions of an entry; every other pair of state and input has no effect:
//!
//! | state | take | acknowledge | deadline passes | refused, wait | refused, again | resend |
//! |---|---|---|---|---|---|---|
//! | free | in flight | stale | - | stale | stale | - |
//! | in flight | - | free | reported to the sender | waiting | due | - |
//! | waiting | - | free | due | waiting | due | - |
//! | due | - | free | - | - | - | in flight, try + 1 |
//!
//! # Op numbers [E1-13]
//!
//! A number is a slot and a generation. A released slot can be reused at once, because its next number differs in the
//! generation. Only when the generations of a slot wrap could a number name a second packet while a copy of the first
//! is still in the network.
//!
//! Therefore the generations of a slot are split into two halves, and each half has a reuse delay. When a slot's
//! generation crosses into the other half, every number of the half that it left has been released. None of these
//! numbers is issued again before that time + twice the packet lifetime: a copy of the packet may stay in the network
//! for one lifetime, and the answer to it for another. A slot that gets there sooner waits.
//!
//! This needs one time stamp per slot and no assumption about the packet rate. With 16 bits, a slot waits only if it is
//! used more than 32768 times within two lifetimes (20 ms), that is every 610 ns, which is shorter than a round trip.
//! With fewer bits the table is slower and still correct.

use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

use fpga_firmware::ids::OpNumber;
use fpga_registers::quantity;

mod slots;

use crate::time::Nanos;
use crate::timers::Timers;
use fpga_registers::cast::{index, low16};
use slots::{SlotFifo, SlotSet};

/// Maximum number of entries: slots have 16 bits, and the highest value means "none".
pub const MAX_ENTRIES: u32 = 0xFFFF;

/// Size and reuse rule of an [`OpTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpTableConfig {
    /// Maximum number of packets in flight, 1..=65535 (default 256).
    pub entries: u32,
    /// Packet lifetime: maximum time that a packet can stay in the network (default 10 ms).
    pub packet_lifetime: Nanos,
    /// Bits of the generation in use, 1..=16 (default 16).
    pub generation_bits: u8,
}

impl Default for OpTableConfig {
    fn default() -> Self {
        Self { entries: 256, packet_lifetime: Nanos::from_millis(10), generation_bits: 16 }
    }
}

/// Invalid op table configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpTableError {
    /// Entry count out of range.
    #[error(
        "an op table of {found} is not possible: give 1 to {MAX_ENTRIES}",
        found = quantity(*found, "entry"),
    )]
    Entries {
        /// Number of entries given.
        found: u32,
    },
    /// Generation width out of range.
    #[error("op numbers with {found} generation bits are not possible: give 1 to 16")]
    GenerationBits {
        /// Number of bits given.
        found: u8,
    },
}

/// State of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpState {
    /// Not in use.
    #[default]
    Free,
    /// Sent; an answer or the deadline is awaited.
    InFlight,
    /// Refused by a busy receiver; due when its deadline passes.
    Waiting,
    /// To be retransmitted as soon as a transmit window is free.
    Due,
}

/// View of one entry, for the sender and for a status display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Op {
    /// Op number.
    pub number: OpNumber,
    /// State.
    pub state: OpState,
    /// The sender's segment record that the packet belongs to.
    pub segment: u16,
    /// Packet index within the segment.
    pub packet: u16,
    /// Number of times that it was sent; saturates at 255.
    pub tries: u8,
    /// Consecutive deadlines that passed without an answer; saturates at 255.
    pub silent: u8,
    /// Consecutive "busy" answers; saturates at 255.
    pub busy: u8,
    /// Time of the last sending.
    pub sent: Nanos,
    /// Time of the first sending; `None` if that was more than four seconds before the last one.
    pub first_sent: Option<Nanos>,
    /// Deadline; [`Nanos::MAX`] without one.
    pub deadline: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    generation: u16,
    segment: u16,
    packet: u16,
    state: OpState,
    tries: u8,
    silent: u8,
    busy: u8,
    /// Nanoseconds from the first to the last sending; saturates.
    resent_after: u32,
    sent: Nanos,
}

impl Entry {
    fn first_sent(&self) -> Option<Nanos> {
        let after = Nanos::new(self.resent_after.into());
        (self.resent_after != u32::MAX).then(|| self.sent.saturating_sub(after))
    }
}

/// Op table; see the module documentation. Take and acknowledge are O(1) and allocate nothing.
#[derive(Clone, Debug)]
pub struct OpTable {
    entries: Box<[Entry]>,
    /// One per slot. The timer of each slot in use runs, or the slot is due.
    timers: Timers,
    /// Per slot: time from which the other half of its generations may be issued again.
    rest_until: Box<[Nanos]>,
    free: SlotFifo,
    /// Slots whose next number is in its reuse delay.
    in_reuse_delay: SlotFifo,
    due: SlotSet,
    /// Number of entries read.
    #[cfg(test)]
    visits: core::cell::Cell<u64>,
    generation_mask: u16,
    /// Reuse delay: the lifetimes of a packet and of its answer.
    rest: Nanos,
}

// Manual implementation without the order of the free list. No other party knows the next numbers of free slots, so
// states that differ only in that order are equivalent.
impl Hash for OpTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (slot, entry) in (0..).zip(&self.entries) {
            (entry.generation, entry.state).hash(state);
            if entry.state != OpState::Free {
                let deadline = self.timers.deadline(slot);
                (entry.segment, entry.packet, entry.tries, entry.silent, entry.busy).hash(state);
                (entry.sent, entry.resent_after, deadline).hash(state);
            }
        }
        for slot in self.in_reuse_delay.iter() {
            (slot, self.entries.get(usize::from(slot)).map(|entry| entry.sent)).hash(state);
        }
        (self.in_reuse_delay.len(), &self.due, &self.rest_until).hash(state);
    }
}

impl OpTable {
    /// Bytes of state of one entry: the entry, its timer, its reuse time, and its slots in the lists of slots.
    pub(crate) const BYTES: usize =
        size_of::<Entry>() + Timers::BYTES + size_of::<Nanos>() + 2 * size_of::<u16>() + 1;

    /// Creates the table and allocates its memory.
    ///
    /// # Errors
    /// A size or width is out of range.
    pub fn new(config: OpTableConfig) -> Result<Self, OpTableError> {
        if config.entries == 0 || config.entries > MAX_ENTRIES {
            return Err(OpTableError::Entries { found: config.entries });
        }
        if config.generation_bits == 0 || config.generation_bits > 16 {
            return Err(OpTableError::GenerationBits { found: config.generation_bits });
        }
        let entries = index(config.entries);
        let mut free = SlotFifo::new(config.entries);
        for slot in 0..config.entries {
            free.push(low16(slot));
        }
        Ok(Self {
            entries: alloc::vec![Entry::default(); entries].into_boxed_slice(),
            timers: Timers::new(config.entries),
            rest_until: alloc::vec![Nanos::ZERO; entries].into_boxed_slice(),
            free,
            in_reuse_delay: SlotFifo::new(config.entries),
            due: SlotSet::new(config.entries),
            #[cfg(test)]
            visits: core::cell::Cell::new(0),
            generation_mask: u16::MAX >> (16 - config.generation_bits),
            rest: config.packet_lifetime.saturating_mul(2),
        })
    }

    #[cfg(test)]
    pub(crate) fn visits(&self) -> u64 {
        self.visits.get()
    }

    pub(crate) const fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Returns the number of entries.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.free.capacity()
    }

    /// Returns the number of entries that [`OpTable::take`] can allocate now. Reclaims slots whose reuse delay has
    /// ended.
    pub fn available(&mut self, now: Nanos) -> u32 {
        if self.in_reuse_delay.len() != 0 {
            self.release_reusable(now);
        }
        self.free.len()
    }

    /// Returns the number of entries in use.
    #[must_use]
    pub const fn in_use(&self) -> u32 {
        self.free.capacity() - self.free.len() - self.in_reuse_delay.len()
    }

    /// Returns the number of entries that are not in use, but whose next op number is in its reuse delay.
    #[must_use]
    pub const fn in_reuse_delay(&self) -> u32 {
        self.in_reuse_delay.len()
    }

    /// Returns the time at which [`OpTable::available`] can grow because a reuse delay ends; `None` without a slot in
    /// its reuse delay. It is returned also while entries are free: a caller that may take all but a reserve waits for
    /// one more.
    #[must_use]
    pub fn next_reusable(&self) -> Option<Nanos> {
        if self.in_reuse_delay.len() == 0 {
            return None;
        }
        self.in_reuse_delay
            .iter()
            .filter_map(|slot| self.entries.get(usize::from(slot)))
            .map(|entry| entry.sent)
            .min()
    }

    /// Takes an entry for a packet that is sent now; `None` is back-pressure.
    #[inline]
    pub fn take(&mut self, now: Nanos, segment: u16, packet: u16, deadline: Nanos) -> Option<OpNumber> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.take_reusable(now)?,
        };
        let at = usize::from(slot);
        let entry = &mut self.entries[at];
        entry.segment = segment;
        entry.packet = packet;
        entry.state = OpState::InFlight;
        entry.tries = 1;
        entry.silent = 0;
        entry.busy = 0;
        (entry.sent, entry.resent_after) = (now, 0);
        let number = OpNumber::from_parts(slot, entry.generation);
        self.timers.start(slot.into(), deadline);
        Some(number)
    }

    /// Releases the entry of `number` and returns its content; `None` if the number is stale: released before, of an
    /// earlier generation, or not of this table.
    #[inline]
    pub fn acknowledge(&mut self, now: Nanos, number: OpNumber) -> Option<Op> {
        let op = self.get(number)?;
        self.release(now, number.slot());
        Some(op)
    }

    /// Returns the entry of `number`, unless it is stale.
    #[inline]
    #[must_use]
    pub fn get(&self, number: OpNumber) -> Option<Op> {
        let op = self.slot(number.slot())?;
        (op.number == number).then_some(op)
    }

    /// Returns the entry in `slot`; `None` if the slot is free.
    #[inline]
    #[must_use]
    pub fn slot(&self, slot: u16) -> Option<Op> {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        let entry = self.entries.get(usize::from(slot))?;
        if entry.state == OpState::Free {
            return None;
        }
        Some(Op {
            number: OpNumber::from_parts(slot, entry.generation),
            state: entry.state,
            segment: entry.segment,
            packet: entry.packet,
            tries: entry.tries,
            silent: entry.silent,
            busy: entry.busy,
            sent: entry.sent,
            first_sent: entry.first_sent(),
            deadline: self.timers.deadline(slot.into()),
        })
    }

    /// Returns all entries in use, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = Op> + '_ {
        (0..self.capacity()).filter_map(|slot| self.slot(low16(slot)))
    }

    /// Handles a negative answer of a busy receiver: the packet waits until `until`. The receiver has answered (spec
    /// 2.1.5), so the count of unanswered deadlines is reset. A packet that is already due stays due.
    pub fn refuse(&mut self, number: OpNumber, until: Nanos) {
        let slot = number.slot();
        let Some(Op { state: OpState::InFlight | OpState::Waiting, .. }) = self.get(number) else { return };
        let entry = &mut self.entries[usize::from(slot)];
        entry.state = OpState::Waiting;
        entry.silent = 0;
        entry.busy = entry.busy.saturating_add(1);
        self.timers.start(slot.into(), until);
    }

    /// Makes the packet due at once after a refusal.
    pub fn resend_refused(&mut self, number: OpNumber) {
        self.resend(number, false);
        if let Some(Op { state: OpState::Due, .. }) = self.get(number) {
            let entry = &mut self.entries[usize::from(number.slot())];
            entry.busy = entry.busy.saturating_add(1);
            entry.silent = 0;
        }
    }

    /// Makes the packet due. `silent`: its deadline passed without an answer.
    pub fn resend(&mut self, number: OpNumber, silent: bool) {
        let slot = number.slot();
        let Some(Op { state: OpState::InFlight | OpState::Waiting, .. }) = self.get(number) else { return };
        let entry = &mut self.entries[usize::from(slot)];
        entry.state = OpState::Due;
        if silent {
            entry.silent = entry.silent.saturating_add(1);
            entry.busy = 0;
        }
        self.due.insert(slot);
        self.timers.stop(slot.into());
    }

    /// Whether a packet is due.
    #[must_use]
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the next packet that is due, in flight again with one more try. Slots are served in turn.
    #[inline]
    pub fn take_due(&mut self, now: Nanos, deadline: impl FnOnce(&Op) -> Nanos) -> Option<Op> {
        let slot = self.due.take_next()?;
        let entry = &mut self.entries[usize::from(slot)];
        entry.state = OpState::InFlight;
        entry.tries = entry.tries.saturating_add(1);
        let later = u32::try_from(now.saturating_sub(entry.sent).get()).unwrap_or(u32::MAX);
        entry.resent_after = entry.resent_after.saturating_add(later);
        entry.sent = now;
        let mut op = self.slot(slot)?;
        op.deadline = deadline(&op);
        self.timers.start(slot.into(), op.deadline);
        Some(op)
    }

    /// Returns the packet that [`Self::take_due`] returns next.
    pub(crate) fn first_due(&self) -> Option<Op> {
        self.due.first().and_then(|slot| self.slot(slot))
    }

    /// Excludes a packet that is due from [`Self::take_due`].
    pub(crate) fn hold_due(&mut self, slot: u16) {
        self.due.remove(slot);
    }

    /// Includes a packet again that was excluded, if it is still due.
    pub(crate) fn return_due(&mut self, slot: u16) {
        if self.slot(slot).is_some_and(|op| op.state == OpState::Due) {
            self.due.insert(slot);
        }
    }

    /// Returns a lower bound of the next deadline; `None` without one. Timers of acknowledged packets may make it
    /// early; [`OpTable::expired`] then finds no entry and corrects it.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// Returns the next entry whose deadline passed while it was in flight, and makes expired waiting entries due.
    /// `None` ends the pass. A returned entry has no deadline any more: the caller has to make it due, release it, or
    /// give it a new deadline with [`OpTable::extend`].
    pub fn expired(&mut self, now: Nanos) -> Option<Op> {
        while let Some(timer) = self.timers.expired(now) {
            let Some(op) = self.slot(low16(timer)) else { continue };
            if op.state == OpState::Waiting {
                self.resend(op.number, false);
            } else {
                return Some(op);
            }
        }
        None
    }

    /// Postpones a packet that is due: it waits until `until`.
    pub fn postpone(&mut self, number: OpNumber, until: Nanos) {
        let slot = number.slot();
        if let Some(Op { state: OpState::Due, .. }) = self.get(number) {
            self.due.remove(slot);
            self.entries[usize::from(slot)].state = OpState::Waiting;
            self.timers.start(slot.into(), until);
        }
    }

    /// Sets a new deadline for an entry in flight.
    pub fn extend(&mut self, number: OpNumber, deadline: Nanos) {
        if let Some(Op { state: OpState::InFlight, .. }) = self.get(number) {
            self.timers.start(number.slot().into(), deadline);
        }
    }

    /// Sets the time at which an entry in flight was sent, and its deadline.
    pub fn depart(&mut self, number: OpNumber, sent: Nanos, deadline: Nanos) {
        if let Some(Op { state: OpState::InFlight, .. }) = self.get(number) {
            let entry = &mut self.entries[usize::from(number.slot())];
            (entry.sent, entry.resent_after) = (sent, 0);
            self.timers.start(number.slot().into(), deadline);
        }
    }

    /// Frees a slot in use and increments its generation.
    #[inline]
    fn release(&mut self, now: Nanos, slot: u16) {
        let at = usize::from(slot);
        let entry = &mut self.entries[at];
        if entry.state == OpState::Due {
            self.due.remove(slot);
        }
        entry.state = OpState::Free;
        self.timers.stop(slot.into());
        let old = entry.generation;
        entry.generation = old.wrapping_add(1) & self.generation_mask;
        let half = (self.generation_mask >> 1) + 1;
        if (old ^ entry.generation) & half == 0 {
            self.free.push(slot);
        } else {
            self.switch_half(now, slot);
        }
    }

    /// Handles a slot whose generation moved into its other half: that half may still be in its reuse delay, and the
    /// reuse delay of the half that it left starts now.
    #[cold]
    fn switch_half(&mut self, now: Nanos, slot: u16) {
        let rest = &mut self.rest_until[usize::from(slot)];
        let ready = core::mem::replace(rest, now.saturating_add(self.rest));
        // The slot's time stamp is unused during the reuse delay.
        self.entries[usize::from(slot)].sent = ready;
        if ready <= now {
            self.free.push(slot);
        } else {
            self.in_reuse_delay.push(slot);
        }
    }

    #[cold]
    fn take_reusable(&mut self, now: Nanos) -> Option<u16> {
        self.release_reusable(now);
        self.free.pop()
    }

    /// Moves every slot whose reuse delay has ended to the free list.
    #[cold]
    fn release_reusable(&mut self, now: Nanos) {
        for _ in 0..self.in_reuse_delay.len() {
            let Some(slot) = self.in_reuse_delay.pop() else { return };
            if self.entries[usize::from(slot)].sent <= now {
                self.free.push(slot);
            } else {
                self.in_reuse_delay.push(slot);
            }
        }
    }
}
