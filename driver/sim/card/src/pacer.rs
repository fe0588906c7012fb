//! Time that moving bytes takes: the PCIe link, card memory, the network port and the engines that use them.
//!
//! With pacing, a unit of work (a descriptor fetch, up to 4 KiB of a channel's data or 64 KiB of the CDMA's, an event) is first given its
//! time and takes effect at the end of it. Each of the parts below has a rate and moves one unit after the other, up to 4 KiB at a time;
//! units of different parts overlap. An engine keeps its requests in flight: it pays a latency when it begins after a pause, and none
//! between units that follow each other.
//!
//! | Part | Rate | Latency |
//! |---|---|---|
//! | PCIe, per direction | `link.speed` x `link.width` after the line code, with 24 bytes per packet, at most `xdma.data_width` at 250 MHz | `link.read_latency_ns` (read and its completion), `link.write_latency_ns` |
//! | XDMA engine | one descriptor per `xdma.descriptor_ns` | |
//! | card memory, all accesses together | `memory.megabytes_per_second` | `memory.latency_ns` |
//! | CDMA | `cdma.data_width` at 250 MHz, `cdma.descriptor_ns` per descriptor | |
//! | network port, outgoing | `ni.megabits_per_second`, with 24 bytes per frame | `ni.latency_ns` |
//!
//! A copy accesses card memory for its source and for its destination, except for a transmit window, which is memory of the NI. The NI
//! reads a packet of a message from card memory, and one of a segment from its window.
//!
//! Simplifications: descriptor fetches of a running engine overlap with its data; a packet from the network is in memory when it arrives,
//! and its bytes delay later accesses only; register accesses take no time.

use crate::description::{CardDescription, LinkRate};
use crate::scheduler::{ENGINES, bits};
use crate::work::{QUANTUM, Work};
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::Direction;

/// Bytes of a packet beside its payload: framing, sequence number, header with a 64-bit address, LCRC (PCIe 3.0, 2.2 and 3.5).
const OVERHEAD: u64 = 24;
/// Bytes of an Ethernet frame beside its content: preamble, frame check sequence, gap (IEEE 802.3, 3.2 and 4.4.2).
const FRAME_OVERHEAD: u64 = 24;
/// AXI clock of the model, 250 MHz: a data path moves its width in each cycle.
const CLOCKS_PER_MICROSECOND: u64 = 250;
/// Picoseconds per nanosecond. Time is kept in picoseconds: 64 bytes take 4 ns on the widest link.
const PICOS: u64 = 1000;

/// A part of the card that moves one unit after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// PCIe towards the card.
    ToCard,
    /// PCIe towards the host.
    ToHost,
    /// Card memory.
    Memory,
    /// The CDMA's data path.
    Cdma,
    /// The network port, outgoing.
    Network,
}

const PARTS: usize = 5;

impl From<Direction> for Part {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::C2h => Self::ToHost,
            _ => Self::ToCard,
        }
    }
}

/// Part of the hardware that is working, in ascending order: time in which several work belongs to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TimePart {
    /// The PCIe link.
    Pcie,
    /// Card memory and the CDMA.
    Card,
    /// The network port.
    Network,
}

/// Duration of a byte per part, in picoseconds times 1024, and latencies in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Costs {
    byte: [u64; PARTS],
    read: u64,
    write: u64,
    memory: u64,
    descriptor: u64,
    copy: u64,
}

/// State of one engine.
#[derive(Clone, Copy, Debug, Default)]
struct EngineClock {
    /// End of the unit in progress, or of the last one.
    end: u64,
    /// A unit is in progress.
    started: bool,
    /// Bytes of a copy that follow after `end`, before the unit ends, and its accesses of card memory per byte.
    rest: u64,
    accesses: u8,
    /// The last unit is followed at once: the next one begins at its end, even if that is noticed later.
    follows: bool,
    /// Data is in flight: the next unit needs no latency.
    filled: bool,
    /// Bytes whose time has been accounted for, but that have not been moved: a unit can end earlier than it was expected to.
    paid: u64,
}

/// Pacing of a card; off unless the description or the simulated network asks for it.
#[derive(Debug)]
pub(crate) struct Pacer {
    is_on: bool,
    costs: Costs,
    /// Time at which each part becomes free.
    free: [u64; PARTS],
    /// Idle time of each part before its last unit that began later than the part was free: start and end. The data of a read follows its
    /// latency, and other units move meanwhile.
    gap: [(u64, u64); PARTS],
    engines: [EngineClock; ENGINES],
}

const fn picos(time: Nanos) -> u64 {
    time.get().saturating_mul(PICOS)
}

const fn nanos(picos: u64) -> Nanos {
    Nanos::new(picos.div_ceil(PICOS))
}

