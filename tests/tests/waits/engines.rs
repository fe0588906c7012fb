//! Waits for engines of a card, and for user interrupts.

use core::ops::ControlFlow;
use core::time::Duration;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fpga_driver::stream::C2hStreamOptions;
use fpga_driver::{
    C2hChannel, CardAddr, CdmaRing, CdmaRingOptions, CdmaSegment, ChannelError, DescriptorPath, Direction,
    Error, H2cChannel, Ticket, WaitMode, bulk,
};
use fpga_pci::Bounced;
use fpga_tests::cards::halt;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{CANCELLABLE, Call, End, Limits, MASKABLE, Scene, UNLIMITED, Wait, block_on, call, one, wait};

const HYBRID: WaitMode = WaitMode::Hybrid { spin: Duration::from_millis(1) };
/// More bytes than the card's stream holds.
const PACKET: usize = 1 << 18;
const START: CardAddr = CardAddr::ZERO;

pub(super) const WAITS: &[Wait] = &[
    wait("channel wait", CANCELLABLE, |scene, limits| {
        let (mut channel, ticket) = transfer(scene);
        one(move || channel.wait(ticket, limits.wait()))
    }),
    wait("channel wait, interrupt", CANCELLABLE, |scene, limits| {
        let (mut channel, ticket) = transfer(scene);
        one(move || channel.wait(ticket, limits.wait().mode(WaitMode::Interrupt)))
    }),
    wait("channel wait_ended, hybrid", CANCELLABLE, |scene, limits| {
        let (mut channel, ticket) = transfer(scene);
        one(move || channel.wait_ended(ticket, limits.wait().mode(HYBRID)))
    }),
    wait("channel wait_ended_unless", CANCELLABLE, |scene, limits| {
        let (mut channel, ticket) = transfer(scene);
        one(move || channel.wait_ended_unless(ticket, limits.wait(), &mut || false))
    }),
    wait("channel completion (future)", UNLIMITED, |scene, _| {
        let (mut channel, ticket) = transfer(scene);
        one(move || block_on(channel.completion(ticket)))
    }),
    wait("channel poll (loop)", UNLIMITED, |scene, _| {
        let (mut channel, ticket) = transfer(scene);
        one(move || {
            while !channel.has_ended(ticket) {
                channel.poll()?;
                channel.relax();
            }
            Ok::<_, Error<ChannelError>>(())
        })
    }),
    wait("channel events (event loop)", UNLIMITED, |scene, _| {
        let (mut channel, ticket) = transfer(scene);
        one(move || event_loop(&mut channel, ticket))
    }),
    wait("write_with", CANCELLABLE, |scene, limits| {
        let (card, mut channel) = (scene.card.clone(), h2c(scene));
        one(move || channel.write_with(card.buffer(64).unwrap(), START, limits.wait()))
    }),
    wait("read_with, interrupt", CANCELLABLE, |scene, limits| {
        let (card, mut channel) = (scene.card.clone(), c2h(scene));
        let wait = limits.wait().mode(WaitMode::Interrupt);
        one(move || channel.read_with(card.buffer(64).unwrap(), START, wait))
    }),
    wait("bulk write_from", CANCELLABLE, |scene, limits| {
        let (card, mut channel) = (scene.card.clone(), h2c(scene));
        one(move || {
            let mut source = Bounced::new(std::io::repeat(7));
            bulk::write_from(&card, &mut channel, &mut source, START, 6 << 20, limits.wait(), &mut |_| {})
        })
    }),
    wait("bulk write_to_end", CANCELLABLE, |scene, limits| {
        let (card, mut channel) = (scene.card.clone(), h2c(scene));
        one(move || {
            let mut source = Bounced::new(std::io::repeat(7));
            bulk::write_to_end(&card, &mut channel, &mut source, START, limits.wait(), &mut |_| {})
        })
    }),
    wait("bulk read_into", CANCELLABLE, |scene, limits| {
        let (card, mut channel) = (scene.card.clone(), c2h(scene));
        one(move || {
            let mut sink = Vec::new();
            bulk::read_into(&card, &mut channel, START, 6 << 20, &mut sink, limits.wait(), &mut |_| {})
        })
    }),
    wait("cdma copy", CANCELLABLE, |scene, limits| {
        let mut cdma = scene.card.cdma().unwrap();
        scene.inject("{fault: cdma_stall}");
        one(move || {
            let progress = &mut |_| match limits.flag.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            cdma.copy_with_progress(START, CardAddr::new(1 << 20), 64, Some(limits.timeout), progress)
        })
    }),
    wait("ring wait", CANCELLABLE, |scene, limits| {
        let (mut ring, ticket) = ring(scene, None);
        one(move || ring.wait(ticket, limits.wait()))
    }),
    wait("ring wait, interrupt", CANCELLABLE, |scene, limits| {
        let (mut ring, ticket) = ring(scene, Some(0));
        one(move || ring.wait(ticket, limits.wait().mode(WaitMode::Interrupt)))
    }),
    stream("stream wait_packet", |scene, limits| {
        let mut stream = scene.card.c2h_stream(0).unwrap();
        one(move || stream.wait_packet(limits.wait()).map(drop))
    }),
    stream("stream wait_packet, interrupt", |scene, limits| {
        let mut stream = scene.card.c2h_stream(0).unwrap();
        one(move || stream.wait_packet(limits.wait().mode(WaitMode::Interrupt)).map(drop))
    }),
    stream("stream receive_with", |scene, limits| {
        let (card, mut stream) = (scene.card.clone(), scene.card.c2h_stream(0).unwrap());
        one(move || stream.receive_with(card.buffer(64).unwrap(), limits.wait()))
    }),
    stream("stream receive_part", |scene, limits| {
        let card = scene.card.clone();
        let mut stream = card.c2h_stream_with(0, C2hStreamOptions::default()).unwrap();
        one(move || stream.receive_part(card.buffer(64).unwrap(), limits.wait()))
    }),
    stream("stream send_with", |scene, limits| {
        let (card, mut stream) = (scene.card.clone(), scene.card.h2c_stream(0).unwrap());
        let mut send = move || stream.send_with(card.buffer(PACKET).unwrap(), limits.wait());
        one(move || core::iter::repeat_with(&mut send).find_map(Result::err).map_or(Ok(()), Err))
    }),
    wait("user interrupt", MASKABLE, |scene, limits| {
        let line = scene.card.user_interrupt(3).unwrap();
        scene.keep(&line);
        [line.clone(), line].map(|line| call(move || line.wait(limits.timeout))).into()
    }),
    wait("user interrupt (future)", MASKABLE_FUTURE, |scene, _| {
        let line = scene.card.user_interrupt(3).unwrap();
        scene.keep(&line);
        [line.clone(), line].map(|line| call(move || block_on(line.arrived()))).into()
    }),
    wait("several user interrupts", MASKABLE, |scene, limits| {
        let lines = Arc::new(scene.card.user_interrupts(&[3, 5]).unwrap());
        lines.iter().take(1).for_each(|line| scene.keep(line));
        [Arc::clone(&lines), lines].map(|lines| call(move || lines.wait(limits.timeout))).into()
    }),
];

