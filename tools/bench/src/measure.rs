//! The measurement: pairs of runs, questions and costs, in rounds, so that a change of the CPU placement affects all of them alike.

use std::fmt::Write as _;

use super::BenchError;
use super::cells::{Cell, Setting, size_text};
use super::cpu_sample::CpuSample;
use super::placement::CpuPlacement;
use super::programs::{Amount, DriverProgram, Peer};
use super::questions::{Question, Trial};
use super::runs::{Measured, Pair, Verdict};

/// All trials of a question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answered {
    pub(crate) question: Question,
    pub(crate) trials: Vec<Trial>,
}

impl Answered {
    /// Trials that count for a placement.
    pub(crate) fn of(&self, placement: CpuPlacement, setting: &Setting) -> Vec<&Trial> {
        let counts = |trial: &&Trial| self.question.verdict(trial, setting) == Verdict::Counts(placement);
        self.trials.iter().filter(counts).collect()
    }

    fn is_done(&self, wanted: usize, setting: &Setting) -> bool {
        CpuPlacement::ALL.into_iter().any(|placement| self.of(placement, setting).len() >= wanted)
    }
}

/// Amount of work of a run of a pair.
fn amount(setting: &Setting, size: u64) -> Amount {
    Amount {
        // The shortest ones need millions of operations; otherwise the first operations distort the result.
        seconds: setting.seconds.unwrap_or(if size <= 64 { 1.2 } else { 0.5 }),
        // Long operations consist only of copying.
        samples: if size <= 4096 { 100_000 } else { 0 },
        batches: 0,
    }
}

/// Runs one pair per cell and round.
pub(crate) fn pairs(
    setting: &Setting,
    cells: &[Cell],
    [wanted, tries]: [usize; 2],
    ours: &DriverProgram,
    peer: Option<&Peer>,
) -> Result<Vec<Measured>, BenchError> {
    let mut all: Vec<Measured> =
        cells.iter().map(|cell| Measured { cell: *cell, pairs: Vec::new() }).collect();
    for round in 1..=wanted * tries {
        let open = all.iter().filter(|measured| !measured.is_done(wanted, setting)).count();
        if open == 0 {
            break;
        }
        eprintln!("round {round}: {open} of {} combinations need more pairs", all.len());
        for measured in all.iter_mut().filter(|measured| !measured.is_done(wanted, setting)) {
            let pair = one_pair(setting, &measured.cell, ours, peer)?;
            eprintln!("  {}", progress(&measured.cell, &pair, setting));
            measured.pairs.push(pair);
        }
    }
    Ok(all)
}

fn one_pair(
    setting: &Setting,
    cell: &Cell,
    ours: &DriverProgram,
    peer: Option<&Peer>,
) -> Result<Pair, BenchError> {
    let amount = amount(setting, cell.size);
    let mut looks = vec![CpuSample::sample(setting.cpus)?];
    let ours = ours.run(setting, cell, &amount)?;
    looks.push(CpuSample::sample(setting.cpus)?);
    let peer = match peer {
        Some(peer) => {
            let record = peer.run(setting, cell, &amount)?;
            looks.push(CpuSample::sample(setting.cpus)?);
            Some(record)
        }
        None => None,
    };
    Ok(Pair { looks, ours, peer })
}

/// Progress line for one pair.
fn progress(cell: &Cell, pair: &Pair, setting: &Setting) -> String {
    let latencies: Vec<String> = pair.looks.iter().map(|cores| format!("{:.0}", cores.one_way_ns)).collect();
    let mut text = format!(
        "{:>7} {} {:6}  {:8.3} M ops/s",
        size_text(cell.size),
        cell.direction.name(),
        cell.ring.name(),
        pair.ours.ops_per_s / 1e6
    );
    // Writing to a string cannot fail.
    if let Some(share) = pair.ours.copy_share() {
        let _ = write!(text, ", {share:4.2} of a copy");
    }
    if let (Some(peer), Some(ratio)) = (&pair.peer, pair.ratio()) {
        let _ = write!(text, ", peer {:8.3}, ratio {ratio:6.2}", peer.ops_per_s / 1e6);
    }
    let _ = write!(text, "  {} ({} ns)", pair.verdict(setting).name(), latencies.join(" "));
    text
}

/// Runs one trial per question and round.
pub(crate) fn questions(
    setting: &Setting,
    [wanted, tries]: [usize; 2],
    ours: &DriverProgram,
) -> Result<Vec<Answered>, BenchError> {
    let mut all = Question::ALL.map(|question| Answered { question, trials: Vec::new() });
    for round in 1..=wanted * tries {
        let open = all.iter().filter(|answered| !answered.is_done(wanted, setting)).count();
        if open == 0 {
            break;
        }
        eprintln!("channels, round {round}: {open} of {} questions need more runs", all.len());
        for answered in all.iter_mut().filter(|answered| !answered.is_done(wanted, setting)) {
            let question = answered.question;
            let sample = || CpuSample::sample(setting.cpus).map_err(BenchError::from);
            let trial = question.one_trial(setting, ours, sample)?;
            eprintln!("  {question:?}: {}", question.verdict(&trial, setting).name());
            answered.trials.push(trial);
        }
    }
    Ok(all.into())
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Direction, Ring};
    use super::super::placement::PlacementLatencies;
    use super::super::record::Record;
    use super::*;

    const SETTING: Setting = Setting {
        cpus: [0, 1],
        depth: 256,
        seconds: None,
        limits: PlacementLatencies { near_ns: 34.0, far_ns: 90.0 },
    };

    fn sample(one_way_ns: f64) -> CpuSample {
        CpuSample { one_way_ns, host_ns: 9.0, card_ns: 9.0, beside_ns: 9.0 }
    }

    #[test]
    fn progress_names_placement_and_ratios() {
        let cell = Cell { ring: Ring::Credit, size: 64, direction: Direction::C2h };
        let ours = Record {
            ops_per_s: 90e6,
            gb_per_s: 5.0,
            copy_gb_per_s: Some(10.0),
            busy_cpus: 2.0,
            ..Record::default()
        };
        let pair = Pair {
            looks: [40.0, 41.0, 40.0].map(sample).to_vec(),
            ours,
            peer: Some(Record { ops_per_s: 30e6, ..ours }),
        };
        let text = progress(&cell, &pair, &SETTING);
        assert!(text.contains("0.50 of a copy") && text.contains("ratio   3.00"), "{text}");
        assert!(text.contains("near (40 41 40 ns)"), "{text}");
    }

    #[test]
    fn question_on_one_cpu_needs_one_busy_cpu() {
        let trial = |busy_cpus| Trial {
            looks: vec![sample(40.0); 2],
            base: None,
            run: Record { busy_cpus, ..Record::default() },
        };
        let answered = |question| Answered { question, trials: vec![trial(1.0), trial(0.5)] };
        let counted = |question| answered(question).of(CpuPlacement::SharedCache, &SETTING).len();
        assert_eq!((counted(Question::OneCpu), counted(Question::Beside)), (1, 0));
        let one = answered(Question::OneCpu);
        assert!(one.is_done(1, &SETTING) && !one.is_done(2, &SETTING));
    }
}
