//! Streams between processes that are killed. Publishers and subscribers are separate programs, on a UDP network that loses one packet in a
//! hundred. They are killed with SIGKILL at random moments, stopped for a while, asked to leave, and replaced by others. Every frame
//! carries its number and a CRC-32C. Each subscriber reports every few milliseconds, so that at most the frames of the last few
//! milliseconds before a kill are not counted.
//!
//! `FPGA_FRAMES` is the number of frames to check (1000), `FPGA_SEED` the seed of the events; ten million take 20 minutes.
//! SIGINT ends a run with the figures so far.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
#![expect(clippy::panic, reason = "in a test, a panic is the failure report")]
#![expect(clippy::expect_used, reason = "in a test, a panic is the failure report")]
#![expect(clippy::print_stdout, reason = "the figures are what a long run is for")]

mod group;
mod program;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use group::{Group, Totals};

/// Minimum and maximum time between two events.
const MIN_EVENT_GAP_MS: u64 = 100;
const MAX_EVENT_GAP_MS: u64 = 500;
/// The same in a short run.
const MAX_SHORT_EVENT_GAP_MS: u64 = 200;
/// Number of frames to check, if no other one is given: each event occurs once in each group.
const SHORT_RUN: u64 = 1000;
/// Time limit of a run; the machine may be busy with other work.
const TIMEOUT: Duration = Duration::from_secs(3 * 3600);
/// Interval between progress messages of a long run.
const PROGRESS: Duration = Duration::from_secs(20);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Event of one group.
#[derive(Clone, Copy, Debug)]
enum GroupEvent {
    SubscriberKilled,
    SubscriberUnsubscribes,
    SubscriberStalls,
    PublisherKilled,
    PublisherEnds,
}

impl GroupEvent {
    const ALL: [Self; 5] = [
        Self::SubscriberKilled,
        Self::SubscriberUnsubscribes,
        Self::SubscriberStalls,
        Self::PublisherKilled,
        Self::PublisherEnds,
    ];

    /// Draws a random event. A killed publisher costs some seconds without progress of its group, so that event is rare.
    fn at_random(random: &mut Pcg64Mcg) -> Self {
        match random.next_u32() % 100 {
            0..60 => Self::SubscriberKilled,
            60..75 => Self::SubscriberUnsubscribes,
            75..95 => Self::SubscriberStalls,
            95..98 => Self::PublisherKilled,
            _ => Self::PublisherEnds,
        }
    }
}

fn show(groups: &[Group], began: Instant) {
    println!(
        "{:>5}  {:>9}  {:>10}  {:>10}  {:>9}  {:>7}  {:>6}  {:>6}  {:>5}  {:>7}  {:>10}  {:>5}",
        "group",
        "rate",
        "published",
        "checked",
        "missed",
        "damaged",
        "joined",
        "killed",
        "left",
        "stalled",
        "publishers",
        "ended"
    );
    let line = |name: &str, rate: &str, it: &Totals| {
        println!(
            "{name:>5}  {rate:>9}  {:>10}  {:>10}  {:>9}  {:>7}  {:>6}  {:>6}  {:>5}  {:>7}  {:>10}  {:>5}",
            it.published,
            it.checked,
            it.missed,
            it.damaged,
            it.joined,
            it.killed,
            it.left,
            it.stalled,
            it.publishers_killed,
            it.ended
        );
    };
    let mut all = Totals::default();
    for (at, group) in groups.iter().enumerate() {
        let totals = group.totals();
        line(&at.to_string(), group.rate.unwrap_or("as taken"), &totals);
        all.add(&totals);
    }
    line("all", "", &all);
    let seconds = began.elapsed().as_secs_f64();
    println!("{} frames checked, {} damaged; {seconds:.1} s", all.checked, all.damaged);
}

/// It needs its time for the ten events, which occur while frames are in flight, and for the programs that they start again.
#[test]
fn soak_no_frame_is_torn_or_mixed() {
    let (frames, seed) = (number("FPGA_FRAMES", SHORT_RUN), number("FPGA_SEED", 1));
    let max_gap = if frames > SHORT_RUN { MAX_EVENT_GAP_MS } else { MAX_SHORT_EVENT_GAP_MS };
    let mut random = Pcg64Mcg::new(u128::from(seed));
    let began = Instant::now();
    println!("seed {seed}: {frames} frames, 1 % of packets lost");
    // One publisher runs at the rate of its subscribers, the other one at a fixed rate.
    let mut groups = [Group::new(None, 2, &mut random), Group::new(Some("8000"), 2, &mut random)];
    let mut due = GroupEvent::ALL.repeat(groups.len()).into_iter();
    let mut shown = Instant::now();
    // The first SIGINT ends the run with the figures so far; a second one ends the test at once.
    let asked = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&asked)).unwrap();
    flag::register(SIGINT, Arc::clone(&asked)).unwrap();
    while !asked.load(Ordering::Relaxed) {
        let checked: u64 = groups.iter().map(|group| group.totals().checked).sum();
        let next = due.next();
        if next.is_none() && checked >= frames {
            break;
        }
        let at = usize::try_from(random.next_u32()).unwrap() % groups.len();
        // Every event first, so that the shortest run contains all of them.
        let (at, happening) = match next {
            Some(happening) => (due.len() / GroupEvent::ALL.len(), happening),
            None => (at, GroupEvent::at_random(&mut random)),
        };
        // Events have to occur while frames are in flight: so this waits between them.
        std::thread::sleep(Duration::from_millis(
            MIN_EVENT_GAP_MS + random.next_u64() % (max_gap - MIN_EVENT_GAP_MS),
        ));
        groups[at].apply_event(happening, &mut random);
        for group in &mut groups {
            group.restart_missing(&mut random);
        }
        assert!(began.elapsed() < TIMEOUT, "no end after {TIMEOUT:?}");
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            show(&groups, began);
        }
    }
    for group in &mut groups {
        group.end();
    }
    show(&groups, began);
    let mut all = Totals::default();
    for group in &groups {
        all.add(&group.totals());
    }
    assert_eq!((all.damaged, all.faults), (0, 0), "torn or mixed frames");
    if asked.load(Ordering::Relaxed) {
        println!("stopped before {frames} frames were checked");
        return;
    }
    assert!(all.checked > 0 && all.killed > 0 && all.publishers_killed > 0, "{all:?}");
    // Each publisher ended normally at least once.
    assert!(all.ended > 0, "{all:?}");
}
