//! Results of tests, and the report.

use core::fmt;
use core::time::Duration;

use fpga_pci::host::Status;

use fpga_driver::{Advice, CardRange};

/// Result of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestResult {
    /// Name of the test; the [module](super) lists the names.
    pub name: String,
    /// Outcome of the test.
    pub status: Status,
    /// Finding, in one line.
    pub message: String,
    /// Remedy.
    pub advice: Option<Advice>,
    /// Duration on the card's clock.
    pub duration: Duration,
}

impl fmt::Display for TestResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<4} {}: {}", self.status, self.name, self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// Findings of the tests in addition to their outcomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) writeback_needs_enable: Option<bool>,
}

/// Report of a self-test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Name of the card.
    pub card: String,
    /// Results in the order of execution.
    pub tests: Vec<TestResult>,
    /// Card memory that was used, if any.
    pub scratch: Option<CardRange>,
    pub(super) findings: Findings,
}

impl Report {
    /// Returns the number of tests with this outcome.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.tests.iter().filter(|test| test.status == status).count()
    }

    /// Returns whether a test failed. Warnings and skipped tests do not count as failures.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.count(Status::Fail) != 0
    }

    /// Returns the result of the test with this name.
    #[must_use]
    pub fn test(&self, name: &str) -> Option<&TestResult> {
        self.tests.iter().find(|test| test.name == name)
    }

    fn passed(&self, name: &str) -> bool {
        self.test(name).is_some_and(|test| test.status == Status::Pass)
    }

    /// Returns whether descriptor credit mode works on every tested channel: then [`RunMode::Credit`](fpga_driver::RunMode::Credit) can be used.
    #[must_use]
    pub fn supports_credit_mode(&self) -> bool {
        self.passed("credits.enable") && self.passed("credits.run")
    }

    /// Returns whether several adjacent blocks of descriptors above 4 KiB work: then
    /// [`ChannelOptions::long_blocks`](fpga_driver::ChannelOptions::long_blocks) may be set.
    #[must_use]
    pub fn supports_long_blocks(&self) -> bool {
        self.passed("descriptors.long")
    }

    /// Returns whether write-back and interrupt work together: then [`WaitMode::Hybrid`](fpga_driver::WaitMode::Hybrid) works without lost
    /// wakeups.
    #[must_use]
    pub fn supports_hybrid_waits(&self) -> bool {
        self.passed("interrupts.writeback")
    }

    /// Returns whether the write-back also needs control bit 2 (`ie_descriptor_completed`), on which PG195 contradicts itself (X4 of
    /// [`fpga_registers::errata`]); `None` if it could not be determined.
    #[must_use]
    pub const fn writeback_needs_enable(&self) -> Option<bool> {
        self.findings.writeback_needs_enable
    }
}
