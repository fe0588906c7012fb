//! Waits: by polling first, by interrupt, by a file descriptor among others.

use core::time::Duration;
use std::os::fd::AsFd;

use fpga_driver::{Card, ChannelEvents, WaitMode};
use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;
use fpga_tests::cards::{network, open, with_channels};
use fpga_tests::fault_injecting::FaultInjectingBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

fn hybrid(spin: Duration) -> WaitOptions {
    WaitOptions::default().mode(WaitMode::Hybrid { spin })
}

fn interrupts(bed: &TestBed) -> u64 {
    bed.card.counters().unwrap().interrupts
}

#[test]
fn hybrid_wait_short_transfer_spins_long_transfer_sleeps() {
    for setup in SETUPS {
        let mut bed = TestBed::with_interrupts(setup);
        let memory = bed.register_memory(4 << 20);
        let spin = hybrid(Duration::from_micros(20));
        let before = bed.card.counters().unwrap();
        for n in 0..20 {
            let ticket = bed.channel.submit_at(memory, n * 100, 100, CardAddr::ZERO).unwrap();
            bed.channel.wait_ended(ticket, spin).unwrap();
        }
        let after = bed.card.counters().unwrap();
        assert_eq!((after.interrupts, after.mmio_reads), (0, before.mmio_reads), "{setup:?}");
        // 64 pages of 64 KiB: more than the card moves within the spin time.
        for n in 1..=5 {
            let data = bytes(n, 4 << 20);
            let at = CardAddr::new(n << 24);
            bed.put(memory, 0, at, &data);
            let ticket = bed.channel.submit_at(memory, 0, 4 << 20, at).unwrap();
            let before = bed.card.counters().unwrap();
            bed.channel.wait_ended(ticket, hybrid(Duration::from_nanos(300))).unwrap();
            let after = bed.card.counters().unwrap();
            assert_eq!(interrupts(&bed), n, "{setup:?}");
            assert!(after.mmio_reads - before.mmio_reads <= 1, "{setup:?}");
            assert!(bed.arrived(memory, 0, at, 4 << 20) == data, "{setup:?}");
        }
        // Later short transfers need no sleep, and cause no interrupt.
        for _ in 0..20 {
            let ticket = bed.channel.submit_at(memory, 0, 100, CardAddr::ZERO).unwrap();
            bed.channel.wait_ended(ticket, spin).unwrap();
        }
        assert_eq!(interrupts(&bed), 5, "{setup:?}");
    }
}

/// A batch that reports only at its end, long after the driver has read the registers because of missing progress.
#[test]
fn wait_slow_batch_reports_no_fault() {
    for setup in SETUPS {
        for mode in [WaitMode::Poll, WaitMode::Interrupt, WaitMode::Hybrid { spin: Duration::from_millis(8) }]
        {
            // Ten microseconds per descriptor.
            let builder = SimNetwork::builder().card(with_channels(1, 1));
            let builder = builder.time(Nanos::from_micros(10), Nanos::from_micros(10)).units_per_relax(1);
            let network = builder.build().unwrap();
            let card = open(&network);
            card.enable_interrupts().unwrap();
            let mut bed =
                TestBed::on(network, card, setup, setup.options().descriptors(2048).transfers(1024));
            let memory = bed.register_memory(1 << 16);
            let data = bytes(3, 1 << 16);
            bed.put(memory, 0, CardAddr::ZERO, &data);
            let last = (0..1024)
                .map(|n| bed.channel.submit_at(memory, n * 64, 64, CardAddr::new(n as u64 * 64)).unwrap())
                .last();
            bed.channel.wait_ended(last.unwrap(), WaitOptions::default().mode(mode)).unwrap();
            assert!(bed.completions().is_empty(), "{setup:?} {mode:?}");
            assert!(bed.arrived(memory, 0, CardAddr::ZERO, 1 << 16) == data, "{setup:?} {mode:?}");
        }
    }
}

