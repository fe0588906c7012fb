//! Interrupts: threshold and delay.

use super::*;

#[test]
fn cdma_ring_interrupts_follow_threshold_and_delay() {
    for route in SETUPS {
        for (threshold, delay) in [(1, 0), (4, 20), (255, 20), (8, 1), (2, 255)] {
            let (network, card) = opened();
            card.enable_interrupts().unwrap();
            let options = options().user_interrupt(0).interrupt_threshold(threshold).interrupt_delay(delay);
            let mut ring: CdmaRing<u64> = ring(&card, route, options);
            for batch in 1..=15_u64 {
                for n in 0..batch {
                    ring.copy(at(0x20_0000), at(0x40_0000), 20_000, n).unwrap();
                }
                let last = ring.copy(at(0x20_0000), at(0x40_0000), 20_000, 99);
                let last = match last {
                    Ok(ticket) => ticket,
                    Err(refused) => {
                        assert!(refused.is_full());
                        let before = ring.in_flight();
                        assert_eq!(before, 15);
                        continue_full(&mut ring);
                        continue;
                    }
                };
                let sent = card.counters().unwrap().interrupts;
                let began = network.now();
                let done = ring.wait(last, long_wait().mode(WaitMode::Interrupt)).unwrap();
                assert_eq!((done.outcome, done.payload), (Ok(20_000), 99));
                let sent = card.counters().unwrap().interrupts - sent;
                assert!(sent >= 1, "{route:?} {threshold} {delay} {batch}: the wait slept");
                assert!(sent <= batch + 2, "{route:?} {threshold} {delay} {batch}: {sent} interrupts");
                let waited = network.now().get() - began.get();
                assert!(
                    waited < 50_000_000,
                    "{route:?} {threshold} {delay} {batch}: woken by an interrupt, not by the timeout: {waited} ns"
                );
                assert_eq!(drain(&mut ring).len() as u64, batch);
                let enabled = register(&network, 0, DMA_BAR, IrqBlock::USER_ENABLE.address(IRQ_BASE));
                assert_eq!(enabled, 0, "the interrupt is masked");
            }
            // A caller that polls gets no interrupt.
            let sent = card.counters().unwrap().interrupts;
            let ticket = ring.copy(at(0x20_0000), at(0x40_0000), 20_000, 5).unwrap();
            arrives(&mut ring, ticket);
            assert_eq!(card.counters().unwrap().interrupts, sent);
        }
    }
}

/// Polls until a full ring is empty.
fn continue_full(ring: &mut CdmaRing<u64>) {
    while ring.in_flight() != 0 {
        ring.poll().unwrap();
        ring.relax();
    }
    drain(ring);
}

#[test]
fn cdma_ring_threshold_saves_interrupts() {
    let mut counts = Vec::new();
    for (threshold, delay) in [(1, 0), (4, 200), (255, 200)] {
        let (_, card) = opened();
        card.enable_interrupts().unwrap();
        let options = options().user_interrupt(0).interrupt_threshold(threshold).interrupt_delay(delay);
        let mut ring: CdmaRing<u64> = ring(&card, DescriptorRoute::Bypass, options);
        let mut last = None;
        for n in 0..12 {
            // Long enough for the waiter to sleep again between two copies (62 us), and shorter than the interrupt delay.
            last = Some(ring.copy(at(0x20_0000), at(0x400_0000), 512 << 10, n).unwrap());
        }
        let done = ring.wait(last.unwrap(), long_wait().mode(WaitMode::Interrupt)).unwrap();
        assert_eq!(done.outcome, Ok(512 << 10));
        counts.push(card.counters().unwrap().interrupts);
    }
    assert_eq!(counts[0], 12, "one interrupt per descriptor");
    assert_eq!(counts[1], 3, "one interrupt per four descriptors");
    assert_eq!(counts[2], 1, "one interrupt from the delay timer");
}

#[test]
fn cdma_ring_error_wakes_sleeping_wait() {
    for route in SETUPS {
        let (network, card) = opened();
        card.enable_interrupts().unwrap();
        let options = options().user_interrupt(0).interrupt_threshold(255).interrupt_delay(255);
        let mut ring: CdmaRing<u64> = ring(&card, route, options);
        network.with_card(0, |card| card.poison(at(0x40_0000), 64));
        let ticket = ring.copy(at(0x20_0000), at(0x40_0000), 64, 1).unwrap();
        let began = network.now();
        let done = ring.wait(ticket, long_wait().mode(WaitMode::Interrupt)).unwrap();
        assert!(matches!(done.outcome.unwrap_err().kind.cause, FaultCause::Status(_)));
        assert!(network.now().get() - began.get() < 50_000_000, "{route:?}");
        network.with_card(0, |card| card.poison(at(0), 0));
        assert_works(&network, &mut ring, 1);
    }
}
