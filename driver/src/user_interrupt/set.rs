//! Set of user interrupts with a common wait.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use fpga_pci::{Interrupt, InterruptError};

use super::{UserInterrupt, UserInterruptError, wait_any};
use crate::error::Error;

/// Several user interrupts of one card, created by [`Card::user_interrupts`](crate::Card::user_interrupts). The file descriptor is readable
/// when one of them may have interrupted.
#[derive(Debug)]
pub struct UserInterrupts {
    lines: Vec<UserInterrupt>,
    any: Interrupt,
}

impl UserInterrupts {
    pub(super) fn new(lines: Vec<UserInterrupt>) -> Result<Self, InterruptError> {
        let interrupts: Vec<Interrupt> = lines.iter().map(|line| line.line.interrupt().clone()).collect();
        Ok(Self { any: Interrupt::any(&interrupts)?, lines })
    }

    /// Iterates over the interrupts in the order in which they were requested.
    pub fn iter(&self) -> core::slice::Iter<'_, UserInterrupt> {
        self.lines.iter()
    }

    /// Takes the interrupts since the last call: line and number, in the order in which the lines were requested. Does not block.
    ///
    /// # Errors
    /// As [`UserInterrupt::take`]. Interrupts already taken from other lines are then included in their [`count`](UserInterrupt::count).
    pub fn take(&self) -> Result<Vec<(u8, u64)>, Error<UserInterruptError>> {
        let mut taken = Vec::new();
        for line in &self.lines {
            match line.take()? {
                0 => {}
                count => taken.push((line.line(), count)),
            }
        }
        Ok(taken)
    }

    /// Waits until one of the lines has interrupted, and takes all interrupts: line and number. Returns an empty list at once if the set
    /// has no lines.
    ///
    /// # Errors
    /// As [`UserInterrupt::wait`]; [`UserInterruptError::Disabled`] if any of the lines is disabled.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<(u8, u64)>, Error<UserInterruptError>> {
        let lines: Vec<_> = self.lines.iter().map(|line| &*line.line).collect();
        let mut taken = Vec::new();
        wait_any(&lines, &self.any, timeout, || {
            taken = self.take()?;
            Ok(!taken.is_empty())
        })?;
        Ok(taken)
    }
}

impl<'a> IntoIterator for &'a UserInterrupts {
    type Item = &'a UserInterrupt;
    type IntoIter = core::slice::Iter<'a, UserInterrupt>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl AsFd for UserInterrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lines.iter().take(1).for_each(|first| first.line.expect_event_loop());
        self.any.as_fd()
    }
}

impl AsRawFd for UserInterrupts {
    fn as_raw_fd(&self) -> RawFd {
        self.lines.iter().take(1).for_each(|first| first.line.expect_event_loop());
        self.any.as_raw_fd()
    }
}
