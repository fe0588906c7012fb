//! Cost and throughput of frame streams, each figure beside its reference, in one run.
//!
//! ```text
//! cargo bench -p fpga-frames -- stalled            one stalled subscriber of eight: the publisher's rate with and without it
//! cargo bench -p fpga-frames -- publish [FRAMES]   processor time of publish() and of all work per frame, at 10,000 frames a second
//! cargo bench -p fpga-frames -- fan-out [BYTES SLOTS]  goodput of eight subscribers against transfers and a stream to one, by frame size
//! ```
//!
//! Without a name: all of them. Frames carry no checksum here, because only the stream is measured.
#![expect(clippy::expect_used, reason = "a failed preparation ends the benchmark")]
#![expect(clippy::print_stdout, reason = "prints its results")]
#![expect(clippy::cast_precision_loss, reason = "approximate figures for readers")]

mod fan_out;
mod publish;
mod stalled;

use fpga_driver::Card;
use fpga_frames::{Publisher, PublisherOptions, Subscriber, SubscriberOptions};
use fpga_pci::testing::CountingAllocator;
use fpga_rdma::{Endpoint, EndpointOptions};
use fpga_sim::SimNetwork;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Simulated network with its cards in this thread. The cards work between two polls until they are idle; otherwise the result would depend
/// on the number of polls, and a stream has more programs that poll than a transfer.
fn network(cards: usize) -> SimNetwork {
    let cards = u32::try_from(cards).expect("few");
    SimNetwork::builder().cards(cards).units_per_relax(4096).build().expect("a network")
}

fn endpoint(network: &SimNetwork, card: usize) -> Endpoint {
    let mut options = EndpointOptions::default();
    // For frames of megabytes, and a subscriber that does not poll.
    options.event_entries = 1 << 16;
    Endpoint::open_with(&Card::from_backend(network.backend(card)).expect("a card"), &options)
        .expect("an endpoint")
}

/// Creates a publisher with `slots` on card 0 of `network`, and a subscriber with the options from `each` on every other card.
fn stream(
    network: &SimNetwork,
    subscribers: usize,
    data: u64,
    slots: u32,
    each: SubscriberOptions,
) -> (Publisher, Vec<Subscriber>) {
    let mut options = PublisherOptions::default();
    (options.max_data_length, options.max_value_length, options.slots) = (data, 0, slots);
    let mut publisher = Publisher::new(endpoint(network, 0), options).expect("a publisher");
    let any = "127.0.0.1:0".parse().expect("an address");
    let address = publisher.listen(any).expect("a port");
    let join = |number: usize| {
        let end = endpoint(network, number + 1);
        let mut joining = Subscriber::begin_join(end, address, each.clone()).expect("a listening publisher");
        loop {
            publisher.poll().expect("a publisher that works");
            if let Some(subscriber) = joining.poll().expect("a publisher that accepts the join") {
                return subscriber;
            }
        }
    };
    let subscribers = (0..subscribers).map(join).collect();
    (publisher, subscribers)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| arguments.first().is_none_or(|word| word == name);
    if wanted("stalled") {
        stalled::run();
    }
    if wanted("publish") {
        publish::run(arguments.get(1).map_or(100_000, |text| text.parse().expect("a number of frames")));
    }
    if wanted("fan-out") {
        let number = |at: usize| arguments.get(at).map(|text| text.parse::<u32>().expect("a number"));
        fan_out::run(number(1).zip(number(2)).map(|(bytes, slots)| (bytes.into(), slots)));
    }
}
