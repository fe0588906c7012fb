//! Windows of the card's receive tables: registry and escape channel. Reads have no side effects.

use std::time::Duration;

use fpga_firmware::generated::{Scheme, escape, registry};
use fpga_firmware::{Incarnation, NodeId, TransferId};
use fpga_pci::{Bar, MmioError};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::EscapedPacket;
use fpga_protocol::receiver::EntryView;
use fpga_registers::{BarOffset, CardAddr};

use fpga_driver::extension::RegisterBlock;
use fpga_driver::{Card, NiInfo};

/// Windows of a card's network interface: its tables, through which the host reads them.
#[derive(Debug, Clone)]
pub struct ReceiveWindows {
    bar: Bar,
    info: NiInfo,
}

impl ReceiveWindows {
    /// Opens the windows of `card`; `None` if it has no network interface.
    #[must_use]
    pub fn of(card: &Card) -> Option<Self> {
        Some(Self { bar: card.user_bar()?.clone(), info: card.info().ni.clone()? })
    }

    /// Returns the properties of the network interface.
    #[must_use]
    pub const fn info(&self) -> &NiInfo {
        &self.info
    }

    /// Returns the block of registers at `base`, one of the offsets of [`info`](Self::info).
    #[must_use]
    pub fn block(&self, base: BarOffset) -> RegisterBlock {
        RegisterBlock::new(self.bar.clone(), base)
    }

    /// Returns the number of entries of the registry.
    #[must_use]
    pub fn registry_entries(&self) -> u16 {
        u16::try_from(self.info.registry_entries).unwrap_or(u16::MAX)
    }

    /// Returns the number of slots of the escape channel.
    #[must_use]
    pub fn escape_slots(&self) -> u16 {
        u16::try_from(self.info.escape_slots).unwrap_or(u16::MAX)
    }

    /// Reads entry `index` of the receive registry.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn entry(&self, index: u16) -> Result<EntryView, MmioError> {
        let block = self.block(self.info.registry_base);
        block.write(registry::INDEX, index.into())?;
        let flags = block.read(registry::FLAGS)?;
        let mut view = EntryView::vacant(block.read(registry::GENERATION)?);
        if flags & registry::flags::VALID == 0 {
            return Ok(view);
        }
        view.valid = true;
        if let Ok(scheme) =
            Scheme::try_from((flags & registry::flags::SCHEME) >> registry::flags::SCHEME_SHIFT)
        {
            view.scheme = scheme;
        }
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
        view.first = block.read(registry::FIRST)?;
        for (word, register) in view.mask.iter_mut().zip((registry::MASK..).step_by(4)) {
            *word = block.read(register)?;
        }
        view.age = Nanos::from_micros(block.read(registry::AGE_US)?.into());
        Ok(view)
    }

    /// Reads the packet in slot `index` of the escape channel, and the time that it has waited; `None` if the slot is free. The `since` of
    /// the packet is 0, because the card does not show it.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn escaped(&self, index: u16) -> Result<Option<(EscapedPacket, Duration)>, MmioError> {
        let block = self.block(self.info.escape_base);
        block.write(escape::INDEX, index.into())?;
        if block.read(escape::VALID)? & 1 == 0 {
            return Ok(None);
        }
        let packet = EscapedPacket {
            node: NodeId::new(block.read(escape::SOURCE_NODE)?),
            incarnation: Incarnation::new(block.read(escape::INCARNATION)?),
            transfer: TransferId::new(block.read(escape::TRANSFER)?),
            segment: block.read(escape::SEGMENT)?,
            address: CardAddr::new(block.read_pair(escape::ADDRESS_LOW)?),
            length: block.read(escape::LENGTH)?.into(),
            since: Nanos::ZERO,
        };
        let age = Duration::from_micros(block.read(escape::AGE_US)?.into());
        Ok(Some((packet, age)))
    }
}
