//! Order of the incarnations of a node: a peer refuses an earlier one, and a restarted endpoint has a later one.

use std::fs;
use std::path::Path;
use std::process::Command;

use fpga_firmware::Incarnation;
use fpga_rdma::ReadFailure;
use fpga_sim::{SimNetwork, ThreadOptions};

use super::*;

/// Names the state file to the child process.
const FILE: &str = "FPGA_TEST_INCARNATION_FILE";
/// Marks the process of a single test.
const OWN_PROCESS: &str = "FPGA_TEST_OWN_PROCESS";

const TIMEOUT: Duration = Duration::from_secs(1);

/// Replaces the endpoint of node 0.
fn reopen(net: &mut Testbed, options: &EndpointOptions) {
    let card = net.end(0).card().clone();
    net.ends[0] = None;
    net.ends[0] = Some(Endpoint::open_with(&card, options).unwrap());
}

/// Removes the card of node 0 and inserts it again, with a new endpoint: the card has lost its incarnation.
fn replug(net: &mut Testbed, options: &EndpointOptions) {
    net.ends[0] = None;
    net.network.fail(0, CardFailure::Gone);
    assert!(net.network.replug(0));
    let card = Card::from_backend(net.network.backend(0)).unwrap();
    net.ends[0] = Some(Endpoint::open_with(&card, options).unwrap());
}

fn with_file(path: &Path) -> EndpointOptions {
    let mut options = EndpointOptions::default();
    options.incarnation_file = Some(path.to_owned());
    options
}

/// Result of a transfer from node 0, which must end before a timeout could.
fn result(net: &mut Testbed, region: &RemoteRegion, length: u64) -> Result<(), SendFailure> {
    let ticket = net.send(0, SOURCE, region, 0, length);
    let began = net.network.now();
    net.settle();
    let done = net.completions[0].pop_front().unwrap();
    assert_eq!(done.ticket, ticket);
    assert!(net.network.now().saturating_sub(began) < Nanos::from_millis(500), "not by the give-up time");
    done.result
}

#[test]
fn incarnation_earlier_is_superseded_until_restart_with_later_one() {
    for scheme in Scheme::ALL.iter().copied() {
        let by = |incarnation| {
            let mut options = options(incarnation);
            options.scheme = scheme;
            options
        };
        let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
            options.scheme = scheme;
            options
        });
        let region = net.region(1, TARGET, 1 << 20).remote;
        let data = bytes(1, 40_000);
        net.carry(SOURCE, &region, 0, &data);
        // The number of the first endpoint is 10.
        for _ in 0..2 {
            reopen(&mut net, &by(9));
            net.put(0, SOURCE, &bytes(2, 40_000));
            for length in [1, 40_000] {
                let failure = result(&mut net, &region, length).unwrap_err();
                let SendFailure::Superseded { node, address, newest } = failure else {
                    panic!("{scheme}: {failure:?}")
                };
                assert_eq!((node, address, newest), (region.node, TARGET, Incarnation::new(10)), "{scheme}");
                assert!(
                    failure.to_string().contains("knows incarnation 0x0000000a of this node"),
                    "{failure}"
                );
                let help = failure.help().unwrap();
                assert!(help.contains("open the endpoint again") && help.contains("node id"), "{help}");
            }
            // The age of the known incarnation plays no part.
            net.network.advance(Nanos::from_secs(3600));
        }
        assert!(net.get(1, TARGET, data.len()) == data, "{scheme}: a refused transfer has written");
        assert_eq!(net.notifications[1].pop_front(), None, "{scheme}");
        for later in [11, 1 << 30] {
            reopen(&mut net, &by(later));
            net.carry(SOURCE, &region, 0, &bytes(u64::from(later), 40_000));
        }
        // Numbers wrap: half of them are earlier than any number.
        reopen(&mut net, &by((1 << 30) + (1 << 31)));
        assert!(matches!(result(&mut net, &region, 1), Err(SendFailure::Superseded { .. })), "{scheme}");
        reopen(&mut net, &by((1 << 30) + (1 << 31) - 1));
        net.carry(SOURCE, &region, 0, &bytes(3, 40_000));
        net.assert_clean();
    }
}

#[test]
fn incarnation_earlier_read_is_superseded() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 1000).remote;
    net.carry(SOURCE, &region, 0, &bytes(1, 1000));
    reopen(&mut net, &options(9));
    let node = net.end(0).node();
    let readable = net.end(1).open_readable(node, CardRange::new(TARGET, 1000)).unwrap().remote;
    let ticket = net.end(0).read(&readable, 0, SOURCE, 1000, SendOptions::default()).unwrap();
    net.settle();
    let done = net.end(0).next_read().unwrap();
    assert_eq!(done.ticket, ticket);
    let Err(ReadFailure::Request(SendFailure::Superseded { newest, .. })) = done.result else {
        panic!("{:?}", done.result)
    };
    assert_eq!(newest, Incarnation::new(10));
}

/// A packet that may not begin a transfer makes no incarnation known, so that a sender without the key cannot lock a node out.
#[test]
fn incarnation_later_without_key_is_not_recorded() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 1000).remote;
    reopen(&mut net, &options(0x1000));
    let forged = RemoteRegion { key: region.key ^ 1, ..region };
    let node = region.node;
    assert!(matches!(result(&mut net, &forged, 1000), Err(SendFailure::Refused { .. })));
    net.end(0).wait_peer(node, TIMEOUT).unwrap();
    reopen(&mut net, &options(9));
    net.carry(SOURCE, &region, 0, &bytes(1, 1000));
}

