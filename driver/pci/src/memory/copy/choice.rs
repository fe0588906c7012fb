//! Choice of the routine for data beyond the caches, by measuring on this machine.
//!
//! No rule predicts the fastest routine: streaming stores win on some processors and lose on others, by up to a factor of two either way,
//! and the size of the pages and of the copies matters. So each routine copies chunks of memory that is not in the first two caches, in
//! turn with the others, once per process. The best of several chunks counts: another program's load on the machine only slows down.

use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use super::{CopyRoutine, PageKind, fence, load_with};
use crate::memory::{HugePages, SharedMemory, advised, normal};

/// Variable of the environment that names the routine for all sizes and pages.
const VARIABLE: &str = "FPGA_COPY";
/// Lengths of the measured copies. Each stands for the lengths up to the geometric mean with the next.
const LENGTHS: [usize; 3] = [512, 4096, 64 << 10];
const LIMITS: [usize; 2] = [1448, 16 << 10];
/// Bytes of memory on each side: with both sides more than a second-level cache holds.
const SIDE: usize = 2 << 20;
/// Bytes copied between two readings of the clock.
const CHUNK: usize = 64 << 10;
/// Chunks of each length that each routine copies.
const ROUNDS: usize = 6;
/// A streaming routine wins if it reaches this share of the best one: the others displace data of other programs from the caches.
const STREAMING_SHARE: f64 = 0.97;
/// Routines in the order of preference among equally fast ones.
pub(super) const CANDIDATES: [CopyRoutine; 5] = [
    CopyRoutine::Avx2Streaming,
    CopyRoutine::Avx512Streaming,
    CopyRoutine::Avx2,
    CopyRoutine::Avx512,
    CopyRoutine::RepMovsb,
];

/// Speed of a routine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredRoutine {
    /// Routine.
    pub routine: CopyRoutine,
    /// Bytes per second; 0 if it was not measured.
    pub bytes_per_second: f64,
}

/// Routines for one kind of pages.
#[derive(Debug, Clone, Default)]
pub struct RoutineTable {
    chosen: [Option<CopyRoutine>; LENGTHS.len()],
    measured: [Vec<MeasuredRoutine>; LENGTHS.len()],
}

impl RoutineTable {
    /// Routine for copies of `length` bytes.
    #[must_use]
    #[inline]
    pub fn for_length(&self, length: usize) -> CopyRoutine {
        let [small, middle, large] = self.chosen;
        let [below_middle, below_large] = LIMITS;
        let chosen = if length < below_middle {
            small
        } else if length < below_large {
            middle
        } else {
            large
        };
        chosen.unwrap_or(fallback())
    }

    /// Measured lengths in bytes, the routine chosen for each, and the speed of all routines that were measured.
    pub fn rows(&self) -> impl Iterator<Item = (usize, CopyRoutine, &[MeasuredRoutine])> {
        LENGTHS
            .into_iter()
            .zip(&self.measured)
            .map(|(length, all)| (length, self.for_length(length), all.as_slice()))
    }

    /// The same routine for all lengths.
    fn of(routine: CopyRoutine) -> Self {
        Self { chosen: [Some(routine); LENGTHS.len()], measured: Default::default() }
    }
}

/// Routines for data beyond the caches, chosen for this machine.
#[derive(Debug, Clone, Default)]
pub struct CopyRoutines {
    normal: RoutineTable,
    huge: RoutineTable,
    forced: bool,
}

static CHOSEN: OnceLock<CopyRoutines> = OnceLock::new();

impl CopyRoutines {
    /// Returns the routines of this process: measured by the first call, or the one that the variable `FPGA_COPY` names. The measurement
    /// takes some milliseconds, most of them for fresh memory; without memory it is streaming AVX2, where the machine has it.
    pub fn get() -> &'static Self {
        CHOSEN.get_or_init(|| match std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()) {
            None => Self::measure(),
            Some(name) => name.parse().map_or_else(
                |error| {
                    tracing::warn!(%error, "{VARIABLE} is ignored");
                    Self::measure()
                },
                Self::of,
            ),
        })
    }

    /// Returns the routines if [`get`](Self::get) was called before.
    #[inline]
    pub fn if_measured() -> Option<&'static Self> {
        CHOSEN.get()
    }

    /// Routines for shared memory of these pages.
    #[must_use]
    #[inline]
    pub const fn of_pages(&self, pages: PageKind) -> &RoutineTable {
        match pages {
            PageKind::Normal => &self.normal,
            PageKind::Huge => &self.huge,
        }
    }

    /// Whether the variable `FPGA_COPY` names the routine.
    #[must_use]
    pub const fn is_forced(&self) -> bool {
        self.forced
    }

    /// The same routine everywhere.
    fn of(routine: CopyRoutine) -> Self {
        Self { normal: RoutineTable::of(routine), huge: RoutineTable::of(routine), forced: true }
    }

    /// Measures the routines on fresh memory.
    fn measure() -> Self {
        let candidates: Vec<_> = CANDIDATES.into_iter().filter(|routine| routine.is_available()).collect();
        if candidates.len() < 2 {
            return Self::default();
        }
        let table = |huge| measure_pages(&candidates, huge).unwrap_or_default();
        Self { normal: table(HugePages::No), huge: table(HugePages::Transparent), forced: false }
    }
}

