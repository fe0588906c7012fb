//! The DMA op table: one entry per packet in flight, named by an op number (spec 2.1.4).
//!
//! An entry moves through these states; every other pair of state and input changes nothing:
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
//! A number is a slot and a generation. A released slot can be taken again at once, because its next number differs
//! in the generation; only when the generations of a slot come round could a number name a second packet while a copy
//! of the first still wanders. The generations of a slot are therefore split into two halves, and each half
//! rests: whenever a slot's generation crosses into the other half, every number of the half it left was
//! released by then, so none of them may be issued before that moment + twice the packet lifetime: a copy of the packet may
//! wander for one lifetime, and the answer to it for another. The slot waits
//! if it comes back sooner. This needs one time stamp per slot and no assumption about the packet rate: with 16
//! bits the wait is only felt by a slot that is used more than 32768 times within two lifetimes (20 ms), that is
//! every 610 ns, which is shorter than a round trip; with fewer bits the table slows down and stays right.

use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

use fpga_firmware::ids::OpNumber;

mod slots;

use crate::time::Nanos;
use crate::timers::Timers;
use fpga_registers::cast::{index, low16};
use slots::{SlotFifo, SlotSet};

/// The largest table: slots have 16 bits, and the highest stays unused as "none".
pub const MAX_ENTRIES: u32 = 0xFFFF;

/// Size and reuse rule of an [`OpTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpTableConfig {
    /// Packets in flight at once, 1..=65535 (default 256).
    pub entries: u32,
    /// Longest time a packet may wander (default 10 ms).
    pub packet_lifetime: Nanos,
    /// Bits of the generation in use, 1..=16 (default 16).
    pub generation_bits: u8,
}

impl Default for OpTableConfig {
    fn default() -> Self {
        Self { entries: 256, packet_lifetime: Nanos::from_millis(10), generation_bits: 16 }
    }
}

/// An op table that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpTableError {
    /// Entry count out of range.
    #[error("an op table of {found} entries: give 1 to {MAX_ENTRIES}")]
    Entries {
        /// Entries asked for.
        found: u32,
    },
    /// Generation width out of range.
    #[error("op numbers with {found} generation bits: give 1 to 16")]
    GenerationBits {
        /// Bits asked for.
        found: u8,
    },
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpState {
    /// Not in use.
    #[default]
    Free,
    /// Sent; an answer or the deadline is awaited.
    InFlight,
    /// Refused by a busy receiver; due again when its deadline passes.
    Waiting,
    /// To be sent again as soon as a transmit window is free.
    Due,
}

/// One entry, as the sender and a status display see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Op {
    /// Its op number.
    pub number: OpNumber,
    /// State.
    pub state: OpState,
    /// The sender's segment record that the packet belongs to.
    pub segment: u16,
    /// Packet index within the segment.
    pub packet: u16,
    /// How often it was sent; saturates at 255.
    pub tries: u8,
    /// How many times in a row its deadline passed without any answer; saturates at 255.
    pub silent: u8,
    /// How many times in a row the receiver was busy; saturates at 255.
    pub busy: u8,
    /// When it was last sent.
    pub sent: Nanos,
    /// When it is looked at again; [`Nanos::MAX`] if never.
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
    sent: Nanos,
}

/// The table; see the module's description. Take and acknowledge are O(1) and allocate nothing.
#[derive(Clone, Debug)]
pub struct OpTable {
    entries: Box<[Entry]>,
    /// One per slot, and each in use runs or is due.
    timers: Timers,
    /// Per slot: when the half of the generations that it is not in may be issued again.
    rest_until: Box<[Nanos]>,
    free: SlotFifo,
    /// Slots whose next number is still resting.
    in_reuse_delay: SlotFifo,
    due: SlotSet,
    generation_mask: u16,
    /// How long a number rests: a packet's lifetime and its answer's.
    rest: Nanos,
}

// By hand: the order in which free slots are given out is left out. Their next numbers are known to nobody yet, so they are as good
// as each other to whoever compares states.
impl Hash for OpTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (slot, entry) in (0..).zip(&self.entries) {
            (entry.generation, entry.state).hash(state);
            if entry.state != OpState::Free {
                let deadline = self.timers.deadline(slot);
                (entry.segment, entry.packet, entry.tries, entry.silent, entry.busy, entry.sent, deadline)
                    .hash(state);
            }
        }
        for slot in self.in_reuse_delay.iter() {
            (slot, self.entries.get(usize::from(slot)).map(|entry| entry.sent)).hash(state);
        }
        (self.in_reuse_delay.len(), &self.due, &self.rest_until).hash(state);
    }
}

impl OpTable {
    /// Bytes of state of one entry: itself, its timer, its rest, and its places in the lists of slots.
    pub(crate) const BYTES: usize =
        size_of::<Entry>() + Timers::BYTES + size_of::<Nanos>() + 2 * size_of::<u16>() + 1;

