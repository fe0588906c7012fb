//! Cards on a thread of their own, publisher and subscribers on others: real time, and all that only threads can break.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fpga_driver::Endpoint;
use fpga_driver::mock::{ThreadOptions, World};
use fpga_frames::{Event, PublishError, Publisher, Sequence, Subscriber, SubscriberOptions};

use crate::rig::{Seen, assert_whole, check, checksum, endpoint_with, lossy, options};

const FRAMES: u64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads share processors: none of them is gone because it has to wait.
fn endpoint(world: &World, card: usize, life: u32) -> Endpoint {
    endpoint_with(world, card, life, &|options| options.give_up = PATIENCE)
}

fn join(world: &World, card: usize, life: u32, address: std::net::SocketAddr) -> Subscriber {
    let mut options = SubscriberOptions::default();
    options.patience = PATIENCE;
    Subscriber::join(endpoint(world, card, life), address, options).unwrap()
}

/// Everything up to the end, or up to so many frames.
fn read(subscriber: &mut Subscriber, most: u64, mut frame: impl FnMut(fpga_frames::ReceivedFrame)) -> Seen {
    let mut seen = Seen::default();
    while seen.ended.is_none() && seen.count < most {
        match subscriber.wait(PATIENCE).unwrap() {
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

#[test]
fn every_number_is_seen_or_missing_with_threads() {
    let world = World::builder()
        .cards(4)
        .impairments(lossy(0.01))
        .seed(9)
        .threaded(ThreadOptions::default())
        .build()
        .unwrap();
    let mut options = options();
    options.heartbeat = PATIENCE / 10;
    options.first_sequence = Sequence::new(u64::MAX - 500);
    options.first_position = u32::MAX - 700;
    let first = options.first_sequence;
    let mut publisher = Publisher::new(endpoint(&world, 0, 1), options).unwrap();
    let address = publisher.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let joined = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (world, joined) = (&world, &joined);
        // It reads, and another thread gives the slots back.
        let handing_on = scope.spawn(move || {
            let mut subscriber = join(world, 1, 1, address);
            joined.fetch_add(1, Ordering::Relaxed);
            let (hand, take) = mpsc::channel();
            let dropping = std::thread::spawn(move || take.into_iter().map(drop).count());
            let seen = read(&mut subscriber, u64::MAX, |frame| hand.send(frame).unwrap());
            drop(hand);
            assert_eq!(dropping.join().unwrap(), seen.frames.len());
            (first, seen)
        });
        let reading = scope.spawn(move || {
            let mut subscriber = join(world, 2, 1, address);
            joined.fetch_add(1, Ordering::Relaxed);
            (first, read(&mut subscriber, u64::MAX, drop))
        });
        // It leaves and comes back, several times.
        let coming = scope.spawn(move || {
            let mut lives = 0;
            loop {
                lives += 1;
                let mut subscriber = join(world, 3, lives, address);
                joined.fetch_max(u32::from(lives == 1) * 3, Ordering::Relaxed);
                let first = subscriber.expected();
                let most = if lives < 4 { 100 } else { u64::MAX };
                let seen = read(&mut subscriber, most, drop);
                if seen.ended.is_some() {
                    return (first, seen);
                }
                assert_whole(&seen, first, subscriber.expected());
                subscriber.leave(PATIENCE).unwrap();
            }
        });
        let began = Instant::now();
        let mut published = 0;
        while published < FRAMES {
            publisher.poll().unwrap();
            assert!(began.elapsed() < PATIENCE, "{published} frames after {PATIENCE:?}");
            // The one that comes and goes has to be there for the last ones.
            let all = joined.load(Ordering::Relaxed) >= 3 && publisher.subscribers().count() == 3;
            if !all || publisher.subscribers().any(|view| view.room == 0) && published % 3 != 0 {
                publisher.rest();
                continue;
            }
            let mut frame = publisher.take().unwrap();
            let data = [u8::try_from(published % 251).unwrap(); 900];
            frame.fill(&data).unwrap();
            frame.set_value(&checksum(publisher.next_sequence().get(), &data)).unwrap();
            match publisher.publish(frame) {
                Ok(_) | Err(PublishError::NoRoom { .. }) => published += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let next = publisher.next_sequence();
        assert_eq!(next.since(first), FRAMES);
        let statistics = publisher.close(PATIENCE).unwrap();
        assert_eq!(statistics.published, FRAMES);
        for thread in [handing_on, reading, coming] {
            let (first, seen) = thread.join().unwrap();
            assert_whole(&seen, first, next);
            assert!(!seen.frames.is_empty());
        }
    });
}
