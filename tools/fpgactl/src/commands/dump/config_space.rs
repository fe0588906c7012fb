//! Configuration space, as text and as bytes. Serial numbers are not shown.

use core::fmt::Write as _;
use fpga_registers::bytes::{u16_at, u32_at};
use fpga_registers::cast::low16;

use fpga_pci::Backend;
use fpga_pci::{ConfigSpaceError, config};

/// Size of the configuration space that every function has, and of the extended one of PCI Express (PCIe Base 5.0, 7.2).
const CONVENTIONAL: usize = 256;
const EXTENDED: usize = 4096;
/// Maximum number of entries in the extended list: each takes at least its header and a word.
const MAX_EXTENDED_CAPABILITIES: usize = (EXTENDED - CONVENTIONAL) / 8;
/// Vital product data, whose data register may hold a part of a serial number (PCI Local Bus 3.0, appendix I).
const VPD: u8 = 0x03;
/// Device serial number (PCIe Base 5.0, 7.9.3): an EUI-64 after the header.
const SERIAL: u16 = 0x0003;

/// Returns the whole configuration space, as far as it can be read.
pub(super) fn text(backend: &dyn Backend) -> Result<String, ConfigSpaceError> {
    let mut bytes = vec![0; CONVENTIONAL];
    backend.config_read(0, &mut bytes)?;
    let mut rest = vec![0; EXTENDED - CONVENTIONAL];
    // Not every system exposes the extended space, and unprivileged processes may not read it.
    let extended = u16::try_from(CONVENTIONAL).is_ok_and(|at| backend.config_read(at, &mut rest).is_ok());
    if extended {
        bytes.append(&mut rest);
    }
    let mut hidden = vec![false; bytes.len()];
    let mut hide = |at: usize, count: usize| {
        hidden.iter_mut().skip(at).take(count).for_each(|hidden| *hidden = true);
    };
    let mut text = String::new();
    let word = |at: usize| u16_at(&bytes, at).unwrap_or(u16::MAX);
    let _ = writeln!(
        text,
        "ids {:04x}:{:04x}, command {:#06x}, status {:#06x}",
        word(0),
        word(2),
        word(4),
        word(6)
    );
    match config::capabilities(backend) {
        Ok(found) => {
            for capability in found {
                let _ = writeln!(
                    text,
                    "capability {:#04x} at {:#05x}{}",
                    capability.id,
                    capability.at,
                    name(capability.id)
                );
                if capability.id == VPD {
                    hide(usize::from(capability.at) + 4, 4);
                }
            }
        }
        Err(error) => {
            let _ = writeln!(text, "capabilities: {error}");
        }
    }
    for (id, at) in extended_capabilities(&bytes) {
        let serial = if id == SERIAL { " (device serial number, not shown)" } else { "" };
        let _ = writeln!(text, "extended capability {id:#06x} at {at:#05x}{serial}");
        if id == SERIAL {
            hide(at + 4, 8);
        }
    }
    for (at, (line, hidden)) in (0..).step_by(16).zip(bytes.chunks(16).zip(hidden.chunks(16))) {
        if at >= CONVENTIONAL && line.iter().all(|byte| *byte == 0) {
            continue;
        }
        let shown: Vec<String> = line
            .iter()
            .zip(hidden)
            .map(|(byte, hidden)| if *hidden { "xx".to_owned() } else { format!("{byte:02x}") })
            .collect();
        let _ = writeln!(text, "{at:03x}: {}", shown.join(" "));
    }
    if !extended {
        text += "the extended part cannot be read\n";
    }
    Ok(text)
}

/// Id and offset of each extended capability. The walk ends at a loop or at an offset outside the extended space.
fn extended_capabilities(bytes: &[u8]) -> Vec<(u16, usize)> {
    let mut found = Vec::new();
    let mut at = CONVENTIONAL;
    while found.len() < MAX_EXTENDED_CAPABILITIES {
        let Some(header) = u32_at(bytes, at) else { break };
        if header == 0 || header == u32::MAX {
            break;
        }
        found.push((low16(header), at));
        // Bits 31:20; the two lowest are reserved.
        at = usize::try_from(header >> 20 & 0xFFC).unwrap_or(0);
        if at < CONVENTIONAL {
            break;
        }
    }
    found
}

/// Names from the PCI Code and ID Assignment Specification, section 2.
const fn name(id: u8) -> &'static str {
    match id {
        0x01 => " (power management)",
        0x03 => " (vital product data, not shown)",
        0x05 => " (MSI)",
        0x10 => " (PCI Express)",
        0x11 => " (MSI-X)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Target, reach};

    #[test]
    fn dump_serial_number_is_hidden() {
        let backend = reach(&Target::default()).unwrap();
        let text = text(&*backend).unwrap();
        assert!(text.contains("ids 10ee:903f") && text.contains("(MSI-X)"), "{text}");
        assert!(
            text.contains("serial number, not shown") && text.contains("xx xx xx xx xx xx xx xx"),
            "{text}"
        );
    }

    #[test]
    fn dump_looping_capability_list_ends() {
        let mut bytes = vec![0; EXTENDED];
        // A capability whose next pointer names itself.
        bytes[256..260].copy_from_slice(&(0x100_u32 << 20 | 1 << 16 | 1).to_le_bytes());
        assert_eq!(extended_capabilities(&bytes).len(), MAX_EXTENDED_CAPABILITIES);
        bytes[256..260].copy_from_slice(&(0xFFC_u32 << 20 | 3).to_le_bytes());
        assert_eq!(extended_capabilities(&bytes), [(3, 256)]);
        assert_eq!(extended_capabilities(&[]), []);
        assert_eq!(extended_capabilities(&vec![0xFF; EXTENDED]), []);
    }
}
