//! Cards on a thread of their own, publisher and subscribers on others, in real time: failures that only occur with threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fpga_frames::{Event, PublishError, Publisher, Sequence, Subscriber, SubscriberOptions};
use fpga_rdma::Endpoint;
use fpga_sim::{SimNetwork, ThreadOptions};

use crate::stream::bed::{Seen, assert_whole, check, checksum, endpoint_with, lossy, options};

const FRAMES: u64 = 2_000;
const TIMEOUT: Duration = Duration::from_secs(300);

/// Opens an endpoint with a long give-up time: threads share processors, and a delayed one must not count as gone.
fn endpoint(network: &SimNetwork, card: usize, incarnation: u32) -> Endpoint {
    endpoint_with(network, card, incarnation, &|options| options.give_up = TIMEOUT)
}

fn join(network: &SimNetwork, card: usize, incarnation: u32, address: std::net::SocketAddr) -> Subscriber {
    let mut options = SubscriberOptions::default();
    options.patience = TIMEOUT;
    Subscriber::join(endpoint(network, card, incarnation), address, options).unwrap()
}

/// Reads all events up to the end, or up to `most` frames.
fn read(subscriber: &mut Subscriber, most: u64, mut frame: impl FnMut(fpga_frames::ReceivedFrame)) -> Seen {
    let mut seen = Seen::default();
    while seen.ended.is_none() && seen.count < most {
        match subscriber.wait(TIMEOUT).unwrap() {
            Event::Frame(arrived) => {
                check(&arrived);
                seen.frames.push(arrived.sequence().get());
                seen.count += 1;
                frame(arrived);
            }
            event => seen.take(event, true),
        }
    }
    assert!(seen.faults.is_empty(), "{:?}", seen.faults);
    seen
}

/// Eight threads, one of which does not read before all others have nearly everything. The publisher follows a clock and waits for no
/// subscriber. The slots of the seven cover the delays that this machine may cause; those of the stalled one do not.
#[test]
fn stalled_subscriber_of_eight_threads_affects_no_other() {
    const STALLED: usize = 3;
    const FRAMES: u64 = 400;
    const QUEUE_LENGTH: u32 = 512;
    const SLOTS: u32 = 8;
    const PERIOD: Duration = Duration::from_micros(500);
    let network = SimNetwork::builder().cards(9).threaded(ThreadOptions::default()).build().unwrap();
    let mut options = options();
    // Frames in flight to one subscriber may hold half of the slots.
    (options.max_data_length, options.slots, options.heartbeat) = (600, 2 * QUEUE_LENGTH, TIMEOUT / 10);
    options.patience = TIMEOUT;
    let mut publisher = Publisher::new(endpoint(&network, 0, 1), options).unwrap();
    let address = publisher.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let (network, (go, waiting)) = (&network, mpsc::channel::<()>());
        let mut waiting = Some(waiting);
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let waiting = if number == STALLED { waiting.take() } else { None };
                scope.spawn(move || {
                    let end = endpoint_with(network, number + 1, 1, &|options| {
                        (options.give_up, options.event_entries) = (TIMEOUT, 1 << 14);
                    });
                    let mut options = SubscriberOptions::default();
                    options.patience = TIMEOUT;
                    options.slots = if waiting.is_some() { SLOTS } else { QUEUE_LENGTH };
                    let mut subscriber = Subscriber::join(end, address, options).unwrap();
                    // The others read while frames are sent; this one starts when nothing more is sent.
                    waiting.map(|waiting| waiting.recv());
                    read(&mut subscriber, u64::MAX, drop)
                })
            })
            .collect();
        let until = |publisher: &mut Publisher, done: &dyn Fn(&Publisher) -> bool| {
            let began = Instant::now();
            while !done(publisher) {
                assert!(began.elapsed() < TIMEOUT, "{:?}", publisher.statistics());
                if publisher.poll().unwrap() == 0 {
                    publisher.back_off();
                }
            }
        };
        let publish = |publisher: &mut Publisher| {
            let mut frame = publisher.take().unwrap();
            let data = [u8::try_from(publisher.next_sequence().get() % 251).unwrap(); 600];
            frame.fill(&data).unwrap();
            frame.set_value(&checksum(publisher.next_sequence().get(), &data)).unwrap();
            publisher.publish(frame).unwrap();
        };
        until(&mut publisher, &|publisher| publisher.subscribers().count() == 8);
        let began = Instant::now();
        for number in 0..u32::try_from(FRAMES).unwrap() {
            publish(&mut publisher);
            until(&mut publisher, &|_| began.elapsed() >= PERIOD * number);
        }
        go.send(()).unwrap();
        until(&mut publisher, &|publisher| publisher.subscribers().all(|view| view.room == view.slots));
        publish(&mut publisher);
        let statistics = publisher.close(TIMEOUT).unwrap();
        assert_eq!((statistics.published, statistics.skipped), (FRAMES + 1, FRAMES - u64::from(SLOTS)));
        for (number, thread) in threads.into_iter().enumerate() {
            let seen = thread.join().unwrap();
            assert_whole(&seen, Sequence::new(0), Sequence::new(FRAMES + 1));
            let slots = u64::from(SLOTS);
            let expected = if number == STALLED { vec![(slots, FRAMES - slots)] } else { Vec::new() };
            assert_eq!(seen.gaps, expected, "subscriber {number}");
        }
    });
}

