//! The C program `programs/nodes.c`: names of device files, and callers that are interrupted, killed or not served.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use fpga_sim::{CardDescription, SimNetwork, ThreadOptions};
use xdma_compat::RunError;

use crate::support::{compiled, device, network};

fn status(test: &str, network: &SimNetwork) -> ExitStatus {
    let mut command = Command::new(compiled("nodes"));
    command.arg(test);
    xdma_compat::run(vec![device(network)], command, None, |_| ()).unwrap()
}

fn passes(test: &str) {
    let status = status(test, &network(CardDescription::default()));
    assert!(status.success(), "{test}: {status}");
}

fn passes_with_streams(test: &str) {
    let mut description = CardDescription::default();
    description.xdma.stream = true;
    let builder = SimNetwork::builder().card(description).threaded(ThreadOptions::default());
    let status = status(test, &builder.build().unwrap());
    assert!(status.success(), "{test}: {status}");
}

#[test]
fn node_by_every_name_is_character_device() {
    passes("names");
}

#[test]
fn node_folders_are_listed_and_followed() {
    passes("folders");
}

#[test]
fn node_requests_complete_for_waiting_thread() {
    passes("asynchronous");
}

#[test]
fn node_descriptors_are_those_of_character_device() {
    passes("descriptors");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn node_mapped_at_reused_address_is_the_new_one() {
    passes("reused");
}

#[test]
fn node_read_is_interrupted_as_by_kernel() {
    passes_with_streams("interrupted");
}

#[test]
fn node_packet_of_killed_reader_is_for_the_next() {
    passes_with_streams("killed");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn node_call_of_32_bit_program_is_refused() {
    let status = status("narrow", &network(CardDescription::default()));
    if status.code() == Some(77) {
        fpga_pci::testing::skipped("the kernel runs no 32-bit programs");
        return;
    }
    assert!(status.success(), "{status}");
}

/// The name of the device file that several shell commands create elsewhere stays that of the device file.
#[test]
fn node_by_links_of_shell_is_device_file() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=255_u8).cycle().take(8192).collect();
    std::fs::write(folder.path().join("in"), &bytes).unwrap();
    let script = "set -e; ln -s /dev/xdma0_h2c_0 node; ln -s /dev folder; cp in node; head -c 8192 folder/xdma0_c2h_0 > out\n\
        cp in /dev/xdma0_h2c_1; head -c 8192 < /dev/xdma/card0/c2h1 | cmp - in; cat in > /dev/xdma0_h2c_2\n\
        chmod 600 node; test $(stat -c %a-%F /dev/xdma0_h2c_0 | tr ' ' .) = 600-character.special.file\n\
        test $(ls -d /dev/xdma0_* | wc -l) -ge 26; test $(realpath folder/xdma0_user) = /dev/xdma0_user\n\
        test -c node; test -w node; ls -l node folder/xdma0_user > /dev/null; ! rm -f /dev/xdma0_user 2> /dev/null\n\
        flock /dev/xdma0_user sh -c '! flock -n folder/xdma0_user true'; flock -n node true\n\
        exec 5<> /dev/xdma0_h2c_0; cp in /dev/fd/5; cp in /proc/self/fd/5; find /dev/xdma/card0/ -name 'h2c*' | grep -q h2c3";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder.path());
    let devices = vec![device(&network(CardDescription::default()))];
    let status = xdma_compat::run(devices, command, None, |_| ()).unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(std::fs::read(folder.path().join("out")).unwrap(), bytes);
}

#[test]
fn run_below_itself_is_refused() {
    // The test runs itself below the filter, where it finds this variable.
    const INNER: &str = "XDMA_COMPAT_INNER";
    if std::env::var_os(INNER).is_some() {
        let error = xdma_compat::run(Vec::new(), Command::new("true"), None, |_| ()).unwrap_err();
        assert!(matches!(error, RunError::Nested { .. }), "{error}");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "nodes::run_below_itself_is_refused"]).env(INNER, "1").stdout(Stdio::null());
    let status = xdma_compat::run(Vec::new(), command, None, |_| ()).unwrap();
    assert!(status.success(), "{status}");
}

/// Starts a program with a child that inherits the pipe: the pipe ends only when both have ended.
fn with_child(script: &str) -> (Command, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(writer);
    (command, reader)
}

#[test]
fn run_time_limit_ends_children_too() {
    let (command, mut output) = with_child("(setsid sh -c 'sleep 1000; :' &) ; sleep 1000 & wait");
    let devices = vec![device(&network(CardDescription::default()))];
    let error = xdma_compat::run(devices, command, Some(Instant::now()), |_| ()).unwrap_err();
    assert!(matches!(error, RunError::TimedOut { .. }), "{error}");
    output.read_to_end(&mut Vec::new()).unwrap();
}

/// The supervisor is a process of its own: this test, started again.
#[test]
fn run_supervisor_killed_ends_programs() {
    const INNER: &str = "XDMA_COMPAT_SUPERVISOR";
    if std::env::var_os(INNER).is_some() {
        let mut command = Command::new("sh");
        let script =
            "(setsid sh -c 'echo x; while :; do cat /dev/null; done' &); exec dd if=/dev/xdma0_events_0 bs=4";
        command.args(["-c", script]);
        let _ = xdma_compat::run(vec![device(&network(CardDescription::default()))], command, None, |_| ());
        return;
    }
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "nodes::run_supervisor_killed_ends_programs", "--nocapture"]).env(INNER, "1");
    command.stdout(writer).process_group(0);
    let mut supervisor = command.spawn().unwrap();
    drop(command);
    // Until the program's child has begun.
    let mut byte = [0];
    while reader.read(&mut byte).unwrap() == 1 && byte != *b"x" {}
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    reader.read_to_end(&mut Vec::new()).unwrap();
}

/// Without privileges, a process may not hide from the supervisor. The supervisor is this test, started again as another user.
#[test]
fn node_process_that_hides_is_refused() {
    const INNER: &str = "XDMA_COMPAT_USER";
    if let Some(program) = std::env::var_os(INNER) {
        let mut command = Command::new(program);
        command.arg("hidden");
        let devices = vec![device(&network(CardDescription::default()))];
        assert!(xdma_compat::run(devices, command, None, |_| ()).unwrap().success());
        let folder = tempfile::tempdir().unwrap();
        let script = "cp /bin/true unreadable && chmod 111 unreadable && ! ./unreadable 2> /dev/null && chmod 555 unreadable && ./unreadable";
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder.path());
        let devices = vec![device(&network(CardDescription::default()))];
        assert!(xdma_compat::run(devices, command, None, |_| ()).unwrap().success());
        return;
    }
    if !rustix::process::geteuid().is_root() {
        fpga_pci::testing::skipped("needs root, to become another user");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "nodes::node_process_that_hides_is_refused"])
        .env(INNER, compiled("nodes"))
        .stdout(Stdio::null());
    let status = command.uid(65534).gid(65534).status();
    match status {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(error) => {
            fpga_pci::testing::skipped(format_args!("the test cannot be started as another user: {error}"))
        }
    }
}
