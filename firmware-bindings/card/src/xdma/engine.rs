//! The engine of a channel: descriptor fetch and execution.
//!
//! What the vendor's documents leave open is decided here and tested:
//!
//! * A block of `Nxt_adj + 1` descriptors is read as soon as there is room for all of it, into a buffer that never
//!   sees later edits. With fewer credits than that, a part is read, and the last descriptor read says where the next
//!   fetch goes (as always).
//! * A block that crosses a 4 KiB boundary: what lies behind the boundary does not arrive. Descriptors before it run,
//!   then the engine stops with a magic error, as users of real cards report.
//! * Faults are reported in order: descriptors before the bad one run first, so the completed count names it.
//! * After Stop, an error or a cleared Run the buffer is thrown away; only a 0->1 edge of Run starts again.
//! * A zero-length descriptor completes without moving data.
//! * Length errors: PG195 defines `invalid_length` (status bit 5) for AXI4-Stream channels only, so these memory-mapped
//!   ones never set it. The only rule on a length there is that of the fixed-address mode, whole beats; breaking it is
//!   an `align_mismatch`, like breaking it by an address.
//! * Run set again while the old descriptor is in flight: that descriptor still ends, and counts for the new run.
//! * Clearing Run of an engine that already stopped records nothing (`idle_stopped` is for one that was active).

use super::channel::{Channel, control, status};
use crate::description::WritebackRule;
use crate::fault_log::FaultKind;
use crate::link::{Lanes, host_post, host_read};
use crate::memory::PAGE;
use crate::space::{AxiError, advance};
use fpga_registers::xdma::Direction;
use fpga_registers::xdma::descriptor::{self, DescriptorControl};
use fpga_registers::{CardAddr, Iova};
use std::collections::VecDeque;

const DESCRIPTOR_BYTES: usize = size_of::<[u32; 8]>();
const MAGIC: u32 = descriptor::MAGIC as u32;
const STOP: u32 = DescriptorControl::from_bits(0).with_stop(true).into_bits();
const COMPLETED: u32 = DescriptorControl::from_bits(0).with_completed(true).into_bits();
const LENGTH: u32 = descriptor::MAX_LEN;
const BLOCK_LIMIT: usize = 64;
const FETCH_BOUNDARY: u64 = descriptor::BLOCK_BOUNDARY as u64;
/// Descriptors above this length are the subject of the long-descriptor quirk.
const LONG: u32 = 4096;

/// An entry of the prefetch buffer.
#[derive(Clone, Copy, Debug)]
enum Fetched {
    Words([u32; 8]),
    /// The completer refused the read.
    Refused,
    /// Beyond a 4 KiB boundary, or lost to the long-descriptor quirk: no magic arrives.
    Garbage,
}

/// A descriptor in execution.
#[derive(Clone, Copy, Debug)]
struct Flight {
    flags: u32,
    remaining: u32,
    source: u64,
    destination: u64,
    /// The AXI side stays at its address.
    fixed: bool,
}

/// What the card's build decides about the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) writeback: WritebackRule,
    pub(crate) long_descriptor_quirk: bool,
}

/// Fetch and execution state.
#[derive(Debug)]
pub(crate) struct Engine {
    active: bool,
    stopping: bool,
    /// A 0->1 edge of Run while the old descriptor was still in flight.
    restart: Option<(u64, u32)>,
    next: u64,
    block: usize,
    fetch_ended: bool,
    buffer: VecDeque<Fetched>,
    capacity: usize,
    flight: Option<Flight>,
    width_bytes: u32,
    /// For the quirk: a long descriptor was fetched in this run, and multi-descriptor blocks fetched.
    long_seen: bool,
    blocks: u32,
}

impl Engine {
    pub(crate) fn new(capacity: usize, width_bytes: u32) -> Self {
        let capacity = capacity.max(BLOCK_LIMIT);
        Self {
            active: false,
            stopping: false,
            restart: None,
            next: 0,
            block: 0,
            fetch_ended: false,
            buffer: VecDeque::with_capacity(capacity),
            capacity,
            flight: None,
            width_bytes,
            long_seen: false,
            blocks: 0,
        }
    }

    pub(crate) const fn busy(&self) -> bool {
        self.active
    }

    pub(crate) fn start(&mut self, first: u64, adjacent: u32) {
        if self.active {
            self.restart = Some((first, adjacent));
        } else {
            self.begin(first, adjacent);
        }
    }

    pub(crate) const fn request_stop(&mut self) {
        self.restart = None;
        self.stopping = self.active;
    }