const MASKABLE_FUTURE: &[End] = &[End::Removal, End::AllOnes, End::ServerEnds, End::Disable];

const fn stream(name: &'static str, open: fn(&Scene, Limits) -> Vec<Call>) -> Wait {
    Wait { streams: true, ..wait(name, CANCELLABLE, open) }
}

/// A channel whose engine fetches nothing, and does not end.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn h2c(scene: &Scene) -> H2cChannel {
    let channel = scene.card.h2c(0).unwrap();
    halt(&scene.card, Direction::H2c, true);
    channel
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn c2h(scene: &Scene) -> C2hChannel {
    let channel = scene.card.c2h(0).unwrap();
    halt(&scene.card, Direction::C2h, true);
    channel
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn transfer(scene: &Scene) -> (H2cChannel, Ticket) {
    let mut channel = h2c(scene);
    let ticket = channel.submit(scene.card.buffer(64).unwrap(), START).unwrap();
    (channel, ticket)
}

/// The loop that [`fpga_driver::ChannelEvents`] describes. A removal sends no interrupt: the sleep has a limit, and the next poll looks.
fn event_loop(channel: &mut H2cChannel, ticket: Ticket) -> Result<(), String> {
    let text = |error: Error<ChannelError>| format!("{error:?}");
    let events = channel.events().map_err(text)?;
    let limit = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while !channel.has_ended(ticket) {
        let _ = events.take();
        channel.arm().map_err(text)?;
        channel.poll().map_err(text)?;
        let _ = rustix::event::poll(&mut [PollFd::new(&events.as_fd(), PollFlags::IN)], Some(&limit));
        channel.note_sleep();
    }
    Ok(())
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn ring(scene: &Scene, line: Option<u8>) -> (CdmaRing<()>, Ticket) {
    let mut options = CdmaRingOptions::new(CardAddr::new(2 << 20));
    options.user_interrupt = line;
    let cdma = scene.card.cdma().unwrap();
    let mut ring = cdma.into_ring(DescriptorPath::bypass(START), options).unwrap();
    scene.inject("{fault: cdma_stall}");
    let ticket = ring.submit(&[CdmaSegment::new(START, CardAddr::new(1 << 20), 64)], ()).unwrap();
    (ring, ticket)
}
