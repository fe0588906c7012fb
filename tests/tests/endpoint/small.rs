//! Every table with one entry: slow, but correct.

use super::*;
use fpga_driver::Error;

fn minimal_options(mut options: EndpointOptions) -> EndpointOptions {
    (options.ops, options.transfers, options.destinations) = (Some(1), Some(1), Some(1));
    options
}

#[test]
fn small_tables_of_one_entry_deliver() {
    let file = described(
        "ni: { registry_entries: 1, escape_slots: 1, windows: 1, memory_windows: 1, mask_bits: 1 }",
    );
    for seed in 0..4 {
        let mut net = Testbed::of(&file, random(seed), minimal_options);
        let region = net.region(1, TARGET, 1 << 20);
        let full = net.end(1).open_region(NodeId::ANY, CardRange::new(SOURCE, 1)).unwrap_err();
        assert!(matches!(full, Error { kind: EndpointError::RegionsFull { capacity: 1, .. }, .. }), "{full}");
        for length in [0, 1, 512, 513, 20_000] {
            net.carry(SOURCE, &region.remote, 7, &bytes(seed + length, length as usize));
        }
        net.assert_clean();
    }
}

#[test]
fn small_single_transfer_slot_is_back_pressure() {
    let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, minimal_options);
    let region = net.region(1, TARGET, 1 << 20).remote;
    net.put(0, SOURCE, &bytes(1, 5000));
    net.send(0, SOURCE, &region, 0, 5000);
    let refused = net.end(0).send(SOURCE, &region, 0, 5000, SendOptions::default()).unwrap_err();
    assert!(refused.kind.is_full(), "{refused}");
    net.settle();
    // The slot is free again, and the next transfer may go to another node.
    let own = net.end(0).open_region(NodeId::ANY, CardRange::new(TARGET, 5000)).unwrap().remote;
    net.send(0, SOURCE, &own, 0, 5000);
    net.settle();
    assert!(net.completions[0].drain(..).all(|done| done.result == Ok(())));
    assert!(net.get(0, TARGET, 5000) == bytes(1, 5000) && net.get(1, TARGET, 5000) == bytes(1, 5000));
    net.assert_clean();
}

#[test]
fn small_invalid_sizes_are_refused() {
    let net = Testbed::new(DeliveryOrder::InOrder);
    let card = net.ends[0].as_ref().unwrap().card().clone();
    drop(net);
    for wrong in [0, u32::MAX] {
        for change in [
            |options: &mut EndpointOptions, size| options.ops = Some(size),
            |options: &mut EndpointOptions, size| options.transfers = Some(size),
            |options: &mut EndpointOptions, size| options.destinations = Some(size),
        ] {
            let mut options = options(1);
            change(&mut options, wrong);
            let error = Endpoint::open_with(&card, &options).unwrap_err();
            let found = matches!(error.kind, EndpointError::Config(_) | EndpointError::Option { .. });
            assert!(found, "{error}");
        }
    }
}
