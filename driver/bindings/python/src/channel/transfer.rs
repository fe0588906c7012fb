//! Transfers of one object: DMA memory in part, everything else through buffers of the driver.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpga_driver::errors::MemoryError;
use fpga_driver::{CardAddr, Direction, Ticket};
use fpga_pci::Clock;
use pyo3::prelude::*;

use super::engine::Engine;
use super::engine::stops::{Abandoned, MAX_STOP};
use super::shared::Shared;
use super::work::{Step, Work};
use crate::error::{Class, Failure};
use crate::foreign::Foreign;
use crate::memory::{RegionPart, Use};

/// Maximum length of a chunk in bytes. A longer transfer is cut into chunks, so that copies and transfers overlap.
const CHUNK_BYTES: usize = 1 << 20;
/// Time for which a poll by an event loop lets a card in virtual time work.
const VIRTUAL_WORK_TIME: Duration = Duration::from_micros(300);
/// Maximum number of chunks in flight.
const MAX_CHUNKS: usize = 4;

/// Transfer of all bytes of an object.
pub(super) struct Move {
    memory: Foreign,
    card: CardAddr,
    method: Method,
}

/// How the bytes move.
enum Method {
    /// In part; once it is submitted, with its ticket.
    Direct(RegionPart, Option<(Ticket, Use)>),
    /// Through buffers.
    Copy(Chunks),
}

#[derive(Default)]
struct Chunks {
    /// Number of bytes submitted.
    submitted: usize,
    /// Chunks in flight: `count` of them from `oldest` on, in a ring. Small transfers allocate nothing.
    in_flight: [Chunk; MAX_CHUNKS],
    oldest: usize,
    count: usize,
}

#[derive(Clone, Copy)]
struct Chunk {
    ticket: Ticket,
    offset: usize,
    length: usize,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { ticket: Ticket::from_number(0), offset: 0, length: 0 }
    }
}

fn failed(error: &MemoryError) -> Failure {
    Failure::new(Class::RefusedError, error.to_string())
}

impl Move {
    pub(super) fn new(memory: Foreign, part: Option<RegionPart>, card: CardAddr) -> Self {
        let method = match part {
            Some(part) => Method::Direct(part, None),
            None => Method::Copy(Chunks::default()),
        };
        Self { memory, card, method }
    }
}

/// Queues a transfer in part. `Err` in `Ok`: the ring is full, and this transfer is the oldest.
fn start(
    engine: &mut Engine,
    part: &RegionPart,
    card: CardAddr,
) -> Result<Result<(Ticket, Use), Ticket>, Failure> {
    match engine.submit_part(part, card) {
        Ok(ticket) => {
            engine.track_call(ticket);
            Ok(Ok((ticket, Use::of(&part.region))))
        }
        // The ring has space when the oldest transfer has ended.
        Err(failure) if failure.is(Class::RingFullError) => engine.oldest().map(Err).ok_or(failure),
        Err(failure) => Err(failure),
    }
}

impl Chunks {
    fn front(&self) -> Option<Chunk> {
        self.in_flight.get(self.oldest).copied().filter(|_| self.count > 0)
    }

    const fn pop(&mut self) {
        self.oldest = (self.oldest + 1) % MAX_CHUNKS;
        self.count -= 1;
    }

    fn push(&mut self, chunk: Chunk) {
        if let Some(element) = self.in_flight.get_mut((self.oldest + self.count) % MAX_CHUNKS) {
            *element = chunk;
            self.count += 1;
        }
    }

