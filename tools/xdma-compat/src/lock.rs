//! Exclusive use of a channel, for which calls wait until a signal interrupts them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::dma::Channel;
use crate::events::SIGNAL_CHECK;
use crate::process::Wait;

/// Channel that one call at a time uses.
#[derive(Debug)]
pub(crate) struct ChannelLock {
    channel: Mutex<Channel>,
    is_used: Mutex<bool>,
    freed: Condvar,
}

/// Exclusive use of a channel. The channel is unlocked before it is free for the next call (order of the fields).
#[derive(Debug)]
pub(crate) struct Used<'a> {
    pub(crate) channel: MutexGuard<'a, Channel>,
    _mark: Mark<'a>,
}

/// Marks a channel as free when it is dropped.
#[derive(Debug)]
struct Mark<'a>(&'a ChannelLock);

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        *self.0.is_used.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.freed.notify_one();
    }
}

impl ChannelLock {
    pub(crate) const fn new(channel: Channel) -> Self {
        Self { channel: Mutex::new(channel), is_used: Mutex::new(false), freed: Condvar::new() }
    }

    /// Takes the channel for a call. Calls `blocks` before it waits for it.
    ///
    /// # Errors
    /// Those of [`Wait::interruption`].
    pub(crate) fn lock_for(&self, mut blocks: impl FnMut(), wait: &mut Wait<'_>) -> Result<Used<'_>, Errno> {
        let mut is_used = self.is_used.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_used {
            blocks();
            let waited = self.freed.wait_timeout(is_used, SIGNAL_CHECK);
            let timeout;
            (is_used, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out()
                && *is_used
                && let Some(error) = wait.interruption()
            {
                return Err(error);
            }
        }
        *is_used = true;
        drop(is_used);
        Ok(self.used())
    }

    /// Takes the channel for this process itself.
    pub(crate) fn lock(&self) -> Used<'_> {
        let is_used = self.is_used.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_used =
            self.freed.wait_while(is_used, |is_used| *is_used).unwrap_or_else(PoisonError::into_inner);
        *is_used = true;
        drop(is_used);
        self.used()
    }

    /// The channel that was just marked. A thread that panicked with it leaves a usable one.
    fn used(&self) -> Used<'_> {
        let _mark = Mark(self);
        Used { channel: self.channel.lock().unwrap_or_else(PoisonError::into_inner), _mark }
    }
}
