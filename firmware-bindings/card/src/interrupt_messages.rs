//! How interrupts leave the card: MSI-X table and pending bits, MSI messages, the legacy line.

use crate::config_space::{ConfigSpace, InterruptMethod};
use crate::counters::CardCounters;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::fault_plan::{InterruptDisposition, Plan};
use crate::host::{ErrorMessage, HostPort, Interrupt};
use crate::msix::Msix;
use fpga_protocol::time::Nanos;

/// What waits to be sent, and the line as the host knows it.
#[derive(Debug)]
pub(crate) struct InterruptMessages {
    pub(crate) msix: Msix,
    /// MSI messages that wait, one bit each.
    msi: u32,
    /// The same bits as configuration space shows them.
    msi_shown: u32,
    /// A request of this function's pin is pending while the line is the method.
    line: bool,
    /// What the host was told of the line.
    reported: bool,
    /// Interrupts that the fault plan sends at a time of its own.
    held: Vec<(Nanos, Interrupt)>,
    errors: Vec<ErrorMessage>,
    /// The card was pulled out: nothing leaves any more.
    gone: bool,
    /// There may be something to send. Looked at all the time, so it is one word.
    waiting: bool,
}

/// What sending needs of the rest of the card.
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

    /// What the host was told of the line stays true until it is told otherwise.
    pub(crate) fn reset(&mut self) {
        self.msix.reset();
        (self.msi, self.msi_shown, self.line) = (0, 0, false);
        self.held.clear();
        self.gone = false;
        // The host has yet to learn that the line fell.
        self.waiting = true;
    }

    /// Everything on its way is lost, the card with it; what its engines still hold raises nothing until it is back.
    pub(crate) fn remove(&mut self) {
        self.reset();
        self.errors.clear();
        self.gone = true;
    }

    /// Drops what waits: the method has changed.
    pub(crate) const fn drop_pending(&mut self) {
        self.msix.drop_pending();
        self.msi = 0;
        self.waiting = true;
    }

    /// Asks for the message of `vector` by the method in force.
    pub(crate) fn raise(&mut self, vector: u8, config: &ConfigSpace, faults: &mut FaultLog) {
        self.waiting = true;
        if config.interrupt_method() == InterruptMethod::Msi {
            self.msi |= 1_u32.checked_shl(config.msi_message(vector).into()).unwrap_or(0);
        } else if !self.msix.raise(vector) {
            faults.push(FaultKind::NoSuchVector, Unit::Xdma, 0, vector.into());
        }
    }

    /// The level of the line as its sources have it.
    #[inline]
    pub(crate) fn set_line(&mut self, asserted: bool, config: &mut ConfigSpace) {
        if asserted != self.line {
            self.line = asserted;
            self.waiting = true;
            config.set_interrupt_status(asserted);
        }
    }

    /// The line as it is on the bus.
    pub(crate) const fn line_asserted(&self, config: &ConfigSpace) -> bool {
        self.line && config.line_allowed()
    }

    /// An interrupt that nothing has asked for.
    pub(crate) fn send_without_cause(&mut self, interrupt: Interrupt) {
        self.held.push((Nanos::ZERO, interrupt));
        self.waiting = true;
    }

    /// A message to the root.
    pub(crate) fn report(&mut self, message: ErrorMessage) {
        self.errors.push(message);
        self.waiting = true;
    }

    /// When something that is held back is due.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.held.iter().map(|(due, _)| *due).min()
    }

    /// Sends what is pending and allowed.
    #[inline]
    pub(crate) fn deliver(&mut self, way: DeliveryContext<'_>, host: &mut dyn HostPort) -> bool {
        self.waiting && self.send(way, host)
    }

    #[inline(never)]
    fn send(&mut self, mut way: DeliveryContext<'_>, host: &mut dyn HostPort) -> bool {
        if self.gone {
            self.waiting = false;
            // The port above the card takes its line back when the link goes down (PCIe base specification, 2.2.8.1).
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
        // The line's messages are no memory writes: they need no bus mastering.
        let line = self.line_asserted(way.config);
        if line != self.reported {
            self.reported = line;
            sent |= self.pass(Interrupt::Line(line), 0, &mut way, host);
        }
        // A message is a memory write: without bus mastering it stays pending.
        if way.config.bus_master() {
            let unmasked = way.config.msix_enabled() && !way.config.msix_function_masked();
            for vector in bits(if unmasked { self.msix.sendable() } else { 0 }) {
                self.msix.sent(vector);
                sent |= self.pass(Interrupt::Msix(vector), vector, &mut way, host);
            }
            for message in bits(self.msi & !way.config.msi_mask()) {
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
        // What is masked waits for a change that nobody reports here, and so does a line that is high.
        let left = self.msix.pending() | self.msi != 0;
        self.waiting = left || self.line || self.reported || !self.held.is_empty();
        sent
    }

    /// Lets `interrupt` through, unless the fault plan has other ideas. A fall of the line always passes: what is held
    /// back or lost is the news of an interrupt, not its end.
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

    /// Sends what was held back long enough, in the order in which it came.
    fn release(&mut self, way: &mut DeliveryContext<'_>, host: &mut dyn HostPort) -> bool {
        let mut sent = false;
        let (config, now, reported) = (&*way.config, way.now, self.reported);
        let counters = &mut *way.counters;
        self.held.retain(|(due, interrupt)| {
            if *due > now {
                return true;
            }
            let possible = match interrupt {
                // A line that has fallen meanwhile needs no news.
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

/// The numbers of the bits that are set.
fn bits(mut set: u32) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        u16::try_from(lowest).ok().filter(|number| *number < 32)
    })
}
