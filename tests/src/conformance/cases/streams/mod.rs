//! AXI4-Stream channels, on cards of stream builds: packets complete and in order, back-pressure, the write flush timeout; invalid metadata
//! (`faults`), cost (`cost`). A backend with only an existing card skips them.

mod cost;
mod faults;

use core::time::Duration;
use std::collections::VecDeque;

use fpga_driver::stream::{C2hStream, C2hStreamOptions, H2cStream, PacketFault, PacketFragment, StreamError};
use fpga_driver::{
    BarOffset, ChannelError, ChannelOptions, Error, MemoryHandle, ResourceError, RunMode, WaitMode,
    WaitOptions,
};
use fpga_pci::Backend as _;
use fpga_protocol::Nanos;
use rand_core::Rng;
use rand_pcg::Pcg64;

use super::{Case, CaseContext, Verdict, case};
use crate::conformance::builds::{GUIDE_LOOPBACK, LOOPS, SOURCE_500, SOURCE_500_SLOW};
use crate::conformance::case_context::{Opened, long_wait};
use crate::conformance::{Build, Capability, Skip};
use crate::{TIMEOUT, bytes};

pub(super) use faults::FAULTS;

pub(super) const CASES: &[Case] = &[
    case("stream.every_size", &[], every_size),
    case("stream.gathered_packets", &[], gathered),
    case("stream.parts_of_packets", &[], parts),
    case("stream.random_packets", &[], random),
    case("stream.both_loops", &[], two_channels),
    case("stream.waits", &[], waits),
    case("stream.credits", &[], credits),
    case("stream.back_pressure", &[], back_pressure),
    case("stream.flush_timeout", &[Capability::CardLogic], flush),
    case("stream.drop_and_stop", &[], ends),
    case("stream.reopen_inside_packet", &[], reopened),
    case("cost.stream", &[], cost::packets),
];

const MODES: [RunMode; 2] = [RunMode::Credit, RunMode::Batch];

/// Both ends of a card's first loopback. Dropped in this order.
struct Ends {
    tx: H2cStream,
    rx: C2hStream,
    opened: Opened,
}

