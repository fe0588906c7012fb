//! Errors of the engine: reported with their cause, and the ring continues.

use super::*;
use fpga_driver::Error;

#[test]
fn cdma_ring_error_at_any_position_names_copy_and_continues() {
    for way in SETUPS {
        // Without the identity block the driver does not know where memory ends, so that the bus has to report it.
        for decode in [false, true] {
            let network = fast_network(with_channels(1, 1));
            let card =
                open_with(&network, OpenOptions::default().network_interface(NetworkInterface::Ignored));
            let cdma = card.cdma_at(CDMA).unwrap();
            let mut ring = cdma.into_ring(path(&card, way), options().length_bits(12)).unwrap();
            for failing in 0..6_u64 {
                let before = executed(&network);
                let bad = if decode { at(MEMORY + 4032) } else { at(0x30_0000 + failing * 0x1_0000 + 4032) };
                if !decode {
                    network.with_card(0, |card| card.poison(bad, 8));
                }
                // Each copy has two descriptors; the second one of the failing copy fails.
                for n in 0..6 {
                    let to = if decode && n == failing { MEMORY } else { 0x30_0000 + n * 0x1_0000 };
                    if decode && n == failing {
                        let list = [segment(0, 0x50_0000, 4032), segment(4032, to + 4032, 100)];
                        ring.submit(&list, n).unwrap();
                    } else {
                        ring.copy(at(0x20_0000), at(to), 5000, n).unwrap();
                    }
                }
                while ring.in_flight() != 0 {
                    ring.poll().unwrap();
                    ring.relax();
                }
                let done = drain(&mut ring);
                assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
                for done in done {
                    let fault = match (done.payload.cmp(&failing), done.outcome) {
                        (std::cmp::Ordering::Less, outcome) => {
                            assert_eq!(outcome, Ok(5000));
                            continue;
                        }
                        (_, outcome) => outcome.unwrap_err(),
                    };
                    if done.payload > failing {
                        assert_eq!(
                            (&fault.kind.cause, fault.kind.position),
                            (&CdmaFaultCause::EarlierFault, None)
                        );
                        continue;
                    }
                    let CdmaFaultCause::Status(status) = fault.kind.cause else { panic!("{fault}") };
                    assert_eq!((status.dma_decode_error(), status.dma_slave_error()), (decode, !decode));
                    let place = fault.kind.position.unwrap();
                    assert_eq!((place.destination, place.bytes_done), (bad, 4032), "{way:?} {failing}");
                    let length = if decode { 100 } else { 5000 - 4032 };
                    assert_eq!(place.length, length);
                    assert!(format!("{fault:#}").contains("can be used again"), "{fault:#}");
                }
                assert_eq!(executed(&network) - before, failing * 2 + 1, "no later descriptor was executed");
                network.with_card(0, |card| card.poison(at(0), 0));
                assert_works(&network, &mut ring, failing);
            }
            assert_eq!(ring.overruns(), 0);
        }
    }
}

#[test]
fn cdma_ring_unfetchable_descriptors_are_reported() {
    for way in SETUPS {
        let network = fast_network(with_channels(1, 1));
        let card = open(&network);
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        assert_works(&network, &mut ring, 1);
        for n in 0..3 {
            ring.copy(at(0x20_0000), at(0x30_0000), 64, n).unwrap();
        }
        // The descriptors are written before their memory fails: from the third one on, counted from the working copy.
        assert_eq!(ring.poll(), Ok(0));
        if way == DescriptorRoute::Channel {
            for _ in 0..1000 {
                ring.relax();
            }
        }
        network.with_card(0, |card| card.poison(at(BASE + 2 * 64), 64));
        let mut polled = Ok(0);
        while polled.is_ok() && ring.in_flight() != 0 {
            polled = ring.poll();
            ring.relax();
        }
        match way {
            // The bypass BAR reads as all ones there, so that the copies end. The guard descriptors cannot be written, which is not
            // detected because a write is posted.
            DescriptorRoute::Bypass => assert_eq!(polled.map(|_| ()), Ok(())),
            // The channel reports that the guard descriptors did not arrive.
            DescriptorRoute::Channel => {
                assert!(
                    matches!(polled, Err(Error { kind: CdmaRingError::UploadFault(_), .. })),
                    "{polled:?}"
                )
            }
        }
        let done = drain(&mut ring);
        assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(done[0].outcome, Ok(64));
        let fault = done[1].outcome.as_ref().unwrap_err();
        let CdmaFaultCause::Status(status) = fault.kind.cause else { panic!("{fault}") };
        assert!(status.sg_slave_error());
        assert_eq!(fault.kind.position.unwrap().descriptor, 2);
        network.with_card(0, |card| card.poison(at(0), 0));
        // The engine works, whatever the state of the ring.
        let (mut cdma, path, rest) = ring.close();
        assert!(rest.is_empty());
        cdma.copy(at(0x20_0000), at(0x30_0000), 64).unwrap();
        drop(path);
        let mut again = cdma.into_ring(self::path(&card, way), options()).unwrap();
        assert_works(&network, &mut again, 2);
    }
}

#[test]
fn cdma_ring_extra_start_costs_one_reset() {
    for way in SETUPS {
        let network = fast_network(with_channels(1, 1));
        let injector = FaultInjectingBackend::new(network.backend(0), Vec::new());
        let card = Card::from_backend(injector.clone()).unwrap();
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        // The engine executes a long copy, and completes it before the high word of the next tail arrives.
        let tail_high = CdmaBlock::TAILDESC_HIGH.address(CDMA).get();
        for round in 0..8_u64 {
            let data = bytes(round, 4_000_000);
            poke(&network, 0, at(0x20_0000), &data);
            ring.copy(at(0x20_0000), at(FAR), 3_900_000, 1).unwrap();
            // The descriptor has arrived, and the engine has started.
            while register(&network, 0, USER_BAR, CdmaBlock::SR.address(CDMA)) & 2 != 0 {
                assert_eq!(ring.poll(), Ok(0));
                network.step();
            }
            injector.delay_write(Some((USER_BAR, tail_high)));
            ring.copy(at(0x20_0000 + 3_900_000), at(FAR + 3_900_000), 100_000, 2).unwrap();
            while ring.in_flight() != 0 {
                ring.poll().unwrap();
                ring.relax();
            }
            injector.delay_write(None);
            // The engine that was started once too often reads the descriptor after the tail.
            network.step_until_idle();
            let done = drain(&mut ring);
            assert!(done.iter().all(|done| done.outcome.is_ok()), "{way:?} {round}: {done:?}");
            assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [1, 2]);
            assert!(peek(&network, 0, at(FAR), 4_000_000) == data);
            assert_works(&network, &mut ring, round);
        }
        assert_eq!(ring.overruns(), 8, "{way:?}: number of overruns");
    }
}
