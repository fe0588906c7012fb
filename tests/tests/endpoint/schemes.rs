//! Message schemes, whose senders are in the card: the same tests of bytes, memory windows, reads and endings.

use fpga_diag::inspect::Inspect as _;
use fpga_netmodel::{Conditions, Delay, Impairments, Loss, Order, Probability};
use fpga_rdma::{ReadFailure, SendCompletion};

use super::*;

const SCHEMES: [Scheme; 3] = [Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective];
/// The schemes, and the registry, whose senders are in the host.
const ALL: [Scheme; 4] = [SCHEMES[0], SCHEMES[1], SCHEMES[2], Scheme::Registry];

/// Options with short messages.
fn with_scheme(scheme: Scheme) -> impl Fn(EndpointOptions) -> EndpointOptions {
    move |mut options| {
        (options.scheme, options.segment_size) = (scheme, Some(8 << 10));
        options.round_trip = Duration::from_micros(20);
        options
    }
}

/// Impairments of data and control packets alike.
fn impairments(loss: f64, copies: f64, damage: f64, depth: usize) -> Impairments {
    let share = |part| Probability::new(part).unwrap();
    let delay = Delay::Exponential { least: Nanos::ZERO, mean: Nanos::from_micros(2) };
    let conditions = Conditions::default()
        .loss(Loss::Independent(share(loss)))
        .delay(delay)
        .copies(share(copies), delay)
        .damage(share(damage));
    let order = Order::Random { depth, patience: Nanos::from_micros(20) };
    Impairments::both(conditions).order(order).distance(Nanos::new(800))
}

fn completion(net: &mut Testbed, end: usize) -> SendCompletion {
    net.completions[end].pop_front().unwrap()
}

#[test]
fn schemes_every_length_arrives_by_every_scheme() {
    for scheme in SCHEMES {
        let mut net = Testbed::of(&CardDescription::default(), random(3), with_scheme(scheme));
        assert_eq!(net.end(0).scheme(), scheme);
        assert_eq!(net.end(0).tables().scheme().unwrap(), Some(scheme));
        let region = net.region(1, TARGET, 1 << 20).remote;
        for (n, length) in [0, 1, 511, 512, 513, 8191, 8192, 8193, 100_000].into_iter().enumerate() {
            net.carry(at(SOURCE, 3), &region, n as u64 * 0x1_0001, &bytes(n as u64, length));
        }
        let counters = net.end(0).counters().sender;
        assert_eq!((counters.completed, counters.failed), (9, 0), "{scheme}");
        let packets = [0, 1, 1, 1, 2, 16, 16, 17, 196];
        assert_eq!(counters.packets, packets.iter().sum::<u64>(), "{scheme}");
        assert_eq!(counters.acknowledged, counters.packets, "{scheme}");
        net.assert_clean();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 12, ..ProptestConfig::default() })]

    /// Random transfers in both directions over random impairments: all bytes arrive once, and no other bytes change.
    #[test]
    fn schemes_random_transfers_over_random_impairments_arrive(
        seed in any::<u64>(),
        loss in 0.0..0.05_f64,
        copies in 0.0..0.1_f64,
        damage in 0.0..0.03_f64,
        depth in 1_usize..128,
        lengths in proptest::collection::vec(1_usize..60_000, 1..8),
    ) {
        for scheme in ALL {
            let mut net = Testbed::impaired(2, impairments(loss, copies, damage, depth), seed, with_scheme(scheme));
            let regions = [0, 1].map(|index| net.region(index, TARGET, 1 << 20).remote);
            let mut expected = Vec::new();
            for (n, length) in lengths.iter().copied().enumerate() {
                let (from, place) = (n % 2, n as u64 * 0x2_0001);
                let data = bytes(seed ^ n as u64, length);
                net.put(from, at(SOURCE, place), &data);
                for beside in [place.checked_sub(1), Some(place + length as u64)].into_iter().flatten() {
                    net.put(1 - from, at(TARGET, beside), &[0xC3]);
                }
                net.send(from, at(SOURCE, place), &regions[1 - from], place, length as u64);
                expected.push((1 - from, place, data));
            }
            net.settle();
            for (to, place, data) in expected {
                prop_assert!(net.get(to, at(TARGET, place), data.len()) == data, "{scheme}: {} bytes", data.len());
                for beside in [place.checked_sub(1), Some(place + data.len() as u64)].into_iter().flatten() {
                    prop_assert_eq!(net.get(to, at(TARGET, beside), 1), vec![0xC3]);
                }
                let notices = net.notifications[to].iter().filter(|notice| notice.address == at(TARGET, place));
                prop_assert_eq!(notices.count(), 1, "{}: notified once", scheme);
            }
            for completions in &net.completions {
                prop_assert!(completions.iter().all(|done| done.result == Ok(())), "{scheme}: {completions:?}");
            }
            net.assert_clean();
        }
    }
}

