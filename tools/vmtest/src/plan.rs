//! Plan of the guests: the data in tools/vmtest/guest/guests.yaml.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::kernel::Kernel;

const TEXT: &str = include_str!("../guest/guests.yaml");

/// Content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) guests: Vec<Guest>,
    /// Devices that several guests refer to.
    #[serde(default, rename = "builds")]
    _builds: Vec<Device>,
    /// Lists of steps that several guests run.
    suites: BTreeMap<String, Vec<Step>>,
}

/// One boot of one machine, or of several that are connected.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guest {
    /// Name in the table.
    pub(crate) name: String,
    /// Short description of its purpose.
    pub(crate) about: String,
    /// Whether it is for everyday checks; a complete run does the same and more in the other guests.
    #[serde(default)]
    pub(crate) daily: bool,
    pub(crate) kernel: Kernel,
    /// Whether there is a translating IOMMU.
    pub(crate) iommu: bool,
    /// Time limit in seconds.
    #[serde(default = "minutes")]
    pub(crate) seconds: u64,
    #[serde(default)]
    pub(crate) devices: Vec<Device>,
    /// Number of machines that run at the same time, each with all devices. A network connects them; cards of the same number are linked.
    #[serde(default = "one")]
    pub(crate) machines: usize,
    /// Whether it has this machine's Open MPI, with the provider of this project; without Open MPI the guest is skipped.
    #[serde(default)]
    pub(crate) mpi: bool,
    /// Memory in GiB.
    #[serde(default = "little")]
    pub(crate) memory: u32,
    /// Kernel parameters in addition to those of every guest.
    #[serde(default)]
    pub(crate) parameters: Vec<String>,
    /// Environment of every step.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// Names of suites.
    pub(crate) suites: Vec<String>,
}

/// PCI function of the guest. Unless configured otherwise, each is behind its own root port, so that it can be reset, unplugged and report
/// errors.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub(crate) enum Device {
    /// Simulated card, served by a separate process.
    Card {
        /// Description of the card: a file below the workspace, or the name of a built-in one; by default the default card.
        file: Option<String>,
        /// Whether it is on the root bus, where the kernel has no means to reset it before or after use.
        #[serde(default)]
        integrated: bool,
        /// Whether it is the model of RTL in the folder that the environment names, if it names one.
        #[serde(default)]
        rtl: bool,
    },
    /// Device of the emulator.
    Emulated {
        /// Value of the emulator's option `-device`.
        device: String,
        /// Another function of the same slot, in the same form: the two share an IOMMU group.
        beside: Option<String>,
    },
}

impl Device {
    pub(crate) const fn is_integrated(&self) -> bool {
        matches!(self, Self::Card { integrated: true, .. })
    }
}

/// One command in the guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Lines for the guest's shell.
    pub(crate) run: String,
    /// Number of the machine that runs it, counted from 0; by default all machines do.
    #[serde(default)]
    pub(crate) machine: Option<usize>,
    /// Whether it runs whichever steps are selected.
    #[serde(default)]
    pub(crate) always: bool,
    /// Required exit status.
    #[serde(default)]
    pub(crate) status: i32,
    /// Required texts, on either output.
    #[serde(default)]
    pub(crate) says: Vec<String>,
    /// Kind of its standard output.
    #[serde(default)]
    pub(crate) output: Output,
    /// Time limit in seconds, after which it is killed.
    #[serde(default = "minutes")]
    pub(crate) seconds: u64,
}

const fn minutes() -> u64 {
    120
}

const fn little() -> u32 {
    1
}

const fn one() -> usize {
    1
}

/// Maximum number of machines: their network is a connection between two.
const MAX_MACHINES: usize = 2;

/// Kind of a step's standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Output {
    /// Text for people.
    #[default]
    Text,
    /// One case per line, as JSON: name, status (pass, fail, skip), message, seconds. Each is a row of the table.
    Cases,
    /// One line for people, shown in the report.
    Figure,
}

