//! The run of a circular ring in credit mode, and withdrawn operations, with a simulated fetcher.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test helper that cannot continue may as well stop the test"
)]

use std::collections::VecDeque;

use fpga_registers::xdma::{Descriptor, Direction};
use fpga_registers::{CardAddr, Iova};
use fpga_ring::ring::{
    CreditGrant, DescriptorMemory, HostRange, MAX_CREDITS, RefusalReason, Request, Ring, RingConfig, SgEntry,
    Token, WithdrawError,
};
use proptest::prelude::*;

/// The engine in credit mode: it fetches as many descriptors as it has credits for, at most a block at a time, keeps the fetched ones, and
/// continues at the address in the last descriptor fetched.
struct Engine {
    base: u64,
    memory: Vec<Descriptor>,
    address: u64,
    block: u64,
    credits: u64,
    fetched: VecDeque<Descriptor>,
    completed: u32,
}

impl DescriptorMemory for Engine {
    fn write(&mut self, index: u32, words: [u64; 4]) {
        let low = |word: u64| u32::try_from(word & 0xFFFF_FFFF).unwrap();
        let [a, b, c, d] = words.map(|pair| [low(pair), low(pair >> 32)]);
        self.memory[index as usize] =
            Descriptor::from_words([a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]);
    }
}

impl Engine {
    fn new(config: &RingConfig) -> Self {
        Self {
            base: config.base.get(),
            memory: vec![Descriptor::from_words([0; 8]); config.entries as usize],
            address: 0,
            block: 0,
            credits: 0,
            fetched: VecDeque::new(),
            completed: 0,
        }
    }

    fn doorbell(&mut self, extension: CreditGrant) {
        if let Some(run) = extension.start {
            assert_eq!((self.credits, self.fetched.len()), (0, 0));
            (self.address, self.block) = (run.first.get(), u64::from(run.adjacent) + 1);
            self.completed = 0;
        }
        self.credits += u64::from(extension.credits);
        assert!(self.credits <= u64::from(MAX_CREDITS), "the counter has ten bits");
    }

    /// Fetches once.
    fn fetch(&mut self) -> bool {
        let count = self.block.min(self.credits);
        if count == 0 {
            return false;
        }
        assert_eq!(self.address / 4096, (self.address + count * 32 - 1) / 4096, "a block crosses a page");
        for n in 0..count {
            let at = usize::try_from((self.address + n * 32 - self.base) / 32).unwrap();
            assert!(self.memory[at].control().has_magic(), "fetch of a descriptor that was never written");
            assert!(!self.memory[at].control().stop());
            self.fetched.push_back(self.memory[at]);
        }
        let last = self.fetched.back().expect("just pushed");
        (self.address, self.block) = (last.next().get(), u64::from(last.control().next_adjacent()) + 1);
        self.credits -= count;
        true
    }

    /// Executes one descriptor; returns the values of its report, if it reports.
    fn execute(&mut self) -> Option<(u64, u64, u32, bool)> {
        let d = self.fetched.pop_front()?;
        self.completed = (self.completed + 1) & 0x00FF_FFFF;
        let host = d.host_address(Direction::H2c).get();
        Some((host, d.card_address(Direction::H2c).get(), d.length(), d.control().completed()))
    }

    /// Run is cleared: credits and fetched descriptors are dropped.
    fn stop(&mut self) {
        self.credits = 0;
        self.fetched.clear();
    }
}

fn config(entries: u32, base: u64) -> RingConfig {
    RingConfig::new(Direction::H2c, Iova::new(0x10_0000 + base * 32), entries)
}

#[derive(Clone, Debug)]
enum Step {
    Submit { list: Vec<u64>, payload: bool },
    Post,
    Fetch,
    Execute(u8),
    Report,
    Register,
    Reap,
    Withdraw(u8),
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop::collection::vec(1u64..200, 1..3), prop::bool::weighted(0.3))
            .prop_map(|(list, payload)| Step::Submit { list, payload }),
        3 => Just(Step::Post),
        4 => Just(Step::Fetch),
        4 => (1u8..20).prop_map(Step::Execute),
        3 => Just(Step::Report),
        1 => Just(Step::Register),
        3 => Just(Step::Reap),
        1 => any::<u8>().prop_map(Step::Withdraw),
        1 => Just(Step::Stop),
    ]
}

