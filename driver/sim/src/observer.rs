//! Observer of a card's host side: register accesses of the host, accesses of the card to host memory, interrupts.

use std::fmt;

use fpga_card::Interrupt;
use fpga_registers::Iova;

/// Event between a card and its host. Register accesses are those of clients of a [`CardServer`](crate::served::CardServer).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum HostEvent<'a> {
    /// The host has read a BAR.
    BarRead {
        /// Number of the BAR.
        bar: u8,
        /// Byte offset.
        offset: u64,
        /// Bytes read, the lowest first.
        data: &'a [u8],
    },
    /// The host writes a BAR; reported before the card sees it.
    BarWrite {
        /// Number of the BAR.
        bar: u8,
        /// Byte offset.
        offset: u64,
        /// Bytes to write, the lowest first.
        data: &'a [u8],
    },
    /// The card reads host memory; reported before the access.
    MemoryRead {
        /// First byte.
        at: Iova,
        /// Length in bytes.
        length: usize,
    },
    /// The card writes host memory; reported before the access.
    MemoryWrite {
        /// First byte.
        at: Iova,
        /// Length in bytes.
        length: usize,
    },
    /// The IOMMU has refused the access that was reported last.
    MemoryRefused {
        /// First refused byte.
        at: Iova,
    },
    /// The card sends an interrupt.
    Interrupt(Interrupt),
}

/// Receiver of [`HostEvent`]s, called on the thread that causes the event, which may hold the lock of the simulated network.
pub trait HostObserver: Send + Sync + fmt::Debug {
    /// Called for each event, in order.
    fn observed(&self, event: &HostEvent<'_>);
}
