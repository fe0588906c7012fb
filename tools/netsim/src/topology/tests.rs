use super::*;

/// Port of the pair's fixed route.
fn fixed(network: &mut SwitchFabric, vertex: u32, from: u32, to: u32) -> Option<u32> {
    match network.way(vertex, FlowKey { from, to, flow: u32::MAX, path: 0 }, 0) {
        Way::Through(port) => Some(port),
        _ => None,
    }
}

fn network(topology: Topology) -> SwitchFabric {
    SwitchFabric::new(topology, BitRate::from_gbps(100), 1000, 1 << 20)
}

/// Follows a packet. Returns the number of links on its route.
fn walk(network: &mut SwitchFabric, from: u32, to: u32) -> u32 {
    let (_, mut vertex) = network.send(from, 0, 100).unwrap();
    let mut links = u32::from(!matches!(network.topology, Topology::Torus { .. }));
    while let Some(port) = network.route(vertex, to) {
        let (_, next) = network.send(port, 0, 100).unwrap();
        vertex = next;
        if network.is_host_port(port) {
            break;
        }
        links += 1;
        assert!(links < 100, "from {from} to {to}: lost");
    }
    assert_eq!(vertex, to);
    links
}

#[test]
fn topology_every_host_pair_has_shortest_path() {
    let trees = [(2, 1, 1), (3, 2, 2), (2, 4, 3), (4, 3, 1)].map(|(arity, levels, up)| Topology::Tree {
        arity,
        levels,
        up,
    });
    let tori = [2, 3, 4, 5].map(|side| Topology::Torus { side });
    for topology in trees.into_iter().chain(tori).chain([Topology::PointToPoint]) {
        topology.validate().unwrap();
        let mut network = network(topology);
        for from in 0..topology.hosts() {
            for to in (0..topology.hosts()).filter(|to| *to != from) {
                assert_eq!(
                    walk(&mut network, from, to),
                    topology.hops(from, to),
                    "{topology:?}: {from} to {to}"
                );
            }
        }
    }
}

#[test]
fn topology_torus_has_six_switch_ports_and_two_host_ports() {
    assert_eq!(network(Topology::Torus { side: 3 }).ports(), 27 * 8);
}

#[test]
fn topology_adaptive_routing_alternates_equal_paths() {
    let mut network = network(Topology::Tree { arity: 2, levels: 2, up: 2 });
    // 100 bytes at 100 Gbit/s take 8 ns.
    assert_eq!(network.send(0, 0, 100), Some((8000 + 1000, 4)));
    assert_eq!(network.send(0, 0, 100), Some((16000 + 1000, 4)));
    let first = network.route(4, 3).unwrap();
    network.send(first, 0, 100);
    assert_ne!(network.route(4, 3), Some(first));
}

/// A pair's route does not depend on queues. It changes only when it is rerouted around a link, and only if there is another route.
#[test]
fn topology_fixed_route_changes_only_on_reroute() {
    for topology in [Topology::Tree { arity: 2, levels: 3, up: 4 }, Topology::Torus { side: 4 }] {
        let mut network = network(topology);
        network.set_routing(Routing::Fixed, 0);
        let last = topology.hosts() - 1;
        for (from, to) in [(0, last), (1, last / 2), (last, 0)] {
            let (_, mut vertex) = network.send(from, 0, 100).unwrap();
            let mut alone = 0;
            while let Some(port) = fixed(&mut network, vertex, from, to) {
                assert_eq!(network.owner(port).unwrap_or(to), vertex);
                network.send(port, 0, 100);
                assert_eq!(
                    fixed(&mut network, vertex, from, to),
                    Some(port),
                    "queued packets change the route"
                );
                if network.avoid(port, from, to, 0) {
                    let other = fixed(&mut network, vertex, from, to).unwrap();
                    assert_ne!(other, port);
                    assert_eq!(network.owner(other), Some(vertex));
                } else {
                    alone += 1;
                }
                let port = fixed(&mut network, vertex, from, to).unwrap();
                vertex = network.next_hop(port).1;
                if network.is_host_port(port) {
                    break;
                }
            }
            assert_eq!(vertex, to);
            assert!(alone >= 1, "the last link has a parallel link");
        }
    }
    let mut adaptive = network(Topology::Tree { arity: 2, levels: 2, up: 2 });
    let port = adaptive.route(4, 3).unwrap();
    adaptive.send(port, 0, 100);
    assert!(!adaptive.avoid(port, 0, 3, 0), "adaptive routing has no fixed routes to change");
}

#[test]
fn topology_slow_link_takes_longer_and_reports_rate() {
    let mut network = network(Topology::Tree { arity: 2, levels: 2, up: 2 });
    let slow = SlowLink { from: 4, to: 6, number: Some(1), times: 4 };
    assert!(network.slow_down(&slow));
    let ports: Vec<u32> = (0..).take(network.ports()).filter(|port| network.rate(*port) == 250).collect();
    let [port] = ports[..] else { panic!("{ports:?}") };
    assert_eq!((network.owner(port), network.next_hop(port).1), (Some(4), 6));
    assert_eq!(network.send(port, 0, 100), Some((4 * 8000 + 1000, 6)));
    assert!(
        !network.slow_down(&SlowLink { to: 5, ..slow })
            && !network.slow_down(&SlowLink { number: Some(2), ..slow })
    );
    assert!(network.slow_down(&SlowLink { number: None, times: 2, ..slow }));
}

#[test]
fn topology_full_queue_drops() {
    let mut network = SwitchFabric::new(Topology::Torus { side: 2 }, BitRate::from_gbps(100), 0, 250);
    let port = network.route(0, 1).unwrap();
    let taken = (0..10).filter(|_| network.send(port, 0, 100).is_some()).count();
    // One that is being sent, and two that wait behind it: the next would wait for 300 bytes.
    assert_eq!(taken, 3);
}

#[test]
fn topology_invalid_is_refused() {
    for (topology, message) in [
        (Topology::Torus { side: 1 }, "side = 1: give 2 to 32"),
        (Topology::Tree { arity: 2, levels: 9, up: 1 }, "levels = 9: give 1 to 4"),
        (Topology::Tree { arity: 256, levels: 3, up: 1 }, "arity 256 to the power of 3 levels"),
    ] {
        assert!(topology.validate().unwrap_err().to_string().starts_with(message));
    }
}
