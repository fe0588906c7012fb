//! The card's AXI address space: card memory and the NI's transmit windows.
//!
//! XDMA, CDMA, the bypass BAR and the NI all access memory through this module. An address in neither range is a decode error.

use crate::description::CardDescription;
use crate::design::{AxiAccess, Design, DesignError};
use crate::fault_log::Unit;
use crate::hooks::{AxiError, Hooks, range};
use crate::memory::{FlatMemory, PAGE, Written};
use fpga_registers::CardAddr;
use fpga_registers::invariant::DebugExpect as _;
use std::fmt;
use std::sync::Arc;

/// Offset of the commit word within a transmit window.
pub(crate) const COMMIT_OFFSET: u64 = 0x0FC0;
/// Last byte of the commit word, as an index into the window's RAM.
const COMMIT_LAST: usize = 0x0FC3;
/// Offset of the payload within a transmit window.
pub(crate) const PAYLOAD_OFFSET: u64 = 0x1000;

/// Distance between two transmit windows: header block, then a whole segment, rounded up to a power of two so that the window number is a
/// shift of the address.
pub(crate) const fn window_stride(packet_size: u32, mask_bits: u16) -> u64 {
    (PAYLOAD_OFFSET + payload_size(packet_size, mask_bits)).next_power_of_two()
}

impl crate::description::NiDescription {
    /// Returns the bytes of all transmit windows together.
    #[must_use]
    pub fn windows_size(&self) -> u64 {
        u64::from(self.windows) * window_stride(self.packet_size, self.mask_bits)
    }
}

/// Payload bytes of a window, which are one segment.
pub(crate) const fn payload_size(packet_size: u32, mask_bits: u16) -> u64 {
    packet_size as u64 * mask_bits as u64
}

/// RAM that an address belongs to, and the offset in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryLocation {
    Memory { offset: u64 },
    Window { index: usize, offset: usize },
    Design,
}

/// Card memory and transmit windows.
pub(crate) struct CardSpace {
    base: u64,
    memory: FlatMemory,
    window_base: u64,
    stride: u64,
    windows: Vec<Vec<u8>>,
    /// Windows whose commit word was written since the NI last read this set.
    committed: u32,
    hooks: Hooks,
    scratch: Vec<u8>,
    /// Design behind all addresses, instead of the memory and the windows, or beyond them.
    design: Option<Arc<dyn Design>>,
    /// Memory and windows are there beside the design.
    is_beyond: bool,
}

/// Card memory as most descriptors use it: ranges within one page. Other accesses use [`CardSpace::slice`] and [`CardSpace::fill`].
pub(crate) struct FastPathMemory<'a> {
    base: u64,
    pages: &'a mut [[u8; PAGE]],
    written: &'a mut Written,
}

impl FastPathMemory<'_> {
    /// The `length` bytes at card address `at`, for reading.
    #[inline]
    pub(crate) fn source(&self, at: u64, length: usize) -> Option<&[u8]> {
        let (page, start) = self.place(at)?;
        self.pages.get(page)?.get(start..start.checked_add(length)?)
    }

    /// The `length` bytes at card address `at`, for writing.
    #[inline]
    pub(crate) fn target(&mut self, at: u64, length: usize) -> Option<&mut [u8]> {
        let (page, start) = self.place(at)?;
        let bytes = self.pages.get_mut(page)?.get_mut(start..start.checked_add(length)?)?;
        self.written.mark(page);
        Some(bytes)
    }

    /// Index in [`Self::bytes`] of the `length` bytes at card address `at`, which will be written.
    #[inline]
    pub(crate) fn mark(&mut self, at: u64, length: usize) -> Option<usize> {
        self.target(at, length)?;
        usize::try_from(at.wrapping_sub(self.base)).ok()
    }

    /// Index in [`Self::bytes`] of the `length` bytes at card address `at`.
    #[inline]
    pub(crate) fn find(&self, at: u64, length: usize) -> Option<usize> {
        self.source(at, length)?;
        usize::try_from(at.wrapping_sub(self.base)).ok()
    }

    /// Returns the number of bytes from card address `at` to the end of its page; `None` outside memory.
    #[inline]
    pub(crate) fn to_page_end(&self, at: u64) -> Option<u32> {
        let (page, start) = self.place(at)?;
        self.pages.get(page)?;
        u32::try_from(PAGE - start).ok()
    }

    /// All of card memory.
    #[inline]
    pub(crate) const fn bytes(&mut self) -> &mut [u8] {
        self.pages.as_flattened_mut()
    }

    /// Page, and offset in it. An address below the base wraps to one far beyond the end.
    #[inline]
    fn place(&self, at: u64) -> Option<(usize, usize)> {
        let offset = usize::try_from(at.wrapping_sub(self.base)).ok()?;
        Some((offset / PAGE, offset % PAGE))
    }
}

