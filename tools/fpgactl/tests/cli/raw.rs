//! `peek`, `poke` and `regs write` on a simulated card.

use crate::support::{file, fpgactl};

#[test]
fn peek_reads_by_number_or_role() {
    for bar in ["dma", "1"] {
        let report = fpgactl(&["peek", bar, "0x1200", "2", "--json"]).ok().json();
        assert_eq!((report["bar"]["index"].as_u64(), report["bar"]["role"].as_str()), (Some(1), Some("dma")));
        let words = report["words"].as_array().unwrap();
        assert_eq!(words.len(), 2);
        assert_eq!(words[0]["value"], 0x1FC1_0206);
        assert_eq!(
            (words[0]["offset"].as_str(), words[0]["hex"].as_str()),
            (Some("0x1200"), Some("0x1fc10206"))
        );
        assert_eq!(words[0]["register"], "c2h2.identifier");
    }
    // The identity block's magic; memory behind the bypass BAR, with words that are not registers.
    let report = fpgactl(&["peek", "user", "0", "--json"]).ok().json();
    assert_eq!(report["words"][0]["register"], "identity.magic");
    let report = fpgactl(&["peek", "bypass", "0", "16", "--json"]).ok().json();
    assert!(report["words"].as_array().unwrap().iter().all(|word| word["register"].is_null()));
    let text = fpgactl(&["peek", "dma", "0", "3"]).ok().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    let parts: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(parts, ["0x0000", "0x1fc00006", "h2c0.identifier"]);
}

#[test]
fn peek_clearing_read_needs_force() {
    let report = fpgactl(&["peek", "dma", "0x44", "--force", "--json"]).ok().json();
    assert_eq!(report["words"][0]["register"], "h2c0.status_rc");
}

#[test]
fn peek_unknown_design_needs_force() {
    let dir = tempfile::tempdir().unwrap();
    let card = file(dir.path(), "plain.yaml", "schema_version: 1\npci: {subsystem_device: 7}\n");
    let card = format!("mock:{}", card.display());
    let report = fpgactl(&["peek", "user", "0", "--force", "--card", &card, "--json"]).ok().json();
    assert!(report["words"][0]["register"].is_null(), "the registers of an unknown design have no names");
    fpgactl(&["poke", "bypass", "0x40", "7", "--force", "--card", &card]).ok();
}

#[test]
fn poke_writes_word() {
    let report = fpgactl(&["poke", "dma", "0x88", "0x12340000", "--json"]).ok().json();
    assert_eq!((report["offset"].as_str(), report["value"].as_u64()), (Some("0x0088"), Some(0x1234_0000)));
    assert_eq!(report["register"], "h2c0.poll_address_low");
    assert!(report["effect"].as_str().unwrap().contains("completed count"));
    let text = fpgactl(&["poke", "user", "0xf000", "0xff"]).ok().stdout;
    assert!(text.starts_with("user BAR 0xf000 <- 0x000000ff\n") && text.contains("posted"), "{text}");
}

#[test]
fn regs_write_shows_before_and_after() {
    let report = fpgactl(&["regs", "write", "h2c0.poll_address_low", "0x12340000", "--json"]).ok().json();
    assert_eq!(
        (report["before"]["value"].as_u64(), report["after"]["value"].as_u64()),
        (Some(0), Some(0x1234_0000))
    );
    // An alias shows its register; the name's case does not matter.
    let report = fpgactl(&["regs", "write", "H2C0.interrupt_enable_SET", "6", "--json"]).ok().json();
    assert_eq!(
        (report["name"].as_str(), report["access"].as_str()),
        (Some("h2c0.interrupt_enable_set"), Some("W1S"))
    );
    assert_eq!(report["after"]["name"], "h2c0.interrupt_enable");
    assert_eq!(report["after"]["value"], 6);
    let fields = report["after"]["fields"].as_array().unwrap();
    assert!(fields.iter().any(|field| field["value"] == 1), "{report}");
    let text = fpgactl(&["regs", "write", "h2c0.control", "0x2"]).ok().stdout;
    for part in ["h2c0.control <- 0x00000002", "starts or stops", "before", "after", "BITS"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A register of the network interface.
    let report = fpgactl(&["regs", "write", "registry.index", "3", "--json"]).ok().json();
    assert_eq!((report["bar"].as_str(), report["after"]["value"].as_u64()), (Some("user"), Some(3)));
}

#[test]
fn regs_write_unreadable_register_is_reported() {
    let report = fpgactl(&["regs", "write", "memory.commit", "0", "--json"]).ok().json();
    assert!(report["before"].is_null() && report["after"].is_null(), "{report}");
    let text = fpgactl(&["regs", "write", "memory.commit", "0"]).ok().stdout;
    assert!(text.contains("the register cannot be read back"), "{text}");
}
