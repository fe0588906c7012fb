//! Benchmarks of the packages: runs `cargo bench`, and reads its results.
//!
//! Criterion benchmarks leave estimates; plain ones print lines `LABEL: N ns WHAT, N ns WHAT`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::placement::CpuPlacement;

/// Packages with benchmarks of the cost of a steady path.
const PACKAGES: [&str; 8] = [
    "fpga-ring",
    "fpga-protocol",
    "fpga-firmware",
    "fpga-pci",
    "fpga-sim",
    "fpga-card",
    "fpga-driver",
    "fpga-c",
];

/// Maximum cost of a benchmark in nanoseconds per operation, with and without a shared cache. The first entry whose words are all part of
/// the benchmark's name applies.
const BUDGETS: [(&str, &[&str], f64, f64); 9] = [
    ("ring/", &["submit", "complete"], 15.0, 30.0),
    ("registry/", &["match", "decision", "64"], 20.0, 20.0),
    ("registry/", &["packet", "64 operations"], 20.0, 20.0),
    ("registry/", &["packet", "65536 operations", "random"], 60.0, 60.0),
    ("timers/", &["stop+start of a million", "acknowledgement order"], 20.0, 20.0),
    ("timers/", &["stop+start of a million", "random"], 100.0, 100.0),
    ("op_table/", &["take", "acknowledge"], 20.0, 20.0),
    ("C interface/", &["submit+poll", "difference"], 15.0, 15.0),
    ("wire/", &["encode", "parse", "512"], 80.0, 80.0),
];

/// One benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Benchmark {
    pub(crate) package: String,
    pub(crate) name: String,
    /// Time per operation if the benchmark states the number of operations per round; else per round.
    pub(crate) nanoseconds: f64,
    /// Ends of the 95 % interval of the mean, if there is one.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Benchmark {
    /// Budget for a CPU placement, if one is agreed on.
    pub(crate) fn budget(&self, regime: CpuPlacement) -> Option<f64> {
        let (near, far) = self.budgets()?;
        Some(if regime == CpuPlacement::NoSharedCache { far } else { near })
    }

    /// Budgets with and without a shared cache.
    pub(crate) fn budgets(&self) -> Option<(f64, f64)> {
        let fits = |group: &str, words: &[&str]| {
            self.name.starts_with(group) && words.iter().all(|word| self.name.contains(word))
        };
        let (.., near, far) = BUDGETS.iter().find(|(group, words, ..)| fits(group, words))?;
        Some((*near, *far))
    }
}

/// Reasons why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MicroError {
    #[error("cargo bench -p {package}: {reason}")]
    Cargo { package: &'static str, reason: String },
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
}

#[derive(Deserialize)]
struct Description {
    full_id: String,
    throughput: Option<Throughput>,
}

/// Criterion's throughput: the number of operations per round.
#[derive(Deserialize)]
#[serde(untagged)]
enum Throughput {
    Elements {
        #[serde(rename = "Elements")]
        count: u64,
    },
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Estimates {
    mean: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// Runs the benchmarks of all packages; criterion's files go below `scratch`.
pub(crate) fn run(root: &Path, scratch: &Path) -> Result<Vec<Benchmark>, MicroError> {
    let mut all = Vec::new();
    for package in PACKAGES {
        eprintln!("cargo bench -p {package}");
        let home = scratch.join("criterion").join(package);
        // Results of an earlier run belong to another state of the code.
        let _ = std::fs::remove_dir_all(&home);
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["bench", "--quiet", "-p", package])
            .env("CRITERION_HOME", &home)
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| MicroError::Cargo { package, reason: error.to_string() })?;
        if !output.status.success() {
            return Err(MicroError::Cargo { package, reason: output.status.to_string() });
        }
        let mut found = Vec::new();
        collect(&home, package, &mut found)?;
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.extend(plain(package, &String::from_utf8_lossy(&output.stdout)));
        all.extend(found);
    }
    Ok(all)
}

/// Collects criterion's results below `folder`: a `new/benchmark.json` and a `new/estimates.json` per benchmark.
fn collect(folder: &Path, package: &str, found: &mut Vec<Benchmark>) -> Result<(), MicroError> {
    let failed = |path: &Path, reason: String| MicroError::File { path: path.to_owned(), reason };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        // The package has no such benchmarks.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(folder, error.to_string())),
    };
    for entry in entries {
        let path = entry.map_err(|error| failed(folder, error.to_string()))?.path();
        if !path.is_dir() {
            continue;
        }
        if path.file_name().is_none_or(|name| name != "new") {
            collect(&path, package, found)?;
            continue;
        }
        let read = |name: &str| {
            let path = path.join(name);
            std::fs::read(&path).map_err(|error| failed(&path, error.to_string()))
        };
        let parsed = criterion(package, &read("benchmark.json")?, &read("estimates.json")?);
        found.push(parsed.map_err(|error| failed(&path, error.to_string()))?);
    }
    Ok(())
}

