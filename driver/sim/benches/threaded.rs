//! Performance of the threaded network: latency from a posted write to its effect, the idle loop, and the rate of 64-byte descriptors on
//! one channel, through the backend and shared memory alone.
//!
//! `cargo bench -p fpga-sim -- [host CPU,card CPU] [seconds per figure] [part of a name]`. Figures are taken in bursts of a few
//! milliseconds. The fastest and the median burst are shown, with the one-way latency of a cache line between the two CPUs before and
//! after: on virtual machines this latency changes within seconds and affects every figure.
#![expect(clippy::expect_used, reason = "a failed preparation ends the benchmark")]
#![expect(clippy::print_stdout, reason = "prints its results")]
#![expect(clippy::cast_possible_truncation, reason = "counts are small")]
#![expect(clippy::cast_precision_loss, reason = "approximate figures for readers")]

use fpga_pci::{Backend, Bar, DmaAccess, HugePages, SharedMemory};
use fpga_registers::{BarOffset, Iova};
use fpga_sim::{SimBackend, SimNetwork, ThreadOptions};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Descriptors in the ring; a power of two.
const RING: usize = 512;
/// Maximum number of descriptors in flight.
const DEPTH: usize = 256;
/// Descriptors per doorbell.
const BATCH: usize = 32;
const RING_IOVA: u64 = 0x10_0000;
const DATA_IOVA: u64 = 0x4000_0000;
const DATA: usize = 2 << 20;
const WRITEBACK: usize = RING * 32;
const MAGIC: u64 = 0xAD4B_0000;
const COMPLETED: u64 = 2;
const STOP: u64 = 1;

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("a CPU that this process may use");
}

/// Measures the one-way latency of a cache line between two CPUs, in nanoseconds.
fn one_way(host: usize, card: usize) -> f64 {
    const EXCHANGES: u64 = 2000;
    #[repr(align(128))]
    struct PingPongLine(AtomicU64);
    let ball = PingPongLine(AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(card);
            for n in 0..20 * EXCHANGES {
                while ball.0.load(Ordering::Acquire) != 2 * n + 1 {}
                ball.0.store(2 * n + 2, Ordering::Release);
            }
        });
        pin(host);
        let mut spans = Vec::new();
        for burst in 0..20 {
            let began = Instant::now();
            for n in burst * EXCHANGES..(burst + 1) * EXCHANGES {
                ball.0.store(2 * n + 1, Ordering::Release);
                while ball.0.load(Ordering::Acquire) != 2 * n + 2 {}
            }
            spans.push(began.elapsed().as_secs_f64() * 1e9 / (2 * EXCHANGES) as f64);
        }
        quantile(&mut spans, 0.5)
    })
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_sign_loss, reason = "an index")]
    let index = ((values.len() as f64 * part) as usize).min(values.len() - 1);
    values[index]
}

/// H2C channel 0 with a circular ring in credit mode, or in batch mode.
struct Channel {
    network: SimNetwork,
    _card: Arc<SimBackend>,
    dma: Bar,
    ring: SharedMemory,
    data: SharedMemory,
    submitted: usize,
    completed: usize,
    count: u32,
}

impl Channel {
    fn new(card_cpu: usize, spin: Duration) -> Self {
        let options = ThreadOptions::default().pin(card_cpu).spin(spin);
        let network = SimNetwork::builder().cards(1).threaded(options).build().expect("a network");
        let card = network.backend(0);
        card.set_bus_master(true).expect("config space");
        let ring = SharedMemory::anonymous(RING * 32 + 4096, HugePages::No).expect("memory");
        let data = SharedMemory::anonymous(DATA, HugePages::Transparent).expect("memory");
        data.fill(0, DATA, 1).expect("all of it");
        card.map_dma(Iova::new(RING_IOVA), &ring, DmaAccess::Both).expect("free addresses");
        card.map_dma(Iova::new(DATA_IOVA), &data, DmaAccess::Both).expect("free addresses");
        let dma = card.open_bar(1).expect("the DMA BAR");
        Self { network, _card: card, dma, ring, data, submitted: 0, completed: 0, count: 0 }
    }

