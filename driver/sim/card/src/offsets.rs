//! Register offsets of the vendor documents as constants that a `match` can use.

macro_rules! offsets {
    ($(#[$doc:meta])* $module:ident of $block:path: $($name:ident)*) => {
        $(#[$doc])*
        pub(crate) mod $module {
            use $block as Block;
            $(pub(crate) const $name: u32 = Block::$name.offset();)*
        }
    };
}

offsets! {
    /// One channel (PG195 targets 0 and 1).
    channel of fpga_registers::xdma::ChannelBlock:
    IDENTIFIER CONTROL CONTROL_SET CONTROL_CLEAR STATUS STATUS_RC COMPLETED ALIGNMENTS POLL_ADDRESS_LOW
    POLL_ADDRESS_HIGH INTERRUPT_ENABLE INTERRUPT_ENABLE_SET INTERRUPT_ENABLE_CLEAR PERFORMANCE_CONTROL
    PERFORMANCE_CYCLES_LOW PERFORMANCE_CYCLES_HIGH PERFORMANCE_DATA_LOW PERFORMANCE_DATA_HIGH
}

offsets! {
    /// Descriptor registers of one channel (targets 4 and 5).
    sgdma of fpga_registers::xdma::SgdmaBlock:
    IDENTIFIER DESCRIPTOR_LOW DESCRIPTOR_HIGH ADJACENT CREDITS
}

offsets! {
    /// Descriptor registers of all channels (target 6).
    sgdma_common of fpga_registers::xdma::SgdmaCommonBlock:
    HALT HALT_SET HALT_CLEAR CREDIT_MODE CREDIT_MODE_SET CREDIT_MODE_CLEAR
}

offsets! {
    /// Interrupt block (target 2).
    irq of fpga_registers::xdma::IrqBlock:
    USER_ENABLE USER_ENABLE_SET USER_ENABLE_CLEAR CHANNEL_ENABLE CHANNEL_ENABLE_SET CHANNEL_ENABLE_CLEAR
    USER_REQUEST CHANNEL_REQUEST USER_PENDING CHANNEL_PENDING USER_VECTORS0 USER_VECTORS3 CHANNEL_VECTORS0
    CHANNEL_VECTORS1
}

offsets! {
    /// Configuration block (target 3).
    config of fpga_registers::xdma::ConfigBlock:
    BUS_DEVICE_FUNCTION PCIE_MAX_PAYLOAD PCIE_MAX_READ_REQUEST SYSTEM_ID INTERRUPT_MODE DATA_WIDTH PCIE_CONTROL USER_MAX_PAYLOAD
    USER_MAX_READ_REQUEST WRITE_FLUSH_TIMEOUT
}

offsets! {
    /// CDMA (PG034).
    cdma of fpga_registers::cdma::CdmaBlock:
    CR SR CURDESC_LOW CURDESC_HIGH TAILDESC_LOW TAILDESC_HIGH SOURCE_LOW SOURCE_HIGH DESTINATION_LOW
    DESTINATION_HIGH BTT
}
