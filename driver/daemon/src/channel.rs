//! Accesses of one channel of a view.
//!
//! | Access | Transfers of the owner |
//! |---|---|
//! | write, not the last one of its descriptor | returns while it is in flight |
//! | last write of a descriptor | returns when all of the descriptor's have ended |
//! | read | returns with its data; those after it are started ahead |
//! | of a later descriptor, begun ahead | on the channel of the card that has the others, so their order is kept |
//! | with a fixed address | a [`Sequence`] |

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fpga_driver::CardAddr;
use fpga_pci::lock;
use fpga_sim::DesignError;

use crate::lane::{BUFFER, Lane};
use crate::sequence::Sequence;
use crate::transfer::{MAX_TRANSFERS, Part, Start};

/// A channel of the view.
#[derive(Debug, Default)]
pub(crate) struct ChannelAccesses {
    /// Identifies the channel among those of all views.
    chain: u64,
    parts: VecDeque<Part>,
    /// Data of a write for which there was no free slot.
    unsent: Option<(CardAddr, Vec<u8>)>,
    /// Bytes of the descriptor beyond the access in progress.
    pub(crate) rest: u32,
    /// Access that consists of transfers in order.
    sequence: Option<Sequence>,
    /// An access has no response since then.
    pub(crate) waits_since: Option<Instant>,
}

impl ChannelAccesses {
    /// A channel without accesses. `chain` identifies it among those of all views.
    pub(crate) fn new(chain: u64) -> Self {
        Self { chain, ..Self::default() }
    }

    pub(crate) const fn chain(&self) -> u64 {
        self.chain
    }

    /// Drops all transfers: those in flight end without a view.
    pub(crate) fn abandon(&mut self, lanes: &[Mutex<Lane>]) {
        for part in self.parts.drain(..) {
            if let Some(lane) = lanes.get(part.lane) {
                lock(lane).abandon(part.slot);
            }
        }
        if let Some(mut sequence) = self.sequence.take() {
            sequence.abandon(lanes);
        }
        (self.unsent, self.waits_since) = (None, None);
    }

    /// Notes the result of an access: `None` without one.
    pub(crate) fn answer(&mut self, result: Option<Result<(), DesignError>>) -> Result<(), DesignError> {
        match result {
            None => {
                self.waits_since.get_or_insert_with(Instant::now);
                Err(DesignError::Pending)
            }
            Some(result) => {
                self.waits_since = None;
                result
            }
        }
    }

