//! AXI4-Stream channels, on cards of such builds: packets whole and in order, back-pressure, the write flush timeout, metadata that
//! cannot be believed. A door that has only the card that is there leaves them out.

use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant;

use fpga_card::fault_plan::{ChannelName, FaultEntry, FaultName};
use fpga_driver::stream::{C2hStream, C2hStreamOptions, H2cStream, PacketFault, PacketPart, StreamError};
use fpga_driver::{BarOffset, ChannelOptions, ResourceError, RunMode, Transport as _, WaitMode, WaitOptions};
use rand_core::Rng;
use rand_pcg::Pcg64;

use super::{Bench, Case, Verdict, case};
use crate::conformance::bench::{Opened, patient};
use crate::conformance::builds::{GUIDES_LOOP, LOOPS, SOURCE, SOURCE_500, SOURCE_500_SLOW};
use crate::conformance::faults::{After, Memory, Said, row};
use crate::conformance::{Ability, Build, Cost, Skip};
use crate::{PATIENCE, bytes};

pub(super) const CASES: &[Case] = &[
    case("stream.every_size", &[], every_size),
    case("stream.gathered_packets", &[], gathered),
    case("stream.random_packets", &[], random),
    case("stream.both_loops", &[], both),
    case("stream.waits", &[], waits),
    case("stream.credits", &[], credits),
    case("stream.back_pressure", &[], back_pressure),
    case("stream.flush_timeout", &[Ability::CardLogic], flush),
    case("stream.ends", &[], ends),
    case("cost.stream", &[], cost),
];

/// What cannot be believed of a stream, as rows of the fault table.
pub(super) const FAULTS: &[Case] = &[
    case("fault.stream_metadata_missing", CARD, |bench| {
        metadata(bench, "stream_metadata_missing", fault(FaultName::MissingMetadata), |fault| {
            matches!(fault, PacketFault::Missing { .. })
        })
    }),
    case("fault.stream_metadata_torn", CARD, |bench| {
        metadata(bench, "stream_metadata_torn", fault(FaultName::TornMetadata), |fault| {
            matches!(fault, PacketFault::Empty { .. })
        })
    }),
    case("fault.stream_metadata_magic", CARD, |bench| {
        metadata(bench, "stream_metadata_magic", words([0x1234_0001, 100]), |fault| {
            matches!(fault, PacketFault::Magic { word: 0x1234_0001, .. })
        })
    }),
    case("fault.stream_metadata_length", CARD, |bench| {
        metadata(bench, "stream_metadata_length", words([0x52B4_0001, 513]), |fault| {
            matches!(fault, PacketFault::Length { length: 513, buffer: 512, .. })
        })
    }),
    case("fault.stream_metadata_no_end", CARD, |bench| {
        metadata(bench, "stream_metadata_no_end", words([0x52B4_0000, 100]), |fault| {
            matches!(fault, PacketFault::NoEnd { length: 100, buffer: 512, .. })
        })
    }),
    case("fault.stream_end_lost", CARD, end_lost),
];

const CARD: &[Ability] = &[Ability::CardFaults];
const MODES: [RunMode; 2] = [RunMode::CreditRing, RunMode::StopRuns];

/// Befalls the second packet of the first C2H channel.
fn fault(name: FaultName) -> FaultEntry {
    FaultEntry { channel: Some(ChannelName::C2h(0)), skip: 1, ..FaultEntry::new(name) }
}

/// These words in place of its metadata.
fn words(words: [u32; 2]) -> FaultEntry {
    FaultEntry { words: Some(words), ..fault(FaultName::WrongMetadata) }
}

/// Both ends of a card's first loop. Dropped in this order.
struct Ends {
    tx: H2cStream,
    rx: C2hStream,
    opened: Opened,
}

/// Runs a case in both run modes, each on a card of its own.
fn on_loops(bench: &Bench<'_>, build: &Build, case: impl Fn(&Bench<'_>, RunMode) -> Verdict) -> Verdict {
    MODES.into_iter().try_for_each(|mode| bench.on(build, |bench| case(bench, mode)))
}

impl Ends {
    fn open(bench: &Bench<'_>, mode: RunMode, buffers: u32, size: usize) -> Result<Self, Skip> {
        Self::of(bench.open(), mode, buffers, size)
    }

