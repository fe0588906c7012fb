//! Comparison of AXI CDMA with tables typed from PG034 v4.1 (2025-07-11), cited by page title.
//!
//! Second sources: the vendor's bare-metal driver (`xaxicdma_hw.h` of embeddedsw), the QEMU model of the
//! block by F. Chang ("QEMU axicdma"), the kernel's `xilinx_dma.c`.

use crate::documents::table::{FieldRow, RegisterRow, compare_fields, compare_registers};
use fpga_registers::AccessKind::{ReadWrite, ReadWrite1Clear};
use fpga_registers::cdma::descriptor::{ALIGNMENT, SIZE};
use fpga_registers::cdma::{
    self, BytesToTransfer, CdmaBlock, Cdmacr, Cdmasr, SgControl, SgDescriptor, SgStatus,
};
use fpga_registers::{CardAddr, RegisterValue};

#[rustfmt::skip]
const REGISTERS: &[RegisterRow] = &[
    // Defaults per field: threshold 01h on the page; tail pointer mode 1 as restated by QEMU axicdma.
    (0x00, "cr", ReadWrite, Some(0x0001_0002), "PG034 Register Address Map; CDMACR (Offset 00h); x QEMU axicdma"),
    // Idle and SGIncld depend on the moment and the build: no reset value.
    (0x04, "sr", ReadWrite1Clear, None, "PG034 Register Address Map; CDMASR (Offset 04h), R/WC bits"),
    (0x08, "curdesc_low", ReadWrite, Some(0), "PG034 CURDESC_PNTR (Offset 08h); x xaxicdma_hw.h"),
    (0x0C, "curdesc_high", ReadWrite, Some(0), "PG034 CURDESC_PNTR_MSB (Offset 0Ch); x xaxicdma_hw.h"),
    (0x10, "taildesc_low", ReadWrite, Some(0), "PG034 TAILDESC_PNTR (Offset 10h); x xaxicdma_hw.h"),
    (0x14, "taildesc_high", ReadWrite, Some(0), "PG034 TAILDESC_PNTR_MSB (Offset 14h); x xaxicdma_hw.h"),
    (0x18, "source_low", ReadWrite, Some(0), "PG034 SA (Offset 18h); x xaxicdma_hw.h, xilinx_dma.c"),
    (0x1C, "source_high", ReadWrite, Some(0), "PG034 SA_MSB (Offset 1Ch); x xaxicdma_hw.h"),
    (0x20, "destination_low", ReadWrite, Some(0), "PG034 Register Address Map; x xaxicdma_hw.h, xilinx_dma.c"),
    (0x24, "destination_high", ReadWrite, Some(0), "PG034 DA_MSB (Offset 24h); x xaxicdma_hw.h"),
    (0x28, "btt", ReadWrite, Some(0), "PG034 BTT (Offset 28h); x xaxicdma_hw.h"),
];

