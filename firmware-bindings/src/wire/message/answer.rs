//! Answers of a receiver about a message: MESSAGE_ANSWER, and MESSAGE_MAP, which adds bitmaps.

use super::super::{Common, EncodeError, NackReason, PacketKind, WireError, exact};
use super::{NO_CONTEXT, context, write};
use crate::bytes::{ByteImage, u8_at, u16_at, u32_at, u64_at};
use crate::generated::AnswerKind;
use crate::generated::layout::{message_answer as answer_at, message_map as map_at};
use crate::ids::{Incarnation, MessageId};

/// Content of an answer about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are named in AnswerKind")]
pub enum AnswerBody {
    /// See [`AnswerKind::Accepted`].
    Accepted,
    /// See [`AnswerKind::Refused`], with the time until the next try has a chance, in units of
    /// [`DELAY_UNIT_NS`](crate::generated::DELAY_UNIT_NS); 0: not known.
    Refused(NackReason, u16),
    /// See [`NackReason::Superseded`]: the newest incarnation of the sender that the receiver knows.
    Superseded(Incarnation),
    /// See [`AnswerKind::Done`].
    Done,
    /// See [`AnswerKind::Resend`].
    Resend { first: u32, last: u32 },
    /// See [`AnswerKind::Limit`]; `index`: the packet that it answers, or `None` if a timer caused it.
    Limit { first: u32, above: u16, index: Option<u32> },
    /// See [`AnswerKind::Map`]; bit `i` of each bitmap is in word `i / 64`.
    Map { base: u32, ahead: u16, echo: u32, again: bool, here: [u64; 2], wanted: [u64; 2] },
    /// See [`AnswerKind::ReadAccepted`].
    ReadAccepted,
    /// See [`AnswerKind::ReadRefused`].
    ReadRefused(NackReason),
}

impl AnswerBody {
    /// Whether REASON has no place for a number of senders.
    #[must_use]
    pub const fn has_no_senders(&self) -> bool {
        matches!(self, Self::Refused(..) | Self::Superseded(_) | Self::ReadAccepted | Self::ReadRefused(_))
    }
}

/// Maximum number of senders in an answer.
pub const SENDERS_MAX: u8 = 127;

/// LAST of a limit that no packet caused.
const NO_PACKET: u32 = u32::MAX;

/// Bit of REASON in MESSAGE_MAP: the packet is a duplicate.
const AGAIN: u8 = 1 << 7;

/// MESSAGE_ANSWER or MESSAGE_MAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageAnswer {
    /// Common header: from the receiver of the data.
    pub common: Common,
    /// Id of the message or read.
    pub message: MessageId,
    /// Incarnation in the message's packets.
    pub peer_incarnation: Incarnation,
    /// Context of the receiver, if it has one.
    pub context: Option<u32>,
    /// Number of nodes that send to the receiver, [`SENDERS_MAX`] for more; 0: not known, in every refusal, and for reads.
    pub senders: u8,
    /// Content of the answer.
    pub body: AnswerBody,
}