    fn write(&self, at: u64, value: u32) {
        self.dma.write32(BarOffset::new(at), value).expect("a register");
    }

    #[inline]
    fn fill(&self, number: usize, flags: u64, length: usize) {
        let index = number % RING;
        let next = (index + 1) % RING;
        // Blocks end at 4 KiB boundaries; so does the ring.
        let adjacent = (127 - next % 128).min(63) as u64;
        let place = (number * length % DATA) as u64;
        let words = [
            (length as u64) << 32 | MAGIC | adjacent << 8 | flags,
            DATA_IOVA + place,
            place,
            RING_IOVA + next as u64 * 32,
        ];
        self.ring.store_descriptor(index * 32, words).expect("inside the ring");
    }

    fn set_up(&self) {
        for (at, value) in [
            (0x0C, 1),
            (0x88, u32::try_from(RING_IOVA).unwrap_or(0) + u32::try_from(WRITEBACK).unwrap_or(0)),
            (0x8C, 0),
            (0x4080, u32::try_from(RING_IOVA).unwrap_or(0)),
            (0x4084, 0),
            (0x4088, 63),
        ] {
            self.write(at, value);
        }
        self.ring.store_u32_release(WRITEBACK, 0).expect("inside the ring");
    }

    fn start_credits(&self) {
        self.set_up();
        self.write(0x6024, 1);
        self.write(0x04, 0x0400_0001);
    }

    #[inline]
    fn poll(&mut self) {
        let count = self.ring.load_u32_acquire(WRITEBACK).expect("inside the ring") & 0xFF_FFFF;
        self.completed += (count.wrapping_sub(self.count) & 0xFF_FFFF) as usize;
        self.count = count;
    }

    /// Runs `operations` descriptors of `length` bytes in credit mode.
    fn throughput(&mut self, operations: usize, length: usize) {
        let target = self.submitted + operations;
        while self.completed < target {
            if self.submitted < target && self.submitted - self.completed + BATCH <= DEPTH {
                for number in self.submitted..self.submitted + BATCH {
                    let last = number + 1 == self.submitted + BATCH;
                    self.fill(number, if last { COMPLETED } else { 0 }, length);
                }
                self.write(0x408C, BATCH as u32);
                self.submitted += BATCH;
                let next = self.submitted % RING * 32;
                self.ring.view().prefetch_write(next, BATCH * 32);
            }
            self.poll();
        }
    }

    /// Runs one batch of `operations` descriptors that ends in a Stop, from the start of the ring.
    fn run_batch(&mut self, operations: usize, length: usize) {
        for number in 0..operations {
            let last = number + 1 == operations;
            self.fill(number, if last { COMPLETED | STOP } else { 0 }, length);
        }
        self.ring.store_u32_release(WRITEBACK, 0).expect("inside the ring");
        self.write(0x0C, 1);
        self.write(0x4088, 63);
        self.write(0x04, 0x0400_0001);
        while self.ring.load_u32_acquire(WRITEBACK).expect("inside the ring") != operations as u32 {}
    }
}

/// Duration of each measurement, and which figures are selected.
struct Span {
    each: Duration,
    only: String,
}

impl Span {
    fn of(&self, name: &str) -> Option<Duration> {
        name.contains(&self.only).then_some(self.each)
    }
}

/// Runs bursts of `operations` for `span` and prints the median and the fastest.
fn rate(name: &str, span: &Span, operations: usize, mut burst: impl FnMut(usize)) {
    let Some(span) = span.of(name) else { return };
    let began = Instant::now();
    let mut spans = Vec::new();
    burst(operations);
    while spans.is_empty() || began.elapsed() < span {
        let start = Instant::now();
        burst(operations);
        spans.push(start.elapsed().as_secs_f64() * 1e9 / operations as f64);
    }
    let (least, half) = (quantile(&mut spans, 0.0), quantile(&mut spans, 0.5));
    println!("{name:<44} {half:8.1} ns, minimum {least:6.1} ns = {:6.1} M/s", 1e3 / least);
}

