//! Messages of the bootstrap.
//!
//! ```text
//! every one:  0 magic "FPGAFRMS"  8 version u16  10 kind u16  12 bytes of the body u32  16 body   CRC-32C of all before u32
//! 1 hello     node u32, incarnation u32
//! 2 offer     stream u64, node u32, space for the value u32, space for data u64, slots of the publisher u32, heartbeat u32 (ms),
//!             bytes of a segment u32, challenge u64
//! 3 join      address u64, bytes u64, key u64, slots u32, challenge u64
//! 4 accepted  next sequence u64, next position u32, address u64, bytes u64, key u64
//! 5 refused   reason u16, bytes of text u16, text (UTF-8)
//! ```
//!
//! The first 16 bytes and the fifth message are the same in every version, so that versions can recognise each other.

use fpga_firmware::crc::crc32c;
use fpga_registers::quantity;

use crate::blocks::{Reader, VERSION, Writer};

/// Length of the header in bytes.
pub const HEADER_LENGTH: usize = 16;
/// Maximum length of a body in bytes.
pub const MAX_BODY: usize = 512;
/// Maximum length of a message in bytes.
pub const MAX_MESSAGE: usize = HEADER_LENGTH + MAX_BODY + 4;
/// Maximum length of a reason text in bytes.
const MAX_TEXT: usize = MAX_BODY - 4;

const MAGIC: [u8; 8] = *b"FPGAFRMS";

/// Reason why received bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Wrong magic number.
    #[error("it begins with {found:02x?}: the other side does not use the frame stream protocol")]
    Magic {
        /// First bytes received.
        found: [u8; 8],
    },
    /// Another version.
    #[error(
        "it has version {found}, but this side supports only version {VERSION}: use the same version on both sides"
    )]
    Version {
        /// Version in the message.
        found: u16,
    },
    /// Longer than the maximum.
    #[error("its body has {found}, above the maximum of {MAX_BODY}", found = quantity(*found, "byte"))]
    TooLong {
        /// Length of the body in bytes.
        found: u32,
    },
    /// The CRC does not match.
    #[error("its CRC-32C is {found:#010x} instead of {computed:#010x}")]
    Crc {
        /// CRC in the message.
        found: u32,
        /// CRC computed over the message.
        computed: u32,
    },
    /// Unknown kind.
    #[error("its kind {found} is unknown")]
    Kind {
        /// Kind in the message.
        found: u16,
    },
    /// The body does not match the kind.
    #[error("its body of {found} is invalid for a message of kind {kind}", found = quantity(*found, "byte"))]
    Body {
        /// Kind of the message.
        kind: u16,
        /// Length of the body in bytes.
        found: usize,
    },
}

/// Reason why a publisher refuses a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The subscriber uses another protocol version.
    Version,
    /// The messages are invalid.
    Garbage,
    /// The subscriber's slots do not match the frame sizes.
    Geometry,
    /// The maximum number of subscribers is reached.
    Full,
    /// The stream is closing.
    Closing,
    /// An operation at the publisher failed.
    Failed,
    /// The node is a subscriber already, and its card accepts transfers.
    Taken,
    /// The join does not repeat the challenge of this connection: it belongs to another connection.
    Challenge,
    /// A reason of a later version.
    Other(u16),
}

impl Reason {
    /// Number in the message.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Version => 1,
            Self::Garbage => 2,
            Self::Geometry => 3,
            Self::Full => 4,
            Self::Closing => 5,
            Self::Failed => 6,
            Self::Taken => 7,
            Self::Challenge => 8,
            Self::Other(number) => number,
        }
    }

    const fn of(number: u16) -> Self {
        match number {
            1 => Self::Version,
            2 => Self::Garbage,
            3 => Self::Geometry,
            4 => Self::Full,
            5 => Self::Closing,
            6 => Self::Failed,
            7 => Self::Taken,
            8 => Self::Challenge,
            other => Self::Other(other),
        }
    }
}

