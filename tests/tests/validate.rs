//! The self-test, on cards in order and on cards that are not.
use fpga_driver::validate::{self, ValidateOptions};
use fpga_tests::cards;

#[test]
fn healthy() {
    let world = cards::world(cards::described(""));
    let card = cards::open(&world);
    let t = std::time::Instant::now();
    let report = validate::run(&card, ValidateOptions::default(), &mut |test| {
        eprintln!("{test} ({:?}) {:?}", test.duration, t.elapsed())
    });
    assert!(!report.has_failed());
}