struct Expected {
    number: u64,
    /// Host address, card address, length of every descriptor.
    pieces: Vec<(u64, u64, u32)>,
    payload: Option<u32>,
    withdrawn: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// For any batches, fetches and stops: descriptors are executed exactly once and in order, except withdrawn ones, and every operation
    /// ends once and in order.
    #[test]
    fn ring_credit_mode_matches_simulated_engine(
        steps in prop::collection::vec(step(), 1..300),
        entries in prop::sample::select(vec![8u32, 128, 512]),
        base in 0u64..256,
        block in 1u8..=64,
    ) {
        let mut config = config(entries, base);
        config.operations = 16;
        config.block_descriptors = block;
        let mut ring = Ring::<u32>::new(config).unwrap();
        let mut engine = Engine::new(&config);
        let mut open: VecDeque<Expected> = VecDeque::new();
        let mut executed: VecDeque<(u64, u64, u32)> = VecDeque::new();
        // Remaining work of posted descriptors, in order.
        let mut word = 0;
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Submit { list, payload } => {
                    // Never touching: one descriptor each.
                    let segments: Vec<_> = list.iter().enumerate().map(|(k, length)| SgEntry {
                        host: HostRange::new(Iova::new((n as u64) << 20 | (k as u64) << 12), *length),
                        card: CardAddr::new((n as u64) << 24 | (k as u64) << 16),
                    }).collect();
                    let payload = payload.then_some(u32::try_from(n).unwrap());
                    let token = match (&segments[..], payload) {
                        // The fast path.
                        ([one], None) => ring.submit_without_payload(one.host, one.card).ok(),
                        _ => ring.submit_segments(segments.iter().copied(), payload).ok(),
                    };
                    if let Some(token) = token {
                        let pieces = segments.iter().map(|s| {
                            (s.host.start.get(), s.card.get(), u32::try_from(s.host.length).unwrap())
                        }).collect();
                        open.push_back(Expected { number: token.number(), pieces, payload, withdrawn: false });
                    }
                }
                Step::Post => if let Some(more) = ring.post_credits(&mut engine) {
                    if more.start.is_some() { word = 0; }
                    engine.doorbell(more);
                },
                Step::Fetch => { engine.fetch(); }
                Step::Execute(count) => for _ in 0..count {
                    let Some((host, card, length, reports)) = engine.execute() else { break };
                    executed.push_back((host, card, length));
                    if reports { word = engine.completed; }
                },
                Step::Report => { prop_assert!(ring.complete_writeback(word).is_ok()); }
                // Ahead of the word, which may report the same later.
                Step::Register => if ring.is_open() {
                    prop_assert!(ring.complete_register(engine.completed).is_ok());
                },
                Step::Reap => reap(&mut ring, &mut open, &mut executed),
                Step::Withdraw(which) => {
                    let Some(picked) = open.iter().map(|op| op.number).nth(usize::from(which) % open.len().max(1))
                        else { continue };
                    withdraw(&mut ring, &mut open, picked, &executed);
                }
                Step::Stop => {
                    engine.stop();
                    // The register reports descriptors that the last write-back may not have reported.
                    if ring.is_open() { ring.complete_register(engine.completed).unwrap(); }
                    ring.halt();
                    word = 0;
                    engine.completed = 0;
                }
            }
        }
        // To the end: all remaining descriptors are executed and returned.
        loop {
            reap(&mut ring, &mut open, &mut executed);
            let posted = ring.post_credits(&mut engine);
            if let Some(more) = posted { engine.doorbell(more); }
            while engine.fetch() {}
            let before = executed.len();
            while let Some((host, card, length, _)) = engine.execute() { executed.push_back((host, card, length)); }
            if ring.is_open() { ring.complete_register(engine.completed).unwrap(); }
            if posted.is_none() && executed.len() == before { break }
        }
        reap(&mut ring, &mut open, &mut executed);
        prop_assert_eq!(open.len(), 0);
        prop_assert_eq!(executed.len(), 0);
        prop_assert_eq!(ring.free_entries(), entries);
    }
}

