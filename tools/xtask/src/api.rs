//! `cargo xtask api`: size of the public API of `fpga-driver` and `fpga-rdma`, and a check that each type of a public signature has a name
//! in one of them.
//!
//! The facts come from rustdoc's JSON of both and of the packages below them, whose items they re-export. [`surface`] reads it.

mod surface;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use surface::{Package, Surface};

/// Options of `cargo xtask api`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print only the counts; fail if a type has no name or a count exceeds its limit.
    #[arg(long)]
    check: bool,
}

/// Packages whose API is examined, the lower one first.
const PACKAGES: [&str; 2] = ["fpga-driver", "fpga-rdma"];
/// Maximum number of types at the root of `fpga-driver`.
const MAX_ROOT_TYPES: usize = 80;
/// Maximum number of types of both packages, errors included.
const MAX_TYPES: usize = 150;

/// Options of rustdoc.
const FLAGS: [&str; 3] = ["-Zunstable-options", "--output-format=json", "--cap-lints=allow"];

/// Types of signatures that have no name in the packages, by the path of the definition, with the reason for each group.
const STATED: &[(&str, &[&str])] = &[
    (
        "parts of a card description, which applications read from a file; programs that change one use fpga-sim",
        &[
            "fpga_card::boards::Builtin",
            "fpga_card::description::BarsDescription",
            "fpga_card::description::CdmaDescription",
            "fpga_card::description::InterruptDescription",
            "fpga_card::description::LinkDescription",
            "fpga_card::description::MemoryDescription",
            "fpga_card::description::NiDescription",
            "fpga_card::description::PciDescription",
            "fpga_card::description::QuirksDescription",
            "fpga_card::description::XdmaDescription",
            "fpga_card::fault_plan::file::FaultsDescription",
            "fpga_card::stream::description::StreamDescription",
        ],
    ),
    (
        "errors of simulated cards and networks: programs that match single ones use fpga-sim",
        &[
            "fpga_card::reading::DescriptionError",
            "fpga_card::validate::Problem",
            "fpga_sim::error::SimNetworkError",
        ],
    ),
    (
        "the simulated card and networks beyond `SimNetwork`: programs that observe, change or link them use fpga-sim",
        &[
            "fpga_card::card::Card",
            "fpga_card::design::Design",
            "fpga_firmware::time::Nanos",
            "fpga_netmodel::Impairments",
            "fpga_netmodel::LinkCounters",
            "fpga_sim::backend::SimBackend",
            "fpga_sim::dma::RefusedAccesses",
            "fpga_sim::hop::HopCounters",
            "fpga_sim::fabric::Fabric",
            "fpga_sim::hop::SimHop",
            "fpga_sim::link::LinkAddress",
            "fpga_sim::link::LinkCounters",
            "fpga_sim::link::any::Link",
            "fpga_sim::link::any::LinkEvents",
            "fpga_sim::observer::HostObserver",
            "fpga_sim::partition::Partitions",
            "fpga_sim::state::CardFailure",
            "fpga_sim::threaded::ThreadOptions",
            "fpga_sim::time::TimeSpent",
        ],
    ),
    ("a card description is read by serde", &["serde_core::de::Deserialize", "serde_core::de::Deserializer"]),
    (
        "errors that stay opaque: programs that match single ones use fpga-pci",
        &[
            "fpga_host::address::ParsePciAddressError",
            "fpga_pci::dma::caller::MapRefused",
            "fpga_pci::error::DmaAllocError",
            "fpga_pci::error::OsError",
            "fpga_pci::error::server::ServerError",
            "fpga_pci::process::OtherProcess",
        ],
    ),
    (
        "a backend, its registers, interrupts and events: programs with one of their own use fpga-pci",
        &[
            "fpga_pci::backend::Backend",
            "fpga_pci::events::DeviceEvents",
            "fpga_pci::function::AccessCounters",
            "fpga_pci::function::BarInfo",
            "fpga_pci::function::Clock",
            "fpga_pci::interrupt::Interrupt",
            "fpga_pci::mmio::Mmio",
            "fpga_registers::access::RegisterIo",
        ],
    ),
    (
        "options of the kernel's interface for PCI cards: programs that set them use fpga-pci",
        &["fpga_pci::vfio::options::VfToken", "fpga_pci::vfio::options::VfioInterface"],
    ),
    (
        "statistics, addresses and quarantine of DMA memory, kinds of its pages: programs that show them use fpga-pci",
        &[
            "fpga_pci::dma::DmaPoolStats",
            "fpga_pci::dma::IovaRange",
            "fpga_pci::dma::quarantine::QuarantineReason",
            "fpga_pci::dma::quarantine::QuarantineRecord",
            "fpga_pci::memory::MemoryKind",
        ],
    ),
    (
        "waiting of programs that poll several parts by themselves: they use fpga-pci",
        &["fpga_pci::wait::Backoff"],
    ),
    ("memory of the caller, made by this crate", &["memmap2::MmapMut"]),
    (
        "content of registers: programs that decode it use fpga-registers",
        &[
            "fpga_registers::cdma::Cdmasr",
            "fpga_registers::xdma::channel::Alignments",
            "fpga_registers::xdma::channel::ChannelStatus",
            "fpga_registers::xdma::channel::StatusError",
        ],
    ),
    (
        "parts of the NI contract: programs that read its blocks or events use fpga-firmware",
        &[
            "fpga_firmware::catalog::UnknownValue",
            "fpga_firmware::event::Event",
            "fpga_firmware::generated::Capabilities",
            "fpga_firmware::identity::Identity",
        ],
    ),
    (
        "state and parameters of the protocol engine: programs that show it use fpga-diag",
        &[
            "fpga_protocol::mirror::Mirror",
            "fpga_protocol::mirror::MirrorError",
            "fpga_protocol::mirror::escape::EscapedPacket",
            "fpga_protocol::receiver::registry::EntryView",
            "fpga_protocol::scheme::tuning::Tuning",
            "fpga_protocol::sender::Sender",
            "fpga_protocol::sender::types::SenderCounters",
            "fpga_protocol::sender::views::TransferView",
        ],
    ),
];