/// An engine that was stopped and restarted still interrupts.
#[test]
fn interrupt_wait_works_between_cancels() {
    for setup in SETUPS {
        let mut bed = TestBed::with_interrupts(setup);
        let memory = bed.register_memory(1 << 20);
        let mut rng = TestRng::new(9);
        let interrupt = WaitOptions::default().mode(WaitMode::Interrupt);
        let mut cancelled = 0;
        for _ in 0..100 {
            let tickets = [0, 1, 2].map(|n| bed.channel.submit_at(memory, n, 5000, CardAddr::ZERO).unwrap());
            if rng.below(3) != 0 {
                bed.channel.poll().unwrap();
                bed.step(rng.below(4));
            }
            cancelled += usize::from(bed.channel.cancel(rng.one_of(&tickets)).unwrap());
            bed.channel.wait_ended(tickets[2], interrupt).unwrap();
        }
        assert!(cancelled > 50);
        assert_eq!(bed.completions().len(), cancelled, "{setup:?}");
        // All of them were found by their interrupt, none by the poll after the sleep's timeout.
        assert!(bed.network.now() < Nanos::from_millis(100), "{setup:?}: {:?}", bed.network.now());
    }
}

/// A completion that has arrived is not lost because of a register that cannot be written.
#[test]
fn wait_completion_survives_register_write_failure() {
    for setup in SETUPS {
        let network = network(with_channels(1, 1));
        let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
        let card = Card::from_backend(backend.clone()).unwrap();
        card.enable_interrupts().unwrap();
        let mut channel = setup.take(&card, 0, setup.options()).unwrap();
        let ticket = channel.submit(card.buffer(1 << 20).unwrap(), CardAddr::ZERO).unwrap();
        channel.arm().unwrap();
        channel.poll().unwrap();
        network.step_until_idle();
        backend.refuse_writes(true);
        let done = channel.wait(ticket, hybrid(Duration::from_millis(1))).unwrap();
        assert_eq!((done.outcome, done.buffer.map(|buffer| buffer.len())), (Ok(1 << 20), Some(1 << 20)));
        backend.refuse_writes(false);
    }
}

fn readable(events: &ChannelEvents) -> bool {
    let descriptor = events.as_fd();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&now)).unwrap() == 1
}

/// An event loop: sleep on the event fd, collect, arm, poll until nothing ends, sleep again. No transfer may end without a wake-up,
/// including those that end between arming and sleeping.
#[test]
fn channel_event_loop_never_sleeps_over_completion() {
    for setup in SETUPS {
        for seed in 0..20 {
            let mut bed = TestBed::with_interrupts(setup);
            let memory = bed.register_memory(1 << 16);
            let events = bed.channel.events().unwrap();
            let mut rng = TestRng::new(seed);
            let (mut submitted, mut ended) = (0, 0);
            while submitted < 300 {
                for _ in 0..rng.below(6) {
                    submitted += 1;
                    let length = rng.one_of(&[1, 64, 4096, 5000]);
                    bed.channel.submit_at(memory, 0, length, CardAddr::ZERO).unwrap();
                }
                bed.channel.arm().unwrap();
                bed.step(rng.below(4));
                ended += bed.channel.poll().unwrap();
                bed.step(rng.below(8));
                if rng.below(2) == 0 {
                    ended += bed.channel.poll().unwrap();
                }
                if bed.channel.in_flight() == 0 {
                    continue;
                }
                // The sleep: the channel is not polled again until the event fd is readable.
                bed.network.step_until_idle();
                assert!(readable(&events), "{setup:?} seed {seed}: {submitted} submitted, {ended} ended");
                assert_ne!(events.take(), 0);
                ended += bed.channel.poll().unwrap();
            }
            while bed.channel.in_flight() > 0 {
                ended += bed.channel.poll().unwrap();
                bed.channel.relax();
            }
            assert_eq!(ended, submitted);
        }
    }
}
