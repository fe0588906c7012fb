//! Eight subscribers on the in-process network, compared with transfers on the same network: all from host memory to host memory, all cards
//! in this thread.
//!
//! The stream is compared with a stream to one subscriber, and with two kinds of transfers. One moves all bytes at once, as `fpgactl
//! transfer` does: its segments are full, and it has one notification. The others are as long as the frames, and as many of them are in
//! flight as a subscriber has slots. The cost of a stream beyond these is that of the stream itself (credits, statuses, sequence numbers);
//! their cost beyond the long transfer is that of messages of their size.
//!
//! Rates are bytes per processor time of this thread, which does all the work: other load on the machine then disturbs them little.

use std::collections::VecDeque;
use std::time::Duration;

use fpga_driver::{C2hChannel, CardRange, DmaBuffer, H2cChannel, NodeId};
use fpga_frames::{Event, Publisher, Subscriber, SubscriberOptions};
use fpga_rdma::{Endpoint, RemoteRegion, SendOptions};
use fpga_sim::SimNetwork;
use rustix::time::{ClockId, clock_gettime};

use super::{endpoint, median, network, stream};

const SUBSCRIBERS: usize = 8;
/// Bytes that each of the two moves per round; those of the stream arrive eight times.
const BYTES: u64 = 16 << 20;
const ROUNDS: usize = 9;
/// Frame size in bytes, and slots of a subscriber, which is also the number of transfers in flight. The default of 8 slots is small for
/// small frames: a program or a card then handles only a few of them per poll. Four frames of 4032 bytes with their headers fill a segment.
const CASES: [(u64, u32); 8] = [
    (4032, 8),
    (4 << 10, 8),
    (4 << 10, 16),
    (4 << 10, 64),
    (64 << 10, 8),
    (64 << 10, 32),
    (256 << 10, 8),
    (1 << 20, 8),
];
/// Length in bytes of the parts in which a transfer is loaded and unloaded.
const CHUNK_BYTES: usize = 1 << 20;

/// Processor time of this thread since its start.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("a time");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("nanoseconds"))
}

/// Gigabytes per second of processor time since `began`.
fn rate(began: Duration) -> f64 {
    BYTES as f64 / processor_time().saturating_sub(began).as_secs_f64() / 1e9
}

/// Work of all cards of a network. It is the same in every run, so the cost of a message can be told from disturbances of the machine.
#[derive(Clone, Copy, Default)]
struct Work {
    descriptors: u64,
    copies: u64,
    packets: u64,
    events: u64,
    register_writes: u64,
}

impl Work {
    fn of(network: &SimNetwork) -> Self {
        let mut sum = Self::default();
        for card in 0..=SUBSCRIBERS {
            let counters = network.with_card(card, |card| *card.counters()).expect("a card");
            sum.descriptors += counters.descriptors;
            sum.copies += counters.cdma_descriptors;
            sum.packets += counters.frames_sent;
            sum.events += counters.events;
            sum.register_writes += counters.mmio_writes;
        }
        sum
    }

    fn print(self, before: Self, what: &str, (bytes, slots): (u64, u32), messages: u64) {
        let each = |after: u64, before: u64| (after - before) as f64 / messages as f64;
        println!(
            "{bytes:>12}  {slots:>5}  {what:<16} {:>11.2}  {:>10.2}  {:>15.2}  {:>6.2}  {:>15.2}",
            each(self.descriptors, before.descriptors),
            each(self.copies, before.copies),
            each(self.packets, before.packets),
            each(self.events, before.events),
            each(self.register_writes, before.register_writes)
        );
    }
}

