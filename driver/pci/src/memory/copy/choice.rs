//! Choice of the routine for data beyond the caches, by measuring on this machine.
//!
//! No rule predicts the fastest routine: streaming stores win on some processors and lose on others, by up to a factor of two either way,
//! and the size of the pages and of the copies matters. So each routine copies chunks of memory that is not in the first two caches, in
//! turn with the others, once per process and kind of pages. The best of several chunks counts: another program's load on the machine only slows down.

use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use memmap2::{MmapMut, MmapOptions};

use super::{CopyRoutine, PageKind, fence, load_with};
use crate::memory::{SharedMemory, advised};

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

/// Routines for data beyond the caches, chosen for this machine. Those for each kind of pages are measured when they are needed first.
#[derive(Debug, Clone, Default)]
pub struct CopyRoutines {
    normal: OnceLock<RoutineTable>,
    huge: OnceLock<RoutineTable>,
    forced: Option<CopyRoutine>,
}

static CHOSEN: OnceLock<CopyRoutines> = OnceLock::new();

impl CopyRoutines {
    /// Returns the routines of this process.
    #[inline]
    pub fn get() -> &'static Self {
        CHOSEN.get_or_init(|| {
            let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
            let forced = name.and_then(|name| {
                let parsed = name.parse();
                parsed.inspect_err(|error| tracing::warn!(%error, "{VARIABLE} is ignored")).ok()
            });
            Self::of(forced)
        })
    }

    /// Routines for shared memory of these pages: the one that the variable `FPGA_COPY` names, or those that the first call of the process
    /// for these pages measures, in about a millisecond. Without memory to measure on it is streaming AVX2, where the machine has it.
    #[inline]
    pub fn of_pages(&self, pages: PageKind) -> &RoutineTable {
        self.table(pages).get_or_init(|| match self.forced {
            Some(routine) => RoutineTable::of(routine),
            None => measure(pages).unwrap_or_default(),
        })
    }

    /// Routine for one copy of `length` bytes, if the process has measured by now.
    #[inline]
    pub(super) fn if_measured(length: usize) -> Option<CopyRoutine> {
        let routines = CHOSEN.get()?;
        let table = || routines.normal.get().or_else(|| routines.huge.get());
        routines.forced.or_else(|| table().map(|table| table.for_length(length)))
    }

    /// Returns whether the variable `FPGA_COPY` names the routine.
    #[must_use]
    pub const fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// Nothing measured; the same routine everywhere if `forced`.
    fn of(forced: Option<CopyRoutine>) -> Self {
        Self { forced, ..Self::default() }
    }

    const fn table(&self, pages: PageKind) -> &OnceLock<RoutineTable> {
        match pages {
            PageKind::Normal => &self.normal,
            PageKind::Huge => &self.huge,
        }
    }
}

/// Measures the routines in fresh memory of these pages. `None` without memory, or with no choice.
fn measure(pages: PageKind) -> Option<RoutineTable> {
    let candidates: Vec<_> = CANDIDATES.into_iter().filter(|routine| routine.is_available()).collect();
    let (source, skip) = fresh(pages).ok()?;
    let source = SharedMemory::of_mapping(source, skip, SIDE).ok()?;
    let (mut target, skip) = fresh(pages).ok()?;
    let target = target.get_mut(skip..).filter(|_| candidates.len() > 1)?;
    // Pages that were never written would all be one page of zeros. One byte each is enough: the kernel clears them.
    for (at, place) in (0..SIDE).zip(target.iter_mut()).step_by(rustix::param::page_size()) {
        source.write(at, &[1]).ok()?;
        *place = 2;
    }
    // The source is never written again, and each routine has a part of the target to itself, as where the same routine copies everything:
    // what is in the third-level cache depends on the routine. All chunks of all parts are used in turn, so that nothing stays in the
    // second.
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

/// Maps one side's memory. Also returns the number of bytes to skip at the start of the mapping.
fn fresh(pages: PageKind) -> std::io::Result<(MmapMut, usize)> {
    match pages {
        // All pages by one system call: a third of the time of 512 page faults.
        PageKind::Normal => Ok((MmapOptions::new().len(SIDE).populate().map_anon()?, 0)),
        PageKind::Huge => advised(SIDE),
    }
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
        let routines = CopyRoutines::of(None);
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
        let routines = CopyRoutines::of(Some(fallback()));
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
