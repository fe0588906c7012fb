//! Results of guests: a table of cases by guests for people, one document for programs.
//!
//! This file is longer than most because of its tests.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::kernel::Bootable;
use super::plan::{Guest, Job, Output, Step};
use fpga_process::tail;

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 3;

/// Start of the output of a step that this machine or this guest cannot run; the reason follows.
const SKIPPED: &str = "skipped: ";

/// Result of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Pass,
    Warn,
    Skip,
    Fail,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Skip => "skip",
            Self::Fail => "FAIL",
        })
    }
}

/// Accesses to the card's registers that a case counted, and the number of transfers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) work: String,
    pub(crate) transfers: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) interrupts: u64,
}

impl Cost {
    /// Reads, writes and interrupts per transfer.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn each(&self) -> String {
        let each = |count: u64| match count as f64 / self.transfers.max(1) as f64 {
            0.0 => "0".to_owned(),
            each => format!("{each:.3}"),
        };
        format!("{} {} {}", each(self.reads), each(self.writes), each(self.interrupts))
    }
}

/// One case in one guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) seconds: f64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) costs: Vec<Cost>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:.1} s)", self.status, self.name, self.seconds)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

/// Line of a step whose output is cases.
#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    status: Status,
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    costs: Vec<Cost>,
}

/// Evaluates the end of a step.
pub(crate) fn judge(step: &Step, status: i32, stdout: &str, stderr: &str, seconds: f64) -> Vec<Row> {
    if status == 0
        && let Some(reason) = stdout.strip_prefix(SKIPPED)
    {
        let (name, message) = (step.name.clone(), reason.trim_end().to_owned());
        return vec![Row { name, status: Status::Skip, seconds, message, costs: Vec::new() }];
    }
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    let mut message = String::new();
    match step.output {
        Output::Text => {}
        Output::Figure => tail(stdout, 1).clone_into(&mut message),
        Output::Cases => {
            for line in stdout.lines().filter(|line| !line.trim().is_empty()) {
                match serde_json::from_str::<Case>(line) {
                    Ok(case) => rows.push(Row {
                        name: format!("{}: {}", step.name, case.name),
                        status: case.status,
                        seconds: case.seconds,
                        message: case.message.unwrap_or_default(),
                        costs: case.costs,
                    }),
                    Err(error) => problems.push(format!("a line that is not a case ({error}): {line}")),
                }
            }
            if rows.is_empty() {
                problems.push("no cases".to_owned());
            }
        }
    }
    // A program that reports failed cases also has a nonzero exit status: they are reported once, by name.
    let reported = status == 1 && rows.iter().any(|row| row.status == Status::Fail);
    if status != step.status && !reported {
        problems.push(if status >= 128 + 9 && step.status == 0 {
            format!("killed after {seconds:.0} s (status {status}; limit {} s)", step.seconds)
        } else {
            format!("status {status} instead of {}", step.status)
        });
    }
    for wanted in &step.says {
        if !stdout.contains(wanted) && !stderr.contains(wanted) {
            problems.push(format!("the output does not contain \"{wanted}\""));
        }
    }
    let failed = !problems.is_empty();
    if failed {
        for (name, text) in [("stdout", stdout), ("stderr", stderr)] {
            if !text.trim().is_empty() && (name == "stderr" || step.output != Output::Cases) {
                problems.push(format!("{name}: {}", tail(text, 15)));
            }
        }
        message = problems.join("\n      ");
    }
    let status = if failed { Status::Fail } else { Status::Pass };
    // A step that consists only of its cases has no separate row.
    if failed || step.output != Output::Cases {
        rows.insert(0, Row { name: step.name.clone(), status, seconds, message, costs: Vec::new() });
    }
    rows
}

/// Cases of the conformance suite in which the card attempts to write memory that the IOMMU protects.
const REFUSED_WRITES: [&str; 3] =
    ["iommu.unmapped_destination", "iommu.read_only_destination", "iommu.validate_finds_lost_writes"];

/// Results of one guest.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct GuestReport {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Kernel, and the version that it reported.
    pub(crate) kernel: String,
    pub(crate) release: String,
    pub(crate) seconds: f64,
    pub(crate) rows: Vec<Row>,
    /// Reason why it did not reach its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Reason why it was not started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    /// Reason why its kernel ended before the first program of the guest ran.
    #[serde(skip)]
    pub(crate) boot_failure: Option<String>,
    /// Counters of the processes that served its cards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cards: Vec<serde_json::Value>,
    /// End of its console output, after a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) console: String,
}

