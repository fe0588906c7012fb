//! Large data, which the card accesses in the application's memory.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fpga_messages::{
    AccessRequest, CompleteWhen, Failure, LinkChoice, PeerId, RemoteAccess, RemoteRange, Token,
};

use crate::bed::{Bed, options, ranges, receive, send};

const LENGTH: usize = (1 << 20) + 4321;

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

/// Numbers of loans and of copied bytes of an end since the last call.
fn counts(bed: &Bed, at: usize) -> (usize, usize) {
    let memory = &bed.0[at].memory;
    (memory.lent.swap(0, Ordering::Relaxed), memory.copied.swap(0, Ordering::Relaxed))
}

#[test]
fn large_message_is_not_copied() {
    let mut bed = Bed::new(2, &options(LinkChoice::Shm));
    // Neither starts with a page, and their offsets in it differ.
    let (from, to) = (13, 8192 + 77);
    let data = pattern(LENGTH, 1);
    bed.0[0].poke(from, &data);
    bed.0[1].poke(to - 1, &[0xEE]);
    bed.0[1].poke(to + LENGTH as u64, &[0xEE]);
    bed.0[1].messenger.receive(&receive(Some(0), to, LENGTH, Some(1), 1)).unwrap();
    bed.0[0].messenger.send(&send(1, from, LENGTH, Some(1), 2)).unwrap();
    assert_eq!(bed.wait(1, 1).result, Ok(()));
    assert_eq!(bed.wait(0, 2).result, Ok(()));
    assert_eq!(bed.0[1].peek(to, LENGTH), data);
    assert_eq!(bed.0[1].peek(to - 1, 1), [0xEE], "bytes before the buffer");
    assert_eq!(bed.0[1].peek(to + LENGTH as u64, 1), [0xEE], "bytes behind the buffer");
    assert_eq!((counts(&bed, 0), counts(&bed, 1)), ((1, 0), (1, 0)));
}

#[test]
fn large_message_longer_than_the_buffer_is_cut() {
    let mut bed = Bed::new(2, &options(LinkChoice::Shm));
    let data = pattern(LENGTH, 2);
    bed.0[0].poke(0, &data);
    let space = LENGTH / 2 + 5;
    bed.0[1].poke(space as u64, &[0xEE]);
    bed.0[1].messenger.receive(&receive(Some(0), 0, space, Some(1), 1)).unwrap();
    bed.0[0].messenger.send(&send(1, 0, LENGTH, Some(1), 2)).unwrap();
    assert_eq!(bed.wait(1, 1).result, Err(Failure::Truncated));
    bed.wait(0, 2);
    assert_eq!(bed.0[1].peek(0, space), data[..space]);
    assert_eq!(bed.0[1].peek(space as u64, 1), [0xEE]);
}

/// The peer's memory of a write or a read is a region, which its application may close at any time: it is copied.
#[test]
fn large_access_copies_at_the_peer_only() {
    let mut bed = Bed::new(2, &options(LinkChoice::Shm));
    let access = RemoteAccess { read: true, write: true };
    let key = bed.0[1].regions.register(0, 4 << 20, 0, access, None).unwrap();
    let request = |at, context| AccessRequest {
        peer: PeerId(1),
        data: ranges(at, LENGTH),
        remote: RemoteRange { address: 99, length: LENGTH as u64, key },
        immediate: None,
        complete: CompleteWhen::Delivered,
        token: Token { context, user: 0 },
    };
    let data = pattern(LENGTH, 3);
    bed.0[0].poke(3, &data);
    bed.0[0].messenger.write(&request(3, 1)).unwrap();
    assert_eq!(bed.wait(0, 1).result, Ok(()));
    assert_eq!(bed.0[1].peek(99, LENGTH), data);
    assert_eq!((counts(&bed, 0), counts(&bed, 1)), ((1, 0), (0, LENGTH)));
    bed.0[0].messenger.read(&request(3 << 20, 2)).unwrap();
    assert_eq!(bed.wait(0, 2).result, Ok(()));
    assert_eq!(bed.0[0].peek(3 << 20, LENGTH), data);
    assert_eq!((counts(&bed, 0), counts(&bed, 1)), ((1, 0), (0, LENGTH)));
}

/// Waits until parts of the message to the third messenger are in flight; `false`: the sender gave up, because this thread did not run.
fn parts_are_in_flight(bed: &mut Bed) -> bool {
    loop {
        bed.progress();
        if bed.0[2].memory.lent.load(Ordering::Relaxed) > 0 {
            return true;
        }
        if let Some(failed) = bed.0[0].take(1) {
            assert!(matches!(failed.result, Err(Failure::Unreachable { .. })), "{failed:?}");
            return false;
        }
    }
}

/// The completion of a failed operation shows that the card no longer accesses the memory, which can be lent again.
#[test]
fn large_message_to_a_peer_that_ends_gives_its_memory_back() {
    let mut options = options(LinkChoice::Auto);
    options.give_up = Duration::from_secs(1);
    let data = pattern(4 << 20, 4);
    let mut bed = loop {
        let mut bed = Bed::new(3, &options);
        bed.0[0].poke(0, &data);
        bed.0[2].messenger.receive(&receive(Some(0), 0, data.len(), Some(1), 1)).unwrap();
        bed.0[0].messenger.send(&send(2, 0, data.len(), Some(1), 1)).unwrap();
        if parts_are_in_flight(&mut bed) {
            break bed;
        }
    };
    bed.progress();
    drop(bed.0.pop());
    assert!(matches!(bed.wait(0, 1).result, Err(Failure::Closed { .. } | Failure::Unreachable { .. })));
    bed.0[1].messenger.receive(&receive(Some(0), 0, data.len(), Some(1), 2)).unwrap();
    bed.0[0].messenger.send(&send(1, 0, data.len(), Some(1), 2)).unwrap();
    assert_eq!(bed.wait(1, 2).result, Ok(()));
    assert_eq!(bed.wait(0, 2).result, Ok(()));
    assert_eq!(bed.0[1].peek(0, data.len()), data);
}
