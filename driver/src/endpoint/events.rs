//! The event ring: how the card tells the host anything without a register read.
//!
//! With the capability `EVENT_PUSH` the NI writes events into host memory, and looking for one is a load. Without it the
//! same ring lies in card memory, and small C2H transfers fetch it.

use fpga_firmware::event::{self, Event};
use fpga_firmware::generated::{EVENT_RING_ENTRIES_MAX, EVENT_RING_ENTRIES_MIN, ni as at};
use fpga_firmware::{Incarnation, NodeId, TransferId};
use fpga_pci::{DmaBuffer, QuarantineReason, RegisteredMemory, barrier};
use fpga_registers::CardAddr;

use super::{EndpointError, RESERVED_CARD_BYTES};
use crate::card::Card;
use crate::channel::{ChannelOptions, Engine, Payload, WaitOptions};
use crate::name::CardName;
use crate::ni::{Block, NiInfo};
use crate::store::host_range;

/// Entries fetched by one C2H transfer.
const FETCH_ENTRIES: u32 = 32;
/// Where the ring starts behind the CDMA chain, in the card memory that the endpoint keeps for itself.
const CARD_RING_OFFSET: u64 = 16 << 10;
/// The sequence number's place in an entry: its last word, so that it lands last.
const SEQUENCE_AT: usize = event::SIZE - 4;

/// A whole transfer has arrived in this card's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// Who sent it.
    pub node: NodeId,
    /// The sender's life.
    pub incarnation: Incarnation,
    /// The sender's number of it.
    pub transfer: TransferId,
    /// Where it is.
    pub address: CardAddr,
    /// Bytes.
    pub length: u64,
    /// Card time at which it was complete, in nanoseconds.
    pub time: u64,
}

