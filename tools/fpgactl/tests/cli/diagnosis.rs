//! Causes that messages name: logic that does not answer, missing data realignment, shared interrupt vectors, sockets of served cards.

use crate::support::{CommandResult, Served, file, fpgactl};

/// Writes a card file. Returns the card's name.
fn card(folder: &tempfile::TempDir, name: &str, sections: &str) -> String {
    let path = file(folder.path(), name, format!("schema_version: 3\n{sections}"));
    format!("mock:{}", path.display())
}

fn failed(words: &[&str], card: &str) -> CommandResult {
    let run = fpgactl(&[words, &["--card", card]].concat());
    assert_eq!(run.status, 1, "{words:?}: {}", run.stderr);
    run
}

const COPY: [&str; 8] = ["cdma", "copy", "--src", "0", "--dst", "1MiB", "--len", "4KiB"];
const SILENT: &str = "the card and its DMA engine answer, but the logic behind the user BAR";

#[test]
fn silent_user_bar_is_distinguished_from_removed_card() {
    let folder = tempfile::tempdir().unwrap();
    // The subsystem ids announce no identity block, so the design's offsets come from the options.
    let silent =
        card(&folder, "silent.yaml", "pci: { subsystem_device: 0 }\nquirks: { silent_user_bar: true }\n");
    let at = ["--cdma-offset", "0x1000"];
    let said = failed(&[&COPY[..], &at].concat(), &silent).stderr;
    assert!(said.contains(SILENT) && !said.contains("gone"), "{said}");
    for words in [
        &["regs", "dump", "cdma"][..],
        &["regs", "read", "cdma.sr"],
        &["regs", "read", "cdma.sr", "--json"],
        &["regs", "write", "cdma.cr", "4", "--force"],
        &["regs", "watch", "cdma.sr", "--count", "1"],
        &["peek", "user", "0x1000", "2", "--force"],
    ] {
        let run = fpgactl(&[words, &at, &["--card", &silent]].concat());
        assert_eq!((run.status, run.stderr.matches(SILENT).count()), (0, 1), "{words:?}: {}", run.stderr);
    }
    // Registers of the DMA BAR answer.
    let said = fpgactl(&["regs", "dump", "irq", "--card", &silent]).ok().stderr;
    assert!(!said.contains(SILENT), "{said}");
    // Opening reads the identity block, where the ids announce one.
    let announced = card(&folder, "announced.yaml", "quirks: { silent_user_bar: true }\n");
    let said = failed(&["info"], &announced).stderr;
    assert!(said.contains("identity block") && said.contains(SILENT), "{said}");
}

#[test]
fn cdma_copy_without_realignment_names_cause() {
    let folder = tempfile::tempdir().unwrap();
    let aligned = card(&folder, "dre.yaml", "cdma: { dre: false }\n");
    fpgactl(&[&COPY[..], &["--card", &aligned]].concat()).ok();
    let said = failed(&["cdma", "copy", "--src", "1", "--dst", "1MiB", "--len", "4KiB"], &aligned).stderr;
    for part in ["dma_internal_error", "help: align both addresses to the engine's data width"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("set_bounce_channels"), "{said}");
}

#[test]
fn cdma_length_bits_of_card_file_are_those_of_pg034() {
    let folder = tempfile::tempdir().unwrap();
    for (bits, status) in [(15, 1), (20, 1), (23, 0), (26, 0)] {
        let name = card(&folder, "bits.yaml", &format!("cdma: {{ max_length_bits: {bits} }}\n"));
        let run =
            fpgactl(&["cdma", "copy", "--src", "0", "--dst", "1MiB", "--len", "40000", "--card", &name]);
        assert_eq!(run.status, status, "{bits}: {}", run.stderr);
        assert_eq!(run.stderr.contains("cdma.max_length_bits"), status != 0, "{bits}: {}", run.stderr);
    }
}

#[test]
fn irq_wait_on_shared_vector_explains_missed_pulses() {
    let served = Served::with(&["--card-file", "artix-x4"]);
    let said = failed(&["irq", "wait", "3", "--timeout", "50ms"], &served.card()).stderr;
    assert!(said.contains("a shared vector") && said.contains("hold a line high"), "{said}");
}

#[test]
fn doctor_of_served_card_checks_its_socket_only() {
    let served = Served::start();
    let report = fpgactl(&["doctor", "--json", "--card", &served.card()]).ok().json();
    assert_eq!((&report["passed"], &report["failed"], &report["warned"]), (&1.into(), &0.into(), &0.into()));
    let folder = tempfile::tempdir().unwrap();
    let missing = format!("vfio-user:{}", folder.path().join("none").display());
    let run = failed(&["doctor"], &missing);
    assert!(run.stdout.contains("socket") && run.stdout.contains("card serve"), "{}", run.stdout);
}
