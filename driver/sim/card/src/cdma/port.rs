//! AXI masters of the CDMA to a design outside the model (`m_axi`, `m_axi_sg`), or beyond the card's memory.

use crate::design::{AxiAccess, Design, DesignError};
use crate::fault_log::Unit;
use crate::hooks::AxiError;
use crate::memory::PAGE;
use crate::space::CardSpace;
use fpga_registers::CardAddr;
use std::sync::Arc;

/// Maximum number of bytes that are read before they are written.
const PART: usize = 4096;

/// Progress of a master's access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Reading(AxiAccess),
    Writing(AxiAccess),
}

/// One master: one access at a time, which is asked for until it has a result.
#[derive(Debug)]
struct Port {
    design: Arc<dyn Design>,
    phase: Phase,
    data: Vec<u8>,
}

/// Both masters.
#[derive(Debug)]
pub(crate) struct CopyPorts {
    data: Port,
    descriptors: Port,
}

impl CopyPorts {
    pub(crate) const fn new(data: Arc<dyn Design>, descriptors: Arc<dyn Design>) -> Self {
        Self { data: Port::new(data), descriptors: Port::new(descriptors) }
    }

    /// Drops the accesses in progress, as a reset of both sides does.
    pub(crate) fn abandon(&mut self) {
        (self.data.phase, self.descriptors.phase) = (Phase::Idle, Phase::Idle);
    }

    /// Returns whether no access is in progress; ends one that has a result.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.data.has_ended() & self.descriptors.has_ended()
    }

    /// Copies at most `most` bytes. Returns their number; the error tells whether the write failed.
    pub(crate) fn copy(
        &mut self,
        from: CardAddr,
        to: CardAddr,
        most: usize,
    ) -> Result<usize, (AxiError, bool)> {
        let count = most.min(PART);
        if !matches!(self.data.phase, Phase::Writing(_)) {
            self.data.read(from, count).map_err(|error| (error, false))?;
        }
        self.data.write(to).map_err(|error| (error, true))?;
        Ok(self.data.data.len())
    }

    /// As [`copy`](Self::copy), where one side may be memory of the card: at most a page.
    pub(crate) fn copy_beyond(
        &mut self,
        space: &mut CardSpace,
        from: CardAddr,
        to: CardAddr,
        most: usize,
    ) -> Result<usize, (AxiError, bool)> {
        let count = most.min(PAGE);
        if !matches!(self.data.phase, Phase::Writing(_)) {
            if space.is_of_design(from.get()) {
                space.hooked(from.get()).map_err(|error| (error, false))?;
                let count = space.until_hook(from.get(), count);
                self.data.read(from, count).map_err(|error| (error, false))?;
            } else {
                let bytes = space.slice(from, count).map_err(|error| (error, false))?;
                self.data.data.clear();
                self.data.data.extend_from_slice(bytes);
            }
        }
        if space.is_of_design(to.get()) {
            space.hooked(to.get()).map_err(|error| (error, true))?;
            self.data.write(to).map_err(|error| (error, true))?;
        } else {
            space.write(to, &self.data.data).map_err(|(error, _)| (error, true))?;
        }
        Ok(self.data.data.len())
    }

    pub(crate) fn read_descriptor(&mut self, at: CardAddr, into: &mut [u8]) -> Result<(), AxiError> {
        self.descriptors.read(at, into.len())?;
        for (into, byte) in into.iter_mut().zip(&self.descriptors.data) {
            *into = *byte;
        }
        Ok(())
    }

    pub(crate) fn write_descriptor(&mut self, at: CardAddr, word: u32) -> Result<(), AxiError> {
        if self.descriptors.phase == Phase::Idle {
            self.descriptors.data.clear();
            self.descriptors.data.extend(word.to_le_bytes());
        }
        self.descriptors.write(at)
    }
}

impl Port {
    const fn new(design: Arc<dyn Design>) -> Self {
        Self { design, phase: Phase::Idle, data: Vec::new() }
    }

    fn has_ended(&mut self) -> bool {
        let ended = match self.phase {
            Phase::Idle => true,
            Phase::Reading(access) => {
                self.design.outcome(access, &mut self.data) != Err(DesignError::Pending)
            }
            Phase::Writing(access) => self.design.outcome(access, &mut []) != Err(DesignError::Pending),
        };
        if ended {
            self.phase = Phase::Idle;
        }
        ended
    }

    /// Reads `count` bytes into `data`.
    fn read(&mut self, at: CardAddr, count: usize) -> Result<(), AxiError> {
        let result = match self.phase {
            Phase::Reading(access) => self.design.outcome(access, &mut self.data),
            _ => {
                self.data.clear();
                self.data.resize(count, 0);
                let access = AxiAccess { unit: Unit::Cdma, at, fixed: None };
                self.phase = Phase::Reading(access);
                self.design.read(access, &mut self.data)
            }
        };
        self.settle(result)
    }

    /// Writes `data`.
    fn write(&mut self, at: CardAddr) -> Result<(), AxiError> {
        let result = match self.phase {
            Phase::Writing(access) => self.design.outcome(access, &mut []),
            _ => {
                let access = AxiAccess { unit: Unit::Cdma, at, fixed: None };
                self.phase = Phase::Writing(access);
                self.design.write(access, &self.data)
            }
        };
        self.settle(result)
    }

    fn settle(&mut self, result: Result<(), DesignError>) -> Result<(), AxiError> {
        let error = match result {
            Err(DesignError::Pending) => return Err(AxiError::Pending),
            Ok(()) => None,
            Err(DesignError::Decode) => Some(AxiError::Decode),
            Err(DesignError::Slave) => Some(AxiError::Slave),
        };
        self.phase = Phase::Idle;
        error.map_or(Ok(()), Err)
    }
}
