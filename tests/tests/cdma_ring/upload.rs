//! Descriptors that do not arrive. Other faults of engines are rows of the conformance suite's table and tests of `fpga-ring`.

use super::*;
use fpga_driver::Error;

/// Descriptors that a channel cannot write: the ring reports it, and works again when they can be written.
#[test]
fn descriptor_memory_refusing_writes_ring_reports_upload() {
    let network = fast_network(with_channels(1, 1));
    let card = open(&network);
    let mut ring: CdmaRing<u64> = self::ring(&card, DescriptorRoute::Channel, options());
    assert_works(&network, &mut ring, 1);
    // The memory of the second descriptor cannot be written.
    network.with_card(0, |card| card.poison(at(BASE + 64), 64));
    ring.copy(at(0x20_0000), at(0x40_0000), 64, 7).unwrap();
    let mut polled = Ok(0);
    while polled.is_ok() && ring.in_flight() != 0 {
        polled = ring.poll();
        ring.relax();
    }
    assert!(
        matches!(
            polled,
            Err(Error { kind: CdmaRingError::Upload(Error { kind: TransferError::Fault(_), .. }), .. })
        ),
        "the guards cannot be written either: {polled:?}"
    );
    assert_eq!(ring.next_completion().unwrap().outcome.unwrap_err().kind.cause, FaultCause::Upload);
    network.with_card(0, |card| card.poison(at(0), 0));
    let (cdma, path, _) = ring.close();
    let mut ring = cdma.into_ring(path, options()).unwrap();
    assert_works(&network, &mut ring, 2);
}
