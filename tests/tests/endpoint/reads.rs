//! Reads: the other node writes on request.

use fpga_driver::Error;
use fpga_rdma::{ReadCompletion, ReadError, ReadFailure, RemoteReadable};

use super::*;

/// Allows end 0 to read `length` bytes at `SOURCE` of end 1.
fn readable(net: &mut Testbed, length: u64) -> RemoteReadable {
    let reader = net.end(0).node();
    net.end(1).open_readable(reader, CardRange::new(SOURCE, length)).unwrap().remote
}

fn ended(net: &mut Testbed) -> Vec<ReadCompletion> {
    std::iter::from_fn(|| net.end(0).next_read()).collect()
}

#[test]
fn read_every_length_arrives() {
    for (seed, length) in [1, 63, 64, 65, 512, 16_384, 16_385, 300_001].into_iter().enumerate() {
        let mut net = Testbed::new(random(seed as u64));
        let data = bytes(seed as u64, length);
        net.put(1, at(SOURCE, 5), &data);
        net.put(0, TARGET, &vec![0xC3; length + 2]);
        let source = readable(&mut net, length as u64 + 100);
        let to = at(TARGET, 1);
        let ticket = net.end(0).read(&source, 5, to, length as u64, SendOptions::default()).unwrap();
        assert!(!net.end(0).is_idle());
        net.settle();
        let [done] = ended(&mut net).try_into().unwrap();
        assert_eq!((done.ticket, done.length, done.result), (ticket, length as u64, Ok(())));
        assert!(net.get(0, to, length) == data);
        for beside in [TARGET, at(to, length as u64)] {
            assert_eq!(net.get(0, beside, 1), [0xC3], "the neighbouring byte is unchanged");
        }
        // Requests and answers make no completions and notifications.
        assert!(net.completions.iter().all(std::collections::VecDeque::is_empty));
        assert!(net.notifications.iter().all(std::collections::VecDeque::is_empty));
        assert_eq!(net.end(1).counters().reads_served, 1);
        net.assert_clean();
    }
}

#[test]
fn read_more_than_slots_queues() {
    for seed in 0..4 {
        let mut net = Testbed::new(random(seed));
        net.put(1, SOURCE, &bytes(seed, 400_000));
        let source = readable(&mut net, 400_000);
        for round in 0..3 {
            let mut tickets = Vec::new();
            for n in 0..8 {
                let place = at(TARGET, n * 0x1_0000);
                tickets.push(
                    net.end(0).read(&source, n * 40_000, place, 40_000, SendOptions::default()).unwrap(),
                );
            }
            let full = net.end(0).read(&source, 0, at(TARGET, 1 << 20), 10, SendOptions::default());
            assert!(matches!(full, Err(Error { kind: ReadError::Full, .. })), "{full:?}");
            net.settle();
            let mut done = ended(&mut net);
            done.sort_by_key(|done| done.ticket);
            assert_eq!(done.iter().map(|done| done.ticket).collect::<Vec<_>>(), tickets, "round {round}");
            for (n, done) in (0..).zip(&done) {
                assert_eq!(done.result, Ok(()));
                let expected = &bytes(seed, 400_000)[n * 40_000..(n + 1) * 40_000];
                assert!(
                    net.get(0, at(TARGET, n as u64 * 0x1_0000), 40_000) == expected,
                    "round {round}, {n}"
                );
            }
        }
        net.assert_clean();
    }
}

#[test]
fn read_forbidden_range_is_refused() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let reader = net.end(0).node();
    let handle = net.end(1).open_readable(reader, CardRange::new(SOURCE, 1000)).unwrap();
    let source = handle.remote;
    let read = |net: &mut Testbed, source: &RemoteReadable, offset, to, length| {
        net.end(0).read(source, offset, to, length, SendOptions::default())
    };
    for (offset, length) in [(0, 1001), (1000, 1), (u64::MAX, 2), (1, u64::MAX)] {
        let error = read(&mut net, &source, offset, TARGET, length).unwrap_err();
        assert!(matches!(error.kind, ReadError::Range { readable: 1000, .. }), "{error}");
    }
    let outside = read(&mut net, &source, 0, CardAddr::new(u64::MAX - 5), 10).unwrap_err();
    assert!(
        matches!(outside, Error { kind: ReadError::Endpoint(EndpointError::RegionRange { .. }), .. }),
        "{outside}"
    );
    // A read must not have an overlapping target with another read. An empty read needs no packets.
    let first = read(&mut net, &source, 0, TARGET, 100).unwrap();
    let overlapping = read(&mut net, &source, 0, at(TARGET, 99), 100).unwrap_err();
    assert!(matches!(overlapping, Error { kind: ReadError::Overlap { .. }, .. }), "{overlapping}");
    let empty = read(&mut net, &source, 1000, TARGET, 0).unwrap();
    net.settle();
    let done = ended(&mut net);
    assert_eq!(done.iter().map(|done| done.ticket).collect::<Vec<_>>(), [empty, first]);
    // A read beyond the granted range is not answered, and ends at its deadline.
    let greedy = RemoteReadable { length: 2000, ..source };
    let soon = SendOptions::default().deadline(Duration::from_millis(5));
    net.end(0).read(&greedy, 999, TARGET, 2, soon).unwrap();
    net.settle();
    let [done] = ended(&mut net).try_into().unwrap();
    assert!(matches!(done.result, Err(ReadFailure::NoAnswer { length: 2, .. })), "{done:?}");
    assert_eq!(net.end(1).counters().reads_refused, 1);
    // After the range is closed the request itself is refused.
    net.end(1).close_readable(&handle).unwrap();
    read(&mut net, &source, 0, TARGET, 10).unwrap();
    net.settle();
    let [done] = ended(&mut net).try_into().unwrap();
    let Err(ReadFailure::Request(SendFailure::Refused { reason, .. })) = done.result else {
        panic!("{done:?}")
    };
    assert_eq!(reason, NackReason::Violation);
    // A readable range needs a specific reader and must not be empty.
    for (reader, length) in [(NodeId::ANY, 10), (reader, 0)] {
        let error = net.end(1).open_readable(reader, CardRange::new(SOURCE, length)).unwrap_err();
        assert!(matches!(error.kind, EndpointError::RegionRange { .. }), "{error}");
    }
    net.assert_clean();
}