/// Errors in the file or in the request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// It does not parse.
    #[error("tools/vmtest/guest/guests.yaml: {0}")]
    Parse(#[from] serde_yaml::Error),
    /// It contradicts itself.
    #[error("tools/vmtest/guest/guests.yaml: {0}")]
    Wrong(String),
    /// There is no such guest.
    #[error("there is no guest {wanted}; there are: {}", known.join(", "))]
    NoGuest { wanted: String, known: Vec<String> },
    /// There is no such step.
    #[error("no selected guest has a step {wanted}; there are: {}", known.join(", "))]
    NoStep { wanted: String, known: Vec<String> },
}

/// Guest and its steps.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) guest: Guest,
    pub(crate) steps: Vec<Step>,
}

impl Guest {
    fn check_machines(&self) -> Result<(), String> {
        if !(1..=MAX_MACHINES).contains(&self.machines) {
            return Err(format!("machines must be 1 to {MAX_MACHINES}"));
        }
        if self.machines > 1 && self.kernel == Kernel::Built {
            return Err("the built kernel has no network, so it runs on one machine".to_owned());
        }
        Ok(())
    }
}

impl Job {
    /// Part of a machine: its steps.
    pub(crate) fn of_machine(&self, machine: usize) -> Self {
        let mut part = self.clone();
        part.steps.retain(|step| step.machine.is_none_or(|of| of == machine));
        if self.guest.machines > 1 {
            part.guest.name = format!("{}, machine {machine}", self.guest.name);
        }
        part
    }
}

impl Plan {
    /// Loads the plan of this project.
    pub(crate) fn load() -> Result<Self, PlanError> {
        Self::parse(TEXT)
    }

    fn parse(text: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_yaml::from_str(text)?;
        let wrong = |problem: String| Err(PlanError::Wrong(problem));
        let mut names = BTreeSet::new();
        for guest in &plan.guests {
            if !names.insert(&guest.name) || !is_name(&guest.name) {
                return wrong(format!(
                    "guest \"{}\": names must be unique, in lower case, with hyphens",
                    guest.name
                ));
            }
            if let Err(problem) = guest.check_machines() {
                return wrong(format!("guest {}: {problem}", guest.name));
            }
            let mut steps = BTreeSet::new();
            for suite in &guest.suites {
                let Some(suite) = plan.suites.get(suite) else {
                    return wrong(format!("guest {}: there is no suite {suite}", guest.name));
                };
                for step in suite {
                    if !steps.insert(&step.name) || !is_name(&step.name) {
                        return wrong(format!(
                            "guest {}, step \"{}\": names must be unique in a guest, in lower case, with hyphens",
                            guest.name, step.name
                        ));
                    }
                    if step.machine.is_some_and(|machine| machine >= guest.machines) {
                        return wrong(format!(
                            "guest {}, step {}: machines are counted from 0, and there are {}",
                            guest.name, step.name, guest.machines
                        ));
                    }
                }
            }
        }
        Ok(plan)
    }

    /// Selects the work: all guests of a complete run, those of everyday checks (`daily`) or those named; on all kernels or one; with
    /// all steps or those named.
    pub(crate) fn jobs(
        &self,
        guests: &[String],
        daily: bool,
        kernel: Option<Kernel>,
        only: &[String],
    ) -> Result<Vec<Job>, PlanError> {
        for wanted in guests {
            if !self.guests.iter().any(|guest| guest.name == *wanted) {
                let known = self.guests.iter().map(|guest| guest.name.clone()).collect();
                return Err(PlanError::NoGuest { wanted: wanted.clone(), known });
            }
        }
        let chosen = self
            .guests
            .iter()
            .filter(
                |guest| if guests.is_empty() { guest.daily == daily } else { guests.contains(&guest.name) },
            )
            .filter(|guest| kernel.is_none_or(|kernel| guest.kernel == kernel));
        let mut jobs: Vec<Job> =
            chosen.map(|guest| Job { guest: guest.clone(), steps: self.steps(guest) }).collect();
        let known: BTreeSet<String> =
            jobs.iter().flat_map(|job| &job.steps).map(|step| step.name.clone()).collect();
        if let Some(wanted) = only.iter().find(|name| !known.contains(*name)) {
            return Err(PlanError::NoStep { wanted: wanted.clone(), known: known.into_iter().collect() });
        }
        if !only.is_empty() {
            for job in &mut jobs {
                // Without the device bound, no other step of a guest works.
                let is_needed = |step: &Step| step.always || step.name.starts_with("bind");
                job.steps.retain(|step| only.contains(&step.name) || is_needed(step));
            }
            jobs.retain(|job| job.steps.iter().any(|step| only.contains(&step.name)));
        }
        Ok(jobs)
    }

