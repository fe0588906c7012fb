//! Devices that stop, report wrong values, or are removed.

use super::*;
use fpga_driver::Error;

proptest! {
    #![proptest_config(seeded(64))]

    /// Random completed counts at random times: transfers end once each, buffers are returned once each, no transfer is reported as
    /// successful that was not executed, and the channel works as soon as the counts are right again.
    #[test]
    fn random_counts_end_each_transfer_once(counts in prop::collection::vec((prop::option::of(prop_oneof![0..70_u32, any::<u32>()]), 1..64_usize), 1..12), seed in any::<u64>()) {
        let network = network(CardDescription::default());
        let card = open(&network);
        let mut channel = card.h2c_with(0, ChannelOptions::default().max_descriptor_length(4096)).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        let (mut submitted, mut returned) = (0, 0);
        for (n, (count, batch)) in counts.iter().enumerate() {
            network.with_card(0, |card| card.override_completed_count(*count));
            for k in 0..*batch {
                let data = bytes(seed.wrapping_add(n as u64 * 64 + k as u64), 5000);
                let ticket = channel.submit(filled(&card, &data), CardAddr::new((n * 64 + k) as u64 * 8192)).unwrap();
                prop_assert!(seen.insert(ticket, None).is_none());
                submitted += 1;
            }
            let mut rounds = 0;
            while channel.in_flight() > 0 {
                // A device that reports a low count makes no progress until a wait reads the registers.
                if let Some((&ticket, _)) = seen.iter().find(|(_, outcome)| outcome.is_none()) {
                    let done = channel.wait(ticket, WaitOptions::default()).unwrap();
                    note(&mut seen, done, &mut returned);
                }
                while let Some(done) = channel.next_completion() {
                    note(&mut seen, done, &mut returned);
                }
                rounds += 1;
                prop_assert!(rounds < 1000);
            }
            while let Some(done) = channel.next_completion() {
                note(&mut seen, done, &mut returned);
            }
        }
        prop_assert_eq!(submitted, returned);
        network.with_card(0, |card| card.override_completed_count(None));
        assert_works(&network, &card, &mut channel, seed);
        assert_pool(&card, AREA, 0);
    }
}

fn note(
    seen: &mut std::collections::BTreeMap<fpga_driver::Ticket, Option<bool>>,
    done: Completion,
    returned: &mut usize,
) {
    assert!(done.buffer.is_some(), "the buffers of an idle engine are returned");
    let place = seen.get_mut(&done.ticket).expect("submitted");
    assert!(place.replace(done.outcome.is_ok()).is_none(), "ended twice");
    *returned += 1;
}

fn halt(card: &Card, on: bool) {
    let channels = PerChannel::one(Direction::H2c, 0);
    let register =
        if on { SgdmaCommonBlock::HALT_SET.offset() } else { SgdmaCommonBlock::HALT_CLEAR.offset() };
    card.dma_bar().write32(SGDMA_COMMON_BASE.offset_by(register), channels.into_bits()).unwrap();
}

#[test]
fn stalled_run_times_out_and_aborts() {
    let network = fast_network(CardDescription::default());
    let card = open(&network);
    let mut channel = card.h2c(0).unwrap();
    // An engine with halted descriptor fetches is busy for ever.
    halt(&card, true);
    let tickets: Vec<_> =
        (0..5).map(|_| channel.submit(card.buffer(1000).unwrap(), CardAddr::ZERO).unwrap()).collect();
    let options = WaitOptions::default().timeout(Duration::from_millis(20));
    for _ in 0..2 {
        let error = channel.wait(tickets[0], options).unwrap_err();
        let Error { kind: ChannelError::TimedOut { completed: 0, posted: 5, waited, .. }, .. } = error else {
            panic!("{error}")
        };
        let waited_us = waited.as_micros();
        assert!((20_000..100_000).contains(&waited_us), "{waited_us} µs");
        assert_message(&error, &["h2c0", "0 of 5", "abort", "of virtual time"]);
    }
    assert_eq!(channel.in_flight(), 5);
    assert_pool(&card, AREA + 5, 0);
    // Queued after the run, never posted.
    let queued = channel.submit(card.buffer(1000).unwrap(), CardAddr::ZERO).unwrap();
    assert_eq!(channel.abort().unwrap(), 6);
    assert_eq!(channel.in_flight(), 0);
    for ticket in tickets.into_iter().chain([queued]) {
        let done = channel.wait(ticket, options).unwrap();
        assert_eq!(done.outcome.unwrap_err().kind.cause, FaultCause::Aborted);
        assert!(done.buffer.is_some());
    }
    assert_eq!(channel.abort().unwrap(), 0, "nothing remains to abort");
    // A blocking call that times out stops the engine and returns the buffer.
    let failed = channel.write(card.buffer(1000).unwrap(), CardAddr::ZERO).unwrap_err();
    assert!(matches!(failed.error.kind, TransferError::Channel(ChannelError::TimedOut { .. })), "{failed}");
    assert!(failed.buffer.is_some());
    drop(failed);
    halt(&card, false);
    assert_works(&network, &card, &mut channel, 1);
    assert_pool(&card, AREA, 0);
}

