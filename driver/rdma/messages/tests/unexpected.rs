//! Messages that match no receive: bounded memory, no loss, and any order of receives.

use fpga_messages::{CompleteWhen, LinkChoice, PostError, SendRequest};

use crate::bed::{Bed, bytes, options, receive, send};

/// Length of message `number` in bytes.
fn length_of(number: u64) -> usize {
    match number % 16 {
        0 => 0,
        1 => 16_384,
        2 => 20_000,
        _ => (number * 37 % 3900) as usize,
    }
}

/// Sends `count` messages from each of `senders` ends to a further one that posts no receive, until everything that can be sent has been sent.
/// Checks the memory that it keeps meanwhile.
fn flood(bed: &mut Bed, senders: usize, count: u64, limit: u64) {
    for number in 0..count {
        for from in 0..senders {
            let length = length_of(number);
            let at = (from as u64 * count + number) % 256 * 20_000;
            bed.0[from].poke(at, &bytes(number + from as u64, length));
            let is_injected = length <= 3968 && number % 3 != 0;
            let complete = if is_injected { CompleteWhen::Injected } else { CompleteWhen::Transmitted };
            let request = SendRequest { complete, ..send(senders, at, length, Some(number), number) };
            while let Err(error) = bed.0[from].messenger.send(&request) {
                assert_eq!(error, PostError::Full);
                bed.progress();
            }
            if is_injected {
                bed.0[from].poke(at, &vec![0xee; length]);
            }
        }
        bed.0[senders].progress();
        let (_, kept) = bed.0[senders].messenger.unexpected();
        assert!(kept <= limit * senders as u64, "message {number}: {kept} bytes are kept");
    }
}

fn check(limit: u64, count: u64, loss: f64) {
    let mut options = options(LinkChoice::Auto);
    (options.unexpected, options.loss) = (limit, loss);
    let senders = 3;
    let mut bed = Bed::new(senders + 1, &options);
    flood(&mut bed, senders, count, limit);
    for _ in 0..200 {
        bed.progress();
    }
    for number in (0..count).rev() {
        for from in 0..senders {
            let length = length_of(number);
            bed.0[senders].messenger.receive(&receive(Some(from), 0, length, Some(number), number)).unwrap();
            let done = bed.wait(senders, number);
            assert_eq!(
                (done.result, done.length),
                (Ok(()), length as u64),
                "message {number}, limit {limit}"
            );
            assert!(
                bed.0[senders].peek(0, length) == bytes(number + from as u64, length),
                "message {number}"
            );
        }
    }
    assert_eq!(bed.0[senders].messenger.unexpected(), (0, 0));
    while !bed.0.iter().all(|end| end.messenger.is_idle()) {
        bed.progress();
    }
    // All credit has come back: messages of the same amount pass again.
    flood(&mut bed, senders, count.min(20), limit);
}

#[test]
fn unexpected_messages_beyond_the_limit_wait_at_their_senders() {
    for (limit, loss) in [(0, 0.0), (1000, 0.0), (20_000, 0.02), (200_000, 0.0)] {
        // Not more messages than there are buffers whose data must not change before they are sent.
        check(limit, 85, loss);
    }
}

#[test]
fn unexpected_messages_do_not_use_up_the_credit() {
    let mut options = options(LinkChoice::Auto);
    options.unexpected = 4096;
    let mut bed = Bed::new(2, &options);
    for number in 0..500 {
        let data = bytes(number, 1000);
        bed.0[0].poke(0, &data);
        // Before, and after its receive.
        let early = number % 2 == 0;
        let post = |bed: &mut Bed| {
            bed.0[1].messenger.receive(&receive(None, 0, 1000, None, number)).unwrap();
        };
        if !early {
            post(&mut bed);
        }
        bed.0[0].messenger.send(&send(1, 0, 1000, None, number)).unwrap();
        if early {
            post(&mut bed);
        }
        assert_eq!(bed.wait(1, number).result, Ok(()));
        assert!(bed.0[1].peek(0, 1000) == data);
        assert_eq!(bed.wait(0, number).result, Ok(()));
    }
}
