use super::*;
use proptest::prelude::*;

/// Number of addresses of the model: small enough for one flag each.
const SPACE: usize = 256;

/// Reference allocator: one flag per address.
struct Bitmap {
    managed: [bool; SPACE],
    used: [bool; SPACE],
}

impl Bitmap {
    fn new(holes: &[(usize, usize)]) -> Self {
        let mut managed = [true; SPACE];
        for &(start, length) in holes {
            managed.iter_mut().skip(start).take(length).for_each(|flag| *flag = false);
        }
        Self { managed, used: [false; SPACE] }
    }

    fn ranges(&self) -> Vec<RangeInclusive<Iova>> {
        runs(&self.managed).into_iter().map(|(start, length)| range(start, length)).collect()
    }

    fn free_runs(&self) -> Vec<(usize, usize)> {
        let free: Vec<bool> = (0..SPACE).map(|at| self.managed[at] && !self.used[at]).collect();
        runs(&free)
    }

    /// Best fit: the smallest free range with an aligned start, the lowest of equals.
    fn allocate(&mut self, length: usize, alignment: usize) -> Option<usize> {
        let fits = |&(start, size): &(usize, usize)| {
            let place = start.next_multiple_of(alignment);
            (place + length <= start + size).then_some((size, place))
        };
        let (_, place) = self.free_runs().iter().filter_map(fits).min()?;
        self.used[place..place + length].fill(true);
        Some(place)
    }

    fn all(&self, start: usize, length: usize, used: bool) -> bool {
        length != 0
            && start + length <= SPACE
            && (start..start + length).all(|at| self.managed[at] && self.used[at] == used)
    }
}

fn runs(flags: &[bool]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
        match runs.last_mut() {
            Some((start, length)) if *start + *length == at => *length += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

fn range(start: usize, length: usize) -> RangeInclusive<Iova> {
    iova(start)..=iova(start + length - 1)
}

fn iova(at: usize) -> Iova {
    Iova::new(at as u64)
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(usize, u32),
    Release(usize, usize),
    ReleaseLast,
    Reserve(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_usize..40, 0_u32..7).prop_map(|(length, alignment)| Step::Allocate(length, alignment)),
        2 => (0..SPACE, 0_usize..40).prop_map(|(start, length)| Step::Release(start, length)),
        3 => Just(Step::ReleaseLast),
        1 => (0..SPACE, 0_usize..20).prop_map(|(start, length)| Step::Reserve(start, length)),
    ]
}

proptest! {
    #[test]
    fn iova_random_operations_match_bitmap(
        holes in proptest::collection::vec((0..SPACE, 1_usize..30), 0..4),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut model = Bitmap::new(&holes);
        let mut space = IovaAllocator::new(model.ranges());
        let mut live = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(length, alignment) => {
                    let alignment = 1_usize << alignment;
                    let got = space.allocate(length as u64, alignment as u64);
                    if length == 0 {
                        let bad_request = matches!(got, Err(IovaError::BadRequest { .. }));
                        prop_assert!(bad_request);
                        continue;
                    }
                    let wanted = model.allocate(length, alignment);
                    prop_assert_eq!(got.ok(), wanted.map(iova));
                    live.extend(wanted.map(|at| (at, length)));
                }
                Step::ReleaseLast => {
                    let Some((at, length)) = live.pop() else { continue };
                    let held = model.all(at, length, true);
                    prop_assert_eq!(space.release(iova(at), length as u64).is_ok(), held);
                    if held {
                        model.used[at..at + length].fill(false);
                    }
                }
                Step::Release(at, length) => {
                    let held = model.all(at, length, true);
                    prop_assert_eq!(space.release(iova(at), length as u64).is_ok(), held);
                    if held {
                        model.used[at..at + length].fill(false);
                    }
                }
                Step::Reserve(at, length) => {
                    let free = model.all(at, length, false);
                    prop_assert_eq!(space.reserve(iova(at), length as u64).is_ok(), free);
                    if free {
                        model.used[at..at + length].fill(true);
                    }
                }
            }
            let free = model.free_runs();
            prop_assert_eq!(space.free(), free.iter().map(|(_, length)| *length as u64).sum::<u64>());
            prop_assert_eq!(space.largest_free(), free.iter().map(|(_, length)| *length as u64).max().unwrap_or(0));
        }
    }

    #[test]
    fn iova_extreme_numbers_do_not_overflow(first: u64, last: u64, length: u64, bits in 0_u32..64, at: u64) {
        let mut space = IovaAllocator::new([Iova::new(first)..=Iova::new(last)]);
        if let Ok(got) = space.allocate(length, 1 << bits) {
            prop_assert!(got.get() >= first && got.get() + (length - 1) <= last);
            prop_assert!(got.is_aligned_to(1 << bits));
            prop_assert!(space.release(got, length).is_ok());
        }
        let _ = space.release(Iova::new(at), length);
        let _ = space.reserve(Iova::new(at), length);
    }
}

#[test]
fn iova_whole_space_and_last_address_are_usable() {
    let mut space = IovaAllocator::new([Iova::new(0)..=Iova::new(u64::MAX)]);
    assert_eq!(space.free(), u64::MAX, "saturated");
    space.reserve(Iova::new(u64::MAX), 1).unwrap();
    space.reserve(Iova::new(0), u64::MAX).unwrap();
    assert_eq!(space.free(), 0);
    assert_eq!(space.allocate(1, 1), Err(IovaError::Exhausted { length: 1, alignment: 1, largest: 0 }));
    space.release(Iova::new(u64::MAX), 1).unwrap();
    assert_eq!(space.allocate(1, 1), Ok(Iova::new(u64::MAX)));
    let wrapping = space.release(Iova::new(u64::MAX), 2);
    assert!(matches!(wrapping, Err(IovaError::NotAllocated { .. })));
}

#[test]
fn iova_unsorted_overlapping_ranges_are_merged() {
    let ranges = [range(0x30, 0x10), range(0x10, 0x10), range(0x18, 0x18), iova(9)..=iova(3)];
    let mut space = IovaAllocator::new(ranges);
    assert_eq!((space.free(), space.largest_free()), (0x30, 0x30));
    assert_eq!(space.allocate(0x30, 16), Ok(iova(0x10)));
}

#[test]
fn iova_invalid_alignment_is_refused() {
    let mut space = IovaAllocator::new([range(0, 64)]);
    for alignment in [0, 3, 48] {
        assert_eq!(space.allocate(1, alignment), Err(IovaError::BadRequest { length: 1, alignment }));
    }
}
