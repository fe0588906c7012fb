//! Interrupt vectors of a card: which channels and user interrupts use them.

use std::sync::atomic::Ordering;

use fpga_pci::{Interrupt, InterruptError, MmioError, config, lock};
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::pci::header;
use fpga_registers::xdma::{ChannelMask, IRQ_BASE, IrqBlock, MAX_USER_INTERRUPTS, VectorNumbers};

use super::Card;
use crate::error::{At as _, Error, ResourceError};

/// Number of user interrupts of an XDMA core (PG195, usr_irq_req).
const USER_INTERRUPTS: u32 = MAX_USER_INTERRUPTS as u32;

impl Card {
    /// Enables one interrupt vector per channel, H2C first, and one per user interrupt. User interrupts stay masked until they are taken or
    /// waited for. Call it before taking channels that wait by interrupt; [`user_interrupt`](Self::user_interrupt) calls it.
    ///
    /// If there are fewer vectors than sources (few MSI vectors, a legacy interrupt, a host that is short of vectors), channels get vectors
    /// first and the user interrupts share the remaining ones. If there are not more vectors than channels, channels and user interrupts
    /// share vectors: each is also woken by the others' interrupts and finds nothing then. The result reports sharing
    /// ([`InterruptVectors::is_shared`], [`InterruptVectors::user_is_shared`]). A warning is logged if there are fewer vectors than
    /// channels.
    ///
    /// # Errors
    /// [`ResourceError::Cause`] if there are no vectors or the system refuses them: wait by polling instead.
    pub fn enable_interrupts(&self) -> Result<InterruptVectors, Error<ResourceError>> {
        self.grant_interrupts().at(|| self.shared.place())
    }

    fn grant_interrupts(&self) -> Result<InterruptVectors, ResourceError> {
        self.shared.check_owned()?;
        let xdma = &self.shared.info.xdma;
        let channels = u32::from(xdma.h2c_channels) + u32::from(xdma.c2h_channels);
        let mut interrupts = lock(&self.shared.interrupts);
        if !interrupts.is_empty() {
            let level = interrupts.iter().any(Interrupt::is_level);
            return Ok(InterruptVectors {
                vectors: self.shared.vectors.load(Ordering::Relaxed),
                channels,
                level,
            });
        }
        let backend = &self.shared.backend;
        let mut wanted = backend.interrupt_vectors().min(channels + USER_INTERRUPTS);
        if wanted == 0 {
            wanted = channels;
        }
        let enabled = loop {
            match backend.enable_interrupts(wanted) {
                // The device has more vectors than the system grants: take the granted number.
                Err(InterruptError::TooMany { available, .. }) if (1..wanted).contains(&available) => {
                    wanted = available;
                }
                other => break other?,
            }
        };
        let granted = InterruptVectors { vectors: wanted, channels, level: false };
        let undo = || {
            let _ = backend.disable_interrupts();
        };
        if granted.is_shared() {
            tracing::warn!(card = %self.shared.name, vectors = wanted, channels,
                "fewer interrupt vectors than channels: channels share them");
        }
        let is_level_triggered = enabled.iter().any(Interrupt::is_level);
        let sources = channels + USER_INTERRUPTS;
        let granted = InterruptVectors { level: is_level_triggered, ..granted };
        let enabled = share(enabled, sources, |source| granted.vector_of(source)).inspect_err(|_| undo())?;
        // For a legacy interrupt, the two low bits of the vector number select the pin (PG195). A function has one pin, which configuration
        // space names (PCI 6.2.4).
        let pin = if is_level_triggered {
            config::read_u8(&**backend, header::INTERRUPT_PIN).unwrap_or(1)
        } else {
            1
        };
        let pin = pin.saturating_sub(1) & 3;
        let vector = |source: u8| match u8::try_from(granted.vector_of(source.into())) {
            Ok(vector) if !is_level_triggered => vector,
            _ => pin,
        };
        let program = || -> Result<(), MmioError> {
            for (register, first) in IrqBlock::CHANNEL_VECTORS.into_iter().zip([0u8, 4]) {
                let vectors = [first, first + 1, first + 2, first + 3].map(vector);
                register.write(&self.shared.dma_bar, IRQ_BASE, VectorNumbers::of(vectors))?;
            }
            // User vectors follow the channel vectors.
            let after_channels = xdma.h2c_channels.saturating_add(xdma.c2h_channels);
            for (register, line) in IrqBlock::USER_VECTORS.into_iter().zip([0u8, 4, 8, 12]) {
                let first = after_channels.saturating_add(line);
                let vectors = [0, 1, 2, 3].map(|n| vector(first.saturating_add(n)));
                register.write(&self.shared.dma_bar, IRQ_BASE, VectorNumbers::of(vectors))?;
            }
            let mask = (1u32 << channels) - 1;
            IrqBlock::CHANNEL_ENABLE.write(&self.shared.dma_bar, IRQ_BASE, ChannelMask::from_bits(mask))
        };
        if let Err(source) = program() {
            undo();
            return Err(ResourceError::from(source));
        }
        self.shared.vectors.store(wanted, Ordering::Relaxed);
        *interrupts = enabled;
        Ok(granted)
    }

