//! Heap use of the steady state: none per message, and a fixed number where memory of the application is mapped for the card.

use std::sync::atomic::Ordering;

use fpga_messages::{AccessRequest, CompleteWhen, LinkChoice, PeerId, RemoteAccess, RemoteRange, Token};
use fpga_pci::testing::CountingAllocator;

use crate::bed::{Bed, options, ranges, receive, send};

/// Allocations of one mapping.
const PER_LOAN: u64 = 2;

/// Waits without keeping completions of other operations.
fn wait(bed: &mut Bed, at: usize, context: u64) {
    loop {
        bed.progress();
        if bed.0[at].take(context).is_some() {
            return;
        }
    }
}

fn exchange(bed: &mut Bed, length: usize, key: u64) {
    for (from, to) in [(0, 1), (1, 0)] {
        bed.0[to].messenger.receive(&receive(Some(from), 0, length, Some(1), 1)).unwrap();
        bed.0[from].messenger.send(&send(to, 0, length, Some(1), 2)).unwrap();
        wait(bed, to, 1);
        wait(bed, from, 2);
    }
    let request = AccessRequest {
        peer: PeerId(1),
        data: ranges(0, length),
        remote: RemoteRange { address: 0, length: length as u64, key },
        immediate: None,
        complete: CompleteWhen::Transmitted,
        token: Token { context: 3, user: 0 },
    };
    bed.0[0].messenger.write(&request).unwrap();
    wait(bed, 0, 3);
    bed.0[0].messenger.read(&request).unwrap();
    wait(bed, 0, 3);
}

#[test]
fn messages_and_accesses_allocate_nothing() {
    let mut options = options(LinkChoice::Shm);
    // No keepalive doorbell is due meanwhile.
    options.give_up = std::time::Duration::from_secs(600);
    let mut bed = Bed::new(2, &options);
    let access = RemoteAccess { read: true, write: true };
    let key = bed.0[1].regions.register(0, 1 << 20, 0, access, None).unwrap();
    for (length, warm) in [(8, 300), (4096, 300), (16_000, 100), (1 << 20, 30)] {
        // All card memory that this uses is there afterwards, and all tables have grown.
        (0..warm).for_each(|_| exchange(&mut bed, length, key));
        // Buffers of the simulated network grow while more packets wait than ever before, which depends on the processor's load.
        let batch = || {
            bed.0.iter().for_each(|end| end.memory.lent.store(0, Ordering::Relaxed));
            let (allocations, ()) =
                CountingAllocator::count(|| (0..10).for_each(|_| exchange(&mut bed, length, key)));
            let loans: usize = bed.0.iter().map(|end| end.memory.lent.load(Ordering::Relaxed)).sum();
            assert_eq!(loans > 0, length == 1 << 20, "{length} bytes");
            allocations.abs_diff(PER_LOAN * loans as u64)
        };
        let is_exact = std::iter::repeat_with(batch).take(10).any(|excess| excess == 0);
        assert!(is_exact, "{length} bytes: allocations in each of ten batches");
    }
}
