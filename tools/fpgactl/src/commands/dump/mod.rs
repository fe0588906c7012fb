//! `dump`: everything that a fault report needs, in one file that a person can read before sending it.
//!
//! The command does not change the card: it stops and sets nothing, so an engine that hangs stays hung. Sections are independent: one that
//! cannot be collected contains the reason, and does not affect the others. `scrub` removes private data from every section; the
//! head of the file lists what is removed.

mod config_space;
mod kernel_log;
mod scrub;

use std::io::Write;
use std::sync::Arc;

use fpga_diag::inspect::ReceiveTables;
use fpga_driver::{Card, CardSpec};
use fpga_firmware::generated::{CONTRACT_CHECKSUM, CONTRACT_MAJOR, CONTRACT_MINOR};
use fpga_host::{PciAddress, PciFunction, Roots, examine};
use fpga_pci::Backend;
use fpga_registers::quantity;
use serde::Serialize;

use super::doctor::DoctorReport;
use super::inspect::{EscapeReport, ListingSource, OpsReport, RegistryReport, StatsReport};
use super::{info, list, regs};
use crate::cli::DumpArgs;
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::output::{Report, pairs};
use crate::settings::Settings;
use crate::target::{self, CardOpener as _, Opened};
use crate::units::binary_size;
use scrub::Scrub;

/// Version of the file's layout: sections that begin with `== NAME`.
const FORMAT: u32 = 1;

/// Content of the file.
#[derive(Debug, Serialize)]
pub struct DumpReport {
    command: &'static str,
    card: String,
    file: String,
    bytes: usize,
    sections: Vec<SectionLine>,
    /// Kinds of data that are removed everywhere.
    #[serde(rename = "left_out")]
    omitted: &'static [&'static str],
}

#[derive(Debug, Serialize)]
struct SectionLine {
    name: &'static str,
    lines: usize,
    /// Reason why the section is empty, if it is.
    problem: Option<String>,
}

impl Report for DumpReport {
    fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.file, binary_size(self.bytes as u64));
        let rows: Vec<(&str, String)> = self
            .sections
            .iter()
            .map(|section| {
                let told = match &section.problem {
                    Some(problem) => format!("not available: {problem}"),
                    None => quantity(section.lines, "line").to_string(),
                };
                (section.name, told)
            })
            .collect();
        text += &pairs(&rows);
        text + &format!("omitted: {}\n", self.omitted.join(", "))
    }
}

/// Section of the bundle: a text, or the reason why there is none.
struct Section {
    name: &'static str,
    text: Result<String, String>,
}

impl Section {
    fn new(name: &'static str, text: Result<String, impl ToString>) -> Self {
        Self { name, text: text.map_err(|problem| problem.to_string()) }
    }

    fn of(name: &'static str, report: Result<impl Report, CliError>) -> Self {
        Self::new(name, report.map(|report| report.text()).map_err(|error| error.reason()))
    }
}

/// Runs the command.
pub fn run(settings: &Settings, args: &DumpArgs) -> Result<DumpReport, CliError> {
    let roots = args.host.roots();
    let mut out = OutFile::create(&args.out, settings.deadline)?;
    let mut scrub = Scrub::of_this_machine(&roots);
    let spec = &settings.card.spec;
    if let CardSpec::Simulated { description: Some(path) } | CardSpec::VfioUser(path) = spec.card() {
        scrub.add(&path.display().to_string(), "<path>");
    }
    let address = match spec.card() {
        CardSpec::Pci(address) => Some(*address),
        _ => None,
    };
    let mut sections = vec![Section::new("versions", Ok::<_, String>(versions(settings, &roots)))];
    sections.extend(host(&roots, address));
    sections.extend(card(settings));
    let mut text = head();
    let mut lines = Vec::new();
    for section in sections {
        let (body, problem) = match section.text {
            Ok(body) => (scrub.clean(&body), None),
            Err(problem) => {
                let problem = scrub.clean(&problem);
                (format!("not available: {problem}\n"), Some(problem))
            }
        };
        text += &format!("\n== {}\n{}\n", section.name, body.trim_end());
        lines.push(SectionLine { name: section.name, lines: body.lines().count(), problem });
    }
    out.write_all(text.as_bytes()).map_err(|error| CliError::carried(&args.out, "write it", error))?;
    out.commit()?;
    Ok(DumpReport {
        command: "dump",
        card: scrub.clean(&settings.card.to_string()),
        file: args.out.display().to_string(),
        bytes: text.len(),
        sections: lines,
        omitted: scrub::OMITTED,
    })
}

