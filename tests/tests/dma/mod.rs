//! DMA channels in every direction and run mode: registered memory, lists, wait modes, cancels, endings and faults. In every case data is
//! right or an error is reported, every buffer is returned exactly once, and the channel works afterwards.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::panic, reason = "a panic is the failure report")]

mod cancel;
mod cost;
mod deadlines;
mod drop_and_abort;
mod faults;
mod lists;
mod registered;
mod shapes;
mod threaded;
mod waits;

use fpga_driver::{CardAddr, ChannelError, Direction, SubmitError, WaitOptions};
use fpga_tests::bed::{SETUPS, TestBed};
use fpga_tests::bytes;
use fpga_tests::cards::{assert_closed, assert_pool};
use rand_core::Rng;
use rand_pcg::Pcg64;

/// Number of allocations for descriptors and write-back of one channel.
const AREA: usize = 1;

/// Repeatable random numbers.
struct TestRng(Pcg64);

impl TestRng {
    fn new(seed: u64) -> Self {
        Self(Pcg64::new(u128::from(seed), 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96))
    }

    /// Random number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