#[test]
fn open_unresponsive_card_is_refused() {
    for failure in [CardFailure::AllOnes, CardFailure::Gone] {
        let network = network(CardDescription::default());
        network.fail(0, failure);
        let error = try_open(&network, OpenOptions::default()).unwrap_err();
        assert!(matches!(error.kind, OpenError::Gone), "{failure:?}: {error:?}");
        assert_message(&error, &["gone", "recovery::recover"]);
        network.fail(0, CardFailure::None);
        assert_closed(&network, 0);
        let card = open(&network);
        assert_works(&network, &card, &mut card.h2c(0).unwrap(), 1);
    }
}

#[test]
fn removed_card_mid_transfer_ends_transfers() {
    // AllOnes: registers are lost, DMA continues. Gone: registers and DMA are lost.
    for (failure, steps) in
        [CardFailure::AllOnes, CardFailure::Gone].into_iter().flat_map(|f| (0..40).map(move |s| (f, s)))
    {
        let network = network(CardDescription::default());
        let card = open(&network);
        let mut channel = card.h2c_with(0, ChannelOptions::default().max_descriptor_length(8192)).unwrap();
        let tickets: Vec<_> = (0..4)
            .map(|n| channel.submit(filled(&card, &bytes(n, 20_000)), CardAddr::new(n << 16)).unwrap())
            .collect();
        channel.poll().unwrap();
        for _ in 0..steps {
            network.step();
        }
        // Queued after the run, not posted.
        let queued: Vec<_> = (0..3)
            .map(|n| channel.submit(card.buffer(500).unwrap(), CardAddr::new(n << 10)).unwrap())
            .collect();
        network.fail(0, failure);
        let mut returned = 0;
        let mut kept = 0;
        let (mut gone, mut run_failed) = (None, false);
        for ticket in tickets.iter().chain(&queued) {
            let done = match channel.wait(*ticket, WaitOptions::default()) {
                Ok(done) => done,
                Err(error) => {
                    gone = Some(error);
                    channel.wait(*ticket, WaitOptions::default()).unwrap()
                }
            };
            match (&done.outcome, done.buffer.is_some()) {
                (Ok(_), true) | (Err(_), true) => returned += 1,
                (Err(_), false) => kept += 1,
                (Ok(_), false) => panic!("the transfer succeeded without its buffer"),
            }
            run_failed |= tickets.contains(ticket) && done.outcome.is_err();
            if queued.contains(ticket) && run_failed {
                assert!(done.buffer.is_some(), "never posted: the card cannot access the buffer");
            }
        }
        let Error { kind: ChannelError::Gone { quarantined, .. }, .. } =
            gone.expect("a wait reports the missing card")
        else {
            panic!()
        };
        assert_eq!((quarantined, returned), (kept, 7 - kept), "{failure:?} after {steps} steps");
        assert!(channel.next_completion().is_none());
        // The card may still reach the ring, so that it is in quarantine too.
        let stats = assert_pool(&card, 0, kept + AREA);
        assert_eq!(stats.in_use_bytes, 0);
        assert!(
            card.memory().quarantined().iter().all(|record| record.reason == QuarantineReason::DeviceGone)
        );
        // After the failure every call returns the error, and buffers are returned with it.
        let refused = channel.submit(card.buffer(64).unwrap(), CardAddr::ZERO).unwrap_err();
        assert!(matches!(refused.error.kind, SubmitError::Channel(ChannelError::Gone { .. })));
        assert!(matches!(channel.poll(), Err(Error { kind: ChannelError::Gone { .. }, .. })));
        assert!(matches!(channel.abort(), Err(Error { kind: ChannelError::Gone { .. }, .. })));
        assert_message(&channel.poll().unwrap_err(), &["open the card again"]);
        drop(refused);
        drop((channel, card));
        network.fail(0, CardFailure::None);
        let card = open(&network);
        assert_works(&network, &card, &mut card.h2c(0).unwrap(), 1);
        assert_pool(&card, 0, 0);
    }
}

#[test]
fn out_of_memory_is_error() {
    let network = network(CardDescription::default());
    let mut memory = DmaPoolOptions::default();
    memory.region_size = 1 << 20;
    memory.limit = 1 << 20;
    let card = open_with(&network, OpenOptions::default().memory(memory));
    let mut channel = card.h2c(0).unwrap();
    let all = card.buffer(900 << 10).unwrap();
    let error = card.buffer(900 << 10).unwrap_err();
    assert!(matches!(error.kind, ResourceError::Memory(_)), "{error}");
    assert_message(&error, &["in use", "in quarantine"]);
    assert!(matches!(card.buffer(0), Err(Error { kind: ResourceError::Memory(_), .. })));
    assert!(matches!(card.buffer(usize::MAX), Err(Error { kind: ResourceError::Memory(_), .. })));
    // A channel that cannot be taken because memory is exhausted stays free.
    let error = card.h2c_with(1, ChannelOptions::default().descriptors(65_536)).unwrap_err();
    assert!(matches!(error.kind, ResourceError::Memory(_)), "{error}");
    drop(all);
    assert!(card.h2c(1).is_ok());
    assert_works(&network, &card, &mut channel, 1);
    poke(&network, 0, CardAddr::ZERO, &[0]);
    assert_pool(&card, AREA, 0);
}
