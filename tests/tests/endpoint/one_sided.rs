//! Transfers to a host that does not poll. Only notifications of arrivals need that host. Everything else is written, acknowledged and
//! completed without it, and its mirror matches the card again after one poll.

use fpga_diag::inspect::Inspect as _;
use fpga_netmodel::{Conditions, Impairments, Loss, Probability};
use fpga_rdma::{SendCompletion, SendTicket};
use fpga_sim::{SimNetwork, ThreadOptions};

use super::*;

const NO_NOTICE: fn() -> SendOptions = || SendOptions::default().notify(SendNotify::None);

/// Polls the sender's host only, until the sender is idle.
fn drive_sender(net: &mut Testbed) {
    let limit = net.network.now().saturating_add(Nanos::from_secs(600));
    while !net.end(0).is_idle() {
        let work = net.poll(0).unwrap();
        let stepped = (0..32).filter(|_| net.network.step()).count();
        if work == 0 && stepped == 0 {
            net.network.advance(Nanos::from_micros(10));
        }
        assert!(net.network.now() < limit, "no progress without polls of the receiver's host");
    }
}

/// Polls the receiver's host once: its mirror then matches the card.
fn assert_one_poll_resynchronises(net: &mut Testbed) {
    net.poll(1).unwrap();
    let end = net.end(1);
    assert!(!end.mirror().is_stale());
    assert_eq!(end.check_mirror().unwrap(), []);
    assert_eq!(end.next_mirror_fault(), None);
}

/// Sends `length` bytes in one transfer, with a chunk of known bytes every 16 MiB and at the end.
fn transfer_without_receiver_polling(description: &CardDescription, length: u64, event_entries: u32) {
    const CHUNK_BYTES: usize = 100_000;
    let mut net = Testbed::of(description, DeliveryOrder::InOrder, |mut options| {
        options.event_entries = event_entries;
        options
    });
    let region = net.region(1, TARGET, length);
    let places: Vec<_> = (0..length).step_by(16 << 20).chain([length - CHUNK_BYTES as u64]).collect();
    for (n, place) in places.iter().enumerate() {
        net.put(0, at(SOURCE, *place), &bytes(n as u64, CHUNK_BYTES));
    }
    net.send(0, SOURCE, &region.remote, 0, length);
    drive_sender(&mut net);
    let done = net.completions[0].pop_front().unwrap();
    assert_eq!((done.result, done.length, done.retransmits), (Ok(()), length, 0));
    assert_eq!(net.end(0).counters().sender.busy, 0);
    for (n, place) in places.iter().enumerate() {
        assert!(net.get(1, at(TARGET, *place), CHUNK_BYTES) == bytes(n as u64, CHUNK_BYTES), "{place:#x}");
    }
    assert_one_poll_resynchronises(&mut net);
    assert_eq!(net.notifications[1].len(), 1);
    let counters = net.end(1).counters();
    assert!(counters.events_dropped > 0 && counters.mirror_resyncs == 1, "{counters:?}");
    net.notifications[1].clear();
    net.end(1).close_region(&region).unwrap();
    net.assert_clean();
}

/// Twice as many table events as the ring has entries, pushed by the card or fetched.
fn transfer_overflows_event_ring(length: u64, event_entries: u32) {
    for event_push in [true, false] {
        let mut description = CardDescription::default();
        description.ni.event_push = event_push;
        transfer_without_receiver_polling(&description, length, event_entries);
    }
}

#[test]
fn transfer_of_16_mib_unpolled_receiver_completes() {
    transfer_overflows_event_ring(16 << 20, 1024);
}

#[test]
#[ignore = "long: 2 s: the usual length of the event ring"]
fn transfer_of_64_mib_unpolled_receiver_completes() {
    transfer_overflows_event_ring(64 << 20, 4096);
}

/// Takes half a minute: `cargo test -p fpga-tests --test it -- --ignored transfer_of_1_gib`.
#[test]
#[ignore = "memory: 3 GiB"]
fn transfer_of_1_gib_unpolled_receiver_completes() {
    transfer_without_receiver_polling(&CardDescription::default(), 1 << 30, 4096);
}