/// Measures the duration of `once`, with `pause` between repetitions.
fn latency(name: &str, span: &Span, pause: Duration, mut once: impl FnMut()) {
    let Some(span) = span.of(name) else { return };
    let began = Instant::now();
    let mut spans = Vec::new();
    while spans.is_empty() || began.elapsed() < span {
        let done = Instant::now();
        while done.elapsed() < pause {}
        let start = Instant::now();
        once();
        spans.push(start.elapsed().as_secs_f64() * 1e9);
    }
    let [least, half, most] = [0.0, 0.5, 0.99].map(|part| quantile(&mut spans, part));
    println!("{name:<44} p50 {half:8.0} ns, p99 {most:8.0} ns, minimum {least:6.0} ns");
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let cpus = arguments.next().unwrap_or_else(|| "0,1".into());
    let (host, card) = cpus.split_once(',').expect("two CPUs: host,card");
    let (host, card): (usize, usize) = (host.parse().expect("a CPU"), card.parse().expect("a CPU"));
    let span = arguments.next().map_or(1.0, |text| text.parse().expect("seconds"));
    let span = Span { each: Duration::from_secs_f64(span), only: arguments.next().unwrap_or_default() };
    pin(host);
    println!("one way {:.0} ns", one_way(host, card));

    let mut channel = Channel::new(card, Duration::MAX);
    rate("idle round", &span, 20_000, |rounds| {
        let until = channel.network.idle_rounds() + rounds as u64;
        // Polling disturbs the worker little, and not at all during this sleep.
        while channel.network.idle_rounds() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    });

    let read = || {
        channel.dma.read32(BarOffset::new(0x40)).expect("a register");
    };
    latency("register read, back to back", &span, Duration::ZERO, read);
    latency("register read after a pause", &span, Duration::from_micros(2), read);
    rate("posted write, back to back", &span, 20_000, |operations| {
        (0..operations).for_each(|_| channel.write(0x88, 0x10_0800));
    });
    channel.start_credits();
    latency("posted credit to write-back, 64 B", &span, Duration::ZERO, || {
        channel.fill(channel.submitted, COMPLETED, 64);
        channel.write(0x408C, 1);
        channel.submitted += 1;
        while channel.completed < channel.submitted {
            channel.poll();
        }
    });
    channel.submitted = channel.completed;
    // Batches start at multiples of their size.
    while !channel.submitted.is_multiple_of(BATCH) {
        channel.fill(channel.submitted, COMPLETED, 64);
        channel.write(0x408C, 1);
        channel.submitted += 1;
    }
    while channel.completed < channel.submitted {
        channel.poll();
    }
    // Short bursts: most of them are not interrupted by other programs.
    for (length, operations) in [(64, 32_000), (512, 16_000), (4096, 2560), (65_536, 160)] {
        rate(&format!("credit mode, depth {DEPTH}, {length} B"), &span, operations, |operations| {
            channel.throughput(operations, length);
        });
    }
    drop(channel);
    let mut channel = Channel::new(card, Duration::MAX);
    channel.set_up();
    rate("batches of 256, 64 B", &span, 256 * 40, |operations| {
        (0..operations / 256).for_each(|_| channel.run_batch(256, 64));
    });
    latency("batch of one (3 writes) to write-back, 64 B", &span, Duration::ZERO, || {
        channel.run_batch(1, 64)
    });
    channel.data.fill(0, 1, 0).expect("all of it");
    let mut sleepy = Channel::new(card, Duration::ZERO);
    sleepy.set_up();
    latency("the same, with the network asleep", &span, Duration::ZERO, || sleepy.run_batch(1, 64));
    // Simulated networks that never sleep would disturb the next measurement.
    drop((channel, sleepy));
    println!("one way {:.0} ns", one_way(host, card));
}
