//! Registers as files: `read` and `write` on them.

use fpga_pci::{Bar, MmioError};
use fpga_registers::BarOffset;
use rustix::io::Errno;

use crate::memory::{Memory, Part};

/// Transfer direction of a call, as the program sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Moves 32-bit words between registers and a program's memory: of the register files one word per call, as with the vendor's driver
/// (`char_ctrl_read`), and of the bypass BAR all (`whole`). Returns the number of bytes moved, 0 at the end of the BAR.
///
/// # Errors
/// `EPROTO` for an offset that is not a multiple of 4, `EINVAL` for less than a word; `EIO` if the card is gone.
pub(crate) fn access(
    bar: &Bar,
    access: Access,
    memory: Memory<'_>,
    parts: &[Part],
    at: u64,
    whole: bool,
) -> Result<u64, Errno> {
    if !at.is_multiple_of(4) {
        return Err(Errno::PROTO);
    }
    let mut moved = 0;
    for part in parts {
        let words = if whole { part.length / 4 } else { (part.length / 4).min(1) };
        for word in 0..words {
            let place = at.wrapping_add(moved);
            if place.checked_add(4).is_none_or(|end| end > bar.size()) {
                return Ok(moved);
            }
            let address = part.address.wrapping_add(4 * word);
            match one(bar, access, memory, BarOffset::new(place), address) {
                Ok(()) => moved += 4,
                Err(error) if moved == 0 => return Err(error),
                Err(_) => return Ok(moved),
            }
        }
        if !whole && moved > 0 {
            break;
        }
    }
    if moved == 0 && parts.iter().any(|part| part.length > 0) { Err(Errno::INVAL) } else { Ok(moved) }
}

fn one(bar: &Bar, access: Access, memory: Memory<'_>, at: BarOffset, address: u64) -> Result<(), Errno> {
    match access {
        Access::Read => {
            memory.write(address, &bar.read32(at).map_err(|error| error_number(&error))?.to_ne_bytes())
        }
        Access::Write => {
            let value = u32::from_ne_bytes(memory.value(address)?);
            bar.write32(at, value).map_err(|error| error_number(&error))
        }
    }
}

/// Error number for a failed register access.
pub(crate) fn error_number(error: &MmioError) -> Errno {
    tracing::error!("{error}");
    Errno::IO
}
