//! What happens when a run does not end as it should: stop, confirm idle, give everything back; quarantine what the engine
//! may still reach.

use fpga_core::ring::CountFault;
use fpga_pci::{QuarantineReason, barrier};
use fpga_registers::xdma::{ChannelBlock, ChannelStatus};

use super::engine::{EVENT_BITS, Engine, Payload, stop_control};
use crate::error::ChannelError;
use crate::fault::{ChannelFault, FaultCause, FaultPlace};

/// How long an engine may take to finish the descriptor in flight after run was cleared. The longest descriptor is 256 MiB:
/// 1.1 s on the slowest link (one lane of the first generation); a wedged AXI slave never lets go.
const IDLE_LIMIT_NS: u64 = 2_000_000_000;

impl Engine {
    /// The write-back word cannot be true, or it has the error bit.
    #[cold]
    pub(super) fn count_fault(&mut self, fault: CountFault) -> Result<usize, ChannelError> {
        let status = self.status()?;
        let cause = match fault {
            CountFault::Engine { .. } if status.has_error(self.direction()) => FaultCause::Status(status),
            CountFault::Engine { .. } => FaultCause::Silent(status),
            other => FaultCause::Count(other),
        };
        self.end_run(cause)
    }

    /// The run has made no progress for a while: an engine that stops on a bad descriptor completes none, so it writes nothing
    /// back.
    #[cold]
    pub(crate) fn look_for_errors(&mut self) -> Result<(), ChannelError> {
        if !self.ring.is_running() {
            return Ok(());
        }
        let status = self.status()?;
        if status.has_error(self.direction()) {
            self.end_run(FaultCause::Status(status))?;
            return Ok(());
        }
        if status.busy() {
            return Ok(());
        }
        // Idle: either the last write-back is about to be seen (it was sent before busy fell, and the read above has
        // pushed it to memory), or it was lost.
        let count = self.read_completed()?;
        match self.ring.complete(count) {
            Ok(_) => {
                self.collect();
                if self.ring.is_running() {
                    self.end_run(FaultCause::Silent(status))?;
                }
            }
            Err(fault) => {
                self.end_run(FaultCause::Count(fault))?;
            }
        }
        Ok(())
    }

