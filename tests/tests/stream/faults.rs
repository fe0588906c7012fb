//! Invalid stream data and stream errors: a typed error, no data returned that did not arrive, and normal packets afterwards.

use fpga_card::{FaultPlan, InjectedFault, PlannedFault, fault_plan};
use fpga_driver::stream::PacketFault;
use fpga_driver::{
    BarOffset, Error, ResourceError, SubmitError, TransferError,
    errors::FaultCause,
    stream::{PacketFragment, StreamError},
};

use super::*;

impl StreamLoopback {
    /// Next error. Polls the sender meanwhile.
    fn error(&mut self) -> StreamError {
        let watchdog = ProgressWatchdog::new(&self.network);
        loop {
            self.tx.poll().unwrap();
            match self.rx.next_packet() {
                Ok(None) => {}
                Ok(Some(packet)) => panic!("received a packet of {} bytes", packet.len()),
                Err(error) => return error.kind,
            }
            watchdog.relax(&self.rx);
        }
    }

    fn lost_packet(&mut self) -> PacketFault {
        match self.error() {
            StreamError::Packet(source) => source,
            other => panic!("{other}"),
        }
    }

    fn push(&self, data: &[u8], end: bool) {
        let took = self.network.with_card(0, |card| card.push_stream(0, data, end)).unwrap();
        assert_eq!(took, data.len());
    }
}

#[test]
fn packet_longer_than_ring_is_reported() {
    for setup in setups() {
        let mut ends = setup.open(4, 64);
        for length in [257, 300, 1000, 10_000] {
            ends.send(&bytes(1, length));
            ends.send(b"next");
            let PacketFault::TooLong { bytes } = ends.lost_packet() else { panic!("another fault") };
            assert_eq!(bytes, 256);
            assert_eq!(ends.receive(), b"next", "{setup:?} {length}");
        }
        let whole = bytes(2, 256);
        ends.send(&whole);
        assert!(ends.receive() == whole, "a packet that fills its buffers");
        let statistics = ends.rx.statistics();
        assert_eq!((statistics.lost, statistics.discarded_bytes), (4, 257 + 300 + 1000 + 10_000));
    }
}

/// A flush timeout that is enabled without the driver looks like a lost end of packet.
#[test]
fn flush_timeout_set_externally_is_lost_end() {
    let mut ends = Setup::strict().open(16, 512);
    assert!(ends.rx.next_packet().unwrap().is_none());
    ends.card.dma_bar().write32(BarOffset::new(0x3060), 8).unwrap();
    ends.push(&[1; 100], false);
    assert_eq!(ends.lost_packet(), PacketFault::NoEnd { entry: 0, length: 100, buffer: 512 });
}

#[test]
fn count_impossible_is_fault() {
    for setup in setups() {
        let mut ends = setup.open(16, 512);
        ends.assert_works(1);
        ends.network.with_card(0, |card| card.override_completed_count(Some(9_000))).unwrap();
        ends.push(&[1; 100], true);
        let error = ends.error();
        assert!(
            matches!(&error, StreamError::Fault(fault) if matches!(fault.cause, FaultCause::Count(_))),
            "{error}"
        );
        ends.network.with_card(0, |card| card.override_completed_count(None)).unwrap();
        // The count may have been read before the packet arrived. Then the packet has waited in the card until the engine was started
        // again.
        let data = bytes(2, 3001);
        ends.send(&data);
        let mut packet = ends.receive();
        if packet == [1; 100] {
            packet = ends.receive();
        }
        assert!(packet == data, "{setup:?}");
    }
}

/// The engine cannot fetch its descriptors for a while.
#[test]
fn descriptor_fetch_refused_recovers() {
    for mode in MODES {
        let mut ends = Setup::new(mode).open(4, 64);
        ends.network.with_card(0, |card| card.set_command(true, false)).unwrap();
        let error = ends.error();
        assert!(
            matches!(&error, StreamError::Fault(fault) if fault.status_errors().count() == 1),
            "{mode:?}: {error}"
        );
        ends.network.with_card(0, |card| card.set_command(true, true)).unwrap();
        ends.push(&[7; 30], true);
        assert_eq!(ends.receive(), [7; 30]);
    }
}

