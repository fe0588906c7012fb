//! A publisher on a simulated card with a UDP link, and software subscribers, in one process. Time is real, so all time limits are long.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fpga_driver::Card;
use fpga_firmware::crc::crc32c;
use fpga_frames::{Published, Publisher, PublisherOptions};
use fpga_frames_subscriber::{Event, Frame, JoinError, Subscriber, SubscriberOptions};
use fpga_netmodel::Impairments;
use fpga_rdma::{Endpoint, EndpointOptions};
use fpga_sim::link::{UdpLink, UdpLinkOptions};
use fpga_sim::{SimNetwork, ThreadOptions};
use rand_core::Rng;
use rand_pcg::Pcg64;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// Frames and gaps that a subscriber has seen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) frames: Vec<u64>,
    /// First missed frame, and their number.
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) ended: Option<u64>,
}

impl Seen {
    pub(crate) fn take(&mut self, event: Event) {
        match event {
            Event::Frame(frame) => {
                check(&frame);
                self.frames.push(frame.sequence());
            }
            Event::Gap { missed, first } => self.gaps.push((first, missed)),
            Event::Ended { next } => self.ended = Some(next),
            other => panic!("{other:?}"),
        }
    }

    /// Reads all events that have arrived.
    pub(crate) fn read(&mut self, subscriber: &mut Subscriber) {
        while self.ended.is_none() {
            match subscriber.poll().unwrap() {
                Some(event) => self.take(event),
                None => return,
            }
        }
    }
}

/// Number of the frame, and checksum of its data.
fn value(number: u64, data: &[u8]) -> [u8; 12] {
    let mut value = [0; 12];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..].copy_from_slice(&crc32c(data).to_le_bytes());
    value
}

fn check(frame: &Frame) {
    assert_eq!(frame.value(), value(frame.sequence(), frame.data()), "frame {} is torn", frame.sequence());
    assert_eq!(frame.header().data_length, frame.data().len() as u64);
}

pub(crate) struct Bed {
    pub(crate) publisher: Publisher,
    /// Bootstrap port, and UDP address of the link.
    pub(crate) address: SocketAddr,
    pub(crate) link: SocketAddr,
    pub(crate) network: SimNetwork,
    random: Pcg64,
}

pub(crate) fn options() -> PublisherOptions {
    let mut options = PublisherOptions::default();
    (options.max_data_length, options.max_value_length) = (40_000, 12);
    (options.heartbeat, options.patience) = (TIMEOUT / 10, TIMEOUT);
    options
}

impl Bed {
    /// Creates a publisher on card 0 of `cards` cards.
    pub(crate) fn new(cards: u32, impairments: Impairments, options: PublisherOptions) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let udp = UdpLink::bind(UdpLinkOptions::new(any)).unwrap();
        let link = udp.local();
        let network = SimNetwork::builder().cards(cards).impairments(impairments).seed(5).link(udp);
        let network = network.threaded(ThreadOptions::default()).build().unwrap();
        let mut publisher = Publisher::new(endpoint(&network, 0), options).unwrap();
        let address = publisher.listen(any).unwrap();
        Self { publisher, address, link, network, random: Pcg64::new(3, 4) }
    }

    pub(crate) fn options(&self, node: u32) -> SubscriberOptions {
        let mut options = SubscriberOptions::new(node, self.link);
        options.timeout = TIMEOUT;
        options
    }

    /// Joins while the publisher is polled.
    pub(crate) fn try_join(&mut self, options: &SubscriberOptions) -> Result<Subscriber, JoinError> {
        let address = self.address;
        std::thread::scope(|scope| {
            let joining = scope.spawn(move || Subscriber::join(address, options));
            while !joining.is_finished() {
                self.poll();
            }
            joining.join().unwrap()
        })
    }

    pub(crate) fn join(&mut self, node: u32) -> Subscriber {
        let options = self.options(node);
        self.try_join(&options).unwrap()
    }

    pub(crate) fn poll(&mut self) {
        if self.publisher.poll().unwrap() == 0 {
            self.publisher.back_off();
        }
    }

    /// Polls the publisher until `done`.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Publisher) -> bool) {
        let began = Instant::now();
        while !done(&self.publisher) {
            assert!(
                began.elapsed() < TIMEOUT,
                "timed out waiting until {what}; {:?}",
                self.publisher.statistics()
            );
            self.poll();
        }
    }

    /// Publishes a frame of random length up to the maximum that can be checked.
    pub(crate) fn publish(&mut self) -> Published {
        let room = self.publisher.geometry().max_data_length();
        let length = usize::try_from(self.random.next_u64() % (room + 1)).unwrap();
        self.publish_of(length)
    }

    /// Publishes a frame of `length` bytes.
    pub(crate) fn publish_of(&mut self, length: usize) -> Published {
        let mut data = vec![0; length];
        self.random.fill_bytes(&mut data);
        let mut frame = self.publisher.take().unwrap();
        frame.fill(&data).unwrap();
        frame.set_value(&value(self.publisher.next_sequence().get(), &data)).unwrap();
        self.publisher.publish(frame).unwrap()
    }
}

pub(crate) fn endpoint(network: &SimNetwork, card: usize) -> Endpoint {
    let mut options = EndpointOptions::default();
    (options.incarnation, options.give_up) = (Some(1), TIMEOUT);
    Endpoint::open_with(&Card::from_backend(network.backend(card)).unwrap(), &options).unwrap()
}
