//! Receiving of packets into a ring of buffers that the card fills continuously, or into single buffers.
//!
//! Descriptor, buffer and metadata slot have the same index, so a packet is a range of indices. The next call returns them to the card,
//! because the borrow of the packet ends there. Lengths are copied out of the metadata when they are checked. A packet with implausible
//! metadata is skipped up to the next end of packet. The engine is not stopped then, because a stop may never complete.

use fpga_pci::DmaBuffer;
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::{CardAddr, Iova};
use fpga_ring::ring::{HostRange, MAX_DESCRIPTOR_LENGTH, MetadataMemory, PacketSpan, Packets};

use super::error::StreamError;
use super::options::C2hStreamOptions;
use super::packet::Packet;
use super::posted::PostedParts;
use crate::channel::{ChannelEvents, Engine, MemoryHandle, Ticket, WaitOptions};
use crate::error::{At as _, ChannelError, Error, ResourceError, TransferError, TransferFailed};
use crate::fault::{ChannelFault, FaultCause};
use crate::name::ChannelName;
use crate::shared::Shared;

/// Fraction of the ring that must be free before buffers are posted again: a quarter, with one register write for all of them.
const PARTS: u32 = 4;

/// Counters of a receiving stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStatistics {
    /// Number of packets returned.
    pub packets: u64,
    /// Number of bytes in these packets.
    pub bytes: u64,
    /// Number of lost packets ([`StreamError::Packet`]).
    pub lost: u64,
    /// Number of bytes discarded: of lost packets, and up to the next end of packet, also where the stream was opened inside a packet.
    pub discarded_bytes: u64,
    /// Number of times that the card had filled every posted buffer before buffers were posted again, so that its stream stalled. Use more
    /// buffers or take packets earlier.
    pub starved: u64,
}

/// Stream channel from card to host (C2H).
///
/// Ring ([`next_packet`](Self::next_packet)): from the first call on, buffers of one size are posted, and the card fills them. A packet is
/// borrowed in place; the next call posts its buffers again. Normally a call reads one or two words of host memory, allocates nothing,
/// reads no register, and writes one register per quarter of the ring.
///
/// Single buffers ([`receive`](Self::receive)): only the given buffer is posted.
#[derive(Debug)]
pub struct C2hStream {
    pub(super) engine: Engine,
    pub(super) receiver: PacketReceiver,
}

/// Bytes of a stream that were received into one buffer: the caller's, or one of the ring ([`C2hStream::next_part`]).
#[derive(Debug)]
pub struct StreamPart<B = DmaBuffer> {
    /// The buffer, whose length is the number of received bytes. None, if the write flush timeout has closed a buffer without data.
    pub buffer: B,
    /// Whether a packet ends with these bytes.
    pub ends_packet: bool,
}

/// Single buffer that is posted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Single {
    ticket: Ticket,
    length: u32,
    /// It receives a part of the stream, not a whole packet.
    part: bool,
}

/// State of the receiver besides the engine.
#[derive(Debug)]
pub(super) struct PacketReceiver {
    pub(super) packets: Packets,
    pub(super) memory: MemoryHandle,
    /// Device address (IOVA) of the first buffer.
    pub(super) start: u64,
    pub(super) buffers: u32,
    pub(super) size: u32,
    batch: u64,
    /// The engine was stopped with this number of descriptors complete; with the fault to report after these are processed, if any.
    pub(super) fault: Option<(u64, Option<Box<Error<ChannelFault>>>)>,
    /// Single buffer that is posted.
    pub(super) single: Option<Single>,
    /// Buffers of the ring that are posted as parts.
    pub(super) parts: PostedParts,
    /// The stream is stopping: no more buffers are posted.
    stopping: bool,
    /// Nothing was posted since the stream was opened or stopped.
    pub(super) fresh: bool,
    pub(super) statistics: StreamStatistics,
}

