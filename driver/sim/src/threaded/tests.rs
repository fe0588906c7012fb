//! Tests that need internal access: sleep and wake-up, where a lost wake-up would hang, and a worker that has ended.
#![cfg(not(loom))]

use super::ThreadOptions;
use crate::{SimBackend, SimNetwork};
use fpga_pci::{Backend, Bar, DmaAccess, HugePages, SharedMemory};
use fpga_registers::{BarOffset, Iova};
use std::sync::Arc;
use std::time::{Duration, Instant};

const IOVA: u64 = 0x10_0000;
/// Timeout far above the duration of any operation here, also on a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until `is_so`, and fails after a timeout.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG_TIMEOUT, "timed out: not {what}");
        std::thread::yield_now();
    }
}

fn network(spin: Duration) -> SimNetwork {
    SimNetwork::builder().cards(1).threaded(ThreadOptions::default().spin(spin)).build().unwrap()
}

fn write(bar: &Bar, at: u64, value: u32) {
    bar.write32(BarOffset::new(at), value).unwrap();
}

/// H2C channel that moves 64 bytes for a few posted writes and reports the completion in host memory.
struct TestBed {
    card: Arc<SimBackend>,
    dma: Bar,
    host: SharedMemory,
}

impl TestBed {
    fn new(network: &SimNetwork) -> Self {
        let card = network.backend(0);
        card.set_bus_master(true).unwrap();
        let host = SharedMemory::anonymous(8192, HugePages::No).unwrap();
        card.map_dma(Iova::new(IOVA), &host, DmaAccess::Both).unwrap();
        host.store_words(0, [0xAD4B_0013, 64, 0x10_1000, 0, 0, 0, 0, 0]).unwrap();
        let dma = card.open_bar(1).unwrap();
        for (at, value) in [(0x88, 0x10_0800), (0x8C, 0), (0x4080, 0x10_0000), (0x4084, 0), (0x4088, 0)] {
            write(&dma, at, value);
        }
        Self { card, dma, host }
    }

    fn start(&self) {
        self.host.store_u32_release(0x800, 0).unwrap();
        write(&self.dma, 0x0C, 1);
        write(&self.dma, 0x04, 0x04F8_3E1F);
    }

    fn is_done(&self) -> bool {
        self.host.load_u32_acquire(0x800).unwrap() & 0xFF_FFFF == 1
    }
}

#[test]
fn worker_asleep_is_woken_every_time() {
    let network = network(Duration::ZERO);
    let bed = TestBed::new(&network);
    let gate = &network.threaded().unwrap().gate;
    for round in 0..4000 {
        // Asleep, going to sleep, or any state between.
        if round % 2 == 0 {
            until("asleep", || gate.is_parked());
        }
        bed.start();
        until("woken", || bed.is_done());
    }
}

#[test]
fn waiting_thread_and_worker_share_the_work() {
    let network = network(Duration::ZERO);
    let bed = TestBed::new(&network);
    let gate = &network.threaded().unwrap().gate;
    for round in 0..4000 {
        if round % 2 == 0 {
            until("asleep", || gate.is_parked());
        }
        bed.start();
        // The lock alternates between the threads.
        until("done", || {
            network.work_for_thread();
            bed.is_done()
        });
    }
    // The worker must not be asleep with work to do.
    bed.start();
    until("woken", || bed.is_done());
}

#[test]
fn worker_asleep_is_woken_by_lock_holder() {
    let network = network(Duration::ZERO);
    let bed = TestBed::new(&network);
    let gate = &network.threaded().unwrap().gate;
    for _ in 0..500 {
        // The descriptor needs bus mastering, which a configuration write switches on.
        bed.card.set_bus_master(false).unwrap();
        network.step_until_idle();
        until("asleep", || gate.is_parked());
        bed.host.store_u32_release(0x800, 0).unwrap();
        bed.card.set_bus_master(true).unwrap();
        // 64 bits wide: under the lock.
        bed.dma.write64(BarOffset::new(0x88), 0x10_0800).unwrap();
        until("asleep", || gate.is_parked());
        bed.start();
        until("woken", || bed.is_done());
        until("asleep", || gate.is_parked());
        assert_eq!(network.step_until_idle(), 0, "no work remained");
    }
}

#[test]
fn worker_panic_does_not_block_callers() {
    let network = network(Duration::from_micros(50));
    let bed = TestBed::new(&network);
    bed.start();
    until("done", || bed.is_done());
    network.lock().panics = true;
    until("gone", || !network.threaded().unwrap().gate.is_alive());
    // No worker runs, but every access gets an answer; more writes than the queue holds are accepted as well.
    for n in 0..3000 {
        write(&bed.dma, 0x4080, n);
    }
    assert_eq!(bed.dma.read32(BarOffset::new(0x4080)).unwrap(), 2999);
    assert_eq!(network.step_until_idle(), 0);
    bed.card.unmap_dma(Iova::new(IOVA), 8192).unwrap();
    assert_eq!(network.mapped_bytes(0), 0);
}

#[test]
fn posted_write_before_reset_does_not_arrive_after() {
    let network = network(Duration::from_micros(50));
    let bed = TestBed::new(&network);
    let threaded = network.threaded().unwrap();
    {
        // A reset between the check of the generation and the queue, as if the thread had lost its CPU there.
        let mut state = network.lock();
        let slot = state.slots.first_mut().unwrap();
        slot.generation += 1;
        threaded.post(0, 1, 0, 0x90, 6).unwrap().unwrap();
        threaded.set_generation(0, 1);
    }
    network.step_until_idle();
    let mut value = [0; 4];
    network.with_card(0, |card| card.bar_peek(1, 0x90, &mut value));
    assert_eq!(value, [0; 4]);
    assert!(bed.dma.write32(BarOffset::new(0x90), 6).is_err());
    threaded.post(0, 1, 1, 0x90, 6).unwrap().unwrap();
    network.with_card(0, |card| card.bar_peek(1, 0x90, &mut value));
    assert_eq!(value, [6, 0, 0, 0]);
}

#[test]
fn attended_card_works_in_polling_loop_and_without_one() {
    let options = ThreadOptions::default().attended(true);
    let network = SimNetwork::builder().cards(1).threaded(options).build().unwrap();
    let bed = TestBed::new(&network);
    let gate = &network.threaded().unwrap().gate;
    for _ in 0..200 {
        until("asleep", || gate.is_parked());
        bed.start();
        until("done", || {
            bed.card.relax();
            bed.is_done()
        });
    }
    // No thread polls: the worker looks by itself.
    for _ in 0..20 {
        bed.start();
        until("done", || bed.is_done());
    }
}
