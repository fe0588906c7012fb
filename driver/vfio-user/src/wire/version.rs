//! `VERSION`: major (2 bytes), minor (2), then capabilities as a JSON object with a terminating NUL, or nothing.

use serde::{Deserialize, Serialize};

use super::bytes::Bytes;
use super::{Command, MAX_DATA, WireError};

/// Supported major version.
pub const MAJOR: u16 = 0;
/// Highest supported minor version.
pub const MINOR: u16 = 1;

/// Version and capabilities, of either side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// Changes with incompatible changes of the protocol.
    pub major: u16,
    /// Changes with additions.
    pub minor: u16,
    /// Capabilities of the sender.
    pub capabilities: Capabilities,
}

/// Capabilities of one side. The methods return defaults for missing fields; unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capabilities {
    /// Maximum number of file descriptors that the sender accepts with one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_msg_fds: Option<u32>,
    /// Maximum number of bytes of one access message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_data_xfer_size: Option<u32>,
    /// Maximum number of simultaneous mappings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_dma_maps: Option<u32>,
    /// Page sizes of mappings, or'ed together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pgsizes: Option<u64>,
    /// Early versions: page size of dirty-page tracking. libvfio-user and the crate `vfio_user` send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationCapability>,
    /// A second socket for the server's requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin_socket: Option<TwinSocket>,
    /// Whether [`REGION_WRITE_MULTI`](Command::REGION_WRITE_MULTI) is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_multiple: Option<bool>,
    /// Whether [`SHARE_WRITES`](Command::SHARE_WRITES) is supported. A server offers it to a client that does.
    #[serde(default, rename = "fpga_write_ring", skip_serializing_if = "Option::is_none")]
    pub write_ring: Option<bool>,
    /// Whether [`CLAIM_STREAM`](Command::CLAIM_STREAM) is supported. A server offers it to a client that does.
    #[serde(default, rename = "fpga_stream_claims", skip_serializing_if = "Option::is_none")]
    pub stream_claims: Option<bool>,
}

/// Migration, in early versions of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MigrationCapability {
    /// Page size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pgsize: Option<u64>,
}

/// A second socket for the server's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TwinSocket {
    /// Whether the sender supports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supported: Option<bool>,
    /// Index of its file descriptor among those of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fd_index: Option<u32>,
}

/// JSON object around the capabilities.
#[derive(Default, Serialize, Deserialize)]
struct Data {
    #[serde(default)]
    capabilities: Capabilities,
}

impl Capabilities {
    /// Maximum number of file descriptors that the sender accepts with one message.
    #[must_use]
    pub fn max_msg_fds(&self) -> u32 {
        self.max_msg_fds.unwrap_or(1)
    }

    /// Maximum number of bytes of one access message.
    #[must_use]
    pub fn max_data(&self) -> u32 {
        self.max_data_xfer_size.unwrap_or(MAX_DATA)
    }

    /// Maximum number of simultaneous mappings.
    #[must_use]
    pub fn max_dma_maps(&self) -> u32 {
        self.max_dma_maps.unwrap_or(65535)
    }

    /// Page sizes of mappings, or'ed together.
    #[must_use]
    pub fn page_sizes(&self) -> u64 {
        self.pgsizes.unwrap_or(4096)
    }

    /// Returns whether several small writes may be sent in one message.
    #[must_use]
    pub fn write_multiple(&self) -> bool {
        self.write_multiple.unwrap_or(false)
    }

    /// Returns whether register writes can go through shared memory.
    #[must_use]
    pub fn write_ring(&self) -> bool {
        self.write_ring.unwrap_or(false)
    }

    /// Returns whether stream channels can be claimed.
    #[must_use]
    pub fn stream_claims(&self) -> bool {
        self.stream_claims.unwrap_or(false)
    }
}

impl Version {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.major.to_ne_bytes());
        out.extend_from_slice(&self.minor.to_ne_bytes());
        // Plain numbers and booleans always serialise, and writing to a vector does not fail.
        let _ = serde_json::to_writer(&mut *out, &Data { capabilities: self.capabilities.clone() });
        out.push(0);
    }

    /// Decodes the body. The terminating NUL is optional: nothing depends on it.
    pub(super) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Bytes::at_least(Command::VERSION, body, 4)?;
        let (major, minor) = (bytes.u16()?, bytes.u16()?);
        let text = bytes.rest();
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        let data = if text.is_empty() {
            Data::default()
        } else {
            serde_json::from_slice(text)
                .map_err(|error| WireError::Capabilities { column: error.column() })?
        };
        Ok(Self { major, minor, capabilities: data.capabilities })
    }
}
