//! Runs of this project's program alone: several channels, small operations beside large ones, one CPU.

use super::cells::Setting;
use super::cpu_sample::CpuSample;
use super::programs::{DriverProgram, ProgramError};
use super::record::Record;
use super::runs::{BUSY_CPUS, Verdict};

/// Size of the operations that fill the memory bus.
const LARGE: &str = "64KiB";
/// Size of the operations that beside them should not wait for long.
const SMALL: &str = "64";
/// Duration of a run in seconds.
const SECONDS: f64 = 0.5;
/// Duration of a run that measures the 99th percentile beside others, in seconds: latencies have only a part of it.
const LATENCY_SECONDS: f64 = 1.0;

/// Question that two runs answer, or one on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// Four channels per direction against one.
    Channels,
    /// Small operations beside large ones against small ones alone.
    Beside,
    /// Everything on one CPU.
    OneCpu,
}

/// Answer of one trial: the runs, and samples of the CPUs around them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trial {
    pub(crate) looks: Vec<CpuSample>,
    /// Run to compare with; `None` on one CPU, whose limit is the plain copy.
    pub(crate) base: Option<Record>,
    pub(crate) run: Record,
}

impl Question {
    pub(crate) const ALL: [Self; 3] = [Self::Channels, Self::Beside, Self::OneCpu];

    /// Minimum ratio of CPU time to wall time of its runs.
    pub(crate) const fn busy_cpus(self) -> f64 {
        match self {
            Self::OneCpu => BUSY_CPUS / 2.0,
            Self::Channels | Self::Beside => BUSY_CPUS,
        }
    }

    /// Options of `fpgactl dma bench` for the run to compare with, and for the run.
    pub(crate) const fn args(self) -> (Option<&'static [&'static str]>, &'static [&'static str]) {
        match self {
            Self::Channels => (
                Some(&["--sizes", LARGE, "--direction", "both", "--channels", "1", "--samples", "0"]),
                &["--sizes", LARGE, "--direction", "both", "--channels", "4", "--samples", "0"],
            ),
            Self::Beside => (
                Some(&["--sizes", SMALL, "--direction", "h2c"]),
                &["--sizes", SMALL, "--direction", "h2c", "--beside", "1MiB"],
            ),
            Self::OneCpu => (None, &["--sizes", LARGE, "--direction", "h2c"]),
        }
    }

    const fn seconds(self) -> f64 {
        match self {
            Self::Beside => LATENCY_SECONDS,
            Self::Channels | Self::OneCpu => SECONDS,
        }
    }

    /// Runs once.
    pub(crate) fn one_trial<E: From<ProgramError>>(
        self,
        setting: &Setting,
        program: &DriverProgram,
        sample: impl Fn() -> Result<CpuSample, E>,
    ) -> Result<Trial, E> {
        let [host, card] = setting.cpus;
        let seconds = setting.seconds.unwrap_or(self.seconds()).to_string();
        let (depth, pin) = (setting.depth.to_string(), format!("{card},{host}"));
        let common = ["--batches", "0", "--depth", &depth, "--seconds", &seconds];
        let one_cpu = self == Self::OneCpu;
        let run = |args: &[&str]| {
            let pinned = ["--pin", &pin];
            let words = [args, &common, if one_cpu { &[] } else { &pinned }].concat();
            program.bench(one_cpu.then_some(host), &words)
        };
        let (base, args) = self.args();
        let mut looks = vec![sample()?];
        let base = match base {
            Some(args) => {
                let record = run(args)?;
                looks.push(sample()?);
                Some(record)
            }
            None => None,
        };
        let run = run(args)?;
        looks.push(sample()?);
        Ok(Trial { looks, base, run })
    }

    /// Whether a trial counts, and for which placement.
    pub(crate) fn verdict(self, trial: &Trial, setting: &Setting) -> Verdict {
        let records = [trial.base.as_ref(), Some(&trial.run)];
        Verdict::of(records.into_iter().flatten(), &trial.looks, self.busy_cpus(), setting)
    }
}

impl Trial {
    /// Share of the copy limit divided by that of the run to compare with, which copies in less memory.
    pub(crate) fn share_ratio(&self) -> Option<f64> {
        Some(self.run.copy_share()? / self.base?.copy_share()?)
    }

    /// 99th percentile divided by that of the run to compare with.
    pub(crate) fn latency_ratio(&self) -> Option<f64> {
        Some(self.run.p99_ns()? / self.base?.p99_ns()?)
    }
}
