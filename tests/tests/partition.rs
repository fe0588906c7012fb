//! Partitioned networks under traffic: each card and its endpoint on a thread of its own, and the same seed gives the same run.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's preparation either works or is the failure")]
#![expect(clippy::cast_possible_truncation, reason = "numbers of nodes are small")]

use fpga_card::AccessLog;
use fpga_driver::{Card, CardAddr, CardRange, NodeId, WaitOptions, bulk};
use fpga_netmodel::{Conditions, Impairments, LinkCounters, Loss, Order, Probability};
use fpga_pci::Backoff;
use fpga_rdma::{Endpoint, EndpointOptions, RemoteRegion, SendOptions};
use fpga_sim::{Membership, Partitions, SimNetwork};
use fpga_tests::{SOURCE, TARGET, bytes};

const NODES: usize = 3;
const LENGTH: usize = 150_001;
/// Rounds of polls without work after which nothing is in flight, longer than any timer of a retransmission.
const QUIET: u32 = 600;

/// All that a node observes.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    received: Vec<u8>,
    /// Completions and notifications, with their times.
    events: Vec<String>,
    /// Accesses of software to the card, with their times.
    accesses: Vec<String>,
}

/// Sends to the node `region` belongs to, and receives from another one. Returns at the end of both.
fn node(mut endpoint: Endpoint, network: &SimNetwork, member: Membership, region: &RemoteRegion) -> Observed {
    let card = endpoint.card().clone();
    let number = member.number() as u64;
    let mut h2c = card.h2c(0).unwrap();
    let data = bytes(number, LENGTH);
    let wait = WaitOptions::default();
    bulk::write_from(&card, &mut h2c, &mut &data[..], SOURCE, LENGTH as u64, wait, &mut |_| ()).unwrap();
    endpoint.send(SOURCE, region, 0, LENGTH as u64, SendOptions::default()).unwrap();
    let (mut events, mut backoff, mut quiet) = (Vec::new(), Backoff::new(), 0);
    loop {
        let work = endpoint.poll().unwrap();
        events.extend(std::iter::from_fn(|| endpoint.next_completion()).map(|done| {
            assert_eq!(done.result, Ok(()));
            format!("{done:?}")
        }));
        events
            .extend(std::iter::from_fn(|| endpoint.next_notification()).map(|notice| format!("{notice:?}")));
        quiet = if work == 0 && endpoint.is_idle() { quiet + 1 } else { 0 };
        member.show([(events.len() >= 2 && quiet >= QUIET).into(), 0, 0, 0]);
        if (0..NODES).all(|other| member.board(other).0[0] == 1) {
            break;
        }
        if work > 0 {
            backoff.reset();
        } else {
            card.back_off(&mut backoff);
        }
    }
    drop(member);
    let mut received = Vec::new();
    let mut c2h = card.c2h(0).unwrap();
    bulk::read_into(&card, &mut c2h, TARGET, LENGTH as u64, &mut received, wait, &mut |_| ()).unwrap();
    let log = network.with_card(0, |card| card.set_access_log(AccessLog::Off)).unwrap();
    let AccessLog::Bounded { entries, .. } = log else { panic!("the log was on") };
    // Keys of regions are random: values are not compared.
    let accesses = entries.iter().map(|access| {
        let fpga_card::Access { time, target, offset, write, .. } = access;
        format!("{time:?} {target:?} {offset:#x} {write}")
    });
    Observed { received, events, accesses: accesses.collect() }
}

