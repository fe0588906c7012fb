//! Batches: one call for many small transfers of DMA memory.

use std::time::Duration;

use fpga_driver::{CardAddr, MemoryHandle, Ticket};

use super::engine::Engine;
use super::engine::stops::{Abandoned, MAX_STOP};
use super::work::{Step, Work};
use crate::error::{Class, Failure};
use crate::memory::{RegionPart, Use};
use crate::numbers::Numbers;

/// Checked batch.
pub(super) struct Batch {
    pub(super) part: RegionPart,
    /// Offset in `part` of each transfer.
    pub(super) offsets: Numbers,
    /// First card address of each transfer.
    pub(super) addresses: Numbers,
    /// Length of every transfer in bytes.
    pub(super) length: usize,
}

/// Batch in progress: the ring is kept full.
pub(super) struct BatchWork {
    batch: Batch,
    /// Handle of the memory, which is in use until the batch has ended.
    started: Option<(MemoryHandle, Use)>,
    /// Number of transfers submitted.
    next: usize,
    /// Ranges of consecutive tickets: the first and the last one.
    submitted: Vec<(Ticket, Ticket)>,
}

impl Batch {
    /// Checks that all transfers lie in the memory, so that none is started otherwise.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.offsets.len() != self.addresses.len() {
            return Err(Failure::value(format!(
                "{} offsets and {} addresses: give as many of both",
                self.offsets.len(),
                self.addresses.len()
            )));
        }
        let fits = |offset: &u64| {
            usize::try_from(*offset)
                .ok()
                .and_then(|offset| offset.checked_add(self.length))
                .is_some_and(|end| end <= self.part.length)
        };
        match self.offsets.0.iter().find(|offset| !fits(offset)) {
            None => Ok(()),
            Some(offset) => Err(Failure::new(
                Class::RangeError,
                format!(
                    "{} bytes at offset {offset} are not inside the memory of {} bytes",
                    self.length, self.part.length
                ),
            )),
        }
    }
}

impl BatchWork {
    pub(super) const fn new(batch: Batch) -> Self {
        Self { batch, started: None, next: 0, submitted: Vec::new() }
    }

    /// Registers the memory and checks all addresses, so that no transfer is started otherwise.
    fn start(&self, engine: &mut Engine) -> Result<(MemoryHandle, Use), Failure> {
        let handle = engine.handle(&self.batch.part.region)?;
        for address in &self.batch.addresses.0 {
            let (address, length) = (CardAddr::new(*address), self.batch.length as u64);
            engine.direct.check_range(address, length)?;
        }
        Ok((handle, Use::of(&self.batch.part.region)))
    }

    /// Submits transfers, in order, until the ring is full. Returns the first and the last of them.
    fn submit(
        &mut self,
        engine: &mut Engine,
        handle: MemoryHandle,
    ) -> (Option<(Ticket, Ticket)>, Result<(), Failure>) {
        let Batch { part, offsets, addresses, length } = &self.batch;
        let pairs = offsets.0.iter().zip(&addresses.0).skip(self.next);
        let mut range: Option<(Ticket, Ticket)> = None;
        for (offset, address) in pairs {
            // The offset was checked against the memory.
            let offset = part.offset.saturating_add(usize::try_from(*offset).unwrap_or(usize::MAX));
            let submitted = engine.direct.submit_at(handle, offset, *length, CardAddr::new(*address));
            match submitted {
                Ok(ticket) => range = Some((range.map_or(ticket, |(first, _)| first), ticket)),
                Err(error) if error.is_full() => break,
                Err(error) => return (range, Err(error.into())),
            }
            self.next += 1;
        }
        (range, Ok(()))
    }

    fn record(&mut self, (first, last): (Ticket, Ticket)) {
        match self.submitted.last_mut() {
            Some((_, end)) if end.number() + 1 == first.number() => *end = last,
            _ => self.submitted.push((first, last)),
        }
    }
}

impl Work for BatchWork {
    fn advance(&mut self, engine: &mut Engine) -> Result<Step, Failure> {
        let count = self.batch.offsets.len();
        if self.batch.length == 0 || count == 0 {
            return Ok(Step::Done);
        }
        let handle = match &self.started {
            Some((handle, _)) => *handle,
            None => self.started.insert(self.start(engine)?).0,
        };
        while self.next < count {
            let (range, submitted) = self.submit(engine, handle);
            if let Some(range) = range {
                self.record(range);
            }
            submitted?;
            if self.next < count
                && engine.poll()? == 0
                && let Some(oldest) = engine.oldest()
            {
                return Ok(Step::Waiting(oldest));
            }
        }
        if let Some((_, last)) = self.submitted.last()
            && !engine.has_ended(*last)
        {
            return Ok(Step::Waiting(*last));
        }
        let failures: Vec<Failure> =
            self.submitted.drain(..).filter_map(|(first, last)| engine.take_failure(first, last)).collect();
        failures.into_iter().next().map_or(Ok(Step::Done), Err)
    }

    fn take_in_flight(&mut self, limit: Option<Duration>) -> Vec<Abandoned> {
        let limit = limit.unwrap_or(MAX_STOP);
        let mut memory = self.started.take().map(|(_, memory)| memory);
        let ranges = self.submitted.drain(..).rev();
        ranges.map(|(first, last)| Abandoned { first, last, limit, _memory: memory.take() }).collect()
    }

    fn longest(&self) -> usize {
        self.batch.length
    }
}