impl fmt::Debug for CardSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardSpace")
            .field("memory", &self.memory)
            .field("windows", &self.windows.len())
            .field("committed", &self.committed)
            .finish_non_exhaustive()
    }
}

impl CardSpace {
    /// # Errors
    /// The error of the operating system if it does not map that much card memory.
    pub(crate) fn new(description: &CardDescription) -> std::io::Result<Self> {
        let ni = &description.ni;
        let stride = window_stride(ni.packet_size, ni.mask_bits);
        let bytes = usize::try_from(stride).unwrap_or(0);
        Ok(Self {
            base: description.memory.base,
            memory: FlatMemory::new(description.memory.size)?,
            window_base: ni.window_base,
            stride,
            windows: (0..ni.windows).map(|_| vec![0; bytes]).collect(),
            committed: 0,
            hooks: Hooks {
                poisoned: None,
                silent: description
                    .quirks
                    .silent_memory
                    .as_ref()
                    .and_then(|silent| range(CardAddr::new(silent.base), silent.size)),
            },
            scratch: vec![0; PAGE],
            design: None,
            is_beyond: false,
        })
    }

    /// The design behind all addresses, if there is one.
    pub(crate) fn design(&self) -> Option<&dyn Design> {
        self.design.as_deref()
    }

    /// The design, shared with its users outside the card.
    pub(crate) fn shared_design(&self) -> Option<Arc<dyn Design>> {
        self.design.clone()
    }

    /// The design, and memory for the data of one access.
    pub(crate) fn design_and_scratch(&mut self) -> Option<(&dyn Design, &mut [u8])> {
        Some((self.design.as_deref()?, &mut self.scratch))
    }

    /// Response of a fault hook at `at`, if there is one.
    pub(crate) fn hooked(&self, at: u64) -> Result<(), AxiError> {
        self.hooks.answer(at)
    }

    /// Bytes, at most `most`, until the next range with a fault hook begins.
    pub(crate) fn until_hook(&self, at: u64, most: usize) -> usize {
        self.hooks.until_next(at, most)
    }

    /// Puts `design` behind all addresses, or, with `is_beyond`, behind those without memory or a window.
    pub(crate) fn set_design(&mut self, design: Arc<dyn Design>, is_beyond: bool) {
        (self.design, self.is_beyond) = (Some(design), is_beyond);
    }

    /// Returns whether memory and windows are there beside the design.
    pub(crate) const fn is_design_beyond(&self) -> bool {
        self.is_beyond
    }

    /// Returns whether the design answers at `at`.
    pub(crate) fn is_of_design(&self, at: u64) -> bool {
        self.design.is_some() && (!self.is_beyond || self.own_place(at).is_err())
    }

    pub(crate) const fn resident_pages(&self) -> usize {
        self.memory.resident_pages()
    }

    /// Makes `length` bytes at `at` answer SLVERR from now on. A length of 0 ends it.
    pub(crate) fn poison(&mut self, at: CardAddr, length: u64) {
        self.hooks.poisoned = range(at, length);
    }

    /// Makes `length` bytes at `at` never answer from now on. A length of 0 ends it.
    pub(crate) fn silence(&mut self, at: CardAddr, length: u64) {
        self.hooks.silent = range(at, length);
    }

    /// Takes the set of windows whose commit word was written.
    pub(crate) const fn take_committed(&mut self) -> u32 {
        let committed = self.committed;
        self.committed = 0;
        committed
    }

    pub(crate) const fn has_committed(&self) -> bool {
        self.committed != 0
    }

    pub(crate) fn window(&self, index: usize) -> Option<&[u8]> {
        self.windows.get(index).map(Vec::as_slice)
    }

    /// Returns whether the whole range is in card memory (not in a transmit window).
    pub(crate) fn is_memory(&self, at: CardAddr, length: u64) -> bool {
        match at.get().checked_sub(self.base) {
            Some(offset) => offset <= self.memory.size() && length <= self.memory.size() - offset,
            None => false,
        }
    }

    /// Clears card memory to its power-on state: unwritten zeros.
    pub(crate) fn clear_memory(&mut self) {
        self.memory.clear();
    }

    pub(crate) fn clear_windows(&mut self) {
        self.committed = 0;
        for window in &mut self.windows {
            window.fill(0);
        }
    }

    fn place(&self, at: u64) -> Result<MemoryLocation, AxiError> {
        self.hooks.answer(at)?;
        if self.is_of_design(at) { Ok(MemoryLocation::Design) } else { self.own_place(at) }
    }

