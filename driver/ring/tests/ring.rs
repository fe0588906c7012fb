//! The descriptor ring against a simulated fetcher that follows adjacency as the hardware does.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test helper that cannot continue may as well stop the test"
)]

use std::collections::VecDeque;

use fpga_registers::xdma::{Descriptor, Direction, descriptor};
use fpga_registers::{CardAddr, Iova};
use fpga_ring::ring::{
    CardSide, CountFault, DescriptorMemory, HostRange, MAX_DESCRIPTOR_LENGTH, RefusalReason, Request, Ring,
    RingConfig, RingConfigError, Run, Token, WithdrawError,
};
use proptest::prelude::*;

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xFFFF_FFFF).unwrap()
}

struct Memory {
    base: u64,
    descriptors: Vec<Option<[u32; 8]>>,
}

impl Memory {
    fn new(config: &RingConfig) -> Self {
        Self { base: config.base.get(), descriptors: vec![None; config.entries as usize] }
    }

    /// Descriptor that the engine reads at `address`. It is consumed: a descriptor that a later run does not write again must not be
    /// fetched again.
    fn fetch(&mut self, address: u64) -> Descriptor {
        let offset = address.checked_sub(self.base).expect("fetch from below the ring");
        assert_eq!(offset % 32, 0);
        let words = self.descriptors[usize::try_from(offset / 32).unwrap()]
            .take()
            .expect("fetch of a stale descriptor");
        let descriptor = Descriptor::from_words(words);
        assert!(descriptor.control().has_magic());
        descriptor
    }
}

impl DescriptorMemory for Memory {
    fn write(&mut self, index: u32, words: [u64; 4]) {
        let [a, b, c, d] = words.map(|pair| [low(pair), low(pair >> 32)]);
        self.descriptors[index as usize] = Some([a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]);
    }
}

/// Executes a run as the engine does: it fetches `Nxt_adj + 1` descriptors at a time, takes the size of each fetch from the last descriptor
/// of the previous one, and never sees later edits.
fn execute(memory: &mut Memory, run: Run) -> Vec<Descriptor> {
    let mut executed = Vec::new();
    let mut address = run.first.get();
    let mut count = u64::from(run.adjacent) + 1;
    loop {
        assert!(count <= u64::from(descriptor::MAX_BLOCK), "a block of {count}");
        assert_eq!(address / 4096, (address + count * 32 - 1) / 4096, "a block crosses a page");
        let block: Vec<_> = (0..count).map(|n| memory.fetch(address + n * 32)).collect();
        for (n, descriptor) in block.iter().enumerate() {
            let stop = descriptor.control().stop();
            let left = block.len() - n - 1;
            assert!(!stop || left == 0, "the engine prefetched beyond the run's end");
            if left > 0 {
                assert_eq!(descriptor.next().get(), address + (n as u64 + 1) * 32);
                assert_eq!(
                    u64::from(descriptor.control().next_adjacent()),
                    left as u64 - 1,
                    "counts down in a block"
                );
            }
            executed.push(*descriptor);
            if stop {
                assert!(descriptor.control().completed());
                assert_eq!(executed.len(), run.descriptors as usize);
                return executed;
            }
        }
        let last = block.last().expect("not empty");
        address = last.next().get();
        count = u64::from(last.control().next_adjacent()) + 1;
    }
}

fn ranges(list: &[(u64, u64)]) -> Vec<HostRange> {
    list.iter().map(|&(start, length)| HostRange::new(Iova::new(start), length)).collect()
}

fn config(entries: u32) -> RingConfig {
    let mut config = RingConfig::new(Direction::H2c, Iova::new(0x10_0000), entries);
    config.long_run_descriptors = None;
    config
}

fn submit(ring: &mut Ring<u32>, list: &[(u64, u64)], payload: u32) -> Result<(), RefusalReason> {
    let host = ranges(list);
    match ring.submit(Request { host: &host, card: CardAddr::new(0x8000) }, payload) {
        Ok(_) => Ok(()),
        Err(refusal) => {
            assert_eq!(refusal.payload, payload, "returned to the caller");
            Err(refusal.reason)
        }
    }
}

