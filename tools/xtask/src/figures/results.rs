//! Results of fpgactl, kept in `target/figures`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use fpga_process::output;
use serde_json::Value;

use super::{FiguresError, at};
use crate::startup;

/// Line of a CSV file, by column.
pub(super) type Line = HashMap<String, String>;

/// Results of one build of fpgactl.
pub(super) struct Results {
    program: PathBuf,
    folder: PathBuf,
}

impl Results {
    /// Builds fpgactl. Removes earlier results, unless they are reused.
    pub(super) fn new(root: &Path, reuse: bool) -> Result<Self, FiguresError> {
        let (program, folder) = (startup::release_fpgactl(root)?, root.join("target/figures"));
        if folder.exists() && !reuse {
            std::fs::remove_dir_all(&folder).map_err(at(&folder))?;
        }
        std::fs::create_dir_all(&folder).map_err(at(&folder))?;
        Ok(Self { program, folder })
    }

    /// JSON output of a command, which runs only once.
    pub(super) fn json(&self, command: &str) -> Result<Value, FiguresError> {
        let name: String = command.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let path = self.folder.join(format!("{name}.json"));
        if !path.exists() {
            println!("fpgactl {command}");
            let mut program = Command::new(&self.program);
            program.current_dir(&self.folder).args(command.split(' ')).args(["--json", "--no-progress"]);
            std::fs::write(&path, output(&mut program)?).map_err(at(&path))?;
        }
        let text = std::fs::read_to_string(&path).map_err(at(&path))?;
        serde_json::from_str(&text)
            .map_err(|source| FiguresError::Output { command: command.to_owned(), source })
    }

    /// JSON output of `sim run` for the text of a scenario.
    pub(super) fn run(&self, scenario: &str, runs: &str) -> Result<Value, FiguresError> {
        let mut hasher = DefaultHasher::new();
        scenario.hash(&mut hasher);
        let name = format!("scenario-{:016x}", hasher.finish());
        let path = self.folder.join(format!("{name}.yaml"));
        std::fs::write(&path, scenario).map_err(at(&path))?;
        self.json(&format!("sim run {name}.yaml --runs {runs} --out ."))
    }

    /// JSON output of the grid that the repository contains.
    pub(super) fn grid(&self) -> Result<Value, FiguresError> {
        self.json("sim grid --runs 3 --out .")
    }

    /// File of the grid.
    pub(super) fn grid_file(&self, name: &str) -> Result<Vec<u8>, FiguresError> {
        self.grid()?;
        let path = self.folder.join(name);
        std::fs::read(&path).map_err(at(&path))
    }

    /// Lines of a figure.
    pub(super) fn figure(&self, name: &str) -> Result<Vec<Line>, FiguresError> {
        self.json("sim figure all --out .")?;
        let file = if name == "state-bits" { format!("{name}.csv") } else { format!("{name}-intervals.csv") };
        let path = self.folder.join(file);
        let text = std::fs::read_to_string(&path).map_err(at(&path))?;
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let line = |line: &str| {
            header.iter().map(|name| (*name).to_owned()).zip(line.split(',').map(str::to_owned)).collect()
        };
        Ok(lines.map(line).collect())
    }
}
