//! Registers of the network interface, located by the block table of the identity block.

use fpga_firmware::NodeId;
use fpga_firmware::generated::{self, BlockType, ni as at};
use fpga_firmware::identity::Identity;
use fpga_pci::{Bar, MmioError};
use fpga_registers::{BarOffset, CardAddr};

use crate::range::CardRange;

/// Capabilities and memory ranges of the network interface, read once when the card is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NiInfo {
    /// Node id on the network.
    pub node: NodeId,
    /// Payload bytes of a full packet, as log2.
    pub packet_size_log2: u8,
    /// Number of bits of a reception mask.
    pub mask_bits: u16,
    /// Number of entries of the receive registry.
    pub registry_entries: u32,
    /// Number of slots of the escape channel (buffer for early packets).
    pub escape_slots: u32,
    /// Number of entries of the op table in the NI; 0 if the driver keeps the table.
    pub op_table_entries: u32,
    /// Number of entries of the memory window table.
    pub memory_windows: u32,
    /// The NI pushes events into host memory.
    pub event_push: bool,
    /// The NI can run several schemes at the same time.
    pub mixed: bool,
    /// Supported schemes: bit n stands for [`Scheme`](generated::Scheme) n.
    pub schemes: u32,
    /// Number of NI commands (whole transfers under a message scheme) that the NI can hold.
    pub command_entries: u32,
    /// Number of messages that the NI can send at once under message schemes.
    pub sending_contexts: u32,
    /// The NI takes part in link feedback.
    pub link_feedback: bool,
    /// Number of receivers whose rate the NI can control at the same time.
    pub rate_entries: u32,
    /// Card memory that transfers use.
    pub memory: CardRange,
    /// Transmit windows.
    pub windows: TransmitWindows,
    /// Offset of the block of the network interface in the user BAR.
    pub ni_base: BarOffset,
    /// Offset of the block of the memory windows in the user BAR.
    pub memory_base: BarOffset,
    /// Offset of the block of the receive registry in the user BAR.
    pub registry_base: BarOffset,
    /// Offset of the block of the escape channel in the user BAR.
    pub escape_base: BarOffset,
    /// Offset of the block of the counters in the user BAR.
    pub counters_base: BarOffset,
    /// Offset of the block of the sending contexts in the user BAR.
    pub sending_base: BarOffset,
    /// Offset of the block of the rates in the user BAR.
    pub rates_base: BarOffset,
}

/// Location of the transmit windows: window `i` starts at `base + i * stride`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransmitWindows {
    /// Number of windows, 1 to 32.
    pub count: u32,
    /// Card address of the first window.
    pub base: CardAddr,
    /// Distance between two windows in bytes.
    pub stride: u32,
    /// Offset of the payload within a window, in bytes.
    pub payload_offset: u32,
    /// Payload capacity of a window in bytes.
    pub payload_size: u32,
    /// Offset of the commit word within a window, in bytes.
    pub commit_offset: u32,
}

impl TransmitWindows {
    /// Returns the card address `offset` bytes into window `index`.
    #[must_use]
    pub const fn address(&self, index: u32, offset: u32) -> CardAddr {
        // Both are 32-bit numbers from the card, so their product and sum fit 64 bits. Adding the base may wrap, which gives an address
        // that the card refuses.
        let inside = (index as u64) * (self.stride as u64) + (offset as u64);
        CardAddr::new(self.base.get().wrapping_add(inside))
    }
}

/// Block of registers at an offset of a BAR.
#[derive(Debug, Clone)]
pub struct RegisterBlock {
    bar: Bar,
    base: BarOffset,
}

impl RegisterBlock {
    /// Creates access to the block at `base`.
    #[must_use]
    pub const fn new(bar: Bar, base: BarOffset) -> Self {
        Self { bar, base }
    }

    /// Reads the register at offset `register`.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn read(&self, register: u32) -> Result<u32, MmioError> {
        self.bar.read32(self.base.offset_by(register))
    }

    /// Writes the register at offset `register`.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn write(&self, register: u32, value: u32) -> Result<(), MmioError> {
        self.bar.write32(self.base.offset_by(register), value)
    }

    /// Returns after the card has received all earlier writes: they are posted, and a read does not pass them (PCIe 3.0, 2.4.1). Needed
    /// before another card is notified of something that was written. `register` must be one without read side effects.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn flush(&self, register: u32) -> Result<(), MmioError> {
        self.read(register).map(drop)
    }

    /// Reads a value of 64 bits in two words.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn read_pair(&self, low: u32) -> Result<u64, MmioError> {
        Ok(u64::from(self.read(low)?) | u64::from(self.read(low + 4)?) << 32)
    }

    /// Writes a value of 64 bits in two words, the low one first.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn write_pair(&self, low: u32, value: u64) -> Result<(), MmioError> {
        let (low_word, high_word) = CardAddr::new(value).to_low_high();
        self.write(low, low_word)?;
        self.write(low + 4, high_word)
    }
}

