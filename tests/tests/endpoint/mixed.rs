//! Endpoints that run several schemes at the same time; each transfer chooses its own.

use fpga_driver::{Advice, Error};
use fpga_netmodel::{Conditions, Delay, Impairments, Loss, Order, Probability};
use fpga_rdma::{Mismatch, ReadError, ReadFailure, SchemeList, SharedEndpoint};
use fpga_sim::ThreadOptions;
use fpga_tests::cards::{peek, poke};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Options with all schemes, and the registry as the default.
fn every(mut options: EndpointOptions) -> EndpointOptions {
    options.other_schemes = Scheme::ALL.iter().copied().collect();
    options.segment_size = Some(8 << 10);
    options.round_trip = Duration::from_micros(20);
    options
}

fn only(scheme: Scheme, others: &[Scheme]) -> impl Fn(EndpointOptions) -> EndpointOptions {
    move |mut options| {
        (options.scheme, options.other_schemes) = (scheme, others.iter().copied().collect());
        options
    }
}

/// Network with 2 % loss, 3 % duplicates, and reordering among sixteen packets.
fn impairments() -> Impairments {
    let share = |part| Probability::new(part).unwrap();
    let delay = Delay::Exponential { least: Nanos::ZERO, mean: Nanos::from_micros(2) };
    let conditions = Conditions::default()
        .loss(Loss::Independent(share(0.02)))
        .delay(delay)
        .copies(share(0.03), delay)
        .damage(share(0.005));
    let order = Order::Random { depth: 16, patience: Nanos::from_micros(20) };
    Impairments::both(conditions).order(order).distance(Nanos::new(800))
}

/// Repeatable random numbers.
struct TestRng(u64);

impl TestRng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn scheme(&mut self) -> Scheme {
        Scheme::ALL[self.below(Scheme::ALL.len() as u64) as usize]
    }
}

/// Distance of the memory of a batch's transfers.
const STRIDE: u64 = 0x1_0000;

/// A thousand transfers in both directions and eighty reads, each with a random scheme, in batches.
#[test]
fn mixed_schemes_random_transfers_and_reads_arrive() {
    const BATCH: u64 = 50;
    let mut net = Testbed::impaired(2, impairments(), 11, every);
    assert_eq!(net.end(0).schemes(), Scheme::ALL.iter().copied().collect());
    let mut rng = TestRng(5);
    let regions = [0, 1].map(|index| net.region(index, TARGET, BATCH * STRIDE).remote);
    let readable = at(SOURCE, 2 * BATCH * STRIDE);
    net.put(1, readable, &bytes(77, 40_000));
    let reader = net.end(0).node();
    let source = net.end(1).open_readable(reader, CardRange::new(readable, 40_000)).unwrap().remote;
    let read_to = at(TARGET, 2 * BATCH * STRIDE);
    let mut sent = [[0_u64; 6]; 2];
    for batch in 0..20 {
        let mut expected = Vec::new();
        for n in 0..BATCH {
            let (from, scheme) = ((n % 2) as usize, rng.scheme());
            let scale = 4 + rng.below(12);
            let length = 1 + rng.below(1 << scale);
            let (place, data) = (n * STRIDE, bytes(batch * BATCH + n, length as usize));
            net.put(from, at(SOURCE, place), &data);
            net.put(1 - from, at(TARGET, place + length), &[0xC3]);
            let by = SendOptions::default().scheme(scheme);
            net.send_with(from, at(SOURCE, place), &regions[1 - from], place, length, by);
            sent[from][scheme.value() as usize] += 1;
            expected.push((1 - from, place, data));
        }
        for n in 0..4 {
            let by = SendOptions::default().scheme(rng.scheme());
            net.end(0).read(&source, n * 10_000, at(read_to, n * 10_000), 10_000, by).unwrap();
        }
        net.settle();
        for (to, place, data) in &expected {
            assert!(
                net.get(*to, at(TARGET, *place), data.len()) == *data,
                "{} bytes at {place:#x}",
                data.len()
            );
            assert_eq!(net.get(*to, at(TARGET, place + data.len() as u64), 1), [0xC3]);
            let reported =
                net.notifications[*to].iter().filter(|notice| notice.address == at(TARGET, *place));
            assert_eq!(reported.count(), 1, "notified once");
        }
        for _ in 0..4 {
            assert_eq!(net.end(0).next_read().unwrap().result, Ok(()));
        }
        assert!(net.get(0, read_to, 40_000) == bytes(77, 40_000));
        net.put(0, read_to, &[0; 40_000]);
        for end in 0..2 {
            let mut tickets: Vec<_> =
                net.completions[end].drain(..).map(|done| (done.ticket, done.result)).collect();
            assert!(tickets.iter().all(|(_, result)| *result == Ok(())), "{tickets:?}");
            tickets.sort_by_key(|(ticket, _)| *ticket);
            tickets.dedup();
            assert_eq!(tickets.len() as u64, BATCH / 2, "each transfer completes once");
            net.notifications[end].clear();
        }
    }
    for scheme in Scheme::ALL {
        assert!(sent.iter().all(|counts| counts[scheme.value() as usize] > 40), "{scheme}: {sent:?}");
    }
    assert_eq!(net.end(1).counters().reads_served, 80);
    net.assert_clean();
}