    /// Allocates the table.
    ///
    /// # Errors
    /// A size or width out of range.
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
            generation_mask: u16::MAX >> (16 - config.generation_bits),
            rest: config.packet_lifetime.saturating_mul(2),
        })
    }

    pub(crate) const fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Entries in the table.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.free.capacity()
    }

    /// Entries that [`OpTable::take`] would give out now. Calls in slots whose rest is over.
    pub fn available(&mut self, now: Nanos) -> u32 {
        if self.in_reuse_delay.len() != 0 {
            self.release_reusable(now);
        }
        self.free.len()
    }

    /// Entries in use.
    #[must_use]
    pub const fn in_use(&self) -> u32 {
        self.free.capacity() - self.free.len() - self.in_reuse_delay.len()
    }

    /// Entries that are not in use, but whose next op number still rests.
    #[must_use]
    pub const fn in_reuse_delay(&self) -> u32 {
        self.in_reuse_delay.len()
    }

    /// When [`OpTable::available`] is worth asking again because a number has rested; `None` if none rests. Free entries do not
    /// make it pointless: who may take all but a reserve waits for one more.
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

    /// Takes an entry for a packet that is sent now, or `None` (back-pressure).
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
        entry.sent = now;
        let number = OpNumber::from_parts(slot, entry.generation);
        self.timers.start(slot.into(), deadline);
        Some(number)
    }

    /// Releases the entry of `number` and returns what it held; `None` if the number is stale: released before, or of
    /// an earlier generation, or not of this table.
    #[inline]
    pub fn acknowledge(&mut self, now: Nanos, number: OpNumber) -> Option<Op> {
        let op = self.get(number)?;
        self.release(now, number.slot());
        Some(op)
    }

    /// The entry of `number`, unless it is stale.
    #[inline]
    #[must_use]
    pub fn get(&self, number: OpNumber) -> Option<Op> {
        let op = self.slot(number.slot())?;
        (op.number == number).then_some(op)
    }

    /// What is in `slot`; `None` if nothing.
    #[inline]
    #[must_use]
    pub fn slot(&self, slot: u16) -> Option<Op> {
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
            deadline: self.timers.deadline(slot.into()),
        })
    }

    /// All entries in use, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = Op> + '_ {
        (0..self.capacity()).filter_map(|slot| self.slot(low16(slot)))
    }

    /// A negative answer of a busy receiver: the packet waits until `until`. Not silence (spec 2.1.5), so the count of
    /// silent deadlines starts afresh. A packet that is already due stays due.
    pub fn refuse(&mut self, number: OpNumber, until: Nanos) {
        let slot = number.slot();
        let Some(Op { state: OpState::InFlight | OpState::Waiting, .. }) = self.get(number) else { return };
        let entry = &mut self.entries[usize::from(slot)];
        entry.state = OpState::Waiting;
        entry.silent = 0;
        entry.busy = entry.busy.saturating_add(1);
        self.timers.start(slot.into(), until);
    }

    /// Makes the packet due again. `silent`: its deadline passed without an answer.
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

    /// The next packet that is due: it is in flight again, with one more try. Slots take turns.
    #[inline]
    pub fn take_due(&mut self, now: Nanos, deadline: impl FnOnce(&Op) -> Nanos) -> Option<Op> {
        let slot = self.due.take_next()?;
        let entry = &mut self.entries[usize::from(slot)];
        entry.state = OpState::InFlight;
        entry.tries = entry.tries.saturating_add(1);
        entry.sent = now;
        let mut op = self.slot(slot)?;
        op.deadline = deadline(&op);
        self.timers.start(slot.into(), op.deadline);
        Some(op)
    }

    /// A time before which no deadline passes; `None` if there is none. It may be early by as much as
    /// acknowledged packets have left behind; [`OpTable::expired`] then finds nothing and corrects it.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// One entry after another whose deadline has passed while it was in flight; waiting ones become due on the
    /// way. `None` ends the pass. A reported entry has no deadline any more: the caller has to make it due, to release it, or
    /// to give it a new one with [`OpTable::extend`].
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

    /// Gives an entry in flight a new deadline.
    pub fn extend(&mut self, number: OpNumber, deadline: Nanos) {
        if let Some(Op { state: OpState::InFlight, .. }) = self.get(number) {
            self.timers.start(number.slot().into(), deadline);
        }
    }

    /// Frees a slot in use and steps its generation.
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

    /// The slot's generation moved into its other half: that half may still rest, and the one left rests from now on.
    #[cold]
    fn switch_half(&mut self, now: Nanos, slot: u16) {
        let rest = &mut self.rest_until[usize::from(slot)];
        let ready = core::mem::replace(rest, now.saturating_add(self.rest));
        // Its time stamp is unused while the slot rests.
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

    /// Moves every rested slot to the free ones.
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