    fn steps(&self, guest: &Guest) -> Vec<Step> {
        guest.suites.iter().filter_map(|suite| self.suites.get(suite)).flatten().cloned().collect()
    }
}

/// Names become file names and shell words.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "
guests:
  - { name: group, about: x, kernel: stock, iommu: true, devices: [{kind: card}], suites: [one, two] }
  - { name: iommufd, about: y, kernel: built, iommu: true, suites: [one] }
  - { name: short, about: z, daily: true, kernel: stock, iommu: true, suites: [two] }
suites:
  one: [{ name: bind, run: bind }, { name: info, run: fpgactl info }]
  two: [{ name: kill, run: kill, status: 1 }, { name: end, run: end, always: true }]
";

    fn names(jobs: &[Job]) -> Vec<String> {
        let line = |job: &Job| {
            let steps: Vec<_> = job.steps.iter().map(|step| step.name.as_str()).collect();
            format!("{}: {}", job.guest.name, steps.join(" "))
        };
        jobs.iter().map(line).collect()
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn plan_of_project_is_valid() {
        let plan = Plan::load().unwrap();
        for daily in [false, true] {
            assert!(!plan.jobs(&[], daily, None, &[]).unwrap().is_empty());
        }
    }

    #[test]
    fn plan_guests_and_steps_are_selected() {
        let plan = Plan::parse(SMALL).unwrap();
        let all = plan.jobs(&[], false, None, &[]).unwrap();
        assert_eq!(names(&all), ["group: bind info kill end", "iommufd: bind info"]);
        let daily = plan.jobs(&[], true, None, &[]).unwrap();
        assert_eq!(names(&daily), ["short: kill end"]);
        let built = plan.jobs(&[], false, Some(Kernel::Built), &[]).unwrap();
        assert_eq!(names(&built), ["iommufd: bind info"]);
        let one = plan.jobs(&owned(&["group", "short"]), false, None, &owned(&["info"])).unwrap();
        assert_eq!(names(&one), ["group: bind info end"]);
        let kill = plan.jobs(&[], false, None, &owned(&["kill"])).unwrap();
        assert_eq!(names(&kill), ["group: bind kill end"]);
    }

    #[test]
    fn plan_machine_has_its_steps() {
        let two = SMALL.replace("daily: true", "machines: 2").replace("status: 1", "machine: 1");
        let two = two.replace("[one, two]", "[one]");
        let jobs = Plan::parse(&two).unwrap().jobs(&owned(&["short"]), false, None, &[]).unwrap();
        assert_eq!(names(&[jobs[0].of_machine(0)]), ["short, machine 0: end"]);
        assert_eq!(names(&[jobs[0].of_machine(1)]), ["short, machine 1: kill end"]);
    }

    #[test]
    fn plan_missing_name_is_reported() {
        let plan = Plan::parse(SMALL).unwrap();
        let error = plan.jobs(&owned(&["cdev"]), false, None, &[]).unwrap_err();
        assert_eq!(error.to_string(), "there is no guest cdev; there are: group, iommufd, short");
        let error = plan.jobs(&[], false, Some(Kernel::Built), &owned(&["kill"])).unwrap_err();
        assert_eq!(error.to_string(), "no selected guest has a step kill; there are: bind, info");
    }

    #[test]
    fn plan_file_errors_are_found() {
        for (from, to, problem) in [
            ("suites: [one]", "suites: [three]", "there is no suite three"),
            ("name: iommufd", "name: group", "guest \"group\""),
            ("name: info", "name: 'in fo'", "step \"in fo\""),
            ("name: kill", "name: bind", "step \"bind\""),
            ("status: 1", "stats: 1", "unknown field"),
            ("status: 1", "machine: 1", "step kill: machines are counted from 0, and there are 1"),
            ("daily: true", "machines: 3", "guest short: machines must be 1 to 2"),
            ("kernel: built", "kernel: built, machines: 2", "guest iommufd: the built kernel has no network"),
        ] {
            let error = Plan::parse(&SMALL.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(problem), "{to}: {error}");
        }
    }
}
