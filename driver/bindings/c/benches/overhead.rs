//! Cost of the C interface: submit and poll by `fpga.h` against the same by `fpga_driver`, on simulated cards in this process.
//!
//! `cargo bench -p fpga-c`. Rounds of both come in pairs, in alternating order, so that a slower or faster time of the machine concerns both. A figure is the
//! median over the pairs. The C functions are called through pointers, as those of a shared library are.
#![expect(unsafe_code, reason = "calls of C functions")]
#![expect(clippy::expect_used, clippy::cast_precision_loss, reason = "a benchmark that cannot continue ends")]

#[path = "../tests/calls.rs"]
mod calls;

use std::time::Instant;

use calls::Calls;
use fpga_driver::{Card, CardAddr, H2cChannel, MemoryHandle};

const SIZE: usize = 64;
/// Pairs of rounds.
const PAIRS: usize = 401;
/// Operations of a round.
const OPERATIONS: usize = 4096;

/// Way to submit and poll.
trait Way {
    fn submit(&mut self, slot: usize);
    fn poll(&mut self) -> usize;

    /// Runs a round, `depth` operations at a time, and returns nanoseconds per operation.
    fn round(&mut self, depth: usize) -> f64 {
        let begin = Instant::now();
        for _ in 0..OPERATIONS / depth {
            for slot in 0..depth {
                self.submit(slot);
            }
            let mut ended = 0;
            while ended < depth {
                ended += self.poll();
            }
        }
        begin.elapsed().as_nanos() as f64 / OPERATIONS as f64
    }
}

impl Way for Calls {
    #[inline]
    fn submit(&mut self, slot: usize) {
        Calls::submit(self, slot * SIZE, SIZE, (slot * SIZE) as u64);
    }

    #[inline]
    fn poll(&mut self) -> usize {
        Calls::poll(self)
    }
}

struct Rust {
    channel: H2cChannel,
    memory: MemoryHandle,
}

impl Rust {
    fn open(length: usize) -> Self {
        let card = Card::open("mock").expect("a simulated card");
        let mut channel = card.h2c(0).expect("channel 0");
        let memory = card.registered_memory(length).expect("memory");
        let memory = channel.register_memory(memory).expect("memory of this card");
        Self { channel, memory }
    }
}

impl Way for Rust {
    #[inline]
    fn submit(&mut self, slot: usize) {
        let to = CardAddr::new((slot * SIZE) as u64);
        self.channel.submit_at(self.memory, slot * SIZE, SIZE, to).expect("space in the ring");
    }

    #[inline]
    fn poll(&mut self) -> usize {
        let ended = self.channel.poll().expect("a healthy card");
        if ended == 0 {
            self.channel.relax();
        }
        ended
    }
}

/// Lower quartile, median and upper quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values.get(values.len() * quarter / 4).copied().unwrap_or(f64::NAN))
}

fn main() {
    let (mut rust, mut c) = (Rust::open(SIZE * 64), Calls::open(c"mock", SIZE * 64));
    for depth in [1, 64] {
        // Caches, branch predictors and the memory of the cards.
        for _ in 0..20 {
            rust.round(depth);
            c.round(depth);
        }
        let pairs: Vec<_> = (0..PAIRS)
            .map(|number| {
                if number % 2 == 0 {
                    let first = rust.round(depth);
                    (first, c.round(depth))
                } else {
                    let first = c.round(depth);
                    (rust.round(depth), first)
                }
            })
            .collect();
        let median = |of: fn(&(f64, f64)) -> f64| quartiles(pairs.iter().map(of).collect());
        let ([_, rust, _], [_, c, _]) = (median(|pair| pair.0), median(|pair| pair.1));
        let [low, more, high] = median(|pair| pair.1 - pair.0);
        println!("C interface/submit+poll x{depth}: {rust:.1} ns Rust, {c:.1} ns C, {more:.1} ns difference");
        println!("    {PAIRS} pairs; half of the differences are between {low:.1} and {high:.1}");
    }
}
