//! States of supervised threads, from `/proc`.

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::listener::{Call, Listener};

/// Return value of a call that the kernel restarts after the signal's handler, or ends with `EINTR` if the handler was installed so
/// (`ERESTARTSYS`, `linux/errno.h`).
pub(crate) const RESTART: Errno = Errno::from_raw_os_error(512);
/// SIGKILL in a mask of signals.
const KILL: u64 = 1 << 8;
/// Checks after which a call is interrupted by a signal that several threads could take.
const UNCLAIMED: u32 = 5;

/// Fields of a thread's status that signals depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Signals {
    process: u32,
    has_ended: bool,
    /// Pending for the thread, and for the whole process; without ignored ones.
    own: u64,
    shared: u64,
    blocked: u64,
}

/// Thread that a pending signal interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    /// No thread, or another one.
    None,
    /// This thread, which executes the handler.
    Own,
    /// This thread or another one.
    Any,
}

/// Wait of a call, which a signal interrupts.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    listener: &'a Listener,
    call: &'a Call,
    unclaimed: u32,
}

impl<'a> Wait<'a> {
    pub(crate) const fn new(listener: &'a Listener, call: &'a Call) -> Self {
        Self { listener, call, unclaimed: 0 }
    }

    /// Whether the caller does not exist any more.
    pub(crate) fn has_ended(&self) -> bool {
        !self.listener.is_waiting(self.call)
    }

    /// Whether the caller does not exist any more, or is about to end: what it would get would be lost. A signal that was sent before a
    /// packet is pending when the packet arrives.
    pub(crate) fn is_killed(&self) -> bool {
        let has_kill = |signals: Signals| (signals.own | signals.shared) & KILL != 0;
        self.has_ended()
            || Signals::of(self.call.thread).is_none_or(|signals| signals.has_ended || has_kill(signals))
    }

    /// Error with which the wait ends: a signal has arrived, or the caller does not exist any more.
    pub(crate) fn interruption(&mut self) -> Option<Errno> {
        if self.has_ended() {
            return Some(Errno::INTR);
        }
        match pending(self.call.thread) {
            Pending::None => self.unclaimed = 0,
            Pending::Own => return Some(RESTART),
            // Only a thread that will execute a handler may be told to restart.
            Pending::Any => self.unclaimed += 1,
        }
        (self.unclaimed >= UNCLAIMED).then_some(Errno::INTR)
    }
}

/// Thread that the pending signals of `thread` and its process interrupt. As in the kernel (`complete_signal`), a signal of a process is for its
/// main thread, unless that blocks it.
fn pending(thread: u32) -> Pending {
    let Some(signals) = Signals::of(thread) else { return Pending::None };
    let shared = signals.shared & !signals.blocked;
    if signals.own & !signals.blocked != 0 || shared != 0 && signals.process == thread {
        return Pending::Own;
    }
    if shared == 0 {
        return Pending::None;
    }
    let takes =
        |thread| Signals::of(thread).is_some_and(|other| !other.has_ended && shared & !other.blocked != 0);
    if takes(signals.process) {
        return Pending::None;
    }
    let tasks = std::fs::read_dir(format!("/proc/{}/task", signals.process)).into_iter().flatten().flatten();
    let mut others = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    if others.any(|other: u32| other != thread && takes(other)) { Pending::Any } else { Pending::Own }
}

impl Signals {
    fn of(thread: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        let mask = |name| u64::from_str_radix(field(name)?, 16).ok();
        let ignored = mask("SigIgn")?;
        Some(Self {
            process: field("Tgid")?.parse().ok()?,
            has_ended: field("State")?.starts_with(['Z', 'X']),
            own: mask("SigPnd")? & !ignored,
            shared: mask("ShdPnd")? & !ignored,
            blocked: mask("SigBlk")?,
        })
    }
}

/// Number of the process that a thread belongs to.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
    status(thread, "Tgid:")
}

/// Whether a thread of this process traces `thread`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_traced_here(thread: u32) -> bool {
    // The number is that of a thread.
    let tracer = status(thread, "TracerPid:").filter(|tracer| *tracer != 0);
    tracer.is_some_and(|tracer| std::path::Path::new(&format!("/proc/self/task/{tracer}")).exists())
}

/// Whether `thread` has ended, while other threads of its process may still run.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_ended(thread: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{thread}/status"))
        .ok()
        .and_then(|status| Signals::parse(&status))
        .is_none_or(|signals| signals.has_ended)
}

/// Whether this process may inspect every other one (`CAP_SYS_PTRACE`).
pub(crate) fn may_inspect_all() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << 19 != 0)
}

/// A number in the status of a thread.
fn status(thread: u32, name: &str) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// File position and flags of a thread's descriptor.
pub(crate) fn descriptor(thread: u32, descriptor: u32) -> Option<(u64, OFlags)> {
    let info = std::fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).ok()?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    Some((field("pos:")?.parse().ok()?, OFlags::from_bits_retain(flags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_status_are_masks_without_ignored_ones() {
        let status = "Name:\tx\nState:\tS (sleeping)\nTgid:\t17\nSigPnd:\t0000000000000003\nShdPnd:\t0000000000000006\n\
                      SigBlk:\t0000000000000008\nSigIgn:\t0000000000000002\n";
        let expected = Signals { process: 17, has_ended: false, own: 1, shared: 4, blocked: 8 };
        assert_eq!(Signals::parse(status), Some(expected));
        assert_eq!(Signals::parse("State:\tZ\n"), None);
    }

    #[test]
    fn descriptor_has_position_and_flags() {
        use std::os::fd::AsRawFd as _;
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, b"123").unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        let (position, flags) = descriptor(std::process::id(), number).unwrap();
        assert_eq!((position, flags & OFlags::RWMODE), (3, OFlags::RDWR));
        assert_eq!(descriptor(std::process::id(), 1 << 30), None);
    }
}
