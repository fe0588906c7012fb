//! The mirror after dropped events: read anew from the card's windows.
//!
//! The card drops events that only describe its tables where this host does not take them, and posts one Dropped event. When that was taken
//! and given back, such events are posted again, so the windows can be read: what changes behind the reading is told. This costs a few
//! register reads per entry, and nothing where no event was dropped.

use fpga_firmware::generated::ni as at;
use fpga_protocol::Nanos;

use super::{Endpoint, EndpointError};

/// Entries and slots that one poll reads at most.
const ROWS: u32 = 1024;
/// After a reading, polls do without another one for so many times as long as it took: a host that is always late is not slowed
/// down further.
const RESYNC_PAUSE_FACTOR: u64 = 8;

/// How far the reading is.
#[derive(Debug, Default)]
pub(super) struct Resync {
    /// Entries and slots that were read; 0: it has not begun.
    rows: u32,
    /// When it began.
    began: Nanos,
    /// No reading begins before.
    not_before: Nanos,
    /// The last event that may tell again what was read.
    settles: Option<u32>,
}

impl Resync {
    /// Events were dropped: what was read before does not count.
    pub(super) const fn restart(&mut self) {
        self.rows = 0;
        self.settles = None;
    }

    /// When a mirror that is stale can be read.
    pub(super) const fn due(&self) -> Nanos {
        self.not_before
    }

    /// Whether the event of this running number comes behind everything that may tell again what was read. To be asked before each event
    /// is taken over.
    pub(super) fn is_resync_complete(&mut self, event: u32) -> bool {
        self.settles.take_if(|last| event.wrapping_sub(*last).wrapping_sub(1) < u32::MAX / 2).is_some()
    }
}

impl Endpoint {
    /// Reads the card's windows into the mirror if events were dropped. To be called when every event that has arrived was taken, and given
    /// back to the card.
    pub(super) fn resynchronise(&mut self) -> Result<(), EndpointError> {
        let now = self.now();
        if !self.mirror.is_stale() || self.resync.not_before > now {
            return Ok(());
        }
        if self.resync.rows == 0 {
            self.resync.began = now;
            self.mirror.begin_resync();
        }
        let (entries, slots) = (self.tables.registry_entries(), self.tables.escape_slots());
        let all = u32::from(entries) + u32::from(slots);
        let end = self.resync.rows.saturating_add(ROWS).min(all);
        let rows = self.resync.rows..end;
        for index in (0..entries).filter(|index| rows.contains(&u32::from(*index))) {
            let entry = self.tables.entry(index)?;
            self.mirror.read_entry(index, &entry);
        }
        for index in (0..slots).filter(|index| rows.contains(&(u32::from(entries) + u32::from(*index)))) {
            let slot = self.tables.escaped(index)?;
            let age = slot.map_or(Nanos::ZERO, |slot| slot.age);
            self.mirror.read_slot(index, slot.map(|slot| slot.packet).as_ref(), age);
        }
        self.resync.rows = end;
        if end < all {
            return Ok(());
        }
        let mmio = |source| EndpointError::Mmio { card: self.card.shared.name.clone(), source };
        let posted = self.ni.read(at::EVENT_POSTED).map_err(mmio)?;
        let dropped = self.ni.read(at::EVENTS_DROPPED).map_err(mmio)?;
        // The register is the low half of the count.
        let more = dropped.wrapping_sub(low(self.counters.events_dropped));
        self.counters.events_dropped += u64::from(more);
        self.counters.mirror_resyncs += 1;
        self.mirror.end_resync_read();
        let now = self.now();
        let took = now.saturating_sub(self.resync.began);
        self.resync.rows = 0;
        self.resync.not_before = now.saturating_add(took.saturating_mul(RESYNC_PAUSE_FACTOR));
        if posted == self.events.taken() {
            self.mirror.end_resync();
        } else {
            self.resync.settles = Some(posted);
        }
        Ok(())
    }
}

/// The low 32 bits of a count.
fn low(count: u64) -> u32 {
    let [a, b, c, d, ..] = count.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
