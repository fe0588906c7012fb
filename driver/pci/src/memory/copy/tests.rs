use super::*;
use core::sync::atomic::Ordering;
use proptest::prelude::*;

/// Guard bytes on both sides of a copy: they must not change.
const GUARD: usize = 64;
const MARK: u8 = 0xE7;

/// Byte `at` of the pattern: never [`MARK`], and different within any 229 consecutive bytes.
fn pattern(at: usize) -> u8 {
    u8::try_from(at % 229).unwrap()
}

type LoadWith = fn(CopyRoutine, &[AtomicU8], &mut [u8], Option<&[AtomicU8]>);
type StoreWith = fn(CopyRoutine, &[AtomicU8], &[u8], Option<&[u8]>);

/// The operations of one implementation.
#[derive(Clone, Copy)]
struct CopyFunctions {
    name: &'static str,
    load: fn(&[AtomicU8], &mut [u8]),
    store: fn(&[AtomicU8], &[u8]),
    between: fn(&[AtomicU8], &[AtomicU8]),
    fill: fn(&[AtomicU8], u8),
    load_with: LoadWith,
    store_with: StoreWith,
    fence: fn(),
}

const COPY_FUNCTIONS: [CopyFunctions; 2] = [
    CopyFunctions { name: "chosen", load, store, between, fill, load_with, store_with, fence },
    CopyFunctions {
        name: "words",
        load: words::load,
        store: words::store,
        between: words::between,
        fill: words::fill,
        load_with: words::load_with,
        store_with: words::store_with,
        fence: words::fence,
    },
];

/// Buffers for copies of up to `longest` bytes at any of 64 alignments; reused in all tests.
struct TestBed {
    source: Vec<AtomicU8>,
    target: Vec<AtomicU8>,
    plain_source: Vec<u8>,
    plain_target: Vec<u8>,
    window: usize,
}

impl TestBed {
    fn new(longest: usize) -> Self {
        let window = GUARD + 64 + longest + GUARD;
        let atomics = || (0..window + 64).map(|_| AtomicU8::new(0)).collect();
        Self {
            source: atomics(),
            target: atomics(),
            plain_source: vec![0; window + 64],
            plain_target: vec![0; window + 64],
            window,
        }
    }

    /// Checks all operations of `ways` for `length` bytes from alignment `from` to alignment `to`.
    fn check(&mut self, ways: CopyFunctions, from: usize, to: usize, length: usize) {
        self.check_routine(ways, CopyRoutine::Avx2Streaming, from, to, length);
    }

    /// As [`check`](Self::check), with a routine for the operations that have one.
    fn check_routine(
        &mut self,
        ways: CopyFunctions,
        routine: CopyRoutine,
        from: usize,
        to: usize,
        length: usize,
    ) {
        let CopyFunctions { name, load, store, between, fill, load_with, store_with, fence } = ways;
        let window = self.window;
        let skip = self.source.as_ptr().align_offset(64);
        let source = &self.source[skip..skip + window];
        let skip = self.target.as_ptr().align_offset(64);
        let target = &self.target[skip..skip + window];
        let skip = self.plain_source.as_ptr().align_offset(64);
        let plain_source = &mut self.plain_source[skip..skip + window];
        let skip = self.plain_target.as_ptr().align_offset(64);
        let plain_target = &mut self.plain_target[skip..skip + window];

        let (from, to) = (GUARD + from, GUARD + to);
        let (from_range, to_range) = (from..from + length, to..to + length);
        for (at, (shared, plain)) in source.iter().zip(&mut *plain_source).enumerate() {
            shared.store(pattern(at), Ordering::Relaxed);
            *plain = pattern(at);
        }
        let wanted = |at: usize| if to_range.contains(&at) { pattern(at - to + from) } else { MARK };
        let clear = || target.iter().for_each(|place| place.store(MARK, Ordering::Relaxed));
        let what = || format!("{name}: {length} bytes from {from} to {to}");

        plain_target.fill(MARK);
        load(&source[from_range.clone()], &mut plain_target[to_range.clone()]);
        assert!(plain_target.iter().enumerate().all(|(at, byte)| *byte == wanted(at)), "load, {}", what());

        // `next` is a hint: any value works.
        plain_target.fill(MARK);
        let next = Some(&source[to..]);
        load_with(routine, &source[from_range.clone()], &mut plain_target[to_range.clone()], next);
        fence();
        let same = plain_target.iter().enumerate().all(|(at, byte)| *byte == wanted(at));
        assert!(same, "load with {routine}, {}", what());

        let target_is = |wanted: &dyn Fn(usize) -> u8| {
            target.iter().enumerate().all(|(at, byte)| byte.load(Ordering::Relaxed) == wanted(at))
        };
        clear();
        store(&target[to_range.clone()], &plain_source[from_range.clone()]);
        assert!(target_is(&wanted), "store, {}", what());

        clear();
        store_with(routine, &target[to_range.clone()], &plain_source[from_range.clone()], None);
        fence();
        assert!(target_is(&wanted), "store with {routine}, {}", what());

        clear();
        between(&target[to_range.clone()], &source[from_range.clone()]);
        assert!(target_is(&wanted), "between, {}", what());

        clear();
        fill(&target[to_range.clone()], 0x5A);
        assert!(target_is(&|at| if to_range.contains(&at) { 0x5A } else { MARK }), "fill, {}", what());
        let untouched =
            source.iter().enumerate().all(|(at, byte)| byte.load(Ordering::Relaxed) == pattern(at));
        assert!(untouched, "the source changed, {}", what());
    }
}