#[test]
fn ring_queued_during_run_becomes_next_batch() {
    let config = config(8);
    let mut ring = Ring::new(config).unwrap();
    let mut memory = Memory::new(&config);
    for n in 0..2 {
        submit(&mut ring, &[(0x1000 * (n + 1) * 2, 8)], 0).unwrap();
    }
    let run = ring.start_run(&mut memory).unwrap();
    assert_eq!(run.descriptors, 2);
    submit(&mut ring, &[(0, 8)], 0).unwrap();
    assert_eq!(ring.start_run(&mut memory), None, "one run at a time");
    assert_eq!(ring.complete(1), Ok(1));
    assert_eq!(ring.start_run(&mut memory), None);
    assert_eq!(ring.complete(1), Ok(0), "the same count is not progress");
    assert_eq!(ring.complete(2), Ok(1));
    let run = ring.start_run(&mut memory).unwrap();
    assert_eq!((run.descriptors, run.first_index), (1, 2));
    assert_eq!(
        ring.complete(2),
        Err(CountFault::BeyondPosted { reported: 2, known: 0, posted: 1 }),
        "a stale count"
    );
}

#[test]
fn ring_impossible_count_is_fault() {
    let config = config(8);
    let mut memory = Memory::new(&config);
    for (word, fault) in [
        (0xFFFF_FFFF, CountFault::NotACount { word: 0xFFFF_FFFF }),
        (0x8000_0001, CountFault::Engine { count: 1 }),
        (3, CountFault::BeyondPosted { reported: 3, known: 0, posted: 2 }),
        (0x00FF_FFFF, CountFault::BeyondPosted { reported: 0x00FF_FFFF, known: 0, posted: 2 }),
    ] {
        let mut ring = Ring::new(config).unwrap();
        for payload in 1..=3 {
            submit(&mut ring, &[(u64::from(payload) << 16, 24)], payload).unwrap();
            if payload == 2 {
                let _ = ring.start_run(&mut memory).unwrap();
            }
        }
        assert_eq!(ring.complete_writeback(word), Err(fault));
        assert!(ring.is_faulted());
        assert_eq!(submit(&mut ring, &[(0, 1)], 9), Err(RefusalReason::Faulted));
        assert_eq!(ring.start_run(&mut memory), None);
        // The channel's register still reports the finished descriptors.
        assert_eq!(ring.complete(1), Ok(1));
        assert_eq!(ring.poll_completion().unwrap().payload, Some(1));
        let pending = ring.pending_descriptor().unwrap();
        assert_eq!((pending.host, pending.offset, pending.index), (Iova::new(2 << 16), 0, 1));
        let left: Vec<_> = ring.drain().map(|d| (d.payload.unwrap(), d.posted, d.completed_bytes)).collect();
        assert_eq!(left, [(2, true, 0), (3, false, 0)]);
        assert!(!ring.is_faulted());
        submit(&mut ring, &[(0, 1)], 9).unwrap();
        assert_eq!(ring.start_run(&mut memory).unwrap().descriptors, 1);
    }
}

#[test]
fn ring_refusal_leaves_state_unchanged() {
    let config = config(4);
    let mut ring = Ring::new(config).unwrap();
    let scattered: Vec<_> = (0..5u64).map(|n| (n * 0x2000, 16)).collect();
    assert_eq!(
        submit(&mut ring, &scattered, 1),
        Err(RefusalReason::TooManyDescriptors { needed: 5, usable: 4 })
    );
    assert_eq!(submit(&mut ring, &[], 1), Err(RefusalReason::Empty));
    assert_eq!(submit(&mut ring, &[(7, 0)], 1), Err(RefusalReason::Empty));
    assert!(matches!(submit(&mut ring, &[(u64::MAX, 2)], 1), Err(RefusalReason::HostAddress { .. })));
    assert!(matches!(submit(&mut ring, &[(0, u64::MAX)], 1), Err(RefusalReason::CardAddress { .. })));
    submit(&mut ring, &scattered[..3], 1).unwrap();
    assert_eq!(submit(&mut ring, &scattered[..2], 2), Err(RefusalReason::Full { needed: 2, free: 1 }));
    assert_eq!(submit(&mut ring, &scattered[..4], 2), Err(RefusalReason::Full { needed: 4, free: 1 }));
    assert_eq!(ring.free_entries(), 1);
    submit(&mut ring, &scattered[..1], 2).unwrap();
}

