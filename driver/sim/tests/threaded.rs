//! Cards that work on their own thread, through the backend that drivers use.
#![expect(clippy::unwrap_used, reason = "a test's preparation either works or is the failure")]

use fpga_card::AccessLog;
use fpga_pci::{Backend, Bar, DmaAccess, HugePages, MmioError, ResetLevel, SharedMemory};
use fpga_registers::{BarOffset, CardAddr, Iova};
use fpga_sim::{SimBackend, SimNetwork, SimNetworkError, ThreadOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DMA: u8 = 1;
const RING: u64 = 0x10_0000;
const DATA: u64 = 0x80_0000;
const WRITEBACK: usize = 0x8000;
/// Timeout far above the duration of any operation here, also on a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(120);
const H2C: u64 = 0;
const C2H: u64 = 0x1000;

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG_TIMEOUT, "timed out: not {what}");
        std::thread::yield_now();
    }
}

fn memory(length: usize) -> SharedMemory {
    SharedMemory::anonymous(length, HugePages::No).unwrap()
}

fn threaded(spin: Duration) -> SimNetwork {
    SimNetwork::builder().cards(1).threaded(ThreadOptions::default().spin(spin)).build().unwrap()
}

fn write(bar: &Bar, at: u64, value: u32) {
    bar.write32(BarOffset::new(at), value).unwrap();
}

fn read(bar: &Bar, at: u64) -> u32 {
    bar.read32(BarOffset::new(at)).unwrap()
}

fn low(address: u64) -> u32 {
    u32::try_from(address & 0xFFFF_FFFF).unwrap()
}

/// One card with a mapping for descriptors and write-backs and one for data.
struct TestBed {
    card: Arc<SimBackend>,
    dma: Bar,
    ring: SharedMemory,
    data: SharedMemory,
}

impl TestBed {
    fn new(network: &SimNetwork) -> Self {
        let card = network.backend(0);
        card.set_bus_master(true).unwrap();
        let (ring, data) = (memory(0x1_0000), memory(1 << 20));
        card.map_dma(Iova::new(RING), &ring, DmaAccess::Both).unwrap();
        card.map_dma(Iova::new(DATA), &data, DmaAccess::Both).unwrap();
        let dma = card.open_bar(DMA).unwrap();
        Self { card, dma, ring, data }
    }

    /// Descriptor `number`, with control bits `flags`, linked to `next`.
    fn descriptor(&self, number: usize, flags: u32, length: u32, from: u64, to: u64, next: u64) {
        let words = [
            0xAD4B << 16 | flags,
            length,
            low(from),
            low(from >> 32),
            low(to),
            low(to >> 32),
            low(next),
            low(next >> 32),
        ];
        self.ring.store_words(number * 32, words).unwrap();
    }

    /// Starts channel 0 of direction `base` at descriptor `number`.
    fn start(&self, base: u64, number: usize) {
        let place = WRITEBACK + usize::from(base != H2C) * 64;
        self.ring.store_u32_release(place, 0).unwrap();
        for (at, value) in [
            (0x0C, 1),
            (0x88, low(RING + place as u64)),
            (0x8C, 0),
            (0x4080, low(RING + number as u64 * 32)),
            (0x4084, 0),
            (0x4088, 0),
            (0x04, 0x04F8_3E1F),
        ] {
            write(&self.dma, base + at, value);
        }
    }

    fn completed(&self, base: u64) -> u32 {
        let place = WRITEBACK + usize::from(base != H2C) * 64;
        self.ring.load_u32_acquire(place).unwrap()
    }
}

