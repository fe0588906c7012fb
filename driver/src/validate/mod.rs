//! Self-test of a card: what works, what does not, and what to do about it.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let backend = fpga_driver::sim::SimNetwork::builder().cards(1).build()?.backend(0);
//! use fpga_driver::{Card, validate};
//!
//! let card = Card::open(backend)?;
//! let report = validate::run(&card, validate::ValidateOptions::default(), &mut |test| println!("{test}"));
//! assert!(!report.has_failed());
//! # Ok(())
//! # }
//! ```
//!
//! # What it tests
//!
//! | Names | What |
//! |---|---|
//! | `config.*` | configuration space, BAR roles |
//! | `registers.*` | identifiers, the scratch bit, the aliases of the masks, alignments |
//! | `memory.*` | saving and restoring the card memory that is used |
//! | `transfer.*` | every channel: sizes, offsets, patterns, with guard bytes around; all channels at once |
//! | `descriptors.*` | completed counts, long chains of small descriptors, several blocks of long ones |
//! | `writeback`, `interrupts.*` | completion by write-back, by interrupt, and by both together |
//! | `credits.*` | descriptor credit mode: what [`RunMode::Credit`](crate::RunMode::Credit) needs |
//! | `abort` | stopping a run |
//! | `cdma.*`, `ni.*` | the copy engine; the network interface |
//! | `streams.packets` | on a card with AXI4-Stream channels: packets through each of them, where it is asked for ([`ValidateOptions::streams`]) |
//!
//! It drives the channels by registers and descriptors of its own, not through [`H2cChannel`](crate::H2cChannel), so that it can
//! do what those never do. A *failure* says that the card cannot be used as it should; a *warning* that something optional
//! does not work, and which setting to keep away from; what could not be tried is *skipped* with the reason. It names no
//! rates: those are for a benchmark, after everything here has passed.
//!
//! # What it leaves alone
//!
//! A channel, the copy engine or the endpoint that somebody in this process holds is skipped. Card memory is used in one range
//! only ([`ValidateOptions::scratch`]), saved before and restored after; registers are put back. The user BAR is read only
//! where it is known to be ours.
//!
//! By default the range is the last 2 MiB of card memory before the 64 KiB that an
//! [`Endpoint`](crate::Endpoint) keeps for itself: programs mostly fill memory from the start. Where the size of the memory is
//! not known (no network interface), a range has to be given.

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

use crate::card::Card;
use crate::range::CardRange;

pub use fpga_pci::host::Status;
pub use result::{Report, TestResult};
pub use side_effects::side_effects;

use context::{ResultRecorder, TestContext};

/// Bytes of card memory used by default.
pub const SCRATCH_BYTES: u64 = 2 << 20;
/// The least that is of use: the block memory of the vendor's example design.
pub const SCRATCH_MIN: u64 = 4096;

/// How to test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValidateOptions {
    /// Card memory that may be used: at least [`SCRATCH_MIN`] bytes; with less than [`SCRATCH_BYTES`] the longest transfers are
    /// left out. Default: see the [module](self).
    pub scratch: Option<CardRange>,
    /// Seed of the random pattern. Default 1.
    pub seed: u64,
    /// How long one transfer, one interrupt or one stop may take. Default 2 s.
    pub timeout: Duration,
    /// Send and receive packets, on a card whose channels are AXI4-Stream. Default false: where nothing arrives at a C2H channel, it
    /// stays busy until the card is reset.
    pub streams: bool,
}

impl Default for ValidateOptions {
    fn default() -> Self {
        Self { scratch: None, seed: 1, timeout: Duration::from_secs(2), streams: false }
    }
}

impl ValidateOptions {
    /// Uses this card memory.
    #[must_use]
    pub const fn scratch(mut self, range: CardRange) -> Self {
        self.scratch = Some(range);
        self
    }

    /// Seeds the random pattern.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sends and receives packets.
    #[must_use]
    pub const fn streams(mut self, streams: bool) -> Self {
        self.streams = streams;
        self
    }

    /// Gives each step so long.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Tests `card`. `report` is told every result as it is there.
///
/// Transfers of others go on meanwhile, on channels that they hold. Once the card is gone, or an engine does not stop, what is
/// left is skipped; memory that an engine may still reach goes into [quarantine](fpga_pci::DmaPool::quarantined).
pub fn run(card: &Card, options: ValidateOptions, report: &mut dyn FnMut(&TestResult)) -> Report {
    run_until_stopped(card, options, &|| true, report)
}

/// As [`run`], as long as `go_on` says so, which is asked before each test. What is left is skipped then; what was saved is put back.
pub fn run_until_stopped(
    card: &Card,
    options: ValidateOptions,
    go_on: &dyn Fn() -> bool,
    report: &mut dyn FnMut(&TestResult),
) -> Report {
    let mut bench = TestContext::new(card, options);
    let mut recorder = ResultRecorder::new(card, go_on, report);
    registers::run(&mut bench, &mut recorder);
    memory::save(&mut bench, &mut recorder);
    transfers::run(&mut bench, &mut recorder);
    descriptors::run(&mut bench, &mut recorder);
    completion::run(&mut bench, &mut recorder);
    credits::run(&mut bench, &mut recorder);
    cdma::run(&mut bench, &mut recorder);
    network::run(&mut bench, &mut recorder);
    // What may wedge an engine for good comes last.
    descriptors::run_long(&mut bench, &mut recorder);
    streams::run(&mut bench, &mut recorder);
    memory::restore(&mut bench, &mut recorder);
    recorder.finish(&bench)
}
