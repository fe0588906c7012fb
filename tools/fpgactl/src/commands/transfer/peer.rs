//! Status that the two ends of a transfer exchange beside the network: each is a program of its own, on a thread of its own.

use std::sync::{Arc, Mutex};

use fpga_pci::lock;
use fpga_sim::{Membership, Partitions};

/// State of one end, for the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// Transfers are still to come.
    #[default]
    Running,
    /// All transfers are complete.
    Finished,
    /// Nothing is in flight any more.
    Quiet,
    /// The end has failed.
    Failed,
}

/// Status of one end, for the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Status {
    pub(super) phase: Phase,
    /// Number of transfers begun (sender), or verified (receiver).
    pub(super) count: u64,
    /// Length of the last one begun (sender), or all bytes verified so far (receiver).
    pub(super) bytes: u64,
    /// Whether the end compares received data, which may wait for a slow output (receiver).
    pub(super) is_verifying: bool,
    /// Whether the end still takes part.
    pub(super) connected: bool,
}

/// Connection of one end to the other one; dropping it tells the other one that this end no longer takes part.
#[derive(Debug)]
pub(super) enum Peer {
    /// Simulated cards: what one end shows reaches the other one at a fixed virtual time, so that runs are repeatable.
    Simulated(Membership),
    /// Cards with real time.
    Real { shown: Arc<Mutex<[Status; 2]>>, number: usize },
}

impl Peer {
    /// Connections of the sender and of the receiver.
    pub(super) fn pair(partitions: Option<&Partitions>) -> Option<[Self; 2]> {
        if let Some(partitions) = partitions {
            let members: [Membership; 2] = partitions.join().try_into().ok()?;
            return Some(members.map(Self::Simulated));
        }
        let shown = Arc::new(Mutex::new([Status { connected: true, ..Status::default() }; 2]));
        Some([0, 1].map(|number| Self::Real { shown: Arc::clone(&shown), number }))
    }

    /// Shows `status` to the other end.
    pub(super) fn show(&self, status: Status) {
        match self {
            Self::Simulated(member) => {
                let Status { phase, count, bytes, is_verifying, .. } = status;
                member.show([phase as u64, count, bytes, is_verifying.into()]);
            }
            Self::Real { shown, number } => {
                if let Some(shown) = lock(shown).get_mut(*number) {
                    *shown = Status { connected: true, ..status };
                }
            }
        }
    }

    /// Own status, as far as it has reached the other end.
    pub(super) fn own(&self) -> Status {
        self.status(self.number())
    }

    /// Status of the other end.
    pub(super) fn other(&self) -> Status {
        self.status(1 - self.number().min(1))
    }

    fn number(&self) -> usize {
        match self {
            Self::Simulated(member) => member.number(),
            Self::Real { number, .. } => *number,
        }
    }

    fn status(&self, number: usize) -> Status {
        match self {
            Self::Simulated(member) => {
                let ([phase, count, bytes, verifying], connected) = member.board(number);
                let phase = match phase {
                    0 => Phase::Running,
                    1 => Phase::Finished,
                    2 => Phase::Quiet,
                    _ => Phase::Failed,
                };
                Status { phase, count, bytes, is_verifying: verifying != 0, connected }
            }
            Self::Real { shown, .. } => lock(shown).get(number).copied().unwrap_or_default(),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Self::Real { shown, number } = self
            && let Some(status) = lock(shown).get_mut(*number)
        {
            status.connected = false;
        }
    }
}
