//! Wait objects: a descriptor that becomes readable when there may be something to read or to do.
//!
//! An epoll set has three kinds of members: an event of this library, a timer, and the descriptors of engines. Events cost a system call, so they are only
//! written if a thread is about to wait ([`Wait::arm`]).

use crate::code::Code;
use crate::entry::set;
use crate::sys::{
    EIO, ENOSYS, FI_GETWAIT, FI_GETWAITOBJ, FI_WAIT_FD, FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD,
};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Wait object.
pub(crate) struct Wait {
    epoll: OwnedFd,
    event: OwnedFd,
    timer: OwnedFd,
    /// A thread waits or is about to: the next notification writes the event.
    is_armed: AtomicBool,
    /// The event was written and not read.
    is_written: AtomicBool,
    /// A waiting thread is to return without an event (`fi_cq_signal`).
    is_signalled: AtomicBool,
}

impl Wait {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        for member in [&event, &timer] {
            epoll::add(&epoll, member, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let (is_armed, is_written, is_signalled) = Default::default();
        Ok(Self { epoll, event, timer, is_armed, is_written, is_signalled })
    }

    /// Descriptor for the program's own waiting.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Adds an engine's descriptor. Closing the descriptor removes it.
    pub(crate) fn watch(&self, engine: BorrowedFd<'_>) {
        // It fails if the descriptor is a member already: an endpoint may be bound to one queue for both directions.
        let _ = epoll::add(&self.epoll, engine, epoll::EventData::new_u64(1), epoll::EventFlags::IN);
    }

    /// Wakes the thread that waits, if there is one. Call it after the change that the thread waits for.
    pub(crate) fn notify(&self) {
        if self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst) {
            self.write();
        }
    }

    /// Makes the thread that waits return, or the next one that does.
    pub(crate) fn signal(&self) {
        self.is_signalled.store(true, Ordering::SeqCst);
        self.write();
    }

    /// Takes a signal.
    pub(crate) fn take_signal(&self) -> bool {
        self.is_signalled.swap(false, Ordering::SeqCst)
    }

    /// Whether there is a signal.
    pub(crate) fn is_signalled(&self) -> bool {
        self.is_signalled.load(Ordering::SeqCst)
    }

    /// Wakes the other threads that wait.
    pub(crate) fn write(&self) {
        self.is_written.store(true, Ordering::SeqCst);
        // The counter of the event cannot overflow: `arm` reads it.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Begins a wait. The caller then checks for events, and waits only if there are none.
    pub(crate) fn arm(&self) {
        if self.is_written.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        self.is_armed.store(true, Ordering::SeqCst);
    }

    /// Reverts [`arm`](Self::arm).
    pub(crate) fn disarm(&self) {
        self.is_armed.store(false, Ordering::SeqCst);
    }

    /// Makes the descriptor readable no later than after `span`: engines have deadlines.
    pub(crate) fn limit(&self, span: Duration) {
        // Zero stops a timer.
        let span = span.max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: span.subsec_nanos().into(),
        };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: interval, it_value: value },
        );
    }

    /// Waits for an event, for `span` at most.
    pub(crate) fn sleep(&self, span: Duration) {
        sleep(self.epoll.as_fd(), span);
    }
}

/// Creates the wait object of a queue or counter.
pub(crate) fn for_object(wait_object: c_int) -> Result<Option<Wait>, Code> {
    match wait_object {
        FI_WAIT_NONE => Ok(None),
        FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => Wait::new().map(Some).map_err(|_| EIO),
        _ => Err(ENOSYS),
    }
}

/// Commands of objects that have a wait object.
pub(crate) fn control(
    wait_object: c_int,
    wait: Option<&Wait>,
    command: c_int,
    argument: *mut c_void,
) -> Result<c_int, Code> {
    match (command, wait) {
        (FI_GETWAIT, Some(wait)) if wait_object == FI_WAIT_FD => set(argument.cast(), wait.descriptor())?,
        (FI_GETWAITOBJ, _) => set(argument.cast(), wait_object)?,
        _ => return Err(ENOSYS),
    }
    Ok(0)
}

/// Waits until `descriptor` is readable, for `span` at most. Signals of the operating system end it, too.
fn sleep(descriptor: BorrowedFd<'_>, span: Duration) {
    let timeout = Timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: span.subsec_nanos().into(),
    };
    let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout));
}