/// Threads that share an endpoint choose schemes independently.
#[test]
fn mixed_schemes_threads_choose_independently() {
    const TRANSFERS: u64 = 24;
    let order = DeliveryOrder::Random { seed: 9, depth: 16 };
    let network = order.network().cards(2).threaded(ThreadOptions::default()).build().unwrap();
    let ends: Vec<SharedEndpoint> = (0..2)
        .map(|number| {
            let card = Card::from_backend(network.backend(number)).unwrap();
            Endpoint::open_with(&card, &every(options(0x30 + number as u32))).unwrap().into()
        })
        .collect();
    let regions: Vec<_> = ends
        .iter()
        .map(|end| end.open_region(NodeId::ANY, CardRange::new(TARGET, 16 << 20)).unwrap().remote)
        .collect();
    let place = |thread: u64, n: u64| (thread * TRANSFERS + n) * 0x8000;
    let data = |from: usize, thread: u64, n: u64| {
        let seed = place(thread, n) + from as u64;
        bytes(seed, 1 + (seed * 7919 % 0x7000) as usize)
    };
    for from in 0..2 {
        for (thread, n) in (0..3).flat_map(|thread| (0..TRANSFERS).map(move |n| (thread, n))) {
            poke(&network, from, at(SOURCE, place(thread, n)), &data(from, thread, n));
        }
    }
    std::thread::scope(|scope| {
        for (from, end) in ends.iter().enumerate() {
            for thread in 0..3 {
                let (end, region) = (end.clone(), &regions[1 - from]);
                scope.spawn(move || {
                    let mut rng = TestRng(thread * 2 + from as u64);
                    for n in 0..TRANSFERS {
                        let (place, length) = (place(thread, n), data(from, thread, n).len() as u64);
                        let by = SendOptions::default().scheme(rng.scheme());
                        let mut sent = end.send(at(SOURCE, place), region, place, length, by).unwrap();
                        let done = sent.wait(TIMEOUT).unwrap();
                        assert_eq!((done.ticket, done.result), (sent.ticket(), Ok(())));
                    }
                });
            }
        }
    });
    for (to, end) in ends.iter().enumerate() {
        for (thread, n) in (0..3).flat_map(|thread| (0..TRANSFERS).map(move |n| (thread, n))) {
            let data = data(1 - to, thread, n);
            assert!(
                peek(&network, to, at(TARGET, place(thread, n)), data.len()) == data,
                "{to}: {thread}, {n}"
            );
        }
        for _ in 0..3 * TRANSFERS {
            end.wait_notification(TIMEOUT).unwrap();
        }
        assert_eq!(end.next_notification(), None, "one notification per transfer");
    }
}

