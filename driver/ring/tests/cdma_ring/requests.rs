//! Accepted, split and refused requests.

use super::*;

#[test]
fn cdma_ring_long_copy_is_cut_at_length_limit_and_data_width() {
    for (bits, data, longest) in [(23, 64, (1 << 23) - 64), (23, 128, (1 << 23) - 128), (8, 4, 252)] {
        let mut config = RingConfig::new(at(BASE), 16);
        (config.length_bits, config.data_bytes) = (bits, data);
        assert_eq!(config.max_descriptor_length(), longest);
        let mut ring = Ring::new(config).unwrap();
        let mut image = Image(vec![[0; 16]; 16]);
        let length = u64::from(longest) * 2 + 5;
        ring.submit(&[segment(0x1000_0001, 0x5000_0003, length), segment(0, 0x200, 9)], ()).unwrap();
        let batch = ring.publish(&mut image).unwrap();
        assert_eq!(batch.descriptors, 4);
        let made: Vec<_> = image.0[..4].iter().map(|words| SgDescriptor::from_words(*words)).collect();
        let lengths: Vec<_> = made.iter().map(|descriptor| descriptor.control.bytes()).collect();
        assert_eq!(lengths, [longest, longest, 5, 9]);
        assert_eq!(made[1].source.get(), 0x1000_0001 + u64::from(longest));
        assert_eq!(made[2].destination.get(), 0x5000_0003 + 2 * u64::from(longest));
        for (n, descriptor) in made.iter().enumerate() {
            assert_eq!(descriptor.next.get(), BASE + (n as u64 + 1) * 64);
            assert_eq!(descriptor.status, SgStatus::new());
        }
    }
}

#[test]
fn cdma_ring_invalid_requests_are_refused() {
    let mut config = config(8);
    config.address_bits = 40;
    let mut ring = Ring::new(config).unwrap();
    let mut refused =
        |segments: &[CopyEntry]| ring.submit(segments, 7).map(|_| ()).map_err(|refusal| refusal.reason);
    assert_eq!(refused(&[]), Err(RefusalReason::Empty));
    assert_eq!(refused(&[segment(1, 1, 0), segment(2, 9, 0)]), Err(RefusalReason::Empty));
    let last = (1 << 40) - 1;
    for (source, destination, length, start) in [
        (u64::MAX, 0x2000, 2, u64::MAX),
        (last, 0, 2, last),
        (0, last, 2, last),
        (0, 1 << 40, 1, 1 << 40),
        (0, 1, u64::MAX, 1),
        (1, 0, u64::MAX, 1),
    ] {
        let reason = refused(&[segment(8, 0x2000, 1), segment(source, destination, length)]);
        let expected = RefusalReason::CardAddress { start: at(start), length, address_bits: 40 };
        assert!(
            reason == Err(expected)
                || matches!(reason, Err(RefusalReason::CardAddress { .. }) if length == u64::MAX),
            "{reason:?}"
        );
    }
    for (source, destination, length) in [(0, 0, 1), (0, 99, 100), (99, 0, 100), (50, 50, 9)] {
        let segment = segment(source, destination, length);
        assert_eq!(refused(&[segment]), Err(RefusalReason::Overlap { segment }));
    }
    for (destination, length) in [(BASE, 1), (BASE + 511, 1), (BASE - 1, 2), (BASE - 100, 200), (BASE + 7, 3)]
    {
        let segment = segment(0x8_0000, destination, length);
        assert_eq!(refused(&[segment]), Err(RefusalReason::DescriptorMemory { segment }));
    }
    assert_eq!(
        refused(&[segment(0, 0x2000, 252 * 7 + 1)]),
        Err(RefusalReason::TooManyDescriptors { needed: 8, usable: 7 })
    );
    assert_eq!(
        refused(&[segment(0, 1 << 39, 1 << 38)]),
        Err(RefusalReason::TooManyDescriptors { needed: (1_u64 << 38).div_ceil(252), usable: 7 })
    );
    // Adjacent ranges, up to the last byte, around the descriptors: all valid.
    assert_eq!(
        refused(&[
            segment(0, 100, 100),
            segment(last, BASE - 1, 1),
            segment(0, last, 1),
            segment(BASE, BASE + 512, 100)
        ]),
        Ok(())
    );
    assert_eq!(refused(&[segment(0, 0x2000, 252 * 3 + 1)]), Err(RefusalReason::Full { needed: 4, free: 3 }));
    assert_eq!(refused(&[segment(0, 0x2000, 252 * 3)]), Ok(()));
    assert_eq!(ring.free_entries(), 0);

    let mut whole = RingConfig::new(at(BASE), 4);
    whole.realignment = false;
    let mut ring = Ring::new(whole).unwrap();
    for (source, destination, wrong) in [(1, 0x2000, 1), (64, 0x2020, 0x2020), (u64::MAX, 0, u64::MAX)] {
        let refusal = ring.submit(&[segment(source, destination, 1)], ()).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::Misaligned { address: at(wrong), alignment: 64 });
    }
    ring.submit(&[segment(u64::MAX - 63, 0x2000, 64)], ()).unwrap();
    ring.submit(&[segment(0, 0x2000, 63)], ()).unwrap();

    let mut few = RingConfig::new(at(BASE), 8);
    few.operations = 2;
    let mut ring = Ring::new(few).unwrap();
    ring.submit(&[segment(0, 0x2000, 1)], ()).unwrap();
    ring.submit(&[segment(0, 0x2000, 1)], ()).unwrap();
    let refusal = ring.submit(&[segment(0, 0x2000, 1)], ()).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Full { needed: 1, free: 0 }, "of operation slots");
}

