//! Effect of one subscriber of eight that never polls on the publisher's rate.
//!
//! Three streams alternate, so that disturbances of the machine affect all of them: eight subscribers that poll, eight of which one does
//! not, and seven. The second does the work of the third; the difference is the cost of the stalled subscriber.

use std::time::Instant;

use fpga_frames::{Event, Publisher, Subscriber, SubscriberOptions};

use super::{median, network, stream};

const DATA: u64 = 4096;
/// Number of frames of one stream before the next stream runs.
const BURST: u64 = 200;
const ROUNDS: usize = 15;

struct Running {
    publisher: Publisher,
    /// Subscribers that poll.
    subscribers: Vec<Subscriber>,
    /// Subscriber that does not poll.
    _stalled: Option<Subscriber>,
    /// Frames per second of each round.
    rates: Vec<f64>,
    read: u64,
    missed: u64,
}

impl Running {
    fn new(subscribers: usize, stalled: bool) -> Self {
        let all = subscribers + usize::from(stalled);
        let network = network(all + 1);
        let (publisher, mut subscribers) = stream(&network, all, DATA, 16, SubscriberOptions::default());
        let stalled = if stalled { subscribers.pop() } else { None };
        Self { publisher, subscribers, _stalled: stalled, rates: Vec::new(), read: 0, missed: 0 }
    }

    /// Publishes whenever every polling subscriber has a free slot.
    fn burst(&mut self) {
        let began = Instant::now();
        let nodes: Vec<_> = self.subscribers.iter().map(|it| it.endpoint().node()).collect();
        let mut published = 0;
        while published < BURST {
            let mut views = self.publisher.subscribers();
            let has_space = views.all(|view| view.room > 0 || !nodes.contains(&view.node));
            drop(views);
            if has_space {
                let frame = self.publisher.take().expect("a free slot: all subscribers poll");
                self.publisher.publish(frame).expect("a free slot: checked above");
                published += 1;
            }
            self.publisher.poll().expect("a publisher that works");
            for subscriber in &mut self.subscribers {
                while let Some(event) = subscriber.poll().expect("a subscriber that works") {
                    match event {
                        Event::Frame(_) => self.read += 1,
                        Event::Gap { missed, .. } => self.missed += missed,
                        other => println!("{other:?}"),
                    }
                }
            }
            self.publisher.relax();
        }
        self.rates.push(BURST as f64 / began.elapsed().as_secs_f64());
    }
}

pub(super) fn run() {
    println!(
        "one stalled subscriber of eight: {ROUNDS} rounds of {BURST} frames of {DATA} bytes, in one thread"
    );
    let mut streams = [
        ("eight that poll", Running::new(8, false)),
        ("seven, and one stalled", Running::new(7, true)),
        ("seven", Running::new(7, false)),
    ];
    // Memory is allocated, and the slots of the stalled subscriber are filled.
    for (_, stream) in &mut streams {
        stream.burst();
        stream.rates.clear();
    }
    for _ in 0..ROUNDS {
        for (_, stream) in &mut streams {
            stream.burst();
        }
    }
    for (name, stream) in &streams {
        let rate = median(&mut stream.rates.clone());
        println!(
            "{name:<24} {rate:>9.0} frames/s   {:>8} read, {} missed by those that poll",
            stream.read, stream.missed
        );
    }
    let [(_, eight), (_, stalled), (_, seven)] = &streams;
    let against = |other: &Running| {
        // Ratios of adjacent rounds, so that slow changes of the machine's speed cancel out.
        let mut ratios: Vec<f64> = stalled.rates.iter().zip(&other.rates).map(|(a, b)| a / b).collect();
        median(&mut ratios)
    };
    println!(
        "rate with the stalled one / with eight that poll: {:.3} (target: at least 0.95)",
        against(eight)
    );
    println!("rate with the stalled one / without it:           {:.3}", against(seven));
}