    fn of(opened: Opened, mode: RunMode, buffers: u32, size: usize) -> Result<Self, Skip> {
        let options = C2hStreamOptions::default().buffers(buffers).buffer_size(size).run_mode(mode);
        let taken = opened.card.c2h_stream_with(0, options).and_then(|rx| {
            let tx = opened.card.h2c_stream_with(0, ChannelOptions::default().run_mode(mode))?;
            Ok((tx, rx))
        });
        match taken {
            Ok((tx, rx)) => Ok(Self { tx, rx, opened }),
            Err(error @ ResourceError::NoCreditMode { .. }) => Err(Skip(error.to_string())),
            Err(error) => panic!("{error}"),
        }
    }

    fn send(&mut self, data: &[u8]) {
        let buffer = self.opened.card.buffer_from(data).expect("DMA memory");
        self.tx.submit(buffer).expect("accepted");
        self.tx.poll().expect("started");
    }

    /// Does `step` until it gives something.
    fn until<T>(&mut self, mut step: impl FnMut(&mut Self) -> Option<T>) -> T {
        let now = |ends: &Self| Duration::from_nanos(ends.opened.seam.now());
        let end = now(self) + PATIENCE;
        loop {
            self.tx.poll().expect("the sender works");
            if let Some(done) = step(self) {
                return done;
            }
            assert!(now(self) < end, "nothing comes: {:?}", self.rx.statistics());
            // A card with a thread may need this processor.
            std::thread::yield_now();
            self.rx.relax();
        }
    }

    /// The next packet, or what is said instead.
    fn next(&mut self) -> Result<Vec<u8>, StreamError> {
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
        assert!(self.receive() == data, "a packet goes round");
    }

    /// Everything sent has gone, everything comes back.
    fn close(mut self) {
        self.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        let Self { tx, rx, opened } = self;
        drop((tx, rx));
        opened.assert_pool(0, 0);
        opened.close();
    }
}

/// Packets of one descriptor and of many, each way.
fn every_size(bench: &mut Bench<'_>) -> Verdict {
    on_loops(bench, &LOOPS, |bench, mode| {
        let mut ends = Ends::open(bench, mode, 128, 1024)?;
        let lengths = [1, 2, 63, 64, 65, 1023, 1024, 1025, 4096, 65_537, 100_000];
        for (seed, length) in (0..).zip(lengths) {
            let data = bytes(seed, length);
            ends.send(&data);
            assert!(ends.receive() == data, "{mode:?}: {length} bytes");
        }
        let statistics = ends.rx.statistics();
        assert_eq!((statistics.packets, statistics.lost, statistics.discarded_bytes), (11, 0, 0));
        // A packet lies in as many buffers as it fills.
        let data = bytes(20, 2500);
        ends.send(&data);
        let lengths = ends.until(|ends| {
            let packet = ends.rx.next_packet().expect("no fault")?;
            Some(packet.parts().map(|part| part.len()).collect::<Vec<_>>())
        });
        assert_eq!(lengths, [1024, 1024, 452]);
        ends.close();
        Ok(())
    })
}

/// One packet out of several places: descriptors of its own for each, and one end.
fn gathered(bench: &mut Bench<'_>) -> Verdict {
    on_loops(bench, &LOOPS, |bench, mode| {
        let mut ends = Ends::open(bench, mode, 64, 1024)?;
        let content = bytes(1, 1 << 16);
        let area = ends.opened.card.area(content.len()).expect("DMA memory");
        area.memory().write(0, &content).expect("in range");
        let memory = ends.tx.attach(area).expect("attached");
        for count in 1..=8 {
            let places: Vec<(usize, usize)> =
                (0..count).map(|n| (n * 7001, if n + 1 == count { 333 } else { 64 * (n + 1) })).collect();
            let parts: Vec<PacketPart> =
                places.iter().map(|&(offset, length)| PacketPart { memory, offset, length }).collect();
            ends.tx.submit_list(&parts).expect("accepted");
            let data: Vec<u8> = places
                .iter()
                .flat_map(|&(offset, length)| &content[offset..offset + length])
                .copied()
                .collect();
            assert!(ends.receive() == data, "{mode:?}: {count} parts");
        }
        ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        drop(ends.tx.detach(memory).expect("detached"));
        ends.close();
        Ok(())
    })
}

