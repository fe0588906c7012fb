//! The event ring: in host memory through the reserved C2H channel, or in card memory.
//!
//! The purpose of an event limits how far it may fill the ring (EVENT_CONSUMED in `map/ni.yaml`):
//!
//! | events | share of the ring | without a free entry |
//! ---|---|---|
//! | of tables: registry and escape buffer | a quarter | dropped and counted, one Dropped event reports it |
//! | progress of commands | a quarter | reported later, with the latest count |
//! | notices | a half | the transfer is refused as "receiver not ready" |
//! | of the host's own packets and commands, faults, Dropped | all | none: the host limits their number |

use super::faults::Fault;
use crate::counters::CardCounters;
use crate::fault_log::{FaultKind, Unit};
use crate::host::HostPort;
use crate::link::EngineContext;
use crate::work::Work;
use fpga_firmware::event::{self, Event, FaultReason};
use fpga_firmware::generated::{EVENT_RING_ENTRIES_MAX, EVENT_RING_ENTRIES_MIN, EventKind, ni};
use fpga_protocol::receiver::UNLIMITED_SLOTS;
use fpga_protocol::time::Nanos;
use fpga_registers::cast::{high32, low32};
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::{CardAddr, Iova};
use std::collections::VecDeque;

/// Maximum number of events that wait inside the NI to be written. Further events count as overflows.
const QUEUE: usize = 4096;
/// Share of [`QUEUE`] for notices; events of tables may take half of it.
const QUEUED: u32 = 2048;
/// Bytes of an event before its last word, the sequence number, which must be written last.
const BODY: usize = event::SIZE - 4;

/// Number of fault reasons, including 0.
const REASONS: usize = 1 + FaultReason::ALL.len();

/// Reporting state of the faults of one reason. Only one event per reason is outstanding, so that faults cannot fill the ring.
#[derive(Clone, Copy, Debug)]
struct Reported {
    /// Running number of the latest event.
    event: Option<u32>,
    /// Number of faults since then, and the last of them.
    more: u32,
    last: Event,
}

const UNREPORTED: Reported = Reported { event: None, more: 0, last: Event::new(EventKind::Fault) };

/// Ring registers and queued events.
#[derive(Debug)]
pub(super) struct EventRing {
    push: bool,
    enabled: bool,
    base: u64,
    size: u32,
    consumed: u32,
    produced: u32,
    overflows: u32,
    /// Overflows since the last report to the host.
    unreported_overflows: u32,
    /// Number of dropped events of tables.
    dropped: u32,
    /// Running number of the Dropped event that the host has not consumed yet; events are dropped until it does.
    dropping: Option<u32>,
    sequence: u32,
    interrupt: u32,
    queue: VecDeque<Event>,
    faults: [Reported; REASONS],
    epoch: Nanos,
}

impl EventRing {
    pub(super) fn new(push: bool) -> Self {
        Self {
            push,
            enabled: false,
            base: 0,
            size: 0,
            consumed: 0,
            produced: 0,
            overflows: 0,
            unreported_overflows: 0,
            dropped: 0,
            dropping: None,
            sequence: 0,
            interrupt: 0,
            queue: VecDeque::with_capacity(QUEUE),
            faults: [UNREPORTED; REASONS],
            epoch: Nanos::ZERO,
        }
    }

    /// Hardware reset, which clears the settings too. Event times count from here.
    pub(super) fn reset(&mut self, now: Nanos) {
        self.restart();
        (self.enabled, self.base, self.size, self.interrupt) = (false, 0, 0, 0);
        self.epoch = now;
    }

    /// Clears counts and queued events.
    pub(super) fn restart(&mut self) {
        self.queue.clear();
        self.faults = [UNREPORTED; REASONS];
        (self.dropped, self.dropping) = (0, None);
        (self.consumed, self.produced, self.overflows, self.unreported_overflows, self.sequence) =
            (0, 0, 0, 0, 0);
    }

    pub(super) const fn events_lost(&self) -> bool {
        self.overflows != 0
    }

    pub(super) fn since_reset(&self, now: Nanos) -> u64 {
        now.saturating_sub(self.epoch).get()
    }

    /// User interrupt line that the ring asserts, as a bit. A level: high while events are not consumed.
    pub(super) const fn interrupt_lines(&self) -> u32 {
        if self.interrupt & ni::event_interrupt::ENABLE != 0 && self.produced != self.consumed {
            1 << ((self.interrupt & ni::event_interrupt::LINE) >> ni::event_interrupt::LINE_SHIFT)
        } else {
            0
        }
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        match register {
            ni::EVENT_RING_BASE_LOW => low32(self.base),
            ni::EVENT_RING_BASE_HIGH => high32(self.base),
            ni::EVENT_RING_SIZE => self.size,
            ni::EVENT_CONSUMED => self.consumed,
            ni::EVENT_PRODUCED => self.produced,
            ni::EVENT_POSTED => self.posted(),
            ni::EVENT_OVERFLOWS => self.overflows,
            ni::EVENTS_DROPPED => self.dropped,
            ni::EVENT_INTERRUPT => self.interrupt,
            _ => 0,
        }
    }

