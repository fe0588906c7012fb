//! One suite for every way to a card: the same cases by name, the same expectations, whatever stands between driver and card.
//!
//! | Part | What |
//! |---|---|
//! | [`Case`], [`cases()`] | what is expected, written against the driver's public interface |
//! | [`TestBackend`], [`Fixture`] | a way to a card; one card behind it, for one case |
//! | [`Capability`] | what a case needs of a door that not every door has |
//! | [`backends`] | the doors of this process, and cards that are there already |
//! | [`builds`] | cards of other builds than the usual one |
//! | [`fault_control`] | what is done to a card from outside the machine that uses it |
//! | [`CaseContext`] | what cases share |
//! | [`faults`] | what goes wrong, what the driver says, what comes back, what works afterwards: a table |
//! | [`page`] | that table as `docs/faults.md` |
//! | [`load`] | mixed transfers for ever, a first look after a kill, rates |
//!
//! A case looks at card memory through the driver alone, so that it can be run where nothing else reaches the card. What a door
//! cannot do it says in words; a case that finds out while it runs says so by [`Skip`].

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
use fpga_driver::Backend;
use fpga_driver::sim::SimNetwork;
use fpga_driver::sim::served::MessageCount;

pub use builds::Build;
pub use case_context::CaseContext;
pub use cases::cases;

/// What a case needs of a door beyond a card that can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// The card's own faults can be set while it runs.
    CardFaults,
    /// What the logic behind the card's streams does can be decided while it runs.
    CardLogic,
    /// Lines of the card's user logic (`usr_irq_req`) can be raised and lowered.
    UserLines,
    /// Accesses that the IOMMU has to refuse may be provoked.
    DmaRefusal,
    /// The card can be made to leave and to come back.
    Removal,
    /// A reset of the bus.
    BusReset,
    /// The same calls give the same run, in virtual time.
    Repeatable,
    /// Memory for the card can be taken from the system's reserve of huge pages.
    HugePages,
}

/// A way to a card.
pub trait TestBackend: Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// Why it has not this ability; `None`: it has.
    fn missing_reason(&self, ability: Capability) -> Option<&'static str>;

    /// A card for one case.
    ///
    /// # Errors
    /// Why there is none, for people.
    fn fixture(&self) -> Result<Box<dyn Fixture>, String>;

    /// A card of another build, for a case that is about one.
    ///
    /// # Errors
    /// Why there is none, for people.
    fn fixture_of(&self, build: &Build) -> Result<Box<dyn Fixture>, String>;

    /// Whether somebody (a kernel) may reset the card between its owner and the next one.
    fn resets_between_owners(&self) -> bool {
        false
    }
}

/// One card behind a door. It is left as it was found: the next case may get the same one.
pub trait Fixture {
    /// The way to the card, opened anew: nothing else of this process may hold it at that moment.
    ///
    /// # Errors
    /// Why not, for people.
    fn open_backend(&self) -> Result<Arc<dyn Backend>, String>;

    /// The simulated card itself, where it lives in this process: its network and its number there.
    fn card(&self) -> Option<(SimNetwork, usize)> {
        None
    }

    /// Where messages to the card are counted at their other end.
    fn messages(&self) -> Option<MessageCount> {
        None
    }

    /// From now on this goes wrong with the card, and nothing else; what has gone wrong stays so.
    ///
    /// # Errors
    /// Why it cannot be made to, for people.
    fn set_faults(&self, faults: &FaultsDescription) -> Result<(), String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        let plan = faults.plan().map_err(|(index, problem)| format!("fault {index}: {problem}"))?;
        network
            .with_card(number, |card| card.set_fault_plan(&plan))
            .ok_or_else(|| NO_CARD_ACCESS_REASON.to_owned())
    }

    /// How often the faults that were set have struck, all together.
    ///
    /// # Errors
    /// Why that is not known, for people.
    fn strikes(&self) -> Result<u64, String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        let strikes =
            network.with_card(number, |card| card.fault_progress().map(|(_, strikes)| strikes).sum());
        strikes.ok_or_else(|| NO_CARD_ACCESS_REASON.to_owned())
    }

    /// Puts a card that was pulled out back, in its power-on state.
    ///
    /// # Errors
    /// Why it cannot be done, for people.
    fn replug(&self) -> Result<(), String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        if network.replug(number) { Ok(()) } else { Err(NO_CARD_ACCESS_REASON.to_owned()) }
    }

    /// What the card's user logic does with a line of `usr_irq_req`.
    ///
    /// # Errors
    /// Why it cannot be made to, for people.
    fn user_line(&self, line: u8, level: UserLevel) -> Result<(), String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        let done = match level {
            UserLevel::High => network.set_user_interrupt(number, line, true),
            UserLevel::Low => network.set_user_interrupt(number, line, false),
            UserLevel::Pulse => network.pulse_user_interrupt(number, line).is_some(),
        };
        if done { Ok(()) } else { Err(format!("there is no user interrupt {line}")) }
    }

    /// The bus reports an uncorrectable error, at the latest when the card is used next.
    ///
    /// # Errors
    /// Why it cannot be made to, for people.
    fn bus_error(&self) -> Result<(), String> {
        let (network, number) = self.card().ok_or(NO_CARD_ACCESS_REASON)?;
        // What a kernel that owns error reporting does when it finds the card.
        network.with_card(number, |card| card.set_error_reporting(true));
        let mut fault = FaultEntry::new(FaultName::PciError);
        fault.error = Some("completion_timeout".to_owned());
        self.set_faults(&faults::plan([fault]))
    }
}