    fn advance(&mut self, engine: &mut Engine, memory: &Foreign, card: CardAddr) -> Result<Step, Failure> {
        let bytes = memory.view();
        if self.submitted == 0 {
            engine.direct.check_range(card, bytes.len() as u64)?;
        }
        while let Some(chunk) = self.front()
            && engine.has_ended(chunk.ticket)
        {
            let buffer = engine.take_call(chunk.ticket);
            let (offset, length) = (chunk.offset, chunk.length);
            self.pop();
            let buffer = buffer?;
            if let (Direction::C2h, Some(buffer)) = (engine.direction(), buffer) {
                bytes.copy_from(offset, buffer.memory(), 0, length).map_err(|error| failed(&error))?;
            }
        }
        while self.submitted < bytes.len() && self.count < MAX_CHUNKS {
            let (offset, length) = (self.submitted, (bytes.len() - self.submitted).min(CHUNK_BYTES));
            let buffer = match engine.card.buffer_for(engine.direction(), length).map_err(Failure::from) {
                // Own chunks return their memory.
                Err(failure) if failure.is(Class::DmaMemoryError) && self.count > 0 => break,
                buffer => buffer?,
            };
            if matches!(engine.direction(), Direction::H2c) {
                buffer.memory().copy_from(0, bytes, offset, length).map_err(|error| failed(&error))?;
            }
            // The whole range was checked.
            let at = card.checked_add(offset as u64).unwrap_or(card);
            let submitted = engine.direct.submit(buffer, at);
            let ticket = match submitted.map_err(|refused| refused.error) {
                Ok(ticket) => ticket,
                Err(error) if error.is_full() => {
                    if engine.poll()? > 0 {
                        continue;
                    }
                    match self.front() {
                        Some(_) => break,
                        None => return engine.oldest().map(Step::Waiting).ok_or_else(|| error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            };
            engine.track_call(ticket);
            self.push(Chunk { ticket, offset, length });
            self.submitted += length;
        }
        Ok(self.front().map_or(Step::Done, |chunk| Step::Waiting(chunk.ticket)))
    }
}

impl Work for Move {
    #[inline]
    fn advance(&mut self, engine: &mut Engine) -> Result<Step, Failure> {
        match &mut self.method {
            Method::Direct(part, _) if part.length == 0 => Ok(Step::Done),
            Method::Direct(part, submitted @ None) => match start(engine, part, self.card)? {
                Ok((ticket, memory)) => {
                    *submitted = Some((ticket, memory));
                    Ok(Step::Waiting(ticket))
                }
                Err(oldest) => Ok(Step::Waiting(oldest)),
            },
            Method::Direct(_, submitted @ Some(_)) => {
                let Some((ticket, memory)) = submitted.take() else { return Ok(Step::Done) };
                if engine.has_ended(ticket) {
                    return engine.take_call(ticket).map(|_| Step::Done);
                }
                *submitted = Some((ticket, memory));
                Ok(Step::Waiting(ticket))
            }
            Method::Copy(chunks) => chunks.advance(engine, &self.memory, self.card),
        }
    }

    fn take_in_flight(&mut self, limit: Option<Duration>) -> Vec<Abandoned> {
        let limit = limit.unwrap_or(MAX_STOP);
        let of = |ticket, memory| Abandoned { first: ticket, last: ticket, limit, _memory: memory };
        match &mut self.method {
            Method::Direct(_, submitted) => {
                submitted.take().map(|(ticket, memory)| of(ticket, Some(memory))).into_iter().collect()
            }
            Method::Copy(chunks) => {
                let mut abandoned = Vec::with_capacity(chunks.count);
                while let Some(chunk) = chunks.front() {
                    chunks.pop();
                    abandoned.push(of(chunk.ticket, None));
                }
                abandoned.reverse();
                abandoned
            }
        }
    }

    fn longest(&self) -> usize {
        match &self.method {
            Method::Direct(part, _) => part.length,
            Method::Copy(_) => CHUNK_BYTES,
        }
    }
}

/// Transfer of one object for a task of an event loop. Dropped, it is cancelled.
#[pyclass(name = "_Transfer", frozen, module = "fpga_rdma")]
pub(crate) struct PyTransfer {
    shared: Arc<Shared>,
    /// `None`: ended.
    work: Mutex<Option<Move>>,
}

impl PyTransfer {
    pub(super) fn new(shared: &Arc<Shared>, work: Move) -> Self {
        Self { shared: Arc::clone(shared), work: Mutex::new(Some(work)) }
    }

    fn end(&self) {
        // Locked: a poll by another thread, which ends it itself.
        let Ok(mut slot) = self.work.try_lock() else { return };
        let work = slot.take();
        drop(slot);
        self.shared.abandon(work.map(|mut work| work.take_in_flight(None)).unwrap_or_default());
    }
}

#[pymethods]
impl PyTransfer {
    /// Polls. Returns true when the transfer has ended, `None` before.
    fn _poll(&self, py: Python<'_>) -> Result<Option<bool>, Failure> {
        // Another thread's poll does the same.
        let Ok(mut slot) = self.work.try_lock() else { return Ok(None) };
        let Some(work) = slot.as_mut() else { return Ok(Some(true)) };
        let step = self.shared.query(py, |engine| {
            if engine.is_stopping() {
                engine.continue_stops()?;
            }
            if matches!(work.advance(engine)?, Step::Done) {
                return Ok(true);
            }
            let began = Instant::now();
            loop {
                Shared::step(engine)?;
                if matches!(work.advance(engine)?, Step::Done) {
                    return Ok(true);
                }
                // A card in this thread works only here.
                if engine.card.clock() != Clock::Virtual || began.elapsed() >= VIRTUAL_WORK_TIME {
                    return Ok(false);
                }
            }
        });
        match step {
            Ok(Some(true)) => {
                *slot = None;
                Ok(Some(true))
            }
            Ok(_) => Ok(None),
            Err(failure) => {
                drop(slot);
                self.end();
                Err(failure)
            }
        }
    }

    /// Arms the channel; see `Channel._arm`.
    fn _arm(&self, py: Python<'_>) -> Result<Option<std::os::fd::RawFd>, Failure> {
        self.shared.arm(py)
    }

    /// Cancels the transfer, without waiting for the engine.
    fn _abandon(&self) {
        self.end();
    }

    /// Continues cancellations. Returns whether all transfers have ended.
    fn _settle(&self, py: Python<'_>) -> bool {
        let settled = self.shared.query(py, |engine| {
            let stopped = engine.continue_stops();
            Ok(stopped.is_err() || !engine.is_stopping())
        });
        // A closed channel has nothing in flight.
        !matches!(settled, Ok(Some(false) | None))
    }
}

impl Drop for PyTransfer {
    fn drop(&mut self) {
        self.end();
    }
}
