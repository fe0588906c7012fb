//! Building and running a model.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use fpga_driver::{Card, CardAddr};
use fpga_pci::testing::skipped_without;

/// Sources relative to `firmware-bindings/rtl`.
pub(crate) const REFERENCE: [&str; 5] = [
    "xdma/fpga_xdma.sv",
    "reference/reference_top.sv",
    "reference/axi_ram.sv",
    "reference/reference_registers.sv",
    "check/axi_checker.sv",
];

/// Version of Verilator; `None` if it is not installed.
static VERILATOR: LazyLock<Option<String>> = LazyLock::new(|| {
    let output = Command::new("verilator").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
});

/// One build at a time: tests share the models.
static BUILDING: Mutex<()> = Mutex::new(());

/// Folder of the test program, in which Cargo puts the library.
fn library_folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Builds the model of module `top`, or takes it from the last build. `None` without Verilator.
pub(crate) fn build(top: &str, sources: &[&str], arguments: &[&str], name: &str) -> Option<PathBuf> {
    let Some(version) = VERILATOR.as_ref() else {
        skipped_without("verilator", "verilator");
        return None;
    };
    let guard: MutexGuard<'_, ()> = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut hasher = DefaultHasher::new();
    (version, arguments, library_folder()).hash(&mut hasher);
    let sources: Vec<PathBuf> = sources.iter().map(|source| rtl().join(source)).collect();
    for source in &sources {
        fs::read(source).unwrap().hash(&mut hasher);
    }
    let stamp = format!("{:016x}", hasher.finish());
    let (program, stamp_file) = (folder.join("simulation"), folder.join("stamp"));
    if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        return Some(program);
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let library = library_folder();
    let linked = format!("-Wl,-rpath,{} -L{} -lfpga_rtl", library.display(), library.display());
    let mut command = Command::new("verilator");
    fpga_rtl::model::use_compiler_cache(&mut command);
    let output = command
        .args(["--binary", "--timing", "-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-lint"])
        .args(["--assert", "--top-module", top, "-o", "simulation", "--Mdir"])
        .arg(&folder)
        .args(["-j", "2", "-CFLAGS", "-O1", "-LDFLAGS", &linked])
        .args(arguments)
        .args(&sources)
        .output()
        .unwrap();
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        panic!("verilator: {}", String::from_utf8_lossy(&text));
    }
    fs::write(stamp_file, stamp).unwrap();
    drop(guard);
    Some(program)
}

/// Builds the reference top level with a data bus of `bits` and this number of channels. `None` without Verilator.
pub(crate) fn reference(bits: u32, channels: u32) -> Option<PathBuf> {
    let parameters = [format!("-GDATA_WIDTH={bits}"), format!("-GCHANNELS={channels}")];
    let arguments = parameters.each_ref().map(String::as_str);
    build("reference_top", &REFERENCE, &arguments, &format!("rtl-reference-{bits}-{channels}"))
}

/// A running simulation of the reference top level.
pub(crate) struct Simulation {
    child: KillGuard,
    log: BufReader<ChildStderr>,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Simulation {
    /// Starts it with these plusargs. `None` without Verilator.
    pub(crate) fn start(plusargs: &[&str]) -> Option<Self> {
        Some(Self::run(&reference(256, 2)?, plusargs))
    }

    /// Starts a model with these plusargs.
    pub(crate) fn run(program: &Path, plusargs: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("card");
        let mut child = Command::new(program)
            .arg(format!("+fpga_socket={}", socket.display()))
            .arg("+fpga_signals=1")
            .args(plusargs)
            // Cargo's contains the folder of an older library.
            .env_remove("LD_LIBRARY_PATH")
            .env("FPGA_RTL_LOG", "info")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut simulation = Self { child: KillGuard(child), log, socket, _folder: folder };
        simulation.wait_until_ready();
        simulation
    }

    /// Waits until one more instance can be opened.
    pub(crate) fn wait_until_ready(&mut self) {
        let mut line = String::new();
        while !line.contains("ready ") {
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the simulation has ended");
        }
    }

    /// Socket of the card.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn card(&self) -> Card {
        Card::open(&format!("vfio-user:{}", self.socket.display())).unwrap()
    }

    /// Ends the simulation; returns its output: standard output, then the log.
    pub(crate) fn end(mut self) -> String {
        terminate(&self.child.0);
        let mut output = String::new();
        self.child.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        self.log.read_to_string(&mut output).unwrap();
        assert!(self.child.0.wait().unwrap().success(), "{output}");
        output
    }

    /// Ends the simulation, and checks that no checker has found a violation, and that there were bursts. Returns their number.
    pub(crate) fn end_without_violations(self) -> u64 {
        let output = self.end();
        let mut bursts = 0;
        for report in output.lines().filter(|line| line.contains("violations in")) {
            assert!(report.contains(": 0 violations in "), "{output}");
            let count = report.rsplit_once(" in ").and_then(|(_, rest)| rest.strip_suffix(" bursts"));
            bursts += count.map_or(0, |count| count.parse::<u64>().unwrap());
        }
        assert_ne!(bursts, 0, "{output}");
        assert!(!output.contains("ERROR"), "{output}");
        bursts
    }
}

/// Ends a program that a failed test has left.
pub(crate) struct KillGuard(pub(crate) Child);

impl Drop for KillGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends SIGTERM.
pub(crate) fn terminate(child: &Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

/// Folder of the SystemVerilog sources.
pub(crate) fn rtl() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../firmware-bindings/rtl")
}

pub(crate) fn write(card: &Card, channel: u8, at: u64, data: &[u8]) {
    let mut h2c = card.h2c(channel).unwrap();
    h2c.write(card.buffer_from(data).unwrap(), CardAddr::new(at)).unwrap();
}

pub(crate) fn read(card: &Card, channel: u8, at: u64, length: usize) -> Vec<u8> {
    let mut c2h = card.c2h(channel).unwrap();
    let buffer = c2h.read(card.buffer(length).unwrap(), CardAddr::new(at)).unwrap();
    let mut data = vec![0; length];
    buffer.read(0, &mut data).unwrap();
    data
}
