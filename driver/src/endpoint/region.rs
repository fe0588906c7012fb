//! Memory windows: what peers may write.

use fpga_firmware::NodeId;
use fpga_firmware::generated::{self, memory as at};
use fpga_pci::MmioError;
use fpga_registers::CardAddr;

use super::{Endpoint, EndpointError, random};
use crate::ni::Block;
use crate::range::CardRange;

/// Memory windows used at most, whatever the card says that it has.
pub(super) const MAX_WINDOWS: u32 = 4096;

/// A piece of a node's card memory that another node may write: what its owner hands to the sender, by whatever way the
/// application has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    /// The node whose memory it is.
    pub node: NodeId,
    /// First byte.
    pub address: CardAddr,
    /// Bytes.
    pub length: u64,
    /// The key that packets must carry. It protects against accidents and against strangers that cannot listen on the network;
    /// it is not cryptography.
    pub key: u64,
}

/// An opened region at its owner: what to close it with.
#[derive(Debug, PartialEq, Eq)]
pub struct RegionHandle {
    index: u32,
    /// What senders need.
    pub remote: RemoteRegion,
}

/// Removes every memory window of a card.
pub(super) fn close_all(block: &Block, count: u32) -> Result<(), MmioError> {
    for index in 0..count.min(MAX_WINDOWS) {
        block.write(at::INDEX, index)?;
        block.write(at::COMMIT, generated::MEMORY_COMMIT_REMOVE)?;
    }
    Ok(())
}

impl Endpoint {
    /// Lets `source` ([`NodeId::ANY`]: every node) write `range` of this card's memory.
    ///
    /// # Errors
    /// [`EndpointError::RegionRange`], [`EndpointError::RegionsFull`], [`EndpointError::Mmio`].
    pub fn open_region(&mut self, source: NodeId, range: CardRange) -> Result<RegionHandle, EndpointError> {
        let card = || self.card.shared.name.clone();
        if range.length == 0 || !self.usable_memory().contains(range.start, range.length) {
            return Err(EndpointError::RegionRange { card: card(), range, usable: self.usable_memory() });
        }
        self.open_window(source, range)
    }

    /// Whether a region is still open.
    pub(super) fn is_open(&self, region: &RegionHandle) -> bool {
        self.regions.get(region.index as usize).copied().flatten() == Some(region.remote.key)
    }

    /// Opens a memory window for any range of card memory.
    pub(super) fn open_window(
        &mut self,
        source: NodeId,
        range: CardRange,
    ) -> Result<RegionHandle, EndpointError> {
        let card = || self.card.shared.name.clone();
        let Some(index) = self.regions.iter().position(Option::is_none) else {
            return Err(EndpointError::RegionsFull { card: card(), capacity: self.regions.len() });
        };
        let key = random(&self.card.shared.name)?;
        let block = self.memory_block()?;
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let install = || {
            block.write(at::INDEX, number)?;
            block.write(at::SOURCE_NODE, source.get())?;
            block.write_pair(at::BASE_LOW, range.start.get())?;
            block.write_pair(at::LENGTH_LOW, range.length)?;
            block.write_pair(at::KEY_LOW, key)?;
            block.write(at::PERMISSIONS, generated::Permissions::WRITE.bits())?;
            block.write(at::COMMIT, generated::MEMORY_COMMIT_INSTALL)?;
            // A packet of a sender that has the region must not overtake it.
            block.flush(at::INDEX)
        };
        install().map_err(|source| EndpointError::Mmio { card: card(), source })?;
        if let Some(place) = self.regions.get_mut(index) {
            *place = Some(key);
        }
        let remote = RemoteRegion { node: self.info.node, address: range.start, length: range.length, key };
        Ok(RegionHandle { index: number, remote })
    }

    /// Takes the permission back: later packets for the region are refused. A region that is closed already stays closed.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn close_region(&mut self, region: &RegionHandle) -> Result<(), EndpointError> {
        // Another region, or another endpoint's, may have the place by now.
        if !self.is_open(region) {
            return Ok(());
        }
        let block = self.memory_block()?;
        block
            .write(at::INDEX, region.index)
            .and_then(|()| block.write(at::COMMIT, generated::MEMORY_COMMIT_REMOVE))
            .and_then(|()| block.flush(at::INDEX))
            .map_err(|source| EndpointError::Mmio { card: self.card.shared.name.clone(), source })?;
        if let Some(place) = self.regions.get_mut(region.index as usize) {
            *place = None;
        }
        Ok(())
    }

    fn memory_block(&self) -> Result<Block, EndpointError> {
        self.block(self.info.memory_base)
    }

    pub(super) fn block(&self, base: fpga_registers::BarOffset) -> Result<Block, EndpointError> {
        let bar = self.card.user_bar().cloned();
        let bar = bar.ok_or_else(|| EndpointError::NoInterface { card: self.card.shared.name.clone() })?;
        Ok(Block::new(bar, base))
    }
}