#[test]
fn quirk_1_ring_long_descriptors_use_one_short_block() {
    let mut config = config(256);
    config.long_run_descriptors = Some(16);
    config.base = Iova::new(0x10_0000 + 4096 - 32 * 8);
    let mut ring = Ring::new(config).unwrap();
    let mut memory = Memory::new(&config);
    for n in 0..40u64 {
        // Long ones from the 30th on.
        submit(&mut ring, &[(n << 20, if n < 30 { 4096 } else { 8192 })], 0).unwrap();
    }
    let mut lengths = Vec::new();
    while let Some(run) = ring.start_run(&mut memory) {
        let done = execute(&mut memory, run);
        let long = done.iter().any(|d| d.length() > 4096);
        assert!(!long || done.len() <= 16 && usize::from(run.adjacent) == done.len() - 1);
        lengths.push(done.len());
        ring.complete(run.descriptors).unwrap();
    }
    assert_eq!(lengths, [30, 10]);
    assert_eq!(std::iter::from_fn(|| ring.poll_completion()).count(), 40);
}

#[test]
fn ring_invalid_configurations_are_refused() {
    let changed = |change: fn(&mut RingConfig)| {
        let mut config = config(8);
        change(&mut config);
        Ring::<()>::new(config).err()
    };
    let refused = |change, error| assert_eq!(changed(change), Some(error));
    refused(|c| c.entries = 12, RingConfigError::Entries { found: 12 });
    refused(|c| c.entries = 1, RingConfigError::Entries { found: 1 });
    refused(|c| c.entries = 1 << 17, RingConfigError::Entries { found: 1 << 17 });
    refused(|c| c.operations = 0, RingConfigError::Operations { found: 0 });
    refused(|c| c.operations = 1 << 17, RingConfigError::Operations { found: 1 << 17 });
    refused(|c| c.base = Iova::new(16), RingConfigError::Base { found: Iova::new(16), bytes: 256 });
    let last = Iova::new(u64::MAX - 31);
    refused(|c| c.base = Iova::new(u64::MAX - 31), RingConfigError::Base { found: last, bytes: 256 });
    for valid in [
        (|c| c.entries = 2) as fn(&mut RingConfig),
        |c| c.entries = 1 << 16,
        |c| c.operations = 1,
        |c| c.operations = 1 << 16,
        |c| c.block_descriptors = 64,
    ] {
        assert_eq!(changed(valid), None);
    }
    // The field has 28 bits (PG195), and a descriptor ends at a page boundary.
    assert_eq!(MAX_DESCRIPTOR_LENGTH, 0x0FFF_F000);
    assert_eq!(changed(|c| c.max_descriptor_length = 0x0FFF_F000), None);
    for found in [0, 5000, 0x1000_0000] {
        let mut config = config(8);
        config.max_descriptor_length = found;
        assert_eq!(Ring::<()>::new(config).err(), Some(RingConfigError::DescriptorLength { found }));
    }
    refused(|c| c.block_descriptors = 65, RingConfigError::Block { found: 65 });
    refused(|c| c.long_run_descriptors = Some(0), RingConfigError::Block { found: 0 });
    refused(
        |c| c.card_side = CardSide::StreamIn { writebacks: Iova::ZERO },
        RingConfigError::StreamDirection,
    );
    for (beat, is_valid) in [(64, true), (4096, true), (8192, false), (48, false), (0, false)] {
        let mut outgoing = config(8);
        outgoing.card_side = CardSide::StreamOut { beat };
        let refused = (!is_valid).then_some(RingConfigError::Beat { found: beat });
        assert_eq!(Ring::<()>::new(outgoing).err(), refused);
    }
    for (writebacks, is_valid) in [(0x20_0000, true), (0x20_0010, false), (u64::MAX - 31, false)] {
        let mut incoming = RingConfig::new(Direction::C2h, Iova::new(0x10_0000), 8);
        incoming.card_side = CardSide::StreamIn { writebacks: Iova::new(writebacks) };
        let error = Ring::<()>::new(incoming).err();
        assert_eq!(error.is_none(), is_valid, "{writebacks:#x}: {error:?}");
        assert!(
            is_valid || matches!(error, Some(RingConfigError::Writebacks { .. })),
            "{writebacks:#x}: {error:?}"
        );
    }
}

