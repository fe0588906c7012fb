//! Write permissions of regions.

use fpga_card::AccessLog;
use fpga_driver::Error;

use super::*;

#[test]
fn region_wrong_key_is_refused() {
    for (order, length) in [(DeliveryOrder::InOrder, 100), (random(1), 4096), (random(2), 100_000)] {
        let mut net = Testbed::new(order);
        let region = net.region(1, TARGET, 100_000);
        for wrong in [region.remote.key ^ 1, 0, !region.remote.key] {
            let forged = RemoteRegion { key: wrong, ..region.remote };
            assert_refused(&mut net, &forged, length, (TARGET, 100_000));
        }
        net.carry(SOURCE, &region.remote, 0, &bytes(2, length as usize));
        net.assert_clean();
    }
}

#[test]
fn region_write_outside_is_refused() {
    let mut net = Testbed::new(random(3));
    let region = net.region(1, TARGET, 10_000);
    // A sender with a wrong address of the region.
    let before = RemoteRegion { address: CardAddr::new(TARGET.get() - 1), ..region.remote };
    assert_refused(&mut net, &before, 1000, (CardAddr::new(TARGET.get() - 1), 1));
    let behind = RemoteRegion { address: at(TARGET, 9_001), ..region.remote };
    assert_refused(&mut net, &behind, 1000, (at(TARGET, 10_000), 1000));
    let elsewhere = RemoteRegion { address: CardAddr::new(0x10_0000_0000), ..region.remote };
    assert_refused(&mut net, &elsewhere, 1000, (at(TARGET, 10_000), 1000));
    // Errors that the sender can detect are refused before anything is sent.
    let error = net.end(0).send(SOURCE, &region.remote, 9_001, 1000, SendOptions::default()).unwrap_err();
    assert!(matches!(error.kind, SendError::TargetRange { region: 10_000, .. }), "{error}");
    let error = net.end(0).send(SOURCE, &region.remote, u64::MAX, 2, SendOptions::default()).unwrap_err();
    assert!(matches!(error.kind, SendError::TargetRange { .. }), "{error}");
    let error = net.end(0).send(CardAddr::new(0x1_FFFF_FFFF), &region.remote, 0, 2, SendOptions::default());
    assert!(matches!(error, Err(Error { kind: SendError::SourceRange { .. }, .. })), "{error:?}");
    let anyone = RemoteRegion { node: NodeId::ANY, ..region.remote };
    let error = net.end(0).send(SOURCE, &anyone, 0, 2, SendOptions::default());
    assert!(matches!(error, Err(Error { kind: SendError::Cause(_), .. })), "{error:?}");
    net.carry(SOURCE, &region.remote, 9_000, &bytes(4, 1000));
    net.assert_clean();
}

/// A transfer that crosses the region's end: the memory after the region does not change.
#[test]
fn region_transfer_crossing_end_writes_nothing_behind() {
    for seed in 0..8 {
        let mut net = Testbed::new(random(seed));
        let region = net.region(1, TARGET, 50_000);
        let too_long = RemoteRegion { length: 200_000, ..region.remote };
        assert_refused(&mut net, &too_long, 200_000, (at(TARGET, 50_000), 150_000));
        net.carry(SOURCE, &region.remote, 0, &bytes(4, 50_000));
        net.assert_clean();
    }
}

#[test]
fn region_closed_refuses_writes() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 10_000);
    net.carry(SOURCE, &region.remote, 0, &bytes(1, 10_000));
    net.end(1).close_region(&region).unwrap();
    assert_refused(&mut net, &region.remote, 10_000, (TARGET, 10_000));
    // The next region has another key, though its address is the same.
    let again = net.region(1, TARGET, 10_000);
    assert_ne!(again.remote.key, region.remote.key);
    assert_refused(&mut net, &region.remote, 10_000, (TARGET, 10_000));
    net.carry(SOURCE, &again.remote, 0, &bytes(2, 10_000));
    net.assert_clean();
}

#[test]
fn region_admits_named_node_only() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let foreign = net.end(1).open_region(NodeId::new(99), CardRange::new(TARGET, 1000)).unwrap();
    assert_refused(&mut net, &foreign.remote, 1000, (TARGET, 1000));
    let anyone = net.end(1).open_region(NodeId::ANY, CardRange::new(at(TARGET, 0x1000), 1000)).unwrap();
    net.carry(SOURCE, &anyone.remote, 0, &bytes(2, 1000));
    net.assert_clean();
}

