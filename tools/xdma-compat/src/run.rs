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
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use crate::device::Device;
use crate::filter;
use crate::listener::{Listener, last_error};
use crate::server::Supervisor;

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
/// all its children have ended. A program that has not ended at `limit` is killed.
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
    // Orphans of the program remain descendants of this process, whose memory it may access.
    rustix::process::set_child_subreaper(Pid::from_raw(1)).map_err(step("subreaper"))?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(step("socketpair"))?;
    let filter = filter::program();
    let sender = theirs.as_raw_fd();
    let install = move || install(&filter, sender);
    // SAFETY: between fork and exec the closure makes system calls only: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(install) };
    let devices: Arc<[Device]> = devices.into();
    // The program's exec waits for an answer already, so the supervisor must run before `spawn` returns.
    let server = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        let listener = receive(&ours)?;
        let supervisor = Supervisor::new(Listener::new(listener), devices);
        supervisor.serve(true);
        Some(supervisor)
    });
    let server = server.map_err(|source| RunError::Supervision { step: "thread", source })?;
    let spawned = command.spawn();
    // The server's receive ends if the program was not started.
    drop(command);
    drop(theirs);
    let child = spawned.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL) => {
            RunError::Supervision { step: "seccomp filter (Linux 5.9 or newer)", source }
        }
        _ => RunError::Start { program: program.clone(), source },
    })?;
    started(child.id());
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(Errno::SRCH).map_err(step("pid"))?;
    if !ends(pid, limit).map_err(step("wait"))? {
        // Its children lose the card when this process ends.
        let _ = kill_process(pid, Signal::KILL);
        return Err(RunError::TimedOut { program });
    }
    let status = status_of(pid).map_err(step("wait"))?;
    // Children of the program may still run.
    let supervisor = server.join().ok().flatten();
    status
        .or_else(|| supervisor?.tracer.status(pid.as_raw_pid()))
        .map(ExitStatus::from_raw)
        .ok_or(Errno::CHILD)
        .map_err(step("wait"))
}

/// Waits for the end of a child, until `limit`. Returns whether it has ended.
///
/// A plain wait would also take the stops of a traced child, which are the tracer's.
fn ends(pid: Pid, limit: Option<Instant>) -> Result<bool, Errno> {
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        // A span longer than the kernel supports waits without limit.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], left.as_ref()) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Status of a child that has ended. `None`: the tracer has taken it.
fn status_of(pid: Pid) -> Result<Option<i32>, Errno> {
    match waitpid(Some(pid), WaitOptions::empty()) {
        Ok(Some((_, status))) => Ok(Some(status.as_raw())),
        Ok(None) | Err(Errno::CHILD) => Ok(None),
        Err(error) => Err(error),
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
