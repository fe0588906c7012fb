//! Compiled programs and simulated cards.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fpga_driver::Card;
use fpga_sim::{CardDescription, SimNetwork};
use xdma_compat::Device;

/// Maximum duration of a transfer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The program `programs/NAME.c`, compiled by the first test that needs it.
pub(crate) fn compiled(name: &'static str) -> PathBuf {
    static COMPILED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if !compiled.contains(&name) {
        let source = format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", &source, "-o"];
        // Another process may run these tests.
        let own = path.with_extension(std::process::id().to_string());
        assert!(Command::new("cc").args(flags).arg(&own).status().expect("a C compiler").success());
        std::fs::rename(own, &path).expect("the same folder");
        compiled.push(name);
    }
    path
}

pub(crate) fn network(description: CardDescription) -> SimNetwork {
    SimNetwork::builder().card(description).build().unwrap()
}

pub(crate) fn device(network: &SimNetwork) -> Device {
    Device::new(Card::from_backend(network.backend(0)).unwrap(), None, TIMEOUT)
}