/// Withdraws a chosen operation from the expectation, too.
fn withdraw(
    ring: &mut Ring<u32>,
    open: &mut VecDeque<Expected>,
    number: u64,
    executed: &VecDeque<(u64, u64, u32)>,
) {
    let before: usize = open.iter().take_while(|op| op.number < number).map(|op| op.pieces.len()).sum();
    let op = open.iter_mut().find(|op| op.number == number).unwrap();
    let done = executed.len().saturating_sub(before).min(op.pieces.len());
    match ring.withdraw(Token::new(number)) {
        Ok(()) if done < op.pieces.len() => {
            op.pieces.truncate(done);
            op.withdrawn = true;
        }
        Ok(()) => {}
        Err(error) => assert_eq!(error, WithdrawError::Posted { number }),
    }
}

fn reap(ring: &mut Ring<u32>, open: &mut VecDeque<Expected>, executed: &mut VecDeque<(u64, u64, u32)>) {
    let mut take = |op: &Expected| {
        for piece in &op.pieces {
            assert_eq!(executed.pop_front().as_ref(), Some(piece));
        }
    };
    loop {
        let plain = ring.pop_without_payload();
        for _ in 0..plain {
            let op = open.pop_front().unwrap();
            assert!(op.payload.is_none() && !op.withdrawn);
            take(&op);
        }
        match ring.poll_completion() {
            Some(done) => {
                let op = open.pop_front().unwrap();
                take(&op);
                assert_eq!(
                    (done.token.number(), done.payload, done.withdrawn),
                    (op.number, op.payload, op.withdrawn)
                );
                assert_eq!(done.descriptors as usize, op.pieces.len());
            }
            None if plain == 0 => break,
            None => {}
        }
    }
    assert_eq!(ring.ended(), ring.submitted() - open.len() as u64);
}

#[test]
fn ring_credit_mode_count_wraps_at_24_bits() {
    let config = config(1 << 10, 0);
    let mut ring = Ring::<()>::new(config).unwrap();
    let mut engine = Engine::new(&config);
    let host = HostRange::new(Iova::new(0x1000), 64);
    let mut count = 0u32;
    // Past 2^24 twice.
    while count < (1 << 25) + 5000 {
        for n in 0..1000 {
            ring.submit_without_payload(host, CardAddr::new(n)).unwrap();
        }
        count += ring.post_credits(&mut engine).unwrap().credits;
        assert_eq!(ring.complete_writeback(count & 0x00FF_FFFF), Ok(1000));
        assert_eq!(ring.pop_without_payload(), 1000);
        assert_eq!(ring.complete_register(count), Ok(0));
    }
    assert!(ring.complete_writeback(count.wrapping_add(1) & 0x00FF_FFFF).is_err());
}

#[test]
fn ring_credit_mode_stale_writeback_is_ignored() {
    let config = config(64, 0);
    let mut ring = Ring::<()>::new(config).unwrap();
    let mut engine = Engine::new(&config);
    for n in 0..10u64 {
        ring.submit_without_payload(HostRange::new(Iova::new(n << 16), 64), CardAddr::new(n)).unwrap();
    }
    let _ = ring.post_credits(&mut engine).unwrap();
    assert_eq!(ring.complete_writeback(2), Ok(2));
    assert_eq!(ring.complete_register(7), Ok(5));
    assert_eq!(ring.complete_writeback(2), Ok(0), "as before");
    assert_eq!(ring.complete_writeback(5), Ok(0), "still behind");
    assert_eq!(ring.complete_writeback(8), Ok(1), "ahead again");
    assert!(ring.complete_writeback(7).is_err(), "but it never decreases");
}

#[test]
fn ring_credit_mode_credits_never_exceed_counter() {
    let config = config(4096, 0);
    let mut ring = Ring::<()>::new(config).unwrap();
    let mut engine = Engine::new(&config);
    for n in 0..3000u64 {
        ring.submit_without_payload(HostRange::new(Iova::new(n << 16), 64), CardAddr::new(n)).unwrap();
    }
    assert_eq!(ring.post_credits(&mut engine).unwrap().credits, MAX_CREDITS);
    assert_eq!(ring.post_credits(&mut engine), None);
    ring.complete_writeback(10).unwrap();
    assert_eq!(ring.post_credits(&mut engine).unwrap().credits, 10);
}

