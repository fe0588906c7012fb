//! The driver's side of `benches/overhead.py`: the same transfers by Rust, on a simulated card of its own.
//!
//! Reads lines `CASE SIZE COUNT` and answers each with the nanoseconds of one operation.
#![expect(clippy::expect_used, clippy::cast_precision_loss, reason = "a benchmark that cannot continue ends")]

use std::io::{BufRead, Write};
use std::time::Instant;

use fpga_driver::{Card, CardAddr, H2cChannel, MemoryHandle, WaitOptions, bulk};

/// Size of the registered memory in bytes.
const MEMORY: usize = 4 << 20;

struct Peer {
    card: Card,
    channel: H2cChannel,
    memory: MemoryHandle,
    private: Vec<u8>,
}

impl Peer {
    fn open() -> Self {
        let card = Card::open("mock").expect("a simulated card");
        let mut channel = card.h2c(0).expect("channel 0");
        let memory = card.registered_memory(MEMORY).expect("memory");
        let memory = channel.register_memory(memory).expect("memory of this card");
        Self { card, channel, memory, private: vec![1; MEMORY] }
    }

    /// Writes private memory through a buffer, and waits.
    fn copy(&mut self, size: usize) {
        let source = self.private.get(..size).expect("a size in the memory");
        let options = WaitOptions::default();
        if size <= 1 << 20 {
            let buffer = self.card.buffer_from(source).expect("a buffer");
            self.channel.write_with(buffer, CardAddr::new(0), options).expect("a transfer");
        } else {
            bulk::write_from(
                &self.card,
                &mut self.channel,
                &mut &*source,
                CardAddr::new(0),
                size as u64,
                options,
                &mut |_| {},
            )
            .expect("a transfer");
        }
    }

    /// Writes registered memory in place, and waits.
    fn direct(&mut self, size: usize) {
        let ticket =
            self.channel.submit_at(self.memory, 0, size, CardAddr::new(0)).expect("space in the ring");
        self.channel.wait_ended(ticket, WaitOptions::default()).expect("a transfer");
    }

    /// Writes `count` parts of registered memory, with a full ring.
    fn batch(&mut self, size: usize, count: usize) {
        let mut last = None;
        for number in 0..count {
            let offset = number * size % MEMORY;
            let ticket = loop {
                let submitted =
                    self.channel.submit_at(self.memory, offset, size, CardAddr::new(offset as u64));
                if !submitted.as_ref().is_err_and(fpga_driver::Error::is_full) {
                    break submitted.expect("a transfer");
                }
                if self.channel.poll().expect("a healthy card") == 0 {
                    self.channel.relax();
                }
            };
            last = Some(ticket);
        }
        if let Some(last) = last {
            self.channel.wait_ended(last, WaitOptions::default()).expect("transfers");
        }
    }
}

fn main() {
    let mut peer = Peer::open();
    let mut answer = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let mut words = line.split_whitespace();
        let case = words.next().expect("a case");
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok()).expect("a number");
        let (size, count) = (number(), number());
        let begin = Instant::now();
        match case {
            "copy" => (0..count).for_each(|_| peer.copy(size)),
            "direct" => (0..count).for_each(|_| peer.direct(size)),
            _ => peer.batch(size, count),
        }
        let nanoseconds = begin.elapsed().as_nanos() as f64 / count as f64;
        writeln!(answer, "{nanoseconds}").and_then(|()| answer.flush()).expect("a reader");
    }
}
