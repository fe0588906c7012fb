//! Ways to wait: event descriptors, deadlines, calls that contradict the card's state.

use core::time::Duration;
use std::os::fd::AsFd;

use fpga_driver::endpoint::{EndpointError, SendOptions};
use fpga_driver::{CardRange, ChannelError, Endpoint, OpenOptions, RunMode, TransferError, WaitMode};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Bench, Case, Verdict, case};
use crate::bytes;
use crate::cards::DMA_BAR;
use crate::conformance::Skip;
use crate::conformance::bench::{Opened, patient};
use crate::conformance::builds::LEGACY_LINE;

pub(super) const CASES: &[Case] = &[
    case("interrupts.descriptor_is_readable", &[], readable),
    case("interrupts.must_be_enabled", &[], must_be_enabled),
    case("interrupts.modes_follow_each_other", &[], modes),
    case("interrupts.endpoints_sleep", &[], endpoints_sleep),
    case("interrupts.endpoints_sleep_on_a_line", &[], on_a_line),
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

/// Whoever waits for the network looks for a moment, and then sleeps until the card interrupts: nothing else ends its waits here.
fn endpoints_sleep(bench: &mut Bench<'_>) -> Verdict {
    sleeps(bench.open())
}

/// Without an MSI-X table nothing shows which BAR is the core's.
fn on_a_line(bench: &mut Bench<'_>) -> Verdict {
    bench.on(&LEGACY_LINE, |bench| sleeps(bench.open_with(OpenOptions::default().dma_bar(DMA_BAR))))
}

fn sleeps(opened: Opened) -> Verdict {
    const LENGTH: usize = 300_001;
    opened.needs(4 << 20)?;
    opened.interrupts()?;
    let mut end = match Endpoint::open(&opened.card) {
        Ok(end) => end,
        Err(error @ EndpointError::NoInterface { .. }) => return Err(Skip(error.to_string())),
        Err(error) => panic!("{error}"),
    };
    let data = bytes(1, LENGTH);
    let mut buffer = opened.card.buffer_from(&data).expect("DMA memory");
    buffer = end.write(buffer, opened.at(0)).expect("card memory takes it");
    let region = end.open_region(end.node(), CardRange::new(opened.at(2 << 20), 1 << 20)).expect("a region");
    // The first one fetches events where the interface cannot push them.
    let last = opened.card.info().xdma.c2h_channels.saturating_sub(1);
    let Ok(mut back) = opened.card.c2h(last) else {
        return Err(Skip("no channel to check by beside the endpoint's".to_owned()));
    };
    // The time after which a new life sends has to pass first: no interrupt ends that.
    let carry = |end: &mut Endpoint| {
        let options = SendOptions::default();
        let ticket = end.send(opened.at(0), &region.remote, 0, LENGTH as u64, options).expect("accepted");
        assert_eq!(end.wait(ticket, crate::PATIENCE).expect("it ends").result, Ok(()));
        let notice = end.wait_notification(crate::PATIENCE).expect("it has arrived");
        assert_eq!(notice.length, LENGTH as u64);
    };
    carry(&mut end);
    // Nothing comes, and the time is over: one sleep, or a few where the longest one is shorter than that.
    let (turns, sleeps, traffic) = (end.counters().turns, opened.seam.sleeps(), opened.seam.traffic());
    let late = end.wait_notification(Duration::from_millis(150));
    assert!(matches!(late, Err(EndpointError::NoArrival { .. })), "{late:?}");
    let sleeps = opened.seam.sleeps() - sleeps;
    assert!((1..=5).contains(&sleeps), "{sleeps} sleeps");
    let looks = end.counters().turns - turns;
    assert!(looks <= 2000, "{looks} looks at nothing");
    let writes = opened.seam.traffic().writes - traffic.writes;
    assert!(writes <= 4 * sleeps, "{writes} register writes for {sleeps} sleeps");
    opened.seam.sleep_on(true);
    for _ in 0..20 {
        carry(&mut end);
    }
    opened.seam.sleep_on(false);
    assert_eq!(opened.seam.overslept(), 0, "somebody slept though there was news");
    buffer.fill(0);
    buffer = back.read(buffer, opened.at(2 << 20)).expect("card memory gives it");
    assert!(buffer.to_vec() == data, "what has arrived is not what was sent");
    drop((buffer, back, end));
    opened.assert_pool(0, 0);
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
