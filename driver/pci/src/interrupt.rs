//! Interrupts as event descriptors: the waiting half and the signalling half.
//!
//! A vector that several users share becomes several interrupts ([`Interrupt::share`]). A level-triggered interrupt (INTx) is masked by the
//! kernel (or by the server of the device) when it fires, and must be [re-armed](Interrupt::rearm) once the device has been served.

use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::{InterruptError, Process};

/// Waiting half of one interrupt vector. Its file descriptor becomes readable when interrupts have arrived, so that it can be used in any
/// event loop.
///
/// Clones share the count: interrupts that one clone takes are not seen by the others. After a fork only the parent may use it: a child takes
/// nothing, and its waits are [`InterruptError::OtherProcess`].
#[derive(Debug, Clone)]
pub struct Interrupt {
    file: Arc<OwnedFd>,
    kind: InterruptSource,
    process: Process,
}

/// Source behind the descriptor.
#[derive(Debug, Clone)]
enum InterruptSource {
    /// Event descriptor that the signalling half signals.
    Message,
    /// Event descriptor, and the function to unmask the line.
    Level(Arc<dyn Unmask>),
    /// One of several users that share `source`: the descriptor is an epoll of the source and of this user's own event descriptor.
    Shared { source: Arc<Interrupt>, members: Arc<[SharedVectorUser]>, own: usize },
    /// Any of these interrupts: the descriptor is an epoll of theirs, and nothing is taken from them.
    Any(Arc<[Interrupt]>),
}

/// Unmasks a level-triggered interrupt that is masked when it fires.
pub trait Unmask: fmt::Debug + Send + Sync {
    /// Unmasks the interrupt; a line that is still asserted fires at once.
    fn unmask(&self);
}

/// The kernel's unmask: it waits for a descriptor to be signalled.
impl Unmask for InterruptTrigger {
    fn unmask(&self) {
        self.signal();
    }
}

/// One user of a shared vector, with the descriptor by which the user that takes the interrupt notifies it.
#[derive(Debug)]
struct SharedVectorUser {
    waiting: Interrupt,
    trigger: InterruptTrigger,
}

/// Signalling half of an interrupt, for backends inside this process. Clones signal the same interrupt.
#[derive(Debug, Clone)]
pub struct InterruptTrigger {
    file: Arc<OwnedFd>,
    /// A write to the descriptor blocks while its counter is full.
    blocks: bool,
}

impl Interrupt {
    fn new(file: Arc<OwnedFd>, kind: InterruptSource) -> Self {
        Self { file, kind, process: Process::current() }
    }

