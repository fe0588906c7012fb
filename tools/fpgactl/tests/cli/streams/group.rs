//! A publisher with its subscribers, and their results.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use rustix::process::Signal;

use super::GroupEvent;
use super::program::{Program, ProgramResult};

/// Frames have several packets, which are reordered and partly duplicated: most have two or three packets, and one in 32 has 20 to 40 KiB,
/// which are two or three segments. (A frame of one packet is either complete or absent, so that it tests nothing.)
const FRAME: &str = "40KiB";
const USUAL_FRAME_SIZE: &str = "2KiB";
const SLOTS: &str = "128";
const HEARTBEAT: &str = "250ms";
/// Time after which a program counts as lost: twenty heartbeats, which no machine is too busy for. Survivors of a killed publisher wait for it.
const MAX_SILENCE: &str = "5s";

/// Totals so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) published: u64,
    /// Frames whose checksum was correct.
    pub(crate) checked: u64,
    pub(crate) missed: u64,
    pub(crate) damaged: u64,
    pub(crate) faults: u64,
    pub(crate) joined: u64,
    pub(crate) killed: u64,
    pub(crate) left: u64,
    pub(crate) stalled: u64,
    pub(crate) publishers_killed: u64,
    /// Subscribers that were notified of the end of their stream, and had received everything that the publisher reports as sent.
    pub(crate) ended: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.published += other.published;
        self.checked += other.checked;
        self.missed += other.missed;
        self.damaged += other.damaged;
        self.faults += other.faults;
        self.joined += other.joined;
        self.killed += other.killed;
        self.left += other.left;
        self.stalled += other.stalled;
        self.publishers_killed += other.publishers_killed;
        self.ended += other.ended;
    }
}

/// One publisher and its subscribers. Each has its own address, which its replacement reuses.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) rate: Option<&'static str>,
    listen: String,
    links: Vec<String>,
    publisher: Option<Program>,
    subscribers: Vec<Option<Program>>,
    totals: Totals,
}

impl Group {
    pub(crate) fn new(rate: Option<&'static str>, subscribers: usize, random: &mut Pcg64Mcg) -> Self {
        // They were free a moment ago.
        let sockets: Vec<_> = (0..=subscribers).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let links = sockets.iter().map(|socket| format!("udp:{}", socket.local_addr().unwrap())).collect();
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        drop(sockets);
        let mut group = Self {
            rate,
            listen,
            links,
            publisher: None,
            subscribers: (0..subscribers).map(|_| None).collect(),
            totals: Totals::default(),
        };
        group.restart_missing(random);
        group
    }