#[test]
fn quirk_1_ring_credit_mode_long_descriptor_ends_adjacency() {
    let config = config(64, 0);
    let mut ring = Ring::<()>::new(config).unwrap();
    let mut engine = Engine::new(&config);
    for n in 0..4u64 {
        let length = if n == 2 { 8192 } else { 64 };
        ring.submit_without_payload(HostRange::new(Iova::new(n << 16), length), CardAddr::new(n << 16))
            .unwrap();
    }
    let more = ring.post_credits(&mut engine).unwrap();
    assert_eq!(more.start.unwrap().adjacent, 0);
    assert!(engine.memory.iter().take(4).all(|d| d.control().next_adjacent() == 0));
    // Short ones continue in the same way while the long one is outstanding; once all are done, a run with blocks begins.
    let mut post = |ring: &mut Ring<()>, n: u64, length: u64| {
        ring.submit_without_payload(HostRange::new(Iova::new(n << 16), length), CardAddr::new(n << 16))
            .unwrap();
        let extension = ring.post_credits(&mut engine)?;
        let adjacent = engine.memory[usize::try_from(n).unwrap()].control().next_adjacent();
        Some((extension.start.map(|run| run.first.get() & 0xFFF), adjacent))
    };
    assert_eq!(post(&mut ring, 4, 64), Some((None, 0)));
    let posted = u32::try_from(ring.posted().count()).unwrap();
    ring.complete_writeback(posted).unwrap();
    assert_eq!(post(&mut ring, 5, 64), Some((Some(5 * 32), 64 - 6 - 1)));
    assert_eq!(post(&mut ring, 6, 4096), Some((None, 64 - 7 - 1)));
    // A long one waits for the end of a run with blocks, and so do the ones after it.
    assert_eq!(post(&mut ring, 7, 4097), None);
    ring.complete_writeback(1).unwrap();
    assert_eq!(post(&mut ring, 8, 64), None);
    ring.complete_writeback(2).unwrap();
    assert_eq!(post(&mut ring, 9, 64), Some((Some(7 * 32), 0)));
}

#[test]
fn quirk_1_list_of_descriptors_at_the_limit_joins_a_run_with_blocks() {
    for (length, joins) in [(4096, true), (4097, false)] {
        let config = config(64, 0);
        let mut ring = Ring::<()>::new(config).unwrap();
        let mut engine = Engine::new(&config);
        ring.submit_without_payload(HostRange::new(Iova::new(0), 64), CardAddr::new(0)).unwrap();
        assert!(ring.post_credits(&mut engine).unwrap().start.is_some());
        let list = [1, 2].map(|n| SgEntry {
            host: HostRange::new(Iova::new(n << 16), length),
            card: CardAddr::new(n << 20),
        });
        ring.submit_segments(list.into_iter(), None).unwrap();
        let credits = ring.post_credits(&mut engine).map(|extension| (extension.start, extension.credits));
        assert_eq!(credits, joins.then_some((None, 2)), "{length} bytes");
    }
}

#[test]
fn ring_list_is_one_operation_and_refusal_names_cause() {
    let config = config(8, 0);
    let mut ring = Ring::<u8>::new(config).unwrap();
    let segment = |host, length, card| SgEntry {
        host: HostRange::new(Iova::new(host), length),
        card: CardAddr::new(card),
    };
    let many = (0..1_000_000u64).map(|n| segment(n << 13, 16, n << 13));
    assert_eq!(
        ring.submit_segments(many, Some(1)),
        Err((RefusalReason::TooManyDescriptors { needed: 1_000_000, usable: 8 }, Some(1)))
    );
    // A million touching elements are one descriptor.
    let touching = (0..1_000_000u64).map(|n| segment(0x1000 + n * 16, 16, n * 16));
    assert!(ring.submit_segments(touching, None).is_ok());
    assert_eq!(ring.free_entries(), 7);
    assert_eq!(ring.submit_segments([segment(0, 0, 0)].into_iter(), None), Err((RefusalReason::Empty, None)));
    let beyond = [segment(0, 16, 0), segment(0, 16, u64::MAX)];
    assert!(matches!(
        ring.submit_segments(beyond.into_iter(), None),
        Err((RefusalReason::CardAddress { length: 16, .. }, None))
    ));
    let host = [HostRange::new(Iova::new(0x1000), 8), HostRange::new(Iova::new(0x8000), 8)];
    ring.submit(Request { host: &host, card: CardAddr::new(u64::MAX - 16) }, 7).unwrap();
    let refusal = ring.submit(Request { host: &host, card: CardAddr::new(u64::MAX - 15) }, 7).unwrap_err();
    assert!(matches!(refusal.reason, RefusalReason::CardAddress { .. }), "{refusal:?}");
}

