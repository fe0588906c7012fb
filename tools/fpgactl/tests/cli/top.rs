//! `top`: reports for scripts, and a terminal that is restored at the end.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Winsize, tcgetattr, tcgetwinsize, tcsetwinsize};
use serde_json::Value;

use crate::support::{Served, fpgactl};
use crate::terminal::terminal;

const LOAD: [&str; 5] = ["--size=1MiB", "--loss=5%", "--reorder=64", "--seed=3", "--interval=1ms"];

#[test]
fn top_json_prints_one_document_per_line() {
    let ran = fpgactl(&[&["top", "--json", "--count", "4"], &LOAD[..]].concat()).ok();
    let samples: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(samples.len(), 4);
    for (number, sample) in (1..).zip(&samples) {
        assert_eq!((&sample["schema_version"], &sample["look"]), (&1.into(), &number.into()));
        assert_eq!(sample["ends"].as_array().map(Vec::len), Some(2));
        assert_eq!(sample["ends"][0]["channels"].as_array().map(Vec::len), Some(8));
        assert_eq!(sample["registry"]["entries"].as_array().unwrap().len(), sample["registry"]["occupancy"]);
    }
    assert!(samples[0]["goodput_gb_per_s"].is_null() && samples[0]["ends"][0]["rates"].is_null());
    assert!(samples[3]["goodput_gb_per_s"].as_f64().unwrap() > 0.0, "{}", samples[3]);
    assert!(samples[3]["ends"][1]["rates"]["packets_in_per_s"].as_f64().unwrap() > 0.0);
    // By the card's clock: 100 us and at most the duration of one more round.
    let span = samples[3]["span_us"].as_f64().unwrap();
    assert!((100.0..200.0).contains(&span), "{span}");
    assert!(
        samples[3]["trouble"]
            .as_array()
            .unwrap()
            .iter()
            .any(|found| found["what"] == "packets retransmitted")
    );
    // The same seed gives the same run.
    let again = fpgactl(&[&["top", "--json", "--count", "4"], &LOAD[..]].concat()).ok();
    let again: Value = serde_json::from_str(again.stdout.lines().last().unwrap()).unwrap();
    for key in ["time_us", "goodput_gb_per_s", "trouble"] {
        assert_eq!(again[key], samples[3][key], "{key}");
    }
}

#[test]
fn top_without_terminal_prints_text() {
    let text = fpgactl(&[&["top", "--once"], &LOAD[..]].concat()).ok().stdout;
    for part in ["mock:0 -> mock:1", "op table", "receive registry", "#", "sender    h2c0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    for (args, part) in [
        (["top", "--once", "--count", "2"], "cannot be used with"),
        (["top", "--interval", "0s", "--once"], "--interval"),
        (["top", "--step", "2s", "--once"], "not a time between samples"),
    ] {
        let ran = fpgactl(&args[..if args[3] == "--once" && args[1] == "--once" { 2 } else { 4 }]);
        assert!(ran.status == 2 && ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
}

/// Program on its own terminal.
struct TerminalSession {
    child: Child,
    master: File,
    slave: File,
}

impl TerminalSession {
    fn start(columns: u16, rows: u16) -> Self {
        Self::with(columns, rows, &LOAD[..4])
    }

    fn with(columns: u16, rows: u16, args: &[&str]) -> Self {
        let (master, slave) = terminal(columns, rows);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command
            .args([&["top"], args, &["--interval=20ms"]].concat())
            .env("TERM", "xterm")
            .env("LANG", "C.UTF-8");
        command
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap());
        let child = command.spawn().unwrap();
        Self { child, master, slave }
    }

    /// Reads until `wanted` was shown. Returns everything shown.
    fn until(&mut self, wanted: &str) -> String {
        let mut seen = Vec::new();
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains(wanted) {
            let count = self.master.read(&mut piece).unwrap();
            seen.extend_from_slice(&piece[..count]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    }

    /// Enlarges the window until a whole picture contains `wanted`: otherwise only changes are drawn. Repeating an earlier size would work
    /// only if the program has seen the one in between.
    fn until_whole(&mut self, wanted: &str) {
        for _ in 0..200 {
            let now = tcgetwinsize(&self.slave).unwrap();
            let rows = now.ws_row + 1;
            tcsetwinsize(&self.slave, Winsize { ws_row: rows, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })
                .unwrap();
            // The last word of each page. Blanks are skipped by cursor movement, so only single words are contiguous.
            if self.until("help").contains(wanted) {
                return;
            }
        }
        assert!(wanted.is_empty(), "{wanted} is never shown");
    }

    fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }
}

/// Alternate screen off (xterm, private mode 1049).
const LEFT: &str = "\u{1b}[?1049l";
/// Cursor on (private mode 25).
const CURSOR: &str = "\u{1b}[?25h";

/// Way to end a program with a view.
type End = Box<dyn Fn(&mut TerminalSession)>;

#[test]
fn top_restores_terminal() {
    let by_key = |keys: &'static str| move |on: &mut TerminalSession| on.type_in(keys);
    let by_signal = |on: &mut TerminalSession| {
        kill_process(Pid::from_child(&on.child), Signal::TERM).unwrap();
    };
    let ends: [(&str, End); 4] = [
        ("q", Box::new(by_key("q"))),
        ("Ctrl-C", Box::new(by_key("\u{3}"))),
        ("help, a page, pause, and q", Box::new(by_key("hh3jj  nq"))),
        ("SIGTERM", Box::new(by_signal)),
    ];
    for (how, end) in ends {
        let mut on = TerminalSession::start(80, 24);
        let before = tcgetattr(&on.slave).unwrap();
        on.until("registry");
        assert_ne!(format!("{before:?}"), format!("{:?}", tcgetattr(&on.slave).unwrap()), "raw mode");
        end(&mut on);
        let seen = on.until(LEFT);
        let status: ExitStatus = on.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{how}");
        // The cursor is restored before or after the screen.
        let rest = if seen.contains(CURSOR) { seen } else { on.until(CURSOR) };
        assert!(rest.contains(CURSOR), "{how}");
        assert_eq!(format!("{before:?}"), format!("{:?}", tcgetattr(&on.slave).unwrap()), "{how}");
    }
}

/// Served card in its current state: every page by its number and by the tab key, the help, and the end.
#[test]
fn top_served_card_shows_every_page() {
    let served = Served::start();
    let card = served.card();
    let mut on = TerminalSession::with(80, 24, &["--card", &card]);
    on.until_whole("[1 overview]");
    let pages = ["2 channels", "3 ops", "4 queues", "5 registry", "6 escape", "7 counters"];
    for page in pages {
        on.type_in(&page[..1]);
        on.until_whole(&format!("[{page}]"));
    }
    // From the last page to the first, and further.
    for page in ["1 overview", "2 channels"] {
        on.type_in("\t");
        on.until_whole(&format!("[{page}]"));
    }
    on.type_in("h");
    on.until_whole("shorter");
    on.type_in("h");
    on.until_whole("h2c0");
    on.type_in("q");
    on.until(LEFT);
    assert_eq!(on.child.wait().unwrap().code(), Some(0));
    // The card was only inspected, and is free for the next client.
    fpgactl(&["info", "--card", &card]).ok();
}

#[test]
fn top_ends_when_terminal_closes() {
    let mut on = TerminalSession::start(20, 10);
    on.until("quit");
    let TerminalSession { mut child, master, slave } = on;
    drop((master, slave));
    assert_eq!(child.wait().unwrap().code(), Some(0), "exit status after the terminal closed");
}
