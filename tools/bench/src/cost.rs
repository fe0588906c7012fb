//! CPU time of submitting and reaping an operation on the submitting CPU.
//!
//! Short runs of closed batches (see `fpgactl dma bench`), each between two samples of the CPUs. The result is CPU time, so it almost
//! doubles when another program works on the other hardware thread of the core; neither of the two measured programs causes that cost. Runs
//! with foreign load there before or after are left out, on both sides alike.

use super::BenchError;
use super::cells::{Cell, Setting};
use super::cpu_sample::CpuSample;
use super::placement::{CpuPlacement, PlacementLatencies};
use super::programs::{Amount, DriverProgram, Peer};
use super::record::{Record, Run};

/// Amount of work of a run: no latencies, and many batches, which have a quarter of the time. Some tenths of a second.
const AMOUNT: Amount = Amount { seconds: 0.2, samples: 0, batches: 5_000 };
/// Maximum operation size that is measured: the cost of submission does not depend on the size.
const MAX_OPERATION_BYTES: u64 = 64;
/// Number of runs tried in the time of a pair: they are short.
const RUNS_PER_PAIR: usize = 3;
/// Ratio to the fastest arithmetic seen above which the core counts as shared with foreign load.
const BUSY_CPU_RATIO: f64 = 1.1;

/// All runs of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cost {
    pub(super) cell: Cell,
    pub(super) ours: Vec<Run>,
    pub(super) peer: Vec<Run>,
}

/// Fastest burst of arithmetic in the samples of the submitting CPU.
pub(super) fn quickest<'a>(samples: impl IntoIterator<Item = &'a CpuSample>) -> f64 {
    samples.into_iter().map(|cores| cores.host_ns).fold(f64::INFINITY, f64::min)
}

impl Cost {
    pub(super) fn samples(&self) -> impl Iterator<Item = &CpuSample> {
        self.ours.iter().chain(&self.peer).flat_map(|run| &run.looks)
    }

    fn is_done(&self, wanted: usize, limits: &PlacementLatencies, quickest: f64, with_peer: bool) -> bool {
        let enough = |runs: &[Run], regime| in_regime(runs, regime, limits, quickest).count() >= wanted;
        CpuPlacement::ALL
            .into_iter()
            .any(|regime| enough(&self.ours, regime) && (!with_peer || enough(&self.peer, regime)))
    }
}

/// Costs of the runs that had the submitting CPU's core for themselves and belong to this placement.
pub(super) fn in_regime(
    runs: &[Run],
    regime: CpuPlacement,
    limits: &PlacementLatencies,
    quickest: f64,
) -> impl Iterator<Item = f64> {
    runs.iter().filter_map(move |run| {
        let own = run.looks.iter().all(|cores| cores.host_ns <= BUSY_CPU_RATIO * quickest);
        (own && CpuPlacement::of(&run.looks, limits) == Some(regime)).then_some(run.ns_per_op)
    })
}

/// Runs both programs alternately until each cell has enough runs.
pub(super) fn costs(
    setting: &Setting,
    cells: &[Cell],
    [wanted, tries]: [usize; 2],
    ours: &DriverProgram,
    peer: Option<&Peer>,
    mut quickest_ns: f64,
) -> Result<Vec<Cost>, BenchError> {
    let small = cells.iter().filter(|cell| cell.size <= MAX_OPERATION_BYTES);
    let mut all: Vec<Cost> =
        small.map(|cell| Cost { cell: *cell, ours: Vec::new(), peer: Vec::new() }).collect();
    for round in 1..=wanted * tries * RUNS_PER_PAIR {
        let seen = quickest_ns;
        let is_open = |cost: &Cost| !cost.is_done(wanted, &setting.limits, seen, peer.is_some());
        let open = all.iter().filter(|cost| is_open(cost)).count();
        if open == 0 {
            break;
        }
        eprintln!("cost, round {round}: {open} of {} combinations need more runs", all.len());
        for cost in all.iter_mut().filter(|cost| is_open(cost)) {
            let before = CpuSample::sample(setting.cpus)?;
            let record = ours.run(setting, &cost.cell, &AMOUNT)?;
            let between = CpuSample::sample(setting.cpus)?;
            cost.ours.extend(run([before, between], &record));
            if let Some(peer) = peer {
                let record = peer.run(setting, &cost.cell, &AMOUNT)?;
                let after = CpuSample::sample(setting.cpus)?;
                cost.peer.extend(run([between, after], &record));
            }
            quickest_ns = quickest_ns.min(quickest(cost.samples()));
        }
    }
    Ok(all)
}

fn run(looks: [CpuSample; 2], record: &Record) -> Option<Run> {
    record.cpu_ns_per_op.map(|ns_per_op| Run { looks, ns_per_op })
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Direction, Ring};
    use super::*;

    const LIMITS: PlacementLatencies = PlacementLatencies { near_ns: 34.0, far_ns: 90.0 };

    fn run(latencies: [f64; 2], host: [f64; 2], ns_per_op: f64) -> Run {
        let [first, second] = [0, 1].map(|at: usize| CpuSample {
            one_way_ns: latencies[at],
            host_ns: host[at],
            card_ns: 100.0,
            beside_ns: 100.0,
        });
        Run { looks: [first, second], ns_per_op }
    }

    #[test]
    fn cost_runs_with_busy_cpu_or_changed_placement_are_discarded() {
        let runs = [
            run([40.0, 41.0], [100.0, 109.0], 12.0),
            run([40.0, 41.0], [100.0, 150.0], 21.0),
            run([40.0, 160.0], [100.0, 100.0], 25.0),
            run([160.0, 160.0], [100.0, 100.0], 28.0),
        ];
        let of = |regime| in_regime(&runs, regime, &LIMITS, 100.0).collect::<Vec<_>>();
        assert_eq!(
            (of(CpuPlacement::SharedCache), of(CpuPlacement::NoSharedCache), of(CpuPlacement::SameCore)),
            (vec![12.0], vec![28.0], vec![])
        );
    }

    #[test]
    fn cost_cell_is_done_with_enough_runs_in_one_placement() {
        let cell = Cell { ring: Ring::Credit, size: 64, direction: Direction::H2c };
        let (near, far) = (run([40.0; 2], [100.0; 2], 12.0), run([160.0; 2], [100.0; 2], 28.0));
        let mut cost = Cost { cell, ours: vec![near], peer: vec![far] };
        assert!(cost.is_done(1, &LIMITS, 100.0, false) && !cost.is_done(1, &LIMITS, 100.0, true));
        cost.peer.push(near);
        assert!(cost.is_done(1, &LIMITS, 100.0, true) && !cost.is_done(2, &LIMITS, 100.0, true));
        assert_eq!(quickest(cost.samples()), 100.0);
        assert!(
            !cost.is_done(1, &LIMITS, 90.0, true),
            "a faster sample shows foreign load in the earlier runs"
        );
    }
}
