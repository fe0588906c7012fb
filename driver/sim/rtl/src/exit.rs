//! End of the process while the simulator's thread works.
#![expect(unsafe_code, reason = "a function of the C library without a safe counterpart")]

use std::ffi::c_int;

// SAFETY: this is the declaration of POSIX. `_exit` takes any status, needs nothing of its caller and does not return.
unsafe extern "C" {
    safe fn _exit(status: c_int) -> !;
}

/// Ends the process at once. The functions that `exit` calls first would destroy the model while the simulator's thread uses it.
pub(crate) fn exit_now(status: c_int) -> ! {
    _exit(status)
}
