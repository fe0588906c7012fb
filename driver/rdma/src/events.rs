//! Event ring: events from the card to the host without register reads.
//!
//! With the capability `EVENT_PUSH` the NI writes events into host memory, and polling is a load. Without it, the ring is in card memory,
//! and small C2H transfers fetch it.

use fpga_driver::errors::{Cause, CauseClass};
use fpga_firmware::event::{self, Event};
use fpga_firmware::generated::{EVENT_RING_ENTRIES_MAX, EVENT_RING_ENTRIES_MIN, ni as at};
use fpga_firmware::{Incarnation, NodeId, TransferId};
use fpga_pci::{DmaBuffer, QuarantineReason, RegisteredMemory, barrier};
use fpga_registers::CardAddr;

use super::{Endpoint, EndpointError, RESERVED_CARD_BYTES};
use fpga_driver::extension::RegisterBlock;
use fpga_driver::{C2hChannel, Card, MemoryHandle, NiInfo, WaitOptions};

/// Number of entries that one C2H transfer fetches.
const FETCH_ENTRIES: u32 = 32;
/// Offset of the ring from the CDMA chain, in the card memory that the endpoint reserves, in bytes.
const CARD_RING_OFFSET: u64 = 16 << 10;
/// Offset of the sequence number in an entry: the last word, so that it is written last.
const SEQUENCE_AT: usize = event::SIZE - 4;

/// Arrival of a whole transfer in this card's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// Sending node.
    pub node: NodeId,
    /// Incarnation of the sender.
    pub incarnation: Incarnation,
    /// Number of the transfer at its sender.
    pub transfer: TransferId,
    /// Card address of the data.
    pub address: CardAddr,
    /// Length in bytes.
    pub length: u64,
    /// Card time of the completion, in nanoseconds.
    pub time: u64,
}

impl Notification {
    /// Converts a notice event.
    pub(super) fn of(event: &Event) -> Self {
        Self {
            node: event.node,
            incarnation: event.incarnation,
            transfer: event.transfer,
            address: event.address,
            length: event.length,
            time: event.time,
        }
    }
}

/// Host side of the event ring.
#[derive(Debug)]
pub(super) struct EventRing {
    fetch: Option<Fetch>,
    /// Whole ring, or the part of it that was fetched last. `None` once it is in quarantine.
    area: Option<RegisteredMemory>,
    entries: u32,
    /// Sequence number of the next event.
    expected: u32,
    /// Number of events taken.
    consumed: u32,
    /// Number of events taken when credits were last returned to the card.
    released: u32,
}

/// Fetching of entries from card memory.
#[derive(Debug)]
struct Fetch {
    /// Owns the area as well, and quarantines it if its engine may still write it.
    c2h: C2hChannel,
    area: MemoryHandle,
    ring: CardAddr,
    /// Entries in the area: number of the first one, and their count.
    first: u32,
    count: u32,
}

/// Returns the card address of the ring for a CDMA chain at `chain`.
pub(super) fn card_ring(chain: CardAddr) -> CardAddr {
    CardAddr::new(chain.get().wrapping_add(CARD_RING_OFFSET))
}

/// Returns a buffer of zeros for the whole ring in card memory.
pub(super) fn blank_ring(card: &Card) -> Result<DmaBuffer, EndpointError> {
    let length = usize::try_from(RESERVED_CARD_BYTES - CARD_RING_OFFSET).unwrap_or(0);
    let mut buffer = card.buffer(length)?;
    buffer.fill(0);
    Ok(buffer)
}

impl EventRing {
    /// Returns the number of entries of the card's ring if `entries` are requested: a ring in card memory has less space.
    pub(super) fn entries_of(info: &NiInfo, entries: u32) -> u32 {
        let room = u32::try_from((RESERVED_CARD_BYTES - CARD_RING_OFFSET) / event::SIZE as u64).unwrap_or(0);
        // Rounded down to a power of two.
        if info.event_push { entries } else { entries.min(1 << room.ilog2()) }
    }

    /// Returns whether a ring can have `entries` entries.
    pub(super) const fn is_size(entries: u32) -> bool {
        entries.is_power_of_two() && entries >= EVENT_RING_ENTRIES_MIN && entries <= EVENT_RING_ENTRIES_MAX
    }

    pub(super) fn new(
        card: &Card,
        info: &NiInfo,
        ni: &RegisterBlock,
        entries: u32,
        chain: CardAddr,
    ) -> Result<Self, EndpointError> {
        let entries = Self::entries_of(info, entries);
        let held = if info.event_push { entries } else { FETCH_ENTRIES.min(entries) };
        let area = card.registered_memory(held as usize * event::SIZE)?;
        area.memory()
            .fill(0, held as usize * event::SIZE, 0)
            .map_err(|error| EndpointError::Memory(error.into()))?;
        let fetch = if info.event_push {
            None
        } else {
            let mut c2h = card.c2h(0)?;
            let handle = c2h.register_memory(area.clone()).map_err(|refused| refused.error)?;
            Some(Fetch { c2h, area: handle, ring: card_ring(chain), first: 0, count: 0 })
        };
        let base = fetch.as_ref().map_or_else(|| area.iova().get(), |fetch| fetch.ring.get());
        ni.write_pair(at::EVENT_RING_BASE_LOW, base)
            .and_then(|()| ni.write(at::EVENT_RING_SIZE, entries))
            .and_then(|()| ni.write(at::EVENT_CONSUMED, 0))
            .map_err(EndpointError::from)?;
        Ok(Self { area: Some(area), fetch, entries, expected: 1, consumed: 0, released: 0 })
    }

