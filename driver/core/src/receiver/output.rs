//! What comes out of a receiver.

use alloc::collections::VecDeque;

use fpga_firmware::event::Event;
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outputs {
    queue: VecDeque<Output>,
    capacity: usize,
}

impl Outputs {
    pub(super) fn new(capacity: usize) -> Self {
        Self { queue: VecDeque::with_capacity(capacity), capacity }
    }

    #[inline]
    pub(super) fn push(&mut self, output: Output) {
        debug_assert!(self.queue.len() < self.capacity, "the outputs of one call are bounded");
        self.queue.push_back(output);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    #[inline]
    pub(super) fn room(&self) -> usize {
        self.capacity - self.queue.len()
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
    /// Starts refused for want of a registry entry or of a record for their sender or transfer.
    pub registry_full: u64,
    /// Packets that contradict their segment, or are not for this node.
    pub bad_packets: u64,
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
    pub registry_high_water: u16,
    /// Most escape slots in use at once.
    pub escape_high_water: u16,
}
