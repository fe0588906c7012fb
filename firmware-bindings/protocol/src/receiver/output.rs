//! Outputs of a receiver.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::wire::Control;
use fpga_registers::{CardAddr, quantity};

/// One packet to send or event to report, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Output {
    /// Send this packet: an acknowledgement, a refusal or an operation-complete packet, with all its fields filled in.
    Send(Control),
    /// Report this event to the host. `time` is set; the event ring assigns the sequence number.
    Event(Event),
}

/// Bounded queue, allocated once.
///
/// It is not a ring: callers empty it after every call, and an empty queue restarts at its beginning, so that the few
/// slots in use stay in the processor's cache. Outputs are constructed in place and never moved.
#[derive(Clone, Debug)]
pub(super) struct Outputs {
    /// Slots outside `first..end` hold stale values.
    slots: Vec<Output>,
    first: usize,
    end: usize,
    capacity: usize,
}

// Manual implementation: stale values are not part of the state.
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
    // Always inlined, constructed in place: passed by reference, the output would be stored on the stack in small parts
    // and copied in large ones, and the copy would wait for the stores.
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

    /// Adds a slot at the end: the queue reached a new maximum length, or a caller that never empties it completely has
    /// let its start advance to the end of its memory.
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

    /// Removes and returns the first output, which stays in place until the next push.
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

/// Card memory to which the receiver writes payload.
pub trait ReceiveMemory {
    /// Stores `bytes` at `at`, all or nothing.
    ///
    /// # Errors
    /// The range is not memory.
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault>;
}

/// Write that the card memory refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "card memory refuses {length} at {address}: the range is not memory, or is read-only; check the address",
    length = quantity(*length, "byte"),
)]
pub struct MemoryFault {
    /// Address of the first byte.
    pub address: CardAddr,
    /// Length in bytes.
    pub length: u64,
}

/// Running counts of a receiver, including those of the NI's counter block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverCounters {
    /// Packets processed.
    pub packets: u64,
    /// Packets whose bit was set already.
    pub duplicates: u64,
    /// Operations registered.
    pub registrations: u64,
    /// Operations completed.
    pub completions: u64,
    /// Notifications of whole transfers.
    pub notices: u64,
    /// Packets stored in the escape channel.
    pub escape_hits: u64,
    /// Packets dropped because the escape channel was full, or because their escape timeout expired.
    pub escape_dropped: u64,
    /// Starts refused because there was no free registry entry or no record for their sender or transfer.
    pub registry_full: u64,
    /// Packets refused because a later incarnation of their sender is known.
    pub superseded: u64,
    /// Packets whose payload a switch had cut off.
    pub trimmed: u64,
    /// Packets that contradict their segment, or are not for this node.
    pub bad_packets: u64,
    /// Packets refused because the notification of their transfer had no slot in the host's event ring.
    pub not_ready: u64,
    /// Writes outside the sender's memory windows, or to addresses without memory.
    pub violations: u64,
    /// Late packets of completed operations.
    pub tombstone_hits: u64,
    /// Operations dropped because their sender sent nothing for the registry timeout, or gave up.
    pub expired: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Refusals sent.
    pub nacks: u64,
    /// Packets dropped because the caller had not polled the outputs.
    pub unpolled: u64,
    /// Maximum number of registry entries in use at once.
    pub registry_high_water: u32,
    /// Maximum number of escape slots in use at once.
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
        /// Compares with a plain queue of the same bound, also for a caller that never empties it. The memory does not
        /// grow, and queues with equal content are equal, independent of their history.
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
