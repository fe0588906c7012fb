//! Data movement of a descriptor whose AXI side is a design outside the model.
//!
//! One access per channel is in progress. Its data is read from the host once, before it begins; the descriptor keeps its length
//! (`pending`) until the design has responded, and the channel does nothing meanwhile.

use super::channel::{Channel, control, status};
use super::prefetch::MAGIC;
use super::state::{ActiveDescriptor, EngineOptions};
use super::stream::EOP;
use super::transfer::{Failure, note_axi};
use crate::design::{AxiAccess, Design, DesignError, StreamBytes};
use crate::fault_log::FaultKind;
use crate::hooks::AxiError;
use crate::host::HostPort;
use crate::link::EngineContext;
use crate::memory::PAGE;
use fpga_registers::cast::index;
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::xdma::Direction;
use fpga_registers::{CardAddr, Iova};

impl Channel {
    /// Begins the next access of the descriptor in flight, or asks for the result of the one in progress. Returns `false` if there is none
    /// yet.
    pub(super) fn transfer_design<H: HostPort + ?Sized>(
        &mut self,
        mut flight: ActiveDescriptor,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        let begins = flight.pending == 0;
        let at = match self.direction {
            Direction::H2c => flight.destination,
            Direction::C2h => flight.source,
        };
        let most = if begins {
            // Of a length that does not depend on other engines: the design may have begun to read it.
            let limit = if self.direction == Direction::C2h { PAGE } else { lanes.quantum.min(PAGE) };
            let most = index(flight.remaining).min(limit);
            // Skipped data of an error that Control does not enable ends with the hooked range.
            lanes.space.until_hook(at, most)
        } else {
            index(flight.pending)
        };
        let watched = begins && lanes.upstream.plan.watches_channels();
        let moved = if watched && self.refuses(&flight, most, &mut lanes.upstream) {
            match self.direction {
                Direction::H2c => Err(Failure::Status(status::READ_UNSUPPORTED)),
                Direction::C2h => Ok(most),
            }
        } else if most == 0 {
            Ok(0)
        } else {
            self.access_design(&flight, at, most, begins, lanes)
        };
        if matches!(moved, Err(Failure::Pending)) {
            flight.pending = u32::try_from(most).debug_expect("at most a page").unwrap_or(0);
            self.engine.flight = Some(flight);
            if u32::try_from(most) == Ok(flight.remaining) {
                self.begin_ahead(lanes);
            }
            return false;
        }
        flight.pending = 0;
        self.settle(flight, most, moved, rules, lanes);
        true
    }

    /// Begins the accesses of fetched descriptors behind the one in flight, whose last access waits for the design. They complete in their
    /// turn, so counts, write-backs and errors are those of single descriptors.
    fn begin_ahead<H: HostPort + ?Sized>(&mut self, lanes: &mut EngineContext<'_, H>) {
        let EngineContext { upstream, space, .. } = lanes;
        let is_fixed = self.control & control::NON_INCREMENTING != 0;
        if !self.engine.is_running_normally()
            || is_fixed
            || !upstream.bus_master
            || upstream.plan.watches_channels()
        {
            return;
        }
        while let Some(fetched) = self.engine.prefetch.peek(self.engine.ahead) {
            if !space.design().is_some_and(|design| design.accepts_ahead(self.unit)) {
                return;
            }
            let length = index(fetched.length);
            let at = match self.direction {
                Direction::H2c => fetched.destination,
                Direction::C2h => fetched.source,
            };
            let last = at.wrapping_add(u64::from(fetched.length.saturating_sub(1)));
            let fits = fetched.control >> 16 == MAGIC && (1..=PAGE).contains(&length);
            if !fits
                || !space.is_of_design(at)
                || !space.is_of_design(last)
                || space.hooked(at).is_err()
                || space.until_hook(at, length) != length
            {
                return;
            }
            let access = AxiAccess { unit: self.unit, at: CardAddr::new(at), fixed: None };
            let Some((design, scratch)) = space.design_and_scratch() else { return };
            let has_begun = match self.direction {
                Direction::C2h => design.read_ahead(access, length),
                Direction::H2c => {
                    let bytes = scratch.get_mut(..length).debug_expect("a page of scratch memory");
                    // A refused read is reported when it is the descriptor's turn.
                    bytes.is_some_and(|bytes| {
                        upstream.host.read(Iova::new(fetched.source), bytes).is_ok()
                            && design.write_ahead(access, bytes)
                    })
                }
            };
            if !has_begun {
                return;
            }
            self.engine.ahead += 1;
        }
    }

