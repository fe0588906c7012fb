//! Eight subscribers on the in-process network, and a transfer on the same one: both from host memory to host memory, all cards in this
//! thread.

use std::time::Instant;

use fpga_driver::endpoint::{RemoteRegion, SendOptions};
use fpga_driver::{C2hChannel, CardRange, DmaBuffer, Endpoint, H2cChannel, NodeId};
use fpga_frames::{Event, Publisher, Subscriber};

use super::{endpoint, median, stream, world};

const SUBSCRIBERS: usize = 8;
/// Bytes that each of the two moves before it is the other one's turn; those of the stream arrive eight times.
const BYTES: u64 = 16 << 20;
const ROUNDS: usize = 5;
/// What a transfer is loaded and unloaded in.
const PIECE: usize = 1 << 20;

/// What `fpgactl transfer` does, without making the data and comparing it.
struct Transfer {
    h2c: H2cChannel,
    c2h: C2hChannel,
    from: Endpoint,
    to: Endpoint,
    region: RemoteRegion,
    buffers: Option<(DmaBuffer, DmaBuffer)>,
}

impl Transfer {
    fn new() -> Self {
        // As many cards as there are in the stream: each takes its turn in this thread, busy or not.
        let world = world(SUBSCRIBERS + 1);
        let (from, mut to) = (endpoint(&world, 0), endpoint(&world, 1));
        let range = CardRange::new(to.usable_memory().start, BYTES);
        let region = to.open_region(NodeId::ANY, range).expect("a region").remote;
        let buffer = |end: &Endpoint| end.card().buffer(PIECE).expect("memory");
        let buffers = Some((buffer(&from), buffer(&to)));
        let (h2c, c2h) = (from.card().h2c(0).expect("a channel"), to.card().c2h(0).expect("a channel"));
        Self { h2c, c2h, from, to, region, buffers }
    }

    /// Gigabytes per second.
    fn round(&mut self) -> f64 {
        let began = Instant::now();
        let (mut up, mut down) = self.buffers.take().expect("they come back");
        let source = self.from.usable_memory().start;
        let at = |start: fpga_driver::CardAddr, piece: u64| start.checked_add(piece).expect("card memory");
        for piece in (0..BYTES).step_by(PIECE) {
            up = self.h2c.write(up, at(source, piece)).expect("a write");
        }
        self.from.send(source, &self.region, 0, BYTES, SendOptions::default()).expect("a transfer");
        let (mut sent, mut arrived) = (false, false);
        while !sent || !arrived {
            self.from.poll().expect("an endpoint");
            self.to.poll().expect("an endpoint");
            sent |= self.from.next_completion().is_some_and(|done| done.result.is_ok());
            arrived |= self.to.next_notification().is_some();
            self.from.relax();
        }
        for piece in (0..BYTES).step_by(PIECE) {
            down = self.c2h.read(down, at(self.region.address, piece)).expect("a read");
        }
        self.buffers = Some((up, down));
        BYTES as f64 / began.elapsed().as_secs_f64() / 1e9
    }
}

struct Stream {
    publisher: Publisher,
    subscribers: Vec<Subscriber>,
    data: u64,
}

impl Stream {
    fn new(data: u64) -> Self {
        let world = world(SUBSCRIBERS + 1);
        let (publisher, subscribers) = stream(&world, SUBSCRIBERS, data, 16);
        Self { publisher, subscribers, data }
    }

    /// Gigabytes per second of the subscriber that got least.
    fn round(&mut self) -> f64 {
        let began = Instant::now();
        let frames = BYTES / self.data;
        let (mut published, mut read) = (0, [0_u64; SUBSCRIBERS]);
        while read.iter().any(|count| *count < frames) {
            while published < frames && self.publisher.subscribers().all(|view| view.room > 0) {
                let frame = self.publisher.take().expect("a slot: all have room");
                self.publisher.publish(frame).expect("room");
                published += 1;
            }
            self.publisher.poll().expect("a publisher that works");
            for (subscriber, read) in self.subscribers.iter_mut().zip(&mut read) {
                while let Some(event) = subscriber.poll().expect("a subscriber that works") {
                    *read += u64::from(matches!(event, Event::Frame(_)));
                }
            }
            self.publisher.relax();
        }
        BYTES as f64 / began.elapsed().as_secs_f64() / 1e9
    }
}

pub(super) fn run() {
    println!(
        "fan-out to {SUBSCRIBERS}, host memory to host memory, {ROUNDS} rounds of {} MiB in turns, all in one thread",
        BYTES >> 20
    );
    println!(
        "{:>12}  {:>14}  {:>22}  {:>12}",
        "frame, bytes", "transfer, GB/s", "each subscriber, GB/s", "share of 1/8"
    );
    let mut transfer = Transfer::new();
    transfer.round();
    for data in [4 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let mut stream = Stream::new(data);
        stream.round();
        let (mut alone, mut each, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (transfer, stream) = (transfer.round(), stream.round());
            alone.push(transfer);
            each.push(stream);
            shares.push(stream / (transfer / SUBSCRIBERS as f64));
        }
        println!(
            "{data:>12}  {:>14.3}  {:>22.4}  {:>12.2}",
            median(&mut alone),
            median(&mut each),
            median(&mut shares)
        );
    }
    println!("(at least 0.80 is wanted)");
}