/// A packet that fails in the middle stays open in the card, which its completion reports; the next one continues it.
#[test]
fn read_refused_mid_packet_is_reported_and_next_continues() {
    let setup = Setup::new(RunMode::Batch);
    let network = setup.network();
    let card = cards::open(&network);
    let options = ChannelOptions::default().max_descriptor_length(4096);
    let mut tx = card.h2c_stream_with(0, options).unwrap();
    let mut rx = card.c2h_stream(0).unwrap();
    let refused = InjectedFault::RefusedData { channel: Some(fault_plan::ChannelName::H2c(0)) };
    let plan = FaultPlan::new(1).with(PlannedFault::new(refused).after(1));
    network.with_card(0, |card| card.set_fault_plan(&plan)).unwrap();
    let data = bytes(1, 10_000);
    let failed = tx.send(card.buffer_from(&data).unwrap()).unwrap_err();
    assert!(failed.buffer.is_some());
    let Error { kind: TransferError::Fault(fault), .. } = failed.error else { panic!("{}", failed.error) };
    let place = fault.position.unwrap();
    assert_eq!((place.bytes_done, place.card), (4096, None));
    let text = fault.to_string();
    assert!(text.contains("host 0x") && !text.contains("card 0x"), "a stream has no card address: {text}");
    assert_eq!(fault.status_errors().count(), 1);
    tx.send(card.buffer_from(b"tail").unwrap()).unwrap();
    let packet = rx.wait_packet(WaitOptions::default()).unwrap();
    assert!(packet.to_vec() == [&data[..4096], b"tail"].concat());
}

/// Lost write-backs of the count delay packets, and lose none.
#[test]
fn count_writebacks_lost_delay_but_lose_nothing() {
    for setup in setups() {
        let mut ends = setup.open(16, 512);
        let missing = InjectedFault::MissingWriteback { channel: Some(fault_plan::ChannelName::C2h(0)) };
        let plan = FaultPlan::new(1).with(PlannedFault::new(missing).times(3));
        ends.network.with_card(0, |card| card.set_fault_plan(&plan)).unwrap();
        for n in 0..6 {
            let data = bytes(n, 400);
            ends.send(&data);
            assert!(ends.receive() == data, "{setup:?} {n}");
        }
        assert_eq!(ends.rx.statistics().lost, 0);
    }
}

#[test]
fn memory_and_stream_channels_are_not_interchangeable() {
    let ends = Setup::new(RunMode::Credit).open(16, 512);
    assert!(matches!(ends.card.h2c(1), Err(Error { kind: ResourceError::Stream, .. })));
    assert!(matches!(ends.card.c2h(1), Err(Error { kind: ResourceError::Stream, .. })));
    assert!(matches!(
        ends.card.h2c_stream(2),
        Err(Error { kind: ResourceError::NoSuchChannel { available: 2, .. }, .. })
    ));
    assert!(matches!(ends.card.c2h_stream(0), Err(Error { kind: ResourceError::InUse { .. }, .. })));
    let network = cards::network(cards::with_channels(1, 1));
    let card = cards::open(&network);
    assert!(matches!(card.h2c_stream(0), Err(Error { kind: ResourceError::NotStream, .. })));
    assert!(matches!(card.c2h_stream(0), Err(Error { kind: ResourceError::NotStream, .. })));
    assert!(matches!(card.set_write_flush_timeout(4), Err(Error { kind: ResourceError::NotStream, .. })));
    card.h2c(0).unwrap();
}

#[test]
fn stream_invalid_options_are_refused() {
    let network = cards::network(described(LOOPS));
    let card = cards::open(&network);
    for (buffers, size) in [(0, 64), (1, 64), (3, 64), (1 << 17, 64), (4, 0), (4, 100), (4, 1 << 27)] {
        let options = C2hStreamOptions::default().buffers(buffers).buffer_size(size);
        let refused = card.c2h_stream_with(0, options);
        assert!(
            matches!(refused, Err(Error { kind: ResourceError::StreamBuffers { .. }, .. })),
            "{buffers} of {size}"
        );
    }
    let huge = C2hStreamOptions::default().buffers(1 << 16).buffer_size(1 << 20);
    assert!(matches!(card.c2h_stream_with(0, huge), Err(Error { kind: ResourceError::Cause(_), .. })));
    assert!(card.c2h_stream(0).is_ok(), "the channel is available");
}

#[test]
fn stream_invalid_packets_are_refused() {
    let mut ends = Setup::new(RunMode::Credit).open(16, 512);
    let memory = ends.register_memory(&bytes(1, 4096));
    let part = |offset, length| PacketFragment { memory, offset, length };
    let refused = ends.tx.submit_list(&[part(0, 65), part(1000, 64)]).unwrap_err();
    assert!(refused.to_string().contains("multiple of 64"), "{refused}");
    assert!(ends.tx.submit_list(&[]).is_err() && ends.tx.submit_list(&[part(5, 0)]).is_err());
    assert!(ends.tx.submit_at(memory, 0, 0).is_err());
    let outside = ends.tx.submit_at(memory, 4000, 97);
    assert!(matches!(outside, Err(Error { kind: SubmitError::MemoryRange { .. }, .. })));
    assert_eq!(ends.tx.in_flight(), 0);
    // The same bytes twice in one packet are valid, and so are empty parts.
    ends.tx.submit_list(&[part(64, 64), part(0, 0), part(64, 64), part(3, 5)]).unwrap();
    assert_eq!(ends.receive().len(), 64 + 64 + 5);
}
