//! Programs of `tests/cards`: each runs with a card in the program, with one that has a thread of its own, and with one that this process
//! serves.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use fpga_driver::sim::{CardFailure, SimNetwork};
use fpga_sim::served::CardServer;

use crate::prefix::{GCC_C11, here, installed};

/// Runs a program with the card `name`, and performs its requests: a line `remove` on its standard output removes the served card. Returns
/// its other lines.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn run_with(program: &Path, name: &str, network: Option<&SimNetwork>) -> String {
    let mut child = installed(program).arg(name).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match network {
            Some(network) if line == "remove" => _ = network.fail(0, CardFailure::Gone),
            Some(network) if line == "replug" => _ = network.replug(0),
            _ => said = format!("{said}{line}\n"),
        }
    }
    assert!(child.wait().unwrap().success(), "{} {name}: {said}", program.display());
    said
}

/// Runs a program with each kind of card. Returns what it prints, by kind.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn on_each_card(source: &str) -> [(&'static str, String); 3] {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    GCC_C11.compile(&here("tests/cards").join(source), &program, &["-pthread"]);
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let socket = folder.path().join("card");
    let server = CardServer::bind(&socket).unwrap();
    let (stop, stopped) = std::os::unix::net::UnixStream::pair().unwrap();
    let served = network.clone();
    let serving = std::thread::spawn(move || server.run(&served, 0, &stopped));
    let name = format!("vfio-user:{}", socket.display());
    let said = [
        ("mock", run_with(&program, "mock", None)),
        ("threaded", run_with(&program, "threaded", None)),
        ("served", run_with(&program, &name, Some(&network))),
    ];
    drop(stop);
    serving.join().unwrap().unwrap();
    said
}

#[test]
fn fork_child_is_refused_and_parent_continues() {
    for (kind, said) in on_each_card("fork.c") {
        assert_eq!(said, "8 children\n", "{kind}");
    }
}

/// A table: waits by the ways to end them (removal, flag of another thread, signal, refused calls of another thread and then the flag).
#[test]
fn waits_end_on_each_card() {
    for (kind, said) in on_each_card("waits.c") {
        let longest = said.lines().last().and_then(|line| line.strip_prefix("longest ")).unwrap();
        println!("{kind} (removal, flag, signal, refused calls; ms)\n{said}");
        // Usually below 60 ms; the rest is the scheduler's.
        assert!(longest.parse::<f64>().unwrap() < 2000.0, "{kind}:\n{said}");
    }
}
