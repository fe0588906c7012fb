//! Comparison of the fields of XDMA registers with a table typed independently from the vendor's pages. Sources as in `pg195_registers.rs`.

use crate::documents::table::{FieldRow, compare_fields};
use fpga_registers::RegisterValue;
use fpga_registers::xdma::{
    Adjacent, Alignments, BusDeviceFunction, ChannelControl, ChannelInterrupts, ChannelMask, ChannelStatus,
    CounterHigh, Credits, DescriptorControl, Direction, Identifier, InterruptMode, PcieControl,
    PcieDataWidth, PcieSize, PerChannel, PerformanceControl, PollWriteback, StatusError,
    StreamWritebackStatus, SystemId, Target, UserMask, UserSizeLimit, VectorControl, VectorNumbers,
    WriteFlushTimeout, irq,
};

#[rustfmt::skip]
const IDENTIFIER: &[FieldRow] = &[
    ("31:20", "subsystem", "PG195 C2H Channel Identifier (0x00), 12'h1fc"),
    ("19:16", "target", "PG195 C2H Channel Identifier (0x00)"),
    ("15", "stream", "PG195 C2H Channel Identifier (0x00)"),
    ("11:8", "channel", "PG195 C2H Channel Identifier (0x00)"),
    ("7:0", "version", "PG195 C2H Channel Identifier (0x00)"),
];

