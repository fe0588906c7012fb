//! A running stream allocates no heap memory, on either side. Cards and network run in this thread, too, and are included in the count.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use crate::stream::bed;

use bed::TestBed;
use fpga_frames::{Publisher, PublisherEvent};
use fpga_pci::testing::CountingAllocator;

fn run(bed: &mut TestBed, frames: u64) {
    for _ in 0..frames {
        let sequence = bed.publish().unwrap().sequence.get();
        bed.until("all subscribers receive it", |bed| {
            bed.seen.iter().all(|seen| seen.last == Some(sequence))
                && bed.publisher.subscribers().all(|view| view.room == view.slots)
        });
    }
}

#[test]
fn stream_running_allocates_nothing() {
    let mut bed = TestBed::new(2, bed::options());
    // Seen frames are counted, not kept.
    bed.keep = false;
    // Card memory is allocated at its first write, and queues grow to their final length.
    run(&mut bed, 300);
    let allocations = undisturbed(&mut bed, |bed| run(bed, 200));
    assert_eq!(allocations, 0, "{allocations} allocations in 200 frames");
}

/// Whether an unrelated client has connected to the port, such as another test that tries random ports. The reason of its refusal is
/// recorded in two allocations, which do not belong to a frame.
fn disturbed(bed: &mut TestBed) -> bool {
    std::iter::from_fn(|| bed.publisher.next_event())
        .any(|event| matches!(event, PublisherEvent::Rejected { .. }))
}

/// Counts the allocations of `work` during a run without unrelated clients.
fn undisturbed(bed: &mut TestBed, mut work: impl FnMut(&mut TestBed)) -> u64 {
    loop {
        let _ = disturbed(bed);
        let (allocations, ()) = CountingAllocator::count(|| work(bed));
        if !disturbed(bed) {
            return allocations;
        }
    }
}

/// No allocation for a subscriber that is too slow, and for frames in ordinary memory.
#[test]
fn stream_skipped_subscriber_allocates_nothing() {
    let mut bed = TestBed::new(2, bed::options());
    (bed.keep, bed.stalled[1]) = (false, true);
    let frames = |bed: &mut TestBed, count| {
        for _ in 0..count {
            let held: [_; 18] = std::array::from_fn(|_| bed.publisher.take().unwrap());
            assert!(held[17].is_on_heap());
            drop(held);
            let sequence = bed.publish().unwrap().sequence.get();
            bed.until("one subscriber receives it", |bed| bed.seen[0].last == Some(sequence));
        }
    };
    frames(&mut bed, 300);
    let allocations = undisturbed(&mut bed, |bed| frames(bed, 200));
    assert_eq!(allocations, 0, "{allocations} allocations in 200 frames");
}

/// A frame in ordinary memory is queued until there is a slot, and copied.
#[test]
fn stream_heap_frames_allocate_nothing() {
    let mut bed = TestBed::new(2, bed::options());
    bed.keep = false;
    let frames = |bed: &mut TestBed, count: u64| {
        for _ in 0..count {
            let mut held: [_; 17] = std::array::from_fn(|_| Some(bed.publisher.take().unwrap()));
            let mut frame = held[16].take().unwrap();
            assert!(frame.is_on_heap());
            let number = bed.publisher.next_sequence().get();
            frame.fill(&[7; 3_000]).unwrap();
            frame.set_value(&bed::checksum(number, &[7; 3_000])).unwrap();
            bed.publisher.publish(frame).unwrap();
            // Polls that find no free slot.
            bed.turn();
            drop(held);
            bed.until("both subscribers receive it", |bed| {
                bed.seen.iter().all(|seen| seen.last == Some(number))
                    && bed.publisher.subscribers().all(|view| view.room == view.slots)
            });
        }
    };
    frames(&mut bed, 300);
    let before = bed.publisher.statistics().internal.heap_frames;
    let mut counted = 0;
    let allocations = undisturbed(&mut bed, |bed| {
        frames(bed, 200);
        counted += 200;
    });
    assert_eq!(allocations, 0, "{allocations} allocations in 200 frames");
    assert_eq!(bed.publisher.statistics().internal.heap_frames, before + counted);
}

/// The allocations that the count above leaves out.
#[test]
fn listener_unrelated_connection_costs_two_allocations() {
    let mut bed = TestBed::new(1, bed::options());
    bed.keep = false;
    run(&mut bed, 10);
    while disturbed(&mut bed) {}
    drop(std::net::TcpStream::connect(bed.address).unwrap());
    let (allocations, ()) = CountingAllocator::count(|| {
        // Another client at the same time would raise the count.
        bed.until("the client is rejected", disturbed);
    });
    assert!(allocations >= 2, "{allocations}");
}

/// Tickets of transfers that the card sends by itself have large slot numbers.
#[test]
fn publisher_on_sending_card_uses_little_memory() {
    let network = fpga_sim::SimNetwork::builder().cards(2).build().unwrap();
    let by_card = |options: &mut fpga_rdma::EndpointOptions| {
        options.scheme = fpga_firmware::generated::Scheme::Selective;
    };
    let publisher = Publisher::new(bed::endpoint_with(&network, 0, 1, &by_card), bed::options()).unwrap();
    let mut bed = TestBed::with_publisher(network, 1, publisher);
    bed.try_join_with(0, bed::subscriber_options(), &by_card).unwrap();
    let (peak, ()) = CountingAllocator::peak(|| run(&mut bed, 3));
    assert!(peak < 4 << 20, "{peak} bytes");
}
