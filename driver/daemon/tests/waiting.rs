//! Views whose transfers wait for the shared card.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fpga_driver::{Card, CardAddr, WaitOptions};
use fpga_sim::{AxiAccess, CardDescription, Design, DesignError, SimNetwork, ThreadOptions, Unit};
use fpgad::OwnerOptions;

use crate::{Shared, bytes};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Accesses of a card without responses, until they are released.
#[derive(Debug, Default)]
struct Held {
    waiting: VecDeque<(Unit, CardAddr)>,
    released: Vec<Unit>,
    is_open: bool,
}

/// Memory that answers when the test wants it to.
#[derive(Debug, Default)]
struct SlowMemory {
    held: Mutex<Held>,
    changed: Condvar,
}

impl SlowMemory {
    fn begin(&self, access: AxiAccess) -> Result<(), DesignError> {
        let mut held = self.held.lock().unwrap();
        if held.is_open {
            return Ok(());
        }
        held.waiting.push_back((access.unit, access.at));
        self.changed.notify_all();
        Err(DesignError::Pending)
    }

    /// Waits until `count` accesses have no response, and returns their addresses.
    fn wait_held(&self, count: usize) -> Vec<u64> {
        let held = self.held.lock().unwrap();
        let waited = self.changed.wait_timeout_while(held, TIMEOUT, |held| held.waiting.len() < count);
        let (held, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "{held:?}");
        held.waiting.iter().map(|(_, at)| at.get()).collect()
    }

    /// Answers all accesses from now on.
    fn open(&self, network: &SimNetwork) {
        let mut held = self.held.lock().unwrap();
        held.is_open = true;
        let waiting: Vec<_> = held.waiting.drain(..).map(|(unit, _)| unit).collect();
        held.released.extend(waiting);
        drop(held);
        network.continue_card(0);
    }
}

impl Design for SlowMemory {
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        into.fill(7);
        self.begin(access)
    }

    fn write(&self, access: AxiAccess, _: &[u8]) -> Result<(), DesignError> {
        self.begin(access)
    }

    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        let mut held = self.held.lock().unwrap();
        let position = held.released.iter().position(|unit| *unit == access.unit);
        let position = position.ok_or(DesignError::Pending)?;
        held.released.remove(position);
        into.fill(7);
        Ok(())
    }

    fn read_register(&self, _: u64) -> u32 {
        0x1234
    }

    fn write_register(&self, _: u64, _: u32) {}
}

fn shared(options: OwnerOptions) -> (Shared, Arc<SlowMemory>) {
    let memory = Arc::new(SlowMemory::default());
    let mut description = CardDescription::default();
    description.pci.subsystem_device = 7;
    let network = SimNetwork::builder()
        .card_with_design(description, Arc::clone(&memory) as Arc<dyn Design>)
        .threaded(ThreadOptions::default())
        .build()
        .unwrap();
    let card = Card::from_backend(network.backend(0)).unwrap();
    (Shared::serving(network, card, options), memory)
}

#[test]
fn view_that_waits_gets_interrupts_and_answers() {
    let (shared, memory) = shared(OwnerOptions::default());
    let card = shared.client();
    let line = card.user_interrupt(3).unwrap();
    let mut h2c = card.h2c(0).unwrap();
    let ticket = h2c.submit(card.buffer(100).unwrap(), CardAddr::new(0)).unwrap();
    h2c.poll().unwrap();
    memory.wait_held(1);
    for _ in 0..3 {
        shared.network.pulse_user_interrupt(0, 3).unwrap();
        assert!(line.wait(TIMEOUT).unwrap() >= 1);
    }
    // Registers of the view and of the card answer.
    assert_eq!(card.user_bar().unwrap().read32(fpga_driver::BarOffset::new(0x100)).unwrap(), 0x1234);
    assert_eq!(h2c.poll().unwrap(), 0);
    memory.open(&shared.network);
    h2c.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
}

#[test]
fn view_transfers_of_channels_overlap() {
    let (shared, memory) = shared(OwnerOptions::default());
    let card = shared.client();
    let mut channels: Vec<_> = (0..4).map(|number| card.h2c(number).unwrap()).collect();
    let tickets: Vec<_> = (0_u64..)
        .zip(&mut channels)
        .map(|(number, channel)| {
            let ticket = channel.submit(card.buffer(64).unwrap(), CardAddr::new(number << 20)).unwrap();
            channel.poll().unwrap();
            ticket
        })
        .collect();
    let mut held = memory.wait_held(4);
    held.sort_unstable();
    assert_eq!(held, [0, 1 << 20, 2 << 20, 3 << 20]);
    memory.open(&shared.network);
    for (channel, ticket) in channels.iter_mut().zip(tickets) {
        channel.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
    }
}

