//! Lifetime of the socket; clients that connect and disconnect.

use crate::served::client::{Client, DMA, LONG, PAGE, Served, descriptor, file, until, version};
use fpga_sim::SimNetwork;
use fpga_sim::served::{CardServer, ServeError};
use fpga_vfio_user::wire::{RegionAccess, Request, region};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

#[test]
fn socket_stale_file_is_replaced_active_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the standard library does not remove it");
    let server = CardServer::bind(&path).unwrap();
    assert_eq!(CardServer::bind(&path).unwrap_err(), ServeError::InUse { path: path.clone() });
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert_eq!(CardServer::bind(&path).unwrap_err(), ServeError::NotASocket { path: path.clone() });
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let missing = folder.path().join("no").join("card");
    assert!(matches!(CardServer::bind(&missing), Err(ServeError::Bind { .. })));
    let long = folder.path().join("x".repeat(200));
    assert_eq!(CardServer::bind(&long).unwrap_err(), ServeError::BadPath { path: long });
}

#[test]
fn socket_foreign_file_at_path_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let server = CardServer::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    drop(server);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn socket_missing_card_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = CardServer::bind(&folder.path().join("card")).unwrap();
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    assert_eq!(server.run(&network, 2, stopped), Err(ServeError::NoSuchCard { card: 2, count: 2 }));
}

#[test]
fn socket_second_client_is_refused_as_busy_and_may_retry() {
    let served = Served::start();
    let mut first = served.connect();
    let mut second = Client::bare(&served.path);
    assert_eq!(second.ask(&version(0, 1), &[]).unwrap_err(), 16);
    // A silent client does not block the first one; it disconnects before its message is due.
    let silent = Client::bare(&served.path);
    first.read32(DMA, 0);
    drop((silent, first));
    let mut third = served.connect();
    third.read32(DMA, 0);
    drop(third);
    let counts = served.stop();
    assert!(counts.connections >= 2 && counts.turned_away >= 1, "{counts:?}");
}

#[test]
fn socket_silent_client_is_disconnected() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    // Ten thousand times what the other clients need.
    let served = Served::with(network, |server| server.first_message(Duration::from_millis(500)));
    let mut silent = Client::bare(&served.path);
    assert!(silent.receive().is_err());
    // Half a message does not count as a message.
    let mut slow = Client::bare(&served.path);
    slow.send_bytes(&[1, 0, 1]);
    assert!(slow.receive().is_err());
    // After the first message the client may be silent without limit.
    let mut quiet = served.connect();
    // The server waits twice as long for the first message of a client that connects meanwhile, and sends it away.
    let _ = Client::bare(&served.path).receive();
    quiet.read32(DMA, 0);
    drop(quiet);
    let counts = served.stop();
    assert_eq!((counts.connections, counts.broken_connections, counts.turned_away), (3, 2, 1));
}

#[test]
fn socket_silent_client_does_not_block_others() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let served = Served::with(network, |server| server.first_message(LONG));
    let mut silent = Client::bare(&served.path);
    let mut next = served.connect();
    next.read32(DMA, 0);
    assert!(silent.receive().is_err());
    // A client that has sent a message is kept.
    assert_eq!(Client::bare(&served.path).ask(&version(0, 1), &[]).unwrap_err(), 16);
    next.read32(DMA, 0);
    assert_eq!(served.stop().connections, 2);
}

#[test]
fn socket_requests_of_departed_client_do_not_block_others() {
    let served = Served::start();
    for _ in 0..50 {
        let mut client = served.connect();
        for offset in 0..200 {
            let access = RegionAccess { offset: 0x88, region: DMA, count: 4 };
            client.send(&Request::RegionWrite(access, &[offset & !3, 0, 0, 0]), true, &[]);
        }
    }
    assert_eq!(served.connect().read32(DMA, 0x88), 196);
    let counts = served.stop();
    assert_eq!((counts.connections, counts.turned_away, counts.messages), (51, 0, 51 + 50 * 200 + 1));
}

