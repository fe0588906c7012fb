//! Speed of plain copies: the limit of everything that moves data by copying it.

use core::sync::atomic::AtomicU8;
use core::time::Duration;
use fpga_registers::invariant::DebugExpect as _;
use std::hint::black_box;
use std::time::Instant;

use super::choice::CANDIDATES;
use super::{CopyRoutine, fence, load_with};
use crate::memory::{HugePages, SharedMemory, advised};
use crate::{MemoryError, OsError};

/// Bytes copied between two fences, as a simulated card does it.
const FENCED: usize = 64 << 10;

/// Speed of the fastest plain copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyLimit {
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// The fastest routine; `None`: the standard library's copy (`memcpy`).
    pub routine: Option<CopyRoutine>,
}

impl CopyLimit {
    /// Measures copies of `length` bytes from a working set of `set` bytes to another one, in huge pages, for about `span`. All routines and
    /// the standard library's copy take turns, a pass over the working set each, and the best median counts.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] if the working set holds no copy of this length; [`MemoryError::Unavailable`].
    pub fn measure(length: usize, set: usize, span: Duration) -> Result<Self, MemoryError> {
        if length == 0 || length > set {
            return Err(MemoryError::BadLength { length });
        }
        let source = SharedMemory::anonymous(set, HugePages::Transparent)?;
        let mapped = |size: usize| {
            let unavailable = |error: std::io::Error| MemoryError::Unavailable {
                length: size,
                source: OsError::from(error),
            };
            advised(size).map_err(unavailable)
        };
        let (mut plain, plain_skip) = mapped(set)?;
        let (mut target, target_skip) = mapped(set)?;
        let plain = plain
            .get_mut(plain_skip..)
            .and_then(|bytes| bytes.get_mut(..set))
            .debug_expect("the mapping includes its alignment")
            .unwrap_or_default();
        let target = target
            .get_mut(target_skip..)
            .and_then(|bytes| bytes.get_mut(..set))
            .debug_expect("the mapping includes its alignment")
            .unwrap_or_default();
        // Pages that were never written would all be one page of zeros.
        source.fill(0, set, 1)?;
        plain.fill(2);
        target.fill(3);
        let available = CANDIDATES.into_iter().filter(|routine| routine.is_available()).map(Some);
        let mut passes: Vec<(Option<CopyRoutine>, Vec<Duration>)> =
            available.chain([None]).map(|routine| (routine, Vec::new())).collect();
        let begun = Instant::now();
        let mut complete = 0;
        // The first pass of each fills the caches with its own data.
        while complete < 2 || begun.elapsed() < span {
            for (routine, took) in &mut passes {
                let pass = Instant::now();
                match routine {
                    Some(routine) => copy(*routine, source.view().atomics(), target, length),
                    None => {
                        for (from, into) in plain.chunks_exact(length).zip(target.chunks_exact_mut(length)) {
                            black_box(into).copy_from_slice(black_box(from));
                        }
                    }
                }
                took.push(pass.elapsed());
            }
            complete += 1;
        }
        let bytes = (set - set % length) as f64;
        let limits = passes.into_iter().map(|(routine, mut took)| {
            took.sort_unstable();
            let median = took.get(took.len() / 2).copied().unwrap_or(Duration::MAX);
            Self { bytes_per_second: bytes / median.as_secs_f64().max(1e-9), routine }
        });
        let best = limits.max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second));
        best.ok_or(MemoryError::BadLength { length })
    }
}

/// One pass of `routine` over the working set.
fn copy(routine: CopyRoutine, source: &[AtomicU8], target: &mut [u8], length: usize) {
    let mut unfenced = 0;
    let mut parts = source.chunks_exact(length).zip(target.chunks_exact_mut(length)).peekable();
    while let Some((from, into)) = parts.next() {
        load_with(routine, from, into, parts.peek().map(|(next, _)| *next));
        unfenced += length;
        if routine.is_streaming() && (unfenced >= FENCED || parts.peek().is_none()) {
            fence();
            unfenced = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_every_length_is_measured() {
        for length in [1, 64, 512, 5000, 1 << 16] {
            let limit = CopyLimit::measure(length, 1 << 16, Duration::ZERO).unwrap();
            assert!(limit.bytes_per_second > 0.0 && limit.routine.is_none_or(CopyRoutine::is_available));
        }
        CopyLimit::measure(0, 4096, Duration::ZERO).unwrap_err();
        CopyLimit::measure(4097, 4096, Duration::ZERO).unwrap_err();
    }

    #[test]
    fn limit_pass_copies_whole_lengths() {
        let source: Vec<AtomicU8> = (0..=255_u8).cycle().take(100_000).map(AtomicU8::new).collect();
        for routine in CANDIDATES.into_iter().filter(|routine| routine.is_available()) {
            let mut target = vec![0; 100_000];
            copy(routine, &source, &mut target, 3000);
            assert!(
                target
                    .iter()
                    .zip(&source)
                    .take(99_000)
                    .all(|(a, b)| *a == b.load(core::sync::atomic::Ordering::Relaxed))
            );
            assert!(target[99_000..].iter().all(|byte| *byte == 0), "{routine}");
        }
    }
}