impl GuestReport {
    pub(crate) fn new(guest: &Guest, kernel: &Bootable) -> Self {
        Self::empty(&guest.name, &guest.about, format!("{} ({})", guest.kernel.name(), kernel.version))
    }

    /// Guest that this machine cannot run.
    pub(crate) fn not_started(guest: &Guest, reason: String) -> Self {
        let report = Self::empty(&guest.name, &guest.about, guest.kernel.name().to_owned());
        Self { skipped: Some(reason), ..report }
    }

    /// Backend of a process on this machine, which is a column of the table like a guest.
    pub(crate) fn of_backend(name: &str) -> Self {
        Self::empty(name, "process on this machine", "this machine's".to_owned())
    }

    fn empty(name: &str, about: &str, kernel: String) -> Self {
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            kernel,
            release: String::new(),
            seconds: 0.0,
            rows: Vec::new(),
            error: None,
            skipped: None,
            boot_failure: None,
            cards: Vec::new(),
            console: String::new(),
        }
    }

    /// Adds the report of one machine of several.
    pub(crate) fn join(&mut self, number: usize, machine: Self) {
        let name = |text: &str| format!("machine {number}: {text}");
        self.rows.extend(machine.rows.into_iter().map(|row| Row { name: name(&row.name), ..row }));
        self.release = machine.release;
        self.cards.extend(machine.cards);
        self.boot_failure = self.boot_failure.take().or(machine.boot_failure);
        if let Some(error) = machine.error {
            let error = name(&error);
            self.error = Some(self.error.take().map_or(error.clone(), |first| format!("{first}; {error}")));
        }
        if !machine.console.is_empty() {
            self.console.push_str(&format!("{}\n{}\n", name("console"), machine.console));
        }
    }

    /// Adds the steps that were not reached.
    pub(crate) fn close(&mut self, job: &Job) {
        for step in &job.steps {
            let of_step =
                |row: &Row| row.name == step.name || row.name.starts_with(&format!("{}: ", step.name));
            if !self.rows.iter().any(of_step) {
                self.rows.push(Row::not_run(&step.name));
            }
        }
    }

    /// Compares the results with the counters of the cards' processes. A guest cannot see writes that the IOMMU refused: no register shows
    /// them. So cases in which the card writes protected memory are checked against these counters.
    pub(crate) fn compare_with_cards(&mut self) {
        let passed = |row: &&Row| row.status == Status::Pass;
        let of_refusals = |row: &&Row| REFUSED_WRITES.iter().any(|case| row.name.ends_with(case));
        let cases = self.rows.iter().filter(passed).filter(of_refusals).count() as u64;
        if cases == 0 || self.cards.is_empty() {
            return;
        }
        let count = |card: &serde_json::Value| card.get("refused_dma_writes")?.as_u64();
        let refused: u64 = self.cards.iter().filter_map(count).sum();
        let message = format!("the card counted {refused} refused writes; {cases} cases cause such writes");
        let status = if refused < cases { Status::Fail } else { Status::Pass };
        let name = "refused writes are counted by the card".to_owned();
        self.rows.push(Row { name, status, seconds: 0.0, message, costs: Vec::new() });
    }

    pub(crate) fn verdict(&self) -> Verdict {
        if self.error.is_some() || self.count(Status::Fail) > 0 {
            Verdict::Failed
        } else if self.count(Status::Skip) == self.rows.len() {
            Verdict::Skipped
        } else {
            Verdict::Passed
        }
    }

    /// Skipped cases, by reason.
    fn skipped_cases(&self) -> Vec<(&str, Vec<&str>)> {
        let mut skipped: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.status == Status::Skip) {
            // The step's name is the same for all.
            let name = row.name.split_once(": ").map_or(row.name.as_str(), |(_, case)| case);
            match skipped.iter_mut().find(|(reason, _)| *reason == row.message) {
                Some((_, names)) => names.push(name),
                None => skipped.push((&row.message, vec![name])),
            }
        }
        skipped
    }

    fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }
}

/// Verdict on a guest. One that ran nothing has not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// It was not started, or all its steps were skipped.
    Skipped,
    Failed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped",
            Self::Failed => "FAILED",
        })
    }
}

/// Results of the whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema_version: u32,
    /// Whether all guests ran and passed.
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
    pub(crate) qemu: String,
    pub(crate) guests: Vec<GuestReport>,
}

impl Report {
    pub(crate) fn new(qemu: &str, guests: Vec<GuestReport>, seconds: f64) -> Self {
        let passed = guests.iter().all(|guest| guest.verdict() == Verdict::Passed);
        Self { schema_version: SCHEMA_VERSION, passed, seconds, qemu: qemu.to_owned(), guests }
    }

