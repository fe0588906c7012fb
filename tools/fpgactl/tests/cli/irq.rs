//! `irq`, and `card control` for the lines: user interrupts of a served card.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Served, fpgactl};

/// Running `irq wait`.
struct RunningWait {
    child: Child,
    lines: BufReader<ChildStdout>,
    _notes: BufReader<ChildStderr>,
}

impl RunningWait {
    /// Starts it, and returns when the lines are enabled.
    fn start(card: &str, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(["irq", "wait"]).args(words).args(["--json", "--card", card]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        let mut notes = BufReader::new(child.stderr.take().unwrap());
        notes.read_line(&mut ready).unwrap();
        assert!(ready.contains("waiting for user interrupt 3, by a dedicated vector"), "{ready}");
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines, _notes: notes }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for RunningWait {
    fn drop(&mut self) {
        // Only after a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tell(served: &Served, words: &[&str]) -> Value {
    let control = served.control();
    fpgactl(&[&["card", "control", &control], words, &["--json"]].concat()).ok().json()
}

#[test]
fn irq_wait_pulsed_line_prints_each_interrupt() {
    let served = Served::start();
    let mut waiting = RunningWait::start(&served.card(), &["3", "--count", "3"]);
    for total in 1..=3 {
        assert_eq!(tell(&served, &["user-interrupt", "3", "pulse"])["acknowledged"], true);
        let seen = waiting.next();
        assert_eq!((&seen["line"], &seen["requests"], &seen["total"]), (&json!(3), &json!(1), &json!(total)));
    }
    assert_eq!(waiting.end(), Some(0));
    // No client has the line enabled any more: it stays high until the next client enables it.
    assert_eq!(tell(&served, &["user-interrupt", "3", "pulse"])["acknowledged"], false);
    let card = served.card();
    let ran = fpgactl(&["irq", "wait", "3", "--card", &card]);
    assert!(ran.status == 0 && ran.stdout.contains("user interrupt 3 (1 in all)"), "{}", ran.stderr);
    let stats = &tell(&served, &["stats"])["stats"];
    assert_eq!((&stats["user_interrupts"][3], &stats["user_interrupts"][4]), (&json!(4), &json!(0)));
    assert!(stats["messages"].as_u64().unwrap() > 0 && stats["mmio_reads"].as_u64().unwrap() > 0, "{stats}");
}

#[test]
fn irq_wait_held_line_prints_one_interrupt_per_rise() {
    let served = Served::start();
    let mut waiting = RunningWait::start(&served.card(), &["3", "7", "--count", "3"]);
    for line in ["7", "3"] {
        tell(&served, &["user-interrupt", line, "on"]);
        assert_eq!(waiting.next()["line"].to_string(), line);
    }
    tell(&served, &["user-interrupt", "7", "off"]);
    tell(&served, &["user-interrupt", "7", "on"]);
    let seen = waiting.next();
    assert_eq!((&seen["line"], &seen["total"]), (&json!(7), &json!(2)));
    assert_eq!(waiting.end(), Some(0));
    let card = served.card();
    let list = fpgactl(&["irq", "list", "--json", "--card", &card]).ok().json();
    let pending = |line: usize| list["lines"][line]["pending"].as_bool().unwrap();
    assert_eq!(list["lines"].as_array().unwrap().len(), 16);
    assert!(pending(3) && pending(7) && !pending(4), "{list}");
    let table = fpgactl(&["irq", "list", "--card", &card]).ok().stdout;
    assert!(table.contains("PENDING") && table.lines().count() == 18, "{table}");
}

#[test]
fn irq_wait_refusals_have_exit_status() {
    let served = Served::start();
    let card = served.card();
    let ran = fpgactl(&["irq", "wait", "3", "--timeout", "50ms", "--card", &card]);
    assert!(ran.status == 1 && ran.stderr.contains("0 of 1 seen"), "{}: {}", ran.status, ran.stderr);
    let ran = fpgactl(&["irq", "wait", "16", "--card", &card]);
    assert!(
        ran.status == 2 && ran.stderr.contains("16 is out of range; give 0 to 15"),
        "{}: {}",
        ran.status,
        ran.stderr
    );
    let ran = fpgactl(&["irq", "wait", "3"]);
    assert!(ran.status == 2 && ran.stderr.contains("card serve"), "{}: {}", ran.status, ran.stderr);
    let lines = fpgactl(&["irq", "list", "--json"]).ok().json();
    assert_eq!(lines["lines"][15], json!({"line": 15, "enabled": false, "pending": false, "vector": 0}));
}

#[test]
fn control_change_is_reported() {
    let served = Served::start();
    let control = served.control();
    for (words, says) in [
        (&["user-interrupt", "3", "on"][..], "user interrupt 3 is high\n"),
        (&["user-interrupt", "3", "off"], "user interrupt 3 is low\n"),
        (&["pull-out"], "the card is pulled out of its slot\n"),
        (&["put-back"], "the card is back in its slot, in its power-on state\n"),
    ] {
        let text = fpgactl(&[&["card", "control", &control], words].concat()).ok().stdout;
        assert_eq!(text, says);
        assert_eq!(format!("{}\n", tell(&served, words)["done"].as_str().unwrap()), says);
    }
}
