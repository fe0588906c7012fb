//! The same cases with a card that runs in its own thread in real time: posted writes, write-backs and interrupts arrive at any time. No
//! two runs are the same; the invariants hold in all of them.

use std::os::fd::AsFd;

use fpga_driver::ChannelEvents;
use fpga_sim::CardFailure;
use fpga_tests::bed::THREADED;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::dma::{cancel, drop_and_abort, faults};

/// Lets the card work for a short time that differs from case to case.
fn run_briefly(n: usize) {
    for _ in 0..n {
        std::thread::yield_now();
    }
}

#[test]
fn threaded_cancel_keeps_invariants() {
    for setup in THREADED {
        for seed in 0..4 {
            cancel::interleaved(setup, seed);
            cancel::cancel_all(setup, seed);
        }
        for n in 0..12 {
            let kind = cancel::KINDS[n % cancel::KINDS.len()];
            cancel::cancelled_after(setup, kind, n % cancel::TRANSFERS, &|bed| {
                bed.channel.poll().unwrap();
                run_briefly(n);
            });
        }
    }
}

#[test]
fn threaded_reset_and_removal_return_buffers() {
    for setup in THREADED {
        for (n, poll_call) in drop_and_abort::POLL_CALLS.into_iter().enumerate() {
            drop_and_abort::reset(setup, poll_call, n);
            drop_and_abort::left(setup, poll_call, CardFailure::Gone, n);
            drop_and_abort::left(setup, poll_call, CardFailure::AllOnes, n);
        }
    }
}

#[test]
fn threaded_errors_in_sequence_leave_channel_usable() {
    for setup in THREADED {
        faults::bad_stream(setup);
    }
}

/// Sleeps until the event fd is readable. Returns false after a time in which every transfer ends.
fn sleep(events: &ChannelEvents) -> bool {
    let descriptor = events.as_fd();
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

/// Only the event fd wakes this loop, and the loop polls only after a wake-up: an interrupt that is lost, or that arrives before its
/// write-back, stops it for good.
#[test]
fn threaded_event_loop_misses_no_interrupt() {
    for setup in THREADED {
        let mut bed = TestBed::with_interrupts(setup);
        let memory = bed.register_memory(1 << 16);
        let events = bed.channel.events().unwrap();
        let mut rng = TestRng::new(8);
        let (mut submitted, mut ended) = (0, 0);
        while submitted < 1000 || bed.channel.in_flight() > 0 {
            for _ in 0..rng.below(6) {
                if submitted < 1000 && bed.channel.in_flight() < 200 {
                    submitted += 1;
                    let length = rng.one_of(&[1, 64, 4096, 5000]);
                    bed.channel.submit_at(memory, 0, length, CardAddr::ZERO).unwrap();
                }
            }
            ended += bed.channel.poll().unwrap();
            run_briefly(rng.below(3));
            let _ = events.take();
            bed.channel.arm().unwrap();
            ended += bed.channel.poll().unwrap();
            if bed.channel.in_flight() > 0 {
                assert!(sleep(&events), "{setup:?}: {submitted} submitted, {ended} ended, no wake-up");
            }
        }
        assert_eq!(ended, submitted);
    }
}
