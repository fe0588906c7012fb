//! Resynchronisation of the mirror from the card's windows after dropped events.
//!
//! If this host does not take events, the card drops events that only describe its tables, and posts one Dropped event. After that event is
//! taken and its credit returned, such events are posted again. Then the windows can be read, because an event reports every later change.
//! The cost is a few register reads per entry, and only after dropped events.

use fpga_firmware::generated::ni as at;
use fpga_protocol::Nanos;

use super::{Endpoint, EndpointError};

/// Maximum number of entries and slots that one poll reads.
const ROWS: u32 = 1024;
/// Pause between two resynchronisations, as a multiple of the time that the last one took. It keeps a host that is always late from being
/// slowed down further.
const RESYNC_PAUSE_FACTOR: u64 = 8;

/// Progress of the resynchronisation.
#[derive(Debug, Default)]
pub(super) struct Resync {
    /// Number of entries and slots read; 0: not begun.
    rows: u32,
    /// Start time.
    began: Nanos,
    /// Time before which no resynchronisation begins.
    not_before: Nanos,
    /// Number of the last event that may repeat a change that was already read.
    settles: Option<u32>,
}

impl Resync {
    /// Restarts after dropped events: earlier reads are invalid.
    pub(super) const fn restart(&mut self) {
        self.rows = 0;
        self.settles = None;
    }

    /// Returns the earliest time at which a stale mirror can be read.
    pub(super) const fn due(&self) -> Nanos {
        self.not_before
    }

    /// Returns whether the event with this running number comes after all events that may repeat changes that were already read. Call it
    /// before each event is applied.
    pub(super) fn is_resync_complete(&mut self, event: u32) -> bool {
        self.settles.take_if(|last| event.wrapping_sub(*last).wrapping_sub(1) < u32::MAX / 2).is_some()
    }
}

impl Endpoint {
    /// Reads the card's windows into the mirror if events were dropped. Call it when every event that has arrived was taken and its credit
    /// returned to the card.
    pub(super) fn resynchronise(&mut self) -> Result<(), EndpointError> {
        let now = self.time();
        if !self.receiving.mirror.is_stale() || self.receiving.resync.not_before > now {
            return Ok(());
        }
        if self.receiving.resync.rows == 0 {
            self.receiving.resync.began = now;
            self.receiving.mirror.begin_resync();
        }
        let (entries, slots) =
            (self.receiving.windows.registry_entries(), self.receiving.windows.escape_slots());
        let all = u32::from(entries) + u32::from(slots);
        let end = self.receiving.resync.rows.saturating_add(ROWS).min(all);
        let rows = self.receiving.resync.rows..end;
        for index in (0..entries).filter(|index| rows.contains(&u32::from(*index))) {
            let entry = self.receiving.windows.entry(index)?;
            self.receiving.mirror.read_entry(index, &entry);
        }
        for index in (0..slots).filter(|index| rows.contains(&(u32::from(entries) + u32::from(*index)))) {
            let slot = self.receiving.windows.escaped(index)?;
            let age = slot.map_or(Nanos::ZERO, |(_, age)| age.into());
            self.receiving.mirror.read_slot(index, slot.map(|(packet, _)| packet).as_ref(), age);
        }
        self.receiving.resync.rows = end;
        if end < all {
            return Ok(());
        }
        let posted = self.ni.read(at::EVENT_POSTED)?;
        let dropped = self.ni.read(at::EVENTS_DROPPED)?;
        // The register has the low half of the count.
        let more = dropped.wrapping_sub(low(self.health.counters.events_dropped));
        self.health.counters.events_dropped += u64::from(more);
        self.health.counters.mirror_resyncs += 1;
        self.receiving.mirror.end_resync_read();
        let now = self.time();
        let took = now.saturating_sub(self.receiving.resync.began);
        self.receiving.resync.rows = 0;
        self.receiving.resync.not_before = now.saturating_add(took.saturating_mul(RESYNC_PAUSE_FACTOR));
        if posted == self.events.taken() {
            self.receiving.mirror.end_resync();
        } else {
            self.receiving.resync.settles = Some(posted);
        }
        Ok(())
    }
}

/// Returns the low 32 bits of a count.
fn low(count: u64) -> u32 {
    let [a, b, c, d, ..] = count.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
