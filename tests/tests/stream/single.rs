//! The parts of a packet, one packet into one buffer, and packets out of owned buffers.

use fpga_driver::stream::PacketFault;
use fpga_driver::{ChannelError, Error, TransferError, stream::StreamError};

use super::*;

#[test]
fn packet_parts_are_filled_buffers() {
    let mut ends = Setup::new(RunMode::Credit).open(8, 128);
    let data = bytes(1, 300);
    ends.send(&data);
    let watchdog = ProgressWatchdog::new(&ends.network);
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
        watchdog.relax(&ends.rx);
    }
}

#[test]
fn receive_single_buffer_gets_one_packet() {
    for setup in setups() {
        let mut ends = setup.open(2, 64);
        for (seed, length) in [1, 64, 1000, 4096, 30_000].into_iter().enumerate() {
            let data = bytes(seed as u64, length);
            ends.send(&data);
            ends.send(b"and another one");
            ends.sent();
            let buffer = ends.card.buffer(32_768).unwrap();
            let buffer = ends.rx.receive(buffer).unwrap();
            assert!(buffer.to_vec() == data, "{setup:?} {length}");
            // The whole capacity of the buffer is used again.
            let buffer = ends.rx.receive(buffer).unwrap();
            assert_eq!(buffer.to_vec(), b"and another one");
        }
        assert_eq!(ends.rx.posted(), 0);
    }
}

#[test]
fn receive_idle_channel_drops_in_order() {
    let ends = Setup::strict().open(2, 64);
    let StreamLoopback { mut tx, mut rx, card, network } = ends;
    tx.submit(card.buffer_from(b"one").unwrap()).unwrap();
    tx.poll().unwrap();
    let buffer = rx.receive(card.buffer(64).unwrap()).unwrap();
    assert_eq!(buffer.to_vec(), b"one");
    drop((tx, rx, buffer));
    cards::assert_pool(&card, 0, 0);
    drop(card);
    cards::assert_closed(&network, 0);
}

#[test]
fn receive_too_long_packet_is_lost_and_next_is_whole() {
    let mut ends = Setup::new(RunMode::Batch).open(2, 64);
    let long = bytes(1, 1000);
    ends.send(&long);
    ends.send(b"short");
    ends.sent();
    let failed = ends.rx.receive(ends.card.buffer(256).unwrap()).unwrap_err();
    let expected = PacketFault::TooLong { bytes: 256 };
    assert!(
        matches!(&failed.error.kind, StreamError::Packet(source) if *source == expected),
        "{}",
        failed.error
    );
    let buffer = failed.buffer.unwrap();
    assert_eq!(buffer.to_vec(), &long[..256], "the beginning of the packet is kept");
    assert_eq!(ends.rx.receive(buffer).unwrap().to_vec(), b"short");
    let statistics = ends.rx.statistics();
    assert_eq!((statistics.packets, statistics.lost, statistics.discarded_bytes), (1, 1, 1000));
}

#[test]
fn receive_timed_out_buffer_stays_posted() {
    for mode in MODES {
        let mut ends = Setup::new(mode).open(64, 64);
        let soon = within(Duration::from_micros(50));
        let failed = ends.rx.receive_with(ends.card.buffer(128).unwrap(), soon).unwrap_err();
        assert!(failed.error.is_timeout() && failed.buffer.is_none(), "{}", failed.error);
        let failed = ends.rx.wait_received(soon).unwrap_err();
        assert!(failed.error.is_timeout() && failed.buffer.is_none());
        // Neither a second buffer nor the ring can be posted meanwhile.
        let failed = ends.rx.receive(ends.card.buffer(64).unwrap()).unwrap_err();
        assert!(matches!(failed.error.kind, StreamError::Posted { .. }) && failed.buffer.is_some());
        assert!(matches!(ends.rx.next_packet(), Err(Error { kind: StreamError::Posted { .. }, .. })));
        ends.send(b"late");
        assert_eq!(ends.rx.wait_received(WaitOptions::default()).unwrap().to_vec(), b"late");
        let failed = ends.rx.wait_received(soon).unwrap_err();
        assert!(matches!(failed.error.kind, StreamError::Posted { .. }));
        // An abort returns the buffer.
        ends.rx.receive_with(ends.card.buffer(128).unwrap(), soon).unwrap_err();
        let part = ends.rx.abort().unwrap().unwrap();
        assert!(part.buffer.len() == 0 && !part.ends_packet, "nothing has arrived");
        ends.assert_works(3);
        // While the ring is posted, a single buffer is refused.
        let failed = ends.rx.receive(ends.card.buffer(64).unwrap()).unwrap_err();
        assert!(matches!(failed.error.kind, StreamError::Posted { .. }) && failed.buffer.is_some());
    }
}

