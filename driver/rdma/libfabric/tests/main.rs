//! Tests through libfabric itself: it loads the provider, and a C program calls it by the public headers.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is the failure report")]

mod exclusive;
mod fabtests;
mod failures;
mod mpi;
mod mpi_failures;
mod mpi_flood;
mod random;
mod shared;
mod traffic;

use fpga_pci::testing::skipped_without;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Endpoints of `transfers.c`, and the minimum number of packets that their cards receive: two transfers of 1 MiB.
const TRANSFERS: (usize, u64) = (2, (2 << 20) / traffic::MAX_PACKET);

/// The provider under its name for libfabric, in a directory of its own.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Self {
        let test = std::env::current_exe().unwrap();
        let built = test
            .ancestors()
            .skip(1)
            .map(|directory| directory.join("libfpga_fi.so"))
            .find(|path| path.exists());
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(
            built.expect("cargo builds the library for this test"),
            directory.path().join("libfpga-fi.so"),
        )
        .unwrap();
        Self(directory)
    }

    /// A program whose libfabric has this provider, and whose endpoints print their cards' counters.
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        self.prepare(&mut command);
        command.args(arguments).env("FI_LOG_LEVEL", "info");
        command
    }

    fn prepare(&self, command: &mut Command) {
        command
            .env("FI_PROVIDER_PATH", self.0.path())
            .env_remove("FI_LOG_LEVEL")
            .env_remove("FPGA_CARD")
            .env("FPGA_ADDRESS", "127.0.0.1")
            // For sockets that programs leave.
            .env("XDG_RUNTIME_DIR", self.0.path());
    }
}

/// Whether the provider has a sanitizer: only programs with its runtime can load it.
fn has_sanitizer() -> bool {
    std::env::var_os("FPGA_SANITIZER").is_some()
}

/// Compiles a C program with the installed libfabric; `None` if there is none. FPGA_LIBFABRIC names the prefix of another one.
fn compiled(source: &str, directory: &Path) -> Option<PathBuf> {
    let prefix = std::env::var("FPGA_LIBFABRIC").unwrap_or_else(|_| "/usr".to_owned());
    if !Path::new(&prefix).join("include/rdma/fabric.h").exists() {
        skipped_without(&format!("{prefix}/include/rdma/fabric.h"), "libfabric-dev");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let binary = directory.join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-O1", "-g", "-o"]);
    compiler.arg(&binary).arg(&source).arg(format!("-I{prefix}/include"));
    // The program has the sanitizer's runtime, which the provider uses.
    if let Ok(sanitizer) = std::env::var("FPGA_SANITIZER") {
        compiler.arg(format!("-fsanitize={sanitizer}"));
        if sanitizer == "thread" {
            compiler.args(["-fno-builtin", "-rdynamic"]).arg(source.with_file_name("thread_sanitizer.c"));
        }
    }
    if prefix != "/usr" {
        compiler.args([format!("-L{prefix}/lib"), format!("-Wl,-rpath,{prefix}/lib")]);
    }
    let Ok(output) = compiler.arg("-lfabric").output() else {
        skipped_without("a C compiler", "gcc");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(binary)
}

/// Compiles and runs a program that prints "ok" at its end, on simulated cards and without the provider. Its `endpoints` receive at least
/// `packets` packets in all.
fn check(source: &str, arguments: &[&str], endpoints: usize, packets: u64) {
    let installed = Installed::new();
    let Some(program) = compiled(source, installed.0.path()) else { return };
    traffic::check(&installed.command(&program, arguments).output().unwrap(), endpoints, packets);
    traffic::check_fails_without_provider(installed.command(&program, arguments));
}

#[test]
fn library_opens_objects_and_refuses_wrong_calls() {
    check("objects.c", &[], 0, 0);
}

#[test]
fn endpoints_exchange_data_through_cards() {
    check("transfers.c", &[], TRANSFERS.0, TRANSFERS.1);
}

#[test]
fn objects_in_forked_child_are_refused_and_parent_continues() {
    check("fork.c", &[], 2, 1);
}

#[test]
fn threads_use_the_same_objects() {
    let rounds = if has_sanitizer() { "40" } else { "100" };
    let installed = Installed::new();
    let Some(program) = compiled("threads.c", installed.0.path()) else { return };
    for progress in ["manual", "auto"] {
        let output = installed.command(&program, &[rounds, progress]).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.ends_with("ok\n"), "{out}{err}");
    }
}

#[test]
fn operations_in_the_steady_state_allocate_nothing() {
    // A sanitizer has an allocator of its own.
    if !has_sanitizer() {
        check("allocations.c", &[], 2, 1);
    }
}

#[test]
fn processor_time_per_message_is_measured() {
    check("cost.c", &["fpga", "8", "1000"], 2, 2000);
    check("cost.c", &["fpga", "65536", "500", "16"], 2, 500 * 65536 / traffic::MAX_PACKET);
}

#[test]
fn endpoint_unreachable_peer_is_reported_once() {
    let installed = Installed::new();
    let Some(program) = compiled("unreachable.c", installed.0.path()) else { return };
    let mut command = Command::new(program);
    installed.prepare(&mut command);
    let output = command.env("FPGA_GIVE_UP", "0.2").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("ok\n"), "{out}{err}");
    assert_eq!(err.matches("fpga://127.0.0.1:9 does not answer").count(), 1, "{err}");
}

