//! Packets of every size and shape go round.

use std::collections::VecDeque;

use fpga_driver::{ChannelError, PacketPart};
use rand_core::Rng;
use rand_pcg::Pcg64;

use super::*;

#[test]
fn every_size_from_a_byte_to_a_megabyte() {
    for setup in setups() {
        let mut ends = setup.open(512, 4096);
        for (seed, length) in
            [1, 2, 63, 64, 65, 4095, 4096, 4097, 8192, 65_536, 65_537, 1 << 20].into_iter().enumerate()
        {
            let data = bytes(seed as u64, length);
            ends.send(&data);
            assert!(ends.receive() == data, "{setup:?}: {length} bytes");
        }
        let statistics = ends.rx.statistics();
        assert_eq!((statistics.packets, statistics.lost, statistics.discarded_bytes), (12, 0, 0));
        while ends.tx.in_flight() > 0 {
            ends.tx.poll().unwrap();
            ends.tx.relax();
        }
        assert_eq!(std::iter::from_fn(|| ends.tx.next_completion()).count(), 12);
        let Loop { tx, rx, card, world } = ends;
        drop((tx, rx));
        cards::assert_pool(&card, 0, 0);
        drop(card);
        cards::assert_closed(&world, 0);
    }
}

#[test]
fn the_parts_of_a_packet_are_the_buffers_it_fills() {
    let mut ends = Setup::new(RunMode::CreditRing).open(8, 128);
    let data = bytes(1, 300);
    ends.send(&data);
    let patience = Patience::new(&ends.world);
    loop {
        ends.tx.poll().unwrap();
        if let Some(packet) = ends.rx.next_packet().unwrap() {
            let lengths: Vec<_> = packet.parts().map(|part| part.len()).collect();
            assert_eq!((lengths.as_slice(), packet.len()), (&[128, 128, 44][..], 300));
            let mut middle = [0; 100];
            packet.read(100, &mut middle).unwrap();
            assert_eq!(middle, data[100..200]);
            assert!(packet.read(201, &mut middle).is_err());
            assert!(packet.read(usize::MAX, &mut middle).is_err());
            break;
        }
        patience.relax(&ends.rx);
    }
}

/// Random packets, sent from anywhere and gathered from parts, taken in bursts and with pauses, against a queue.
#[test]
fn random_packets_against_a_queue() {
    for setup in setups() {
        for (buffers, size, longest) in [(4, 64, 120), (64, 64, 2000), (16, 4096, 20_000), (256, 2048, 3000)]
        {
            let mut ends = setup.open(buffers, size);
            let content = bytes(5, 1 << 16);
            let memory = ends.attach(&content);
            let mut dice = Pcg64::new(7, 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96);
            let mut below = |end: usize| usize::try_from(dice.next_u64() % end as u64).unwrap();
            let mut expected = VecDeque::new();
            let patience = Patience::new(&ends.world);
            let (mut sent, mut got) = (0, 0);
            while got < 400 {
                for _ in 0..below(8) {
                    let length = 1 + below(longest);
                    let offset = below(content.len() - longest);
                    let queued = if below(3) == 0 {
                        // Two whole beats from elsewhere go before.
                        let first = below(1000) * 64;
                        let parts = [(first, 128), (offset, length)].map(|(offset, length)| PacketPart {
                            memory,
                            offset,
                            length,
                        });
                        let data = [&content[first..first + 128], &content[offset..offset + length]].concat();
                        ends.tx.submit_list(&parts).map(|_| data)
                    } else {
                        let data = content[offset..offset + length].to_vec();
                        ends.tx.submit_at(memory, offset, length).map(|_| data)
                    };
                    match queued {
                        Ok(data) => {
                            expected.push_back(data);
                            sent += 1;
                        }
                        Err(error) => assert!(error.is_full(), "{error}"),
                    }
                }
                ends.tx.poll().unwrap();
                for _ in 0..below(12) {
                    let Some(packet) = ends.rx.next_packet().unwrap() else { break };
                    assert!(Some(packet.to_vec()) == expected.pop_front(), "{setup:?}: packet {got}");
                    got += 1;
                }
                patience.relax(&ends.rx);
            }
            assert!(sent >= got);
            let statistics = ends.rx.statistics();
            assert_eq!((statistics.packets, statistics.lost, statistics.discarded_bytes), (got, 0, 0));
            assert!(ends.tx.next_completion().is_none(), "no packet failed");
        }
    }
}