#[rustfmt::skip]
const CR: &[FieldRow] = &[
    ("31:24", "irq_delay", "PG034 CDMACR (Offset 00h); x xaxicdma_hw.h"),
    ("23:16", "irq_threshold", "PG034 CDMACR (Offset 00h); x xaxicdma_hw.h"),
    ("14", "error_irq_enable", "PG034 CDMACR (Offset 00h); x xaxicdma_hw.h"),
    // The lower rows of the page could not be read.
    ("13", "delay_irq_enable", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("12", "ioc_irq_enable", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("6", "cyclic", "as restated by QEMU axicdma"),
    ("5", "keyhole_write", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("4", "keyhole_read", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("3", "sg_mode", "as restated by xaxicdma_hw.h, QEMU axicdma, xilinx_dma.c"),
    ("2", "reset", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("1", "tail_pointer_enable", "as restated by QEMU axicdma"),
];

#[rustfmt::skip]
const SR: &[FieldRow] = &[
    ("31:24", "irq_delay_status", "PG034 CDMASR (Offset 04h); x QEMU axicdma"),
    ("23:16", "irq_threshold_status", "PG034 CDMASR (Offset 04h); x QEMU axicdma"),
    ("14", "error_irq", "PG034 CDMASR (Offset 04h); x xaxicdma_hw.h"),
    ("13", "delay_irq", "PG034 CDMASR (Offset 04h); x xaxicdma_hw.h"),
    ("12", "ioc_irq", "PG034 CDMASR (Offset 04h); x xaxicdma_hw.h"),
    ("10", "sg_decode_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("9", "sg_slave_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("8", "sg_internal_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("6", "dma_decode_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("5", "dma_slave_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("4", "dma_internal_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("3", "sg_included", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("1", "idle", "as restated by xaxicdma_hw.h, QEMU axicdma"),
];

#[rustfmt::skip]
const STATUS: &[FieldRow] = &[
    ("31", "completed", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("30", "dma_decode_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("29", "dma_slave_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
    ("28", "dma_internal_error", "as restated by xaxicdma_hw.h, QEMU axicdma"),
];

#[test]
fn pg034_registers_and_fields_match() {
    compare_registers("cdma", CdmaBlock::REGISTERS, REGISTERS);
    compare_fields("cr", Cdmacr::FIELDS, CR);
    compare_fields("sr", Cdmasr::FIELDS, SR);
    compare_fields("btt", BytesToTransfer::FIELDS, &[("25:0", "bytes", "PG034 BTT (Offset 28h)")]);
    compare_fields(
        "control",
        SgControl::FIELDS,
        &[("25:0", "bytes", "PG034 Transfer Descriptor CONTROL (Offset 18h)")],
    );
    compare_fields("status", SgStatus::FIELDS, STATUS);
}

#[test]
fn pg034_masks_and_limits_match() {
    // xaxicdma_hw.h XAXICDMA_SR_ERR_ALL_MASK, XAXICDMA_XR_IRQ_ALL_MASK, XAXICDMA_BD_STS_ALL_ERR_MASK.
    assert_eq!(Cdmasr::ERRORS.into_bits(), 0x770);
    assert_eq!(Cdmasr::INTERRUPTS.into_bits(), 0x7000);
    assert_eq!(SgStatus::ERRORS.into_bits(), 0x7000_0000);
    // PG034 "Scatter Gather Transfer Descriptor Definition", "BTT": up to 67,108,863 bytes.
    assert_eq!(cdma::MAX_LEN, 67_108_863);
    // PG034 "BTT": zero is not allowed.
    assert_eq!(BytesToTransfer::of(0), None);
    assert_eq!(BytesToTransfer::of(67_108_864), None);
    assert_eq!(BytesToTransfer::of(67_108_863).map(BytesToTransfer::into_bits), Some(0x03FF_FFFF));
    // xaxicdma_hw.h XAXICDMA_MAX_TRANSFER_LEN.
    assert_eq!(cdma::MAX_LEN_23_BIT, 0x7F_FFFF);
    // PG034 "Scatter Gather Transfer Descriptor Definition": 16 words, for example 0x40; x xaxicdma_hw.h
    // XAXICDMA_BD_MINIMUM_ALIGNMENT, XAXICDMA_BD_NUM_WORDS.
    assert_eq!((ALIGNMENT, SIZE), (0x40, 16 * 4));
    // As restated by QEMU axicdma: CDMASR of an idle engine in a build with scatter-gather.
    let at_rest = Cdmasr::new().with_idle(true).with_sg_included(true).with_irq_threshold_status(1);
    assert_eq!(at_rest.into_bits(), 0x0001_000A);
    assert!(!at_rest.has_error());
    assert!(Cdmasr::from_bits(0x100).has_error());
}

#[test]
fn pg034_descriptor_word_order_matches() {
    // PG034 "Transfer Descriptor Word Summary": NXTDESC, MSB, SA, MSB, DA, MSB, CONTROL, STATUS.
    let descriptor = SgDescriptor::new(CardAddr::new(0x2_2222_2222), CardAddr::new(0x3_3333_3333), 0x44)
        .unwrap()
        .with_next(CardAddr::new(0x1_1111_1140));
    assert_eq!(descriptor.to_engine_words(), [0x1111_1140, 1, 0x2222_2222, 2, 0x3333_3333, 3, 0x44, 0]);
    assert_eq!(descriptor.to_words()[8..], [0; 8]);
    // A length of zero is an error according to PG034 "Transfer Descriptor CONTROL", as is one that the field cannot hold.
    for length in [0, cdma::MAX_LEN + 1, u32::MAX] {
        let refused = SgDescriptor::new(CardAddr::ZERO, CardAddr::ZERO, length).unwrap_err();
        assert_eq!(refused.length, length);
    }
    assert!(SgDescriptor::new(CardAddr::ZERO, CardAddr::ZERO, cdma::MAX_LEN).is_ok());
}
