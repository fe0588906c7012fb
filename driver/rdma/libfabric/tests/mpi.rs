//! MPI programs over the provider: Open MPI or MPICH, if they are installed.
//!
//! `FPGA_MPI` names the directory with `mpicc` and `mpirun`; without it they are searched in `PATH`.

use crate::Installed;
use crate::shared::Served;
use fpga_pci::testing::{skipped, skipped_without};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time of one job.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes that each rank receives from the previous one: the sum of the lengths in `ring` of the program.
const RING_BYTES: u64 = (5_u64.pow(10) - 1) / 4;
const LOOK: Duration = Duration::from_millis(10);

fn tool(name: &str) -> PathBuf {
    std::env::var_os("FPGA_MPI").map_or_else(|| name.into(), |directory| Path::new(&directory).join(name))
}

/// Whether `mpirun` is that of Open MPI; `None` if there is no MPI.
fn is_open_mpi() -> Option<bool> {
    let version = Command::new(tool("mpirun")).arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    Some(version.contains("Open MPI") || version.contains("OpenRTE"))
}

/// Command that starts `ranks` processes.
fn launcher(installed: &Installed, ranks: u32, is_open_mpi: bool) -> Command {
    let mut command = Command::new(tool("mpirun"));
    installed.prepare(&mut command);
    // The provider prints the card's counters.
    command.env("FI_LOG_LEVEL", "info").args(["-n", &ranks.to_string()]);
    if is_open_mpi {
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["--oversubscribe", "--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
        command.args(["--mca", "mtl_ofi_provider_include", "fpga"]);
        // One-sided operations by messages: on one machine the default is its own shared memory.
        command.args(["--mca", "osc", "pt2pt", "--mca", "btl", "self"]);
    } else {
        // Also between processes of one machine, and where the default is UCX.
        command.env("FI_PROVIDER", "fpga").env("MPIR_CVAR_NOLOCAL", "1").env("MPIR_CVAR_CH4_NETMOD", "ofi");
    }
    command
}

/// Runs a job. Returns the numbers of packets that the cards of its ranks have received, or its output if it fails.
fn run(installed: &Installed, program: &Path, ranks: u32, card: &str) -> Result<Vec<u64>, String> {
    let mut command = launcher(installed, ranks, is_open_mpi().unwrap());
    command.env("FPGA_CARD", card);
    let output = installed.0.path().join("output");
    let file = std::fs::File::create(&output).unwrap();
    command.arg(program).stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    // A group of its own, which ends as a whole.
    let mut child = command.process_group(0).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if begun.elapsed() > TIMEOUT {
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(LOOK);
    };
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    let is_right =
        status.is_some_and(|status| status.success()) && text.contains(&format!("ok {ranks} ranks"));
    if !is_right {
        return Err(format!("{ranks} ranks: {status:?}\n{text}"));
    }
    let received = |line: &str| line.split_once(" packets and received ")?.1.trim().parse().ok();
    Ok(text.lines().filter_map(received).collect())
}

#[test]
fn mpi_ranks_exchange_data() {
    if crate::has_sanitizer() {
        return;
    }
    let installed = Installed::new();
    let program = installed.0.path().join("mpi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi.c");
    let compiled = Command::new(tool("mpicc")).arg("-o").arg(&program).arg(source).output();
    let (Ok(compiled), Some(is_open_mpi)) = (compiled, is_open_mpi()) else {
        skipped_without("mpicc or mpirun", "openmpi-bin libopenmpi-dev");
        return;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let owner = Served::new();
    for (ranks, card) in [(2, "mock"), (4, "mock"), (2, &*owner.card()), (4, &*owner.card())] {
        let received = run(&installed, &program, ranks, card).unwrap();
        if received.is_empty() && !is_open_mpi {
            skipped(
                "this MPICH does not use libfabric, but UCX or its own network modules: its jobs cannot use cards",
            );
            return;
        }
        assert_eq!(received.len(), ranks as usize, "each rank has a card of its own");
        // The bytes of every rank have passed through its card, in packets of 4 KiB at most.
        assert!(received.iter().all(|packets| *packets >= RING_BYTES / 4096), "{received:?}");
    }
    // Without cards, the library finds no other way.
    let without = run(&installed, &program, 2, "vfio-user:/nonexistent").unwrap_err();
    assert!(!without.contains("ok 2 ranks"), "{without}");
}
