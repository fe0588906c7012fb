//! Datagrams in batches: few system calls for many frames.
//!
//! Sent datagrams of one length for one peer are collected and leave with one call (UDP segmentation offload); the last one of a batch may
//! be shorter. One call receives many datagrams, and datagrams that the system has merged (UDP receive offload). Both depend on the
//! system: without them a call sends or receives one datagram, with the same result.

use fpga_registers::invariant::DebugExpect as _;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};

/// Maximum bytes of a batch to send: the system counts the headers of one IP packet, too.
const MAX_BATCH: usize = 65_535 - 48;
/// Bytes of one receive buffer: merged datagrams are no longer than one IP packet.
const BUFFER: usize = 65_536;

/// Result of sending a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Datagrams that the system accepted.
    pub(super) sent: u64,
    /// Datagrams that it did not accept.
    pub(super) unsent: u64,
    /// Whether it has refused one because of its length.
    pub(super) is_too_long: bool,
}

/// Datagrams of one length that wait to be sent to one peer.
#[derive(Debug, Default)]
pub(super) struct SendBatch {
    peer: Option<SocketAddr>,
    bytes: Vec<u8>,
    /// Length of every datagram but the last.
    segment: usize,
    count: usize,
    /// Whether the last datagram is shorter: none can follow.
    closed: bool,
}

impl SendBatch {
    /// Returns the peer of the datagrams that wait; `None` if there are none.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer.filter(|_| self.count != 0)
    }

    /// Returns whether a datagram of `length` bytes to `peer` can join the batch, which may have `most` datagrams.
    pub(super) fn fits(&self, peer: SocketAddr, length: usize, most: usize) -> bool {
        self.count == 0
            || self.peer == Some(peer)
                && !self.closed
                && self.count < most
                && length <= self.segment
                && self.bytes.len() + length <= MAX_BATCH
    }

    /// Adds a datagram of `parts` that [`fits`](Self::fits).
    pub(super) fn push(&mut self, peer: SocketAddr, parts: [&[u8]; 4]) {
        let length = parts.iter().map(|part| part.len()).sum();
        if self.count == 0 {
            self.peer = Some(peer);
            self.segment = length;
        }
        self.closed = length < self.segment;
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.count += 1;
    }

    /// Sends all datagrams. The batch is empty afterwards.
    pub(super) fn send(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> Sent {
        let mut result = Sent::default();
        if let Some(destination) = self.peer.take()
            && self.count != 0
        {
            let segment_size = (self.count > 1).then_some(self.segment);
            let transmit =
                Transmit { destination, ecn: None, contents: &self.bytes, segment_size, src_ip: None };
            match state.try_send(UdpSockRef::from(socket), &transmit) {
                Ok(()) => result.sent = self.count as u64,
                // The network device does not segment: one by one, as all later ones.
                Err(error) if self.count > 1 && (state.max_gso_segments() == 1 || is_too_long(&error)) => {
                    for contents in self.bytes.chunks(self.segment.max(1)) {
                        let single = Transmit { contents, segment_size: None, ..transmit.clone() };
                        let sent = state.try_send(UdpSockRef::from(socket), &single);
                        result.sent += u64::from(sent.is_ok());
                        result.unsent += u64::from(sent.is_err());
                        result.is_too_long |= sent.is_err_and(|error| is_too_long(&error));
                    }
                }
                Err(error) => {
                    result.unsent = self.count as u64;
                    result.is_too_long = is_too_long(&error);
                }
            }
        }
        self.bytes.clear();
        self.count = 0;
        result
    }
}

/// Returns whether datagrams were refused because of their length.
fn is_too_long(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(errno, Some(rustix::io::Errno::MSGSIZE | rustix::io::Errno::INVAL))
}

/// Received datagrams that have not been taken.
#[derive(Debug)]
pub(super) struct ReceiveBatch {
    buffers: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
    /// Number of filled buffers.
    filled: usize,
    /// Buffer of the next datagram, and its offset there.
    at: usize,
    offset: usize,
}

/// A received datagram: its sender, and its range in the buffers ([`ReceiveBatch::bytes`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) from: SocketAddr,
    start: usize,
    length: usize,
}

impl Received {
    /// Returns it without its last `bytes` bytes.
    pub(super) const fn without_last(self, bytes: usize) -> Self {
        Self { length: self.length.saturating_sub(bytes), ..self }
    }
}

impl ReceiveBatch {
    pub(super) fn new() -> Self {
        let meta = [RecvMeta::default(); BATCH_SIZE];
        Self { buffers: vec![0; BUFFER * BATCH_SIZE], meta, filled: 0, at: 0, offset: 0 }
    }

    /// Returns whether a datagram waits that the socket no longer has.
    pub(super) const fn is_empty(&self) -> bool {
        self.at >= self.filled
    }

    /// Returns the next datagram; receives more if none remains.
    pub(super) fn next(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> Option<Received> {
        if self.is_empty() && !self.fill(socket, state) {
            return None;
        }
        let meta = self.meta.get(self.at)?;
        let rest = meta.len.saturating_sub(self.offset);
        let length = rest.min(if meta.stride == 0 { rest } else { meta.stride });
        let received = Received { from: meta.addr, start: self.at * BUFFER + self.offset, length };
        self.offset += length;
        if self.offset >= meta.len {
            self.at += 1;
            self.offset = 0;
        }
        Some(received)
    }

    /// Bytes of a datagram, until the next one is taken.
    pub(super) fn bytes(&self, received: Received) -> &[u8] {
        let end = received.start.saturating_add(received.length);
        self.buffers.get(received.start..end).debug_expect("a datagram of the batch").unwrap_or_default()
    }

    /// The `length` bytes after a datagram, until the next one is taken.
    pub(super) fn end(&self, received: Received, length: usize) -> &[u8] {
        let start = received.start.saturating_add(received.length);
        self.buffers.get(start..start.saturating_add(length)).unwrap_or_default()
    }

    /// Receives the datagrams that have arrived. Returns `false` if there are none.
    fn fill(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> bool {
        (self.filled, self.at, self.offset) = (0, 0, 0);
        let mut buffers = self.buffers.chunks_mut(BUFFER);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        loop {
            match state.recv(UdpSockRef::from(socket), &mut slices, &mut self.meta) {
                Ok(count) => {
                    self.filled = count.min(BATCH_SIZE);
                    return count != 0;
                }
                // Delayed error of an earlier datagram: the socket forgets it with this call.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return false,
            }
        }
    }
}
