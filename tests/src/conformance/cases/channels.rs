//! Several channels of one card at once.

use std::sync::mpsc;
use std::thread;

use super::{Case, CaseContext, Verdict, case};
use crate::bed::{Channel, TestSetup};
use crate::bytes;
use crate::conformance::Skip;
use crate::conformance::case_context::{Opened, long_wait};
use fpga_driver::{CardAddr, Direction, DmaBuffer, RunMode, Ticket, WaitMode};

pub(super) const CASES: &[Case] = &[
    case("channels.all_concurrently", &[], all_at_once),
    case("channels.one_thread_per_channel", &[], one_thread_per_channel),
    case("channels.writes_visible_to_other_threads", &[], writes_visible),
];

/// Bytes of card memory for each channel.
const BYTES_PER_CHANNEL: u64 = 1 << 20;

/// Takes every channel of the card, each with its own part of card memory.
fn all(opened: &Opened) -> Result<Vec<(TestSetup, Channel, CardAddr)>, Skip> {
    let names: Vec<_> = opened.card.info().xdma.channels().collect();
    opened.needs(BYTES_PER_CHANNEL * names.len() as u64)?;
    let take = |(n, name): (usize, fpga_driver::ChannelName)| {
        let setup = TestSetup { direction: name.direction, mode: RunMode::Batch, threaded: false };
        let channel = setup.take(&opened.card, name.number, setup.options()).expect("a free channel");
        (setup, channel, opened.at(n as u64 * BYTES_PER_CHANNEL))
    };
    Ok(names.into_iter().enumerate().map(take).collect())
}

/// Writes known data to the part of each channel that reads from the card.
fn prepare(opened: &Opened, places: &[(TestSetup, CardAddr)], length: usize) {
    let Ok(mut h2c) = opened.card.h2c(0) else { return };
    for (n, (setup, at)) in places.iter().enumerate() {
        if !setup.to_card() {
            let buffer = opened.card.buffer_from(&bytes(n as u64, length)).expect("DMA memory");
            h2c.write_with(buffer, *at, long_wait()).expect("the write succeeds");
        }
    }
}

/// Checks the data that the H2C channels have written to their parts.
fn compare(opened: &Opened, places: &[(TestSetup, CardAddr)], length: usize) {
    let Ok(mut c2h) = opened.card.c2h(0) else { return };
    for (n, (setup, at)) in places.iter().enumerate() {
        if setup.to_card() {
            let buffer = c2h.read_with(opened.card.buffer(length).expect("DMA memory"), *at, long_wait());
            assert!(buffer.expect("the read succeeds").to_vec() == bytes(n as u64, length), "channel {n}");
        }
    }
}

fn places(channels: &[(TestSetup, Channel, CardAddr)]) -> Vec<(TestSetup, CardAddr)> {
    channels.iter().map(|(setup, _, at)| (*setup, *at)).collect()
}

fn buffer(opened: &Opened, n: usize, setup: TestSetup, length: usize) -> DmaBuffer {
    if setup.to_card() {
        return opened.card.buffer_from(&bytes(n as u64, length)).expect("DMA memory");
    }
    let mut buffer = opened.card.buffer(length).expect("DMA memory");
    buffer.fill(0xEE);
    buffer
}

