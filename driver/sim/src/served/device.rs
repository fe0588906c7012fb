//! The card in VFIO's terms: regions and interrupt kinds.

use crate::observer::HostEvent;
use crate::signals::Kind;
use crate::state::{CardFailure, Slot};
use fpga_card::Card;
use fpga_card::config_space::CONFIG_SIZE;
use fpga_registers::invariant::DebugExpect as _;
use fpga_vfio_user::wire::{IrqInfo, irq, irq_flags, region};

/// Offsets in a type-0 header (PCI Local Bus 3.0, section 6.1).
const CAPABILITIES: u16 = 0x34;
const INTERRUPT_PIN: u16 = 0x3D;
/// Capability ids (PCI Code and ID Assignment).
const CAP_MSI: u8 = 0x05;
const CAP_MSIX: u8 = 0x11;
/// Maximum number of capabilities below 0x100: a longer list is circular.
const MAX_CAPABILITIES: usize = 48;

/// MSI control word: enable bit, number of messages requested and allocated (log2).
const MSI_ENABLE: u16 = 1;
const MSI_CAPABLE_SHIFT: u16 = 1;
const MSI_ENABLED_SHIFT: u16 = 4;
const MSI_COUNT_MASK: u16 = 7;

/// Size of region `index` in bytes, 0 if the card has no such region; `None` if VFIO does not define it.
pub(super) fn region_size(card: &Card, index: u32) -> Option<u64> {
    match index {
        region::CONFIG => Some(CONFIG_SIZE as u64),
        region::ROM => Some(card.config().rom_size().into()),
        region::VGA => Some(0),
        bar if bar < region::ROM => {
            let layout = card.bars().iter().find(|layout| u32::from(layout.index) == bar);
            Some(layout.map_or(0, |layout| layout.size))
        }
        _ => None,
    }
}

/// Reads a region; the access lies inside it. The card handles accesses of any width and alignment.
pub(super) fn read(slot: &mut Slot, index: u32, offset: u64, into: &mut [u8]) {
    if into.is_empty() {
        return;
    }
    let (config, card) = (index == region::CONFIG, &mut slot.card);
    match slot.failure {
        CardFailure::Gone => into.fill(0xFF),
        CardFailure::AllOnes if !config => into.fill(0xFF),
        _ if config => card.config_read(
            u16::try_from(offset).debug_expect("an access inside the region").unwrap_or(u16::MAX),
            into,
        ),
        _ if index == region::ROM => card.rom_read(offset, into),
        _ => card.bar_read(
            u8::try_from(index).debug_expect("a region that exists").unwrap_or(u8::MAX),
            offset,
            into,
        ),
    }
    observe(slot, index, offset, into, false);
}

/// Reports an access of a BAR to the slot's observer.
pub(super) fn observe(slot: &Slot, index: u32, offset: u64, data: &[u8], is_write: bool) {
    if index < region::ROM {
        let bar = u8::try_from(index).debug_expect("a region that exists").unwrap_or(u8::MAX);
        slot.host.observe(&if is_write {
            HostEvent::BarWrite { bar, offset, data }
        } else {
            HostEvent::BarRead { bar, offset, data }
        });
    }
}

/// Writes a region; the access lies inside it.
pub(super) fn write(slot: &mut Slot, index: u32, offset: u64, from: &[u8]) {
    let config = index == region::CONFIG;
    let lost = slot.failure == CardFailure::Gone || slot.failure == CardFailure::AllOnes && !config;
    if from.is_empty() || lost || index == region::ROM {
        return;
    }
    observe(slot, index, offset, from, true);
    if config {
        slot.card.config_write(
            u16::try_from(offset).debug_expect("an access inside the region").unwrap_or(u16::MAX),
            from,
        );
    } else {
        slot.card.bar_write(
            u8::try_from(index).debug_expect("a region that exists").unwrap_or(u8::MAX),
            offset,
            from,
            &mut slot.host,
        );
    }
}

/// Interrupt kind with this VFIO index.
pub(super) fn kind(index: u32) -> Option<Kind> {
    Some(match index {
        irq::INTX => Kind::Intx,
        irq::MSI => Kind::Msi,
        irq::MSIX => Kind::Msix,
        irq::ERR => Kind::Err,
        irq::REQ => Kind::Req,
        _ => return None,
    })
}

/// VFIO description of an interrupt kind.
pub(super) fn irq_info(card: &Card, index: u32) -> Option<IrqInfo> {
    let kind = kind(index)?;
    let flags = match kind {
        Kind::Intx => irq_flags::EVENTFD | irq_flags::MASKABLE | irq_flags::AUTOMASKED,
        Kind::Msi | Kind::Msix => irq_flags::EVENTFD | irq_flags::MASKABLE,
        Kind::Err | Kind::Req => irq_flags::EVENTFD,
    };
    Some(IrqInfo { flags, index, count: vectors(card, kind).into() })
}

/// Returns the number of vectors of an interrupt kind.
fn vectors(card: &Card, kind: Kind) -> u16 {
    match kind {
        Kind::Intx => u16::from(byte(card, INTERRUPT_PIN) != 0),
        Kind::Msi => capability(card, CAP_MSI).map_or(0, |at| {
            let capable = word(card, at + 2) >> MSI_CAPABLE_SHIFT & MSI_COUNT_MASK;
            1 << capable.min(5)
        }),
        Kind::Msix => capability(card, CAP_MSIX).map_or(0, |at| (word(card, at + 2) & 0x7FF) + 1),
        Kind::Err | Kind::Req => 1,
    }
}

/// Enables MSI for `count` messages, as the kernel does for a program; settings that software has made itself are kept.
pub(super) fn enable_msi(card: &mut Card, count: u32) {
    let Some(at) = capability(card, CAP_MSI).filter(|_| !card.config().msi_enabled()) else { return };
    let log2 = u16::try_from(count.max(1).next_power_of_two().trailing_zeros()).unwrap_or(0).min(5);
    let control = word(card, at + 2) & !(MSI_COUNT_MASK << MSI_ENABLED_SHIFT);
    card.config_write(at + 2, &(control | MSI_ENABLE | log2 << MSI_ENABLED_SHIFT).to_le_bytes());
}

/// The reverse of [`enable_msi`].
pub(super) fn disable_msi(card: &mut Card) {
    let Some(at) = capability(card, CAP_MSI).filter(|_| card.config().msi_enabled()) else { return };
    let control = word(card, at + 2) & !MSI_ENABLE;
    card.config_write(at + 2, &control.to_le_bytes());
}

/// Offset of a capability.
fn capability(card: &Card, id: u8) -> Option<u16> {
    let mut at = byte(card, CAPABILITIES);
    for _ in 0..MAX_CAPABILITIES {
        let here = u16::from(at & !3);
        if here == 0 {
            return None;
        }
        if byte(card, here) == id {
            return Some(here);
        }
        at = byte(card, here + 1);
    }
    None
}

fn byte(card: &Card, at: u16) -> u8 {
    let mut bytes = [0];
    card.config().read(at, &mut bytes);
    bytes[0]
}

fn word(card: &Card, at: u16) -> u16 {
    let mut bytes = [0; 2];
    card.config().read(at, &mut bytes);
    u16::from_le_bytes(bytes)
}
