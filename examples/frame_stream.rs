//! Frame stream with one publisher and three subscribers. The slow subscriber misses frames and is notified which; the others miss none.
//!
//! All four run in this thread, each with a simulated card, on one network. In practice they are programs on separate machines, which also
//! find each other by a TCP port.
//!
//!     cargo run -p fpga-examples --example frame_stream

use std::error::Error;

use fpga_driver::Card;
use fpga_driver::sim::SimNetwork;
use fpga_frames::{Event, Publisher, PublisherOptions, Subscriber, SubscriberOptions};
use fpga_rdma::Endpoint;

const FRAMES: u64 = 200;
const SIZE: u64 = 16_000;
/// Rounds of this program between two frames: long enough for a frame to reach all subscribers in virtual time.
const ROUNDS_PER_FRAME: u64 = 400;
/// Interval in which the slow subscriber polls, in rounds.
const SLOW: u64 = 16_000;

#[derive(Default)]
struct Seen {
    frames: u64,
    missed: u64,
    ended: bool,
}

fn poll_once(subscriber: &mut Subscriber, seen: &mut Seen) -> Result<bool, Box<dyn Error>> {
    let Some(event) = subscriber.poll()? else { return Ok(false) };
    match event {
        Event::Frame(frame) => {
            // The frame header is a value that the publisher chooses: here, the sum of the data.
            let sum = frame.data().to_vec().iter().map(|byte| u64::from(*byte)).sum::<u64>();
            if frame.value().to_vec() != sum.to_le_bytes() {
                return Err(format!("frame {} is damaged", frame.sequence()).into());
            }
            seen.frames += 1;
            // Dropping the frame here returns its slot.
        }
        Event::Gap { missed, .. } => seen.missed += missed,
        Event::Ended { .. } => seen.ended = true,
        other => println!("{other:?}"),
    }
    Ok(!seen.ended)
}

fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::builder().cards(4).build()?;
    let endpoint = |card| -> Result<Endpoint, Box<dyn Error>> {
        Ok(Endpoint::open(&Card::from_backend(network.backend(card))?)?)
    };

    let mut options = PublisherOptions::default();
    (options.max_data_length, options.max_value_length) = (SIZE, 8);
    let mut publisher = Publisher::new(endpoint(0)?, options)?;
    let address = publisher.listen("127.0.0.1:0".parse()?)?;

    let mut subscribers = Vec::new();
    for card in 1..=3 {
        // A separate program would call `Subscriber::join`, which waits.
        let mut joining = Subscriber::begin_join(endpoint(card)?, address, SubscriberOptions::default())?;
        let subscriber = loop {
            publisher.poll()?;
            if let Some(subscriber) = joining.poll()? {
                break subscriber;
            }
        };
        subscribers.push((subscriber, Seen::default()));
    }

    let (mut published, mut round) = (0, 0_u64);
    while !subscribers.iter().all(|(_, seen)| seen.ended) {
        round += 1;
        if published < FRAMES && round.is_multiple_of(ROUNDS_PER_FRAME) {
            let mut frame = publisher.take()?;
            let value = u8::try_from(published % 251)?;
            let data = frame.data();
            data.fill(0, data.len(), value)?;
            let sum = data.len() as u64 * u64::from(value);
            frame.set_value(&sum.to_le_bytes())?;
            // Returns which subscribers get the frame and which miss it. Never waits.
            let _ = publisher.publish(frame)?;
            published += 1;
        } else if published == FRAMES {
            publisher.begin_close();
        }
        publisher.poll()?;
        publisher.relax();
        for (number, (subscriber, seen)) in subscribers.iter_mut().enumerate() {
            if number != 2 || round.is_multiple_of(SLOW) {
                while poll_once(subscriber, seen)? {}
            }
        }
    }

    println!("{published} frames of {SIZE} bytes");
    for (subscriber, seen) in &subscribers {
        let node = subscriber.endpoint().node();
        println!("node {node}: {} frames, {} missed", seen.frames, seen.missed);
        if seen.frames + seen.missed != FRAMES {
            return Err("a frame was neither received nor reported as missed".into());
        }
    }
    if subscribers.iter().take(2).any(|(_, seen)| seen.missed != 0) {
        return Err("a fast subscriber has missed frames".into());
    }
    Ok(())
}
