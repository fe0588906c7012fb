//! Figures of one machine, as stored in `docs/benchmarks/machines/NAME.json`: the source of all pages.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cells::{Direction, Ring};
use super::machine::Facts;
use super::micro::Benchmark;
use super::placement::{Bar, CpuPlacement, PlacementLatencies};
use super::statistics::Figure;

/// Folder of the files, relative to the root of the workspace.
pub(crate) const FOLDER: &str = "docs/benchmarks/machines";
/// Version of the files.
pub(crate) const VERSION: u32 = 1;

/// Reasons why a file of figures cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: serde_json::Error },
    #[error(
        "{} has version {found}, but this program reads version {VERSION}: measure on that machine again",
        path.display()
    )]
    Version { path: PathBuf, found: u32 },
}

/// Figures of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineFigures {
    pub(crate) version: u32,
    /// Short name of the CPU, for headings.
    pub(crate) cpu: String,
    /// Day of the measurement, as `YYYY-MM-DD`.
    pub(crate) date: String,
    pub(crate) commit: String,
    /// Command that repeats the measurement.
    pub(crate) command: String,
    pub(crate) facts: Facts,
    pub(crate) placement: Option<PlacementSummary>,
    /// CPU placement around the benchmarks of the packages; `None`: it changed, or they were skipped.
    pub(crate) building_blocks_placement: Option<CpuPlacement>,
    pub(crate) throughput: Vec<Row<Throughput>>,
    pub(crate) latency: Vec<Row<Latency>>,
    pub(crate) cpu_time: Vec<Row<CpuTime>>,
    pub(crate) channels: Vec<Channels>,
    pub(crate) building_blocks: Vec<Benchmark>,
}

/// Pairs of runs by CPU placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlacementSummary {
    pub(crate) limits: PlacementLatencies,
    pub(crate) near: usize,
    pub(crate) far: usize,
    pub(crate) one_core: usize,
    /// Discarded pairs: the placement changed.
    pub(crate) torn: usize,
    /// Discarded pairs: other programs took CPU time.
    pub(crate) disturbed: usize,
    pub(crate) latencies: Vec<Bar>,
}

/// Parameters of a row, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) ring: Ring,
    pub(crate) size: u64,
    pub(crate) direction: Direction,
    pub(crate) placement: CpuPlacement,
}

/// Figures with their parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row<T> {
    #[serde(flatten)]
    pub(crate) key: Key,
    #[serde(flatten)]
    pub(crate) figures: T,
}

/// Throughput.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Throughput {
    pub(crate) gb_per_s: Figure,
    /// Rate divided by that of the fastest plain copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) copy_share: Option<Figure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer_gb_per_s: Option<Figure>,
    /// Rate divided by the peer's, pair by pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer_ratio: Option<Figure>,
}

/// Latency of one operation at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) ours: Percentiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<Percentiles>,
}

/// Percentiles of a latency in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Percentiles {
    pub(crate) p50_ns: Figure,
    pub(crate) p99_ns: Figure,
    pub(crate) p999_ns: Figure,
}

/// CPU time of an operation on the submitting CPU, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuTime {
    pub(crate) ours_ns: Figure,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer_ns: Option<Figure>,
}

/// Quantity of the page about channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ChannelQuantity {
    /// Rate of four channels per direction, divided by that of one.
    FourChannels,
    /// 99th percentile of small operations beside large ones, divided by that of small ones alone.
    Beside,
    /// Rate on one CPU, divided by that of a plain copy.
    OneCpuShare,
    /// 99th percentile of one operation on one CPU, in nanoseconds.
    OneCpuLatency,
}

/// Figure of the page about channels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Channels {
    pub(crate) quantity: ChannelQuantity,
    /// `None` on one CPU.
    pub(crate) placement: Option<CpuPlacement>,
    pub(crate) value: Figure,
    /// Dividend of a ratio: GB/s or nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) with: Option<Figure>,
    /// Divisor of a ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) without: Option<Figure>,
}

impl MachineFigures {
    /// Name of the file: `Intel(R) Xeon(R) Processor` is `intel-xeon`.
    pub(crate) fn file_name(&self) -> String {
        let words: Vec<String> = self
            .cpu
            .to_lowercase()
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        if words.is_empty() { "unknown.json".to_owned() } else { words.join("-") + ".json" }
    }

    /// Placement with the most rows of throughput: that of the summary.
    pub(crate) fn main_placement(&self) -> CpuPlacement {
        let rows = |placement| self.throughput.iter().filter(|row| row.key.placement == placement).count();
        let all = CpuPlacement::ALL.into_iter().rev();
        all.max_by_key(|placement| rows(*placement)).unwrap_or(CpuPlacement::SharedCache)
    }

    /// Content of the file: one row per line, so that changes of rows are readable.
    pub(crate) fn json(&self) -> Result<String, serde_json::Error> {
        let mut text = String::from("{\n");
        let mut field = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}  \"{name}\": {value}", if text.len() > 2 { ",\n" } else { "" });
        };
        field("version", self.version.to_string());
        for (name, value) in
            [("cpu", &self.cpu), ("date", &self.date), ("commit", &self.commit), ("command", &self.command)]
        {
            field(name, serde_json::to_string(value)?);
        }
        field("facts", list(&self.facts)?);
        field("placement", serde_json::to_string(&self.placement)?);
        field("building_blocks_placement", serde_json::to_string(&self.building_blocks_placement)?);
        field("throughput", list(&self.throughput)?);
        field("latency", list(&self.latency)?);
        field("cpu_time", list(&self.cpu_time)?);
        field("channels", list(&self.channels)?);
        field("building_blocks", list(&self.building_blocks)?);
        Ok(text + "\n}\n")
    }
}

/// JSON array with one element per line.
fn list<T: Serialize>(rows: &[T]) -> Result<String, serde_json::Error> {
    if rows.is_empty() {
        return Ok("[]".to_owned());
    }
    let rows: Vec<String> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("[\n    {}\n  ]", rows.join(",\n    ")))
}

/// Reads the files of all machines below `root`, in the order of their names.
pub(crate) fn read_all(root: &Path) -> Result<Vec<MachineFigures>, DataError> {
    let folder = root.join(FOLDER);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|source| DataError::File { path: folder.clone(), source })? {
        let path = entry.map_err(|source| DataError::File { path: folder.clone(), source })?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.into_iter().map(read).collect()
}

/// Version of a file, before the rest is parsed.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

fn read(path: PathBuf) -> Result<MachineFigures, DataError> {
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(source) => return Err(DataError::File { path, source }),
    };
    match serde_json::from_slice::<Versioned>(&text) {
        Ok(Versioned { version: VERSION }) => {
            serde_json::from_slice(&text).map_err(|source| DataError::Syntax { path, source })
        }
        Ok(Versioned { version: found }) => Err(DataError::Version { path, found }),
        Err(source) => Err(DataError::Syntax { path, source }),
    }
}

/// Replaces the file of a machine below `root`.
pub(crate) fn write(root: &Path, figures: &MachineFigures) -> Result<(), DataError> {
    let path = root.join(FOLDER).join(figures.file_name());
    let text = match figures.json() {
        Ok(text) => text,
        Err(source) => return Err(DataError::Syntax { path, source }),
    };
    let written = fs::create_dir_all(root.join(FOLDER)).and_then(|()| fs::write(&path, text));
    written.map_err(|source| DataError::File { path, source })
}
