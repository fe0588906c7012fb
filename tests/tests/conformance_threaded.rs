//! The conformance suite on a card with its own thread: every case. `conformance` runs those that depend on when the card runs.

use fpga_tests::conformance::backends::THREADED;
use fpga_tests::conformance::{Skip, cases};

#[test]
#[ignore = "long: 10 s: every case on a third backend"]
fn conformance_every_case_on_threaded_card() {
    let mut run = 0;
    for case in cases() {
        match case.run(&THREADED) {
            Ok(()) => run += 1,
            Err(Skip(why)) => assert!(!why.is_empty(), "{}", case.name),
        }
    }
    assert!(run > 100, "{run} cases");
}