/// Runs a case in both run modes, each on its own card.
fn on_loops(
    context: &CaseContext<'_>,
    build: &Build,
    case: impl Fn(&CaseContext<'_>, RunMode) -> Verdict,
) -> Verdict {
    MODES.into_iter().try_for_each(|mode| context.on(build, |context| case(context, mode)))
}

impl Ends {
    fn open(context: &CaseContext<'_>, mode: RunMode, buffers: u32, size: usize) -> Result<Self, Skip> {
        Self::of(context.open(), mode, buffers, size)
    }

    fn of(opened: Opened, mode: RunMode, buffers: u32, size: usize) -> Result<Self, Skip> {
        let options = C2hStreamOptions::default().buffers(buffers).buffer_size(size).run_mode(mode);
        let taken = opened.card.c2h_stream_with(0, options).and_then(|rx| {
            let tx = opened.card.h2c_stream_with(0, ChannelOptions::default().run_mode(mode))?;
            Ok((tx, rx))
        });
        match taken {
            Ok((tx, rx)) => Ok(Self { tx, rx, opened }),
            Err(error @ Error { kind: ResourceError::CreditModeUnsupported { .. }, .. }) => {
                Err(Skip(error.to_string()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn send(&mut self, data: &[u8]) {
        let buffer = self.opened.card.buffer_from(data).expect("DMA memory");
        self.tx.submit(buffer).expect("accepted");
        self.tx.poll().expect("started");
    }

    /// Pushes data from inside the card into its first C2H stream channel.
    fn push(&self, context: &CaseContext<'_>, data: &[u8], end: bool) {
        let (network, number) = context.simulated().expect("a simulated card in this process");
        let took = network.with_card(number, |card| card.push_stream(0, data, end));
        assert_eq!(took, Some(data.len()));
        // A served card sleeps until it receives a message.
        self.opened.card.dma_bar().read32(BarOffset::ZERO).expect("a register");
    }

    /// Registers memory with this content at the sender.
    fn register_memory(&mut self, content: Vec<u8>) -> (Vec<u8>, MemoryHandle) {
        let area = self.opened.card.registered_memory(content.len()).expect("DMA memory");
        area.memory().write(0, &content).expect("in range");
        (content, self.tx.register_memory(area).expect("registration succeeds"))
    }

    /// Repeats `step` until it returns a value.
    fn until<T>(&mut self, mut step: impl FnMut(&mut Self) -> Option<T>) -> T {
        let now = |ends: &Self| Duration::from_nanos(ends.opened.injector.now());
        let end = now(self) + TIMEOUT;
        loop {
            self.tx.poll().expect("polling the sender succeeds");
            if let Some(done) = step(self) {
                return done;
            }
            assert!(now(self) < end, "no packet within the timeout: {:?}", self.rx.statistics());
            // A card with its own thread may need this processor.
            std::thread::yield_now();
            self.rx.relax();
        }
    }

    /// Next packet, or the error in its place.
    fn next(&mut self) -> Result<Vec<u8>, Error<StreamError>> {
        self.until(|ends| {
            ends.rx.next_packet().map(|packet| packet.map(|packet| packet.to_vec())).transpose()
        })
    }

    fn receive(&mut self) -> Vec<u8> {
        self.next().unwrap_or_else(|error| panic!("{error}"))
    }

    fn assert_works(&mut self, seed: u64) {
        let data = bytes(seed, 3001);
        self.send(&data);
        assert!(self.receive() == data, "a packet passes the loopback unchanged");
    }

    /// Waits until everything is sent, and checks that all memory is returned.
    fn close(mut self) {
        self.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        let Self { tx, rx, opened } = self;
        drop((tx, rx));
        opened.assert_pool(0, 0);
        opened.close();
    }
}

/// Packets of one descriptor and of several, in each direction.
fn every_size(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        let mut ends = Ends::open(context, mode, 512, 4096)?;
        let lengths = [1, 2, 63, 64, 65, 4095, 4096, 4097, 8192, 65_536, 65_537, 1 << 20];
        for (seed, length) in (0..).zip(lengths) {
            let data = bytes(seed, length);
            ends.send(&data);
            assert!(ends.receive() == data, "{mode:?}: {length} bytes");
        }
        let statistics = ends.rx.statistics();
        assert_eq!((statistics.packets, statistics.lost, statistics.discarded_bytes), (12, 0, 0));
        // A packet occupies as many buffers as it fills.
        let data = bytes(20, 9000);
        ends.send(&data);
        let lengths = ends.until(|ends| {
            let packet = ends.rx.next_packet().expect("no fault")?;
            Some(packet.parts().map(|part| part.len()).collect::<Vec<_>>())
        });
        assert_eq!(lengths, [4096, 4096, 808]);
        ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        assert_eq!(core::iter::from_fn(|| ends.tx.next_completion()).count(), 13, "each buffer is returned");
        ends.close();
        Ok(())
    })
}

/// One packet gathered from several places: one descriptor for each place, and one end of packet.
fn gathered(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        let mut ends = Ends::open(context, mode, 64, 1024)?;
        let (content, memory) = ends.register_memory(bytes(1, 1 << 16));
        for count in 1..=8 {
            let places: Vec<(usize, usize)> =
                (0..count).map(|n| (n * 7001, if n + 1 == count { 333 } else { 64 * (n + 1) })).collect();
            let parts: Vec<PacketFragment> =
                places.iter().map(|&(offset, length)| PacketFragment { memory, offset, length }).collect();
            ends.tx.submit_list(&parts).expect("accepted");
            let data: Vec<u8> = places
                .iter()
                .flat_map(|&(offset, length)| &content[offset..offset + length])
                .copied()
                .collect();
            assert!(ends.receive() == data, "{mode:?}: {count} parts");
        }
        ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        drop(ends.tx.deregister_memory(memory).expect("detached"));
        ends.close();
        Ok(())
    })
}

/// Packets that are sent and received in parts: several parts posted, of other lengths than those sent, and an end only where the packet's is.
fn parts(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        let mut ends = Ends::open(context, mode, 8, 4096)?;
        let (content, memory) = ends.register_memory(bytes(3, 1 << 16));
        let odd = ends.tx.submit_part_at(memory, 0, 65).expect_err("a partial beat inside a packet");
        assert!(odd.to_string().contains("65"), "{odd}");
        for round in 0..6 {
            let (whole, last) = (round * 1984, 1 + round * 77);
            let mut sent = 0;
            // Whole beats: streams cannot carry others inside a packet.
            let part = usize::next_multiple_of(whole / 4, 64);
            while sent < whole {
                let length = part.min(whole - sent);
                ends.tx.submit_part_at(memory, sent, length).expect("accepted");
                sent += length;
            }
            ends.tx.submit_at(memory, whole, last).expect("accepted");
            let mut data = Vec::new();
            while data.len() < whole + last {
                for length in [64, 1024, 4096].into_iter().take(3 - ends.rx.posted_parts()) {
                    ends.rx.post_part(length).expect("a free buffer");
                }
                let is_end = ends.until(|ends| {
                    let part = ends.rx.next_part().expect("receiving succeeds")?;
                    data.extend(part.buffer.to_vec());
                    Some(part.ends_packet)
                });
                assert_eq!(
                    is_end,
                    data.len() == whole + last,
                    "{mode:?}: {} of {}",
                    data.len(),
                    whole + last
                );
            }
            assert!(data == content[..whole + last], "{mode:?}: round {round}");
        }
        ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        // Whole packets can be received once no part is posted.
        ends.rx.next_packet().expect_err("parts are posted");
        ends.rx.abort().expect("stopped");
        ends.send(&content[..500]);
        assert!(ends.receive() == content[..500]);
        drop(ends.tx.deregister_memory(memory).expect("detached"));
        ends.close();
        Ok(())
    })
}

