//! Several channels of one card at once.

use std::thread;

use super::{Bench, Case, Verdict, case};
use crate::bytes;
use crate::conformance::Skip;
use crate::conformance::bench::{Opened, patient};
use crate::rig::{Channel, Way};
use fpga_driver::{CardAddr, Direction, DmaBuffer, RunMode, Ticket};

pub(super) const CASES: &[Case] =
    &[case("channels.all_at_once", &[], all_at_once), case("channels.a_thread_each", &[], a_thread_each)];

/// Bytes of card memory for each channel.
const ROOM: u64 = 1 << 20;

/// Every channel of the card, with a place of its own in card memory.
fn all(opened: &Opened) -> Result<Vec<(Way, Channel, CardAddr)>, Skip> {
    let names: Vec<_> = opened.card.info().xdma.channels().collect();
    opened.needs(ROOM * names.len() as u64)?;
    let take = |(n, name): (usize, fpga_driver::ChannelName)| {
        let way = Way { direction: name.direction, mode: RunMode::StopRuns, threaded: false };
        let channel = way.take(&opened.card, name.number, way.options()).expect("a free channel");
        (way, channel, opened.at(n as u64 * ROOM))
    };
    Ok(names.into_iter().enumerate().map(take).collect())
}

/// Puts a known content where each channel that reads from the card will read.
fn prepare(opened: &Opened, places: &[(Way, CardAddr)], length: usize) {
    let Ok(mut h2c) = opened.card.h2c(0) else { return };
    for (n, (way, at)) in places.iter().enumerate() {
        if !way.to_card() {
            let buffer = opened.card.buffer_from(&bytes(n as u64, length)).expect("DMA memory");
            h2c.write_with(buffer, *at, patient()).expect("it arrives");
        }
    }
}

/// What the channels that write to the card have written there is as it has to be.
fn compare(opened: &Opened, places: &[(Way, CardAddr)], length: usize) {
    let Ok(mut c2h) = opened.card.c2h(0) else { return };
    for (n, (way, at)) in places.iter().enumerate() {
        if way.to_card() {
            let buffer = c2h.read_with(opened.card.buffer(length).expect("DMA memory"), *at, patient());
            assert!(buffer.expect("it comes").to_vec() == bytes(n as u64, length), "channel {n}");
        }
    }
}

fn places(channels: &[(Way, Channel, CardAddr)]) -> Vec<(Way, CardAddr)> {
    channels.iter().map(|(way, _, at)| (*way, *at)).collect()
}

fn buffer(opened: &Opened, n: usize, way: Way, length: usize) -> DmaBuffer {
    if way.to_card() {
        return opened.card.buffer_from(&bytes(n as u64, length)).expect("DMA memory");
    }
    let mut buffer = opened.card.buffer(length).expect("DMA memory");
    buffer.fill(0xEE);
    buffer
}

/// One thread keeps all of them busy.
fn all_at_once(bench: &mut Bench<'_>) -> Verdict {
    const LENGTH: usize = 200_001;
    let opened = bench.open();
    let known = places(&all(&opened)?);
    prepare(&opened, &known, LENGTH);
    let mut channels = all(&opened)?;
    for _ in 0..4 {
        let tickets: Vec<Ticket> = channels
            .iter_mut()
            .enumerate()
            .map(|(n, (way, channel, at))| {
                let ticket = channel.submit(buffer(&opened, n, *way, LENGTH), *at).expect("accepted");
                channel.poll().expect("started");
                ticket
            })
            .collect();
        for ((n, (way, channel, _)), ticket) in channels.iter_mut().enumerate().zip(tickets) {
            let done = channel.wait(ticket, patient()).expect("it ends");
            assert_eq!(done.outcome, Ok(LENGTH as u64), "channel {n}");
            if way.direction == Direction::C2h {
                let buffer = done.buffer.expect("it comes back");
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

/// A channel belongs to whoever holds it; nothing is shared between two of them.
fn a_thread_each(bench: &mut Bench<'_>) -> Verdict {
    const LENGTH: usize = 30_001;
    let opened = bench.open();
    let known = places(&all(&opened)?);
    prepare(&opened, &known, LENGTH);
    let channels = all(&opened)?;
    thread::scope(|scope| {
        for (n, (way, mut channel, at)) in channels.into_iter().enumerate() {
            let opened = &opened;
            scope.spawn(move || {
                for _ in 0..20 {
                    let buffer = match channel.transfer(buffer(opened, n, way, LENGTH), at, patient()) {
                        Ok(buffer) => buffer,
                        Err(failed) => panic!("channel {n}: {failed}"),
                    };
                    assert!(buffer.to_vec() == bytes(n as u64, LENGTH), "channel {n}");
                }
            });
        }
    });
    compare(&opened, &known, LENGTH);
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}
