//! PCI configuration space: type-0 header, the capabilities PM, MSI, MSI-X and PCI Express, and the extended ones for
//! advanced error reporting, the serial number and (8 GT/s and faster) Secondary PCI Express.
//!
//! Four byte arrays define it (`layout`): the value, the bits that software may write, the bits that a written 1 clears, and the bits that
//! survive a reset. BAR sizing (write all ones, read the size back) and accesses of any width need no further code.

mod errors;
pub(crate) mod kinds;
mod layout;

use crate::description::CardDescription;
pub(crate) use kinds::BadCompletion;
pub use kinds::{CorrectableError, PciError, UncorrectableError};
use layout::{COMMAND, Map, POWER_STATE, ROM, STATUS, command, express, msi, msix, status};

/// Bytes of configuration space (PCI Express).
pub const CONFIG_SIZE: usize = 4096;

/// Purpose of a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BarRole {
    /// AXI4-Lite: identity block, CDMA, NI.
    User,
    /// XDMA registers and MSI-X table.
    Dma,
    /// Window onto card memory.
    Bypass,
}

/// One implemented BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BarLayout {
    /// BAR register index; a 64-bit BAR also takes the next.
    pub index: u8,
    /// Purpose of the BAR.
    pub role: BarRole,
    /// Size in bytes.
    pub size: u64,
    /// The BAR has a 64-bit address.
    pub wide: bool,
    /// Prefetchable.
    pub prefetchable: bool,
}

/// Method by which the card signals interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InterruptMethod {
    /// Legacy line (INTx), the method when neither MSI nor MSI-X is enabled.
    #[default]
    Line,
    /// MSI.
    Msi,
    /// MSI-X, which takes precedence where both are enabled (PG195).
    Msix,
}

/// Effect of a configuration space write on the rest of the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct ConfigEffect {
    /// A function-level reset was initiated.
    pub(crate) function_reset: bool,
}

/// The configuration space of one function.
#[derive(Debug, Clone)]
pub struct ConfigSpace {
    map: Map,
    /// The value after power-on.
    initial: layout::Bytes,
    bars: Vec<BarLayout>,
    has_msi: bool,
    has_msix: bool,
    has_aer: bool,
    rom_size: u32,
    ignores_intx_disable: bool,
    switches: CachedFlags,
}

/// Cache of the flags that the card needs at every access and every message.
#[derive(Clone, Copy, Debug, Default)]
struct CachedFlags {
    memory: bool,
    master: bool,
    line: bool,
    method: InterruptMethod,
    msix_masked: bool,
    msi_mask: u32,
    /// Number of enabled messages, minus one.
    msi_last: u8,
}

impl ConfigSpace {
    /// Creates the configuration space of the described card, as after power-on.
    #[must_use]
    pub fn new(description: &CardDescription) -> Self {
        let bars = layout::bars(description);
        let map = Map::new(description, &bars);
        let mut space = Self {
            initial: map.value.clone(),
            has_msi: description.interrupts.msi_vectors > 0,
            has_msix: map.value.get(layout::MSIX).is_some_and(|id| *id != 0),
            has_aer: description.pci.aer,
            rom_size: description.bars.rom.as_ref().map_or(0, |rom| u32::try_from(rom.size).unwrap_or(0)),
            ignores_intx_disable: description.quirks.intx_disable_ignored,
            map,
            bars,
            switches: CachedFlags::default(),
        };
        space.read_switches();
        space
    }

    /// The implemented BARs by index.
    #[must_use]
    pub fn bars(&self) -> &[BarLayout] {
        &self.bars
    }

    /// Bytes of the expansion ROM; 0 if there is none.
    #[must_use]
    pub const fn rom_size(&self) -> u32 {
        self.rom_size
    }

    /// Returns whether the ROM answers reads: its own decoder and memory decoding are both on.
    #[must_use]
    pub fn rom_decoding(&self) -> bool {
        self.rom_size > 0 && self.memory_decoding() && self.map.word(ROM) & 1 != 0
    }

