//! Context of the tests: the card, the parts that they may use, and the recording of results.

use core::cell::Cell;
use core::fmt::Write;
use core::time::Duration;
use fpga_driver::{Advice, Card, CardRange, ChannelName, Direction};
use std::rc::Rc;

use fpga_pci::{QuarantineReason, RegisteredMemory, SharedSlice};
use fpga_registers::{CardAddr, Iova, quantity};

use super::pattern::GUARD;
use super::problem::{TestError, Verdict};
use super::result::{Findings, Report, TestResult};
use super::{SCRATCH_BYTES, SCRATCH_MIN, ValidateOptions};
use fpga_rdma::RESERVED_CARD_BYTES;

/// Maximum length of a transfer in bytes.
pub(super) const MAX_TRANSFER_LENGTH: usize = 1 << 20;
/// Size of host memory for one direction in bytes: the longest transfer at any offset, with guards.
const HOST_BYTES: usize = MAX_TRANSFER_LENGTH + 2 * 4096;

/// Set once the card is gone or an engine does not stop: memory that it may still reach is quarantined then.
pub(super) type QuarantineFlag = Rc<Cell<Option<QuarantineReason>>>;

/// Host memory that the card can access.
#[derive(Debug)]
pub(super) struct HostMemory {
    area: Option<RegisteredMemory>,
    lost: QuarantineFlag,
}

impl HostMemory {
    pub(super) fn new(card: &Card, bytes: usize, lost: &QuarantineFlag) -> Result<Self, TestError> {
        let area = card.memory().allocate_registered(bytes, 4096)?;
        Ok(Self { area: Some(area), lost: Rc::clone(lost) })
    }

    pub(super) fn memory(&self) -> SharedSlice<'_> {
        self.area.as_ref().map(RegisteredMemory::memory).unwrap_or_default()
    }

    /// Returns the device address of byte `offset`.
    pub(super) fn at(&self, offset: usize) -> Iova {
        // Inside the area, which is inside the address space.
        Iova::new(self.area.as_ref().map_or(0, |area| area.iova().get()) + offset as u64)
    }

    pub(super) fn len(&self) -> usize {
        self.area.as_ref().map_or(0, RegisteredMemory::len)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let (Some(reason), Some(area)) = (self.lost.get(), self.area.take()) {
            area.quarantine(reason);
        }
    }
}

/// Context of the tests.
#[derive(Debug)]
pub(super) struct TestContext<'a> {
    pub(super) card: &'a Card,
    pub(super) options: ValidateOptions,
    /// Card memory that was saved, so that tests may overwrite it.
    pub(super) scratch: Option<CardRange>,
    /// Saved content.
    pub(super) saved: Vec<u8>,
    /// Reason why there is no scratch memory.
    pub(super) no_scratch: String,
    pub(super) findings: Findings,
    pub(super) lost: QuarantineFlag,
}