/// A host that does not answer delays the read to its deadline; its later writes are refused.
#[test]
fn read_late_answer_writes_nothing() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    net.put(1, SOURCE, &bytes(1, 5000));
    net.put(0, TARGET, &[0xC3; 5000]);
    let source = readable(&mut net, 5000);
    let soon = SendOptions::default().deadline(Duration::from_millis(5));
    let ticket = net.end(0).read(&source, 0, TARGET, 5000, soon).unwrap();
    // Only the reader is polled.
    let done = net.end(0).wait_read(ticket, Duration::from_secs(1)).unwrap();
    assert!(matches!(done.result, Err(ReadFailure::NoAnswer { .. })), "{done:?}");
    net.settle();
    assert!(net.get(0, TARGET, 5000).iter().all(|byte| *byte == 0xC3));
    assert_eq!(net.end(1).counters().reads_refused, 1);
    net.assert_clean();
}

#[test]
fn read_between_nodes_and_from_self() {
    let mut net = Testbed::nodes(3, &CardDescription::default(), random(2), |options| options);
    let nodes: Vec<_> = net.ends.iter().flatten().map(Endpoint::node).collect();
    let mut expected = Vec::new();
    for from in 0..3 {
        for (to, &node) in nodes.iter().enumerate() {
            let place = at(SOURCE, to as u64 * 0x2_0000);
            let data = bytes((from * 3 + to) as u64, 70_000);
            net.put(from, place, &data);
            let readable = net.end(from).open_readable(node, CardRange::new(place, 70_000)).unwrap().remote;
            let into = at(TARGET, from as u64 * 0x2_0000);
            net.end(to).read(&readable, 0, into, 70_000, SendOptions::default()).unwrap();
            expected.push((to, into, data));
        }
    }
    net.settle();
    for (to, into, data) in expected {
        assert_eq!(net.end(to).next_read().unwrap().result, Ok(()));
        assert!(net.get(to, into, 70_000) == data);
    }
    net.assert_clean();
}

/// The answer to a cancelled read is complete, and its notice is in flight to the host, when the read is repeated: the notice must not end
/// the second read.
#[test]
fn read_late_notice_ends_no_other_read_of_same_target() {
    let mut swallowed = 0;
    for steps in 0..400 {
        let mut net = Testbed::new(DeliveryOrder::InOrder);
        net.put(1, SOURCE, &bytes(1, 500));
        let source = readable(&mut net, 1000);
        let read = |net: &mut Testbed, offset| {
            let deadline = SendOptions::default().deadline(Duration::from_millis(100));
            net.end(0).read(&source, offset, TARGET, 500, deadline).unwrap()
        };
        let first = read(&mut net, 0);
        // The request arrives and is answered; the answer is in flight.
        while net.end(1).counters().windows == 0 {
            net.poll(0).unwrap();
            net.poll(1).unwrap();
            net.network.step();
        }
        for _ in 0..steps {
            net.poll(1).unwrap();
            net.network.step();
        }
        // Events are taken before reads are ended: events that arrive in between are seen by the next poll.
        assert!(net.end(0).cancel_read(first).unwrap() && !net.end(0).cancel_read(first).unwrap());
        net.put(1, SOURCE, &bytes(2, 1000));
        let second = read(&mut net, 500);
        net.settle();
        let done = ended(&mut net);
        assert_eq!(done.iter().map(|done| done.ticket).collect::<Vec<_>>(), [first, second], "{steps}");
        assert!(matches!(done[0].result, Err(ReadFailure::Cancelled { length: 500, .. })), "{done:?}");
        assert_eq!(done[1].result, Ok(()), "{steps}");
        assert!(net.get(0, TARGET, 500) == bytes(2, 1000)[500..], "{steps}");
        assert!(net.notifications[0].is_empty(), "{steps}");
        swallowed += usize::from(net.end(1).counters().reads_served == 2);
    }
    assert!(swallowed > 0, "some cancelled reads were answered before the repeated read");
}
