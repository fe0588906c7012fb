//! Programs in C that are clients of a shared card.

use std::path::PathBuf;
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fpga_driver::Card;
use fpga_sim::{CardDescription, SimNetwork, ThreadOptions};
use fpgad::{Owner, OwnerOptions, ViewInterface};

use crate::prefix::{GCC_C11, here, installed, run};

/// Card of this process, its owner, and the program.
struct Shared {
    network: SimNetwork,
    folder: tempfile::TempDir,
    stop: std::io::PipeWriter,
    serving: JoinHandle<()>,
    program: PathBuf,
}

impl Shared {
    fn new(description: CardDescription, interface: ViewInterface) -> Self {
        let network =
            SimNetwork::builder().card(description).threaded(ThreadOptions::default()).build().unwrap();
        let card = Card::from_backend(network.backend(0)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = OwnerOptions { interface, ..OwnerOptions::default() };
        let owner = Owner::bind(card, &folder.path().join("card"), options).unwrap();
        let (stopped, stop) = std::io::pipe().unwrap();
        let serving = std::thread::spawn(move || drop(owner.run(&stopped).unwrap()));
        let program = folder.path().join("program");
        GCC_C11.compile(&here("tests/cards/view.c"), &program, &[]);
        Self { network, folder, stop, serving, program }
    }

    fn command(&self, task: &str) -> std::process::Command {
        let mut command = installed(&self.program);
        command.arg(format!("vfio-user:{}", self.folder.path().join("card").display())).arg(task);
        command
    }

    /// Bytes that the card has moved.
    fn moved(&self) -> (u64, u64) {
        self.network.with_card(0, |card| (card.counters().h2c_bytes, card.counters().c2h_bytes)).unwrap()
    }

    fn end(self) {
        drop(self.stop);
        self.serving.join().unwrap();
    }
}

#[test]
fn view_c_program_moves_as_many_bytes_as_card() {
    for (interface, copied) in [(ViewInterface::Linked, 200_000), (ViewInterface::Absent, 0)] {
        let shared = Shared::new(CardDescription::default(), interface);
        let before = shared.moved();
        let said = run(&mut shared.command("memory"));
        let bytes = 4096 + 32 * 3000 + copied;
        assert_eq!(said, format!("h2c {bytes} c2h {bytes}\n"));
        let (sent, received) = shared.moved();
        assert_eq!((sent - before.0, received - before.1), (bytes, bytes));
        shared.end();
    }
}

#[test]
fn view_c_program_sends_and_receives_packets_after_killed_one() {
    let mut description = CardDescription::default();
    description.xdma.stream = true;
    let shared = Shared::new(description, ViewInterface::Absent);
    assert_eq!(run(&mut shared.command("streams")), "h2c 369699 c2h 369699 others 0\n");
    assert_eq!(shared.moved(), (369_699, 369_699));
    let mut killed = shared.command("killed").stdout(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while shared.moved().0 == 369_699 {
        assert!(began.elapsed() < Duration::from_secs(120) && killed.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    // The channel is free when the owner has noticed the end.
    let began = Instant::now();
    let said = loop {
        let ran = shared.command("streams").output().unwrap();
        if ran.status.success() {
            break String::from_utf8(ran.stdout).unwrap();
        }
        let error = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(error.contains("another client") && began.elapsed() < Duration::from_secs(120), "{error}");
    };
    assert_eq!(said, "h2c 369699 c2h 369699 others 1\n");
    shared.end();
}
