//! Copies inside the card by the AXI CDMA engine.

use fpga_driver::{BarOffset, Card, CardAddr, Cdma, CdmaError};

use crate::call::{call, duration, set, set_if};
use crate::error::{Failure, Position};
use crate::handle;
use crate::status::{Code, Status};

impl Code for CdmaError {
    fn status(&self) -> Status {
        match self {
            Self::AddressRange { .. } | Self::CardMemory { .. } | Self::Overlap { .. } => Status::Range,
            Self::Engine { .. } | Self::Bounce { .. } | Self::LengthRegister { .. } => Status::Fault,
            Self::TimedOut { .. } | Self::Stopped { .. } => Status::TimedOut,
            Self::Stuck { .. } => Status::Wedged,
            Self::Gone => Status::Gone,
            Self::Silent(_) | Self::Narrow { .. } | Self::NoScatterGather => Status::Unsupported,
            Self::BounceChannels { .. } => Status::Argument,
            Self::Mmio(error) => crate::card::mmio_status(error),
            _ => Status::System,
        }
    }

    fn position(&self) -> Position {
        match self {
            Self::Engine { destination, length, done, .. }
            | Self::TimedOut { destination, length, done, .. }
            | Self::Stopped { destination, length, done, .. }
            | Self::Bounce { destination, length, done, .. }
            | Self::LengthRegister { destination, length, done, .. } => Position {
                card_address: destination.get(),
                length: *length,
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

fn open(card: u64, out: *mut u64, take: impl FnOnce(&Card) -> Result<Cdma, Failure>) -> Result<(), Failure> {
    set(out, 0)?;
    let card = handle::shared(card, Card::clone)?;
    set(out, handle::add(take(&card)?)?)
}

/// Takes the engine.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_open(card: u64, out: *mut u64) -> Status {
    call(|| open(card, out, |card| Ok(card.cdma()?)))
}

/// Takes the engine at an offset of the user BAR.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_open_at(card: u64, offset: u64, out: *mut u64) -> Status {
    call(|| open(card, out, |card| Ok(card.cdma_at(BarOffset::new(offset))?)))
}

/// Gives the engine back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_close(cdma: u64) -> Status {
    call(|| Ok(handle::close::<Cdma>(cdma)?))
}

/// Copies `length` bytes and waits.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_copy(
    cdma: u64,
    source: u64,
    destination: u64,
    length: u64,
    timeout_ns: u64,
) -> Status {
    call(|| {
        handle::with(cdma, |cdma: &mut Cdma| {
            let (source, destination) = (CardAddr::new(source), CardAddr::new(destination));
            Ok(match timeout_ns {
                u64::MAX => cdma.copy(source, destination, length),
                limit => cdma.copy_with_timeout(source, destination, length, duration(limit)),
            }?)
        })
    })
}

/// Reads the status register.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_get_status(
    cdma: u64,
    register: *mut u32,
    idle: *mut u32,
    failed: *mut u32,
) -> Status {
    call(|| {
        set_if(register, u32::MAX)?;
        handle::with(cdma, |cdma: &mut Cdma| {
            let status = cdma.status()?;
            set_if(register, status.into_bits())?;
            set_if(idle, status.idle().into())?;
            set_if(failed, status.has_error().into())
        })
    })
}

/// Resets the engine.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_reset(cdma: u64) -> Status {
    call(|| handle::with(cdma, |cdma: &mut Cdma| Ok(cdma.reset()?)))
}