impl NiInfo {
    /// Reads the properties of the network interface that `identity` lists, by `bar`, the user BAR.
    ///
    /// # Errors
    /// [`MmioError`] of the first read that fails.
    pub fn read(bar: &Bar, identity: &Identity) -> Result<Self, MmioError> {
        // The identity check has confirmed that each of these blocks exists.
        let base = |kind| identity.block(kind).map_or(BarOffset::ZERO, |block| block.base());
        let ni = RegisterBlock::new(bar.clone(), base(BlockType::Ni));
        let windows = TransmitWindows {
            count: ni.read(at::WINDOW_COUNT)?.min(generated::WINDOWS_MAX),
            base: CardAddr::new(ni.read_pair(at::WINDOW_BASE_LOW)?),
            stride: ni.read(at::WINDOW_STRIDE)?,
            payload_offset: ni.read(at::WINDOW_PAYLOAD_OFFSET)?,
            payload_size: ni.read(at::WINDOW_PAYLOAD_SIZE)?,
            commit_offset: ni.read(at::WINDOW_COMMIT_OFFSET)?,
        };
        let small = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        let link_feedback = identity.capabilities().contains(generated::Capabilities::LINK_FEEDBACK);
        Ok(Self {
            node: NodeId::new(ni.read(at::NODE_ID)?),
            packet_size_log2: u8::try_from(ni.read(at::PACKET_SIZE_LOG2)?).unwrap_or(u8::MAX),
            mask_bits: small(ni.read(at::MASK_BITS)?),
            registry_entries: ni.read(at::REGISTRY_ENTRIES)?,
            escape_slots: ni.read(at::ESCAPE_SLOTS)?,
            op_table_entries: ni.read(at::OP_TABLE_ENTRIES)?,
            memory_windows: ni.read(at::MEMORY_WINDOW_COUNT)?,
            schemes: ni.read(at::SCHEMES)?,
            command_entries: ni.read(at::COMMAND_ENTRIES)?,
            // Without the block there are no sending contexts.
            sending_contexts: match identity.block(BlockType::Sending) {
                Ok(_) => ni.read(at::SENDING_CONTEXTS)?,
                Err(_) => 0,
            },
            link_feedback,
            rate_entries: if link_feedback { ni.read(at::RATE_ENTRIES)? } else { 0 },
            event_push: identity.capabilities().contains(generated::Capabilities::EVENT_PUSH),
            mixed: identity.capabilities().contains(generated::Capabilities::MIXED),
            memory: CardRange::new(
                CardAddr::new(ni.read_pair(at::MEMORY_BASE_LOW)?),
                ni.read_pair(at::MEMORY_SIZE_LOW)?,
            ),
            windows,
            ni_base: base(BlockType::Ni),
            memory_base: base(BlockType::Memory),
            registry_base: base(BlockType::Registry),
            escape_base: base(BlockType::Escape),
            counters_base: base(BlockType::Counters),
            sending_base: base(BlockType::Sending),
            rates_base: base(BlockType::Rates),
        })
    }

    /// Returns whether the NI supports `scheme`.
    #[must_use]
    pub const fn supports(&self, scheme: generated::Scheme) -> bool {
        scheme.value() < 32 && self.schemes >> scheme.value() & 1 != 0
    }

    /// Stops events and transmission, regardless of their owner. Tables and counters keep their content.
    pub(crate) fn stop_events(&self, bar: &Bar) -> Result<(), MmioError> {
        RegisterBlock::new(bar.clone(), self.ni_base).write(at::CONTROL, 0)
    }

    /// Resets the NI: clears everything except settings and memory windows.
    pub(crate) fn reset(&self, bar: &Bar) -> Result<(), MmioError> {
        RegisterBlock::new(bar.clone(), self.ni_base).write(at::CONTROL, at::control::RESET)
    }

    /// Returns the card addresses that DMA can reach: memory first, then the transmit windows.
    #[must_use]
    pub fn card_ranges(&self) -> Vec<CardRange> {
        let windows =
            CardRange::new(self.windows.base, u64::from(self.windows.count) * u64::from(self.windows.stride));
        vec![self.memory, windows]
    }
}
