//! Delivery of interrupts: MSI-X table and pending bits, MSI messages, the legacy line.

use crate::config_space::{ConfigSpace, InterruptMethod};
use crate::counters::CardCounters;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::fault_plan::{InterruptDisposition, Plan};
use crate::host::{ErrorMessage, HostPort, Interrupt};
use crate::msix::Msix;
use crate::scheduler::bits;
use fpga_protocol::time::Nanos;

/// Pending interrupts, and the level of the line that the host knows.
#[derive(Debug)]
pub(crate) struct InterruptMessages {
    pub(crate) msix: Msix,
    /// Pending MSI messages, one bit each.
    msi: u32,
    /// Pending bits that configuration space shows.
    msi_shown: u32,
    /// A request of this function's pin is pending while the line is the method.
    line: bool,
    /// Level of the line that was reported to the host.
    reported: bool,
    /// Interrupts that the fault plan delays or adds, with their time.
    held: Vec<(Nanos, Interrupt)>,
    errors: Vec<ErrorMessage>,
    /// The card was removed: no interrupt is sent.
    gone: bool,
    /// There may be something to send. Checked very often, so it is one word.
    waiting: bool,
}

/// Parts of the card that sending needs.
pub(crate) struct DeliveryContext<'a> {
    pub(crate) config: &'a mut ConfigSpace,
    pub(crate) counters: &'a mut CardCounters,
    pub(crate) plan: &'a mut Plan,
    pub(crate) faults: &'a mut FaultLog,
    pub(crate) now: Nanos,
}

impl InterruptMessages {
    pub(crate) fn new(vectors: u16) -> Self {
        Self {
            msix: Msix::new(vectors),
            msi: 0,
            msi_shown: 0,
            line: false,
            reported: false,
            held: Vec::new(),
            errors: Vec::new(),
            gone: false,
            waiting: false,
        }
    }

    /// Resets the state. The level that was reported to the host stays valid until the next report.
    pub(crate) fn reset(&mut self) {
        self.msix.reset();
        (self.msi, self.msi_shown, self.line) = (0, 0, false);
        self.held.clear();
        self.gone = false;
        // The fall of the line is not yet reported to the host.
        self.waiting = true;
    }

    /// Drops everything that is pending after a removal. Requests that the engines still hold raise no interrupt until the card is back.
    pub(crate) fn remove(&mut self) {
        self.reset();
        self.errors.clear();
        self.gone = true;
    }

    /// Drops pending messages after a change of the method.
    pub(crate) const fn drop_pending(&mut self) {
        self.msix.drop_pending();
        self.msi = 0;
        self.waiting = true;
    }

    /// Requests the message of `vector` by the method in force.
    pub(crate) fn raise(&mut self, vector: u8, config: &ConfigSpace, faults: &mut FaultLog) {
        self.waiting = true;
        if config.interrupt_method() == InterruptMethod::Msi {
            self.msi |= 1_u32.checked_shl(config.msi_message(vector).into()).unwrap_or(0);
        } else if !self.msix.raise(vector) {
            faults.push(FaultKind::NoSuchVector, Unit::Xdma, 0, vector.into());
        }
    }

    /// Sets the level of the line from its sources.
    #[inline]
    pub(crate) fn set_line(&mut self, asserted: bool, config: &mut ConfigSpace) {
        if asserted != self.line {
            self.line = asserted;
            self.waiting = true;
            config.set_interrupt_status(asserted);
        }
    }

    /// Level of the line on the bus.
    pub(crate) const fn line_asserted(&self, config: &ConfigSpace) -> bool {
        self.line && config.line_allowed()
    }

    /// Sends an interrupt without a cause (fault plan).
    pub(crate) fn send_without_cause(&mut self, interrupt: Interrupt) {
        self.held.push((Nanos::ZERO, interrupt));
        self.waiting = true;
    }

    /// Queues an error message to the root.
    pub(crate) fn report(&mut self, message: ErrorMessage) {
        self.errors.push(message);
        self.waiting = true;
    }