/// Transfer as in `fpgactl transfer`, without generating and comparing the data.
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
        // The same number of cards as in the stream: each one gets time in this thread, busy or not.
        let network = network(SUBSCRIBERS + 1);
        let (from, mut to) = (endpoint(&network, 0), endpoint(&network, 1));
        let range = CardRange::new(to.usable_memory().start, BYTES);
        let region = to.open_region(NodeId::ANY, range).expect("a region").remote;
        let buffer = |end: &Endpoint| end.card().buffer(CHUNK_BYTES).expect("memory");
        let buffers = Some((buffer(&from), buffer(&to)));
        let (h2c, c2h) = (from.card().h2c(0).expect("a channel"), to.card().c2h(0).expect("a channel"));
        Self { h2c, c2h, from, to, region, buffers }
    }

    /// Runs one round. Returns gigabytes per second.
    fn round(&mut self) -> f64 {
        let began = processor_time();
        let (mut up, mut down) = self.buffers.take().expect("both buffers are idle");
        let source = self.from.usable_memory().start;
        let at = |start: fpga_driver::CardAddr, offset: u64| start.checked_add(offset).expect("card memory");
        for offset in (0..BYTES).step_by(CHUNK_BYTES) {
            up = self.h2c.write(up, at(source, offset)).expect("a write");
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
        for offset in (0..BYTES).step_by(CHUNK_BYTES) {
            down = self.c2h.read(down, at(self.region.address, offset)).expect("a read");
        }
        self.buffers = Some((up, down));
        rate(began)
    }
}

/// Transfers of the frame size, each loaded and unloaded by itself, as many in flight as a subscriber has slots.
struct Messages {
    network: SimNetwork,
    h2c: H2cChannel,
    c2h: C2hChannel,
    from: Endpoint,
    to: Endpoint,
    region: RemoteRegion,
    bytes: u64,
    slots: usize,
    /// Memory of each slot on either side.
    up: Vec<Option<DmaBuffer>>,
    down: Vec<Option<DmaBuffer>>,
}

impl Messages {
    fn new(bytes: u64, slots: u32) -> Self {
        let slots = usize::try_from(slots).expect("few");
        let network = network(SUBSCRIBERS + 1);
        let (from, mut to) = (endpoint(&network, 0), endpoint(&network, 1));
        let range = CardRange::new(to.usable_memory().start, bytes * slots as u64);
        let region = to.open_region(NodeId::ANY, range).expect("a region").remote;
        let length = usize::try_from(bytes).expect("a length");
        let buffers = |end: &Endpoint| -> Vec<_> {
            (0..slots).map(|_| Some(end.card().buffer(length).expect("memory"))).collect()
        };
        let (up, down) = (buffers(&from), buffers(&to));
        let (h2c, c2h) = (from.card().h2c(0).expect("a channel"), to.card().c2h(0).expect("a channel"));
        Self { network, h2c, c2h, from, to, region, bytes, slots, up, down }
    }

    /// Runs one round. Returns gigabytes per second.
    fn round(&mut self) -> f64 {
        let began = processor_time();
        let count = BYTES / self.bytes;
        let source = self.from.usable_memory().start;
        let at = |start: fpga_driver::CardAddr, slot: usize| {
            start.checked_add(slot as u64 * self.bytes).expect("card memory")
        };
        let (mut begun, mut loaded, mut sent, mut read) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut fetched = VecDeque::with_capacity(self.slots);
        let slots = self.slots;
        let slot_of = |number: u64| usize::try_from(number).expect("few") % slots;
        while read < count || sent < count {
            while begun < count && begun - read.min(sent) < slots as u64 {
                let slot = slot_of(begun);
                let buffer = self.up[slot].take().expect("the slot is free");
                self.h2c.submit(buffer, at(source, slot)).expect("space in the ring");
                begun += 1;
            }
            self.h2c.poll().expect("a channel");
            while let Some(done) = self.h2c.next_completion() {
                let slot = slot_of(loaded);
                self.up[slot] = done.buffer;
                let offset = slot as u64 * self.bytes;
                let options = SendOptions::default();
                self.from
                    .send(at(source, slot), &self.region, offset, self.bytes, options)
                    .expect("a transfer");
                loaded += 1;
            }
            self.from.poll().expect("an endpoint");
            while let Some(done) = self.from.next_completion() {
                done.result.expect("a transfer that arrives");
                sent += 1;
            }
            self.to.poll().expect("an endpoint");
            while let Some(notice) = self.to.next_notification() {
                let slot = (notice.address.get() - self.region.address.get()) / self.bytes;
                let slot = usize::try_from(slot).expect("few");
                let buffer = self.down[slot].take().expect("the slot was read");
                self.c2h.submit(buffer, at(self.region.address, slot)).expect("space in the ring");
                fetched.push_back(slot);
            }
            self.c2h.poll().expect("a channel");
            while let Some(done) = self.c2h.next_completion() {
                self.down[fetched.pop_front().expect("the fetch was started")] = done.buffer;
                read += 1;
            }
            self.from.relax();
        }
        rate(began)
    }
}