/// Ends of packets stay where they are: bursts of packets of any length against a queue.
fn random(bench: &mut Bench<'_>) -> Verdict {
    on_loops(bench, &LOOPS, |bench, mode| {
        for (buffers, size, longest) in [(4, 64, 120), (64, 64, 2000), (32, 2048, 9000)] {
            let mut ends = Ends::open(bench, mode, buffers, size)?;
            let mut dice = Pcg64::new(u64::from(buffers).into(), 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96);
            let mut below = |end: u64| usize::try_from(dice.next_u64() % end).unwrap_or(0);
            let (mut expected, mut got) = (VecDeque::new(), 0);
            while got < 200 {
                for _ in 0..below(6) {
                    let data = bytes(got, 1 + below(longest));
                    let buffer = ends.opened.card.buffer_from(&data).expect("DMA memory");
                    match ends.tx.submit(buffer) {
                        Ok(_) => expected.push_back(data),
                        Err(refused) => assert!(refused.error.is_full(), "{}", refused.error),
                    }
                }
                ends.tx.poll().expect("started");
                for _ in 0..below(9).min(expected.len()) {
                    let packet = ends.receive();
                    assert!(Some(packet) == expected.pop_front(), "{mode:?} {buffers}: packet {got}");
                    got += 1;
                }
            }
            while let Some(data) = expected.pop_front() {
                assert!(ends.receive() == data, "{mode:?} {buffers}: the rest");
            }
            ends.close();
        }
        Ok(())
    })
}

/// Channels of one card do not mix.
fn both(bench: &mut Bench<'_>) -> Verdict {
    on_loops(bench, &LOOPS, |bench, mode| {
        let mut ends = Ends::open(bench, mode, 64, 1024)?;
        let mut other_tx = ends.opened.card.h2c_stream(1).expect("the channel");
        let mut other_rx = ends.opened.card.c2h_stream(1).expect("the channel");
        for n in 0..30 {
            let (here, there) = (bytes(n, 500), bytes(1000 + n, 700));
            ends.send(&here);
            other_tx.submit(ends.opened.card.buffer_from(&there).expect("DMA memory")).expect("accepted");
            other_tx.poll().expect("started");
            let packet = other_rx.wait_packet(patient()).expect("it comes");
            assert!(packet.to_vec() == there, "{mode:?}: loop 1, packet {n}");
            assert!(ends.receive() == here, "{mode:?}: loop 0, packet {n}");
        }
        drop((other_tx, other_rx));
        ends.close();
        Ok(())
    })
}

fn waits(bench: &mut Bench<'_>) -> Verdict {
    on_loops(bench, &LOOPS, |bench, mode| {
        let hybrid = WaitMode::Hybrid { spin: Duration::from_micros(2) };
        for wait in [WaitMode::Poll, WaitMode::Interrupt, hybrid] {
            let opened = bench.open();
            opened.interrupts()?;
            let mut ends = Ends::of(opened, mode, 16, 512)?;
            for n in 0..20_u16 {
                let data = bytes(n.into(), 1 + usize::from(n) * 31);
                ends.send(&data);
                let packet = ends.rx.wait_packet(patient().mode(wait)).expect("it comes");
                assert!(packet.to_vec() == data, "{mode:?} {wait:?}: packet {n}");
            }
            // Nothing comes: in time, and the buffers stay posted.
            let short = WaitOptions::default().mode(wait).timeout(Duration::from_millis(3));
            let late = ends.rx.wait_packet(short).map(|packet| packet.len());
            assert!(late.as_ref().is_err_and(StreamError::is_timeout), "{late:?}");
            ends.assert_works(1);
            ends.close();
        }
        Ok(())
    })
}

