//! Notifications, deadlines, several transfers at once.

use super::*;

#[test]
fn transfer_sender_notification_arrives() {
    for seed in 0..8 {
        let mut net = Testbed::new(random(seed));
        let region = net.region(1, TARGET, 200_000);
        for length in [1, 512, 16_384, 200_000] {
            let data = bytes(seed + length, length as usize);
            net.put(0, SOURCE, &data);
            let reported = SendOptions::default().notify(SendNotify::Sender);
            let ticket = net.send_with(0, SOURCE, &region.remote, 0, length, reported);
            net.settle();
            let done = net.completions[0].pop_front().unwrap();
            assert_eq!((done.ticket, done.result), (ticket, Ok(())));
            let notice = net.notifications[1].pop_front().expect("a notification from the sender");
            assert_eq!((notice.address, notice.length), (TARGET, length));
            assert_eq!(net.notifications[1].pop_front(), None, "notified once");
            assert!(net.get(1, TARGET, data.len()) == data);
        }
        net.assert_clean();
    }
}

#[test]
fn transfer_deadline_ends_it() {
    let mut net = Testbed::new(random(6));
    let region = net.region(1, TARGET, 4 << 20);
    net.put(0, SOURCE, &bytes(1, 4 << 20));
    let soon = SendOptions::default().deadline(Duration::from_micros(50));
    let late = net.send_with(0, SOURCE, &region.remote, 0, 4 << 20, soon);
    let fine = net.send_with(
        0,
        SOURCE,
        &region.remote,
        0,
        1000,
        SendOptions::default().deadline(Duration::from_secs(5)),
    );
    net.settle();
    let mut results: Vec<_> = net.completions[0].drain(..).collect();
    results.sort_by_key(|done| done.ticket == fine);
    assert_eq!(results.len(), 2);
    assert_eq!(results[0].ticket, late);
    assert!(matches!(results[0].result, Err(SendFailure::Deadline { .. })), "{:?}", results[0].result);
    assert!(results[0].finished - results[0].started < Duration::from_millis(5), "{:?}", results[0]);
    assert_eq!(results[1].result, Ok(()));
    net.assert_clean();
    net.notifications[1].clear();
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 100_000));
    net.assert_clean();
}

#[test]
fn transfer_to_absent_node_gives_up() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 100_000);
    let nowhere = RemoteRegion { node: NodeId::new(77), ..region.remote };
    let lost = net.send(0, SOURCE, &nowhere, 0, 50_000);
    let fine = net.send(0, SOURCE, &region.remote, 0, 50_000);
    net.settle();
    let results: Vec<_> = net.completions[0].drain(..).collect();
    assert_eq!(
        results.iter().map(|done| done.ticket).collect::<Vec<_>>(),
        [fine, lost],
        "a failed transfer does not block another"
    );
    assert_eq!(results[0].result, Ok(()));
    let Err(SendFailure::Unanswered { node, tries, .. }) = results[1].result else {
        panic!("{:?}", results[1])
    };
    // No answer for a second, with increasing intervals between the tries.
    assert_eq!(node, NodeId::new(77));
    assert!((5..30).contains(&tries), "{tries}");
    let silence = results[1].finished - results[1].started;
    assert!((Duration::from_secs(1)..Duration::from_millis(1_500)).contains(&silence), "{silence:?}");
    assert!(net.network.undeliverable_frames() > 0);
    net.notifications[1].clear();
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 1000));
    net.assert_clean();
}

#[test]
fn transfer_of_zero_bytes_sends_nothing() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 1);
    net.carry(SOURCE, &region.remote, 0, &[]);
    net.carry(SOURCE, &region.remote, 1, &[]);
    assert_eq!(net.network.with_card(0, |card| card.counters().frames_sent), Some(0));
}

