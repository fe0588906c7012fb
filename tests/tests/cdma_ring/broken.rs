//! Engines and cards that behave incorrectly.

use super::*;
use fpga_driver::Error;

#[test]
fn cdma_ring_false_registers_are_detected() {
    let word = |bar, register: BarOffset, value| vec![ReplacedRegister { bar, at: register.get(), value }];
    let (sr, current) = (CdmaBlock::SR.address(CDMA), CdmaBlock::CURDESC_LOW.address(CDMA));
    for way in SETUPS {
        let network = fast_network(with_channels(1, 1));
        let injector = FaultInjectingBackend::new(network.backend(0), Vec::new());
        let card = Card::from_backend(injector.clone()).unwrap();
        let base = u32::try_from(BASE).unwrap();
        let bypass = card.info().roles.bypass.unwrap().index;
        let mut cases = match way {
            // Pointers that name no address in the ring, no descriptor, and a descriptor that is not posted.
            DescriptorRoute::Channel => vec![
                (word(USER_BAR, current, 0), "current-descriptor"),
                (word(USER_BAR, current, base + 32), "current-descriptor"),
                (word(USER_BAR, current, base + 5 * 64), "current-descriptor"),
            ],
            DescriptorRoute::Bypass => {
                vec![(
                    word(bypass, BarOffset::new(BASE + 2 * 64 + 0x1C), 0x0BAD_0000),
                    "not a descriptor status",
                )]
            }
        };
        // Idle from the start, without progress: the pointer is where it stopped before, and the status word is as written.
        let unmoved = [
            word(USER_BAR, sr, 0x0001_000A),
            word(USER_BAR, current, base),
            word(bypass, BarOffset::new(BASE + 2 * 64 + 0x1C), 0),
        ];
        cases.push((unmoved.concat(), "stopped before its tail"));
        for (replaced, expected) in cases {
            let mut ring: CdmaRing<u64> = ring(&card, way, options());
            assert_works(&network, &mut ring, 1);
            ring.copy(at(0x20_0000), at(FAR), 8_000_000, 1).unwrap();
            ring.copy(at(0x20_0000), at(0x40_0000), 64, 2).unwrap();
            ring.poll().unwrap();
            injector.replace(replaced);
            for _ in 0..100_000 {
                if ring.in_flight() == 0 || ring.poll().is_err() {
                    break;
                }
                ring.relax();
            }
            injector.replace(Vec::new());
            let done = drain(&mut ring);
            assert_eq!(
                done.iter().map(|done| done.payload).collect::<Vec<_>>(),
                [1, 2],
                "{way:?} {expected}"
            );
            let fault = done[0].outcome.as_ref().unwrap_err();
            assert!(fault.to_string().contains(expected), "{way:?} {expected}: {fault}");
            assert_works(&network, &mut ring, 2);
        }
        // All ones: the card is gone.
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        ring.copy(at(0x20_0000), at(FAR), 8_000_000, 1).unwrap();
        ring.poll().unwrap();
        injector.replace(
            [
                word(USER_BAR, sr, u32::MAX),
                word(USER_BAR, current, u32::MAX),
                word(bypass, BarOffset::new(BASE + 0x1C), u32::MAX),
            ]
            .concat(),
        );
        let mut polled = ring.poll();
        while polled.is_ok() {
            ring.relax();
            polled = ring.poll();
        }
        assert!(
            matches!(polled, Err(Error { kind: CdmaRingError::Engine(CdmaError::Silent(_)), .. })),
            "{polled:?}"
        );
        assert_eq!(drain(&mut ring).len(), 1);
        injector.replace(Vec::new());
        drop(ring);
        assert_works(&network, &mut self::ring(&card, way, options()), 3);
    }
}

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
        matches!(polled, Err(Error { kind: CdmaRingError::UploadFault(_), .. })),
        "the guards cannot be written either: {polled:?}"
    );
    assert_eq!(ring.next_completion().unwrap().outcome.unwrap_err().kind.cause, CdmaFaultCause::Upload);
    network.with_card(0, |card| card.poison(at(0), 0));
    let (cdma, path, _) = ring.close();
    let mut ring = cdma.into_ring(path, options()).unwrap();
    assert_works(&network, &mut ring, 2);
}

#[test]
fn cdma_ring_removed_card_ends_copies() {
    for way in SETUPS {
        for failure in [CardFailure::AllOnes, CardFailure::Gone] {
            let network = fast_network(with_channels(1, 1));
            let card = open(&network);
            let mut ring: CdmaRing<u64> = ring(&card, way, options().descriptors(64));
            assert_works(&network, &mut ring, 1);
            for n in 0..3 {
                ring.copy(at(0x20_0000), at(FAR), 64 << 20, n).unwrap();
            }
            let ticket = ring.copy(at(0x20_0000), at(0x40_0000), 1, 3).unwrap();
            ring.poll().unwrap();
            network.fail(0, failure);
            let error = ring.wait(ticket, long_wait()).unwrap_err();
            assert!(error.to_string().contains("gone"), "{way:?} {failure:?}: {error}");
            assert_eq!(drain(&mut ring).iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2, 3]);
            drop((ring, card));
            network.fail(0, CardFailure::None);
            let card = open(&network);
            assert_works(&network, &mut self::ring(&card, way, options().descriptors(64)), 2);
        }
    }
}
