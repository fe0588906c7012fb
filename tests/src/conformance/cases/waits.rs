//! Waits: event fds, deadlines, calls that contradict the card's state.

use core::time::Duration;
use std::os::fd::AsFd;

use fpga_driver::{
    CardRange, ChannelError, ChannelEvents, Error, OpenOptions, RunMode, TransferError, WaitMode, WaitOptions,
};
use fpga_rdma::{Endpoint, EndpointError, EndpointOptions, SendOptions};
use fpga_registers::cast::low32;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Case, CaseContext, Verdict, case};
use crate::bed::TestSetup;
use crate::bytes;
use crate::cards::{DMA_BAR, halt};
use crate::conformance::Skip;
use crate::conformance::builds::{FETCHED_EVENTS, LEGACY_LINE};
use crate::conformance::case_context::{ChannelPair, Opened, long_wait};

pub(super) const CASES: &[Case] = &[
    case("interrupts.descriptor_is_readable", &[], readable),
    case("interrupts.not_enabled_is_refused", &[], must_be_enabled),
    case("interrupts.modes_alternate", &[], modes),
    case("interrupts.endpoints_sleep", &[], endpoints_sleep),
    case("interrupts.endpoints_sleep_on_intx", &[], endpoints_sleep_on_intx),
    case("interrupts.endpoints_sleep_on_fetched_events", &[], endpoints_sleep_on_fetched_events),
    case("deadline.returns_buffer", &[], deadline),
    case("deadline.other_transfers_continue", &[], abandoned_among_others),
];

/// Returns the maximum length of a descriptor in cases that stop an engine, which ends its descriptor first: a twentieth of the 25 ms that the
/// driver gives it after a short timeout, or the shortest limit that a ring has.
fn descriptor_length(context: &CaseContext<'_>, opened: &Opened) -> usize {
    const SPAN: Duration = Duration::from_micros(1250);
    const UNIT: usize = 4096;
    (context.bytes_within(opened, SPAN) / UNIT * UNIT).max(UNIT)
}

/// Whether the event fd becomes readable within `seconds`.
fn is_readable(events: &ChannelEvents, seconds: i64) -> bool {
    let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(&events.as_fd(), PollFlags::IN)], Some(&limit)) == Ok(1)
}

/// Interrupts that the card has sent, if it counts them.
fn interrupts(opened: &Opened) -> u64 {
    opened.card.counters().map_or(0, |counters| counters.interrupts)
}