/// One thread keeps all channels busy, and waits for each by polling and by its own interrupt.
fn all_at_once(context: &mut CaseContext<'_>) -> Verdict {
    const LENGTH: usize = 200_001;
    let opened = context.open();
    let interrupts = opened.interrupts().is_ok();
    let known = places(&all(&opened)?);
    prepare(&opened, &known, LENGTH);
    let mut channels = all(&opened)?;
    for round in 0..4 {
        let by_interrupt = interrupts && round % 2 == 1;
        let wait = long_wait().mode(if by_interrupt { WaitMode::Interrupt } else { WaitMode::Poll });
        let tickets: Vec<Ticket> = channels
            .iter_mut()
            .enumerate()
            .map(|(n, (setup, channel, at))| {
                let ticket = channel.submit(buffer(&opened, n, *setup, LENGTH), *at).expect("accepted");
                channel.poll().expect("started");
                ticket
            })
            .collect();
        for ((n, (setup, channel, _)), ticket) in channels.iter_mut().enumerate().zip(tickets) {
            let done = channel.wait(ticket, wait).expect("the transfer completes");
            assert_eq!(done.outcome, Ok(LENGTH as u64), "channel {n}");
            if setup.direction == Direction::C2h {
                let buffer = done.buffer.expect("the buffer is returned");
                assert!(buffer.to_vec() == bytes(n as u64, LENGTH), "channel {n}");
            }
        }
    }
    drop(channels);
    compare(&opened, &known, LENGTH);
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// One transfer through a channel that is the only user of its part of card memory.
fn carry(opened: &Opened, n: usize, setup: TestSetup, channel: &mut Channel, at: CardAddr, length: usize) {
    let buffer = match channel.transfer(buffer(opened, n, setup, length), at, long_wait()) {
        Ok(buffer) => buffer,
        Err(failed) => panic!("channel {n}: {failed}"),
    };
    assert!(buffer.to_vec() == bytes(n as u64, length), "channel {n}");
}

/// A channel can be moved to another thread and back; two channels share no state.
fn one_thread_per_channel(context: &mut CaseContext<'_>) -> Verdict {
    const LENGTH: usize = 30_001;
    let opened = context.open();
    let known = places(&all(&opened)?);
    prepare(&opened, &known, LENGTH);
    let channels = all(&opened)?;
    let channels: Vec<_> = thread::scope(|scope| {
        let start = |(n, (setup, mut channel, at)): (usize, (TestSetup, Channel, CardAddr))| {
            let opened = &opened;
            scope.spawn(move || {
                for _ in 0..20 {
                    carry(opened, n, setup, &mut channel, at, LENGTH);
                }
                (setup, channel, at)
            })
        };
        let threads: Vec<_> = channels.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread's transfers arrive")).collect()
    });
    for (n, (setup, mut channel, at)) in channels.into_iter().enumerate() {
        carry(&opened, n, setup, &mut channel, at, LENGTH);
    }
    compare(&opened, &known, LENGTH);
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// One thread writes card memory, another one reads it: a completed write is visible to every channel.
fn writes_visible(context: &mut CaseContext<'_>) -> Verdict {
    const LENGTH: usize = 4096;
    const TRANSFERS: u64 = 200;
    // Fewer places than transfers, so that each place is used several times.
    const PLACES: u64 = 8;
    let own = context.open();
    let opened = &own;
    opened.needs(PLACES * LENGTH as u64)?;
    let no_channel = |error| Skip(format!("the case needs a channel in each direction: {error}"));
    let mut h2c = opened.card.h2c(0).map_err(no_channel)?;
    let mut c2h = opened.card.c2h(0).map_err(no_channel)?;
    let (filled, to_read) = mpsc::sync_channel::<(u64, CardAddr)>(1);
    let (emptied, to_write) = mpsc::channel::<CardAddr>();
    for place in 0..PLACES {
        emptied.send(opened.at(place * LENGTH as u64)).expect("the receiver exists");
    }
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..TRANSFERS {
                let place = to_write.recv().expect("the reader returns places");
                let buffer = opened.card.buffer_from(&bytes(number, LENGTH)).expect("DMA memory");
                h2c.write_with(buffer, place, long_wait()).expect("the write succeeds");
                filled.send((number, place)).expect("the reader receives the place");
            }
        });
        scope.spawn(move || {
            let mut buffer = opened.card.buffer(LENGTH).expect("DMA memory");
            for (number, place) in to_read {
                buffer = c2h.read_with(buffer, place, long_wait()).expect("the read succeeds");
                assert!(buffer.to_vec() == bytes(number, LENGTH), "transfer {number}");
                // At the end the writer needs no more free places, so that this send may fail.
                let _ = emptied.send(place);
            }
        });
    });
    opened.assert_pool(0, 0);
    own.close();
    Ok(())
}
