//! Path of a ring's descriptors into card memory.

use fpga_pci::{Bar, SharedSlice};
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::{BarOffset, CardAddr};
use fpga_ring::cdma_ring::{Batch, DescriptorImage, DescriptorSlice, ENTRY_BYTES, RingConfig};

use super::error::CdmaRingError;
use super::options::DescriptorPath;
use crate::channel::{H2cChannel, MemoryHandle, ScatterGatherEntry as Part, Ticket, WaitOptions};
use crate::shared::Shared;

/// Bytes of one descriptor in the image.
const ENTRY: usize = 64;
const _: () = assert!(ENTRY as u64 == ENTRY_BYTES);

/// Host copy of the descriptors, and the path from it to the card.
#[derive(Debug)]
pub(super) enum UploadPath {
    Bypass {
        bar: Bar,
        window: CardAddr,
        image: Box<[u8]>,
    },
    Channel {
        h2c: Box<H2cChannel>,
        image: MemoryHandle,
        /// Batch in flight.
        upload: Option<Ticket>,
    },
}

/// Host copy (image) while the ring writes to it.
enum ImageMemory<'a> {
    Bytes(&'a mut [u8]),
    Memory(SharedSlice<'a>),
}

impl DescriptorImage for ImageMemory<'_> {
    fn write(&mut self, index: u32, words: [u32; 16]) {
        let start = index as usize * ENTRY;
        match self {
            Self::Bytes(bytes) => {
                let place = bytes.get_mut(start..start + ENTRY);
                let Some(place) = place.debug_expect("an entry of the image") else { return };
                for (place, word) in place.chunks_exact_mut(4).zip(words) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
            }
            Self::Memory(memory) => {
                let stored = memory.store_words(start, words);
                // The ring was built for this memory, so it never names an entry outside it.
                debug_assert!(stored.is_ok(), "descriptor {index} outside the image");
            }
        }
    }
}

/// State of a batch's transfer to card memory.
pub(super) enum UploadState {
    Arrived,
    InTransit,
}

impl UploadPath {
    /// Opens the requested path, or returns it with the reason of the refusal.
    pub(super) fn open(
        card: &Shared,
        path: DescriptorPath,
        config: &RingConfig,
    ) -> Result<Self, (CdmaRingError, DescriptorPath)> {
        match path {
            DescriptorPath::Bypass { window } => match open_bypass(card, window, config) {
                Ok((bar, image)) => Ok(Self::Bypass { bar, window, image }),
                Err(error) => Err((error, DescriptorPath::Bypass { window })),
            },
            DescriptorPath::Channel(mut h2c) => match register_memory(card, &mut h2c, config) {
                Ok(image) => Ok(Self::Channel { h2c, image, upload: None }),
                Err(error) => Err((error, DescriptorPath::Channel(h2c))),
            },
        }
    }

    /// Closes the path and returns a lent channel.
    pub(super) fn close(self) -> DescriptorPath {
        match self {
            Self::Bypass { window, .. } => DescriptorPath::Bypass { window },
            Self::Channel { mut h2c, image, upload } => {
                if let Some(ticket) = upload {
                    let _ = h2c.wait_ended(ticket, WaitOptions::default());
                    let _ = h2c.0.take(ticket);
                }
                // Memory that is still in use stays with the channel, which releases it when it may.
                let _ = h2c.deregister_memory(image);
                DescriptorPath::Channel(h2c)
            }
        }
    }

    /// Runs `fill` on the host copy.
    pub(super) fn fill<R>(&mut self, fill: impl FnOnce(&mut dyn DescriptorImage) -> R) -> R {
        match self {
            Self::Bypass { image, .. } => fill(&mut ImageMemory::Bytes(image)),
            Self::Channel { h2c, image, .. } => {
                // Registered as long as the ring exists.
                fill(&mut ImageMemory::Memory(
                    h2c.memory(*image).debug_expect("the image is registered").unwrap_or_default(),
                ))
            }
        }
    }

    /// Sends the descriptors of a batch to the card.
    pub(super) fn send(&mut self, batch: Batch) -> Result<UploadState, CdmaRingError> {
        match self {
            Self::Bypass { .. } => {
                for piece in batch.pieces() {
                    self.write_slice(piece)?;
                }
                let (address, written) = batch.arrival;
                let found = self.read_word(address)?.unwrap_or(written);
                if found == written {
                    return Ok(UploadState::Arrived);
                }
                Err(CdmaRingError::Lost { address, written, found })
            }
            Self::Channel { h2c, image, upload } => {
                let mut parts = [Part { memory: *image, offset: 0, length: 0, card: CardAddr::ZERO }; 2];
                for (part, piece) in parts.iter_mut().zip(batch.pieces()) {
                    *part = part_of(*image, piece);
                }
                *upload = Some(h2c.submit_list(&parts)?);
                // Starts the transfer.
                h2c.poll()?;
                Ok(UploadState::InTransit)
            }
        }
    }