    fn start<'a>(&self, first: usize, at: CardAddr, length: usize, from: Option<&'a [u8]>) -> Start<'a> {
        let (has_transfers, chain, ends) = (!self.parts.is_empty(), self.chain, self.rest == 0);
        Start { first, lane: None, has_transfers, chain, at, length, from, ends }
    }

    /// Begins an access that is a sequence of transfers. Its result, as of [`sequence_result`](Self::sequence_result).
    pub(crate) fn begin_sequence(
        &mut self,
        lanes: &[Mutex<Lane>],
        sequence: Sequence,
        timeout: Duration,
        into: &mut [u8],
    ) -> Option<Result<(), DesignError>> {
        self.abandon(lanes);
        self.sequence = Some(sequence);
        self.sequence_result(lanes, timeout, into)
    }

    /// Returns whether the access in progress is a sequence of transfers.
    pub(crate) const fn has_sequence(&self) -> bool {
        self.sequence.is_some()
    }

    /// The sequence of transfers in progress.
    pub(crate) const fn sequence(&self) -> Option<&Sequence> {
        self.sequence.as_ref()
    }

    /// Result of the sequence of transfers in progress.
    pub(crate) fn sequence_result(
        &mut self,
        lanes: &[Mutex<Lane>],
        timeout: Duration,
        into: &mut [u8],
    ) -> Option<Result<(), DesignError>> {
        let Some(sequence) = &mut self.sequence else { return Some(Err(DesignError::Slave)) };
        let result = sequence.progress(lanes, timeout)?;
        if result.is_ok() {
            sequence.read(into);
        }
        self.sequence = None;
        Some(result)
    }

    /// Begins a write. Its result, as of [`write_result`](Self::write_result).
    pub(crate) fn write(
        &mut self,
        lanes: &[Mutex<Lane>],
        first: usize,
        at: CardAddr,
        from: &[u8],
    ) -> Option<Result<(), DesignError>> {
        match self.start(first, at, from.len(), Some(from)).on(lanes) {
            Ok(Some(part)) => self.parts.push_back(part),
            Ok(None) => self.unsent = Some((at, from.to_vec())),
            Err(error) => return self.failed(lanes, error),
        }
        self.write_result(lanes, first)
    }

    /// Returns whether the access of a later descriptor can begin.
    pub(crate) fn accepts_ahead(&self) -> bool {
        // A channel of the card keeps the order of its transfers.
        let lane = self.parts.front().map(|part| part.lane);
        self.rest == 0
            && self.unsent.is_none()
            && self.sequence.is_none()
            && (1..MAX_TRANSFERS).contains(&self.parts.len())
            && self.parts.iter().all(|part| Some(part.lane) == lane)
    }

    /// Begins the write of a later descriptor. Returns whether it has begun.
    pub(crate) fn write_ahead(&mut self, lanes: &[Mutex<Lane>], at: CardAddr, from: &[u8]) -> bool {
        self.begin_ahead(lanes, at, from.len(), Some(from))
    }

    /// Begins the read of a later descriptor likewise.
    pub(crate) fn read_ahead(&mut self, lanes: &[Mutex<Lane>], at: CardAddr, length: usize) -> bool {
        length <= BUFFER && self.begin_ahead(lanes, at, length, None)
    }

    fn begin_ahead(
        &mut self,
        lanes: &[Mutex<Lane>],
        at: CardAddr,
        length: usize,
        from: Option<&[u8]>,
    ) -> bool {
        if !self.accepts_ahead() {
            return false;
        }
        let lane = self.parts.front().map(|part| part.lane);
        match (Start { lane, ..self.start(0, at, length, from) }).on(lanes) {
            Ok(Some(part)) => {
                self.parts.push_back(part);
                true
            }
            // An error is reported when it is the descriptor's turn.
            Ok(None) | Err(_) => false,
        }
    }

    /// Result of the write in progress: the first part's if it has failed.
    pub(crate) fn write_result(
        &mut self,
        lanes: &[Mutex<Lane>],
        first: usize,
    ) -> Option<Result<(), DesignError>> {
        if let Some((at, data)) = &self.unsent {
            match self.start(first, *at, data.len(), Some(data)).on(lanes) {
                Ok(None) => {}
                Ok(Some(part)) => {
                    self.parts.push_back(part);
                    self.unsent = None;
                }
                Err(error) => return self.failed(lanes, error),
            }
        }
        let mut has_ended = false;
        while !has_ended
            && let Some(part) = self.parts.front()
            && let Some(lane) = lanes.get(part.lane)
            && let Some(result) = { lock(lane).take(part.slot, &mut []) }
        {
            if let Err(refused) = result {
                return self.failed(lanes, refused.into());
            }
            has_ended = part.ends;
            self.parts.pop_front();
        }
        let is_over = if self.rest == 0 { has_ended } else { self.parts.len() < MAX_TRANSFERS };
        (is_over && self.unsent.is_none()).then_some(Ok(()))
    }

    /// Drops the transfers of the descriptor in progress, not those of later ones.
    fn failed(&mut self, lanes: &[Mutex<Lane>], error: DesignError) -> Option<Result<(), DesignError>> {
        self.unsent = None;
        let own = match self.parts.iter().position(|part| part.ends) {
            Some(last) if self.rest == 0 => last + 1,
            _ => self.parts.len(),
        };
        for part in self.parts.drain(..own) {
            if let Some(lane) = lanes.get(part.lane) {
                lock(lane).abandon(part.slot);
            }
        }
        Some(Err(error))
    }

    /// Result of the read in progress, and transfers for those after it.
    pub(crate) fn read_result(
        &mut self,
        lanes: &[Mutex<Lane>],
        first: usize,
        at: CardAddr,
        into: &mut [u8],
    ) -> Option<Result<(), DesignError>> {
        if self.parts.front().is_some_and(|part| (part.at, part.length) != (at, into.len())) {
            // The descriptor that was read ahead was abandoned.
            self.abandon(lanes);
        }
        let mut next =
            self.parts.back().map_or(at.get(), |part| part.at.get().wrapping_add(part.length as u64));
        let end = at.get().wrapping_add(into.len() as u64).wrapping_add(self.rest.into());
        while self.parts.is_empty() || self.rest > 0 && self.parts.len() < MAX_TRANSFERS {
            let left = usize::try_from(end.wrapping_sub(next)).unwrap_or(usize::MAX);
            let length = if self.parts.is_empty() { into.len() } else { left.min(BUFFER) };
            if length == 0 {
                break;
            }
            match (Start { ends: true, ..self.start(first, CardAddr::new(next), length, None) }).on(lanes) {
                Ok(Some(part)) => self.parts.push_back(part),
                Ok(None) => break,
                // Reported when its turn comes.
                Err(_) if !self.parts.is_empty() => break,
                Err(error) => return Some(Err(error)),
            }
            next = next.wrapping_add(length as u64);
        }
        let part = self.parts.front()?;
        let result = lock(lanes.get(part.lane)?).take(part.slot, into)?;
        self.parts.pop_front();
        match result {
            Ok(()) => Some(Ok(())),
            Err(refused) => {
                if self.rest > 0 {
                    self.abandon(lanes);
                }
                Some(Err(refused.into()))
            }
        }
    }

    /// Polls the card's channels that have transfers of this one. Returns whether the access in progress has a result or can go on.
    pub(crate) fn poll(&mut self, lanes: &[Mutex<Lane>], timeout: Duration) -> bool {
        if let Some(sequence) = &mut self.sequence {
            return sequence.progress(lanes, timeout).is_some();
        }
        for (number, lane) in lanes.iter().enumerate() {
            if self.parts.iter().any(|part| part.lane == number) {
                lock(lane).poll(timeout);
            }
        }
        if self.parts.is_empty() {
            // Transfers of views that have ended may be in all slots.
            return lanes.iter().any(|lane| {
                let mut lane = lock(lane);
                lane.poll(timeout);
                lane.free_slots(false) > 0
            });
        }
        for part in &self.parts {
            match lanes.get(part.lane).and_then(|lane| lock(lane).result(part.slot)) {
                None => return false,
                // The last write of a descriptor waits for all.
                Some(Ok(())) if self.rest == 0 && !part.ends => {}
                Some(_) => return true,
            }
        }
        true
    }
}
