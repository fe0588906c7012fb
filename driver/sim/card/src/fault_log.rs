//! Log of the faults inside the card, including those that no status bit shows.
//!
//! A C2H write that the IOMMU refuses is a lost posted write: the engine continues and reports success. On real hardware only AER and the
//! IOMMU's log show it; this log is the simulated card's equivalent.

use crate::config_space::BadCompletion;
use fpga_protocol::time::Nanos;
use std::collections::VecDeque;

/// Maximum number of kept entries; older ones are counted and dropped.
pub const FAULT_LOG_ENTRIES: usize = 64;

/// Kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum FaultKind {
    /// A posted write to host memory was refused by the IOMMU; no status bit shows it.
    HostWriteLost = 1,
    /// A read of host memory was refused (unsupported request).
    HostReadRefused = 2,
    /// A descriptor fetch was refused (unsupported request).
    DescriptorFetchRefused = 3,
    /// A DMA access while bus mastering was off.
    BusMasterOff = 4,
    /// A fetched XDMA descriptor had no magic number.
    BadMagic = 5,
    /// A requested block of descriptors crosses a 4 KiB boundary.
    BlockCrossesPage = 6,
    /// AXI decode error: no slave at that card address.
    AxiDecode = 7,
    /// AXI slave error.
    AxiSlave = 8,
    /// More credits were granted than the 10-bit counter holds.
    CreditOverflow = 9,
    /// An access that the BAR's protocol does not allow (width, alignment, write strobes); a write was dropped.
    BadAccess = 10,
    /// An interrupt message number beyond the MSI-X table.
    NoSuchVector = 11,
    /// A CDMA register was written while the engine was busy; dropped.
    CdmaBusy = 12,
    /// A CDMA error halted the engine; detail is the status word.
    CdmaHalted = 13,
    /// The NI logged a fault of its own; detail is the contract's `FaultReason`.
    Network = 14,
    /// An AXI slave never answers; the requesting engine hangs until the card is reset.
    AxiSilent = 15,
    /// A fault of the fault plan was injected; the address is the number of its opportunity, detail its index in the plan.
    Injected = 16,
    /// An H2C stream descriptor ends its packet but has no data, so the last beat would have no valid byte. The engine stopped; the
    /// address is the descriptor's source.
    EmptyPacket = 17,
    /// A descriptor for a fixed card address has a length, source or destination that is not a multiple of the beat. The engine stopped;
    /// the address is the card address, detail the length.
    Misaligned = 18,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Card time.
    pub time: Nanos,
    /// Kind of fault.
    pub kind: FaultKind,
    /// Unit that saw the fault.
    pub unit: Unit,
    /// The address in question: IOVA, card address or BAR offset by kind.
    pub address: u64,
    /// Further information, by kind.
    pub detail: u32,
}

/// The unit that saw a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// XDMA host-to-card channel.
    H2c(u8),
    /// XDMA card-to-host channel.
    C2h(u8),
    /// XDMA outside the channels.
    Xdma,
    /// CDMA.
    Cdma,
    /// Network interface.
    Ni,
    /// A BAR.
    Bar(u8),
}

impl Unit {
    /// Encoding in the fault log block: unit 15:8, number 7:0.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::H2c(n) => 0x100 | n as u32,
            Self::C2h(n) => 0x200 | n as u32,
            Self::Xdma => 0x300,
            Self::Cdma => 0x400,
            Self::Ni => 0x500,
            Self::Bar(n) => 0x600 | n as u32,
        }
    }
}

/// Last [`FAULT_LOG_ENTRIES`] faults since the card was created; resets do not clear them.
#[derive(Debug)]
pub struct FaultLog {
    entries: VecDeque<Fault>,
    total: u32,
    /// As `total`, but not cleared by a reset.
    ever: u64,
    now: Nanos,
    /// Completions that configuration space has not noted yet, one bit per kind.
    completions: u8,
}

impl FaultLog {
    pub(crate) fn new() -> Self {
        Self {
            entries: VecDeque::with_capacity(FAULT_LOG_ENTRIES),
            total: 0,
            ever: 0,
            now: Nanos::ZERO,
            completions: 0,
        }
    }

    /// Notes that a request of the card was answered by `completion`, for the PCI status register.
    pub(crate) const fn note_completion(&mut self, completion: BadCompletion) {
        self.completions |= 1 << completion as u8;
    }

    /// Takes the completions noted since the last call.
    #[inline]
    pub(crate) fn take_completions(&mut self) -> impl Iterator<Item = BadCompletion> + use<> {
        let seen = std::mem::take(&mut self.completions);
        BadCompletion::ALL.into_iter().filter(move |completion| seen >> *completion as u8 & 1 != 0)
    }

    #[inline]
    pub(crate) const fn has_completions(&self) -> bool {
        self.completions != 0
    }

    pub(crate) const fn set_time(&mut self, now: Nanos) {
        self.now = now;
    }

    pub(crate) fn push(&mut self, kind: FaultKind, unit: Unit, address: u64, detail: u32) {
        if self.entries.len() == FAULT_LOG_ENTRIES {
            self.entries.pop_front();
        }
        let time = self.now;
        tracing::debug!(?kind, ?unit, address, detail, "card fault");
        if matches!(kind, FaultKind::HostReadRefused | FaultKind::DescriptorFetchRefused) {
            self.note_completion(BadCompletion::UnsupportedRequest);
        }
        self.entries.push_back(Fault { time, kind, unit, address, detail });
        self.total = self.total.wrapping_add(1);
        self.ever += 1;
    }

    /// Faults since reset, modulo 2^32.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Faults since the card was created.
    #[must_use]
    pub const fn ever(&self) -> u64 {
        self.ever
    }

    /// The kept entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Fault> {
        self.entries.iter()
    }

    /// Kept entry number `index`; 0 is the oldest.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Fault> {
        self.entries.get(index)
    }

    /// Returns the number of kept entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no entry is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Handles a reset of the card: the count starts again, and completions that configuration space has not noted are lost. The entries
    /// stay. They are notes of the simulation that no register shows, and they are mostly read after a reset: vfio-pci resets the card
    /// when its owner closes it.
    pub(crate) const fn note_reset(&mut self) {
        self.total = 0;
        self.completions = 0;
    }
}
