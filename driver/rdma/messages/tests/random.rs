//! Random operations of several ends, compared with a model.

use std::collections::{HashMap, VecDeque};

use fpga_messages::{CompleteWhen, LinkChoice, MessengerOptions};

use crate::bed::{Bed, bytes, options, receive, send};

/// Generator of the choices.
struct Choice(u64);

impl Choice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Messages between all ends. The `n`th receive for a sender and a tag gets the `n`th message with them.
fn exchange(seed: u64, ends: usize, operations: u64, options: &MessengerOptions) {
    let mut bed = Bed::new(ends, options);
    let mut choice = Choice(seed | 1);
    let slot = 1 << 16;
    let slots = (crate::bed::MEMORY / slot / 2) as u64;
    let mut expected: HashMap<(usize, usize, u64), VecDeque<(u64, usize)>> = HashMap::new();
    let mut waiting: Vec<VecDeque<(u64, u64, usize, u64)>> = vec![VecDeque::new(); ends];
    let (mut sends, mut received) = (0, 0);
    let mut in_flight = vec![0; ends];
    for number in 1..=operations {
        let (from, to) = (choice.below(ends as u64) as usize, choice.below(ends as u64) as usize);
        let tag = choice.below(3);
        let length = match choice.below(8) {
            0 => 0,
            1..=4 => choice.below(300),
            5 => choice.below(16_400),
            _ => choice.below(slot as u64),
        } as usize;
        let at = number % slots * slot as u64;
        let data = bytes(number, length);
        bed.0[from].poke(at, &data);
        let mut request = send(to, at, length, Some(tag), number);
        request.complete =
            if choice.below(2) == 0 { CompleteWhen::Transmitted } else { CompleteWhen::Delivered };
        bed.0[from].messenger.send(&request).unwrap();
        in_flight[from] += 1;
        sends += 1;
        expected.entry((from, to, tag)).or_default().push_back((number, length));
        // The receive is posted before or after the message has come.
        waiting[to].push_back((number, tag, from, choice.below(slots)));
        for _ in 0..choice.below(4) {
            bed.progress();
        }
        let is_last = number == operations;
        while sends - received > slots / 4 || is_last && received < sends {
            for (to, queue) in waiting.iter_mut().enumerate() {
                if let Some((context, tag, from, slot_number)) = queue.pop_front() {
                    let at = (slots + slot_number) * slot as u64;
                    bed.0[to]
                        .messenger
                        .receive(&receive(Some(from), at, slot, Some(tag), 1 << 40 | context))
                        .unwrap();
                    let done = bed.wait(to, 1 << 40 | context);
                    let (sent, length) = expected.get_mut(&(from, to, tag)).unwrap().pop_front().unwrap();
                    assert_eq!(
                        (done.result.clone(), done.length),
                        (Ok(()), length as u64),
                        "seed {seed} message {sent}"
                    );
                    assert!(bed.0[to].peek(at, length) == bytes(sent, length), "seed {seed} message {sent}");
                    received += 1;
                }
            }
        }
    }
    for (end, count) in in_flight.into_iter().enumerate() {
        for _ in 0..count {
            while bed.0[end].done.is_empty() {
                bed.progress();
            }
            assert_eq!(bed.0[end].done.pop().unwrap().result, Ok(()));
        }
    }
    while !bed.0.iter().all(|end| end.messenger.is_idle()) {
        bed.progress();
    }
}

#[test]
fn random_messages_match_the_model() {
    exchange(1, 4, 600, &options(LinkChoice::Auto));
    exchange(2, 2, 400, &options(LinkChoice::Udp));
}

#[test]
fn random_messages_with_loss_and_reordering_match_the_model() {
    exchange_with_loss(200);
}

fn exchange_with_loss(operations: u64) {
    for (seed, loss) in [(3, 0.01), (4, 0.05)] {
        let mut options = options(LinkChoice::Auto);
        (options.loss, options.reorder, options.seed) = (loss, 32, seed);
        exchange(seed, 3, operations, &options);
    }
}

#[test]
#[ignore = "long: 4 s: several thousand messages"]
fn random_messages_in_large_number_match_the_model() {
    exchange(1, 4, 3_000, &options(LinkChoice::Auto));
    exchange(2, 2, 2_000, &options(LinkChoice::Udp));
    exchange_with_loss(1_000);
}
