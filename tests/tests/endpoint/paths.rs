//! Path identifiers: transfers between cards over a network of four routes, of which one loses everything.

use fpga_netmodel::{Blackout, FailedRoute, Impairments};

use super::*;

const LENGTH: usize = 256 << 10;

/// Two cards under `scheme` whose senders use `paths` identifiers, on a network with four routes of which number `failed` fails.
fn network(scheme: Scheme, paths: u16, failed: u8) -> Testbed {
    let mut impairments = Impairments::default().distance(Nanos::new(800));
    let span = Blackout { from: Nanos::ZERO, length: Nanos::from_secs(3600) };
    impairments.failed_routes.push(FailedRoute { routes: 4, failed, span });
    Testbed::impaired(2, impairments, 5, |mut options| {
        (options.scheme, options.paths) = (scheme, paths);
        options.round_trip = Duration::from_micros(5);
        options.give_up = Duration::from_millis(20);
        options
    })
}

/// With one identifier, a node's packets take one route until two losses in a row are not answered; then they take another. With 64, the
/// identifiers of the failed route are avoided as soon as their packets seem lost.
#[test]
fn paths_failed_route_is_avoided() {
    for &scheme in Scheme::ALL {
        for failed in 0..4 {
            for paths in [1, 64] {
                let mut net = network(scheme, paths, failed);
                let region = net.region(1, TARGET, LENGTH as u64).remote;
                let data = bytes(7, LENGTH);
                net.put(0, SOURCE, &data);
                net.send(0, SOURCE, &region, 0, LENGTH as u64);
                net.settle();
                let result = net.completions[0].pop_front().unwrap().result;
                let lost = net.network.network_counters().data.blacked_out;
                assert_eq!(result, Ok(()), "{scheme}, route {failed}, {paths} identifiers");
                // 512 packets; at worst a whole window of each kind, or one round.
                assert!(lost <= 400, "{scheme}, route {failed}: {lost}");
                assert!(net.get(1, TARGET, LENGTH) == data, "{scheme}: different data");
            }
        }
    }
}