/// A ring of transfers: each node sends to the next one.
fn run(impairments: &Impairments, seed: u64) -> (Vec<Observed>, LinkCounters, u64) {
    let network = SimNetwork::builder().cards(NODES as u32).impairments(impairments.clone()).seed(seed);
    let partitions: Partitions = network.build_partitioned().unwrap();
    let network = |number| partitions.network(number).unwrap();
    let mut endpoints: Vec<_> = (0..NODES)
        .map(|number| {
            network(number).with_card(0, |card| card.set_access_log(AccessLog::bounded(1 << 20)));
            let card = Card::from_backend(network(number).backend(0)).unwrap();
            let mut options = EndpointOptions::default();
            options.incarnation = Some(7 + number as u32);
            Endpoint::open_with(&card, &options).unwrap()
        })
        .collect();
    let range = CardRange::new(TARGET, LENGTH as u64);
    let regions: Vec<_> =
        endpoints.iter_mut().map(|end| end.open_region(NodeId::ANY, range).unwrap().remote).collect();
    let members = partitions.join();
    let observed = std::thread::scope(|scope| {
        let threads: Vec<_> = endpoints
            .into_iter()
            .zip(members)
            .enumerate()
            .map(|(number, (endpoint, member))| {
                let (network, region) = (network(number), &regions[(number + 1) % NODES]);
                scope.spawn(move || node(endpoint, network, member, region))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // A damaged destination may be none of the nodes.
    (observed, network(0).network_counters(), network(0).undeliverable_frames())
}

fn loss(share: f64) -> Conditions {
    let share = Probability::new(share).unwrap();
    let mut conditions = Conditions::default();
    (conditions.loss, conditions.copy, conditions.damage) = (Loss::Independent(share), share, share);
    conditions
}

#[test]
fn partition_traffic_repeats_whichever_thread_is_first() {
    let cases = [
        Impairments::default(),
        Impairments::default().order(Order::random(32)),
        Impairments::both(loss(0.02)).order(Order::random(64)),
        Impairments::both(loss(0.01))
            .order(Order::Degree { degree: 8, patience: fpga_protocol::Nanos::new(9_000) }),
    ];
    for impairments in &cases {
        let first = run(impairments, 3);
        for (number, observed) in first.0.iter().enumerate() {
            let sender = (number + NODES - 1) % NODES;
            assert!(observed.received == bytes(sender as u64, LENGTH), "{number}: arrived changed");
            assert_eq!(observed.events.len(), 2, "one completion, one notification: {:?}", observed.events);
            assert!(observed.accesses.len() > 100);
        }
        for _ in 0..3 {
            assert!(first == run(impairments, 3), "{impairments:?}: the runs differ");
        }
    }
    assert!(run(&cases[2], 3).0 != run(&cases[2], 4).0, "another seed, another run");
}

/// In a network that neither delays nor reorders, the card's clock shows the same times with one clock for all cards.
#[test]
fn partition_transfer_takes_the_time_of_a_common_clock() {
    let time_of = |partitioned: bool| -> (u64, u64) {
        let builder = SimNetwork::builder().cards(2);
        let partitions = if partitioned { Some(builder.build_partitioned().unwrap()) } else { None };
        let common = SimNetwork::builder().cards(2).build().unwrap();
        let backend = |number| match &partitions {
            Some(partitions) => partitions.network(number).unwrap().backend(0),
            None => common.backend(number),
        };
        let open = |number| Endpoint::open(&Card::from_backend(backend(number)).unwrap()).unwrap();
        let (mut a, mut b) = (open(0), open(1));
        let region = b.open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap().remote;
        let send =
            |a: &mut Endpoint| a.send(CardAddr::ZERO, &region, 0, 1 << 20, SendOptions::default()).unwrap();
        let done = if let Some(partitions) = &partitions {
            let mut members = partitions.join().into_iter();
            let (for_a, for_b) = (members.next().unwrap(), members.next().unwrap());
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    while for_b.board(0).0[0] == 0 {
                        if b.poll().unwrap() == 0 {
                            b.relax();
                        }
                    }
                });
                send(&mut a);
                loop {
                    if a.poll().unwrap() == 0 {
                        a.relax();
                    }
                    if let Some(done) = a.next_completion() {
                        for_a.show([1, 0, 0, 0]);
                        // Otherwise the other thread would wait for this one.
                        drop(for_a);
                        return done;
                    }
                }
            })
        } else {
            send(&mut a);
            loop {
                if a.poll().unwrap() + b.poll().unwrap() == 0 {
                    a.relax();
                }
                if let Some(done) = a.next_completion() {
                    break done;
                }
            }
        };
        let span = done.finished.saturating_sub(done.started);
        (u64::try_from(span.as_nanos()).unwrap(), done.packets)
    };
    let ((apart, packets), (common, same)) = (time_of(true), time_of(false));
    assert_eq!(packets, same);
    assert!(apart.abs_diff(common) * 20 < common, "{apart} ns with two clocks, {common} ns with one");
}