    /// Reads `into.len()` bytes at `offset`; bytes past the space read as ones.
    pub fn read(&self, offset: u16, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.map.value.get(usize::from(offset) + index).copied().unwrap_or(0xFF);
        }
    }

    /// Writes `from` at `offset`, following each bit's access rule. Bytes past the space are ignored.
    pub(crate) fn write(&mut self, offset: u16, from: &[u8]) -> ConfigEffect {
        let power = self.power_state();
        let start = usize::from(offset);
        for (index, new) in from.iter().enumerate() {
            let at = start + index;
            let (Some(value), Some(writable), Some(clears)) =
                (self.map.value.get_mut(at), self.map.writable.get(at), self.map.clears.get(at))
            else {
                break;
            };
            *value = ((*value & !writable) | (new & writable)) & !(new & clears);
        }
        // D1 and D2 do not exist: the write completes and the state does not change (PCI power management 3.2.4).
        if matches!(self.power_state(), 1 | 2) {
            let rest = self.map.word(POWER_STATE) & !3;
            self.map.set_word(POWER_STATE, rest | power);
        }
        if self.has_aer {
            self.forget_cleared_error();
        }
        self.read_switches();
        let high = express::DEVICE_CONTROL + 1;
        let written = high.checked_sub(start).and_then(|index| from.get(index));
        let initiates = written.is_some_and(|byte| u16::from(*byte) << 8 & express::INITIATE_FLR != 0);
        ConfigEffect { function_reset: initiates && self.flr_capable() }
    }

    fn flr_capable(&self) -> bool {
        self.map.dword(express::DEVICE_CAPABILITIES) & express::FLR_CAPABLE != 0
    }

    fn power_state(&self) -> u16 {
        self.map.word(POWER_STATE) & 3
    }

    /// Sets the values after a conventional reset: BAR addresses, command and capabilities are lost; sticky bits stay.
    pub(crate) fn reset(&mut self) {
        let Map { value, sticky, .. } = &mut self.map;
        for ((value, initial), sticky) in value.iter_mut().zip(self.initial.iter()).zip(sticky.iter()) {
            *value = *value & sticky | initial & !sticky;
        }
        self.read_switches();
    }

    /// Sets the values after a function-level reset, which also keeps what the link partner relies on (PCIe 6.6.2).
    pub(crate) fn function_reset(&mut self) {
        let payload = self.map.word(express::DEVICE_CONTROL) & express::MAX_PAYLOAD;
        let link = self.map.word(express::LINK_CONTROL);
        self.reset();
        let control = self.map.word(express::DEVICE_CONTROL) & !express::MAX_PAYLOAD;
        self.map.set_word(express::DEVICE_CONTROL, control | payload);
        self.map.set_word(express::LINK_CONTROL, link);
    }

    /// Sets the values after power-on.
    pub(crate) fn power_on(&mut self) {
        self.map.value = self.initial.clone();
        self.read_switches();
    }

    fn read_switches(&mut self) {
        let command = self.map.word(COMMAND);
        let awake = self.power_state() == 0;
        let msix = if self.has_msix { self.map.word(msix::CONTROL) } else { 0 };
        let msi = if self.has_msi { self.map.word(msi::CONTROL) } else { 0 };
        let method = if msix & msix::ENABLE != 0 {
            InterruptMethod::Msix
        } else if msi & msi::ENABLE != 0 {
            InterruptMethod::Msi
        } else {
            InterruptMethod::Line
        };
        // A larger number of messages than supported is limited to the supported number.
        let messages = (msi >> 4 & 7).min(msi >> 1 & 7);
        let masking = msi & msi::MASKING != 0;
        let disabled = command & command::INTX_DISABLE != 0 && !self.ignores_intx_disable;
        self.switches = CachedFlags {
            memory: command & command::MEMORY != 0 && awake,
            master: command & command::MASTER != 0 && awake,
            line: method == InterruptMethod::Line && !disabled && awake,
            method,
            msix_masked: msix & msix::FUNCTION_MASK != 0,
            msi_mask: if masking { self.map.dword(msi::MASK) } else { 0 },
            msi_last: u8::try_from((1_u16 << messages) - 1).unwrap_or(0),
        };
    }

    /// Returns whether the card answers memory accesses: decoding is on and the function is in D0.
    #[must_use]
    pub const fn memory_decoding(&self) -> bool {
        self.switches.memory
    }

    /// Returns whether the card may send requests of its own.
    #[must_use]
    pub const fn bus_master(&self) -> bool {
        self.switches.master
    }

    /// Interrupt method in force.
    #[must_use]
    pub const fn interrupt_method(&self) -> InterruptMethod {
        self.switches.method
    }

    /// Returns whether MSI-X is enabled.
    #[must_use]
    pub fn msix_enabled(&self) -> bool {
        self.switches.method == InterruptMethod::Msix
    }

    /// Returns whether MSI is enabled, even if MSI-X takes precedence.
    #[must_use]
    pub fn msi_enabled(&self) -> bool {
        self.has_msi && self.map.word(msi::CONTROL) & msi::ENABLE != 0
    }

    /// Returns the number of MSI messages that software has enabled, a power of two; 0 while MSI is off.
    #[must_use]
    pub fn msi_messages(&self) -> u16 {
        if self.msi_enabled() { u16::from(self.switches.msi_last) + 1 } else { 0 }
    }

    /// Returns whether all MSI-X vectors are masked.
    #[must_use]
    pub const fn msix_function_masked(&self) -> bool {
        self.switches.msix_masked
    }

    /// Returns whether the line may be asserted: it is the method in force and is not disabled.
    pub(crate) const fn line_allowed(&self) -> bool {
        self.switches.line
    }

    /// Masked MSI messages, one bit each.
    pub(crate) const fn msi_mask(&self) -> u32 {
        self.switches.msi_mask
    }

    /// MSI message for `vector`: its low bits, according to the number of enabled messages (a function changes only those bits of the
    /// data).
    pub(crate) const fn msi_message(&self, vector: u8) -> u8 {
        vector & self.switches.msi_last
    }

    /// Sets the pending bits of MSI if it has masks.
    pub(crate) fn set_msi_pending(&mut self, pending: u32) {
        if self.has_msi && self.map.word(msi::CONTROL) & msi::MASKING != 0 {
            self.map.set_bytes(msi::PENDING, &pending.to_le_bytes());
        }
    }

    /// Sets the interrupt status bit: an interrupt is pending inside the function, even if the line is disabled.
    pub(crate) fn set_interrupt_status(&mut self, pending: bool) {
        let rest = self.map.word(STATUS) & !status::INTERRUPT;
        self.map.set_word(STATUS, if pending { rest | status::INTERRUPT } else { rest });
    }

    /// Sets the two MSI-X bits that the host's kernel owns, without counting as an access.
    pub(crate) fn set_msix(&mut self, enabled: bool) {
        if !self.has_msix {
            return;
        }
        let control = self.map.word(msix::CONTROL) & !(msix::ENABLE | msix::FUNCTION_MASK);
        self.map.set_word(msix::CONTROL, if enabled { control | msix::ENABLE } else { control });
        self.read_switches();
    }

    /// Sets memory decoding and bus mastering without counting as an access.
    pub(crate) fn set_command(&mut self, memory: bool, master: bool) {
        let mut command = self.map.word(COMMAND) & !(command::MEMORY | command::MASTER);
        if memory {
            command |= command::MEMORY;
        }
        if master {
            command |= command::MASTER;
        }
        self.map.set_word(COMMAND, command);
        self.read_switches();
    }

    /// Sets the state in which a kernel leaves a function after its last close: D0, memory decoding on, no DMA, MSI and MSI-X off, legacy
    /// line not disabled (`vfio_pci_core_disable` and `_enable`).
    pub(crate) fn hand_back(&mut self) {
        let awake = self.map.word(POWER_STATE) & !3;
        self.map.set_word(POWER_STATE, awake);
        if self.has_msi {
            let control = self.map.word(msi::CONTROL) & !(msi::ENABLE | msi::MESSAGES);
            self.map.set_word(msi::CONTROL, control);
        }
        let command = self.map.word(COMMAND) & !command::INTX_DISABLE;
        self.map.set_word(COMMAND, command);
        self.set_msix(false);
        self.set_command(true, false);
    }

    /// Max payload size code in force (0 = 128 B): the smaller of the configured one and the function's maximum.
    #[must_use]
    pub fn max_payload(&self) -> u32 {
        let capable = self.map.dword(express::DEVICE_CAPABILITIES) & 7;
        u32::from((self.map.word(express::DEVICE_CONTROL) & express::MAX_PAYLOAD) >> 5).min(capable)
    }

    /// Max read request code in force (0 = 128 B); the reserved codes 6 and 7 count as the largest.
    #[must_use]
    pub fn max_read_request(&self) -> u32 {
        u32::from(self.map.word(express::DEVICE_CONTROL) >> 12 & 7).min(5)
    }
}
