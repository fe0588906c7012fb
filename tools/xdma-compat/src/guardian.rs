//! The guardian: a process between the supervisor and the program, which ends all programs if the supervisor ends.
//!
//! It is forked between fork and exec of the program's start, is not below the filter, and adopts orphans of the program. Its memory is a
//! copy of the supervisor's at that time, of which it uses nothing: it makes system calls only.

use core::mem::MaybeUninit;
use std::io;
use std::os::fd::RawFd;

use libc::{c_int, pid_t};

/// Messages to the supervisor: number and status of the program.
pub(crate) const STARTED: u32 = 1;
pub(crate) const ENDED: u32 = 2;
pub(crate) const MESSAGE_BYTES: usize = 8;

/// Forks: the caller becomes the guardian, which does not return, and the new process returns and starts the program.
///
/// The guardian writes messages to `report`. When `alive` reports its end, the supervisor has ended, and so must the programs.
///
/// # Errors
/// Those of `fork(2)` and `prctl(2)`.
///
/// # Safety
/// Only between fork and exec, in the single thread of the new process.
pub(crate) unsafe fn interpose(alive: RawFd, report: RawFd) -> io::Result<()> {
    // SAFETY: a system call with numbers only. The C library's `fork` would call handlers that may take locks.
    let forked = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match pid_t::try_from(forked) {
        Ok(0) => Ok(()),
        Ok(program) if program > 0 => {
            guard(program, alive, report);
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until the program and all its descendants have ended.
fn guard(program: pid_t, alive: RawFd, report: RawFd) -> ! {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the sets are initialised by the calls that come first; all other arguments are numbers. The handler does nothing.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_NAME, c"guardian".as_ptr());
        // The terminal's signals are for the program.
        for signal in [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGTSTP,
            libc::SIGTTIN,
            libc::SIGTTOU,
            libc::SIGPIPE,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::signal(libc::SIGCHLD, on_child as *const () as libc::sighandler_t);
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_SETMASK, signals.as_ptr(), core::ptr::null_mut());
    }
    // A card, a lock or a pipe of the supervisor must not stay open here.
    let alive = keep(alive, 0);
    let report = keep(report, 1);
    close_from(2);
    send(report, STARTED, program);
    let mut is_alive = true;
    loop {
        match reap() {
            Reaped::Ended(process, status) if process == program => send(report, ENDED, status),
            Reaped::Ended(..) => {}
            // SAFETY: ends this process.
            Reaped::NoneLeft => unsafe { libc::_exit(0) },
            Reaped::NoneYet if is_alive => is_alive = wait(alive, none.as_ptr()),
            Reaped::NoneYet => {
                kill_children();
                wait_a_little(none.as_ptr());
            }
        }
    }
}

extern "C" fn on_child(_: c_int) {}

enum Reaped {
    Ended(pid_t, c_int),
    NoneYet,
    NoneLeft,
}

fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) } {
        0 => Reaped::NoneYet,
        process if process > 0 => Reaped::Ended(process, status),
        _ if errno() == libc::EINTR => Reaped::NoneYet,
        _ => Reaped::NoneLeft,
    }
}

/// Waits for the end of a child or of the supervisor. Returns whether the supervisor still exists.
fn wait(alive: RawFd, none: *const libc::sigset_t) -> bool {
    let mut ready = libc::pollfd { fd: alive, events: libc::POLLIN, revents: 0 };
    // SAFETY: `ready` and the set are valid during the call.
    let count = unsafe { libc::ppoll(&raw mut ready, 1, core::ptr::null(), none) };
    count <= 0
}

fn wait_a_little(none: *const libc::sigset_t) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: the time and the set are valid during the call.
    unsafe { libc::ppoll(core::ptr::null_mut(), 0, &raw const time, none) };
}

/// Kills all children; theirs become children of this process then.
fn kill_children() {
    let mut text = [0_u8; 4096];
    // SAFETY: the path is a C string, and the buffer has the length given.
    let length = unsafe {
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY);
        let length = libc::read(list, text.as_mut_ptr().cast(), text.len());
        libc::close(list);
        length
    };
    let Some(text) = usize::try_from(length).ok().and_then(|length| text.get(..length)) else { return };
    // A number that the buffer cuts off has no space behind it.
    let mut number: pid_t = 0;
    for byte in text {
        match byte {
            b'0'..=b'9' => number = number.wrapping_mul(10).wrapping_add(pid_t::from(byte - b'0')),
            _ => {
                if number > 0 {
                    // SAFETY: sends a signal to a child, whose number is its own until it is reaped here.
                    unsafe { libc::kill(number, libc::SIGKILL) };
                }
                number = 0;
            }
        }
    }
}

/// Moves a descriptor to the number `to`.
fn keep(descriptor: RawFd, to: RawFd) -> RawFd {
    // SAFETY: nothing in this process uses the descriptors that are closed.
    unsafe { libc::dup2(descriptor, to) }
}

fn close_from(first: u32) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

fn send(report: RawFd, kind: u32, value: c_int) {
    let mut message = [0_u8; MESSAGE_BYTES];
    let (first, second) = message.split_at_mut(4);
    first.copy_from_slice(&kind.to_ne_bytes());
    second.copy_from_slice(&value.to_ne_bytes());
    // SAFETY: the buffer has the length given. A supervisor that has ended needs no message.
    unsafe { libc::write(report, message.as_ptr().cast(), message.len()) };
}

fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