/// An event loop: arm, poll, sleep on the event fd, collect. No transfer ends without a wake-up, and there are no other wake-ups.
fn readable(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    opened.needs(64 << 10)?;
    opened.interrupts()?;
    for setup in opened.setups() {
        let mut pair = opened.pair(setup)?;
        let events = pair.channel.events().expect("interrupts are enabled");
        let mut before = 0;
        for seed in 0..=10 {
            // Work of the channel's last owner may wake the first wait once more. After that, counts are exact in virtual time.
            let exact = !context.real_time() && seed > 0;
            let (at, data) = (pair.at(0x1000), bytes(seed, 5000));
            let buffer = pair.buffer(at, &data);
            let ticket = pair.channel.submit(buffer, at).expect("accepted");
            let began = std::time::Instant::now();
            loop {
                let _ = events.take();
                pair.channel.arm().expect("armed");
                pair.channel.poll().expect("polling succeeds");
                if pair.channel.has_ended(ticket) {
                    break;
                }
                assert!(
                    !exact || !is_readable(&events, 0),
                    "{setup:?}: not readable before the transfer ends"
                );
                // A card in this thread does its work now; an external card has done it already.
                if let Some((network, _)) = context.simulated() {
                    network.step_until_idle();
                }
                assert!(is_readable(&events, 10), "{setup:?}: the event fd becomes readable");
                if exact {
                    assert_eq!(events.take(), 1, "{setup:?}");
                    assert!(!is_readable(&events, 0), "{setup:?}: not readable after the event was read");
                    assert_eq!(events.take(), 0, "{setup:?}");
                }
                assert!(began.elapsed() < crate::TIMEOUT, "{setup:?}: the transfer does not end");
            }
            let done = pair.channel.next_completion().expect("a buffer has a completion");
            assert_eq!(done.outcome, Ok(5000));
            let buffer = done.buffer.expect("the buffer is returned");
            assert!(pair.moved(&buffer, at, &data), "{setup:?}");
            if seed == 0 {
                before = interrupts(&opened);
            }
        }
        pair.channel.disarm().expect("disarmed");
        pair.assert_works(10);
        if !context.real_time() {
            assert!(!is_readable(&events, 0), "{setup:?}: not readable while disarmed");
            assert_eq!(interrupts(&opened) - before, 10, "{setup:?}: one interrupt per armed transfer");
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn must_be_enabled(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    for setup in opened.setups() {
        let mut pair = opened.pair(setup)?;
        assert!(
            matches!(pair.channel.events(), Err(Error { kind: ChannelError::NoInterrupt, .. })),
            "{setup:?}"
        );
        assert!(
            matches!(pair.channel.arm(), Err(Error { kind: ChannelError::NoInterrupt, .. })),
            "{setup:?}"
        );
        let buffer = opened.card.buffer(4096).expect("DMA memory");
        let at = pair.at(0);
        let waited = pair.channel.transfer(buffer, at, long_wait().mode(WaitMode::Interrupt));
        match waited {
            // The transfer had ended before the wait.
            Ok(_) => assert!(context.real_time(), "{setup:?}: the transfer ended before its deadline"),
            Err(failed) => {
                let expected = matches!(failed.error.kind, TransferError::Channel(ChannelError::NoInterrupt));
                assert!(expected, "{setup:?}: {failed}");
                assert!(failed.buffer.is_some(), "{setup:?}: the buffer is returned");
            }
        }
        // A transfer that cannot be waited for by interrupt can be waited for by polling.
        let buffer = opened.card.buffer(4096).expect("DMA memory");
        let ticket = pair.channel.submit(buffer, at).expect("accepted");
        let done = match pair.channel.wait(ticket, long_wait().mode(WaitMode::Interrupt)) {
            Err(Error { kind: ChannelError::NoInterrupt, .. }) => pair.channel.wait(ticket, long_wait()),
            waited => waited,
        };
        assert_eq!(done.expect("the transfer completes").outcome, Ok(4096), "{setup:?}");
        // Disarming a channel that was never armed is not an error.
        pair.channel.disarm().expect("disarmed");
        pair.assert_works(1);
    }
    let mut early = opened.pair(opened.setups()[0])?;
    if opened.card.enable_interrupts().is_ok() {
        let armed = early.channel.arm();
        assert!(
            matches!(armed, Err(Error { kind: ChannelError::NoInterrupt, .. })),
            "a channel taken before interrupts were enabled: {armed:?}"
        );
        drop(early);
        for setup in opened.setups() {
            let mut pair = opened.pair(setup)?;
            pair.channel.arm().expect("armed");
            pair.assert_works(2);
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Every wait mode works after every other, for every length, and with any earlier transfers in flight.
fn modes(context: &mut CaseContext<'_>) -> Verdict {
    const SPIN: WaitMode = WaitMode::Hybrid { spin: Duration::from_micros(10) };
    let opened = context.open();
    opened.needs(1 << 20)?;
    opened.interrupts()?;
    for setup in opened.setups() {
        let mut pair = opened.pair(setup)?;
        let memory = pair
            .channel
            .register_memory(opened.card.registered_memory(64).expect("DMA memory"))
            .expect("registration succeeds");
        let modes = [WaitMode::Poll, WaitMode::Interrupt, SPIN];
        let pairs: Vec<_> =
            modes.into_iter().flat_map(|first| modes.map(|second| [first, second])).flatten().collect();
        for (round, length) in [1, 64, 4096, 20_001, 300_000].into_iter().enumerate() {
            for (n, mode) in pairs.iter().enumerate() {
                for _ in 0..(n + round) % 3 {
                    let at = pair.at(512 << 10);
                    pair.channel.submit_at(memory, 0, 64, at).expect("accepted");
                }
                pair.check((round << 8 | n) as u64, length, 5, long_wait().mode(*mode));
            }
        }
        assert!(pair.channel.next_completion().is_none(), "{setup:?}");
    }
    opened.close();
    Ok(())
}

/// A wait for the network polls for a short time and then sleeps until the card interrupts: nothing else ends its waits here.
fn endpoints_sleep(context: &mut CaseContext<'_>) -> Verdict {
    sleeps(context.open())
}

/// The same with INTx. The DMA BAR is given, because without an MSI-X table the driver cannot find it.
fn endpoints_sleep_on_intx(context: &mut CaseContext<'_>) -> Verdict {
    context.on(&LEGACY_LINE, |context| sleeps(context.open_with(OpenOptions::default().dma_bar(DMA_BAR))))
}

/// The same where the event ring is in card memory: the interrupt is that of the ring, and a poll is a transfer.
fn endpoints_sleep_on_fetched_events(context: &mut CaseContext<'_>) -> Verdict {
    context.on(&FETCHED_EVENTS, |context| sleeps(context.open()))
}

fn sleeps(opened: Opened) -> Verdict {
    const LENGTH: usize = 300_001;
    /// Register writes of a transfer in batch mode.
    const MAX_FETCH_WRITES: u64 = 5;
    opened.needs(4 << 20)?;
    opened.interrupts()?;
    // A design in a simulator may answer late.
    let mut options = EndpointOptions::default();
    options.give_up = crate::TIMEOUT;
    let mut end = match Endpoint::open_with(&opened.card, &options) {
        Ok(end) => end,
        Err(error @ Error { kind: EndpointError::NoInterface, .. }) => {
            return Err(Skip(error.to_string()));
        }
        Err(error) => panic!("{error}"),
    };
    let data = bytes(1, LENGTH);
    let mut buffer = opened.card.buffer_from(&data).expect("DMA memory");
    buffer = end.write(buffer, opened.at(0)).expect("the write to card memory succeeds");
    let region = end.open_region(end.node(), CardRange::new(opened.at(2 << 20), 1 << 20)).expect("a region");
    // The first channel fetches events where the interface cannot push them.
    let last = opened.card.info().xdma.c2h_channels.saturating_sub(1);
    let Ok(mut back) = opened.card.c2h(last) else {
        return Err(Skip("no free channel besides the endpoint's to check the data with".to_owned()));
    };
    // The first send includes the delay after which a new incarnation may send: no interrupt ends that delay.
    let carry = |end: &mut Endpoint| {
        let options = SendOptions::default();
        let ticket = end.send(opened.at(0), &region.remote, 0, LENGTH as u64, options).expect("accepted");
        assert_eq!(end.wait(ticket, crate::TIMEOUT).expect("the transfer completes").result, Ok(()));
        let notice = end.wait_notification(crate::TIMEOUT).expect("a notification arrives");
        assert_eq!(notice.length, LENGTH as u64);
    };
    carry(&mut end);
    // Nothing arrives before the timeout: one sleep, or some where the longest sleep is shorter than the timeout or the card's thread
    // wakes the host. A wait that polls has thousands of turns.
    let (turns, sleeps, traffic) =
        (end.counters().turns, opened.injector.sleeps(), opened.injector.traffic());
    let late = end.wait_notification(Duration::from_millis(150));
    assert!(matches!(late, Err(Error { kind: EndpointError::NoArrival { .. }, .. })), "{late:?}");
    let sleeps = opened.injector.sleeps() - sleeps;
    assert!((1..=40).contains(&sleeps), "{sleeps} sleeps");
    let polls = end.counters().turns - turns;
    assert!(polls <= 2000, "{polls} polls without progress");
    let writes = opened.injector.traffic().writes - traffic.writes;
    // A poll of an event ring in card memory is a transfer.
    let is_fetching = opened.card.info().ni.as_ref().is_some_and(|ni| !ni.event_push);
    let max_writes = 4 * sleeps + if is_fetching { MAX_FETCH_WRITES * polls } else { 0 };
    assert!(writes <= max_writes, "{writes} register writes for {sleeps} sleeps and {polls} polls");
    opened.injector.ignore_timeouts(true);
    for _ in 0..20 {
        carry(&mut end);
    }
    opened.injector.ignore_timeouts(false);
    assert_eq!(opened.injector.lost_wakeups(), 0, "a wait slept although its interrupt had been sent");
    buffer.fill(0);
    buffer = back.read(buffer, opened.at(2 << 20)).expect("the read from card memory succeeds");
    assert!(buffer.to_vec() == data, "received data differs from the data sent");
    drop((buffer, back, end));
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// A wait whose deadline passes before its transfer ends stops the engine and returns the buffer; the channel continues to work.
fn deadline(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    opened.needs(8 << 20)?;
    let halts = context.simulated().is_some() && opened.interrupts().is_ok();
    let paced = descriptor_length(context, &opened);
    for setup in opened.setups() {
        // In nanoseconds: at any moment of a transfer in virtual time, and in real time.
        let moments = (0..40).map(|n| 300 * n).chain((4..20).map(|n| 3000 * n)).collect();
        for (longest, descriptors, limits) in
            [(64 << 10, 64, vec![0, 1000, 20_000, 100_000]), (4096, 15, moments)]
        {
            let longest = longest.min(paced);
            // The last descriptor is a part of one.
            let length = longest * descriptors - longest / 3;
            let options = setup.options().max_descriptor_length(low32(longest as u64));
            let mut pair = opened.pair_with(setup, options)?;
            for limit in limits {
                let data = bytes(limit, length);
                let at = pair.at(3);
                let buffer = pair.buffer(at, &data);
                match pair.channel.transfer(buffer, at, long_wait().timeout(Duration::from_nanos(limit))) {
                    Ok(buffer) => assert!(pair.moved(&buffer, at, &data), "{setup:?}: in time"),
                    Err(failed) => {
                        assert!(
                            matches!(
                                failed.error.kind,
                                TransferError::Channel(ChannelError::TimedOut { .. })
                            ),
                            "{setup:?}: {failed}"
                        );
                        let back = failed.buffer.map(|buffer| buffer.len());
                        assert_eq!(back, Some(length), "{setup:?}: the buffer is returned");
                    }
                }
                assert_eq!(pair.channel.in_flight(), 0);
                assert!(
                    pair.channel.next_completion().is_none(),
                    "{setup:?}: the transfer has no second completion"
                );
                pair.assert_works(limit);
            }
            if halts {
                never_ends(context, &opened, &mut pair);
            }
        }
        assert_eq!(setup.mode == RunMode::Credit, setup.options().run_mode == RunMode::Credit);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// A wait for a transfer that does not end lasts for its timeout in every wait mode.
fn never_ends(context: &CaseContext<'_>, opened: &Opened, pair: &mut ChannelPair) {
    let (setup, at) = (pair.setup, pair.at(0));
    halt(&opened.card, setup.direction, true);
    for mode in [WaitMode::Poll, WaitMode::Interrupt, WaitMode::Hybrid { spin: Duration::from_millis(1) }] {
        for _ in 0..2 {
            let buffer = opened.card.buffer(5000).expect("DMA memory");
            let iova = buffer.iova();
            let wait = WaitOptions::default().mode(mode).timeout(Duration::from_millis(5));
            let Err(failed) = pair.channel.transfer(buffer, at, wait) else {
                panic!("{setup:?} {mode:?}: the transfer ended")
            };
            let TransferError::Channel(ChannelError::TimedOut { waited, .. }) = failed.error.kind else {
                panic!("{setup:?} {mode:?}: {failed}")
            };
            let waited_us = waited.as_micros();
            assert!(waited_us >= 5000, "{setup:?} {mode:?}: {waited_us}");
            assert!(context.real_time() || waited_us < 100_000, "{setup:?} {mode:?}: {waited_us}");
            assert_eq!(failed.buffer.map(|buffer| buffer.iova()), Some(iova), "{setup:?} {mode:?}");
            assert_eq!(pair.channel.in_flight(), 0);
            assert!(pair.channel.next_completion().is_none());
        }
    }
    halt(&opened.card, setup.direction, false);
    pair.assert_works(9);
}

/// The abandoned transfer is one of several: the others arrive.
fn abandoned_among_others(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    opened.needs(8 << 20)?;
    let longest = descriptor_length(context, &opened).min(64 << 10);
    for setup in opened.setups() {
        others_of(&opened, setup, longest, None)?;
        if context.simulated().is_some() {
            for posted in [false, true] {
                others_of(&opened, setup, longest, Some(posted))?;
            }
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// `longest`: bytes of a descriptor. `halted`: the engine does nothing until the transfer is abandoned; the value says whether the others are
/// posted to it by then.
fn others_of(opened: &Opened, setup: TestSetup, longest: usize, halted: Option<bool>) -> Verdict {
    const LENGTH: usize = 300_001;
    let options = setup.options().max_descriptor_length(low32(longest as u64));
    let mut pair = opened.pair_with(setup, options)?;
    let memory = pair
        .channel
        .register_memory(opened.card.registered_memory(64 << 10).expect("DMA memory"))
        .expect("registration succeeds");
    let part = (bytes(9, 20_000), pair.at(4 << 20));
    pair.put(memory, 5, part.1, &part.0);
    let data: Vec<_> = (0..4).map(|n| bytes(n, LENGTH)).collect();
    let places = [0, 1, 2, 3].map(|n| pair.at(n << 20));
    let buffers: Vec<_> = places.iter().zip(&data).map(|(at, data)| pair.buffer(*at, data)).collect();
    if halted.is_some() {
        halt(&opened.card, setup.direction, true);
    }
    let mut tickets = Vec::new();
    for (n, buffer) in buffers.into_iter().enumerate() {
        if n != 2 {
            tickets.push((n, pair.channel.submit(buffer, places[n]).expect("accepted")));
            continue;
        }
        let ticket = pair.channel.submit_at(memory, 5, 20_000, part.1).expect("accepted");
        if halted == Some(true) {
            pair.channel.poll().expect("started");
        }
        let (iova, limit) = (buffer.iova(), Duration::from_millis(if halted.is_some() { 5 } else { 0 }));
        match pair.channel.transfer(buffer, places[n], long_wait().timeout(limit)) {
            Ok(_) => assert_eq!(halted, None, "{setup:?}: the transfer ended before its deadline"),
            Err(failed) => {
                let timed_out =
                    matches!(failed.error.kind, TransferError::Channel(ChannelError::TimedOut { .. }));
                assert!(timed_out, "{setup:?}: {failed}");
                assert_eq!(
                    failed.buffer.map(|buffer| buffer.iova()),
                    Some(iova),
                    "{setup:?}: the buffer is returned"
                );
            }
        }
        if halted.is_some() {
            halt(&opened.card, setup.direction, false);
        }
        tickets.push((n, ticket));
    }
    for (n, ticket) in tickets {
        if n == 2 {
            pair.channel.wait_ended(ticket, long_wait()).expect("the transfer completes");
            assert!(pair.arrived(memory, 5, part.1, &part.0), "{setup:?}: the part");
            continue;
        }
        let done = pair.channel.wait(ticket, long_wait()).expect("the transfer completes");
        assert_eq!(done.outcome, Ok(LENGTH as u64), "{setup:?}: transfer {n}");
        let buffer = done.buffer.expect("the buffer is returned");
        assert!(pair.moved(&buffer, places[n], &data[n]), "{setup:?}: transfer {n}");
    }
    assert!(pair.channel.next_completion().is_none(), "{setup:?}: an extra completion");
    pair.assert_works(2);
    Ok(())
}
