//! Event rings that are too small, contradictory options, endpoints that end.

use fpga_driver::Error;
use fpga_netmodel::Impairments;

use super::*;

#[test]
fn small_event_ring_limits_sender() {
    for entries in [64, 128, 256] {
        for polls in [1, 8, 64] {
            let small = |mut options: EndpointOptions| {
                options.event_entries = entries;
                options
            };
            let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, small);
            let region = net.region(1, TARGET, 100_000);
            let data = bytes(1, 100_000);
            net.put(0, SOURCE, &data);
            net.send(0, SOURCE, &region.remote, 0, 100_000);
            for _ in 0..200_000 {
                for _ in 0..polls {
                    net.network.step();
                }
                match (net.poll(0).unwrap(), net.poll(1).unwrap()) {
                    (0, 0) if net.end(0).is_idle() => break,
                    (0, 0) => net.network.advance(Nanos::from_micros(1)),
                    _ => {}
                }
            }
            let done = net.completions[0].pop_front().expect("a completion");
            assert_eq!(done.result, Ok(()), "{entries} {polls}");
            assert!(net.get(1, TARGET, 100_000) == data);
        }
    }
    for wrong in [0, 3, 32, 100, 1 << 17] {
        let net = Testbed::new(DeliveryOrder::InOrder);
        let card = net.ends[0].as_ref().unwrap().card().clone();
        drop(net);
        let mut options = options(1);
        options.event_entries = wrong;
        let error = Endpoint::open_with(&card, &options).unwrap_err();
        assert!(
            matches!(error.kind, EndpointError::Option { .. } | EndpointError::Resource(_)),
            "{wrong}: {error}"
        );
        // A refused open leaves no resource taken.
        Endpoint::open_with(&card, &fpga_tests::testbed::options(2)).unwrap();
    }
}

/// The NI limits the events that other nodes cause to the event credits. Events that the host itself requests and does not read are not
/// limited.
#[test]
fn lost_events_end_endpoint_with_error() {
    let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
        options.event_entries = 64;
        options
    });
    let node = net.end(0).node();
    // One event each, and the ring has 64 slots.
    for _ in 0..80 {
        net.end(1).query_peer(node, Duration::from_secs(1)).unwrap();
        net.network.advance(Nanos::from_micros(10));
    }
    let error = net.try_settle().unwrap_err();
    let Error { kind: EndpointError::EventsLost { entries: 64, .. }, .. } = error else { panic!("{error}") };
    assert_eq!(net.poll(1), Err(error), "the error persists");
}

#[test]
fn second_incarnation_waits_for_packets_of_first() {
    let distance = Impairments::default().distance(Nanos::from_millis(9));
    let mut net = Testbed::impaired(2, distance, 1, |options| options);
    let region = net.region(1, TARGET, 1000);
    net.put(0, SOURCE, &bytes(1, 1000));
    net.send(0, SOURCE, &region.remote, 0, 1000);
    // The packets are in flight for 9 ms; the first incarnation ends when they have left.
    while net.network.network_counters().data.offered == 0 {
        net.poll(0).unwrap();
        net.network.step();
    }
    let left = net.network.now();
    assert!(left < Nanos::from_millis(1), "a card without an earlier incarnation does not wait");
    let card = net.end(0).card().clone();
    net.ends[0] = None;
    net.ends[0] = Some(Endpoint::open_with(&card, &options(0xA2)).unwrap());
    let again = bytes(2, 1000);
    net.put(0, SOURCE, &again);
    net.send(0, SOURCE, &region.remote, 0, 1000);
    let (opened, before) = (net.network.now(), net.network.network_counters().data.offered);
    while net.network.network_counters().data.offered == before {
        net.poll(0).unwrap();
        net.network.advance(Nanos::from_micros(10));
    }
    let waited = net.network.now().saturating_sub(opened);
    assert!((Nanos::from_millis(10)..Nanos::from_millis(11)).contains(&waited), "{waited:?}");
    net.settle();
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
    assert!(net.get(1, TARGET, 1000) == again);
    let incarnations: Vec<_> = net.notifications[1].iter().map(|notice| notice.incarnation.get()).collect();
    assert_eq!(incarnations.last(), Some(&0xA2));
}

