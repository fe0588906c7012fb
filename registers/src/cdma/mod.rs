//! AXI Central Direct Memory Access (PG034): a copy engine inside the card.
//!
//! All addresses are card addresses. Only whole 32-bit writes are defined: write strobes are ignored (PG034). The
//! high words of addresses exist only in builds with more than 32 address bits.

pub mod descriptor;

pub use descriptor::{SgControl, SgDescriptor, SgStatus};

/// Maximum length of a transfer in bytes for a build with the full 26-bit length field (PG034 v4.1).
pub const MAX_LEN: u32 = (1 << 26) - 1;
/// Maximum length of a transfer in bytes for builds before 4.1, whose length field had 23 bits (vendor driver).
pub const MAX_LEN_23_BIT: u32 = (1 << 23) - 1;

register_block! {
    /// Registers of one CDMA engine. Its place in the user BAR is up to the design.
    pub struct CdmaBlock [0x2C] {
        /// CDMACR, control.
        0x00 cr CR: Rw<Cdmacr> = 0x0001_0002;
        /// CDMASR, status; ones written clear the three interrupt bits, errors leave by reset only.
        0x04 sr SR: Rw1c<Cdmasr>;
        /// CURDESC_PNTR: low word of the current descriptor's address; bits 5:0 are zero. Written while idle only.
        0x08 curdesc_low CURDESC_LOW: Rw<u32> = 0;
        /// CURDESC_PNTR_MSB: high word of the current descriptor's address.
        0x0C curdesc_high CURDESC_HIGH: Rw<u32> = 0;
        /// TAILDESC_PNTR: low word of the last descriptor's address; starts the engine in builds with 32 address
        /// bits.
        0x10 taildesc_low TAILDESC_LOW: Rw<u32> = 0;
        /// TAILDESC_PNTR_MSB: high word of the last descriptor's address; starts the engine in wider builds.
        0x14 taildesc_high TAILDESC_HIGH: Rw<u32> = 0;
        /// SA: low word of the source address of a simple transfer.
        0x18 source_low SOURCE_LOW: Rw<u32> = 0;
        /// SA_MSB: high word of the source address of a simple transfer.
        0x1C source_high SOURCE_HIGH: Rw<u32> = 0;
        /// DA: low word of the destination address of a simple transfer.
        0x20 destination_low DESTINATION_LOW: Rw<u32> = 0;
        /// DA_MSB: high word of the destination address of a simple transfer.
        0x24 destination_high DESTINATION_HIGH: Rw<u32> = 0;
        /// BTT: bytes to transfer; the write starts a simple transfer.
        0x28 btt BTT: Rw<BytesToTransfer> = 0;
    }
}

register_value! {
    /// Control (PG034 "CDMACR (CDMA Control – Offset 00h)"). There is no run bit.
    pub struct Cdmacr {
        1 _reserved_0: bool;
        /// Tail pointer mode, reads 1; read-only.
        1 tail_pointer_enable: bool;
        /// Resets the engine; reads 1 until the reset is done.
        1 reset: bool;
        /// Scatter-gather mode; the pointers are reloaded when it rises and cleared while it is low.
        1 sg_mode: bool;
        /// Read from a fixed address.
        1 keyhole_read: bool;
        /// Write to a fixed address.
        1 keyhole_write: bool;
        /// Ignore the Cmplt bits of descriptors and go round for ever.
        1 cyclic: bool;
        5 _reserved_7: u8;
        /// Interrupt on completion.
        1 ioc_irq_enable: bool;
        /// Interrupt on the delay timer, scatter-gather only.
        1 delay_irq_enable: bool;
        /// Interrupt on an error.
        1 error_irq_enable: bool;
        1 _reserved_15: bool;
        /// Descriptors per completion interrupt, 1 to 255, scatter-gather only.
        8 irq_threshold: u8;
        /// Delay timer in units of 125 clocks of the scatter-gather port; 0 is off.
        8 irq_delay: u8;
    }

    /// Status (PG034 "CDMASR (CDMA Status – Offset 04h)").
    pub struct Cdmasr {
        1 _reserved_0: bool;
        /// Nothing is running.
        1 idle: bool;
        1 _reserved_2: bool;
        /// The build has scatter-gather.
        1 sg_included: bool;
        /// A length of zero was executed, or the engine's DataMover reports an internal error.
        1 dma_internal_error: bool;
        /// An AXI slave reported an error to a data access.
        1 dma_slave_error: bool;
        /// No AXI slave at the address of a data access.
        1 dma_decode_error: bool;
        1 _reserved_7: bool;
        /// A descriptor was fetched whose Cmplt bit is already set.
        1 sg_internal_error: bool;
        /// An AXI slave reported an error to a descriptor access.
        1 sg_slave_error: bool;
        /// No AXI slave at the address of a descriptor.
        1 sg_decode_error: bool;
        1 _reserved_11: bool;
        /// Completion interrupt; cleared by writing one.
        1 ioc_irq: bool;
        /// Delay interrupt; cleared by writing one.
        1 delay_irq: bool;
        /// Error interrupt; cleared by writing one.
        1 error_irq: bool;
        1 _reserved_15: bool;
        /// Descriptors left until the next completion interrupt.
        8 irq_threshold_status: u8;
        /// The delay timer.
        8 irq_delay_status: u8;
    }

    /// Bytes to transfer (PG034 "BTT (CDMA Bytes to Transfer – Offset 28h)").
    pub struct BytesToTransfer {
        /// Length in bytes; zero is an error.
        26 bytes: u32;
        6 _reserved_26: u8;
    }
}

impl BytesToTransfer {
    /// Creates a transfer of `bytes` bytes; `None` for zero, which the engine treats as an error, and above [`MAX_LEN`].
    #[must_use]
    pub const fn of(bytes: u32) -> Option<Self> {
        if bytes == 0 || bytes > MAX_LEN { None } else { Some(Self::new().with_bytes(bytes)) }
    }
}

impl Cdmasr {
    /// Bits that report an error.
    pub const ERRORS: Self = Self::new()
        .with_dma_internal_error(true)
        .with_dma_slave_error(true)
        .with_dma_decode_error(true)
        .with_sg_internal_error(true)
        .with_sg_slave_error(true)
        .with_sg_decode_error(true);

    /// Returns whether the only error is that the engine reached a descriptor marked complete: a used one, or a guard.
    ///
    /// If the address registers are wider than 32 bits, a new tail takes two writes, and the second one starts an idle engine (PG034,
    /// TAILDESC_PNTR_MSB). An engine that reaches the new tail between the two writes is started once too often, and runs past the tail.
    #[must_use]
    pub const fn is_overrun(self) -> bool {
        self.into_bits() & Self::ERRORS.into_bits() == Self::new().with_sg_internal_error(true).into_bits()
    }

    /// Bits that are cleared by writing ones.
    pub const INTERRUPTS: Self = Self::new().with_ioc_irq(true).with_delay_irq(true).with_error_irq(true);

    /// Returns whether any error bit is set. The engine has halted, and only a reset clears it.
    #[must_use]
    pub const fn has_error(self) -> bool {
        self.into_bits() & Self::ERRORS.into_bits() != 0
    }
}
