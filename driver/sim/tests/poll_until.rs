//! Polling with backoff and limits, on simulated cards with virtual time.
#![expect(clippy::unwrap_used, reason = "in a test that is the report")]

use core::time::Duration;

use fpga_pci::poll_until;
use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;

/// Limit of a wait for an idle engine, in nanoseconds.
const IDLE_TIMEOUT_NS: u64 = 2_000_000_000;
/// Maximum pause between two polls.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Polls a network whose clock advances by `pause` ns between polls. Returns the result and the number of polls.
fn poll_once(pause: u64, limit: u64, there: impl Fn(u64) -> bool) -> (Result<(), u64>, u64) {
    let network = SimNetwork::builder().cards(1).time(Nanos::ZERO, Nanos::new(pause)).build().unwrap();
    let mut polls = 0;
    let seen = poll_until(&*network.backend(0), limit, |_| {
        polls += 1;
        Ok::<_, ()>(there(polls).then_some(()))
    });
    (seen.unwrap(), polls)
}

#[test]
fn poll_until_value_at_last_poll_is_in_time() {
    assert_eq!(poll_once(100, 1000, |_| false), (Err(1000), 11));
    assert_eq!(poll_once(100, 1000, |polls| polls == 11), (Ok(()), 11));
    assert_eq!(poll_once(100, 0, |_| true), (Ok(()), 1));
    assert_eq!(poll_once(100, 0, |_| false), (Err(0), 1));
}

#[test]
fn poll_until_long_wait_polls_rarely_and_ends_soon() {
    let (seen, polls) = poll_once(1000, IDLE_TIMEOUT_NS, |_| false);
    assert!(
        seen.is_err_and(|waited| (IDLE_TIMEOUT_NS..=IDLE_TIMEOUT_NS + 1000).contains(&waited)),
        "{seen:?}"
    );
    assert!(polls < 1000, "{polls} polls without result");
    // Measures the delay of a wait that is over after this time.
    for over in [1_000, 100_000, 1_000_000, 30_000_000, 1_500_000_000] {
        let network = SimNetwork::builder().cards(1).time(Nanos::ZERO, Nanos::new(1000)).build().unwrap();
        let seen = poll_until(&*network.backend(0), IDLE_TIMEOUT_NS, |waited| {
            Ok::<_, ()>((waited >= over).then_some(waited))
        });
        let late = seen.unwrap().unwrap() - over;
        assert!(
            u128::from(late) <= u128::from(over / 16).min(MAX_SLEEP.as_nanos()) + 2000,
            "{late} ns after {over}"
        );
    }
}

#[test]
fn poll_until_after_gap_polls_again_and_ends_within_tenth() {
    // Each poll comes much later than the limit: one more poll is made.
    let (seen, polls) = poll_once(u64::MAX / 64, 1000, |_| false);
    assert!(seen.is_err());
    assert_eq!(polls, 3);
    assert_eq!(poll_once(u64::MAX / 64, 1000, |polls| polls == 3), (Ok(()), 3));
    // Polls a third of the limit apart: the timeout is delayed once, by a tenth.
    let (seen, polls) = poll_once(400, 1000, |_| false);
    assert_eq!((seen, polls), (Err(1600), 5));
    // Polls in quick succession: the timeout is not delayed.
    assert_eq!(poll_once(100, 1000, |_| false), (Err(1000), 11));
}
