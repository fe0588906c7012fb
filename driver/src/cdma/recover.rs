//! Recovery of the engine: collect what it has completed, reset it, return all payloads, and start again.

use fpga_registers::CardAddr;
use fpga_registers::cdma::Cdmasr;
use fpga_ring::cdma_ring::ProgressFault;

use super::Cdma;
use super::error::{CdmaError, CdmaFault, CdmaFaultPosition, CdmaRingError};
use super::options::DescriptorPath;
use super::ring::{CdmaCompletion, CdmaRing};
use fpga_pci::FAULT_LOG;

use crate::channel::Ticket;
use crate::error::{At as _, CauseClass, Error};
use crate::fault::FaultCause;
use fpga_pci::poll_until;

impl<T> CdmaRing<T> {
    /// Fills card memory with guards and starts the engine, idle, at the ring's current position. The engine was reset.
    pub(super) fn restart(&mut self) -> Result<(), CdmaRingError> {
        let Self { ring, path, .. } = self;
        path.fill(|image| ring.guard(image));
        let config = *self.ring.config();
        self.path.send_all(&config)?;
        self.cdma.start_chain(self.ring.start_address(), self.control)?;
        Ok(())
    }

    /// Handles a time without progress, or an interrupt without progress.
    #[cold]
    pub(super) fn check_status(&mut self) -> Result<(), CdmaRingError> {
        if self.failed.is_some() || self.ring.outstanding() == 0 {
            return Ok(());
        }
        let status = match self.cdma.read_status() {
            Ok(status) => status,
            Err(error) => return self.fail(error.into()),
        };
        if status.has_error() {
            return self.end(FaultCause::Status(status));
        }
        if !status.idle() {
            return Ok(());
        }
        // Idle at its tail: the last status word is about to become visible, or something else wrote to it.
        let current = match self.current() {
            Ok(current) => current,
            Err(error) => return self.fail(error),
        };
        if self.ring.is_tail(current) {
            self.ring.complete_all();
            self.collect();
            return Ok(());
        }
        self.end(FaultCause::NoError(status))
    }

    fn current(&self) -> Result<CardAddr, CdmaRingError> {
        Ok(self.address_of(self.cdma.current_low()?))
    }

    /// Handles a status word or a pointer with an impossible value.
    #[cold]
    pub(super) fn progress_fault(&mut self, fault: ProgressFault) -> Result<(), CdmaRingError> {
        match self.cdma.read_status() {
            // Either the error that the status word reports, or an error of the descriptor's own memory.
            Ok(status) if status.has_error() => self.end(FaultCause::Status(status)),
            Ok(_) => self.end(FaultCause::Count(fault.into())),
            Err(error) => self.fail(error.into()),
        }
    }

    /// Handles a failed path of the descriptors to the card: copies that needed it cannot run.
    #[cold]
    pub(super) fn upload_failed(&mut self, error: CdmaRingError) -> Result<(), CdmaRingError> {
        tracing::warn!(card = %self.cdma.card.name, %error, "descriptors of the copy engine");
        match error {
            CdmaRingError::Upload(_) | CdmaRingError::Lost { .. } => self.end(FaultCause::Upload),
            error => self.fail(error),
        }
    }

    /// Ends everything in flight as aborted, in the middle of a copy if necessary. The ring can be used again. Returns the number of copies
    /// that ended, including completed ones.
    ///
    /// # Errors
    /// [`CdmaError::Stuck`] if the engine does not stop: every copy has ended, but the engine may still write.
    pub fn abort(&mut self) -> Result<usize, Error<CdmaRingError>> {
        self.end_all().at(|| self.place())
    }

    fn end_all(&mut self) -> Result<usize, CdmaRingError> {
        self.check_usable()?;
        if self.ring.operations() == 0 {
            return Ok(0);
        }
        let before = self.ring.ended();
        self.end(FaultCause::Aborted)?;
        Ok(self.ended_since(before))
    }

    /// Closes the ring. Copies in flight are aborted, and returned together with the completions that were not taken. The engine is idle
    /// and in simple mode, unless it is stuck, which its next use reports.
    #[must_use]
    pub fn close(mut self) -> (Cdma, DescriptorPath, Vec<CdmaCompletion<T>>) {
        let _ = self.abort();
        let _ = self.cdma.reset_without_wait();
        let Self { cdma, path, finished, line, .. } = self;
        drop(line);
        (cdma, path.close(), finished.into())
    }

