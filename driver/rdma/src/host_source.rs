//! Host memory as the source of transfers. The H2C channel of the endpoint writes it to transmit windows: no copy in card memory, and no copy
//! by the CDMA engine.
//!
//! For the sender a source is an address. Host memory has addresses above those of any card: bit 63, the number of the memory, and the offset in
//! it. Memory is deregistered when no transfer from it is in progress, and the channel has read it for the last time: a packet is repeated
//! only before its transfer ends.

use super::{Endpoint, EndpointError, RemoteRegion, SendError, SendOptions, SendTicket};
use fpga_driver::extension::At as _;
use fpga_driver::{ChannelError, Error, MemoryHandle};
use fpga_firmware::generated::Scheme;
use fpga_pci::RegisteredMemory;
use fpga_registers::CardAddr;

/// First address of host memory.
const HOST_BASE: u64 = 1 << 63;
/// Bits of an offset in one memory.
const OFFSET_BITS: u32 = 40;

/// Registered host memory from which transfers can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSource {
    number: u32,
    /// Tells apart memories that have the same number in turn.
    generation: u32,
    length: u64,
}

/// Entry of the table of host memory.
#[derive(Debug)]
struct Entry {
    /// `None`: deregistered.
    memory: Option<MemoryHandle>,
    generation: u32,
    /// Number of transfers from it that have not ended.
    transfers: u32,
}

/// Registered host memory, by number.
#[derive(Debug, Default)]
pub(super) struct HostSources {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// Number of the memory, and offset in it, of an address of host memory.
fn position(address: CardAddr) -> Option<(usize, u64)> {
    let address = address.get().checked_sub(HOST_BASE)?;
    Some((usize::try_from(address >> OFFSET_BITS).ok()?, address & ((1 << OFFSET_BITS) - 1)))
}

impl HostSources {
    /// Returns the memory and the offset that an address stands for; `None` for an address of the card.
    pub(super) fn find(&self, address: CardAddr) -> Option<(MemoryHandle, usize)> {
        let (number, offset) = position(address)?;
        Some((self.entries.get(number)?.memory?, usize::try_from(offset).ok()?))
    }

    /// Counts the end of a transfer from `address`, unless that is an address of the card.
    pub(super) fn ended(&mut self, address: CardAddr) {
        if let Some((number, _)) = position(address)
            && let Some(entry) = self.entries.get_mut(number)
        {
            entry.transfers = entry.transfers.saturating_sub(1);
        }
    }

    fn insert(&mut self, memory: MemoryHandle, length: u64) -> HostSource {
        if let Some(number) = self.free.pop()
            && let Some(entry) = self.entries.get_mut(number as usize)
        {
            (entry.memory, entry.generation) = (Some(memory), entry.generation.wrapping_add(1));
            return HostSource { number, generation: entry.generation, length };
        }
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.entries.push(Entry { memory: Some(memory), generation: 0, transfers: 0 });
        HostSource { number, generation: 0, length }
    }

    /// Entry of memory that is registered.
    fn entry(&mut self, source: HostSource) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(source.number as usize)?;
        (entry.generation == source.generation && entry.memory.is_some()).then_some(entry)
    }

    fn remove(&mut self, source: HostSource) {
        if let Some(entry) = self.entry(source) {
            entry.memory = None;
            self.free.push(source.number);
        }
    }
}

impl HostSource {
    /// Address of `length` bytes at `offset`; `None` outside of the memory.
    fn address(self, offset: u64, length: u64) -> Option<CardAddr> {
        offset.checked_add(length).filter(|end| *end <= self.length)?;
        Some(CardAddr::new(HOST_BASE | u64::from(self.number) << OFFSET_BITS | offset))
    }
}

impl Endpoint {
    /// Registers host memory as a source of transfers ([`send_from_host`](Self::send_from_host)), until
    /// [`deregister_source`](Self::deregister_source) or the end of the endpoint.
    ///
    /// # Errors
    /// [`EndpointError`]: the memory belongs to another card, or is too long.
    pub fn register_source(&mut self, memory: RegisteredMemory) -> Result<HostSource, Error<EndpointError>> {
        self.add_source(memory).at(|| self.place())
    }

    fn add_source(&mut self, memory: RegisteredMemory) -> Result<HostSource, EndpointError> {
        let length = memory.memory().len() as u64;
        let card_end = self.settings.info.memory.last().get();
        if length >= 1 << OFFSET_BITS || card_end >= HOST_BASE {
            let found = length.max(card_end);
            return Err(EndpointError::Option {
                what: "the length of a host source, or the end of card memory",
                found,
                expected: "below 2^40 bytes, and below address 2^63",
            });
        }
        let handle = self.transmit.h2c.register_memory(memory).map_err(|refused| refused.error)?;
        Ok(self.transmit.sources.insert(handle, length))
    }

    /// Deregisters host memory and returns it. Transfers from it end before: [`cancel`](Self::cancel) those that are not needed any more.
    ///
    /// # Errors
    /// [`ChannelError::MemoryInUse`] while a transfer from it has not ended, or the channel still reads it: after further calls of
    /// [`poll`](Self::poll) it succeeds. [`ChannelError::NotRegistered`].
    pub fn deregister_source(&mut self, source: HostSource) -> Result<RegisteredMemory, Error<ChannelError>> {
        let transmit = &mut self.transmit;
        let handle = match transmit.sources.entry(source) {
            None => Err(ChannelError::NotRegistered),
            Some(entry) if entry.transfers > 0 => Err(ChannelError::MemoryInUse),
            Some(entry) => entry.memory.ok_or(ChannelError::NotRegistered),
        };
        let handle = handle.at(|| self.place())?;
        let memory = self.transmit.h2c.deregister_memory(handle)?;
        self.transmit.sources.remove(source);
        Ok(memory)
    }

    /// Starts a transfer of `length` bytes of host memory, `offset` bytes into `source`, like [`send`](Self::send) from card memory. Its packets
    /// read the memory when they leave, and again if they are repeated: it must not change until the transfer ends. Registry scheme only.
    ///
    /// # Errors
    /// See [`SendError`]. Nothing was started.
    pub fn send_from_host(
        &mut self,
        source: HostSource,
        offset: u64,
        target: &RemoteRegion,
        (target_offset, length): (u64, u64),
        options: SendOptions,
    ) -> Result<SendTicket, Error<SendError>> {
        let scheme = options.scheme.unwrap_or(self.settings.scheme);
        let is_registered = self.transmit.sources.entry(source).is_some();
        let memory_length = if is_registered { source.length } else { 0 };
        let submit = || {
            if scheme != Scheme::Registry {
                return Err(SendError::Scheme { scheme, on: self.settings.schemes });
            }
            let start = CardAddr::new(offset);
            source.address(offset, length).filter(|_| is_registered).ok_or(SendError::SourceRange {
                start,
                length,
                memory: fpga_driver::CardRange::new(CardAddr::ZERO, memory_length),
            })
        };
        let address = submit().at(|| self.place())?;
        let ticket =
            self.submit_from(address, target, (target_offset, length), options).at(|| self.place())?;
        if let Some(entry) = self.transmit.sources.entry(source) {
            entry.transfers = entry.transfers.saturating_add(1);
        }
        Ok(ticket)
    }
}
