//! One suite for every backend: the same cases by name and the same expectations on every path between driver and card.
//!
//! | Part | Contents |
//! |---|---|
//! | [`Case`], [`cases()`] | expectations, written against the driver's public interface |
//! | [`TestBackend`], [`Fixture`] | a backend; one card on it, for one case |
//! | [`Capability`] | abilities that a case needs and that not every backend has |
//! | [`backends`] | the backends of this process, and existing cards |
//! | [`builds`] | cards of other builds than the usual one |
//! | [`fault_control`] | control of a card's faults from outside the machine that uses it |
//! | [`CaseContext`] | shared code of the cases |
//! | [`faults`] | table: the fault, the driver's error, the memory, what works afterwards |
//! | [`page`] | that table as `docs/guide/faults.md` |
//! | [`load`] | mixed transfers without end, a check after a kill, rates |
//!
//! A case accesses card memory only through the driver, so that it can be run where the card cannot be reached in any other way. A backend
//! gives the reason for a missing capability as text; a case that detects it during its run reports it with [`Skip`].

pub mod backends;
pub mod builds;
pub mod case_context;
mod cases;
pub mod fault_control;
pub mod faults;
pub mod load;
pub mod page;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fpga_card::fault_plan::{FaultEntry, FaultName, FaultsDescription};
use fpga_driver::{BarOffset, CardRange};
use fpga_pci::Backend;
use fpga_sim::SimNetwork;
use fpga_sim::served::MessageCount;

pub use builds::Build;
pub use case_context::CaseContext;
pub use cases::cases;

/// Ability of a backend that a case needs beyond a card that can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// The card's own faults can be set while it runs.
    CardFaults,
    /// The behaviour of the logic behind the card's streams can be set while it runs.
    CardLogic,
    /// Lines of the card's user logic (`usr_irq_req`) can be raised and lowered.
    UserLines,
    /// Accesses that the IOMMU has to refuse may be provoked.
    DmaRefusal,
    /// The card can be removed and put back.
    Removal,
    /// A reset of the bus.
    BusReset,
    /// The same calls give the same run, in virtual time.
    Repeatable,
    /// Memory for the card can be taken from the system's reserve of huge pages.
    HugePages,
}

/// Way for the suite to reach a card.
pub trait TestBackend: Send + Sync {
    /// Name in reports.
    fn name(&self) -> &str;

    /// Returns the reason why the backend lacks this capability; `None`: it has it.
    fn missing_reason(&self, capability: Capability) -> Option<&'static str>;

    /// Provides a card for one case.
    ///
    /// # Errors
    /// The reason why there is none, as display text.
    fn fixture(&self) -> Result<Box<dyn Fixture>, String>;

    /// Provides a card of another build, for a case that needs that build.
    ///
    /// # Errors
    /// The reason why there is none, as display text.
    fn fixture_of(&self, build: &Build) -> Result<Box<dyn Fixture>, String>;

    /// Whether a kernel may reset the card between two owners.
    fn resets_between_owners(&self) -> bool {
        false
    }
}

/// One card on a backend. A case restores its initial state, because the next case may get the same card.
pub trait Fixture {
    /// Opens the backend of the card anew. Nothing else in this process may hold the card at that moment.
    ///
    /// # Errors
    /// The reason, as display text.
    fn open_backend(&self) -> Result<Arc<dyn Backend>, String>;

    /// The simulated card itself, where it is in this process: its network and its number there.
    fn card(&self) -> Option<(SimNetwork, usize)> {
        None
    }

    /// Memory of a card that does not report it: the cases may use all of it.
    fn memory(&self) -> Option<CardRange> {
        None
    }

    /// Offset of the registers of the copy engine in the user BAR, of a card that does not report it.
    fn cdma_offset(&self) -> Option<BarOffset> {
        None
    }

    /// Counter of messages to the card at their other end.
    fn messages(&self) -> Option<MessageCount> {
        None
    }

    /// Sets the card's faults from now on, and no others. Earlier effects of faults stay.
    ///
    /// # Errors
    /// The reason, as display text.
    fn set_faults(&self, faults: &FaultsDescription) -> Result<(), String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        let plan = faults.plan().map_err(|(index, problem)| format!("fault {index}: {problem}"))?;
        network
            .with_card(number, |card| card.set_fault_plan(&plan))
            .ok_or_else(|| NO_CARD_ACCESS_REASON.to_owned())
    }

    /// Number of times that the set faults have occurred, in total.
    ///
    /// # Errors
    /// The reason, as display text.
    fn strikes(&self) -> Result<u64, String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        let strikes =
            network.with_card(number, |card| card.fault_progress().map(|(_, strikes)| strikes).sum());
        strikes.ok_or_else(|| NO_CARD_ACCESS_REASON.to_owned())
    }

    /// Puts a removed card back, in its power-on state.
    ///
    /// # Errors
    /// The reason, as display text.
    fn replug(&self) -> Result<(), String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        if network.replug(number) { Ok(()) } else { Err(NO_CARD_ACCESS_REASON.to_owned()) }
    }

    /// Sets what the card's user logic does with a line of `usr_irq_req`.
    ///
    /// # Errors
    /// The reason, as display text.
    fn user_line(&self, line: u8, level: UserLevel) -> Result<(), String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        let done = match level {
            UserLevel::High => network.set_user_interrupt(number, line, true),
            UserLevel::Low => network.set_user_interrupt(number, line, false),
            UserLevel::Pulse => network.pulse_user_interrupt(number, line).is_some(),
        };
        if done { Ok(()) } else { Err(format!("the card has no user interrupt {line}")) }
    }

    /// Makes the bus report an uncorrectable error, no later than at the card's next use.
    ///
    /// # Errors
    /// The reason, as display text.
    fn bus_error(&self) -> Result<(), String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        // A kernel that owns error reporting enables it when it finds the card.
        network.with_card(number, |card| card.set_error_reporting(true));
        let mut fault = FaultEntry::new(FaultName::PciError);
        fault.error = Some("completion_timeout".to_owned());
        self.set_faults(&faults::plan([fault]))
    }
}