#[test]
fn send_timed_out_packet_stays_in_flight() {
    let mut ends = Setup::new(RunMode::Batch).open(64, 4096);
    ends.network.with_card(0, |card| card.set_stream_ready(0, false)).unwrap();
    let data = bytes(4, 5000);
    let buffer = ends.card.buffer_from(&data).unwrap();
    let failed = ends.tx.send_with(buffer, within(Duration::from_micros(50))).unwrap_err();
    assert!(matches!(failed.error.kind, TransferError::Channel(ChannelError::TimedOut { .. })));
    assert!(failed.buffer.is_none() && ends.tx.in_flight() == 1);
    // A packet that was only queued is returned at once.
    let queued = ends.tx.submit(ends.card.buffer_from(b"queued").unwrap()).unwrap();
    assert!(ends.tx.cancel(queued).unwrap());
    ends.network.with_card(0, |card| card.set_stream_ready(0, true)).unwrap();
    assert!(ends.receive() == data);
    let mut done = Vec::new();
    while done.len() < 2 {
        ends.tx.poll().unwrap();
        done.extend(std::iter::from_fn(|| ends.tx.next_completion()));
        ends.tx.relax();
    }
    assert_eq!(done[0].outcome, Ok(5000));
    assert!(done[1].outcome.is_err() && done.iter().all(|done| done.buffer.is_some()));
}

#[test]
fn send_started_packet_cannot_be_cancelled() {
    let setup = Setup::new(RunMode::Batch);
    let network = setup.network();
    let card = cards::open(&network);
    let options = ChannelOptions::default().max_descriptor_length(4096);
    let mut tx = card.h2c_stream_with(0, options).unwrap();
    let data = bytes(6, 200_000);
    let ticket = tx.submit(card.buffer_from(&data).unwrap()).unwrap();
    tx.poll().unwrap();
    // Some descriptors have completed, and the FIFO is not full yet.
    while network.with_card(0, |card| card.counters().descriptors).unwrap() < 3 {
        network.step();
    }
    let refused = tx.cancel(ticket).unwrap_err();
    assert!(matches!(refused, Error { kind: ChannelError::PacketStarted, .. }), "{refused}");
    // The packet continues where it was stopped.
    let rx_options = C2hStreamOptions::default().buffers(128);
    let mut rx = card.c2h_stream_with(0, rx_options).unwrap();
    let watchdog = ProgressWatchdog::new(&network);
    loop {
        tx.poll().unwrap();
        if let Some(packet) = rx.next_packet().unwrap() {
            assert!(packet.to_vec() == data);
            break;
        }
        watchdog.relax(&rx);
    }
    assert!(!tx.cancel(ticket).unwrap(), "the transfer has ended");
}

/// The beginning of a packet that an abort returns is not a packet, and neither is its rest.
#[test]
fn receive_aborted_inside_packet_next_packet_is_whole() {
    for mode in MODES {
        let mut ends = Setup::new(mode).open(64, 64);
        ends.rx.receive_with(ends.card.buffer(128).unwrap(), within(Duration::from_micros(50))).unwrap_err();
        ends.network.with_card(0, |card| card.push_stream(0, &[1; 100], false));
        ends.rx.wait_received(within(Duration::from_micros(50))).unwrap_err();
        let part = ends.rx.abort().unwrap().unwrap();
        assert!(part.buffer.to_vec() == [1; 100] && !part.ends_packet, "{mode:?}");
        ends.network.with_card(0, |card| card.push_stream(0, &[2; 30], true));
        ends.network.with_card(0, |card| card.push_stream(0, &[3; 50], true));
        let buffer = ends.rx.receive(ends.card.buffer(128).unwrap()).unwrap();
        assert_eq!(buffer.to_vec(), [3; 50], "{mode:?}");
    }
}
