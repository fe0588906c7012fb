//! Runs with samples of the CPUs around them, and whether they count.

use super::cells::{Cell, Setting};
use super::cpu_sample::CpuSample;
use super::placement::CpuPlacement;
use super::record::Record;

/// Minimum ratio of CPU time to wall time of a run. Both threads of either program are busy all the time, so the difference to 2 is CPU
/// time of other programs.
pub(crate) const BUSY_CPUS: f64 = 1.9;

/// One run of each program, and samples of the CPUs before, between and after.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    pub(crate) looks: Vec<CpuSample>,
    pub(crate) ours: Record,
    pub(crate) peer: Option<Record>,
}

/// Verdict on a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It counts for a placement.
    Counts(CpuPlacement),
    /// It does not count: the placement of the CPUs changed meanwhile.
    PlacementChanged,
    /// It does not count: other programs took CPU time.
    CpuTaken,
}

impl Verdict {
    /// Judges runs that had to keep `busy` CPUs busy, with the samples around them.
    pub(crate) fn of<'a>(
        records: impl IntoIterator<Item = &'a Record>,
        looks: &[CpuSample],
        busy: f64,
        setting: &Setting,
    ) -> Self {
        if records.into_iter().any(|record| record.busy_cpus < busy) {
            return Self::CpuTaken;
        }
        CpuPlacement::of(looks, &setting.limits).map_or(Self::PlacementChanged, Self::Counts)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counts(regime) => regime.name(),
            Self::PlacementChanged => "discarded: torn",
            Self::CpuTaken => "discarded: disturbed",
        }
    }
}

impl Pair {
    pub(crate) fn verdict(&self, setting: &Setting) -> Verdict {
        let records = [Some(&self.ours), self.peer.as_ref()];
        Verdict::of(records.into_iter().flatten(), &self.looks, BUSY_CPUS, setting)
    }

    /// Ratio of the rates, ours to the peer's.
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|peer| self.ours.ops_per_s / peer.ops_per_s)
    }
}

/// All pairs of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    pub(crate) cell: Cell,
    pub(crate) pairs: Vec<Pair>,
}

impl Measured {
    pub(crate) fn of(&self, regime: CpuPlacement, setting: &Setting) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(move |pair| pair.verdict(setting) == Verdict::Counts(regime))
    }

    pub(crate) fn is_done(&self, wanted: usize, setting: &Setting) -> bool {
        CpuPlacement::ALL.into_iter().any(|regime| self.of(regime, setting).count() >= wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Direction, Ring};
    use super::super::placement::PlacementLatencies;
    use super::*;

    #[test]
    fn cell_is_done_with_enough_pairs_in_one_placement() {
        let setting = Setting {
            cpus: [0, 1],
            depth: 256,
            seconds: None,
            limits: PlacementLatencies { near_ns: 34.0, far_ns: 90.0 },
        };
        let record = Record { ops_per_s: 1.0, busy_cpus: 2.0, ..Record::default() };
        let sample = |one_way_ns: &f64| CpuSample {
            one_way_ns: *one_way_ns,
            host_ns: 9.0,
            card_ns: 9.0,
            beside_ns: 9.0,
        };
        let pair = |latencies: &[f64]| Pair {
            looks: latencies.iter().map(sample).collect(),
            ours: record,
            peer: None,
        };
        let cell = Cell { ring: Ring::Credit, size: 64, direction: Direction::H2c };
        let mut measured =
            Measured { cell, pairs: vec![pair(&[40.0, 41.0]), pair(&[160.0, 165.0]), pair(&[40.0, 165.0])] };
        assert!(measured.is_done(1, &setting) && !measured.is_done(2, &setting));
        let stolen = Record { busy_cpus: 1.5, ..record };
        measured.pairs.push(Pair { ours: stolen, ..pair(&[160.0, 160.0]) });
        measured.pairs.push(Pair { peer: Some(stolen), ..pair(&[160.0, 160.0]) });
        measured.pairs.push(pair(&[155.0, 165.0]));
        assert!(measured.is_done(2, &setting));
        assert_eq!(measured.of(CpuPlacement::SharedCache, &setting).count(), 1);
    }
}