/// A ring that runs on and on: buffers go back by credits, and many times as many packets as there are buffers come whole.
fn credits(bench: &mut Bench<'_>) -> Verdict {
    const PACKETS: u64 = 500;
    for build in [SOURCE_500, SOURCE_500_SLOW] {
        let generated = build.description().stream.source;
        on_loops(bench, &build, |bench, mode| {
            let opened = bench.open();
            let options = C2hStreamOptions::default().buffers(16).buffer_size(1024).run_mode(mode);
            let mut rx = opened.card.c2h_stream_with(1, options).map_err(|error| Skip(error.to_string()))?;
            for n in 0..PACKETS {
                let packet = rx.wait_packet(patient()).expect("it comes");
                assert!(packet.to_vec() == generated.packet(1, n), "{mode:?} {}: packet {n}", build.name);
            }
            let none = rx.wait_packet(WaitOptions::default().timeout(Duration::from_millis(1)));
            assert!(none.is_err_and(|error| error.is_timeout()), "no more than were made");
            drop(rx);
            opened.assert_pool(0, 0);
            opened.close();
            Ok(())
        })?;
    }
    Ok(())
}

/// Whoever takes no packets holds the sender back; nothing is lost, and everything comes as soon as he does.
fn back_pressure(bench: &mut Bench<'_>) -> Verdict {
    on_loops(bench, &LOOPS, |bench, mode| {
        let mut ends = Ends::open(bench, mode, 4, 1024)?;
        let area = ends.opened.card.area(1024).expect("DMA memory");
        area.memory().write(0, &bytes(3, 1024)).expect("in range");
        let memory = ends.tx.attach(area).expect("attached");
        // The first call posts the buffers.
        assert!(ends.rx.next_packet().expect("no fault").is_none());
        let mut sent = 0;
        while ends.tx.submit_at(memory, 0, 1024).is_ok() {
            sent += 1;
        }
        // Its buffers and what lies between fill up; then nothing moves.
        let mut still = 0;
        let mut before = 0;
        while still < 2000 {
            ends.tx.poll().expect("held back is no fault");
            still = if ends.tx.ended() == before { still + 1 } else { 0 };
            before = ends.tx.ended();
            std::thread::yield_now();
            ends.rx.relax();
        }
        assert!(before < sent, "{mode:?}: {before} of {sent} have gone");
        for n in 0..sent {
            assert!(ends.receive() == bytes(3, 1024), "{mode:?}: packet {n}");
        }
        assert!(ends.rx.statistics().starved > 0, "{:?}", ends.rx.statistics());
        ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
        drop(ends.tx.detach(memory).expect("detached"));
        ends.close();
        Ok(())
    })
}

/// A packet that pauses: its descriptor is closed in time, what is there arrives, and the rest is still the same packet's.
fn flush(bench: &mut Bench<'_>) -> Verdict {
    // As the guide has it: a descriptor without data is not closed.
    on_loops(bench, &GUIDES_LOOP, |bench, mode| {
        let mut ends = Ends::open(bench, mode, 16, 512)?;
        let (world, number) = bench.simulated().expect("the card is in this process");
        // 256 clocks.
        ends.opened.card.set_write_flush_timeout(8).expect("a register");
        let closed = || world.with_card(number, |card| card.counters().descriptors).unwrap_or_default();
        let push = |ends: &Ends, n: u8, length: usize, end: bool| {
            let took = world.with_card(number, |card| card.push_stream(0, &[n; 512][..length], end));
            assert_eq!(took, Some(length));
            // A served card sleeps until it is asked something.
            ends.opened.card.dma_bar().read32(BarOffset::ZERO).expect("a register");
        };
        for n in 0..3_u8 {
            assert!(ends.rx.next_packet().expect("no fault").is_none());
            let before = closed();
            push(&ends, n, 100, false);
            ends.until(|_| (closed() > before).then_some(()));
            push(&ends, n, 33, true);
            let lengths = ends.until(|ends| {
                let packet = ends.rx.next_packet().expect("no fault")?;
                assert!(packet.to_vec() == [n; 133]);
                Some(packet.parts().map(|part| part.len()).collect::<Vec<_>>())
            });
            assert_eq!(lengths, [100, 33], "{mode:?}: closed in between");
        }
        // An engine that waits for data ends with some.
        ends.rx.stop().expect("a register");
        push(&ends, 9, 10, true);
        assert_eq!(ends.receive(), [9; 10], "{mode:?}");
        ends.until(|ends| {
            assert!(ends.rx.next_packet().expect("no fault").is_none());
            (ends.rx.posted() == 0).then_some(())
        });
        ends.close();
        Ok(())
    })
}

