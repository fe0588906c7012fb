//! Restarts in the middle of transfers: of the sender's host, whose process is killed, and of the receiver's network interface by a reset.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use fpga_diag::inspect::Inspect as _;
use fpga_driver::recovery::{self, RecoveryLevel, RecoveryOptions};
use fpga_driver::{Card, CardAddr, CardRange, NodeId, OpenOptions};
use fpga_pci::Backend;
use fpga_rdma::{Endpoint, RemoteRegion, SendOptions};
use fpga_vfio_user::VfioUserBackend;

use super::{Pair, SOURCE, TARGET, TIMEOUT, open_card, open_endpoint, pattern};
use crate::simulator::{KillGuard, read, write};

/// Socket of the child's card, and the region that it sends to.
const SOCKET: &str = "FPGA_TEST_SOCKET";
const REGION: &str = "FPGA_TEST_REGION";
/// Start of the line that the child prints before its first transfer; its incarnation follows.
const SENDING: &str = "sending as incarnation ";

const LENGTH: u64 = 100_000;
/// Bytes before and behind the region that no transfer may change.
const GUARD: u64 = 512;
const SECOND_TARGET: u64 = TARGET + 0x10_0000;

/// Sends the same bytes again and again, until the process is killed.
#[test]
#[ignore = "child process of restarted_sender_host_sends_after_the_old_incarnation"]
fn sender_that_is_killed() {
    let (socket, region) = (PathBuf::from(std::env::var(SOCKET).unwrap()), std::env::var(REGION).unwrap());
    let (node, key) = region.split_once(' ').unwrap();
    let region = RemoteRegion {
        node: NodeId::new(node.parse().unwrap()),
        address: CardAddr::new(TARGET),
        length: LENGTH,
        key: key.parse().unwrap(),
    };
    let card = open_card(&socket);
    let mut sender = open_endpoint(&card);
    write(&card, 1, SOURCE, &pattern(1, LENGTH));
    println!("{SENDING}{}", sender.incarnation().get());
    loop {
        let options = SendOptions::default();
        let ticket = sender.send(CardAddr::new(SOURCE), &region, 0, LENGTH, options).unwrap();
        sender.wait(ticket, TIMEOUT).unwrap().result.unwrap();
    }
}

/// Polls until a segment is registered at the receiver.
fn wait_until_registered(mut sender: Option<&mut Endpoint>, receiver: &mut Endpoint) {
    let began = Instant::now();
    while receiver.tables().registry_occupancy().unwrap().0 == 0 {
        if let Some(sender) = &mut sender {
            sender.poll().unwrap();
        }
        receiver.poll().unwrap();
        assert!(began.elapsed() < TIMEOUT);
    }
}

/// Opens the card of a killed process; the socket takes a new client when the server has noticed the end of the old one.
fn reopen(socket: &Path) -> Card {
    let began = Instant::now();
    loop {
        match Card::open(&format!("vfio-user:{}", socket.display())) {
            Ok(card) => return card,
            Err(error) => assert!(began.elapsed() < TIMEOUT, "{error}"),
        }
    }
}

/// Sends `LENGTH` bytes to the start of `region`, and waits for both ends.
fn carry(sender: &mut Endpoint, card: &Card, region: &RemoteRegion, receiver: &mut Endpoint, seed: u8) {
    write(card, 1, SOURCE, &pattern(seed, LENGTH));
    let ticket = sender.send(CardAddr::new(SOURCE), region, 0, LENGTH, SendOptions::default()).unwrap();
    sender.wait(ticket, TIMEOUT).unwrap().result.unwrap();
    let notification = receiver.wait_notification(TIMEOUT).unwrap();
    assert_eq!((notification.length, notification.address), (LENGTH, region.address));
}

/// Returns card memory from the guard before `target` to the one behind it.
fn around(card: &Card, target: u64) -> Vec<u8> {
    read(card, 1, target - GUARD, usize::try_from(LENGTH + 2 * GUARD).unwrap())
}

/// Returns `data` between two guards.
fn guarded(data: &[u8]) -> Vec<u8> {
    let guard = vec![0xEE; usize::try_from(GUARD).unwrap()];
    [guard.as_slice(), data, &guard].concat()
}

