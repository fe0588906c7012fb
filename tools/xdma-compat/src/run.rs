//! Start of a program below the filter.

use std::io;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::pipe::PipeFlags;
use rustix::process::Pid;

use crate::device::Device;
use crate::listener::{Listener, last_error};
use crate::server::Supervisor;
use crate::{filter, guardian};

/// Reasons why a program cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The program cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// Path or name of the program.
        program: String,
        /// Reason.
        source: io::Error,
    },
    /// The program was killed at its time limit.
    #[error("{program}: not ended within the time limit, and killed")]
    TimedOut {
        /// Path or name of the program.
        program: String,
    },
    /// The program is to run below another `run`.
    #[error(
        "{program}: this process is itself a program below `fpgactl run`, and the kernel allows one supervisor only"
    )]
    Nested {
        /// Path or name of the program.
        program: String,
    },
    /// A step of the supervision failed.
    #[error("the program cannot be supervised: {step}: {source}")]
    Supervision {
        /// The failed step.
        step: &'static str,
        /// Reason.
        source: io::Error,
    },
}

/// Runs `command`, for which `devices` are the cards 0, 1 and so on. Calls `started` with the process's number. Returns its status when it and
/// all its children have ended. A program that has not ended at `limit` is killed, with all its children. If this process ends before, so do
/// they.
///
/// Signals to this process are the caller's business: the program is in the same process group.
///
/// # Errors
/// [`RunError`].
pub fn run(
    devices: Vec<Device>,
    mut command: Command,
    limit: Option<Instant>,
    started: impl FnOnce(u32),
) -> Result<ExitStatus, RunError> {
    let step = |step| move |source: Errno| RunError::Supervision { step, source: source.into() };
    let program = command.get_program().to_string_lossy().into_owned();
    // If the guardian is killed, its children remain descendants of this process, whose memory it may access.
    rustix::process::set_child_subreaper(Pid::from_raw(1)).map_err(step("subreaper"))?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(step("socketpair"))?;
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(step("pipe"));
    let (alive, while_alive) = pipe()?;
    let (reports, report) = pipe()?;
    let filter = filter::program();
    let (sender, ended, reporter) = (theirs.as_raw_fd(), alive.as_raw_fd(), report.as_raw_fd());
    let start = move || {
        // SAFETY: this is the new process, between fork and exec.
        unsafe { guardian::interpose(ended, reporter) }?;
        install(&filter, sender)
    };
    // SAFETY: between fork and exec the closure makes system calls only: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(start) };
    let devices: Arc<[Device]> = devices.into();
    // The program's exec waits for an answer already, so the supervisor must run before `spawn` returns.
    let server = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        let listener = receive(&ours)?;
        Supervisor::new(Listener::new(listener), devices).serve(true);
        Some(())
    });
    let server = server.map_err(|source| RunError::Supervision { step: "thread", source })?;
    let spawned = command.spawn();
    // The server's receive ends if the program was not started, and the reports end with the guardian.
    drop(command);
    drop((theirs, alive, report));
    let mut guardian = spawned.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL) => {
            RunError::Supervision { step: "seccomp filter (Linux 5.9 or newer)", source }
        }
        // The kernel allows one listener for a process and its ancestors.
        Some(libc::EBUSY) => RunError::Nested { program: program.clone() },
        _ => RunError::Start { program: program.clone(), source },
    })?;
    let mut status = None;
    let mut started = Some(started);
    let in_time = loop {
        match next_report(&reports, limit).map_err(step("wait"))? {
            Report::Started(process) => {
                if let Some(started) = started.take() {
                    started(process);
                }
            }
            Report::Ended(ended) => {
                status = Some(ended);
                break true;
            }
            Report::NoMore => break true,
            Report::TimedOut => break false,
        }
    };
    if !in_time {
        // The guardian then kills the program and all its children.
        drop(while_alive);
        let _ = guardian.wait();
        return Err(RunError::TimedOut { program });
    }
    // Children of the program may still run.
    let ended = guardian.wait();
    drop(while_alive);
    let _ = server.join();
    ended.map_err(|source| RunError::Supervision { step: "wait", source })?;
    status.map(ExitStatus::from_raw).ok_or(Errno::CHILD).map_err(step("wait"))
}

/// Message of the guardian.
enum Report {
    /// Number of the program's process.
    Started(u32),
    /// Status of the program.
    Ended(i32),
    /// The guardian has ended.
    NoMore,
    TimedOut,
}

/// Waits for the guardian's next message, until `limit`.
fn next_report(reports: &OwnedFd, limit: Option<Instant>) -> Result<Report, Errno> {
    loop {
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        // A span longer than the kernel supports waits without limit.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(reports, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Ok(Report::TimedOut),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let mut message = [0; guardian::MESSAGE_BYTES];
        // A short message is written at once.
        let length = match rustix::io::read(reports, &mut message) {
            Err(Errno::INTR) => continue,
            length => length?,
        };
        let [a, b, c, d, e, f, g, h] = message;
        let value = i32::from_ne_bytes([e, f, g, h]);
        return Ok(match (length, u32::from_ne_bytes([a, b, c, d])) {
            (0, _) => Report::NoMore,
            (_, guardian::STARTED) => Report::Started(value.unsigned_abs()),
            _ => Report::Ended(value),
        });
    }
}

/// In the child: installs the filter, and sends its listener.
fn install(filter: &[libc::sock_filter], sender: i32) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap_or(0),
        filter: filter.as_ptr().cast_mut(),
    };
    // A signal handler of the program does not interrupt a transfer, which would then be repeated; that came with Linux 5.19.
    let flags = [libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | 1 << 5, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER];
    let mut result = Err(Errno::INVAL);
    for flags in flags {
        result = seccomp(flags, &program);
        if matches!(result, Err(Errno::ACCESS)) {
            rustix::thread::set_no_new_privs(true)?;
            result = seccomp(flags, &program);
        }
        if !matches!(result, Err(Errno::INVAL)) {
            break;
        }
    }
    let listener = result?;
    // SAFETY: the parent keeps the socket open until the child has started its program.
    let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(sender) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    message.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut message, SendFlags::empty())?;
    Ok(())
}

fn seccomp(flags: libc::c_ulong, program: &libc::sock_fprog) -> Result<OwnedFd, Errno> {
    // SAFETY: the program and its instructions live during the call; the kernel copies them.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, core::ptr::from_ref(program))
    };
    match i32::try_from(result) {
        // SAFETY: the kernel has returned a new descriptor, which nothing else owns.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(last_error()),
    }
}

/// Receives the listener. `None`: the child ended before it sent one.
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut parts, &mut message, RecvFlags::CMSG_CLOEXEC).ok()?;
    message.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}
