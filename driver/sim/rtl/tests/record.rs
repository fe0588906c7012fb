//! The record of a simulation.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fpga_driver::Card;
use fpga_registers::BarOffset;

use crate::simulator::{Simulation, read, reference, write};

/// Fields of a line: cycle, simulated time, host time, event.
fn events(text: &str) -> Vec<(u64, u64, u64, String)> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("rtl-record 1"));
    let parsed = lines.map(|line| {
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (cycle, time, host) = (number(), number(), number());
        (cycle, time, host, words.next().unwrap().to_owned())
    });
    parsed.collect()
}

fn position(events: &[(u64, u64, u64, String)], begin: &str) -> usize {
    let found = events.iter().position(|event| event.3.starts_with(begin));
    found.unwrap_or_else(|| panic!("no {begin} in {events:?}"))
}

fn recorded(path: &Path) -> Vec<(u64, u64, u64, String)> {
    events(&std::fs::read_to_string(path).unwrap())
}

fn work(card: &Card) {
    write(card, 0, 0x120, &[0xA5; 40]);
    assert_eq!(read(card, 1, 0x120, 40), [0xA5; 40]);
    card.user_bar().unwrap().write32(BarOffset::new(4), 0x1234_5678).unwrap();
    assert_eq!(card.user_bar().unwrap().read32(BarOffset::new(0)).unwrap(), 0x4652_4546);
}

#[test]
fn record_has_events_with_both_clocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    let record = format!("+fpga_record={}", path.display());
    let Some(simulation) = Simulation::start(&[&record]) else { return };
    let before = fpga_pci::wait::system_monotonic_ns();
    let card = simulation.card();
    work(&card);
    drop(card);
    let after = fpga_pci::wait::system_monotonic_ns();
    simulation.end_without_violations();

    let events = recorded(&path);
    assert_eq!(events.first().unwrap().3, "parameters 256 4 2 4 0 0");
    for pair in events.windows(2) {
        let [first, second] = pair else { continue };
        assert!(first.0 <= second.0 && first.1 <= second.1 && first.2 <= second.2, "{first:?} {second:?}");
    }
    // 40 bytes at 0x120 are two beats of 32 bytes, the second with 8 strobes.
    let data = "a5".repeat(8);
    let words = [
        "memory_read ".to_owned(),
        "aw 0 0 120 1 5 1".to_owned(),
        format!("w 0 {} ffffffff 0", "a5".repeat(32)),
        format!("w 0 {}{data} ff 1", "0".repeat(48)),
        "b 0 0 0".to_owned(),
        "ar 0 1 120 1 5 1".to_owned(),
        format!("r 0 1 {} 0 0", "a5".repeat(32)),
        "lite_write 4 12345678 f".to_owned(),
        "lite_response 00000000 0".to_owned(),
        "lite_read 0".to_owned(),
        "lite_response 46524546 0".to_owned(),
    ];
    let positions: Vec<usize> = words.iter().map(|word| position(&events, word)).collect();
    assert!(positions.is_sorted(), "{positions:?}");
    // The host may come before the first cycle.
    assert!(position(&events, "reset") < position(&events, "aw "));
    let command = events.get(position(&events, "aw 0 0 120")).unwrap();
    assert!((before..after).contains(&command.2));
    // Half a period is 2000 ps, and the first edge is at 2000 ps.
    assert_eq!(command.1, 2000 + (command.0 - 1) * 4000);
    position(&events, "bar_write 0 4 4 12345678");
    position(&events, "bar_read 0 0 4 46524546");
    assert!(events.iter().any(|event| event.3.starts_with("memory_write ") && event.3.ends_with(" 40")));
}

#[test]
fn record_on_full_disk_ends_and_simulation_continues() {
    let Some(program) = reference(256, 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    // A limit of the file's size gives the same error as a full disk: the write fails.
    let limited = folder.path().join("limited");
    let text = format!("#!/bin/sh\ntrap '' XFSZ\nulimit -f 16\nexec {} \"$@\"\n", program.display());
    std::fs::write(&limited, text).unwrap();
    std::fs::set_permissions(&limited, std::fs::Permissions::from_mode(0o755)).unwrap();
    let simulation = Simulation::run(&limited, &[&format!("+fpga_record={}", path.display())]);
    let card = simulation.card();
    for _ in 0..20 {
        work(&card);
    }
    drop(card);
    let output = simulation.end();
    assert_eq!(output.matches("the record cannot be written: File too large").count(), 1, "{output}");
    assert!(output.contains(": 0 violations in "), "{output}");
}

#[test]
fn record_that_cannot_be_created_ends_start() {
    let Some(program) = reference(256, 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(program)
        .arg(format!("+fpga_socket={}", folder.path().join("card").display()))
        .arg(format!("+fpga_record={}", folder.path().join("none/record").display()))
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("none/record: the record cannot be created: No such file"), "{text}");
}
