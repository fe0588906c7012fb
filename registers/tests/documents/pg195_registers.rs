//! Comparison of XDMA registers with a table typed independently from the vendor's pages.
//!
//! Read: PG195 v4.2 (2025-11-20, 2026-07-22; single pages in v4.1 2024-12-18), cited by page title. "x libxdma.h" and
//! "x xdma-regs.h" mark rows that a second source confirms: the vendor's Linux driver, the kernel's driver.

use crate::documents::table::{RegisterRow, compare_registers};
use fpga_registers::AccessKind::{ReadClears, ReadOnly, ReadWrite, ReadWrite1Clear, Write1Clear, Write1Set};
use fpga_registers::BarOffset;
use fpga_registers::xdma::{
    self, ChannelBlock, ConfigBlock, Direction, IrqBlock, MsixEntry, SgdmaBlock, SgdmaCommonBlock, msix,
};

#[rustfmt::skip]
const CHANNEL: &[RegisterRow] = &[
    (0x00, "identifier", ReadOnly, None, "PG195 H2C Channel Identifier (0x00); x libxdma.h"),
    (0x04, "control", ReadWrite, Some(0), "PG195 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    (0x08, "control_set", Write1Set, None, "PG195 H2C Channel Control (0x08); x libxdma.h, xdma-regs.h"),
    (0x0C, "control_clear", Write1Clear, None, "PG195 H2C Channel Control (0x0C); x libxdma.h, xdma-regs.h"),
    (0x40, "status", ReadWrite1Clear, Some(0), "PG195 H2C Channel Status (0x40); x libxdma.h, xdma-regs.h"),
    (0x44, "status_rc", ReadClears, Some(0), "PG195 H2C Channel Status (0x44), resets of 0x40; x libxdma.h"),
    (0x48, "completed", ReadOnly, Some(0), "PG195 H2C Channel Completed Descriptor Count (0x48); x libxdma.h"),
    (0x4C, "alignments", ReadOnly, None, "PG195 H2C Channel Alignments (0x4C); x libxdma.h, xdma-regs.h"),
    (0x88, "poll_address_low", ReadWrite, Some(0), "PG195 H2C Poll Mode Low Write Back Address (0x88); x libxdma.h"),
    (0x8C, "poll_address_high", ReadWrite, Some(0), "PG195 H2C Poll Mode High Write Back Address (0x8C); x libxdma.h"),
    (0x90, "interrupt_enable", ReadWrite, Some(0), "PG195 H2C Channel Interrupt Enable Mask (0x90); x libxdma.h"),
    (0x94, "interrupt_enable_set", Write1Set, None, "PG195 H2C Channel Interrupt Enable Mask (0x94); x libxdma.h"),
    // xdma-regs.h says 0x9C: erratum X1.
    (0x98, "interrupt_enable_clear", Write1Clear, None, "PG195 H2C Channel Interrupt Enable Mask (0x98); x libxdma.h"),
    (0xC0, "performance_control", ReadWrite, Some(0), "PG195 H2C Channel Performance Monitor Control (0xC0); x libxdma.h"),
    (0xC4, "performance_cycles_low", ReadOnly, Some(0), "PG195 H2C Channel Performance Cycle Count (0xC4); x libxdma.h"),
    (0xC8, "performance_cycles_high", ReadOnly, Some(0), "PG195 H2C Channel Performance Cycle Count (0xC8); x libxdma.h"),
    (0xCC, "performance_data_low", ReadOnly, Some(0), "PG195 H2C Channel Performance Data Count (0xCC), access and reset of 0xC4; x libxdma.h"),
    (0xD0, "performance_data_high", ReadOnly, Some(0), "PG195 H2C Channel Performance Data Count (0xD0); x libxdma.h"),
    (0xD4, "performance_pending_low", ReadOnly, None, "as stated by libxdma.h only: erratum X3"),
    (0xD8, "performance_pending_high", ReadOnly, None, "as stated by libxdma.h only: erratum X3"),
];

#[rustfmt::skip]
const SGDMA: &[RegisterRow] = &[
    (0x00, "identifier", ReadOnly, None, "PG195 H2C SGDMA Identifier (0x00); x libxdma.h"),
    (0x80, "descriptor_low", ReadWrite, Some(0), "PG195 H2C SGDMA Descriptor Low Address (0x80); x libxdma.h, xdma-regs.h"),
    (0x84, "descriptor_high", ReadWrite, Some(0), "PG195 H2C SGDMA Descriptor High Address (0x84); x libxdma.h, xdma-regs.h"),
    (0x88, "adjacent", ReadWrite, Some(0), "PG195 H2C SGDMA Descriptor Adjacent (0x88); x libxdma.h, xdma-regs.h"),
    (0x8C, "credits", ReadWrite, Some(0), "PG195 H2C SGDMA Descriptor Credits (0x8C); x libxdma.h, xdma-regs.h"),
];

#[rustfmt::skip]
const SGDMA_COMMON: &[RegisterRow] = &[
    (0x00, "identifier", ReadOnly, None, "PG195 SGDMA Identifier Registers (0x00)"),
    (0x10, "halt", ReadWrite, Some(0), "PG195 SGDMA Descriptor Control Register (0x10)"),
    (0x14, "halt_set", Write1Set, None, "PG195 SGDMA Descriptor Control Register (0x14)"),
    (0x18, "halt_clear", Write1Clear, None, "PG195 SGDMA Descriptor Control Register (0x18)"),
    (0x20, "credit_mode", ReadWrite, Some(0), "PG195 SGDMA Descriptor Credit Mode Enable (0x20); x libxdma.h"),
    (0x24, "credit_mode_set", Write1Set, None, "as restated by libxdma.h, credit_mode_enable_w1s"),
    (0x28, "credit_mode_clear", Write1Clear, None, "as restated by libxdma.h, credit_mode_enable_w1c"),
];

#[rustfmt::skip]
const IRQ: &[RegisterRow] = &[
    (0x00, "identifier", ReadOnly, None, "PG195 IRQ Block Registers (0x2); x libxdma.h"),
    (0x04, "user_enable", ReadWrite, Some(0), "PG195 IRQ Block User Interrupt Enable Mask (0x04); x libxdma.h, xdma-regs.h"),
    (0x08, "user_enable_set", Write1Set, None, "PG195 IRQ Block User Interrupt Enable Mask (0x08); x libxdma.h, xdma-regs.h"),
    (0x0C, "user_enable_clear", Write1Clear, None, "PG195 IRQ Block User Interrupt Enable Mask (0x0C); x libxdma.h, xdma-regs.h"),
    (0x10, "channel_enable", ReadWrite, Some(0), "PG195 IRQ Block Channel Interrupt Enable Mask (0x10); x libxdma.h, xdma-regs.h"),
    (0x14, "channel_enable_set", Write1Set, None, "PG195 IRQ Block Channel Interrupt Enable Mask (0x14); x libxdma.h, xdma-regs.h"),
    (0x18, "channel_enable_clear", Write1Clear, None, "PG195 IRQ Block Channel Interrupt Enable Mask (0x18); x libxdma.h, xdma-regs.h"),
    (0x40, "user_request", ReadOnly, Some(0), "PG195 IRQ Block User Interrupt Request (0x40); x libxdma.h, xdma-regs.h"),
    (0x44, "channel_request", ReadOnly, Some(0), "PG195 IRQ Block Channel Interrupt Request (0x44); x libxdma.h, xdma-regs.h"),
    (0x48, "user_pending", ReadOnly, Some(0), "PG195 IRQ Block User Interrupt Pending (0x48); x libxdma.h, xdma-regs.h"),
    (0x4C, "channel_pending", ReadOnly, Some(0), "PG195 IRQ Block Channel Interrupt Pending (0x4C); x libxdma.h, xdma-regs.h"),
    (0x80, "user_vectors0", ReadWrite, Some(0), "PG195 IRQ Block User Vector Number (0x80); x xdma-regs.h"),
    (0x84, "user_vectors1", ReadWrite, Some(0), "PG195 IRQ Block User Vector Number (0x84)"),
    (0x88, "user_vectors2", ReadWrite, Some(0), "PG195 IRQ Block User Vector Number (0x88)"),
    (0x8C, "user_vectors3", ReadWrite, Some(0), "PG195 IRQ Block User Vector Number (0x8C)"),
    (0xA0, "channel_vectors0", ReadWrite, Some(0), "PG195 IRQ Block Channel Vector Number (0xA0); x xdma-regs.h"),
    (0xA4, "channel_vectors1", ReadWrite, Some(0), "PG195 IRQ Block Channel Vector Number (0xA4), reset of 0xA0"),
];

#[rustfmt::skip]
const CONFIG: &[RegisterRow] = &[
    (0x00, "identifier", ReadOnly, None, "PG195 Config Block Identifier (0x00); x libxdma.h"),
    (0x04, "bus_device_function", ReadOnly, None, "PG195 Config Block BusDev (0x04)"),
    (0x08, "pcie_max_payload", ReadOnly, None, "PG195 Config Block PCIE Max Payload Size (0x08)"),
    (0x0C, "pcie_max_read_request", ReadOnly, None, "PG195 Config Block Registers (0x3)"),
    (0x10, "system_id", ReadOnly, Some(0xFF01), "PG195 Config Block System ID (0x10)"),
    (0x14, "interrupt_mode", ReadOnly, None, "PG195 Config Block MSI Enable (0x14); x libxdma.h"),
    (0x18, "data_width", ReadOnly, None, "PG195 Config Block PCIE Data Width (0x18)"),
    (0x1C, "pcie_control", ReadWrite, Some(1), "PG195 Config PCIE Control (0x1C)"),
    // Default 5 in both fields: 5 << 4 | 5.
    (0x40, "user_max_payload", ReadWrite, Some(0x55), "PG195 Config AXI User Max Payload Size (0x40)"),
    (0x44, "user_max_read_request", ReadWrite, Some(0x55), "PG195 Config Block Registers (0x3), fields as at 0x40"),
    (0x60, "write_flush_timeout", ReadWrite, Some(0), "PG195 Config Write Flush Timeout (0x60)"),
];

#[rustfmt::skip]
const MSIX_ENTRY: &[RegisterRow] = &[
    (0x0, "address_low", ReadWrite, Some(0), "PG195 MSI-X Vector Table and PBA (0x8), offset 0x00; x libxdma.h"),
    (0x4, "address_high", ReadWrite, Some(0), "PG195 MSI-X Vector Table and PBA (0x8), offset 0x04; x libxdma.h"),
    (0x8, "data", ReadWrite, Some(0), "PG195 MSI-X Vector Table and PBA (0x8), offset 0x08; x libxdma.h"),
    (0xC, "control", ReadWrite, Some(0xFFFF_FFFF), "PG195 MSI-X Vector Table and PBA (0x8), offset 0x0C"),
];

#[rustfmt::skip]
const MSIX_PENDING: &[RegisterRow] =
    &[(0x0, "pending", ReadOnly, Some(0), "PG194 MSI-X Vector Table and PBA (0x8), 0xFE0; access: erratum X11")];

#[test]
fn pg195_registers_match() {
    compare_registers("channel", ChannelBlock::REGISTERS, CHANNEL);
    compare_registers("sgdma", SgdmaBlock::REGISTERS, SGDMA);
    compare_registers("sgdma common", SgdmaCommonBlock::REGISTERS, SGDMA_COMMON);
    compare_registers("irq", IrqBlock::REGISTERS, IRQ);
    compare_registers("config", ConfigBlock::REGISTERS, CONFIG);
    compare_registers("msix entry", MsixEntry::REGISTERS, MSIX_ENTRY);
    compare_registers("msix pending", msix::PendingBlock::REGISTERS, MSIX_PENDING);
}

#[test]
fn pg195_block_offsets_match() {
    // PG195 "PCIe to DMA Address Format": bits 15:12 target, 11:8 channel; the targets from the titles "H2C Channel
    // Registers (0x0)" to "SGDMA Common Registers (0x6)". x libxdma.h: CHANNEL_SPACING, TARGET_SPACING,
    // SGDMA_OFFSET_FROM_CHANNEL; x xdma-regs.h: XDMA_CHAN_STRIDE, XDMA_CHAN_C2H_OFFSET.
    let places = [
        (xdma::channel_base(Direction::H2c, 0), 0x0000),
        (xdma::channel_base(Direction::H2c, 3), 0x0300),
        (xdma::channel_base(Direction::C2h, 0), 0x1000),
        (xdma::channel_base(Direction::C2h, 2), 0x1200),
        (xdma::IRQ_BASE, 0x2000),
        (xdma::CONFIG_BASE, 0x3000),
        (xdma::sgdma_base(Direction::H2c, 0), 0x4000),
        (xdma::sgdma_base(Direction::H2c, 1), 0x4100),
        (xdma::sgdma_base(Direction::C2h, 0), 0x5000),
        (xdma::sgdma_base(Direction::C2h, 3), 0x5300),
        (xdma::SGDMA_COMMON_BASE, 0x6000),
        // PG195 "MSI-X Vector Table and PBA (0x8)": table from 0x8000, pending bits from 0x8FE0, fixed.
        (xdma::MSIX_TABLE_BASE, 0x8000),
        (xdma::MSIX_PBA_BASE, 0x8FE0),
        (msix::entry_base(0), 0x8000),
        // Same table: vector 31's address is at 0x1F0.
        (msix::entry_base(31), 0x81F0),
    ];
    for (ours, document) in places {
        assert_eq!(ours, BarOffset::new(document));
    }
}

#[test]
fn pg195_register_limits_match() {
    // PG195 "MSI-X Vector Table and PBA (0x8)": 32 entries.
    assert_eq!(msix::VECTOR_COUNT, 32);
    // x libxdma.h XDMA_CHANNEL_NUM_MAX, xdma-regs.h XDMA_MAX_CHANNELS; PG195 "SGDMA Descriptor Control Register" has
    // four bits per direction.
    assert_eq!(xdma::MAX_CHANNELS, 4);
    // PG195 "IRQ Block User Vector Number (0x8C)": the last is usr_irq_req[15]. x libxdma.h MAX_USER_IRQ.
    assert_eq!(xdma::MAX_USER_INTERRUPTS, 16);
    // As restated by xdma-regs.h XDMA_REG_SPACE_LEN.
    assert_eq!(xdma::DMA_BAR_SIZE, 65536);
    assert_eq!(xdma::CHANNEL_STRIDE, 256);
    // PG195 "H2C SGDMA Descriptor Credits (0x8C)": bits 9:0. x libxdma.h XDMA_ENGINE_CREDIT_XFER_MAX_DESC.
    assert_eq!(xdma::Credits::MAX, 0x3FF);
    assert_eq!(xdma::Credits::of(0x3FF).map(xdma::Credits::into_bits), Some(0x3FF));
    assert_eq!(xdma::Credits::of(0x400), None);
    assert_eq!(xdma::Adjacent::of(63).map(xdma::Adjacent::into_bits), Some(0x3F));
    assert_eq!(xdma::Adjacent::of(64), None);
}