    /// Sends the next bytes of an H2C stream descriptor, or asks whether the port has accepted those in progress. Returns `false` if it has
    /// not.
    pub(super) fn send_to_design<H: HostPort + ?Sized>(
        &mut self,
        mut flight: ActiveDescriptor,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        let begins = flight.pending == 0;
        let length = if begins { flight.remaining } else { flight.pending };
        let most = index(length).min(PAGE);
        // The port holds no data: it is full only by the fault hook.
        let port = index(self.index);
        let is_held = begins && most != 0 && lanes.streams.free_bytes(port) == 0;
        let ends = flight.flags & EOP != 0 && u32::try_from(most) == Ok(flight.remaining);
        let EngineContext { upstream, space, .. } = lanes;
        let moved = match space.design_and_scratch() {
            _ if is_held => Err(Failure::Pending),
            Some((design, scratch)) if most > 0 => {
                let number = u8::try_from(self.index).unwrap_or(0);
                let bytes =
                    scratch.get_mut(..most).debug_expect("a page of scratch memory").unwrap_or_default();
                let refused =
                    begins && upstream.plan.watches_channels() && self.refuses(&flight, most, upstream);
                let is_read = !refused
                    && (!begins
                        || upstream
                            .read(self.unit, FaultKind::HostReadRefused, Iova::new(flight.source), bytes)
                            .is_ok());
                let sent = || {
                    if begins { design.send_stream(number, bytes, ends) } else { design.stream_sent(number) }
                };
                match is_read.then(sent) {
                    None => Err(Failure::Status(status::READ_UNSUPPORTED)),
                    Some(Ok(())) => Ok(most),
                    Some(Err(DesignError::Pending)) => Err(Failure::Pending),
                    Some(Err(_)) => Err(Failure::Status(status::WRITE_SLAVE)),
                }
            }
            _ => Ok(0),
        };
        if matches!(moved, Err(Failure::Pending)) {
            upstream.counters.stream_holds += u64::from(is_held && !self.engine.open.held);
            self.engine.open.held = is_held;
            flight.pending =
                if is_held { 0 } else { u32::try_from(most).debug_expect("at most a page").unwrap_or(0) };
            self.engine.flight = Some(flight);
            return false;
        }
        if let Ok(count) = moved {
            upstream.counters.h2c_bytes += count as u64;
            upstream.counters.packets_taken += u64::from(ends && count > 0);
        }
        self.engine.open.held = false;
        flight.pending = 0;
        self.settle(flight, most, moved, rules, lanes);
        true
    }

    /// Takes up to `most` bytes from the C2H stream port, and tells whether their packet ends with them. `None` if the card cannot use the
    /// port.
    pub(super) fn receive_from_design<'a>(
        &self,
        design: &dyn Design,
        scratch: &'a mut [u8],
        most: usize,
    ) -> Option<(&'a [u8], bool)> {
        let Some(into) = scratch.get_mut(..most).filter(|into| !into.is_empty()) else {
            return Some((&[], false));
        };
        match design.receive_stream(u8::try_from(self.index).unwrap_or(0), into) {
            Ok(StreamBytes { count, ends }) => Some((into.get(..count).unwrap_or_default(), ends)),
            Err(DesignError::Pending) => Some((&[], false)),
            Err(_) => None,
        }
    }

    /// Makes one access of `most` bytes at card address `at`, or continues it.
    fn access_design<H: HostPort + ?Sized>(
        &mut self,
        flight: &ActiveDescriptor,
        at: u64,
        most: usize,
        begins: bool,
        lanes: &mut EngineContext<'_, H>,
    ) -> Result<usize, Failure> {
        let EngineContext { upstream, space, .. } = lanes;
        let access = AxiAccess {
            unit: self.unit,
            at: CardAddr::new(at),
            fixed: flight.fixed.then_some(self.engine.width_bytes),
        };
        space.hooked(at).map_err(|error| self.failure(error))?;
        let Some((design, scratch)) = space.design_and_scratch() else {
            return Err(self.failure(AxiError::Decode));
        };
        let bytes = scratch.get_mut(..most).debug_expect("a page of scratch memory").unwrap_or_default();
        let rest = flight.remaining.saturating_sub(u32::try_from(most).unwrap_or(u32::MAX));
        let answer = match (self.direction, begins) {
            (Direction::H2c, true) => {
                upstream
                    .read(self.unit, FaultKind::HostReadRefused, Iova::new(flight.source), bytes)
                    .map_err(|_| Failure::Status(status::READ_UNSUPPORTED))?;
                design.write_part(access, rest, bytes)
            }
            (Direction::H2c, false) => design.outcome(access, &mut []),
            (Direction::C2h, true) => design.read_part(access, rest, bytes),
            (Direction::C2h, false) => design.outcome(access, bytes),
        };
        let error = match answer {
            Ok(()) if self.direction == Direction::H2c => {
                upstream.counters.h2c_bytes += most as u64;
                return Ok(most);
            }
            Ok(()) => {
                upstream.post(self.unit, Iova::new(flight.destination), bytes);
                upstream.counters.c2h_bytes += most as u64;
                return Ok(most);
            }
            Err(DesignError::Pending) => return Err(Failure::Pending),
            Err(DesignError::Decode) => AxiError::Decode,
            Err(DesignError::Slave) => AxiError::Slave,
        };
        note_axi(error, upstream.faults, self.unit, at);
        Err(self.failure(error))
    }

    const fn failure(&self, error: AxiError) -> Failure {
        match self.direction {
            Direction::H2c => Failure::of_write(error),
            Direction::C2h => Failure::of_read(error),
        }
    }
}
