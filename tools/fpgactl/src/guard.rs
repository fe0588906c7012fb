//! Register accesses that may do harm and therefore require `--force`, and the harm.
//!
//! A write to the DMA registers may harm memory that is mapped for the card. This process maps none for these commands. A process that has
//! mapped some owns the card: the kernel opens a group, or a function's own file, once (`EBUSY`), and the server of a vfio-user card has
//! one client. So the remaining question is whether an engine without an owner runs. If so, its descriptors are still being fetched, and
//! writes must be intentional.

use fpga_driver::{BarOffset, Card, ChannelName};
use fpga_registers::catalog::Block;
use fpga_registers::xdma::{ChannelBlock, MSIX_TABLE_BASE, channel_base};

use crate::bars::Role;
use crate::error::CliError;
use crate::registers::{Register, RegisterBar};

/// Size of a register in bytes.
const WORD: u64 = 4;

/// Range of a BAR that is about to be accessed.
#[derive(Debug, Clone, Copy)]
pub struct BarSpan {
    /// Role of the BAR.
    pub role: Option<Role>,
    /// Offset of the first byte.
    pub at: BarOffset,
    /// Length in bytes.
    pub length: u64,
}

impl BarSpan {
    /// Range of the one word of `register`.
    #[must_use]
    pub const fn of(register: &Register) -> Self {
        let role = match register.bar {
            RegisterBar::Dma => Role::Dma,
            RegisterBar::User => Role::User,
        };
        Self { role: Some(role), at: register.address, length: WORD }
    }

    /// Registers inside the range.
    pub fn registers<'a>(&self, all: &'a [Register]) -> impl Iterator<Item = &'a Register> + use<'a> {
        let Self { role, at, length } = *self;
        let first = at.get();
        all.iter().filter(move |register| {
            let place = register.address.get();
            role == BarSpan::of(register).role
                && place < first.saturating_add(length)
                && place.saturating_add(WORD) > first
        })
    }
}

/// Harm that reading `stretch` may do; `None`: none.
#[must_use]
pub fn read_hazard(card: &Card, all: &[Register], stretch: BarSpan) -> Option<String> {
    if let Some(harm) = unknown_design(card, all, stretch) {
        return Some(harm);
    }
    let clearing: Vec<&str> = stretch
        .registers(all)
        .filter(|register| register.read_has_side_effect())
        .map(|register| register.name.as_str())
        .collect();
    match clearing.as_slice() {
        [] => None,
        [name] => {
            Some(format!("{name} is clear-on-read, so other processes that wait for its bits lose them"))
        }
        names => Some(format!(
            "{} are clear-on-read, so other processes that wait for their bits lose them",
            names.join(", ")
        )),
    }
}

/// Harm that writing `stretch` may do to an operation in progress; `None`: none.
pub fn write_hazard(card: &Card, all: &[Register], stretch: BarSpan) -> Result<Option<String>, CliError> {
    if let Some(harm) = unknown_design(card, all, stretch) {
        return Ok(Some(harm));
    }
    if stretch.role != Some(Role::Dma) {
        return Ok(None);
    }
    if stretch.at.get().saturating_add(stretch.length) > MSIX_TABLE_BASE.get() {
        let harm =
            "this is the MSI-X page, which the system programs: interrupts would be lost or misdirected";
        return Ok(Some(harm.to_owned()));
    }
    let mut running = Vec::new();
    for name in affected_channels(card, all, stretch) {
        if is_running(card, name)? {
            running.push(name.to_string());
        }
    }
    if running.is_empty() {
        return Ok(None);
    }
    let effect = effects(all, stretch).join("; ");
    let verb = if running.len() == 1 { "is" } else { "are" };
    Ok(Some(format!("{} {verb} running, and {effect}", running.join(", "))))
}

/// Effects of the registers in `stretch`, for a report of a write; empty if they depend on the design.
#[must_use]
pub fn effects(all: &[Register], stretch: BarSpan) -> Vec<&'static str> {
    let mut effects: Vec<&str> = stretch.registers(all).map(effect).collect();
    effects.dedup();
    effects
}

fn effect(register: &Register) -> &'static str {
    if !register.access.is_writable() {
        return "this register is read-only: the write changes nothing";
    }
    let own = register.name.rsplit('.').next().unwrap_or_default();
    match register.block() {
        Some(Block::Channel(..)) if own.starts_with("control") => "this starts or stops the channel's engine",
        Some(Block::Channel(..)) if own.starts_with("status") => {
            "this clears events that the channel's owner may not have seen"
        }
        Some(Block::Channel(..)) if own.starts_with("poll_address") => {
            "the engine writes its completed count to this address in host memory"
        }
        Some(Block::Channel(..)) if own.starts_with("interrupt_enable") => {
            "this selects the events of the channel that interrupt"
        }
        Some(Block::Channel(..)) if own.starts_with("performance") => {
            "this controls only the channel's performance counters"
        }
        Some(Block::Channel(..)) => "this is part of the channel's configuration",
        Some(Block::Sgdma(..)) if own.starts_with("credits") => {
            "this adds descriptor credits: the engine may fetch this number of further descriptors"
        }
        Some(Block::Sgdma(..)) => "the next run fetches its descriptors according to this value",
        Some(Block::SgdmaCommon) => "this halts the descriptor fetch of channels, or limits it to credits",
        Some(Block::Irq) => "this selects the interrupts that are sent, and their vectors",
        Some(Block::Config) => "this is a setting of the whole DMA core",
        Some(Block::MsixVector(_) | Block::MsixPending) => "the system programs these",
        Some(Block::Cdma(_)) => "this controls the copy engine",
        Some(_) => "this is a setting of the DMA core",
        None if register.is_mapped() => "the effect depends on the design",
        None if register.name.starts_with("identity") => "this identifies the design",
        None => "this controls the network interface",
    }
}

