//! Host memory as the source of transfers. The H2C channel of the endpoint writes it to transmit windows: no copy in card memory, and no copy
//! by the CDMA engine.
//!
//! For the sender a source is an address. Host memory has addresses above those of any card: bit 63, the number of the memory, and the offset in
//! it.

use super::{Endpoint, EndpointError, RemoteRegion, SendError, SendOptions, SendTicket};
use fpga_driver::extension::At as _;
use fpga_driver::{Error, MemoryHandle};
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
    length: u64,
}

/// Registered host memory, by number.
#[derive(Debug, Default)]
pub(super) struct HostSources(Vec<MemoryHandle>);

impl HostSources {
    /// Returns the memory and the offset that an address stands for; `None` for an address of the card.
    pub(super) fn find(&self, address: CardAddr) -> Option<(MemoryHandle, usize)> {
        let address = address.get().checked_sub(HOST_BASE)?;
        let handle = self.0.get(usize::try_from(address >> OFFSET_BITS).ok()?)?;
        Some((*handle, usize::try_from(address & ((1 << OFFSET_BITS) - 1)).ok()?))
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
    /// Registers host memory as a source of transfers ([`send_from_host`](Self::send_from_host)), for as long as the endpoint is open.
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
        let sources = &mut self.transmit.sources.0;
        let number = u32::try_from(sources.len()).unwrap_or(u32::MAX);
        let handle = self.transmit.h2c.register_memory(memory).map_err(|refused| refused.error)?;
        self.transmit.sources.0.push(handle);
        Ok(HostSource { number, length })
    }

    /// Starts a transfer of `length` bytes of host memory, `offset` bytes into `source`, like [`send`](Self::send) from card memory. Its packets
    /// read the memory when they leave, and again if they are repeated. Registry scheme only.
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
        let submit = || {
            if scheme != Scheme::Registry {
                return Err(SendError::Scheme { scheme, on: self.settings.schemes });
            }
            let start = CardAddr::new(offset);
            source.address(offset, length).ok_or(SendError::SourceRange {
                start,
                length,
                memory: fpga_driver::CardRange::new(CardAddr::ZERO, source.length),
            })
        };
        let address = submit().at(|| self.place())?;
        self.submit_from(address, target, (target_offset, length), options).at(|| self.place())
    }
}
