//! Bootstrap over TCP: hello, offer, join, accepted. Layouts: `driver/rdma/frames/src/bootstrap/wire.rs`, which this module does not use.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::blocks::VERSION;
use crate::error::JoinError;
use crate::fields::{Reader, Writer};
use fpga_firmware::crc::crc32c;

const MAGIC: [u8; 8] = *b"FPGAFRMS";
const HEADER_LENGTH: usize = 16;
/// Maximum length of a message body in bytes.
const MAX_BODY: usize = 512;

const HELLO: u16 = 1;
const OFFER: u16 = 2;
const JOIN: u16 = 3;
const ACCEPTED: u16 = 4;
const REFUSED: u16 = 5;

/// Pause before a conversation is repeated that the publisher closed without an answer: it has too many of them.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Parameters of the publisher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) stream: u64,
    pub(crate) node: u32,
    pub(crate) max_value_length: u32,
    pub(crate) max_data_length: u64,
    pub(crate) heartbeat_ms: u32,
    challenge: u64,
}

/// Acceptance of the subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) sequence: u64,
    pub(crate) position: u32,
    /// Address, length and key of the window for the credit.
    pub(crate) credit: (u64, u64, u64),
}

/// Conversation with a publisher.
#[derive(Debug)]
pub(crate) struct Conversation {
    socket: TcpStream,
    publisher: SocketAddr,
    until: Instant,
}

impl Conversation {
    /// Connects and returns the publisher's offer.
    pub(crate) fn begin(
        publisher: SocketAddr,
        node: u32,
        incarnation: u32,
        until: Instant,
    ) -> Result<(Self, Offer), JoinError> {
        loop {
            match Self::try_begin(publisher, node, incarnation, until) {
                Err(JoinError::Connection { cause, .. })
                    if is_closed(&cause) && Instant::now() + RETRY_INTERVAL < until =>
                {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                other => return other,
            }
        }
    }

    fn try_begin(
        publisher: SocketAddr,
        node: u32,
        incarnation: u32,
        until: Instant,
    ) -> Result<(Self, Offer), JoinError> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let opened = TcpStream::connect_timeout(&publisher, left)
            .and_then(|socket| socket.set_nodelay(true).map(|()| socket));
        let socket = opened.map_err(|cause| JoinError::Connection { publisher, cause })?;
        let mut line = Self { socket, publisher, until };
        let mut body = Writer::default();
        body.u32(node).u32(incarnation);
        line.send(HELLO, &body.0)?;
        let body = line.receive(OFFER)?;
        let offer = offer(&body).ok_or(line.invalid("an offer with impossible fields"))?;
        Ok((line, offer))
    }

    /// Sends the window that the publisher may write, and returns its acceptance.
    pub(crate) fn join(
        &mut self,
        offer: &Offer,
        window: (u64, u64, u64),
        slots: u32,
    ) -> Result<Accepted, JoinError> {
        let mut body = Writer::default();
        body.u64(window.0).u64(window.1).u64(window.2).u32(slots).u64(offer.challenge);
        self.send(JOIN, &body.0)?;
        let body = self.receive(ACCEPTED)?;
        let mut reader = Reader(&body);
        accepted(&mut reader).ok_or(self.invalid("an acceptance of another length"))
    }

    const fn invalid(&self, what: &'static str) -> JoinError {
        JoinError::Message { publisher: self.publisher, what }
    }

    fn failed(&self, cause: io::Error) -> JoinError {
        JoinError::Connection { publisher: self.publisher, cause }
    }

    fn send(&mut self, kind: u16, body: &[u8]) -> Result<(), JoinError> {
        let mut out = Writer::default();
        // Bodies of this side have at most 36 bytes.
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        out.put(&MAGIC).u16(VERSION).u16(kind).u32(length).put(body);
        let crc = crc32c(&out.0);
        out.u32(crc);
        self.socket.write_all(&out.0).map_err(|cause| self.failed(cause))
    }

    /// Receives the body of a message of `kind`.
    fn receive(&mut self, kind: u16) -> Result<Vec<u8>, JoinError> {
        let mut whole = vec![0; HEADER_LENGTH];
        self.read(&mut whole, 0)?;
        let mut header = Reader(&whole);
        if header.take() != Some(MAGIC) {
            return Err(self.invalid("it does not use the frame stream protocol"));
        }
        let (version, found) = (header.u16(), header.u16().unwrap_or(0));
        let length = header.u32().and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        // A refusal is understood in any version.
        if version != Some(VERSION) && found != REFUSED {
            return Err(self.invalid("it has another version of the protocol"));
        }
        if length > MAX_BODY {
            return Err(self.invalid("its body is too long"));
        }
        whole.resize(HEADER_LENGTH + length + 4, 0);
        self.read(&mut whole, HEADER_LENGTH)?;
        let (covered, crc) = whole.split_last_chunk::<4>().ok_or(self.invalid("it is too short"))?;
        if crc32c(covered) != u32::from_le_bytes(*crc) {
            return Err(self.invalid("its checksum is wrong"));
        }
        let body = covered.get(HEADER_LENGTH..).unwrap_or_default();
        match found {
            REFUSED => {
                let mut reader = Reader(body);
                let (reason, length) = (reader.u16().unwrap_or(0), reader.u16().unwrap_or(0));
                let text = reader.bytes(length.into()).unwrap_or_default();
                Err(JoinError::Refused { reason, text: String::from_utf8_lossy(text).into_owned() })
            }
            _ if found == kind => Ok(body.to_vec()),
            _ => Err(self.invalid("it sent a message that was not asked for")),
        }
    }

    fn read(&mut self, whole: &mut [u8], from: usize) -> Result<(), JoinError> {
        let mut rest = whole.get_mut(from..).unwrap_or_default();
        while !rest.is_empty() {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.failed(io::ErrorKind::TimedOut.into()));
            }
            self.socket.set_read_timeout(Some(left)).map_err(|cause| self.failed(cause))?;
            match self.socket.read(rest) {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => rest = rest.get_mut(count..).unwrap_or_default(),
                Err(error) if is_waiting(error.kind()) => {}
                Err(cause) => return Err(self.failed(cause)),
            }
        }
        Ok(())
    }
}

/// Whether a blocking receive has ended without data and without failure.
pub(crate) const fn is_waiting(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

fn offer(body: &[u8]) -> Option<Offer> {
    let mut reader = Reader(body);
    let (stream, node, max_value_length) = (reader.u64()?, reader.u32()?, reader.u32()?);
    let (max_data_length, _slots) = (reader.u64()?, reader.u32()?);
    let (heartbeat_ms, _segment, challenge) = (reader.u32()?.max(1), reader.u32()?, reader.u64()?);
    let offer = Offer { stream, node, max_value_length, max_data_length, heartbeat_ms, challenge };
    (reader.0.is_empty() && max_data_length > 0).then_some(offer)
}

fn accepted(reader: &mut Reader<'_>) -> Option<Accepted> {
    let (sequence, position) = (reader.u64()?, reader.u32()?);
    let credit = (reader.u64()?, reader.u64()?, reader.u64()?);
    reader.0.is_empty().then_some(Accepted { sequence, position, credit })
}