#[test]
fn contradictory_options_are_refused() {
    let net = Testbed::new(DeliveryOrder::InOrder);
    let card: Card = net.ends[0].as_ref().unwrap().card().clone();
    let error = Endpoint::open_with(&card, &options(3)).unwrap_err();
    assert!(
        matches!(error.kind, EndpointError::Resource(Error { kind: ResourceError::InUse { .. }, .. })),
        "{error}"
    );
    drop(net);
    let open = |change: &dyn Fn(&mut EndpointOptions)| {
        let mut options = options(3);
        change(&mut options);
        Endpoint::open_with(&card, &options).unwrap_err()
    };
    // The rule is threshold <= segment <= mask_bits x packet_size.
    assert!(matches!(
        open(&|options| options.segment_size = Some(32 << 10)),
        Error { kind: EndpointError::Config(_), .. }
    ));
    assert!(matches!(
        open(&|options| options.segment_size = Some(0)),
        Error { kind: EndpointError::Config(_), .. }
    ));
    assert!(matches!(
        open(&|options| (options.segment_size, options.big_threshold) = (Some(8192), Some(16_384))),
        Error { kind: EndpointError::Config(_), .. }
    ));
    assert!(matches!(
        open(&|options| options.channel = Some(9)),
        Error { kind: EndpointError::Resource(_), .. }
    ));
    assert!(matches!(
        open(&|options| options.chain = Some(CardAddr::new(1))),
        Error { kind: EndpointError::Option { .. }, .. }
    ));
    assert!(matches!(
        open(&|options| options.chain = Some(CardAddr::new(0x1_FFFF_FFC0))),
        Error { kind: EndpointError::Option { .. }, .. }
    ));
    for change in [
        &(|options: &mut EndpointOptions| options.ops = Some(4097)) as &dyn Fn(&mut EndpointOptions),
        &|options| (options.ops, options.event_entries) = (Some(33), 128),
        &|options| options.registry_timeout = Some(Duration::from_millis(1029)),
        &|options| options.incarnation = Some(0),
    ] {
        assert!(matches!(open(change), Error { kind: EndpointError::Option { .. }, .. }));
    }
    let mut options = options(3);
    (options.ops, options.registry_timeout) = (Some(1000), Some(Duration::from_millis(1030)));
    Endpoint::open_with(&card, &options).unwrap();
}

/// A build that keeps the op table itself: host and card would both retransmit.
#[test]
fn card_with_own_op_table_is_refused() {
    let network = fpga_tests::cards::network(CardDescription::default());
    let at = 0x2000 + u64::from(ni::OP_TABLE_ENTRIES);
    let bar = Card::from_backend(network.backend(0)).unwrap().info().roles.user.unwrap().index;
    let replaced = vec![fpga_tests::fault_injecting::ReplacedRegister { bar, at, value: 256 }];
    let card = Card::from_backend(fpga_tests::fault_injecting::FaultInjectingBackend::new(
        network.backend(0),
        replaced,
    ))
    .unwrap();
    let error = Endpoint::open_with(&card, &options(1)).map(drop).unwrap_err();
    assert!(matches!(error.kind, EndpointError::OpTable { entries: 256, .. }), "{error}");
    // With a scheme whose sender is the card, this op table is allowed.
    let mut options = options(1);
    options.scheme = Scheme::Selective;
    Endpoint::open_with(&card, &options).unwrap();
}

