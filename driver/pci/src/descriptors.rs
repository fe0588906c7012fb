//! Descriptors that programs started by this process inherit.

use crate::OsError;

/// Makes programs that this process starts inherit no descriptor above standard error: a parent may have left some open, and with them its
/// pipes and locks.
///
/// # Errors
/// Error of the system.
pub fn keep_descriptors() -> Result<(), OsError> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        if let Some(descriptor) =
            name.to_str().and_then(|name| name.parse().ok()).filter(|number| *number > 2)
        {
            // SAFETY: the flag takes effect in `exec` only; the descriptor stays as it is for its owner. It fails for that of the folder.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}