impl Pacer {
    pub(crate) fn new(description: &CardDescription) -> Self {
        let CardDescription { link, xdma, cdma, memory, ni, .. } = description;
        let path = |width: u16| u64::from(width / 8) * CLOCKS_PER_MICROSECOND;
        let pcie = link.bytes_per_microsecond().min(path(xdma.data_width));
        let network = ni.megabits_per_second / 8;
        // Bytes per microsecond are megabytes per second.
        let rates = [pcie, pcie, memory.megabytes_per_second, path(cdma.data_width), network];
        let costs = Costs {
            byte: rates.map(|rate| (1024 * 1000 * PICOS) / rate.max(1)),
            read: u64::from(link.read_latency_ns) * PICOS,
            write: u64::from(link.write_latency_ns) * PICOS,
            memory: u64::from(memory.latency_ns) * PICOS,
            descriptor: u64::from(xdma.descriptor_ns) * PICOS,
            copy: u64::from(cdma.descriptor_ns) * PICOS,
        };
        Self {
            is_on: link.rate == LinkRate::Described,
            costs,
            free: [0; PARTS],
            gap: [(0, 0); PARTS],
            engines: [EngineClock::default(); ENGINES],
        }
    }

    pub(crate) fn set(&mut self, on: bool) {
        if self.is_on != on {
            self.reset();
        }
        self.is_on = on;
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.is_on
    }

    pub(crate) fn reset(&mut self) {
        (self.free, self.gap) = ([0; PARTS], [(0, 0); PARTS]);
        self.engines = [EngineClock::default(); ENGINES];
    }

    /// Occupies `part` for `bytes` from `began` on, or when it becomes free. Returns the end.
    fn occupy(&mut self, part: Part, bytes: u64, began: u64) -> u64 {
        let index = part as usize;
        let (Some(free), Some((idle, gap_end)), Some(byte)) =
            (self.free.get_mut(index), self.gap.get_mut(index), self.costs.byte.get(index))
        else {
            return began;
        };
        let took = bytes.saturating_mul(*byte) >> 10;
        let mut rest = took;
        if began < *gap_end {
            let from = began.max(*idle);
            let end = from.saturating_add(took).min(*gap_end);
            *idle = end;
            rest -= end - from;
            if rest == 0 {
                return end;
            }
        } else if began > *free {
            (*idle, *gap_end) = (*free, began);
        }
        *free = began.max(*free).saturating_add(rest);
        *free
    }

    /// Whether `unit`, the next one of `engine`, has ended by `now`; starts it if it is not in progress. `payload`: maximum payload of a
    /// PCIe packet.
    pub(crate) fn has_ended(&mut self, engine: u32, unit: Work, payload: u64, now: Nanos) -> bool {
        let Some(clock) = engine_clock(&self.engines, engine).copied() else { return true };
        if unit == Work::Instant {
            return true;
        }
        let mut clock = if clock.started { clock } else { self.start(clock, unit, payload, now) };
        while clock.rest > 0 && clock.end <= picos(now) {
            (clock.end, clock.rest) = self.copy(clock.rest, clock.accesses, clock.end);
        }
        if let Some(slot) = self.slot(engine) {
            *slot = clock;
        }
        clock.end <= picos(now)
    }

    /// Starts a part of a copy of `bytes`, each with `accesses` of card memory, at `began`. Returns its end, and the bytes after it. Other
    /// accesses of memory come between the parts.
    fn copy(&mut self, bytes: u64, accesses: u8, began: u64) -> (u64, u64) {
        let part = bytes.min(QUANTUM as u64);
        let path = self.occupy(Part::Cdma, part, began);
        (self.occupy(Part::Memory, u64::from(accesses) * part, began).max(path), bytes - part)
    }

    fn start(&mut self, clock: EngineClock, unit: Work, payload: u64, now: Nanos) -> EngineClock {
        let on_link = |bytes: u64| bytes + bytes.div_ceil(payload.max(1)) * OVERHEAD;
        let costs = self.costs;
        let began = if clock.follows { clock.end } else { picos(now) };
        let filled = clock.follows && clock.filled;
        let after = |latency: u64, hidden: bool| if hidden { began } else { began + latency };
        let (mut rest, mut accesses, mut paid) = (0, 0, clock.paid);
        let mut pay = |bytes: u64| {
            let new = bytes.saturating_sub(paid);
            paid += new;
            new
        };
        let (end, fills) = match unit {
            Work::Instant => (began, filled),
            Work::Fetch { bytes } => {
                // After a pause: the latency of the doorbell write, then the read. A running engine fetches in advance.
                let end =
                    self.occupy(Part::ToCard, on_link(bytes), after(costs.write + costs.read, clock.follows));
                (if clock.follows { began } else { end }, filled)
            }
            Work::Dma { direction, bytes, first } => {
                let latency = match direction {
                    Direction::C2h => costs.memory + costs.write,
                    _ => costs.read + costs.memory,
                };
                let began = after(latency, filled);
                let bytes = pay(bytes);
                // The engine prepares a descriptor while the data of the one before moves.
                let prepared = began + if first { costs.descriptor } else { 0 };
                let link = self.occupy(direction.into(), on_link(bytes), began);
                (self.occupy(Part::Memory, bytes, began).max(link).max(prepared), true)
            }
            Work::Stream { direction } => (self.occupy(direction.into(), 0, began), true),
            Work::Copy { bytes, first, accesses: sides } => {
                // After a pause: the latency of the doorbell write, a descriptor from memory, then the data.
                let began =
                    after(costs.write + 2 * costs.memory, filled) + if first { costs.copy } else { 0 };
                accesses = sides;
                let end;
                (end, rest) = self.copy(pay(bytes), sides, began);
                (end, true)
            }
            Work::Event { bytes, to_host } => {
                let began = after(if to_host { costs.write } else { costs.memory }, filled);
                let end = if to_host {
                    self.occupy(Part::ToHost, on_link(bytes), began)
                } else {
                    self.occupy(Part::Memory, bytes, began)
                };
                (end, true)
            }
        };
        EngineClock { end, started: true, rest, accesses, follows: clock.follows, filled: fills, paid }
    }

