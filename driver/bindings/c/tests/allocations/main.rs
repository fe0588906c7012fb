//! Heap use of the C interface: submitting and polling allocate nothing. The simulated card works in this thread, so that its allocations
//! are counted, too.
#![expect(unsafe_code, reason = "calls of C functions")]

#[path = "../calls.rs"]
mod calls;

use calls::Calls;
use fpga_pci::testing::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SIZE: usize = 64;

/// Submits `depth` transfers, and polls until they have ended.
fn round(calls: &Calls, depth: usize) {
    for slot in 0..depth {
        calls.submit(slot * SIZE, SIZE, (slot * SIZE) as u64);
    }
    let mut ended = 0;
    while ended < depth {
        ended += calls.poll();
    }
}

#[test]
fn submit_and_poll_allocate_nothing() {
    let calls = Calls::open(c"mock", SIZE * 64);
    for depth in [1, 64] {
        // The first rounds touch memory of the simulated card, and fill its queues.
        (0..100).for_each(|_| round(&calls, depth));
        let (count, ()) = CountingAllocator::count(|| (0..1000).for_each(|_| round(&calls, depth)));
        assert_eq!(count, 0, "{depth} at a time");
    }
    let (count, _) = CountingAllocator::count(|| Box::new(1));
    assert_eq!(count, 1, "the allocator counts");
}