    /// Counts so far, including those of running programs.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = self.totals;
        totals.published += self.publisher.as_ref().map_or(0, |it| it.count("published"));
        for subscriber in self.subscribers.iter().flatten() {
            totals.checked += subscriber.count("checked");
            totals.missed += subscriber.count("missed");
            totals.damaged += subscriber.count("damaged");
        }
        totals
    }

    /// Restarts missing programs.
    pub(crate) fn restart_missing(&mut self, random: &mut Pcg64Mcg) {
        let mut network = |node: usize| {
            let seed = random.next_u64().to_string();
            ["--loss", "1%", "--seed", &seed, "--node", &(node + 1).to_string()].map(str::to_owned).to_vec()
        };
        let link = |address: &String| ["--link".to_owned(), address.clone()];
        if self.publisher.is_none() {
            let mut args =
                ["publish", "--listen", &self.listen, "--slots", SLOTS].map(str::to_owned).to_vec();
            args.extend(["--frame", FRAME, "--mostly", USUAL_FRAME_SIZE].map(str::to_owned));
            args.extend(
                ["--heartbeat", HEARTBEAT, "--max-silence", MAX_SILENCE, "--every", "20ms"]
                    .map(str::to_owned),
            );
            args.extend(self.rate.map(|rate| ["--rate".to_owned(), rate.to_owned()]).into_iter().flatten());
            args.extend(network(0));
            args.extend(self.links.iter().flat_map(link));
            self.publisher = Some(Program::start(&args));
        }
        for (at, place) in self.subscribers.iter_mut().enumerate() {
            if place.as_mut().is_some_and(|subscriber| !subscriber.is_running())
                && let Some(subscriber) = place.take()
            {
                lost(&mut self.totals, self.publisher.as_mut(), &subscriber.ended());
            }
            if place.is_none() {
                let mut args = ["subscribe", &self.listen, "--slots", SLOTS, "--every", "20ms"]
                    .map(str::to_owned)
                    .to_vec();
                args.extend(["--retry", "60s", "--max-silence", MAX_SILENCE].map(str::to_owned));
                args.extend(network(at + 1));
                args.extend([&self.links[at + 1], &self.links[0]].into_iter().flat_map(link));
                *place = Some(Program::start(&args));
                self.totals.joined += 1;
            }
        }
    }

    pub(crate) fn apply_event(&mut self, happening: GroupEvent, random: &mut Pcg64Mcg) {
        let at = usize::try_from(random.next_u32()).unwrap() % self.subscribers.len();
        match happening {
            GroupEvent::SubscriberKilled => {
                self.end_subscriber(at, Signal::KILL);
                self.totals.killed += 1;
            }
            GroupEvent::SubscriberUnsubscribes => {
                self.end_subscriber(at, Signal::TERM);
                self.totals.left += 1;
            }
            GroupEvent::SubscriberStalls => {
                let Some(subscriber) = &self.subscribers[at] else { return };
                subscriber.signal(Signal::STOP);
                // The pause is the tested event.
                std::thread::sleep(Duration::from_millis(20 + random.next_u64() % 300));
                subscriber.signal(Signal::CONT);
                self.totals.stalled += 1;
            }
            GroupEvent::PublisherKilled => self.kill_publisher(random),
            GroupEvent::PublisherEnds => self.end(),
        }
    }

    fn end_subscriber(&mut self, at: usize, signal: Signal) {
        let Some(subscriber) = self.subscribers[at].take() else { return };
        subscriber.signal(signal);
        let ended = subscriber.ended();
        // A subscriber that has not found its publisher yet has nothing to report.
        if signal == Signal::TERM && ended.status != Some(0) && !ended.report.is_null() {
            lost(&mut self.totals, self.publisher.as_mut(), &ended);
            return;
        }
        settle(&mut self.totals, &ended);
    }

    /// Some of its subscribers detect the loss, others are killed with it.
    fn kill_publisher(&mut self, random: &mut Pcg64Mcg) {
        let Some(publisher) = self.publisher.take() else { return };
        publisher.signal(Signal::KILL);
        self.totals.published += publisher.ended().count("published");
        self.totals.publishers_killed += 1;
        for at in 0..self.subscribers.len() {
            if random.next_u32().is_multiple_of(2) {
                self.end_subscriber(at, Signal::KILL);
                self.totals.killed += 1;
            } else if let Some(mut subscriber) = self.subscribers[at].take() {
                if subscriber.count("first") + subscriber.count("next") == 0 {
                    // It seems still to search for a publisher, and will find the next one.
                    subscriber.is_orphan = true;
                    self.subscribers[at] = Some(subscriber);
                    continue;
                }
                let ended = subscriber.ended();
                assert!(
                    ended.status == Some(1) && ended.said.contains("help: join the stream again"),
                    "{ended:?}"
                );
                settle(&mut self.totals, &ended);
            }
        }
    }

    /// The publisher ends normally: every subscriber is notified, and has counted every published number as seen or missed, with the same
    /// totals as the publisher.
    pub(crate) fn end(&mut self) {
        let Some(mut publisher) = self.publisher.take() else { return };
        publisher.reported();
        // Subscribers that have joined report, and get the last message; those started too late for that wait for the next publisher.
        self.subscribers.iter_mut().flatten().for_each(Program::reported);
        publisher.signal(Signal::TERM);
        let word = publisher.ended();
        // A frame may fail because its subscriber did not run for the give-up time; it is counted on both sides, which is compared below.
        assert_eq!(word.status, Some(i32::from(word.count("undelivered") > 0)), "{word:?}");
        let published = word.count("published");
        self.totals.published += published;
        for subscriber in self.subscribers.iter_mut().filter_map(Option::take) {
            let ended = subscriber.ended();
            if ended.status == Some(0) {
                assert_eq!(
                    (&ended.report["ended"], ended.count("next")),
                    (&true.into(), published),
                    "{ended:?}"
                );
                compare(&word, &ended);
                self.totals.ended += 1;
                settle(&mut self.totals, &ended);
            } else {
                lost(&mut self.totals, None, &ended);
            }
        }
    }
}

/// Handles a subscriber that ended by itself while its publisher ran: only one whose publisher was killed unnoticed may do so.
fn lost(totals: &mut Totals, publisher: Option<&mut Program>, ended: &ProgramResult) {
    assert!(
        ended.is_orphan && ended.said.contains("help: join the stream again"),
        "{ended:?}; its publisher: {:?}",
        publisher.map(Program::state)
    );
    settle(totals, ended);
}

/// Compares the frames of a subscriber that was notified of the end with those that its publisher reports as sent.
fn compare(publisher: &ProgramResult, subscriber: &ProgramResult) {
    let all = publisher.report["subscribers"].as_array().unwrap();
    // Earlier subscribers of the same node come first.
    let its = all.iter().rfind(|it| it["node"] == subscriber.report["node"]);
    let its = its.unwrap_or_else(|| panic!("unknown to its publisher: {publisher:?}; {subscriber:?}"));
    let [sent, arrived, skipped, failed] =
        ["sent", "arrived", "skipped", "failed"].map(|key| its[key].as_u64().unwrap());
    let [first, next, frames, missed] =
        ["first", "next", "frames", "missed"].map(|key| subscriber.count(key));
    assert_eq!(sent + skipped, next - first, "{its}; {subscriber:?}");
    assert_eq!(arrived + failed, sent, "every transfer has ended: {its}");
    // All packets of a failed transfer may have arrived while the answer to the last one was lost.
    assert!((arrived..=sent).contains(&frames), "{its}; {subscriber:?}");
    assert_eq!(missed, skipped + sent - frames, "{its}; {subscriber:?}");
}

/// Checks that every frame was seen by the subscriber or is counted as missing.
fn settle(totals: &mut Totals, ended: &ProgramResult) {
    let count = |key| ended.count(key);
    assert!(!ended.said.contains("checksum") && count("faults") == 0, "{ended:?}");
    assert_eq!(count("checked"), count("frames"), "{ended:?}");
    assert_eq!(count("first") + count("frames") + count("missed"), count("next"), "{ended:?}");
    totals.checked += count("checked");
    totals.missed += count("missed");
    totals.damaged += count("damaged");
    totals.faults += count("faults");
}
