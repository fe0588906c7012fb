//! Failures of one rank of an MPI job: the job ends with an error, nothing is left behind, and the next job works.

use crate::Installed;
use crate::failures::links;
use crate::mpi::{Library, run, start, wait, with_libraries};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Maximum time until the ranks have exchanged all kinds of messages once.
const TIMEOUT: Duration = Duration::from_secs(120);
const RANKS: u32 = 3;
/// Rounds of a job that does not end by itself.
const ROUNDS: &str = "1000000";

/// Processes of the ranks, once they have exchanged messages.
fn processes(output: &Path) -> Vec<u32> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(output).unwrap();
        let mut ranks: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("rank ")?.split_once(" is process "))
            .map(|(rank, process)| (rank.parse::<u32>().unwrap(), process.parse().unwrap()))
            .collect();
        if ranks.len() == RANKS as usize && text.contains("round 1\n") {
            ranks.sort_unstable();
            return ranks.into_iter().map(|(_, process)| process).collect();
        }
        assert!(begun.elapsed() < TIMEOUT, "no round ends\n{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs.
fn is_running(process: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
    state.is_ok_and(|state| !state.contains(") Z "))
}

/// Starts a job, sends a signal to one of its ranks, and checks how the job ends. `text` is part of its output.
fn check(library: &Library, installed: &Installed, program: &Path, signal: &str, text: &str) {
    let mut command = library.command(installed, RANKS);
    command.env("FPGA_GIVE_UP", "2").arg(program).arg(ROUNDS);
    let output = installed.0.path().join("failed");
    let mut job = start(command, &output);
    let ranks = processes(&output);
    assert!(Command::new("kill").args([signal, &ranks[1].to_string()]).status().unwrap().success());
    let status = wait(&mut job);
    let lines = std::fs::read_to_string(&output).unwrap();
    assert!(status.is_some_and(|status| !status.success()) && lines.contains(text), "{status:?}\n{lines}");
    // The launcher ends them, also the one that was stopped.
    let begun = Instant::now();
    while ranks.iter().any(|process| is_running(*process)) {
        assert!(begun.elapsed() < TIMEOUT, "a rank is left\n{lines}");
        std::thread::sleep(Duration::from_millis(5));
    }
    run(installed, library.command(installed, 2), program, 2).unwrap();
    assert_eq!(links(installed), Vec::<std::ffi::OsString>::new());
}

#[test]
fn mpi_rank_killed_ends_its_job() {
    // The launcher may be faster than the provider.
    with_libraries(|library, installed, program| check(library, installed, program, "-KILL", ""));
}

#[test]
fn mpi_rank_stopped_ends_its_job() {
    with_libraries(|library, installed, program| {
        check(library, installed, program, "-STOP", "does not answer");
    });
}