#[test]
fn view_parts_of_one_descriptor_overlap() {
    let (shared, memory) = shared(OwnerOptions::default());
    let card = shared.client();
    let (mut h2c, mut c2h) = (card.h2c(1).unwrap(), card.c2h(2).unwrap());
    let sent = h2c.submit(card.buffer(1 << 20).unwrap(), CardAddr::new(0)).unwrap();
    h2c.poll().unwrap();
    let mut held = memory.wait_held(4);
    held.sort_unstable();
    assert_eq!(held, [0, 0x1_0000, 0x2_0000, 0x3_0000]);
    let read = c2h.submit(card.buffer(1 << 20).unwrap(), CardAddr::new(0x100_0000)).unwrap();
    c2h.poll().unwrap();
    assert_eq!(memory.wait_held(8).iter().filter(|at| **at >= 0x100_0000).count(), 4);
    memory.open(&shared.network);
    h2c.wait(sent, WaitOptions::default()).unwrap().into_buffer().unwrap();
    let buffer = c2h.wait(read, WaitOptions::default()).unwrap().into_buffer().unwrap();
    let mut data = vec![0; 1 << 20];
    buffer.read(0, &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == 7));
}

#[test]
fn client_that_dies_while_it_waits_leaves_card_to_others() {
    let (shared, memory) = shared(OwnerOptions::default());
    // More transfers than the card's channels have buffers for.
    for _ in 0..4 {
        let card = shared.client();
        let mut channels: Vec<_> = (0..4).map(|number| card.h2c(number).unwrap()).collect();
        for channel in &mut channels {
            channel.submit(card.buffer(1 << 20).unwrap(), CardAddr::new(0)).unwrap();
            channel.poll().unwrap();
        }
        memory.wait_held(4);
        // As the end of its process: the engines do not stop before.
        std::mem::forget(channels);
        drop(card);
    }
    let card = shared.client();
    let mut c2h = card.c2h(0).unwrap();
    let ticket = c2h.submit(card.buffer(100).unwrap(), CardAddr::new(0)).unwrap();
    c2h.poll().unwrap();
    memory.open(&shared.network);
    c2h.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
    let mut h2c = card.h2c(0).unwrap();
    h2c.write(card.buffer(1 << 20).unwrap(), CardAddr::new(0)).unwrap();
}

#[test]
fn view_transfer_without_response_fails_after_timeout() {
    let timeout = Duration::from_millis(200);
    let (shared, memory) = shared(OwnerOptions { timeout, ..OwnerOptions::default() });
    let card = shared.client();
    let mut h2c = card.h2c(0).unwrap();
    let began = Instant::now();
    h2c.write(card.buffer(100).unwrap(), CardAddr::new(0)).unwrap_err();
    assert!(began.elapsed() >= timeout && began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    memory.open(&shared.network);
}

#[test]
fn client_small_transfers_pass_bulk_of_another() {
    let shared = Shared::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bulk = scope.spawn(|| {
            let card = shared.client();
            let mut channels: Vec<_> = (0..4).map(|number| card.h2c(number).unwrap()).collect();
            let mut count = 0_u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for channel in &mut channels {
                    while channel.in_flight() < 4 {
                        channel.submit(card.buffer(1 << 20).unwrap(), CardAddr::new(0)).unwrap();
                    }
                    channel.poll().unwrap();
                    while channel.next_completion().is_some() {
                        count += 1;
                    }
                }
            }
            count
        });
        let card = shared.client();
        for round in 0..200 {
            let data = bytes(64, round);
            crate::write(&card, 0, 0x400_0000, &data);
            assert_eq!(crate::read(&card, 0, 0x400_0000, 64), data);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(bulk.join().unwrap() > 0, "the other client goes on, too");
    });
}

#[test]
fn owner_that_ends_is_noticed_by_client() {
    let (mut shared, memory) = shared(OwnerOptions::default());
    let card = shared.client();
    let mut h2c = card.h2c(0).unwrap();
    let ticket = h2c.submit(card.buffer(100).unwrap(), CardAddr::new(0)).unwrap();
    h2c.poll().unwrap();
    memory.wait_held(1);
    memory.open(&shared.network);
    h2c.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
    shared.end();
    let ticket = h2c.submit(card.buffer(100).unwrap(), CardAddr::new(0)).unwrap();
    assert!(h2c.wait(ticket, WaitOptions::default()).is_err());
}
