//! Many copies in flight: the scatter-gather mode of the AXI CDMA engine. A handle of the engine is in one mode at a time.

use std::collections::VecDeque;

use fpga_driver::errors::{CdmaFault, CdmaFaultCause, CdmaRingError, CdmaSubmitError};
use fpga_driver::{CardAddr, Cdma, CdmaRingOptions, CdmaSegment, DescriptorPath, Error, Ticket};

use crate::call::{array, call, read_options, set, set_if};
use crate::cdma::{CopyEngine, Mode, RING_MODE, Ring, SIMPLE_MODE};
use crate::channel::{CWait, wait_options};
use crate::code::{Code, Position};
use crate::error::Failure;
use crate::handle;
use crate::layout::c_struct;
use crate::status::Status;
use crate::wait::with_wait;

/// Number of failures that a ring keeps until they are taken.
const MAX_FAILURES: usize = 1024;

c_struct! {
    /// Options of a ring of copies. A member that is 0 stands for its default.
    COptions = "fpga_cdma_ring_options" {
        base: u64,
        bypass_start: u64,
        use_channel: u32,
        h2c_channel: u32,
        descriptors: u32,
        copies: u32,
        length_bits: u32,
        data_bytes: u32,
        no_realignment: u32,
        user_interrupt_plus_1: u32,
        interrupt_threshold: u32,
        interrupt_delay: u32,
    }
}

c_struct! {
    /// Part of a copy.
    CCopy = "fpga_copy" {
        source: u64,
        destination: u64,
        length: u64,
    }
}

impl Ring {
    /// Takes completions. Returns the first failure among them.
    fn collect(&mut self) -> Option<Error<CdmaFault>> {
        let mut first = None;
        while let Some(done) = self.ring.next_completion() {
            self.note(done.ticket, done.outcome, &mut first);
        }
        first
    }

    fn note(
        &mut self,
        ticket: Ticket,
        outcome: Result<u64, Box<Error<CdmaFault>>>,
        first: &mut Option<Error<CdmaFault>>,
    ) {
        self.taken = self.taken.max(ticket.number() + 1);
        if let Err(fault) = outcome {
            first.get_or_insert_with(|| (*fault).clone());
            if self.failures.len() == MAX_FAILURES {
                self.failures.pop_front();
            }
            self.failures.push_back((ticket.number(), fault));
        }
    }
}

impl Code for CdmaFault {
    fn status(&self) -> Status {
        match self.cause {
            CdmaFaultCause::Gone => Status::Gone,
            CdmaFaultCause::Unstoppable => Status::Wedged,
            _ => Status::Fault,
        }
    }

    fn position(&self) -> Position {
        Position::default()
    }
}

impl Code for CdmaRingError {
    fn status(&self) -> Status {
        match self {
            Self::Engine(error) => error.status(),
            Self::Memory(error) => error.status(),
            Self::Submit(error) => error.kind.status(),
            Self::Upload(error) => error.kind.status(),
            Self::UploadFault(_) => Status::Fault,
            Self::TimedOut { .. } => Status::TimedOut,
            Self::Cancelled { .. } => Status::Cancelled,
            Self::UnknownTicket => Status::Ticket,
            Self::NoInterrupt | Self::NoBypass { .. } => Status::Unsupported,
            Self::Coalescing { .. } | Self::OutsideBypass { .. } | Self::Channel { .. } => Status::Argument,
            Self::Cause(cause) => cause.status(),
            Self::Lost { .. } => Status::Gone,
            _ => Status::System,
        }
    }
}

impl Code for CdmaSubmitError {
    fn status(&self) -> Status {
        match self {
            Self::Full { .. } => Status::Full,
            Self::EarlierFailed(error) | Self::Failed(error) => error.status(),
            Self::Bounce(error) => error.status(),
            _ => Status::Range,
        }
    }
}

/// Returns the ring of an engine in ring mode.
fn ring_of(engine: &mut CopyEngine) -> Result<&mut Ring, Failure> {
    match &mut engine.mode {
        Mode::Ring(ring) => Ok(ring),
        _ => Err(no_ring()),
    }
}

fn no_ring() -> Failure {
    Failure::argument("the engine has no ring").advise("call fpga_cdma_ring_start")
}

fn with_ring<R>(cdma: u64, body: impl FnOnce(&mut Ring) -> Result<R, Failure>) -> Result<R, Failure> {
    handle::with(cdma, |engine: &mut CopyEngine| body(ring_of(engine)?))
}

fn small(value: u32, what: &str) -> Result<u8, Failure> {
    u8::try_from(value).map_err(|_| Failure::argument(&format!("{what} is above 255")))
}

