//! Parts of libfabric that the provider does not have: the reason of each refusal, and what to do instead.
//!
//! Calls of a program are refused with a warning, once for each part. Hints are refused with a message for the search of a cause: programs try
//! several.

use crate::code::Code;
use crate::log;
use crate::sys::*;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

/// Part that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    PollSets,
    WaitSets,
    Fence,
    LongDouble,
}

/// Parts of which a warning was written, by number.
static WARNED: AtomicU64 = AtomicU64::new(0);

/// Capabilities and flags of other providers, by bit.
const NAMES: [(u64, &str); 10] = [
    (FI_FENCE, "FI_FENCE (wait for the completions of earlier operations instead)"),
    (FI_SOURCE_ERR, "FI_SOURCE_ERR (FI_SOURCE reports unknown senders as FI_ADDR_NOTAVAIL)"),
    (FI_TRIGGER, "FI_TRIGGER"),
    (FI_COLLECTIVE, "FI_COLLECTIVE"),
    (FI_MULTICAST, "FI_MULTICAST"),
    (FI_HMEM, "FI_HMEM"),
    (FI_SHARED_AV, "FI_SHARED_AV"),
    (FI_VARIABLE_MSG, "FI_VARIABLE_MSG"),
    (FI_NAMED_RX_CTX, "FI_NAMED_RX_CTX"),
    (FI_COMMIT_COMPLETE, "FI_COMMIT_COMPLETE"),
];

/// Returns the names of capabilities or flags, and the value of those without a known name.
pub(crate) fn names(bits: u64) -> String {
    let known = NAMES.iter().filter(|(bit, _)| bits & bit != 0);
    let mut names: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
    let other = NAMES.iter().fold(bits, |rest, (bit, _)| rest & !bit);
    if other != 0 {
        names.push(format!("{other:#x}"));
    }
    names.join(", ")
}

impl Part {
    const fn text(self) -> &'static str {
        match self {
            Self::PollSets => {
                "poll sets (fi_poll_open) are not supported: call fi_cq_read and fi_cntr_read for each queue and counter"
            }
            Self::WaitSets => {
                "wait sets (fi_wait_open) are not supported: open queues with FI_WAIT_FD, and call fi_trywait and poll"
            }
            Self::Fence => {
                "FI_FENCE is not supported: wait for the completions of earlier operations before the one that depends on them"
            }
            Self::LongDouble => {
                "atomic operations on long double are not supported: use double, or send the values in messages"
            }
        }
    }

    /// Writes the warning, unless it was written before.
    pub(crate) fn warn(self) {
        let bit = 1 << self as u32;
        if WARNED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            log::warn(format_args!("{}", self.text()));
        }
    }
}

/// Checks the flags of an operation.
///
/// # Errors
/// `FI_EBADFLAGS` for flags besides `known`.
#[inline]
pub(crate) fn check_operation_flags(flags: u64, known: u64) -> Result<(), Code> {
    if flags & !known == 0 {
        return Ok(());
    }
    if flags & FI_FENCE != 0 {
        Part::Fence.warn();
    }
    Err(EBADFLAGS)
}

/// Returns the error for an atomic operation on a type that does not have it.
#[cold]
pub(crate) fn refuse_datatype(datatype: c_int) -> Code {
    if matches!(datatype, FI_LONG_DOUBLE | FI_LONG_DOUBLE_COMPLEX) {
        Part::LongDouble.warn();
    }
    EOPNOTSUPP
}

/// Function of domains: refuses poll sets.
pub(crate) unsafe extern "C" fn poll_open(_: *mut FidDomain, _: *mut c_void, _: *mut *mut c_void) -> c_int {
    Part::PollSets.warn();
    -ENOSYS.get()
}

/// Function of fabrics: refuses wait sets.
pub(crate) unsafe extern "C" fn wait_open(_: *mut FidFabric, _: *mut c_void, _: *mut *mut c_void) -> c_int {
    Part::WaitSets.warn();
    -ENOSYS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_bits_have_advice_or_value() {
        assert_eq!(names(FI_TRIGGER | FI_HMEM | 1 << 62), "FI_TRIGGER, FI_HMEM, 0x4000000000000000");
        assert!(names(FI_FENCE).contains("completions"));
    }
}