/// Sends `count` transfers of `length` bytes each, one after the other, into a region.
fn send_many(net: &mut Testbed, region: &RemoteRegion, count: u64, length: u64, options: SendOptions) {
    let mut sent = 0;
    while sent < count {
        let offset = sent % 1000 * length;
        let target = at(SOURCE, offset);
        match net.end(0).send(target, region, offset, length, options) {
            Ok(_) => sent += 1,
            Err(_) => {
                net.poll(0).unwrap();
                let stepped = (0..32).filter(|_| net.network.step()).count();
                if stepped == 0 {
                    net.network.advance(Nanos::from_micros(10));
                }
            }
        }
    }
    drive_sender(net);
}

fn send_without_receiver_polling(scheme: Scheme, count: u64) {
    let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
        options.scheme = scheme;
        options
    });
    let region = net.region(1, TARGET, 1 << 20);
    let data = bytes(7, 1000 * 200);
    net.put(0, SOURCE, &data);
    send_many(&mut net, &region.remote, count, 200, NO_NOTICE());
    assert_eq!(net.completions[0].len() as u64, count);
    assert!(net.completions[0].iter().all(|done| done.result == Ok(())), "{scheme}");
    assert!(net.get(1, TARGET, data.len()) == data);
    assert_one_poll_resynchronises(&mut net);
    assert_eq!(net.notifications[1].len(), 0, "{scheme}");
    // Each transfer causes two table events.
    let counters = net.end(1).counters();
    assert!(counters.events_dropped + counters.events >= 2 * count, "{scheme}: {counters:?}");
    assert!(counters.events_dropped > 0);
    net.completions[0].clear();
    // Transfers with notification work as before.
    net.carry(SOURCE, &region.remote, 0, &bytes(8, 50_000));
    net.end(1).close_region(&region).unwrap();
    net.assert_clean();
}

#[test]
fn transfers_without_notification_unpolled_receiver_all_complete() {
    send_without_receiver_polling(Scheme::Registry, 20_000);
}

#[test]
#[ignore = "long: 2 s: 100,000 transfers"]
fn many_transfers_without_notification_unpolled_receiver_all_complete() {
    send_without_receiver_polling(Scheme::Registry, 100_000);
}

#[test]
fn messages_without_notification_unpolled_receiver_all_complete() {
    for scheme in Scheme::ALL.iter().filter(|scheme| **scheme != Scheme::Registry) {
        send_without_receiver_polling(*scheme, 5000);
    }
}

/// Starts a transfer as soon as the sender has a free slot.
fn offer(
    net: &mut Testbed,
    source: CardAddr,
    region: &RemoteRegion,
    offset: u64,
    length: u64,
    options: SendOptions,
) -> SendTicket {
    loop {
        if let Ok(ticket) = net.end(0).send(source, region, offset, length, options) {
            return ticket;
        }
        net.poll(0).unwrap();
        net.network.advance(Nanos::from_micros(10));
    }
}

