//! Messages of all lengths, matching, completions.

use fpga_messages::{CompleteWhen, CompletionKind, Failure, LinkChoice, Peek, PeerId, Token};

use crate::bed::{Bed, bytes, options, receive, send};

#[test]
fn messages_of_every_length_arrive() {
    // Most other tests leave the choice to the messenger.
    for link in [LinkChoice::Shm, LinkChoice::Udp] {
        let mut bed = Bed::new(2, &options(link));
        for (round, length) in
            (1..).zip([0, 1, 63, 64, 3968, 16_320, 16_321, 131_072, 131_073, 400_000, 2_000_000])
        {
            let data = bytes(round, length);
            bed.0[0].poke(0, &data);
            bed.0[1].messenger.receive(&receive(Some(0), 0, length, Some(round), round)).unwrap();
            bed.0[0].messenger.send(&send(1, 0, length, Some(round), round)).unwrap();
            let done = bed.wait(1, round);
            assert_eq!(
                (done.kind, done.length, done.tag, done.cut),
                (CompletionKind::Receive, length as u64, round, 0)
            );
            assert_eq!(
                (done.source, done.token, done.result),
                (Some(PeerId(0)), Token { context: round, user: 9 }, Ok(()))
            );
            assert!(bed.0[1].peek(0, length) == data, "{length} bytes");
            assert_eq!(bed.wait(0, round).result, Ok(()));
        }
    }
}

#[test]
fn messages_to_itself_arrive() {
    let mut bed = Bed::new(1, &options(LinkChoice::Auto));
    for (round, length) in [(1, 10), (2, 300_000)] {
        let data = bytes(round, length);
        bed.0[0].poke(0, &data);
        bed.0[0].messenger.send(&send(0, 0, length, None, round)).unwrap();
        bed.0[0].messenger.receive(&receive(None, 1 << 20, length, None, 100 + round)).unwrap();
        assert_eq!(bed.wait(0, 100 + round).length, length as u64);
        assert!(bed.0[0].peek(1 << 20, length) == data);
        assert_eq!(bed.wait(0, round).result, Ok(()));
    }
}

#[test]
fn messages_before_their_receives_keep_their_order() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    for number in 0..20_u64 {
        // Small and large in turn.
        let length = if number % 2 == 0 { 100 } else { 40_000 };
        let at = number * 50_000;
        bed.0[0].poke(at, &bytes(number, length));
        bed.0[0].messenger.send(&send(1, at, length, Some(3), number)).unwrap();
    }
    while bed.0[0].done.len() < 10 {
        bed.progress();
    }
    for number in 0..20_u64 {
        bed.0[1].messenger.receive(&receive(None, number * 50_000, 50_000, Some(3), number)).unwrap();
    }
    for number in 0..20_u64 {
        let length = if number % 2 == 0 { 100 } else { 40_000 };
        assert_eq!(bed.wait(1, number).length, length as u64);
        assert!(bed.0[1].peek(number * 50_000, length) == bytes(number, length));
    }
}

#[test]
fn message_longer_than_the_buffer_is_cut() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    for (round, length, buffer) in [(1, 1000, 10), (2, 500_000, 200_000), (3, 500_000, 0)] {
        let data = bytes(round, length);
        bed.0[0].poke(0, &data);
        bed.0[1].poke(0, &vec![0xee; buffer + 1]);
        bed.0[1].messenger.receive(&receive(None, 0, buffer, None, round)).unwrap();
        bed.0[0].messenger.send(&send(1, 0, length, None, round)).unwrap();
        let done = bed.wait(1, round);
        assert_eq!(done.result, Err(Failure::Truncated));
        assert_eq!((done.length, done.cut), (buffer as u64, (length - buffer) as u64));
        assert!(bed.0[1].peek(0, buffer) == data[..buffer]);
        assert_eq!(bed.0[1].peek(buffer as u64, 1), [0xee]);
        assert_eq!(bed.wait(0, round).result, Ok(()));
    }
}

#[test]
fn message_matched_completes_after_its_receive() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    for (round, length) in [(1, 100), (2, 100_000)] {
        let mut request = send(1, 0, length, None, round);
        request.complete = CompleteWhen::Matched;
        request.immediate = Some(round);
        bed.0[0].messenger.send(&request).unwrap();
        // The record is acknowledged, and no receive has matched.
        for _ in 0..2_000 {
            bed.progress();
        }
        assert!(bed.0[0].take(round).is_none());
        bed.0[1].messenger.receive(&receive(None, 0, length, None, round)).unwrap();
        assert_eq!(bed.wait(0, round).result, Ok(()));
        assert_eq!(bed.wait(1, round).immediate, Some(round));
    }
}

