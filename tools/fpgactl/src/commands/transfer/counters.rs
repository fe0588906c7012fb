//! Counters of a network interface over a whole run.

use fpga_diag::inspect::Inspect as _;
use fpga_diag::inspect::ReceiveCounters;
use fpga_driver::Error;
use fpga_rdma::{Endpoint, EndpointError};

/// Counts since the first reading. The registers have 32 bits and wrap; reading them once per transfer yields 64-bit counts.
#[derive(Debug, Default)]
pub(super) struct NiCounters {
    last: ReceiveCounters,
    duplicates: u64,
    escape_hits: u64,
    escape_dropped: u64,
    registrations: u64,
    received: u64,
    sent: u64,
}

impl NiCounters {
    /// Starts counting.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self, Error<EndpointError>> {
        Ok(Self { last: endpoint.tables().counters()?, ..Self::default() })
    }

    /// Adds the counts since the last reading.
    pub(super) fn update(&mut self, endpoint: &Endpoint) -> Result<(), Error<EndpointError>> {
        let now = endpoint.tables().counters()?;
        let last = core::mem::replace(&mut self.last, now);
        let since = |now: u32, last: u32| u64::from(now.wrapping_sub(last));
        self.duplicates +=
            since(now.duplicates, last.duplicates) + since(now.tombstone_hits, last.tombstone_hits);
        self.escape_hits += since(now.escape_hits, last.escape_hits);
        self.escape_dropped += since(now.escape_dropped, last.escape_dropped);
        self.registrations += since(now.registrations, last.registrations);
        self.received += since(now.rx_packets, last.rx_packets);
        self.sent += since(now.tx_packets, last.tx_packets);
        Ok(())
    }

    /// Duplicate packets: of a segment in progress, or of a complete one.
    pub(super) const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Packets that entered the escape channel.
    pub(super) const fn escape_hits(&self) -> u64 {
        self.escape_hits
    }

    /// Packets for which the escape channel had no free slot.
    pub(super) const fn escape_dropped(&self) -> u64 {
        self.escape_dropped
    }

    /// Segments registered in the registry.
    pub(super) const fn registrations(&self) -> u64 {
        self.registrations
    }

    /// Packets sent: data, and requests of the schemes that the receiver drives.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Packets that arrived.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }
}