    /// Names of the guests with this verdict.
    pub(crate) fn with_verdict(&self, verdict: Verdict) -> Vec<String> {
        let those = self.guests.iter().filter(|guest| guest.verdict() == verdict);
        those.map(|guest| guest.name.clone()).collect()
    }

    /// Names of the cases in the order in which guests run them.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for guest in &self.guests {
            // A case that only a later guest has is placed after its predecessor there.
            let mut place = 0;
            for row in &guest.rows {
                match names.iter().position(|name| *name == row.name) {
                    Some(found) => place = found + 1,
                    None => {
                        names.insert(place, &row.name);
                        place += 1;
                    }
                }
            }
        }
        names
    }

    /// Cost of one transfer, in every mode on every backend.
    fn costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |guest: &GuestReport| -> Vec<Cost> {
            guest.rows.iter().flat_map(|row| row.costs.iter().cloned()).collect()
        };
        let backends: Vec<(&str, Vec<Cost>)> =
            self.guests.iter().map(|guest| (guest.name.as_str(), of(guest))).collect();
        let backends: Vec<_> = backends.into_iter().filter(|(_, costs)| !costs.is_empty()).collect();
        let mut works: Vec<&str> = Vec::new();
        for cost in backends.iter().flat_map(|(_, costs)| costs) {
            if !works.contains(&cost.work.as_str()) {
                works.push(&cost.work);
            }
        }
        if works.is_empty() {
            return Ok(());
        }
        let head = "register reads, writes and interrupts per transfer";
        let first = works.iter().map(|work| work.chars().count()).max().unwrap_or(0).max(head.len());
        write!(f, "{head:first$}")?;
        for (backend, _) in &backends {
            write!(f, "  {backend:>17}")?;
        }
        writeln!(f)?;
        for work in works {
            write!(f, "{work:first$}")?;
            for (_, costs) in &backends {
                let each = costs.iter().find(|cost| cost.work == work).map_or("-".to_owned(), Cost::each);
                write!(f, "  {each:>17}")?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = || self.guests.iter().filter(|guest| guest.skipped.is_none());
        let names = self.names();
        let first = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(4);
        write!(f, "\n{:first$}", "case")?;
        for guest in columns() {
            write!(f, "  {}", guest.name)?;
        }
        writeln!(f)?;
        for name in &names {
            write!(f, "{name:first$}")?;
            for guest in columns() {
                let width = guest.name.chars().count();
                match guest.rows.iter().find(|row| row.name == *name) {
                    Some(row) => write!(f, "  {:width$}", row.status)?,
                    None => write!(f, "  {:width$}", "-")?,
                }
            }
            writeln!(f)?;
        }
        writeln!(f)?;
        self.costs(f)?;
        for guest in columns() {
            writeln!(
                f,
                "{}: {}; kernel {}; {} passed, {} failed, {} skipped in {:.1} s",
                guest.name,
                guest.about,
                guest.kernel,
                guest.count(Status::Pass) + guest.count(Status::Warn),
                guest.count(Status::Fail),
                guest.count(Status::Skip),
                guest.seconds
            )?;
            let has_message = |row: &&Row| !row.message.is_empty() && row.status != Status::Skip;
            for row in guest.rows.iter().filter(has_message) {
                writeln!(f, "    {row}")?;
            }
            for (reason, names) in guest.skipped_cases() {
                writeln!(f, "    {SKIPPED}{}: {reason}", names.join(", "))?;
            }
            for (number, card) in guest.cards.iter().enumerate() {
                writeln!(f, "    card {number} counted {}", counted(card))?;
            }
            if let Some(error) = &guest.error {
                writeln!(f, "    FAIL {error}")?;
            }
            for line in guest.console.lines() {
                writeln!(f, "    | {line}")?;
            }
        }
        for guest in &self.guests {
            if let Some(reason) = &guest.skipped {
                writeln!(f, "{SKIPPED}guest {} ({}): {reason}", guest.name, guest.about)?;
            }
        }
        let counts = [Verdict::Passed, Verdict::Failed, Verdict::Skipped].map(|verdict| {
            let names = self.with_verdict(verdict);
            let which = if names.is_empty() || verdict == Verdict::Passed {
                String::new()
            } else {
                format!(" ({})", names.join(", "))
            };
            format!("{} {verdict}{which}", names.len())
        });
        writeln!(f, "guests: {} in {:.1} s; QEMU {}", counts.join(", "), self.seconds, self.qemu)
    }
}

