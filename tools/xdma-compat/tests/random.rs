//! The C program `programs/random_calls.c`: random calls, compared with a model of character devices.

use std::process::Command;

use fpga_driver::Card;
use fpga_pci::Backend as _;
use fpga_sim::CardDescription;
use xdma_compat::Device;

use crate::support::{TIMEOUT, compiled, network};

/// BAR of the default card with a window onto its memory.
const BYPASS: u8 = 2;

fn random_calls_behave_as_model(seed: u64, count: u64) {
    let folder = tempfile::tempdir().unwrap();
    let network = network(CardDescription::default());
    let backend = network.backend(0);
    let bypass = backend.open_bar(BYPASS).unwrap();
    let device = Device::new(Card::from_backend(backend).unwrap(), Some(bypass), TIMEOUT);
    let mut command = Command::new(compiled("random_calls"));
    command.arg(seed.to_string()).arg(count.to_string()).arg(folder.path());
    let status = xdma_compat::run(vec![device], command, None, |_| ()).unwrap();
    assert!(status.success(), "seed {seed}: {status}");
    // Nothing was created in the folder of device files.
    let left = std::fs::read_dir("/dev").unwrap().flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("xdma")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn random_calls_of_short_programs_behave_as_model() {
    for seed in 1..=4 {
        random_calls_behave_as_model(seed, 500);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "long: 30 s: 100,000 random calls"]
fn random_calls_of_long_program_behave_as_model() {
    // For runs with other seeds.
    let seed = std::env::var("FPGA_RANDOM_SEED").map_or(63, |seed| seed.parse().unwrap());
    random_calls_behave_as_model(seed, 100_000);
}