#[test]
fn cdma_ring_invalid_configurations_are_refused() {
    let changed = |change: fn(&mut RingConfig)| {
        let mut config = RingConfig::new(at(BASE), 8);
        change(&mut config);
        Ring::<()>::new(config).map(|_| ()).unwrap_err()
    };
    for valid in [
        (|c| c.entries = 2) as fn(&mut RingConfig),
        |c| c.entries = 1 << 16,
        |c| c.operations = 1,
        |c| c.operations = 1 << 16,
    ] {
        let mut config = RingConfig::new(at(BASE), 8);
        valid(&mut config);
        assert!(Ring::<()>::new(config).is_ok(), "{config:?}");
    }
    assert_eq!(changed(|c| c.entries = 3), CdmaRingConfigError::Entries { found: 3 });
    assert_eq!(changed(|c| c.entries = 1), CdmaRingConfigError::Entries { found: 1 });
    assert_eq!(changed(|c| c.entries = 1 << 17), CdmaRingConfigError::Entries { found: 1 << 17 });
    assert_eq!(changed(|c| c.operations = 0), CdmaRingConfigError::Operations { found: 0 });
    assert_eq!(changed(|c| c.operations = 1 << 17), CdmaRingConfigError::Operations { found: 1 << 17 });
    assert_eq!(changed(|c| c.length_bits = 7), CdmaRingConfigError::LengthBits { found: 7 });
    assert_eq!(changed(|c| c.length_bits = 24), CdmaRingConfigError::LengthBits { found: 24 });
    assert_eq!(changed(|c| c.data_bytes = 2), CdmaRingConfigError::DataBytes { found: 2 });
    assert_eq!(changed(|c| c.data_bytes = 48), CdmaRingConfigError::DataBytes { found: 48 });
    assert_eq!(changed(|c| c.data_bytes = 256), CdmaRingConfigError::DataBytes { found: 256 });
    assert_eq!(changed(|c| c.address_bits = 31), CdmaRingConfigError::AddressBits { found: 31 });
    assert_eq!(changed(|c| c.address_bits = 65), CdmaRingConfigError::AddressBits { found: 65 });
    for base in [BASE + 32, 1, u64::MAX - 63, 0xFFFF_FFC0, 0x1_FFFF_FE40] {
        let mut config = RingConfig::new(at(base), 8);
        assert_eq!(
            Ring::<()>::new(config).unwrap_err(),
            CdmaRingConfigError::Base { found: at(base), bytes: 512 }
        );
        config.address_bits = 32;
        assert!(Ring::<()>::new(config).is_err());
    }
    let mut narrow = RingConfig::new(at(0x1_0000_0000), 8);
    Ring::<()>::new(narrow).unwrap();
    narrow.address_bits = 32;
    assert_eq!(
        Ring::<()>::new(narrow).unwrap_err(),
        CdmaRingConfigError::Base { found: at(0x1_0000_0000), bytes: 512 }
    );
    Ring::<()>::new(RingConfig::new(at(0xFFFF_FE00), 8)).unwrap();
    Ring::<()>::new(RingConfig::new(at(u64::MAX - 511), 8)).unwrap();
}

