//! Regions of card memory that peers may write. Each open region occupies one memory window (access rule) of the network interface.

use fpga_firmware::NodeId;
use fpga_firmware::generated::{self, memory as at};
use fpga_pci::MmioError;
use fpga_registers::CardAddr;
use fpga_registers::invariant::DebugExpect as _;

use super::{Endpoint, EndpointError, random};
use fpga_driver::extension::At as _;
use fpga_driver::extension::RegisterBlock;
use fpga_driver::{CardRange, Error};

/// Maximum number of memory windows used, regardless of the number that the card reports.
pub(super) const MAX_WINDOWS: u32 = 4096;

/// Region of a node's card memory that another node may write. The application of the owner passes it to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Node that owns the memory.
    pub node: NodeId,
    /// First address.
    pub address: CardAddr,
    /// Length in bytes.
    pub length: u64,
    /// Key that packets must carry. It protects against accidental writes and against senders that cannot read the network's traffic. It is
    /// sent in clear text.
    pub key: u64,
}

/// Handle of an opened region at its owner, needed to close it.
#[derive(Debug, PartialEq, Eq)]
pub struct RegionHandle {
    index: u32,
    /// Description of the region for senders.
    pub remote: RemoteRegion,
}

/// Removes the first `count` memory windows of a card, at most [`MAX_WINDOWS`].
pub(super) fn close_all(block: &RegisterBlock, count: u32) -> Result<(), MmioError> {
    for index in 0..count.min(MAX_WINDOWS) {
        block.write(at::INDEX, index)?;
        block.write(at::COMMIT, generated::MEMORY_COMMIT_REMOVE)?;
    }
    Ok(())
}

impl Endpoint {
    /// Opens `range` of this card's memory for writes of node `source` ([`NodeId::ANY`]: every node).
    ///
    /// # Errors
    /// [`EndpointError::RegionRange`], [`EndpointError::RegionsFull`], [`EndpointError::Cause`].
    pub fn open_region(
        &mut self,
        source: NodeId,
        range: CardRange,
    ) -> Result<RegionHandle, Error<EndpointError>> {
        self.open_writable(source, range).at(|| self.place())
    }

    /// As [`open_region`](Self::open_region), with a key that the other nodes know already, such as one that an application agrees on. It
    /// protects against accidental writes less well than a random one.
    ///
    /// # Errors
    /// As [`open_region`](Self::open_region).
    pub fn open_region_with_key(
        &mut self,
        source: NodeId,
        range: CardRange,
        key: u64,
    ) -> Result<RegionHandle, Error<EndpointError>> {
        self.open_checked(source, range, key).at(|| self.place())
    }

    pub(super) fn open_writable(
        &mut self,
        source: NodeId,
        range: CardRange,
    ) -> Result<RegionHandle, EndpointError> {
        self.open_checked(source, range, random()?)
    }

    fn open_checked(
        &mut self,
        source: NodeId,
        range: CardRange,
        key: u64,
    ) -> Result<RegionHandle, EndpointError> {
        if range.length == 0 || !self.usable_memory().contains(range.start, range.length) {
            return Err(EndpointError::RegionRange { range, usable: self.usable_memory() });
        }
        self.install_window(source, range, key)
    }

    /// Returns whether a region is still open.
    pub(super) fn is_open(&self, region: &RegionHandle) -> bool {
        self.regions.get(region.index as usize).copied().flatten() == Some(region.remote.key)
    }

    /// Opens a memory window for any range of card memory.
    pub(super) fn open_window(
        &mut self,
        source: NodeId,
        range: CardRange,
    ) -> Result<RegionHandle, EndpointError> {
        self.install_window(source, range, random()?)
    }

    fn install_window(
        &mut self,
        source: NodeId,
        range: CardRange,
        key: u64,
    ) -> Result<RegionHandle, EndpointError> {
        let Some(index) = self.regions.iter().position(Option::is_none) else {
            return Err(EndpointError::RegionsFull { capacity: self.regions.len() });
        };
        let block = self.memory_block()?;
        let number =
            u32::try_from(index).debug_expect("the card's table has fewer windows").unwrap_or(u32::MAX);
        let install = || {
            block.write(at::INDEX, number)?;
            block.write(at::SOURCE_NODE, source.get())?;
            block.write_pair(at::BASE_LOW, range.start.get())?;
            block.write_pair(at::LENGTH_LOW, range.length)?;
            block.write_pair(at::KEY_LOW, key)?;
            block.write(at::PERMISSIONS, generated::Permissions::WRITE.bits())?;
            block.write(at::COMMIT, generated::MEMORY_COMMIT_INSTALL)?;
            // The register writes are posted. They must arrive before a sender can learn the region and send a packet to it.
            block.flush(at::INDEX)
        };
        install().map_err(EndpointError::from)?;
        if let Some(place) = self.regions.get_mut(index) {
            *place = Some(key);
        }
        let remote =
            RemoteRegion { node: self.settings.info.node, address: range.start, length: range.length, key };
        Ok(RegionHandle { index: number, remote })
    }

    /// Closes a region: later packets for it are refused. Has no effect if it is already closed.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn close_region(&mut self, region: &RegionHandle) -> Result<(), Error<EndpointError>> {
        self.close_window(region).at(|| self.place())
    }

    pub(super) fn close_window(&mut self, region: &RegionHandle) -> Result<(), EndpointError> {
        // The window's index may have been reused for another region, or `region` may be of another endpoint.
        if !self.is_open(region) {
            return Ok(());
        }
        let block = self.memory_block()?;
        block
            .write(at::INDEX, region.index)
            .and_then(|()| block.write(at::COMMIT, generated::MEMORY_COMMIT_REMOVE))
            .and_then(|()| block.flush(at::INDEX))
            .map_err(EndpointError::from)?;
        if let Some(place) = self.regions.get_mut(region.index as usize) {
            *place = None;
        }
        Ok(())
    }

    fn memory_block(&self) -> Result<RegisterBlock, EndpointError> {
        self.block(self.settings.info.memory_base)
    }

    pub(super) fn block(&self, base: fpga_registers::BarOffset) -> Result<RegisterBlock, EndpointError> {
        let bar = self.card.user_bar().cloned();
        let bar = bar.ok_or(EndpointError::NoInterface)?;
        Ok(RegisterBlock::new(bar, base))
    }
}