#[test]
fn schemes_reads_over_lossy_network_arrive() {
    for scheme in ALL {
        let mut net = Testbed::impaired(2, impairments(0.03, 0.05, 0.01, 16), 6, with_scheme(scheme));
        net.put(1, SOURCE, &bytes(1, 200_000));
        let reader = net.end(0).node();
        let source = net.end(1).open_readable(reader, CardRange::new(SOURCE, 200_000)).unwrap().remote;
        for n in 0..8 {
            let (offset, to) = (n * 25_000, at(TARGET, n * 25_000));
            net.end(0).read(&source, offset, to, 25_000, SendOptions::default()).unwrap();
        }
        net.settle();
        for _ in 0..8 {
            assert_eq!(net.end(0).next_read().unwrap().result, Ok(()), "{scheme}");
        }
        assert!(net.get(0, TARGET, 200_000) == bytes(1, 200_000));
        // A read beyond the granted range gets no answer.
        let greedy = fpga_rdma::RemoteReadable { length: 300_000, ..source };
        let soon = SendOptions::default().deadline(Duration::from_millis(5));
        net.end(0).read(&greedy, 199_999, TARGET, 2, soon).unwrap();
        net.settle();
        let read = net.end(0).next_read().unwrap();
        assert!(matches!(read.result, Err(ReadFailure::NoAnswer { .. })), "{scheme}: {read:?}");
        net.assert_clean();
    }
}

#[test]
fn schemes_write_outside_window_is_refused() {
    for scheme in SCHEMES {
        let mut net = Testbed::of(&CardDescription::default(), random(1), with_scheme(scheme));
        let handle = net.region(1, TARGET, 1000);
        let good = handle.remote;
        let wrong_key = RemoteRegion { key: good.key ^ 1, ..good };
        let longer = RemoteRegion { length: 50_000, ..good };
        assert_refused(&mut net, &wrong_key, 1000, (TARGET, 1000));
        assert_refused(&mut net, &longer, 50_000, (TARGET, 50_000));
        net.end(1).close_region(&handle).unwrap();
        assert_refused(&mut net, &good, 1000, (TARGET, 1000));
    }
}

/// Each side reports the mismatch, instead of waiting for an answer that never comes.
#[test]
fn schemes_mismatched_nodes_refuse_each_other() {
    for (first, second) in [
        (Scheme::Registry, Scheme::Selective),
        (Scheme::ReceiverWindow, Scheme::Registry),
        (Scheme::AdaptiveWindow, Scheme::Registry),
        (Scheme::Selective, Scheme::AdaptiveWindow),
        (Scheme::AdaptiveWindow, Scheme::ReceiverWindow),
    ] {
        let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
            let first_card = options.incarnation == Some(0xA);
            options.scheme = if first_card { first } else { second };
            options
        });
        for (from, to) in [(0, 1), (1, 0)] {
            let region = net.region(to, TARGET, 20_000).remote;
            net.put(to, TARGET, &[0xC3; 16]);
            net.send(from, SOURCE, &region, 0, 20_000);
            net.settle();
            let done = completion(&mut net, from);
            let Err(error @ SendFailure::Scheme { node, .. }) = done.result else { panic!("{done:?}") };
            assert_eq!(node, region.node, "{first} and {second}");
            assert!(error.help().is_some_and(|help| help.contains("same scheme")), "{error}");
            assert_eq!(net.get(to, TARGET, 16), [0xC3; 16]);
            assert!(
                net.network.now() < Nanos::from_millis(100),
                "{first} and {second}: {}",
                net.network.now()
            );
        }
        net.assert_clean();
    }
}

#[test]
fn schemes_build_without_commands_supports_registry_only() {
    let network = fpga_tests::cards::network(described("ni: { commands: 0 }"));
    let card = Card::from_backend(network.backend(0)).unwrap();
    let error = Endpoint::open_with(&card, &with_scheme(Scheme::Selective)(options(1))).unwrap_err();
    assert!(matches!(error.kind, EndpointError::Scheme { scheme: Scheme::Selective, .. }), "{error}");
    assert!(error.to_string().contains("it supports Registry"), "{error}");
    Endpoint::open_with(&card, &options(1)).unwrap();
}

/// A card passes from one endpoint to the next, whichever scheme that runs.
#[test]
fn schemes_card_changes_scheme_between_endpoints() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    for (round, scheme) in SCHEMES.into_iter().chain([Scheme::Registry, Scheme::Selective]).enumerate() {
        for index in 0..2 {
            net.ends[index] = None;
            let card = Card::from_backend(net.network.backend(index)).unwrap();
            let own = with_scheme(scheme)(options((round * 2 + index) as u32 + 100));
            net.ends[index] = Some(Endpoint::open_with(&card, &own).unwrap());
        }
        let region = net.region(1, TARGET, 1 << 20).remote;
        net.carry(SOURCE, &region, 7, &bytes(round as u64, 50_000));
        net.assert_clean();
    }
}

