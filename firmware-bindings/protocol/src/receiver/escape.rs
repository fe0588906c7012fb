//! Escape channel: bounded buffer for packets that arrive before their operation is registered (docs/protocol.md 5.6).

use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

use fpga_firmware::wire::DataHeader;

use super::registry::SegmentKey;
use crate::time::Nanos;
use fpga_registers::cast::low16;

/// Waits of packets that the timeout exceeds: the path delays a first packet by several times the usual, too.
const WAITS: u64 = 4;
/// Share by which the maximum wait decays with each packet.
const DECAY: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    header: DataHeader,
    length: u16,
    arrived: Nanos,
    deadline: Nanos,
}

/// Result of offering a packet to the escape channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EscapeResult {
    /// Stored in this slot.
    Stored(u16),
    /// The same packet was stored already; its op number and try count are updated to the latest copy.
    Refreshed,
    /// No free slot.
    Full,
}

/// The escape channel. All memory is allocated at construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Escape {
    slots: Box<[Option<Slot>]>,
    payloads: Box<[u8]>,
    packet_size: usize,
    occupancy: u16,
    pub(super) next_deadline: Nanos,
    /// Maximum recent wait of a packet whose operation was registered.
    most: Nanos,
}

// Manual implementation: stale payload bytes of a vacant slot are not part of the state, and neither are measured times.
impl PartialEq for Escape {
    fn eq(&self, other: &Self) -> bool {
        self.slots == other.slots && (0..self.capacity()).all(|slot| self.peek(slot) == other.peek(slot))
    }
}

impl Eq for Escape {}

impl Hash for Escape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.slots.hash(state);
        for slot in 0..self.capacity() {
            self.peek(slot).hash(state);
        }
    }
}

impl Escape {
    /// Bytes of state of one slot, without its payload.
    pub(super) const BYTES: usize = size_of::<Option<Slot>>();

    pub(super) fn new(slots: u16, packet_size: usize) -> Self {
        Self {
            slots: alloc::vec![None; usize::from(slots)].into_boxed_slice(),
            payloads: alloc::vec![0; usize::from(slots) * packet_size].into_boxed_slice(),
            packet_size,
            occupancy: 0,
            next_deadline: Nanos::MAX,
            most: Nanos::ZERO,
        }
    }

    /// Returns the time for which a packet may wait: the configured one, or several times the recent waits, at most `limit`.
    pub(super) fn timeout(&self, configured: Nanos, limit: Nanos) -> Nanos {
        configured.max(self.most.saturating_mul(WAITS).min(limit))
    }

    /// Records that the operation of a packet was registered after the packet had waited for `wait`.
    pub(super) fn note_wait(&mut self, wait: Nanos) {
        let faded = self.most.get() - self.most.get() / DECAY;
        self.most = wait.max(Nanos::new(faded));
    }

    pub(super) fn capacity(&self) -> u16 {
        low16(u32::try_from(self.slots.len()).unwrap_or(u32::MAX))
    }

    pub(super) const fn occupancy(&self) -> u16 {
        self.occupancy
    }

    /// Stores a packet of at most `packet_size` bytes.
    pub(super) fn offer(
        &mut self,
        now: Nanos,
        deadline: Nanos,
        header: &DataHeader,
        payload: &[u8],
    ) -> EscapeResult {
        let mut vacant = None;
        for (at, slot) in self.slots.iter_mut().enumerate() {
            match slot {
                None if vacant.is_none() => vacant = Some(at),
                Some(held)
                    if held.header.address == header.address && key_of(&held.header) == key_of(header) =>
                {
                    // A retransmission must not take a second slot. The acknowledgement should echo the latest try, and its
                    // waiting time.
                    held.arrived = now;
                    held.header.op = header.op;
                    held.header.tries = header.tries;
                    return EscapeResult::Refreshed;
                }
                _ => {}
            }
        }
        let Some(at) = vacant else { return EscapeResult::Full };
        let start = at * self.packet_size;
        let Some(place) = self.payloads.get_mut(start..start + payload.len()) else {
            return EscapeResult::Full;
        };
        place.copy_from_slice(payload);
        let (Ok(slot), Ok(length)) = (u16::try_from(at), u16::try_from(payload.len())) else {
            return EscapeResult::Full;
        };
        self.slots[at] = Some(Slot { header: *header, length, arrived: now, deadline });
        self.occupancy += 1;
        self.next_deadline = self.next_deadline.min(deadline);
        EscapeResult::Stored(slot)
    }

    /// Returns header and payload of the packet in `slot`.
    pub(super) fn peek(&self, slot: u16) -> Option<(&DataHeader, &[u8])> {
        let held = self.slots.get(usize::from(slot))?.as_ref()?;
        let start = usize::from(slot) * self.packet_size;
        Some((&held.header, self.payloads.get(start..start + usize::from(held.length))?))
    }

    pub(super) fn arrived(&self, slot: u16) -> Option<Nanos> {
        Some(self.slots.get(usize::from(slot))?.as_ref()?.arrived)
    }

    /// Returns the first slot from `from` on that holds a packet of `key`.
    pub(super) fn find(&self, key: &SegmentKey, from: u16) -> Option<u16> {
        if self.occupancy == 0 {
            return None;
        }
        (from..self.capacity()).find(|&slot| {
            self.slots[usize::from(slot)].as_ref().is_some_and(|held| key_of(&held.header) == *key)
        })
    }

    pub(super) fn release(&mut self, slot: u16) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            self.occupancy -= u16::from(place.take().is_some());
        }
        if self.occupancy == 0 {
            self.next_deadline = Nanos::MAX;
        }
    }

    /// Returns the first slot from `from` on whose deadline has passed.
    pub(super) fn expired(&self, now: Nanos, from: u16) -> Option<u16> {
        (from..self.capacity())
            .find(|&slot| self.slots[usize::from(slot)].as_ref().is_some_and(|held| held.deadline <= now))
    }

    /// Sets the timer to the earliest deadline.
    pub(super) fn reset_timer(&mut self) {
        self.next_deadline =
            self.slots.iter().flatten().map(|held| held.deadline).min().unwrap_or(Nanos::MAX);
    }
}

pub(super) fn key_of(header: &DataHeader) -> SegmentKey {
    SegmentKey {
        source: header.common.source,
        incarnation: header.common.incarnation,
        transfer: header.transfer,
        segment: header.segment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_timeout_exceeds_recent_waits_up_to_limit() {
        let mut escape = Escape::new(1, 64);
        let (configured, most) = (Nanos::new(1000), Nanos::new(10_000));
        assert_eq!(escape.timeout(configured, most), configured);
        escape.note_wait(Nanos::new(900));
        assert_eq!(escape.timeout(configured, most), Nanos::new(3600));
        escape.note_wait(Nanos::new(3500));
        assert_eq!(escape.timeout(configured, most), most);
        // A configured time is a minimum, also above the limit.
        assert_eq!(escape.timeout(Nanos::new(20_000), most), Nanos::new(20_000));
        for _ in 0..1000 {
            escape.note_wait(Nanos::new(10));
        }
        assert_eq!(escape.timeout(configured, most), configured);
    }
}
