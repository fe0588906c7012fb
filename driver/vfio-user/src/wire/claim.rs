//! Claims of stream channels of a shared card: a project command beside the specification.

use super::bytes::Bytes;
use super::{Command, WireError};

/// A claim: channel (4 bytes), 1 to take it or 0 to release it (4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamClaim {
    /// The channel transfers from card to host (C2H).
    pub is_c2h: bool,
    /// Number of the channel in its direction.
    pub number: u8,
    /// The client takes the channel; otherwise it releases it.
    pub takes: bool,
}

/// Bit of C2H channels in the channel word, above the number.
const C2H: u32 = 1 << 8;

impl StreamClaim {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let channel = u32::from(self.number) | if self.is_c2h { C2H } else { 0 };
        out.extend_from_slice(&channel.to_ne_bytes());
        out.extend_from_slice(&u32::from(self.takes).to_ne_bytes());
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, WireError> {
        const COMMAND: Command = Command::CLAIM_STREAM;
        let mut bytes = Bytes::exactly(COMMAND, body, 8)?;
        let (channel, takes) = (bytes.u32()?, bytes.u32()?);
        let wrong = WireError::Count { command: COMMAND, count: channel.into(), got: 8 };
        let number = u8::try_from(channel & !C2H).map_err(|_| wrong)?;
        Ok(Self { is_c2h: channel & C2H != 0, number, takes: takes != 0 })
    }
}