fn head() -> String {
    format!(
        "fpgactl bug report, format {FORMAT}\n\nThis file omits: {}. Read it before you send it nevertheless.\n",
        scrub::OMITTED.join(", ")
    )
}

fn versions(settings: &Settings, roots: &Roots) -> String {
    // Excludes the host name, which stands beside them.
    let kernel = |what: &str| {
        let path = roots.proc.join("sys/kernel").join(what);
        std::fs::read_to_string(path).map_or_else(|error| error.to_string(), |text| text.trim().to_owned())
    };
    let opened = match &settings.card.spec {
        CardSpec::Simulated { description: None } => "simulated, in this process".to_owned(),
        CardSpec::Pci(address) => {
            let interface = settings
                .card
                .access
                .interface
                .map_or_else(|| "auto".to_owned(), |interface| format!("{interface:?}"));
            format!("{address}, through VFIO (interface: {interface})")
        }
        CardSpec::Shared(_) => "shared with other processes, through its owner (vfio-user)".to_owned(),
        CardSpec::Rtl(_) => "simulated, by an RTL simulator (vfio-user)".to_owned(),
        CardSpec::VfioUser(_) => "served by another process (vfio-user)".to_owned(),
        _ => "simulated, in this process, from a description".to_owned(),
    };
    pairs(&[
        ("fpgactl", env!("CARGO_PKG_VERSION").to_owned()),
        ("contract", format!("{CONTRACT_MAJOR}.{CONTRACT_MINOR}, checksum {CONTRACT_CHECKSUM:#010x}")),
        ("JSON output", crate::output::SCHEMA_VERSION.to_string()),
        ("kernel", format!("{} {}", kernel("ostype"), kernel("osrelease"))),
        ("processor", std::env::consts::ARCH.to_owned()),
        ("card", opened),
    ])
}