/// A chain is executed while both directions and register accesses of other threads continue.
#[test]
fn threaded_threads_share_card() {
    const LENGTH: usize = 40_000;
    const ROUNDS: usize = 60;
    let network = threaded(Duration::from_micros(50));
    let bed = TestBed::new(&network);
    let run = |base: u64, first: usize, from: [u64; 2], to: [u64; 2]| {
        let length = u32::try_from(LENGTH).unwrap();
        for round in 0..ROUNDS {
            let (from, to) = (from[round % 2], to[round % 2]);
            bed.descriptor(first, 0, length / 2, from, to, RING + 32 * (first as u64 + 1));
            bed.descriptor(first + 1, 0x13, length / 2, from + 20_000, to + 20_000, 0);
            bed.start(base, first);
            until("done", || bed.completed(base) == 2);
        }
    };
    bed.data.fill(0, LENGTH, 0x11).unwrap();
    bed.data.fill(100_000, LENGTH, 0x22).unwrap();
    network.with_card(0, |card| card.poke(CardAddr::new(0x10_0000), &[0x33; LENGTH])).unwrap().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| run(H2C, 0, [DATA, DATA + 100_000], [0, 0x2_0000]));
        let other = scope.spawn(|| run(C2H, 4, [0x10_0000; 2], [DATA + 300_000, DATA + 400_000]));
        scope.spawn(|| {
            let mut value = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                write(&bed.dma, 0x2080, value);
                assert_eq!(read(&bed.dma, 0x2080), value & 0x1F1F_1F1F);
            }
        });
        let ended = [busy.join(), other.join()];
        stop.store(true, Ordering::Relaxed);
        let [_, _] = ended.map(Result::unwrap);
    });
    let mut bytes = vec![0; LENGTH];
    for (at, value) in [(0, 0x11), (0x2_0000, 0x22)] {
        network.with_card(0, |card| card.peek(CardAddr::new(at), &mut bytes)).unwrap().unwrap();
        assert!(bytes.iter().all(|byte| *byte == value));
    }
    for at in [300_000, 400_000] {
        bed.data.read(at, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0x33));
    }
}

#[test]
fn threaded_writes_arrive_in_order_before_reads() {
    const THREADS: u64 = 4;
    const EACH: u32 = 3000;
    let network = threaded(Duration::from_micros(50));
    let bed = TestBed::new(&network);
    let entries = usize::try_from(THREADS).unwrap() * EACH as usize * 2;
    network.with_card(0, |card| card.set_access_log(AccessLog::bounded(entries)));
    // Write-back and descriptor addresses hold the written values.
    let registers = [0x88, 0x1088, 0x4080, 0x5080];
    std::thread::scope(|scope| {
        for at in registers {
            let dma = &bed.dma;
            scope.spawn(move || {
                for n in 0..EACH {
                    write(dma, at, n << 5);
                    // Only sometimes, so that there are writes in flight as well.
                    if n % 64 == low(at) >> 8 {
                        assert_eq!(read(dma, at), n << 5);
                    }
                }
            });
        }
    });
    network.step_until_idle();
    let log = network.with_card(0, |card| card.set_access_log(AccessLog::Off)).unwrap();
    let AccessLog::Bounded { entries, .. } = log else { panic!("a bounded log was set") };
    for at in registers {
        let written: Vec<_> = entries
            .iter()
            .filter(|entry| entry.write && entry.offset == at)
            .map(|entry| entry.value)
            .collect();
        assert_eq!(written, (0..EACH).map(|n| u64::from(n) << 5).collect::<Vec<_>>(), "{at:#x}");
        assert_eq!(read(&bed.dma, at), (EACH - 1) << 5);
    }
}

#[test]
fn threaded_write_queue_full_blocks_until_space() {
    let network = threaded(Duration::ZERO);
    let bed = TestBed::new(&network);
    network.with_card(0, |_| {
        // The worker does not get the lock meanwhile.
        for n in 0..100 {
            write(&bed.dma, 0x88, n << 5);
        }
    });
    for n in 0..100_000 {
        write(&bed.dma, 0x1088, n << 5);
    }
    assert_eq!([read(&bed.dma, 0x88), read(&bed.dma, 0x1088)], [99 << 5, 99_999 << 5]);
    assert_eq!(bed.card.counters().unwrap().mmio_writes, 100_100);
}

/// Two descriptors that link to each other, without a Stop: the engine never ends by itself.
fn endless(bed: &TestBed, base: u64, from: u64, to: u64) {
    bed.descriptor(8, 0x2, 4096, from, to, RING + 9 * 32);
    bed.descriptor(9, 0x2, 4096, from, to, RING + 8 * 32);
    bed.start(base, 8);
    until("running", || bed.completed(base) > 2);
}

#[test]
fn threaded_unmapped_memory_is_not_accessed() {
    let network = threaded(Duration::from_micros(50));
    let bed = TestBed::new(&network);
    let target = Iova::new(0x4000_0000);
    network.with_card(0, |card| card.poke(CardAddr::ZERO, &[0xEE; 4096])).unwrap().unwrap();
    for round in 0..200 {
        let page = memory(4096);
        bed.card.map_dma(target, &page, DmaAccess::WriteByDevice).unwrap();
        if round == 0 {
            endless(&bed, C2H, 0, target.get());
        }
        until("written", || page.load_u32(4092).unwrap() == 0xEEEE_EEEE);
        bed.card.unmap_dma(target, 4096).unwrap();
        page.fill(0, 4096, 0).unwrap();
        // The card continues, for some descriptors at least.
        let before = bed.completed(C2H);
        until("continued", || bed.completed(C2H).wrapping_sub(before) & 0xFF_FFFF > 3);
        let mut bytes = [1; 4096];
        page.read(0, &mut bytes).unwrap();
        assert!(bytes == [0; 4096], "round {round}");
    }
}

