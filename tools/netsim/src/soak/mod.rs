//! Random transfers under random trouble, each of them checked: does it arrive whole, or end in an error in time?
//!
//! A *round* is a network of its own: one sender, one receiver, two links with conditions drawn from the seed, and some hundred
//! transfers, some of them to memory that an earlier one has used. Packets are real ones, with bytes and checksum. What must
//! hold for each transfer:
//!
//! * it ends at the sender once, and not after its deadline;
//! * if it ended well, the receiving application was told once, and every byte is there and stays until the memory is used again;
//! * the receiving application is told at most once in one life of its node;
//! * nothing is written outside the memory of the transfers under way;
//! * where op numbers come round, none names another packet while a packet or an acknowledgement of its last one is under way, and no
//!   transfer is failed by what was said of another.
//!
//! And when a round is over, no table of either side holds anything.

use std::fmt;

use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfigError;
use fpga_protocol::sender::ConfigError;

mod arena;
mod op_numbers;
mod round;

/// What is drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultMix {
    /// Everything: loss up to 10 %, bursts, disorder up to degree 256, copies, damage, lost answers, blackouts, restarts, and
    /// hosts that stand still for longer than their receivers remember.
    All,
    /// Copies that are held back for nearly a packet lifetime, while op numbers of few bits come round many times, and
    /// transfer ids wrap; in some rounds most transfers miss a short deadline of their own.
    DelayedDuplicates,
}

/// How much to run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SoakOptions {
    /// What is drawn.
    pub trouble: FaultMix,
    /// Transfers in total.
    pub transfers: u64,
    /// Longest transfer in bytes; sizes are spread evenly over their logarithm.
    pub longest: u64,
    /// Seed of everything.
    pub seed: u64,
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// Only this round: to replay what [`InvariantViolation`] names.
    pub only: Option<u64>,
}

impl SoakOptions {
    /// `transfers` of up to 1 MiB.
    #[must_use]
    pub const fn new(trouble: FaultMix, transfers: u64, seed: u64) -> Self {
        Self { trouble, transfers, longest: 1 << 20, seed, threads: 1, only: None }
    }
}

/// Transfers of one round.
const ROUND: u64 = 500;

/// What came out, summed over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SoakTotals {
    /// Rounds.
    pub rounds: u64,
    /// Transfers submitted.
    pub transfers: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Ended well.
    pub completed: u64,
    /// Missed their own deadline.
    pub deadline: u64,
    /// Given up in silence.
    pub unanswered: u64,
    /// Forgotten by a receiver that was restarted, or that heard nothing while the sender's host stood still.
    pub forgotten: u64,
    /// Refused: a receiver that was restarted can tell a late packet from a new one no better than this.
    pub refused: u64,
    /// Gone with a sender that was restarted.
    pub abandoned: u64,
    /// Transfers in rounds with a loss of at most 5 %, no restart and no pause.
    pub gentle: u64,
    /// Of these, ended well.
    pub gentle_completed: u64,
    /// Data packets sent for the first time.
    pub packets: u64,
    /// And again.
    pub retransmits: u64,
    /// Frames lost, in both directions, for whatever reason.
    pub lost: u64,
    /// Frames damaged.
    pub damaged: u64,
    /// Frames doubled.
    pub duplicated: u64,
    /// Copies and late packets that the receiver dropped.
    pub duplicates: u64,
    /// Packets that came before their segment's first one.
    pub escaped: u64,
    /// Segments refused because the registry was full.
    pub registry_full: u64,
    /// Restarts of one side.
    pub restarts: u64,
    /// Times that the sender's host stood still for seconds.
    pub pauses: u64,
    /// Transfers whose size was drawn from all there are: in rounds of small packets or tables, where long ones would take long, it is 16 KiB
    /// at most.
    pub of_any_size: u64,
    /// Op numbers that were given to another packet than the last time: with [`FaultMix::DelayedDuplicates`].
    pub numbers_reused: u64,
    /// Times that transfer ids went round their end: with [`FaultMix::DelayedDuplicates`].
    pub ids_wrapped: u64,
    /// Answers to packets that the sender had done with.
    pub stale: u64,
    /// Simulated time of all rounds together.
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

    /// Transfers that ended in an error of their own, not with a sender that was restarted.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.deadline + self.unanswered + self.forgotten + self.refused
    }
}

/// A promise was broken: a defect of the scheme. The round's seed replays it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("round {round} of seed {seed}, after {at}: {what}")]
pub struct InvariantViolation {
    /// The soak's seed.
    pub seed: u64,
    /// The round.
    pub round: u64,
    /// When, in the round's time.
    pub at: Nanos,
    /// What was found.
    pub what: Invariant,
}

/// What must hold, and did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invariant {
    /// A byte of a transfer that has arrived is wrong.
    #[error("transfer {transfer}: byte {offset} of {length} is wrong {when}")]
    Corrupted {
        /// Number of the transfer in its round.
        transfer: u64,
        /// First wrong byte.
        offset: u64,
        /// Bytes of the transfer.
        length: u64,
        /// When this was seen.
        when: DetectionTime,
    },
    /// A write outside of all transfers.
    #[error("{length} bytes were written at {address:#x}, where no transfer goes")]
    StrayWrite {
        /// First byte.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// Ended twice, or never submitted.
    #[error("transfer {transfer} ended again")]
    CompletedTwice {
        /// Number of the transfer in its round.
        transfer: u64,
    },
    /// Ended later than it may.
    #[error("transfer {transfer} ended {late} after its deadline")]
    DeadlineMissed {
        /// Number of the transfer in its round.
        transfer: u64,
        /// How late.
        late: Nanos,
    },
    /// Told more than once in one life of the receiver, or of a transfer that there is not.
    #[error("the receiving application was told of transfer {transfer} again, or wrongly")]
    NotifiedTwice {
        /// Number of the transfer in its round.
        transfer: u64,
    },
    /// Ended well at the sender, but the receiving application does not know.
    #[error("transfer {transfer} ended well, and the receiving application was not told")]
    NotNotified {
        /// Number of the transfer in its round.
        transfer: u64,
    },
    /// Nothing happens any more, or not within any reasonable time.
    #[error("{left} transfers never end")]
    Hung {
        /// Transfers that have not ended.
        left: u64,
    },
    /// A packet or an acknowledgement arrived under an op number that names another packet by then.
    #[error(
        "op number {op:#x} was given to another packet while one of its packets or acknowledgements was under way"
    )]
    OpNumberReused {
        /// The number.
        op: u32,
    },
    /// A table is not empty at the end.
    #[error("left over at the end: {what}")]
    NotReleased {
        /// Of which table.
        what: &'static str,
    },
    /// The round could not be set up.
    #[error("sender: {0}")]
    Sender(ConfigError),
    /// The round could not be set up.
    #[error("receiver: {0}")]
    Receiver(ReceiverConfigError),
    /// The round could not be set up.
    #[error("links: {0}")]
    Links(fpga_netmodel::OrderError),
}

/// When wrong bytes were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetectionTime {
    /// When the application was told.
    OnArrival,
    /// Later, before the memory was used again.
    Afterwards,
}

impl fmt::Display for DetectionTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnArrival => "on arrival",
            Self::Afterwards => "after its arrival",
        })
    }
}

impl SoakOptions {
    /// Runs all rounds. `progress` is told how many transfers are done.
    ///
    /// # Errors
    /// The first promise that was broken, of the lowest round.
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
                    // No more: what lies below is done or being done.
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