/// Starts H2C channel 0 on a descriptor that links to itself: it runs until it is stopped.
fn start_endless_chain(client: &mut Client) -> std::os::fd::OwnedFd {
    let memory = file(2, true);
    let mut list = descriptor(4096, 0x10_1000, 0);
    // Not the last one; next: itself.
    list[0] = 0;
    list[24..].copy_from_slice(&0x10_0000_u64.to_le_bytes());
    rustix::io::pwrite(&memory, &list, 0).unwrap();
    client.map(0x10_0000, 2 * PAGE, 3, Some((&memory, 0))).unwrap();
    client.bus_master(true);
    client.start_h2c(0x10_0000);
    memory
}

#[test]
fn socket_client_leaving_mid_transfer_leaves_usable_card() {
    let served = Served::start();
    for _ in 0..5 {
        let mut client = served.connect();
        assert_eq!(client.read(region::CONFIG, 4, 1).unwrap(), [2], "bus mastering is off");
        assert_eq!(served.network.mapped_bytes(0), 0);
        let before = served.network.with_card(0, |card| card.counters().h2c_bytes).unwrap();
        let memory = start_endless_chain(&mut client);
        // The card works without requests.
        let moved = || served.network.with_card(0, |card| card.counters().h2c_bytes).unwrap() - before;
        until(|| moved() > 1 << 20);
        // It also answers while it works.
        assert_eq!(client.read32(DMA, 0x0000) >> 16, 0x1FC0);
        drop(client);
        until(|| served.network.mapped_bytes(0) == 0);
        drop(memory);
    }
    // The last client finds a working card: the engine is stopped, then started on another descriptor.
    let mut client = served.connect();
    client.write32(DMA, 0x0004, 0);
    client.h2c_idle();
    client.read32(DMA, 0x0044);
    let memory = file(2, true);
    rustix::io::pwrite(&memory, &descriptor(4096, 0x20_1000, 0), 0).unwrap();
    client.map(0x20_0000, 2 * PAGE, 3, Some((&memory, 0))).unwrap();
    client.bus_master(true);
    client.start_h2c(0x20_0000);
    assert_eq!(client.h2c_idle() & 0x00FF_FFF8, 0);
    assert_eq!(client.read32(DMA, 0x0048), 1, "one descriptor");
    drop(client);
    assert_eq!(served.stop().connections, 6);
}

#[test]
fn socket_server_end_mid_transfer_is_clean() {
    let served = Served::start();
    let mut client = served.connect();
    let _memory = start_endless_chain(&mut client);
    let network = served.network.clone();
    served.stop();
    assert_eq!(network.mapped_bytes(0), 0);
    assert!(client.receive().is_err());
}

#[test]
fn socket_threaded_network_is_served() {
    let network =
        SimNetwork::builder().cards(1).threaded(fpga_sim::ThreadOptions::default()).build().unwrap();
    let served = Served::of(network);
    let mut client = served.connect();
    let _memory = start_endless_chain(&mut client);
    until(|| served.network.with_card(0, |card| card.counters().h2c_bytes).unwrap() > 1 << 20);
    served.stop();
}

/// State in which vfio-pci leaves a function that is bound and not open (D3), and state that a program leaves that ends without cleanup.
#[test]
fn socket_client_leaving_card_in_d3_leaves_usable_card() {
    let served = Served::start();
    let mut first = served.connect();
    // Power state D3hot, MSI enabled for eight messages, INTx disabled.
    first.write(region::CONFIG, 0x44, &[3, 0]).unwrap();
    let control = u16::from_le_bytes(first.read(region::CONFIG, 0x4A, 2).unwrap().try_into().unwrap());
    first.write(region::CONFIG, 0x4A, &(control | 0x31).to_le_bytes()).unwrap();
    first.write(region::CONFIG, 0x04, &[6, 4]).unwrap();
    assert_eq!(first.read32(DMA, 0x2000), u32::MAX, "asleep");
    drop(first);
    let mut second = served.connect();
    assert_eq!(second.read(region::CONFIG, 0x44, 1).unwrap()[0] & 3, 0);
    assert_eq!(second.read(region::CONFIG, 0x4A, 1).unwrap()[0] & 0x71, 0);
    assert_eq!(second.read(region::CONFIG, 0x04, 2).unwrap(), [2, 0]);
    assert_eq!(second.read32(DMA, 0x2000) >> 16, 0x1FC2);
    drop(second);
    served.stop();
}
