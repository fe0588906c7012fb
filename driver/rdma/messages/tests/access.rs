//! Writes, reads and atomic operations.

use fpga_messages::{
    AccessRequest, AtomicRequest, CompleteWhen, CompletionKind, Failure, HostRanges, LinkChoice, PeerId,
    RemoteAccess, RemoteRange, Token,
};

use crate::bed::{Bed, bytes, options, ranges, receive, send};

const BOTH: RemoteAccess = RemoteAccess { read: true, write: true };

fn access(at: u64, length: usize, remote: u64, key: u64, context: u64) -> AccessRequest {
    AccessRequest {
        peer: PeerId(1),
        data: ranges(at, length),
        remote: RemoteRange { address: remote, length: length as u64, key },
        immediate: None,
        complete: CompleteWhen::Transmitted,
        token: Token { context, user: 0 },
    }
}

/// Atomic operation on the word at 16.
fn adding(key: u64, fetch: HostRanges, operation: u8, context: u64) -> AtomicRequest {
    AtomicRequest {
        peer: PeerId(1),
        operation,
        datatype: 1,
        remote: RemoteRange { address: 16, length: 8, key },
        operand: ranges(0, 8),
        compare: HostRanges::default(),
        fetch,
        complete: CompleteWhen::Transmitted,
        token: Token { context, user: 0 },
    }
}

#[test]
fn access_of_every_length_writes_and_reads() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let key = bed.0[1].regions.register(0x1000, 4 << 20, 0, BOTH, None).unwrap();
    for (round, length) in (1..).zip([0, 1, 64, 16_320, 16_321, 131_073, 1_000_000]) {
        let data = bytes(round, length);
        bed.0[0].poke(0, &data);
        let mut request = access(0, length, 5, key, round);
        request.immediate = Some(round);
        bed.0[0].messenger.write(&request).unwrap();
        let done = bed.wait(0, round);
        assert_eq!((done.kind, done.result), (CompletionKind::Write, Ok(())));
        assert!(bed.0[1].peek(0x1005, length) == data);
        // The completion of the owner has no token.
        let seen = bed.wait(1, 0);
        assert_eq!(
            (seen.kind, seen.immediate, seen.source),
            (CompletionKind::RemoteWrite, Some(round), Some(PeerId(0)))
        );
        bed.0[0].messenger.read(&access(2 << 20, length, 5, key, 100 + round)).unwrap();
        let done = bed.wait(0, 100 + round);
        assert_eq!((done.kind, done.result), (CompletionKind::Read, Ok(())));
        assert!(bed.0[0].peek(2 << 20, length) == data);
    }
}

#[test]
fn access_reported_has_key_of_region() {
    let mut options = options(LinkChoice::Auto);
    options.reports_access = true;
    let mut bed = Bed::new(2, &options);
    let key = bed.0[1].regions.register(0, 4 << 20, 0, BOTH, Some(42)).unwrap();
    for (round, length) in (1..).zip([8, 100_000]) {
        for (kind, context) in
            [(CompletionKind::RemoteWrite, round), (CompletionKind::RemoteRead, 10 + round)]
        {
            let request = access(0, length, 0, key, context);
            let messenger = &mut bed.0[0].messenger;
            match kind {
                CompletionKind::RemoteWrite => messenger.write(&request),
                _ => messenger.read(&request),
            }
            .unwrap();
            let seen = bed.wait(1, 0);
            assert_eq!((seen.kind, seen.key, seen.length), (kind, Some(42), length as u64));
            assert_eq!((seen.source, seen.immediate), (Some(PeerId(0)), None));
            assert_eq!(bed.wait(0, context).result, Ok(()));
        }
    }
    for (kind, fetch) in
        [(CompletionKind::RemoteWrite, HostRanges::default()), (CompletionKind::RemoteRead, ranges(64, 8))]
    {
        bed.0[0].messenger.atomic(&adding(key, fetch, 1, 20)).unwrap();
        assert_eq!((bed.wait(1, 0).kind, bed.wait(0, 20).result), (kind, Ok(())));
    }
}

