//! The C program `programs/device_files.c`, and tools of the system.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fpga_sim::{CardDescription, SimNetwork, ThreadOptions};

use crate::support::{compiled, device, network};

/// Runs a command with a default card as xdma0; returns what it says.
fn output(mut command: Command) -> String {
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer).stdin(Stdio::null());
    let reading = std::thread::spawn(move || std::io::read_to_string(&mut reader).unwrap());
    let status =
        xdma_compat::run(vec![device(&network(CardDescription::default()))], command, None, |_| ()).unwrap();
    let text = reading.join().unwrap();
    assert!(status.success(), "{status}: {text}");
    text
}

/// Runs one test of the program.
fn passes(test: &str, network: &SimNetwork) {
    let mut command = Command::new(compiled("device_files"));
    command.arg(test);
    let status = xdma_compat::run(vec![device(network)], command, None, |_| ()).unwrap();
    assert!(status.success(), "{test}: {status}");
}

fn passes_on_default_card(test: &str) {
    passes(test, &network(CardDescription::default()));
}

#[test]
fn program_card_memory_reads_back() {
    passes_on_default_card("memory");
}

#[test]
fn program_replaced_descriptors_are_of_new_file() {
    passes_on_default_card("replaced");
}

#[test]
fn program_inaccessible_memory_ends_transfer_before_it() {
    passes_on_default_card("partial");
}

#[test]
fn program_descriptors_survive_dup_fork_exec() {
    passes_on_default_card("inheritance");
}

#[test]
fn program_and_its_child_use_open_files_at_the_same_time() {
    passes_on_default_card("forked");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn program_mapped_registers_behave_as_registers() {
    passes_on_default_card("registers");
}

#[test]
fn program_asynchronous_requests_complete() {
    passes_on_default_card("asynchronous");
}

#[test]
fn program_controls_answer_as_vendor_driver() {
    passes_on_default_card("controls");
}

#[test]
fn program_threads_share_channels() {
    passes_on_default_card("threads");
}

#[test]
fn program_read_of_no_event_is_interrupted() {
    passes_on_default_card("no-events");
}

#[test]
fn program_events_wake_every_kind_of_wait() {
    let network = network(CardDescription::default());
    let ends = Arc::new(AtomicBool::new(false));
    let (other, ended) = (network.clone(), Arc::clone(&ends));
    let raising = std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            other.pulse_user_interrupt(0, 2);
            std::thread::yield_now();
        }
    });
    passes("events", &network);
    ends.store(true, Ordering::Relaxed);
    raising.join().unwrap();
}

#[test]
fn program_stream_packets_return() {
    let mut description = CardDescription::default();
    description.xdma.stream = true;
    passes("streams", &network(description));
}

/// Neither the file position nor the channel of a waiting call delays other calls.
#[test]
fn program_waiting_calls_delay_no_others() {
    let mut description = CardDescription::default();
    description.xdma.stream = true;
    let network = SimNetwork::builder().card(description).threaded(ThreadOptions::default()).build().unwrap();
    passes("waiting", &network);
}

#[test]
fn shell_dd_and_its_children_share_card() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=255_u8).cycle().take(64 << 10).collect();
    std::fs::write(folder.path().join("in"), &bytes).unwrap();
    let mut command = Command::new("sh");
    let script = "dd if=in of=/dev/xdma0_h2c_0 status=none; dd if=/dev/xdma0_c2h_0 of=out count=128 status=none; ls /dev/xdma0_user";
    command.args(["-c", script]).current_dir(folder.path());
    assert_eq!(output(command), "/dev/xdma0_user\n");
    assert_eq!(std::fs::read(folder.path().join("out")).unwrap(), bytes);
}

#[test]
fn shell_status_and_signal_of_program_are_returned() {
    use std::os::unix::process::ExitStatusExt as _;
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        xdma_compat::run(vec![device(&network(CardDescription::default()))], command, None, |_| ()).unwrap()
    };
    assert_eq!(run("exit 7").code(), Some(7));
    assert_eq!(run("kill -9 $$").signal(), Some(9));
    // A child that outlives the program still has its card.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late");
    let late = format!(
        "(while kill -0 $$ 2> /dev/null; do :; done; head -c 4 /dev/xdma0_c2h_0 > {}) &",
        file.display()
    );
    assert_eq!(run(&late).code(), Some(0));
    assert_eq!(std::fs::read(file).unwrap(), [0; 4]);
}

#[test]
fn program_that_does_not_exist_is_named() {
    let error = xdma_compat::run(Vec::new(), Command::new("/nonexistent/program"), None, |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/program: No such file"), "{error}");
}

#[test]
fn program_is_killed_at_its_time_limit() {
    let mut command = Command::new("sh");
    command.args(["-c", "dd if=/dev/xdma0_events_1 bs=4 count=1 status=none"]);
    let limit = Some(std::time::Instant::now());
    let devices = vec![device(&network(CardDescription::default()))];
    let error = xdma_compat::run(devices, command, limit, |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "sh: not ended within the time limit, and killed");
}

/// A sample of fifty; the card and the supervisor serve the next program after each of them.
#[test]
fn shell_killed_programs_leave_card_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=255_u8).cycle().take(100_000).collect();
    std::fs::write(folder.path().join("in"), &bytes).unwrap();
    let script = "i=0; while [ $i -lt 50 ]; do\n\
        dd if=/dev/zero of=/dev/xdma0_h2c_0 bs=300000 seek=10 status=none & a=$!\n\
        dd if=/dev/xdma0_c2h_0 of=/dev/null bs=300000 status=none & b=$!\n\
        dd if=in of=/dev/xdma0_h2c_0 bs=100000 status=none\n\
        kill -9 $a $b; wait $a $b\n\
        dd if=/dev/xdma0_c2h_0 of=out bs=100000 count=1 status=none && cmp in out || exit 1\n\
        i=$((i + 1)); done 2> /dev/null; echo done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder.path());
    assert_eq!(output(command), "done\n");
}
