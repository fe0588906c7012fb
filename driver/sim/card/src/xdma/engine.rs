//! Engine of a channel: descriptor fetch and execution.
//!
//! Behaviour that the vendor's documents do not specify, with tests:
//!
//! * A block of `Nxt_adj + 1` descriptors is read into the prefetch buffer as soon as the buffer has space for the whole block. Later
//!   changes of the descriptors in host memory have no effect on it. With fewer credits than descriptors, a part of the block is read. The
//!   next fetch follows the last descriptor read. A block that wraps in the circular buffer takes two read requests.
//! * A block that crosses a 4 KiB boundary: descriptors behind the boundary do not arrive. Descriptors before it run, then the engine
//!   stops with a magic error, as users of real cards report.
//! * Faults are reported in order: descriptors before the bad one run first, so the completed count identifies it.
//! * After a Stop bit, an error or a cleared Run bit, the prefetch buffer is discarded; only a 0->1 edge of Run starts the engine again.
//! * A zero-length descriptor completes without moving data.
//! * Length errors: PG195 defines `invalid_length` (status bit 5) for AXI4-Stream channels only (see `stream`), so memory-mapped channels
//!   never set it. Their only length rule applies in fixed-address mode: lengths are whole beats. A violation is an `align_mismatch`, like
//!   a misaligned address.
//! * Run set again while the old descriptor is in flight: that descriptor completes first, then the new run starts with a count of 0.
//! * Clearing Run of an engine that has already stopped records no event (`idle_stopped` needs an active engine).

use super::channel::{Channel, control, status};
use super::prefetch::{Fetched, Head, MAGIC, STOP};
use super::state::{ActiveDescriptor, EngineOptions};
use crate::config_space::BadCompletion;
use crate::description::WritebackRule;
use crate::fault_log::FaultKind;
use crate::fault_plan::{DescriptorFault, WritebackFault};
use crate::host::HostPort;
use crate::link::{EngineContext, Upstream};
use crate::work::{QUANTUM, Work};
use fpga_registers::Iova;
use fpga_registers::xdma::Direction;
use fpga_registers::xdma::channel::StatusError;
use fpga_registers::xdma::descriptor::DescriptorControl;

pub(super) const COMPLETED: u32 = DescriptorControl::from_bits(0).with_completed(true).into_bits();

impl Channel {
    /// Does one unit of work: a descriptor fetch, or up to one page of one descriptor's data.
    pub(super) fn unit<H: HostPort + ?Sized>(
        &mut self,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        if std::mem::take(&mut self.engine.drops_ahead)
            && let Some(design) = lanes.space.design()
        {
            design.drop_ahead(self.unit);
        }
        if !self.engine.active || self.engine.hangs {
            return false;
        }
        if self.engine.stopping
            && !self.must_finish_ahead()
            && (self.engine.flight.is_none() || self.drops_flight(rules))
        {
            self.engine.stopping = false;
            self.halt(status::IDLE_STOPPED);
            if self.stream
                && self.direction == Direction::C2h
                && let Some(design) = lanes.space.design()
            {
                design.stop_stream(u8::try_from(self.index).unwrap_or(0));
            }
            return true;
        }
        if !self.engine.stopping && self.may_fetch() {
            self.fetch(rules, lanes);
            return true;
        }
        if let Some(flight) = self.engine.flight {
            if self.stream {
                return self.stream_transfer(flight, rules, lanes);
            }
            return self.transfer(flight, rules, lanes);
        }
        match self.engine.prefetch.pop() {
            Head::Descriptor(fetched) => self.begin_descriptor(&fetched, rules, lanes),
            // A refused fetch stops the engine only if Control enables the log of that error. Otherwise the all-ones answer is taken as
            // a descriptor.
            Head::Refused(_) if self.control & status::FETCH_UNSUPPORTED != 0 => {
                self.fail(status::FETCH_UNSUPPORTED, rules, lanes);
            }
            Head::Refused(ones) => self.begin_descriptor(&ones, rules, lanes),
            // Waits for credits, or for fetching to be resumed, or for user logic.
            Head::Empty => {
                if self.bypass
                    && let Some(design) = lanes.space.design()
                {
                    design.descriptor_wanted(self.unit);
                }
                return false;
            }
        }
        true
    }

    /// Whether descriptors that were begun ahead write memory: a stop waits for them, so that an idle channel writes nothing.
    fn must_finish_ahead(&self) -> bool {
        self.engine.ahead > 0 && self.direction == Direction::H2c
    }

    /// Returns the next unit of [`unit`](Self::unit), with its amount of data.
    pub(super) fn next_unit(&self) -> Work {
        let engine = &self.engine;
        let is_stopped = engine.stopping && engine.flight.is_none() && !self.must_finish_ahead();
        if !engine.active || engine.hangs || is_stopped {
            return Work::Instant;
        }
        if !engine.stopping && self.may_fetch() {
            return Work::Fetch { bytes: self.fetch_bytes() };
        }
        let direction = self.direction;
        if self.stream {
            return Work::Stream { direction };
        }
        let dma = |length: u32, first| {
            let bytes = u64::from(length).min(QUANTUM as u64);
            Work::Dma { direction, bytes, first }
        };
        match (engine.flight, engine.prefetch.head()) {
            (Some(flight), _) => dma(flight.remaining, false),
            (None, Some(fetched)) if fetched.control >> 16 == MAGIC => dma(fetched.length, true),
            _ => Work::Instant,
        }
    }

