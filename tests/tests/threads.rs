//! Channels belong to threads: one each, no lock between them, buffers and places handed over.

use crossbeam::channel::bounded;
use fpga_driver::CardAddr;
use fpga_tests::{bytes, cards};

/// Bytes of one piece.
const PIECE: usize = 4096;
/// Pieces moved.
const PIECES: u64 = 200;
/// Places in card memory: fewer than pieces, so that they go round.
const PLACES: usize = 8;

#[test]
fn one_thread_writes_what_another_reads() {
    let world = cards::world(cards::described(""));
    let card = cards::open(&world);
    let (mut h2c, mut c2h) = (card.h2c(0).unwrap(), card.c2h(0).unwrap());
    let (filled, to_read) = bounded::<(u64, CardAddr)>(1);
    let (emptied, to_write) = bounded::<CardAddr>(PLACES);
    for place in 0..PLACES {
        emptied.send(CardAddr::new((place * PIECE) as u64)).unwrap();
    }
    crossbeam::thread::scope(|scope| {
        let card = &card;
        scope.spawn(move |_| {
            for number in 0..PIECES {
                let place = to_write.recv().unwrap();
                let buffer = card.buffer_from(&bytes(number, PIECE)).unwrap();
                h2c.write(buffer, place).unwrap();
                filled.send((number, place)).unwrap();
            }
        });
        scope.spawn(move |_| {
            let mut buffer = card.buffer(PIECE).unwrap();
            for (number, place) in to_read {
                buffer = c2h.read(buffer, place).unwrap();
                assert!(buffer.to_vec() == bytes(number, PIECE), "piece {number}");
                // The writer may have finished: then nobody wants the place any more.
                let _ = emptied.send(place);
            }
        });
    })
    .unwrap();
    drop(card);
    cards::assert_closed(&world, 0);
}