    /// Time at which the next delayed interrupt is due.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.held.iter().map(|(due, _)| *due).min()
    }

    /// Returns whether [`deliver`](Self::deliver) has something to do.
    #[inline]
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Sends the pending interrupts that are allowed.
    #[inline]
    pub(crate) fn deliver(&mut self, way: DeliveryContext<'_>, host: &mut dyn HostPort) -> bool {
        self.waiting && self.send(way, host)
    }

    #[inline(never)]
    fn send(&mut self, mut way: DeliveryContext<'_>, host: &mut dyn HostPort) -> bool {
        if self.gone {
            self.waiting = false;
            // The port above the card deasserts the line when the link goes down (PCIe base specification, 2.2.8.1).
            if std::mem::take(&mut self.reported) {
                host.interrupt(Interrupt::Line(false));
                return true;
            }
            return false;
        }
        let mut sent = !self.errors.is_empty();
        for message in self.errors.drain(..) {
            host.error(message);
        }
        // INTx messages are not memory writes, so they do not need bus mastering.
        let line = self.line_asserted(way.config);
        if line != self.reported {
            self.reported = line;
            sent |= self.pass(Interrupt::Line(line), 0, &mut way, host);
        }
        // An MSI or MSI-X message is a memory write: without bus mastering it stays pending.
        if way.config.bus_master() {
            let unmasked = way.config.msix_enabled() && !way.config.msix_function_masked();
            for vector in messages(if unmasked { self.msix.sendable() } else { 0 }) {
                self.msix.sent(vector);
                sent |= self.pass(Interrupt::Msix(vector), vector, &mut way, host);
            }
            for message in messages(self.msi & !way.config.msi_mask()) {
                self.msi &= !(1 << message);
                sent |= self.pass(Interrupt::Msi(message), message, &mut way, host);
            }
        }
        if !self.held.is_empty() {
            sent |= self.release(&mut way, host);
        }
        if self.msi != self.msi_shown {
            self.msi_shown = self.msi;
            way.config.set_msi_pending(self.msi);
        }
        // Masked messages and an asserted line need further checks: changes of their masks are not signalled here.
        let left = self.msix.pending() | self.msi != 0;
        self.waiting = left || self.line || self.reported || !self.held.is_empty();
        sent
    }

    /// Passes `interrupt` on, unless the fault plan delays or drops it. The fall of the line always passes: only the start of an interrupt
    /// can be delayed or lost.
    fn pass(
        &mut self,
        interrupt: Interrupt,
        number: u16,
        way: &mut DeliveryContext<'_>,
        host: &mut dyn HostPort,
    ) -> bool {
        let verdict = if way.plan.watches_messages() && interrupt != Interrupt::Line(false) {
            way.plan.message(number, way.now, way.faults)
        } else {
            InterruptDisposition::Send
        };
        match verdict {
            InterruptDisposition::Send => {
                way.counters.interrupts += u64::from(interrupt != Interrupt::Line(false));
                host.interrupt(interrupt);
                true
            }
            InterruptDisposition::Drop => false,
            InterruptDisposition::Delay(until) => {
                self.held.push((until, interrupt));
                false
            }
        }
    }

    /// Sends delayed interrupts whose time has come, in the order of their arrival.
    fn release(&mut self, way: &mut DeliveryContext<'_>, host: &mut dyn HostPort) -> bool {
        let mut sent = false;
        let (config, now, reported) = (&*way.config, way.now, self.reported);
        let counters = &mut *way.counters;
        self.held.retain(|(due, interrupt)| {
            if *due > now {
                return true;
            }
            let possible = match interrupt {
                // A line that has fallen in the meantime is not reported.
                Interrupt::Line(_) => reported,
                _ => config.bus_master(),
            };
            if possible {
                counters.interrupts += 1;
                host.interrupt(*interrupt);
                sent = true;
            }
            false
        });
        sent
    }
}

/// Numbers of the set bits, as message numbers.
fn messages(set: u32) -> impl Iterator<Item = u16> {
    bits(set).filter_map(|bit| u16::try_from(bit).ok())
}
