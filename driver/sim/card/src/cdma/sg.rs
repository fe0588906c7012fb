//! Scatter-gather engine of the CDMA (PG034, descriptor chain).

use super::{Cdma, CopyInProgress, CopyStep, control, status};
use crate::hooks::AxiError;
use crate::host::HostPort;
use crate::link::{EngineContext, Upstream};
use crate::space::CardSpace;
use fpga_registers::CardAddr;

const SOURCE_OFFSET: u64 = 0x08;
const STATUS_OFFSET: u64 = 0x1C;
const COMPLETED: u32 = 1 << 31;
const FAILED_DECODE: u32 = 1 << 30;
const FAILED_SLAVE: u32 = 1 << 29;
const FAILED_INTERNAL: u32 = 1 << 28;

/// Position in the chain.
#[derive(Debug, Default)]
pub(super) struct ScatterGather {
    pub(super) running: bool,
    /// SGMode was toggled: the next start takes CURDESC.
    pub(super) reload: bool,
    /// Descriptor at which a later tail write continues.
    next: u64,
    copy: Option<CopyInProgress>,
    following: u64,
    /// Status word of the descriptor whose copy is over, until it is written, and the error that ended the copy.
    closing: Option<(u32, u32)>,
}

impl ScatterGather {
    /// Handles a write of TAILDESC. While running, it only moves the stop point.
    pub(super) const fn start(&mut self, current: u64) {
        if self.running {
            return;
        }
        if self.reload {
            self.next = current;
            self.reload = false;
        }
        self.running = true;
    }

    /// Rest of the descriptor in execution, or the next descriptor, and whether that one begins; `None` if the engine rests.
    pub(super) fn next_copy(&self, space: &CardSpace, length_mask: u32) -> Option<(CopyInProgress, bool)> {
        if !self.running {
            return None;
        }
        if let Some(copy) = self.copy {
            return Some((copy, false));
        }
        // Source, destination, length (PG034, table of descriptor fields); zeros where there is no descriptor.
        let mut bytes = [0; 20];
        let _ = space.read(CardAddr::new(self.next.wrapping_add(SOURCE_OFFSET)), &mut bytes);
        let word = |at: usize| {
            bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
        };
        let long = |at| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some((
            CopyInProgress { source: long(0), destination: long(8), remaining: word(16) & length_mask },
            true,
        ))
    }

    pub(super) const fn stop(&mut self) {
        self.running = false;
        self.copy = None;
        self.closing = None;
    }
}

impl Cdma {
    pub(super) fn step_sg(&mut self, lanes: &mut EngineContext<'_, dyn HostPort>) -> bool {
        if !self.sg.running {
            return false;
        }
        match (self.sg.closing, self.sg.copy) {
            (Some((word, error)), _) => self.close_descriptor(word, error, lanes),
            (None, None) => self.fetch_descriptor(lanes),
            (None, Some(copy)) => self.continue_descriptor(copy, lanes),
        }
    }