impl MessageAnswer {
    /// MESSAGE_ANSWER or MESSAGE_MAP.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        match self.body {
            AnswerBody::Map { .. } => PacketKind::MessageMap,
            _ => PacketKind::MessageAnswer,
        }
    }

    /// Values of ANSWER, FIRST, LAST and REASON.
    const fn fields(&self) -> (AnswerKind, u32, u32, u8) {
        match self.body {
            AnswerBody::Accepted => (AnswerKind::Accepted, 0, 0, 0),
            AnswerBody::Refused(reason, delay) => (AnswerKind::Refused, 0, delay as u32, reason.value()),
            AnswerBody::Superseded(newest) => {
                (AnswerKind::Refused, newest.get(), 0, NackReason::Superseded.value())
            }
            AnswerBody::Done => (AnswerKind::Done, 0, 0, 0),
            AnswerBody::Resend { first, last } => (AnswerKind::Resend, first, last, 0),
            AnswerBody::Limit { first, index, .. } => {
                let index = match index {
                    Some(index) => index,
                    None => NO_PACKET,
                };
                (AnswerKind::Limit, first, index, 0)
            }
            AnswerBody::Map { base, echo, again, .. } => {
                (AnswerKind::Map, base, echo, if again { AGAIN } else { 0 })
            }
            AnswerBody::ReadAccepted => (AnswerKind::ReadAccepted, 0, 0, 0),
            AnswerBody::ReadRefused(reason) => (AnswerKind::ReadRefused, 0, 0, reason.value()),
        }
    }

    const fn ahead(&self) -> u16 {
        match self.body {
            AnswerBody::Map { ahead, .. } => ahead,
            AnswerBody::Limit { above, .. } => above,
            _ => 0,
        }
    }

    pub(super) fn read(kind: PacketKind, body: &[u8]) -> Result<Self, WireError> {
        let map: Option<&[u8; map_at::LAYOUT_SIZE]> = match kind {
            PacketKind::MessageMap => Some(exact(kind, body)?),
            _ => None,
        };
        let head: &[u8; answer_at::LAYOUT_SIZE] = match map.and_then(|map| map.first_chunk()) {
            Some(head) => head,
            None => exact(kind, body)?,
        };
        let found = u8_at::<{ answer_at::ANSWER }, _>(head);
        let wrong = WireError::Answer { kind, found };
        let answer = AnswerKind::try_from(found).map_err(|_| wrong)?;
        let first = u32_at::<{ answer_at::FIRST }, _>(head);
        let last = u32_at::<{ answer_at::LAST }, _>(head);
        let reason = u8_at::<{ answer_at::REASON }, _>(head);
        let ahead = u16_at::<{ answer_at::AHEAD }, _>(head);
        let refused = || NackReason::try_from(reason).map_err(|_| WireError::Reason { kind, found: reason });
        let body = match (answer, map) {
            (AnswerKind::Map, Some(map)) => AnswerBody::Map {
                base: first,
                echo: last,
                ahead,
                again: reason & AGAIN != 0,
                here: [u64_at::<{ map_at::HERE_LOW }, _>(map), u64_at::<{ map_at::HERE_HIGH }, _>(map)],
                wanted: [u64_at::<{ map_at::WANTED_LOW }, _>(map), u64_at::<{ map_at::WANTED_HIGH }, _>(map)],
            },
            (AnswerKind::Map, None) | (_, Some(_)) => return Err(wrong),
            (AnswerKind::Accepted, None) => AnswerBody::Accepted,
            (AnswerKind::Refused, None) => match refused()? {
                NackReason::Superseded => AnswerBody::Superseded(Incarnation::new(first)),
                reason => AnswerBody::Refused(
                    reason,
                    u16::try_from(last).map_err(|_| WireError::Reserved { kind })?,
                ),
            },
            (AnswerKind::Done, None) => AnswerBody::Done,
            (AnswerKind::Resend, None) => AnswerBody::Resend { first, last },
            (AnswerKind::Limit, None) => {
                let index = (last != NO_PACKET).then_some(last);
                AnswerBody::Limit { first, above: ahead, index }
            }
            (AnswerKind::ReadAccepted, None) => AnswerBody::ReadAccepted,
            (AnswerKind::ReadRefused, None) => AnswerBody::ReadRefused(refused()?),
        };
        let senders = if body.has_no_senders() { 0 } else { reason & SENDERS_MAX };
        let answer = Self {
            common: Common::read(head),
            message: MessageId::new(u32_at::<{ answer_at::MESSAGE }, _>(head)),
            peer_incarnation: Incarnation::new(u32_at::<{ answer_at::PEER_INCARNATION }, _>(head)),
            context: context(u32_at::<{ answer_at::CONTEXT }, _>(head)),
            senders,
            body,
        };
        // Fields that a kind of answer does not use are 0.
        let (_, expected_first, expected_last, expected_reason) = answer.fields();
        let expected = (expected_first, expected_last, expected_reason | senders, answer.ahead());
        if expected != (first, last, reason, ahead) {
            return Err(WireError::Reserved { kind });
        }
        Ok(answer)
    }

    fn put<const LENGTH: usize>(&self, image: &mut ByteImage<LENGTH>) {
        let (answer, first, last, reason) = self.fields();
        image.put::<{ answer_at::MESSAGE }, _>(self.message.get());
        image.put::<{ answer_at::PEER_INCARNATION }, _>(self.peer_incarnation.get());
        image.put::<{ answer_at::CONTEXT }, _>(self.context.unwrap_or(NO_CONTEXT));
        image.put::<{ answer_at::FIRST }, _>(first);
        image.put::<{ answer_at::LAST }, _>(last);
        image.put::<{ answer_at::ANSWER }, _>(answer.value());
        image.put::<{ answer_at::REASON }, _>(reason | self.senders);
        image.put::<{ answer_at::AHEAD }, _>(self.ahead());
    }

    pub(super) fn encode(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        let most = if self.body.has_no_senders() { 0 } else { SENDERS_MAX };
        if self.senders > most {
            return Err(EncodeError::Invalid(WireError::Reserved { kind: self.kind() }));
        }
        if let AnswerBody::Map { here, wanted, .. } = self.body {
            let mut image = ByteImage::<{ map_at::LAYOUT_SIZE }>::new();
            self.put(&mut image);
            image.put::<{ map_at::HERE_LOW }, _>(here[0]);
            image.put::<{ map_at::HERE_HIGH }, _>(here[1]);
            image.put::<{ map_at::WANTED_LOW }, _>(wanted[0]);
            image.put::<{ map_at::WANTED_HIGH }, _>(wanted[1]);
            write(&self.common, self.kind(), image, buffer)
        } else {
            let mut image = ByteImage::<{ answer_at::LAYOUT_SIZE }>::new();
            self.put(&mut image);
            write(&self.common, self.kind(), image, buffer)
        }
    }
}