/// The receiving host's ring is filled with notifications. Under each scheme, further transfers with notification end in a typed error at
/// their deadline or give-up time; transfers without notification complete.
#[test]
fn notifications_without_slot_end_in_receiver_not_ready() {
    for scheme in Scheme::ALL {
        for (length, deadline) in [(1000, None), (40_000, Some(Duration::from_millis(30)))] {
            let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
                (options.scheme, options.event_entries) = (*scheme, 64);
                options.give_up = Duration::from_millis(100);
                options
            });
            let node = net.end(1).node();
            let region = net.region(1, TARGET, 1 << 20);
            let data = bytes(4, 1 << 20);
            net.put(0, SOURCE, &data);
            let mut options = SendOptions::default();
            if let Some(deadline) = deadline {
                options = options.deadline(deadline);
            }
            for _ in 0..60 {
                offer(&mut net, SOURCE, &region.remote, 0, length, options);
            }
            // Some of them wait by now, or have ended.
            while net.end(0).counters().sender.not_ready == 0 && net.completions[0].len() < 60 {
                net.poll(0).unwrap();
                net.network.advance(Nanos::from_micros(10));
            }
            let one_sided =
                offer(&mut net, at(SOURCE, 100_000), &region.remote, 100_000, 70_000, NO_NOTICE());
            drive_sender(&mut net);
            let done = std::mem::take(&mut net.completions[0]);
            let (arrived, failed): (Vec<SendCompletion>, Vec<SendCompletion>) =
                done.into_iter().partition(|done| done.result.is_ok());
            let alone = failed.iter().find(|done| done.ticket == one_sided);
            assert!(alone.is_none(), "{scheme} {length}: {alone:?}");
            assert!(arrived.len() > 8 && failed.len() > 20, "{scheme} {length}: {} arrived", arrived.len());
            for done in failed {
                let Err(error @ SendFailure::ReceiverNotReady { node: refusing, .. }) = done.result else {
                    panic!("{scheme} {length}: {:?}", done.result)
                };
                assert_eq!(refusing, node, "{error}");
                assert!(
                    error.help().is_some_and(|help| help.contains("poll the endpoint of that node")),
                    "{error}"
                );
            }
            // Exactly the transfers that have arrived are notified. After that, notifications work again.
            net.settle();
            assert_eq!(net.notifications[1].len(), arrived.len() - 1, "{scheme} {length}");
            net.notifications[1].clear();
            assert!(net.get(1, at(TARGET, 100_000), 70_000) == data[100_000..170_000]);
            net.carry(SOURCE, &region.remote, 0, &bytes(8, 50_000));
            net.end(1).close_region(&region).unwrap();
            net.assert_clean();
        }
    }
}

/// Many transfers wait for a host that is not ready. A transfer that needs no notification passes them, queued before or after them.
#[test]
fn one_sided_transfer_passes_those_waiting_for_host() {
    for before in [true, false] {
        let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
            options.event_entries = 256;
            options
        });
        let region = net.region(1, TARGET, 1 << 20);
        net.put(0, SOURCE, &bytes(4, 1 << 20));
        let patient = SendOptions::default().deadline(Duration::from_secs(10));
        let small = |net: &mut Testbed| net.send_with(0, SOURCE, &region.remote, 0, 1000, patient);
        for _ in 0..400 {
            small(&mut net);
        }
        if !before {
            while net.end(0).counters().sender.not_ready < 1000 {
                net.poll(0).unwrap();
                net.network.advance(Nanos::from_micros(10));
            }
        }
        let alone: Vec<_> = [900, 70_000]
            .map(|length| net.send_with(0, at(SOURCE, 8192), &region.remote, 8192, length, NO_NOTICE()))
            .into();
        small(&mut net);
        let limit = net.network.now().saturating_add(Nanos::from_millis(100));
        while net.network.now() < limit {
            net.poll(0).unwrap();
            net.network.advance(Nanos::from_micros(10));
        }
        let ended =
            |ticket| net.completions[0].iter().any(|done| done.ticket == ticket && done.result.is_ok());
        assert!(alone.into_iter().all(ended), "{before}");
        assert!(net.completions[0].len() < 300, "the other transfers wait");
        net.settle();
        assert!(net.completions[0].iter().all(|done| done.result.is_ok()));
        assert_eq!((net.completions[0].len(), net.notifications[1].len()), (403, 401));
    }
}

#[test]
fn notification_waits_until_receiver_polls() {
    let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
        options.event_entries = 64;
        options
    });
    let region = net.region(1, TARGET, 1 << 20);
    for _ in 0..200 {
        net.send(0, SOURCE, &region.remote, 0, 5000);
    }
    while net.end(0).counters().sender.not_ready < 100 {
        net.poll(0).unwrap();
        net.network.advance(Nanos::from_micros(10));
    }
    net.settle();
    assert!(net.completions[0].iter().all(|done| done.result == Ok(())));
    assert_eq!((net.completions[0].len(), net.notifications[1].len()), (200, 200));
}

