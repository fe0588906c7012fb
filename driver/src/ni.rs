//! The network interface's registers, through the block table of the identity block.

use fpga_firmware::NodeId;
use fpga_firmware::generated::{self, BlockType, ni as at};
use fpga_firmware::identity::Identity;
use fpga_pci::{Bar, MmioError};
use fpga_registers::{BarOffset, CardAddr};

use crate::range::CardRange;

/// What the network interface can do and where its memories are: read once, when the card is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NiInfo {
    /// The node's id on the network.
    pub node: NodeId,
    /// Payload bytes of a full packet, as a power of two.
    pub packet_size_log2: u8,
    /// Bits of a reception mask.
    pub mask_bits: u16,
    /// Entries of the receive registry.
    pub registry_entries: u32,
    /// Slots of the escape buffer.
    pub escape_slots: u32,
    /// Entries of the op table in the NI; 0: the driver keeps it.
    pub op_table_entries: u32,
    /// Entries of the memory window table.
    pub memory_windows: u32,
    /// Events are pushed into host memory.
    pub event_push: bool,
    /// It can go by several schemes at once.
    pub mixed: bool,
    /// Schemes that can be chosen: bit n is the [`Scheme`](generated::Scheme) n.
    pub schemes: u32,
    /// Transfers that the interface can have by itself, by the schemes other than the registry's.
    pub command_entries: u32,
    /// Messages that it can send at once by these.
    pub sending_contexts: u32,
    /// Memory that transfers use.
    pub memory: CardRange,
    /// Transmit windows.
    pub windows: TransmitWindows,
    pub(crate) ni_base: BarOffset,
    pub(crate) memory_base: BarOffset,
    pub(crate) registry_base: BarOffset,
    pub(crate) escape_base: BarOffset,
    pub(crate) counters_base: BarOffset,
    pub(crate) sending_base: BarOffset,
}

/// Where the transmit windows are: window `i` starts at `base + i * stride`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransmitWindows {
    /// How many, 1 to 32.
    pub count: u32,
    /// Card address of the first.
    pub base: CardAddr,
    /// Bytes from one to the next.
    pub stride: u32,
    /// Where the payload starts within a window.
    pub payload_offset: u32,
    /// Payload bytes of a window.
    pub payload_size: u32,
    /// Where the commit word is within a window.
    pub commit_offset: u32,
}

impl TransmitWindows {
    /// Card address `offset` bytes into window `index`.
    #[must_use]
    pub const fn address(&self, index: u32, offset: u32) -> CardAddr {
        // Both are 32-bit numbers from the card: their product and sum fit 64 bits, the base may still carry over, which makes
        // an address that the card refuses.
        let inside = (index as u64) * (self.stride as u64) + (offset as u64);
        CardAddr::new(self.base.get().wrapping_add(inside))
    }
}

/// Typed access to one block of the user BAR.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    bar: Bar,
    base: BarOffset,
}

impl Block {
    pub(crate) const fn new(bar: Bar, base: BarOffset) -> Self {
        Self { bar, base }
    }

    pub(crate) fn read(&self, register: u32) -> Result<u32, MmioError> {
        self.bar.read32(self.base.offset_by(register))
    }

    pub(crate) fn write(&self, register: u32, value: u32) -> Result<(), MmioError> {
        self.bar.write32(self.base.offset_by(register), value)
    }

    /// Returns once the card has all writes before: they are posted, and a read does not pass them (PCIe 3.0, 2.4.1). Before another
    /// card is told of something that was written. `register` is one whose reading changes nothing.
    pub(crate) fn flush(&self, register: u32) -> Result<(), MmioError> {
        self.read(register).map(drop)
    }

    pub(crate) fn read_pair(&self, low: u32) -> Result<u64, MmioError> {
        Ok(u64::from(self.read(low)?) | u64::from(self.read(low + 4)?) << 32)
    }

    pub(crate) fn write_pair(&self, low: u32, value: u64) -> Result<(), MmioError> {
        let (low_word, high_word) = CardAddr::new(value).to_low_high();
        self.write(low, low_word)?;
        self.write(low + 4, high_word)
    }
}

impl NiInfo {
    pub(crate) fn read(bar: &Bar, identity: &Identity) -> Result<Self, MmioError> {
        // The identity check has made sure that each of these blocks is there.
        let base = |kind| identity.block(kind).map_or(BarOffset::ZERO, |block| block.base());
        let ni = Block::new(bar.clone(), base(BlockType::Ni));
        let windows = TransmitWindows {
            count: ni.read(at::WINDOW_COUNT)?.min(generated::WINDOWS_MAX),
            base: CardAddr::new(ni.read_pair(at::WINDOW_BASE_LOW)?),
            stride: ni.read(at::WINDOW_STRIDE)?,
            payload_offset: ni.read(at::WINDOW_PAYLOAD_OFFSET)?,
            payload_size: ni.read(at::WINDOW_PAYLOAD_SIZE)?,
            commit_offset: ni.read(at::WINDOW_COMMIT_OFFSET)?,
        };
        let small = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
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
            // Without the block there is nothing to look at.
            sending_contexts: match identity.block(BlockType::Sending) {
                Ok(_) => ni.read(at::SENDING_CONTEXTS)?,
                Err(_) => 0,
            },
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
        })
    }

    /// Whether the interface goes by `scheme` if it is told to.
    #[must_use]
    pub const fn supports(&self, scheme: generated::Scheme) -> bool {
        scheme.value() < 32 && self.schemes >> scheme.value() & 1 != 0
    }

    /// Stops events and transmission, whoever had started them. What the tables and counters show stays as it was left.
    pub(crate) fn stop_events(&self, bar: &Bar) -> Result<(), MmioError> {
        Block::new(bar.clone(), self.ni_base).write(at::CONTROL, 0)
    }

    /// Forgets everything but settings and memory windows, too.
    pub(crate) fn reset(&self, bar: &Bar) -> Result<(), MmioError> {
        Block::new(bar.clone(), self.ni_base).write(at::CONTROL, at::control::RESET)
    }

    /// The card addresses that DMA can reach: memory first, then the transmit windows.
    #[must_use]
    pub fn card_ranges(&self) -> Vec<CardRange> {
        let windows =
            CardRange::new(self.windows.base, u64::from(self.windows.count) * u64::from(self.windows.stride));
        vec![self.memory, windows]
    }
}
