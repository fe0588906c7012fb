//! Receiving of parts of a stream into the ring, several posted at a time.

use fpga_pci::SharedSlice;
use fpga_registers::Iova;
use fpga_registers::invariant::DebugExpect as _;
use fpga_ring::ring::{HostRange, MetadataMemory as _};

use super::error::StreamError;
use super::receive::{C2hStream, PacketReceiver, StreamPart};
use crate::channel::Engine;
use crate::error::{At as _, Error};

/// Granularity of the lengths of stream buffers in bytes (PG195, "Length Granularity").
const GRANULE: usize = 64;

impl C2hStream {
    /// Posts the next buffer of the ring for the next `length` bytes of the stream: it is closed when it is full, and when a packet ends.
    /// Starts the channel. Not together with whole packets or single buffers.
    ///
    /// # Errors
    /// [`StreamError::BufferTooLarge`], also for a length that is not a multiple of 64; [`StreamError::Posted`] if the ring is full, or
    /// posted for packets; [`StreamError::Submit`], [`StreamError::Channel`].
    pub fn post_part(&mut self, length: usize) -> Result<(), Error<StreamError>> {
        let Self { engine, receiver } = self;
        receiver.post_part(engine, length).at(|| self.engine.place())
    }

    /// Returns the oldest posted part if the card has closed its buffer. The next call to the stream may post the buffer again.
    ///
    /// # Errors
    /// [`StreamError::Packet`] for a part with invalid metadata, which is lost; [`StreamError::Fault`] once for each stop of the engine,
    /// after which nothing is posted; [`StreamError::Channel`].
    pub fn next_part(&mut self) -> Result<Option<StreamPart<SharedSlice<'_>>>, Error<StreamError>> {
        let Self { engine, receiver } = self;
        let Some((entry, length, ends_packet)) = receiver.take_part(engine).at(|| self.engine.place())?
        else {
            return Ok(None);
        };
        let buffer = self.receiver.part_memory(&self.engine, entry, length);
        Ok(Some(StreamPart { buffer, ends_packet }))
    }

    /// Returns whether the card has closed the oldest posted part, or has stopped: [`next_part`](Self::next_part) then has a result. Polls
    /// the channel.
    pub fn has_part(&mut self) -> bool {
        let Self { engine, receiver } = self;
        receiver.polls_part(engine).unwrap_or(true)
    }

    /// Returns whether the next byte of the stream continues a packet whose beginning was discarded, or received by an earlier owner.
    #[must_use]
    pub const fn is_inside_packet(&self) -> bool {
        self.receiver.packets.is_inside_packet()
    }

    /// Returns the number of posted parts that were not returned.
    #[must_use]
    pub fn posted_parts(&self) -> usize {
        self.receiver.parts.lengths.len()
    }

    /// Returns whether the card has written to the buffer of the oldest posted part. It may hold bytes that it has not written yet.
    #[must_use]
    pub fn has_part_begun(&self) -> bool {
        let parts = &self.receiver.parts;
        if parts.is_empty() {
            return false;
        }
        let mut first = [0; 8];
        let memory = self.receiver.part_memory(&self.engine, self.receiver.entry(parts.first), first.len());
        memory.read(0, &mut first).is_ok() && u64::from_le_bytes(first) != parts.untouched
    }
}

impl PacketReceiver {
    fn post_part(&mut self, engine: &mut Engine, length: usize) -> Result<(), StreamError> {
        engine.check_process()?;
        if length == 0 || length > self.size as usize || !length.is_multiple_of(GRANULE) {
            return Err(StreamError::BufferTooLarge { length, most: self.size });
        }
        let is_packets = self.parts.is_empty() && engine.in_flight() > 0;
        if self.single.is_some() || is_packets || self.parts.lengths.len() >= self.buffers as usize {
            return Err(StreamError::Posted { what: "every buffer is posted, or some for packets" });
        }
        if self.parts.is_empty() {
            self.parts.first = engine.submitted();
        }
        let entry = self.entry(engine.submitted());
        engine.metadata().clear(entry);
        let buffer = self.part_memory(engine, entry, length);
        let _ =
            buffer.write(0, &self.parts.untouched.to_le_bytes()).debug_expect("a part has at least 64 bytes");
        let start = Iova::new(self.start + u64::from(entry) * u64::from(self.size));
        engine.submit_registered(HostRange::new(start, length as u64)).map_err(StreamError::Submit)?;
        self.parts.lengths.push_back(u32::try_from(length).unwrap_or(self.size));
        self.fresh = false;
        // Continues in `poll` if a run has to end first.
        Ok(engine.post()?)
    }

    /// Returns whether the oldest part has ended, or the engine has stopped.
    fn polls_part(&mut self, engine: &mut Engine) -> Result<bool, StreamError> {
        let polled = engine.poll();
        self.take_faults(engine);
        polled?;
        Ok(self.fault.is_some() || !self.parts.is_empty() && self.parts.first < engine.ended())
    }

    /// Returns the oldest part if it has ended: the entry of its buffer, its length in bytes, and whether a packet ends with it.
    fn take_part(&mut self, engine: &mut Engine) -> Result<Option<(u32, usize, bool)>, StreamError> {
        self.polls_part(engine)?;
        if self.parts.first < self.done(engine)
            && let Some(length) = self.parts.lengths.pop_front()
        {
            let count = self.parts.first;
            self.parts.first += 1;
            let part = self.packets.part(count, length, &engine.metadata(), engine.may_flush());
            let (bytes, ends) = part.map_err(|fault| {
                self.statistics.lost += 1;
                StreamError::Packet(fault)
            })?;
            self.statistics.bytes += u64::from(bytes);
            self.statistics.packets += u64::from(ends);
            return Ok(Some((self.entry(count), bytes as usize, ends)));
        }
        if let Some((_, fault)) = self.fault.take() {
            self.parts.clear();
            self.packets.restart(engine.submitted());
            self.fresh = true;
            if let Some(fault) = fault {
                return Err(StreamError::Fault(Box::new(fault.kind)));
            }
        }
        Ok(None)
    }

    /// Drops the parts of a stopped engine; those that have ended determine whether the stream is inside a packet.
    pub(super) fn drop_parts(&mut self, engine: &Engine) {
        let done = self.done(engine);
        while self.parts.first < done
            // The stop also ends descriptors that have received nothing: those have no metadata.
            && engine.metadata().read(self.entry(self.parts.first)) != [0; 2]
            && let Some(length) = self.parts.lengths.pop_front()
        {
            let _ = self.packets.part(self.parts.first, length, &engine.metadata(), true);
            self.parts.first += 1;
        }
        self.parts.clear();
    }

    /// The first `length` bytes of a buffer.
    fn part_memory<'a>(&self, engine: &'a Engine, entry: u32, length: usize) -> SharedSlice<'a> {
        let memory = engine.registered(self.memory).unwrap_or_default();
        let start = entry as usize * self.size as usize;
        memory.slice(start, length).debug_expect("a buffer in the ring's memory").unwrap_or_default()
    }
}
