//! Explores every interleaving, and every reordering that the memory model permits, of the lock-free operations of threads:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p fpga-sim --lib loom`.
#![expect(clippy::unwrap_used, reason = "a test's preparation either works or is the failure")]

use super::lock_gate::LockGate;
use super::posted::{Cursor, PostedQueue, PostedWrite};
use loom::sync::Arc;
use std::time::Duration;

fn write(value: u32) -> PostedWrite {
    PostedWrite::new(1, 4, value, 0).unwrap()
}

fn value(write: PostedWrite) -> u32 {
    u32::from_le_bytes(write.value())
}

/// Two producers and the consumer, in a queue of two slots that has wrapped once. A write that finds no space is not retried, which limits
/// the number of interleavings.
#[test]
fn posted_queue_no_write_lost_duplicated_or_reordered() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let posted = Arc::new(PostedQueue::new());
        let mut cursor = Cursor::default();
        for n in 0..3 {
            posted.post(write(n)).unwrap();
            assert_eq!(posted.take(&mut cursor).map(value), Some(n));
        }
        let producer = |values: &'static [u32]| {
            let posted = Arc::clone(&posted);
            loom::thread::spawn(move || {
                values.iter().copied().filter(|n| posted.post(write(*n)).is_ok()).collect::<Vec<_>>()
            })
        };
        let producers = [producer(&[10, 11]), producer(&[20])];
        let mut taken: Vec<_> = (0..2).filter_map(|_| posted.take(&mut cursor).map(value)).collect();
        let accepted = producers.map(|producer| producer.join().unwrap());
        taken.extend(std::iter::from_fn(|| posted.take(&mut cursor).map(value)));
        for accepted in accepted {
            // In the order of their producer, each once.
            let of_this: Vec<_> = taken.iter().copied().filter(|n| accepted.contains(n)).collect();
            assert_eq!(of_this, accepted);
            taken.retain(|n| !accepted.contains(n));
        }
        assert!(taken.is_empty(), "no other writes: {taken:?}");
    });
}

/// A worker that sleeps whenever it finds nothing, without limit if no thread wakes it.
#[test]
fn lock_gate_no_wake_up_is_lost() {
    loom::model(|| {
        let shared = Arc::new((PostedQueue::new(), LockGate::new(true)));
        let theirs = Arc::clone(&shared);
        let worker = loom::thread::spawn(move || {
            let (posted, gate) = &*theirs;
            let mut cursor = Cursor::default();
            while cursor.taken() < 2 {
                if posted.take(&mut cursor).is_none() {
                    gate.prepare_to_sleep();
                    gate.park(Duration::MAX, || posted.tickets() == cursor.taken());
                    // The thread that has the ticket is about to fill the slot.
                    loom::thread::yield_now();
                }
            }
        });
        let (posted, gate) = &*shared;
        gate.set_worker(worker.thread().clone());
        for n in 0..2 {
            posted.post(write(n)).unwrap();
            gate.posted();
        }
        worker.join().unwrap();
    });
}

/// The consumer sees stores made before the post.
#[test]
fn posted_queue_earlier_stores_are_visible() {
    loom::model(|| {
        let shared = Arc::new((PostedQueue::new(), loom::sync::atomic::AtomicU32::new(0)));
        let theirs = Arc::clone(&shared);
        let producer = loom::thread::spawn(move || {
            theirs.1.store(7, loom::sync::atomic::Ordering::Relaxed);
            theirs.0.post(write(1)).unwrap();
        });
        let mut cursor = Cursor::default();
        while shared.0.take(&mut cursor).is_none() {
            loom::thread::yield_now();
        }
        assert_eq!(shared.1.load(loom::sync::atomic::Ordering::Relaxed), 7);
        producer.join().unwrap();
    });
}
