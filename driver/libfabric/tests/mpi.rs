//! MPI programs over the provider: Open MPI or MPICH, if they are installed.
//!
//! `FPGA_MPI` names the directory with `mpicc` and `mpirun`; without it they are searched in `PATH`.

use crate::Installed;
use crate::shared::Served;
use fpga_pci::testing::skipped_without;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time of one job.
const TIMEOUT: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(10);

fn tool(name: &str) -> PathBuf {
    std::env::var_os("FPGA_MPI").map_or_else(|| name.into(), |directory| Path::new(&directory).join(name))
}

/// Command that starts `ranks` processes; `None` if there is no MPI.
fn launcher(installed: &Installed, ranks: &str) -> Option<Command> {
    let version = Command::new(tool("mpirun")).arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let mut command = Command::new(tool("mpirun"));
    installed.prepare(&mut command);
    command.args(["-n", ranks]);
    if version.contains("Open MPI") || version.contains("OpenRTE") {
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["--oversubscribe", "--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
        command.args(["--mca", "mtl_ofi_provider_include", "fpga"]);
        // One-sided operations by messages: on one machine the default is its own shared memory.
        command.args(["--mca", "osc", "pt2pt", "--mca", "btl", "self"]);
    } else {
        // Also between processes of one machine, and where the default is UCX.
        command.env("FI_PROVIDER", "fpga").env("MPIR_CVAR_NOLOCAL", "1").env("MPIR_CVAR_CH4_NETMOD", "ofi");
    }
    Some(command)
}

/// Runs a job. Returns its output if it fails.
fn run(installed: &Installed, program: &Path, ranks: &str, card: &str) -> Result<(), String> {
    let Some(mut command) = launcher(installed, ranks) else { return Ok(()) };
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
    if is_right { Ok(()) } else { Err(format!("{ranks} ranks: {status:?}\n{text}")) }
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
    let (Ok(compiled), Some(_)) = (compiled, launcher(&installed, "1")) else {
        skipped_without("mpicc or mpirun", "openmpi-bin libopenmpi-dev");
        return;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let owner = Served::new();
    for (ranks, card) in [("2", "mock"), ("4", "mock"), ("2", &*owner.card()), ("4", &*owner.card())] {
        run(&installed, &program, ranks, card).unwrap();
    }
    // The data has passed through cards: the library finds no other way without them.
    let without = run(&installed, &program, "2", "vfio-user:/nonexistent").unwrap_err();
    assert!(!without.contains("ok 2 ranks"), "{without}");
}
