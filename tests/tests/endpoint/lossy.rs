//! Networks that lose, duplicate, damage, delay and reorder packets.

use fpga_driver::ChannelError;
use fpga_netmodel::{Blackout, Conditions, Delay, Impairments, Loss, Order, Probability};
use fpga_rdma::SendTimeout;

use super::*;

fn share(part: f64) -> Probability {
    Probability::new(part).unwrap()
}

/// All impairments at a low rate, on data and control packets alike.
fn bad(loss: f64) -> Impairments {
    let delay = Delay::Exponential { least: Nanos::ZERO, mean: Nanos::from_micros(3) };
    let conditions = Conditions::default()
        .loss(Loss::Independent(share(loss)))
        .delay(delay)
        .copies(share(0.05), delay)
        .damage(share(0.01));
    let order = Order::Random { depth: 16, patience: Nanos::from_micros(20) };
    Impairments::both(conditions).order(order).distance(Nanos::new(800))
}

#[test]
fn lossy_network_fixed_timeout_with_try_limit_delivers() {
    let fixed = |mut options: EndpointOptions| {
        options.timeout = SendTimeout::Fixed { timeout: Duration::from_micros(300), max_tries: 30 };
        options
    };
    let mut net = Testbed::impaired(2, bad(0.05), 4, fixed);
    let region = net.region(1, TARGET, 1 << 20);
    net.carry(SOURCE, &region.remote, 3, &bytes(1, 200_000));
    net.assert_clean();
}

/// A blackout of ten milliseconds in the middle of a transfer.
#[test]
fn blackout_mid_transfer_is_survived() {
    let mut dark = bad(0.0);
    dark.blackouts = vec![Blackout { from: Nanos::from_micros(100), length: Nanos::from_millis(10) }];
    let mut net = Testbed::impaired(2, dark, 5, |options| options);
    let region = net.region(1, TARGET, 1 << 20);
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 500_000));
    let seen = net.network.network_counters();
    assert!(seen.data.blacked_out > 0, "{seen:?}");
    assert!(net.network.now() > Nanos::from_millis(10));
    net.assert_clean();
}

/// Repeated packets read host memory again; what lies outside of it is refused.
#[test]
fn host_source_lossy_network_delivers() {
    let mut net = Testbed::impaired(2, bad(0.05), 6, |options| options);
    let region = net.region(1, TARGET, 1 << 20);
    let card = net.end(0).card().clone();
    let area = card.registered_memory(256 << 10).unwrap();
    let content = bytes(7, 256 << 10);
    area.memory().write(0, &content).unwrap();
    let source = net.end(0).register_source(area).unwrap();
    for (offset, length) in [(0, 1), (5, 700), (1000, 20_000), (0, 256 << 10)] {
        let (start, end) = (offset as usize, (offset + length) as usize);
        let options = SendOptions::default();
        let to = (2 * offset, length);
        net.end(0).send_from_host(source, offset, &region.remote, to, options).unwrap();
        net.settle();
        assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
        assert!(net.get(1, at(TARGET, 2 * offset), length as usize) == content[start..end], "{offset}");
    }
    let beyond = net.end(0).send_from_host(source, 1, &region.remote, (0, 256 << 10), SendOptions::default());
    assert!(matches!(beyond.unwrap_err().kind, SendError::SourceRange { .. }));
}

/// Memory is returned when no transfer from it is in progress; its number then stands for other memory.
#[test]
fn host_source_in_use_is_deregistered_after_cancel() {
    let mut net = Testbed::impaired(2, bad(0.0), 7, |options| options);
    let region = net.region(1, TARGET, 1 << 20);
    let card = net.end(0).card().clone();
    let area = |length| card.registered_memory(length).unwrap();
    let source = net.end(0).register_source(area(256 << 10)).unwrap();
    let options = SendOptions::default();
    let ticket = net.end(0).send_from_host(source, 0, &region.remote, (0, 256 << 10), options).unwrap();
    net.end(0).poll().unwrap();
    let refused = net.end(0).deregister_source(source).unwrap_err();
    assert!(matches!(refused.kind, ChannelError::MemoryInUse), "{refused}");
    assert!(net.end(0).cancel(ticket));
    net.settle();
    assert!(net.completions[0].pop_front().unwrap().result.is_err());
    assert_eq!(net.end(0).deregister_source(source).unwrap().memory().len(), 256 << 10);
    let other = net.end(0).register_source(area(4096)).unwrap();
    let gone = net.end(0).send_from_host(source, 0, &region.remote, (0, 1), options).unwrap_err();
    assert!(matches!(gone.kind, SendError::SourceRange { .. }), "{gone}");
    let again = net.end(0).deregister_source(source).unwrap_err();
    assert!(matches!(again.kind, ChannelError::NotRegistered), "{again}");
    net.end(0).send_from_host(other, 0, &region.remote, (0, 4096), options).unwrap();
    net.settle();
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
}
