//! What the card's own windows show of the receiving side: for diagnosis, by register reads.

use fpga_core::Nanos;
use fpga_core::mirror::Difference;
use fpga_core::receiver::EntryView;
use fpga_firmware::generated::{counters, escape, registry};
use fpga_firmware::{Incarnation, NodeId, TransferId};
use fpga_pci::MmioError;
use fpga_registers::CardAddr;

use super::{Endpoint, EndpointError};
use crate::ni::Block;

/// One occupied slot of the escape channel: a packet that came before its segment's first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EscapeSlot {
    /// Its slot.
    pub index: u32,
    /// Sender.
    pub source: NodeId,
    /// The sender's life.
    pub incarnation: Incarnation,
    /// Transfer.
    pub transfer: TransferId,
    /// Segment.
    pub segment: u32,
    /// Where the packet belongs.
    pub address: CardAddr,
    /// Payload bytes.
    pub length: u32,
    /// How long it has waited.
    pub age: Nanos,
}

macro_rules! receive_counters {
    ($($(#[$doc:meta])* $field:ident = $register:ident;)*) => {
        /// The network interface's counters, since its reset; each wraps at 2^32.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct ReceiveCounters {
            $($(#[$doc])* pub $field: u32,)*
        }

        impl ReceiveCounters {
            fn read(block: &Block) -> Result<Self, MmioError> {
                Ok(Self { $($field: block.read(counters::$register)?,)* })
            }
        }
    };
}

receive_counters! {
    /// Packets received, good or bad.
    rx_packets = RX_PACKETS;
    /// Packets sent.
    tx_packets = TX_PACKETS;
    /// Packets that were there already.
    duplicates = DUPLICATES;
    /// Segments that entered the registry.
    registrations = REGISTRATIONS;
    /// Segments that became complete.
    completions = COMPLETIONS;
    /// Packets that entered the escape channel.
    escape_hits = ESCAPE_HITS;
    /// Packets that the escape channel dropped.
    escape_dropped = ESCAPE_DROPPED;
    /// Segments refused because the registry was full.
    registry_full = REGISTRY_FULL;
    /// Packets with a wrong checksum.
    bad_crc = BAD_CRC;
    /// Packets with an impossible field.
    bad_packet = BAD_PACKET;
    /// Packets that no memory window allowed.
    violations = VIOLATIONS;
    /// Late packets of complete segments.
    tombstone_hits = TOMBSTONE_HITS;
    /// Registry entries given up.
    expired = EXPIRED;
    /// Negative acknowledgements sent.
    nacks_sent = NACKS_SENT;
    /// Acknowledgements sent.
    acks_sent = ACKS_SENT;
}

impl Endpoint {
    fn window<T>(
        &self,
        base: fpga_registers::BarOffset,
        read: impl FnOnce(&Block) -> Result<T, MmioError>,
    ) -> Result<T, EndpointError> {
        let block = self.block(base)?;
        read(&block).map_err(|source| EndpointError::Mmio { card: self.card.shared.name.clone(), source })
    }

    /// The card's counters.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn receive_counters(&self) -> Result<ReceiveCounters, EndpointError> {
        self.window(self.info.counters_base, ReceiveCounters::read)
    }

    /// Entry `index` of the receive registry.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn registry_entry(&self, index: u16) -> Result<EntryView, EndpointError> {
        self.window(self.info.registry_base, |block| read_entry(block, index))
    }

    /// Valid entries of the receive registry, and the most there ever were.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn registry_occupancy(&self) -> Result<(u32, u32), EndpointError> {
        self.window(self.info.registry_base, |block| {
            Ok((block.read(registry::OCCUPANCY)?, block.read(registry::HIGH_WATER)?))
        })
    }

    /// Used slots of the escape channel, and the most there ever were.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn escape_occupancy(&self) -> Result<(u32, u32), EndpointError> {
        self.window(self.info.escape_base, |block| {
            Ok((block.read(escape::OCCUPANCY)?, block.read(escape::HIGH_WATER)?))
        })
    }

    /// The occupied slots of the escape channel.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn escape_slots(&self) -> Result<Vec<EscapeSlot>, EndpointError> {
        let slots = self.info.escape_slots.min(0x1_0000);
        self.window(self.info.escape_base, |block| {
            let mut found = Vec::new();
            for index in 0..slots {
                block.write(escape::INDEX, index)?;
                if block.read(escape::VALID)? & 1 == 0 {
                    continue;
                }
                found.push(EscapeSlot {
                    index,
                    source: NodeId::new(block.read(escape::SOURCE_NODE)?),
                    incarnation: Incarnation::new(block.read(escape::INCARNATION)?),
                    transfer: TransferId::new(block.read(escape::TRANSFER)?),
                    segment: block.read(escape::SEGMENT)?,
                    address: CardAddr::new(block.read_pair(escape::ADDRESS_LOW)?),
                    length: block.read(escape::LENGTH)?,
                    age: Nanos::from_micros(block.read(escape::AGE_US)?.into()),
                });
            }
            Ok(found)
        })
    }

    /// Compares the mirror with the card's registry window, entry by entry. Take the events first, and let nothing move
    /// meanwhile: the window shows the card as it is, the mirror as the events taken so far left it.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn check_mirror(&self) -> Result<Vec<Difference>, EndpointError> {
        let entries = u16::try_from(self.info.registry_entries).unwrap_or(u16::MAX);
        let mut differences = Vec::new();
        for index in 0..entries {
            let entry = self.registry_entry(index)?;
            self.mirror.compare(index, &entry, |difference| differences.push(difference));
        }
        Ok(differences)
    }
}

fn read_entry(block: &Block, index: u16) -> Result<EntryView, MmioError> {
    block.write(registry::INDEX, index.into())?;
    let flags = block.read(registry::FLAGS)?;
    let mut view = EntryView::vacant(block.read(registry::GENERATION)?);
    if flags & registry::flags::VALID == 0 {
        return Ok(view);
    }
    view.valid = true;
    view.source = NodeId::new(block.read(registry::SOURCE_NODE)?);
    view.incarnation = Incarnation::new(block.read(registry::INCARNATION)?);
    view.transfer = TransferId::new(block.read(registry::TRANSFER)?);
    view.segment = block.read(registry::SEGMENT)?;
    view.segment_count = block.read(registry::SEGMENT_COUNT)?;
    view.base = CardAddr::new(block.read_pair(registry::BASE_LOW)?);
    view.length = block.read(registry::LENGTH)?;
    view.expected = u16::try_from(block.read(registry::EXPECTED)?).unwrap_or(u16::MAX);
    view.silent = flags & registry::flags::SILENT != 0;
    view.notify = flags & registry::flags::NOTIFY != 0;
    view.transfer_length = block.read_pair(registry::TRANSFER_LENGTH_LOW)?;
    for (word, register) in view.mask.iter_mut().zip((registry::MASK..).step_by(4)) {
        *word = block.read(register)?;
    }
    view.age = Nanos::from_micros(block.read(registry::AGE_US)?.into());
    Ok(view)
}