impl<'a> TestContext<'a> {
    pub(super) fn new(card: &'a Card, options: ValidateOptions) -> Self {
        Self {
            card,
            options,
            scratch: None,
            saved: Vec::new(),
            no_scratch: String::new(),
            findings: Findings::default(),
            lost: QuarantineFlag::default(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.card.backend().now()
    }

    pub(super) fn relax(&self) {
        self.card.backend().relax();
    }

    /// Returns the maximum time of one step, in nanoseconds.
    pub(super) fn limit(&self) -> u64 {
        u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits for `nanoseconds` of the card's time.
    pub(super) fn pause(&self, nanoseconds: u64) {
        self.card.backend().pause(Duration::from_nanos(nanoseconds));
    }

    pub(super) fn host(&self) -> Result<HostMemory, TestError> {
        HostMemory::new(self.card, HOST_BYTES, &self.lost)
    }

    /// Chooses the card memory to use, before it is saved.
    pub(super) fn choose_scratch(&self) -> Result<CardRange, Verdict> {
        let known = self.card.memory_ranges();
        if let Some(range) = self.options.scratch {
            if range.length < SCRATCH_MIN {
                return Err(Verdict::fail(format!(
                    "the scratch memory has {}; give at least {SCRATCH_MIN}",
                    quantity(range.length, "byte")
                )));
            }
            let inside = |memory: &CardRange| memory.contains(range.start, range.length);
            if known.is_some_and(|known| !known.iter().any(inside))
                || range.start.checked_add(range.length).is_none()
            {
                let what = format!(
                    "scratch memory of {} at {} is not inside the card's memory",
                    quantity(range.length, "byte"),
                    range.start
                );
                return Err(Verdict::fail(what).advise(Advice::SeeCardInfo));
            }
            return Ok(range);
        }
        // The stated memory range of another design does not permit writes to it.
        let Some(memory) = self.card.info().ni.as_ref().map(|ni| ni.memory) else {
            return Err(Verdict::skip(
                "the address range of the card's memory is unknown (no network interface of this project); give a scratch range to test \
                 transfers"
                    .to_owned(),
            ));
        };
        let usable = memory.length.saturating_sub(RESERVED_CARD_BYTES) & !4095;
        if usable < SCRATCH_MIN {
            return Err(Verdict::skip(format!(
                "card memory of {} has no space for scratch memory",
                quantity(memory.length, "byte")
            )));
        }
        let length = usable.min(SCRATCH_BYTES);
        // Inside the memory, so the sum is a valid address.
        Ok(CardRange::new(CardAddr::new(memory.start.get() + (usable - length)), length))
    }

    /// Returns the scratch memory, or the reason to skip a test.
    pub(super) fn scratch(&self) -> Result<CardRange, TestError> {
        self.scratch.ok_or_else(|| TestError::Untested(self.no_scratch.clone()))
    }

    /// Returns the length of the longest transfer that fits scratch memory with its guards.
    pub(super) fn max_transfer_length(&self) -> usize {
        let available = self.scratch.map_or(0, |range| usize::try_from(range.length).unwrap_or(usize::MAX));
        available.saturating_sub(2 * GUARD).min(MAX_TRANSFER_LENGTH)
    }

    /// Returns all channels of one direction.
    pub(super) fn channels(&self, direction: Direction) -> impl Iterator<Item = ChannelName> + use<> {
        self.card.info().xdma.channels().filter(move |name| name.direction == direction)
    }
}

/// Returns the verdict that skips a test of a resource in use.
pub(super) fn skip_reason(what: impl core::fmt::Display) -> Verdict {
    Verdict::skip(format!("{what} is in use in this process; drop the handle to test it"))
}

/// Returns the message text about channels that were skipped.
pub(super) fn skipped_channels(busy: &[ChannelName]) -> String {
    if busy.is_empty() {
        return String::new();
    }
    format!(" ({} in use, not tested)", list(busy))
}

/// Formats names as a list.
pub(super) fn list<T: core::fmt::Display>(items: &[T]) -> String {
    let mut text = String::new();
    for (n, item) in items.iter().enumerate() {
        let _ = write!(text, "{}{item}", if n == 0 { "" } else { ", " });
    }
    text
}

/// Recorder of test results.
pub(super) struct ResultRecorder<'a> {
    report: Report,
    sink: &'a mut dyn FnMut(&TestResult),
    /// Called before each test; returns false to stop.
    go_on: &'a dyn Fn() -> bool,
    /// Reason why no further test is run.
    ended: Option<&'static str>,
    /// The registers can be accessed.
    answers: bool,
}

impl<'a> ResultRecorder<'a> {
    pub(super) fn new(
        card: &Card,
        go_on: &'a dyn Fn() -> bool,
        sink: &'a mut dyn FnMut(&TestResult),
    ) -> Self {
        let report = Report {
            card: card.name().to_owned(),
            tests: Vec::new(),
            scratch: None,
            findings: Findings::default(),
        };
        Self { report, sink, go_on, ended: None, answers: true }
    }

    /// Runs one test, unless testing has ended.
    pub(super) fn test(
        &mut self,
        context: &mut TestContext<'_>,
        name: impl Into<String>,
        work: impl FnOnce(&mut TestContext<'_>) -> Result<Verdict, TestError>,
    ) {
        if self.ended.is_none() && !(self.go_on)() {
            self.ended = Some("the test was stopped");
        }
        self.tested(context, name.into(), work);
    }

    fn tested(
        &mut self,
        context: &mut TestContext<'_>,
        name: String,
        work: impl FnOnce(&mut TestContext<'_>) -> Result<Verdict, TestError>,
    ) {
        let began = context.now();
        let outcome = match self.ended {
            Some(reason) => Ok(Verdict::skip(reason)),
            None => work(context),
        };
        let verdict = match outcome {
            Ok(verdict) => verdict,
            Err(TestError::Untested(text)) => Verdict::skip(text),
            Err(problem) => {
                match problem {
                    TestError::Gone => (self.ended, self.answers) = (Some("the card is gone"), false),
                    TestError::Stuck { .. } => {
                        self.ended = Some("an engine does not stop; reset the card first")
                    }
                    _ => {}
                }
                Verdict::fail(problem.to_string()).advise(problem.advice())
            }
        };
        let Verdict { status, text: message, advice } = verdict;
        let duration = Duration::from_nanos(context.now().saturating_sub(began));
        let result = TestResult { name, status, message, advice, duration };
        (self.sink)(&result);
        self.report.tests.push(result);
    }

    /// Runs a test that restores a state. It runs as long as the card answers, even if the caller requested a stop.
    pub(super) fn run_restoring_test(
        &mut self,
        context: &mut TestContext<'_>,
        name: impl Into<String>,
        work: impl FnOnce(&mut TestContext<'_>) -> Result<Verdict, TestError>,
    ) {
        let ended = if self.answers { self.ended.take() } else { None };
        self.tested(context, name.into(), work);
        self.ended = self.ended.or(ended);
    }

    pub(super) fn finish(mut self, context: &TestContext<'_>) -> Report {
        self.report.scratch = context.scratch;
        self.report.findings = context.findings;
        self.report
    }
}
