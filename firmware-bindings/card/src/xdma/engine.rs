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
use super::prefetch::{Fetched, Head, MAGIC, Prefetch, STOP};
use crate::description::WritebackRule;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::hooks::AxiError;
use crate::host::HostPort;
use crate::link::{Lanes, Upstream};
use crate::memory::PAGE;
use fpga_registers::xdma::Direction;
use fpga_registers::xdma::descriptor::DescriptorControl;
use fpga_registers::{CardAddr, Iova};

pub(super) const COMPLETED: u32 = DescriptorControl::from_bits(0).with_completed(true).into_bits();

/// A descriptor in execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    flags: u32,
    remaining: u32,
    source: u64,
    destination: u64,
    /// The AXI side stays at its address.
    fixed: bool,
}

impl Flight {
    pub(super) const fn new(fetched: &Fetched, fixed: bool) -> Self {
        let Fetched { control: flags, length: remaining, source, destination, .. } = *fetched;
        Self { flags, remaining, source, destination, fixed }
    }
}

/// What the card's build decides about the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) writeback: WritebackRule,
    pub(crate) long_descriptor_quirk: bool,
    pub(crate) busy_after_error: bool,
}

/// Why data did not move.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// Status bits that say so.
    Status(u32),
    /// An AXI slave does not answer.
    Silent,
}

impl Failure {
    const fn new(error: AxiError, decode: u32, slave: u32) -> Self {
        match error {
            AxiError::Decode => Self::Status(decode),
            AxiError::Slave => Self::Status(slave),
            AxiError::Silent => Self::Silent,
        }
    }

    const fn of_write(error: AxiError) -> Self {
        Self::new(error, status::WRITE_DECODE, status::WRITE_SLAVE)
    }

    const fn of_read(error: AxiError) -> Self {
        Self::new(error, status::READ_DECODE, status::READ_SLAVE)
    }
}

/// Fetch and execution state.
#[derive(Debug)]
pub(crate) struct Engine {
    active: bool,
    stopping: bool,
    /// An AXI slave did not answer the descriptor in flight: only a reset of the card ends that.
    hangs: bool,
    /// A 0->1 edge of Run while the old descriptor was still in flight.
    restart: Option<(u64, u32)>,
    pub(super) prefetch: Prefetch,
    pub(super) flight: Option<Flight>,
    pub(super) width_bytes: u32,
}

impl Engine {
    pub(crate) fn new(capacity: usize, width_bytes: u32) -> Self {
        Self {
            active: false,
            stopping: false,
            hangs: false,
            restart: None,
            prefetch: Prefetch::new(capacity),
            flight: None,
            width_bytes,
        }
    }

    pub(crate) const fn busy(&self) -> bool {
        self.active
    }

