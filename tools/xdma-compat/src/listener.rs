//! The listener of a seccomp filter: supervised system calls arrive on it, and answers leave (`seccomp_unotify(2)`).

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::ioctl::opcode;

use crate::filter;

const RECEIVE: rustix::ioctl::Opcode = opcode::read_write::<libc::seccomp_notif>(b'!', 0);
const SEND: rustix::ioctl::Opcode = opcode::read_write::<libc::seccomp_notif_resp>(b'!', 1);
const IS_VALID: rustix::ioctl::Opcode = opcode::write::<u64>(b'!', 2);
const ADD_FD: rustix::ioctl::Opcode = opcode::write::<libc::seccomp_notif_addfd>(b'!', 3);
const SET_FLAGS: rustix::ioctl::Opcode = opcode::write::<u64>(b'!', 4);
/// Flag of a listener: caller and supervisor wait for each other, so each is woken on the CPU of the other (Linux 6.6, `linux/seccomp.h`). An
/// idle CPU would take tens of microseconds to wake.
const SYNC_WAKE_UP: u64 = 1;
/// Flag of an added descriptor: the call is answered with its number at once (`linux/seccomp.h`).
const ADD_FD_SEND: u32 = 1 << 1;

/// System call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Identifies the call at the listener.
    pub(crate) id: u64,
    /// Thread that makes it.
    pub(crate) thread: u32,
    /// Number of the call.
    pub(crate) number: libc::c_long,
    /// Its arguments.
    pub(crate) arguments: [u64; 6],
    /// Whether it is a call of a 32-bit program's interface.
    pub(crate) is_foreign: bool,
}

/// Answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The kernel executes the call.
    Continue,
    /// The call returns this value.
    Value(u64),
    /// The call fails.
    Failure(Errno),
    /// The call was answered already.
    Sent,
}

impl From<Result<u64, Errno>> for Answer {
    fn from(result: Result<u64, Errno>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(error) => Self::Failure(error),
        }
    }
}

/// Listener of a filter.
#[derive(Debug)]
pub(crate) struct Listener {
    descriptor: OwnedFd,
    /// Whether a receive ends when no process with the filter exists any more: since Linux 6.11. It needs no `poll` then.
    receive_ends: bool,
}

impl Listener {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        // Older kernels refuse it, which only costs speed.
        // SAFETY: the argument is a number, not an address.
        let _ = unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS.into(), SYNC_WAKE_UP) };
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self { descriptor, receive_ends: version(&release) >= Some((6, 11)) }
    }

    /// Waits for the next call. `None`: no process with the filter exists any more.
    pub(crate) fn next(&self) -> Option<Call> {
        let mut received = if self.receive_ends { self.receive() } else { None };
        loop {
            if received.is_some() {
                return received;
            }
            let mut ready = [PollFd::new(&self.descriptor, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
            let [ready] = ready;
            if !ready.revents().contains(PollFlags::IN) {
                return None;
            }
            received = self.receive();
        }
    }

    /// Waits for the next call. `None`: its caller was killed meanwhile, or a signal has arrived, or no process with the filter exists.
    fn receive(&self) -> Option<Call> {
        // SAFETY: all fields are integers; the kernel wants zeros.
        let mut notification: libc::seccomp_notif = unsafe { core::mem::zeroed() };
        self.control(RECEIVE, &mut notification).ok()?;
        let libc::seccomp_data { nr, arch, args, .. } = notification.data;
        Some(Call {
            id: notification.id,
            thread: notification.pid,
            number: libc::c_long::from(nr),
            arguments: args,
            is_foreign: arch != filter::ARCHITECTURE,
        })
    }

    /// Whether the call still waits. If not, its thread may have ended, and its number may belong to another one.
    pub(crate) fn is_waiting(&self, call: &Call) -> bool {
        let mut id = call.id;
        self.control(IS_VALID, &mut id).is_ok()
    }

    /// Answers a call.
    ///
    /// # Errors
    /// The caller was killed meanwhile, and does not see the answer.
    pub(crate) fn answer(&self, call: &Call, answer: Answer) -> Result<(), Errno> {
        let (val, error, flags) = match answer {
            Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE),
            // The kernel's number for an error is negative.
            Answer::Failure(error) => (0, -error.raw_os_error(), 0),
            // A return value has any bit pattern.
            Answer::Value(value) => (i64::from_ne_bytes(value.to_ne_bytes()), 0, 0),
            Answer::Sent => return Ok(()),
        };
        let mut response =
            libc::seccomp_notif_resp { id: call.id, val, error, flags: u32::try_from(flags).unwrap_or(0) };
        self.control(SEND, &mut response).map(|_| ())
    }

    /// Gives the caller a duplicate of `descriptor`, and answers its call with the number.
    ///
    /// # Errors
    /// The caller has too many descriptors, or it was killed.
    pub(crate) fn answer_with(
        &self,
        call: &Call,
        descriptor: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> Result<(), Errno> {
        let mut add = libc::seccomp_notif_addfd {
            id: call.id,
            flags: ADD_FD_SEND,
            // A descriptor is not negative.
            srcfd: u32::try_from(descriptor.as_raw_fd()).unwrap_or(u32::MAX),
            newfd: 0,
            newfd_flags: if close_on_exec { rustix::fs::OFlags::CLOEXEC.bits() } else { 0 },
        };
        self.control(ADD_FD, &mut add).map(|_| ())
    }

    /// One request to the kernel about the listener. `argument` has the type of the request's number.
    fn control<T>(&self, request: rustix::ioctl::Opcode, argument: &mut T) -> Result<i32, Errno> {
        // SAFETY: the kernel reads and writes as many bytes at `argument` as the request's number says, which is the size of `T` at all
        // calls (the constants at the head of this file).
        let result = unsafe {
            libc::ioctl(self.descriptor.as_raw_fd(), request.into(), core::ptr::from_mut(argument))
        };
        if result < 0 { Err(last_error()) } else { Ok(result) }
    }
}

/// Version and patch level of a kernel's release (`6.11.0-amd64`).
fn version(release: &str) -> Option<(u32, u32)> {
    let (version, rest) = release.split_once('.')?;
    let level = rest.split(|other: char| !other.is_ascii_digit()).next()?;
    Some((version.parse().ok()?, level.parse().ok()?))
}

/// Error of the last call to the C library.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn version_of_kernel_release() {
        assert_eq!(version("6.11.0-amd64"), Some((6, 11)));
        assert_eq!(version("6.6-rc1"), Some((6, 6)));
        assert_eq!(version("7.0"), Some((7, 0)));
        assert_eq!(version("x"), None);
    }
}
