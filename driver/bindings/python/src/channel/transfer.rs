//! Transfers of one object: DMA memory in place, everything else through buffers of the driver.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpga_driver::errors::MemoryError;
use fpga_driver::{CardAddr, Direction, Ticket};
use fpga_pci::Clock;
use pyo3::prelude::*;

use super::engine::Engine;
use super::engine::stops::{MAX_STOP, Orphan};
use super::shared::Shared;
use super::work::{Step, Work};
use crate::error::{Class, Failure};
use crate::foreign::Foreign;
use crate::memory::{Place, Use};

/// Maximum length of a chunk in bytes. A longer transfer is cut into chunks, so that copies and transfers overlap.
const CHUNK_BYTES: usize = 1 << 20;
/// Time that a card in this thread gets between two turns of an event loop.
const TURN: Duration = Duration::from_micros(300);
/// Number of chunks in flight.
const DEPTH: usize = 4;

/// Transfer of all bytes of an object.
pub(super) struct Move {
    memory: Foreign,
    card: CardAddr,
    way: Way,
}

enum Way {
    /// In place; once it is submitted, with its ticket.
    Direct(Place, Option<(Ticket, Use)>),
    /// Through buffers.
    Copy(Chunks),
}

#[derive(Default)]
struct Chunks {
    /// Number of bytes submitted.
    submitted: usize,
    /// Chunks in flight: `count` of them from `oldest` on, in a ring. Small transfers allocate nothing.
    in_flight: [Chunk; DEPTH],
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
    Failure::new(Class::Refused, error.to_string())
}

impl Move {
    pub(super) fn new(memory: Foreign, place: Option<Place>, card: CardAddr) -> Self {
        let way = match place {
            Some(place) => Way::Direct(place, None),
            None => Way::Copy(Chunks::default()),
        };
        Self { memory, card, way }
    }
}

/// Queues a transfer in place.
fn start(
    engine: &mut Engine,
    place: &Place,
    card: CardAddr,
) -> Result<Result<(Ticket, Use), Ticket>, Failure> {
    match engine.submit_place(place, card) {
        Ok(ticket) => {
            engine.expect(ticket);
            Ok(Ok((ticket, Use::of(&place.region))))
        }
        // Transfers in flight occupy the ring: the oldest ends first.
        Err(failure) if failure.is(Class::Full) => engine.oldest().map(Err).ok_or(failure),
        Err(failure) => Err(failure),
    }
}

impl Chunks {
    fn front(&self) -> Option<Chunk> {
        self.in_flight.get(self.oldest).copied().filter(|_| self.count > 0)
    }

    const fn pop(&mut self) {
        self.oldest = (self.oldest + 1) % DEPTH;
        self.count -= 1;
    }

    fn push(&mut self, chunk: Chunk) {
        if let Some(place) = self.in_flight.get_mut((self.oldest + self.count) % DEPTH) {
            *place = chunk;
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
            let buffer = engine.taken(chunk.ticket);
            let (offset, length) = (chunk.offset, chunk.length);
            self.pop();
            let buffer = buffer?;
            if let (Direction::C2h, Some(buffer)) = (engine.direction(), buffer) {
                bytes.copy_from(offset, buffer.memory(), 0, length).map_err(|error| failed(&error))?;
            }
        }
        while self.submitted < bytes.len() && self.count < DEPTH {
            let (offset, length) = (self.submitted, (bytes.len() - self.submitted).min(CHUNK_BYTES));
            let buffer = match engine.card.buffer_for(engine.direction(), length).map_err(Failure::from) {
                // Own chunks return their memory.
                Err(failure) if failure.is(Class::NoMemory) && self.count > 0 => break,
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
            engine.expect(ticket);
            self.push(Chunk { ticket, offset, length });
            self.submitted += length;
        }
        Ok(self.front().map_or(Step::Done, |chunk| Step::Waiting(chunk.ticket)))
    }
}

impl Work for Move {
    #[inline]
    fn advance(&mut self, engine: &mut Engine) -> Result<Step, Failure> {
        match &mut self.way {
            Way::Direct(place, _) if place.length == 0 => Ok(Step::Done),
            Way::Direct(place, submitted @ None) => match start(engine, place, self.card)? {
                Ok((ticket, memory)) => {
                    *submitted = Some((ticket, memory));
                    Ok(Step::Waiting(ticket))
                }
                Err(oldest) => Ok(Step::Waiting(oldest)),
            },
            Way::Direct(_, submitted @ Some(_)) => {
                let Some((ticket, memory)) = submitted.take() else { return Ok(Step::Done) };
                if engine.has_ended(ticket) {
                    return engine.taken(ticket).map(|_| Step::Done);
                }
                *submitted = Some((ticket, memory));
                Ok(Step::Waiting(ticket))
            }
            Way::Copy(chunks) => chunks.advance(engine, &self.memory, self.card),
        }
    }

    fn give_up(&mut self, limit: Option<Duration>) -> Vec<Orphan> {
        let limit = limit.unwrap_or(MAX_STOP);
        let orphan = |ticket, memory| Orphan { first: ticket, last: ticket, limit, _memory: memory };
        match &mut self.way {
            Way::Direct(_, submitted) => {
                submitted.take().map(|(ticket, memory)| orphan(ticket, Some(memory))).into_iter().collect()
            }
            Way::Copy(chunks) => {
                let mut orphans = Vec::with_capacity(chunks.count);
                while let Some(chunk) = chunks.front() {
                    chunks.pop();
                    orphans.push(orphan(chunk.ticket, None));
                }
                orphans.reverse();
                orphans
            }
        }
    }

    fn longest(&self) -> usize {
        match &self.way {
            Way::Direct(place, _) => place.length,
            Way::Copy(_) => CHUNK_BYTES,
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
        self.shared.abandon(work.map(|mut work| work.give_up(None)).unwrap_or_default());
    }
}

#[pymethods]
impl PyTransfer {
    /// Polls. Returns true when the transfer has ended, `None` before.
    fn _poll(&self, py: Python<'_>) -> Result<Option<bool>, Failure> {
        // Another thread's poll does the same.
        let Ok(mut slot) = self.work.try_lock() else { return Ok(None) };
        let Some(work) = slot.as_mut() else { return Ok(Some(true)) };
        let step = self.shared.look(py, |engine| {
            if engine.is_stopping() {
                engine.press_on()?;
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
                if engine.card.clock() != Clock::Virtual || began.elapsed() >= TURN {
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

    /// Goes on with what is being cancelled. Returns whether all of it has ended.
    fn _settle(&self, py: Python<'_>) -> bool {
        let settled = self.shared.look(py, |engine| {
            let pressed = engine.press_on();
            Ok(pressed.is_err() || !engine.is_stopping())
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
