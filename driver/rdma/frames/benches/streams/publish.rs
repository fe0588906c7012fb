//! Processor time of a publisher's thread at 10,000 frames a second. The cards and the subscribers have threads of their own, so only the
//! work of the publisher's host is counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fpga_frames::{Event, Subscriber, SubscriberOptions};
use fpga_pci::testing::CountingAllocator;
use fpga_sim::{SimNetwork, ThreadOptions};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::stream;

const DATA: usize = 1024;
const PERIOD: Duration = Duration::from_micros(100);
/// Slots of each subscriber: 12.8 ms. The default of 8 is less than a millisecond here, and the scheduler may delay any of the three
/// threads by a time slice of some milliseconds.
const SLOTS: u32 = 128;
/// Number of frames before the measurement.
const WARM_UP: u64 = 2_000;

/// Nanoseconds of processor time of this thread.
fn spent() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

#[derive(Debug)]
struct Spent(Histogram<u64>);

impl Spent {
    fn new() -> Self {
        Self(Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("valid bounds"))
    }

    fn add(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds.max(1));
    }

    fn show(&self, name: &str) {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        println!(
            "{name:<34} {:>8.2}  {:>8.2}  {:>8.2}  {:>8.2}",
            at(0.5),
            at(0.99),
            at(0.9999),
            self.0.max() as f64 / 1e3
        );
    }
}

fn read(mut subscribers: Vec<Subscriber>, stop: &AtomicBool) -> (u64, u64) {
    let (mut read, mut missed) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        for subscriber in &mut subscribers {
            match subscriber.poll().expect("a subscriber that works") {
                Some(Event::Frame(_)) => read += 1,
                Some(Event::Gap { missed: count, .. }) => missed += count,
                Some(_) => {}
                None => subscriber.back_off(),
            }
        }
    }
    (read, missed)
}

pub(super) fn run(frames: u64) {
    println!(
        "publishing {frames} frames of {DATA} bytes to two subscribers, one every {PERIOD:?}; cards on a separate thread"
    );
    let network =
        SimNetwork::builder().cards(3).threaded(ThreadOptions::default()).build().expect("a network");
    let mut each = SubscriberOptions::default();
    each.slots = SLOTS;
    let (mut publisher, subscribers) = stream(&network, 2, DATA as u64, 4 * SLOTS, each);
    let stop = AtomicBool::new(false);
    let [mut publishing, mut taking, mut polling, mut all, mut nothing] = [(); 5].map(|()| Spent::new());
    let (mut allocations, mut refused, mut late) = (0, 0_u64, 0_u64);
    let (read, missed) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(subscribers, &stop));
        let mut due = Instant::now() + PERIOD;
        for number in 0..frames + WARM_UP {
            let before = CountingAllocator::allocations();
            let mut polled = 0;
            let frame_began = spent();
            loop {
                let began = spent();
                let work = publisher.poll().expect("a publisher that works");
                polled += spent() - began;
                if Instant::now() >= due {
                    break;
                }
                if work == 0 {
                    publisher.back_off();
                }
            }
            late += u64::from(Instant::now() >= due + PERIOD);
            let began = spent();
            let frame = publisher.take();
            let taken = spent();
            // A subscriber that the machine delays misses frames, as in any stream.
            let published = match frame {
                Ok(frame) => {
                    let before = spent();
                    refused += u64::from(publisher.publish(frame).is_err());
                    Some(spent() - before)
                }
                Err(_) => None,
            };
            let ended = spent();
            if number >= WARM_UP {
                taking.add(taken - began);
                if let Some(published) = published {
                    publishing.add(published);
                } else {
                    refused += 1;
                }
                polling.add(polled);
                all.add(ended - frame_began);
                nothing.add(spent() - ended);
                allocations += CountingAllocator::allocations() - before;
            }
            due += PERIOD;
        }
        stop.store(true, Ordering::Relaxed);
        reading.join().expect("the subscribers' thread")
    });
    println!(
        "{:<34} {:>8}  {:>8}  {:>8}  {:>8}",
        "processor time of a frame, us", "p50", "p99", "p99.99", "max"
    );
    publishing.show("publish()");
    taking.show("take()");
    polling.show("poll(), all of one period");
    all.show("the whole period, idle time included");
    nothing.show("(one read of the clock)");
    println!(
        "allocations: {allocations} in {frames} frames; {refused} sent to no subscriber; {late} started a period late"
    );
    println!("{read} read, {missed} missed by two subscribers");
}