/// Of the waiting transfers, those of higher priority are sent first.
#[test]
fn transfer_of_higher_priority_passes_waiting_ones() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 64 << 20);
    net.put(0, SOURCE, &bytes(1, 1 << 20));
    let send = |net: &mut Testbed, n: u64, priority| {
        let options = SendOptions::default().priority(priority);
        net.send_with(0, SOURCE, &region.remote, n << 20, 1 << 20, options)
    };
    let first = send(&mut net, 0, 0);
    net.poll(0).unwrap();
    let others: Vec<_> = (1..4).map(|n| send(&mut net, n, 0)).collect();
    let urgent = send(&mut net, 5, 7);
    net.settle();
    let order: Vec<_> = net.completions[0].drain(..).map(|done| done.ticket).collect();
    let place = |ticket| order.iter().position(|other| *other == ticket).unwrap();
    assert!(others.iter().all(|other| place(urgent) < place(*other)), "{order:?}");
    assert!(place(first) < 2);
    net.notifications[1].clear();
    net.assert_clean();
}

#[test]
fn transfers_both_ways_concurrently() {
    for seed in 0..12 {
        let mut net = Testbed::new(random(seed));
        let there = net.region(1, TARGET, 32 << 20);
        let back = net.region(0, TARGET, 32 << 20);
        // Big and regular ones alternate.
        let lengths = [100, 200_000, 1, 16_384, 16_385, 777, 500_000, 4096, 0, 65_536, 33];
        let mut expected = Vec::new();
        for (n, length) in lengths.into_iter().enumerate() {
            for (from, region) in [(0, &there.remote), (1, &back.remote)] {
                let data = bytes(seed * 100 + n as u64 * 2 + from as u64, length);
                let place = n as u64 * 0x10_0000;
                net.put(from, at(SOURCE, place + 5), &data);
                let ticket = net.send(from, at(SOURCE, place + 5), region, place + 3, length as u64);
                expected.push((from, ticket, place + 3, data));
            }
        }
        net.settle();
        for (from, ticket, place, data) in expected {
            let done = net.completions[from].iter().filter(|done| done.ticket == ticket).collect::<Vec<_>>();
            assert_eq!(done.len(), 1);
            assert_eq!(done[0].result, Ok(()));
            assert!(
                net.get(1 - from, at(TARGET, place), data.len()) == data,
                "seed {seed}, {} bytes",
                data.len()
            );
            let notices =
                net.notifications[1 - from].iter().filter(|notice| notice.address == at(TARGET, place));
            assert_eq!(notices.count(), usize::from(!data.is_empty()));
        }
        net.completions.iter_mut().for_each(std::collections::VecDeque::clear);
        net.notifications.iter_mut().for_each(std::collections::VecDeque::clear);
        net.assert_clean();
    }
}

proptest! {
    #![proptest_config(seeded(48))]

    /// Several transfers with any addresses and lengths, in any delivery order: the receiver's memory equals an array, and no adjacent byte
    /// changes.
    #[test]
    fn transfers_random_addresses_and_lengths_match_array(
        seed in any::<u64>(),
        depth in 1..300_usize,
        transfers in prop::collection::vec((0..5000_u64, 0..3000_u64, prop_oneof![0..1500_usize, 0..60_000_usize]), 1..6),
    ) {
        const SLOT: u64 = 0x1_1000;
        let mut net = Testbed::new(DeliveryOrder::Random { seed, depth });
        let size = SLOT * transfers.len() as u64;
        let region = net.region(1, TARGET, size);
        let mut model = vec![0xA5; size as usize];
        net.put(1, TARGET, &model);
        for (n, &(from, to, length)) in transfers.iter().enumerate() {
            let data = bytes(seed ^ n as u64, length);
            let source = at(SOURCE, n as u64 * 0x10_0000 + from);
            let place = n as u64 * SLOT + to;
            net.put(0, source, &data);
            net.send(0, source, &region.remote, place, length as u64);
            model[place as usize..place as usize + length].copy_from_slice(&data);
        }
        net.settle();
        prop_assert_eq!(net.completions[0].len(), transfers.len());
        prop_assert!(net.completions[0].iter().all(|done| done.result == Ok(())));
        prop_assert!(net.get(1, TARGET, model.len()) == model);
        net.assert_clean();
    }
}

fn with_segment_reports(mut options: EndpointOptions) -> EndpointOptions {
    options.segment_arrivals = true;
    options.other_schemes = Scheme::ALL.iter().copied().collect();
    options
}

