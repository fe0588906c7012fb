//! Types and constants of `include/fpga.h`, which the build script writes. Their names are those of the header, except [`Status`], which is
//! `fpga_status`.
//!
//! Numbers of statuses are part of the ABI: a new status gets the next number, and none changes its meaning.

#![allow(non_camel_case_types, dead_code, reason = "names of C; not every constant is used")]

use core::ffi::CStr;

/// Type that memory of C programs may hold: every bit pattern is a value.
///
/// # Safety
/// Integers, addresses, and structures and arrays of them only.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for u32 {}

/// Returns a structure of zeros.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: every bit pattern is a value of the type.
    unsafe { core::mem::zeroed() }
}

/// Name and size of a structure, and its members with their offsets.
#[cfg(test)]
type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

include!(concat!(env!("OUT_DIR"), "/abi.rs"));

impl Status {
    /// Text for `fpga_status_name`.
    pub(crate) const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"ok",
            Self::Argument => c"invalid argument",
            Self::Handle => c"invalid handle",
            Self::Concurrent => c"handle in use by another thread",
            Self::Open => c"card cannot be opened",
            Self::InUse => c"in use",
            Self::Unsupported => c"not supported by this card",
            Self::Range => c"out of range",
            Self::NoMemory => c"out of memory",
            Self::Full => c"ring is full",
            Self::TimedOut => c"timed out",
            Self::Fault => c"transfer failed",
            Self::Wedged => c"engine does not stop",
            Self::Gone => c"card is gone",
            Self::Ticket => c"unknown ticket",
            Self::System => c"system error",
            Self::Internal => c"internal error",
            Self::Stopped => c"stream has ended",
            Self::Lost => c"packet is lost",
            Self::Peer => c"other node does not answer or refuses",
            Self::Cancelled => c"cancelled",
            Self::Process => c"handle of another process",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::process::Command;

    use super::*;
    use crate::call::read_options;

    #[test]
    fn structures_have_layout_of_header() {
        let mut program = String::from("#include <fpga.h>\n");
        for (name, size, members) in LAYOUTS {
            writeln!(program, "_Static_assert(sizeof({name}) == {size}, \"{name}\");").unwrap();
            for (member, offset) in *members {
                let text = format!("offsetof({name}, {member}) == {offset}, \"{name}.{member}\"");
                writeln!(program, "_Static_assert({text});").unwrap();
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("layout.c");
        std::fs::write(&file, program).unwrap();
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
        let done = Command::new("cc").args(["-std=c11", "-fsyntax-only", "-I", include]).arg(file).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn options_of_newer_caller_are_refused_if_set() {
        let mut bytes = [0_u8; size_of::<fpga_card_info>() + 8];
        let from = bytes.as_ptr().cast::<fpga_card_info>();
        assert!(read_options(from, bytes.len()).is_ok());
        *bytes.last_mut().unwrap() = 1;
        let from = bytes.as_ptr().cast::<fpga_card_info>();
        assert!(read_options(from, bytes.len()).is_err());
    }
}
