//! Abort, drop, close, and waits that end early.

use super::*;
use fpga_driver::Error;

#[test]
fn cdma_ring_abort_in_every_state_returns_payloads() {
    for route in SETUPS {
        for steps in 0..40 {
            let network = network(with_channels(1, 1));
            let card = open(&network);
            let mut ring: CdmaRing<u64> = ring(&card, route, options());
            assert_eq!(ring.abort(), Ok(0), "nothing to abort");
            for n in 0..4 {
                ring.copy(at(0x20_0000), at(0x40_0000), 100_000, n).unwrap();
                if n == 2 {
                    // The last copy stays queued.
                    for _ in 0..steps {
                        ring.poll().unwrap();
                        network.step();
                    }
                }
            }
            let in_flight = ring.in_flight();
            assert_eq!(ring.abort(), Ok(in_flight as usize));
            assert_eq!((ring.in_flight(), ring.free_descriptors()), (0, 15));
            let done = drain(&mut ring);
            assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2, 3]);
            let aborted = done.iter().position(|done| done.outcome.is_err()).unwrap();
            for done in &done[aborted..] {
                assert_eq!(done.outcome.as_ref().unwrap_err().kind.cause, FaultCause::Aborted);
            }
            assert!(done[..aborted].iter().all(|done| done.outcome == Ok(100_000)));
            // The engine makes no more progress with the aborted copies.
            poke(&network, 0, at(0x40_0000), &[9; 100]);
            network.step_until_idle();
            assert_eq!(peek(&network, 0, at(0x40_0000), 100), [9; 100]);
            assert_works(&network, &mut ring, steps);
        }
    }
}

#[test]
fn cdma_ring_panicking_thread_releases_ring() {
    for route in SETUPS {
        let network = network(with_channels(1, 1));
        let card = open(&network);
        let mut ring: CdmaRing<u64> = ring(&card, route, options());
        for n in 0..4 {
            ring.copy(at(0x20_0000), at(0x40_0000), 100_000, n).unwrap();
        }
        ring.poll().unwrap();
        let thread = std::thread::spawn(move || {
            let _ring = ring;
            // Panics without printing a message.
            std::panic::resume_unwind(Box::new("a panic of the thread"));
        });
        assert!(thread.join().is_err());
        network.step_until_idle();
        assert_pool(&card, 0, 0);
        let mut again = card.cdma().unwrap().into_ring(path(&card, route), options()).unwrap();
        assert_works(&network, &mut again, 1);
    }
}

#[test]
fn cdma_ring_drop_while_running_leaks_nothing() {
    for route in SETUPS {
        for steps in [0, 1, 5, 10, 20, 30] {
            let network = network(with_channels(1, 1));
            let card = open(&network);
            card.enable_interrupts().unwrap();
            let mut ring: CdmaRing<u64> = ring(&card, route, options().user_interrupt(0));
            for n in 0..6 {
                ring.copy(at(0x20_0000), at(0x40_0000), 100_000, n).unwrap();
            }
            for _ in 0..steps {
                ring.poll().unwrap();
                network.step();
            }
            drop(ring);
            assert_eq!(register(&network, 0, DMA_BAR, IrqBlock::USER_ENABLE.address(IRQ_BASE)), 0, "masked");
            let status = Cdmasr::from_bits(register(&network, 0, USER_BAR, CdmaBlock::SR.address(CDMA)));
            poke(&network, 0, at(0x40_0000), &[9; 100]);
            network.step_until_idle();
            assert!(status.idle() && peek(&network, 0, at(0x40_0000), 100) == [9; 100], "{route:?} {steps}");
            assert_pool(&card, 0, 0);
            // The next owner uses the other mode.
            let mut cdma = card.cdma().unwrap();
            cdma.copy(at(0x20_0000), at(0x40_0000), 5000).unwrap();
            let mut again = cdma.into_ring(path(&card, route), options()).unwrap();
            assert_works(&network, &mut again, 1);
            drop((again, card));
            assert_closed(&network, 0);
        }
    }
}

#[test]
fn cdma_ring_close_returns_engine_channel_and_payloads() {
    for route in SETUPS {
        let (network, card) = opened();
        let mut ring: CdmaRing<u64> = ring(&card, route, options());
        assert_works(&network, &mut ring, 1);
        ring.copy(at(0x20_0000), at(0x40_0000), 64, 10).unwrap();
        while ring.in_flight() != 0 {
            ring.poll().unwrap();
            ring.relax();
        }
        ring.copy(at(0x20_0000), at(0x40_0000), 100_000, 11).unwrap();
        ring.poll().unwrap();
        ring.copy(at(0x20_0000), at(0x40_0000), 100_000, 12).unwrap();
        let (mut cdma, path, done) = ring.close();
        assert_eq!(
            done.iter().map(|done| (done.payload, done.outcome.is_ok())).collect::<Vec<_>>(),
            [(10, true), (11, false), (12, false)]
        );
        cdma.copy(at(0x20_0000), at(0x40_0000), 5000).unwrap();
        if let DescriptorPath::Channel(mut channel) = path {
            assert!(channel.next_completion().is_none(), "the channel has no completion of the ring");
            let buffer = channel.write(card.buffer_from(b"as before").unwrap(), at(0x60_0000)).unwrap();
            assert_eq!(peek(&network, 0, at(0x60_0000), 9), buffer.to_vec());
            drop(buffer);
            assert_pool(&card, 1, 0);
            // The engine becomes a ring again.
            let mut ring = cdma.into_ring(DescriptorPath::Channel(channel), options()).unwrap();
            assert_works(&network, &mut ring, 2);
        }
    }
}

#[test]
fn cdma_ring_waits_end_at_timeout() {
    for route in SETUPS {
        let (_, card) = opened();
        let mut ring: CdmaRing<u64> = ring(&card, route, options());
        let ticket = ring.copy(at(0x20_0000), at(FAR), 64 << 20, 1).unwrap();
        let error = ring.wait(ticket, WaitOptions::default().timeout(Duration::ZERO)).unwrap_err();
        assert!(matches!(error.kind, CdmaRingError::TimedOut { .. }), "{error}");
        let short = WaitOptions::default().timeout(Duration::from_micros(1));
        assert!(matches!(ring.wait(ticket, short), Err(Error { kind: CdmaRingError::TimedOut { .. }, .. })));
        assert_eq!(ring.in_flight(), 1);
        assert_eq!(arrives(&mut ring, ticket), 1, "the copy completes");
        let error = ring.wait(ticket, long_wait()).unwrap_err();
        assert!(matches!(error.kind, CdmaRingError::UnknownTicket), "taken: {error}");
        let interrupt = long_wait().mode(WaitMode::Interrupt);
        let ticket = ring.copy(at(0x20_0000), at(0x40_0000), 1 << 20, 2).unwrap();
        let error = ring.wait(ticket, interrupt).unwrap_err();
        assert!(matches!(error.kind, CdmaRingError::NoInterrupt), "{error}");
        let spin = long_wait().mode(WaitMode::Hybrid { spin: TIMEOUT });
        assert_eq!(ring.wait(ticket, spin).unwrap().payload, 2);
    }
}