/// Bytes moved without the engine count, and an operation without remaining bytes completes in order.
#[test]
fn cdma_ring_partly_moved_operation_counts_earlier_bytes() {
    let mut ring: Ring<u8> = Ring::new(config(8)).unwrap();
    let mut image = Image(vec![[0; 16]; 8]);
    let first = ring.submit(&[segment(0, 0x100, 64)], 1).unwrap();
    let nothing_left = ring.submit_rest(&[], 10, 2).unwrap();
    let part = ring.submit_rest(&[segment(0, 0x200, 300)], 7, 3).unwrap();
    assert_eq!(ring.submit_rest(&[], 0, 4).unwrap_err().reason, RefusalReason::Empty);
    let batch = ring.publish(&mut image).unwrap();
    assert_eq!(batch.descriptors, 3, "one, none, and two of at most 252 bytes");
    ring.post().unwrap();
    assert_eq!(ring.poll_completion(), None, "not before earlier operations");
    let status = SgStatus::new().with_completed(true).into_bits();
    let probe = ring.probe_for(first).unwrap();
    assert_eq!(ring.complete_status(probe, status), Ok(1));
    for (token, payload, length, descriptors) in [(first, 1, 64, 1), (nothing_left, 2, 10, 0)] {
        let done = ring.poll_completion().unwrap();
        assert_eq!(
            (done.token, done.payload, done.length, done.descriptors),
            (token, payload, length, descriptors)
        );
    }
    assert_eq!(ring.pending_descriptor().map(|pending| (pending.token, pending.offset)), Some((part, 7)));
    let second = BASE + 2 * ENTRY_BYTES;
    assert_eq!(ring.complete_current(at(second), false), Ok(1));
    assert_eq!(ring.pending_descriptor().map(|pending| pending.offset), Some(7 + 252));
    let drained: Vec<_> =
        ring.drain().map(|drained| (drained.token, drained.length, drained.completed_bytes)).collect();
    assert_eq!(drained, [(part, 307, 7 + 252)]);
}

#[test]
fn cdma_ring_admits_agrees_with_submit_except_alignment() {
    let mut narrow = config(8);
    narrow.realignment = false;
    let mut ring: Ring<u8> = Ring::new(narrow).unwrap();
    for crooked in [segment(1, 0x100, 64), segment(4, 0x101, 64)] {
        assert_eq!(ring.admits(&[crooked]), Ok(()));
        assert!(matches!(ring.submit(&[crooked], 0).unwrap_err().reason, RefusalReason::Misaligned { .. }));
    }
    for wrong in [segment(0, 8, 64), segment(0, BASE, 4), segment(u64::MAX, 0, 4), segment(0, 0x100, 252 * 8)]
    {
        let said = ring.admits(&[wrong]).unwrap_err();
        assert_eq!(said, ring.submit(&[wrong], 0).unwrap_err().reason);
    }
    assert_eq!(ring.admits(&[]), Err(RefusalReason::Empty));
    for _ in 0..7 {
        assert_eq!(ring.admits(&[segment(0, 0x100, 64)]), Ok(()));
        ring.submit(&[segment(0, 0x100, 64)], 0).unwrap();
    }
    assert!(matches!(ring.admits(&[segment(0, 0x100, 64)]), Err(RefusalReason::Full { .. })));
}