#[test]
fn soak_threads_every_frame_is_seen_or_counted_missing() {
    let network = SimNetwork::builder()
        .cards(4)
        .impairments(lossy(0.01))
        .seed(9)
        .threaded(ThreadOptions::default())
        .build()
        .unwrap();
    let mut options = options();
    (options.heartbeat, options.patience) = (TIMEOUT / 10, TIMEOUT);
    options.first_sequence = Sequence::new(u64::MAX - 500);
    options.first_position = u32::MAX - 700;
    let first = options.first_sequence;
    let mut publisher = Publisher::new(endpoint(&network, 0, 1), options).unwrap();
    let address = publisher.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let joined = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (network, joined) = (&network, &joined);
        // It reads, and another thread returns the slots.
        let handing_on = scope.spawn(move || {
            let mut subscriber = join(network, 1, 1, address);
            joined.fetch_add(1, Ordering::Relaxed);
            let (hand, take) = mpsc::channel();
            let dropping = std::thread::spawn(move || take.into_iter().map(drop).count());
            let seen = read(&mut subscriber, u64::MAX, |frame| hand.send(frame).unwrap());
            drop(hand);
            assert_eq!(dropping.join().unwrap(), seen.frames.len());
            (first, seen)
        });
        let reading = scope.spawn(move || {
            let mut subscriber = join(network, 2, 1, address);
            joined.fetch_add(1, Ordering::Relaxed);
            (first, read(&mut subscriber, u64::MAX, drop))
        });
        // It leaves and joins again, several times.
        let coming = scope.spawn(move || {
            let mut incarnation = 0;
            loop {
                incarnation += 1;
                let mut subscriber = join(network, 3, incarnation, address);
                joined.fetch_max(u32::from(incarnation == 1) * 3, Ordering::Relaxed);
                let first = subscriber.expected();
                let most = if incarnation < 4 { 100 } else { u64::MAX };
                let seen = read(&mut subscriber, most, drop);
                if seen.ended.is_some() {
                    return (first, seen);
                }
                assert_whole(&seen, first, subscriber.expected());
                subscriber.leave(TIMEOUT).unwrap();
            }
        });
        let began = Instant::now();
        let mut published = 0;
        while published < FRAMES {
            publisher.poll().unwrap();
            assert!(began.elapsed() < TIMEOUT, "{published} frames after {TIMEOUT:?}");
            // The subscriber that leaves and joins again must be present for the last frames.
            let all = joined.load(Ordering::Relaxed) >= 3 && publisher.subscribers().count() == 3;
            if !all || publisher.subscribers().any(|view| view.room == 0) && published % 3 != 0 {
                publisher.back_off();
                continue;
            }
            let mut frame = publisher.take().unwrap();
            let data = [u8::try_from(published % 251).unwrap(); 900];
            frame.fill(&data).unwrap();
            frame.set_value(&checksum(publisher.next_sequence().get(), &data)).unwrap();
            match publisher.publish(frame) {
                Ok(_) | Err(PublishError::NoFreeSlot { .. }) => published += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let next = publisher.next_sequence();
        assert_eq!(next.distance_from(first), FRAMES);
        let statistics = publisher.close(TIMEOUT).unwrap();
        assert_eq!(statistics.published, FRAMES);
        for thread in [handing_on, reading, coming] {
            let (first, seen) = thread.join().unwrap();
            assert_whole(&seen, first, next);
            assert!(!seen.frames.is_empty());
        }
    });
}
