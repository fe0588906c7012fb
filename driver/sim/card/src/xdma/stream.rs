//! Execution of descriptors of an AXI4-Stream build (PG195: "AXI4-Stream", H2C and C2H stream descriptors, C2H metadata).
//!
//! Behaviour that PG195 does not specify, with tests:
//!
//! * The first descriptor without data is in flight as soon as it was fetched. The card file decides what clearing Run does to it
//!   (`stream.stop_drops_empty`). PG195 has the engine "complete the current descriptor", and users report channels that stay busy because
//!   no data arrives for it. The vendor's driver assumes the opposite: where a read ends with its packet, it clears Run with the rest of
//!   its buffers posted, frees them and starts a new run. An engine that kept the old descriptor would then write the next packet into
//!   memory that has another owner. An H2C channel whose port accepts no data stays busy.
//! * `invalid_length` (status bit 5): a length that is not whole beats, of an H2C descriptor that does not end its packet or of any C2H
//!   descriptor. The engine continues: PG195 specifies no granularity of lengths here ("Length Granularity"), has an H2C descriptor end in
//!   a beat with a partial TKEEP anywhere in the packet ("DMA H2C Stream"), and says of control bit 5 that it lets the condition be
//!   logged, where it says of others that they also stop the engine. The vendor's driver relies on it: it cuts a packet at the pages of
//!   its buffer, regardless of the buffer's start. The logic behind the port packs the bytes, as a width converter does. Because other
//!   logic cannot, this project's driver refuses such parts; [`CardCounters::partial_beats`](crate::CardCounters::partial_beats) counts
//!   them.
//! * An empty H2C descriptor that ends its packet stops the engine with `invalid_length`, even if control bit 5 does not let it be
//!   recorded, and is noted in the fault log: a last beat without a valid byte (TKEEP of 0) is not allowed (PG195). An empty descriptor
//!   that does not end a packet completes.
//! * C2H descriptors "must be sized as a multiple of 64 bytes" (PG195, "Length Granularity"). The effect of other sizes is not specified,
//!   and drivers post them. They are filled to their size, and counted:
//!   [`CardCounters::odd_stream_buffers`](crate::CardCounters::odd_stream_buffers).
//! * A C2H descriptor is closed when it is full, when the packet ends, or by the write flush timeout. A packet that ends exactly with the
//!   descriptor is one write-back, with EOP. Its metadata is written before the descriptor counts as complete.
//! * The write flush timeout counts from the last byte of the open descriptor. It does not close a descriptor without any byte unless
//!   `stream.flush_empty` is set: PG195 speaks of flushing "the write data it already received".
//! * A packet in which an H2C channel was stopped stays open: the bytes of the next descriptor continue it.

use super::channel::{Channel, control, status};
use super::prefetch::Fetched;
use super::state::{ActiveDescriptor, EngineOptions, OpenDescriptor};
use super::transfer::Failure;
use crate::fault_log::FaultKind;
use crate::fault_plan::StreamWritebackFault;
use crate::host::HostPort;
use crate::link::{EngineContext, Unsupported, Upstream};
use crate::memory::PAGE;
use fpga_protocol::time::Nanos;
use fpga_registers::Iova;
use fpga_registers::cast::index;
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::xdma::descriptor::DescriptorControl;
use fpga_registers::xdma::{Direction, StreamWriteback};

pub(super) const EOP: u32 = DescriptorControl::from_bits(0).with_eop(true).into_bits();
/// Granularity of the lengths of C2H descriptors in bytes (PG195, "Length Granularity").
const C2H_GRANULE: u32 = 64;
/// AXI user clock of the model: 250 MHz.
const NANOS_PER_CLOCK: u64 = 4;

