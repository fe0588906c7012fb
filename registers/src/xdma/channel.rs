//! Registers of one DMA channel (PG195 "H2C Channel Registers (0x0)", "C2H Channel Registers (0x1)").

use crate::decode::{Decoded, FieldKind, RegisterValue};
use crate::xdma::{Direction, Identifier};

register_block! {
    /// Registers of one channel; both directions have the same layout. See [`channel_base`](super::channel_base).
    pub struct ChannelBlock [0x100] {
        /// Block identifier, `0x1FC0_xxxx` (H2C) or `0x1FC1_xxxx` (C2H).
        0x00 identifier IDENTIFIER: Ro<Identifier>;
        /// Run bit and which events are recorded.
        0x04 control CONTROL: Rw<ChannelControl> = 0;
        /// Sets bits of `control`.
        0x08 control_set CONTROL_SET: W1s<ChannelControl>;
        /// Clears bits of `control`.
        0x0C control_clear CONTROL_CLEAR: W1c<ChannelControl>;
        skip _reserved_10 [12];
        /// Events and errors; ones written clear bits.
        0x40 status STATUS: Rw1c<ChannelStatus> = 0;
        /// The same bits; reading clears all of them except `busy`. A read takes the events from all other
        /// readers: use `status` to read without side effects.
        0x44 status_rc STATUS_RC: Rc<ChannelStatus> = 0;
        /// Descriptors completed since run was last set, 32 bits; goes to zero when run rises.
        0x48 completed COMPLETED: Ro<u32> = 0;
        /// Alignment rules that the build imposes.
        0x4C alignments ALIGNMENTS: Ro<Alignments>;
        skip _reserved_50 [14];
        /// Low word of the host address of the poll-mode write-back.
        0x88 poll_address_low POLL_ADDRESS_LOW: Rw<u32> = 0;
        /// High word of the host address of the poll-mode write-back.
        0x8C poll_address_high POLL_ADDRESS_HIGH: Rw<u32> = 0;
        /// Which recorded events raise the channel's interrupt.
        0x90 interrupt_enable INTERRUPT_ENABLE: Rw<ChannelInterrupts> = 0;
        /// Sets bits of `interrupt_enable`.
        0x94 interrupt_enable_set INTERRUPT_ENABLE_SET: W1s<ChannelInterrupts>;
        /// Clears bits of `interrupt_enable`. The Linux kernel's own header places this at 0x9C: see
        /// [`errata`](crate::errata).
        0x98 interrupt_enable_clear INTERRUPT_ENABLE_CLEAR: W1c<ChannelInterrupts>;
        skip _reserved_9c [9];
        /// Performance counters: run, clear, stop by descriptor.
        0xC0 performance_control PERFORMANCE_CONTROL: Rw<PerformanceControl> = 0;
        /// Clock cycles counted, bits 31:0.
        0xC4 performance_cycles_low PERFORMANCE_CYCLES_LOW: Ro<u32> = 0;
        /// Clock cycles counted, bits 41:32.
        0xC8 performance_cycles_high PERFORMANCE_CYCLES_HIGH: Ro<CounterHigh> = 0;
        /// Data beats counted (one per clock at the datapath's width), bits 31:0.
        0xCC performance_data_low PERFORMANCE_DATA_LOW: Ro<u32> = 0;
        /// Data beats counted, bits 41:32.
        0xD0 performance_data_high PERFORMANCE_DATA_HIGH: Ro<CounterHigh> = 0;
        /// Pending count, low word: only in the vendor driver's header, not in PG195. See [`errata`](crate::errata).
        0xD4 performance_pending_low PERFORMANCE_PENDING_LOW: Ro<u32>;
        /// Pending count, high word: only in the vendor driver's header, not in PG195.
        0xD8 performance_pending_high PERFORMANCE_PENDING_HIGH: Ro<u32>;
        end _reserved_dc [9]
    }
}

/// Bits 13:9 of status on an H2C channel: reads of host memory.
const READ_ERRORS_H2C: &[&str] =
    &["unsupported_request", "completer_abort", "parity_error", "header_ep", "unexpected_completion"];
/// Bits 13:9 of status on a C2H channel: reads of card memory. The upper three are reserved.
const READ_ERRORS_C2H: &[&str] = &["decode_error", "slave_error"];
/// Bits 18:14 of status on an H2C channel: writes of card memory. A C2H channel has none: its writes are posted.
const WRITE_ERRORS_H2C: &[&str] = &["decode_error", "slave_error"];
/// Bits 23:19 of status: descriptor fetches.
const DESCRIPTOR_ERRORS: &[&str] =
    &["unsupported_request", "completer_abort", "parity_error", "header_ep", "unexpected_completion"];

