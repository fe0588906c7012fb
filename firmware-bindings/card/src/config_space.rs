//! PCI configuration space: type-0 header and the capabilities PM, MSI-X and PCIe.
//!
//! Three byte arrays say everything: the value, which bits software may write, and which bits a written 1 clears.
//! That makes BAR sizing (write all ones, read the size back) and accesses of any width fall out by themselves.

use crate::description::{BarDescription, CardDescription};

/// Bytes of configuration space (PCI Express).
pub const CONFIG_SIZE: usize = 4096;

/// Command register: memory decoding.
const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
/// Memory, bus master, parity response, SERR, INTx disable.
const COMMAND_WRITABLE: u16 = 0x0546;
const STATUS_W1C: u16 = 0xF900;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const BAR0: usize = 0x10;
const CAPABILITIES: usize = 0x34;

/// Capabilities lie where the vendor's core puts them.
const PM: usize = 0x40;
const MSIX: usize = 0x60;
const PCIE: usize = 0x70;
/// Offset of the MSI-X table and pending bits in the DMA BAR (PG195).
const MSIX_TABLE: u32 = 0x8000;
const MSIX_PBA: u32 = 0x8FE0;
const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_FUNCTION_MASK: u16 = 1 << 14;

/// What a BAR is for.
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
    /// What it is for.
    pub role: BarRole,
    /// Bytes.
    pub size: u64,
    /// 64-bit address.
    pub wide: bool,
}

/// The configuration space of one function.
#[derive(Debug, Clone)]
pub struct ConfigSpace {
    value: Box<[u8; CONFIG_SIZE]>,
    writable: Box<[u8; CONFIG_SIZE]>,
    clears: Box<[u8; CONFIG_SIZE]>,
    reset_value: Box<[u8; CONFIG_SIZE]>,
    bars: Vec<BarLayout>,
    switches: Switches,
}

/// What the card asks its configuration space for at every access and every message, kept as answers.
#[derive(Clone, Copy, Debug, Default)]
struct Switches {
    memory: bool,
    master: bool,
    msix: bool,
    msix_masked: bool,
}

impl ConfigSpace {
    /// The space of the described card, as after power-on.
    #[must_use]
    pub fn new(description: &CardDescription) -> Self {
        let mut space = Self {
            value: Box::new([0; CONFIG_SIZE]),
            writable: Box::new([0; CONFIG_SIZE]),
            clears: Box::new([0; CONFIG_SIZE]),
            reset_value: Box::new([0; CONFIG_SIZE]),
            bars: bar_layout(description),
            switches: Switches::default(),
        };
        space.header(description);
        space.power_management();
        space.msix(description);
        space.express(description);
        space.reset_value = space.value.clone();
        space
    }

    /// The implemented BARs by index.
    #[must_use]
    pub fn bars(&self) -> &[BarLayout] {
        &self.bars
    }