struct Stream {
    network: SimNetwork,
    publisher: Publisher,
    subscribers: Vec<Subscriber>,
    data: u64,
}

impl Stream {
    fn new(count: usize, data: u64, slots: u32) -> Self {
        let network = network(SUBSCRIBERS + 1);
        let mut each = SubscriberOptions::default();
        each.slots = slots;
        let (publisher, subscribers) = stream(&network, count, data, 2 * slots, each);
        Self { network, publisher, subscribers, data }
    }

    /// Runs one round. Returns gigabytes per second of the slowest subscriber.
    fn round(&mut self) -> f64 {
        let began = processor_time();
        let frames = BYTES / self.data;
        let (mut published, mut read) = (0, [0_u64; SUBSCRIBERS]);
        let count = self.subscribers.len();
        while read.iter().take(count).any(|count| *count < frames) {
            while published < frames && self.publisher.subscribers().all(|view| view.room > 0) {
                let frame = self.publisher.take().expect("a free slot: every subscriber has one");
                self.publisher.publish(frame).expect("a free slot");
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
        rate(began)
    }
}

/// Median, minimum and maximum of ratios.
fn spread(mut values: Vec<f64>) -> String {
    let middle = median(&mut values);
    let (least, most) = (values.first().unwrap_or(&f64::NAN), values.last().unwrap_or(&f64::NAN));
    format!("{middle:.2} ({least:.2}-{most:.2})")
}

/// Runs all cases, or only `case`: bytes of a frame, and slots.
pub(super) fn run(case: Option<(u64, u32)>) {
    let cases = case.map_or_else(|| CASES.to_vec(), |case| vec![case]);
    println!(
        "fan-out to {SUBSCRIBERS} subscribers, host memory to host memory, {ROUNDS} alternating rounds of {} MiB, all in one thread",
        BYTES >> 20
    );
    println!(
        "{:>12}  {:>5}  {:>12}  {:>12}  {:>13}  {:>21}  {:>17}  {:>17}  {:>19}",
        "frame, bytes",
        "slots",
        "one transfer",
        "transfers",
        "stream to one",
        "each subscriber, GB/s",
        "of 1/8 of one",
        "of 1/8 of many",
        "of 1/8 of stream"
    );
    let mut transfer = Transfer::new();
    transfer.round();
    for (data, slots) in cases.iter().copied() {
        let mut stream = Stream::new(SUBSCRIBERS, data, slots);
        let mut single = Stream::new(1, data, slots);
        let mut messages = Messages::new(data, slots);
        for _ in 0..2 {
            stream.round();
            single.round();
            messages.round();
        }
        let mut rates = [(); 4].map(|()| Vec::new());
        let mut shares = [(); 3].map(|()| Vec::new());
        for _ in 0..ROUNDS {
            let each = stream.round();
            let references = [transfer.round(), messages.round(), single.round()];
            for (rates, rate) in rates.iter_mut().zip(references.into_iter().chain([each])) {
                rates.push(rate);
            }
            for (shares, reference) in shares.iter_mut().zip(references) {
                shares.push(each / (reference / SUBSCRIBERS as f64));
            }
        }
        let [alone, many, one, each] = rates.map(|mut rates| median(&mut rates));
        let [of_one, of_many, of_stream] = shares.map(spread);
        println!(
            "{data:>12}  {slots:>5}  {alone:>12.3}  {many:>12.3}  {one:>13.3}  {each:>21.4}  {of_one:>17}  {of_many:>17}  {of_stream:>19}"
        );
    }
    println!("(target: at least 0.80)");
    println!("work of all cards for one message, and for one subscriber's frame:");
    println!(
        "{:>12}  {:>5}  {:<16} {:>11}  {:>10}  {:>15}  {:>6}  {:>15}",
        "bytes", "slots", "", "descriptors", "CDMA's", "packets, answers", "events", "register writes"
    );
    for (data, slots) in cases {
        let (mut messages, mut stream) = (Messages::new(data, slots), Stream::new(SUBSCRIBERS, data, slots));
        let count = BYTES / data;
        let before = Work::of(&messages.network);
        messages.round();
        Work::of(&messages.network).print(before, "transfer", (data, slots), count);
        let before = Work::of(&stream.network);
        stream.round();
        Work::of(&stream.network).print(before, "frame", (data, slots), count * SUBSCRIBERS as u64);
    }
}
