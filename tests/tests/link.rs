//! Two networks that know only each other's address: frames go from one to the other as datagrams on the loopback interface.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fpga_card::CardDescription;
use fpga_driver::{Card, CardAddr, CardRange};
use fpga_firmware::generated::Scheme;
use fpga_rdma::{Endpoint, EndpointOptions, SendOptions, SharedEndpoint};
use fpga_sim::link::{Link, ShmLink, ShmLinkOptions, UdpLink, UdpLinkOptions};
use fpga_sim::{SimNetwork, SimNetworkBuilder, SimNetworkError, ThreadOptions};
use fpga_tests::bytes;
use fpga_tests::cards::{described, peek, poke};
use tempfile::TempDir;

const SOURCE: CardAddr = CardAddr::new(0x10_0000);
const TARGET: CardAddr = CardAddr::new(0x2000_0000);
const LENGTH: usize = 200_000;
const TIMEOUT: Duration = Duration::from_secs(60);

fn card(node: u32) -> CardDescription {
    let mut description = CardDescription::default();
    description.ni.node_id = node;
    description
}

fn loopback() -> UdpLinkOptions {
    UdpLinkOptions::new("127.0.0.1:0".parse().unwrap())
}

/// Two networks from `build`, each with a card and a link by UDP.
fn networks(build: impl Fn() -> SimNetworkBuilder) -> [SimNetwork; 2] {
    let first = UdpLink::bind(loopback()).unwrap();
    let second = UdpLink::bind(loopback().peer(first.local())).unwrap();
    linked(build, [first.into(), second.into()])
}

/// The same with a link by shared memory, whose sockets are in `folder`.
fn shm_networks(folder: &TempDir, build: impl Fn() -> SimNetworkBuilder) -> [SimNetwork; 2] {
    let path = |name| folder.path().join(name);
    let first = ShmLink::bind(&ShmLinkOptions::new(path("one"))).unwrap();
    let second = ShmLink::bind(&ShmLinkOptions::new(path("two")).peer(path("one"))).unwrap();
    linked(build, [first.into(), second.into()])
}

fn linked(build: impl Fn() -> SimNetworkBuilder, [first, second]: [Link; 2]) -> [SimNetwork; 2] {
    [(1, first), (2, second)].map(|(node, link)| build().card(card(node)).link(link).build().unwrap())
}

fn endpoint(network: &SimNetwork, scheme: Scheme) -> SharedEndpoint {
    let mut options = EndpointOptions::default();
    options.scheme = scheme;
    // Threads that share two processors answer late.
    options.round_trip = Duration::from_millis(1);
    Endpoint::open_with(&Card::from_backend(network.backend(0)).unwrap(), &options).unwrap().into()
}

/// Sends in both directions with a thread for each end, and checks the data.
fn exchange(networks: &[SimNetwork; 2], scheme: Scheme) {
    let ends = [0, 1].map(|at: usize| endpoint(&networks[at], scheme));
    let data = [bytes(1, LENGTH), bytes(2, LENGTH)];
    for (network, data) in networks.iter().zip(&data) {
        poke(network, 0, SOURCE, data);
    }
    let regions = [0, 1].map(|at: usize| {
        ends[at].open_region(ends[1 - at].node(), CardRange::new(TARGET, LENGTH as u64)).unwrap().remote
    });
    // The first network's link has no configured peers: it answers the sender of a received datagram.
    let send = |from: usize| {
        ends[from].send(SOURCE, &regions[1 - from], 0, LENGTH as u64, SendOptions::default()).unwrap()
    };
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for from in [1, 0] {
            let (ends, send, ended) = (&ends, &send, &ended);
            scope.spawn(move || {
                if from == 0 {
                    ends[0].wait_notification(TIMEOUT).unwrap();
                }
                assert_eq!(send(from).wait(TIMEOUT).unwrap().result, Ok(()));
                if from == 1 {
                    ends[1].wait_notification(TIMEOUT).unwrap();
                }
                // A network without a thread answers only during a wait: the other end may still have to retransmit.
                ended.fetch_add(1, Ordering::Relaxed);
                while ended.load(Ordering::Relaxed) < 2 {
                    let more = ends[from].wait_notification(Duration::from_millis(1));
                    assert!(more.is_err(), "{more:?}");
                }
            });
        }
    });
    for at in [0, 1] {
        assert!(peek(&networks[at], 0, TARGET, LENGTH) == data[1 - at]);
        let counters = networks[at].link_counters().unwrap();
        assert!(counters.sent > 300 && counters.received > 300, "{counters:?}");
        assert_eq!((counters.malformed, counters.unknown_senders, counters.misdirected), (0, 0, 0));
    }
}

/// Without a thread the cards run only while they are polled; time is real all the same.
#[test]
fn link_unthreaded_networks_exchange_packets_while_polled() {
    let networks = networks(SimNetwork::builder);
    let before = networks[0].now();
    exchange(&networks, Scheme::Registry);
    assert!(networks[0].now() > before);
}

/// Networks with threads. Each scheme has its own networks, and all wait at the same time.
#[test]
fn link_every_scheme_transfers() {
    std::thread::scope(|scope| {
        for scheme in Scheme::ALL {
            scope.spawn(move || {
                exchange(&networks(|| SimNetwork::builder().threaded(ThreadOptions::default())), *scheme);
            });
        }
    });
}

#[test]
fn shm_link_threaded_networks_exchange_packets() {
    let folder = tempfile::tempdir().unwrap();
    exchange(
        &shm_networks(&folder, || SimNetwork::builder().threaded(ThreadOptions::default())),
        Scheme::Registry,
    );
}

#[test]
fn shm_link_unthreaded_networks_exchange_packets_while_polled() {
    let folder = tempfile::tempdir().unwrap();
    exchange(&shm_networks(&folder, SimNetwork::builder), Scheme::Registry);
}

#[test]
fn link_packet_larger_than_datagram_is_refused_at_build() {
    let large = || described("ni: { packet_size: 4096 }");
    let refused = SimNetwork::builder().card(large()).link(UdpLink::bind(loopback()).unwrap()).build();
    let Err(SimNetworkError::Mtu { packet: 4096, datagram: 4204, largest: 1472, mtu: 1500, .. }) = refused
    else {
        panic!("{refused:?}")
    };
    for (mtu, fits) in [(4231, false), (4232, true)] {
        let link = UdpLink::bind(loopback().mtu(mtu)).unwrap();
        assert_eq!(SimNetwork::builder().card(large()).link(link).build().is_ok(), fits, "{mtu}");
    }
}
