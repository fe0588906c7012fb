//! Execution of several descriptors in a row.
//!
//! Most descriptors are plain: right magic, neither Stop nor fixed address, a moderate length within one page of card memory. Runs of them
//! are executed here on a fast path. Other descriptors fall back to `engine`, one unit at a time, in the same order and with the same
//! effects.

use super::StepResult;
use super::channel::{Channel, control, status};
use super::engine::COMPLETED;
use super::prefetch::{DESCRIPTOR_BYTES, Fetched, MAGIC, STOP};
use super::state::{ActiveDescriptor, EngineOptions};
use super::transfer::Failure;
use crate::fault_log::{FaultKind, Unit};
use crate::host::{DmaFault, DmaPart, HostPort};
use crate::link::{BULK, EngineContext, Upstream};
use crate::memory::PAGE;
use crate::space::FastPathMemory;
use fpga_registers::Iova;
use fpga_registers::cast::index;
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::xdma::Direction;

/// Maximum length of a plain descriptor: one unit of work.
const PLAIN_LENGTH: u32 = 64 * 1024;
const _: () = assert!(PLAIN_LENGTH as usize == PAGE);

impl Channel {
    /// Does up to `most` units of work, with the order and effects of single units.
    pub(crate) fn work<H: HostPort + ?Sized>(
        &mut self,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
        most: u32,
    ) -> StepResult {
        let moved = |lanes: &EngineContext<'_, H>| {
            let counters = &lanes.upstream.counters;
            counters.h2c_bytes.wrapping_add(counters.c2h_bytes)
        };
        let start = moved(lanes);
        // Channels share one AXI port, and a long transfer must not delay short ones by much more than one unit of it.
        let turn = lanes.turn;
        let mut done = 0;
        while done < most && moved(lanes).wrapping_sub(start) < turn {
            // A restart clears the status, which has to be visible before.
            let undisturbed = self.engine.is_running_normally();
            // A single unit is executed by the engine, so that bursts can be compared with single steps.
            if undisturbed && most > 1 && !self.stream && !lanes.upstream.plan.watches_channels() {
                let plain = match self.engine.flight {
                    Some(flight) => self.continue_descriptor(flight, rules, lanes, most - done),
                    None => self.execute_simple_descriptors(rules, lanes, most - done),
                };
                if plain > 0 {
                    done += plain;
                    continue;
                }
            }
            if !self.unit(rules, lanes) {
                return StepResult { units: done, waiting: true };
            }
            done += 1;
            if !undisturbed {
                break;
            }
        }
        StepResult { units: done, waiting: false }
    }

    /// Executes plain descriptors from the head of the buffer: at most `most`, and none beyond the point where the next block has to be
    /// fetched.
    fn execute_simple_descriptors<H: HostPort + ?Sized>(
        &mut self,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
        most: u32,
    ) -> u32 {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.until_fetch());
        let fixed = self.control & control::NON_INCREMENTING != 0;
        if most == 0 || fixed || !lanes.upstream.bus_master {
            return 0;
        }
        match self.direction {
            Direction::H2c => self.plain::<H, true>(rules, lanes, most),
            Direction::C2h => self.plain::<H, false>(rules, lanes, most),
        }
    }

    /// Does the next units of a long descriptor in flight together: whole pages of card memory, at most `most`, and without the last one,
    /// which completes the descriptor. Returns the number of units.
    fn continue_descriptor<H: HostPort + ?Sized>(
        &mut self,
        mut flight: ActiveDescriptor,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
        most: u32,
    ) -> u32 {
        if flight.fixed || !lanes.upstream.bus_master || self.may_fetch() {
            return 0;
        }
        let EngineContext { upstream, space, turn, .. } = lanes;
        let Some(mut memory) = space.plain() else { return 0 };
        let to_card = self.direction == Direction::H2c;
        let mut parts = [DmaPart::default(); MAX_UNITS];
        let units =
            usize::try_from(u64::from(most).min(*turn / u64::from(PLAIN_LENGTH))).unwrap_or(MAX_UNITS);
        let mut count = 0;
        let mut after = flight;
        for part in parts.iter_mut().take(units) {
            let (at, card) =
                if to_card { (after.source, after.destination) } else { (after.destination, after.source) };
            let Some(length) = memory.to_page_end(card).filter(|length| *length < after.remaining) else {
                break;
            };
            let bytes = index(length);
            let offset = if to_card { memory.mark(card, bytes) } else { memory.find(card, bytes) };
            let Some(offset) = offset else { break };
            *part = DmaPart { at: Iova::new(at), offset, length: bytes };
            after.advance(length);
            count += 1;
        }
        // A single unit has no use of it.
        let parts = parts.get(..count).filter(|parts| parts.len() > 1).unwrap_or_default();
        let (moved, fault) = if to_card {
            match upstream.host.read_parts(parts, memory.bytes()) {
                Ok(()) => (parts.len(), None),
                Err((index, fault)) => (index, Some(fault)),
            }
        } else {
            upstream.post_parts(self.unit, parts, memory.bytes());
            (parts.len(), None)
        };
        let mut bytes = 0;
        for part in parts.iter().take(moved) {
            self.performance.count(part.length, self.engine.width_bytes);
            flight.advance(u32::try_from(part.length).debug_expect("at most a page").unwrap_or(0));
            bytes += part.length as u64;
        }
        *if to_card { &mut upstream.counters.h2c_bytes } else { &mut upstream.counters.c2h_bytes } += bytes;
        self.engine.flight = Some(flight);
        let mut done = moved;
        if let (Some(fault), Some(part)) = (fault, parts.get(moved)) {
            upstream.faults.push(FaultKind::HostReadRefused, self.unit, fault.at.get(), 0);
            let length = part.length;
            self.settle(flight, length, Err(Failure::Status(status::READ_UNSUPPORTED)), rules, lanes);
            done += 1;
        }
        u32::try_from(done).unwrap_or(u32::MAX)
    }

    /// [`Self::execute_simple_descriptors`] in one direction.
    fn plain<H: HostPort + ?Sized, const TO_CARD: bool>(
        &mut self,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
        most: usize,
    ) -> u32 {
        let EngineContext { upstream, space, turn, .. } = lanes;
        let turn = *turn;
        let Some(mut memory) = space.plain() else { return 0 };
        let mut bytes = 0;
        let mut refused = None;
        let (slots, places) = self.engine.prefetch.take_out(most);
        let run = slots.get(places).debug_expect("fetched descriptors").unwrap_or_default();
        let mut rest = run.iter();
        while let Some(fetched) = rest.as_slice().first().map(Fetched::new) {
            if !is_plain(&fetched) || bytes >= turn {
                break;
            }
            let length = index(fetched.length);
            if length >= BULK {
                let bulk = BurstDescriptors::<TO_CARD>::of(rest.as_slice(), &mut memory, turn - bytes);
                if bulk.count == 0 {
                    break;
                }
                let (done, fault) = bulk.carry_out(self.unit, upstream, &mut memory);
                let moved = rest.by_ref().take(done).map(Fetched::new);
                bytes += moved.map(|fetched| u64::from(fetched.length)).sum::<u64>();
                self.completed = self
                    .completed
                    .wrapping_add(u32::try_from(done).debug_expect("at most a burst").unwrap_or(0));
                if let Some(fault) = fault {
                    refused = rest.as_slice().first().map(|slot| (Fetched::new(slot), fault));
                    break;
                }
                if bulk.announces {
                    self.announce(rules, upstream);
                }
                continue;
            }
            if TO_CARD {
                let Some(into) = memory.target(fetched.destination, length) else { break };
                if let Err(fault) = upstream.host.read(Iova::new(fetched.source), into) {
                    refused = Some((fetched, fault));
                    break;
                }
            } else {
                let Some(from) = memory.source(fetched.source, length) else { break };
                upstream.post(self.unit, Iova::new(fetched.destination), from);
            }
            rest.next();
            bytes += u64::from(fetched.length);
            self.completed = self.completed.wrapping_add(1);
            if fetched.control & COMPLETED != 0 {
                self.announce(rules, upstream);
            }
        }
        let mut done = run.len() - rest.len();
        if self.performance.is_counting() {
            for fetched in run.iter().take(done).map(Fetched::new) {
                self.performance.count(index(fetched.length), self.engine.width_bytes);
            }
        }
        upstream.counters.descriptors += done as u64;
        *if TO_CARD { &mut upstream.counters.h2c_bytes } else { &mut upstream.counters.c2h_bytes } += bytes;
        done += usize::from(refused.is_some());
        self.engine.prefetch.give_back(slots, done);
        if let Some((fetched, fault)) = refused {
            upstream.faults.push(FaultKind::HostReadRefused, self.unit, fault.at.get(), 0);
            let length = index(fetched.length);
            let moved = Err(Failure::Status(status::READ_UNSUPPORTED));
            self.settle(ActiveDescriptor::new(&fetched, false), length, moved, rules, lanes);
        }
        u32::try_from(done).unwrap_or(u32::MAX)
    }
}

