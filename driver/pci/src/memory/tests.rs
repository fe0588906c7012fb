use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

const SIZE: usize = 8192;

fn memory() -> SharedMemory {
    SharedMemory::anonymous(SIZE, HugePages::No).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, Vec<u8>),
    Read(usize, usize),
    Fill(usize, usize, u8),
    Copy(usize, usize, usize),
    Store32(usize, u32),
    Store64(usize, u64),
    Words(usize, [u32; 8]),
    Descriptor(usize, [u64; 4]),
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly inside, sometimes across the end.
    let at = || prop_oneof![9 => 0..SIZE, 1 => SIZE - 40..SIZE + 40];
    let length = || prop_oneof![6 => 0_usize..80, 1 => 4000_usize..6000];
    prop_oneof![
        (at(), proptest::collection::vec(any::<u8>(), 0..100)).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        (at(), length()).prop_map(|(at, length)| Step::Read(at, length)),
        (at(), length(), any::<u8>()).prop_map(|(at, length, value)| Step::Fill(at, length, value)),
        (at(), at(), length()).prop_map(|(to, from, length)| Step::Copy(to, from, length)),
        (at(), any::<u32>()).prop_map(|(at, value)| Step::Store32(at, value)),
        (at(), any::<u64>()).prop_map(|(at, value)| Step::Store64(at, value)),
        (at(), any::<[u32; 8]>()).prop_map(|(at, words)| Step::Words(at, words)),
        (at(), any::<[u64; 4]>()).prop_map(|(at, words)| Step::Descriptor(at, words)),
        (at(), any::<[u64; 4]>()).prop_map(|(at, words)| Step::Descriptor(at & !7, words)),
    ]
}

/// Expected result of an operation: bounds are checked first, then alignment.
fn expected(offset: usize, length: usize, alignment: usize) -> Result<(), MemoryError> {
    if offset + length > SIZE {
        return Err(MemoryError::OutOfRange { offset, length, size: SIZE });
    }
    if !offset.is_multiple_of(alignment) {
        return Err(MemoryError::Misaligned { offset, alignment });
    }
    Ok(())
}

proptest! {
    #[test]
    fn memory_random_operations_match_vec(steps in proptest::collection::vec(step(), 1..60)) {
        let (memory, source) = (memory(), memory());
        let pattern: Vec<u8> = (0..SIZE).map(|at| u8::try_from(at % 251).unwrap()).collect();
        source.write(0, &pattern).unwrap();
        let mut model = vec![0_u8; SIZE];
        for step in steps {
            match step {
                Step::Write(at, bytes) => {
                    let want = expected(at, bytes.len(), 1);
                    prop_assert_eq!(memory.write(at, &bytes), want);
                    if want.is_ok() { model[at..at + bytes.len()].copy_from_slice(&bytes); }
                }
                Step::Read(at, length) => {
                    let mut into = vec![0xEE; length];
                    let want = expected(at, length, 1);
                    prop_assert_eq!(memory.read(at, &mut into), want);
                    if want.is_ok() { prop_assert_eq!(&into, &model[at..at + length]); }
                }
                Step::Fill(at, length, value) => {
                    let want = expected(at, length, 1);
                    prop_assert_eq!(memory.fill(at, length, value), want);
                    if want.is_ok() { model[at..at + length].fill(value); }
                }
                Step::Copy(to, from, length) => {
                    let want = expected(to, length, 1).and(expected(from, length, 1));
                    prop_assert_eq!(memory.copy_from(to, &source, from, length), want);
                    if want.is_ok() { model[to..to + length].copy_from_slice(&pattern[from..from + length]); }
                }
                Step::Store32(at, value) => {
                    let want = expected(at, 4, 4);
                    prop_assert_eq!(memory.store_u32(at, value), want);
                    prop_assert_eq!(memory.load_u32_acquire(at), want.map(|()| value));
                    if want.is_ok() { model[at..at + 4].copy_from_slice(&value.to_le_bytes()); }
                }
                Step::Store64(at, value) => {
                    let want = expected(at, 8, 8);
                    prop_assert_eq!(memory.store_u64_release(at, value), want);
                    prop_assert_eq!(memory.load_u64(at), want.map(|()| value));
                    if want.is_ok() { model[at..at + 8].copy_from_slice(&value.to_le_bytes()); }
                }
                Step::Words(at, words) => {
                    let want = expected(at, 32, 4);
                    prop_assert_eq!(memory.store_words(at, words), want);
                    prop_assert_eq!(memory.load_words::<8>(at), want.map(|()| words));
                    if want.is_ok() {
                        for (place, word) in model[at..at + 32].chunks_exact_mut(4).zip(words) {
                            place.copy_from_slice(&word.to_le_bytes());
                        }
                    }
                }
                Step::Descriptor(at, words) => {
                    let want = expected(at, 32, 8);
                    prop_assert_eq!(memory.store_descriptor(at, words), want);
                    if want.is_ok() {
                        for (place, word) in model[at..at + 32].chunks_exact_mut(8).zip(words) {
                            place.copy_from_slice(&word.to_le_bytes());
                        }
                    }
                }
            }
        }
        let mut all = vec![0; SIZE];
        memory.read(0, &mut all).unwrap();
        prop_assert_eq!(all, model);
    }

    #[test]
    fn memory_extreme_numbers_do_not_overflow(offset: usize, length: usize) {
        let memory = memory();
        let outside = offset.checked_add(length).is_none_or(|end| end > SIZE);
        prop_assert_eq!(memory.fill(offset, length, 0).is_err(), outside);
        prop_assert_eq!(memory.view().slice(offset, length).is_err(), outside);
        prop_assert_eq!(memory.copy_from(0, &memory, offset, length).is_err(), outside);
        prop_assert_eq!(memory.store_descriptor(offset, [0; 4]).is_err(), offset > SIZE - 32 || !offset.is_multiple_of(8));
        // Hints change nothing, for any arguments.
        memory.view().prefetch_write(offset, length);
        memory.view().prefetch_write(offset % SIZE, length);
    }
}

