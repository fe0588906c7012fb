//! Recording and replay of register accesses.
//!
//! [`Recorder`] is a backend in front of a card's backend. It reports every access to the BARs to an [`Observer`], regardless of the
//! caller: the driver, the self-test, a tool. Without a recorder there is no overhead. [`log`] is the text format of recorded accesses;
//! [`replay`] runs them against a card and finds the first difference.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use fpga_diag::record::{Access, Observer, Recorder, log::{Log, Entry}, replay::{Replay, replay}};
//! use fpga_driver::{sim::SimNetwork, BarOffset};
//! use fpga_pci::Backend;
//!
//! #[derive(Default)]
//! struct Lines(Mutex<String>);
//!
//! impl Observer for Lines {
//!     fn accessed(&self, access: &Access) {
//!         let mut text = self.0.lock().unwrap();
//!         text.push_str(&format!("{}\n", Entry::of(access, 0)));
//!     }
//! }
//!
//! let network = SimNetwork::builder().cards(2).build()?;
//! let lines = Arc::new(Lines::default());
//! let card = Recorder::new(network.backend(0), Arc::clone(&lines) as Arc<dyn Observer>);
//! card.open_bar(1)?.read32(BarOffset::new(0x3000))?;
//!
//! let text = format!("{}\n{}", fpga_diag::record::log::HEAD, lines.0.lock().unwrap());
//! let log = Log::parse(&text)?;
//! let done = replay(&*network.backend(1), &log, &Replay::default(), &mut || true)?;
//! assert_eq!((done.reads, done.difference), (1, None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod log;
pub mod replay;
#[cfg(test)]
mod tests;

use core::fmt;
use std::sync::Arc;

use fpga_pci::{Backend, Bar, BarError, Mmio, MmioError};
use fpga_registers::BarOffset;

/// Direction of a register access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessDirection {
    /// Read.
    Read,
    /// Written.
    Write,
}

/// Size of one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Width {
    /// 1 byte of a register; writes only.
    Byte,
    /// 2 bytes of a register; writes only.
    Half,
    /// 4 bytes: one register.
    Word,
    /// 8 bytes.
    Pair,
}

impl Width {
    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Pair => 8,
        }
    }
}

/// Register access. A block access is reported word by word.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// Time after the access in nanoseconds of the card's clock ([`Backend::now`]).
    pub time: u64,
    /// Number of the BAR, 0 to 5.
    pub bar: u8,
    /// Offset in the BAR, in bytes.
    pub at: BarOffset,
    /// Read or write.
    pub direction: AccessDirection,
    /// Size of the access.
    pub width: Width,
    /// Value read or written; `None` if the access failed.
    pub value: Option<u64>,
}

/// Receiver of access reports. It is called on the thread that makes the access, before that thread continues.
pub trait Observer: Send + Sync {
    /// Called after an access, successful or not.
    fn accessed(&self, access: &Access);
}

/// Backend whose register accesses are observed. Configuration space, DMA and interrupts are not observed.
pub struct Recorder {
    inner: Arc<dyn Backend>,
    observer: Arc<dyn Observer>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("name", &self.inner.name()).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Creates a recorder that reports accesses to `inner` to `observer`.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { inner, observer })
    }
}

/// BAR of a [`Recorder`].
struct RecordedBar {
    inner: Bar,
    /// Backend, for its clock.
    backend: Arc<dyn Backend>,
    observer: Arc<dyn Observer>,
    index: u8,
}

impl RecordedBar {
    fn notify_observer(&self, at: BarOffset, way: AccessDirection, width: Width, value: Option<u64>) {
        let access = Access { time: self.backend.now(), bar: self.index, at, direction: way, width, value };
        self.observer.accessed(&access);
    }

    fn read<T: Copy + Into<u64>>(
        &self,
        at: BarOffset,
        width: Width,
        read: impl FnOnce(&Bar) -> Result<T, MmioError>,
    ) -> Result<T, MmioError> {
        let result = read(&self.inner);
        self.notify_observer(
            at,
            AccessDirection::Read,
            width,
            result.as_ref().ok().map(|value| (*value).into()),
        );
        result
    }

    fn write(
        &self,
        at: BarOffset,
        width: Width,
        value: u64,
        write: impl FnOnce(&Bar) -> Result<(), MmioError>,
    ) -> Result<(), MmioError> {
        let result = write(&self.inner);
        self.notify_observer(at, AccessDirection::Write, width, result.is_ok().then_some(value));
        result
    }

    fn notify_observer_block(&self, at: BarOffset, way: AccessDirection, block: &[u8], ok: bool) {
        let (words, _) = block.as_chunks::<4>();
        for (number, word) in (0_u64..).zip(words) {
            let at = BarOffset::new(at.get().saturating_add(4 * number));
            self.notify_observer(at, way, Width::Word, ok.then(|| u32::from_le_bytes(*word).into()));
        }
    }
}

impl Mmio for RecordedBar {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        self.read(at, Width::Word, |bar| bar.read32(at))
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        self.write(at, Width::Word, value.into(), |bar| bar.write32(at, value))
    }

    fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        self.read(at, Width::Pair, |bar| bar.read64(at))
    }

    fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        self.write(at, Width::Pair, value, |bar| bar.write64(at, value))
    }

    fn write_narrow(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        let (width, value) = match *from {
            [byte] => (Width::Byte, byte.into()),
            [low, high] => (Width::Half, u16::from_le_bytes([low, high]).into()),
            // Refused.
            _ => return self.inner.write_narrow(at, from),
        };
        self.write(at, width, value, |bar| bar.write_narrow(at, from))
    }

    fn read_block(&self, at: BarOffset, into: &mut [u8]) -> Result<(), MmioError> {
        let result = self.inner.read_block(at, into);
        self.notify_observer_block(at, AccessDirection::Read, into, result.is_ok());
        result
    }

    fn write_block(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        let result = self.inner.write_block(at, from);
        self.notify_observer_block(at, AccessDirection::Write, from, result.is_ok());
        result
    }
}

impl Backend for Recorder {
    fpga_pci::forward_backend!(
        inner: work_unattended, name, config_read, config_write, bars, map_dma, unmap_dma, iova_ranges, dma_page_size,
        memory_kind, interrupt_vectors, enable_interrupts, disable_interrupts, events, reset, claim_stream, release_stream, now, clock,
        relax, pause, wait_interrupt, counters, timing, set_bus_master,
    );

    fn open_bar(&self, index: u8) -> Result<Bar, BarError> {
        let inner = self.inner.open_bar(index)?;
        let (backend, observer) = (Arc::clone(&self.inner), Arc::clone(&self.observer));
        Ok(Bar::new(Arc::new(RecordedBar { inner, backend, observer, index })))
    }
}