/// Every segment is reported when it is in memory, and the transfer once, after all its segments. The sender gets one completion. Without
/// the option segments are not reported.
#[test]
fn segment_arrivals_requested_are_reported_once() {
    const LENGTH: u64 = 5 * (16 << 10) + 77;
    let mut out_of_order = 0;
    for seed in 0..8 {
        for scheme in [Scheme::Registry, Scheme::Selective] {
            let mut net = Testbed::of(&CardDescription::default(), random(seed), |options| {
                if options.incarnation == Some(0xB) {
                    with_segment_reports(options)
                } else {
                    only_as_sender(options)
                }
            });
            let region = net.region(1, TARGET, LENGTH).remote;
            let data = bytes(seed, LENGTH as usize);
            net.put(0, SOURCE, &data);
            net.send_with(0, SOURCE, &region, 0, LENGTH, SendOptions::default().scheme(scheme));
            let mut parts = Vec::new();
            let mut check = |net: &mut Testbed| {
                while let Some(part) = net.end(1).next_segment() {
                    let from = (part.address.get() - TARGET.get()) as usize;
                    let length = part.length as usize;
                    assert!(
                        net.get(1, part.address, length) == data[from..from + length],
                        "a segment is reported after its data arrived"
                    );
                    assert_eq!(part.node, net.end(0).node());
                    assert_eq!(part.incarnation.get(), 0xA);
                    parts.push((from, length, part));
                }
                // The notification comes with, or after, the last segment.
                let reported: usize = parts.iter().map(|(_, length, _)| length).sum();
                assert!(net.notifications[1].is_empty() || reported == data.len());
            };
            while net.completions[0].is_empty() || net.notifications[1].is_empty() {
                let work = net.poll(0).unwrap() + net.poll(1).unwrap();
                if !net.network.step() && work == 0 {
                    // Only a timer can cause further progress.
                    net.network.advance(Nanos::from_micros(10));
                }
                check(&mut net);
            }
            net.settle();
            check(&mut net);
            assert_eq!((net.completions[0].len(), net.notifications[1].len()), (1, 1));
            let done = net.completions[0].pop_front().unwrap();
            assert_eq!((done.result, done.silent_segments), (Ok(()), done.segments - 1));
            assert_eq!(parts.len(), done.segments as usize);
            let notice = net.notifications[1].pop_front().unwrap();
            assert!(parts.iter().all(|(.., part)| part.transfer == notice.transfer));
            assert!(parts.iter().all(|(.., part)| part.time <= notice.time));
            out_of_order += u32::from(!parts.is_sorted_by_key(|(from, ..)| *from));
            // Each byte is in exactly one segment.
            parts.sort_by_key(|(from, ..)| *from);
            let mut end = 0;
            for (n, (from, length, part)) in (0..).zip(&parts) {
                assert_eq!(*from, end);
                end += length;
                if scheme == Scheme::Registry {
                    assert_eq!((part.segment, part.segment_count), (n, 6));
                }
            }
            assert_eq!(end, data.len());
            net.assert_clean();
        }
    }
    assert!(out_of_order > 0, "a reordering network delivers segments out of order");
}

fn only_as_sender(options: EndpointOptions) -> EndpointOptions {
    let mut options = with_segment_reports(options);
    options.segment_arrivals = false;
    options
}

#[test]
fn segment_arrivals_not_requested_are_not_reported() {
    let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, with_segment_reports);
    let node = net.end(0).node();
    net.put(1, SOURCE, &bytes(3, 50_000));
    let source = net.end(1).open_readable(node, CardRange::new(SOURCE, 50_000)).unwrap().remote;
    net.end(0).read(&source, 0, TARGET, 50_000, SendOptions::default()).unwrap();
    net.settle();
    assert_eq!(net.end(0).next_read().unwrap().result, Ok(()));
    assert_eq!((net.end(0).next_segment(), net.end(1).next_segment()), (None, None));
    net.assert_clean();

    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 50_000).remote;
    net.carry(SOURCE, &region, 0, &bytes(4, 50_000));
    assert_eq!(net.end(1).next_segment(), None);
}
