//! More than two nodes on one network, and a node that sends to itself.

use super::*;

/// Length of the transfer from node `from` to node `to` in round `n`, and its offset in the memory of both.
fn plan(from: u64, to: u64, n: u64) -> (usize, u64) {
    let length = [1, 700, 16_384, 40_000, 100_001][((from * 3 + to * 5 + n) % 5) as usize];
    (length, (from * 8 + to) * 0x8_0000 + n * 0x2_0000 + from)
}

/// Every node sends to every node at once, itself included, over a network that delivers in any order.
#[test]
fn nodes_all_to_all_random_order_arrives() {
    const NODES: u64 = 5;
    const ROUNDS: u64 = 3;
    for seed in 0..6 {
        let mut net =
            Testbed::nodes(NODES as u32, &CardDescription::default(), random(seed), |options| options);
        let regions: Vec<_> =
            (0..NODES).map(|index| net.region(index as usize, TARGET, 32 << 20).remote).collect();
        let data = |from, to, n| bytes(seed << 16 | from << 8 | to << 4 | n, plan(from, to, n).0);
        let mut tickets = Vec::new();
        let pairs = || (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        for n in 0..ROUNDS {
            for (from, to) in pairs() {
                let (length, place) = plan(from, to, n);
                net.put(from as usize, at(SOURCE, place), &data(from, to, n));
                let region = &regions[to as usize];
                tickets
                    .push((from, net.send(from as usize, at(SOURCE, place), region, place, length as u64)));
            }
        }
        net.settle();
        for (from, ticket) in tickets {
            let done: Vec<_> =
                net.completions[from as usize].iter().filter(|done| done.ticket == ticket).collect();
            assert_eq!(done.len(), 1, "one completion per transfer");
            assert_eq!(done[0].result, Ok(()));
        }
        let nodes: Vec<_> = net.ends.iter().flatten().map(Endpoint::node).collect();
        for (from, to) in pairs() {
            for n in 0..ROUNDS {
                let (length, place) = plan(from, to, n);
                assert!(
                    net.get(to as usize, at(TARGET, place), length) == data(from, to, n),
                    "seed {seed}: {from} to {to}, round {n}"
                );
                let notices = net.notifications[to as usize].iter().filter(|notice| {
                    notice.node == nodes[from as usize] && notice.address == at(TARGET, place)
                });
                assert_eq!(notices.map(|notice| notice.length).collect::<Vec<_>>(), [length as u64]);
            }
        }
        for (completions, notifications) in net.completions.iter().zip(&net.notifications) {
            assert_eq!((completions.len(), notifications.len()), (15, 15));
        }
        net.assert_clean();
    }
}

/// A removed node affects only its own transfers.
#[test]
fn nodes_failed_node_affects_only_its_transfers() {
    let mut net = Testbed::nodes(4, &CardDescription::default(), random(3), |options| options);
    let regions: Vec<_> = (1..4).map(|index| net.region(index, TARGET, 1 << 20).remote).collect();
    net.put(0, SOURCE, &bytes(1, 300_000));
    let tickets: Vec<_> = regions.iter().map(|region| net.send(0, SOURCE, region, 0, 300_000)).collect();
    for _ in 0..100 {
        net.poll(0).unwrap();
        net.network.step();
    }
    net.ends[2] = None;
    net.network.fail(2, CardFailure::Gone);
    net.settle();
    let result =
        |ticket| net.completions[0].iter().find(|done| done.ticket == ticket).expect("a completion").result;
    assert_eq!(result(tickets[0]), Ok(()));
    assert_eq!(result(tickets[2]), Ok(()));
    let Err(SendFailure::Unanswered { node, .. }) = result(tickets[1]) else { panic!("{net:#?}") };
    assert_eq!(node, regions[1].node);
    for index in [1, 3] {
        assert!(net.get(index, TARGET, 300_000) == bytes(1, 300_000));
    }
    net.assert_clean();
}

#[test]
fn nodes_transfer_to_self_arrives() {
    for (seed, length) in [1_usize, 512, 16_385, 200_000].into_iter().enumerate() {
        let mut net = Testbed::new(random(seed as u64));
        let own = net.end(0).open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap();
        let data = bytes(seed as u64, length);
        net.put(0, SOURCE, &data);
        net.send(0, SOURCE, &own.remote, 3, length as u64);
        net.settle();
        assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
        let notice = net.notifications[0].pop_front().unwrap();
        assert_eq!((notice.node, notice.address), (net.end(0).node(), at(TARGET, 3)));
        assert!(net.get(0, at(TARGET, 3), length) == data);
        assert!(net.notifications.iter().all(std::collections::VecDeque::is_empty));
        net.assert_clean();
    }
}

/// A retransmission reads the source again, so that the source must not be overwritten.
#[test]
fn nodes_transfer_to_self_overlapping_source_is_refused() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let own = net.end(0).open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    for (source, length) in [(0_u64, 100), (0, 1), (99, 100), (1, 1000), (999, 1000)] {
        for (source, offset) in [(source, 0), (0, source)] {
            let refused = net.end(0).send(at(TARGET, source), &own, offset, length, SendOptions::default());
            let error = refused.unwrap_err();
            assert!(matches!(error.kind, SendError::Overlap { .. }), "{error}");
        }
    }
    // Adjacent ranges, and an empty transfer.
    for (source, offset, length) in [(100, 0, 100), (0, 100, 100), (5, 5, 0)] {
        net.put(0, at(TARGET, source), &bytes(source, 100));
        net.send(0, at(TARGET, source), &own, offset, length);
        net.settle();
        assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
        assert!(net.get(0, at(TARGET, offset), length as usize) == bytes(source, 100)[..length as usize]);
    }
    net.notifications[0].clear();
    // The same addresses on two cards are different places.
    let there = net.region(1, TARGET, 1000).remote;
    net.carry(TARGET, &there, 0, &bytes(9, 1000));
    net.assert_clean();
}
