//! Reduction of a world that fails: fewer actions, fewer failures, fewer impairments.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::choices::mix;
use crate::model::{Outcome, Violation};
use crate::plan::{Plan, Work};

/// Runs a world.
///
/// # Errors
/// The first [`Violation`] of a guarantee.
pub fn run(plan: &Plan) -> Result<Outcome, Violation> {
    match plan.work {
        Work::Transfers => crate::world::run(plan),
        Work::Messages(_) => crate::messages::run(plan),
        Work::Streams(_) => crate::streams::run(plan),
    }
}

/// A part of the plan of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reduction {
    /// Seed of the plan.
    pub seed: u64,
    /// Numbers of the actions that stay; `None`: all.
    pub actions: Option<Vec<usize>>,
    /// Numbers of the failures that stay; `None`: all.
    pub faults: Option<Vec<usize>>,
    /// Names of the impairments that are removed.
    pub without: Vec<&'static str>,
}

/// Names of impairments.
pub(crate) const IMPAIRMENTS: [&str; 10] =
    ["extras", "loss", "copies", "damage", "trims", "delay", "disorder", "slow", "target", "clocks"];

impl Reduction {
    /// The whole plan of a seed.
    #[must_use]
    pub fn whole(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Returns the plan of the part.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let is_basic = self.without.contains(&"extras");
        let mut plan = if is_basic { Plan::basic(self.seed) } else { Plan::of(self.seed) };
        if let Some(kept) = &self.actions {
            plan.actions.retain(|action| kept.contains(&action.number));
            match &mut plan.work {
                Work::Transfers => {}
                Work::Messages(messages) => messages.calls.retain(|call| kept.contains(&call.number)),
                Work::Streams(streams) => streams.acts.retain(|act| kept.contains(&act.number)),
            }
        }
        if let Some(kept) = &self.faults {
            plan.faults.retain(|fault| kept.contains(&fault.number));
        }
        let conditions = &mut plan.conditions;
        for name in &self.without {
            match *name {
                "loss" => (conditions.loss, conditions.burst) = (0, 0),
                "copies" => conditions.copies = 0,
                "damage" => conditions.damage = 0,
                "trims" => conditions.trims = 0,
                "delay" => conditions.delay = fpga_protocol::Nanos::ZERO,
                "disorder" => conditions.disorder = 1,
                "slow" => conditions.slow = 0,
                "target" => conditions.target = None,
                "clocks" => plan.clock_spread = 0,
                _ => {}
            }
        }
        plan
    }

    /// Runs the part. A panic is a violation.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn run(&self) -> Result<Outcome, Violation> {
        let plan = self.plan();
        catch_unwind(AssertUnwindSafe(|| run(&plan))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Violation(format!("panic: {}", text.unwrap_or_default())))
        })
    }

    /// Returns a test that replays the part.
    #[must_use]
    pub fn as_test(&self) -> String {
        let mut text = String::new();
        let list = |kept: &Option<Vec<usize>>| match kept {
            None => "None".to_owned(),
            Some(kept) => format!("Some(vec!{kept:?})"),
        };
        let _ = write!(
            text,
            "#[test]\nfn world_{:x}_ends() {{\n    replay(&Reduction {{\n        seed: {:#x},\n        actions: {},\n        \
             faults: {},\n        without: vec!{:?},\n    }});\n}}\n",
            mix(self.seed) >> 40,
            self.seed,
            list(&self.actions),
            list(&self.faults),
            self.without
        );
        text
    }
}

/// Kind of a violation: its text without numbers.
fn kind(violation: &Violation) -> String {
    violation.0.chars().filter(|sign| !sign.is_ascii_digit()).take(40).collect()
}

/// Removes parts of a world that fails, as long as it fails in the same way. Runs at most `runs` worlds.
#[must_use]
pub fn minimise(failing: &Reduction, runs: usize) -> (Reduction, Option<Violation>) {
    let mut best = failing.clone();
    let mut violation = best.run().err();
    let Some(wanted) = violation.as_ref().map(kind) else { return (best, None) };
    let mut left = runs;
    let mut attempt = |candidate: Reduction, best: &mut Reduction| {
        if left == 0 {
            return false;
        }
        left -= 1;
        match candidate.run() {
            Err(found) if kind(&found) == wanted => {
                (*best, violation) = (candidate, Some(found));
                true
            }
            _ => false,
        }
    };
    let whole = best.plan();
    best.actions = Some(match &whole.work {
        Work::Transfers => whole.actions.iter().map(|action| action.number).collect(),
        Work::Messages(messages) => messages.calls.iter().map(|call| call.number).collect(),
        Work::Streams(streams) => streams.acts.iter().map(|act| act.number).collect(),
    });
    best.faults = Some(whole.faults.iter().map(|fault| fault.number).collect());
    loop {
        let before = best.clone();
        for of_faults in [true, false] {
            let list = |part: &Reduction| if of_faults { part.faults.clone() } else { part.actions.clone() };
            let mut size = list(&best).unwrap_or_default().len().div_ceil(2);
            while size > 0 {
                let mut first = 0;
                while first < list(&best).unwrap_or_default().len() {
                    let mut kept = list(&best).unwrap_or_default();
                    kept.drain(first..(first + size).min(kept.len()));
                    let mut candidate = best.clone();
                    *(if of_faults { &mut candidate.faults } else { &mut candidate.actions }) = Some(kept);
                    if !attempt(candidate, &mut best) {
                        first += size;
                    }
                }
                size /= 2;
            }
        }
        for name in IMPAIRMENTS {
            if !best.without.contains(&name) {
                let mut candidate = best.clone();
                candidate.without.push(name);
                attempt(candidate, &mut best);
            }
        }
        if best == before {
            return (best, violation);
        }
    }
}
