//! What a stream takes from the heap once it runs: nothing, at either side. Cards and network run in this thread too, and are counted.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::panic, reason = "a panic is the failure report")]

#[path = "stream/rig.rs"]
#[expect(dead_code, reason = "what other tests use of it")]
mod rig;

use fpga_pci::testing::CountingAllocator;
use rig::Rig;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn run(rig: &mut Rig, frames: u64) {
    for _ in 0..frames {
        let sequence = rig.publish().unwrap().sequence.get();
        rig.until("everybody has it", |rig| {
            rig.seen.iter().all(|seen| seen.last == Some(sequence))
                && rig.publisher.subscribers().all(|view| view.room == view.slots)
        });
    }
}

#[test]
fn a_running_stream_allocates_nothing() {
    let mut rig = Rig::new(3, rig::options());
    // What was seen is counted, not kept.
    rig.keep = false;
    // Card memory comes into being where it is written first; queues are as long as they get.
    run(&mut rig, 300);
    let (allocations, ()) = CountingAllocator::count(|| run(&mut rig, 500));
    assert_eq!(allocations, 0, "{allocations} allocations in 500 frames");
}

/// The same for one who cannot keep up, and frames in ordinary memory.
#[test]
fn skipping_allocates_nothing() {
    let mut rig = Rig::new(2, rig::options());
    (rig.keep, rig.stalled[1]) = (false, true);
    let mut frames = |count| {
        for _ in 0..count {
            let held: [_; 18] = std::array::from_fn(|_| rig.publisher.take().unwrap());
            assert!(held[17].is_on_heap());
            drop(held);
            let sequence = rig.publish().unwrap().sequence.get();
            rig.until("one has it", |rig| rig.seen[0].last == Some(sequence));
        }
    };
    frames(300);
    let (allocations, ()) = CountingAllocator::count(|| frames(200));
    assert_eq!(allocations, 0, "{allocations} allocations in 200 frames");
}