    /// Writes a ring register. Returns `false` if the value is invalid; the old one stays.
    pub(super) fn write(&mut self, register: u32, value: u32) -> bool {
        match register {
            ni::EVENT_RING_BASE_LOW if value.is_multiple_of(64) && !self.enabled => {
                self.base = self.base & !0xFFFF_FFFF | u64::from(value);
            }
            ni::EVENT_RING_BASE_HIGH if !self.enabled => {
                self.base = self.base & 0xFFFF_FFFF | u64::from(value) << 32;
            }
            ni::EVENT_RING_SIZE
                if value.is_power_of_two() && value <= EVENT_RING_ENTRIES_MAX && !self.enabled =>
            {
                self.size = value;
            }
            // EVENT_CONSUMED may neither exceed the produced count nor decrease.
            ni::EVENT_CONSUMED
                if self.produced.wrapping_sub(value) <= self.produced.wrapping_sub(self.consumed) =>
            {
                self.consumed = value;
                self.report_more();
            }
            ni::EVENT_INTERRUPT => {
                self.interrupt = value & (ni::event_interrupt::ENABLE | ni::event_interrupt::LINE);
            }
            _ => return false,
        }
        true
    }

    /// Sets CONTROL.EVENT_ENABLE. Returns `false` if it cannot be set because there is no ring.
    pub(super) fn enable(&mut self, on: bool) -> bool {
        if on && !self.enabled {
            if self.size == 0 {
                return false;
            }
            self.restart();
        }
        self.enabled = on;
        if !on {
            self.queue.clear();
        }
        true
    }

    /// Returns the number of events, written or queued.
    fn posted(&self) -> u32 {
        self.produced.wrapping_add(u32::try_from(self.queue.len()).unwrap_or(u32::MAX))
    }

    /// Number of events that the host has not consumed, number of those that are queued, and whether the ring is divided into shares.
    fn held(&self) -> (u32, u32, bool) {
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let is_divided = self.enabled && self.size >= EVENT_RING_ENTRIES_MIN;
        (self.posted().wrapping_sub(self.consumed), waiting, is_divided)
    }

    /// Returns the number of notices that there is space for.
    pub(super) fn notice_slots(&self) -> u32 {
        match self.held() {
            (_, _, false) => UNLIMITED_SLOTS,
            (held, waiting, _) => (self.size / 2).saturating_sub(held).min(QUEUED.saturating_sub(waiting)),
        }
    }

    /// Returns whether there is space for an event that is not essential. A host may report consumed events an eighth of the ring late
    /// (EVENT_CONSUMED), so half of this quarter is always free for a host that consumes all events.
    pub(super) fn has_table_credit(&self) -> bool {
        let (held, waiting, is_divided) = self.held();
        !is_divided || held < self.size / 4 && waiting < QUEUED / 2
    }

    /// Queues the event of a fault, or only counts the fault while the host has not consumed the last event of this reason.
    pub(super) fn report(&mut self, now: Nanos, event: Event) {
        if !self.enabled {
            return;
        }
        let (consumed, time) = (self.consumed, self.since_reset(now));
        let number = self.posted().wrapping_add(1);
        let reported = self.faults.get_mut(usize::from(event.reason));
        let Some(reported) = reported.debug_expect("a counter for each reason") else { return };
        if reported.event.is_some_and(|event| !is_taken(event, consumed)) {
            reported.more = reported.more.saturating_add(1);
            reported.last = Event { time, ..event };
            return;
        }
        reported.event = Some(number);
        self.post(now, event);
    }

    /// Queues events for faults that were only counted, after the host has consumed events.
    fn report_more(&mut self) {
        for reason in 0..REASONS {
            let (consumed, number) = (self.consumed, self.posted().wrapping_add(1));
            let Some(reported) = self.faults.get_mut(reason) else { continue };
            if reported.more == 0 || reported.event.is_some_and(|event| !is_taken(event, consumed)) {
                continue;
            }
            let generation = std::mem::take(&mut reported.more) - 1;
            reported.event = Some(number);
            let event = Event { generation, ..reported.last };
            if self.queue.len() < QUEUE {
                self.queue.push_back(event);
            } else {
                self.lose();
            }
        }
    }

