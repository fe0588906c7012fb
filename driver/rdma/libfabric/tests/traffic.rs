//! Traffic of programs: what the provider prints of its cards' counters when an endpoint is closed (`FI_LOG_LEVEL=info`), and that a program
//! has no other way for its data.

use std::process::{Command, Output};

/// Largest packet of any link, in bytes.
pub(crate) const MAX_PACKET: u64 = 32 << 10;

/// Variable that takes the provider from a program: the name of one that does not exist.
pub(crate) const NO_PROVIDER: (&str, &str) = ("FI_PROVIDER", "nosuch");

/// Numbers of packets that the cards have received, one for each endpoint.
pub(crate) fn received_packets(text: &str) -> Vec<u64> {
    let received = |line: &str| line.split_once(" packets and received ")?.1.trim().parse().ok();
    text.lines().filter_map(received).collect()
}

/// Checks that a program succeeded, and that the data of its endpoints, at least `packets` packets in all, has passed through cards.
pub(crate) fn check(output: &Output, endpoints: usize, packets: u64) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("ok\n"), "{out}{err}");
    let received = received_packets(&err);
    assert_eq!(received.len(), endpoints, "endpoints with a card\n{out}{err}");
    assert!(received.iter().sum::<u64>() >= packets, "{received:?} packets, expected {packets} in all");
}

/// Checks that a program fails without the provider.
pub(crate) fn check_fails_without_provider(mut command: Command) {
    let output = command.env(NO_PROVIDER.0, NO_PROVIDER.1).output().unwrap();
    assert!(!output.status.success(), "succeeds without the provider: {output:?}");
}