    /// Drops everything, as a reset does.
    pub(crate) fn abandon(&mut self) {
        self.active = false;
        self.stopping = false;
        self.restart = None;
        self.flight = None;
        self.buffer.clear();
    }

    fn begin(&mut self, first: u64, adjacent: u32) {
        self.abandon();
        self.active = true;
        self.next = first;
        self.block = block_size(adjacent);
        self.fetch_ended = false;
        self.long_seen = false;
        self.blocks = 0;
    }

    fn end_of_fetch(&mut self, entry: Fetched) {
        self.buffer.push_back(entry);
        self.fetch_ended = true;
    }
}

/// `Nxt_adj` counts the extra descriptors.
fn block_size(adjacent: u32) -> usize {
    usize::try_from(adjacent & 0x3F).unwrap_or(0) + 1
}

fn words_of(bytes: &[u8]) -> [u32; 8] {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    words
}

fn pair(words: &[u32; 8], low: usize) -> u64 {
    let at = |index: usize| words.get(index).copied().map_or(0, u64::from);
    at(low) | at(low + 1) << 32
}

impl Channel {
    /// One unit of work: a descriptor fetch, or up to one page of one descriptor's data.
    pub(crate) fn step(&mut self, rules: Rules, lanes: &mut Lanes<'_>) -> bool {
        if !self.engine.active {
            return false;
        }
        if self.engine.stopping && self.engine.flight.is_none() {
            self.engine.stopping = false;
            self.halt(status::IDLE_STOPPED);
            return true;
        }
        if !self.engine.stopping && self.may_fetch() {
            self.fetch(rules, lanes);
            return true;
        }
        if self.engine.flight.is_some() {
            self.transfer(rules, lanes);
            return true;
        }
        let Some(entry) = self.engine.buffer.pop_front() else {
            // Waiting for credits, or for fetching to be resumed.
            return false;
        };
        self.begin_descriptor(entry, rules, lanes);
        true
    }

    fn fetch_count(&self) -> usize {
        let wanted = self.engine.block;
        if self.credit_mode { wanted.min(usize::try_from(self.credits).unwrap_or(0)) } else { wanted }
    }

    fn may_fetch(&self) -> bool {
        let engine = &self.engine;
        let count = self.fetch_count();
        !engine.fetch_ended
            && !self.fetch_halted
            && count > 0
            && engine.buffer.len() + count <= engine.capacity
    }

    fn fetch(&mut self, rules: Rules, lanes: &mut Lanes<'_>) {
        let count = self.fetch_count();
        // Bits 4:0 do not exist in a descriptor address.
        let start = self.engine.next & !31;
        let before_boundary = (FETCH_BOUNDARY - start % FETCH_BOUNDARY) / DESCRIPTOR_BYTES as u64;
        let readable = usize::try_from(before_boundary).unwrap_or(count).min(count);
        let mut bytes = [0; BLOCK_LIMIT * DESCRIPTOR_BYTES];
        let readable_bytes = bytes.get_mut(..readable * DESCRIPTOR_BYTES).unwrap_or_default();
        lanes.counters.descriptor_fetches += 1;
        let refused = FaultKind::DescriptorFetchRefused;
        let mut arrived = readable;
        if lanes.read(self.unit, refused, Iova::new(start), readable_bytes).is_err() {
            // Find out how many did arrive: hardware reads them in several requests.
            arrived = 0;
            for chunk in readable_bytes.chunks_exact_mut(DESCRIPTOR_BYTES) {
                let at = start.wrapping_add((arrived * DESCRIPTOR_BYTES) as u64);
                if !lanes.bus_master || lanes.host.read(Iova::new(at), chunk).is_err() {
                    break;
                }
                arrived += 1;
            }
        }
        if self.credit_mode {
            self.credits -= u32::try_from(count).unwrap_or(0).min(self.credits);
        }
        let quirk =
            rules.long_descriptor_quirk && self.engine.long_seen && self.engine.blocks > 0 && count > 1;
        self.engine.blocks += u32::from(count > 1);
        for chunk in readable_bytes.chunks_exact(DESCRIPTOR_BYTES).take(arrived) {
            let words = words_of(chunk);
            if quirk {
                self.engine.end_of_fetch(Fetched::Garbage);
                return;
            }
            let [first, length, ..] = words;
            self.engine.buffer.push_back(Fetched::Words(words));
            self.engine.long_seen |= length & LENGTH > LONG;
            if first & STOP != 0 || first >> 16 != MAGIC {
                self.engine.fetch_ended = true;
                return;
            }
            self.engine.next = pair(&words, 6);
            self.engine.block = block_size(first >> 8);
        }
        if arrived < readable {
            self.engine.end_of_fetch(Fetched::Refused);
        } else if readable < count {
            lanes.faults.push(
                FaultKind::BlockCrossesPage,
                self.unit,
                start,
                u32::try_from(count).unwrap_or(0),
            );
            self.engine.end_of_fetch(Fetched::Garbage);
        }
    }