#[rustfmt::skip]
const CONTROL: &[FieldRow] = &[
    ("0", "run", "PG344 H2C Channel Control (0x04), PG195 in Chinese; x libxdma.h, xdma-regs.h"),
    ("1", "ie_descriptor_stopped", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("2", "ie_descriptor_completed", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("3", "ie_align_mismatch", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("4", "ie_magic_stopped", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("5", "ie_invalid_length", "PG344 H2C Channel Control (0x04)"),
    ("6", "ie_idle_stopped", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("13:9", "ie_read_error", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("18:14", "ie_write_error", "PG344 H2C Channel Control (0x04); x xdma-regs.h"),
    ("23:19", "ie_descriptor_error", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("25", "non_incrementing", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("26", "poll_writeback", "PG344 H2C Channel Control (0x04); x libxdma.h, xdma-regs.h"),
    ("27", "stream_writeback_disable", "PG344 C2H Channel Control (0x04); x libxdma.h"),
];

#[rustfmt::skip]
const STATUS: &[FieldRow] = &[
    ("0", "busy", "PG195 C2H Channel Status (0x40); x libxdma.h"),
    ("1", "descriptor_stopped", "PG195 C2H Channel Status (0x40); x libxdma.h"),
    ("2", "descriptor_completed", "PG195 C2H Channel Status (0x40); x libxdma.h"),
    ("3", "align_mismatch", "PG195 C2H Channel Status (0x40); x libxdma.h"),
    ("4", "magic_stopped", "PG195 H2C Channel Status (0x40); x libxdma.h"),
    ("5", "invalid_length", "PG195 H2C Channel Status (0x40); x libxdma.h"),
    ("6", "idle_stopped", "PG195 H2C Channel Status (0x40); x libxdma.h"),
    ("13:9", "read_error", "PG195 H2C Channel Status (0x40); x libxdma.h"),
    ("18:14", "write_error", "PG195 H2C Channel Status (0x40); x libxdma.h"),
    ("23:19", "descriptor_error", "PG195 H2C Channel Status (0x40); x libxdma.h"),
];

#[rustfmt::skip]
const INTERRUPTS: &[FieldRow] = &[
    ("1", "descriptor_stopped", "PG195 H2C Channel Interrupt Enable Mask (0x90); x xdma-regs.h"),
    ("2", "descriptor_completed", "PG195 H2C Channel Interrupt Enable Mask (0x90); x xdma-regs.h"),
    ("3", "align_mismatch", "PG195 H2C Channel Interrupt Enable Mask (0x90)"),
    ("4", "magic_stopped", "PG195 H2C Channel Interrupt Enable Mask (0x90); x xdma-regs.h"),
    ("5", "invalid_length", "PG195 H2C Channel Interrupt Enable Mask (0x90)"),
    ("6", "idle_stopped", "PG195 H2C Channel Interrupt Enable Mask (0x90); x xdma-regs.h"),
    ("13:9", "read_error", "PG195 H2C Channel Interrupt Enable Mask (0x90); x xdma-regs.h"),
    ("18:14", "write_error", "PG195 H2C Channel Interrupt Enable Mask (0x90)"),
    ("23:19", "descriptor_error", "PG195 H2C Channel Interrupt Enable Mask (0x90); x xdma-regs.h"),
];

#[rustfmt::skip]
const ALIGNMENTS: &[FieldRow] = &[
    ("23:16", "address_alignment", "PG195 H2C Channel Alignments (0x4C)"),
    ("15:8", "length_granularity", "PG195 H2C Channel Alignments (0x4C)"),
    ("7:0", "address_bits", "PG195 H2C Channel Alignments (0x4C)"),
];

#[rustfmt::skip]
const PERFORMANCE_CONTROL: &[FieldRow] = &[
    // libxdma.h exchanges bits 0 and 2: erratum X2.
    ("2", "run", "PG195 H2C Channel Performance Monitor Control (0xC0)"),
    ("1", "clear", "PG195 H2C Channel Performance Monitor Control (0xC0); x libxdma.h"),
    ("0", "auto", "PG195 H2C Channel Performance Monitor Control (0xC0)"),
];

#[rustfmt::skip]
const COUNTER_HIGH: &[FieldRow] = &[
    ("16", "saturated", "PG195 H2C Channel Performance Cycle Count (0xC8)"),
    ("9:0", "count", "PG195 H2C Channel Performance Cycle Count (0xC8)"),
];

#[rustfmt::skip]
const PER_CHANNEL: &[FieldRow] = &[
    ("19:16", "c2h", "PG195 SGDMA Descriptor Control Register (0x10), Credit Mode Enable (0x20)"),
    ("3:0", "h2c", "PG195 SGDMA Descriptor Control Register (0x10), Credit Mode Enable (0x20)"),
];

#[rustfmt::skip]
const VECTORS: &[FieldRow] = &[
    ("28:24", "vector3", "PG195 IRQ Block User Vector Number (0x80)"),
    ("20:16", "vector2", "PG195 IRQ Block User Vector Number (0x80)"),
    ("12:8", "vector1", "PG195 IRQ Block User Vector Number (0x80)"),
    ("4:0", "vector0", "PG195 IRQ Block User Vector Number (0x80)"),
];

#[rustfmt::skip]
const USER_SIZE: &[FieldRow] = &[
    ("6:4", "effective", "PG195 Config AXI User Max Payload Size (0x40)"),
    ("2:0", "requested", "PG195 Config AXI User Max Payload Size (0x40)"),
];

#[rustfmt::skip]
const DESCRIPTOR_CONTROL: &[FieldRow] = &[
    // The table of PG195 "Descriptors" could not be read.
    ("0", "stop", "as restated by libxdma.h XDMA_DESC_STOPPED, xdma-regs.h"),
    ("1", "completed", "as restated by libxdma.h XDMA_DESC_COMPLETED, xdma-regs.h"),
    ("4", "eop", "as restated by libxdma.h XDMA_DESC_EOP"),
    ("13:8", "next_adjacent", "as restated by xdma-regs.h XDMA_DESC_ADJACENT_BITS"),
    ("31:16", "magic", "as restated by xdma-regs.h XDMA_DESC_MAGIC_BITS; x libxdma.h DESC_MAGIC"),
];

#[rustfmt::skip]
const BDF: &[FieldRow] = &[
    // PG195 Config Block BusDev (0x04): bits 15:0, bus, device and function; their widths are those of PCI.
    ("15:8", "bus", "PG195 Config Block BusDev (0x04)"),
    ("7:3", "device", "PG195 Config Block BusDev (0x04)"),
    ("2:0", "function", "PG195 Config Block BusDev (0x04)"),
];

#[rustfmt::skip]
const INTERRUPT_MODE: &[FieldRow] =
    &[("0", "msi", "PG195 Config Block MSI Enable (0x14)"), ("1", "msix", "PG195 Config Block MSI Enable (0x14)")];

#[rustfmt::skip]
const POLL_WRITEBACK: &[FieldRow] = &[
    ("31", "error", "PG195 Poll Mode, table 1; x libxdma.h WB_ERR_MASK"),
    ("23:0", "count", "PG195 Poll Mode, table 1; x libxdma.h WB_COUNT_MASK"),
];

#[rustfmt::skip]
const STREAM_WRITEBACK: &[FieldRow] = &[
    ("31:16", "magic", "as restated by libxdma.h C2H_WB; the number in PG344 DMA C2H Stream"),
    ("0", "eop", "as restated by libxdma.h RX_STATUS_EOP"),
];

#[test]
fn pg195_fields_match() {
    let one = |name, fields, bits, field, source| compare_fields(name, fields, &[(bits, field, source)]);
    compare_fields("identifier", Identifier::FIELDS, IDENTIFIER);
    compare_fields("control", ChannelControl::FIELDS, CONTROL);
    compare_fields("status", ChannelStatus::FIELDS, STATUS);
    compare_fields("interrupts", ChannelInterrupts::FIELDS, INTERRUPTS);
    compare_fields("alignments", Alignments::FIELDS, ALIGNMENTS);
    compare_fields("performance control", PerformanceControl::FIELDS, PERFORMANCE_CONTROL);
    compare_fields("counter high", CounterHigh::FIELDS, COUNTER_HIGH);
    one("adjacent", Adjacent::FIELDS, "5:0", "extra", "PG195 H2C SGDMA Descriptor Adjacent (0x88)");
    one("credits", Credits::FIELDS, "9:0", "credits", "PG195 H2C SGDMA Descriptor Credits (0x8C)");
    compare_fields("per channel", PerChannel::FIELDS, PER_CHANNEL);
    compare_fields("vectors", VectorNumbers::FIELDS, VECTORS);
    compare_fields(
        "user mask",
        UserMask::FIELDS,
        &[("15:0", "user", "PG195 IRQ Block User Interrupt Enable Mask (0x04), 16 at most")],
    );
    compare_fields(
        "channel mask",
        ChannelMask::FIELDS,
        &[("7:0", "channels", "PG195 IRQ Block Channel Interrupt Enable Mask (0x10), 4 + 4 at most")],
    );
    compare_fields("bdf", BusDeviceFunction::FIELDS, BDF);
    one("size", PcieSize::FIELDS, "2:0", "code", "PG195 Config Block PCIE Max Payload Size (0x08)");
    one("system id", SystemId::FIELDS, "15:0", "id", "PG195 Config Block System ID (0x10)");
    compare_fields("interrupt mode", InterruptMode::FIELDS, INTERRUPT_MODE);
    one("width", PcieDataWidth::FIELDS, "2:0", "code", "PG195 Config Block PCIE Data Width (0x18)");
    one("pcie control", PcieControl::FIELDS, "0", "relaxed_ordering", "PG195 Config PCIE Control (0x1C)");
    compare_fields("user size", UserSizeLimit::FIELDS, USER_SIZE);
    one("flush", WriteFlushTimeout::FIELDS, "4:0", "exponent", "PG195 Config Write Flush Timeout (0x60)");
    compare_fields(
        "vector control",
        VectorControl::FIELDS,
        &[("0", "masked", "PG195 MSI-X Vector Table and PBA (0x8), offset 0x0C")],
    );
    compare_fields("descriptor control", DescriptorControl::FIELDS, DESCRIPTOR_CONTROL);
    compare_fields("poll write-back", PollWriteback::FIELDS, POLL_WRITEBACK);
    compare_fields("stream write-back", StreamWritebackStatus::FIELDS, STREAM_WRITEBACK);
}

/// Bit of status, error: PG195 "H2C Channel Status (0x40)" lists read_error[4:0] (from bit 9), write_error[1:0] (from
/// bit 14), descr_error[4:0] (from bit 19) bit by bit; x libxdma.h XDMA_STAT_H2C_*, XDMA_STAT_DESC_*.
const ERRORS_H2C: &[(u8, StatusError)] = &[
    (3, StatusError::AlignMismatch),
    (4, StatusError::MagicStopped),
    (5, StatusError::InvalidLength),
    (9, StatusError::HostReadUnsupportedRequest),
    (10, StatusError::HostReadCompleterAbort),
    (11, StatusError::HostReadParity),
    (12, StatusError::HostReadPoisoned),
    (13, StatusError::HostReadUnexpectedCompletion),
    (14, StatusError::CardWriteDecode),
    (15, StatusError::CardWriteSlave),
    (19, StatusError::DescriptorUnsupportedRequest),
    (20, StatusError::DescriptorCompleterAbort),
    (21, StatusError::DescriptorParity),
    (22, StatusError::DescriptorPoisoned),
    (23, StatusError::DescriptorUnexpectedCompletion),
];

/// PG195 "C2H Channel Status (0x40)": read_error[1] slave, [0] decode; x libxdma.h XDMA_STAT_C2H_*.
const ERRORS_C2H: &[(u8, StatusError)] = &[
    (3, StatusError::AlignMismatch),
    (4, StatusError::MagicStopped),
    (5, StatusError::InvalidLength),
    (9, StatusError::CardReadDecode),
    (10, StatusError::CardReadSlave),
    (19, StatusError::DescriptorUnsupportedRequest),
    (20, StatusError::DescriptorCompleterAbort),
    (21, StatusError::DescriptorParity),
    (22, StatusError::DescriptorPoisoned),
    (23, StatusError::DescriptorUnexpectedCompletion),
];

#[test]
fn pg195_every_status_bit_decodes() {
    for (direction, table) in [(Direction::H2c, ERRORS_H2C), (Direction::C2h, ERRORS_C2H)] {
        for bit in 0..32 {
            let status = ChannelStatus::from_bits(1 << bit);
            let ours: Vec<_> = status.errors(direction).collect();
            let document: Vec<_> = table.iter().filter(|row| row.0 == bit).map(|row| row.1).collect();
            assert_eq!(ours, document, "{direction} status bit {bit}");
            assert_eq!(status.has_error(direction), !document.is_empty());
        }
        assert_eq!(ChannelStatus::from_bits(u32::MAX).errors(direction).count(), table.len());
    }
    // As summed up by libxdma.h XDMA_STAT_H2C_ERR_MASK and XDMA_STAT_C2H_ERR_MASK.
    assert_eq!(ChannelStatus::ERROR_MASK_H2C.into_bits(), 0x00F8_FE38);
    assert_eq!(ChannelStatus::ERROR_MASK_C2H.into_bits(), 0x00F8_0638);
}

#[test]
fn pg195_identifiers_match() {
    // PG195 "H2C SGDMA Identifier (0x00)" (target 4) and siblings; 06 is "2017.1 to current release".
    let table = [
        (Target::H2cChannel, 0x1FC0_0006),
        (Target::C2hChannel, 0x1FC1_0006),
        (Target::Irq, 0x1FC2_0006),
        (Target::Config, 0x1FC3_0006),
        (Target::H2cSgdma, 0x1FC4_0006),
        (Target::C2hSgdma, 0x1FC5_0006),
        (Target::SgdmaCommon, 0x1FC6_0006),
    ];
    for (target, word) in table {
        assert_eq!(Identifier::of(target, 0, false).into_bits(), word);
        assert!(Identifier::from_bits(word).is(target));
        assert_eq!(Identifier::from_bits(word).named_target(), Some(target));
    }
    assert_eq!(Identifier::of(Target::C2hChannel, 2, true).into_bits(), 0x1FC1_8206);
    // No device; no block; a target that the document does not define.
    for word in [u32::MAX, 0, 0x1FC7_0006, 0x1FD0_0006] {
        assert_eq!(Identifier::from_bits(word).named_target(), None, "{word:#x}");
    }
}

#[test]
fn pg195_vendor_written_values_compose_from_fields() {
    // libxdma.c engine_start_mode_config, interrupt mode.
    let start = ChannelControl::new()
        .with_run(true)
        .with_ie_descriptor_stopped(true)
        .with_ie_descriptor_completed(true)
        .with_ie_align_mismatch(true)
        .with_ie_magic_stopped(true)
        .with_ie_read_error(ChannelControl::ERRORS_ALL)
        .with_ie_descriptor_error(ChannelControl::ERRORS_ALL);
    assert_eq!(start.into_bits(), 0x00F8_3E1F);
    // Poll mode.
    let poll =
        start.with_ie_descriptor_stopped(false).with_ie_descriptor_completed(false).with_poll_writeback(true);
    assert_eq!(poll.into_bits(), 0x04F8_3E19);
    // libxdma always writes CLEAR, then 0b101, to the performance monitor control.
    assert_eq!(PerformanceControl::new().with_run(true).with_auto(true).into_bits(), 0b101);
}

#[test]
fn pg195_codes_have_documented_meaning() {
    // PG195 "Config Block PCIE Max Payload Size (0x08)", "Config Block PCIE Data Width (0x18)".
    let sizes = [Some(128), Some(256), Some(512), Some(1024), Some(2048), Some(4096), None, None];
    let widths = [Some(64), Some(128), Some(256), Some(512), None, None, None, None];
    for code in 0..8 {
        assert_eq!(PcieSize::new().with_code(code).bytes(), sizes[usize::from(code)]);
        assert_eq!(UserSizeLimit::new().with_effective(code).effective_bytes(), sizes[usize::from(code)]);
        assert_eq!(PcieDataWidth::new().with_code(code).bits(), widths[usize::from(code)]);
    }
    // PG195 "Config Block System ID (0x10)".
    assert_eq!(SystemId::VALUE, 0xFF01);
    // PG195 "IRQ Block Channel Vector Number (0xA0)": with one H2C channel C2H 0 is second, with four it is fifth.
    assert_eq!(irq::channel_bit(Direction::H2c, 0, 1), 0);
    assert_eq!(irq::channel_bit(Direction::C2h, 0, 1), 1);
    assert_eq!(irq::channel_bit(Direction::H2c, 3, 4), 3);
    assert_eq!(irq::channel_bit(Direction::C2h, 0, 4), 4);
    assert_eq!(VectorNumbers::of([1, 2, 3, 31]).into_bits(), 0x1F03_0201);
    assert_eq!(VectorNumbers::of([1, 2, 3, 31]).vectors(), [1, 2, 3, 31]);
    // PG195 "SGDMA Descriptor Control Register (0x10)".
    assert_eq!(PerChannel::one(Direction::H2c, 3).into_bits(), 0x0000_0008);
    assert_eq!(PerChannel::one(Direction::C2h, 1).into_bits(), 0x0002_0000);
    assert_eq!(PerChannel::one(Direction::C2h, 4).into_bits(), 0);
    // PG195 "H2C Channel Performance Cycle Count (0xC8)": 42 bits.
    assert_eq!(CounterHigh::from_bits(0x0001_03FF).total(7), 0x3FF_0000_0007);
    assert_eq!(CounterHigh::of(0x3FE_0000_0007).into_bits(), 0x3FE);
    assert_eq!(CounterHigh::of(1 << 42).into_bits(), 0x0001_03FF);
}
