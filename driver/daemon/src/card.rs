//! The shared card.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fpga_driver::{
    Card, CardAddr, Channel, ChannelOptions, Direction, Error, MemoryHandle, ResourceError, SubmitError,
    WaitOptions,
};
use fpga_pci::Bar;
use fpga_registers::BarOffset;
use fpga_sim::{AxiAccess, Design, DesignError};

/// Bytes of a channel's buffer: the longest access of a view.
const BUFFER: usize = 64 << 10;

/// Reasons why a card cannot be shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// A channel or memory is not available.
    #[error(transparent)]
    Resource(#[from] Error<ResourceError>),
    /// Memory cannot be registered with a channel.
    #[error(transparent)]
    Memory(#[from] Error<SubmitError>),
    /// The channels are streams, and a stream has one receiver.
    #[error("a card whose channels are streams cannot be shared")]
    Streams,
}

/// Channel with memory for one transfer.
#[derive(Debug)]
struct Lane {
    channel: Channel,
    memory: MemoryHandle,
}

/// A card that several views access.
///
/// Each access takes a channel of its direction that is free, so as many views transfer at the same time as the card has channels.
#[derive(Debug)]
pub struct SharedCard {
    card: Card,
    user: Option<Bar>,
    /// The user BAR has registers with addresses of host memory.
    has_ni: bool,
    h2c: Vec<Mutex<Lane>>,
    c2h: Vec<Mutex<Lane>>,
    timeout: Duration,
}

impl SharedCard {
    /// Takes all channels of `card`. An access of a view fails after `timeout`.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn new(card: Card, timeout: Duration) -> Result<Self, ShareError> {
        let xdma = card.info().xdma;
        if xdma.stream {
            return Err(ShareError::Streams);
        }
        let lanes =
            |direction, count| (0..count).map(|number| Lane::open(&card, direction, number)).collect();
        let (h2c, c2h): (Result<_, ShareError>, Result<_, ShareError>) =
            (lanes(Direction::H2c, xdma.h2c_channels), lanes(Direction::C2h, xdma.c2h_channels));
        let (h2c, c2h) = (h2c?, c2h?);
        let has_ni = card.info().ni.is_some();
        Ok(Self { user: card.user_bar().cloned(), has_ni, h2c, c2h, timeout, card })
    }

    /// The card.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }
}

impl Lane {
    fn open(card: &Card, direction: Direction, number: u8) -> Result<Mutex<Self>, ShareError> {
        let mut channel = card.channel(direction, number, ChannelOptions::default())?;
        let memory = channel.register_memory(card.registered_memory(BUFFER)?);
        Ok(Mutex::new(Self { channel, memory: memory.map_err(|refused| refused.error)? }))
    }

    /// Transfers the first `length` bytes of the memory.
    fn transfer(&mut self, length: usize, at: CardAddr, timeout: Duration) -> Result<(), DesignError> {
        let Self { channel, memory } = self;
        let waited = match channel.submit_at(*memory, 0, length, at) {
            Ok(ticket) => channel
                .wait_ended(ticket, WaitOptions::default().timeout(timeout))
                .err()
                .map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        // Successes are only counted.
        let mut failure = waited;
        if failure.is_some() {
            let _ = channel.abort();
        }
        while let Some(completion) = channel.next_completion() {
            if let Err(fault) = completion.outcome {
                failure.get_or_insert_with(|| fault.to_string());
            }
        }
        match failure {
            None => Ok(()),
            Some(reason) => {
                tracing::warn!(%at, length, "a client's transfer failed: {reason}");
                Err(DesignError::Slave)
            }
        }
    }
}

impl Design for SharedCard {
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        for chunk in Chunks::of(access, into.len()) {
            let mut lane = free(&self.c2h).ok_or(DesignError::Decode)?;
            lane.transfer(chunk.length, chunk.at, self.timeout)?;
            let place = into.get_mut(chunk.offset..chunk.offset + chunk.length).ok_or(DesignError::Slave)?;
            let bytes = lane.channel.memory(lane.memory).ok_or(DesignError::Slave)?;
            bytes.read(0, place).map_err(|_| DesignError::Slave)?;
        }
        Ok(())
    }

    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError> {
        for chunk in Chunks::of(access, from.len()) {
            let mut lane = free(&self.h2c).ok_or(DesignError::Decode)?;
            let data = from.get(chunk.offset..chunk.offset + chunk.length).ok_or(DesignError::Slave)?;
            let bytes = lane.channel.memory(lane.memory).ok_or(DesignError::Slave)?;
            bytes.write(0, data).map_err(|_| DesignError::Slave)?;
            lane.transfer(chunk.length, chunk.at, self.timeout)?;
        }
        Ok(())
    }

    fn read_register(&self, offset: u64) -> u32 {
        // What the root complex returns for a register that does not answer.
        self.user.as_ref().and_then(|bar| bar.read32(BarOffset::new(offset)).ok()).unwrap_or(u32::MAX)
    }

    fn write_register(&self, offset: u64, value: u32) {
        if self.has_ni {
            tracing::warn!(
                offset,
                value,
                "a client's write of the user BAR is refused: registers of the card's network interface contain addresses"
            );
        } else if let Some(bar) = &self.user
            && let Err(error) = bar.write32(BarOffset::new(offset), value)
        {
            tracing::warn!(%error, "a client's write of the user BAR failed");
        }
    }
}

/// A channel that is free; if there is none, the first one when it is free.
fn free<T>(channels: &[Mutex<T>]) -> Option<MutexGuard<'_, T>> {
    let now = channels.iter().find_map(|channel| channel.try_lock().ok());
    now.or_else(|| channels.first().map(|channel| channel.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Parts of an access that fit into a channel's buffer.
struct Chunks {
    access: AxiAccess,
    offset: usize,
    end: usize,
}

struct Chunk {
    at: CardAddr,
    offset: usize,
    length: usize,
}

impl Chunks {
    const fn of(access: AxiAccess, length: usize) -> Self {
        Self { access, offset: 0, end: length }
    }
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        // With a fixed address, every beat is a transfer of its own.
        let beat = self.access.fixed.and_then(|width| usize::try_from(width).ok());
        let length = (self.end - self.offset).min(beat.unwrap_or(BUFFER).clamp(1, BUFFER));
        let advance = if beat.is_some() { 0 } else { self.offset as u64 };
        let at = CardAddr::new(self.access.at.get().wrapping_add(advance));
        let chunk = Chunk { at, offset: self.offset, length };
        self.offset += length;
        (length > 0).then_some(chunk)
    }
}