/// Without a stated number every endpoint of a node is later than the one before, whether or not the card was reset.
#[test]
fn incarnation_default_of_restarted_endpoint_is_later_and_transfers() {
    if in_own_process("incarnation_default_of_restarted_endpoint_is_later_and_transfers") {
        return;
    }
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 1000).remote;
    reopen(&mut net, &EndpointOptions::default());
    let mut last = net.end(0).incarnation();
    for round in 0..6 {
        if round % 2 == 0 {
            reopen(&mut net, &EndpointOptions::default());
        } else {
            replug(&mut net, &EndpointOptions::default());
        }
        let number = net.end(0).incarnation();
        assert!(last.is_earlier_than(number), "{last} and {number}");
        net.carry(SOURCE, &region, 0, &bytes(round, 1000));
        last = number;
    }
    net.assert_clean();
}

/// The order is broken: the clock is behind what the peer knows, the state file is lost and the card was reset. One refusal repairs it.
#[test]
fn incarnation_refused_once_restarts_above_newest() {
    if in_own_process("incarnation_refused_once_restarts_above_newest") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state/incarnation");
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 1000).remote;
    replug(&mut net, &with_file(&file));
    let ahead = net.end(0).incarnation().get() + 50_000_000;
    fs::write(&file, format!("{:010}\n", ahead - 1)).unwrap();
    replug(&mut net, &with_file(&file));
    assert_eq!(net.end(0).incarnation().get(), ahead);
    net.carry(SOURCE, &region, 0, &bytes(1, 1000));
    // This process has not forgotten its last number, so the earlier one is stated.
    replug(&mut net, &options(ahead - 40_000_000));
    fs::remove_file(&file).unwrap();
    let refused = result(&mut net, &region, 1000);
    assert!(matches!(refused, Err(SendFailure::Superseded { newest, .. }) if newest.get() == ahead));
    replug(&mut net, &with_file(&file));
    assert!(net.end(0).incarnation().get() > ahead);
    net.carry(SOURCE, &region, 0, &bytes(2, 1000));
    let stored = fs::read_to_string(&file).unwrap();
    assert_eq!(stored, format!("{:010}\n", net.end(0).incarnation().get()));
}

/// Runs the test `name` of this module in a process of its own, and returns true; returns false there. The numbers of all endpoints of a
/// process count for its next default number, and other tests state numbers of their own.
fn in_own_process(name: &str) -> bool {
    if std::env::var_os(OWN_PROCESS).is_some() {
        return false;
    }
    let test = format!("endpoint::incarnations::{name}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", &test, "--nocapture"]).env(OWN_PROCESS, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

/// Runs a process that opens an endpoint on a new card, and returns its incarnation. Such a card has no incarnation, and such a process no
/// last number: only clock and file decide.
fn number_of_new_process(file: &Path) -> u32 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "endpoint::incarnations::incarnation_child_opens_endpoint", "--nocapture"])
        .env(FILE, file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let number = said.lines().find_map(|line| line.strip_prefix("incarnation ")).unwrap();
    number.parse().unwrap()
}

/// Child process of the following tests; does nothing without their variable.
#[test]
fn incarnation_child_opens_endpoint() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let builder = SimNetwork::builder().card(CardDescription::default());
    // Without a file, a card in real time: other processes may know its incarnations.
    let (builder, options) = match file.is_empty() {
        true => (builder.threaded(ThreadOptions::default()), EndpointOptions::default()),
        false => (builder, with_file(Path::new(&file))),
    };
    let network = builder.build().unwrap();
    let card = Card::from_backend(network.backend(0)).unwrap();
    let endpoint = Endpoint::open_with(&card, &options).unwrap();
    println!("\nincarnation {}", endpoint.incarnation().get());
}

/// Nothing but the clock keeps the order: no file, no register of the card, no earlier number of the process. Without a wait at the start,
/// two processes in one tick of the clock would have the same number, and peers would take new transfers for completed ones.
#[test]
fn incarnation_default_of_new_process_without_file_is_later() {
    let numbers = [(); 4].map(|()| number_of_new_process(Path::new("")));
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

/// The system clock cannot be set by a test; a file that is ahead of it is the same to the endpoint.
#[test]
fn incarnation_default_of_new_process_is_later_with_clock_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new/incarnation");
    let stored = || fs::read_to_string(&file).unwrap().trim_end().parse::<u32>().unwrap();
    let first = number_of_new_process(&file);
    assert_eq!(stored(), first);
    // Numbers of a new file are ahead of the clock, so that the file decides already.
    assert_eq!([(); 3].map(|()| number_of_new_process(&file)), [first + 1, first + 2, first + 3]);
    // Set back by a year.
    let last = first + 365 * 86_400;
    fs::write(&file, format!("{last:010}\n")).unwrap();
    assert_eq!([(); 2].map(|()| number_of_new_process(&file)), [last + 1, last + 2]);
    assert_eq!(stored(), last + 2);
    // Set forward: the clock decides again.
    fs::write(&file, format!("{:010}\n", first - 365 * 86_400)).unwrap();
    let number = number_of_new_process(&file);
    assert!((first - 70_000..first).contains(&number), "{number} without the lead of a lost file, {first}");
}
