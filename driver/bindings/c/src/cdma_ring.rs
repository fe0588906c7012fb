//! Copies inside the card by the scatter-gather mode of the AXI CDMA engine: many in flight. A handle is in one mode at a time.

use fpga_driver::errors::{CdmaFault, CdmaRingError, FaultCause};
use fpga_driver::{CardAddr, Cdma, CdmaRingOptions, CdmaSegment, DescriptorPath, Error, Ticket};

use crate::abi::{Status, fpga_cdma_ring_options, fpga_copy, fpga_wait_options};
use crate::call::{array, read_options, set, set_if, set_option};
use crate::cdma::{CopyEngine, Mode, RING_MODE, Ring, SIMPLE_MODE};
use crate::channel::wait_options;
use crate::code::StatusCode;
use crate::error::Failure;
use crate::failures::Failures;
use crate::handle;
use crate::wait::with_wait;

impl Ring {
    /// Takes completions. Returns the first failure among them.
    fn collect(&mut self) -> Option<Error<CdmaFault>> {
        let mut first = None;
        while let Some(done) = self.ring.next_completion() {
            self.record(done.ticket, done.outcome, &mut first);
        }
        first
    }

    /// Records a completion that was taken. `first` becomes the first failure.
    fn record(
        &mut self,
        ticket: Ticket,
        outcome: Result<u64, Box<Error<CdmaFault>>>,
        first: &mut Option<Error<CdmaFault>>,
    ) {
        self.taken = self.taken.max(ticket.number() + 1);
        self.failures.record(ticket.number(), outcome, first);
    }
}

impl StatusCode for CdmaFault {
    fn status(&self) -> Status {
        match self.cause {
            FaultCause::Gone => Status::Gone,
            FaultCause::Wedged => Status::Wedged,
            _ => Status::Fault,
        }
    }
}

impl StatusCode for CdmaRingError {
    fn status(&self) -> Status {
        match self {
            Self::Engine(error) => error.status(),
            Self::Memory(error) => error.status(),
            Self::Full { .. } => Status::Full,
            Self::Earlier(error) => error.status(),
            Self::Upload(error) => error.kind.status(),
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

fn byte(value: u32, member: &str) -> Result<u8, Failure> {
    u8::try_from(value).map_err(|_| Failure::argument(&format!("{member} is {value}, the maximum is 255")))
}

impl fpga_cdma_ring_options {
    fn options(&self) -> Result<CdmaRingOptions, Failure> {
        let mut options = CdmaRingOptions::new(CardAddr::new(self.base));
        set_option(&mut options.descriptors, self.descriptors);
        set_option(&mut options.copies, self.copies);
        set_option(&mut options.data_bytes, self.data_bytes);
        set_option(&mut options.length_bits, byte(self.length_bits, "length_bits")?);
        set_option(&mut options.interrupt_threshold, byte(self.interrupt_threshold, "interrupt_threshold")?);
        set_option(&mut options.interrupt_delay, byte(self.interrupt_delay, "interrupt_delay")?);
        options.realignment = self.no_realignment == 0;
        options.user_interrupt = self
            .user_interrupt_plus_1
            .checked_sub(1)
            .map(|line| byte(line, "user_interrupt_plus_1"))
            .transpose()?;
        Ok(options)
    }
}

pub(crate) fn fpga_cdma_ring_start(
    cdma: u64,
    options: *const fpga_cdma_ring_options,
    size: usize,
) -> Result<(), Failure> {
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
                let ring = Ring { ring, list: Vec::new(), taken: 0, failures: Failures::new() };
                engine.mode = Mode::Ring(Box::new(ring));
                Ok(handle::set_mode(cdma, RING_MODE)?)
            }
            Err(refused) => {
                engine.mode = Mode::Simple(refused.payload.0);
                Err(refused.error.into())
            }
        }
    })
}

pub(crate) fn fpga_cdma_ring_stop(cdma: u64) -> Result<(), Failure> {
    handle::with_claimed_in(cdma, RING_MODE, no_ring, |engine: &mut CopyEngine| {
        match core::mem::replace(&mut engine.mode, Mode::Changing) {
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
        }
    })
}

pub(crate) fn fpga_cdma_ring_submit(
    cdma: u64,
    parts: *const fpga_copy,
    count: usize,
    ticket: *mut u64,
) -> Result<(), Failure> {
    set_if(ticket, u64::MAX)?;
    let parts = array(parts, count)?;
    with_ring(cdma, |ring| {
        ring.list.clear();
        ring.list.extend(parts.iter().map(|&fpga_copy { source, destination, length }| {
            CdmaSegment::new(CardAddr::new(source), CardAddr::new(destination), length)
        }));
        let submitted = ring.ring.submit(&ring.list, ()).map_err(|refused| refused.error)?;
        set_if(ticket, submitted.number())
    })
}

pub(crate) fn fpga_cdma_ring_poll(cdma: u64, ended: *mut u64, in_flight: *mut u32) -> Result<(), Failure> {
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
}

pub(crate) fn fpga_cdma_ring_wait(
    cdma: u64,
    ticket: u64,
    timeout_ns: u64,
    options: *const fpga_wait_options,
    size: usize,
) -> Result<(), Failure> {
    let (wait, flag) = wait_options(timeout_ns, options, size)?;
    with_wait(cdma, flag, |engine: &mut CopyEngine| {
        let ring = ring_of(engine)?;
        let mut failed = ring.collect();
        if ticket >= ring.taken {
            let done = ring.ring.wait(Ticket::from_number(ticket), wait)?;
            let mut first = ring.collect();
            ring.record(done.ticket, done.outcome, &mut first);
            failed = failed.or(first);
        }
        match failed {
            Some(fault) => Err(fault.into()),
            None => Ok(()),
        }
    })
}

pub(crate) fn fpga_cdma_ring_next_failure(cdma: u64, ticket: *mut u64) -> Result<(), Failure> {
    set(ticket, u64::MAX)?;
    with_ring(cdma, |ring| {
        ring.collect();
        let Some((failed, fault)) = ring.failures.take() else { return Ok(()) };
        set(ticket, failed)?;
        Err(fault.into())
    })
}

pub(crate) fn fpga_cdma_ring_abort(cdma: u64) -> Result<(), Failure> {
    handle::with_claimed_in(cdma, RING_MODE, no_ring, |engine: &mut CopyEngine| {
        let ring = ring_of(engine)?;
        ring.ring.abort()?;
        ring.collect();
        Ok(())
    })
}