/// First message of the subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Node of the subscriber.
    pub node: u32,
    /// Incarnation of its endpoint.
    pub incarnation: u32,
}

/// Parameters of the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number of this stream, new for each incarnation of the publisher.
    pub stream: u64,
    /// Node of the publisher.
    pub node: u32,
    /// Maximum length of a value in bytes.
    pub max_value_length: u32,
    /// Maximum length of the data in bytes.
    pub max_data_length: u64,
    /// Number of slots in the publisher's pool.
    pub slots: u32,
    /// Maximum time between two messages of the publisher, in milliseconds.
    pub heartbeat_ms: u32,
    /// Maximum length of a segment of its transfers in bytes. It determines how many events a frame causes at the subscriber's card.
    pub segment: u32,
    /// Number that the join has to repeat. Each connection has another one, so that messages of one connection are useless on the next.
    pub challenge: u64,
}

/// Range of card memory that the peer may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Key that packets have to carry.
    pub key: u64,
}

/// Request to receive frames in a given memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Slots one behind the other, followed by a block of 64 bytes for the publisher's status.
    pub window: Window,
    /// Number of slots.
    pub slots: u32,
    /// Challenge of the offer.
    pub challenge: u64,
}

/// Acceptance of the subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Sequence number of the first frame that it may get.
    pub sequence: u64,
    /// Position of that frame.
    pub position: u32,
    /// Window for the subscriber's credit.
    pub credit: Window,
}

/// Refusal of the subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Reason for programs.
    pub reason: Reason,
    /// Reason for users.
    pub text: String,
}

/// Message of the bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Subscriber to publisher.
    Hello(Hello),
    /// Publisher to subscriber.
    Offer(Offer),
    /// Subscriber to publisher.
    Join(Join),
    /// Publisher to subscriber; last message.
    Accepted(Accepted),
    /// Publisher to subscriber; last message.
    Refused(Refusal),
}

impl Writer<'_> {
    fn window(&mut self, window: &Window) -> &mut Self {
        self.u64(window.address).u64(window.length).u64(window.key)
    }
}

impl Reader<'_> {
    fn window(&mut self) -> Option<Window> {
        Some(Window { address: self.u64()?, length: self.u64()?, key: self.u64()? })
    }
}

impl Message {
    const fn kind(&self) -> u16 {
        match self {
            Self::Hello(_) => 1,
            Self::Offer(_) => 2,
            Self::Join(_) => 3,
            Self::Accepted(_) => 4,
            Self::Refused(_) => 5,
        }
    }