    /// Stops the engine, ends everything in the ring and starts again.
    fn end(&mut self, cause: FaultCause<Cdmasr>) -> Result<(), CdmaRingError> {
        match self.end_and_restart(cause) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(error),
        }
    }

    fn end_and_restart(&mut self, cause: FaultCause<Cdmasr>) -> Result<(), CdmaRingError> {
        let halted = matches!(cause, FaultCause::Status(_));
        if halted {
            self.wait_halted()?;
        }
        let status = self.cdma.read_status()?;
        let current = self.current()?;
        if halted && status.is_overrun() && self.ring.is_past_tail(current) {
            self.ring.complete_all();
        } else if !matches!(cause, FaultCause::Count(_)) {
            // An impossible pointer is not accepted: nothing more counts as complete.
            let idle = status.idle() && !status.has_error();
            let _ = self.ring.complete_current(current, idle);
        }
        self.collect();
        let again = self.overrun_at == Some(self.ring.completed());
        if halted && status.is_overrun() && !again && !self.ring.is_faulted() {
            return self.overrun();
        }
        let position = self.ring.pending_descriptor().map(|pending| CdmaFaultPosition {
            descriptor: pending.index,
            source: pending.source,
            destination: pending.destination,
            length: pending.length,
            bytes_done: pending.offset,
        });
        self.cdma.reset_engine()?;
        self.drain(cause, position);
        self.restart()
    }

    /// Handles an engine that ran past its tail and reached a descriptor marked complete: a guard, or a used one. Descriptors posted there
    /// since are valid, so the engine continues at its position. A descriptor that stops it twice is a different fault.
    fn overrun(&mut self) -> Result<(), CdmaRingError> {
        self.overruns += 1;
        self.overrun_at = Some(self.ring.completed());
        self.cdma.resume_chain(self.ring.start_address(), self.ring.posted_tail(), self.control)?;
        Ok(())
    }

    /// Waits until the engine has halted: an error halts it gracefully, and Idle shows that it has stopped (PG034).
    fn wait_halted(&self) -> Result<(), CdmaRingError> {
        let backend = &*self.cdma.card.backend;
        let idle = poll_until(backend, self.cdma.card.idle_timeout(), |_| {
            Ok::<_, CdmaError>(self.cdma.read_status()?.idle().then_some(()))
        });
        // An engine that stays busy is handled by the reset, which has its own limit.
        idle.map(drop).map_err(CdmaRingError::from)
    }

    fn drain(&mut self, cause: FaultCause<Cdmasr>, position: Option<CdmaFaultPosition>) {
        let place = self.place();
        let later = match cause {
            FaultCause::Status(_) | FaultCause::Count(_) | FaultCause::NoError(_) => FaultCause::EarlierFault,
            _ => cause.clone(),
        };
        let later = CdmaFault { cause: later, position: None };
        let first = CdmaFault { cause, position };
        if self.ring.operations() != 0 {
            tracing::warn!(target: FAULT_LOG, %place, fault = %first, "copies ended");
        }
        let mut first = Some(first);
        let Self { ring, finished, .. } = self;
        for drained in ring.drain() {
            let fault = first.take().unwrap_or_else(|| later.clone());
            let ticket = Ticket(drained.token.number());
            finished.push_back(CdmaCompletion {
                ticket,
                outcome: Err(Box::new(Error::new(fault, place.clone()))),
                payload: drained.payload,
            });
        }
    }

    /// Marks the ring as failed. Every copy ends; the engine is reset if possible.
    #[cold]
    pub(super) fn fail(&mut self, error: CdmaRingError) -> Result<(), CdmaRingError> {
        let cause = match &error {
            CdmaRingError::Engine(CdmaError::Gone) => FaultCause::Gone,
            CdmaRingError::Engine(CdmaError::Cause(cause)) if cause.class() == CauseClass::Gone => {
                FaultCause::Gone
            }
            CdmaRingError::Engine(CdmaError::Stuck { .. } | CdmaError::Silent(_)) => FaultCause::Wedged,
            _ if self.cdma.reset_engine().is_ok() => FaultCause::Aborted,
            _ => FaultCause::Wedged,
        };
        self.collect();
        self.drain(cause, None);
        self.failed = Some(error.clone());
        Err(error)
    }
}
