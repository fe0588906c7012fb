//! Invalid addresses on either side of the bus.

use super::*;
use fpga_driver::Error;
use fpga_tests::causes::Lower as _;

#[test]
fn card_address_past_memory_is_refused_before_card() {
    let network = network(CardDescription::default());
    let card = open(&network);
    let mut h2c = card.h2c(0).unwrap();
    let mut c2h = card.c2h(0).unwrap();
    let windows = card.info().ni.as_ref().unwrap().windows;
    let behind_windows = windows.address(windows.count, 0).get();
    let before = card.counters();
    for at in [
        MEMORY - 99,
        MEMORY,
        MEMORY + 1,
        0x8_0000_0000,
        behind_windows - 99,
        behind_windows,
        u64::MAX - 99,
        u64::MAX,
    ] {
        let at = CardAddr::new(at);
        let refused = h2c.submit(card.buffer_from(&[9; 100]).unwrap(), at).unwrap_err();
        let Error { kind: SubmitError::CardMemory { start, length: 100, memory_last, .. }, .. } =
            refused.error
        else {
            panic!("{:?}", refused.error)
        };
        assert_eq!((start, memory_last), (at, CardAddr::new(MEMORY - 1)));
        assert_message(&refused, &["h2c0", "100 bytes"]);
        assert_eq!(refused.payload.to_vec(), [9; 100]);
        let failed = c2h.read(refused.payload, at).unwrap_err();
        assert!(
            matches!(failed.error.kind, TransferError::Submit(SubmitError::CardMemory { .. })),
            "{failed}"
        );
        assert_eq!(failed.buffer.unwrap().to_vec(), [9; 100]);
    }
    assert_eq!(card.counters(), before, "the card had no access");
    // The last byte of memory is valid.
    h2c.write(card.buffer_from(&[1; 100]).unwrap(), CardAddr::new(MEMORY - 100)).unwrap();
    h2c.write(card.buffer_from(&[1; 100]).unwrap(), CardAddr::new(behind_windows - 100)).unwrap();
    assert_works(&network, &card, &mut h2c, 1);
    assert_pool(&card, 2 * AREA, 0);
}

#[test]
fn bulk_range_beyond_memory_moves_nothing() {
    let network = network(described("memory: { size: 0x1000000 }"));
    let card = open(&network);
    let (mut h2c, mut c2h) = (card.h2c(0).unwrap(), card.c2h(0).unwrap());
    let (start, length) = (CardAddr::new(0x100_0000 - (2 << 20)), 3 << 20);
    let (before, wait) = (card.counters(), WaitOptions::default());
    let mut source = &bytes(7, 3 << 20)[..];
    let error = bulk::write_from(&card, &mut h2c, &mut source, start, length, wait, &mut |_| ()).unwrap_err();
    assert!(
        matches!(error.kind, BulkError::Submit(SubmitError::CardMemory { start: named, length: 0x30_0000, .. }) if named == start),
        "{error}"
    );
    assert_eq!(source.len(), 3 << 20, "nothing was read from the source");
    let mut sink = Vec::new();
    let error = bulk::read_into(&card, &mut c2h, start, length, &mut sink, wait, &mut |_| ()).unwrap_err();
    assert!(matches!(error.kind, BulkError::Submit(SubmitError::CardMemory { .. })), "{error}");
    assert!(sink.is_empty(), "nothing was written to the sink");
    assert_eq!(card.counters(), before, "the card had no access");
    h2c.check_range(start, 2 << 20).unwrap();
    assert!(c2h.check_range(start, length).is_err());
}

#[test]
fn bulk_range_beyond_address_space_moves_nothing() {
    let (_network, card) = unknown_memory();
    let (mut h2c, mut c2h) = (card.h2c(0).unwrap(), card.c2h(0).unwrap());
    let (start, length) = (CardAddr::new(u64::MAX - (2 << 20)), 3 << 20);
    let (before, wait) = (card.counters(), WaitOptions::default());
    let data = bytes(7, 3 << 20);
    let written = bulk::write_from(&card, &mut h2c, &mut &data[..], start, length, wait, &mut |_| ());
    let read = bulk::read_into(&card, &mut c2h, start, length, &mut Vec::new(), wait, &mut |_| ());
    for result in [written, read] {
        let error = result.unwrap_err();
        let BulkError::Submit(refused) = &error.kind else { panic!("{error}") };
        assert!(
            matches!(refused.lower(), Some(RefusalReason::CardAddress { length: 0x30_0000, .. })),
            "{error}"
        );
    }
    assert_eq!(card.counters(), before, "the card had no access");
    // The driver accepts any address within the address space; the card reports the error.
    h2c.check_range(CardAddr::new(1 << 40), 1 << 20).unwrap();
}