    fn begin_descriptor<H: HostPort + ?Sized>(
        &mut self,
        fetched: &Fetched,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) {
        if fetched.control >> 16 != MAGIC {
            lanes.upstream.faults.push(FaultKind::BadMagic, self.unit, 0, fetched.control);
            self.fail(status::MAGIC_STOPPED, rules, lanes);
            return;
        }
        if lanes.upstream.plan.watches_channels() && self.fault_at_start(rules, lanes) {
            self.engine.drop_ahead();
            return;
        }
        if self.stream {
            self.begin_stream(fetched, rules, lanes);
            return;
        }
        let mut flight = ActiveDescriptor::new(fetched, self.control & control::NON_INCREMENTING != 0);
        if self.engine.ahead > 0 {
            self.engine.ahead -= 1;
            if self.direction == Direction::H2c {
                flight.pending = flight.remaining;
            }
        }
        let width = u64::from(self.engine.width_bytes);
        if flight.fixed
            && !(flight.source | flight.destination | u64::from(flight.remaining)).is_multiple_of(width)
        {
            let at = match self.direction {
                Direction::H2c => flight.destination,
                Direction::C2h => flight.source,
            };
            lanes.upstream.faults.push(FaultKind::Misaligned, self.unit, at, flight.remaining);
            self.fail(status::ALIGN_MISMATCH, rules, lanes);
            return;
        }
        self.transfer(flight, rules, lanes);
    }

    /// Applies the fault plan to a descriptor that starts. Returns whether the fault replaces its execution.
    #[cold]
    fn fault_at_start<H: HostPort + ?Sized>(
        &mut self,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        let Upstream { plan, faults, .. } = &mut lanes.upstream;
        match plan.descriptor_starts(self.unit, faults) {
            None => false,
            Some(DescriptorFault::Stall) => {
                self.engine.hangs = true;
                true
            }
            Some(DescriptorFault::Error(error)) => {
                match error {
                    StatusError::HostReadCompleterAbort | StatusError::DescriptorCompleterAbort => {
                        faults.note_completion(BadCompletion::CompleterAbort);
                    }
                    StatusError::HostReadPoisoned | StatusError::DescriptorPoisoned => {
                        faults.note_completion(BadCompletion::Poisoned);
                    }
                    StatusError::HostReadUnsupportedRequest | StatusError::DescriptorUnsupportedRequest => {
                        faults.note_completion(BadCompletion::UnsupportedRequest);
                    }
                    _ => {}
                }
                let bits = 1 << error.bit();
                // The engine always stops at a bad descriptor; for other errors Control decides.
                let stops = error.bit() <= StatusError::InvalidLength.bit() || self.control & bits != 0;
                if stops {
                    self.fail(bits, rules, lanes);
                }
                stops
            }
        }
    }

    /// Completes the descriptor in flight.
    pub(super) fn complete<H: HostPort + ?Sized>(
        &mut self,
        flags: u32,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) {
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
        let Upstream { plan, faults, .. } = &mut lanes.upstream;
        if plan.watches_channels() {
            plan.descriptor_done(self.unit, faults);
        }
    }

    /// Reports a descriptor with the Completed flag.
    pub(super) fn announce<H: HostPort + ?Sized>(
        &mut self,
        rules: EngineOptions,
        upstream: &mut Upstream<'_, H>,
    ) {
        self.record(status::DESCRIPTOR_COMPLETED);
        let enabled = match rules.writeback {
            WritebackRule::Flag => true,
            WritebackRule::FlagAndEnable => self.control & status::DESCRIPTOR_COMPLETED != 0,
        };
        if enabled {
            self.write_back(upstream);
        }
    }

    /// Stops the engine because of an error; bit 31 of the write-back reports it to a driver in poll mode.
    pub(super) fn fail<H: HostPort + ?Sized>(
        &mut self,
        bits: u32,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) {
        self.busy_lingers = rules.busy_after_error;
        self.halt(bits);
        self.write_back(&mut lanes.upstream);
    }

    fn halt(&mut self, bits: u32) {
        self.record(bits);
        let restart = self.engine.restart.take();
        self.engine.abandon();
        if let Some((first, adjacent)) = restart {
            // Run was set again while the old descriptor was in flight: start over now.
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
        upstream.counters.writebacks += 1;
        if upstream.plan.watches_channels() {
            self.write_back_with_faults(error, upstream);
            return;
        }
        let word = self.completed & 0x00FF_FFFF | error;
        upstream.post(self.unit, Iova::new(self.writeback), &word.to_le_bytes());
    }

    /// Write-back subject to the fault plan.
    #[cold]
    fn write_back_with_faults<H: HostPort + ?Sized>(&self, error: u32, upstream: &mut Upstream<'_, H>) {
        let Upstream { plan, faults, .. } = upstream;
        let count = if plan.watches_counts() {
            plan.count(self.unit, self.completed, faults)
        } else {
            self.completed
        };
        let word = (count & 0x00FF_FFFF | error).to_le_bytes();
        let arrives = match plan.writeback(self.unit, faults) {
            None => word.len(),
            Some(WritebackFault::Missing) => 0,
            Some(WritebackFault::Torn(bytes)) => bytes,
        };
        match word.get(..arrives) {
            None | Some([]) => {}
            Some(bytes) => upstream.post(self.unit, Iova::new(self.writeback), bytes),
        }
    }
}