#[test]
fn sender_restart_mid_transfer_recovers() {
    for (seed, steps) in [3, 30, 100, 300, 700, 1500].into_iter().enumerate() {
        let mut net = Testbed::new(random(seed as u64));
        let region = net.region(1, TARGET, 800_000);
        net.put(0, SOURCE, &bytes(1, 400_000));
        net.send(0, SOURCE, &region.remote, 0, 400_000);
        for _ in 0..steps {
            net.poll(0).unwrap();
            net.network.step();
        }
        let card = net.end(0).card().clone();
        net.ends[0] = None;
        assert_eq!(card.memory().stats().in_use, 0);
        net.ends[0] = Some(Endpoint::open_with(&card, &options(0xA2)).unwrap());
        // The receiver distinguishes transfers of the new incarnation from those of the old one, which it still holds, though they have the
        // same target. The packets of the old incarnation on the wire arrive before anything new is sent.
        for length in [400_000, 10, 100_000] {
            net.carry(at(SOURCE, 0x10_0000), &region.remote, 0, &bytes(length as u64, length));
        }
        net.assert_clean();
    }
}

#[test]
fn receiver_restart_mid_transfer_recovers() {
    for (seed, steps) in [3, 30, 100, 300, 700, 1500].into_iter().enumerate() {
        let mut net = Testbed::new(random(seed as u64));
        let region = net.region(1, TARGET, 400_000);
        net.put(0, SOURCE, &bytes(1, 400_000));
        net.send(0, SOURCE, &region.remote, 0, 400_000);
        for _ in 0..steps {
            net.poll(0).unwrap();
            net.poll(1).unwrap();
            net.network.step();
        }
        let card = net.end(1).card().clone();
        net.ends[1] = None;
        net.ends[1] = Some(Endpoint::open_with(&card, &options(0xB2)).unwrap());
        let again = net.region(1, TARGET, 400_000);
        net.settle();
        // The old transfer ends once, with an error: its key is no longer valid, or there was no answer.
        let done = net.completions[0].pop_front().unwrap();
        assert!(done.result.is_err(), "{done:?}");
        assert_eq!(net.completions[0].pop_front(), None);
        net.network.advance(Nanos::from_secs(10));
        net.settle();
        net.notifications[1].clear();
        net.carry(SOURCE, &again.remote, 0, &bytes(2, 400_000));
        net.assert_clean();
    }
}

#[test]
fn removed_card_ends_endpoint() {
    for failure in [CardFailure::AllOnes, CardFailure::Gone] {
        let mut net = Testbed::new(DeliveryOrder::InOrder);
        let region = net.region(1, TARGET, 400_000);
        net.send(0, SOURCE, &region.remote, 0, 400_000);
        for _ in 0..50 {
            net.poll(0).unwrap();
            net.network.step();
        }
        net.network.fail(0, failure);
        let mut error = None;
        for _ in 0..100_000 {
            if let Err(found) = net.poll(0) {
                error = Some(found);
                break;
            }
            if !net.network.step() {
                net.network.advance(Nanos::from_micros(100));
            }
        }
        let error = error.expect("the endpoint reports the loss");
        assert_eq!(net.poll(0).unwrap_err(), error, "the error persists");
        assert!(error.to_string().contains("mock:0"), "{error}");
        let card = net.end(0).card().clone();
        net.ends[0] = None;
        // Memory that the card may still reach is not reused.
        let stats = card.memory().stats();
        assert_eq!(stats.in_use, 0, "{stats:?}");
        // At least the event ring; also the channel's ring and the staging memory, if header blocks were in flight.
        assert!(stats.quarantined > 0, "{failure:?}: {error}: {stats:?}");
        let largest = card.memory().quarantined().iter().map(|record| record.length).max();
        assert_eq!(largest, Some(16_384 * 64), "the event ring: {:?}", card.memory().quarantined());
        drop(card);
        net.network.fail(0, CardFailure::None);
        // The run bits could not be cleared, but the card cannot reach any memory.
        assert_eq!(net.network.mapped_bytes(0), 0);
        assert_eq!(net.network.with_card(0, |card| card.config().bus_master()), Some(false));
        net.network.step_until_idle();
        let card = Card::from_backend(net.network.backend(0)).unwrap();
        net.ends[0] = Some(Endpoint::open_with(&card, &options(0xA3)).unwrap());
        net.network.advance(Nanos::from_secs(10));
        net.settle();
        net.notifications[1].clear();
        net.carry(SOURCE, &region.remote, 0, &bytes(2, 50_000));
        net.assert_clean();
    }
}
