//! Ends of a stream, and the state of its memory afterwards.

use fpga_driver::{ChannelError, Error, ResourceError, stream::StreamError};

use super::*;

/// Number of allocations: the ring's descriptors and metadata, and its buffers.
const MEMORY: usize = 2;

/// No data arrives, and nothing can be flushed: memory that the card may still reach is in quarantine, and the channel is busy.
#[test]
fn drop_receiving_channel_without_flush_is_wedged() {
    let StreamLoopback { tx, mut rx, card, network } = Setup::strict().open(16, 512);
    assert!(rx.next_packet().unwrap().is_none());
    network.step_until_idle();
    drop((tx, rx));
    cards::assert_pool(&card, 0, MEMORY);
    assert!(matches!(card.c2h_stream(0), Err(Error { kind: ResourceError::Busy { .. }, .. })));
    // The other channels work.
    let mut tx = card.h2c_stream(1).unwrap();
    tx.submit(card.buffer_from(b"on the other loop").unwrap()).unwrap();
    tx.poll().unwrap();
    let mut rx = card.c2h_stream(1).unwrap();
    let received = rx.receive(card.buffer(64).unwrap()).unwrap();
    assert_eq!(received.to_vec(), b"on the other loop");
    // The card writes later data to quarantined memory, which has no other user.
    network.with_card(0, |card| card.push_stream(0, &[1; 100], true)).unwrap();
    network.step_until_idle();
    assert_eq!(network.with_card(0, |card| card.faults().total()).unwrap(), 0);
    // With the data the engine became idle.
    assert!(card.c2h_stream(0).is_ok());
}

#[test]
fn abort_stuck_engine_reports_wedged() {
    let mut ends = Setup::strict().open(16, 512);
    assert!(ends.rx.next_packet().unwrap().is_none());
    ends.settle();
    let wedged = ends.rx.abort().unwrap_err();
    assert!(
        matches!(
            wedged,
            Error { kind: StreamError::Channel(ChannelError::Wedged { quarantined: 1, .. }), .. }
        ),
        "{wedged}"
    );
    assert!(matches!(
        ends.rx.next_packet(),
        Err(Error { kind: StreamError::Channel(ChannelError::Wedged { .. }), .. })
    ));
    // A single posted buffer is in quarantine, and not returned.
    let mut ends = Setup::strict().open(2, 64);
    ends.rx.receive_with(ends.card.buffer(64).unwrap(), within(Duration::from_micros(50))).unwrap_err();
    assert!(ends.rx.abort().is_err());
    assert_eq!(ends.card.memory().stats().quarantined, 2, "the buffer and the ring");
}

/// The engine stops with one more packet.
#[test]
fn stop_before_last_packet_ends_in_order() {
    for mode in MODES {
        let mut ends = Setup { mode, ..Setup::strict() }.open(16, 512);
        ends.assert_works(1);
        assert!(ends.rx.next_packet().unwrap().is_none());
        ends.settle();
        ends.rx.stop().unwrap();
        ends.send(b"the last one");
        assert_eq!(ends.receive(), b"the last one");
        let watchdog = ProgressWatchdog::new(&ends.network);
        while ends.rx.posted() > 0 {
            assert!(ends.rx.next_packet().unwrap().is_none());
            watchdog.relax(&ends.rx);
        }
        assert!(ends.rx.next_packet().unwrap().is_none());
        ends.send(b"too late");
        ends.settle();
        assert!(ends.rx.next_packet().unwrap().is_none());
        let StreamLoopback { mut tx, rx, card, network } = ends;
        while tx.in_flight() > 0 {
            tx.poll().unwrap();
            tx.relax();
        }
        drop((tx, rx));
        cards::assert_pool(&card, 0, 0);
        assert!(card.c2h_stream(0).is_ok());
        drop(card);
        cards::assert_closed(&network, 0);
    }
}

/// An incomplete packet is flushed: the engine stops, and the part is discarded.
#[test]
fn drop_mid_packet_is_flushed() {
    let ends = Setup::strict().open(16, 512);
    let StreamLoopback { tx, mut rx, card, network } = ends;
    assert!(rx.next_packet().unwrap().is_none());
    network.with_card(0, |card| card.push_stream(0, &[1; 700], false)).unwrap();
    network.step_until_idle();
    assert!(rx.next_packet().unwrap().is_none());
    assert!(rx.abort().unwrap().is_none());
    // The flush timeout is off again.
    assert_eq!(cards::register(&network, 0, cards::DMA_BAR, fpga_driver::BarOffset::new(0x3060)), 0);
    // The end of the discarded packet is not returned as a packet.
    network.with_card(0, |card| card.push_stream(0, &[2; 50], true)).unwrap();
    network.with_card(0, |card| card.push_stream(0, b"whole", true)).unwrap();
    let packet = rx.wait_packet(WaitOptions::default()).unwrap();
    assert_eq!(packet.to_vec(), b"whole");
    assert_eq!(rx.statistics().discarded_bytes, 750);
    rx.stop().unwrap();
    network.with_card(0, |card| card.push_stream(0, b"last", true)).unwrap();
    drop((tx, rx));
    cards::assert_pool(&card, 0, 0);
}

#[test]
fn abort_then_stream_continues() {
    for setup in setups() {
        let mut ends = setup.open(16, 512);
        for n in 0..20 {
            ends.assert_works(n);
            let data = bytes(n, 300);
            ends.send(&data);
            ends.settle();
            assert!(ends.rx.abort().unwrap().is_none());
            // The packet was complete before the abort, or comes after it.
            assert!(ends.receive() == data, "{setup:?} {n}");
        }
    }
}

/// The card's earlier owner was killed with buffers posted: the next one can still open it.
#[test]
fn open_stops_run_of_earlier_owner() {
    let setup = Setup::new(RunMode::Credit);
    let network = setup.network();
    let card = cards::open(&network);
    let mut rx = card.c2h_stream(0).unwrap();
    assert!(rx.next_packet().unwrap().is_none());
    network.step_until_idle();
    // Like a killed process: nothing is dropped.
    std::mem::forget(rx);
    let again = fpga_driver::Card::from_backend(network.backend(0)).unwrap();
    assert!(cards::channels_idle(&network, 0));
    drop(again);
}
