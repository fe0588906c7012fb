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
                let ticket = channel.submit(card.buffer_from(&data).unwrap(), CardAddr::new((n * 64 + k) as u64 * 8192)).unwrap();
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
fn out_of_memory_is_error() {
    let network = network(CardDescription::default());
    let mut memory = DmaPoolOptions::default();
    memory.region_size = 1 << 20;
    memory.limit = 1 << 20;
    let card = open_with(&network, OpenOptions::default().memory(memory));
    let mut channel = card.h2c(0).unwrap();
    let all = card.buffer(900 << 10).unwrap();
    let error = card.buffer(900 << 10).unwrap_err();
    assert!(matches!(error.kind, ResourceError::Cause(_)), "{error}");
    assert_message(&error, &["in use", "in quarantine"]);
    assert!(matches!(card.buffer(0), Err(Error { kind: ResourceError::Cause(_), .. })));
    assert!(matches!(card.buffer(usize::MAX), Err(Error { kind: ResourceError::Cause(_), .. })));
    // A channel that cannot be taken because memory is exhausted stays free.
    let error = card.h2c_with(1, ChannelOptions::default().descriptors(65_536)).unwrap_err();
    assert!(matches!(error.kind, ResourceError::Cause(_)), "{error}");
    drop(all);
    assert!(card.h2c(1).is_ok());
    assert_works(&network, &card, &mut channel, 1);
    poke(&network, 0, CardAddr::ZERO, &[0]);
    assert_pool(&card, AREA, 0);
}
