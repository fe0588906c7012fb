//! Random transfers under random impairments. Each is checked: it has to arrive completely, or to end in an error before its deadline.
//!
//! A *round* is a separate network: one sender, one receiver, two links with conditions drawn from the seed, and some hundred transfers,
//! some of them to memory that an earlier one has used. Packets are real ones, with bytes and checksum. The invariants for each transfer:
//!
//! * It ends at the sender once, and not after its deadline.
//! * If it succeeded, the receiving application was notified once, and every byte is there and stays until the memory is used again.
//! * The receiving application is notified at most once in one incarnation of its node.
//! * Nothing is written outside the memory of the transfers in progress.
//! * When op numbers are reused, no number names another packet while a packet or an acknowledgement of its last one is in flight, and no
//!   transfer fails because of an answer to another.
//!
//! After a round, the tables of both sides are empty.

use std::fmt;

use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfigError;
use fpga_protocol::sender::SenderConfigError;
use fpga_registers::quantity;

mod arena;
mod op_numbers;
mod round;

/// Impairments that are drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultMix {
    /// Everything: loss up to 10 %, bursts, disorder up to degree 256, copies, corruption, lost answers, blackouts, restarts, and hosts
    /// that pause for longer than their receivers keep state.
    All,
    /// Copies that are held back for nearly a packet lifetime, while op numbers of few bits are reused many times, and transfer ids wrap.
    /// In some rounds most transfers miss a short deadline of their own.
    DelayedDuplicates,
}

/// Amount and kind of work.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SoakOptions {
    /// Kind of impairments.
    pub trouble: FaultMix,
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

impl SoakOptions {
    /// Creates options for `transfers` of up to 1 MiB.
    #[must_use]
    pub const fn new(trouble: FaultMix, transfers: u64, seed: u64) -> Self {
        Self { trouble, transfers, longest: 1 << 20, seed, threads: 1, only: None }
    }
}

/// Number of transfers per round.
const ROUND: u64 = 500;

/// Results, summed over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SoakTotals {
    /// Number of rounds.
    pub rounds: u64,
    /// Transfers submitted.
    pub transfers: u64,
    /// Bytes submitted.
    pub bytes: u64,
    /// Transfers that succeeded.
    pub completed: u64,
    /// Transfers that missed their own deadline.
    pub deadline: u64,
    /// Transfers given up because no answer arrived.
    pub unanswered: u64,
    /// Transfers whose state was dropped by a receiver that was restarted, or that received nothing while the sender's host paused.
    pub forgotten: u64,
    /// Transfers refused: a restarted receiver has no better way to distinguish a late packet from a new one.
    pub refused: u64,
    /// Transfers lost with a sender that was restarted.
    pub abandoned: u64,
    /// Transfers in rounds with a loss of at most 5 %, no restart and no pause.
    pub gentle: u64,
    /// Successful transfers among those of `gentle`.
    pub gentle_completed: u64,
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Retransmissions of data packets.
    pub retransmits: u64,
    /// Frames lost, in both directions, for any reason.
    pub lost: u64,
    /// Frames corrupted.
    pub damaged: u64,
    /// Frames duplicated.
    pub duplicated: u64,
    /// Duplicates and late packets that the receiver dropped.
    pub duplicates: u64,
    /// Packets that arrived before the start packet of their segment.
    pub escaped: u64,
    /// Segments refused because the registry was full.
    pub registry_full: u64,
    /// Restarts of either side.
    pub restarts: u64,
    /// Pauses of several seconds of the sender's host.
    pub pauses: u64,
    /// Transfers whose size was drawn from the whole range. In rounds of small packets or tables, where long transfers would take long, the
    /// maximum is 16 KiB.
    pub of_any_size: u64,
    /// Op numbers assigned to another packet than the last time: with [`FaultMix::DelayedDuplicates`].
    pub numbers_reused: u64,
    /// Wrap-arounds of transfer ids: with [`FaultMix::DelayedDuplicates`].
    pub ids_wrapped: u64,
    /// Answers to packets that the sender had completed.
    pub stale: u64,
    /// Total simulated time of all rounds.
    pub simulated: Nanos,
}

impl SoakTotals {
    fn add(&mut self, other: &Self) {
        let Self {
            rounds,
            transfers,
            bytes,
            completed,
            deadline,
            unanswered,
            forgotten,
            refused,
            abandoned,
            gentle,
            gentle_completed,
            packets,
            retransmits,
            lost,
            damaged,
            duplicated: doubled,
            duplicates,
            escaped,
            registry_full,
            restarts,
            pauses,
            of_any_size,
            numbers_reused,
            ids_wrapped,
            stale,
            simulated,
        } = other;
        for (sum, part) in [
            (&mut self.rounds, rounds),
            (&mut self.transfers, transfers),
            (&mut self.bytes, bytes),
            (&mut self.completed, completed),
            (&mut self.deadline, deadline),
            (&mut self.unanswered, unanswered),
            (&mut self.forgotten, forgotten),
            (&mut self.refused, refused),
            (&mut self.abandoned, abandoned),
            (&mut self.gentle, gentle),
            (&mut self.gentle_completed, gentle_completed),
            (&mut self.packets, packets),
            (&mut self.retransmits, retransmits),
            (&mut self.lost, lost),
            (&mut self.damaged, damaged),
            (&mut self.duplicated, doubled),
            (&mut self.duplicates, duplicates),
            (&mut self.escaped, escaped),
            (&mut self.registry_full, registry_full),
            (&mut self.restarts, restarts),
            (&mut self.pauses, pauses),
            (&mut self.of_any_size, of_any_size),
            (&mut self.numbers_reused, numbers_reused),
            (&mut self.ids_wrapped, ids_wrapped),
            (&mut self.stale, stale),
        ] {
            *sum += part;
        }
        self.simulated = self.simulated.saturating_add(*simulated);
    }