    /// Returns whether a batch in flight has arrived since; false also if there was none.
    pub(super) fn arrived(&mut self) -> Result<bool, CdmaRingError> {
        let Self::Channel { h2c, upload, .. } = self else { return Ok(false) };
        let Some(ticket) = *upload else { return Ok(false) };
        h2c.poll()?;
        if !h2c.has_ended(ticket) {
            return Ok(false);
        }
        *upload = None;
        failed(h2c, ticket).map(|()| true)
    }

    /// Sends the whole image and waits until it has arrived. Called before the engine starts.
    pub(super) fn send_all(&mut self, config: &RingConfig) -> Result<(), CdmaRingError> {
        let whole = DescriptorSlice { index: 0, descriptors: config.entries, card: config.base };
        match self {
            // The read-back of the next batch follows these writes.
            Self::Bypass { .. } => self.write_slice(whole),
            Self::Channel { h2c, image, upload } => {
                let part = part_of(*image, whole);
                // An earlier batch in flight arrives first, because a channel keeps the order.
                let ticket = h2c.submit_at(part.memory, part.offset, part.length, part.card)?;
                *upload = None;
                h2c.wait_ended(ticket, WaitOptions::default())?;
                failed(h2c, ticket)
            }
        }
    }

    /// Reads a word of card memory; `None` if the path cannot read.
    pub(super) fn read_word(&self, at: CardAddr) -> Result<Option<u32>, CdmaRingError> {
        let Self::Bypass { bar, window, .. } = self else { return Ok(None) };
        // `open_bypass` has checked that the descriptors are behind the window's start.
        let offset = BarOffset::new(at.get().wrapping_sub(window.get()));
        bar.read32(offset).map(Some).map_err(mmio)
    }

    fn write_slice(&self, piece: DescriptorSlice) -> Result<(), CdmaRingError> {
        let Self::Bypass { bar, window, image } = self else {
            debug_assert!(false, "slices are written by the bypass BAR only");
            return Ok(());
        };
        let start = piece.index as usize * ENTRY;
        let bytes = image.get(start..start + piece.descriptors as usize * ENTRY);
        let bytes = bytes.debug_expect("descriptors of the image").unwrap_or_default();
        let offset = BarOffset::new(piece.card.get().wrapping_sub(window.get()));
        bar.write_block(offset, bytes).map_err(mmio)
    }
}

fn mmio(source: fpga_pci::MmioError) -> CdmaRingError {
    super::CdmaError::from(source).into()
}

fn part_of(memory: MemoryHandle, piece: DescriptorSlice) -> Part {
    let length = piece.descriptors as usize * ENTRY;
    Part { memory, offset: piece.index as usize * ENTRY, length, card: piece.card }
}

/// Returns the error of a transfer that has ended. Only failures have completions; other completions belong to the lender.
fn failed(h2c: &mut H2cChannel, ticket: Ticket) -> Result<(), CdmaRingError> {
    match h2c.0.take(ticket).and_then(Result::ok).map(|done| done.outcome) {
        Some(Err(fault)) => Err((*fault).into()),
        _ => Ok(()),
    }
}

fn open_bypass(
    card: &Shared,
    window: CardAddr,
    config: &RingConfig,
) -> Result<(Bar, Box<[u8]>), CdmaRingError> {
    let no_bypass = |reason| CdmaRingError::NoBypass { reason };
    let Some(info) = card.info.roles.bypass else {
        return Err(no_bypass("the card has no bypass BAR".to_owned()));
    };
    let bar = card.backend.open_bar(info.index).map_err(|error| no_bypass(error.to_string()))?;
    let (base, bytes) = (config.base, config.bytes());
    if !crate::range::CardRange::new(window, bar.size()).contains(base, bytes) {
        let window_bytes = bar.size();
        return Err(CdmaRingError::OutsideBypass { base, bytes, window, window_bytes });
    }
    Ok((bar, vec![0; config.entries as usize * ENTRY].into()))
}

fn register_memory(
    card: &Shared,
    h2c: &mut H2cChannel,
    config: &RingConfig,
) -> Result<MemoryHandle, CdmaRingError> {
    if h2c.in_flight() != 0 {
        let reason = "has transfers in flight; wait for them first";
        return Err(CdmaRingError::Channel { reason });
    }
    let area = card
        .pool
        .allocate_registered(config.entries as usize * ENTRY, ENTRY)
        .map_err(crate::error::ResourceError::from)?;
    h2c.register_memory(area).map_err(|refused| refused.error.into())
}
