//! Frames arrive byte-exact and in order, over a link that loses and reorders packets, and missing frames are counted.

use fpga_netmodel::{Conditions, Impairments, Loss, Order, Probability};

use crate::bed::{Bed, Seen, TIMEOUT, endpoint, options};

/// Publishes `frames` frames, each once every subscriber has a free slot, and reads them.
fn stream(bed: &mut Bed, subscribers: &mut [fpga_frames_subscriber::Subscriber], frames: u64) -> Vec<Seen> {
    let mut seen: Vec<Seen> = subscribers.iter().map(|_| Seen::default()).collect();
    let mut read = |bed: &mut Bed, what: &str, done: &dyn Fn(&fpga_frames::Publisher, &[Seen]) -> bool| {
        bed.until(what, |publisher| {
            for (subscriber, seen) in subscribers.iter_mut().zip(&mut seen) {
                seen.read(subscriber);
            }
            done(publisher, &seen)
        });
    };
    for _ in 0..frames {
        read(bed, "a slot is free", &|publisher, _| publisher.subscribers().all(|view| view.room > 0));
        bed.publish();
    }
    bed.publisher.begin_close();
    read(bed, "the stream has ended", &|publisher, seen| {
        publisher.is_closed() && seen.iter().all(|seen| seen.ended.is_some())
    });
    seen
}

#[test]
fn software_subscribers_receive_all_frames_byte_exact() {
    let mut bed = Bed::new(1, Impairments::default(), options());
    let mut subscribers = vec![bed.join(10), bed.join(11)];
    for seen in stream(&mut bed, &mut subscribers, 200) {
        assert_eq!(seen.frames, (0..200).collect::<Vec<_>>());
        assert_eq!((seen.gaps, seen.ended), (vec![], Some(200)));
    }
    for mut subscriber in subscribers {
        let counts = subscriber.counts();
        assert_eq!((counts.frames, counts.missed), (200, 0), "{counts:?}");
        // On a busy machine the start of a segment may be late: packets that wait for it too long are refused and sent again.
        assert!(counts.node.refused <= counts.node.early, "{counts:?}");
        assert!(matches!(subscriber.poll(), Ok(Some(fpga_frames_subscriber::Event::Ended { next: 200 }))));
        subscriber.leave(TIMEOUT).unwrap();
    }
}

#[test]
fn software_subscriber_receives_all_frames_through_loss_and_reordering() {
    let loss = Loss::Independent(Probability::new(0.03).unwrap());
    let impairments = Impairments::both(Conditions::default().loss(loss)).order(Order::random(8));
    let mut bed = Bed::new(1, impairments, options());
    let mut subscribers = vec![bed.join(10)];
    let seen = stream(&mut bed, &mut subscribers, 100).remove(0);
    assert_eq!(seen.frames, (0..100).collect::<Vec<_>>());
    assert_eq!(seen.gaps, []);
    let node = subscribers[0].counts().node;
    assert!(node.early > 0, "{node:?}");
}

/// Frames that fill their slots and are published together share transfers, as many as are in the card at one poll.
#[test]
fn software_subscriber_receives_shared_transfers() {
    let mut options = options();
    (options.max_data_length, options.slots) = (4000, 32);
    let mut bed = Bed::new(1, Impairments::default(), options);
    let mut subscriber = bed.join(10);
    let mut seen = Seen::default();
    for round in 1..=20 {
        for _ in 0..6 {
            bed.publish_of(4000);
        }
        bed.until("all are read and returned", |publisher| {
            seen.read(&mut subscriber);
            seen.frames.len() == 6 * round && publisher.subscribers().all(|view| view.room == view.slots)
        });
    }
    assert_eq!((seen.frames, seen.gaps), ((0..120).collect(), vec![]));
}

#[test]
fn stalled_software_subscriber_sees_gap_of_exactly_missed_count() {
    const FRAMES: u64 = 100;
    let mut bed = Bed::new(1, Impairments::default(), options());
    let (mut stalled, mut reading) = (bed.join(10), bed.join(11));
    let mut seen = Seen::default();
    for number in 0..FRAMES {
        let published = bed.publish();
        assert_eq!(published.sent.len() + published.skipped.len(), 2);
        bed.until("the other subscriber has read it and has returned its slots", |publisher| {
            seen.read(&mut reading);
            let mut views = publisher.subscribers();
            seen.frames.len() as u64 == number + 1
                && views.all(|view| view.node.get() == 10 || view.room == view.slots)
        });
    }
    let mut late = Seen::default();
    bed.until("the stalled subscriber has read its frames", |publisher| {
        late.read(&mut stalled);
        late.frames.len() == 8 && publisher.subscribers().all(|view| view.room == view.slots)
    });
    bed.publish();
    bed.publisher.begin_close();
    bed.until("both subscribers have the end", |publisher| {
        seen.read(&mut reading);
        late.read(&mut stalled);
        publisher.is_closed() && seen.ended.is_some() && late.ended.is_some()
    });
    assert_eq!((seen.frames.len() as u64, seen.gaps), (FRAMES + 1, vec![]), "the other misses nothing");
    assert_eq!(late.frames, (0..8).chain([FRAMES]).collect::<Vec<_>>());
    assert_eq!(late.gaps, [(8, FRAMES - 8)], "exactly the missed frames");
    assert_eq!(stalled.counts().missed, FRAMES - 8);
}

/// One publisher serves a card's subscriber and a software node.
#[test]
fn card_and_software_subscribers_share_a_publisher() {
    let mut bed = Bed::new(2, Impairments::default(), options());
    let end = endpoint(&bed.network, 1);
    let mut joining = fpga_frames::Subscriber::begin_join(end, bed.address, Default::default()).unwrap();
    let mut card = loop {
        bed.poll();
        if let Some(subscriber) = joining.poll().unwrap() {
            break subscriber;
        }
    };
    let mut software = bed.join(10);
    let (mut seen, mut frames) = (Seen::default(), 0);
    for number in 0..50 {
        bed.publish();
        bed.until("both have read it", |publisher| {
            seen.read(&mut software);
            while let Some(event) = card.poll().unwrap() {
                frames += u64::from(matches!(event, fpga_frames::Event::Frame(_)));
            }
            let returned = publisher.subscribers().all(|view| view.room > 0);
            returned && (seen.frames.len() as u64, frames) == (number + 1, number + 1)
        });
    }
    assert_eq!(seen.gaps, []);
}