#[test]
fn region_keys_differ() {
    let mut net = Testbed::new(random(5));
    let first = net.region(1, TARGET, 40_000);
    let second = net.region(1, at(TARGET, 0x10_0000), 40_000);
    assert_ne!(first.remote.key, second.remote.key);
    let crossed = RemoteRegion { key: second.remote.key, ..first.remote };
    assert_refused(&mut net, &crossed, 40_000, (TARGET, 40_000));
    net.put(0, SOURCE, &bytes(1, 80_000));
    net.send(0, SOURCE, &first.remote, 0, 40_000);
    net.send(0, at(SOURCE, 40_000), &second.remote, 0, 40_000);
    net.settle();
    assert!(net.completions[0].drain(..).all(|done| done.result == Ok(())));
    assert_eq!(net.notifications[1].len(), 2);
    assert!(net.get(1, TARGET, 40_000) == bytes(1, 80_000)[..40_000]);
    assert!(net.get(1, at(TARGET, 0x10_0000), 40_000) == bytes(1, 80_000)[40_000..]);
    net.end(1).close_region(&first).unwrap();
    net.notifications[1].clear();
    net.carry(SOURCE, &second.remote, 7, &bytes(3, 30_000));
    net.assert_clean();
}

#[test]
fn region_invalid_range_is_refused() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let usable = net.end(1).usable_memory();
    for range in [
        CardRange::new(TARGET, 0),
        CardRange::new(usable.last(), 2),
        CardRange::new(CardAddr::new(u64::MAX), 1),
        CardRange::new(CardAddr::ZERO, u64::MAX),
    ] {
        let error = net.end(1).open_region(NodeId::ANY, range).unwrap_err();
        assert!(matches!(error.kind, EndpointError::RegionRange { .. }), "{error}");
    }
    net.end(1).open_region(NodeId::ANY, CardRange::new(usable.last(), 1)).unwrap();
    let handles: Vec<_> = (0..15).map(|n| net.region(1, at(TARGET, n * 4096), 4096)).collect();
    let error = net.end(1).open_region(NodeId::ANY, CardRange::new(TARGET, 1)).unwrap_err();
    assert!(matches!(error.kind, EndpointError::RegionsFull { capacity: 16, .. }), "{error}");
    net.end(1).close_region(&handles[7]).unwrap();
    net.region(1, TARGET, 1);
    net.carry(SOURCE, &handles[14].remote, 0, &bytes(1, 4096));
}

/// A region exists only as long as its owner's endpoint: the next owner of the card has opened none. Writes are posted: without a read
/// after them, a packet of another node could arrive first.
#[test]
fn region_change_returns_after_card_has_it() {
    fn last_is_read(net: &mut Testbed, change: impl FnOnce(&mut Testbed)) -> bool {
        net.network.with_card(1, |card| card.set_access_log(AccessLog::bounded(10_000)));
        change(net);
        let log = net.network.with_card(1, |card| card.set_access_log(AccessLog::Off)).unwrap();
        let AccessLog::Bounded { entries, .. } = log else { panic!("no access log") };
        let last_write = entries.iter().rev().find(|access| access.write).unwrap();
        let last = entries.back().unwrap();
        last.target == last_write.target && !last.write
    }
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let mut region = None;
    assert!(last_is_read(&mut net, |net| region = Some(net.region(1, TARGET, 1000))));
    assert!(last_is_read(&mut net, |net| net.end(1).close_region(region.as_ref().unwrap()).unwrap()));
    let mut readable = None;
    assert!(last_is_read(&mut net, |net| {
        let (reader, range) = (net.end(0).node(), CardRange::new(TARGET, 1000));
        readable = Some(net.end(1).open_readable(reader, range).unwrap());
    }));
    assert!(last_is_read(&mut net, |net| net.end(1).close_readable(readable.as_ref().unwrap()).unwrap()));
    let card = net.end(1).card().clone();
    net.ends[1] = None;
    assert!(last_is_read(&mut net, |net| net.ends[1] = Some(Endpoint::open(&card).unwrap())));
}

#[test]
fn region_ends_with_endpoint() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 10_000);
    net.carry(SOURCE, &region.remote, 0, &bytes(1, 10_000));
    let card = net.end(1).card().clone();
    net.ends[1] = None;
    net.ends[1] = Some(Endpoint::open_with(&card, &options(0xC)).unwrap());
    assert_refused(&mut net, &region.remote, 10_000, (TARGET, 10_000));
    let region = net.region(1, TARGET, 10_000);
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 10_000));
    net.assert_clean();
}