fn open_region(receiver: &mut Endpoint, card: &Card, target: u64, sender: NodeId) -> RemoteRegion {
    write(card, 1, target - GUARD, &guarded(&vec![0xEE; usize::try_from(LENGTH).unwrap()]));
    receiver.open_region(sender, CardRange::new(CardAddr::new(target), LENGTH)).unwrap().remote
}

#[test]
fn restarted_sender_host_sends_after_the_old_incarnation() {
    let Some(pair) = Pair::start("loss=0.02,duplicate=0.05,reorder=32,seed=3") else { return };
    let peer_card = pair.card(1);
    let mut receiver = open_endpoint(&peer_card);
    let region = open_region(&mut receiver, &peer_card, TARGET, NodeId::new(1));
    let name = concat!(module_path!(), "::sender_that_is_killed");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg(name.split_once("::").unwrap().1)
        .env(SOCKET, &pair.sockets[0])
        .env(REGION, format!("{} {}", region.node.get(), region.key))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = KillGuard(child);
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(SENDING) {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child has ended");
    }
    let (_, old) = line.trim_end().split_once(SENDING).unwrap();
    wait_until_registered(None, &mut receiver);
    drop(child);

    let card = reopen(&pair.sockets[0]);
    let mut sender = open_endpoint(&card);
    assert!(fpga_driver::Incarnation::new(old.parse().unwrap()).is_earlier_than(sender.incarnation()));
    while receiver.next_notification().is_some() {}
    for seed in [2, 3] {
        carry(&mut sender, &card, &region, &mut receiver, seed);
        assert!(around(&peer_card, TARGET) == guarded(&pattern(seed, LENGTH)));
    }
    receiver.query_peer(sender.node(), TIMEOUT).unwrap();
    assert_eq!(receiver.wait_peer(sender.node(), TIMEOUT).unwrap().incarnation, sender.incarnation());
    // Nothing of the old incarnation comes late.
    for _ in 0..100 {
        receiver.poll().unwrap();
    }
    assert!(around(&peer_card, TARGET) == guarded(&pattern(3, LENGTH)));
    drop((sender, receiver, card, peer_card));
    pair.simulation.end_without_violations();
}

#[test]
fn reset_receiver_interface_takes_new_transfers_only() {
    let Some(pair) = Pair::start("loss=0.02,duplicate=0.05,reorder=32,seed=4") else { return };
    let (card, peer_card) = (pair.card(0), pair.card(1));
    let mut sender = open_endpoint(&card);
    let mut receiver = open_endpoint(&peer_card);
    let region = open_region(&mut receiver, &peer_card, TARGET, sender.node());
    write(&card, 1, SOURCE, &pattern(1, LENGTH));
    let ticket = sender.send(CardAddr::new(SOURCE), &region, 0, LENGTH, SendOptions::default()).unwrap();
    wait_until_registered(Some(&mut sender), &mut receiver);
    let old = receiver.incarnation();
    drop((receiver, peer_card));

    let backend: Arc<dyn Backend> = Arc::new(VfioUserBackend::open(&pair.sockets[1]).unwrap());
    let options =
        RecoveryOptions::default().at_least(RecoveryLevel::Function).with_max_level(RecoveryLevel::Bus);
    let report = recovery::recover(&backend, &OpenOptions::default(), &options).unwrap();
    assert!(report.well && report.reopen, "{report:?}");
    drop(backend);
    let peer_card = pair.card(1);
    let mut receiver = open_endpoint(&peer_card);
    assert!(old.is_earlier_than(receiver.incarnation()));
    let before = around(&peer_card, TARGET);
    let expected = guarded(&pattern(1, LENGTH));
    assert!(before.iter().zip(&expected).all(|(found, sent)| found == sent || *found == 0xEE));

    // The transfer to the old incarnation ends with an error.
    let region = open_region(&mut receiver, &peer_card, SECOND_TARGET, sender.node());
    let result = sender.wait(ticket, TIMEOUT).unwrap().result;
    result.unwrap_err();
    for seed in [2, 3] {
        carry(&mut sender, &card, &region, &mut receiver, seed);
        assert!(around(&peer_card, SECOND_TARGET) == guarded(&pattern(seed, LENGTH)));
    }
    assert!(around(&peer_card, TARGET) == before, "a packet for the old incarnation was written");
    drop((sender, receiver, card, peer_card));
    pair.simulation.end_without_violations();
}