/// Reasons why the API cannot be examined, or is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Cargo could not be run or failed.
    #[error("cargo doc: {0}")]
    Cargo(String),
    /// The output of rustdoc cannot be read.
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The output of rustdoc is not the expected JSON.
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: serde_json::Error },
    /// The output of rustdoc has no item that it refers to.
    #[error(
        "rustdoc's JSON of {package} has no {what}: its format changed, see tools/xtask/src/api/surface.rs"
    )]
    Format { package: String, what: String },
    /// Signatures with types that have no name in the package, or too many types.
    #[error("{}\nre-export the types, or take them out of the signatures", .0.join("\n"))]
    Wrong(Vec<String>),
}

/// Prints the API, unless only a check is requested, and fails if it is not closed or too large.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), ApiError> {
    let packages = packages(root)?;
    let mut surface = Surface::default();
    for package in PACKAGES {
        let Surface { types, leaks } = Surface::of(package, &packages)?;
        // What both name belongs to the lower one.
        for (path, name) in types {
            surface.types.entry(path).or_insert(name);
        }
        surface.leaks.extend(leaks);
    }
    let Surface { types, leaks } = &mut surface;
    leaks.retain(|path, _| !types.contains_key(path));
    let mut wrong = Vec::new();
    let is_stated = |path: &str| STATED.iter().any(|(_, stated)| stated.contains(&path));
    if !options.check {
        for name in surface.types.values() {
            println!("{name}");
        }
        for (path, uses) in surface.leaks.iter().filter(|(path, _)| is_stated(path)) {
            let uses: Vec<&str> = uses.iter().take(4).map(String::as_str).collect();
            println!("{path} (stated) in {}", uses.join(", "));
        }
    }
    let leaks: Vec<_> = surface.leaks.iter().filter(|(path, _)| !is_stated(path)).collect();
    for (path, uses) in &leaks {
        let uses: Vec<&str> = uses.iter().take(4).map(String::as_str).collect();
        wrong.push(format!("{path} has no name in {}; used by {}", PACKAGES.join(" or "), uses.join(", ")));
    }
    for stated in STATED.iter().flat_map(|(_, stated)| *stated) {
        if !surface.leaks.contains_key(*stated) {
            wrong.push(format!("{stated} is in no signature: remove it from STATED"));
        }
    }
    let in_module = |module: &str| {
        surface
            .types
            .values()
            .filter(|name| name.rsplit_once("::").is_some_and(|(found, _)| found == module))
            .count()
    };
    let counts = [
        ("types", surface.types.len(), Some(MAX_TYPES)),
        ("types at the root", in_module("fpga_driver"), Some(MAX_ROOT_TYPES)),
        ("types in signatures without a name", leaks.len(), Some(0)),
        ("such types that are stated", surface.leaks.len() - leaks.len(), None),
    ];
    for (what, count, limit) in counts {
        println!("{count:>4} {what}{}", limit.map(|limit| format!(" (limit {limit})")).unwrap_or_default());
        if limit.is_some_and(|limit| limit > 0 && count > limit) {
            wrong.push(format!("{count} {what}"));
        }
    }
    let modules: BTreeSet<&str> =
        surface.types.values().filter_map(|name| Some(name.rsplit_once("::")?.0)).collect();
    for module in modules {
        println!("{:>4} in {module}", in_module(module));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    if options.check {
        return Err(ApiError::Wrong(wrong));
    }
    println!("{}", wrong.join("\n"));
    Ok(())
}

/// Runs rustdoc on the package and those that it may depend on. The target directory is separate, because the variable that permits the
/// JSON output of a stable compiler makes cargo build dependencies again.
fn packages(root: &Path) -> Result<Vec<Package>, ApiError> {
    let mut names: BTreeSet<&str> = PACKAGES.into_iter().collect();
    names.extend(PACKAGES.iter().filter_map(|package| crate::graph::allowed(package)).flatten());
    let target = root.join("target/api");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["doc", "--quiet", "--no-deps", "--lib", "--features", "fpga-driver/sim", "--target-dir"])
        .arg(&target)
        .current_dir(root)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTDOCFLAGS", FLAGS.join("\x1f"));
    for name in &names {
        command.args(["--package", name]);
    }
    let output = command.output().map_err(|error| ApiError::Cargo(error.to_string()))?;
    if !output.status.success() {
        return Err(ApiError::Cargo(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let read = |name: &str| {
        let name = name.replace('-', "_");
        let path = target.join("doc").join(format!("{name}.json"));
        let text = std::fs::read(&path).map_err(|source| ApiError::Read { path: path.clone(), source })?;
        let json = serde_json::from_slice(&text).map_err(|source| ApiError::Syntax { path, source })?;
        Ok(Package { name, json })
    };
    names.into_iter().map(read).collect()
}