#[test]
fn message_delivered_completes_before_its_receive() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let count = 2000;
    for number in 0..count {
        bed.0[0].poke(0, &bytes(number, 4096));
        let mut request = send(1, 0, 4096, Some(number), number);
        request.complete = CompleteWhen::Delivered;
        bed.0[0].messenger.send(&request).unwrap();
        assert_eq!(bed.wait(0, number).result, Ok(()));
    }
    for number in (0..count).rev() {
        bed.0[1].messenger.receive(&receive(Some(0), 0, 4096, Some(number), number)).unwrap();
        assert_eq!(bed.wait(1, number).result, Ok(()));
        assert!(bed.0[1].peek(0, 4096) == bytes(number, 4096), "{number}");
    }
    // The peer reports each message once.
    for _ in 0..100 {
        bed.progress();
    }
    assert!(bed.0[0].done.is_empty() && bed.0[0].messenger.is_idle());
}

#[test]
fn message_injected_may_change_at_once() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    for number in 0..100_u64 {
        bed.0[0].poke(0, &bytes(number, 1000));
        let mut request = send(1, 0, 1000, Some(number), 1000);
        request.complete = CompleteWhen::Injected;
        bed.0[0].messenger.send(&request).unwrap();
    }
    bed.0[0].poke(0, &[0xff; 1000]);
    for number in (0..100_u64).rev() {
        bed.0[1].messenger.receive(&receive(Some(0), 0, 1000, Some(number), number)).unwrap();
        bed.wait(1, number);
        assert!(bed.0[1].peek(0, 1000) == bytes(number, 1000), "{number}");
    }
    assert!(bed.0[0].done.is_empty());
}

#[test]
fn receive_of_several_messages_divides_its_buffer() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let mut request = receive(None, 0, 100_000, None, 5);
    request.multi = Some(1000);
    bed.0[1].messenger.receive(&request).unwrap();
    let lengths = [10, 20_000, 0, 50_000, 29_500];
    let mut at = 0;
    for (number, length) in (0..).zip(lengths) {
        bed.0[0].poke(at, &bytes(number, length));
        bed.0[0].messenger.send(&send(1, at, length, None, number)).unwrap();
        at += length as u64;
    }
    let mut done = Vec::new();
    for _ in 0..5 {
        done.push(bed.wait(1, 5));
    }
    done.sort_by_key(|done| (done.address, done.length));
    let places: Vec<_> = done.iter().map(|done| (done.address, done.length as usize, done.is_last)).collect();
    assert_eq!(
        places,
        [
            (0, 10, false),
            (10, 20_000, false),
            (20_010, 0, false),
            (20_010, 50_000, false),
            (70_010, 29_500, true)
        ]
    );
    for ((address, length, _), number) in places.iter().zip(0..) {
        assert!(bed.0[1].peek(*address, *length) == bytes(number, *length));
    }
}

#[test]
fn peek_claims_and_discards() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let anything = receive(None, 0, 0, Some(4), 1);
    bed.0[1].messenger.peek(&anything, Peek::Look).unwrap();
    assert_eq!(bed.wait(1, 1).result, Err(Failure::NoMessage));
    for (number, length) in [(0, 50), (1, 60_000), (2, 70)] {
        bed.0[0].poke(number * 100_000, &bytes(number, length));
        let mut request = send(1, number * 100_000, length, Some(4), number);
        request.complete = CompleteWhen::Delivered;
        bed.0[0].messenger.send(&request).unwrap();
    }
    // Waits for the first one without taking it.
    loop {
        bed.0[1].messenger.peek(&anything, Peek::Look).unwrap();
        let found = bed.wait(1, 1);
        if found.result.is_ok() {
            assert_eq!(found.length, 50);
            break;
        }
    }
    bed.0[1].messenger.peek(&receive(None, 0, 0, Some(4), 8), Peek::Claim).unwrap();
    assert_eq!(bed.wait(1, 8).length, 50);
    // The next one is large; it is dropped.
    loop {
        bed.0[1].messenger.peek(&anything, Peek::Discard).unwrap();
        let found = bed.wait(1, 1);
        if found.result.is_ok() {
            assert_eq!(found.length, 60_000);
            break;
        }
    }
    assert_eq!(bed.wait(0, 1).result, Ok(()));
    bed.0[1].messenger.receive_claimed(&receive(None, 0, 50, Some(4), 8), false).unwrap();
    assert_eq!(bed.wait(1, 8).length, 50);
    assert!(bed.0[1].peek(0, 50) == bytes(0, 50));
    assert_eq!(bed.wait(0, 0).result, Ok(()));
    bed.0[1].messenger.receive(&receive(None, 0, 70, Some(4), 9)).unwrap();
    assert_eq!(bed.wait(1, 9).length, 70);
}

#[test]
fn receive_cancelled_completes_once() {
    let mut bed = Bed::new(1, &options(LinkChoice::Auto));
    bed.0[0].messenger.receive(&receive(None, 0, 10, None, 3)).unwrap();
    assert!(bed.0[0].messenger.cancel(3));
    assert!(!bed.0[0].messenger.cancel(3));
    assert_eq!(bed.wait(0, 3).result, Err(Failure::Cancelled));
}