#[test]
fn bulk_source_of_unknown_length_ends_at_memory_border() {
    let network = network(described("memory: { size: 0x1000000 }"));
    let card = open(&network);
    let mut h2c = card.h2c(0).unwrap();
    let wait = WaitOptions::default();
    let start = CardAddr::new(0x100_0000 - (2 << 20) - 100);
    let space = (2 << 20) + 100;
    for (seed, length) in
        [(0, 0), (1, 1), (2, 1 << 20), (3, (1 << 20) + 1), (4, space), (5, space + 1), (6, 9 << 20)]
    {
        let data = bytes(seed, length);
        // As from a pipe: one read returns less than a full buffer.
        let mut source = Bounced::new(std::io::Read::chain(&data[..length / 3], &data[length / 3..]));
        let mut reported = 0;
        let result =
            bulk::write_to_end(&card, &mut h2c, &mut source, start, wait, &mut |done| reported = done);
        let expected = length.min(space);
        match result {
            Ok(done) => assert_eq!((done, length <= space), (length as u64, true)),
            Err(Error { kind: BulkError::NoFreeSlot { done, .. }, .. }) => {
                assert_eq!((done, length > space), (space as u64, true))
            }
            Err(error) => unreachable!("{error}"),
        }
        assert_eq!(reported, expected as u64);
        assert!(peek(&network, 0, start, expected) == data[..expected]);
    }
    let result =
        bulk::write_to_end(&card, &mut h2c, &mut &[1][..], CardAddr::new(0x100_0000), wait, &mut |_| ());
    assert!(
        matches!(result, Err(Error { kind: BulkError::Submit(SubmitError::CardMemory { .. }), .. })),
        "{result:?}"
    );
}

/// A card without network interface: the driver does not know where memory ends, so that the AXI bus reports the error.
fn unknown_memory() -> (SimNetwork, Card) {
    let network = network(described("memory: { size: 0x100000 }"));
    let card = open_with(&network, ignored());
    (network, card)
}

fn bits(fault: &ChannelFault) -> Vec<StatusBit> {
    fault.status_errors().collect()
}

proptest! {
    #![proptest_config(seeded(48))]

    /// A run with any bad transfers: transfers before the first bad one arrive, and every buffer is returned once.
    #[test]
    fn bad_transfers_in_run_return_all_buffers_once(lengths in prop::collection::vec(1..20_000_usize, 1..20), bad in prop::collection::vec(any::<bool>(), 20)) {
        let (network, card) = unknown_memory();
        let mut channel = card.h2c(0).unwrap();
        let mut expected = Vec::new();
        for (n, &length) in lengths.iter().enumerate() {
            let at = if bad[n] { 0x10_0000 } else { n as u64 * 0x8000 };
            let buffer = card.buffer_from(&bytes(n as u64, length)).unwrap();
            let iova = buffer.iova();
            let ticket = channel.submit(buffer, CardAddr::new(at)).unwrap();
            expected.push((ticket, iova));
        }
        let first_bad = bad[..lengths.len()].iter().position(|bad| *bad).unwrap_or(lengths.len());
        for (n, (ticket, iova)) in expected.into_iter().enumerate() {
            let done = channel.wait(ticket, WaitOptions::default()).unwrap();
            prop_assert_eq!(done.buffer.unwrap().iova(), iova);
            match n.cmp(&first_bad) {
                std::cmp::Ordering::Less => {
                    prop_assert_eq!(done.outcome, Ok(lengths[n] as u64));
                    prop_assert!(peek(&network, 0, CardAddr::new(n as u64 * 0x8000), lengths[n]) == bytes(n as u64, lengths[n]));
                }
                std::cmp::Ordering::Equal => prop_assert_eq!(bits(&done.outcome.unwrap_err().kind), [StatusBit::CardWriteDecode]),
                std::cmp::Ordering::Greater => {
                    let fault = done.outcome.unwrap_err();
                    // The length of a run is limited: transfers after the bad one may have been in another run.
                    prop_assert!(matches!(fault.kind.cause, FaultCause::EarlierFault | FaultCause::Status(_)));
                }
            }
        }
        assert_works(&network, &card, &mut channel, 5);
        assert_pool(&card, AREA, 0);
    }
}