    /// Queues an event; without a ring it is ignored. An event of a table is dropped if there is no space for it.
    pub(super) fn post(&mut self, now: Nanos, event: Event) {
        if !self.enabled {
            return;
        }
        if is_of_table(event.kind) && !self.reports_table_events() {
            let first = self.dropping.is_none();
            let before = self.dropped;
            self.dropped = before.wrapping_add(1);
            if first {
                self.dropping = Some(self.posted().wrapping_add(1));
                self.push(now, Event { count: before, ..Event::new(EventKind::Dropped) });
            }
            return;
        }
        self.push(now, event);
    }

    /// Returns whether events of tables are reported: there is space, and the host has consumed the report of earlier drops.
    fn reports_table_events(&mut self) -> bool {
        if let Some(number) = self.dropping {
            if !is_taken(number, self.consumed) {
                return false;
            }
            self.dropping = None;
        }
        self.has_table_credit()
    }

    fn push(&mut self, now: Nanos, event: Event) {
        if self.queue.len() >= QUEUE {
            self.lose();
            return;
        }
        let time = self.since_reset(now);
        self.queue.push_back(Event { time, ..event });
    }

    const fn lose(&mut self) {
        self.overflows = self.overflows.wrapping_add(1);
        self.unreported_overflows = self.unreported_overflows.saturating_add(1);
    }

    /// Writes one event, or drops it if the ring is full. Returns `None` if there was nothing to do, otherwise the resulting fault, if
    /// any.
    pub(super) fn step(&mut self, lanes: &mut EngineContext<'_, dyn HostPort>) -> Option<Option<Fault>> {
        let has_space = self.produced.wrapping_sub(self.consumed) < self.size;
        if self.unreported_overflows > 0 && has_space {
            let mut report = Event::new(EventKind::Fault);
            report.reason = FaultReason::EventLost.value();
            report.count = std::mem::take(&mut self.unreported_overflows);
            report.time = self.since_reset(lanes.now);
            let written = self.write_event(&report, lanes);
            return Some(written);
        }
        let event = self.queue.pop_front()?;
        if has_space {
            return Some(self.write_event(&event, lanes));
        }
        let first = self.unreported_overflows == 0;
        self.lose();
        Some(first.then(|| Fault { detail: 1, ..Fault::new(FaultReason::EventLost) }))
    }

    /// Returns the next unit of [`step`](Self::step), with its amount of data.
    pub(super) fn next_unit(&self) -> Work {
        if self.queue.is_empty() && self.unreported_overflows == 0 {
            return Work::Instant;
        }
        Work::Event { bytes: event::SIZE as u64, to_host: self.push }
    }

    fn write_event(&mut self, event: &Event, lanes: &mut EngineContext<'_, dyn HostPort>) -> Option<Fault> {
        self.sequence = event::next_sequence(self.sequence);
        let bytes = Event { sequence: self.sequence, ..*event }.encode();
        let slot = u64::from(self.produced & self.size.wrapping_sub(1));
        let at = self.base.wrapping_add(slot * event::SIZE as u64);
        self.produced = self.produced.wrapping_add(1);
        count_event(lanes.upstream.counters);
        let (body, sequence) = bytes.split_at(BODY);
        let at_sequence = at.wrapping_add(BODY as u64);
        if self.push {
            if !lanes.upstream.bus_master {
                lanes.upstream.faults.push(FaultKind::BusMasterOff, Unit::Ni, at, 1);
                return Some(Fault {
                    address: at,
                    length: event::SIZE as u64,
                    ..Fault::new(FaultReason::EventWrite)
                });
            }
            // Posted writes: the NI cannot see that the IOMMU refuses one.
            lanes.upstream.post(Unit::Ni, Iova::new(at), body);
            lanes.upstream.post(Unit::Ni, Iova::new(at_sequence), sequence);
            return None;
        }
        let written = lanes
            .space
            .write(CardAddr::new(at), body)
            .and_then(|()| lanes.space.write(CardAddr::new(at_sequence), sequence));
        written.err().map(|(_, address)| Fault {
            address: address.get(),
            length: event::SIZE as u64,
            ..Fault::new(FaultReason::EventWrite)
        })
    }
}

/// Returns whether an event only repeats what the registry and escape windows show.
const fn is_of_table(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Registered
            | EventKind::Packet
            | EventKind::Completed
            | EventKind::Expired
            | EventKind::Escaped
            | EventKind::EscapeReleased
    )
}

/// Returns whether the event with this running number, counted from 1, is among the `consumed` first ones.
const fn is_taken(event: u32, consumed: u32) -> bool {
    consumed.wrapping_sub(event) <= u32::MAX / 2
}

const fn count_event(counters: &mut CardCounters) {
    counters.events += 1;
}