    fn begin_descriptor(&mut self, entry: Fetched, rules: Rules, lanes: &mut Lanes<'_>) {
        let words = match entry {
            Fetched::Words(words) => words,
            // "Log the error and stop" needs the enable bits; without them the answer (all ones) is taken for data.
            Fetched::Refused if self.control & status::FETCH_UNSUPPORTED != 0 => {
                self.fail(status::FETCH_UNSUPPORTED, lanes);
                return;
            }
            Fetched::Refused | Fetched::Garbage => [u32::MAX; 8],
        };
        let [first, length, ..] = words;
        if first >> 16 != MAGIC {
            lanes.faults.push(FaultKind::BadMagic, self.unit, 0, first);
            self.fail(status::MAGIC_STOPPED, lanes);
            return;
        }
        let fixed = self.control & control::NON_INCREMENTING != 0;
        let flight = Flight {
            flags: first,
            remaining: length & LENGTH,
            source: pair(&words, 2),
            destination: pair(&words, 4),
            fixed,
        };
        let width = u64::from(self.engine.width_bytes);
        if fixed && !(flight.source | flight.destination | u64::from(flight.remaining)).is_multiple_of(width)
        {
            self.fail(status::ALIGN_MISMATCH, lanes);
            return;
        }
        self.engine.flight = Some(flight);
        self.transfer(rules, lanes);
    }

    /// Moves up to a page of the descriptor in flight, and completes it when nothing is left.
    fn transfer(&mut self, rules: Rules, lanes: &mut Lanes<'_>) {
        let Some(mut flight) = self.engine.flight else { return };
        let most = usize::try_from(flight.remaining).unwrap_or(usize::MAX).min(PAGE);
        let moved = if most == 0 {
            Ok(0)
        } else if flight.fixed {
            self.move_fixed(&flight, most, lanes)
        } else {
            match self.direction {
                Direction::H2c => self.move_to_card(&flight, most, lanes),
                Direction::C2h => self.move_to_host(&flight, most, lanes),
            }
        };
        let count = match moved {
            Ok(count) => count,
            Err(error) if self.control & error != 0 => {
                self.engine.flight = None;
                self.fail(error, lanes);
                return;
            }
            // Not enabled: the engine neither notes the error nor stops. What did not arrive is skipped; a step
            // ends at a page of the card address at the latest, so a bad address costs no more steps than a good one.
            Err(_) => most,
        };
        self.performance.count(count, self.engine.width_bytes);
        let advanced = count as u64;
        flight.remaining -= u32::try_from(count).unwrap_or(0).min(flight.remaining);
        let (source_moves, destination_moves) = match self.direction {
            Direction::H2c => (true, !flight.fixed),
            Direction::C2h => (!flight.fixed, true),
        };
        if source_moves {
            flight.source = flight.source.wrapping_add(advanced);
        }
        if destination_moves {
            flight.destination = flight.destination.wrapping_add(advanced);
        }
        self.engine.flight = Some(flight);
        if flight.remaining == 0 {
            self.complete(flight.flags, rules, lanes);
        }
    }

    fn move_to_card(&mut self, flight: &Flight, most: usize, lanes: &mut Lanes<'_>) -> Result<usize, u32> {
        let Lanes { host, bus_master, space, counters, faults, .. } = lanes;
        let unit = self.unit;
        let filled = space.fill(CardAddr::new(flight.destination), most, |into| {
            let refused = FaultKind::HostReadRefused;
            host_read(&mut **host, *bus_master, faults, unit, refused, Iova::new(flight.source), into)
        });
        match filled {
            Ok(Ok(count)) => {
                counters.h2c_bytes += count as u64;
                Ok(count)
            }
            Ok(Err(_)) => Err(status::READ_UNSUPPORTED),
            Err(error) => {
                note_axi(error, faults, unit, flight.destination);
                Err(match error {
                    AxiError::Decode => status::WRITE_DECODE,
                    AxiError::Slave => status::WRITE_SLAVE,
                })
            }
        }
    }