/// Channels that a write to `stretch` may disturb.
fn affected_channels(card: &Card, all: &[Register], stretch: BarSpan) -> Vec<ChannelName> {
    let mut own = Vec::new();
    for register in stretch.registers(all) {
        match register.block() {
            Some(Block::Channel(direction, number) | Block::Sgdma(direction, number)) => {
                own.push(ChannelName { direction, number });
            }
            // All other registers of the DMA BAR are common to all channels.
            _ => return card.info().xdma.channels().collect(),
        }
    }
    own.dedup();
    own
}

/// Returns whether the channel's run bit is set or its engine is busy.
fn is_running(card: &Card, name: ChannelName) -> Result<bool, CliError> {
    let base = channel_base(name.direction, name.number);
    let read = || {
        let control = ChannelBlock::CONTROL.read(card.dma_bar(), base)?;
        let status = ChannelBlock::STATUS.read(card.dma_bar(), base)?;
        Ok(control.run() || status.busy())
    };
    read().map_err(|error| CliError::mmio(card.name(), &error))
}

/// Warning about an unknown design behind the user or the bypass BAR; `None`: it is known. A slave that does not answer blocks the bus
/// until the completion timeout; some machines treat that as a machine failure.
#[must_use]
pub fn unknown_design(card: &Card, all: &[Register], stretch: BarSpan) -> Option<String> {
    if stretch.role == Some(Role::Dma) || card.info().identity.is_some() {
        return None;
    }
    // If --map or --cdma-offset has registers in the whole range, the user has stated that it responds.
    let mut places: Vec<u64> = stretch.registers(all).map(|register| register.address.get()).collect();
    places.dedup();
    if stretch.at.is_aligned_to(WORD) && places.len() as u64 * WORD == stretch.length && stretch.length > 0 {
        return None;
    }
    let (vendor, device) = card.info().ids.subsystem;
    Some(format!(
        "the design behind this BAR is not known (subsystem {vendor:#06x}:{device:#06x}), and an access that no register answers may hang the card or the machine"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{self, Opened, Target};
    use fpga_registers::xdma::{ChannelControl, Direction};

    fn stretch(role: Role, at: u64, words: u64) -> BarSpan {
        BarSpan { role: Some(role), at: BarOffset::new(at), length: words * WORD }
    }

    /// The built-in card with H2C channel 1 running without descriptors: its run bit is set.
    fn running() -> (Opened, Vec<Register>) {
        let opened = target::open(&Target::default()).unwrap();
        let base = channel_base(Direction::H2c, 1);
        ChannelBlock::CONTROL
            .write(opened.card.dma_bar(), base, ChannelControl::new().with_run(true))
            .unwrap();
        let all = opened.registers();
        (opened, all)
    }

    #[test]
    fn guard_clearing_reads_are_found_in_span() {
        let opened = target::open(&Target::default()).unwrap();
        let all = opened.registers();
        let harm = |role, at, words| read_hazard(&opened.card, &all, stretch(role, at, words));
        assert_eq!(harm(Role::Dma, 0x40, 1), None);
        assert!(harm(Role::Dma, 0x44, 1).unwrap().starts_with("h2c0.status_rc is clear-on-read"));
        assert!(harm(Role::Dma, 0, 0x200).unwrap().contains("h2c0.status_rc, h2c1.status_rc"));
        // The same offset in another BAR is another register, and this card's user BAR is known.
        assert_eq!(harm(Role::User, 0x44, 1), None);
        assert_eq!(harm(Role::Bypass, 0x44, 1), None);
    }

    #[test]
    fn guard_writes_to_running_channel_are_hazardous() {
        let (opened, all) = running();
        let harm = |at| write_hazard(&opened.card, &all, stretch(Role::Dma, at, 1)).unwrap();
        // Another channel's registers, and offsets without a register.
        for at in [0x0004, 0x0204, 0x1104, 0x4080, 0x01F0] {
            assert_eq!(harm(at), None, "{at:#x}");
        }
        assert!(harm(0x0104).unwrap().contains("h2c1 is running, and this starts or stops"));
        assert!(harm(0x4180).unwrap().contains("h2c1 is running, and the next run"));
        // Registers common to all channels.
        for at in [0x2010, 0x3014, 0x6010] {
            assert!(harm(at).unwrap().contains("h2c1 is running"), "{at:#x}");
        }
        assert!(harm(0x8000).unwrap().contains("MSI-X"));
    }

    #[test]
    fn guard_unknown_design_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plain.yaml");
        std::fs::write(&file, "schema_version: 1\npci: {subsystem_device: 7}\n").unwrap();
        let opened = target::open(&format!("mock:{}", file.display()).parse::<Target>().unwrap()).unwrap();
        let all = opened.registers();
        for role in [Role::User, Role::Bypass] {
            let place = stretch(role, 0, 1);
            let read = read_hazard(&opened.card, &all, place).unwrap();
            assert!(read.contains("0x10ee:0x0007") && read.contains("hang"), "{read}");
            assert!(write_hazard(&opened.card, &all, place).unwrap().is_some());
        }
        assert_eq!(read_hazard(&opened.card, &all, stretch(Role::Dma, 0, 1)), None);
    }
}