    /// Reads `into.len()` bytes at `offset`; bytes past the space read as ones.
    pub fn read(&self, offset: u16, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.value.get(usize::from(offset) + index).copied().unwrap_or(0xFF);
        }
    }

    /// Writes `from` at `offset` by each bit's rule; what lies past the space is ignored.
    pub fn write(&mut self, offset: u16, from: &[u8]) {
        for (index, new) in from.iter().enumerate() {
            let at = usize::from(offset) + index;
            let (Some(value), Some(writable), Some(clears)) =
                (self.value.get_mut(at), self.writable.get(at), self.clears.get(at))
            else {
                break;
            };
            *value = ((*value & !writable) | (new & writable)) & !(new & clears);
        }
        self.read_switches();
    }

    /// Values as after power-on: BAR addresses, command and capabilities are lost.
    pub fn reset(&mut self) {
        self.value = self.reset_value.clone();
        self.read_switches();
    }

    fn read_switches(&mut self) {
        let (command, msix) = (self.word(COMMAND), self.word(MSIX + 2));
        let awake = self.word(PM + 4) & 3 == 0;
        self.switches = Switches {
            memory: command & COMMAND_MEMORY != 0 && awake,
            master: command & COMMAND_MASTER != 0 && awake,
            msix: msix & MSIX_ENABLE != 0,
            msix_masked: msix & MSIX_FUNCTION_MASK != 0,
        };
    }

    /// The card answers memory accesses: decoding is on and the function is in D0.
    #[must_use]
    pub const fn memory_decoding(&self) -> bool {
        self.switches.memory
    }

    /// The card may send requests of its own.
    #[must_use]
    pub const fn bus_master(&self) -> bool {
        self.switches.master
    }

    /// MSI-X is enabled.
    #[must_use]
    pub const fn msix_enabled(&self) -> bool {
        self.switches.msix
    }

    /// All vectors are masked.
    #[must_use]
    pub const fn msix_function_masked(&self) -> bool {
        self.switches.msix_masked
    }

    /// Sets the two bits that the host's kernel owns, without counting as an access.
    pub(crate) fn set_msix(&mut self, enabled: bool) {
        let control = self.word(MSIX + 2) & !(MSIX_ENABLE | MSIX_FUNCTION_MASK);
        self.set_word(MSIX + 2, if enabled { control | MSIX_ENABLE } else { control });
        self.read_switches();
    }

    /// Sets memory decoding and bus mastering without counting as an access.
    pub(crate) fn set_command(&mut self, memory: bool, master: bool) {
        let mut command = self.word(COMMAND) & !(COMMAND_MEMORY | COMMAND_MASTER);
        if memory {
            command |= COMMAND_MEMORY;
        }
        if master {
            command |= COMMAND_MASTER;
        }
        self.set_word(COMMAND, command);
        self.read_switches();
    }

    /// Max payload size code in force (0 = 128 B).
    #[must_use]
    pub fn max_payload(&self) -> u32 {
        u32::from(self.word(PCIE + 8) >> 5 & 7)
    }

    /// Max read request code in force (0 = 128 B).
    #[must_use]
    pub fn max_read_request(&self) -> u32 {
        u32::from(self.word(PCIE + 8) >> 12 & 7)
    }

    fn header(&mut self, description: &CardDescription) {
        let pci = &description.pci;
        self.set_word(0x00, pci.vendor);
        self.set_word(0x02, pci.device);
        self.field(COMMAND, 0, COMMAND_WRITABLE);
        self.field(0x06, STATUS_CAPABILITIES, 0);
        self.clear_bits(0x06, STATUS_W1C);
        let [programming, sub, base, _] = pci.class.to_le_bytes();
        self.set_bytes(0x08, &[pci.revision, programming, sub, base]);
        // Cache line size and interrupt line are scratch for the operating system.
        self.set_writable(0x0C, &[0xFF]);
        self.set_writable(0x3C, &[0xFF]);
        self.set_word(0x2C, pci.subsystem_vendor);
        self.set_word(0x2E, pci.subsystem_device);
        for bar in self.bars.clone() {
            let at = BAR0 + 4 * usize::from(bar.index);
            let address_bits = !(bar.size - 1);
            if bar.wide {
                // Memory, 64 bit, prefetchable only where reads have no side effects: the bypass window.
                let prefetchable = if bar.role == BarRole::Bypass { 0xC } else { 0x4 };
                self.set_bytes(at, &[prefetchable]);
                self.set_writable(at, &address_bits.to_le_bytes());
            } else {
                let [a, b, c, d, ..] = address_bits.to_le_bytes();
                self.set_writable(at, &[a, b, c, d]);
            }
        }
        self.set_bytes(CAPABILITIES, &[low_byte(PM)]);
    }

    fn power_management(&mut self) {
        // Version 3; power state D0 to D3hot, no soft reset on the way back (public XDMA cards report NoSoftRst+).
        self.set_bytes(PM, &[0x01, low_byte(MSIX), 0x03, 0x00, 0x08, 0x00]);
        self.set_writable(PM + 4, &[0x03]);
    }

    fn msix(&mut self, description: &CardDescription) {
        // The table lies in the DMA BAR. A function without one has no table, and must not point at user logic.
        let Some(bar) = self.bars.iter().find(|bar| bar.role == BarRole::Dma).map(|bar| u32::from(bar.index))
        else {
            self.set_bytes(PM + 1, &[low_byte(PCIE)]);
            return;
        };
        self.set_bytes(MSIX, &[0x11, low_byte(PCIE)]);
        let last = description.interrupts.msix_vectors.saturating_sub(1);
        self.field(MSIX + 2, last, MSIX_ENABLE | MSIX_FUNCTION_MASK);
        self.set_bytes(MSIX + 4, &(MSIX_TABLE | bar).to_le_bytes());
        self.set_bytes(MSIX + 8, &(MSIX_PBA | bar).to_le_bytes());
    }

    fn express(&mut self, description: &CardDescription) {
        let link = &description.link;
        let speed = u32::from(link.speed);
        let width = u32::from(link.width);
        // Version 2 endpoint, last in the list.
        self.set_bytes(PCIE, &[0x10, 0x00, 0x02, 0x00]);
        // Device: payload up to 512 B, extended tags, role-based errors; no function-level reset (bit 28).
        self.set_bytes(PCIE + 4, &0x0000_8022_u32.to_le_bytes());
        // Device control after reset: relaxed ordering, no snoop, read requests of 512 B; everything but FLR writable.
        self.field(PCIE + 8, 0x2810, 0x7FFF);
        self.clear_bits(PCIE + 10, 0x000F);
        let link_capabilities = speed | width << 4;
        self.set_bytes(PCIE + 12, &link_capabilities.to_le_bytes());
        self.field(PCIE + 16, 0, 0x01C3);
        self.set_word(PCIE + 18, low_word(speed | width << 4));
        // Completion timeout programmable (device 2), speeds supported (link 2).
        self.set_bytes(PCIE + 36, &0x0000_0012_u32.to_le_bytes());
        self.field(PCIE + 40, 0, 0x001F);
        let speeds = ((1_u32 << speed) - 1) << 1;
        self.set_bytes(PCIE + 44, &speeds.to_le_bytes());
        self.field(PCIE + 48, low_word(speed), 0x000F);
    }

    fn word(&self, at: usize) -> u16 {
        match self.value.get(at..at + 2) {
            Some([low, high]) => u16::from_le_bytes([*low, *high]),
            _ => 0,
        }
    }

    fn set_word(&mut self, at: usize, value: u16) {
        self.set_bytes(at, &value.to_le_bytes());
    }

    fn field(&mut self, at: usize, value: u16, writable: u16) {
        self.set_word(at, value);
        self.set_writable(at, &writable.to_le_bytes());
    }

    fn clear_bits(&mut self, at: usize, bits: u16) {
        for (byte, bits) in self.clears.iter_mut().skip(at).zip(bits.to_le_bytes()) {
            *byte |= bits;
        }
    }

    fn set_bytes(&mut self, at: usize, bytes: &[u8]) {
        for (byte, new) in self.value.iter_mut().skip(at).zip(bytes) {
            *byte = *new;
        }
    }

    fn set_writable(&mut self, at: usize, bits: &[u8]) {
        for (byte, bits) in self.writable.iter_mut().skip(at).zip(bits) {
            *byte = *bits;
        }
    }
}

/// A capability pointer; all capabilities lie below 0x100.
fn low_byte(at: usize) -> u8 {
    u8::try_from(at).unwrap_or(0)
}

fn low_word(value: u32) -> u16 {
    u16::try_from(value & 0xFFFF).unwrap_or(0)
}

/// Places the BARs in PG195's order, each 64-bit one taking two registers.
fn bar_layout(description: &CardDescription) -> Vec<BarLayout> {
    let bars = &description.bars;
    let mut index = 0;
    let mut layout = Vec::new();
    let mut place = |role, bar: Option<&BarDescription>| {
        if let Some(bar) = bar {
            let wide = bar.width == 64;
            layout.push(BarLayout { index, role, size: bar.size, wide });
            index += if wide { 2 } else { 1 };
        }
    };
    place(BarRole::User, bars.user.as_ref());
    place(BarRole::Dma, bars.dma.as_ref());
    place(BarRole::Bypass, bars.bypass.as_ref());
    layout
}
