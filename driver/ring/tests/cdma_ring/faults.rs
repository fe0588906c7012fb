//! Faults, and draining of the ring.

use super::*;

#[test]
fn cdma_ring_impossible_status_word_is_fault() {
    for word in [u32::MAX, 1, 0x0800_0000, 0x8000_0001, 0xDEAD_BEEF] {
        let mut bench = CdmaTestbed::new(4);
        bench.submit(&[segment(0, 0x1000, 1)]).unwrap();
        bench.publish();
        assert_eq!(bench.ring.probe(), None, "nothing is posted");
        bench.post();
        let probe = bench.ring.probe().unwrap();
        assert_eq!(probe.status, at(BASE + 0x1C));
        assert_eq!(bench.ring.complete_status(probe, 0), Ok(0));
        assert_eq!(bench.ring.complete_status(probe, word), Err(ProgressFault::NotAStatus { word }));
        assert!(bench.ring.is_faulted());
        assert_eq!(bench.ring.poll_completion(), None);
        bench.recover();
        // An old probe reports no progress after the ring was drained.
        bench.submit(&[segment(0, 0x1000, 1)]).unwrap();
        bench.publish();
        bench.post();
        assert_eq!(bench.ring.complete_status(probe, 1 << 31), Ok(0));
    }
    for errors in [1 << 30, 1 << 29, 1 << 28, 1 << 31 | 1 << 29] {
        let mut bench = CdmaTestbed::new(4);
        bench.submit(&[segment(0, 0x1000, 1)]).unwrap();
        bench.publish();
        bench.post();
        let probe = bench.ring.probe().unwrap();
        let fault = bench.ring.complete_status(probe, errors).unwrap_err();
        assert!(
            matches!(fault, ProgressFault::Descriptor { index: 0, status } if status.into_bits() == errors)
        );
    }
}

#[test]
fn cdma_ring_error_at_any_position_names_descriptor() {
    for start in 0..8 {
        for failing in 0..7 {
            let mut bench = CdmaTestbed::new(8);
            for _ in 0..start {
                bench.submit(&[segment(0, 0x1000, 10)]).unwrap();
                bench.publish();
                bench.post();
                bench.engine.step();
                bench.by_status().unwrap();
                bench.collect();
            }
            // Three operations: of 2, 3 and 2 descriptors.
            for (source, length) in [(0, 300), (500, 600), (1200, 400)] {
                bench.submit(&[segment(source, 0x1000 + source, length)]).unwrap();
            }
            bench.publish();
            bench.post();
            bench.engine.fail_in = Some(failing);
            (0..8).for_each(|_| bench.engine.step());
            assert_eq!(bench.engine.halt, Some(Halt::Copy));
            assert_eq!(bench.by_pointer(), Ok(u32::try_from(failing).unwrap()));
            let pending = bench.ring.pending_descriptor().unwrap();
            assert_eq!(u64::from(pending.index), (start + failing) % 8);
            let (source, offset) = match failing {
                0 | 1 => (0, failing * 252),
                2..=4 => (500, (failing - 2) * 252),
                _ => (1200, (failing - 5) * 252),
            };
            assert_eq!((pending.source, pending.offset), (at(source + offset), offset));
            bench.recover();
            // The ring works again.
            bench.submit(&[segment(0, 0x1700, 100)]).unwrap();
            bench.publish();
            bench.post();
            bench.engine.step();
            assert_eq!(bench.by_status(), Ok(1));
            bench.collect();
            assert_eq!(bench.engine.data, bench.reference);
        }
    }
}

#[test]
fn cdma_ring_drain_in_any_state_reports_engine_progress() {
    let mut bench = CdmaTestbed::new(16);
    for payload in 0..4 {
        bench.submit(&[segment(payload * 300, 0x1000, 300)]).unwrap();
        if payload < 2 {
            bench.publish();
            bench.post();
        }
        if payload == 2 {
            bench.publish();
        }
    }
    (0..3).for_each(|_| bench.engine.step());
    bench.ring.complete_current(at(bench.engine.current), false).unwrap();
    bench.engine.step();
    bench.ring.complete_current(at(bench.engine.current), false).unwrap();
    // The first is complete and not processed; the second is half done; the third is in card memory; the fourth is queued.
    let mut drain = bench.ring.drain();
    let first = drain.next().unwrap();
    assert_eq!((first.payload, first.posted, first.completed_bytes, first.length), (0, true, 300, 300));
    let _ = drain;
    assert!(bench.ring.is_faulted(), "half drained");
    let rest: Vec<_> = bench.ring.drain().map(|d| (d.payload, d.posted, d.completed_bytes)).collect();
    assert_eq!(rest, [(1, true, 252), (2, false, 0), (3, false, 0)]);
    assert!(!bench.ring.is_faulted() && !bench.ring.has_queued() && !bench.ring.has_published());
    assert_eq!((bench.ring.free_entries(), bench.ring.outstanding()), (15, 0));
    assert_eq!(bench.ring.start_address(), at(BASE + 8 * 64), "it continues at the same position");
}

#[test]
fn cdma_ring_engine_past_tail_halts_at_guard() {
    let mut bench = CdmaTestbed::new(8);
    for start in 0..20 {
        bench.submit(&[segment(0, 0x1000, 300)]).unwrap();
        bench.publish();
        bench.post();
        (0..2).for_each(|_| bench.engine.step());
        // The engine starts although it has reached its tail: the entries after it are guards at first, used descriptors later.
        bench.engine.running = true;
        bench.engine.step();
        assert_eq!(bench.engine.halt, Some(Halt::Stale), "round {start}");
        assert!(bench.ring.is_past_tail(at(bench.engine.current)));
        assert_eq!(bench.ring.complete_all(), 2);
        bench.collect();
        bench.restart();
    }
    // After a failure no old descriptor remains that it could execute.
    bench.submit(&[segment(0, 0x1000, 252 * 5)]).unwrap();
    bench.publish();
    bench.post();
    bench.recover();
    bench.engine.running = true;
    bench.engine.step();
    assert_eq!(bench.engine.halt, Some(Halt::Stale));
}