/// Measures all candidates for all lengths, in memory of these pages. `None` without memory.
fn measure_pages(candidates: &[CopyRoutine], huge: HugePages) -> Option<RoutineTable> {
    let source = SharedMemory::anonymous(SIDE, huge).ok()?;
    let (mut target, skip) = if huge == HugePages::No { normal(SIDE) } else { advised(SIDE) }.ok()?;
    let target = target.get_mut(skip..).unwrap_or_default();
    // Pages that were never written would all be one page of zeros.
    source.fill(0, SIDE, 1).ok()?;
    target.fill(2);
    // The source is never written, and each routine has a part of the target to itself, as where the same routine copies everything: what
    // is in the third-level cache depends on the routine. All chunks of all parts are used in turn, so that nothing stays in the second.
    let share = SIDE / CHUNK / candidates.len() * CHUNK;
    let (mut from, mut to) = (0, 0);
    let mut table = RoutineTable::default();
    for ((length, chosen), measured) in LENGTHS.into_iter().zip(&mut table.chosen).zip(&mut table.measured) {
        let mut best = vec![Duration::MAX; candidates.len()];
        for _ in 0..ROUNDS {
            for ((routine, best), part) in
                candidates.iter().zip(&mut best).zip(target.chunks_exact_mut(share))
            {
                let from_chunk = source.view().atomics().get(from..from + CHUNK)?;
                let to_chunk = part.get_mut(to..to + CHUNK)?;
                let begun = Instant::now();
                let mut parts = from_chunk.chunks(length).zip(to_chunk.chunks_mut(length)).peekable();
                while let Some((from, into)) = parts.next() {
                    load_with(*routine, from, into, parts.peek().map(|(next, _)| *next));
                }
                if routine.is_streaming() {
                    fence();
                }
                *best = begun.elapsed().min(*best);
                from = (from + CHUNK) % SIDE;
            }
            to = (to + CHUNK) % share;
        }
        let rate = |time: Duration| CHUNK as f64 / time.as_secs_f64().max(1e-9);
        let rates = candidates.iter().zip(best);
        measured.extend(
            rates.map(|(routine, time)| MeasuredRoutine { routine: *routine, bytes_per_second: rate(time) }),
        );
        *chosen = choose(measured);
    }
    Some(table)
}

/// The fastest routine, or a streaming one that is almost as fast.
fn choose(measured: &[MeasuredRoutine]) -> Option<CopyRoutine> {
    let fastest = |streaming: bool| {
        let those = measured.iter().filter(|one| one.routine.is_streaming() || !streaming);
        // The first of equally fast ones.
        those.rev().max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))
    };
    let best = fastest(false)?;
    let streaming =
        fastest(true).filter(|one| one.bytes_per_second >= STREAMING_SHARE * best.bytes_per_second);
    Some(streaming.unwrap_or(best).routine)
}

/// Routine of a table that was not measured.
fn fallback() -> CopyRoutine {
    let all = [CopyRoutine::Avx2Streaming, CopyRoutine::Sse2];
    all.into_iter().find(|routine| routine.is_available()).unwrap_or(CopyRoutine::Words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rates: [f64; 3]) -> Vec<MeasuredRoutine> {
        let routines = [CopyRoutine::Avx2Streaming, CopyRoutine::Avx2, CopyRoutine::Avx512];
        let all = routines.into_iter().zip(rates);
        all.map(|(routine, bytes_per_second)| MeasuredRoutine { routine, bytes_per_second }).collect()
    }

    #[test]
    fn choice_fastest_routine_wins_and_streaming_wins_ties() {
        assert_eq!(choose(&rates([10.0, 20.0, 15.0])), Some(CopyRoutine::Avx2));
        assert_eq!(choose(&rates([10.0, 15.0, 20.0])), Some(CopyRoutine::Avx512));
        assert_eq!(
            choose(&rates([10.0, 20.0, 20.0])),
            Some(CopyRoutine::Avx2),
            "the first of equally fast ones"
        );
        assert_eq!(choose(&rates([19.5, 20.0, 15.0])), Some(CopyRoutine::Avx2Streaming));
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn choice_measured_tables_name_available_routines() {
        let routines = CopyRoutines::measure();
        for pages in PageKind::ALL {
            let table = routines.of_pages(pages);
            for (length, routine, measured) in table.rows() {
                assert!(routine.is_available());
                assert_eq!(table.for_length(length), routine);
                assert!(measured.iter().all(|one| one.bytes_per_second > 0.0), "{measured:?}");
            }
        }
        assert!(!routines.is_forced());
    }

    #[test]
    fn choice_forced_routine_applies_to_all_lengths() {
        let routines = CopyRoutines::of(fallback());
        let lengths = [129, 4096, 1 << 20];
        let all = PageKind::ALL
            .into_iter()
            .flat_map(|pages| lengths.map(|length| routines.of_pages(pages).for_length(length)));
        assert!(all.into_iter().all(|routine| routine == fallback()) && routines.is_forced());
    }

    #[test]
    fn choice_names_are_parsed_if_available() {
        for routine in CopyRoutine::ALL {
            assert_eq!(routine.name().parse::<CopyRoutine>().is_ok(), routine.is_available());
        }
        let said = "fastest".parse::<CopyRoutine>().unwrap_err().to_string();
        assert!(said.contains("\"fastest\"") && said.contains(fallback().name()), "{said}");
    }
}
