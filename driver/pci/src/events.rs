//! Device events besides interrupts: bus errors, release requests (REQ), and the end of the process that serves a card.

use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;

use crate::{Interrupt, InterruptError, Process};

/// Event of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// Uncorrectable bus error, reported by Advanced Error Reporting (PCIe Base, section 6.2). Data in flight is unreliable: stop, reset
    /// the device, and continue with new handles.
    BusError,
    /// Release request: the system wants the device back, because it is about to be unplugged, or to be bound to another driver. The kernel
    /// waits, and repeats the request every few seconds, until every handle is dropped.
    ReleaseRequested,
    /// The process that serves this vfio-user card has ended, or has closed the connection. Every further access fails. Open the card again
    /// when it is served again.
    ServerGone,
}

impl fmt::Display for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BusError => "uncorrectable error on the bus: reset the device and open it again",
            Self::ReleaseRequested => "the system wants the device back: drop every handle of it",
            Self::ServerGone => {
                "the server of the card has ended: open the card again when it is served again"
            }
        })
    }
}

/// Events of one device. Its file descriptor is readable while there is an event that was not taken, for any event loop.
///
/// Clones share the events: an event that one clone takes is not seen by the others.
#[derive(Debug, Clone)]
pub struct DeviceEvents(Arc<Sources>);

#[derive(Debug)]
struct Sources {
    error: Option<Interrupt>,
    release: Option<Interrupt>,
    server: Option<Interrupt>,
    /// Epoll descriptor of all.
    any: OwnedFd,
    process: Process,
}

impl DeviceEvents {
    /// Creates the events that `error` and `release` signal; a device that lacks one never has that event.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    pub fn new(error: Option<Interrupt>, release: Option<Interrupt>) -> Result<Self, InterruptError> {
        Self::with_server(error, release, None)
    }

    /// As [`new`](Self::new), for a card that another process serves; `server` signals the end of that process.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    pub fn with_server(
        error: Option<Interrupt>,
        release: Option<Interrupt>,
        server: Option<Interrupt>,
    ) -> Result<Self, InterruptError> {
        let no_descriptor = |errno: Errno| InterruptError::NoDescriptor { source: errno.into() };
        let any = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(no_descriptor)?;
        for source in [&error, &release, &server].into_iter().flatten() {
            epoll::add(&any, source, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(no_descriptor)?;
        }
        Ok(Self(Arc::new(Sources { error, release, server, any, process: Process::current() })))
    }

    /// Whether the device can have an event: functions without PCI Express report no bus errors, and simulated cards may report nothing.
    #[must_use]
    pub fn can_have(&self, event: DeviceEvent) -> bool {
        match event {
            DeviceEvent::BusError => self.0.error.is_some(),
            DeviceEvent::ReleaseRequested => self.0.release.is_some(),
            DeviceEvent::ServerGone => self.0.server.is_some(),
        }
    }

    /// Takes an event if there is one; bus errors first, the end of the server last. Several events of a kind count as one. Does not wait.
    #[must_use]
    pub fn poll(&self) -> Option<DeviceEvent> {
        let taken = |source: &Option<Interrupt>| source.as_ref().is_some_and(|source| source.try_take() != 0);
        if taken(&self.0.error) {
            Some(DeviceEvent::BusError)
        } else if taken(&self.0.release) {
            Some(DeviceEvent::ReleaseRequested)
        } else if taken(&self.0.server) {
            Some(DeviceEvent::ServerGone)
        } else {
            None
        }
    }

    /// Waits for an event and takes it; `None` after `timeout`.
    ///
    /// # Errors
    /// [`InterruptError::WaitFailed`] (out of kernel memory), [`InterruptError::OtherProcess`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<DeviceEvent>, InterruptError> {
        self.0.process.check()?;
        let started = Instant::now();
        loop {
            let event = self.poll();
            let left = timeout.saturating_sub(started.elapsed());
            if event.is_some() || left.is_zero() {
                return Ok(event);
            }
            // A duration beyond the kernel's range is shortened: the loop waits again.
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1 << 30, tv_nsec: 0 });
            match rustix::event::poll(&mut [PollFd::new(&self.0.any, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(InterruptError::WaitFailed { source: errno.into() }),
            }
        }
    }
}

impl AsFd for DeviceEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.any.as_fd()
    }
}

impl AsRawFd for DeviceEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.0.any.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_once_errors_first() {
        let (error, report) = Interrupt::pair().unwrap();
        let (release, request) = Interrupt::pair().unwrap();
        let events = DeviceEvents::new(Some(error), Some(release)).unwrap();
        assert_eq!(events.wait(Duration::ZERO), Ok(None));
        request.signal();
        request.signal();
        report.signal();
        assert_eq!(events.clone().wait(Duration::from_secs(5)), Ok(Some(DeviceEvent::BusError)));
        assert_eq!(events.poll(), Some(DeviceEvent::ReleaseRequested));
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn events_fd_readable_while_event_pending() {
        let (release, request) = Interrupt::pair().unwrap();
        let events = DeviceEvents::new(None, Some(release)).unwrap();
        let ready = || {
            let mut files = [PollFd::new(&events, PollFlags::IN)];
            rustix::event::poll(&mut files, Some(&Timespec::default())).unwrap() == 1
        };
        assert!(!ready());
        request.signal();
        assert!(ready());
        assert_eq!(events.poll(), Some(DeviceEvent::ReleaseRequested));
        assert!(!ready());
        assert!(!events.can_have(DeviceEvent::BusError) && events.can_have(DeviceEvent::ReleaseRequested));
    }

    #[test]
    fn events_device_without_events_has_none() {
        let events = DeviceEvents::new(None, None).unwrap();
        assert_eq!((events.poll(), events.wait(Duration::from_millis(1))), (None, Ok(None)));
    }
}
