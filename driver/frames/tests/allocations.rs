//! A running stream allocates no heap memory, on either side. Cards and network run in this thread, too, and are included in the count.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use crate::stream::rig;

use fpga_frames::PublisherEvent;
use fpga_pci::testing::CountingAllocator;
use rig::Rig;

fn run(rig: &mut Rig, frames: u64) {
    for _ in 0..frames {
        let sequence = rig.publish().unwrap().sequence.get();
        rig.until("all subscribers receive it", |rig| {
            rig.seen.iter().all(|seen| seen.last == Some(sequence))
                && rig.publisher.subscribers().all(|view| view.room == view.slots)
        });
    }
}

#[test]
fn stream_running_allocates_nothing() {
    let mut rig = Rig::new(3, rig::options());
    // Seen frames are counted, not kept.
    rig.keep = false;
    // Card memory is allocated at its first write, and queues grow to their final length.
    run(&mut rig, 300);
    let allocations = undisturbed(&mut rig, |rig| run(rig, 500));
    assert_eq!(allocations, 0, "{allocations} allocations in 500 frames");
}

/// Whether an unrelated client has connected to the port, such as another test that tries random ports. The reason of its refusal is
/// recorded in two allocations, which do not belong to a frame.
fn disturbed(rig: &mut Rig) -> bool {
    std::iter::from_fn(|| rig.publisher.next_event())
        .any(|event| matches!(event, PublisherEvent::Rejected { .. }))
}

/// Counts the allocations of `work` during a run without unrelated clients.
fn undisturbed(rig: &mut Rig, mut work: impl FnMut(&mut Rig)) -> u64 {
    loop {
        let _ = disturbed(rig);
        let (allocations, ()) = CountingAllocator::count(|| work(rig));
        if !disturbed(rig) {
            return allocations;
        }
    }
}

/// No allocation for a subscriber that is too slow, and for frames in ordinary memory.
#[test]
fn stream_skipped_subscriber_allocates_nothing() {
    let mut rig = Rig::new(2, rig::options());
    (rig.keep, rig.stalled[1]) = (false, true);
    let frames = |rig: &mut Rig, count| {
        for _ in 0..count {
            let held: [_; 18] = std::array::from_fn(|_| rig.publisher.take().unwrap());
            assert!(held[17].is_on_heap());
            drop(held);
            let sequence = rig.publish().unwrap().sequence.get();
            rig.until("one subscriber receives it", |rig| rig.seen[0].last == Some(sequence));
        }
    };
    frames(&mut rig, 300);
    let allocations = undisturbed(&mut rig, |rig| frames(rig, 200));
    assert_eq!(allocations, 0, "{allocations} allocations in 200 frames");
}

/// A frame in ordinary memory is queued until there is a slot, and copied.
#[test]
fn stream_heap_frames_allocate_nothing() {
    let mut rig = Rig::new(2, rig::options());
    rig.keep = false;
    let frames = |rig: &mut Rig, count: u64| {
        for _ in 0..count {
            let mut held: [_; 17] = std::array::from_fn(|_| Some(rig.publisher.take().unwrap()));
            let mut frame = held[16].take().unwrap();
            assert!(frame.is_on_heap());
            let number = rig.publisher.next_sequence().get();
            frame.fill(&[7; 3_000]).unwrap();
            frame.set_value(&rig::checksum(number, &[7; 3_000])).unwrap();
            rig.publisher.publish(frame).unwrap();
            // Polls that find no free slot.
            rig.turn();
            drop(held);
            rig.until("both subscribers receive it", |rig| {
                rig.seen.iter().all(|seen| seen.last == Some(number))
                    && rig.publisher.subscribers().all(|view| view.room == view.slots)
            });
        }
    };
    frames(&mut rig, 300);
    let before = rig.publisher.statistics().internal.heap_frames;
    let mut counted = 0;
    let allocations = undisturbed(&mut rig, |rig| {
        frames(rig, 200);
        counted += 200;
    });
    assert_eq!(allocations, 0, "{allocations} allocations in 200 frames");
    assert_eq!(rig.publisher.statistics().internal.heap_frames, before + counted);
}

/// The allocations that the count above leaves out.
#[test]
fn listener_unrelated_connection_costs_two_allocations() {
    let mut rig = Rig::new(1, rig::options());
    rig.keep = false;
    run(&mut rig, 10);
    while disturbed(&mut rig) {}
    drop(std::net::TcpStream::connect(rig.address).unwrap());
    let (allocations, ()) = CountingAllocator::count(|| {
        // Another client at the same time would raise the count.
        rig.until("the client is rejected", disturbed);
    });
    assert!(allocations >= 2, "{allocations}");
}