impl C2hStream {
    pub(crate) fn new(
        card: &Shared,
        mut engine: Engine,
        options: &C2hStreamOptions,
    ) -> Result<Self, Error<ResourceError>> {
        let (buffers, buffer_size) = (options.buffers, options.buffer_size);
        let bad = || Error::new(ResourceError::StreamBuffers { buffers, size: buffer_size }, card.place());
        let size = u32::try_from(buffer_size).map_err(|_| bad())?;
        let bytes = buffer_size.checked_mul(buffers as usize).ok_or_else(bad)?;
        let area = card.registered_memory(bytes)?;
        let start = area.iova().get();
        // The memory belongs to this card, and its channel was just taken, so it is not refused.
        let memory = engine.register_memory(area).map_err(|_| bad())?;
        let mut packets = Packets::new(buffers, size);
        if engine.is_inside_packet() {
            packets.begin_inside_packet();
        }
        let receiver = PacketReceiver {
            packets,
            memory,
            start,
            buffers,
            size,
            batch: u64::from((buffers / PARTS).max(1)),
            fault: None,
            single: None,
            parts: PostedParts::new(),
            stopping: false,
            fresh: true,
            statistics: StreamStatistics::default(),
        };
        Ok(Self { engine, receiver })
    }

    /// Returns direction and number of the channel.
    #[must_use]
    pub fn name(&self) -> ChannelName {
        self.engine.name()
    }

