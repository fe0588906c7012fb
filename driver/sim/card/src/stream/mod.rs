//! Card side of AXI4-Stream channels: one port per channel, and the logic behind the ports.

pub(crate) mod description;
mod fifo;
mod source;

use crate::description::CardDescription;
use description::StreamLogic;
use fifo::Fifo;
use fpga_protocol::time::Nanos;
use fpga_registers::invariant::DebugExpect as _;
use source::Source;

/// A C2H port.
#[derive(Debug)]
struct Port {
    fifo: Fifo,
    source: Option<Source>,
}

/// The stream ports of a card; none on a memory-mapped build.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Ports by C2H channel.
    ports: Vec<Port>,
    /// Data of H2C channels is discarded.
    sink: bool,
    /// H2C ports that do not accept data now (TREADY low), one bit each.
    not_ready: u32,
    /// Buffer for discarded bytes.
    scratch: Box<[u8]>,
    pub(crate) flush_empty: bool,
}

/// Maximum number of bytes that a sink accepts at a time.
const SCRATCH: usize = 4096;

impl Streams {
    pub(crate) fn new(description: &CardDescription) -> Self {
        let stream = &description.stream;
        let xdma = &description.xdma;
        let generates = stream.logic == StreamLogic::Source;
        let beat = usize::from(xdma.data_width / 8);
        let bytes = usize::try_from(stream.fifo_bytes).unwrap_or(1 << 16).next_power_of_two();
        let port = |channel| Port {
            fifo: Fifo::new(bytes, beat),
            source: generates.then(|| Source::new(&stream.source, channel)),
        };
        // An H2C channel beyond the last C2H channel has no port here. Its data would never be read, so it is a sink.
        let ports = if xdma.stream { xdma.c2h_channels } else { 0 };
        Self {
            ports: (0..ports).map(port).collect(),
            sink: generates,
            not_ready: 0,
            scratch: vec![0; if ports > 0 { SCRATCH } else { 0 }].into_boxed_slice(),
            flush_empty: stream.flush_empty,
        }
    }

    pub(crate) fn reset(&mut self) {
        for port in &mut self.ports {
            port.fifo.clear();
            if let Some(source) = &mut port.source {
                source.reset();
            }
        }
        self.not_ready = 0;
    }

    /// Sets whether the H2C port of `channel` accepts data.
    pub(crate) const fn set_ready(&mut self, channel: u8, ready: bool) {
        let bit = 1_u32.wrapping_shl(channel as u32);
        self.not_ready = if ready { self.not_ready & !bit } else { self.not_ready | bit };
    }

    fn receives(&self, channel: usize) -> bool {
        !self.sink && channel < self.ports.len()
    }

    /// Returns the number of bytes that the H2C port of `channel` accepts now.
    pub(crate) fn free_bytes(&self, channel: usize) -> usize {
        if self.not_ready >> (channel & 31) & 1 != 0 {
            return 0;
        }
        match self.ports.get(channel).filter(|_| self.receives(channel)) {
            Some(port) => port.fifo.free_bytes(),
            None => SCRATCH,
        }
    }

    /// Accepts up to `most` bytes into the H2C port of `channel`; `read` fills the contiguous free space.
    pub(crate) fn push_h2c<E>(
        &mut self,
        channel: usize,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        if self.receives(channel)
            && let Some(port) = self.ports.get_mut(channel)
        {
            let into = port.fifo.vacant(most);
            let count = into.len();
            read(into)?;
            port.fifo.filled(count);
            return Ok(count);
        }
        let count = most.min(self.scratch.len());
        read(self.scratch.get_mut(..count).debug_expect("at most the scratch memory").unwrap_or_default())?;
        Ok(count)
    }

    /// TLAST: ends the packet after the last accepted byte.
    pub(crate) fn end_packet(&mut self, channel: usize) {
        if self.receives(channel)
            && let Some(port) = self.ports.get_mut(channel)
        {
            port.fifo.end_packet();
        }
    }

    /// Contiguous bytes of one packet from the C2H port of `channel`, at most `most`, and whether the packet ends with them.
    pub(crate) fn offer(&mut self, channel: usize, most: usize, now: Nanos) -> (&[u8], bool) {
        let Some(port) = self.ports.get_mut(channel) else { return (&[], false) };
        if let Some(source) = &mut port.source {
            source.run(&mut port.fifo, now);
        }
        port.fifo.front(most)
    }

    /// Removes `count` of the offered bytes.
    pub(crate) fn take(&mut self, channel: usize, count: usize) {
        if let Some(port) = self.ports.get_mut(channel) {
            port.fifo.take(count);
        }
    }

    /// Time at which the source behind the C2H port of `channel` delivers next.
    pub(crate) fn next(&self, channel: usize) -> Option<Nanos> {
        self.ports.get(channel)?.source.as_ref()?.next()
    }

    /// Puts `bytes` into the C2H port of `channel`, as user logic would. Returns the number of bytes accepted.
    pub(crate) fn push(&mut self, channel: usize, bytes: &[u8], end: bool) -> usize {
        let Some(port) = self.ports.get_mut(channel) else { return 0 };
        let mut rest = bytes;
        while !rest.is_empty() {
            let into = port.fifo.vacant(rest.len());
            let count = into.len();
            let Some((now, later)) = rest.split_at_checked(count).filter(|_| count > 0) else { break };
            into.copy_from_slice(now);
            port.fifo.filled(count);
            rest = later;
        }
        if end && rest.is_empty() && !bytes.is_empty() {
            port.fifo.end_packet();
        }
        bytes.len() - rest.len()
    }
}
