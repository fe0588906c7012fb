//! Requests of `ptrace(2)`.

use rustix::io::Errno;

use crate::listener::last_error;

/// A request whose data is a number.
pub(super) fn request(request: libc::c_uint, thread: i32, data: libc::c_int) -> Result<(), Errno> {
    // SAFETY: none of the requests with a number as data accesses memory of this process.
    let result = unsafe { libc::ptrace(request, thread, 0_usize, usize::try_from(data).unwrap_or(0)) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}