#[test]
fn mixed_schemes_inactive_scheme_is_refused_with_advice() {
    let other = only(Scheme::Registry, &[Scheme::Selective]);
    let one = only(Scheme::Registry, &[]);
    let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |options| {
        if options.incarnation == Some(0xA) { other(options) } else { one(options) }
    });
    let region = net.region(1, TARGET, 1 << 20).remote;
    let by = |scheme| SendOptions::default().scheme(scheme);
    // The scheme is not active on this node.
    let error = net.end(0).send(SOURCE, &region, 0, 10, by(Scheme::AdaptiveWindow)).unwrap_err();
    assert!(matches!(error.kind, SendError::Scheme { scheme: Scheme::AdaptiveWindow, .. }), "{error}");
    assert!(error.to_string().contains("it has Registry, Selective"), "{error}");
    assert_eq!(error.advice(), Some(Advice::OpenWithScheme), "{error}");
    let reader = net.end(0).node();
    let readable = net.end(1).open_readable(reader, CardRange::new(TARGET, 1000)).unwrap().remote;
    let error = net.end(0).read(&readable, 0, SOURCE, 10, by(Scheme::AdaptiveWindow)).unwrap_err();
    assert!(matches!(error.kind, ReadError::Send(SendError::Scheme { .. })), "{error}");
    // The scheme is not active on the peer: reported by a refusal, or by a query before the transfer.
    net.send_with(0, SOURCE, &region, 0, 10, by(Scheme::Selective));
    net.settle();
    let done = net.completions[0].pop_front().unwrap();
    assert!(matches!(done.result, Err(SendFailure::Scheme { .. })), "{done:?}");
    net.end(0).read(&readable, 0, SOURCE, 10, by(Scheme::Selective)).unwrap();
    net.settle();
    let read = net.end(0).next_read().unwrap();
    assert!(matches!(read.result, Err(ReadFailure::Request(SendFailure::Scheme { .. }))), "{read:?}");
    let node = net.end(1).node();
    let peer = net.end(0).wait_peer(node, TIMEOUT).unwrap();
    assert_eq!(peer.schemes, SchemeList::NONE.with(Scheme::Registry));
    let error = net.end(0).send(SOURCE, &region, 0, 10, by(Scheme::Selective)).unwrap_err();
    assert!(
        matches!(
            &error.kind,
            SendError::Peer { mismatch: Mismatch::Scheme { ours: Scheme::Selective, .. }, .. }
        ),
        "{error}"
    );
    // With the card's schemes only the receiver can notify, whatever the default is.
    let reported = by(Scheme::Selective).notify(SendNotify::Sender);
    let node = net.end(0).node();
    let own = net.end(0).open_region(node, CardRange::new(at(TARGET, 0x10_0000), 1000)).unwrap().remote;
    let error = net.end(0).send(SOURCE, &own, 0, 10, reported).unwrap_err();
    assert_eq!(error.advice(), Some(Advice::ChooseNotification), "{error}");
    // A scheme that both nodes have works.
    net.carry(SOURCE, &region, 0, &bytes(1, 30_000));
    net.assert_clean();
}

#[test]
fn mixed_schemes_need_card_capability() {
    let open = |text: &str, change: &dyn Fn(EndpointOptions) -> EndpointOptions| {
        let network = fpga_tests::cards::network(described(text));
        let card = Card::from_backend(network.backend(0)).unwrap();
        Endpoint::open_with(&card, &change(options(1))).map(drop).unwrap_err()
    };
    let error = open("ni: { commands: 0 }", &every);
    assert!(matches!(error.kind, EndpointError::Scheme { scheme: Scheme::ReceiverWindow, .. }), "{error}");
    let error = open("ni: { registry_entries: 1 }", &every);
    assert!(matches!(error.kind, EndpointError::Schemes { .. }), "{error}");
    assert!(error.to_string().contains("with one registry entry for all"), "{error}");
    let strange = |mut options: EndpointOptions| {
        options.other_schemes = SchemeList(1 << 9);
        options
    };
    assert!(matches!(open("ni: {}", &strange), Error { kind: EndpointError::Schemes { .. }, .. }));
}