    /// Returns the next packet, if it has arrived completely. Posts buffers, including those of the previous packet.
    ///
    /// # Errors
    /// [`StreamError::Packet`] for each lost packet, [`StreamError::Fault`] once for each stop of the engine: call again to continue.
    /// [`StreamError::Channel`] if the channel has failed.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error<StreamError>> {
        match self.receiver.advance(&mut self.engine).at(|| self.engine.place())? {
            Some(span) => Ok(Some(self.packet_view(span))),
            None => Ok(None),
        }
    }

    /// Waits for the next packet.
    ///
    /// # Errors
    /// As [`next_packet`](Self::next_packet). On timeout an error with [`Error::is_timeout`]; the buffers stay posted.
    /// [`StreamError::Stopped`] on a stopped stream without further packets.
    pub fn wait_packet(&mut self, options: WaitOptions) -> Result<Packet<'_>, Error<StreamError>> {
        let Self { engine, receiver } = self;
        let span = engine.wait_until(options, |engine| {
            let found = receiver.advance(engine)?;
            if found.is_none() && receiver.stopping && engine.in_flight() == 0 {
                return Err(StreamError::Stopped);
            }
            Ok(found)
        });
        let span = span.at(|| self.engine.place())?;
        Ok(self.packet_view(span))
    }

    fn packet_view(&self, span: PacketSpan) -> Packet<'_> {
        let memory = self
            .engine
            .registered(self.receiver.memory)
            .debug_expect("the stream's buffers are registered")
            .unwrap_or_default();
        let size = self.receiver.size as usize;
        Packet::new(memory, &self.receiver.packets, span, self.receiver.buffers, size)
    }

    /// Receives one packet into `buffer`, which is returned with the packet's length. Its whole capacity is used.
    ///
    /// # Errors
    /// As [`receive_with`](Self::receive_with).
    pub fn receive(&mut self, buffer: DmaBuffer) -> Result<DmaBuffer, TransferFailed<Error<StreamError>>> {
        self.receive_with(buffer, WaitOptions::default())
    }

    /// As [`receive`](Self::receive), with wait options.
    ///
    /// # Errors
    /// [`TransferFailed`] with the buffer, unless it is still posted. It stays posted on timeout: continue with
    /// [`wait_received`](Self::wait_received). A packet longer than the buffer is lost ([`StreamError::Packet`]); the buffer then has its
    /// beginning, and the next call receives the next packet.
    pub fn receive_with(
        &mut self,
        buffer: DmaBuffer,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed<Error<StreamError>>> {
        self.post_single(buffer, false).map_err(|failed| failed.at(|| self.engine.place()))?;
        self.wait_received(options)
    }

    /// Posts a buffer for a whole packet, or for the next part of the stream.
    fn post_single(&mut self, buffer: DmaBuffer, part: bool) -> Result<(), TransferFailed<StreamError>> {
        let Self { engine, receiver } = self;
        if let Err(error) = engine.check_process() {
            return Err(TransferFailed { error: error.into(), buffer: Some(buffer) });
        }
        if receiver.single.is_some()
            || engine.in_flight() > 0
            || receiver.packets.seen() < receiver.done(engine)
        {
            let what = "buffers are posted already, or packets of the ring were not taken";
            let error = StreamError::Posted { what };
            return Err(TransferFailed { error, buffer: Some(buffer) });
        }
        receiver.post(engine, buffer, part)
    }

    /// Receives the next bytes of the stream, until `buffer` is full or a packet ends. For streams without packet ends, or whose packets have
    /// any length. Its whole capacity is used, a multiple of 64 bytes.
    ///
    /// # Errors
    /// As [`receive_with`](Self::receive_with), except that no packet is too long. It stays posted on timeout: continue with
    /// [`wait_part`](Self::wait_part).
    pub fn receive_part(
        &mut self,
        buffer: DmaBuffer,
        options: WaitOptions,
    ) -> Result<StreamPart, TransferFailed<Error<StreamError>>> {
        self.post_single(buffer, true).map_err(|failed| failed.at(|| self.engine.place()))?;
        self.wait_part(options)
    }

    /// Waits for the buffer of a [`receive_part`](Self::receive_part) that timed out.
    ///
    /// # Errors
    /// As [`receive_part`](Self::receive_part).
    pub fn wait_part(
        &mut self,
        options: WaitOptions,
    ) -> Result<StreamPart, TransferFailed<Error<StreamError>>> {
        let Self { engine, receiver } = self;
        loop {
            let received = receiver.received(engine, options).map_err(|failed| failed.at(|| engine.place()));
            if let Some(part) = received? {
                return Ok(part);
            }
        }
    }

    /// Waits for the packet of a [`receive`](Self::receive) that timed out.
    ///
    /// # Errors
    /// As [`receive_with`](Self::receive_with).
    pub fn wait_received(
        &mut self,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed<Error<StreamError>>> {
        self.wait_part(options).map(|received| received.buffer)
    }

    /// Starts nothing more. The channel stops when a packet, or part of one, has closed the open descriptor. Packets that arrive until then
    /// can still be taken; the stream is finished when nothing is [`posted`](Self::posted). Many cards close an open descriptor without
    /// data at once; on others it waits for its packet. To end a stream in order on every card, call this while one more packet is to come
    /// that fits into a buffer; the part that does not fit stays in the card's stream. [`abort`](Self::abort) lets the stream start again.
    ///
    /// # Errors
    /// [`StreamError::Channel`].
    pub fn stop(&mut self) -> Result<(), Error<StreamError>> {
        self.engine.check_process().at(|| self.engine.place()).map_err(Error::widen)?;
        self.receiver.stopping = true;
        if self.engine.in_flight() > 0 {
            self.engine.request_stop().at(|| self.engine.place()).map_err(Error::widen)?;
        }
        Ok(())
    }

    /// Stops the channel, confirms that it is idle, and drops what was posted; [`next_packet`](Self::next_packet) starts again. Complete
    /// packets that have arrived can still be taken first. Returns the single buffer, if one was posted, with the bytes that it has received:
    /// a packet that has arrived meanwhile, the beginning of one, whose rest is discarded when it arrives, or none.
    ///
    /// # Errors
    /// [`ChannelError::Wedged`] if the engine waits for data: only data or a reset of the card ends that.
    pub fn abort(&mut self) -> Result<Option<StreamPart>, Error<StreamError>> {
        let Self { engine, receiver } = self;
        engine.check_process().at(|| engine.place()).map_err(Error::widen)?;
        let aborted = engine.abort();
        let was_single = receiver.single.is_some() || !receiver.parts.is_empty();
        receiver.drop_parts(engine);
        let part = receiver.take_aborted(engine);
        if was_single {
            receiver.packets.restart(engine.submitted());
        }
        receiver.take_faults(engine);
        // A stop requested by the caller is not a fault; descriptors completed before it are still to be processed.
        if let Some((_, fault)) = &mut receiver.fault {
            *fault = None;
        }
        receiver.stopping = false;
        aborted.at(|| self.engine.place()).map_err(Error::widen)?;
        Ok(part)
    }

    /// Returns the counters of the stream.
    #[must_use]
    pub fn statistics(&self) -> StreamStatistics {
        StreamStatistics { discarded_bytes: self.receiver.packets.discarded(), ..self.receiver.statistics }
    }

    /// Returns the number of buffers that are posted and were not reported as filled.
    #[must_use]
    pub fn posted(&self) -> u32 {
        self.engine.in_flight()
    }

    /// Relaxes in a polling loop: a spin-loop hint on hardware; lets a simulated card in this thread take a step.
    pub fn relax(&self) {
        self.engine.relax();
    }

    /// Returns the channel's interrupt as a file descriptor.
    ///
    /// # Errors
    /// [`ChannelError::NoInterrupt`] if interrupts were not enabled when the channel was taken.
    pub fn events(&self) -> Result<ChannelEvents, Error<ChannelError>> {
        self.engine.events().at(|| self.engine.place())
    }

    /// Enables an interrupt for every later arrival; see [`ChannelEvents`].
    ///
    /// # Errors
    /// [`ChannelError::NoInterrupt`].
    pub fn arm(&mut self) -> Result<(), Error<ChannelError>> {
        self.engine.arm().at(|| self.engine.place())
    }

    /// Disables interrupts of the engine.
    ///
    /// # Errors
    /// [`ChannelError::Cause`].
    pub fn disarm(&mut self) -> Result<(), Error<ChannelError>> {
        self.engine.disarm().at(|| self.engine.place())
    }
}

impl Drop for C2hStream {
    /// Stops the engine. If a packet has begun and not ended, the channel keeps a mark of it for its next owner.
    fn drop(&mut self) {
        let Self { engine, receiver } = self;
        if !engine.is_own() {
            return;
        }
        engine.close();
        if receiver.ends_inside_packet(engine) {
            engine.mark_inside_packet();
        }
    }
}

impl PacketReceiver {
    /// Returns the single buffer of a stopped engine with what it has received.
    fn take_aborted(&mut self, engine: &mut Engine) -> Option<StreamPart> {
        let Single { ticket, length, part } = self.single.take()?;
        let done = engine.take(ticket)?.ok()?;
        let mut buffer = done.buffer?;
        let (mut received, mut ends_packet) = (0, false);
        // The stop closes a descriptor that has received data, with its metadata.
        if done.outcome.is_ok() {
            let skipped = self.packets.is_discarding() && !part;
            let metadata = self.packets.part(ticket.0, length, &engine.metadata(), true);
            if let (false, Ok((bytes, ends))) = (skipped, metadata) {
                (received, ends_packet) = (bytes as usize, ends);
            }
        }
        // The length was checked: not longer than the buffer.
        let _ = buffer.set_len(received);
        Some(StreamPart { buffer, ends_packet })
    }

    /// Returns whether the packet that a stopped engine received last has not ended. Everything received is processed.
    fn ends_inside_packet(&mut self, engine: &mut Engine) -> bool {
        if self.single.is_some() {
            drop(self.take_aborted(engine));
            return self.packets.is_inside_packet();
        }
        self.take_faults(engine);
        self.drop_parts(engine);
        let done = self.done(engine);
        while self.packets.seen() < done {
            // Packets that were not taken, and lost ones, end with the stream's owner.
            let _ = self.packets.next(done, &engine.metadata(), true);
        }
        self.packets.is_inside_packet()
    }

    /// Returns the number of complete descriptors.
    pub(super) fn done(&self, engine: &Engine) -> u64 {
        self.fault.as_ref().map_or_else(|| engine.ended(), |(done, _)| *done)
    }

    /// Returns the next packet, if it is complete.
    #[inline]
    fn advance(&mut self, engine: &mut Engine) -> Result<Option<PacketSpan>, StreamError> {
        engine.check_process()?;
        if self.single.is_some() {
            let what = "a single buffer is posted (wait_received)";
            return Err(StreamError::Posted { what });
        }
        if !self.parts.is_empty() {
            return Err(StreamError::Posted { what: "parts are posted (next_part)" });
        }
        // A wait that sleeps polls, too: a stop that it has seen ends descriptors that the card has not filled.
        self.take_faults(engine);
        // The previous packet's borrow has ended.
        if self.missing(engine) >= self.batch && self.fault.is_none() {
            engine.poll()?;
            self.take_faults(engine);
            if self.fault.is_none() {
                self.refill(engine)?;
            }
        }
        if let Some(packet) = self.gather(engine)? {
            return Ok(Some(packet));
        }
        if let Some((_, fault)) = self.fault.take() {
            self.packets.restart(engine.submitted());
            self.fresh = true;
            if let Some(fault) = fault {
                // The channel has failed as a whole: that is the cause, and posting again would report it as well.
                if fault.kind.cause.is_loss() {
                    engine.poll()?;
                }
                return Err(StreamError::Fault(Box::new(fault.kind)));
            }
        }
        let polled = engine.poll();
        self.take_faults(engine);
        polled?;
        if let Some(packet) = self.gather(engine)? {
            return Ok(Some(packet));
        }
        if engine.in_flight() == 0 && self.fault.is_none() {
            self.refill(engine)?;
        }
        Ok(None)
    }

    /// Returns the number of buffers that can be posted.
    #[inline]
    fn missing(&self, engine: &Engine) -> u64 {
        (self.packets.free() + u64::from(self.buffers)).saturating_sub(engine.submitted())
    }

    /// Posts every free buffer.
    fn refill(&mut self, engine: &mut Engine) -> Result<(), StreamError> {
        if self.stopping {
            return Ok(());
        }
        // Nothing in flight: the card has filled all posted buffers.
        self.statistics.starved += u64::from(engine.in_flight() == 0 && !self.fresh);
        self.fresh = false;
        for _ in 0..self.missing(engine) {
            let entry = self.entry(engine.submitted());
            engine.metadata().clear(entry);
            let start = Iova::new(self.start + u64::from(entry) * u64::from(self.size));
            engine.submit_registered(HostRange::new(start, self.size.into())).map_err(StreamError::Submit)?;
        }
        Ok(engine.post()?)
    }

    /// Returns the ring entry of descriptor `count`, which is also the number of its buffer.
    #[inline]
    pub(super) fn entry(&self, count: u64) -> u32 {
        // At most 65535, because there are at most 65536 buffers.
        u32::try_from(count % u64::from(self.buffers)).unwrap_or(0)
    }

    #[inline]
    fn gather(&mut self, engine: &Engine) -> Result<Option<PacketSpan>, StreamError> {
        let done = self.done(engine);
        if self.packets.seen() >= done {
            return Ok(None);
        }
        match self.packets.next(done, &engine.metadata(), engine.may_flush()) {
            Ok(Some(packet)) => {
                self.statistics.packets += 1;
                self.statistics.bytes += packet.bytes;
                Ok(Some(packet))
            }
            Ok(None) => Ok(None),
            Err(source) => {
                self.statistics.lost += 1;
                Err(StreamError::Packet(source))
            }
        }
    }

    /// Checks whether the engine has stopped: then everything posted has ended, with the fault in its completion.
    pub(super) fn take_faults(&mut self, engine: &mut Engine) {
        while let Some(done) = engine.next_completion() {
            if let (Err(fault), None) = (done.outcome, &self.fault) {
                // Becoming idle with buffers remaining is the expected result of a stop.
                let asked_for = self.stopping && matches!(fault.kind.cause, FaultCause::NoError(_));
                self.fault = Some((done.ticket.0, (!asked_for).then_some(fault)));
            }
        }
    }

    /// Posts a single buffer.
    fn post(
        &mut self,
        engine: &mut Engine,
        mut buffer: DmaBuffer,
        part: bool,
    ) -> Result<(), TransferFailed<StreamError>> {
        // The capacity is a multiple of 64 bytes, as stream buffers require.
        let capacity = buffer.capacity();
        // A buffer of this length fits one descriptor at any offset in a page.
        let most = MAX_DESCRIPTOR_LENGTH - 4096;
        let Some(length) = u32::try_from(capacity).ok().filter(|length| *length <= most) else {
            let error = StreamError::BufferTooLarge { length: capacity, most };
            return Err(TransferFailed { error, buffer: Some(buffer) });
        };
        // The length is the buffer's own capacity, so this does not fail.
        let _ = buffer.set_len(capacity);
        engine.metadata().clear(self.entry(engine.submitted()));
        match engine.submit_buffer(buffer, CardAddr::ZERO) {
            Ok(ticket) => {
                self.single = Some(Single { ticket, length, part });
                Ok(())
            }
            Err(refused) => Err(TransferFailed {
                error: StreamError::Submit(refused.error),
                buffer: Some(refused.payload),
            }),
        }
    }

    /// Waits for the single buffer. `None`: it received a part of a discarded packet, and was posted again.
    fn received(
        &mut self,
        engine: &mut Engine,
        options: WaitOptions,
    ) -> Result<Option<StreamPart>, TransferFailed<StreamError>> {
        let Some(Single { ticket, length, part }) = self.single else {
            let error = StreamError::Posted { what: "no single buffer is posted (receive)" };
            return Err(TransferFailed { error, buffer: None });
        };
        let done = match engine.wait(ticket, options) {
            Ok(done) => done,
            Err(error) => {
                // If the channel has failed, this transfer has ended: with its buffer, unless that is in quarantine. Otherwise it stays
                // posted.
                let ended = engine.take(ticket);
                if ended.is_some() {
                    self.single = None;
                }
                let buffer = ended.and_then(|done| done.ok()?.buffer);
                return Err(TransferFailed { error: error.into(), buffer });
            }
        };
        self.single = None;
        let mut buffer = match done.into_buffer() {
            Ok(buffer) => buffer,
            Err(failed) => {
                self.packets.restart(engine.submitted());
                let (error, buffer) = failed.into_parts();
                let error = match error.kind {
                    TransferError::Fault(fault) => StreamError::Fault(Box::new(fault)),
                    TransferError::Channel(error) => StreamError::Channel(error),
                    TransferError::Submit(error) => StreamError::Submit(error),
                    TransferError::NoBuffer => {
                        StreamError::Posted { what: "the completion carries no buffer" }
                    }
                };
                return Err(TransferFailed { error, buffer });
            }
        };
        let (metadata, flushed) = (engine.metadata(), engine.may_flush());
        let received = if part {
            self.packets.part(ticket.0, length, &metadata, flushed).map(Some)
        } else {
            let packet = self.packets.single(ticket.0, length, &metadata, flushed);
            packet.map(|received| received.map(|bytes| (bytes, true)))
        };
        match received {
            Ok(Some((received, ends_packet))) => {
                // The length was checked: not longer than the buffer.
                let _ = buffer.set_len(received as usize);
                self.statistics.packets += u64::from(ends_packet);
                self.statistics.bytes += u64::from(received);
                Ok(Some(StreamPart { buffer, ends_packet }))
            }
            Ok(None) => {
                self.post(engine, buffer, part)?;
                Ok(None)
            }
            Err(source) => {
                self.statistics.lost += 1;
                let error = StreamError::Packet(source);
                Err(TransferFailed { error, buffer: Some(buffer) })
            }
        }
    }
}
