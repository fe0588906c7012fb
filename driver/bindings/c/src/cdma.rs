//! Copies inside the card by the AXI CDMA engine.

use core::ops::ControlFlow;

use fpga_driver::errors::{CdmaFault, CopyFault};
use fpga_driver::{BarOffset, Card, CardAddr, Cdma, CdmaError, CdmaRing, CdmaSegment};

use crate::abi::Status;
use crate::call::{duration, set, set_if};
use crate::code::{Position, StatusCode};
use crate::error::Failure;
use crate::failures::Failures;
use crate::handle::{self, Kind, Object};
use crate::wait::{is_cancelled, with_wait};

impl StatusCode for CdmaError {
    fn status(&self) -> Status {
        match self {
            Self::AddressRange { .. } | Self::CardMemory { .. } | Self::Overlap { .. } => Status::Range,
            Self::Copy { cause: CopyFault::TimedOut { .. }, .. } => Status::TimedOut,
            Self::Copy { cause: CopyFault::Stopped, .. } => Status::Cancelled,
            Self::Copy { .. } => Status::Fault,
            Self::Stuck { .. } => Status::Wedged,
            Self::Gone => Status::Gone,
            Self::Silent(_) | Self::Narrow { .. } | Self::NoScatterGather => Status::Unsupported,
            Self::BounceChannels { .. } => Status::Argument,
            Self::Cause(cause) => cause.status(),
            _ => Status::System,
        }
    }

    fn position(&self) -> Position {
        match self {
            Self::Copy { segment, done, .. } => Position {
                card_address: segment.destination.get(),
                length: segment.length,
                bytes_done: *done,
                ..Position::default()
            },
            Self::AddressRange { start, length } | Self::CardMemory { start, length } => {
                Position { card_address: start.get(), length: *length, ..Position::default() }
            }
            _ => Position::default(),
        }
    }
}

/// A CDMA engine.
pub(crate) struct CopyEngine {
    pub(crate) card: Card,
    pub(crate) mode: Mode,
}

// SAFETY: the only type of this kind.
unsafe impl Object for CopyEngine {
    const KIND: Kind = Kind::Cdma;
}

/// Modes of the handle of an engine ([`handle::with_claimed_in`]).
pub(crate) const SIMPLE_MODE: usize = 1;
pub(crate) const RING_MODE: usize = 2;

/// Mode of an engine.
pub(crate) enum Mode {
    /// One copy at a time.
    Simple(Cdma),
    /// A ring of copies.
    Ring(Box<Ring>),
    /// Between two modes, inside a call only.
    Changing,
}

/// A ring of copies, and the completions that were taken from it.
pub(crate) struct Ring {
    pub(crate) ring: CdmaRing<()>,
    /// Parts of the copy that is being submitted; kept, so that submissions do not allocate.
    pub(crate) list: Vec<CdmaSegment>,
    /// Number of copies whose completions were taken.
    pub(crate) taken: u64,
    pub(crate) failures: Failures<CdmaFault>,
}

impl CopyEngine {
    /// Checks that the engine has no ring.
    pub(crate) fn check_simple(&self) -> Result<(), Failure> {
        match self.mode {
            Mode::Simple(_) => Ok(()),
            _ => Err(has_ring()),
        }
    }

    /// Takes the engine out, to change its mode.
    pub(crate) fn take_simple(&mut self) -> Option<Cdma> {
        match core::mem::replace(&mut self.mode, Mode::Changing) {
            Mode::Simple(cdma) => Some(cdma),
            other => {
                self.mode = other;
                None
            }
        }
    }
}

fn has_ring() -> Failure {
    Failure::of(Status::InUse, "the engine has a ring of copies").advise("call fpga_cdma_ring_stop first")
}

/// Runs `body` with an engine in simple mode.
fn simple<R>(
    engine: &mut CopyEngine,
    body: impl FnOnce(&mut Cdma) -> Result<R, Failure>,
) -> Result<R, Failure> {
    engine.check_simple()?;
    match &mut engine.mode {
        Mode::Simple(cdma) => body(cdma),
        _ => Err(Status::Internal.into()),
    }
}

fn with_simple<R>(cdma: u64, body: impl FnOnce(&mut Cdma) -> Result<R, Failure>) -> Result<R, Failure> {
    handle::with(cdma, |engine: &mut CopyEngine| simple(engine, body))
}

fn open(card: u64, out: *mut u64, take: impl FnOnce(&Card) -> Result<Cdma, Failure>) -> Result<(), Failure> {
    set(out, 0)?;
    let card = handle::card(card)?;
    let mode = Mode::Simple(take(&card)?);
    set(out, handle::add_in_mode(CopyEngine { card, mode }, SIMPLE_MODE)?)
}

pub(crate) fn fpga_cdma_open(card: u64, out: *mut u64) -> Result<(), Failure> {
    open(card, out, |card| Ok(card.cdma()?))
}

pub(crate) fn fpga_cdma_open_at(card: u64, offset: u64, out: *mut u64) -> Result<(), Failure> {
    open(card, out, |card| Ok(card.cdma_at(BarOffset::new(offset))?))
}

pub(crate) fn fpga_cdma_close(cdma: u64) -> Result<(), Failure> {
    Ok(handle::close::<CopyEngine>(cdma)?)
}

pub(crate) fn fpga_cdma_copy(
    cdma: u64,
    source: u64,
    destination: u64,
    length: u64,
    timeout_ns: u64,
) -> Result<(), Failure> {
    let (source, destination) = (CardAddr::new(source), CardAddr::new(destination));
    let limit = (timeout_ns != u64::MAX).then(|| duration(timeout_ns));
    let progress = &mut |_| if is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    with_wait(cdma, core::ptr::null(), |engine: &mut CopyEngine| {
        simple(engine, |cdma| Ok(cdma.copy_with_progress(source, destination, length, limit, progress)?))
    })
}

pub(crate) fn fpga_cdma_get_status(
    cdma: u64,
    register: *mut u32,
    idle: *mut u32,
    failed: *mut u32,
) -> Result<(), Failure> {
    set_if(register, u32::MAX)?;
    with_simple(cdma, |cdma| {
        let status = cdma.status()?;
        set_if(register, status.into_bits())?;
        set_if(idle, status.idle().into())?;
        set_if(failed, status.has_error().into())
    })
}

pub(crate) fn fpga_cdma_reset(cdma: u64) -> Result<(), Failure> {
    handle::with_claimed_in(cdma, SIMPLE_MODE, has_ring, |engine: &mut CopyEngine| {
        simple(engine, |cdma| Ok(cdma.reset()?))
    })
}