    /// Serialises the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = [0; MAX_BODY];
        let mut out = Writer(&mut body);
        match self {
            Self::Hello(it) => {
                out.u32(it.node).u32(it.incarnation);
            }
            Self::Offer(it) => {
                out.u64(it.stream).u32(it.node).u32(it.max_value_length).u64(it.max_data_length);
                out.u32(it.slots).u32(it.heartbeat_ms).u32(it.segment).u64(it.challenge);
            }
            Self::Join(it) => {
                out.window(&it.window).u32(it.slots).u64(it.challenge);
            }
            Self::Accepted(it) => {
                out.u64(it.sequence).u32(it.position).window(&it.credit);
            }
            Self::Refused(it) => {
                let mut end = it.text.len().min(MAX_TEXT);
                while !it.text.is_char_boundary(end) {
                    end -= 1;
                }
                let text = it.text.get(..end).unwrap_or_default();
                // At most 508 bytes.
                let length = u16::try_from(text.len()).unwrap_or(0);
                out.u16(it.reason.number()).u16(length);
                for byte in text.bytes() {
                    out.put([byte]);
                }
            }
        }
        let length = MAX_BODY - out.0.len();
        let mut bytes = Vec::with_capacity(HEADER_LENGTH + length + 4);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.kind().to_le_bytes());
        bytes.extend(u32::try_from(length).unwrap_or(0).to_le_bytes());
        bytes.extend(body.iter().take(length));
        let crc = crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    fn body(kind: u16, body: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader(body);
        let message = match kind {
            1 => Self::hello(&mut reader),
            2 => Self::offer(&mut reader),
            3 => Self::join(&mut reader),
            4 => Self::accepted(&mut reader),
            5 => Self::refused(&mut reader),
            found => return Err(MessageError::Kind { found }),
        };
        // No bytes may follow the body.
        message.filter(|_| reader.0.is_empty()).ok_or(MessageError::Body { kind, found: body.len() })
    }

    fn hello(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self::Hello(Hello { node: reader.u32()?, incarnation: reader.u32()? }))
    }

    fn offer(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self::Offer(Offer {
            stream: reader.u64()?,
            node: reader.u32()?,
            max_value_length: reader.u32()?,
            max_data_length: reader.u64()?,
            slots: reader.u32()?,
            heartbeat_ms: reader.u32()?,
            segment: reader.u32()?,
            challenge: reader.u64()?,
        }))
    }

    fn join(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self::Join(Join { window: reader.window()?, slots: reader.u32()?, challenge: reader.u64()? }))
    }

    fn accepted(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self::Accepted(Accepted {
            sequence: reader.u64()?,
            position: reader.u32()?,
            credit: reader.window()?,
        }))
    }

    fn refused(reader: &mut Reader<'_>) -> Option<Self> {
        let reason = Reason::of(reader.u16()?);
        let length = usize::from(reader.u16()?);
        let (text, rest) = reader.0.split_at_checked(length)?;
        reader.0 = rest;
        Some(Self::Refused(Refusal { reason, text: core::str::from_utf8(text).ok()?.to_owned() }))
    }
}