#[test]
fn endpoints_of_shared_card_exchange_data() {
    let installed = Installed::new();
    let Some(program) = compiled("transfers.c", installed.0.path()) else { return };
    let owner = shared::Served::new();
    let output = installed.command(&program, &[]).env("FPGA_CARD", owner.card()).output().unwrap();
    traffic::check(&output, TRANSFERS.0, TRANSFERS.1);
}

/// Both endpoints of the process share its card.
#[test]
fn endpoints_of_the_card_of_a_process_exchange_data() {
    let installed = Installed::new();
    let Some(program) = compiled("transfers.c", installed.0.path()) else { return };
    let cards = exclusive::Exclusive::new();
    let output =
        installed.command(&program, &[]).env("FPGA_CARD", format!("{}0", cards.cards())).output().unwrap();
    traffic::check(&output, TRANSFERS.0, TRANSFERS.1);
}

/// A request that is refused has its reason on standard error, once, and what to do instead.
#[test]
fn unsupported_requests_are_refused_with_their_reason() {
    let installed = Installed::new();
    let Some(program) = compiled("unsupported.c", installed.0.path()) else { return };
    let output = installed.command(&program, &[]).output().unwrap();
    traffic::check(&output, 3, 1);
    let text = String::from_utf8_lossy(&output.stderr);
    for reason in [
        "capabilities FI_FENCE (wait for the completions",
        "capabilities FI_SOURCE_ERR (FI_SOURCE reports unknown senders as FI_ADDR_NOTAVAIL)",
        "capabilities FI_TRIGGER, FI_SHARED_AV",
        "flags of sending FI_FENCE",
        "poll sets (fi_poll_open) are not supported: call fi_cq_read",
        "wait sets (fi_wait_open) are not supported: open queues with FI_WAIT_FD",
        "FI_FENCE is not supported: wait for the completions",
        "atomic operations on long double are not supported: use double",
    ] {
        assert_eq!(text.matches(reason).count(), 1, "{reason}\n{text}");
    }
}

#[test]
fn fi_info_lists_provider() {
    if has_sanitizer() {
        return;
    }
    let installed = Installed::new();
    let Ok(output) = installed.command(Path::new("fi_info"), &["-p", "fpga"]).output() else {
        skipped_without("fi_info", "libfabric-bin");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    for line in ["provider: fpga", "fabric: fpga", "domain: mock", "type: FI_EP_RDM"] {
        assert!(text.contains(line), "{text}");
    }
}