/// Most important counters of a card's process; the JSON document has all of them.
fn counted(card: &serde_json::Value) -> String {
    let count = |key: &str| card.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
    format!(
        "{} register reads, {} writes, {} interrupts, {} descriptors, {} bytes of DMA; {} DMA reads and {} writes refused, {} faults logged",
        count("mmio_reads"),
        count("mmio_writes"),
        count("interrupts"),
        count("descriptors"),
        count("dma_bytes"),
        count("refused_dma_reads"),
        count("refused_dma_writes"),
        count("faults"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(output: Output, status: i32, says: &[&str]) -> Step {
        Step {
            name: "info".to_owned(),
            run: String::new(),
            machine: None,
            always: false,
            status,
            says: says.iter().map(|text| (*text).to_owned()).collect(),
            output,
            seconds: 5,
        }
    }

    #[test]
    fn report_step_passes_with_status_and_text() {
        let one = |step: &Step, status, out: &str, err: &str| {
            let rows = judge(step, status, out, err, 1.0);
            assert_eq!(rows.len(), 1);
            (rows[0].status, rows[0].message.clone())
        };
        let text = step(Output::Text, 1, &["bound to"]);
        assert_eq!(one(&text, 1, "", "bound to edu"), (Status::Pass, String::new()));
        let (status, message) = one(&text, 0, "fine", "");
        assert_eq!(status, Status::Fail);
        for part in ["status 0 instead of 1", "does not contain \"bound to\"", "stdout: fine"] {
            assert!(message.contains(part), "{message}");
        }
        let (_, message) = one(&step(Output::Text, 0, &[]), 137, "", "");
        assert!(message.contains("killed after 1 s"), "{message}");
        let figure = step(Output::Figure, 0, &[]);
        assert_eq!(one(&figure, 0, "a\n12 times\n", ""), (Status::Pass, "12 times".to_owned()));
    }

    #[test]
    fn report_step_that_says_skipped_has_not_passed() {
        let one =
            |status, out: &str| judge(&step(Output::Text, 0, &["works"]), status, out, "", 1.0).remove(0);
        let row = one(0, "skipped: FPGA_VENDOR_XDMA is not set\n");
        assert_eq!((row.status, row.message.as_str()), (Status::Skip, "FPGA_VENDOR_XDMA is not set"));
        // A program that failed has not been skipped, nor has one that reports a skipped part.
        assert_eq!(one(1, "skipped: no module\n").status, Status::Fail);
        assert_eq!(one(0, "works\nskipped: a part\n").status, Status::Pass);
    }

    #[test]
    fn report_skipped_guest_has_not_passed() {
        let group = guest("group", &[("bind", Status::Pass), ("vendor", Status::Skip)]);
        let rtl = guest("rtl", &[("modes", Status::Skip)]);
        let mut mpi = guest("mpi", &[]);
        mpi.skipped = Some("mpicc is not installed".to_owned());
        let verdicts = [&group, &rtl, &mpi].map(GuestReport::verdict);
        assert_eq!(verdicts, [Verdict::Passed, Verdict::Skipped, Verdict::Skipped]);
        let report = Report::new("11.1", vec![group, rtl, mpi], 3.0);
        assert!(!report.passed);
        let text = report.to_string();
        assert!(text.contains("skipped: guest mpi (): mpicc is not installed\n"), "{text}");
        assert!(text.contains("guests: 1 passed, 0 FAILED, 2 skipped (rtl, mpi) in 3.0 s"), "{text}");
    }

    #[test]
    fn report_cases_are_rows() {
        let cases = step(Output::Cases, 0, &[]);
        let lines = r#"{"name":"open","status":"pass","seconds":0.5}
{"name":"aer","status":"skip","message":"no port","backend":"mock"}"#;
        let rows = judge(&cases, 0, lines, "", 1.0);
        assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["info: open", "info: aer"]);
        assert_eq!((rows[1].status, rows[1].message.as_str()), (Status::Skip, "no port"));
        // A failed case has its own row; a crashed program is reported by an additional one.
        let rows = judge(&cases, 1, r#"{"name":"open","status":"fail"}"#, "", 1.0);
        assert_eq!((rows.len(), rows[0].status), (1, Status::Fail));
        let rows = judge(&cases, 101, lines, "panicked", 1.0);
        assert!(rows[0].status == Status::Fail && rows[0].message.contains("panicked"), "{rows:?}");
        let rows = judge(&cases, 0, "oops", "", 1.0);
        assert!(rows[0].message.contains("no cases"), "{rows:?}");
    }

    fn guest(name: &str, cases: &[(&str, Status)]) -> GuestReport {
        let row = |(name, status): &(&str, Status)| Row {
            name: (*name).to_owned(),
            status: *status,
            seconds: 0.0,
            message: String::new(),
            costs: Vec::new(),
        };
        GuestReport {
            seconds: 1.0,
            rows: cases.iter().map(row).collect(),
            cards: vec![serde_json::json!({ "refused_dma_writes": 7 })],
            ..GuestReport::empty(name, "", String::new())
        }
    }

    #[test]
    fn report_refused_writes_match_card_count() {
        let cases = [
            ("conformance: iommu.unmapped_destination", Status::Pass),
            ("conformance: iommu.read_only_destination", Status::Pass),
            ("conformance: iommu.unmapped_source", Status::Pass),
        ];
        for (counted, verdict) in [(0, Status::Fail), (1, Status::Fail), (2, Status::Pass)] {
            let mut guest = guest("group", &cases);
            guest.cards = vec![serde_json::json!({ "refused_dma_writes": counted })];
            guest.compare_with_cards();
            assert_eq!(guest.rows.last().map(|row| row.status), Some(verdict), "{counted}");
            assert_eq!(guest.verdict() == Verdict::Passed, verdict == Status::Pass);
        }
        let mut guest = guest("kill", &[("conformance: open", Status::Pass)]);
        guest.compare_with_cards();
        assert_eq!(guest.rows.len(), 1, "nothing to compare");
    }

    #[test]
    fn report_machines_are_joined() {
        let mut whole = guest("mpi", &[]);
        whole.cards.clear();
        let mut second = guest("mpi, machine 1", &[("bind", Status::Pass)]);
        second.error = Some("stopped".to_owned());
        whole.join(0, guest("mpi, machine 0", &[("bind", Status::Pass)]));
        whole.join(1, second);
        let names: Vec<&str> = whole.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["machine 0: bind", "machine 1: bind"]);
        assert_eq!((whole.cards.len(), whole.error.as_deref()), (2, Some("machine 1: stopped")));
        assert_eq!(whole.verdict(), Verdict::Failed);
    }

    #[test]
    fn report_skipped_cases_follow_reason() {
        let mut guest = guest("group", &[("conformance: a", Status::Skip), ("bind", Status::Pass)]);
        guest.rows[0].message = "no such card".to_owned();
        let other = Row { name: "conformance: b".to_owned(), ..guest.rows[0].clone() };
        let own = Row { name: "c".to_owned(), message: "no port".to_owned(), ..guest.rows[0].clone() };
        guest.rows.extend([own, other]);
        assert_eq!(guest.skipped_cases(), [("no such card", vec!["a", "b"]), ("no port", vec!["c"])]);
        let text = Report::new("11.1", vec![guest], 1.0).to_string();
        assert!(text.contains("skipped: a, b: no such card\n"), "{text}");
        assert!(!text.contains("0.0 s): no such card"), "{text}");
    }

    #[test]
    fn report_costs_are_separate_table() {
        let cost = |work: &str, writes| Cost {
            work: work.to_owned(),
            transfers: 64,
            reads: 0,
            writes,
            interrupts: 64,
        };
        let mut group = guest("group", &[("cost.poll", Status::Pass)]);
        let mut inline = guest("inline", &[("cost.poll", Status::Pass)]);
        group.rows[0].costs = vec![cost("polling", 4), cost("interrupt", 5)];
        inline.rows[0].costs = vec![cost("polling", 0)];
        let text = Report::new("11.1", vec![group, guest("kill", &[]), inline], 1.0).to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let head = lines.iter().position(|line| line.first() == Some(&"register")).unwrap();
        assert!(lines[head].ends_with(&["group", "inline"]), "{text}");
        assert_eq!(lines[head + 1], ["polling", "0", "0.062", "1.000", "0", "0", "1.000"]);
        assert_eq!(lines[head + 2], ["interrupt", "0", "0.078", "1.000", "-"]);
    }

    #[test]
    fn report_table_has_every_case_once() {
        let group = guest("group", &[("bind", Status::Pass), ("kill", Status::Fail)]);
        let iommufd = guest("iommufd", &[("bind", Status::Pass), ("aer", Status::Skip)]);
        let report = Report::new("11.1", vec![group, iommufd], 3.0);
        assert!(!report.passed);
        assert_eq!(report.names(), ["bind", "aer", "kill"]);
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines[1..5],
            ["case  group  iommufd", "bind  pass   pass", "aer   -      skip", "kill  FAIL   -"]
        );
        assert!(text.contains("guests: 1 passed, 1 FAILED (group), 0 skipped in 3.0 s"), "{text}");
        assert!(text.contains("0 DMA reads and 7 writes refused"), "{text}");
    }
}