impl From<&Event> for Notification {
    /// What a notice says.
    fn from(event: &Event) -> Self {
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

/// The host's side of the event ring.
#[derive(Debug)]
pub(super) struct EventRing {
    // In drop order: the engine stops before the memory goes that it writes.
    fetch: Option<Fetch>,
    /// The whole ring, or the part of it that was fetched last. `None` once it is in quarantine.
    area: Option<RegisteredMemory>,
    entries: u32,
    /// Sequence number of the next event.
    expected: u32,
    /// Events taken.
    consumed: u32,
    /// Events taken when the card was last told.
    released: u32,
    card: CardName,
}

/// How entries come from card memory.
#[derive(Debug)]
struct Fetch {
    c2h: Engine,
    ring: CardAddr,
    /// Which entries the area holds: the first one's number, and how many.
    first: u32,
    count: u32,
}

/// Where the ring lies in card memory, for a CDMA chain at `chain`.
pub(super) fn card_ring(chain: CardAddr) -> CardAddr {
    CardAddr::new(chain.get().wrapping_add(CARD_RING_OFFSET))
}

/// Zeros for the whole ring in card memory.
pub(super) fn blank_ring(card: &Card) -> Result<DmaBuffer, EndpointError> {
    let length = usize::try_from(RESERVED_CARD_BYTES - CARD_RING_OFFSET).unwrap_or(0);
    let mut buffer = card.buffer(length)?;
    buffer.fill(0);
    Ok(buffer)
}

impl EventRing {
    /// Entries of the ring that a card gets for which `entries` are asked: one in card memory has less room.
    pub(super) fn entries_of(info: &NiInfo, entries: u32) -> u32 {
        let room = u32::try_from((RESERVED_CARD_BYTES - CARD_RING_OFFSET) / event::SIZE as u64).unwrap_or(0);
        // Rounded down to a power of two.
        if info.event_push { entries } else { entries.min(1 << room.ilog2()) }
    }

    /// Whether a ring can have so many.
    pub(super) const fn is_size(entries: u32) -> bool {
        entries.is_power_of_two() && entries >= EVENT_RING_ENTRIES_MIN && entries <= EVENT_RING_ENTRIES_MAX
    }

    pub(super) fn new(
        card: &Card,
        info: &NiInfo,
        ni: &Block,
        entries: u32,
        chain: CardAddr,
    ) -> Result<Self, EndpointError> {
        let name = card.shared.name.clone();
        let entries = Self::entries_of(info, entries);
        let held = if info.event_push { entries } else { FETCH_ENTRIES.min(entries) };
        let area = card
            .memory()
            .allocate_registered(held as usize * event::SIZE, 4096)
            .map_err(|source| card.memory_error(source))?;
        area.memory()
            .fill(0, held as usize * event::SIZE, 0)
            .map_err(|source| EndpointError::Memory { card: name.clone(), source })?;
        let fetch = if info.event_push {
            None
        } else {
            let c2h = card.c2h_with(0, ChannelOptions::default())?.0;
            Some(Fetch { c2h, ring: card_ring(chain), first: 0, count: 0 })
        };
        let base = fetch.as_ref().map_or_else(|| area.iova().get(), |fetch| fetch.ring.get());
        ni.write_pair(at::EVENT_RING_BASE_LOW, base)
            .and_then(|()| ni.write(at::EVENT_RING_SIZE, entries))
            .and_then(|()| ni.write(at::EVENT_CONSUMED, 0))
            .map_err(|source| EndpointError::Mmio { card: name.clone(), source })?;
        Ok(Self { area: Some(area), fetch, entries, expected: 1, consumed: 0, released: 0, card: name })
    }

    /// How many events it holds.
    pub(super) const fn entries(&self) -> u32 {
        self.entries
    }

    /// Fetches the next entries, where they are in card memory.
    pub(super) fn refresh(&mut self) -> Result<(), EndpointError> {
        let (Some(fetch), Some(area)) = (&mut self.fetch, &self.area) else { return Ok(()) };
        let index = self.consumed & (self.entries - 1);
        let count = FETCH_ENTRIES.min(self.entries - index);
        let from = CardAddr::new(fetch.ring.get() + u64::from(index) * event::SIZE as u64);
        let run = area
            .run(0, count as usize * event::SIZE)
            .map_err(|source| EndpointError::Memory { card: self.card.clone(), source })?;
        let ticket =
            fetch.c2h.submit(host_range(run), from, Payload::Registered).map_err(|(error, _)| error)?;
        fetch
            .c2h
            .wait(ticket, WaitOptions::default())?
            .outcome
            .map_err(|fault| EndpointError::Upload(*fault))?;
        (fetch.first, fetch.count) = (self.consumed, count);
        Ok(())
    }

    /// The next event, if it has arrived. Where events are in card memory and all fetched ones were taken, fetches more.
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

    /// The next event, if it has arrived.
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
        let lost = |source| EndpointError::Memory { card: self.card.clone(), source };
        let found = memory.load_u32_acquire(offset + SEQUENCE_AT).map_err(lost)?;
        if found != self.expected {
            return self.unexpected(found);
        }
        barrier::writeback_before_data();
        let mut bytes = [0; event::SIZE];
        memory.read(offset, &mut bytes).map_err(lost)?;
        let decoded = Event::decode(&bytes).map_err(|source| EndpointError::Event {
            card: self.card.clone(),
            expected: self.expected,
            source,
        })?;
        self.expected = event::next_sequence(self.expected);
        self.consumed = self.consumed.wrapping_add(1);
        Ok(Some(decoded))
    }

    /// Not the event that is due: an entry of the last round (nothing new), or a later one (events were lost).
    fn unexpected(&self, found: u32) -> Result<Option<Event>, EndpointError> {
        let ahead = found.wrapping_sub(self.expected);
        if found == 0 || ahead > u32::MAX / 2 {
            return Ok(None);
        }
        Err(EndpointError::EventsLost {
            card: self.card.clone(),
            expected: self.expected,
            found,
            entries: self.entries,
        })
    }

    /// The card reports that it dropped `count` events because the ring was full.
    pub(super) fn overflowed(&self, count: u32) -> EndpointError {
        EndpointError::EventsLost {
            card: self.card.clone(),
            expected: self.expected,
            found: self.expected.saturating_add(count),
            entries: self.entries,
        }
    }

    /// Lets nobody write into the ring's memory any more before it goes back to the pool, or keeps it from going there.
    /// `pushing`: why the NI may still write events, if it may.
    pub(super) fn close(&mut self, pushing: Option<QuarantineReason>) {
        let reason = match &mut self.fetch {
            // The NI writes into card memory then, and the fetching engine into ours.
            Some(fetch) => fetch.c2h.close(),
            None => pushing,
        };
        if let Some(reason) = reason
            && let Some(area) = self.area.take()
        {
            area.quarantine(reason);
        }
    }

    /// Events taken so far, a running count: the latest one's number.
    pub(super) const fn taken(&self) -> u32 {
        self.consumed
    }

    /// Tells the card which entries may be written again: one posted write per eighth of the ring, as the contract has it
    /// (EVENT_CONSUMED), or `now`.
    pub(super) fn release(&mut self, ni: &Block, now: bool) -> Result<(), EndpointError> {
        if !now && self.consumed.wrapping_sub(self.released) < self.entries / 8 {
            return Ok(());
        }
        self.released = self.consumed;
        ni.write(at::EVENT_CONSUMED, self.consumed)
            .map_err(|source| EndpointError::Mmio { card: self.card.clone(), source })
    }
}