#[test]
fn memory_slice_access_stays_inside() {
    let memory = memory();
    memory.write(0, &[7; 64]).unwrap();
    let part = memory.view().slice(16, 8).unwrap();
    part.fill(0, 8, 1).unwrap();
    assert!(part.write(1, &[0; 8]).is_err());
    assert!(part.load_u64(4).is_err());
    let mut back = [0; 32];
    memory.read(8, &mut back).unwrap();
    assert_eq!(back, std::array::from_fn(|at| if (8..16).contains(&at) { 1 } else { 7 }));
    assert!(SharedSlice::default().is_empty());
}

#[test]
fn memory_size_rounds_to_pages_and_zero_is_refused() {
    let page = rustix::param::page_size();
    assert_eq!(SharedMemory::anonymous(1, HugePages::No).unwrap().len(), page);
    assert_eq!(SharedMemory::memfd("test", page + 1).unwrap().len(), 2 * page);
    for length in [0, usize::MAX, isize::MAX.unsigned_abs() + 1] {
        assert!(matches!(SharedMemory::anonymous(length, HugePages::No), Err(MemoryError::BadLength { .. })));
        assert!(matches!(SharedMemory::memfd("test", length), Err(MemoryError::BadLength { .. })));
    }
}

#[test]
fn memory_prefetch_hints_cover_each_line_once() {
    let memory = memory();
    let base = memory.view().as_mut_ptr().addr();
    for (offset, length, lines) in [
        (0, 64, vec![0]),
        (0, 65, vec![0, 1]),
        (63, 2, vec![0, 1]),
        (100, 200, vec![1, 2, 3, 4]),
        (64, 0, vec![]),
        (SIZE - 1, 64, vec![SIZE / 64 - 1]),
        (SIZE, 64, vec![]),
        (usize::MAX, usize::MAX, vec![]),
    ] {
        let seen = std::cell::RefCell::new(Vec::new());
        memory.view().lines(offset, length, |line| seen.borrow_mut().push((line.addr() - base) / 64));
        assert_eq!(seen.into_inner(), lines, "{length} bytes from {offset}");
    }
}

#[test]
fn memory_huge_pages_fall_back_to_normal() {
    for huge in [HugePages::Transparent, HugePages::Prefer2MiB, HugePages::Prefer1GiB] {
        let memory = SharedMemory::anonymous(4096, huge).unwrap();
        assert!(memory.len() >= 4096);
        memory.store_u64(0, 1).unwrap();
        assert_eq!(memory.load_u64(0), Ok(1));
    }
}

