//! Two cards with the network interface in SystemVerilog: transfers of the RDMA library from one to the other.

mod mirror;
mod restarts;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fpga_driver::{Card, CardAddr, CardRange};
use fpga_rdma::{Endpoint, EndpointOptions, SendOptions};

use crate::simulator::{Simulation, build, read, rtl, write};

/// Sources beside those of the network interface.
const SOURCES: [&str; 12] = [
    "xdma/fpga_xdma.sv",
    "cdma/fpga_cdma.sv",
    "network/fpga_network.sv",
    "reference/axi_crossbar.sv",
    "reference/axi_ram.sv",
    "reference/axi_widen.sv",
    "reference/axi_split.sv",
    "reference/ni_card.sv",
    "reference/card_engines.sv",
    "reference/ni_pair_top.sv",
    "check/axi_checker.sv",
    "check/stream_checker.sv",
];
const LENGTH: u64 = 50_000;
/// Ends a test that hangs.
const TIMEOUT: Duration = Duration::from_mins(20);
const SOURCE: u64 = 0x10_0001;
const TARGET: u64 = 0x20_0003;

fn model() -> Option<PathBuf> {
    let folder = rtl().join("ni");
    let mut sources: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".sv"))
        .map(|name| format!("ni/{name}"))
        .collect();
    // The package first: the others use it.
    sources.sort_by_key(|name| (name != "ni/ni_pkg.sv", name.clone()));
    let sources: Vec<&str> = sources.iter().map(String::as_str).chain(SOURCES).collect();
    build("ni_pair_top", &sources, &[], "rtl-ni-pair")
}

/// A simulation of two cards, on a network with these conditions.
struct Pair {
    simulation: Simulation,
    sockets: [PathBuf; 2],
    _folder: tempfile::TempDir,
}

impl Pair {
    /// Starts it. `None` without Verilator.
    fn start(network: &str) -> Option<Self> {
        let program = model()?;
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("second");
        let card_file = rtl().join("reference/ni_card.yaml");
        let mut simulation = Simulation::run(
            &program,
            &[
                &format!("+fpga_network={network}"),
                &format!("+fpga_card={}", card_file.display()),
                &format!("+fpga_card.1={}", card_file.display()),
                &format!("+fpga_socket.1={}", socket.display()),
            ],
        );
        simulation.wait_until_ready();
        let sockets = [simulation.socket().to_owned(), socket];
        Some(Self { simulation, sockets, _folder: folder })
    }

    fn card(&self, number: usize) -> Card {
        open_card(&self.sockets[number])
    }
}

fn open_card(socket: &Path) -> Card {
    Card::open(&format!("vfio-user:{}", socket.display())).unwrap()
}

/// Options of an endpoint that gives up late: an answer takes milliseconds of this program's time.
fn patient() -> EndpointOptions {
    let mut options = EndpointOptions::default();
    options.give_up = TIMEOUT;
    options
}

fn open_endpoint(card: &Card) -> Endpoint {
    Endpoint::open_with(card, &patient()).unwrap()
}

/// Returns `length` bytes that differ for each `seed`.
fn pattern(seed: u8, length: u64) -> Vec<u8> {
    (0..length).map(|offset| seed.wrapping_add(offset.to_le_bytes()[0]).wrapping_mul(7)).collect()
}

/// Sends bytes of `from` to `to`, and compares them in the memory of `to`.
fn send(from: (&Card, &mut Endpoint), to: (&Card, &mut Endpoint), seed: u8) {
    let (card, sender) = from;
    let (peer, receiver) = to;
    let data = pattern(seed, LENGTH);
    // The endpoints have channel 0.
    write(card, 1, SOURCE, &data);
    let region = receiver.open_region(sender.node(), CardRange::new(CardAddr::new(TARGET), LENGTH)).unwrap();
    let ticket =
        sender.send(CardAddr::new(SOURCE), &region.remote, 0, LENGTH, SendOptions::default()).unwrap();
    let sent = sender.wait(ticket, TIMEOUT).unwrap();
    sent.result.unwrap();
    receiver.poll().unwrap();
    let notification = receiver.next_notification().unwrap();
    assert_eq!((notification.length, notification.address), (LENGTH, CardAddr::new(TARGET)));
    receiver.close_region(&region).unwrap();
    assert!(read(peer, 1, TARGET, data.len()) == data);
}

/// Transfers in both directions, over a network with these conditions.
fn transfers(network: &str) {
    let Some(pair) = Pair::start(network) else { return };
    let cards = [pair.card(0), pair.card(1)];
    let mut first = open_endpoint(&cards[0]);
    let mut second = open_endpoint(&cards[1]);
    assert_eq!([first.node().get(), second.node().get()], [1, 2]);
    for round in 0..3 {
        send((&cards[0], &mut first), (&cards[1], &mut second), round);
        send((&cards[1], &mut second), (&cards[0], &mut first), round + 100);
    }
    drop((first, second, cards));
    pair.simulation.end_without_violations();
}

#[test]
fn transfers_between_two_cards_of_rtl_arrive() {
    transfers("");
}

#[test]
fn transfers_between_two_cards_of_rtl_arrive_despite_loss_and_disorder() {
    transfers("loss=0.02,duplicate=0.02,damage=0.01,reorder=32,seed=5");
}
