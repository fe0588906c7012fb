//! Contexts, message numbers, requests, tombstones and transfers around the message senders and receivers (docs/protocol.md 7).
//!
//! A transfer is cut into messages of up to 4096 packets [E0-11]. A sender has a fixed number of contexts. Each context
//! sends one message after another and numbers them (MSGID, 20 bits). In the schemes with a request, a message begins
//! with a request that the receiver answers with the number of its own context (CID) or "none free"; in the others any
//! packet can begin its message. Requests may be repeated: the same request gets the same answer [E0-16].
//!
//! # Tombstones
//!
//! The receiver keeps, per context *of a sender*, the number and the state of its last message: its tombstone. A
//! context sends one message at a time. Therefore a higher number ends the previous message, a lower one belongs to a
//! delayed duplicate, and the same one is answered with DONE [E0-15, E0-17]. A sender has as many tombstones as
//! contexts, independent of its number of messages. A tombstone is kept for [`ReceiverConfig::tombstone`] after the
//! last packet, which covers a sender's give-up time and the packet lifetime. A sender uses no more than half of its
//! numbers within that time, so that "higher" is unambiguous when the numbers wrap.
//!
//! # One notification per transfer
//!
//! A transfer's last message begins when all others are complete, and is marked as the last one. Therefore the receiver
//! detects a complete transfer without a table of transfers.
//!
//! # Reads
//!
//! A read is a request that makes the other node write ([`Reads`]). The request is repeated until it is answered, and
//! executed once. The transfer that answers it carries its number.

mod config;
mod peers;
mod reads;
mod receiving;
mod sending;
pub(super) mod transfers;

pub use config::{MessageConfigError, ReceiverConfig, SenderConfig};
pub use reads::{MessageReadError, Read, ReadConfig, ReadOutcome, ReadTicket, Reads};
pub use receiving::{Receiver, ReceiverCounters};
pub use sending::{ContextView, Progress, Sender, SenderCounters};

use super::{AckMap, Answer};
use fpga_firmware::wire::AnswerBody;

const fn words(bits: u128) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let words = [bits as u64, (bits >> 64) as u64];
    words
}

fn bits(words: [u64; 2]) -> u128 {
    u128::from(words[0]) | u128::from(words[1]) << 64
}

/// Converts an answer of a message receiver to its wire form.
const fn to_wire(answer: &Answer) -> AnswerBody {
    match *answer {
        Answer::Done => AnswerBody::Done,
        Answer::Resend { first, last } => AnswerBody::Resend { first, last },
        Answer::Limit { first, above, index } => AnswerBody::Limit { first, above, index },
        Answer::Map(AckMap { base, ahead, here, overdue: wanted, echo, duplicate: again }) => {
            let ahead = fpga_registers::cast::low16(ahead);
            AnswerBody::Map { base, ahead, echo, again, here: words(here), wanted: words(wanted) }
        }
    }
}

/// Converts an answer from its wire form; `None` if it is not for a message sender.
fn from_wire(body: &AnswerBody) -> Option<Answer> {
    Some(match *body {
        AnswerBody::Done => Answer::Done,
        AnswerBody::Resend { first, last } => Answer::Resend { first, last },
        AnswerBody::Limit { first, above, index } => Answer::Limit { first, above, index },
        AnswerBody::Map { base, ahead, echo, again, here, wanted } => Answer::Map(AckMap {
            base,
            ahead: ahead.into(),
            here: bits(here),
            overdue: bits(wanted),
            echo,
            duplicate: again,
        }),
        _ => return None,
    })
}
