//! What comes out of a receiver.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::wire::Control;
use fpga_registers::CardAddr;

/// One thing to do or to tell, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Output {
    /// Send this packet: an acknowledgement, a refusal or an operation-complete packet, with all its fields filled in.
    Send(Control),
    /// Tell the host. `time` is set; the sequence number is the event ring's to give.
    Event(Event),
}

/// A bounded queue, allocated once.
///
/// Not a ring: callers empty it after every call, and an empty queue starts over at its beginning, so that the few places
/// in use stay in the processor's cache. Outputs are put together in their place, never moved there.
#[derive(Clone, Debug)]
pub(super) struct Outputs {
    /// What lies outside `first..end` is left over.
    slots: Vec<Output>,
    first: usize,
    end: usize,
    capacity: usize,
}

// By hand: what is left over is no part of the state.
impl PartialEq for Outputs {
    fn eq(&self, other: &Self) -> bool {
        self.waiting() == other.waiting()
    }
}

impl Eq for Outputs {}

impl Hash for Outputs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.waiting().hash(state);
    }
}

impl Outputs {
    pub(super) fn new(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), first: 0, end: 0, capacity }
    }

    fn waiting(&self) -> &[Output] {
        self.slots.get(self.first..self.end).unwrap_or_default()
    }

    /// Appends an output.
    // Always, and into its place: handed over by reference it would be put together on the stack in small pieces and copied
    // in large ones, for which the processor waits.
    #[inline(always)]
    pub(super) fn push(&mut self, output: Output) {
        if self.end >= self.slots.len() {
            self.extend();
        }
        if let Some(place) = self.slots.get_mut(self.end) {
            *place = output;
            self.end += 1;
        }
    }

    /// Makes a place at the end: the queue was never so long before, or a caller that never quite empties it has let it
    /// wander to the end of its memory.
    #[cold]
    #[inline(never)]
    fn extend(&mut self) {
        if self.end >= self.capacity {
            self.slots.copy_within(self.first..self.end, 0);
            self.end -= self.first;
            self.first = 0;
            debug_assert!(self.end < self.capacity, "the outputs of one call are bounded");
        }
        if self.end >= self.slots.len() {
            self.slots.push(Output::Event(Event::new(EventKind::Fault)));
        }
    }

    /// Takes the first output, which stays where it is until the next one is pushed.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<&Output> {
        if self.first == self.end {
            return None;
        }
        let at = self.first;
        self.first += 1;
        if self.first == self.end {
            self.first = 0;
            self.end = 0;
        }
        self.slots.get(at)
    }

    #[inline]
    pub(super) fn space(&self) -> usize {
        self.capacity - (self.end - self.first)
    }
}

/// Where received payload goes: the card's memory, as the receiver writes it.
pub trait ReceiveMemory {
    /// Stores `bytes` at `at`, all or nothing.
    ///
    /// # Errors
    /// The range is not memory.
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault>;
}

/// A write that memory refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("card memory refuses {length} bytes at {address}: no memory there, or a read-only part")]
pub struct MemoryFault {
    /// First byte.
    pub address: CardAddr,
    /// Bytes.
    pub length: u64,
}

/// Running counts of a receiver; those of the NI's counter block among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverCounters {
    /// Packets taken.
    pub packets: u64,
    /// Packets whose bit was set already.
    pub duplicates: u64,
    /// Operations registered.
    pub registrations: u64,
    /// Operations completed.
    pub completions: u64,
    /// Whole transfers reported.
    pub notices: u64,
    /// Packets that went to the escape buffer.
    pub escape_hits: u64,
    /// Packets that the escape buffer had no room for, or that waited in vain.
    pub escape_dropped: u64,
    /// Starts refused for want of a registry entry or of a record for their sender or transfer, or because packets of their sender's
    /// former life may still be on their way.
    pub registry_full: u64,
    /// Packets that contradict their segment, or are not for this node.
    pub bad_packets: u64,
    /// Packets refused because the notice of their transfer had no slot in the host's event ring.
    pub not_ready: u64,
    /// Writes outside the sender's memory windows, or where no memory is.
    pub violations: u64,
    /// Late packets of completed operations.
    pub tombstone_hits: u64,
    /// Operations dropped because their sender fell silent or gave up.
    pub expired: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// Refusals.
    pub nacks: u64,
    /// Packets dropped because the caller had not polled the outputs.
    pub unpolled: u64,
    /// Most registry entries in use at once.
    pub registry_high_water: u32,
    /// Most escape slots in use at once.
    pub escape_high_water: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use core::hash::BuildHasher;
    use proptest::prelude::*;

    fn output(n: u64) -> Output {
        Output::Event(Event { time: n, ..Event::new(EventKind::Packet) })
    }

    proptest! {
        /// Against a plain queue of the same bound, also for a caller that never empties it; without more memory than at
        /// the start; and equal to a queue that came to the same content another way.
        #[test]
        fn outputs_match_bounded_queue(capacity in 1usize..12, steps in prop::collection::vec(any::<bool>(), 1..200)) {
            let mut outputs = Outputs::new(capacity);
            let memory = outputs.slots.capacity();
            let mut queue = VecDeque::new();
            for (n, push) in (0..).zip(steps) {
                if push && queue.len() < capacity {
                    outputs.push(output(n));
                    queue.push_back(output(n));
                } else if !push {
                    prop_assert_eq!(outputs.pop().copied(), queue.pop_front());
                }
                prop_assert_eq!(outputs.space(), capacity - queue.len());
                prop_assert_eq!(outputs.waiting(), queue.make_contiguous());
                let mut fresh = Outputs::new(capacity);
                for output in &queue {
                    fresh.push(*output);
                }
                prop_assert_eq!(&outputs, &fresh);
                let hasher = core::hash::BuildHasherDefault::<CounterSum>::default();
                prop_assert_eq!(hasher.hash_one(&outputs), hasher.hash_one(&fresh));
            }
            prop_assert_eq!(outputs.slots.capacity(), memory);
        }
    }

    #[derive(Default)]
    struct CounterSum(u64);

    impl Hasher for CounterSum {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = self.0.rotate_left(5).wrapping_mul(31).wrapping_add(u64::from(*byte));
            }
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }
}