const READ_ERRORS: FieldKind = FieldKind::FlagsByDirection { h2c: READ_ERRORS_H2C, c2h: READ_ERRORS_C2H };
const WRITE_ERRORS: FieldKind = FieldKind::FlagsByDirection { h2c: WRITE_ERRORS_H2C, c2h: &[] };

register_value! {
    /// Control (PG195 "H2C Channel Control (0x04)", "C2H Channel Control (0x04)").
    ///
    /// The `ie_` bits select the events that are *recorded* in [`ChannelStatus`]; an interrupt needs the bit of
    /// [`ChannelInterrupts`] and the channel's bit in the interrupt block as well.
    pub struct ChannelControl {
        /// Starts the engine on a rising edge; clearing it stops after the descriptor in flight.
        1 run: bool;
        /// Record status bit 1.
        1 ie_descriptor_stopped: bool;
        /// Record status bit 2. PG195 requires it for the poll-mode write-back too: see [`errata`](crate::errata).
        1 ie_descriptor_completed: bool;
        /// Record status bit 3.
        1 ie_align_mismatch: bool;
        /// Record status bit 4.
        1 ie_magic_stopped: bool;
        /// Record status bit 5.
        1 ie_invalid_length: bool;
        /// Record status bit 6.
        1 ie_idle_stopped: bool;
        2 _reserved_7: u8;
        /// Record status bits 13:9 and stop on them.
        5 ie_read_error: u8, FieldKind::Hex;
        /// Record status bits 18:14 and stop on them. H2C only.
        5 ie_write_error: u8, FieldKind::Hex;
        /// Record status bits 23:19 and stop on them.
        5 ie_descriptor_error: u8, FieldKind::Hex;
        1 _reserved_24: bool;
        /// Do not increment the AXI address (AXI4 only): the card side is a FIFO at one address.
        1 non_incrementing: bool;
        /// Write the completed count to host memory.
        1 poll_writeback: bool;
        /// C2H AXI4-Stream only: do not write a [`StreamWriteback`](super::StreamWriteback) per descriptor.
        1 stream_writeback_disable: bool;
        4 _reserved_28: u8;
    }

    /// Status (PG195 "H2C Channel Status (0x40)", "C2H Channel Status (0x40)").
    ///
    /// Bits 13:9 and 18:14 mean different things by direction: print with [`ChannelStatus::describe`], decode with
    /// [`ChannelStatus::errors`]. A C2H channel has no bit for a failed host write: memory writes are posted, so the
    /// engine never learns of it.
    pub struct ChannelStatus {
        /// The engine is active. Not affected by clearing.
        1 busy: bool;
        /// A descriptor with Stop is done.
        1 descriptor_stopped: bool;
        /// A descriptor with Completed is done.
        1 descriptor_completed: bool;
        /// Source and destination are not aligned to each other as the mode requires.
        1 align_mismatch: bool;
        /// A descriptor without the magic number was fetched; the engine stopped.
        1 magic_stopped: bool;
        /// AXI4-Stream H2C: a descriptor without EOP whose length is not whole beats.
        1 invalid_length: bool;
        /// The engine became idle after run was cleared.
        1 idle_stopped: bool;
        2 _reserved_7: u8;
        /// Errors of reading data, from host memory (H2C) or card memory (C2H).
        5 read_error: u8, READ_ERRORS;
        /// Errors of writing data to card memory, H2C only.
        5 write_error: u8, WRITE_ERRORS;
        /// Errors of fetching descriptors from host memory.
        5 descriptor_error: u8, FieldKind::Flags(DESCRIPTOR_ERRORS);
        8 _reserved_24: u8;
    }

    /// Interrupt enable mask (PG195 "H2C Channel Interrupt Enable Mask (0x90)", and of C2H): positions as in
    /// [`ChannelStatus`].
    pub struct ChannelInterrupts {
        1 _reserved_0: bool;
        /// Interrupt on `descriptor_stopped`.
        1 descriptor_stopped: bool;
        /// Interrupt on `descriptor_completed`.
        1 descriptor_completed: bool;
        /// Interrupt on `align_mismatch`.
        1 align_mismatch: bool;
        /// Interrupt on `magic_stopped`.
        1 magic_stopped: bool;
        /// Interrupt on `invalid_length`.
        1 invalid_length: bool;
        /// Interrupt on `idle_stopped`.
        1 idle_stopped: bool;
        2 _reserved_7: u8;
        /// Interrupt on bits of `read_error`.
        5 read_error: u8, READ_ERRORS;
        /// Interrupt on bits of `write_error`, H2C only.
        5 write_error: u8, WRITE_ERRORS;
        /// Interrupt on bits of `descriptor_error`.
        5 descriptor_error: u8, FieldKind::Flags(DESCRIPTOR_ERRORS);
        8 _reserved_24: u8;
    }

    /// Alignments (PG195 "H2C Channel Alignments (0x4C)"): rules of this build, which depend on its options.
    pub struct Alignments {
        /// Significant address bits.
        8 address_bits: u8;
        /// Smallest unit of a length, in bytes.
        8 length_granularity: u8;
        /// Alignment of addresses, in bytes.
        8 address_alignment: u8;
        8 _reserved_24: u8;
    }

    /// Performance monitor control (PG195 "H2C Channel Performance Monitor Control (0xC0)").
    ///
    /// The vendor driver's header exchanges the names of bits 0 and 2; this follows PG195. See
    /// [`errata`](crate::errata).
    pub struct PerformanceControl {
        /// Stop counting at a descriptor with Stop, clear the counters when run is set.
        1 auto: bool;
        /// Clears the counters; write-only.
        1 clear: bool;
        /// Count.
        1 run: bool;
        29 _reserved_3: u32;
    }

    /// Upper word of a 42-bit performance counter (PG195 "H2C Channel Performance Cycle Count (0xC8)", "...
    /// Data Count (0xD0)").
    pub struct CounterHigh {
        /// Counter bits 41:32.
        10 count: u16;
        6 _reserved_10: u8;
        /// The counter has reached its largest value and stays there.
        1 saturated: bool;
        15 _reserved_17: u16;
    }
}