    pub(crate) fn abort(&mut self) -> Result<usize, ChannelError> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        if self.ring.operations() == 0 {
            return Ok(0);
        }
        self.end_run(FaultCause::Aborted)
    }

    /// Reads the status register without disturbing it; all ones means that nobody is there.
    fn status(&mut self) -> Result<ChannelStatus, ChannelError> {
        match ChannelBlock::STATUS.read(&self.bar, self.base) {
            Ok(status) if status.into_bits() == u32::MAX => Err(self.gone()),
            Ok(status) => Ok(status),
            Err(fpga_pci::MmioError::Gone { .. }) => Err(self.gone()),
            Err(source) => Err(self.mmio(source)),
        }
    }

    fn read_completed(&mut self) -> Result<u32, ChannelError> {
        let count = self
            .bar
            .read32(ChannelBlock::COMPLETED.address(self.base))
            .map_err(|source| self.mmio(source))?;
        barrier::register_before_memory();
        Ok(count)
    }

    /// Stops the engine, confirms that it is idle, and ends everything in the ring.
    fn end_run(&mut self, cause: FaultCause) -> Result<usize, ChannelError> {
        let before = self.finished.len();
        self.stop_and_confirm()?;
        // The count is final now. One that cannot be true is not believed: nothing more counts as complete.
        if !matches!(cause, FaultCause::Count(_)) {
            let count = self.read_completed()?;
            let _ = self.ring.complete(count);
        }
        self.collect();
        let place = self.ring.pending_descriptor().map(|pending| FaultPlace {
            descriptor: pending.index,
            host: pending.host,
            card: pending.card,
            length: pending.length,
            bytes_done: pending.offset,
        });
        let first = ChannelFault { card: self.card_name(), channel: self.name, cause, place };
        let later = match first.cause {
            FaultCause::Aborted => FaultCause::Aborted,
            _ => FaultCause::Earlier,
        };
        let later = ChannelFault { cause: later, place: None, ..first.clone() };
        tracing::warn!(fault = %first, "run ended");
        let mut first = Some(first);
        let ended: Vec<Payload> = self.ring.drain().map(|drained| drained.payload).collect();
        for payload in ended {
            let fault = first.take().unwrap_or_else(|| later.clone());
            self.push(Err(fault), payload);
        }
        // Ones clear: the next run starts with a clean status.
        ChannelBlock::STATUS
            .write(&self.bar, self.base, ChannelStatus::from_bits(EVENT_BITS))
            .map_err(|source| self.mmio(source))?;
        Ok(self.finished.len() - before)
    }

    fn stop_and_confirm(&mut self) -> Result<(), ChannelError> {
        ChannelBlock::CONTROL
            .write(&self.bar, self.base, stop_control())
            .map_err(|source| self.mmio(source))?;
        let began = self.card.transport.now();
        // Some hardware still shows busy right after an error: read again before believing it (quirk 4).
        loop {
            let status = self.status()?;
            if !status.busy() {
                return Ok(());
            }
            let waited = self.card.transport.now().saturating_sub(began);
            if waited >= IDLE_LIMIT_NS {
                return Err(self.wedged(waited, status));
            }
            self.relax();
        }
    }

    fn gone(&mut self) -> ChannelError {
        let quarantined = self.quarantine(QuarantineReason::DeviceGone);
        let error = ChannelError::Gone { card: self.card_name(), channel: self.name, quarantined };
        self.dead = Some(error.clone());
        error
    }

    fn wedged(&mut self, waited: u64, status: ChannelStatus) -> ChannelError {
        let quarantined = self.quarantine(QuarantineReason::IdleNotConfirmed);
        let error = ChannelError::Wedged {
            card: self.card_name(),
            channel: self.name,
            waited_ms: waited / 1_000_000,
            status: status.describe(self.name.direction).to_string(),
            quarantined,
        };
        self.dead = Some(error.clone());
        error
    }

    /// Puts everything posted aside for good and ends it. What was queued but never posted comes back.
    fn quarantine(&mut self, reason: QuarantineReason) -> usize {
        let (card, name) = (self.card_name(), self.name);
        let fault = move || ChannelFault {
            card: card.clone(),
            channel: name,
            cause: FaultCause::Aborted,
            place: None,
        };
        self.collect();
        let mut count = 0;
        let drained: Vec<_> = self.ring.drain().map(|drained| (drained.posted, drained.payload)).collect();
        for (posted, payload) in drained {
            match payload {
                Payload::Buffer(buffer) if posted => {
                    buffer.quarantine(reason);
                    count += 1;
                    self.push(Err(fault()), Payload::Kept);
                }
                other => self.push(Err(fault()), other),
            }
        }
        if let Some(area) = self.area.take() {
            area.quarantine(reason);
        }
        count
    }
}

impl Engine {
    /// Stops the engine for good, as dropping it does, and tells whether it may still reach what was posted: memory that the
    /// submitter kept ([`Payload::Kept`]) must go into quarantine then.
    pub(crate) fn close(&mut self) -> Option<QuarantineReason> {
        if self.dead.is_none()
            && self.ring.is_running()
            && let Err(error) = self.end_run(FaultCause::Aborted)
            && self.dead.is_none()
        {
            // A register that cannot be written: nothing is known of the engine. After a reset it is idle.
            if matches!(error, ChannelError::Mmio { source: fpga_pci::MmioError::Stale { .. }, .. }) {
                return None;
            }
            self.quarantine(QuarantineReason::IdleNotConfirmed);
            self.dead = Some(error);
        }
        match &self.dead {
            None => None,
            Some(ChannelError::Gone { .. }) => Some(QuarantineReason::DeviceGone),
            Some(_) => Some(QuarantineReason::IdleNotConfirmed),
        }
    }
}

impl Drop for Engine {
    /// Stop, confirm idle, then let the memory go; what cannot be confirmed is quarantined.
    fn drop(&mut self) {
        let _ = self.close();
        if self.dead.is_none() {
            // The channel stays quiet for its next owner.
            let _ = ChannelBlock::CONTROL.write(
                &self.bar,
                self.base,
                fpga_registers::xdma::ChannelControl::new(),
            );
        }
    }
}
