//! The event ring: in host memory through the reserved C2H channel, or in card memory.

use super::faults::Fault;
use crate::counters::CardCounters;
use crate::fault_log::{FaultKind, Unit};
use crate::host::HostPort;
use crate::link::Lanes;
use fpga_core::time::Nanos;
use fpga_firmware::event::{self, Event, FaultReason};
use fpga_firmware::generated::{EVENT_RING_ENTRIES_MAX, EventKind, ni};
use fpga_registers::{CardAddr, Iova};
use std::collections::VecDeque;

/// Events that wait inside the NI for their turn to be written. Beyond it they count as overflows.
const QUEUE: usize = 4096;
/// The sequence number is the event's last word and must land last.
const BODY: usize = event::SIZE - 4;

/// Ring registers and what waits for them.
#[derive(Debug)]
pub(super) struct EventRing {
    push: bool,
    enabled: bool,
    base: u64,
    size: u32,
    consumed: u32,
    produced: u32,
    overflows: u32,
    /// Overflows since the host was last told.
    untold: u32,
    sequence: u32,
    interrupt: u32,
    queue: VecDeque<Event>,
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
            untold: 0,
            sequence: 0,
            interrupt: 0,
            queue: VecDeque::with_capacity(QUEUE),
            epoch: Nanos::ZERO,
        }
    }

    /// A hardware reset: settings too. Time counts from here.
    pub(super) fn reset(&mut self, now: Nanos) {
        self.restart();
        (self.enabled, self.base, self.size, self.interrupt) = (false, 0, 0, 0);
        self.epoch = now;
    }

    /// Forgets counts and what waits.
    pub(super) fn restart(&mut self) {
        self.queue.clear();
        (self.consumed, self.produced, self.overflows, self.untold, self.sequence) = (0, 0, 0, 0, 0);
    }

    pub(super) const fn events_lost(&self) -> bool {
        self.overflows != 0
    }

    pub(super) fn since_reset(&self, now: Nanos) -> u64 {
        now.saturating_sub(self.epoch).get()
    }

    /// The user interrupt line that the ring asserts, as a bit: level, while events are not consumed.
    pub(super) const fn interrupt_lines(&self) -> u32 {
        if self.interrupt & ni::event_interrupt::ENABLE != 0 && self.produced != self.consumed {
            1 << ((self.interrupt & ni::event_interrupt::LINE) >> ni::event_interrupt::LINE_SHIFT)
        } else {
            0
        }
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        match register {
            ni::EVENT_RING_BASE_LOW => super::low(self.base),
            ni::EVENT_RING_BASE_HIGH => super::high(self.base),
            ni::EVENT_RING_SIZE => self.size,
            ni::EVENT_CONSUMED => self.consumed,
            ni::EVENT_PRODUCED => self.produced,
            ni::EVENT_OVERFLOWS => self.overflows,
            ni::EVENT_INTERRUPT => self.interrupt,
            _ => 0,
        }
    }

    /// Writes a ring register; `false` if the value cannot be used (the old one stays).
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
            // The host cannot have taken more than was produced, nor fewer than it had already.
            ni::EVENT_CONSUMED
                if self.produced.wrapping_sub(value) <= self.produced.wrapping_sub(self.consumed) =>
            {
                self.consumed = value;
            }
            ni::EVENT_INTERRUPT => {
                self.interrupt = value & (ni::event_interrupt::ENABLE | ni::event_interrupt::LINE);
            }
            _ => return false,
        }
        true
    }

    /// CONTROL.EVENT_ENABLE; `false` if it cannot be set because there is no ring.
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

    /// Queues an event; without a ring it is nobody's business.
    pub(super) fn post(&mut self, now: Nanos, event: Event) {
        if !self.enabled {
            return;
        }
        if self.queue.len() >= QUEUE {
            self.lose();
            return;
        }
        let time = self.since_reset(now);
        self.queue.push_back(Event { time, ..event });
    }

    const fn lose(&mut self) {
        self.overflows = self.overflows.wrapping_add(1);
        self.untold = self.untold.saturating_add(1);
    }

    /// Writes one event, or drops one that has no room. Returns `None` if there was nothing to do, else the fault
    /// that came of it.
    pub(super) fn step(&mut self, lanes: &mut Lanes<'_, dyn HostPort>) -> Option<Option<Fault>> {
        let has_room = self.produced.wrapping_sub(self.consumed) < self.size;
        if self.untold > 0 && has_room {
            let mut report = Event::new(EventKind::Fault);
            report.reason = FaultReason::EventLost.value();
            report.count = std::mem::take(&mut self.untold);
            report.time = self.since_reset(lanes.now);
            let written = self.write_event(&report, lanes);
            return Some(written);
        }
        let event = self.queue.pop_front()?;
        if has_room {
            return Some(self.write_event(&event, lanes));
        }
        let first = self.untold == 0;
        self.lose();
        Some(first.then(|| Fault { detail: 1, ..Fault::new(FaultReason::EventLost) }))
    }

    fn write_event(&mut self, event: &Event, lanes: &mut Lanes<'_, dyn HostPort>) -> Option<Fault> {
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
            // Posted writes: a refusal by the IOMMU is nothing that the NI could see.
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

const fn count_event(counters: &mut CardCounters) {
    counters.events += 1;
}
