//! Assignment of BARs to roles.
//!
//! PG195 fixes the *order* of the BARs (AXI-Lite master, DMA, bypass), not their numbers: each except the DMA BAR is optional, and 64-bit
//! BARs take two numbers. The vendor's driver finds the DMA BAR by reading 0x2000 and 0x3000 of every large BAR in turn. If the user BAR
//! comes first, this reads *user logic*, and it has hung machines (quirk 14). This module reads nothing but the DMA BAR, and chooses it
//! without register reads:
//!
//! 1. the BAR given by the caller ([`OpenOptions::dma_bar`](crate::OpenOptions)), else
//! 2. the BAR that holds the MSI-X table at 0x8000 and the PBA at 0x8FE0 (PG195, MSI-X vector table; no other BAR of a card
//!    would), else
//! 3. the only BAR of exactly 64 KiB, else the only BAR there is.
//!
//! The identifiers of its IRQ and config blocks then confirm the choice.

use core::fmt;

use fpga_pci::{Backend, Bar, BarInfo, BarKind, config};
use fpga_registers::xdma::{
    CONFIG_BASE, ConfigBlock, DMA_BAR_SIZE, IRQ_BASE, IrqBlock, MSIX_PBA_BASE, MSIX_TABLE_BASE, Target,
};

use crate::error::{At as _, CardPart, Error, ErrorPlace, OpenError};

/// Minimum size of the DMA BAR in bytes: the register blocks end at 0x7000, and the MSI-X page follows (PG195).
pub(crate) const DMA_BAR_MIN: u64 = 0x8000;

/// Reason for the choice of the DMA BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DmaBarReason {
    /// The caller gave the number ([`OpenOptions::dma_bar`](crate::OpenOptions)).
    Requested,
    /// The BAR holds the MSI-X table at 0x8000 and the PBA at 0x8FE0, as XDMA places them (PG195, MSI-X vector table).
    MsixTable,
    /// It is the only memory BAR of 64 KiB, the size of the XDMA registers.
    OnlyOfItsSize,
    /// It is the only memory BAR of the function.
    OnlyBar,
}

impl fmt::Display for DmaBarReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "requested",
            Self::MsixTable => "MSI-X table at 0x8000",
            Self::OnlyOfItsSize => "only BAR of 64 KiB",
            Self::OnlyBar => "only BAR",
        })
    }
}

/// BAR numbers by role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarRoles {
    /// BAR with the XDMA registers.
    pub dma: BarInfo,
    /// Reason for the choice of `dma`. The other roles follow from their position before or behind it.
    pub dma_reason: DmaBarReason,
    /// BAR of the AXI-Lite master: user logic, CDMA, network interface.
    pub user: Option<BarInfo>,
    /// BAR of the bypass master: a window onto card memory.
    pub bypass: Option<BarInfo>,
}

impl BarRoles {
    /// Determines the BAR roles of a card that is not yet opened. `dma_bar` is the number of the DMA BAR, if the caller knows it. Reads
    /// only configuration space.
    ///
    /// # Errors
    /// [`OpenError::NoBars`], [`OpenError::BarAbsent`], [`OpenError::DmaBarUnclear`], [`OpenError::BarTooSmall`].
    pub fn of(backend: &dyn Backend, dma_bar: Option<u8>) -> Result<Self, Error<OpenError>> {
        roles(backend, dma_bar).at(|| ErrorPlace::new(backend.name().into(), CardPart::Card))
    }
}

/// Chooses the DMA BAR and derives the other roles from their position relative to it. Reads only configuration space.
pub(crate) fn roles(backend: &dyn Backend, forced: Option<u8>) -> Result<BarRoles, OpenError> {
    // PG195 does not order I/O port BARs.
    let memory = |bar: &BarInfo| bar.kind != BarKind::Io;
    let present: Vec<BarInfo> = backend.bars().into_iter().flatten().filter(memory).collect();
    if present.is_empty() {
        return Err(OpenError::NoBars);
    }
    let (dma, dma_reason) = match forced {
        Some(index) => present
            .iter()
            .find(|bar| bar.index == index)
            .map(|bar| (*bar, DmaBarReason::Requested))
            .ok_or_else(|| OpenError::BarAbsent { role: "DMA", index })?,
        None => choose(backend, &present).ok_or_else(|| OpenError::DmaBarUnclear {
            found: present.iter().map(|bar| (bar.index, bar.size)).collect(),
        })?,
    };
    if dma.size < DMA_BAR_MIN {
        return Err(OpenError::BarTooSmall {
            role: "DMA",
            index: dma.index,
            size: dma.size,
            needed: DMA_BAR_MIN,
        });
    }
    // Uses the position, not the number: a 64-bit BAR leaves a gap. A lone neighbour before the DMA BAR is the user BAR, one after it the
    // bypass BAR (PG195, "Target Bridge").
    let user = present.iter().copied().rfind(|bar| bar.index < dma.index);
    let bypass = present.iter().copied().find(|bar| bar.index > dma.index);
    Ok(BarRoles { dma, dma_reason, user, bypass })
}

fn choose(backend: &dyn Backend, present: &[BarInfo]) -> Option<(BarInfo, DmaBarReason)> {
    if let Ok(Some(msix)) = config::find_msix(backend)
        && u64::from(msix.table_offset) == MSIX_TABLE_BASE.get()
        && u64::from(msix.pba_offset) == MSIX_PBA_BASE.get()
        && msix.table_bar == msix.pba_bar
        && let Some(bar) = present.iter().find(|bar| bar.index == msix.table_bar)
    {
        return Some((*bar, DmaBarReason::MsixTable));
    }
    let mut exact = present.iter().filter(|bar| bar.size == DMA_BAR_SIZE);
    match (exact.next(), exact.next()) {
        (Some(bar), None) => Some((*bar, DmaBarReason::OnlyOfItsSize)),
        (None, _) => match present {
            [bar] => Some((*bar, DmaBarReason::OnlyBar)),
            _ => None,
        },
        _ => None,
    }
}

/// Confirms that `bar` is an XDMA register BAR by the identifiers of its IRQ and config blocks.
pub(crate) fn confirm(index: u8, bar: &Bar) -> Result<(), OpenError> {
    let irq = IrqBlock::IDENTIFIER.read(bar, IRQ_BASE)?;
    let config = ConfigBlock::IDENTIFIER.read(bar, CONFIG_BASE)?;
    // Identifiers never change. An identifier that only some reads return correctly indicates a core with quirk 3, not a removed card.
    // Three reads, because it is not known which of two reads fails.
    if [irq.into_bits(), config.into_bits()].contains(&u32::MAX)
        && (0..3).any(|_| IrqBlock::IDENTIFIER.read(bar, IRQ_BASE).is_ok_and(|irq| irq.is(Target::Irq)))
        && (0..3).any(|_| {
            ConfigBlock::IDENTIFIER.read(bar, CONFIG_BASE).is_ok_and(|config| config.is(Target::Config))
        })
    {
        return Err(OpenError::UnsteadyReads);
    }
    // Both are all ones, or only the second: the card was removed between the two reads.
    if config.into_bits() == u32::MAX && (irq.into_bits() == u32::MAX || irq.is(Target::Irq)) {
        return Err(OpenError::Gone);
    }
    // The version byte is not compared: old and new IP versions share the layout.
    if !irq.is(Target::Irq) || !config.is(Target::Config) {
        let (irq, config) = (irq.into_bits(), config.into_bits());
        return Err(OpenError::NotXdma { index, irq, config });
    }
    Ok(())
}