impl COptions {
    fn options(&self) -> Result<CdmaRingOptions, Failure> {
        let mut options = CdmaRingOptions::new(CardAddr::new(self.base));
        for (given, place) in [
            (self.descriptors, &mut options.descriptors),
            (self.copies, &mut options.copies),
            (self.data_bytes, &mut options.data_bytes),
        ] {
            if given != 0 {
                *place = given;
            }
        }
        for (given, place, what) in [
            (self.length_bits, &mut options.length_bits, "length_bits"),
            (self.interrupt_threshold, &mut options.interrupt_threshold, "interrupt_threshold"),
            (self.interrupt_delay, &mut options.interrupt_delay, "interrupt_delay"),
        ] {
            if given != 0 {
                *place = small(given, what)?;
            }
        }
        options.realignment = self.no_realignment == 0;
        options.user_interrupt = self
            .user_interrupt_plus_1
            .checked_sub(1)
            .map(|line| small(line, "user_interrupt_plus_1"))
            .transpose()?;
        Ok(options)
    }
}

/// Switches the engine to a ring of copies.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_ring_start(cdma: u64, options: *const COptions, size: usize) -> Status {
    call(|| {
        let given = read_options(options, size)?;
        let options = given.options()?;
        handle::with(cdma, |engine: &mut CopyEngine| {
            engine.check_simple()?;
            let path = if given.use_channel == 0 {
                DescriptorPath::bypass(CardAddr::new(given.bypass_start))
            } else {
                DescriptorPath::channel(engine.card.h2c(crate::channel::number(given.h2c_channel)?)?)
            };
            let Some(simple) = engine.take_simple() else { return Err(Status::Internal.into()) };
            match simple.into_ring::<()>(path, options) {
                Ok(ring) => {
                    let ring = Ring { ring, list: Vec::new(), taken: 0, failures: VecDeque::new() };
                    engine.mode = Mode::Ring(Box::new(ring));
                    Ok(handle::set_mode(cdma, RING_MODE)?)
                }
                Err(refused) => {
                    engine.mode = Mode::Simple(refused.payload.0);
                    Err(refused.error.into())
                }
            }
        })
    })
}

/// Aborts what is in flight, and switches the engine back to single copies.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_ring_stop(cdma: u64) -> Status {
    call(|| {
        handle::with_claimed_in(cdma, RING_MODE, no_ring, |engine: &mut CopyEngine| match core::mem::replace(
            &mut engine.mode,
            Mode::Lost,
        ) {
            Mode::Ring(ring) => {
                let (simple, path, completions): (Cdma, _, _) = ring.ring.close();
                drop((path, completions));
                engine.mode = Mode::Simple(simple);
                Ok(handle::set_mode(cdma, SIMPLE_MODE)?)
            }
            other => {
                engine.mode = other;
                Err(no_ring())
            }
        })
    })
}

/// Queues a copy of several parts.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_ring_submit(
    cdma: u64,
    parts: *const CCopy,
    count: usize,
    ticket: *mut u64,
) -> Status {
    call(|| {
        set_if(ticket, u64::MAX)?;
        let parts = array(parts, count)?;
        with_ring(cdma, |ring| {
            ring.list.clear();
            ring.list.extend(parts.iter().map(|&CCopy { source, destination, length }| {
                CdmaSegment::new(CardAddr::new(source), CardAddr::new(destination), length)
            }));
            let submitted = ring.ring.submit(&ring.list, ()).map_err(|refused| refused.error)?;
            set_if(ticket, submitted.number())
        })
    })
}

/// Starts queued copies and counts those that have ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_ring_poll(cdma: u64, ended: *mut u64, in_flight: *mut u32) -> Status {
    call(|| {
        set_if(ended, 0)?;
        set_if(in_flight, 0)?;
        with_ring(cdma, |ring| {
            if ring.ring.poll()? == 0 {
                ring.ring.relax();
            }
            ring.collect();
            set_if(ended, ring.taken)?;
            set_if(in_flight, ring.ring.in_flight())
        })
    })
}

/// Waits until a copy has ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_ring_wait(
    cdma: u64,
    ticket: u64,
    timeout_ns: u64,
    options: *const CWait,
    size: usize,
) -> Status {
    call(|| {
        let (wait, flag) = wait_options(timeout_ns, options, size)?;
        with_wait(cdma, flag, |engine: &mut CopyEngine| {
            let ring = ring_of(engine)?;
            let mut failed = ring.collect();
            if ticket >= ring.taken {
                let done = ring.ring.wait(Ticket::from_number(ticket), wait)?;
                let mut first = ring.collect();
                ring.note(done.ticket, done.outcome, &mut first);
                failed = failed.or(first);
            }
            match failed {
                Some(fault) => Err(fault.into()),
                None => Ok(()),
            }
        })
    })
}

/// Takes the oldest failure.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_ring_next_failure(cdma: u64, ticket: *mut u64) -> Status {
    call(|| {
        set(ticket, u64::MAX)?;
        with_ring(cdma, |ring| {
            ring.collect();
            let Some((failed, fault)) = ring.failures.pop_front() else { return Ok(()) };
            set(ticket, failed)?;
            Err((*fault).into())
        })
    })
}

/// Ends everything in flight.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_cdma_ring_abort(cdma: u64) -> Status {
    call(|| {
        handle::with_claimed_in(cdma, RING_MODE, no_ring, |engine: &mut CopyEngine| {
            let ring = ring_of(engine)?;
            ring.ring.abort()?;
            ring.collect();
            Ok(())
        })
    })
}
