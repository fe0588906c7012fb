//! Random transfers under random impairments. Each is checked: it has to arrive completely, or to end in an error before its deadline.
//!
//! A *round* is a separate network: one sender, one receiver, two links with conditions drawn from the seed (`parameters`), and some
//! hundred transfers, some of them to memory that an earlier one has used. Packets are real ones, with bytes and checksum. Unlike the tests
//! of the state machines, a round has both of them, restarts and pauses of the hosts, and checks every byte. The invariants:
//!
//! * A transfer ends at the sender once, and not after its deadline.
//! * If it succeeded, the receiving application was notified once, and every byte is there and stays until the memory is used again.
//! * The receiving application is notified at most once in one incarnation of its node.
//! * Nothing is written outside the memory of the transfers in progress.
//! * When op numbers are reused, no number names another packet while a packet or an acknowledgement of its last one is in flight, and no
//!   transfer fails because of an answer to another.
//! * After a round, the tables of both sides are empty.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use fpga_protocol::Nanos;

use crate::parallel;

mod arena;
mod parameters;
mod round;

/// Impairments that are drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum FaultMix {
    /// Loss up to 10 %, bursts, disorder up to degree 256, duplicates, corruption, lost answers, blackouts, restarts, and hosts that pause
    /// for longer than their receivers keep state.
    #[value(name = "everything")]
    All,
    /// Duplicates that are delayed for nearly a packet lifetime, while op numbers of few bits are reused many times, and transfer ids wrap.
    /// In some rounds most transfers miss a short deadline of their own.
    DelayedDuplicates,
}

/// Amount and kind of work.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SoakOptions {
    /// Kind of impairments.
    pub faults: FaultMix,
    /// Total number of transfers.
    pub transfers: u64,
    /// Maximum length of a transfer in bytes; the logarithms of sizes are uniformly distributed.
    pub longest: u64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Number of threads; the result does not depend on it.
    pub threads: usize,
    /// Single round to run, for replaying the round of an [`InvariantViolation`].
    pub only: Option<u64>,
}

/// Result of a check; the error is the violated invariant.
type Check<T = ()> = Result<T, String>;

/// Number of transfers per round.
const TRANSFERS_PER_ROUND: u64 = 500;

/// Declares the counts of all rounds, their sum, and their names in the order of the declaration.
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Results, summed over all rounds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct SoakTotals {
            $($(#[$doc])* pub $name: u64,)*
            /// Total simulated time of all rounds.
            pub simulated: Nanos,
        }

        impl SoakTotals {
            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                self.simulated = self.simulated.saturating_add(other.simulated);
            }

            /// Returns name and value of each count.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

totals! {
    /// Number of rounds.
    rounds,
    /// Transfers submitted.
    transfers,
    /// Bytes submitted.
    bytes,
    /// Transfers whose size was drawn from the whole range. In rounds of small packets or tables, where long transfers would take long, the
    /// maximum is 16 KiB.
    of_any_size,
    /// Transfers that succeeded.
    completed,
    /// Transfers that missed their own deadline.
    deadline,
    /// Transfers given up because no answer arrived.
    unanswered,
    /// Transfers whose state was dropped by a receiver that was restarted, or that received nothing while the sender's host paused.
    state_dropped,
    /// Transfers refused: a restarted receiver has no better way to distinguish a late packet from a new one.
    refused,
    /// Transfers lost with a sender that was restarted.
    abandoned,
    /// Transfers in rounds with a loss of at most 5 %, no restart and no pause.
    gentle,
    /// Successful transfers among those of `gentle`.
    gentle_completed,
    /// Data packets sent for the first time.
    packets,
    /// Retransmissions of data packets.
    retransmits,
    /// Frames lost, in both directions, for any reason.
    lost,
    /// Frames corrupted.
    corrupted,
    /// Frames duplicated.
    duplicated,
    /// Duplicates and late packets that the receiver dropped.
    duplicates,
    /// Packets that arrived before the start packet of their segment.
    escaped,
    /// Segments refused because the registry was full.
    registry_full,
    /// Restarts of either side.
    restarts,
    /// Pauses of several seconds of the sender's host.
    pauses,
    /// Answers to packets that the sender had completed.
    stale,
    /// Op numbers assigned to another packet than the last time: with [`FaultMix::DelayedDuplicates`].
    numbers_reused,
    /// Wrap-arounds of transfer ids: with [`FaultMix::DelayedDuplicates`].
    ids_wrapped,
}

impl SoakTotals {
    /// Transfers that ended in an error, not counting those lost with a restarted sender.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.deadline + self.unanswered + self.state_dropped + self.refused
    }
}

/// Violation of an invariant: a defect of the scheme. The round's seed replays it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("round {round} of seed {seed}, after {at}: {invariant}")]
pub struct InvariantViolation {
    /// Seed of the soak test.
    pub seed: u64,
    /// Round.
    pub round: u64,
    /// Time within the round.
    pub at: Nanos,
    /// Violation, with transfer and values.
    pub invariant: String,
}

impl SoakOptions {
    /// Creates options for `transfers` of up to 1 MiB.
    #[must_use]
    pub const fn new(faults: FaultMix, transfers: u64, seed: u64) -> Self {
        Self { faults, transfers, longest: 1 << 20, seed, threads: 1, only: None }
    }

    /// Runs all rounds. `progress` is called with the number of completed transfers.
    ///
    /// # Errors
    /// The first violated invariant, of the lowest round.
    pub fn run(&self, mut progress: impl FnMut(u64)) -> Result<SoakTotals, InvariantViolation> {
        let first = self.only.unwrap_or(0);
        let rounds = self.only.map_or(self.transfers.div_ceil(TRANSFERS_PER_ROUND), |_| 1);
        let failed = AtomicU64::new(u64::MAX);
        let job = |number: usize| {
            let round = first + number as u64;
            // Lower rounds run to their end: the lowest violation is reported.
            if round > failed.load(Ordering::Relaxed) {
                return Ok(SoakTotals::default());
            }
            let transfers =
                TRANSFERS_PER_ROUND.min(self.transfers.saturating_sub(round * TRANSFERS_PER_ROUND)).max(1);
            round::run(self, round, transfers).inspect_err(|_| {
                failed.fetch_min(round, Ordering::Relaxed);
            })
        };
        let mut done = 0;
        let results = parallel::map(usize::try_from(rounds).unwrap_or(usize::MAX), self.threads, job, |_| {
            done += TRANSFERS_PER_ROUND;
            progress(done);
            ControlFlow::Continue(())
        });
        let mut sum = SoakTotals::default();
        for result in results.into_iter().flatten() {
            sum.add(&result?);
        }
        Ok(sum)
    }
}