/// Packet ends are preserved: bursts of packets of any length against a queue, sent from buffers, from registered memory, and gathered from
/// two places in it.
fn random(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        for (buffers, size, longest) in [(4, 64, 120), (64, 64, 2000), (16, 4096, 20_000), (256, 2048, 3000)]
        {
            let mut ends = Ends::open(context, mode, buffers, size)?;
            let (content, memory) = ends.register_memory(bytes(5, 1 << 16));
            let mut rng = Pcg64::new(u64::from(buffers).into(), 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96);
            let mut below = |end: usize| usize::try_from(rng.next_u64() % end as u64).unwrap_or(0);
            let (mut expected, mut got) = (VecDeque::new(), 0);
            // A repeatable run has most of the packets.
            let least = if context.real_time() { 100 } else { 400 };
            while got < least {
                for _ in 0..below(8) {
                    let length = 1 + below(longest);
                    let offset = below(content.len() - longest);
                    let data = &content[offset..offset + length];
                    let (refused, data) = match below(3) {
                        0 => {
                            // Two whole beats from another place come first.
                            let first = below(1000) * 64;
                            let parts = [(first, 128), (offset, length)];
                            let parts =
                                parts.map(|(offset, length)| PacketFragment { memory, offset, length });
                            let data = [&content[first..first + 128], data].concat();
                            (ends.tx.submit_list(&parts).err(), data)
                        }
                        1 => (ends.tx.submit_at(memory, offset, length).err(), data.to_vec()),
                        _ => {
                            let buffer = ends.opened.card.buffer_from(data).expect("DMA memory");
                            (ends.tx.submit(buffer).err().map(|refused| refused.error), data.to_vec())
                        }
                    };
                    match refused {
                        None => expected.push_back(data),
                        Some(error) => assert!(error.is_full(), "{error}"),
                    }
                }
                ends.tx.poll().expect("started");
                for _ in 0..below(12).min(expected.len()) {
                    let packet = ends.receive();
                    assert!(Some(packet) == expected.pop_front(), "{mode:?} {buffers}: packet {got}");
                    got += 1;
                }
            }
            while let Some(data) = expected.pop_front() {
                assert!(ends.receive() == data, "{mode:?} {buffers}: the rest");
                got += 1;
            }
            let statistics = ends.rx.statistics();
            assert_eq!((statistics.packets, statistics.lost, statistics.discarded_bytes), (got, 0, 0));
            ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
            while let Some(done) = ends.tx.next_completion() {
                assert!(
                    done.outcome.is_ok() && done.buffer.is_some(),
                    "{mode:?} {buffers}: {:?}",
                    done.outcome
                );
            }
            drop(ends.tx.deregister_memory(memory).expect("detached"));
            ends.close();
        }
        Ok(())
    })
}

