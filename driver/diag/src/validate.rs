//! Self-test of a card, with a remedy for each problem.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let backend = fpga_driver::sim::SimNetwork::builder().cards(1).build()?.backend(0);
//! use fpga_diag::validate;
//! use fpga_driver::Card;
//!
//! let card = Card::from_backend(backend)?;
//! let report = validate::run(&card, validate::ValidateOptions::default(), &mut |test| println!("{test}"));
//! assert!(!report.has_failed());
//! # Ok(())
//! # }
//! ```
//!
//! # Tests
//!
//! | Names | Content |
//! |---|---|
//! | `config.*` | configuration space, BAR roles |
//! | `registers.*` | identifiers, the scratch bit, the aliases of the masks, alignments |
//! | `memory.*` | saving and restoring the card memory that the tests use |
//! | `transfer.*` | every channel: sizes, offsets, patterns, with guard bytes around; all channels at once |
//! | `descriptors.*` | completed counts, long chains of small descriptors, several blocks of long ones |
//! | `writeback`, `interrupts.*` | completion by write-back, by interrupt, and by both together |
//! | `credits.*` | descriptor credit mode, which [`RunMode::Credit`](fpga_driver::RunMode::Credit) requires |
//! | `abort` | stopping a run |
//! | `cdma.*`, `ni.*` | the CDMA engine; the network interface |
//! | `streams.packets` | on a card with AXI4-Stream channels: packets through each of them, if requested ([`ValidateOptions::streams`]) |
//!
//! The self-test drives the channels with its own register accesses and descriptors, not through [`H2cChannel`](fpga_driver::H2cChannel), so
//! that it can do what the driver's channels never do. A *failure* means that the card cannot be used normally. A *warning* means that an
//! optional feature does not work, and names the setting to avoid. A test that cannot run is *skipped* with the reason. The self-test
//! reports no data rates: those are for a benchmark, after all tests have passed.
//!
//! # Side effects
//!
//! Channels, the CDMA engine and the endpoint are skipped if the process holds them. Card memory is used in one range only
//! ([`ValidateOptions::scratch`]), saved before and restored after the tests. Registers are restored. The user BAR is read only if the card
//! has this project's identity block.
//!
//! By default the range is the last 2 MiB of card memory before the 64 KiB that an [`Endpoint`](fpga_rdma::Endpoint) reserves, because programs
//! mostly fill memory from the start. If the size of the memory is not known (no network interface), the caller has to give a range.

mod cdma;
mod completion;
mod context;
mod credits;
mod descriptors;
mod memory;
mod network;
mod pattern;
mod problem;
mod registers;
mod result;
mod side_effects;
mod streams;
mod test_channel;
mod transfers;

use core::time::Duration;

use fpga_driver::{Card, CardRange};

pub use fpga_pci::host::Status;
pub use result::{Report, TestResult};
pub use side_effects::side_effects;

use context::{ResultRecorder, TestContext};

/// Default size of scratch memory in bytes.
pub const SCRATCH_BYTES: u64 = 2 << 20;
/// Minimum size of scratch memory in bytes: the block memory of the vendor's example design.
pub const SCRATCH_MIN: u64 = 4096;

/// Options of a self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValidateOptions {
    /// Card memory that tests may overwrite, at least [`SCRATCH_MIN`] bytes. With less than [`SCRATCH_BYTES`] the longest transfers are
    /// skipped. Default: see the [module](self).
    pub scratch: Option<CardRange>,
    /// Seed of the random pattern. Default 1.
    pub seed: u64,
    /// Maximum time of one transfer, one interrupt or one stop. Default 2 s.
    pub timeout: Duration,
    /// Send and receive packets on a card whose channels are AXI4-Stream. Default false: a C2H channel without arriving data stays busy
    /// until the card is reset.
    pub streams: bool,
}

impl Default for ValidateOptions {
    fn default() -> Self {
        Self { scratch: None, seed: 1, timeout: Duration::from_secs(2), streams: false }
    }
}

impl ValidateOptions {
    /// Sets the card memory that tests may overwrite.
    #[must_use]
    pub const fn scratch(mut self, range: CardRange) -> Self {
        self.scratch = Some(range);
        self
    }

    /// Sets the seed of the random pattern.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets whether to send and receive packets.
    #[must_use]
    pub const fn streams(mut self, streams: bool) -> Self {
        self.streams = streams;
        self
    }

    /// Sets the maximum time of each step.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Tests `card`. `report` is called with every result as soon as it is available.
///
/// Transfers on channels with other owners continue meanwhile. Once the card is gone, or an engine does not stop, the remaining tests are
/// skipped; memory that an engine may still reach is [quarantined](fpga_pci::DmaPool::quarantined).
pub fn run(card: &Card, options: ValidateOptions, report: &mut dyn FnMut(&TestResult)) -> Report {
    run_until_stopped(card, options, &|| true, report)
}

/// As [`run`], until `go_on` returns false; it is called before each test. The remaining tests are skipped then; saved memory is restored.
pub fn run_until_stopped(
    card: &Card,
    options: ValidateOptions,
    go_on: &dyn Fn() -> bool,
    report: &mut dyn FnMut(&TestResult),
) -> Report {
    let mut context = TestContext::new(card, options);
    let mut recorder = ResultRecorder::new(card, go_on, report);
    registers::run(&mut context, &mut recorder);
    memory::save(&mut context, &mut recorder);
    transfers::run(&mut context, &mut recorder);
    descriptors::run(&mut context, &mut recorder);
    completion::run(&mut context, &mut recorder);
    credits::run(&mut context, &mut recorder);
    cdma::run(&mut context, &mut recorder);
    network::run(&mut context, &mut recorder);
    // Last, because these tests may wedge an engine permanently.
    descriptors::run_long(&mut context, &mut recorder);
    streams::run(&mut context, &mut recorder);
    memory::restore(&mut context, &mut recorder);
    recorder.finish(&context)
}