#[test]
fn ring_run_descriptors_counts_own_run() {
    let config = config(64, 0);
    let mut ring = Ring::<()>::new(config).unwrap();
    let mut engine = Engine::new(&config);
    assert_eq!((ring.is_open(), ring.run_descriptors()), (false, 0));
    let submit = |ring: &mut Ring<()>, count: u64| {
        for n in 0..count {
            ring.submit_without_payload(HostRange::new(Iova::new(n << 16), 64), CardAddr::new(n)).unwrap();
        }
    };
    // Runs that end count from their own start, not from the first run's.
    for count in [2, 5] {
        submit(&mut ring, count);
        let run = ring.start_run(&mut engine).unwrap();
        assert_eq!((u64::from(run.descriptors), u64::from(ring.run_descriptors())), (count, count));
        assert!(!ring.is_open());
        assert_eq!(ring.complete(run.descriptors), Ok(run.descriptors));
    }
    // A run in credit mode continues.
    submit(&mut ring, 3);
    assert!(ring.post_credits(&mut engine).unwrap().start.is_some());
    assert_eq!((ring.is_open(), ring.run_descriptors()), (true, 3));
    submit(&mut ring, 4);
    assert!(ring.post_credits(&mut engine).unwrap().start.is_none());
    assert_eq!((ring.is_open(), ring.run_descriptors()), (true, 7));
}

/// PG195, SGDMA Descriptor Credits: the counter has ten bits.
#[test]
fn ring_credits_maximum_is_counter_width() {
    assert_eq!(MAX_CREDITS, 1023);
}

/// Blocks are fixed parts of the ring in credit mode: each descriptor announces the rest of the block that its successor is in.
#[test]
fn ring_credit_mode_blocks_end_at_fixed_entries() {
    for (base, expected) in [(0, [2, 1, 0, 3, 2, 1, 0, 3]), (2, [0, 3, 2, 1, 0, 3, 2, 1])] {
        let mut config = config(16, base);
        config.block_descriptors = 4;
        let mut ring = Ring::<u32>::new(config).unwrap();
        let mut engine = Engine::new(&config);
        for n in 0..8 {
            let host = [HostRange::new(Iova::new(0x8000 * (n + 1)), 8)];
            ring.submit(Request { host: &host, card: CardAddr::new(0) }, 0_u32).unwrap();
        }
        assert_eq!(ring.post_credits(&mut engine).map(|grant| grant.credits), Some(8));
        let found: Vec<u8> = engine.memory.iter().take(8).map(|d| d.control().next_adjacent()).collect();
        // Entry n announces the number of descriptors after entry n + 1 in the block of entry n + 1.
        assert_eq!(found, expected, "base {base}");
    }
}

/// Large operations report their completion as they end, small ones once per batch, in both run modes.
#[test]
fn ring_long_descriptors_report_as_they_end() {
    for (length, interval) in
        [(4096_u64, None), (64 << 10, Some(4)), (100 << 10, Some(3)), (1 << 20, Some(1))]
    {
        for credit in [false, true] {
            let mut config = config(64, 0);
            config.long_run_descriptors = None;
            let mut ring = Ring::<()>::new(config).unwrap();
            let mut engine = Engine::new(&config);
            for n in 0..10 {
                let host = HostRange::new(Iova::new(n << 24), length);
                ring.submit_without_payload(host, CardAddr::new(n << 24)).unwrap();
            }
            if credit {
                assert_eq!(ring.post_credits(&mut engine).unwrap().credits, 10);
            } else {
                assert_eq!(ring.start_run(&mut engine).unwrap().descriptors, 10);
            }
            let reports: Vec<_> =
                engine.memory.iter().take(10).map(|descriptor| descriptor.control().completed()).collect();
            let expected = |n: usize| n == 10 || interval.is_some_and(|interval| n.is_multiple_of(interval));
            assert_eq!(reports, (1..=10).map(expected).collect::<Vec<_>>(), "{length}, credit: {credit}");
        }
    }
}