/// Parses one benchmark from criterion's two files.
fn criterion(package: &str, description: &[u8], estimates: &[u8]) -> Result<Benchmark, serde_json::Error> {
    let description: Description = serde_json::from_slice(description)?;
    let Estimates { mean } = serde_json::from_slice(estimates)?;
    let count = match description.throughput {
        Some(Throughput::Elements { count }) => count.max(1),
        _ => 1,
    };
    #[expect(clippy::cast_precision_loss, reason = "operations of one round")]
    let count = count as f64;
    let Interval { lower_bound, upper_bound } = mean.confidence_interval;
    Ok(Benchmark {
        package: package.to_owned(),
        name: description.full_id,
        nanoseconds: mean.point_estimate / count,
        interval: Some((lower_bound / count, upper_bound / count)),
    })
}

/// Parses the lines of benchmarks that print their figures themselves.
fn plain(package: &str, text: &str) -> Vec<Benchmark> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((label, figures)) = line.split_once(": ") else { continue };
        for figure in figures.split(", ") {
            let mut words = figure.split_whitespace();
            let Some(Ok(nanoseconds)) = words.next().map(str::parse::<f64>) else { continue };
            if words.next() != Some("ns") || !nanoseconds.is_finite() {
                continue;
            }
            let rest: Vec<&str> = label.split_whitespace().chain(words).collect();
            found.push(Benchmark {
                package: package.to_owned(),
                name: rest.join(" "),
                nanoseconds,
                interval: None,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATES: &[u8] = br#"{"mean":{"confidence_interval":{"confidence_level":0.95,"lower_bound":2560.0,"upper_bound":5120.0},"point_estimate":3840.0,"standard_error":1.0},"median":null}"#;

    #[test]
    fn micro_criterion_files_are_read_per_operation() {
        let description = br#"{"group_id":"ring","function_id":"submit+complete x256","value_str":null,"throughput":{"Elements":256},"full_id":"ring/submit+complete x256","directory_name":"x","title":"x"}"#;
        let found = criterion("fpga-protocol", description, ESTIMATES).unwrap();
        assert_eq!(found.name, "ring/submit+complete x256");
        assert_eq!((found.nanoseconds, found.interval), (15.0, Some((10.0, 20.0))));
        assert_eq!(
            (found.budget(CpuPlacement::SharedCache), found.budget(CpuPlacement::NoSharedCache)),
            (Some(15.0), Some(30.0))
        );
        let other = String::from_utf8_lossy(description).replace("ring/", "cdma_ring/");
        let found = criterion("fpga-protocol", other.as_bytes(), ESTIMATES).unwrap();
        assert_eq!(found.budget(CpuPlacement::SharedCache), None, "another group");
        for throughput in [r#"{"Bytes":512}"#, "null"] {
            let description =
                format!(r#"{{"full_id":"wire/encode and parse 512","throughput":{throughput}}}"#);
            let found = criterion("fpga-firmware", description.as_bytes(), ESTIMATES).unwrap();
            assert_eq!(found.nanoseconds, 3840.0, "a throughput in bytes does not count operations");
            assert_eq!(found.budget(CpuPlacement::SharedCache), Some(80.0));
        }
        for (name, budget) in [
            ("registry/packet, 64 operations in turn, last of 64 windows", Some(20.0)),
            ("registry/packet, 65536 operations at random", Some(60.0)),
            ("registry/packet, in a row", None),
            ("timers/stop+start of a million, in acknowledgement order", Some(20.0)),
            ("timers/stop+start of a million, at random", Some(100.0)),
        ] {
            let description = format!(r#"{{"full_id":"{name}","throughput":null}}"#);
            let found = criterion("fpga-protocol", description.as_bytes(), ESTIMATES).unwrap();
            assert_eq!(found.budget(CpuPlacement::SharedCache), budget, "{name}");
        }
        assert!(criterion("x", b"{}", ESTIMATES).is_err());
    }

    #[test]
    fn micro_benchmarks_below_folder_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for (name, id) in [("ring/a", "ring/a"), ("alone", "alone")] {
            let new = dir.path().join(name).join("new");
            std::fs::create_dir_all(&new).unwrap();
            std::fs::write(new.join("benchmark.json"), format!(r#"{{"full_id":"{id}","throughput":null}}"#))
                .unwrap();
            std::fs::write(new.join("estimates.json"), ESTIMATES).unwrap();
            // Criterion's baseline for comparison.
            std::fs::create_dir_all(dir.path().join(name).join("base")).unwrap();
        }
        let mut found = Vec::new();
        collect(dir.path(), "fpga-protocol", &mut found).unwrap();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), ["alone", "ring/a"]);
        collect(&dir.path().join("absent"), "fpga-protocol", &mut found).unwrap();
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn micro_plain_benchmark_lines_are_read() {
        let text = "running 0 tests\n\
                    h2c     64 B, write-back every  32:     12.50 ns stepped,      6.25 ns in bursts, 2.00 ns copy alone\n\
                    op_table/take+acknowledge time:   [13.5 ns 13.6 ns 13.7 ns]\n\
                    map: 3 ns\nspeed: 5 GB/s\nnonsense: NaN ns\n";
        let found = plain("fpga-card", text);
        let names: Vec<(&str, f64)> =
            found.iter().map(|found| (found.name.as_str(), found.nanoseconds)).collect();
        let label = "h2c 64 B, write-back every 32";
        assert_eq!(
            names,
            [
                (&*format!("{label} stepped"), 12.5),
                (&*format!("{label} in bursts"), 6.25),
                (&*format!("{label} copy alone"), 2.0),
                ("map", 3.0)
            ]
        );
    }
}