/// Every alignment, with every length or one in `step`: another one for each alignment.
fn check_alignments(step: usize) {
    let mut bed = TestBed::new(300);
    for ways in COPY_FUNCTIONS {
        for at in 0..64 {
            for length in (at % step..=300).step_by(step) {
                bed.check(ways, at, (at * 5 + length) % 64, length);
                bed.check(ways, 0, at, length);
            }
        }
    }
}

#[test]
fn copy_every_alignment_and_short_length_matches() {
    check_alignments(7);
}

#[test]
#[ignore = "long: 3 s: every length for each alignment"]
fn copy_every_alignment_and_every_short_length_matches() {
    check_alignments(1);
}

const ALIGNMENTS: [(usize, usize); 5] = [(0, 0), (63, 17), (1, 0), (0, 1), (32, 8)];

fn check_lengths_around(limits: &[usize], alignments: &[(usize, usize)]) {
    for limit in limits.iter().copied() {
        let mut bed = TestBed::new(limit + 200);
        for (from, to) in alignments.iter().copied() {
            for length in [limit - 1, limit, limit + 1, limit + 127] {
                bed.check(COPY_FUNCTIONS[0], from, to, length);
            }
        }
    }
}

#[test]
fn copy_lengths_around_each_limit_match() {
    check_lengths_around(&[512, 4096, 1 << 16], &ALIGNMENTS);
    check_lengths_around(&[1 << 20], &ALIGNMENTS[1..2]);
}

#[test]
#[ignore = "long: 2 s: every alignment at 1 MiB"]
fn copy_lengths_around_mib_with_every_alignment_match() {
    check_lengths_around(&[1 << 20], &ALIGNMENTS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn copy_random_length_matches(steps in proptest::collection::vec((0_usize..64, 0_usize..64, 0_usize..20_000), 1..8)) {
        let mut bed = TestBed::new(20_000);
        for (from, to, length) in steps {
            for ways in COPY_FUNCTIONS {
                bed.check(ways, from, to, length);
            }
        }
    }
}

/// Every routine, with every length of a range or one in `step`.
fn check_routines(step: usize) {
    let mut bed = TestBed::new(2000);
    for routine in CopyRoutine::ALL.into_iter().filter(|routine| routine.is_available()) {
        for length in (129..700).step_by(step).chain([1000, 1024, 1800]) {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (31, 32), (63, 17)] {
                bed.check_routine(COPY_FUNCTIONS[0], routine, from, to, length);
            }
        }
    }
}

#[test]
fn copy_every_routine_matches() {
    check_routines(7);
}

#[test]
#[ignore = "long: 2 s: every length of the range"]
fn copy_every_routine_and_length_matches() {
    check_routines(1);
}

/// Two threads: a copy that is a single access on both sides is never seen torn.
#[test]
fn copy_four_and_eight_bytes_are_single_access() {
    use core::sync::atomic::AtomicBool;
    const ROUNDS: u32 = 200_000;
    #[repr(align(64))]
    struct Line([AtomicU8; 64]);
    let line = Line([const { AtomicU8::new(0) }; 64]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let byte = round.to_le_bytes()[0];
                store(&line.0[8..16], &[byte; 8]);
                store(&line.0[20..24], &[byte; 4]);
            }
            stop.store(true, Ordering::Release);
        });
        let (mut eight, mut four) = ([0; 8], [0; 4]);
        while !stop.load(Ordering::Acquire) {
            load(&line.0[8..16], &mut eight);
            load(&line.0[20..24], &mut four);
            assert!(eight.iter().all(|byte| *byte == eight[0]) && four.iter().all(|byte| *byte == four[0]));
        }
    });
    assert_eq!(line.0[8].load(Ordering::Relaxed), (ROUNDS - 1).to_le_bytes()[0]);
}