    /// Returns the number of entries of the ring.
    pub(super) const fn entries(&self) -> u32 {
        self.entries
    }

    /// Fetches the next entries, if they are in card memory.
    pub(super) fn refresh(&mut self) -> Result<(), EndpointError> {
        let Some(fetch) = &mut self.fetch else { return Ok(()) };
        let index = self.consumed & (self.entries - 1);
        let count = FETCH_ENTRIES.min(self.entries - index);
        let from = CardAddr::new(fetch.ring.get() + u64::from(index) * event::SIZE as u64);
        let ticket = fetch.c2h.submit_at(fetch.area, 0, count as usize * event::SIZE, from)?;
        fetch.c2h.wait_ended(ticket, WaitOptions::default())?;
        // A success is only counted.
        while let Some(done) = fetch.c2h.next_completion() {
            done.outcome.map_err(|fault| EndpointError::Upload(*fault))?;
        }
        (fetch.first, fetch.count) = (self.consumed, count);
        Ok(())
    }

    /// Returns the next event, if it has arrived. If events are in card memory and all fetched ones were taken, fetches more.
    pub(super) fn take(&mut self) -> Result<Option<Event>, EndpointError> {
        if let Some(event) = self.next()? {
            return Ok(Some(event));
        }
        let is_used_up = self
            .fetch
            .as_ref()
            .is_some_and(|fetch| fetch.count != 0 && self.consumed.wrapping_sub(fetch.first) >= fetch.count);
        if !is_used_up {
            return Ok(None);
        }
        self.refresh()?;
        self.next()
    }

    /// Returns the next event, if it has arrived.
    fn next(&mut self) -> Result<Option<Event>, EndpointError> {
        let Some(area) = &self.area else { return Ok(None) };
        let slot = match &self.fetch {
            None => self.consumed & (self.entries - 1),
            Some(fetch) => {
                let slot = self.consumed.wrapping_sub(fetch.first);
                if slot >= fetch.count {
                    return Ok(None);
                }
                slot
            }
        };
        let offset = slot as usize * event::SIZE;
        let memory = area.memory();
        let found = memory
            .load_u32_acquire(offset + SEQUENCE_AT)
            .map_err(|error| EndpointError::Memory(error.into()))?;
        if found != self.expected {
            return self.unexpected(found);
        }
        barrier::writeback_before_data();
        let mut bytes = [0; event::SIZE];
        memory.read(offset, &mut bytes).map_err(|error| EndpointError::Memory(error.into()))?;
        let decoded = Event::decode(&bytes).map_err(|error| EndpointError::Event {
            expected: self.expected,
            cause: Cause::new(CauseClass::Refused, None, error),
        })?;
        self.expected = event::next_sequence(self.expected);
        self.consumed = self.consumed.wrapping_add(1);
        Ok(Some(decoded))
    }

    /// Handles an entry that is not the expected one: an entry of the last round means no new event, a later one means lost events.
    fn unexpected(&self, found: u32) -> Result<Option<Event>, EndpointError> {
        let ahead = found.wrapping_sub(self.expected);
        if found == 0 || ahead > u32::MAX / 2 {
            return Ok(None);
        }
        Err(EndpointError::EventsLost { expected: self.expected, found, entries: self.entries })
    }

    /// Returns the error for a report that the card dropped `count` events because the ring was full.
    pub(super) fn overflowed(&self, count: u32) -> EndpointError {
        EndpointError::EventsLost {
            expected: self.expected,
            found: self.expected.saturating_add(count),
            entries: self.entries,
        }
    }

    /// Stops all writes to the ring's memory before it returns to the pool, or quarantines it. `pushing` is the reason why the NI may still
    /// write events, if it may.
    pub(super) fn close(&mut self, pushing: Option<QuarantineReason>) {
        // With a fetching engine, the NI writes into card memory.
        if self.fetch.is_none()
            && let Some(reason) = pushing
            && let Some(area) = self.area.take()
        {
            area.quarantine(reason);
        }
    }

    /// Returns the running count of events taken, which is the number of the latest one.
    pub(super) const fn taken(&self) -> u32 {
        self.consumed
    }

    /// Returns event credits to the card: one posted write (EVENT_CONSUMED) per eighth of the ring, as the contract specifies, or at once
    /// with `now`.
    pub(super) fn release(&mut self, ni: &RegisterBlock, now: bool) -> Result<(), EndpointError> {
        if !now && self.consumed.wrapping_sub(self.released) < self.entries / 8 {
            return Ok(());
        }
        self.released = self.consumed;
        ni.write(at::EVENT_CONSUMED, self.consumed).map_err(EndpointError::from)
    }
}

impl Endpoint {
    /// Returns the number of events that the card can keep for this host:
    /// [`EndpointOptions::event_entries`](super::EndpointOptions::event_entries), or fewer if the ring is in card memory and has less
    /// space. Half of them is for notifications of arrivals and for mirror events: while that half is full, transfers to this node that
    /// request a notification are answered "receiver not ready".
    #[must_use]
    pub const fn event_entries(&self) -> u32 {
        self.events.entries()
    }
}