    /// Transfers that ended in an error, not counting those lost with a restarted sender.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.deadline + self.unanswered + self.forgotten + self.refused
    }
}

/// Violation of an invariant: a defect of the scheme. The round's seed replays it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("round {round} of seed {seed}, after {at}: {what}")]
pub struct InvariantViolation {
    /// Seed of the soak test.
    pub seed: u64,
    /// Round.
    pub round: u64,
    /// Time within the round.
    pub at: Nanos,
    /// Violated invariant.
    pub what: Invariant,
}

/// Invariant that was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invariant {
    /// A byte of a transfer that has arrived is wrong.
    #[error("transfer {transfer}: byte {offset} of {length} is wrong {when}")]
    Corrupted {
        /// Number of the transfer in its round.
        transfer: u64,
        /// Offset of the first wrong byte.
        offset: u64,
        /// Length of the transfer in bytes.
        length: u64,
        /// Time of detection.
        when: DetectionTime,
    },
    /// A write went outside of all transfers.
    #[error(
        "write of {length} at {address:#x}, outside the memory of all transfers",
        length = quantity(*length, "byte"),
    )]
    StrayWrite {
        /// Address of the first byte.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
    /// A transfer ended twice, or was never submitted.
    #[error("transfer {transfer} ended twice, or was never submitted")]
    CompletedTwice {
        /// Number of the transfer in its round.
        transfer: u64,
    },
    /// A transfer ended after its deadline.
    #[error("transfer {transfer} ended {late} after its deadline")]
    DeadlineMissed {
        /// Number of the transfer in its round.
        transfer: u64,
        /// Lateness.
        late: Nanos,
    },
    /// The application was notified more than once in one incarnation of the receiver, or of a transfer that does not exist.
    #[error(
        "the receiving application was notified of transfer {transfer} twice, or the transfer does not exist"
    )]
    NotifiedTwice {
        /// Number of the transfer in its round.
        transfer: u64,
    },
    /// A transfer succeeded at the sender, but the receiving application was not notified.
    #[error("transfer {transfer} succeeded, but the receiving application was not notified")]
    NotNotified {
        /// Number of the transfer in its round.
        transfer: u64,
    },
    /// No event remains, or the time limit has passed.
    #[error("{left} without an end", left = quantity(*left, "transfer"))]
    Hung {
        /// Transfers that have not ended.
        left: u64,
    },
    /// A packet or an acknowledgement arrived under an op number that names another packet by then.
    #[error(
        "op number {op:#x} was assigned to another packet while a packet or acknowledgement of its previous packet was in flight"
    )]
    OpNumberReused {
        /// Op number.
        op: u32,
    },
    /// A table is not empty at the end.
    #[error("not empty at the end of the round: {what}")]
    NotReleased {
        /// Name of the table.
        what: &'static str,
    },
    /// The round could not be set up.
    #[error("sender: {0}")]
    Sender(SenderConfigError),
    /// The round could not be set up.
    #[error("receiver: {0}")]
    Receiver(ReceiverConfigError),
    /// The round could not be set up.
    #[error("links: {0}")]
    Links(fpga_netmodel::OrderError),
}

/// Time at which wrong bytes were detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetectionTime {
    /// At the notification of the application.
    OnArrival,
    /// Later, before the memory was used again.
    Afterwards,
}

impl fmt::Display for DetectionTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnArrival => "on arrival",
            Self::Afterwards => "after arrival",
        })
    }
}

impl SoakOptions {
    /// Runs all rounds. `progress` is called with the number of completed transfers.
    ///
    /// # Errors
    /// The first violated invariant, of the lowest round.
    pub fn run(&self, progress: impl Fn(u64) + Sync) -> Result<SoakTotals, InvariantViolation> {
        let rounds = self.only.map_or(self.transfers.div_ceil(ROUND), |round| round.saturating_add(1));
        let threads = self.threads.max(1) as u64;
        let next = std::sync::atomic::AtomicU64::new(self.only.unwrap_or(0));
        let one = |round| {
            let transfers = ROUND.min(self.transfers.saturating_sub(round * ROUND)).max(1);
            let tally = round::run(self, round, transfers)?;
            Ok((round, tally))
        };
        let work = || {
            let mut done = Vec::new();
            loop {
                let round = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if round >= rounds {
                    return done;
                }
                let result = one(round);
                let failed = result.is_err();
                done.push(result);
                if failed {
                    // No further rounds: the lower ones are complete or running.
                    next.store(rounds, std::sync::atomic::Ordering::Relaxed);
                    return done;
                }
                progress((round + 1) * ROUND);
            }
        };
        let results: Vec<Result<(u64, SoakTotals), InvariantViolation>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut results = work();
            for handle in handles {
                match handle.join() {
                    Ok(more) => results.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            results
        });
        let mut sum = SoakTotals::default();
        let mut broken: Option<InvariantViolation> = None;
        for result in results {
            match result {
                Ok((_, tally)) => sum.add(&tally),
                Err(error) if broken.as_ref().is_none_or(|first| error.round < first.round) => {
                    broken = Some(error)
                }
                Err(_) => {}
            }
        }
        broken.map_or(Ok(sum), Err)
    }
}