#[test]
fn messages_in_pieces_are_gathered_and_scattered() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let data = bytes(1, 300_000);
    let pieces = |lengths: [u64; 4], gap: u64| {
        let mut at = 0;
        let ranges = lengths.map(|length| {
            let range = fpga_messages::HostRange { address: at, length };
            at += length + gap;
            range
        });
        fpga_messages::HostRanges::new(ranges).unwrap()
    };
    let from = pieces([1, 149_999, 0, 150_000], 77);
    let to = pieces([100_000, 100_001, 99_998, 1], 13);
    let mut at = 0;
    for range in from.as_slice() {
        bed.0[0].poke(range.address, &data[at..at + range.length as usize]);
        at += range.length as usize;
    }
    let mut request = send(1, 0, 0, None, 1);
    request.data = from;
    let mut target = receive(None, 0, 0, None, 2);
    target.data = to;
    bed.0[1].messenger.receive(&target).unwrap();
    bed.0[0].messenger.send(&request).unwrap();
    assert_eq!(bed.wait(1, 2).length, 300_000);
    let mut found = Vec::new();
    for range in to.as_slice() {
        found.extend(bed.0[1].peek(range.address, range.length as usize));
    }
    assert!(found == data);
}

/// The first messages of both sides cross, and may overtake the hello that tells who has sent them.
#[test]
fn first_messages_of_both_sides_may_cross() {
    // Shared memory and hardly any reordering; UDP and much of it.
    check_first_messages([0, 7]);
}

#[test]
#[ignore = "long: 3 s: every seed"]
fn first_messages_of_both_sides_may_cross_with_every_seed() {
    check_first_messages(0..12);
}

fn check_first_messages(seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let mut options = options(if seed % 2 == 0 { LinkChoice::Shm } else { LinkChoice::Udp });
        (options.reorder, options.seed) = (if seed < 6 { 1 } else { 16 }, seed);
        let mut bed = Bed::new(2, &options);
        for (from, to) in [(0, 1), (1, 0)] {
            for number in 0..5 {
                bed.0[from].messenger.send(&send(to, 0, 100, Some(number), number)).unwrap();
            }
        }
        for at in [0, 1] {
            for number in 0..5 {
                let request = receive(Some(1 - at), 0, 100, Some(number), 100 + number);
                bed.0[at].messenger.receive(&request).unwrap();
                assert_eq!(bed.wait(at, 100 + number).result, Ok(()));
            }
        }
    }
}

/// A buffer for several messages is free with its last completion, even if a large message completes after a small one that fills it up.
#[test]
fn buffer_for_several_messages_is_returned_with_its_last_completion() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let mut buffer = receive(None, 0, 500_000, None, 9);
    buffer.multi = Some(50_000);
    bed.0[1].messenger.receive(&buffer).unwrap();
    bed.0[0].poke(0, &bytes(1, 450_000));
    for (context, length) in [(1, 450_000), (2, 100)] {
        bed.0[0].messenger.send(&send(1, 0, length, None, context)).unwrap();
    }
    let (first, second) = (bed.wait(1, 9), bed.wait(1, 9));
    assert_eq!((first.length, first.is_last), (100, false));
    assert_eq!((second.length, second.is_last), (450_000, true));
    assert!(bed.0[1].peek(0, 450_000) == bytes(1, 450_000));
}

/// The cancelled buffer is free once the messages in it are complete.
#[test]
fn buffer_for_several_messages_is_cancelled_after_its_messages() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let mut buffer = receive(None, 0, 500_000, None, 9);
    buffer.multi = Some(1);
    bed.0[0].messenger.send(&send(1, 0, 400_000, None, 1)).unwrap();
    while bed.0[1].messenger.in_progress() == 0 {
        bed.0[1].messenger.receive(&buffer).unwrap();
        bed.progress();
        if bed.0[1].messenger.in_progress() == 0 {
            assert!(bed.0[1].messenger.cancel(9));
            assert!(bed.wait(1, 9).is_last);
        }
    }
    assert!(bed.0[1].messenger.cancel(9));
    let (message, end) = (bed.wait(1, 9), bed.wait(1, 9));
    assert_eq!((message.length, message.is_last, message.result), (400_000, false, Ok(())));
    assert_eq!((end.is_last, end.result), (true, Err(Failure::Cancelled)));
}

#[test]
fn cancelled_receive_of_one_message_returns_no_buffer() {
    let mut bed = Bed::new(1, &options(LinkChoice::Auto));
    bed.0[0].messenger.receive(&receive(None, 0, 10, Some(1), 1)).unwrap();
    assert!(bed.0[0].messenger.cancel(1));
    assert!(!bed.wait(0, 1).is_last);
}