/// What user logic does with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserLevel {
    /// Raises it, and holds it.
    High,
    /// Lowers it.
    Low,
    /// Raises it until its interrupt is acknowledged.
    Pulse,
}

/// Why nothing can be done to a card.
const NO_CARD_ACCESS_REASON: &str = "nothing here reaches the card itself";

/// Why a case was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip(pub String);

/// How a case ended, if it did not fail: a panic is the failure report.
pub type Verdict = Result<(), Skip>;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name: theme and expectation.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Capability],
    /// What it does.
    pub run: CaseBody,
}

/// What a piece of work cost at the card's registers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Cost {
    /// Which: how it was waited for, the direction, the run mode.
    pub work: String,
    /// How many transfers it was.
    pub transfers: u64,
    /// Registers that were read.
    pub reads: u64,
    /// Registers that were written.
    pub writes: u64,
    /// Interrupts that came.
    pub interrupts: u64,
}

/// What a case does. It panics if something is not as expected.
#[derive(Clone, Copy)]
pub enum CaseBody {
    /// This.
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
    /// Why this door cannot do it; `None`: it can be tried.
    #[must_use]
    pub fn skip_reason(&self, door: &dyn TestBackend) -> Option<&'static str> {
        self.needs.iter().find_map(|ability| door.missing_reason(*ability))
    }

    /// Runs it on a card behind `door`.
    ///
    /// # Panics
    /// If the card or the driver is not as expected.
    pub fn run(&self, door: &dyn TestBackend) -> Verdict {
        self.run_counted(door).map(drop)
    }

    /// Runs it, and tells what it counted.
    fn run_counted(&self, door: &dyn TestBackend) -> Result<Vec<Cost>, Skip> {
        if let Some(why) = self.skip_reason(door) {
            return Err(Skip(why.to_owned()));
        }
        let fixture = door.fixture().unwrap_or_else(|why| panic!("{}: {why}", door.name()));
        let context = &mut CaseContext::new(door, &*fixture);
        match self.run {
            CaseBody::Code(run) => run(context)?,
            CaseBody::Row(row) => cases::scenario(row, context)?,
        }
        Ok(context.take_costs())
    }
}

/// How a case ended.
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
    /// One word: `pass`, `fail`, `skip`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "pass",
            Self::Failed(_) => "fail",
            Self::Skipped(_) => "skip",
        }
    }

    /// What there is to say beyond that word.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(message) | Self::Skipped(message) => message,
        }
    }
}

/// One case by one door.
#[derive(Debug)]
pub struct CaseResult {
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
    /// What it counted.
    pub costs: Vec<Cost>,
}

/// Runs one case and catches its failure: the others are still to be run.
pub fn run_case(case: &Case, door: &dyn TestBackend) -> CaseResult {
    let began = std::time::Instant::now();
    let mut costs = Vec::new();
    let outcome = match catch_unwind(AssertUnwindSafe(|| case.run_counted(door))) {
        Ok(Ok(counted)) => {
            costs = counted;
            Outcome::Passed
        }
        Ok(Err(Skip(why))) => Outcome::Skipped(why),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Outcome::Failed(text.unwrap_or("a panic without a message").to_owned())
        }
    };
    CaseResult { outcome, took: began.elapsed(), costs }
}