/// Whoever does not take packets holds the sender back; nothing is lost, and everything comes as soon as he does.
#[test]
fn back_pressure_reaches_the_sender() {
    for mode in MODES {
        let mut ends = Setup::new(mode).open(4, 1024);
        let memory = ends.attach(&bytes(3, 1024));
        let (mut sent, mut last) = (0, None);
        // The first call posts the buffers.
        assert!(ends.rx.next_packet().unwrap().is_none());
        while let Ok(ticket) = ends.tx.submit_at(memory, 0, 1024) {
            (last, sent) = (Some(ticket), sent + 1);
        }
        ends.tx.poll().unwrap();
        ends.settle();
        ends.tx.poll().unwrap();
        // Four buffers, the FIFO, and what the sender's ring holds.
        assert!(ends.tx.ended() < sent, "{} of {sent} have gone", ends.tx.ended());
        // Where some count as gone there is room again.
        while let Ok(ticket) = ends.tx.submit_at(memory, 0, 1024) {
            (last, sent) = (Some(ticket), sent + 1);
        }
        let last = last.unwrap();
        let refused = ends.tx.statistics().refused;
        assert_eq!(refused, 2, "one submission each time found the ring full");
        let holds = ends.world.with_card(0, |card| card.counters().stream_holds).unwrap();
        assert_eq!(holds, 1, "the port holds the channel back, since the FIFO is full");
        // Nothing goes for as long as somebody waits, and then everything.
        let waited = ends.tx.wait_ended(last, within(Duration::from_millis(350)));
        assert!(matches!(waited, Err(ChannelError::TimedOut { .. })), "{waited:?}");
        // The first of three looks may find what has gone before.
        assert!((2..=3).contains(&ends.tx.statistics().still), "{:?}", ends.tx.statistics());
        for _ in 0..sent {
            assert_eq!(ends.receive().len(), 1024);
        }
        assert!(ends.rx.statistics().starved > 0, "{:?}", ends.rx.statistics());
    }
}

#[test]
fn both_loops_at_a_time() {
    let ends = Setup::new(RunMode::CreditRing).open(64, 1024);
    let mut other_tx = ends.card.h2c_stream(1).unwrap();
    let mut other_rx = ends.card.c2h_stream(1).unwrap();
    let mut ends = ends;
    for n in 0..50 {
        let (here, there) = (bytes(n, 500), bytes(1000 + n, 700));
        ends.send(&here);
        other_tx.submit(ends.card.buffer_from(&there).unwrap()).unwrap();
        other_tx.poll().unwrap();
        let packet = other_rx.wait_packet(WaitOptions::default()).unwrap();
        assert!(packet.to_vec() == there);
        assert!(ends.receive() == here);
    }
}

/// Generated packets come as their description says, at any rate.
#[test]
fn a_traffic_source() {
    for rate in ["", ", bytes_per_us: 300, gap_ns: 2000"] {
        for threaded in [false, true] {
            let sections: &'static str = Box::leak(
                format!(
                    "xdma: {{ stream: true }}\nstream:\n  logic: source\n  flush_empty: true\n  \
                     source: {{ seed: 9, shortest: 1, longest: 9000, packets: 200{rate} }}\n"
                )
                .into_boxed_str(),
            );
            let setup = Setup { sections, threaded, ..Setup::new(RunMode::CreditRing) };
            let source = described(sections).stream.source;
            let world = setup.world();
            let card = cards::open(&world);
            let mut rx = card.c2h_stream(3).unwrap();
            for n in 0..200 {
                let packet = rx.wait_packet(WaitOptions::default()).unwrap();
                assert!(packet.to_vec() == source.packet(3, n), "{rate} packet {n}");
            }
            let none = rx.wait_packet(within(Duration::from_millis(1))).unwrap_err();
            assert!(none.is_timeout(), "{none}");
        }
    }
}
