//! Data movement of a descriptor, one page of card memory at a time, and its failures.

use super::channel::{Channel, status};
use super::state::{ActiveDescriptor, EngineOptions};
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::hooks::AxiError;
use crate::host::HostPort;
use crate::link::{EngineContext, Upstream};
use fpga_registers::cast::index;
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::xdma::Direction;
use fpga_registers::{CardAddr, Iova};

/// Reason why data did not move.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// Status bits of the error.
    Status(u32),
    /// An AXI slave does not answer.
    Silent,
    /// A design outside the model has not answered yet.
    Pending,
}

impl Failure {
    const fn new(error: AxiError, decode: u32, slave: u32) -> Self {
        match error {
            AxiError::Decode => Self::Status(decode),
            AxiError::Slave => Self::Status(slave),
            AxiError::Silent => Self::Silent,
            AxiError::Pending => Self::Pending,
        }
    }

    pub(super) const fn of_write(error: AxiError) -> Self {
        Self::new(error, status::WRITE_DECODE, status::WRITE_SLAVE)
    }

    pub(super) const fn of_read(error: AxiError) -> Self {
        Self::new(error, status::READ_DECODE, status::READ_SLAVE)
    }
}

impl Channel {
    /// Moves up to a page (with pacing, a quantum) of the descriptor in flight, and completes it when no data remains. Returns `false` if it
    /// waits for a design outside the model.
    pub(super) fn transfer<H: HostPort + ?Sized>(
        &mut self,
        flight: ActiveDescriptor,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        let at = match self.direction {
            Direction::H2c => flight.destination,
            Direction::C2h => flight.source,
        };
        if lanes.space.is_of_design(at) {
            return self.transfer_design(flight, rules, lanes);
        }
        let most = index(flight.remaining).min(lanes.quantum);
        let watched = lanes.upstream.plan.watches_channels();
        let moved = if watched && self.refuses(&flight, most, &mut lanes.upstream) {
            match self.direction {
                Direction::H2c => Err(Failure::Status(status::READ_UNSUPPORTED)),
                Direction::C2h => Ok(most),
            }
        } else if most == 0 {
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
        true
    }

    /// Returns whether the fault plan makes the host refuse the data: a read of the channel fails, a write is lost without notice.
    #[cold]
    pub(super) fn refuses<H: HostPort + ?Sized>(
        &self,
        flight: &ActiveDescriptor,
        most: usize,
        upstream: &mut Upstream<'_, H>,
    ) -> bool {
        let Upstream { plan, faults, .. } = upstream;
        if most == 0 || !plan.data_refused(self.unit, faults) {
            return false;
        }
        let (kind, at) = match self.direction {
            Direction::H2c => (FaultKind::HostReadRefused, flight.source),
            Direction::C2h => (FaultKind::HostWriteLost, flight.destination),
        };
        faults.push(kind, self.unit, at, 0);
        true
    }

    /// Handles the result of moving up to `most` bytes of `flight`: the number of bytes moved, or the status bits of the error.
    pub(super) fn settle<H: HostPort + ?Sized>(
        &mut self,
        mut flight: ActiveDescriptor,
        most: usize,
        moved: Result<usize, Failure>,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
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
            // Handled where the access is made.
            Err(Failure::Pending) => 0,
            Err(Failure::Status(error)) if self.control & error != 0 => {
                self.engine.flight = None;
                self.fail(error, rules, lanes);
                return;
            }
            // Not enabled: the engine neither records the error nor stops. Missing data is skipped. A step ends at the end of a page of
            // the card address, so a bad address needs no more steps than a good one.
            Err(Failure::Status(_)) => most,
        };
        self.performance.count(count, self.engine.width_bytes);
        let advanced = count as u64;
        flight.remaining -=
            u32::try_from(count).debug_expect("at most the rest").unwrap_or(0).min(flight.remaining);
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
        flight: &ActiveDescriptor,
        most: usize,
        lanes: &mut EngineContext<'_, H>,
    ) -> Result<usize, Failure> {
        let EngineContext { upstream, space, .. } = lanes;
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
        flight: &ActiveDescriptor,
        most: usize,
        lanes: &mut EngineContext<'_, H>,
    ) -> Result<usize, Failure> {
        let EngineContext { upstream, space, .. } = lanes;
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

    /// Fixed AXI address: every beat goes to (comes from) the same address, one datapath width wide.
    fn move_fixed<H: HostPort + ?Sized>(
        &mut self,
        flight: &ActiveDescriptor,
        most: usize,
        lanes: &mut EngineContext<'_, H>,
    ) -> Result<usize, Failure> {
        let width = usize::try_from(self.engine.width_bytes).unwrap_or(64);
        let mut bytes = [0; 4096];
        let count = most.min(bytes.len());
        let chunk = bytes.get_mut(..count).debug_expect("at most the buffer").unwrap_or_default();
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
}

pub(super) fn note_axi(error: AxiError, faults: &mut FaultLog, unit: Unit, at: u64) {
    match error {
        AxiError::Decode => faults.push(FaultKind::AxiDecode, unit, at, 0),
        AxiError::Slave => faults.push(FaultKind::AxiSlave, unit, at, 0),
        // Logged where the engine handles it.
        AxiError::Silent | AxiError::Pending => {}
    }
}