/// Maximum number of units of a long descriptor that move together: those of a long turn.
const MAX_UNITS: usize = 4;

/// Maximum number of descriptors that move together: a page of the shortest ones.
const MAX_DESCRIPTORS: usize = PAGE / BULK;

/// Consecutive plain descriptors that are long enough to be moved together. They end with the first one whose completion is reported to
/// the host, because its data must have arrived by then.
struct BurstDescriptors<const TO_CARD: bool> {
    parts: [DmaPart; MAX_DESCRIPTORS],
    count: usize,
    /// The last one has the Completed flag.
    announces: bool,
}

impl<const TO_CARD: bool> BurstDescriptors<TO_CARD> {
    /// Collects the leading `slots` that qualify and have at most `enough` bytes together.
    fn of(slots: &[[u8; DESCRIPTOR_BYTES]], memory: &mut FastPathMemory<'_>, enough: u64) -> Self {
        let mut bytes = 0;
        let mut bulk = Self { parts: [DmaPart::default(); MAX_DESCRIPTORS], count: 0, announces: false };
        for (part, fetched) in bulk.parts.iter_mut().zip(slots.iter().map(Fetched::new)) {
            let length = index(fetched.length);
            if !is_plain(&fetched) || length < BULK || bytes + u64::from(fetched.length) > enough {
                break;
            }
            let (at, offset) = if TO_CARD {
                (fetched.source, memory.mark(fetched.destination, length))
            } else {
                (fetched.destination, memory.find(fetched.source, length))
            };
            let Some(offset) = offset else { break };
            *part = DmaPart { at: Iova::new(at), offset, length };
            bulk.count += 1;
            bulk.announces = fetched.control & COMPLETED != 0;
            bytes += u64::from(fetched.length);
            if bulk.announces {
                break;
            }
        }
        bulk
    }

    /// Moves the data. Returns the number of descriptors moved, and the fault of the next one.
    fn carry_out<H: HostPort + ?Sized>(
        &self,
        unit: Unit,
        upstream: &mut Upstream<'_, H>,
        memory: &mut FastPathMemory<'_>,
    ) -> (usize, Option<DmaFault>) {
        let parts = self.parts.get(..self.count).debug_expect("collected parts").unwrap_or_default();
        if !TO_CARD {
            upstream.post_parts(unit, parts, memory.bytes());
            return (parts.len(), None);
        }
        match upstream.host.read_parts(parts, memory.bytes()) {
            Ok(()) => (parts.len(), None),
            Err((index, fault)) => (index, Some(fault)),
        }
    }
}

#[inline]
const fn is_plain(fetched: &Fetched) -> bool {
    const CONTROL: u32 = 0xFFFF << 16 | STOP;
    fetched.control & CONTROL == MAGIC << 16 && fetched.length.wrapping_sub(1) < PLAIN_LENGTH
}