    /// Returns whether interrupts are enabled.
    #[must_use]
    pub fn has_interrupts(&self) -> bool {
        !lock(&self.shared.interrupts).is_empty()
    }

    /// Disables all interrupts of the card and returns its vectors to the system.
    ///
    /// # Errors
    /// [`ResourceError::InUse`] while a channel, the CDMA engine or a user interrupt has an owner, which may wait for an interrupt;
    /// otherwise as [`enable_interrupts`](Self::enable_interrupts).
    pub fn disable_interrupts(&self) -> Result<(), Error<ResourceError>> {
        self.release_interrupts().at(|| self.shared.place())
    }

    fn release_interrupts(&self) -> Result<(), ResourceError> {
        let shared = &self.shared;
        let _claims = shared
            .info
            .xdma
            .channels()
            .map(|name| shared.claim_channel(name))
            .collect::<Result<Vec<_>, _>>()?;
        shared.take_cdma()?;
        shared.release_cdma();
        shared.check_user_lines_free()?;
        let mut interrupts = lock(&shared.interrupts);
        IrqBlock::CHANNEL_ENABLE.write(&shared.dma_bar, IRQ_BASE, ChannelMask::from_bits(0))?;
        shared.backend.disable_interrupts()?;
        interrupts.clear();
        Ok(())
    }
}

/// Assignment of interrupt vectors to channels and user interrupts of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterruptVectors {
    /// Number of vectors enabled.
    pub vectors: u32,
    /// Number of channels, each of which needs a vector.
    pub channels: u32,
    /// The interrupt is the legacy line (INTx): level-triggered, shared by everything on the card.
    pub level: bool,
}

impl InterruptVectors {
    /// Returns whether channels share vectors.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.vectors < self.channels
    }

    /// Returns whether user interrupts share vectors, with each other or with channels.
    #[must_use]
    pub const fn user_is_shared(self) -> bool {
        self.level || self.vectors < self.channels + USER_INTERRUPTS
    }

    /// Returns the vector of a source: channels first, then user interrupts. If there are too few vectors, numbers wrap modulo the vectors
    /// that were granted. User interrupts use the vectors that no channel needs, if there are any.
    const fn vector_of(self, source: u32) -> u32 {
        let left = self.vectors.saturating_sub(self.channels);
        match source.checked_sub(self.channels) {
            Some(user) if left > 0 => self.channels + user % left,
            _ if self.vectors > 0 => source % self.vectors,
            _ => 0,
        }
    }
}

/// Distributes `vectors` over `sources` interrupts as `vector_of` assigns them. A vector with a single source is passed on unshared; a
/// level-triggered one is always shared.
fn share(
    vectors: Vec<Interrupt>,
    sources: u32,
    vector_of: impl Fn(u32) -> u32,
) -> Result<Vec<Interrupt>, InterruptError> {
    let mut users = Vec::with_capacity(vectors.len());
    for (number, vector) in (0..).zip(vectors) {
        let sharing = (0..sources).filter(|source| vector_of(*source) == number).count();
        let alone = sharing == 1 && !vector.is_level();
        users.push(if alone { vec![vector] } else { vector.share(sharing)? }.into_iter());
    }
    let mut next = |source| {
        let vector = usize::try_from(vector_of(source)).ok()?;
        users.get_mut(vector).and_then(Iterator::next)
    };
    Ok((0..sources).filter_map(|source| next(source).debug_expect("an interrupt for each source")).collect())
}