/// Data of the channels of one card does not mix.
fn two_channels(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        let mut ends = Ends::open(context, mode, 64, 1024)?;
        let mut other_tx = ends.opened.card.h2c_stream(1).expect("the channel");
        let mut other_rx = ends.opened.card.c2h_stream(1).expect("the channel");
        for n in 0..50 {
            let (here, there) = (bytes(n, 500), bytes(1000 + n, 700));
            ends.send(&here);
            other_tx.submit(ends.opened.card.buffer_from(&there).expect("DMA memory")).expect("accepted");
            other_tx.poll().expect("started");
            let packet = other_rx.wait_packet(long_wait()).expect("a packet arrives");
            assert!(packet.to_vec() == there, "{mode:?}: loop 1, packet {n}");
            assert!(ends.receive() == here, "{mode:?}: loop 0, packet {n}");
        }
        drop((other_tx, other_rx));
        ends.close();
        Ok(())
    })
}

fn waits(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        let hybrid = WaitMode::Hybrid { spin: Duration::from_micros(2) };
        for wait in [WaitMode::Poll, WaitMode::Interrupt, hybrid] {
            let opened = context.open();
            opened.interrupts()?;
            let mut ends = Ends::of(opened, mode, 16, 512)?;
            for n in 0..60_u16 {
                let data = bytes(n.into(), 1 + usize::from(n) * 31);
                ends.send(&data);
                let packet = ends.rx.wait_packet(long_wait().mode(wait)).expect("a packet arrives");
                assert!(packet.to_vec() == data, "{mode:?} {wait:?}: packet {n}");
            }
            // No packet arrives: the wait ends in time, and the buffers stay posted.
            let short = WaitOptions::default().mode(wait).timeout(Duration::from_millis(3));
            let late = ends.rx.wait_packet(short).map(|packet| packet.len());
            assert!(late.as_ref().is_err_and(Error::is_timeout), "{late:?}");
            ends.assert_works(1);
            ends.close();
        }
        Ok(())
    })
}

/// A circular ring: buffers are returned by credits, and far more packets than there are buffers arrive complete.
fn credits(context: &mut CaseContext<'_>) -> Verdict {
    const PACKETS: u64 = 500;
    for build in [SOURCE_500, SOURCE_500_SLOW] {
        let generated = build.description().stream.source;
        on_loops(context, &build, |context, mode| {
            let opened = context.open();
            let options = C2hStreamOptions::default().buffers(16).buffer_size(1024).run_mode(mode);
            let mut rx = opened.card.c2h_stream_with(1, options).map_err(|error| Skip(error.to_string()))?;
            for n in 0..PACKETS {
                let packet = rx.wait_packet(long_wait()).expect("a packet arrives");
                assert!(packet.to_vec() == generated.packet(1, n), "{mode:?} {}: packet {n}", build.name);
            }
            let none = rx.wait_packet(WaitOptions::default().timeout(Duration::from_millis(1)));
            assert!(none.is_err_and(|error| error.is_timeout()), "no more packets than the source made");
            drop(rx);
            opened.assert_pool(0, 0);
            opened.close();
            Ok(())
        })?;
    }
    Ok(())
}