/// Sections about the machine: the function's surroundings, whether the machine is ready, kernel messages.
fn host(roots: &Roots, address: Option<PciAddress>) -> Vec<Section> {
    let function = address.map(|address| PciFunction::read(roots, address));
    let mut sections = Vec::new();
    if let Some(found) = &function {
        let text = match found {
            Ok(function) => list::described(roots, function.clone()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        sections.push(Section::new("function", text));
    }
    let cards: Vec<PciFunction> = function.into_iter().flatten().collect();
    let checks = examine(roots, &cards).map(DoctorReport::new);
    sections.push(Section::of("doctor", checks.map_err(CliError::from)));
    sections.push(match address {
        Some(address) => Section::new("kernel log", kernel_log::about(roots, address)),
        None => Section::new("kernel log", Err("the card is not a PCI function of this machine")),
    });
    sections
}

/// Sections about the card. If it cannot be opened, its configuration space may still be readable.
fn card(settings: &Settings) -> Vec<Section> {
    let backend = match target::reach(&settings.card) {
        Ok(backend) => backend,
        Err(error) => return vec![Section::new("card", Err::<String, _>(error))],
    };
    let mut sections = vec![Section::new("configuration space", config_space::text(&*backend))];
    let options = settings.card.design().options().observe(true);
    match Card::from_backend_with(Arc::clone(&backend), options) {
        Ok(card) => sections.extend(opened(settings, card, backend)),
        Err(error) => sections.push(Section::new("card", Err::<String, _>(error))),
    }
    sections
}

fn opened(settings: &Settings, card: Card, backend: Arc<dyn Backend>) -> Vec<Section> {
    let opened = Opened::of(&settings.card, card, backend);
    let all = opened.registers();
    let mut sections = vec![
        Section::of("card", Ok(info::report(&opened))),
        Section::of("registers", regs::dump(&opened, all).map(regs::RegsReport::Dump)),
    ];
    if let Some(counted) = opened.card.counters() {
        let rows = [
            ("register reads", counted.mmio_reads),
            ("register writes", counted.mmio_writes),
            ("interrupts", counted.interrupts),
            ("descriptors", counted.descriptors),
            ("DMA bytes", counted.dma_bytes),
        ];
        let text = pairs(&rows.map(|(name, value)| (name, value.to_string())));
        sections.push(Section::new("accesses", Ok::<_, String>(text)));
    }
    let Some(node) = opened.card.info().ni.as_ref().map(|ni| ni.node.get()) else { return sections };
    match ReceiveTables::of(&opened.card) {
        Ok(tables) => {
            let scene =
                ListingSource::Card { name: opened.card.name().to_owned(), node, tables: Box::new(tables) };
            sections.push(Section::of("counters", StatsReport::new(&scene)));
            sections.push(Section::of("registry", RegistryReport::new(&scene)));
            sections.push(Section::of("escape channel", EscapeReport::new(&scene)));
            sections.push(Section::of("sending", OpsReport::new(&scene)));
        }
        Err(error) => sections.push(Section::new("counters", Err::<String, _>(error))),
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use fpga_host::testing::{MACHINES, machine};

    use super::*;
    use crate::cli::{Cli, Command};

    fn bundle(dir: &Path, arguments: &[&str]) -> (DumpReport, String) {
        let out = dir.join("report.txt");
        let words = [&["fpgactl", "dump", "--out", out.to_str().unwrap()], arguments].concat();
        let cli = Cli::try_parse_from(words).unwrap();
        let settings = Settings::new(&cli.global).unwrap();
        let Command::Dump(args) = cli.command else { panic!("not the command dump") };
        let report = run(&settings, &args).unwrap();
        (report, std::fs::read_to_string(out).unwrap())
    }

    #[test]
    fn dump_simulated_card_has_every_part_except_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let (report, text) = bundle(dir.path(), &[]);
        for name in [
            "versions",
            "doctor",
            "configuration space",
            "card",
            "registers",
            "counters",
            "registry",
            "escape channel",
        ] {
            assert!(text.lines().any(|line| line == format!("== {name}")), "{name}: {text}");
        }
        assert!(text.contains("h2c0.status") && text.contains("write-only"), "{text}");
        assert!(
            report
                .sections
                .iter()
                .all(|section| section.problem.is_none() || matches!(section.name, "kernel log" | "doctor"))
        );
        assert_eq!(report.bytes, text.len());
    }

    /// Uses a machine's tree and kernel log, both with every kind of private data.
    #[test]
    fn dump_has_no_private_data_on_any_machine() {
        const PRIVATE_PATTERNS: [&str; 9] = [
            "secret-host",
            "mallory",
            "/home/mallory",
            "52:54:00:12:34:56",
            "192.168.17.4",
            "fe80::1ff:fe23",
            "123e4567-e89b-12d3-a456-426614174000",
            "00-0a-35-ff-ff-12-34-56",
            "XFL1ABCDEF",
        ];
        for found in MACHINES {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("mallory's machine");
            let tree = machine(found.name, &root).unwrap();
            tree.file("proc/sys/kernel/hostname", "secret-host\n").unwrap();
            tree.file(
                "etc/passwd",
                "root:x:0:0::/root:/bin/sh\nmallory:x:1000:1000:Mallory:/home/mallory:/bin/sh\n",
            )
            .unwrap();
            let log = "6,1,1000000,-;vfio-pci 0000:65:00.0: enabled for mallory on secret-host\n \
                       SUBSYSTEM=pci\n\
                       4,2,2500000,-;vfio-pci 0000:65:00.0: DMAR fault, see /home/mallory/log of 192.168.17.4 and fe80::1ff:fe23\n\
                       6,3,2600000,-;e1000 0000:00:19.0: MAC 52:54:00:12:34:56\n\
                       6,4,2700000,-;pci 0000:65:00.0: serial number 00-0a-35-ff-ff-12-34-56, token 123e4567-e89b-12d3-a456-426614174000, 52:54:00:12:34:56\n\
                       6,5,2800000,-;pci 0000:65:00.0: S/N: XFL1ABCDEF\n";
            tree.file("dev/kmsg", log).unwrap();
            let arguments = ["--root", root.to_str().unwrap(), "--card", "0000:65:00.0"];
            let (report, text) = bundle(dir.path(), &arguments);
            for word in PRIVATE_PATTERNS {
                assert!(!text.contains(word), "{}: {word} is in\n{text}", found.name);
            }
            let json = serde_json::to_string(&report.sections).unwrap();
            assert!(!json.contains("mallory"), "{json}");
            for kept in [
                "[1.000000] vfio-pci 0000:65:00.0: enabled for <user> on <host>",
                "0000:65:00.0: DMAR fault",
                "== doctor",
            ] {
                assert!(text.contains(kept), "{}: {kept}\n{text}", found.name);
            }
            assert!(!text.contains("e1000"), "{text}");
            // The advice can be followed.
            let advice = text.split("\n== ").find(|part| part.starts_with("doctor\n")).unwrap();
            assert!(!advice.contains("<path>"), "{}: {advice}", found.name);
        }
    }
}