#[test]
fn threaded_reset_discards_writes_of_other_threads() {
    let network = threaded(Duration::from_micros(50));
    let bed = TestBed::new(&network);
    for round in 0..100 {
        let dma = bed.card.open_bar(DMA).unwrap();
        let began = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    match dma.write32(BarOffset::new(0x88), 0x20) {
                        Ok(()) => began.store(true, Ordering::Relaxed),
                        Err(error) => return assert!(matches!(error, MmioError::Stale { .. }), "{error}"),
                    }
                }
            });
            until("started", || began.load(Ordering::Relaxed));
            bed.card.reset(ResetLevel::Hot).unwrap();
        });
        assert!(matches!(dma.read32(BarOffset::new(0x88)), Err(MmioError::Stale { .. })));
        assert_eq!(read(&bed.card.open_bar(DMA).unwrap(), 0x88), 0, "round {round}");
    }
}

#[test]
fn threaded_busy_network_ends_with_last_handle() {
    for _ in 0..20 {
        let network = threaded(Duration::MAX);
        let bed = TestBed::new(&network);
        endless(&bed, H2C, DATA, 0);
        drop(network);
        let TestBed { card, dma, ring, data } = bed;
        drop(card);
        // Without its backend the card has neither mappings nor bus mastering, but registers.
        assert_eq!(read(&dma, 0x2000) >> 16, 0x1FC2);
        write(&dma, 0x88, 0x20);
        drop(dma);
        // No other user has the memory now.
        drop((ring, data));
    }
}

#[test]
fn threaded_handles_move_between_threads() {
    let network = threaded(Duration::ZERO);
    let bed = TestBed::new(&network);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (network, dma) = (network.clone(), bed.dma.clone());
            scope.spawn(move || {
                write(&dma, 0x88, 0x20);
                drop(network);
            });
        }
        scope.spawn(move || drop(bed));
        scope.spawn(move || drop(network));
    });
}

#[test]
fn threaded_interrupt_wait_uses_event_fd() {
    let network = threaded(Duration::ZERO);
    let bed = TestBed::new(&network);
    let interrupts = bed.card.enable_interrupts(4).unwrap();
    let vector = interrupts.get(2).unwrap();
    write(&bed.dma, 0x90, 0x00F8_3E1E);
    write(&bed.dma, 0x20A0, 2);
    write(&bed.dma, 0x2014, 1);
    bed.descriptor(0, 0x13, 64, DATA, 0, 0);
    for _ in 0..300 {
        bed.start(H2C, 0);
        assert_eq!(bed.card.wait_interrupt(vector, LONG_TIMEOUT).unwrap(), Some(1));
        // Clears the status, and thereby the line.
        assert_eq!(read(&bed.dma, H2C + 0x44), 0b110);
    }
    assert_eq!(bed.card.wait_interrupt(vector, Duration::ZERO).unwrap(), None);
}

#[test]
fn threaded_time_is_monotonic_clock() {
    let network = threaded(Duration::from_micros(50));
    let card = network.backend(0);
    let (began, before) = (Instant::now(), card.now());
    card.relax();
    assert!(!network.step(), "a step of the caller does no work");
    network.advance(fpga_protocol::Nanos::from_millis(2));
    let (passed, bound) = (card.now() - before, began.elapsed().as_nanos());
    assert!((2_000_000..=bound).contains(&passed.into()), "{passed} ns of {bound}");
}

#[test]
fn threaded_invalid_cpu_is_reported() {
    let options = ThreadOptions::default();
    let error = SimNetwork::builder().cards(1).threaded(options.pin(usize::MAX)).build().unwrap_err();
    assert!(matches!(error, SimNetworkError::Affinity { cpu: usize::MAX, .. }), "{error}");
    // Any CPU of this process will do; the network must not restrict which.
    let anywhere =
        (0..1024).find_map(|cpu| SimNetwork::builder().cards(1).threaded(options.pin(cpu)).build().ok());
    assert_eq!(anywhere.unwrap().step_until_idle(), 0);
}
