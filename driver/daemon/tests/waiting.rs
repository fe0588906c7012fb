//! Views whose transfers wait for the shared card.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fpga_driver::{Card, CardAddr, ChannelOptions, RunMode, WaitOptions, bulk};
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

    /// Answers the accesses that have no response.
    fn release(&self, network: &SimNetwork) {
        let mut held = self.held.lock().unwrap();
        let waiting: Vec<_> = held.waiting.drain(..).map(|(unit, _)| unit).collect();
        held.released.extend(waiting);
        drop(held);
        network.continue_card(0);
    }

    /// Answers all accesses from now on.
    fn open(&self, network: &SimNetwork) {
        self.held.lock().unwrap().is_open = true;
        self.release(network);
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

    fn accepts_ahead(&self, unit: Unit) -> bool {
        matches!(unit, Unit::H2c(_)) && !self.held.lock().unwrap().is_open
    }

    fn write_ahead(&self, access: AxiAccess, _: &[u8]) -> bool {
        self.begin(access).is_err()
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
fn view_descriptors_of_one_channel_overlap() {
    let (shared, memory) = shared(OwnerOptions::default());
    let card = shared.client();
    let mut h2c = card.h2c(2).unwrap();
    let tickets: Vec<_> = (0..6_u64)
        .map(|number| h2c.submit(card.buffer(100).unwrap(), CardAddr::new(number << 12)).unwrap())
        .collect();
    h2c.poll().unwrap();
    assert_eq!(memory.wait_held(1), [0]);
    // The view begins later descriptors after its first access has begun.
    std::thread::sleep(Duration::from_millis(300));
    // Those begun ahead become the next run of the same channel of the card.
    memory.release(&shared.network);
    assert_eq!(memory.wait_held(3), [0x1000, 0x2000, 0x3000]);
    let units: std::collections::HashSet<_> =
        memory.held.lock().unwrap().waiting.iter().map(|(unit, _)| *unit).collect();
    assert_eq!(units.len(), 1, "{units:?}");
    assert_eq!(h2c.poll().unwrap(), 0);
    memory.open(&shared.network);
    for ticket in tickets {
        h2c.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
    }
}

#[test]
fn view_descriptors_after_a_failed_one_have_no_effect() {
    for mode in [RunMode::Batch, RunMode::Credit] {
        let shared = Shared::new();
        let card = shared.client();
        let options = ChannelOptions::default().run_mode(mode).report_each(true);
        let mut h2c = card.h2c_with(0, options).unwrap();
        let addresses = [0, 0x1000, 0x2000, 1 << 50, 0x3000, 0x4000];
        let data = bytes(500, 1);
        let tickets: Vec<_> = addresses
            .iter()
            .map(|at| h2c.submit(card.buffer_from(&data).unwrap(), CardAddr::new(*at)).unwrap())
            .collect();
        h2c.poll().unwrap();
        for (number, ticket) in tickets.into_iter().enumerate() {
            let done = h2c.wait(ticket, WaitOptions::default()).unwrap();
            assert_eq!(done.into_buffer().is_ok(), number < 3, "{mode:?}: descriptor {number}");
        }
        for (number, at) in addresses.into_iter().enumerate().filter(|(_, at)| *at < 1 << 50) {
            let expected = if number < 3 { data.clone() } else { vec![0; 500] };
            assert_eq!(crate::read(&card, 1, at, 500), expected, "{mode:?}: descriptor {number}");
        }
        // The channel goes on.
        h2c.write(card.buffer_from(&data).unwrap(), CardAddr::new(0x5000)).unwrap();
        assert_eq!(crate::read(&card, 0, 0x5000, 500), data);
    }
}

#[test]
fn view_many_descriptors_keep_order_and_count() {
    let shared = Shared::new();
    let card = shared.client();
    for mode in [RunMode::Batch, RunMode::Credit] {
        let options =
            ChannelOptions::default().run_mode(mode).report_each(true).descriptors(64).transfers(64);
        let mut h2c = card.h2c_with(1, options).unwrap();
        let mut c2h = card.c2h_with(1, options).unwrap();
        for round in 0..20_u32 {
            // All of them write to one address: the last one's data stays.
            let sent: Vec<_> = (0..32).map(|number| bytes(3000, round * 100 + number)).collect();
            for data in &sent {
                h2c.submit(card.buffer_from(data).unwrap(), CardAddr::new(0x8000)).unwrap();
            }
            let mut ended = 0;
            while ended < sent.len() {
                h2c.poll().unwrap();
                while let Some(completion) = h2c.next_completion() {
                    assert_eq!(completion.outcome.unwrap(), 3000);
                    ended += 1;
                }
                h2c.relax();
            }
            let last = sent.last().unwrap();
            let reads: Vec<_> = (0..32_usize)
                .map(|number| {
                    let at = CardAddr::new(0x8000 + number as u64 * 10);
                    (number, c2h.submit(card.buffer(1000).unwrap(), at).unwrap())
                })
                .collect();
            for (number, ticket) in reads {
                let buffer = c2h.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
                assert_eq!(buffer.to_vec(), last[number * 10..][..1000], "{mode:?}: read {number}");
            }
        }
    }
}

#[test]
fn view_stopped_run_leaves_nothing_to_the_next_one() {
    let shared = Shared::new();
    let (card, other) = (shared.client(), shared.client());
    let mut c2h = card.c2h(0).unwrap();
    for round in 0..30 {
        let data = bytes(64, round);
        crate::write(&other, 0, 0, &data);
        for _ in 0..6 {
            let _ = c2h.submit(card.buffer(64).unwrap(), CardAddr::new(0)).unwrap();
        }
        c2h.poll().unwrap();
        c2h.abort().unwrap();
        while c2h.next_completion().is_some() {}
        let data = bytes(64, round + 1000);
        crate::write(&other, 0, 0, &data);
        let buffer = c2h.read(card.buffer(64).unwrap(), CardAddr::new(0)).unwrap();
        assert_eq!(buffer.to_vec(), data, "round {round}");
    }
}

/// An idle channel writes nothing more: the stop waits for the descriptors behind the one in flight that have begun.
#[test]
fn view_stop_waits_for_descriptors_begun_ahead() {
    let (shared, memory) = shared(OwnerOptions::default());
    let card = shared.client();
    let mut h2c = card.h2c(0).unwrap();
    for number in 0..4 {
        h2c.submit(card.buffer(100).unwrap(), CardAddr::new(number * 0x1000)).unwrap();
    }
    h2c.poll().unwrap();
    memory.wait_held(1);
    let held = || memory.held.lock().unwrap().waiting.len();
    std::thread::scope(|scope| {
        let aborting = scope.spawn(|| h2c.abort());
        memory.release(&shared.network);
        // Between none and three have begun when the channel is stopped; without any, the stop ends here.
        while held() == 0 && !aborting.is_finished() {
            std::thread::yield_now();
        }
        assert!(held() == 0 || !aborting.is_finished());
        memory.open(&shared.network);
        aborting.join().unwrap().unwrap();
    });
    assert_eq!(held(), 0);
}

#[test]
fn view_fixed_address_does_not_block_other_engines() {
    let (shared, memory) = shared(OwnerOptions::default());
    let card = shared.client();
    let options = ChannelOptions::default().fixed_address(true);
    let (mut fixed, mut other) = (card.h2c_with(0, options).unwrap(), card.h2c(1).unwrap());
    let sent = fixed.submit(card.buffer(4096).unwrap(), CardAddr::new(0x40)).unwrap();
    fixed.poll().unwrap();
    memory.wait_held(1);
    let ticket = other.submit(card.buffer(100).unwrap(), CardAddr::new(0x1000)).unwrap();
    other.poll().unwrap();
    while !memory.held.lock().unwrap().waiting.iter().any(|(_, at)| at.get() == 0x1000) {
        other.relax();
    }
    assert_eq!(card.user_bar().unwrap().read32(fpga_driver::BarOffset::new(0x100)).unwrap(), 0x1234);
    memory.open(&shared.network);
    other.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
    fixed.wait(sent, WaitOptions::default()).unwrap().into_buffer().unwrap();
    let mut fixed = card.c2h_with(0, options).unwrap();
    fixed.read(card.buffer(4096).unwrap(), CardAddr::new(0x40)).unwrap();
}

#[test]
fn view_copy_engine_does_not_block_other_engines() {
    const SILENT: CardAddr = CardAddr::new(0x100_0000);
    let timeout = Duration::from_secs(2);
    let shared =
        Shared::with(CardDescription::default(), OwnerOptions { timeout, ..OwnerOptions::default() });
    shared.network.with_card(0, |model| model.silence(SILENT, 4096)).unwrap();
    let card = shared.client();
    let own = card.info().ni.as_ref().unwrap().card_ranges().first().unwrap().start;
    let mut cdma = card.cdma().unwrap();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| cdma.copy(SILENT, own, 100_000));
        let data = bytes(5000, 1);
        let mut rounds = 0;
        // The copy fails when the driver gives it up.
        while !copying.is_finished() {
            crate::write(&card, 0, 0, &data);
            assert_eq!(crate::read(&card, 1, 0, 5000), data);
            rounds += 1;
        }
        assert!(rounds > 1, "{rounds} rounds");
        copying.join().unwrap().unwrap_err();
    });
}

