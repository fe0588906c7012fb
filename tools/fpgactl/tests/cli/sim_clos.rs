//! `sim clos`, with a program in place of the other simulator (`htsim.sh`): its seeds 90 to 93 are failures.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{CommandResult, file, fpgactl};

pub(crate) const CLOS_LISTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scenarios/clos");
pub(crate) const HTSIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/htsim.sh");

fn clos(more: &[&str]) -> CommandResult {
    fpgactl(&[&["sim", "clos", "--row", "permutation-64KiB"], more].concat())
}

#[test]
fn sim_clos_shows_both_simulators() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("made");
    let arguments = ["--row", "short-beside-incast", "--lists", CLOS_LISTS, "--runs", "2", "--htsim", HTSIM];
    let shown = clos(&arguments).ok().stdout;
    assert!(shown.contains("NSCC mean") && shown.contains("short-beside-incast, 65536 bytes"), "{shown}");
    assert!(shown.ends_with(&format!("2 runs from seed 1, flow lists of {CLOS_LISTS}\n")), "{shown}");
    let json = clos(&[&arguments[..], &["--out", out.to_str().unwrap(), "--json"]].concat()).ok().json();
    let lines = json["lines"].as_array().unwrap();
    assert_eq!((lines.len(), json["htsim"].as_str(), json["htsim_error"].is_null()), (3, Some(HTSIM), true));
    // 144 flows and 48 short ones, twice.
    assert_eq!((lines[0]["flows"].as_u64(), lines[1]["flows"].as_u64()), (Some(288), Some(96)), "{json}");
    for line in lines {
        let nscc = &line["nscc"];
        assert_eq!((nscc["p99_us"].as_f64(), nscc["max_us"].as_f64()), (Some(30.5), Some(30.5)), "{line}");
        assert_eq!((nscc["retransmitted_percent"].as_f64(), nscc["failures"].as_u64()), (Some(1.5), Some(0)));
        let p99 = line["registry"]["p99_us"].as_f64().unwrap();
        assert!((line["p99_ratio"].as_f64().unwrap() - p99 / 30.5).abs() < 1e-9, "{line}");
        assert!(line["registry"]["failures"] == 0 && p99 > 10.0, "{line}");
    }
    let csv = fs::read_to_string(json["csv"].as_str().unwrap()).unwrap();
    assert!(csv.starts_with("row,size_bytes,flows,registry_mean_us,") && csv.lines().count() == 4, "{csv}");
    assert!(csv.contains("\nshort-beside-incast,1048576,64,"), "{csv}");
}

#[test]
fn sim_clos_failing_program_keeps_own_results() {
    let missing = format!("{HTSIM}.missing");
    for (program, seed, problem) in [
        (HTSIM, "90", " -seed 90 -o log: exit status: 3: no memory"),
        (HTSIM, "91", "exit status: 0, but its output has no line \"New: N Rtx: N\""),
        (HTSIM, "92", "not ended after 300ms (--htsim-timeout)"),
        (&missing, "1", "No such file or directory"),
    ] {
        let arguments =
            ["--lists", CLOS_LISTS, "--htsim", program, "--seed", seed, "--htsim-timeout", "300ms"];
        let ran = clos(&arguments);
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stdout.contains("permutation-64KiB ") && !ran.stdout.contains("NSCC"), "{}", ran.stdout);
        assert!(ran.stderr.contains(problem) && ran.stderr.contains(program), "{}", ran.stderr);
        let json = clos(&[&arguments[..], &["--json"]].concat()).json();
        assert!(json["htsim_error"].as_str().unwrap().contains(problem), "{json}");
        assert!(
            json["lines"][0]["registry"]["p99_us"].is_f64() && json["lines"][0]["nscc"].is_null(),
            "{json}"
        );
    }
    let shown = clos(&["--lists", CLOS_LISTS, "--htsim", HTSIM, "--seed", "93"]).ok().stdout;
    assert!(shown.contains("permutation-64KiB: 0 failed flows, NSCC: 144 unfinished flows\n"), "{shown}");
}

#[test]
fn sim_clos_flow_lists_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let lists = dir.path().to_str().unwrap();
    for (text, problem) in [
        (None, "permutation-64KiB.cm: "),
        (
            Some("Nodes 145\nConnections 1\n0->1 start 0 size 1\n"),
            ".cm:1: 145 nodes, but the topology has 144 hosts",
        ),
        (
            Some("Connections 1\n0->144 start 0 size 1\n"),
            ".cm:2: host 144, but the topology has hosts 0 to 143",
        ),
    ] {
        if let Some(text) = text {
            file(dir.path(), "permutation-64KiB.cm", text);
        }
        let ran = clos(&["--lists", lists]);
        assert!(ran.status == 1 && ran.stdout.is_empty() && ran.stderr.contains(problem), "{}", ran.stderr);
    }
    // The tests' working directory is the package's, and no package of the system is installed there.
    if !std::path::Path::new("/usr/share/doc/fpgactl/examples/scenarios/clos").exists() {
        let ran = clos(&[]);
        assert!(
            ran.status == 1 && ran.stderr.contains("help: name the folder with --lists"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn sim_clos_signal_ends_program() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args([
        "sim",
        "clos",
        "--row",
        "incast-64KiB",
        "--lists",
        CLOS_LISTS,
        "--htsim",
        HTSIM,
        "--seed",
        "92",
        "-v",
    ]);
    let mut child =
        command.env_remove("RUST_LOG").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It waits for its child, which does not end.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let begun = Instant::now();
    while fs::read_to_string(&children).unwrap_or_default().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no child");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("sim clos, row incast-64KiB: stopped by a signal; nothing was written"), "{said}");
}