/// Dropped in either order with buffers posted, or stopped by hand: everything comes back, and the channels start anew.
fn ends(bench: &mut Bench<'_>) -> Verdict {
    on_loops(bench, &LOOPS, |bench, mode| {
        let mut opened = bench.open();
        for round in 0..3 {
            let mut ends = Ends::of(opened, mode, 16, 512)?;
            ends.assert_works(round);
            assert!(ends.rx.next_packet().expect("no fault").is_none());
            assert!(ends.rx.posted() > 0, "buffers are posted");
            ends.until(|ends| (ends.tx.in_flight() == 0).then_some(()));
            if round == 2 {
                assert!(ends.rx.abort().expect("it leaves without data").is_none());
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

/// Polling for packets reads no register; sixteen packets and more share a register write.
fn cost(bench: &mut Bench<'_>) -> Verdict {
    const COUNT: u64 = 2048;
    bench.on(&SOURCE, |bench| {
        let opened = bench.open();
        let mut rx = opened
            .card
            .c2h_stream_with(0, C2hStreamOptions::default().buffers(256))
            .map_err(|error| Skip(error.to_string()))?;
        let mut run = |count: u64| {
            for _ in 0..count {
                rx.wait_packet(patient()).expect("it comes");
            }
        };
        run(300);
        let began = Instant::now();
        let cost = super::cost::cost(&opened, || run(COUNT));
        // Whenever nothing has moved for a millisecond, status and count are looked at: real time only, on a busy machine.
        let looks = if bench.real_time() { began.elapsed().as_millis() } else { 0 };
        assert!(u128::from(cost.reads) <= 2 * looks, "{cost:?}");
        assert_eq!(cost.interrupts, 0, "{cost:?}");
        assert!(cost.writes <= COUNT / 16, "{cost:?}");
        bench.show(Cost {
            work: "polling, packets of a C2H stream".to_owned(),
            transfers: COUNT,
            reads: cost.reads,
            writes: cost.writes,
            interrupts: cost.interrupts,
        });
        drop(rx);
        opened.assert_pool(0, 0);
        opened.close();
        Ok(())
    })
}

/// The second packet's metadata is wrong: told of once, nothing of it is handed out, and after the next end of packet it goes on.
fn metadata(
    bench: &mut Bench<'_>,
    name: &str,
    fault: FaultEntry,
    expected: fn(&PacketFault) -> bool,
) -> Verdict {
    let row = row(name);
    on_loops(bench, &LOOPS, |bench, mode| {
        let mut ends = Ends::open(bench, mode, 16, 512)?;
        bench.set_faults([fault.clone()]);
        for n in 1..=4_u8 {
            ends.send(&[n; 100]);
        }
        assert_eq!(ends.receive(), [1; 100], "{mode:?}");
        let told = match ends.next() {
            Err(StreamError::Packet { source, .. }) if expected(&source) => Said::Metadata,
            other => panic!("{mode:?}: {other:?}"),
        };
        assert_eq!([told], row.said);
        // Whether the lost one was the end of its packet is not known: up to the next end nothing is believed.
        assert_eq!(ends.receive(), [4; 100], "{mode:?}");
        assert_eq!(ends.rx.statistics().lost, 1);
        assert_eq!((row.memory, row.after), (Memory::Returned, After::Channel));
        ends.assert_works(5);
        ends.close();
        Ok(())
    })
}

/// The end of the second packet is lost in the card, without a trace in the metadata.
fn end_lost(bench: &mut Bench<'_>) -> Verdict {
    let row = row("stream_end_lost");
    on_loops(bench, &LOOPS, |bench, mode| {
        let mut ends = Ends::open(bench, mode, 16, 512)?;
        bench.set_faults([fault(FaultName::LostPacketEnd)]);
        for n in 1..=4_u8 {
            ends.send(&[n; 100]);
        }
        assert_eq!(ends.receive(), [1; 100], "{mode:?}");
        let joined = ends.receive();
        assert!(joined == [[2; 100], [3; 100]].concat(), "{mode:?}: {} bytes", joined.len());
        assert_eq!(
            (row.said, row.memory, row.after),
            (&[Said::Joined][..], Memory::Returned, After::Channel)
        );
        assert_eq!(ends.receive(), [4; 100], "{mode:?}");
        ends.assert_works(5);
        ends.close();
        Ok(())
    })
}
