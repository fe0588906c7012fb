//! `run`: programs below a filter. The system calls are tested by `xdma-compat`; these are about the command, and the vendor's own tools.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::path::{Path, PathBuf};
use std::process::Command;

use fpga_pci::testing::skipped;

use crate::support::{Served, fpgactl};

/// Environment variable with the directory of the vendor's tools and tests, `XDMA/linux-kernel` of its repository.
const VENDOR: &str = "FPGA_VENDOR_XDMA";

#[test]
fn run_returns_status_of_program() {
    for (script, status) in [("true", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15)] {
        let ran = fpgactl(&["run", "--", "sh", "-c", script]);
        assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (status, "", ""), "{script}");
    }
    let ran = fpgactl(&["run", "/nonexistent/program"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.starts_with("fpgactl: /nonexistent/program: No such file"), "{}", ran.stderr);
    let ran = fpgactl(&["run"]);
    assert_eq!(ran.status, 2);
}

#[test]
fn run_program_that_reads_from_the_card_has_its_output() {
    let script = "printf 0123456789abcdef | dd of=/dev/xdma0_h2c_3 bs=4 seek=1 status=none; dd if=/dev/xdma0_c2h_3 bs=20 count=1 status=none";
    let ran = fpgactl(&["run", "--card", "mock:us-plus-x16", "--", "sh", "-c", script]).ok();
    assert_eq!(ran.stdout, "\u{0}\u{0}\u{0}\u{0}0123456789abcdef");
}

#[test]
fn run_failed_transfer_says_why() {
    let script = "dd if=/dev/xdma0_c2h_0 bs=4096 count=1 skip=1000000000000 2> /dev/null";
    let ran = fpgactl(&["run", "--", "sh", "-c", script]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("xdma0_c2h_0: ") && ran.stderr.contains("is not inside the card's memory"),
        "{}",
        ran.stderr
    );
}

#[test]
fn run_ends_program_at_time_limit() {
    let ran =
        fpgactl(&["run", "--timeout", "100ms", "--", "sh", "-c", "dd if=/dev/xdma0_events_0 bs=4 count=1"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("sh: not ended within the time limit"), "{}", ran.stderr);
}

#[test]
fn run_below_run_says_why_it_is_refused() {
    let ran = fpgactl(&["run", "--", env!("CARGO_BIN_EXE_fpgactl"), "run", "--", "true"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("true: this process is itself a program below `fpgactl run`")
            && ran.stderr.contains("help: start both programs"),
        "{}",
        ran.stderr
    );
}

/// The end of a waiting program is not an error of the card.
#[test]
fn run_killed_programs_print_no_error() {
    let script = "for file in c2h_0 events_0 c2h_0 events_0; do\n\
        dd if=/dev/xdma0_$file bs=4 count=1 & sleep 0.05; kill -9 $!; wait; done 2> /dev/null; echo done";
    let ran = fpgactl(&["run", "--card", "mock:us-plus-x8-stream", "--", "sh", "-c", script]);
    assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (0, "done\n", ""));
}

/// A register that answers late, here of a server that is stopped, holds up its caller, and no other call.
#[test]
fn run_late_register_holds_up_no_other_program() {
    let served = Served::start();
    let script = format!(
        "kill -STOP {0}; dd if=/dev/xdma0_control of=/dev/null bs=4 count=1 status=none & \
         until grep -q '^0 ' /proc/$!/syscall; do sleep 0.01; kill -0 $! || break; done; cat /proc/self/comm; kill -0 $!; \
         kill -CONT {0}; wait $!",
        served.id()
    );
    let ran =
        fpgactl(&["run", "--card", &served.card(), "--message-timeout", "30s", "--", "sh", "-c", &script]);
    assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (0, "cat\n", ""));
}

/// Compiles the vendor's tools beside copies of its scripts. `None`, with a message, without the vendor's files.
fn vendor_tools(folder: &Path) -> Option<PathBuf> {
    let Some(source) = std::env::var_os(VENDOR).map(PathBuf::from) else {
        skipped(format_args!(
            "{VENDOR} is not set to the directory XDMA/linux-kernel of the vendor's driver"
        ));
        return None;
    };
    // The tools include a header of the module.
    for part in ["tools", "tests", "xdma"] {
        let copied = Command::new("cp").arg("-r").arg(source.join(part)).arg(folder).status().unwrap();
        assert!(copied.success());
    }
    let made = Command::new("make").arg("-s").arg("-C").arg(folder.join("tools")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(folder.to_owned())
}

/// Runs a script in the folder of the vendor's tests; returns what it says.
fn run_script(folder: &Path, card: &str, script: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(["run", "--card", card, "--", "sh", "-c", script]).current_dir(folder.join("tests"));
    let ran = command.output().unwrap();
    let (said, failed) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{card}: {said}{failed}");
    said.into_owned()
}

/// Every tool and the test script, on one memory-mapped card.
fn vendor_tools_pass(folder: &Path, card: &str) {
    let said = run_script(folder, card, include_str!("vendor.sh"));
    assert!(said.contains("All tests in run_tests.sh passed"), "{card}: {said}");
}

#[test]
fn vendor_tools_and_scripts_pass_on_simulated_card() {
    let folder = tempfile::tempdir().unwrap();
    let Some(tools) = vendor_tools(folder.path()) else { return };
    vendor_tools_pass(&tools, "mock");
    let said = run_script(&tools, "mock:us-plus-x8-stream", "./run_test.sh");
    assert!(
        said.contains("core is streaming") && said.contains("All tests in run_tests.sh passed"),
        "{said}"
    );
    let said = run_script(&tools, "mock", "../tools/performance -d /dev/xdma0_h2c_0 -s 4096");
    assert!(said.contains("IOCTL_XDMA_PERF_STOP succesful"), "{said}");
}

#[test]
fn vendor_tools_and_scripts_pass_on_served_card() {
    let folder = tempfile::tempdir().unwrap();
    let Some(tools) = vendor_tools(folder.path()) else { return };
    let served = Served::start();
    vendor_tools_pass(&tools, &served.card());
}
