//! Data movement of a descriptor whose AXI side is a design outside the model.
//!
//! One access per channel is in progress. Its data is read from the host once, before it begins; the descriptor keeps its length
//! (`pending`) until the design has responded, and the channel does nothing meanwhile.

use super::channel::{Channel, status};
use super::state::{ActiveDescriptor, EngineOptions};
use super::transfer::{Failure, note_axi};
use crate::design::{AxiAccess, DesignError};
use crate::fault_log::FaultKind;
use crate::hooks::AxiError;
use crate::host::HostPort;
use crate::link::EngineContext;
use crate::memory::PAGE;
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
            let most = usize::try_from(flight.remaining).unwrap_or(usize::MAX).min(lanes.quantum).min(PAGE);
            // Skipped data of an error that Control does not enable ends with the hooked range.
            lanes.space.until_hook(at, most)
        } else {
            usize::try_from(flight.pending).unwrap_or(0)
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
            flight.pending = u32::try_from(most).unwrap_or(0);
            self.engine.flight = Some(flight);
            return false;
        }
        flight.pending = 0;
        self.settle(flight, most, moved, rules, lanes);
        true
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
        let bytes = scratch.get_mut(..most).unwrap_or_default();
        let answer = match (self.direction, begins) {
            (Direction::H2c, true) => {
                upstream
                    .read(self.unit, FaultKind::HostReadRefused, Iova::new(flight.source), bytes)
                    .map_err(|_| Failure::Status(status::READ_UNSUPPORTED))?;
                design.write(access, bytes)
            }
            (Direction::H2c, false) => design.outcome(access, &mut []),
            (Direction::C2h, true) => design.read(access, bytes),
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
