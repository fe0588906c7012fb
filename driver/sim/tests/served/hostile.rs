//! Clients that try to monopolise the server or its resources.

use crate::served::client::{Client, DMA, LONG, PAGE, Served, descriptor, until, version};
use fpga_sim::SimNetwork;
use fpga_vfio_user::wire::{
    Capabilities, DmaMap, Kind, Reply, Request, Version, encode_reply, encode_request,
};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MEMORY: u64 = 0x10_0000;
/// Timeout that no operation in these tests reaches: a server that waits for it makes its test hang.
const LONG_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

fn network(threaded: bool) -> SimNetwork {
    let network = SimNetwork::builder().cards(1);
    let network = if threaded { network.threaded(fpga_sim::ThreadOptions::default()) } else { network };
    network.build().unwrap()
}

/// Starts H2C channel 0 on a descriptor in memory that is reachable only by messages.
fn start_by_messages(client: &mut Client) {
    client.map(MEMORY, 4 * PAGE, 3, None).unwrap();
    client.bus_master(true);
    for (offset, data) in [(0x4080, MEMORY.to_le_bytes().to_vec()), (0x4, vec![0x1F, 0x3E, 0xF8, 0])] {
        let count = u32::try_from(data.len()).unwrap();
        let access = fpga_vfio_user::wire::RegionAccess { offset, region: DMA, count };
        client.send(&Request::RegionWrite(access, &data), true, &[]);
    }
}

#[test]
fn client_tiny_transfer_limit_is_refused() {
    let served = Served::start();
    for limit in [0, 1, 4095] {
        let capabilities = Capabilities { max_data_xfer_size: Some(limit), ..Capabilities::default() };
        let request = Request::Version(Version { major: 0, minor: 1, capabilities });
        let mut client = Client::bare(&served.path);
        assert_eq!(client.ask(&request, &[]).unwrap_err(), 22, "{limit}");
        assert!(client.receive().is_err(), "the connection was not closed");
    }
    let capabilities = Capabilities { max_data_xfer_size: Some(4096), ..Capabilities::default() };
    let mut client = Client::bare(&served.path);
    client.ask(&Request::Version(Version { major: 0, minor: 1, capabilities }), &[]).unwrap();
    client.read32(DMA, 0);
    drop(client);
    served.stop();
}

#[test]
fn client_never_answering_does_not_delay_server_end() {
    for threaded in [false, true] {
        let served = Served::with(network(threaded), |server| server.answer(LONG_TIMEOUT));
        let mut client = served.connect();
        start_by_messages(&mut client);
        client.asked();
        let counts = served.stop();
        assert_eq!((counts.memory_messages, counts.broken_connections), (1, 0));
        assert!(client.receive().is_err());
    }
}

/// A descriptor that links to itself, in memory that the client is asked for: the card sends requests without end.
#[test]
fn client_endless_message_work_does_not_block_others() {
    for threaded in [false, true] {
        let served = Served::with(network(threaded), |server| server.answer(LONG_TIMEOUT));
        let mut client = served.connect();
        start_by_messages(&mut client);
        let mut list = descriptor(4096, MEMORY + PAGE, 0);
        list[0] = 0;
        list[24..].copy_from_slice(&MEMORY.to_le_bytes());
        let mut memory = vec![0; 4 * 4096];
        memory[..32].copy_from_slice(&list);
        let (others, path) = (AtomicBool::new(true), served.path.clone());
        let mut answered = 0_u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2 {
                    served.network.with_card(0, |card| card.counters().h2c_bytes).unwrap();
                    // Another client is answered that the card is busy.
                    assert_eq!(Client::bare(&path).ask(&version(0, 1), &[]).unwrap_err(), 16);
                }
                others.store(false, Ordering::Relaxed);
            });
            while others.load(Ordering::Relaxed) {
                let (header, body) = client.asked();
                let mut out = Vec::new();
                match Request::decode(header.command, &body).unwrap() {
                    Request::DmaRead(transfer) => {
                        let from = usize::try_from(transfer.address - MEMORY).unwrap();
                        let part = &memory[from..from + usize::try_from(transfer.count).unwrap()];
                        encode_reply(header.id, &Reply::DmaRead(transfer, part), &mut out);
                    }
                    Request::DmaWrite(transfer, _) => {
                        encode_reply(header.id, &Reply::DmaWrite(transfer), &mut out);
                    }
                    other => panic!("{other:?}"),
                }
                client.send_bytes(&out);
                answered += 1;
            }
        });
        assert!(answered > 0);
        served.stop();
    }
}

/// Only a part of a message arrives: the server still stops at once.
#[test]
fn client_partial_message_does_not_delay_server_end() {
    let served = Served::start();
    let mut client = served.connect();
    let mut message = Vec::new();
    encode_request(7, false, &version(0, 1), &mut message);
    client.send_bytes(&message[..20]);
    let counts = served.stop();
    assert!(counts.broken_connections <= 1);
    assert!(client.receive().is_err());
}

#[test]
fn client_descriptor_flood_ends_connection() {
    let served = Served::with(network(false), |server| server.answer(LONG_TIMEOUT));
    let mut client = served.connect();
    start_by_messages(&mut client);
    client.asked();
    let file = crate::served::client::file(1, true);
    let fds: Vec<BorrowedFd<'_>> = (0..32).map(|_| file.as_fd()).collect();
    let map = Request::DmaMap(DmaMap { flags: 3, offset: 0, address: 0x100_0000, size: PAGE });
    let mut out = Vec::new();
    encode_request(1, true, &map, &mut out);
    for _ in 0..4 {
        // The connection may be ended before all of it is sent.
        let _ = client.connection.send(&out, &fds, LONG);
    }
    while let Ok((header, _)) = client.receive() {
        assert!(matches!(header.kind, Kind::Request { .. }));
    }
    served.connect().read32(DMA, 0);
    assert_eq!(served.stop().broken_connections, 1);
}

/// Invalid messages from many connections, one after the other, are all counted: only their log lines are limited.
#[test]
fn client_refusals_of_many_connections_are_all_counted() {
    let served = Served::start();
    for _ in 0..10 {
        let mut client = served.connect();
        for _ in 0..20 {
            assert!(client.read(99, 0, 4).is_err());
        }
    }
    until(|| served.network.mapped_bytes(0) == 0);
    assert_eq!(served.stop().refused_requests, 200);
}
