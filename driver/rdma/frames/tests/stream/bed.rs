//! A publisher and subscribers on one simulated network, in this thread, and frames that can be checked for completeness.

use std::cell::RefCell;
use std::time::Duration;

use fpga_driver::{Card, SharedSlice};
use fpga_firmware::crc::crc32c;
use fpga_frames::{
    Event, JoinError, Published, Publisher, PublisherOptions, ReceivedFrame, Sequence, Subscriber,
    SubscriberOptions, TakeError,
};
use fpga_netmodel::{Conditions, Impairments, Loss, Probability};
use fpga_rdma::{Endpoint, EndpointOptions};
use fpga_sim::SimNetwork;
use rand_core::Rng;
use rand_pcg::Pcg64;

/// Maximum number of polls until a condition is met.
const MAX_POLLS: u32 = 2_000_000;

/// Frames and gaps that a subscriber has seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) frames: Vec<u64>,
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) faults: Vec<String>,
    pub(crate) ended: Option<u64>,
    /// The same as counts, for beds that do not keep frames.
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) missed_frames: u64,
    pub(crate) last: Option<u64>,
}

impl Seen {
    pub(crate) fn missed(&self) -> u64 {
        self.missed_frames
    }

    /// Records an event; a frame must be whole.
    pub(crate) fn take(&mut self, event: Event, keep: bool) {
        match event {
            Event::Frame(frame) => {
                check(&frame);
                let number = frame.sequence().get();
                (self.count, self.last) = (self.count + 1, Some(number));
                if keep {
                    self.frames.push(number);
                }
            }
            Event::Gap { missed, first } => {
                self.missed_frames += missed;
                if keep {
                    self.gaps.push((first.get(), missed));
                }
            }
            Event::Fault(error) => self.faults.push(error.to_string()),
            Event::Ended { next } => self.ended = Some(next.get()),
            other => panic!("{other:?}"),
        }
    }
}

/// One simulated network, its publisher, and subscribers by node.
pub(crate) struct TestBed {
    pub(crate) network: SimNetwork,
    pub(crate) publisher: Publisher,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) subscribers: Vec<Option<Subscriber>>,
    pub(crate) seen: Vec<Seen>,
    /// Whether each sequence number is kept.
    pub(crate) keep: bool,
    /// Subscribers that do not poll.
    pub(crate) stalled: Vec<bool>,
    pub(crate) random: Pcg64,
    incarnation: u32,
}

/// Options of a publisher that drops a subscriber after the minimum number of failures: in virtual time no program is late. Sockets have no
/// virtual time; some conversations end by `patience`.
pub(crate) fn options() -> PublisherOptions {
    let mut options = PublisherOptions::default();
    (options.max_silence, options.patience) = (Duration::ZERO, Duration::from_secs(2));
    options.max_data_length = 4000;
    options.max_value_length = 12;
    options
}

/// Options of a subscriber that reports silence after the minimum number of heartbeats, for the same reason.
pub(crate) fn subscriber_options() -> SubscriberOptions {
    let mut options = SubscriberOptions::default();
    options.max_silence = Duration::ZERO;
    options
}

pub(crate) fn lossy(share: f64) -> Impairments {
    let share = Probability::new(share).unwrap();
    Impairments::both(Conditions::default().loss(Loss::Independent(share)))
}

impl TestBed {
    pub(crate) fn new(subscribers: usize, options: PublisherOptions) -> Self {
        Self::on(SimNetwork::builder(), subscribers, options)
    }

    pub(crate) fn on(
        network: fpga_sim::SimNetworkBuilder,
        subscribers: usize,
        options: PublisherOptions,
    ) -> Self {
        let cards = u32::try_from(subscribers + 1).unwrap();
        Self::of(network.cards(cards).build().unwrap(), subscribers, options)
    }

    /// Creates a bed in a network that has its cards.
    pub(crate) fn of(network: SimNetwork, subscribers: usize, options: PublisherOptions) -> Self {
        let endpoint = endpoint(&network, 0, 1);
        let mut bed = Self::with_publisher(network, subscribers, Publisher::new(endpoint, options).unwrap());
        for number in 0..subscribers {
            bed.join(number, subscriber_options());
        }
        bed
    }

    /// Creates a bed whose subscribers have not joined.
    pub(crate) fn with_publisher(network: SimNetwork, subscribers: usize, mut publisher: Publisher) -> Self {
        let address = publisher.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut bed = Self {
            network,
            publisher,
            address,
            subscribers: Vec::new(),
            seen: vec![Seen::default(); subscribers],
            keep: true,
            stalled: vec![false; subscribers],
            random: Pcg64::new(7, 11),
            incarnation: 1,
        };
        bed.subscribers.resize_with(subscribers, || None);
        bed
    }

    pub(crate) fn join(&mut self, number: usize, options: SubscriberOptions) {
        self.try_join(number, options).unwrap();
    }

    pub(crate) fn try_join(&mut self, number: usize, options: SubscriberOptions) -> Result<(), JoinError> {
        self.try_join_with(number, options, &|_| ())
    }

    /// Joins with changed endpoint options.
    pub(crate) fn try_join_with(
        &mut self,
        number: usize,
        options: SubscriberOptions,
        change: &dyn Fn(&mut EndpointOptions),
    ) -> Result<(), JoinError> {
        self.incarnation += 1;
        self.subscribers[number] = None;
        let endpoint = endpoint_with(&self.network, number + 1, self.incarnation, change);
        // Transfers in flight arrive first, so that the state that the conversation finds does not depend on its duration.
        while self.settles() {}
        let mut joining = Subscriber::begin_join(endpoint, self.address, options)?;
        loop {
            if let Some(subscriber) = joining.poll()? {
                self.subscribers[number] = Some(subscriber);
                return Ok(());
            }
            if !self.settles() {
                // Sockets have no virtual time.
                std::thread::yield_now();
            }
        }
    }

