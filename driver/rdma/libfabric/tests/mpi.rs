//! MPI programs over the provider, with every installed MPI library: Open MPI and MPICH.
//!
//! `FPGA_MPI` names the directories with `mpicc` and `mpirun` of each library, separated by colons. Without it they are searched in `PATH`, under
//! these names and Debian's names of either library.

use crate::exclusive::Exclusive;
use crate::shared::Served;
use crate::{Installed, traffic};
use fpga_pci::testing::{skipped, skipped_without};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Maximum time of one job.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes that each rank receives from the previous one: the sum of the lengths in `ring` of the program.
const RING_BYTES: u64 = (5_u64.pow(10) - 1) / 4;
/// Packets in which these bytes arrive, at least.
const RING_PACKETS: u64 = RING_BYTES / traffic::MAX_PACKET;
const LOOK: Duration = Duration::from_millis(10);

/// Installed MPI library.
pub(crate) struct Library {
    compiler: PathBuf,
    pub(crate) launcher: PathBuf,
    is_open_mpi: bool,
}

/// All installed libraries.
fn libraries() -> Vec<Library> {
    let directories = |name| std::env::var_os(name).map(|list| std::env::split_paths(&list).collect());
    let (directories, suffixes): (Vec<PathBuf>, &[&str]) = match directories("FPGA_MPI") {
        Some(directories) => (directories, &[""]),
        None => (directories("PATH").unwrap_or_default(), &["", ".openmpi", ".mpich"]),
    };
    let mut found: Vec<Library> = Vec::new();
    for (directory, suffix) in
        directories.iter().flat_map(|path| suffixes.iter().map(move |name| (path, name)))
    {
        let [compiler, launcher] = ["mpicc", "mpirun"].map(|name| directory.join(format!("{name}{suffix}")));
        let same = |other: &Library| {
            std::fs::canonicalize(&other.launcher).ok() == std::fs::canonicalize(&launcher).ok()
        };
        if !compiler.exists() || found.iter().any(same) {
            continue;
        }
        let Ok(version) = Command::new(&launcher).arg("--version").output() else { continue };
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let is_open_mpi = version.contains("Open MPI") || version.contains("OpenRTE");
        found.push(Library { compiler, launcher, is_open_mpi });
    }
    found
}

impl Library {
    /// Reason why the library cannot use libfabric at all.
    fn without_libfabric(&self) -> Option<String> {
        if self.is_open_mpi {
            return None;
        }
        let program = self.launcher.with_file_name("mpichversion");
        let version = Command::new(&program).output().map(|output| output.stdout).unwrap_or_default();
        let version = String::from_utf8_lossy(&version).into_owned();
        let device = version.lines().find_map(|line| line.strip_prefix("MPICH Device:")).unwrap_or("").trim();
        (!device.contains("ofi")).then(|| {
            format!("{} is an MPICH with the device `{device}`, without libfabric", self.launcher.display())
        })
    }

