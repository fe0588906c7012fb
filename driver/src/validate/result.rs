//! Results and the report.

use core::fmt;
use core::time::Duration;

use fpga_pci::host::Status;

use crate::range::CardRange;

/// The result of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestResult {
    /// Its name; the [module](super) lists them.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// What was found, and what to do.
    pub message: String,
    /// How long it took by the card's clock.
    pub duration: Duration,
}

impl fmt::Display for TestResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<4} {}: {}", self.status, self.name, self.message)
    }
}

/// What the tests showed beyond pass and fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) writeback_needs_enable: Option<bool>,
}

/// All results.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Which card.
    pub card: String,
    /// Every test, in the order in which it was run.
    pub tests: Vec<TestResult>,
    /// The card memory that was used, if any was.
    pub scratch: Option<CardRange>,
    pub(super) findings: Findings,
}

impl Report {
    /// How many tests ended like this.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.tests.iter().filter(|test| test.status == status).count()
    }

    /// Whether a test failed. Warnings and skipped tests are no failures.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.count(Status::Fail) != 0
    }

    /// The test of this name.
    #[must_use]
    pub fn test(&self, name: &str) -> Option<&TestResult> {
        self.tests.iter().find(|test| test.name == name)
    }

    fn passed(&self, name: &str) -> bool {
        self.test(name).is_some_and(|test| test.status == Status::Pass)
    }

    /// Whether descriptor credit mode works on every channel that was tested: then
    /// [`RunMode::Credit`](crate::RunMode::Credit) can be trusted.
    #[must_use]
    pub fn supports_credit_mode(&self) -> bool {
        self.passed("credits.enable") && self.passed("credits.run")
    }

    /// Whether several adjacent blocks of descriptors above 4 KiB work: then
    /// [`ChannelOptions::long_blocks`](crate::ChannelOptions::long_blocks) may be set.
    #[must_use]
    pub fn supports_long_blocks(&self) -> bool {
        self.passed("descriptors.long")
    }

    /// Whether write-back and interrupt work together: then [`WaitMode::Hybrid`](crate::WaitMode::Hybrid) loses nothing.
    #[must_use]
    pub fn supports_hybrid_waits(&self) -> bool {
        self.passed("interrupts.writeback")
    }

    /// Whether the write-back needs control bit 2 (`ie_descriptor_completed`) too, which the documents disagree about; `None` if
    /// it could not be found out.
    #[must_use]
    pub const fn writeback_needs_enable(&self) -> Option<bool> {
        self.findings.writeback_needs_enable
    }
}