#[test]
fn memory_transparent_huge_pages_are_aligned_not_larger() {
    let page = rustix::param::page_size();
    for length in [HUGE, HUGE + page, 2 * HUGE - 1, 3 * HUGE + 5 * page, 17 * HUGE] {
        let memory = SharedMemory::anonymous(length, HugePages::Transparent).unwrap();
        assert_eq!(memory.host_pointer().addr() % HUGE, 0, "{length:#x}");
        assert_eq!(memory.len(), length.next_multiple_of(page));
        let advised = kernel_flags(memory.host_pointer().addr()).contains(&"hg".to_owned());
        assert!(advised || !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists());
        let last = memory.len() - 8;
        memory.store_u64(last, 7).unwrap();
        assert_eq!((memory.load_u64(last), memory.load_u64(0)), (Ok(7), Ok(0)));
        assert!(memory.write(last, &[0; 9]).is_err(), "what was mapped for alignment is not part of it");
    }
    assert_eq!(SharedMemory::anonymous(1, HugePages::Transparent).unwrap().len(), page);
}

#[test]
fn memory_from_mapping_keeps_content() {
    let mut mapping = MmapMut::map_anon(SIZE + 1).unwrap();
    mapping[SIZE] = 9;
    let address = mapping.as_ptr();
    let memory = SharedMemory::from_mapping(mapping).unwrap();
    assert_eq!((memory.len(), memory.host_pointer().cast_const()), (SIZE + 1, address));
    let mut last = [0; 2];
    memory.read(SIZE - 1, &mut last).unwrap();
    assert_eq!(last, [0, 9]);
    assert!(memory.read(SIZE, &mut last).is_err());
    assert!(memory.file().is_none());
    // The last of two clones unmaps; dropping the first changes nothing.
    let clone = memory.clone();
    drop(memory);
    clone.store_u32(0, 5).unwrap();
    assert_eq!(clone.load_u32(0), Ok(5));
    assert!(kernel_flags(address.addr()).contains(&"wf".to_owned()), "children find zeros");
}

/// Returns the flags of the mapping that holds an address, from the kernel's list, which joins adjacent mappings with the same flags.
fn kernel_flags(address: usize) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let holds = |line: &str| {
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        range.is_some_and(|(first, end)| {
            let (first, end) = (usize::from_str_radix(first, 16), usize::from_str_radix(end, 16));
            matches!((first, end), (Ok(first), Ok(end)) if (first..end).contains(&address))
        })
    };
    let mut flags =
        maps.lines().skip_while(|line| !holds(line)).filter_map(|line| line.strip_prefix("VmFlags:"));
    flags.next().unwrap().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn memory_file_is_shared_and_keeps_size() {
    let memory = SharedMemory::memfd("test", SIZE).unwrap();
    let file = memory.file().unwrap().try_clone_to_owned().unwrap();
    assert!(rustix::fs::ftruncate(&file, 4096).is_err(), "sealed");
    let other = SharedMemory::from_file(file, 4096, 4096).unwrap();
    memory.store_u32(4096 + 8, 0x1234_5678).unwrap();
    assert_eq!(other.load_u32(8), Ok(0x1234_5678));
    assert!(!other.is_same(&memory) && memory.is_same(&memory.clone()));
    let beyond = memory.file().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(
        SharedMemory::from_file(beyond, 4096, 4097).unwrap_err(),
        MemoryError::BadLength { length: 4097 },
        "touching bytes beyond the end would be SIGBUS"
    );
    let between_pages = memory.file().unwrap().try_clone_to_owned().unwrap();
    assert!(matches!(SharedMemory::from_file(between_pages, 8, 8), Err(MemoryError::Unavailable { .. })));
    let wrapping = memory.file().unwrap().try_clone_to_owned().unwrap();
    assert!(SharedMemory::from_file(wrapping, u64::MAX, 4096).is_err());
}