impl Channel {
    /// Time at which a timer gives work to a channel that waits for data.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.engine.flight.and(self.engine.open.wakes)
    }

    /// Returns whether a cleared Run drops the descriptor in flight: a C2H stream descriptor without data.
    #[inline]
    pub(super) fn drops_flight(&self, rules: EngineOptions) -> bool {
        let empty = self.engine.open.received == 0;
        self.stream && rules.stop_drops_empty && empty && self.direction == Direction::C2h
    }

    fn port(&self) -> usize {
        index(self.index)
    }

    pub(super) fn begin_stream<H: HostPort + ?Sized>(
        &mut self,
        fetched: &Fetched,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) {
        let flight = ActiveDescriptor::new(fetched, false);
        let whole_beats = flight.remaining.is_multiple_of(self.engine.width_bytes.max(1));
        let ends_packet = flight.flags & EOP != 0;
        match self.direction {
            Direction::H2c if ends_packet && flight.remaining == 0 => {
                lanes.upstream.faults.push(FaultKind::EmptyPacket, self.unit, flight.source, 0);
                self.fail(status::INVALID_LENGTH, rules, lanes);
                return;
            }
            Direction::H2c if !ends_packet && !whole_beats => {
                lanes.upstream.counters.partial_beats += 1;
                self.record(status::INVALID_LENGTH);
            }
            Direction::H2c => {}
            Direction::C2h => {
                lanes.upstream.counters.odd_stream_buffers +=
                    u64::from(!flight.remaining.is_multiple_of(C2H_GRANULE));
                if !whole_beats {
                    self.record(status::INVALID_LENGTH);
                }
            }
        }
        self.engine.open = OpenDescriptor { since: lanes.now, ..OpenDescriptor::NEW };
        self.stream_transfer(flight, rules, lanes);
    }

    /// Moves data of the descriptor in flight to or from the port, at most a page. Returns `false` if the channel has to wait.
    pub(super) fn stream_transfer<H: HostPort + ?Sized>(
        &mut self,
        flight: ActiveDescriptor,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        match self.direction {
            Direction::H2c => self.stream_out(flight, rules, lanes),
            Direction::C2h => self.stream_in(flight, rules, lanes),
        }
    }

    fn stream_out<H: HostPort + ?Sized>(
        &mut self,
        flight: ActiveDescriptor,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        if lanes.space.design().is_some() {
            return self.send_to_design(flight, rules, lanes);
        }
        let port = self.port();
        let remaining = index(flight.remaining);
        let most = remaining.min(PAGE).min(lanes.streams.free_bytes(port));
        if most == 0 && remaining != 0 {
            lanes.upstream.counters.stream_holds += u64::from(!self.engine.open.held);
            self.engine.open.held = true;
            self.engine.flight = Some(flight);
            return false;
        }
        self.engine.open.held = false;
        let EngineContext { upstream, streams, .. } = lanes;
        let unit = self.unit;
        let refused = upstream.plan.watches_channels() && self.refuses(&flight, most, upstream);
        let moved = streams.push_h2c(port, most, |into| {
            if refused {
                return Err(Unsupported { arrived: 0 });
            }
            upstream.read(unit, FaultKind::HostReadRefused, Iova::new(flight.source), into)
        });
        let moved = match moved {
            Ok(count) => {
                upstream.counters.h2c_bytes += count as u64;
                if count == remaining && flight.flags & EOP != 0 {
                    streams.end_packet(port);
                    upstream.counters.packets_taken += 1;
                }
                Ok(count)
            }
            Err(_) => Err(Failure::Status(status::READ_UNSUPPORTED)),
        };
        self.settle(flight, most, moved, rules, lanes);
        true
    }

    fn stream_in<H: HostPort + ?Sized>(
        &mut self,
        mut flight: ActiveDescriptor,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        let port = self.port();
        let most = index(flight.remaining).min(PAGE);
        let is_model = lanes.space.design().is_none();
        let EngineContext { upstream, space, streams, now, .. } = lanes;
        let offered = match space.design_and_scratch() {
            None => Some(streams.offer(port, most, *now)),
            Some((design, scratch)) => self.receive_from_design(design, scratch, most),
        };
        let Some((bytes, ends)) = offered else {
            self.engine.open = OpenDescriptor::NEW;
            self.fail(status::READ_SLAVE, rules, lanes);
            return true;
        };
        let count = bytes.len();
        if count == 0 && flight.remaining != 0 {
            return self.wait_for_data(flight, rules, lanes);
        }
        let refused = upstream.plan.watches_channels() && self.refuses(&flight, count, upstream);
        if count > 0 && !refused {
            upstream.post(self.unit, Iova::new(flight.destination), bytes);
        }
        upstream.counters.c2h_bytes += count as u64;
        // An empty descriptor takes no byte, so it cannot contain the end of a packet either.
        let mut ends = ends && count > 0;
        if upstream.plan.watches_channels() {
            let Upstream { plan, faults, .. } = upstream;
            ends = ends && !plan.packet_end_lost(self.unit, faults);
        }
        upstream.counters.packets_given += u64::from(ends);
        if is_model {
            streams.take(port, count);
        }
        self.performance.count(count, self.engine.width_bytes);
        let moved = u32::try_from(count).debug_expect("at most a page").unwrap_or(0);
        flight.remaining -= moved.min(flight.remaining);
        flight.destination = flight.destination.wrapping_add(count as u64);
        self.engine.open.received = self.engine.open.received.saturating_add(moved);
        self.engine.open.since = lanes.now;
        if ends || flight.remaining == 0 {
            self.close(&flight, ends, rules, lanes);
        } else {
            self.engine.flight = Some(flight);
        }
        true
    }

    /// No data to receive: the write flush timeout may close the descriptor.
    fn wait_for_data<H: HostPort + ?Sized>(
        &mut self,
        flight: ActiveDescriptor,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) -> bool {
        let open = &mut self.engine.open;
        let may_flush = rules.flush_timeout != 0 && (open.received > 0 || lanes.streams.flush_empty);
        let timeout = Nanos::new(NANOS_PER_CLOCK << rules.flush_timeout);
        let flush_at = may_flush.then(|| open.since.saturating_add(timeout));
        if flush_at.is_some_and(|at| at <= lanes.now) {
            self.close(&flight, false, rules, lanes);
            return true;
        }
        // The model's own packet source; a design calls `wake_channels`.
        let more_at = lanes.streams.next(index(self.index)).filter(|at| *at > lanes.now);
        open.wakes = [flush_at, more_at].into_iter().flatten().min();
        self.engine.flight = Some(flight);
        false
    }

    /// Closes the descriptor: writes its metadata, then completes it.
    fn close<H: HostPort + ?Sized>(
        &mut self,
        flight: &ActiveDescriptor,
        ends: bool,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) {
        if self.control & control::NO_METADATA == 0 {
            let [first, second] = StreamWriteback::new(self.engine.open.received, ends).to_words();
            let Upstream { plan, faults, .. } = &mut lanes.upstream;
            let fault = if plan.watches_channels() { plan.metadata(self.unit, faults) } else { None };
            let (first, second) = match fault {
                None => (Some(first), Some(second)),
                Some(StreamWritebackFault::Missing) => (None, None),
                Some(StreamWritebackFault::Torn) => (Some(first), None),
                Some(StreamWritebackFault::Words([first, second])) => (Some(first), Some(second)),
            };
            let mut bytes = [0; 8];
            let mut length = 0;
            for (place, word) in bytes.chunks_exact_mut(4).zip([first, second].into_iter().flatten()) {
                place.copy_from_slice(&word.to_le_bytes());
                length += 4;
            }
            if let Some(written) = bytes.get(..length).filter(|written| !written.is_empty()) {
                lanes.upstream.counters.stream_writebacks += 1;
                lanes.upstream.post(self.unit, Iova::new(flight.source), written);
            }
        }
        self.engine.open = OpenDescriptor::NEW;
        self.complete(flight.flags, rules, lanes);
    }
}