/// Assembles received bytes into messages. Holds at most one message of the maximum length.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Number of bytes missing before the next message can be complete. Bytes after it are not accepted.
    #[must_use]
    pub fn wanted(&self) -> usize {
        let whole = match self.body_length() {
            Some(length) => HEADER_LENGTH + length.min(MAX_BODY) + 4,
            None => HEADER_LENGTH,
        };
        whole.saturating_sub(self.bytes.len())
    }

    fn body_length(&self) -> Option<usize> {
        let length = self.bytes.get(12..HEADER_LENGTH)?.first_chunk::<4>()?;
        usize::try_from(u32::from_le_bytes(*length)).ok()
    }

    /// Appends received bytes. Returns a message once it is complete.
    ///
    /// # Errors
    /// [`MessageError`]: the start of a next message cannot be found, so the connection is unusable.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<Message>, MessageError> {
        self.bytes.extend(bytes.iter().take(MAX_MESSAGE - self.bytes.len().min(MAX_MESSAGE)));
        // Errors are reported as early as possible: an invalid message need not be received completely.
        if let Some(found) = self.bytes.first_chunk::<8>().filter(|found| **found != MAGIC) {
            return Err(MessageError::Magic { found: *found });
        }
        let Some(head) = self.bytes.first_chunk::<HEADER_LENGTH>() else { return Ok(None) };
        let mut reader = Reader(head.get(8..).unwrap_or_default());
        let (Some(version), Some(kind), Some(length)) = (reader.u16(), reader.u16(), reader.u32()) else {
            return Ok(None);
        };
        // A refusal is understood in any version.
        if version != VERSION && kind != 5 {
            return Err(MessageError::Version { found: version });
        }
        let body = usize::try_from(length).ok().filter(|length| *length <= MAX_BODY);
        let body = body.ok_or(MessageError::TooLong { found: length })?;
        let Some(whole) = self.bytes.get(..HEADER_LENGTH + body + 4) else { return Ok(None) };
        let Some((covered, crc)) = whole.split_last_chunk::<4>() else { return Ok(None) };
        let (found, computed) = (u32::from_le_bytes(*crc), crc32c(covered));
        if found != computed {
            return Err(MessageError::Crc { found, computed });
        }
        let message = Message::body(kind, covered.get(HEADER_LENGTH..).unwrap_or_default())?;
        self.bytes.drain(..HEADER_LENGTH + body + 4);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window() -> impl Strategy<Value = Window> {
        any::<(u64, u64, u64)>().prop_map(|(address, length, key)| Window { address, length, key })
    }

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            any::<(u32, u32)>().prop_map(|(node, incarnation)| Message::Hello(Hello { node, incarnation })),
            any::<(u64, u32, u32, u64, u32, u32, u32, u64)>().prop_map(
                |(
                    stream,
                    node,
                    max_value_length,
                    max_data_length,
                    slots,
                    heartbeat_ms,
                    segment,
                    challenge,
                )| {
                    Message::Offer(Offer {
                        stream,
                        node,
                        max_value_length,
                        max_data_length,
                        slots,
                        heartbeat_ms,
                        segment,
                        challenge,
                    })
                }
            ),
            (window(), any::<u32>(), any::<u64>())
                .prop_map(|(window, slots, challenge)| Message::Join(Join { window, slots, challenge })),
            (any::<u64>(), any::<u32>(), window()).prop_map(|(sequence, position, credit)| {
                Message::Accepted(Accepted { sequence, position, credit })
            }),
            (0..11_u16, "\\PC{0,40}").prop_map(|(reason, text)| {
                Message::Refused(Refusal { reason: Reason::of(reason), text })
            }),
        ]
    }

    proptest! {
        #[test]
        fn bootstrap_messages_cut_anywhere_round_trip(
            messages in proptest::collection::vec(message(), 1..4), cut in 1..40_usize,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
            let mut inbox = Inbox::default();
            let mut found = Vec::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(cut.min(inbox.wanted()).min(rest.len()));
                rest = after;
                found.extend(inbox.take(chunk).unwrap());
            }
            prop_assert_eq!(found, messages);
        }

        #[test]
        fn bootstrap_damage_is_detected(message in message(), bit: proptest::sample::Index, value in 0..8_u32) {
            let mut bytes = message.encode();
            let at = bit.index(bytes.len());
            bytes[at] ^= 1 << value;
            let taken = Inbox::default().take(&bytes);
            // A length that grew makes the receiver wait for more, until the connection's time limit.
            prop_assert!(taken.is_err() || taken == Ok(None));
        }

        #[test]
        fn bootstrap_garbage_is_refused_within_bounds(bytes in proptest::collection::vec(any::<u8>(), 8..2000)) {
            let mut inbox = Inbox::default();
            prop_assert!(inbox.take(&bytes).is_err());
            prop_assert!(inbox.bytes.len() <= MAX_MESSAGE);
        }
    }

    #[test]
    fn bootstrap_versions_are_distinguished() {
        let other = |message: &Message| {
            let mut bytes = message.encode();
            bytes[8] = 9;
            let end = bytes.len() - 4;
            let crc = crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc.to_le_bytes());
            bytes
        };
        let hello = Message::Hello(Hello { node: 1, incarnation: 2 });
        assert_eq!(Inbox::default().take(&other(&hello)), Err(MessageError::Version { found: 9 }));
        let refused = Message::Refused(Refusal { reason: Reason::Version, text: "no".to_owned() });
        assert_eq!(Inbox::default().take(&other(&refused)), Ok(Some(refused)));
    }

    #[test]
    fn bootstrap_long_text_is_cut_at_character_boundary() {
        let text = "ä".repeat(400);
        let bytes = Message::Refused(Refusal { reason: Reason::Full, text }).encode();
        let Ok(Some(Message::Refused(refusal))) = Inbox::default().take(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(refusal.text, "ä".repeat(MAX_TEXT / 2));
    }
}