/// Two threads on one memory: words arrive whole and in the order of release and acquire, and copies consist of written values. Copies of
/// these 64 bytes, whose ends are multiples of 16, even consist of whole words, although only bytes are guaranteed.
#[test]
fn memory_two_threads_see_whole_words_in_order() {
    const ROUNDS: u64 = 20_000;
    let memory = memory();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                let bytes = round.wrapping_mul(0x0101_0101_0101_0101).to_le_bytes();
                memory.write(64, &bytes.repeat(8)).unwrap();
                memory.store_u64(256, round).unwrap();
                memory.store_u32_release(512, u32::try_from(round).unwrap()).unwrap();
            }
            stop.store(true, Ordering::Release);
        });
        let mut last = 0;
        while !stop.load(Ordering::Acquire) {
            let seen = memory.load_u32_acquire(512).unwrap();
            assert!(seen >= last, "the counter runs forwards");
            assert!(memory.load_u64(256).unwrap() >= u64::from(seen), "stored before the counter");
            last = seen;
            let mut block = [0; 64];
            memory.read(64, &mut block).unwrap();
            for word in block.chunks_exact(8) {
                let word = u64::from_le_bytes(word.try_into().unwrap());
                assert!(possible(word, ROUNDS), "{word:#x} was never written");
            }
        }
    });
    assert_eq!(memory.load_u32(512), Ok(u32::try_from(ROUNDS).unwrap()));
}

/// Returns whether some round wrote this word: multiplication by an odd number is invertible.
fn possible(word: u64, rounds: u64) -> bool {
    // Newton's iteration for the inverse modulo 2^64; each step doubles the bits that are right.
    let odd = 0x0101_0101_0101_0101_u64;
    let inverse = (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))));
    word.wrapping_mul(inverse) <= rounds
}

#[test]
fn memory_part_shares_exact_range() {
    let memory = memory();
    let part = memory.part(4096, 100).unwrap();
    assert_eq!(part.len(), 100);
    memory.write(4096, b"whole").unwrap();
    part.write(5, b"part").unwrap();
    let mut back = [0; 9];
    memory.read(4096, &mut back).unwrap();
    assert_eq!(&back, b"wholepart");
    assert_eq!(part.read(92, &mut back), Err(MemoryError::OutOfRange { offset: 92, length: 9, size: 100 }));
    assert_eq!(
        memory.part(SIZE - 4, 8).unwrap_err(),
        MemoryError::OutOfRange { offset: SIZE - 4, length: 8, size: SIZE }
    );
    assert_eq!(memory.part(0, 0).unwrap_err(), MemoryError::BadLength { length: 0 });
    assert!(
        !part.is_same(&memory)
            && part.is_same(&part.clone())
            && memory.part(0, SIZE).unwrap().is_same(&memory)
    );
    drop(memory);
    part.read(0, &mut back).unwrap();
    assert_eq!(&back, b"wholepart");
}

proptest! {
    #[test]
    fn memory_spans_are_copied_in_order_until_first_invalid(
        parts in proptest::collection::vec((0..SIZE, 0_usize..5000, 0..SIZE + 3000), 0..12)
    ) {
        let memory = memory();
        let pattern: Vec<u8> = (0..SIZE).map(|at| u8::try_from(at % 251).unwrap()).collect();
        memory.write(0, &pattern).unwrap();
        let part = |at: usize, length: usize, offset: usize| {
            let length = length.min(SIZE - at);
            (Span { shared: memory.view().slice(at, length).unwrap(), offset }, at..at + length, offset..offset + length)
        };
        let parts: Vec<_> = parts.into_iter().map(|(at, length, offset)| part(at, length, offset)).collect();
        let inside = parts.iter().take_while(|(_, _, own)| own.end <= SIZE).count();

        let (mut got, mut want) = (vec![0xEE; SIZE], vec![0xEE; SIZE]);
        prop_assert_eq!(gather(&mut got, PageKind::Normal, parts.iter().map(|(stretch, ..)| *stretch)), inside);
        for (_, shared, own) in &parts[..inside] {
            want[own.clone()].copy_from_slice(&pattern[shared.clone()]);
        }
        prop_assert!(got == want);

        let own: Vec<u8> = pattern.iter().map(|byte| !byte).collect();
        let mut want = pattern.clone();
        prop_assert_eq!(scatter(&own, PageKind::Huge, parts.iter().map(|(stretch, ..)| *stretch)), inside);
        for (_, shared, range) in &parts[..inside] {
            want[shared.clone()].copy_from_slice(&own[range.clone()]);
        }
        memory.read(0, &mut got).unwrap();
        prop_assert!(got == want);
    }
}