#[test]
fn access_outside_of_a_region_is_refused() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let regions = &bed.0[1].regions;
    let read_only =
        regions.register(0, 1 << 20, 0x7000, RemoteAccess { read: true, write: false }, Some(77)).unwrap();
    let gone = regions.register(0, 1 << 20, 0, BOTH, None).unwrap();
    assert!(regions.deregister(gone));
    let refused = |failure: Result<(), Failure>| matches!(failure, Err(Failure::KeyRefused { .. }));
    let mut context = 1;
    for length in [8, 100_000] {
        for (key, remote, is_write) in [
            (read_only, 0x7000, true),
            (read_only, 0x6fff, false),
            (read_only, 0x7000 + (1 << 20) - 7, false),
            (gone, 0, false),
            (gone, 0, true),
        ] {
            context += 1;
            let request = access(0, length, remote, key, context);
            let messenger = &mut bed.0[0].messenger;
            if is_write { messenger.write(&request) } else { messenger.read(&request) }.unwrap();
            let done = bed.wait(0, context);
            assert!(refused(done.result), "{key} {remote:#x} {is_write}");
        }
    }
    // The session continues.
    bed.0[1].poke(0, &[1, 2, 3]);
    bed.0[0].messenger.read(&access(100, 3, 0x7000, 77, 1)).unwrap();
    assert_eq!(bed.wait(0, 1).result, Ok(()));
    assert_eq!(bed.0[0].peek(100, 3), [1, 2, 3]);
}

#[test]
fn atomic_adds_and_fetches() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    let key = bed.0[1].regions.register(0, 4096, 0, BOTH, None).unwrap();
    bed.0[1].poke(16, &5_u64.to_le_bytes());
    bed.0[0].poke(0, &3_u64.to_le_bytes());
    bed.0[0].messenger.atomic(&adding(key, HostRanges::default(), 1, 1)).unwrap();
    assert_eq!(bed.wait(0, 1).result, Ok(()));
    bed.0[0].messenger.atomic(&adding(key, ranges(64, 8), 1, 2)).unwrap();
    assert_eq!(bed.wait(0, 2).kind, CompletionKind::Atomic);
    assert_eq!(bed.0[0].peek(64, 8), 8_u64.to_le_bytes());
    assert_eq!(bed.0[1].peek(16, 8), 11_u64.to_le_bytes());
    bed.0[0].messenger.atomic(&adding(key, ranges(64, 8), 2, 3)).unwrap();
    assert!(matches!(bed.wait(0, 3).result, Err(Failure::NotSupported { .. })));
}

/// A region that is deregistered during a large access refuses it. Parts of the access that are still on their way must not reach the data of later
/// operations.
#[test]
fn access_refused_in_progress_does_not_change_later_data() {
    let length = 1 << 20;
    let mut refused = 0;
    for seed in 0..10_u64 {
        let mut options = options(LinkChoice::Auto);
        (options.loss, options.reorder, options.seed) = (0.02, 32, seed);
        let mut bed = Bed::new(2, &options);
        let key = bed.0[1].regions.register(0, 2 << 20, 0, BOTH, None).unwrap();
        bed.0[0].poke(0, &vec![0xee; length]);
        bed.0[1].poke(0, &vec![0xdd; length]);
        let is_write = seed % 2 == 0;
        let request = access(0, length, 0, key, 1);
        let messenger = &mut bed.0[0].messenger;
        if is_write { messenger.write(&request) } else { messenger.read(&request) }.unwrap();
        for _ in 0..20 + 7 * seed {
            bed.progress();
        }
        assert!(bed.0[1].regions.deregister(key));
        // Uses all landing slots of this side and of the peer.
        for (from, to) in [(0, 1), (1, 0)] {
            for number in 0..3 {
                let (context, at) = (10 + number, (3 + number) << 20);
                bed.0[from].poke(at, &bytes(context, length));
                bed.0[to]
                    .messenger
                    .receive(&receive(Some(from), at, length, Some(context), 100 + context))
                    .unwrap();
                bed.0[from].messenger.send(&send(to, at, length, Some(context), 200 + context)).unwrap();
                assert_eq!(bed.wait(to, 100 + context).result, Ok(()));
                assert!(
                    bed.0[to].peek(at, length) == bytes(context, length),
                    "seed {seed}, message {number}"
                );
                assert_eq!(bed.wait(from, 200 + context).result, Ok(()));
            }
        }
        let done = bed.wait(0, 1);
        refused += u32::from(matches!(done.result, Err(Failure::KeyRefused { .. })));
        while !bed.0.iter().all(|end| end.messenger.is_idle()) {
            bed.progress();
        }
        assert_eq!(bed.0[1].messenger.in_progress(), 0, "seed {seed}");
    }
    assert!(refused >= 2, "{refused} accesses were in progress when the region was deregistered");
}