    /// Creates both halves of a new interrupt.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    pub fn pair() -> Result<(Self, InterruptTrigger), InterruptError> {
        let file = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| InterruptError::NoDescriptor { source: errno.into() })?;
        let file = Arc::new(file);
        Ok((Self::new(Arc::clone(&file), InterruptSource::Message), InterruptTrigger { file, blocks: false }))
    }

    /// Creates an interrupt that fires every `period` by the system's clock, for devices that must be polled: its descriptor can be used in
    /// the same event loops.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    pub fn every(period: Duration) -> Result<Self, InterruptError> {
        let no_descriptor = |errno: Errno| InterruptError::NoDescriptor { source: errno.into() };
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let file = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(no_descriptor)?;
        // A period of zero would stop the timer.
        let period = Timespec::try_from(period.max(Duration::from_nanos(1)))
            .unwrap_or(Timespec { tv_sec: 1 << 30, tv_nsec: 0 });
        let times = Itimerspec { it_interval: period, it_value: period };
        timerfd_settime(&file, TimerfdTimerFlags::empty(), &times).map_err(no_descriptor)?;
        // Reading a timer returns the number of elapsed periods, as reading an event descriptor returns the number of signals.
        Ok(Self::new(Arc::new(file), InterruptSource::Message))
    }

    /// Creates an interrupt for waiting for any of `members`. It takes nothing from them: after a wait, call [`try_take`](Self::try_take)
    /// on each of them; until then the wait returns at once.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    pub fn any(members: &[Self]) -> Result<Self, InterruptError> {
        let no_descriptor = |errno: Errno| InterruptError::NoDescriptor { source: errno.into() };
        let file = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(no_descriptor)?;
        for (number, member) in members.iter().enumerate() {
            // A descriptor can be added once, and clones have the same one.
            if members.iter().take(number).any(|earlier| Arc::ptr_eq(&earlier.file, &member.file)) {
                continue;
            }
            let data = epoll::EventData::new_u64(0);
            epoll::add(&file, member, data, epoll::EventFlags::IN).map_err(no_descriptor)?;
        }
        Ok(Self::new(Arc::new(file), InterruptSource::Any(members.into())))
    }

    /// Makes this interrupt level-triggered: it is masked when it fires, until it is [re-armed](Self::rearm).
    #[must_use]
    pub fn level(self, unmask: Arc<dyn Unmask>) -> Self {
        Self { kind: InterruptSource::Level(unmask), ..self }
    }

    /// Splits this interrupt into `count` interrupts, for several users of one vector: the user that takes the interrupt from the vector
    /// notifies the others, so that every user learns of every interrupt, and checks whether it was its own.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    pub fn share(self, count: usize) -> Result<Vec<Self>, InterruptError> {
        let no_descriptor = |errno: Errno| InterruptError::NoDescriptor { source: errno.into() };
        let source = Arc::new(self);
        let members: Result<Vec<SharedVectorUser>, InterruptError> = (0..count)
            .map(|_| Self::pair().map(|(waiting, trigger)| SharedVectorUser { waiting, trigger }))
            .collect();
        let members: Arc<[SharedVectorUser]> = members?.into();
        let mut interrupts = Vec::with_capacity(count);
        for (own, member) in members.iter().enumerate() {
            let file = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(no_descriptor)?;
            for file_of in [source.as_fd(), member.waiting.as_fd()] {
                let data = epoll::EventData::new_u64(0);
                epoll::add(&file, file_of, data, epoll::EventFlags::IN).map_err(no_descriptor)?;
            }
            let kind =
                InterruptSource::Shared { source: Arc::clone(&source), members: Arc::clone(&members), own };
            interrupts.push(Self::new(Arc::new(file), kind));
        }
        Ok(interrupts)
    }

    /// Returns whether this and `other` are users of one vector: each one learns of the other's interrupts.
    #[must_use]
    pub fn shares_with(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (InterruptSource::Shared { source, .. }, InterruptSource::Shared { source: others, .. }) => {
                Arc::ptr_eq(source, others)
            }
            _ => Arc::ptr_eq(&self.file, &other.file),
        }
    }

    /// Takes the interrupts that have arrived since the last call. Returns their number, 0 if none. Does not wait. For [any of
    /// several](Self::any) it returns 1 if one of them can be taken.
    #[must_use]
    pub fn try_take(&self) -> u64 {
        if !self.process.is_current() {
            return 0;
        }
        if let InterruptSource::Any(_) = self.kind {
            let ready = rustix::event::poll(
                &mut [PollFd::new(&self.file, PollFlags::IN)],
                Some(&Timespec::default()),
            );
            return u64::from(ready == Ok(1));
        }
        if let InterruptSource::Shared { source, members, own } = &self.kind {
            if source.try_take() != 0 {
                members.iter().for_each(|member| member.trigger.signal());
            }
            return members.get(*own).map_or(0, |member| member.waiting.try_take());
        }
        let mut count = [0; 8];
        match rustix::io::read(self.file.as_fd(), &mut count[..]) {
            Ok(8) => u64::from_ne_bytes(count),
            // EAGAIN: none has arrived. An open event descriptor of this process has no other failure.
            Ok(_) | Err(_) => 0,
        }
    }

    /// Unmasks the interrupt if it is masked when it fires (INTx). Call it after the device was served and before the next wait; a line
    /// that is still asserted fires at once. Does nothing for messages.
    pub fn rearm(&self) {
        if !self.process.is_current() {
            return;
        }
        match &self.kind {
            InterruptSource::Message => {}
            InterruptSource::Level(unmask) => unmask.unmask(),
            InterruptSource::Shared { source, .. } => source.rearm(),
            InterruptSource::Any(members) => members.iter().for_each(Self::rearm),
        }
    }

    /// Returns whether its vector has other users, whose interrupts it receives too.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self.kind, InterruptSource::Shared { .. })
    }

    /// Returns whether it is level-triggered (INTx): it fires again as long as any source on the device asserts the line.
    #[must_use]
    pub fn is_level(&self) -> bool {
        match &self.kind {
            InterruptSource::Message => false,
            InterruptSource::Level(_) => true,
            InterruptSource::Shared { source, .. } => source.is_level(),
            InterruptSource::Any(members) => members.iter().any(Self::is_level),
        }
    }

    /// Notifies the other users of a shared vector, as if an interrupt had arrived. Does nothing if the vector is not shared.
    pub fn notify_shared(&self) {
        if !self.process.is_current() {
            return;
        }
        if let InterruptSource::Shared { members, own, .. } = &self.kind {
            let others = members.iter().enumerate().filter(|(number, _)| number != own);
            others.for_each(|(_, member)| member.trigger.signal());
        }
    }

    /// Ends the current or the next wait for this interrupt, as if an interrupt had arrived: for code that changes the condition on which
    /// another thread waits. Other users of a shared vector are not notified.
    pub fn wake(&self) {
        if !self.process.is_current() {
            return;
        }
        match &self.kind {
            // A backend's descriptors are its own and do not block, so the trigger need not check the counter.
            InterruptSource::Message | InterruptSource::Level(_) => {
                InterruptTrigger { file: Arc::clone(&self.file), blocks: false }.signal();
            }
            InterruptSource::Shared { members, own, .. } => {
                if let Some(member) = members.get(*own) {
                    member.trigger.signal();
                }
            }
            InterruptSource::Any(members) => members.iter().take(1).for_each(Self::wake),
        }
    }

    /// Waits until at least one interrupt has arrived and takes all that have; `None` after `timeout`.
    ///
    /// # Errors
    /// [`InterruptError::WaitFailed`] (out of kernel memory), [`InterruptError::OtherProcess`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<u64>, InterruptError> {
        self.process.check()?;
        let started = Instant::now();
        loop {
            let count = self.try_take();
            if count != 0 {
                return Ok(Some(count));
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            // A duration beyond the kernel's range is shortened: the loop waits again.
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1 << 30, tv_nsec: 0 });
            match rustix::event::poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(InterruptError::WaitFailed { source: errno.into() }),
            }
        }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Interrupt {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// The kernel's name of an event descriptor.
const EVENTFD: &[u8] = b"anon_inode:[eventfd]";

impl InterruptTrigger {
    /// Creates the signalling half of an interrupt that waits in another process, which created the descriptor.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`] if it is not an event descriptor: a write to anything else could block forever, or damage it. The
    /// kernel shows the kind in `/proc`.
    pub fn from_descriptor(file: OwnedFd) -> Result<Self, InterruptError> {
        // Whether it blocks is a flag of the file, which its owner may change at any time.
        Ok(Self { file: Arc::new(Self::check(file)?), blocks: true })
    }

    /// Returns an event descriptor of another process unchanged, and closes any other file.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    pub fn check(file: OwnedFd) -> Result<OwnedFd, InterruptError> {
        let refuse = |errno: Errno| InterruptError::NoDescriptor { source: errno.into() };
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        if rustix::fs::readlink(link, Vec::new()).map_err(refuse)?.to_bytes() != EVENTFD {
            return Err(refuse(Errno::INVAL));
        }
        Ok(file)
    }

    /// Signals one interrupt. Signals that are not taken add up. At 2^64 - 2 of them further ones are dropped, which loses nothing: the
    /// waiting side only learns that there is at least one.
    pub fn signal(&self) {
        // A descriptor of another process may block when full; the owner of a full counter has been notified already.
        if self.blocks
            && rustix::event::poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&Timespec::default()))
                != Ok(1)
        {
            return;
        }
        // The only failure of a non-blocking event descriptor is the full counter.
        let _ = rustix::io::write(self.file.as_fd(), &1_u64.to_ne_bytes());
    }
}

impl AsFd for InterruptTrigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