impl ChannelControl {
    /// All ones for `ie_read_error`, `ie_write_error`, `ie_descriptor_error`.
    pub const ERRORS_ALL: u8 = 0x1F;
}

impl CounterHigh {
    /// Creates the upper word of a 42-bit count; a larger count is limited to the maximum and marked as saturated.
    #[must_use]
    pub const fn of(total: u64) -> Self {
        if total >> 42 != 0 {
            return Self::new().with_count(0x3FF).with_saturated(true);
        }
        let (_, high) = crate::words::split(total);
        // Within 10 bits, by the test above, so that the whole word is the count.
        Self::from_bits(high)
    }

    /// Combines the 42-bit count with its low word.
    #[must_use]
    pub const fn total(self, low: u32) -> u64 {
        let high = self.count() as u32;
        crate::words::join(low, high)
    }
}

/// One error that a channel can report, decoded from [`ChannelStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StatusError {
    /// Bit 3: source and destination are not aligned to each other.
    AlignMismatch,
    /// Bit 4: a fetched descriptor lacks the magic number.
    MagicStopped,
    /// Bit 5: the stream length is not a multiple of a beat.
    InvalidLength,
    /// H2C bit 9: the host refused a data read as unsupported, for example with an address that is not mapped.
    HostReadUnsupportedRequest,
    /// H2C bit 10: the host aborted a data read.
    HostReadCompleterAbort,
    /// H2C bit 11: parity error on data from the host.
    HostReadParity,
    /// H2C bit 12: data from the host is marked as poisoned.
    HostReadPoisoned,
    /// H2C bit 13: an unexpected completion.
    HostReadUnexpectedCompletion,
    /// C2H bit 9: no AXI slave at the address read.
    CardReadDecode,
    /// C2H bit 10: the AXI slave reported an error to a read.
    CardReadSlave,
    /// H2C bit 14: no AXI slave at the address written.
    CardWriteDecode,
    /// H2C bit 15: the AXI slave reported an error to a write.
    CardWriteSlave,
    /// Bit 19: the host refused a descriptor fetch as unsupported.
    DescriptorUnsupportedRequest,
    /// Bit 20: the host aborted a descriptor fetch.
    DescriptorCompleterAbort,
    /// Bit 21: parity error on a descriptor.
    DescriptorParity,
    /// Bit 22: a descriptor is marked as poisoned.
    DescriptorPoisoned,
    /// Bit 23: an unexpected completion for a descriptor.
    DescriptorUnexpectedCompletion,
}