/// A receiver that takes no packets holds the sender back. Nothing is lost, and everything arrives once the receiver takes packets.
fn back_pressure(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        let mut ends = Ends::open(context, mode, 4, 1024)?;
        let (content, memory) = ends.register_memory(bytes(3, 1024));
        // The first call posts the buffers.
        assert!(ends.rx.next_packet().expect("no fault").is_none());
        let (mut sent, mut last) = (0, None);
        let mut fill = |ends: &mut Ends| {
            while let Ok(ticket) = ends.tx.submit_at(memory, 0, 1024) {
                (sent, last) = (sent + 1, Some(ticket));
            }
            sent
        };
        let first = fill(&mut ends);
        // The receiver's buffers and the FIFO fill up; then there is no more progress.
        let mut still = 0;
        let mut before = 0;
        while still < 2000 {
            ends.tx.poll().expect("back-pressure is not a fault");
            still = if ends.tx.ended() == before { still + 1 } else { 0 };
            before = ends.tx.ended();
            std::thread::yield_now();
            ends.rx.relax();
        }
        assert!(before < first, "{mode:?}: {before} of {first} transfers ended");
        // Ended transfers have freed slots for more.
        let sent = fill(&mut ends);
        assert_eq!(ends.tx.statistics().refused, 2, "each fill ends with one refused submission");
        if !context.real_time() {
            let (network, number) = context.simulated().expect("a simulated card in this process");
            let holds = network.with_card(number, |card| card.counters().stream_holds);
            assert_eq!(holds, Some(1), "the port holds the channel because the FIFO is full");
            // Nothing is sent while the wait lasts.
            let stood = ends.tx.statistics().still;
            let short = WaitOptions::default().timeout(Duration::from_millis(350));
            let waited = ends.tx.wait_ended(last.expect("submitted"), short);
            assert!(matches!(waited, Err(Error { kind: ChannelError::TimedOut { .. }, .. })), "{waited:?}");
            // The first of three polls may find transfers that have ended before.
            let stood = ends.tx.statistics().still - stood;
            assert!((2..=3).contains(&stood), "{mode:?}: {:?}", ends.tx.statistics());
        }
        for n in 0..sent {
            assert!(ends.receive() == content, "{mode:?}: packet {n}");
        }
        assert!(ends.rx.statistics().starved > 0, "{:?}", ends.rx.statistics());
        ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        drop(ends.tx.deregister_memory(memory).expect("detached"));
        ends.close();
        Ok(())
    })
}

/// A packet that pauses: its descriptor is closed after the timeout, the data so far arrives, and the rest still belongs to the same
/// packet.
fn flush(context: &mut CaseContext<'_>) -> Verdict {
    // As PG195 specifies, a descriptor without data is not closed.
    on_loops(context, &GUIDE_LOOPBACK, |context, mode| {
        let mut ends = Ends::open(context, mode, 16, 512)?;
        let (network, number) = context.simulated().expect("a simulated card in this process");
        // 256 clocks.
        ends.opened.card.set_write_flush_timeout(8).expect("a register");
        let closed = || network.with_card(number, |card| card.counters().descriptors).unwrap_or_default();
        for n in 0..3_u8 {
            assert!(ends.rx.next_packet().expect("no fault").is_none());
            let before = closed();
            ends.push(context, &[n; 100], false);
            ends.until(|_| (closed() > before).then_some(()));
            ends.push(context, &[n; 33], true);
            let lengths = ends.until(|ends| {
                let packet = ends.rx.next_packet().expect("no fault")?;
                assert!(packet.to_vec() == [n; 133]);
                Some(packet.parts().map(|part| part.len()).collect::<Vec<_>>())
            });
            assert_eq!(lengths, [100, 33], "{mode:?}: closed in between");
        }
        // An engine that waits for data stops with the next data.
        ends.rx.stop().expect("a register");
        ends.push(context, &[9; 10], true);
        assert_eq!(ends.receive(), [9; 10], "{mode:?}");
        ends.until(|ends| {
            assert!(ends.rx.next_packet().expect("no fault").is_none());
            (ends.rx.posted() == 0).then_some(())
        });
        ends.close();
        Ok(())
    })?;
    if context.real_time() {
        // Where empty descriptors are closed too, a pause may use up all posted descriptors.
        return Ok(());
    }
    on_loops(context, &LOOPS, |context, mode| {
        let mut ends = Ends::open(context, mode, 16, 512)?;
        let (network, _) = context.simulated().expect("a simulated card in this process");
        ends.opened.card.set_write_flush_timeout(8).expect("a register");
        for n in 0..3_u8 {
            assert!(ends.rx.next_packet().expect("no fault").is_none());
            ends.push(context, &[n; 100], false);
            // More than 256 clocks of 4 ns.
            network.advance(Nanos::from_micros(5));
            ends.push(context, &[n; 33], true);
            assert_eq!(ends.receive(), [n; 133], "{mode:?}");
        }
        ends.opened.card.set_write_flush_timeout(0).expect("a register");
        ends.assert_works(1);
        ends.close();
        Ok(())
    })
}

