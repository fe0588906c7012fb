//! Number of times that data is copied on the way through linked simulated cards, as the README states it.

use std::sync::atomic::Ordering;

use fpga_messages::LinkChoice;

use crate::bed::{Bed, bytes, options, receive, send};

/// Bytes that both sides have copied: the messengers between memories of the host, the cards, and the links.
fn copied(bed: &Bed) -> u64 {
    let of_end = |end: &crate::bed::End| {
        end.memory.copied.load(Ordering::Relaxed) as u64 + end.messenger.copied_bytes().unwrap()
    };
    bed.0.iter().map(of_end).sum()
}

/// Copies per byte of `count` messages of `length` bytes: the minimum of some rounds, because a late thread repeats packets.
fn copies(count: usize, length: usize) -> f64 {
    let mut bed = Bed::new(2, &options(LinkChoice::Shm));
    bed.0[0].poke(0, &bytes(1, length));
    let round = |bed: &mut Bed| {
        let before = copied(bed);
        for context in 0..count as u64 {
            bed.0[1].messenger.receive(&receive(Some(0), 0, length, Some(1), context)).unwrap();
            bed.0[0].messenger.send(&send(1, 0, length, Some(1), context)).unwrap();
            assert_eq!(bed.wait(1, context).result, Ok(()));
            assert_eq!(bed.wait(0, context).result, Ok(()));
        }
        (copied(bed) - before) as f64 / (count * length) as f64
    };
    (0..8).map(|_| round(&mut bed)).fold(f64::INFINITY, f64::min)
}

#[test]
fn copies_per_byte_match_readme() {
    // Headers and acknowledgements add about one percent.
    let in_place = copies(2, 1 << 20);
    assert!((4.0..4.1).contains(&in_place), "{in_place} copies in place");
    let staged = copies(8, 124 << 10);
    assert!((6.0..6.2).contains(&staged), "{staged} copies of staged data");
}