/// A card changes from several schemes to one and back, and a restarted node is queried again.
#[test]
fn mixed_schemes_restart_and_change_are_handled() {
    let mut net = Testbed::impaired(2, impairments(), 3, every);
    let choices: [&dyn Fn(EndpointOptions) -> EndpointOptions; 4] = [
        &only(Scheme::Registry, &[]),
        &every,
        &only(Scheme::Selective, &[]),
        &only(Scheme::ReceiverWindow, &[Scheme::AdaptiveWindow, Scheme::Registry]),
    ];
    for (round, change) in choices.into_iter().enumerate() {
        let region = net.region(1, TARGET, 1 << 20).remote;
        // Transfers that are in flight when the peer restarts.
        for (n, scheme) in net.end(0).schemes().iter().enumerate() {
            let by = SendOptions::default().scheme(scheme);
            net.send_with(0, at(SOURCE, n as u64 * 50_000), &region, n as u64 * 50_000, 50_000, by);
        }
        for _ in 0..400 {
            net.poll(0).unwrap();
            net.poll(1).unwrap();
            net.network.step();
        }
        let first_incarnation = (round * 2 + 100) as u32;
        net.ends[1] = None;
        let card = Card::from_backend(net.network.backend(1)).unwrap();
        net.ends[1] = Some(Endpoint::open_with(&card, &change(options(first_incarnation))).unwrap());
        net.settle();
        // Each transfer has ended, with success or an error.
        let count = net.end(0).schemes().iter().count();
        assert_eq!(net.completions[0].drain(..).count(), count);
        net.ends[0] = None;
        let card = Card::from_backend(net.network.backend(0)).unwrap();
        net.ends[0] = Some(Endpoint::open_with(&card, &change(options(first_incarnation + 1))).unwrap());
        net.notifications[1].clear();
        let region = net.region(1, TARGET, 1 << 20).remote;
        for (n, scheme) in net.end(0).schemes().iter().enumerate() {
            let (place, data) = (n as u64 * 50_000, bytes(round as u64, 40_000));
            net.put(0, at(SOURCE, place), &data);
            net.send_with(
                0,
                at(SOURCE, place),
                &region,
                place,
                40_000,
                SendOptions::default().scheme(scheme),
            );
            net.settle();
            assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()), "{scheme}");
            assert!(net.get(1, at(TARGET, place), 40_000) == data, "{scheme}");
        }
        net.notifications[1].clear();
        net.assert_clean();
    }
}

/// Tables and rings so small that all schemes wait for each other: no transfer waits for ever, and no event is lost while a host does not
/// poll.
#[test]
fn mixed_schemes_small_tables_and_late_polls_deliver() {
    let card = described("ni: { commands: 4, sending_contexts: 2, registry_entries: 2, escape_slots: 1 }");
    let mut net = Testbed::of(&card, random(2), |options| {
        let mut options = every(options);
        (options.event_entries, options.segment_size) = (64, Some(2048));
        options
    });
    let region = net.region(1, TARGET, 16 << 20).remote;
    let mut rng = TestRng(1);
    let (mut places, mut handed, mut polls) = (Vec::new(), 0_u64, 0);
    let data = bytes(4, 256 << 10);
    net.put(0, SOURCE, &data);
    while handed < 96 || !net.end(0).is_idle() {
        let scheme = rng.scheme();
        let (from, length) = (rng.below(100_000), 1 + rng.below(20_000));
        let by = SendOptions::default().scheme(scheme);
        if handed < 96 && net.end(0).send(at(SOURCE, from), &region, handed * 0x8000, length, by).is_ok() {
            places.push((handed * 0x8000, from as usize, length as usize));
            handed += 1;
        }
        net.poll(0).unwrap();
        // The receiver's host polls only occasionally.
        if rng.below(100) == 0 {
            net.poll(1).unwrap();
            polls += 1;
        }
        net.network.advance(Nanos::from_micros(5));
    }
    net.settle();
    assert!(polls > 10, "{polls}");
    assert_eq!(net.completions[0].len(), 96);
    assert!(net.completions[0].iter().all(|done| done.result == Ok(())), "{:?}", net.completions[0]);
    assert_eq!(net.notifications[1].len(), 96);
    for (place, from, length) in places {
        assert!(net.get(1, at(TARGET, place), length) == data[from..from + length]);
    }
    net.assert_clean();
}