/// Action of user logic on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserLevel {
    /// Raises and holds it.
    High,
    /// Lowers it.
    Low,
    /// Raises it until its interrupt is acknowledged.
    Pulse,
}

/// Reason why a backend cannot change the card itself.
const NO_CARD_ACCESS_REASON: &str = "this backend cannot set faults of the card";

/// Reason why a case was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip(pub String);

/// Result of a case that did not fail: a panic is the failure report.
pub type Verdict = Result<(), Skip>;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name: theme and expectation.
    pub name: &'static str,
    /// Capabilities that it needs.
    pub needs: &'static [Capability],
    /// Code or table row that it runs.
    pub run: CaseBody,
}

/// Cost of some work at the card's registers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Cost {
    /// Description of the work: wait mode, direction, run mode.
    pub work: String,
    /// Number of transfers.
    pub transfers: u64,
    /// Register reads.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
    /// Interrupts that arrived.
    pub interrupts: u64,
}

/// Body of a case. It panics if something is not as expected.
#[derive(Clone, Copy)]
pub enum CaseBody {
    /// A function.
    Code(fn(&mut CaseContext<'_>) -> Verdict),
    /// Three transfers under a fault.
    Row(&'static faults::FaultRow),
}

impl core::fmt::Debug for CaseBody {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Code(_) => "Code",
            Self::Row(row) => row.name,
        })
    }
}

impl core::fmt::Debug for Case {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}

impl Case {
    /// Returns the reason why this backend cannot run the case; `None`: it can be tried.
    #[must_use]
    pub fn skip_reason(&self, backend: &dyn TestBackend) -> Option<&'static str> {
        self.needs.iter().find_map(|capability| backend.missing_reason(*capability))
    }

    /// Runs the case on a card of this backend.
    ///
    /// # Panics
    /// If the card or the driver is not as expected.
    pub fn run(&self, backend: &dyn TestBackend) -> Verdict {
        self.run_counted(backend).map(drop)
    }

    /// Runs the case and returns the costs that it counted.
    fn run_counted(&self, backend: &dyn TestBackend) -> Result<Vec<Cost>, Skip> {
        if let Some(reason) = self.skip_reason(backend) {
            return Err(Skip(reason.to_owned()));
        }
        let fixture = backend.fixture().unwrap_or_else(|reason| panic!("{}: {reason}", backend.name()));
        let context = &mut CaseContext::new(backend, &*fixture);
        match self.run {
            CaseBody::Code(run) => run(context)?,
            CaseBody::Row(row) => cases::scenario(row, context)?,
        }
        Ok(context.take_costs())
    }
}

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As expected.
    Passed,
    /// Not as expected.
    Failed(String),
    /// Not run.
    Skipped(String),
}

impl Outcome {
    /// Status word: `pass`, `fail`, `skip`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "pass",
            Self::Failed(_) => "fail",
            Self::Skipped(_) => "skip",
        }
    }

    /// Message beyond the status word; empty if there is none.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(message) | Self::Skipped(message) => message,
        }
    }
}

/// Result of one case on one backend.
#[derive(Debug)]
pub struct CaseResult {
    /// Outcome.
    pub outcome: Outcome,
    /// Duration.
    pub took: Duration,
    /// Costs that the case counted.
    pub costs: Vec<Cost>,
}

/// Runs one case and catches its failure, so that the other cases still run.
pub fn run_case(case: &Case, backend: &dyn TestBackend) -> CaseResult {
    let began = std::time::Instant::now();
    let mut costs = Vec::new();
    let outcome = match catch_unwind(AssertUnwindSafe(|| case.run_counted(backend))) {
        Ok(Ok(counted)) => {
            costs = counted;
            Outcome::Passed
        }
        Ok(Err(Skip(reason))) => Outcome::Skipped(reason),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Outcome::Failed(text.unwrap_or("a panic without a message").to_owned())
        }
    };
    CaseResult { outcome, took: began.elapsed(), costs }
}