    fn move_to_host(&mut self, flight: &Flight, most: usize, lanes: &mut Lanes<'_>) -> Result<usize, u32> {
        let Lanes { host, bus_master, space, counters, faults, .. } = lanes;
        match space.slice(CardAddr::new(flight.source), most) {
            Ok(bytes) => {
                host_post(&mut **host, *bus_master, faults, self.unit, Iova::new(flight.destination), bytes);
                counters.c2h_bytes += bytes.len() as u64;
                Ok(bytes.len())
            }
            Err(error) => {
                note_axi(error, faults, self.unit, flight.source);
                Err(match error {
                    AxiError::Decode => status::READ_DECODE,
                    AxiError::Slave => status::READ_SLAVE,
                })
            }
        }
    }

    /// Fixed AXI address: every beat goes to (comes from) the same place, one datapath width wide.
    fn move_fixed(&mut self, flight: &Flight, most: usize, lanes: &mut Lanes<'_>) -> Result<usize, u32> {
        let width = usize::try_from(self.engine.width_bytes).unwrap_or(64);
        let mut bytes = [0; 4096];
        let count = most.min(bytes.len());
        let chunk = bytes.get_mut(..count).unwrap_or_default();
        match self.direction {
            Direction::H2c => {
                lanes
                    .read(self.unit, FaultKind::HostReadRefused, Iova::new(flight.source), chunk)
                    .map_err(|_| status::READ_UNSUPPORTED)?;
                let at = CardAddr::new(flight.destination);
                for beat in chunk.chunks_exact(width) {
                    lanes.space.write(at, beat).map_err(|(error, _)| match error {
                        AxiError::Decode => status::WRITE_DECODE,
                        AxiError::Slave => status::WRITE_SLAVE,
                    })?;
                }
                lanes.counters.h2c_bytes += count as u64;
            }
            Direction::C2h => {
                let at = CardAddr::new(flight.source);
                for beat in chunk.chunks_exact_mut(width) {
                    lanes.space.read(at, beat).map_err(|(error, _)| match error {
                        AxiError::Decode => status::READ_DECODE,
                        AxiError::Slave => status::READ_SLAVE,
                    })?;
                }
                lanes.post(self.unit, Iova::new(flight.destination), chunk);
                lanes.counters.c2h_bytes += count as u64;
            }
        }
        Ok(count)
    }

    fn complete(&mut self, flags: u32, rules: Rules, lanes: &mut Lanes<'_>) {
        self.engine.flight = None;
        self.completed = self.completed.wrapping_add(1);
        lanes.counters.descriptors += 1;
        let flagged = flags & COMPLETED != 0;
        if flagged {
            self.record(status::DESCRIPTOR_COMPLETED);
            let enabled = match rules.writeback {
                WritebackRule::Flag => true,
                WritebackRule::FlagAndEnable => self.control & status::DESCRIPTOR_COMPLETED != 0,
            };
            if enabled {
                self.write_back(lanes);
            }
        }
        if flags & STOP != 0 {
            self.performance.stop_descriptor(lanes.now);
            self.halt(status::DESCRIPTOR_STOPPED);
        }
    }

    /// The engine stops because of an error, which a poll-mode driver learns from the write-back's bit 31.
    fn fail(&mut self, bits: u32, lanes: &mut Lanes<'_>) {
        self.halt(bits);
        self.write_back(lanes);
    }

    fn halt(&mut self, bits: u32) {
        self.record(bits);
        let restart = self.engine.restart.take();
        self.engine.abandon();
        if let Some((first, adjacent)) = restart {
            // The edge of Run came while the old descriptor was in flight: start over now.
            self.completed = 0;
            self.status = 0;
            self.engine.begin(first, adjacent);
        }
    }

    fn write_back(&mut self, lanes: &mut Lanes<'_>) {
        if self.control & control::POLL_WRITEBACK == 0 {
            return;
        }
        let error = if self.status & status::ERRORS != 0 { 1 << 31 } else { 0 };
        let word = self.reported_count() & 0x00FF_FFFF | error;
        lanes.counters.writebacks += 1;
        lanes.post(self.unit, Iova::new(self.writeback), &word.to_le_bytes());
    }
}

fn note_axi(error: AxiError, faults: &mut crate::fault_log::FaultLog, unit: crate::fault_log::Unit, at: u64) {
    let kind = match error {
        AxiError::Decode => FaultKind::AxiDecode,
        AxiError::Slave => FaultKind::AxiSlave,
    };
    faults.push(kind, unit, advance(CardAddr::new(at), 0).get(), 0);
}
