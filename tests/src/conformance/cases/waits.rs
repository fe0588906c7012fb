//! Ways to wait: event descriptors, deadlines, calls that contradict the card's state.

use core::time::Duration;
use std::os::fd::AsFd;

use fpga_driver::{ChannelError, RunMode, TransferError, WaitMode};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Bench, Case, Verdict, case};
use crate::bytes;
use crate::conformance::bench::patient;

pub(super) const CASES: &[Case] = &[
    case("interrupts.descriptor_is_readable", &[], readable),
    case("interrupts.must_be_enabled", &[], must_be_enabled),
    case("interrupts.modes_follow_each_other", &[], modes),
    case("deadline.gives_the_buffer_back", &[], deadline),
    case("deadline.leaves_others_alone", &[], others),
];

/// An event loop: arm, poll, sleep on the descriptor, take. Nothing ends without a wake-up.
fn readable(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    opened.needs(64 << 10)?;
    opened.interrupts()?;
    for way in opened.ways() {
        let mut lane = opened.lane(way)?;
        let events = lane.channel.events().expect("interrupts are enabled");
        for seed in 0..10 {
            let (at, data) = (lane.at(0x1000), bytes(seed, 5000));
            let buffer = lane.buffer(at, &data);
            let ticket = lane.channel.submit(buffer, at).expect("accepted");
            let began = std::time::Instant::now();
            loop {
                let _ = events.take();
                lane.channel.arm().expect("armed");
                lane.channel.poll().expect("the channel works");
                if lane.channel.has_ended(ticket) {
                    break;
                }
                // A card inside this thread works now, one beyond the bus has worked already.
                if let Some((world, _)) = bench.simulated() {
                    world.step_until_idle();
                }
                let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
                let woken =
                    rustix::event::poll(&mut [PollFd::new(&events.as_fd(), PollFlags::IN)], Some(&limit));
                assert_eq!(woken, Ok(1), "{way:?}: the descriptor did not become readable");
                assert!(began.elapsed() < crate::PATIENCE, "{way:?}: it does not end");
            }
            let done = lane.channel.next_completion().expect("a buffer makes a completion");
            assert_eq!(done.outcome, Ok(5000));
            let buffer = done.buffer.expect("it comes back");
            assert!(lane.moved(&buffer, at, &data), "{way:?}");
        }
        lane.channel.disarm().expect("disarmed");
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn must_be_enabled(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    for way in opened.ways() {
        let mut lane = opened.lane(way)?;
        assert!(matches!(lane.channel.events(), Err(ChannelError::NoInterrupt { .. })), "{way:?}");
        assert!(matches!(lane.channel.arm(), Err(ChannelError::NoInterrupt { .. })), "{way:?}");
        let buffer = opened.card.buffer(4096).expect("DMA memory");
        let at = lane.at(0);
        let waited = lane.channel.transfer(buffer, at, patient().mode(WaitMode::Interrupt));
        match waited {
            // It had ended before there was anything to wait for.
            Ok(_) => {}
            Err(failed) => {
                let expected =
                    matches!(failed.error, TransferError::Channel(ChannelError::NoInterrupt { .. }));
                assert!(expected, "{way:?}: {failed}");
                assert!(failed.buffer.is_some(), "{way:?}: the buffer comes back");
            }
        }
        lane.assert_works(1);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn modes(bench: &mut Bench<'_>) -> Verdict {
    const SPIN: WaitMode = WaitMode::Hybrid { spin: Duration::from_micros(10) };
    let opened = bench.open();
    opened.needs(64 << 10)?;
    opened.interrupts()?;
    for way in opened.ways() {
        let mut lane = opened.lane(way)?;
        let modes = [WaitMode::Poll, WaitMode::Interrupt, SPIN];
        for (n, mode) in
            modes.into_iter().flat_map(|first| modes.map(|second| [first, second])).flatten().enumerate()
        {
            lane.check(n as u64, 20_001, 5, patient().mode(mode));
        }
    }
    opened.close();
    Ok(())
}

/// A wait that ends before its transfer stops the engine and gives the buffer back; the channel works on.
fn deadline(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    opened.needs(8 << 20)?;
    for way in opened.ways() {
        let mut lane = opened.lane_with(way, way.options().max_descriptor_length(64 << 10))?;
        for (n, limit) in [0, 1, 20, 100].into_iter().enumerate() {
            let data = bytes(n as u64, 4 << 20);
            let at = lane.at(0);
            let buffer = lane.buffer(at, &data);
            match lane.channel.transfer(buffer, at, patient().timeout(Duration::from_micros(limit))) {
                Ok(buffer) => assert!(lane.moved(&buffer, at, &data), "{way:?}: in time"),
                Err(failed) => {
                    assert!(
                        matches!(failed.error, TransferError::Channel(ChannelError::TimedOut { .. })),
                        "{way:?}: {failed}"
                    );
                    assert!(failed.buffer.is_some(), "{way:?}: the buffer comes back");
                }
            }
            assert_eq!(lane.channel.in_flight(), 0);
            lane.assert_works(n as u64);
        }
        assert_eq!(way.mode == RunMode::CreditRing, way.options().run_mode == RunMode::CreditRing);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// The transfer that is given up is one of several: the others arrive.
fn others(bench: &mut Bench<'_>) -> Verdict {
    const LENGTH: usize = 300_001;
    let opened = bench.open();
    opened.needs(8 << 20)?;
    for way in opened.ways() {
        let mut lane = opened.lane_with(way, way.options().max_descriptor_length(64 << 10))?;
        let data: Vec<_> = (0..4).map(|n| bytes(n, LENGTH)).collect();
        let places = [0, 1, 2, 3].map(|n| lane.at(n << 20));
        let buffers: Vec<_> = places.iter().zip(&data).map(|(at, data)| lane.buffer(*at, data)).collect();
        let mut tickets = Vec::new();
        for (n, buffer) in buffers.into_iter().enumerate() {
            if n == 2 {
                let given_up = lane.channel.transfer(buffer, places[n], patient().timeout(Duration::ZERO));
                if let Err(failed) = given_up {
                    assert!(failed.buffer.is_some(), "{way:?}: {failed}");
                }
            } else {
                tickets.push((n, lane.channel.submit(buffer, places[n]).expect("accepted")));
            }
        }
        for (n, ticket) in tickets {
            let done = lane.channel.wait(ticket, patient()).expect("it ends");
            assert_eq!(done.outcome, Ok(LENGTH as u64), "{way:?}: transfer {n}");
            let buffer = done.buffer.expect("it comes back");
            assert!(lane.moved(&buffer, places[n], &data[n]), "{way:?}: transfer {n}");
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}