    /// Polls the publisher and handles the result, without subscribers; time passes only where a transfer needs it. Returns whether there
    /// was work.
    fn settles(&mut self) -> bool {
        let work = self.publisher.poll().unwrap();
        if work != 0 || self.network.step_until_idle() != 0 {
            return true;
        }
        let busy = !self.publisher.endpoint().is_idle();
        if busy {
            self.publisher.relax();
        }
        busy
    }

    /// Publishes a frame that can be checked.
    pub(crate) fn publish(&mut self) -> Result<Published, fpga_frames::PublishError> {
        let room = usize::try_from(self.publisher.geometry().max_data_length()).unwrap();
        let length = usize::try_from(self.random.next_u64()).unwrap() % (room + 1);
        self.publish_of(length)
    }

    /// Publishes a frame of `length` bytes.
    pub(crate) fn publish_of(&mut self, length: usize) -> Result<Published, fpga_frames::PublishError> {
        let mut frame = loop {
            match self.publisher.take() {
                Ok(frame) => break frame,
                // Frames are made faster than they leave.
                Err(TakeError::Full { .. }) => self.turn(),
                Err(error) => panic!("{error}"),
            }
        };
        frame.set_len(length).unwrap();
        frame.data().write_chunks(|_, chunk| self.random.fill_bytes(chunk));
        let number = self.publisher.next_sequence().get();
        let value = checksum_of(number, frame.data());
        frame.set_value(&value).unwrap();
        self.publisher.publish(frame)
    }

    /// Polls the publisher and all subscribers once.
    pub(crate) fn turn(&mut self) {
        self.publisher.poll().unwrap();
        for number in 0..self.subscribers.len() {
            if !self.stalled[number] {
                self.poll_subscriber(number);
            }
        }
        self.publisher.relax();
    }

    pub(crate) fn poll_subscriber(&mut self, number: usize) {
        let Some(subscriber) = &mut self.subscribers[number] else { return };
        let seen = &mut self.seen[number];
        while let Some(event) = subscriber.poll().unwrap() {
            seen.take(event, self.keep);
            if seen.ended.is_some() {
                break;
            }
        }
    }

    /// Repeats turns until `done`.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..MAX_POLLS {
            if done(self) {
                return;
            }
            self.turn();
        }
        panic!("timed out waiting until {what}; {:?}; {:?}", self.publisher.statistics(), self.seen);
    }

    /// Ends the stream and waits until every subscriber is notified.
    pub(crate) fn close(&mut self) {
        self.publisher.begin_close();
        self.until("the publisher is closed", |bed| bed.publisher.is_closed());
        self.stalled.fill(false);
        let ended = |bed: &mut Self| {
            bed.subscribers.iter().zip(&bed.seen).all(|(it, seen)| it.is_none() || seen.ended.is_some())
        };
        self.until("all subscribers have the end", ended);
    }

    pub(crate) fn assert_no_faults(&self) {
        for seen in &self.seen {
            assert!(seen.faults.is_empty(), "{:?}", seen.faults);
        }
    }
}

pub(crate) fn endpoint(network: &SimNetwork, card: usize, incarnation: u32) -> Endpoint {
    endpoint_with(network, card, incarnation, &|_| ())
}

pub(crate) fn endpoint_with(
    network: &SimNetwork,
    card: usize,
    incarnation: u32,
    change: &dyn Fn(&mut EndpointOptions),
) -> Endpoint {
    let mut options = EndpointOptions::default();
    options.incarnation = Some(incarnation);
    options.give_up = Duration::from_millis(50);
    change(&mut options);
    Endpoint::open_with(&Card::from_backend(network.backend(card)).unwrap(), &options).unwrap()
}

/// Number and CRC: a frame composed of two others, or an old one under a new number, does not match.
pub(crate) fn checksum(number: u64, data: &[u8]) -> [u8; 12] {
    let mut value = [0; 12];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..].copy_from_slice(&crc32c(data).to_le_bytes());
    value
}

/// As [`checksum`], of a frame's data; allocates once per thread.
pub(crate) fn checksum_of(number: u64, data: SharedSlice<'_>) -> [u8; 12] {
    thread_local!(static COPY: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(1 << 20)));
    COPY.with_borrow_mut(|copy| {
        copy.resize(data.len(), 0);
        data.read(0, copy).unwrap();
        checksum(number, copy)
    })
}

pub(crate) fn check(frame: &ReceivedFrame) {
    let expected = checksum_of(frame.sequence().get(), frame.data());
    let mut value = [0; 12];
    assert_eq!(frame.value().len(), value.len());
    frame.value().read(0, &mut value).unwrap();
    assert_eq!(value, expected, "frame {} is torn or mixed", frame.sequence());
}

/// Checks that every number from `first` on is in the frames or in the gaps, in order.
pub(crate) fn assert_whole(seen: &Seen, first: Sequence, next: Sequence) {
    let mut expected = first.get();
    let mut gaps = seen.gaps.iter().peekable();
    for frame in seen.frames.iter().copied().chain([next.get()]) {
        while let Some((_, missed)) = gaps.next_if(|(at, _)| *at == expected) {
            expected = expected.wrapping_add(*missed);
        }
        assert_eq!(frame, expected, "{seen:?}");
        expected = expected.wrapping_add(1);
    }
}