/// Streams that are dropped in either order with buffers posted, or stopped explicitly: all memory is returned, and the channels can be
/// started again.
fn ends(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        let mut opened = context.open();
        for round in 0..3 {
            let mut ends = Ends::of(opened, mode, 16, 512)?;
            ends.assert_works(round);
            assert!(ends.rx.next_packet().expect("no fault").is_none());
            assert!(ends.rx.posted() > 0, "buffers are posted");
            ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
            if round == 2 {
                assert!(ends.rx.abort().expect("the channel stops without data").is_none());
                assert_eq!(ends.rx.posted(), 0);
            }
            let Ends { tx, rx, opened: again } = ends;
            if round == 1 {
                drop((tx, rx));
            } else {
                drop((rx, tx));
            }
            opened = again;
            opened.assert_pool(0, 0);
        }
        opened.close();
        Ok(())
    })
}

/// A channel that is dropped in the middle of a packet: its next owner begins with the next whole packet.
fn reopened(context: &mut CaseContext<'_>) -> Verdict {
    on_loops(context, &LOOPS, |context, mode| {
        let mut ends = Ends::open(context, mode, 4, 64)?;
        // More than the four buffers, and than those that are posted after them.
        ends.send(&bytes(1, 4000));
        match ends.next() {
            Err(Error { kind: StreamError::Packet(PacketFault::TooLong { .. }), .. }) => {}
            other => panic!("{mode:?}: {other:?}"),
        }
        let Ends { tx, rx, opened } = ends;
        drop(rx);
        let options = C2hStreamOptions::default().buffers(64).buffer_size(64).run_mode(mode);
        let rx = opened.card.c2h_stream_with(0, options).expect("the channel is free");
        let mut ends = Ends { tx, rx, opened };
        let data = bytes(2, 100);
        ends.send(&data);
        assert!(ends.receive() == data, "{mode:?}: a whole packet");
        assert!(ends.rx.statistics().discarded_bytes > 0);
        // After a whole packet, nothing is discarded.
        ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        let Ends { tx, rx, opened } = ends;
        drop(rx);
        let rx = opened.card.c2h_stream_with(0, options).expect("the channel is free");
        let mut ends = Ends { tx, rx, opened };
        ends.assert_works(3);
        assert_eq!(ends.rx.statistics().discarded_bytes, 0);
        // The same with single buffers, which receive parts of the stream.
        ends.rx.abort().expect("the channel stops without data");
        ends.send(&bytes(4, 1000));
        let buffer = ends.opened.card.buffer(64).expect("DMA memory");
        let part = ends.rx.receive_part(buffer, long_wait()).expect("data arrives");
        assert!(part.buffer.len() == 64 && !part.ends_packet);
        drop(part);
        let Ends { tx, rx, opened } = ends;
        drop(rx);
        let rx = opened.card.c2h_stream_with(0, options).expect("the channel is free");
        let mut ends = Ends { tx, rx, opened };
        ends.assert_works(5);
        assert_eq!(ends.rx.statistics().discarded_bytes, 936);
        ends.close();
        Ok(())
    })
}
