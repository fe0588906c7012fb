//! The queue by itself.
#![cfg(not(loom))]

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

fn write(value: u32) -> PostedWrite {
    PostedWrite::new(1, 4, value, 0).unwrap()
}

fn value(write: PostedWrite) -> u32 {
    u32::from_le_bytes(write.value())
}

proptest! {
    #[test]
    fn posted_write_round_trips(bar in 0..6_u8, register in 0..1_u64 << 22, value: u32, generation: u32) {
        let write = PostedWrite::new(bar, register << 2, value, generation).unwrap();
        let posted = PostedQueue::new();
        // In any lap.
        let mut cursor = Cursor::default();
        for _ in 0..u64::from(generation) % 1000 {
            posted.post(write).unwrap();
            prop_assert_eq!(posted.take(&mut cursor), Some(write));
        }
        prop_assert_eq!((write.bar(), write.offset(), write.value()), (bar, register << 2, value.to_le_bytes()));
        prop_assert!(write.is_of(generation));
        prop_assert!(!write.is_of(generation.wrapping_add(1)) && !write.is_of(generation.wrapping_sub(1)));
    }
}

#[test]
fn posted_write_too_large_is_refused() {
    assert_eq!(PostedWrite::new(0, 1 << 24, 0, 0), None);
    assert!(PostedWrite::new(0, (1 << 24) - 4, 0, 0).is_some());
    let posted = PostedQueue::new();
    let mut cursor = Cursor::default();
    for lap in 0..5 {
        for n in 0..u32::try_from(CAPACITY).unwrap() {
            assert_eq!(posted.post(write(n)), Ok(()), "lap {lap}");
        }
        assert_eq!(posted.post(write(0)), Err(Full));
        for n in 0..u32::try_from(CAPACITY).unwrap() {
            assert_eq!(posted.take(&mut cursor).map(value), Some(n), "lap {lap}");
        }
        assert_eq!(posted.take(&mut cursor), None);
    }
}

#[test]
fn posted_writes_of_each_thread_arrive_once_in_order() {
    const THREADS: u32 = 3;
    const EACH: u32 = 40_000;
    let posted = Arc::new(PostedQueue::new());
    let producers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let posted = Arc::clone(&posted);
            std::thread::spawn(move || {
                for n in 0..EACH {
                    while posted.post(write(thread << 24 | n)).is_err() {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut cursor = Cursor::default();
    let mut next = [0; THREADS as usize];
    while cursor.taken() < u64::from(THREADS * EACH) {
        let Some(write) = posted.take(&mut cursor) else {
            std::thread::yield_now();
            continue;
        };
        let value = value(write);
        let expected = next.get_mut(value as usize >> 24).unwrap();
        assert_eq!(value & 0xFF_FFFF, *expected);
        *expected += 1;
    }
    assert_eq!(next, [EACH; THREADS as usize]);
    assert_eq!(posted.take(&mut cursor), None);
    producers.into_iter().for_each(|producer| producer.join().unwrap());
}
