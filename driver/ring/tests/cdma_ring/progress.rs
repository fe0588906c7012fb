//! From batches to completions.

use super::*;

#[test]
fn cdma_ring_wrapping_batch_has_two_slices() {
    let mut bench = CdmaTestbed::new(8);
    for _ in 0..50 {
        for n in 0..5 {
            bench.submit(&[segment(n * 10, 0x1000 + n * 10, 10)]).unwrap();
        }
        bench.publish();
        let batch = bench.batch.unwrap();
        let first = batch.pieces().next().unwrap();
        let wraps = first.index + 5 > 8;
        assert_eq!(batch.pieces().count(), if wraps { 2 } else { 1 });
        assert_eq!(batch.pieces().map(|piece| piece.descriptors).sum::<u32>(), 5);
        bench.post();
        (0..5).for_each(|_| bench.engine.step());
        assert_eq!(bench.by_status(), Ok(5));
        bench.collect();
    }
    assert_eq!(SgDescriptor::from_words(bench.image.0[7]).next, at(BASE));
}

#[test]
fn cdma_ring_append_while_running_moves_tail() {
    let mut bench = CdmaTestbed::new(8);
    bench.submit(&[segment(0, 0x1000, 600)]).unwrap();
    bench.publish();
    bench.post();
    bench.engine.step();
    bench.submit(&[segment(0, 0x1800, 10)]).unwrap();
    assert!(bench.ring.has_queued() && !bench.ring.has_published());
    bench.publish();
    assert!(!bench.ring.has_queued() && bench.ring.has_published());
    assert!(bench.ring.publish(&mut bench.image).is_none(), "one batch at a time");
    assert!(bench.engine.running);
    bench.post();
    (0..10).for_each(|_| bench.engine.step());
    assert_eq!((bench.engine.executed, bench.engine.running, bench.engine.halt), (4, false, None));
    assert_eq!(bench.by_pointer(), Ok(4));
    bench.collect();
    assert_eq!(bench.ring.operations(), 0);
}

#[test]
fn cdma_ring_current_pointer_is_accepted_only_where_possible() {
    // A full ring: every entry but one is posted.
    let mut bench = CdmaTestbed::new(8);
    let full = |bench: &mut CdmaTestbed| {
        (0..7).for_each(|n| bench.submit(&[segment(n * 10, 0x1000 + n * 10, 10)]).unwrap());
        bench.publish();
        bench.post();
    };
    full(&mut bench);
    (0..7).for_each(|_| bench.engine.step());
    assert_eq!(bench.by_pointer(), Ok(7));
    bench.collect();
    full(&mut bench);
    // The engine has not moved: its pointer is at its last stop, the entry before.
    assert_eq!(bench.by_pointer(), Ok(0));
    bench.engine.step();
    assert_eq!(bench.by_pointer(), Ok(0), "in progress, not complete");
    bench.engine.step();
    assert_eq!(bench.by_pointer(), Ok(1));
    // At the tail but busy: the tail's own descriptor is not complete.
    let tail = at(BASE + 5 * 64);
    assert_eq!(bench.ring.posted_tail(), Some(tail));
    assert!(bench.ring.is_tail(tail) && !bench.ring.is_tail(at(BASE + 4 * 64)));
    assert_eq!(bench.ring.complete_current(tail, false), Ok(5));
    assert_eq!(bench.ring.complete_current(tail, false), Ok(0));
    assert_eq!(bench.ring.outstanding(), 1);
    assert_eq!(bench.ring.complete_current(tail, true), Ok(1));
    assert_eq!(bench.ring.outstanding(), 0);
    assert_eq!(bench.ring.posted_tail(), None);
    assert!(!bench.ring.is_tail(tail), "nothing is posted");

    for wrong in [0, BASE - 64, BASE + 8 * 64, BASE + 32, BASE + 3 * 64, u64::MAX, BASE + (1 << 40)] {
        let mut bench = CdmaTestbed::new(8);
        bench.submit(&[segment(0, 0x1000, 252 * 3)]).unwrap();
        bench.publish();
        bench.post();
        let fault = ProgressFault::NotPosted { address: at(wrong) };
        assert_eq!(bench.ring.complete_current(at(wrong), true), Err(fault), "{wrong:#x}");
        assert!(bench.ring.is_faulted());
        assert_eq!(bench.submit(&[segment(0, 0x1000, 1)]), Err(RefusalReason::Faulted));
        assert_eq!(bench.ring.poll_completion(), None, "no count is accepted");
        bench.recover();
        assert!(!bench.ring.is_faulted());
    }
}

#[test]
fn cdma_ring_probe_is_one_per_batch_and_operation() {
    let mut bench = CdmaTestbed::new(16);
    let mut token = None;
    for n in 0..3 {
        bench.submit(&[segment(n, 0x1000 + n, 1)]).unwrap();
        if n == 1 {
            token = Some(bench.ring.submit(&[segment(0, 0x1100, 300)], 99).unwrap());
        }
    }
    let token = token.unwrap();
    assert_eq!(bench.ring.probe_for(token), None, "not posted");
    bench.publish();
    bench.post();
    assert_eq!(bench.ring.probe().unwrap().index, 4);
    assert_eq!(bench.ring.probe_for(token).unwrap().index, 3);
    bench.ring.submit(&[segment(0, 0x1200, 1)], 100).unwrap();
    bench.publish();
    bench.post();
    assert_eq!(bench.ring.probe().unwrap().index, 4, "the poll position does not move");
    (0..4).for_each(|_| bench.engine.step());
    let probe = bench.ring.probe_for(token).unwrap();
    assert_eq!(bench.ring.complete_status(probe, bench.engine.word(probe.status)), Ok(4));
    assert_eq!(bench.ring.probe_for(token), None, "complete");
    (0..4).for_each(|_| bench.engine.step());
    assert_eq!(bench.by_status(), Ok(1));
    assert_eq!(bench.ring.probe().unwrap().index, 5, "then it moves to the newest descriptor");
    assert_eq!(bench.by_status(), Ok(1));
    let payloads: Vec<_> =
        std::iter::from_fn(|| bench.ring.poll_completion()).map(|done| done.payload).collect();
    assert_eq!(payloads, [0, 1, 99, 2, 100]);
}

#[test]
fn cdma_ring_stale_token_matches_nothing() {
    let mut config = config(4);
    config.operations = 1;
    let mut ring = Ring::new(config).unwrap();
    let mut image = Image(vec![[0; 16]; 4]);
    let mut tokens = Vec::new();
    for n in 0..10_u32 {
        let token = ring.submit(&[segment(0, 0x1000, 1)], n).unwrap();
        assert!(!tokens.contains(&token));
        assert_eq!(token.number(), u64::from(n));
        tokens.push(token);
        let _ = ring.publish(&mut image);
        ring.post();
        assert!(tokens[..tokens.len() - 1].iter().all(|old| ring.probe_for(*old).is_none()));
        let probe = ring.probe_for(token).unwrap();
        ring.complete_status(probe, 1 << 31).unwrap();
        assert_eq!(ring.poll_completion().map(|done| (done.token, done.payload)), Some((token, n)));
    }
}
