//! Partitioned networks: threads in step, boards, and the end of a membership. Traffic: `tests/tests/partition.rs`.
#![expect(clippy::expect_used, reason = "a test's preparation either works or is the failure")]

use fpga_pci::Backend as _;
use fpga_protocol::time::Nanos;
use fpga_sim::{Board, Membership, Partitions, SimNetwork, SimNetworkError, ThreadOptions};
use rustix::thread::sched_getaffinity;

/// Latency of the built-in card's network port.
const LOOKAHEAD: u64 = 500;

fn partitions(cards: u32) -> Partitions {
    SimNetwork::builder().cards(cards).build_partitioned().expect("cards")
}

/// Drives `member`'s card for `polls` polls, and shows the time of each. Returns its times and the others' boards.
fn run(partitions: &Partitions, member: &Membership, polls: u32) -> Vec<(u64, Vec<Board>)> {
    let network = partitions.network(member.number()).expect("a card");
    let card = network.backend(0);
    (0..polls)
        .map(|_| {
            card.relax();
            let now = card.now();
            member.show([now, 1, 2, 3]);
            (now, (0..3).map(|number| member.board(number).0).collect())
        })
        .collect()
}

fn run_all<const CARDS: usize>(polls: [u32; CARDS]) -> Vec<Vec<(u64, Vec<Board>)>> {
    let partitions = partitions(u32::try_from(CARDS).expect("few cards"));
    let members = partitions.join();
    assert_eq!(members.len(), CARDS);
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .zip(polls)
            .map(|(member, polls)| {
                let partitions = &partitions;
                scope.spawn(move || run(partitions, &member, polls))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn partition_threads_stay_within_lookahead() {
    let seen = run_all([400; 3]);
    for (number, polls) in seen.iter().enumerate() {
        for (now, boards) in polls {
            for board in boards {
                // A board is of the last exchange, at most one span ago, and shown during the span before it.
                assert!(board[0] <= *now, "{number}: {now} {board:?}");
                assert!(
                    *board == Board::default() || now - board[0] <= 4 * LOOKAHEAD,
                    "{number}: {now} {board:?}"
                );
            }
        }
    }
    assert!(seen[0].last().expect("polls").0 > 100 * LOOKAHEAD);
}

#[test]
fn partition_runs_repeat_whichever_thread_is_first() {
    let first = run_all([300, 200, 250]);
    for _ in 0..20 {
        assert!(run_all([300, 200, 250]) == first);
    }
}

/// Long enough for several changes of the threads' CPUs.
#[test]
fn partition_long_runs_repeat() {
    assert!(run_all([20_000, 15_000]) == run_all([20_000, 15_000]));
}

#[test]
fn partition_thread_gets_its_cpus_back() {
    let partitions = partitions(2);
    std::thread::scope(|scope| {
        for member in partitions.join() {
            let partitions = &partitions;
            scope.spawn(move || {
                let cpus = || sched_getaffinity(None).expect("the thread's CPUs");
                let before = cpus();
                run(partitions, &member, 100);
                drop(member);
                assert_eq!(cpus(), before);
            });
        }
    });
}

#[test]
fn partition_continues_when_others_leave() {
    let seen = run_all([10, 3000, 0]);
    let polls = &seen[1];
    assert_eq!(polls.len(), 3000);
    // The board of a partition that left stays readable.
    let (_, boards) = polls.last().expect("polls");
    assert_eq!(boards[0][0], seen[0].last().expect("polls").0);
    assert_eq!(boards[2], Board::default());
}

#[test]
fn partition_is_free_before_and_after_membership() {
    let partitions = partitions(2);
    let [first, second] = [0, 1].map(|number| partitions.network(number).expect("a card").backend(0));
    assert_eq!([first.name(), second.name()], ["mock:0", "mock:1"]);
    first.pause(std::time::Duration::from_micros(100));
    assert!(second.now() == 0 && first.now() >= 100_000);
    // Joined, both have the later time.
    let members = partitions.join();
    assert_eq!(second.now(), first.now());
    assert!(members[0].board(1).1);
    drop(members);
    second.pause(std::time::Duration::from_micros(100));
    assert!(second.now() > first.now());
}

/// `advance` works across spans, and long silences take few exchanges.
#[test]
fn partition_advances_by_the_requested_time() {
    let partitions = partitions(2);
    let ends = std::thread::scope(|scope| {
        let run = |member: Membership| {
            let network = partitions.network(member.number()).expect("a card");
            network.advance(Nanos::from_micros(1));
            // 20,000,000 exchanges of 500 ns would take a minute.
            network.advance(Nanos::new(10_000_000_000));
            network.now().get()
        };
        let threads: Vec<_> =
            partitions.join().into_iter().map(|member| scope.spawn(move || run(member))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert_eq!(ends, [10_000_001_000; 2]);
}

#[test]
fn partition_needs_virtual_time() {
    let network = SimNetwork::builder().cards(2).threaded(ThreadOptions::default());
    assert_eq!(network.build_partitioned().expect_err("real time"), SimNetworkError::RealTime);
    assert!(SimNetwork::builder().cards(0).build_partitioned().expect("no card").join().is_empty());
}