    /// Ends the unit of `engine`, which has been executed and has moved `bytes`. `follows`: the engine continues at once.
    pub(crate) fn executed(&mut self, engine: u32, bytes: u64, follows: bool) {
        if let Some(clock) = self.slot(engine) {
            (clock.started, clock.follows) = (false, follows);
            clock.filled &= follows;
            clock.paid = if follows { clock.paid.saturating_sub(bytes) } else { 0 };
        }
    }

    /// Notes that `engines`, one bit each, have nothing to do: their next units do not follow the last ones.
    pub(crate) fn pause(&mut self, engines: u32) {
        for engine in bits(engines) {
            if let Some(clock) = self.slot(engine) {
                (clock.started, clock.follows, clock.filled, clock.paid) = (false, false, false, 0);
            }
        }
    }

    /// Accounts for `bytes` of a stream, moved from `now` on.
    pub(crate) fn streamed(
        &mut self,
        direction: Direction,
        bytes: u64,
        payload: u64,
        engine: u32,
        now: Nanos,
    ) {
        let began = engine_clock(&self.engines, engine).filter(|clock| clock.follows);
        let began = began.map_or_else(|| picos(now), |clock| clock.end);
        self.occupy(direction.into(), bytes + bytes.div_ceil(payload.max(1)) * OVERHEAD, began);
    }

    /// Accounts for `bytes` that arrived from the network.
    pub(crate) fn received(&mut self, bytes: u64, now: Nanos) {
        if self.is_on {
            self.occupy(Part::Memory, bytes, picos(now));
        }
    }

    /// Returns whether the network port can take a frame.
    pub(crate) fn is_port_free(&self, now: Nanos) -> bool {
        !self.is_on || self.free.get(Part::Network as usize).is_none_or(|free| *free <= picos(now))
    }

    /// Time at which the network port becomes free.
    pub(crate) fn port_free(&self) -> Nanos {
        self.free.get(Part::Network as usize).map_or(Nanos::ZERO, |free| nanos(*free))
    }

    /// Sends a frame of `bytes` through the port, of which the NI reads `read` from card memory meanwhile. Returns the time at which its
    /// last bit has left; `now` without pacing.
    pub(crate) fn sent(&mut self, bytes: u64, read: u64, now: Nanos) -> Nanos {
        if !self.is_on {
            return now;
        }
        // A frame from a transmit window, which is memory of the NI, does not wait for card memory.
        let ready = if read == 0 { picos(now) } else { self.occupy(Part::Memory, read, picos(now)) };
        nanos(self.occupy(Part::Network, bytes + FRAME_OVERHEAD, picos(now)).max(ready))
    }

    /// End of the unit in progress of `engine`.
    pub(crate) fn end(&self, engine: u32) -> Nanos {
        engine_clock(&self.engines, engine).map_or(Nanos::ZERO, |clock| nanos(clock.end))
    }

    /// Splits `engines`, one bit each, by the ends of their units in progress. Returns those that have ended by `now`, and the earliest end of
    /// the others.
    pub(crate) fn ended(&self, engines: u32, now: Nanos) -> (u32, Nanos) {
        let (mut ended, mut next) = (0, Nanos::MAX);
        for engine in bits(engines) {
            match self.end(engine) {
                end if end <= now => ended |= 1 << engine,
                end => next = next.min(end),
            }
        }
        (ended, next)
    }

    fn slot(&mut self, engine: u32) -> Option<&mut EngineClock> {
        self.engines.get_mut(usize::try_from(engine).ok()?)
    }
}

fn engine_clock(engines: &[EngineClock; ENGINES], engine: u32) -> Option<&EngineClock> {
    engines.get(usize::try_from(engine).ok()?)
}