#[test]
fn schemes_transfers_end_by_deadline_cancel_and_silence() {
    for scheme in SCHEMES {
        let lost = Conditions::default().loss(Loss::Independent(Probability::ALWAYS));
        let mut net = Testbed::impaired(2, Impairments::both(lost), 1, |options| {
            let mut options = with_scheme(scheme)(options);
            options.give_up = Duration::from_millis(20);
            options
        });
        let region = net.region(1, TARGET, 1 << 20).remote;
        let silent = net.send(0, SOURCE, &region, 0, 100_000);
        let soon = SendOptions::default().deadline(Duration::from_millis(5));
        let late = net.send_with(0, SOURCE, &region, 0, 100_000, soon);
        let withdrawn = net.send(0, SOURCE, &region, 0, 100_000);
        for _ in 0..200 {
            net.poll(0).unwrap();
            net.network.step();
        }
        assert!(net.end(0).cancel(withdrawn));
        let queued = net.send(0, SOURCE, &region, 0, 100_000);
        assert!(net.end(0).cancel(queued), "cancelled before the card has the transfer");
        net.settle();
        assert!(!net.end(0).cancel(silent));
        let mut ends: Vec<_> = std::mem::take(&mut net.completions[0]).into();
        ends.sort_by_key(|done| {
            [queued, withdrawn, late, silent].iter().position(|ticket| *ticket == done.ticket)
        });
        let results: Vec<_> = ends.iter().map(|done| done.result.unwrap_err()).collect();
        assert!(
            matches!(
                results[..],
                [
                    SendFailure::Cancelled { .. },
                    SendFailure::Cancelled { .. },
                    SendFailure::Deadline { .. },
                    SendFailure::Unanswered { tries: 1.., .. },
                ]
            ),
            "{scheme}: {results:?}"
        );
        assert!(net.network.now() < Nanos::from_millis(60), "{scheme}: {}", net.network.now());
        net.assert_clean();
    }
}

/// More transfers than the card has slots for wait at the host; the tables show those in progress.
#[test]
fn schemes_small_tables_deliver_slowly() {
    for scheme in SCHEMES {
        let card = described("ni: { commands: 2, sending_contexts: 1, registry_entries: 1 }");
        let mut net = Testbed::of(&card, random(1), with_scheme(scheme));
        let region = net.region(1, TARGET, 1 << 20).remote;
        net.put(0, SOURCE, &bytes(1, 60_000));
        for n in 0..2 {
            net.send(0, at(SOURCE, n * 30_000), &region, n * 30_000, 30_000);
        }
        let full = net.end(0).send(SOURCE, &region, 0, 1, SendOptions::default()).unwrap_err();
        assert!(full.to_string().contains("all 2 transfer slots are in use"), "{full}");
        let (mut sending, mut receiving) = (0, 0);
        loop {
            let work = net.poll(0).unwrap() + net.poll(1).unwrap();
            let (live, queued) = net.end(0).tables().sending_occupancy().unwrap();
            assert!(live <= 1 && queued <= 2);
            if let Some(message) = net.end(0).tables().sending(0).unwrap() {
                assert_eq!((message.node, message.packets <= 16), (region.node, true));
                sending += 1;
            }
            assert_eq!(net.end(0).tables().sending(1).unwrap(), None);
            let entry = net.end(1).tables().entry(0).unwrap();
            if entry.valid {
                assert_eq!((entry.source, entry.mask[7]), (net.end(0).node(), u32::MAX));
                assert!(entry.first <= entry.expected.into() && entry.expected <= 16);
                receiving += 1;
            }
            if !net.network.step() && work == 0 && net.end(0).is_idle() {
                break;
            }
        }
        assert!(sending > 10 && receiving > 10, "{scheme}: seen {sending} and {receiving} times");
        net.settle();
        assert!(net.get(1, TARGET, 60_000) == bytes(1, 60_000));
        assert_eq!(net.notifications[1].len(), 2);
        net.assert_clean();
    }
}

#[test]
fn schemes_more_than_two_nodes() {
    for scheme in ALL {
        let mut net = Testbed::nodes(4, &CardDescription::default(), random(2), with_scheme(scheme));
        let regions: Vec<_> = (0..4).map(|index| net.region(index, TARGET, 1 << 20).remote).collect();
        for from in 0..4_usize {
            net.put(from, SOURCE, &bytes(from as u64, 40_000));
            for (to, region) in regions.iter().enumerate() {
                net.send(from, SOURCE, region, from as u64 * 40_000, 40_000);
                assert!(to < 4);
            }
        }
        net.settle();
        for to in 0..4 {
            for from in 0..4 {
                let place = at(TARGET, from * 40_000);
                assert!(net.get(to, place, 40_000) == bytes(from, 40_000), "{scheme}: {from} to {to}");
            }
            assert_eq!((net.completions[to].len(), net.notifications[to].len()), (4, 4));
        }
        net.assert_clean();
    }
}
