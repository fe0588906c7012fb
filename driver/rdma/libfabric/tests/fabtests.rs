//! Programs of fabtests, libfabric's own tests, as pairs of processes. FPGA_FABTESTS names the directory with the programs.

use crate::{Installed, traffic};
use fpga_pci::testing::skipped;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time of one pair.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Interval of looks at the processes.
const LOOK: Duration = Duration::from_millis(5);
/// Exit code by which a program says that the provider does not support it (`FI_ENODATA`).
const UNSUPPORTED: i32 = 61;

/// Programs of the quick list that this provider supports, and their arguments. Without a size most of them have buffers of some GiB.
const PAIRS: &[&str] = &[
    "fi_av_xfer -e rdm",
    "fi_cq_data -e rdm",
    "fi_rdm",
    "fi_rdm -U",
    "fi_rdm_rma_event",
    "fi_rdm_tagged_peek",
    "fi_multi_mr -e rdm -V",
    "fi_recv_cancel -e rdm -V",
    "fi_unexpected_msg -e rdm -I 10 -S 65536",
    "fi_bw -e rdm -v -T 1 -S 65536",
    "fi_rdm_multi_client -C 10 -I 5",
    "fi_rdm_multi_client -C 5 -I 5 -R",
    "fi_rma_bw -e rdm -o write -I 5 -S 1048576",
    "fi_rma_bw -e rdm -o read -I 5 -U -S 64",
    "fi_rma_bw -e rdm -o writedata -I 5 -S 65536",
    "fi_rdm_atomic -I 5 -o all -S 1024",
    "fi_rdm_cntr_pingpong -I 5 -S 65536",
    "fi_multi_recv -e rdm -I 5 -S 1024",
    "fi_rdm_pingpong -I 5 -v -S 1048576",
    "fi_rdm_tagged_pingpong -I 5 -v -U -S 65536",
    "fi_rdm_tagged_bw -I 5 -v -S 65536",
];

/// Process that does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or no other process waits for it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One side of a pair: its output goes to a file.
fn start(programs: &Path, installed: &Installed, pair: &str, side: &[&str], output: &Path) -> Running {
    let mut words = pair.split_whitespace();
    let mut command = Command::new(programs.join(words.next().unwrap()));
    installed.prepare(&mut command);
    // Clients of programs that exchange addresses by a socket use the server's port, too.
    command.env("FPGA_ADDRESS", "127.0.0.2").env("FI_LOG_LEVEL", "info");
    let file = std::fs::File::create(output).unwrap();
    command.args(words).args(["-p", "fpga"]).args(side);
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    Running(command.spawn().unwrap())
}

/// Waits until a process ends; `None` after `deadline`.
fn exit_code(running: &mut Running, deadline: Instant) -> Option<i32> {
    loop {
        if let Some(status) = running.0.try_wait().unwrap() {
            return Some(status.code().unwrap_or(-1));
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Runs a pair, whose cards must have received packets. Returns its failure.
fn run(programs: &Path, pair: &str) -> Option<String> {
    let installed = Installed::new();
    let outputs = ["server", "client"].map(|side| installed.0.path().join(side));
    let [server_output, client_output] = &outputs;
    let mut server = start(programs, &installed, pair, &["-s", "127.0.0.1"], server_output);
    // Programs that exchange addresses by a socket of their own need a server that listens.
    std::thread::sleep(Duration::from_millis(300));
    let mut client = start(programs, &installed, pair, &["127.0.0.1"], client_output);
    let deadline = Instant::now() + TIMEOUT;
    let codes = [exit_code(&mut server, deadline), exit_code(&mut client, deadline)];
    let texts = outputs.map(|output| std::fs::read_to_string(output).unwrap_or_default());
    let has_traffic = |text: &String| traffic::received_packets(text).iter().any(|packets| *packets > 0);
    match codes {
        [Some(0), Some(0)] if texts.iter().all(has_traffic) => None,
        [Some(UNSUPPORTED), Some(UNSUPPORTED)] => Some(format!("{pair}: the provider does not support it")),
        _ => Some(format!("{pair}: {codes:?}\nserver:\n{}\nclient:\n{}", texts[0], texts[1])),
    }
}

#[test]
fn fabtests_pairs_succeed() {
    let Some(programs) = std::env::var_os("FPGA_FABTESTS").map(PathBuf::from) else {
        skipped("FPGA_FABTESTS does not name the directory with the programs of fabtests");
        return;
    };
    let failures: Vec<_> = PAIRS.iter().filter_map(|pair| run(&programs, pair)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
