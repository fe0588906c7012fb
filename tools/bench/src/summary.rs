//! Figures of this machine from its runs: medians per parameters and CPU placement.

use super::cells::Setting;
use super::cost::{self, Cost};
use super::cpu_sample::CpuSample;
use super::data::{
    ChannelQuantity, Channels, CpuTime, Key, Latency, MachineFigures, Percentiles, PlacementSummary, Row,
    Throughput, VERSION,
};
use super::machine::Facts;
use super::measure::Answered;
use super::micro::Benchmark;
use super::placement::{CpuPlacement, histogram};
use super::questions::{Question, Trial};
use super::record::{self, Record, Run};
use super::runs::{Measured, Pair, Verdict};
use super::statistics::Figure;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Measurement {
    pub(crate) measured: Vec<Measured>,
    pub(crate) cost: Vec<Cost>,
    pub(crate) answered: Vec<Answered>,
    pub(crate) micro: Vec<Benchmark>,
    /// CPU placement around the benchmarks of `micro`; `None`: it changed.
    pub(crate) micro_placement: Option<CpuPlacement>,
}

/// Description of the machine, the state of the project and the command.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) cpu: String,
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) command: String,
    pub(crate) facts: Facts,
}

impl Measurement {
    /// Figures to store.
    pub(crate) fn figures(self, origin: Origin, setting: &Setting) -> MachineFigures {
        MachineFigures {
            version: VERSION,
            cpu: origin.cpu,
            date: origin.date,
            commit: origin.commit,
            command: origin.command,
            facts: origin.facts,
            placement: (!self.measured.is_empty()).then(|| self.placement(setting)),
            building_blocks_placement: self.micro_placement.filter(|_| !self.micro.is_empty()),
            throughput: self.rows(setting, throughput),
            latency: self.rows(setting, latency),
            cpu_time: self.cpu_time(setting),
            channels: self.answered.iter().flat_map(|answered| channels(answered, setting)).collect(),
            building_blocks: self.micro,
        }
    }

    fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.measured.iter().flat_map(|measured| &measured.pairs)
    }

    fn placement(&self, setting: &Setting) -> PlacementSummary {
        let count = |verdict| self.pairs().filter(|pair| pair.verdict(setting) == verdict).count();
        PlacementSummary {
            limits: setting.limits,
            near: count(Verdict::Counts(CpuPlacement::SharedCache)),
            far: count(Verdict::Counts(CpuPlacement::NoSharedCache)),
            one_core: count(Verdict::Counts(CpuPlacement::SameCore)),
            torn: count(Verdict::PlacementChanged),
            disturbed: count(Verdict::CpuTaken),
            latencies: histogram(self.pairs().flat_map(|pair| &pair.looks), &setting.limits),
        }
    }

    /// One row per cell and placement that has pairs.
    fn rows<T>(&self, setting: &Setting, of: fn(&[&Pair]) -> Option<T>) -> Vec<Row<T>> {
        let rows = self.measured.iter().flat_map(|measured| {
            CpuPlacement::ALL.into_iter().filter_map(move |placement| {
                let pairs: Vec<&Pair> = measured.of(placement, setting).collect();
                let cell = measured.cell;
                let key = Key { ring: cell.ring, size: cell.size, direction: cell.direction, placement };
                of(&pairs).map(|figures| Row { key, figures })
            })
        });
        rows.collect()
    }

    fn cpu_time(&self, setting: &Setting) -> Vec<Row<CpuTime>> {
        let looks = self.pairs().flat_map(|pair| &pair.looks);
        let samples: Vec<&CpuSample> = looks.chain(self.cost.iter().flat_map(Cost::samples)).collect();
        let quickest = cost::quickest(samples);
        let of =
            |runs: &[Run], placement| Figure::of(cost::in_regime(runs, placement, &setting.limits, quickest));
        let rows = self.cost.iter().flat_map(|cost| {
            CpuPlacement::ALL.into_iter().filter_map(move |placement| {
                let cell = cost.cell;
                let key = Key { ring: cell.ring, size: cell.size, direction: cell.direction, placement };
                let (ours_ns, peer_ns) = (of(&cost.ours, placement)?, of(&cost.peer, placement));
                Some(Row { key, figures: CpuTime { ours_ns, peer_ns } })
            })
        });
        rows.collect()
    }
}

fn peers<'a>(pairs: &'a [&Pair]) -> impl Iterator<Item = &'a Record> {
    pairs.iter().filter_map(|pair| pair.peer.as_ref())
}

fn throughput(pairs: &[&Pair]) -> Option<Throughput> {
    Some(Throughput {
        gb_per_s: Figure::of(pairs.iter().map(|pair| pair.ours.gb_per_s))?,
        copy_share: Figure::of(pairs.iter().filter_map(|pair| pair.ours.copy_share())),
        peer_gb_per_s: Figure::of(peers(pairs).map(|peer| peer.gb_per_s)),
        peer_ratio: Figure::of(pairs.iter().filter_map(|pair| pair.ratio())),
    })
}

fn latency(pairs: &[&Pair]) -> Option<Latency> {
    let ours = percentiles(pairs.iter().map(|pair| &pair.ours))?;
    Some(Latency { ours, peer: percentiles(peers(pairs)) })
}

fn percentiles<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Percentiles> {
    let latencies: Vec<record::Latency> = records.filter_map(|record| record.latency).collect();
    let of = |part: fn(&record::Latency) -> f64| Figure::of(latencies.iter().map(part));
    Some(Percentiles { p50_ns: of(|l| l.p50_ns)?, p99_ns: of(|l| l.p99_ns)?, p999_ns: of(|l| l.p999_ns)? })
}

/// Figures of one question, per placement; on one CPU there is none.
fn channels(answered: &Answered, setting: &Setting) -> Vec<Channels> {
    let in_placements = |quantity, ratio: fn(&Trial) -> Option<f64>, part: fn(&Record) -> Option<f64>| {
        let of = |placement| {
            let trials = answered.of(placement, setting);
            let value = Figure::of(trials.iter().filter_map(|trial| ratio(trial)))?;
            let with = Figure::of(trials.iter().filter_map(|trial| part(&trial.run)));
            let without = Figure::of(trials.iter().filter_map(|trial| part(trial.base.as_ref()?)));
            Some(Channels { quantity, placement: Some(placement), value, with, without })
        };
        CpuPlacement::ALL.into_iter().filter_map(of).collect()
    };
    match answered.question {
        Question::Channels => {
            in_placements(ChannelQuantity::FourChannels, Trial::share_ratio, Record::copy_share)
        }
        Question::Beside => in_placements(ChannelQuantity::Beside, Trial::latency_ratio, Record::p99_ns),
        Question::OneCpu => {
            let trials = CpuPlacement::ALL.into_iter().flat_map(|placement| answered.of(placement, setting));
            let records: Vec<Record> = trials.map(|trial| trial.run).collect();
            let of = |part: fn(&Record) -> Option<f64>| Figure::of(records.iter().filter_map(part));
            let share = of(Record::copy_share).map(|value| Channels {
                quantity: ChannelQuantity::OneCpuShare,
                placement: None,
                value,
                with: of(|record| Some(record.gb_per_s)),
                without: of(|record| record.copy_gb_per_s),
            });
            let latency = of(Record::p99_ns).map(|value| Channels {
                quantity: ChannelQuantity::OneCpuLatency,
                placement: None,
                value,
                with: None,
                without: None,
            });
            share.into_iter().chain(latency).collect()
        }
    }
}

#[cfg(test)]
mod tests;
