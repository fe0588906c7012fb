//! Paths and states of supervised threads, from `/proc`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::listener::{Answer, Call};
use crate::memory::Memory;

/// Directory descriptor for the current directory (`AT_FDCWD`), as a system call's argument.
pub(crate) const CURRENT: u64 = (-100_i64).cast_unsigned();

/// Absolute path of `path` in a call, without `.` and `..`. Symbolic links are not followed.
pub(crate) fn absolute(call: &Call, directory: u64, path: &[u8]) -> Option<Vec<u8>> {
    let given = Path::new(std::ffi::OsStr::from_bytes(path));
    let whole = if given.is_absolute() { given.to_path_buf() } else { base(call, directory)?.join(given) };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in whole.as_os_str().as_bytes().split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(parts.into_iter().flat_map(|part| [b"/", part].concat()).collect())
}

/// Directory that a relative path starts from.
fn base(call: &Call, directory: u64) -> Option<PathBuf> {
    // The kernel takes the low 32 bits, with sign.
    let low = u32::try_from(directory & u64::from(u32::MAX)).ok()?;
    let link = if low == u32::MAX - 99 {
        format!("/proc/{}/cwd", call.thread)
    } else {
        format!("/proc/{}/fd/{low}", call.thread)
    };
    std::fs::read_link(link).ok()
}

/// Whether the descriptor of a call has `O_NONBLOCK`.
pub(crate) fn is_nonblocking(call: &Call) -> bool {
    let [descriptor, ..] = call.arguments;
    let info =
        std::fs::read_to_string(format!("/proc/{}/fdinfo/{descriptor}", call.thread)).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    flags & rustix::fs::OFlags::NONBLOCK.bits() != 0
}

/// Whether a signal waits for the thread of a call, which it neither blocks nor ignores.
pub(crate) fn has_signal(call: &Call) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", call.thread)).unwrap_or_default();
    let mask = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") & !mask("SigIgn") != 0
}

/// Refuses a program that changes its user: the kernel would run it without that right (`no_new_privs`), or without its filter.
pub(crate) fn check_exec(call: &Call, directory: u64, address: u64) -> Answer {
    let Ok(path) = Memory::of(call.thread).path(address) else { return Answer::Continue };
    let given = Path::new(std::ffi::OsStr::from_bytes(&path));
    let whole = if given.is_absolute() {
        Some(given.to_path_buf())
    } else {
        base(call, directory).map(|base| base.join(given))
    };
    let Some(stat) = whole.as_ref().and_then(|whole| rustix::fs::stat(whole).ok()) else {
        return Answer::Continue;
    };
    let mode = rustix::fs::Mode::from_raw_mode(stat.st_mode);
    let changes = |bit, new, own| mode.contains(bit) && new != own;
    let user = changes(rustix::fs::Mode::SUID, stat.st_uid, rustix::process::geteuid().as_raw());
    let group = changes(rustix::fs::Mode::SGID, stat.st_gid, rustix::process::getegid().as_raw());
    if !rustix::process::geteuid().is_root() && (user || group) {
        tracing::error!(
            "{} runs as another user (setuid), which is impossible below `fpgactl run`; run `fpgactl run` itself as that user",
            String::from_utf8_lossy(&path)
        );
        return Answer::Failure(Errno::PERM);
    }
    Answer::Continue
}