/// A host that polls occasionally, on a network that loses and reorders: after each read of the windows the mirror is right.
fn mirror_follows_after_dropped_events(seeds: u64) {
    for seed in 0..seeds {
        let packet_events = seed % 2 == 0;
        let conditions = Conditions::default().loss(Loss::Independent(Probability::one_in(50)));
        let impairments = Impairments::both(conditions).distance(Nanos::from_micros(20));
        let mut net = Testbed::impaired(2, impairments, seed, |mut options| {
            (options.event_entries, options.packet_events) = (128, packet_events);
            options
        });
        let region = net.region(1, TARGET, 1 << 20);
        net.put(0, SOURCE, &bytes(seed, 1 << 20));
        for round in 0..40_u64 {
            for n in 0..4 {
                net.send_with(0, SOURCE, &region.remote, n * 100_000, 90_000 - n * 13, NO_NOTICE());
            }
            for turn in 0..400 {
                net.poll(0).unwrap();
                net.network.advance(Nanos::from_micros(5));
                if turn % (30 + 7 * round) == 29 {
                    net.poll(1).unwrap();
                }
            }
        }
        drive_sender(&mut net);
        net.settle();
        let counters = net.end(1).counters();
        assert!(counters.events_dropped > 0 && counters.mirror_resyncs > 1, "{seed}: {counters:?}");
        assert!(net.completions[0].iter().all(|done| done.result == Ok(())));
        net.end(1).close_region(&region).unwrap();
        net.assert_clean();
    }
}

/// With packet events, and without.
#[test]
fn mirror_after_dropped_events_follows_later_ones() {
    mirror_follows_after_dropped_events(2);
}

#[test]
#[ignore = "long: 2 s: three times the seeds"]
fn mirror_after_dropped_events_follows_later_ones_every_seed() {
    mirror_follows_after_dropped_events(6);
}

/// A read from a node whose host has not polled for long is served as soon as that host polls.
#[test]
fn read_from_host_behind_dropped_events_is_served() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let reader = net.end(0).node();
    let region = net.region(1, TARGET, 1 << 20);
    let data = bytes(3, 100_000);
    net.put(1, TARGET, &data);
    let readable = net.end(1).open_readable(reader, CardRange::new(TARGET, data.len() as u64)).unwrap();
    send_many(&mut net, &region.remote, 5000, 10, NO_NOTICE());
    net.put(1, TARGET, &data);
    let ticket =
        net.end(0).read(&readable.remote, 0, SOURCE, data.len() as u64, SendOptions::default()).unwrap();
    net.settle();
    let done = net.end(0).next_read().unwrap();
    assert_eq!((done.ticket, done.result), (ticket, Ok(())));
    assert!(net.get(0, SOURCE, data.len()) == data);
    assert!(net.end(1).counters().mirror_resyncs > 0);
    assert_eq!(net.end(1).check_mirror().unwrap(), []);
}

/// Cards that run in their own threads.
#[test]
fn threaded_cards_unpolled_receiver_transfers_complete() {
    let network = SimNetwork::builder().cards(2).threaded(ThreadOptions::default()).build().unwrap();
    let cards: Vec<_> = (0..2).map(|number| Card::from_backend(network.backend(number)).unwrap()).collect();
    let mut ends: Vec<_> = (0..2)
        .map(|number| {
            let mut options = options(0xB0 + number as u32);
            options.event_entries = 128;
            Endpoint::open_with(&cards[number], &options).unwrap()
        })
        .collect();
    let [sender, receiver] = ends.as_mut_slice() else { panic!("two endpoints") };
    let region = receiver.open_region(sender.node(), CardRange::new(TARGET, 8 << 20)).unwrap();
    let data = bytes(5, 8 << 20);
    let patient = Duration::from_secs(600);
    let mut buffer = cards[0].buffer(data.len()).unwrap();
    buffer.write(0, &data).unwrap();
    sender.write(buffer, SOURCE).unwrap();
    for options in [SendOptions::default(), NO_NOTICE()] {
        let ticket = sender.send(SOURCE, &region.remote, 0, data.len() as u64, options).unwrap();
        assert_eq!(sender.wait(ticket, patient).unwrap().result, Ok(()));
    }
    for _ in 0..1000 {
        let ticket = sender.send(SOURCE, &region.remote, 0, 100, NO_NOTICE()).unwrap();
        assert_eq!(sender.wait(ticket, patient).unwrap().result, Ok(()));
    }
    receiver.poll().unwrap();
    assert!(receiver.next_notification().is_some() && receiver.next_notification().is_none());
    assert!(!receiver.mirror().is_stale());
    assert_eq!(receiver.check_mirror().unwrap(), []);
    assert!(receiver.counters().events_dropped > 2000);
}