#[test]
fn clients_that_stop_polling_leave_card_to_others() {
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
        // Their engines go on, and their connections stay open. `hostile.rs` tests processes that end.
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
    let count = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let card = shared.client();
            let mut channels: Vec<_> = (0..4).map(|number| card.h2c(number).unwrap()).collect();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for channel in &mut channels {
                    while channel.in_flight() < 4 {
                        channel.submit(card.buffer(1 << 20).unwrap(), CardAddr::new(0)).unwrap();
                    }
                    channel.poll().unwrap();
                    while channel.next_completion().is_some() {
                        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            }
        });
        let card = shared.client();
        let began = Instant::now();
        let is_waiting =
            || count.load(std::sync::atomic::Ordering::Relaxed) == 0 && began.elapsed() < 20 * TIMEOUT;
        for round in (0..).take_while(|round| *round < 200 || is_waiting()) {
            let data = bytes(64, round);
            crate::write(&card, 0, 0x400_0000, &data);
            assert_eq!(crate::read(&card, 0, 0x400_0000, 64), data);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(count.into_inner() > 0, "the other client makes progress, too");
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

/// A read may have side effects at the card: the owner makes each once.
#[test]
fn view_transfers_move_each_byte_once() {
    let shared = Shared::new();
    let card = shared.client();
    let moved = || {
        shared.network.with_card(0, |card| [card.counters().h2c_bytes, card.counters().c2h_bytes]).unwrap()
    };
    for mode in [RunMode::Batch, RunMode::Credit] {
        let options = ChannelOptions::default().run_mode(mode);
        let (mut h2c, mut c2h) = (card.h2c_with(0, options).unwrap(), card.c2h_with(0, options).unwrap());
        for (count, length) in [(1, 1), (8, 64), (32, 3000), (8, 65_536), (5, 100_000), (2, 1 << 20)] {
            let bytes = u64::try_from(count * length).unwrap();
            let before = moved();
            let sent: Vec<_> = (0..count)
                .map(|number| {
                    let at = CardAddr::new(0x1_0010 + (number * length) as u64);
                    h2c.submit(card.buffer(length).unwrap(), at).unwrap()
                })
                .collect();
            for ticket in sent {
                h2c.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
            }
            // The card divides its time more finely beside small transfers.
            crate::write(&card, 3, 0, &[1; 64]);
            let before = [before[0] + 64, before[1]];
            let read: Vec<_> = (0..count)
                .map(|number| {
                    let at = CardAddr::new(0x1_0010 + (number * length) as u64);
                    c2h.submit(card.buffer(length).unwrap(), at).unwrap()
                })
                .collect();
            for ticket in read {
                c2h.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
            }
            let after = moved();
            let moved = [after[0] - before[0], after[1] - before[1]];
            assert_eq!(moved, [bytes; 2], "{mode:?}: {count} transfers of {length} bytes");
        }
    }
    let options = ChannelOptions::default().fixed_address(true);
    let (mut h2c, mut c2h) = (card.h2c_with(0, options).unwrap(), card.c2h_with(0, options).unwrap());
    for length in [64, 4096, 100_032] {
        let before = moved();
        h2c.write(card.buffer(length).unwrap(), CardAddr::new(0x40)).unwrap();
        c2h.read(card.buffer(length).unwrap(), CardAddr::new(0x40)).unwrap();
        let after = moved();
        let moved = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(moved, [length as u64; 2], "fixed address: {length} bytes");
    }
    drop((h2c, c2h));
    let mut c2h = card.c2h(2).unwrap();
    for length in [1, 4096, 100_000, 3 << 20] {
        let before = moved();
        crate::write(&card, 3, 0, &[1; 64]);
        let (from, mut sink) = (CardAddr::new(0x10), Vec::new());
        bulk::read_into(&card, &mut c2h, from, length, &mut sink, WaitOptions::default(), &mut |_| {})
            .unwrap();
        let after = moved();
        assert_eq!(after[1] - before[1], length, "copying read of {length} bytes");
    }
    let mut cdma = card.cdma().unwrap();
    for length in [1, 4096, 100_000, 1 << 20] {
        let before = moved();
        cdma.copy(CardAddr::new(0x10), CardAddr::new(0x100_0000), length).unwrap();
        let after = moved();
        assert_eq!([after[0] - before[0], after[1] - before[1]], [length; 2], "copy of {length} bytes");
    }
}
