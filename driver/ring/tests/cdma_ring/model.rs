//! Random commands, compared with the list of requests.

use super::*;

#[derive(Clone, Debug)]
enum Command {
    Submit(Vec<CopyEntry>),
    Publish,
    Post,
    Step(u8),
    Status,
    Pointer,
    Collect,
    FailIn(u8),
    GiveUp,
}

fn segments() -> impl Strategy<Value = CopyEntry> {
    let half = u64::from(DATA) / 2;
    // Source in the lower half, destination in the upper: no overlap.
    (0..half - 900, 0..half - 900, prop_oneof![4 => 1..300_u64, 1 => 0..900_u64])
        .prop_map(move |(source, destination, length)| segment(source, half + destination, length))
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    prop::collection::vec(
        prop_oneof![
            6 => prop::collection::vec(segments(), 0..4).prop_map(Command::Submit),
            4 => Just(Command::Publish),
            4 => Just(Command::Post),
            6 => (0..5_u8).prop_map(Command::Step),
            3 => Just(Command::Status),
            3 => Just(Command::Pointer),
            3 => Just(Command::Collect),
            1 => (0..6_u8).prop_map(Command::FailIn),
            1 => Just(Command::GiveUp),
        ],
        1..200,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(0xCD3A), ..ProptestConfig::default() })]

    #[test]
    fn cdma_ring_model_returns_every_payload_once_and_copies_memory(size in 1..5_u32, commands in commands()) {
        let mut bench = CdmaTestbed::new(1 << size);
        for command in commands {
            match command {
                Command::Submit(segments) => { let _ = bench.submit(&segments); }
                Command::Publish => bench.publish(),
                Command::Post => bench.post(),
                Command::Step(count) => (0..count).for_each(|_| bench.engine.step()),
                Command::Status => {
                    let seen = bench.by_status();
                    if let Err(fault) = seen {
                        prop_assert!(matches!(fault, ProgressFault::Descriptor { .. }), "{}", fault);
                        prop_assert_eq!(bench.engine.halt, Some(Halt::Copy));
                        bench.recover();
                    }
                }
                Command::Pointer => { bench.by_pointer().unwrap(); }
                Command::Collect => bench.collect(),
                Command::FailIn(count) => bench.engine.fail_in = Some(count.into()),
                Command::GiveUp => bench.recover(),
            }
            prop_assert_ne!(bench.engine.halt, Some(Halt::Stale), "a status was not cleared");
            if bench.engine.halt.is_some() {
                bench.recover();
            }
            bench.check_counts();
        }
        // All remaining operations complete.
        bench.engine.fail_in = None;
        bench.post();
        bench.publish();
        bench.post();
        while bench.ring.outstanding() != 0 {
            bench.engine.step();
            bench.by_pointer().unwrap();
        }
        bench.collect();
        prop_assert!(bench.flying.is_empty());
        prop_assert!(bench.engine.data == bench.reference);
    }
}