    /// Memory or window at an address.
    fn own_place(&self, at: u64) -> Result<MemoryLocation, AxiError> {
        if let Some(offset) = at.checked_sub(self.base)
            && offset < self.memory.size()
        {
            return Ok(MemoryLocation::Memory { offset });
        }
        let offset = at.checked_sub(self.window_base).ok_or(AxiError::Decode)?;
        let index = usize::try_from(offset / self.stride).map_err(|_| AxiError::Decode)?;
        if index >= self.windows.len() {
            return Err(AxiError::Decode);
        }
        let offset = usize::try_from(offset % self.stride).map_err(|_| AxiError::Decode)?;
        Ok(MemoryLocation::Window { index, offset })
    }

    /// Card memory for ordinary accesses; `None` while a fault hook is set, and with a design in its place.
    #[inline]
    pub(crate) fn plain(&mut self) -> Option<FastPathMemory<'_>> {
        if !self.hooks.none() || self.design.is_some() && !self.is_beyond {
            return None;
        }
        let (pages, written) = self.memory.pages();
        Some(FastPathMemory { base: self.base, pages, written })
    }

    /// The `length` bytes of card memory at `at`, for writing; `None` as with [`plain`](Self::plain), and outside memory.
    pub(crate) fn plain_range(&mut self, at: CardAddr, length: usize) -> Option<&mut [u8]> {
        self.plain()?;
        self.memory.range_mut(at.get().checked_sub(self.base)?, length)
    }

    /// Contiguous readable bytes from `at`: at least one, at most `most`.
    pub(crate) fn slice(&mut self, at: CardAddr, most: usize) -> Result<&[u8], AxiError> {
        let most = self.hooks.until_next(at.get(), most);
        match self.place(at.get())? {
            // The channels access it without this function.
            MemoryLocation::Design => Err(AxiError::Decode),
            place => self.bytes_at(place, most).ok_or(AxiError::Decode),
        }
    }

    /// Lets `fill` write the contiguous bytes from `at`, at most `most`. Returns the number of bytes passed to `fill`. Notes a commit word
    /// among them even if `fill` fails: those bytes were driven onto the bus.
    pub(crate) fn fill<E>(
        &mut self,
        at: CardAddr,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Result<usize, E>, AxiError> {
        let most = self.hooks.until_next(at.get(), most);
        match self.place(at.get())? {
            MemoryLocation::Memory { offset } => {
                let into = self.memory.slice_mut(offset, most).ok_or(AxiError::Decode)?;
                let count = into.len();
                Ok(fill(into).map(|()| count))
            }
            MemoryLocation::Design => {
                let length = most.min(self.scratch.len());
                let into = self.scratch.get_mut(..length).ok_or(AxiError::Decode)?;
                if let Err(error) = fill(into) {
                    return Ok(Err(error));
                }
                if let Some(design) = &self.design {
                    design.write(outside_channels(at), into).map_err(axi_error)?;
                }
                Ok(Ok(length))
            }
            MemoryLocation::Window { index, offset } => {
                let ram = self.windows.get_mut(index).ok_or(AxiError::Decode)?;
                let end = ram.len().min(offset.saturating_add(most));
                let into = ram.get_mut(offset..end).ok_or(AxiError::Decode)?;
                let count = into.len();
                let result = fill(into).map(|()| count);
                if result.is_ok() {
                    self.note_commit(index, offset, end);
                }
                Ok(result)
            }
        }
    }

    /// Notes a commit word among the bytes written from `offset` to `end` of window `index`. Its last byte counts: a word written in parts
    /// commits once.
    fn note_commit(&mut self, index: usize, offset: usize, end: usize) {
        if offset <= COMMIT_LAST && COMMIT_LAST < end {
            self.committed |= 1_u32.checked_shl(u32::try_from(index).unwrap_or(32)).unwrap_or(0);
        }
    }

    /// Reads `into.len()` bytes at `at`. The error has the address of the first refused byte.
    pub(crate) fn read(&self, at: CardAddr, into: &mut [u8]) -> Result<(), (AxiError, CardAddr)> {
        let mut rest = into;
        let mut at = at;
        while !rest.is_empty() {
            let most = self.hooks.until_next(at.get(), rest.len());
            let place = self.place(at.get()).map_err(|error| (error, at))?;
            let count = match (place, &self.design) {
                (MemoryLocation::Design, Some(design)) => {
                    let count = most.min(PAGE);
                    let into = rest.get_mut(..count).debug_expect("at most the rest").unwrap_or_default();
                    design.read(outside_channels(at), into).map_err(|error| (axi_error(error), at))?;
                    count
                }
                _ => {
                    let from = self.bytes_at(place, most).ok_or((AxiError::Decode, at))?;
                    rest.get_mut(..from.len())
                        .debug_expect("at most the rest")
                        .unwrap_or_default()
                        .copy_from_slice(from);
                    from.len()
                }
            };
            rest = rest.get_mut(count..).debug_expect("at most the rest").unwrap_or_default();
            at = advance(at, count as u64);
        }
        Ok(())
    }

    /// Contiguous bytes of memory or a window, at most `most`.
    fn bytes_at(&self, place: MemoryLocation, most: usize) -> Option<&[u8]> {
        match place {
            MemoryLocation::Memory { offset } => self.memory.slice(offset, most),
            MemoryLocation::Window { index, offset } => {
                let ram = self.windows.get(index)?;
                ram.get(offset..ram.len().min(offset.saturating_add(most)))
            }
            MemoryLocation::Design => None,
        }
    }

    /// Writes `from` at `at`. The error has the address of the first refused byte; earlier bytes are written.
    pub(crate) fn write(&mut self, at: CardAddr, from: &[u8]) -> Result<(), (AxiError, CardAddr)> {
        let mut rest = from;
        let mut at = at;
        while !rest.is_empty() {
            let filled = self.fill(at, rest.len(), |into| {
                let count = into.len();
                into.copy_from_slice(rest.get(..count).debug_expect("at most the rest").unwrap_or_default());
                Ok::<(), core::convert::Infallible>(())
            });
            let Ok(count) = filled.map_err(|error| (error, at))?;
            rest = rest.get(count..).debug_expect("at most the rest").unwrap_or_default();
            at = advance(at, count as u64);
        }
        Ok(())
    }

    /// Copies at most `most` bytes (never more than a page) within the space, forwards. Returns the number of bytes copied. The error
    /// tells whether reading or writing failed: `Err((error, true))` is the write.
    pub(crate) fn copy(
        &mut self,
        from: CardAddr,
        to: CardAddr,
        most: usize,
    ) -> Result<usize, (AxiError, bool)> {
        if self.design.is_some() && !self.is_beyond {
            // The copy engine belongs to the model's own design.
            return Err((AxiError::Decode, false));
        }
        let source = self.place(from.get()).map_err(|error| (error, false))?;
        let count = match source {
            MemoryLocation::Design => self.hooks.until_next(from.get(), most.min(PAGE)),
            _ => self.slice(from, most).map_err(|error| (error, false))?.len(),
        };
        let target = self.place(to.get()).map_err(|error| (error, true))?;
        if let (MemoryLocation::Memory { offset: source }, MemoryLocation::Memory { offset: target }) =
            (source, target)
        {
            let page = PAGE as u64;
            let same_page = source / page == target / page;
            // Between pages, a unit of work ends at the end of either page. Within one page, all bytes are read before any is written,
            // because the ranges may overlap.
            let most = if same_page { count } else { usize::try_from(page - target % page).unwrap_or(count) };
            let count = count.min(most);
            let clear = self.hooks.until_next(to.get(), count);
            if (!same_page || clear == count) && self.memory.copy(source, target, clear).is_some() {
                return Ok(clear);
            }
        }
        if let (MemoryLocation::Memory { offset: source }, MemoryLocation::Window { index, offset }) =
            (source, target)
            && self.hooks.none()
            && let Some(from) = self.memory.slice(source, count)
            && let Some(ram) = self.windows.get_mut(index)
            && let Some(into) = ram.get_mut(offset..offset.saturating_add(from.len()))
        {
            into.copy_from_slice(from);
            let count = from.len();
            self.note_commit(index, offset, offset + count);
            return Ok(count);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let count = count.min(scratch.len());
        let result = match scratch.get_mut(..count) {
            Some(bounce) => self
                .read(from, bounce)
                .map_err(|(error, _)| (error, false))
                .and_then(|()| match (target, &self.design) {
                    (MemoryLocation::Design, Some(design)) => {
                        design.write(outside_channels(to), bounce).map_err(|error| (axi_error(error), true))
                    }
                    _ => self.write(to, bounce).map_err(|(error, _)| (error, true)),
                })
                .map(|()| count),
            None => Err((AxiError::Decode, false)),
        };
        self.scratch = scratch;
        result
    }
}

/// Access of the bypass BAR, or directly by the card's owner.
const fn outside_channels(at: CardAddr) -> AxiAccess {
    AxiAccess { unit: Unit::Xdma, at, fixed: None }
}

/// Such an access has no state: a response that is not there at once never arrives.
const fn axi_error(error: DesignError) -> AxiError {
    match error {
        DesignError::Decode => AxiError::Decode,
        DesignError::Slave => AxiError::Slave,
        DesignError::Pending => AxiError::Silent,
    }
}

/// Returns `at + count`. Addresses wrap at 64 bits like on the bus; the next access then decodes or fails.
pub(crate) const fn advance(at: CardAddr, count: u64) -> CardAddr {
    CardAddr::new(at.get().wrapping_add(count))
}
