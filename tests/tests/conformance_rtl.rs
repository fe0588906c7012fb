//! The conformance suite on a card in SystemVerilog: XDMA and CDMA models, card memory and network interface (`reference/ni_card.sv`) in
//! Verilator. Without Verilator the tests print that they are skipped, and pass.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is the failure report")]

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use fpga_driver::extension::simulation_command;
use fpga_pci::Backend;
use fpga_pci::testing::skipped_without;
use fpga_rtl::model::{self, ModelError, ModelOptions};
use fpga_tests::conformance::backends::ExternalCard;
use fpga_tests::conformance::{Skip, cases};
use fpga_vfio_user::VfioUserBackend;
use tempfile::TempDir;

/// Sources beside those of the network interface, relative to `firmware-bindings/rtl`.
const SOURCES: [&str; 9] = [
    "reference/ni_pair_top.sv",
    "reference/ni_card.sv",
    "reference/card_engines.sv",
    "reference/axi_widen.sv",
    "reference/axi_crossbar.sv",
    "reference/axi_split.sv",
    "reference/axi_ram.sv",
    "check/axi_checker.sv",
    "check/stream_checker.sv",
];

/// One build at a time.
static BUILDING: Mutex<()> = Mutex::new(());

fn sources() -> Vec<PathBuf> {
    let rtl = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-bindings/rtl");
    let mut sources: Vec<PathBuf> = fs::read_dir(rtl.join("ni"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sv"))
        .collect();
    // The package first: the others use it.
    sources.sort_by_key(|path| (!path.ends_with("ni_pkg.sv"), path.clone()));
    sources.extend(SOURCES.iter().map(|source| rtl.join(source)));
    sources
}

/// Builds the model of one card as `fpgactl rtl build` does, or takes it from the last build. `None` without Verilator.
fn build() -> Option<PathBuf> {
    let _guard = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rtl-ni-card");
    let sources = sources();
    let card = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-bindings/rtl/reference/ni_card.yaml");
    let library = std::env::current_exe().unwrap().with_file_name("libfpga_rtl.a");
    let mut hasher = DefaultHasher::new();
    // The library's time, not its content: it is large.
    (library.metadata().unwrap().modified().unwrap(), model::XDMA).hash(&mut hasher);
    for file in sources.iter().chain([&card]) {
        fs::read(file).unwrap().hash(&mut hasher);
    }
    let (stamp, stamp_file) = (format!("{:016x}", hasher.finish()), folder.join("stamp"));
    if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        return Some(folder);
    }
    let options = ModelOptions {
        sources,
        top: Some("ni_pair_top".to_owned()),
        card: Some(card),
        arguments: ["-GCARDS=1", "--assert"].map(str::to_owned).to_vec(),
        ..ModelOptions::default()
    };
    match model::build(&folder, &options) {
        Ok(()) => {
            fs::write(stamp_file, stamp).unwrap();
            Some(folder)
        }
        Err(ModelError::NoVerilator { .. } | ModelError::OldVerilator { .. }) => {
            skipped_without("Verilator 5.006 or newer", "verilator");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A running simulation, which ends with this value.
struct Simulation {
    child: Child,
    socket: PathBuf,
    _folder: TempDir,
}

impl Simulation {
    fn start(model: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("card");
        let mut command = simulation_command(model, &socket).unwrap();
        let child = command.arg("+fpga_announce=1").stdout(Stdio::piped()).spawn().unwrap();
        let mut simulation = Self { child, socket, _folder: folder };
        let mut line = String::new();
        let output = simulation.child.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
        simulation
    }

    fn backend(&self) -> ExternalCard {
        let socket = self.socket.clone();
        let open = move || match VfioUserBackend::open(&socket) {
            Ok(backend) => Ok(Arc::new(backend) as Arc<dyn Backend>),
            Err(error) => Err(error.to_string()),
        };
        ExternalCard::new("rtl".to_owned(), true, Arc::new(open)).passing_memory_on()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the cases whose names begin with one of `themes` on one card. Returns the names of those that were not skipped.
fn run(themes: &[&str]) -> Option<Vec<&'static str>> {
    let simulation = Simulation::start(&build()?);
    let backend = simulation.backend();
    let mut passed = Vec::new();
    for case in cases() {
        if !themes.iter().any(|theme| case.name.starts_with(theme)) {
            continue;
        }
        match case.run(&backend) {
            Ok(()) => passed.push(case.name),
            Err(Skip(why)) => assert!(!why.is_empty(), "{}", case.name),
        }
    }
    Some(passed)
}

/// Identity of the network interface, an endpoint that sleeps, and an interrupt per batch.
#[test]
#[ignore = "long: 60 s: builds a card"]
fn conformance_rtl_card_passes_endpoint_cases() {
    let Some(passed) = run(&["open.info", "interrupts.endpoints_sleep", "cost.hybrid"]) else { return };
    assert_eq!(passed, ["open.info", "interrupts.endpoints_sleep", "cost.hybrid_polls_first"]);
}

#[test]
#[ignore = "long: 200 s: the whole suite on a simulated design"]
fn conformance_rtl_card_passes_every_case() {
    let Some(passed) = run(&[""]) else { return };
    assert!(passed.len() > 70, "{passed:?}");
}