    /// Nothing is asked of the engine but to go on with the chain.
    pub(super) const fn undisturbed(&self) -> bool {
        self.active && !self.stopping && self.restart.is_none()
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
    pub(crate) const fn abandon(&mut self) {
        self.active = false;
        self.stopping = false;
        self.hangs = false;
        self.restart = None;
        self.flight = None;
        self.prefetch.clear();
    }

    fn begin(&mut self, first: u64, adjacent: u32) {
        self.abandon();
        self.active = true;
        self.prefetch.begin(first, adjacent);
    }
}

impl Channel {
    /// One unit of work: a descriptor fetch, or up to one page of one descriptor's data.
    pub(super) fn unit<H: HostPort + ?Sized>(&mut self, rules: Rules, lanes: &mut Lanes<'_, H>) -> bool {
        if !self.engine.active || self.engine.hangs {
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
        if let Some(flight) = self.engine.flight {
            self.transfer(flight, rules, lanes);
            return true;
        }
        match self.engine.prefetch.pop() {
            Head::Descriptor(fetched) => self.begin_descriptor(&fetched, rules, lanes),
            // "Log the error and stop" needs the enable bits; without them the answer (all ones) is taken for data.
            Head::Refused(_) if self.control & status::FETCH_UNSUPPORTED != 0 => {
                self.fail(status::FETCH_UNSUPPORTED, rules, lanes);
            }
            Head::Refused(ones) => self.begin_descriptor(&ones, rules, lanes),
            // Waiting for credits, or for fetching to be resumed.
            Head::Empty => return false,
        }
        true
    }

    fn begin_descriptor<H: HostPort + ?Sized>(
        &mut self,
        fetched: &Fetched,
        rules: Rules,
        lanes: &mut Lanes<'_, H>,
    ) {
        if fetched.control >> 16 != MAGIC {
            lanes.upstream.faults.push(FaultKind::BadMagic, self.unit, 0, fetched.control);
            self.fail(status::MAGIC_STOPPED, rules, lanes);
            return;
        }
        let flight = Flight::new(fetched, self.control & control::NON_INCREMENTING != 0);
        let width = u64::from(self.engine.width_bytes);
        if flight.fixed
            && !(flight.source | flight.destination | u64::from(flight.remaining)).is_multiple_of(width)
        {
            self.fail(status::ALIGN_MISMATCH, rules, lanes);
            return;
        }
        self.transfer(flight, rules, lanes);
    }

    /// Moves up to a page of the descriptor in flight, and completes it when nothing is left.
    fn transfer<H: HostPort + ?Sized>(&mut self, flight: Flight, rules: Rules, lanes: &mut Lanes<'_, H>) {
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
        self.settle(flight, most, moved, rules, lanes);
    }

    /// What comes of an attempt to move `most` bytes of `flight`: so many were moved, or status bits say why not.
    pub(super) fn settle<H: HostPort + ?Sized>(
        &mut self,
        mut flight: Flight,
        most: usize,
        moved: Result<usize, Failure>,
        rules: Rules,
        lanes: &mut Lanes<'_, H>,
    ) {
        let count = match moved {
            Ok(count) => count,
            Err(Failure::Silent) => {
                let at = match self.direction {
                    Direction::H2c => flight.destination,
                    Direction::C2h => flight.source,
                };
                lanes.upstream.faults.push(FaultKind::AxiSilent, self.unit, at, 0);
                self.engine.flight = Some(flight);
                self.engine.hangs = true;
                return;
            }
            Err(Failure::Status(error)) if self.control & error != 0 => {
                self.engine.flight = None;
                self.fail(error, rules, lanes);
                return;
            }
            // Not enabled: the engine neither notes the error nor stops. What did not arrive is skipped; a step
            // ends at a page of the card address at the latest, so a bad address costs no more steps than a good one.
            Err(Failure::Status(_)) => most,
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
        if flight.remaining == 0 {
            self.complete(flight.flags, rules, lanes);
        } else {
            self.engine.flight = Some(flight);
        }
    }

    fn move_to_card<H: HostPort + ?Sized>(
        &mut self,
        flight: &Flight,
        most: usize,
        lanes: &mut Lanes<'_, H>,
    ) -> Result<usize, Failure> {
        let Lanes { upstream, space, .. } = lanes;
        let unit = self.unit;
        let filled = space.fill(CardAddr::new(flight.destination), most, |into| {
            upstream.read(unit, FaultKind::HostReadRefused, Iova::new(flight.source), into)
        });
        match filled {
            Ok(Ok(count)) => {
                upstream.counters.h2c_bytes += count as u64;
                Ok(count)
            }
            Ok(Err(_)) => Err(Failure::Status(status::READ_UNSUPPORTED)),
            Err(error) => {
                note_axi(error, upstream.faults, unit, flight.destination);
                Err(Failure::of_write(error))
            }
        }
    }

    fn move_to_host<H: HostPort + ?Sized>(
        &mut self,
        flight: &Flight,
        most: usize,
        lanes: &mut Lanes<'_, H>,
    ) -> Result<usize, Failure> {
        let Lanes { upstream, space, .. } = lanes;
        match space.slice(CardAddr::new(flight.source), most) {
            Ok(bytes) => {
                upstream.post(self.unit, Iova::new(flight.destination), bytes);
                upstream.counters.c2h_bytes += bytes.len() as u64;
                Ok(bytes.len())
            }
            Err(error) => {
                note_axi(error, upstream.faults, self.unit, flight.source);
                Err(Failure::of_read(error))
            }
        }
    }

    /// Fixed AXI address: every beat goes to (comes from) the same place, one datapath width wide.
    fn move_fixed<H: HostPort + ?Sized>(
        &mut self,
        flight: &Flight,
        most: usize,
        lanes: &mut Lanes<'_, H>,
    ) -> Result<usize, Failure> {
        let width = usize::try_from(self.engine.width_bytes).unwrap_or(64);
        let mut bytes = [0; 4096];
        let count = most.min(bytes.len());
        let chunk = bytes.get_mut(..count).unwrap_or_default();
        match self.direction {
            Direction::H2c => {
                lanes
                    .upstream
                    .read(self.unit, FaultKind::HostReadRefused, Iova::new(flight.source), chunk)
                    .map_err(|_| Failure::Status(status::READ_UNSUPPORTED))?;
                let at = CardAddr::new(flight.destination);
                for beat in chunk.chunks_exact(width) {
                    lanes.space.write(at, beat).map_err(|(error, _)| Failure::of_write(error))?;
                }
                lanes.upstream.counters.h2c_bytes += count as u64;
            }
            Direction::C2h => {
                let at = CardAddr::new(flight.source);
                for beat in chunk.chunks_exact_mut(width) {
                    lanes.space.read(at, beat).map_err(|(error, _)| Failure::of_read(error))?;
                }
                lanes.upstream.post(self.unit, Iova::new(flight.destination), chunk);
                lanes.upstream.counters.c2h_bytes += count as u64;
            }
        }
        Ok(count)
    }

    fn complete<H: HostPort + ?Sized>(&mut self, flags: u32, rules: Rules, lanes: &mut Lanes<'_, H>) {
        self.engine.flight = None;
        self.completed = self.completed.wrapping_add(1);
        lanes.upstream.counters.descriptors += 1;
        if flags & COMPLETED != 0 {
            self.announce(rules, &mut lanes.upstream);
        }
        if flags & STOP != 0 {
            self.performance.stop_descriptor(lanes.now);
            self.halt(status::DESCRIPTOR_STOPPED);
        }
    }

    /// A descriptor with the Completed flag is done.
    pub(super) fn announce<H: HostPort + ?Sized>(&mut self, rules: Rules, upstream: &mut Upstream<'_, H>) {
        self.record(status::DESCRIPTOR_COMPLETED);
        let enabled = match rules.writeback {
            WritebackRule::Flag => true,
            WritebackRule::FlagAndEnable => self.control & status::DESCRIPTOR_COMPLETED != 0,
        };
        if enabled {
            self.write_back(upstream);
        }
    }

    /// The engine stops because of an error, which a poll-mode driver learns from the write-back's bit 31.
    fn fail<H: HostPort + ?Sized>(&mut self, bits: u32, rules: Rules, lanes: &mut Lanes<'_, H>) {
        self.busy_lingers = rules.busy_after_error;
        self.halt(bits);
        self.write_back(&mut lanes.upstream);
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

    fn write_back<H: HostPort + ?Sized>(&mut self, upstream: &mut Upstream<'_, H>) {
        if self.control & control::POLL_WRITEBACK == 0 {
            return;
        }
        let error = if self.status & status::ERRORS != 0 { 1 << 31 } else { 0 };
        let word = self.reported_count() & 0x00FF_FFFF | error;
        upstream.counters.writebacks += 1;
        upstream.post(self.unit, Iova::new(self.writeback), &word.to_le_bytes());
    }
}

fn note_axi(error: AxiError, faults: &mut FaultLog, unit: Unit, at: u64) {
    match error {
        AxiError::Decode => faults.push(FaultKind::AxiDecode, unit, at, 0),
        AxiError::Slave => faults.push(FaultKind::AxiSlave, unit, at, 0),
        // Noted where the engine takes it in.
        AxiError::Silent => {}
    }
}