    /// Returns `false` if a design outside the model has not answered yet, as all steps do.
    fn fetch_descriptor(&mut self, lanes: &mut EngineContext<'_, dyn HostPort>) -> bool {
        self.current = self.sg.next;
        let Upstream { plan, faults, .. } = &mut lanes.upstream;
        if plan.watches_cdma()
            && let Some(error) = plan.cdma_fetches(faults)
        {
            self.halt(error.bit(), self.current, lanes);
            return true;
        }
        let mut bytes = [0; 32];
        let at = CardAddr::new(self.current);
        let read = if let Some(ports) = &mut self.ports {
            ports.read_descriptor(at, &mut bytes).map_err(|error| (error, at))
        } else if let Some(beyond) = self.beyond(lanes.space, &[at]) {
            beyond.read_descriptor(at, &mut bytes).map_err(|error| (error, at))
        } else {
            lanes.space.read(at, &mut bytes)
        };
        match read {
            Ok(()) => {}
            Err((AxiError::Pending, _)) => return false,
            Err((error, at)) => {
                self.fail_sg(error, 0, at.get(), lanes);
                return true;
            }
        }
        let mut words = [0_u32; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        let [next_low, next_high, source_low, source_high, destination_low, destination_high, length, state] =
            words;
        let cyclic = self.control & control::CYCLIC != 0;
        if state & COMPLETED != 0 && !cyclic {
            // A descriptor still marked complete by the engine: overrun.
            self.halt(status::SG_INTERNAL, self.current, lanes);
            return true;
        }
        // A 32-bit build has no high words.
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        self.sg.following = self.pointer(join(next_low, next_high));
        let copy = CopyInProgress {
            source: self.address(join(source_low, source_high)),
            destination: self.address(join(destination_low, destination_high)),
            remaining: length & self.length_mask,
        };
        self.continue_descriptor(copy, lanes);
        true
    }

    fn continue_descriptor(
        &mut self,
        mut copy: CopyInProgress,
        lanes: &mut EngineContext<'_, dyn HostPort>,
    ) -> bool {
        match self.advance_copy(&mut copy, lanes) {
            CopyStep::More => self.sg.copy = Some(copy),
            CopyStep::Pending => {
                self.sg.copy = Some(copy);
                return false;
            }
            CopyStep::Done => {
                self.sg.copy = None;
                lanes.upstream.counters.cdma_descriptors += 1;
                self.close_descriptor(COMPLETED, 0, lanes);
            }
            CopyStep::Failed(error) => {
                let mark = match error {
                    status::DMA_DECODE => FAILED_DECODE,
                    status::DMA_SLAVE => FAILED_SLAVE,
                    _ => FAILED_INTERNAL,
                };
                self.close_descriptor(mark, error, lanes);
            }
            CopyStep::Silent => {
                self.sg.copy = Some(copy);
                self.hang(copy.source, lanes);
            }
        }
        true
    }

    /// Handles a failed access of the scatter-gather port at `address`, in addition to `earlier` error bits.
    fn fail_sg(
        &mut self,
        error: AxiError,
        earlier: u32,
        address: u64,
        lanes: &mut EngineContext<'_, dyn HostPort>,
    ) {
        match error {
            AxiError::Decode => self.halt(earlier | status::SG_DECODE, address, lanes),
            AxiError::Slave => self.halt(earlier | status::SG_SLAVE, address, lanes),
            AxiError::Silent | AxiError::Pending => self.hang(address, lanes),
        }
    }

    /// Writes the status word of the descriptor whose copy is over. `error`: the reason of its failure, or 0.
    fn close_descriptor(
        &mut self,
        word: u32,
        error: u32,
        lanes: &mut EngineContext<'_, dyn HostPort>,
    ) -> bool {
        let written = self.write_state(word, lanes);
        if written == Err(AxiError::Pending) {
            self.sg.closing = Some((word, error));
            return false;
        }
        self.sg.closing = None;
        match written {
            // The status write may fail too; the engine halts anyway.
            Err(second) => self.fail_sg(second, error, self.current, lanes),
            Ok(()) if error != 0 => self.halt(error, self.current, lanes),
            Ok(()) => {
                self.count_completion(lanes.now);
                self.sg.next = self.sg.following;
                if self.current == self.tail {
                    self.sg.stop();
                }
            }
        }
        true
    }

    fn write_state(
        &mut self,
        state: u32,
        lanes: &mut EngineContext<'_, dyn HostPort>,
    ) -> Result<(), AxiError> {
        let at = CardAddr::new(self.current.wrapping_add(STATUS_OFFSET));
        if let Some(ports) = &mut self.ports {
            ports.write_descriptor(at, state)
        } else if let Some(beyond) = self.beyond(lanes.space, &[at]) {
            beyond.write_descriptor(at, state)
        } else {
            lanes.space.write(at, &state.to_le_bytes()).map_err(|(error, _)| error)
        }
    }
}