#[test]
fn descriptor_ends_at_the_longest_length_below_a_page_border() {
    for longest in [4096, 8192, MAX_DESCRIPTOR_LENGTH / 4096 * 4096] {
        let mut config = config(8);
        config.max_descriptor_length = longest;
        for offset in [0, 1, 4094] {
            let whole = u64::from(longest) - offset;
            for (length, lengths) in
                [(whole - 1, vec![whole - 1]), (whole, vec![whole]), (whole + 1, vec![whole, 1])]
            {
                let mut ring = Ring::new(config).unwrap();
                let mut memory = Memory::new(&config);
                submit(&mut ring, &[(0x10_0000 + offset, length)], 0).unwrap();
                let run = ring.start_run(&mut memory).unwrap();
                let found: Vec<_> = execute(&mut memory, run).iter().map(|d| u64::from(d.length())).collect();
                assert_eq!(found, lengths, "{longest} {offset}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Submit(Vec<(u64, u64)>),
    Start,
    Complete(u32),
    Poll,
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    // Few distinct pages, so that ranges often touch.
    let range = (0u64..24, 0u64..4, 0u64..3).prop_map(|(page, offset, pages)| {
        (page * 4096 + offset * 1024, (pages * 4096 + 1024).saturating_sub(offset * 512))
    });
    prop_oneof![
        4 => prop::collection::vec(range, 1..12).prop_map(Step::Submit),
        2 => Just(Step::Start),
        3 => (0u32..40).prop_map(Step::Complete),
        3 => Just(Step::Poll),
        1 => Just(Step::Drain),
    ]
}

/// Expected result of a request, page by page: the bytes in order.
fn bytes(list: &[(u64, u64)], card: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut at = card;
    for &(start, length) in list {
        for n in (0..length).step_by(512) {
            out.push((start + n, at + n));
        }
        at += length;
    }
    out
}

proptest! {
    /// For any mixture of submissions, runs, completions and failures: every payload is returned exactly once and in order, and the engine
    /// moves exactly the requested bytes.
    #[test]
    fn ring_random_operations_match_simulated_fetcher(
        steps in prop::collection::vec(step(), 1..120),
        entries in prop::sample::select(vec![8u32, 64, 256]),
        base in 0u64..256,
        block in 1u8..=64,
        limit in prop::option::of(1u8..=64),
        page_descriptors in any::<bool>(),
    ) {
        let mut config = RingConfig::new(Direction::C2h, Iova::new(0x10_0000 + base * 32), entries);
        config.operations = 16;
        config.block_descriptors = block;
        config.long_run_descriptors = limit;
        if page_descriptors {
            config.max_descriptor_length = 4096;
        }
        let mut ring = Ring::new(config).unwrap();
        let mut memory = Memory::new(&config);
        let mut expected: VecDeque<(u32, Vec<(u64, u64)>)> = VecDeque::new();
        let mut moved: VecDeque<Vec<(u64, u64)>> = VecDeque::new();
        let (mut posted, mut reported) = (0, 0);
        let mut next = 0;
        for step in steps {
            match step {
                Step::Submit(list) => {
                    let host = ranges(&list);
                    let card = 0x4000_0000 + u64::from(next) * 0x100_0000;
                    let (free, entry) = (ring.free_entries(), ring.next_entry());
                    match ring.submit(Request { host: &host, card: CardAddr::new(card) }, next) {
                        Ok(token) => {
                            prop_assert_eq!(token.number() + 1, ring.submitted());
                            expected.push_back((next, bytes(&list, card)));
                        }
                        Err(refusal) => {
                            prop_assert_eq!(refusal.payload, next);
                            prop_assert_eq!(ring.free_entries(), free);
                        }
                    }
                    prop_assert_eq!(ring.next_entry(), (entry + free - ring.free_entries()) % entries);
                    next += 1;
                }
                Step::Start => {
                    if let Some(run) = ring.start_run(&mut memory) {
                        prop_assert_eq!(posted, reported);
                        for d in execute(&mut memory, run) {
                            let (host, card) = (d.host_address(Direction::C2h), d.card_address(Direction::C2h));
                            moved.push_back((0..u64::from(d.length())).step_by(512)
                                .map(|n| (host.get() + n, card.get() + n)).collect());
                            if let Some(limit) = limit.filter(|_| d.length() > 4096) {
                                prop_assert!(run.descriptors <= u32::from(limit));
                                prop_assert_eq!(u32::from(run.adjacent) + 1, run.descriptors);
                            }
                        }
                        posted = run.descriptors;
                        reported = 0;
                        prop_assert_eq!(ring.run_descriptors(), posted);
                    }
                }
                Step::Complete(count) => {
                    let sound = count >= reported && count <= posted;
                    let answer = ring.complete(count);
                    prop_assert_eq!(ring.run_descriptors(), posted, "until the next run");
                    prop_assert_eq!(answer.is_ok(), sound);
                    if sound {
                        prop_assert_eq!(answer, Ok(count - reported));
                        reported = count;
                    } else {
                        prop_assert!(ring.is_faulted());
                    }
                }
                Step::Poll => {
                    if let Some(completion) = ring.poll_completion() {
                        let (payload, wanted) = expected.pop_front().unwrap();
                        prop_assert_eq!(completion.payload, Some(payload));
                        let got: Vec<_> = moved.drain(..completion.descriptors as usize).flatten().collect();
                        // Spans and ranges are split differently, so their 512-byte marks differ: compare by offset.
                        let shift = |list: &[(u64, u64)]| -> std::collections::BTreeSet<i128> {
                            list.iter().map(|&(h, c)| i128::from(h) - i128::from(c)).collect()
                        };
                        prop_assert_eq!(shift(&got), shift(&wanted));
                    }
                }
                Step::Drain => {
                    if ring.is_faulted() {
                        let drained: Vec<_> = ring.drain().filter_map(|d| d.payload).collect();
                        let wanted: Vec<_> = expected.drain(..).map(|(payload, _)| payload).collect();
                        prop_assert_eq!(drained, wanted);
                        moved.clear();
                        (posted, reported) = (0, 0);
                        prop_assert_eq!(ring.free_entries(), entries);
                    }
                }
            }
            prop_assert_eq!(ring.operations() as usize, expected.len());
            prop_assert_eq!(ring.submitted() - ring.ended(), expected.len() as u64);
        }
        let rest: Vec<_> = ring.drain().filter_map(|d| d.payload).collect();
        let wanted: Vec<_> = expected.drain(..).map(|(payload, _)| payload).collect();
        prop_assert_eq!(rest, wanted);
    }
}

#[test]
fn ring_completion_names_first_entry_of_operation() {
    let config = config(8);
    let mut ring = Ring::new(config).unwrap();
    let mut memory = Memory::new(&config);
    let mut entries = Vec::new();
    for n in 0..6 {
        // Two ranges that do not touch: two descriptors.
        submit(&mut ring, &[(0x1000, 8), (0x9000, 8)], n).unwrap();
        let run = ring.start_run(&mut memory).unwrap();
        execute(&mut memory, run);
        assert_eq!(ring.complete_writeback(2), Ok(2));
        entries.push(ring.poll_completion().unwrap().first_index);
    }
    assert_eq!(entries, [0, 2, 4, 6, 0, 2]);
}

#[test]
fn ring_pending_descriptor_names_operation_entry_and_offset() {
    let config = config(8);
    let mut ring = Ring::new(config).unwrap();
    let mut memory = Memory::new(&config);
    assert_eq!(ring.pending_descriptor(), None);
    submit(&mut ring, &[(0x1000, 8), (0x9000, 16)], 0).unwrap();
    submit(&mut ring, &[(0x2_0000, 32), (0x4_0000, 64)], 1).unwrap();
    assert_eq!(ring.start_run(&mut memory).map(|run| run.descriptors), Some(4));
    let mut seen = Vec::new();
    for completed in 1..=4 {
        let pending = ring.pending_descriptor().unwrap();
        seen.push((
            pending.token.number(),
            pending.index,
            pending.host.get(),
            pending.length,
            pending.offset,
        ));
        ring.complete(completed).unwrap();
    }
    assert_eq!(
        seen,
        [(0, 0, 0x1000, 8, 0), (0, 1, 0x9000, 16, 8), (1, 2, 0x2_0000, 32, 0), (1, 3, 0x4_0000, 64, 32)]
    );
    assert_eq!(ring.pending_descriptor(), None);
}

#[test]
fn ring_reclaim_returns_payload_of_withdrawn_operation_alone() {
    let config = config(8);
    let mut ring = Ring::new(config).unwrap();
    let mut memory = Memory::new(&config);
    for n in 0..3 {
        submit(&mut ring, &[(0x1000 * (2 * n + 1), 8)], u32::try_from(n).unwrap()).unwrap();
    }
    assert_eq!(ring.reclaim(Token::new(2)), None, "it was not withdrawn");
    ring.withdraw(Token::new(2)).unwrap();
    assert_eq!(ring.reclaim(Token::new(2)), Some(2));
    assert_eq!(ring.reclaim(Token::new(2)), None, "once");
    assert_eq!(ring.reclaim(Token::new(3)), None, "there is no such operation");
    let run = ring.start_run(&mut memory).unwrap();
    assert_eq!(execute(&mut memory, run).len(), 2);
    assert_eq!(ring.complete_writeback(2), Ok(2));
    assert_eq!(ring.poll_completion().map(|done| done.payload), Some(Some(0)));
    assert_eq!(ring.reclaim(Token::new(0)), None, "it has ended");
    assert_eq!(ring.poll_completion().map(|done| done.payload), Some(Some(1)));
}

/// A packet whose first descriptors were executed cannot be withdrawn: the card would send its beginning without an end.
#[test]
fn ring_begun_packet_is_not_withdrawn() {
    for (side, is_withdrawn) in [(CardSide::StreamOut { beat: 64 }, false), (CardSide::Memory, true)] {
        let mut config = config(8);
        config.card_side = side;
        config.max_descriptor_length = 8192;
        config.long_run_descriptors = Some(1);
        let mut ring = Ring::new(config).unwrap();
        let mut memory = Memory::new(&config);
        submit(&mut ring, &[(0x10_0000, 3 * 8192)], 7).unwrap();
        let run = ring.start_run(&mut memory).unwrap();
        assert_eq!(run.descriptors, 1, "descriptors longer than a page run one by one");
        assert_eq!(ring.complete_writeback(1), Ok(1));
        let result = ring.withdraw(Token::new(0));
        let refused = Err(WithdrawError::Started { number: 0 });
        assert_eq!(result, if is_withdrawn { Ok(()) } else { refused });
    }
}
