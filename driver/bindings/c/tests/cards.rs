//! Programs of `tests/cards`: each runs with a card in the program, with one that has a thread of its own, and with one that this process
//! serves.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;

use fpga_sim::FaultsDescription;
use fpga_sim::served::CardServer;
use fpga_sim::{CardFailure, SimNetwork};

use crate::prefix::{GCC_C11, here, installed};

/// Card that this process serves.
struct Served {
    network: SimNetwork,
    name: String,
    stop: UnixStream,
    serving: JoinHandle<()>,
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
impl Served {
    fn new(folder: &Path, description: Option<&str>) -> Self {
        let mut builder = SimNetwork::builder().cards(1);
        if let Some(name) = description {
            builder = SimNetwork::builder().card(fpga_sim::CardDescription::builtin(name).unwrap());
        }
        let network = builder.build().unwrap();
        let socket = folder.join(description.unwrap_or("card"));
        let server = CardServer::bind(&socket).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let served = network.clone();
        let serving = std::thread::spawn(move || _ = server.run(&served, 0, &stopped).unwrap());
        Self { network, name: format!("vfio-user:{}", socket.display()), stop, serving }
    }

    fn stop(self) {
        drop(self.stop);
        self.serving.join().unwrap();
    }

    /// Does what a program requests.
    fn request(&self, what: &str) {
        match what {
            "remove" => _ = self.network.fail(0, CardFailure::Gone),
            "replug" => _ = self.network.replug(0),
            _ => {
                let faults: FaultsDescription = serde_yaml::from_str("list: [{fault: cdma_stall}]").unwrap();
                let plan = faults.plan().unwrap();
                self.network.with_card(0, |card| card.set_fault_plan(&plan));
            }
        }
    }
}

/// Runs a program, and performs its requests about served cards: lines "WHAT NUMBER" on its standard output, each of which is answered by an
/// empty line. Returns its other lines.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn run_with(program: &Path, arguments: &[&str], served: &[Served]) -> String {
    let mut command = installed(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut answers, mut said) = (child.stdin.take().unwrap(), String::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.rsplit_once(' ') {
            Some((before, number))
                if before.ends_with("remove") || before.ends_with("replug") || before.ends_with("stall") =>
            {
                let at = before.len() - if before.ends_with("stall") { 5 } else { 6 };
                let (row, what) = before.split_at(at);
                served[number.parse::<usize>().unwrap()].request(what);
                answers.write_all(b"\n").unwrap();
                said += row;
            }
            _ => said = format!("{said}{line}\n"),
        }
    }
    assert!(child.wait().unwrap().success(), "{} {arguments:?}: {said}", program.display());
    said
}

/// Compiles a program.
fn compiled(folder: &Path, source: &str) -> PathBuf {
    let program = folder.join("program");
    GCC_C11.compile(&here("tests/cards").join(source), &program, &["-pthread"]);
    program
}

#[test]
fn fork_child_is_refused_and_parent_continues() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "fork.c");
    let served = Served::new(folder.path(), None);
    for name in ["mock", "threaded", &served.name] {
        assert_eq!(run_with(&program, &[name], &[]), "8 children\n", "{name}");
    }
    served.stop();
}

/// Prints a table: waits by the ways to end them (removal, flag of another thread, signal, closing, cancelling, a refused call), with the delays.
fn waits_end(parts: [&str; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "waits.c");
    let served = [Served::new(folder.path(), None), Served::new(folder.path(), Some("us-plus-x8-stream"))];
    std::thread::scope(|scope| {
        for (kind, part) in ["mock", "threaded", "served"].into_iter().zip(parts) {
            let (program, served) = (&program, &served);
            scope.spawn(move || {
                let said = run_with(program, &[kind, &served[0].name, &served[1].name, part], served);
                let longest = said.lines().last().and_then(|line| line.strip_prefix("longest ")).unwrap();
                println!("{kind}: removal, flag, signal, close, cancel, call (ms)\n{said}");
                // Usually below 60 ms; the rest is the scheduler's.
                assert!(longest.parse::<f64>().unwrap() < 2000.0, "{kind}:\n{said}");
            });
        }
    });
    served.into_iter().for_each(Served::stop);
}

/// Each wait and way on one kind of card.
#[test]
fn waits_end_on_each_card() {
    waits_end(["0", "1", "2"]);
}

#[test]
#[ignore = "long: 12 s: every wait in every way on every kind of card; engines that do not stop"]
fn waits_end_in_every_way_on_every_card() {
    waits_end(["3", "3", "3"]);
}
