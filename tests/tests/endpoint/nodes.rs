//! More than two nodes on one network, and a node that sends to itself.

use super::*;

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