impl StatusError {
    /// Errors of an H2C channel in the order of their bits.
    pub const H2C: &'static [Self] = &[
        Self::AlignMismatch,
        Self::MagicStopped,
        Self::InvalidLength,
        Self::HostReadUnsupportedRequest,
        Self::HostReadCompleterAbort,
        Self::HostReadParity,
        Self::HostReadPoisoned,
        Self::HostReadUnexpectedCompletion,
        Self::CardWriteDecode,
        Self::CardWriteSlave,
        Self::DescriptorUnsupportedRequest,
        Self::DescriptorCompleterAbort,
        Self::DescriptorParity,
        Self::DescriptorPoisoned,
        Self::DescriptorUnexpectedCompletion,
    ];

    /// Errors of a C2H channel in the order of their bits.
    pub const C2H: &'static [Self] = &[
        Self::AlignMismatch,
        Self::MagicStopped,
        Self::InvalidLength,
        Self::CardReadDecode,
        Self::CardReadSlave,
        Self::DescriptorUnsupportedRequest,
        Self::DescriptorCompleterAbort,
        Self::DescriptorParity,
        Self::DescriptorPoisoned,
        Self::DescriptorUnexpectedCompletion,
    ];

    /// Errors of a channel of this direction in the order of their bits.
    #[must_use]
    pub const fn all(direction: Direction) -> &'static [Self] {
        match direction {
            Direction::H2c => Self::H2C,
            Direction::C2h => Self::C2H,
        }
    }

    /// Bit number in [`ChannelStatus`].
    #[must_use]
    pub const fn bit(self) -> u8 {
        match self {
            Self::AlignMismatch => 3,
            Self::MagicStopped => 4,
            Self::InvalidLength => 5,
            Self::HostReadUnsupportedRequest | Self::CardReadDecode => 9,
            Self::HostReadCompleterAbort | Self::CardReadSlave => 10,
            Self::HostReadParity => 11,
            Self::HostReadPoisoned => 12,
            Self::HostReadUnexpectedCompletion => 13,
            Self::CardWriteDecode => 14,
            Self::CardWriteSlave => 15,
            Self::DescriptorUnsupportedRequest => 19,
            Self::DescriptorCompleterAbort => 20,
            Self::DescriptorParity => 21,
            Self::DescriptorPoisoned => 22,
            Self::DescriptorUnexpectedCompletion => 23,
        }
    }

    /// Status word with only this error's bit set.
    #[must_use]
    pub const fn status(self) -> ChannelStatus {
        ChannelStatus::from_bits(1 << self.bit())
    }

    /// Description of the error.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::AlignMismatch => "source and destination are not aligned to each other",
            Self::MagicStopped => "a fetched descriptor lacks the magic number",
            Self::InvalidLength => "stream length is not whole beats",
            Self::HostReadUnsupportedRequest => "host memory read: unsupported request",
            Self::HostReadCompleterAbort => "host memory read: completer abort",
            Self::HostReadParity => "host memory read: parity error",
            Self::HostReadPoisoned => "host memory read: poisoned data",
            Self::HostReadUnexpectedCompletion => "host memory read: unexpected completion",
            Self::CardReadDecode => "card memory read: no slave at the address (AXI decode error)",
            Self::CardReadSlave => "card memory read: AXI slave error",
            Self::CardWriteDecode => "card memory write: no slave at the address (AXI decode error)",
            Self::CardWriteSlave => "card memory write: AXI slave error",
            Self::DescriptorUnsupportedRequest => "descriptor fetch: unsupported request",
            Self::DescriptorCompleterAbort => "descriptor fetch: completer abort",
            Self::DescriptorParity => "descriptor fetch: parity error",
            Self::DescriptorPoisoned => "descriptor fetch: poisoned data",
            Self::DescriptorUnexpectedCompletion => "descriptor fetch: unexpected completion",
        }
    }
}

impl core::fmt::Display for StatusError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.description())
    }
}

impl ChannelStatus {
    /// Bits that report an error on an H2C channel.
    pub const ERROR_MASK_H2C: Self = Self::error_mask(Direction::H2c);
    /// Bits that report an error on a C2H channel.
    pub const ERROR_MASK_C2H: Self = Self::error_mask(Direction::C2h);

    /// Bits that report an error on a channel of this direction.
    #[must_use]
    pub const fn error_mask(direction: Direction) -> Self {
        let errors = StatusError::all(direction);
        let mut mask = 0;
        let mut index = 0;
        while index < errors.len() {
            mask |= 1 << errors[index].bit();
            index += 1;
        }
        Self::from_bits(mask)
    }

    /// Returns whether any error bit of a channel of this direction is set.
    #[must_use]
    pub const fn has_error(self, direction: Direction) -> bool {
        self.into_bits() & Self::error_mask(direction).into_bits() != 0
    }

    /// Reported errors, in the order of their bits.
    pub fn errors(self, direction: Direction) -> impl Iterator<Item = StatusError> + use<> {
        StatusError::all(direction)
            .iter()
            .copied()
            .filter(move |error| self.into_bits() >> error.bit() & 1 == 1)
    }

    /// Decodes the status to fields with this direction's bit names, for printing.
    #[must_use]
    pub fn describe(self, direction: Direction) -> Decoded {
        self.decoded().on(direction)
    }
}
