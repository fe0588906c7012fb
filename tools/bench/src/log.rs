//! Log of measurements, line by line, so that a later call can continue it.
//!
//! The first line names the programs and options; a log of other programs or options is not continued.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cells::{Cell, Setting};
use super::questions::{Question, Trial};
use super::record::Run;
use super::runs::Pair;

const FILE: &str = "runs.jsonl";

/// Reasons why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{}: line {line} is not a run: {source}; start again without --resume", path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error(
        "{} belongs to other programs or options ({found}; now {wanted}): start again without --resume",
        path.display()
    )]
    Other { path: PathBuf, found: String, wanted: String },
}

/// Program of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Program {
    Ours,
    Peer,
}

/// Line after the first one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum LogLine {
    Pair { cell: Cell, pair: Pair },
    Cost { cell: Cell, program: Program, run: Run },
    Question { question: Question, trial: Trial },
}

/// Log of measurements.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// Earlier content.
    before: Vec<LogLine>,
}

impl Log {
    /// Begins a log in `folder`, or continues the existing one.
    pub(crate) fn open(
        folder: &Path,
        setting: &Setting,
        programs: [Option<&Path>; 2],
        resume: bool,
    ) -> Result<Self, LogError> {
        let path = folder.join(FILE);
        let error = |source| LogError::File { path: path.clone(), source };
        let mut of = String::new();
        for program in programs.into_iter().flatten() {
            let mut hasher = DefaultHasher::new();
            fs::read(program).map_err(error)?.hash(&mut hasher);
            of += &format!("{:016x} ", hasher.finish());
        }
        let Setting { cpus: [host, card], depth, seconds, .. } = setting;
        let wanted = format!("{of}cpus {host},{card} depth {depth} seconds {seconds:?}");
        let mut before = Vec::new();
        if resume && path.exists() {
            let text = fs::read_to_string(&path).map_err(error)?;
            let (found, lines) = text.split_once('\n').unwrap_or((&text, ""));
            if found != wanted {
                let found = found.chars().take(200).collect();
                return Err(LogError::Other { path, found, wanted });
            }
            for (at, line) in lines.lines().enumerate() {
                let run = serde_json::from_str(line);
                before.push(run.map_err(|source| LogError::Line {
                    path: path.clone(),
                    line: at + 2,
                    source,
                })?);
            }
        } else {
            fs::create_dir_all(folder).map_err(error)?;
            fs::write(&path, wanted + "\n").map_err(error)?;
        }
        let file = OpenOptions::new().append(true).open(&path).map_err(error)?;
        Ok(Self { path, file, before })
    }

    /// Pairs of a cell in the log.
    pub(crate) fn pairs(&self, wanted: &Cell) -> Vec<Pair> {
        let pair = |line: &LogLine| match line {
            LogLine::Pair { cell, pair } if cell == wanted => Some(pair.clone()),
            _ => None,
        };
        self.before.iter().filter_map(pair).collect()
    }

    /// Cost runs of a cell and a program in the log.
    pub(crate) fn runs(&self, wanted: &Cell, whose: Program) -> Vec<Run> {
        let run = |line: &LogLine| match line {
            LogLine::Cost { cell, program, run } if cell == wanted && *program == whose => Some(*run),
            _ => None,
        };
        self.before.iter().filter_map(run).collect()
    }

    /// Trials of a question in the log.
    pub(crate) fn trials(&self, wanted: Question) -> Vec<Trial> {
        let trial = |line: &LogLine| match line {
            LogLine::Question { question, trial } if *question == wanted => Some(trial.clone()),
            _ => None,
        };
        self.before.iter().filter_map(trial).collect()
    }

    pub(crate) fn trial(&mut self, question: Question, trial: &Trial) -> Result<(), LogError> {
        self.write(&LogLine::Question { question, trial: trial.clone() })
    }

    pub(crate) fn pair(&mut self, cell: Cell, pair: &Pair) -> Result<(), LogError> {
        self.write(&LogLine::Pair { cell, pair: pair.clone() })
    }

    /// Appends a run, and returns it.
    pub(crate) fn run(
        &mut self,
        cell: Cell,
        program: Program,
        run: Option<Run>,
    ) -> Result<Option<Run>, LogError> {
        if let Some(run) = run {
            self.write(&LogLine::Cost { cell, program, run })?;
        }
        Ok(run)
    }

    fn write(&mut self, line: &LogLine) -> Result<(), LogError> {
        let text = serde_json::to_string(line).map_err(std::io::Error::other);
        let written = text.and_then(|text| writeln!(self.file, "{text}"));
        written.map_err(|source| LogError::File { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Direction, Ring};
    use super::super::cpu_sample::CpuSample;
    use super::super::placement::PlacementLatencies;
    use super::super::record::Record;
    use super::*;

    const SAMPLE: CpuSample = CpuSample { one_way_ns: 40.0, host_ns: 9.0, card_ns: 9.0, beside_ns: 9.5 };

    #[test]
    fn log_of_same_setting_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "one").unwrap();
        let limits = PlacementLatencies { near_ns: 34.0, far_ns: 90.0 };
        let setting = Setting { cpus: [0, 1], depth: 256, seconds: None, limits };
        let open = |resume| Log::open(dir.path(), &setting, [Some(program.as_path()), None], resume);
        let cell = Cell { ring: Ring::Credit, size: 64, direction: Direction::H2c };
        let other = Cell { size: 512, ..cell };
        let ours = Record { ops_per_s: 5e7, busy_cpus: 2.0, ..Record::default() };
        let trial = Trial { looks: vec![SAMPLE; 2], base: None, run: ours };
        let pair = Pair { looks: vec![SAMPLE; 2], ours, peer: Some(ours) };
        let run = Run { looks: [SAMPLE; 2], ns_per_op: 12.25 };
        let mut log = open(true).unwrap();
        log.pair(cell, &pair).unwrap();
        assert_eq!(log.run(cell, Program::Peer, Some(run)).unwrap(), Some(run));
        assert_eq!(log.run(other, Program::Ours, None).unwrap(), None);
        log.trial(Question::OneCpu, &trial).unwrap();
        let mut log = open(true).unwrap();
        assert_eq!((log.trials(Question::OneCpu), log.trials(Question::Beside)), (vec![trial], Vec::new()));
        assert_eq!((log.pairs(&cell), log.pairs(&other)), (vec![pair], Vec::new()));
        assert_eq!((log.runs(&cell, Program::Ours), log.runs(&cell, Program::Peer)), (Vec::new(), vec![run]));
        writeln!(log.file, "nonsense").unwrap();
        assert!(open(true).unwrap_err().to_string().contains("line 5"));
        fs::write(&program, "two").unwrap();
        assert!(matches!(open(true), Err(LogError::Other { .. })));
        assert_eq!(open(false).unwrap().pairs(&cell), Vec::new());
        assert_eq!(open(true).unwrap().pairs(&cell), Vec::new());
    }
}