    /// Command that starts `ranks` processes.
    pub(crate) fn command(&self, installed: &Installed, ranks: u32) -> Command {
        let mut command = Command::new(&self.launcher);
        installed.prepare(&mut command);
        // The provider prints the card's counters.
        command.env("FI_LOG_LEVEL", "info").args(["-n", &ranks.to_string()]);
        if self.is_open_mpi {
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command.args(["--oversubscribe", "--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
        } else {
            // Also between processes of one machine, and where the default is UCX.
            command.env("MPIR_CVAR_NOLOCAL", "1").env("MPIR_CVAR_CH4_NETMOD", "ofi");
        }
        command.env("FI_PROVIDER", "fpga");
        command
    }
}

/// Starts a job in a process group of its own, with its output in a file.
pub(crate) fn start(mut command: Command, output: &Path) -> Child {
    let file = std::fs::File::create(output).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    command.process_group(0).spawn().unwrap()
}

/// Waits for the end of a job, and ends it after the maximum time: `None`.
pub(crate) fn wait(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if begun.elapsed() > TIMEOUT {
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Runs a job, whose last line is "ok" with the number of ranks. Returns its output, also as the error.
pub(crate) fn output(installed: &Installed, command: Command, ranks: u32) -> Result<String, String> {
    let output = installed.0.path().join("output");
    let status = wait(&mut start(command, &output));
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    let is_right =
        status.is_some_and(|status| status.success()) && text.contains(&format!("ok {ranks} ranks"));
    if is_right { Ok(text) } else { Err(format!("{ranks} ranks: {status:?}\n{text}")) }
}

/// Runs a job. Returns the numbers of packets that the cards of its ranks have received, or its output if it fails.
pub(crate) fn run(
    installed: &Installed,
    mut command: Command,
    program: &Path,
    ranks: u32,
) -> Result<Vec<u64>, String> {
    command.arg(program);
    output(installed, command, ranks).map(|text| traffic::received_packets(&text))
}

/// Runs the program on a card of each process, which all endpoints of the process share. One-sided operations of Open MPI, which take its shared
/// memory otherwise, have an endpoint of their own.
fn check_one_sided(library: &Library, installed: &Installed, program: &Path) {
    let cards = Exclusive::new();
    let rank = if library.is_open_mpi { "OMPI_COMM_WORLD_RANK" } else { "PMI_RANK" };
    let mut command = library.command(installed, 2);
    if library.is_open_mpi {
        command.args(["--mca", "btl", "self,ofi", "--mca", "osc", "rdma"]);
    }
    command.args(["sh", "-c", &format!("FPGA_CARD={}${rank} exec $0", cards.cards())]);
    let received = run(installed, command, program, 2).unwrap();
    let endpoints = if library.is_open_mpi { 4 } else { 2 };
    assert!(received.len() >= endpoints, "{}: {received:?}", library.launcher.display());
    assert!(received.iter().all(|packets| *packets >= RING_PACKETS), "{received:?}");
}

/// Compiles a program.
pub(crate) fn compiled(library: &Library, installed: &Installed, source: &str) -> PathBuf {
    let program = installed.0.path().join(source).with_extension("");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let compiled = Command::new(&library.compiler).arg("-o").arg(&program).arg(source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Runs the program on cards of each rank, on a shared card, and without cards or provider.
fn check(library: &Library, installed: &Installed, program: &Path) {
    let owner = Served::new();
    for (ranks, card) in [(2, "mock"), (4, "mock"), (2, &*owner.card()), (4, &*owner.card())] {
        let mut command = library.command(installed, ranks);
        command.env("FPGA_CARD", card);
        let received = run(installed, command, program, ranks).unwrap();
        let library = library.launcher.display();
        // Endpoints for one-sided operations have further cards.
        let received: Vec<u64> = received.into_iter().filter(|packets| *packets >= RING_PACKETS).collect();
        assert!(received.len() >= ranks as usize, "{library}: each rank has a card of its own");
    }
    check_one_sided(library, installed, program);
    // The library finds no other way.
    for (name, value) in [("FPGA_CARD", "vfio-user:/nonexistent"), traffic::NO_PROVIDER] {
        let mut command = library.command(installed, 2);
        command.env(name, value);
        let without = run(installed, command, program, 2).unwrap_err();
        assert!(!without.contains("ok 2 ranks"), "{without}");
    }
}

/// Calls `check` with each library that can use the provider, and its program.
pub(crate) fn with_libraries(check: impl Fn(&Library, &Installed, &Path)) {
    if crate::has_sanitizer() {
        return;
    }
    let libraries = libraries();
    if libraries.is_empty() {
        skipped_without("mpicc or mpirun", "openmpi-bin libopenmpi-dev");
    }
    for library in libraries {
        match library.without_libfabric() {
            Some(reason) => skipped(reason),
            None => {
                let installed = Installed::new();
                let program = compiled(&library, &installed, "mpi.c");
                check(&library, &installed, &program);
            }
        }
    }
}

#[test]
fn mpi_ranks_exchange_data() {
    with_libraries(check);
}
