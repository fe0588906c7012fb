//! Interrupts of a served device: MSI-X before MSI before INTx, and the kinds for errors and requests.
//!
//! The server masks INTx when it fires. It is unmasked by a message: an event descriptor for unmasking is ambiguous (in the specification
//! it notifies the client of the unmasking, in the kernel and QEMU it performs the unmasking), and no server states which one it
//! implements.

use core::fmt;
use fpga_registers::invariant::DebugExpect as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use super::connection::ServerConnection;
use super::error::protocol;
use super::wire::{InfoRequest, IrqAction, IrqData, IrqInfo, Reply, Request, SetIrqs, irq, irq_flags};
use fpga_pci::interrupt::Unmask;
use fpga_pci::{DeviceEvents, Interrupt, InterruptError, ServerError, lock};

/// Maximum number of vectors in PCI Express (MSI-X, table size field of 11 bits).
const MAX_VECTORS: u32 = 2048;

/// The interrupts of one device.
pub(super) struct Interrupts {
    /// Interrupt kind in use and its number of vectors; `None` if the device has no interrupts.
    used: Option<(u32, u32)>,
    /// Maximum number of file descriptors of one message.
    max_fds: usize,
    on: Mutex<bool>,
    /// Enabled events, to be enabled again after a reset.
    armed: Vec<(u32, Interrupt)>,
    pub(super) events: DeviceEvents,
}

impl Interrupts {
    /// Finds the best interrupt kind of the device, and enables its events.
    pub(super) fn find(link: &ServerConnection, kinds: u32, max_fds: usize) -> Result<Self, InterruptError> {
        let peer = |source| InterruptError::Server { count: 0, source };
        let vectors = |index: u32| -> Result<u32, ServerError> {
            if index >= kinds {
                return Ok(0);
            }
            let info = ask(link, index)?;
            Ok(if info.flags & irq_flags::EVENTFD != 0 { info.count.min(MAX_VECTORS) } else { 0 })
        };
        let mut used = None;
        for index in [irq::MSIX, irq::MSI, irq::INTX] {
            let count = vectors(index).map_err(peer)?;
            if count != 0 {
                used = Some((index, count));
                break;
            }
        }
        let mut armed = Vec::new();
        for index in [irq::ERR, irq::REQ] {
            if vectors(index).map_err(peer)? == 0 {
                continue;
            }
            let (interrupt, _) = Interrupt::pair()?;
            match trigger(link, index, 0, &[interrupt.as_fd()]) {
                Ok(()) => armed.push((index, interrupt)),
                // The device can be used without it.
                Err(error @ ServerError::Refused { .. }) => {
                    tracing::warn!(index, %error, "the server refuses to report an event");
                }
                Err(error) => return Err(peer(error)),
            }
        }
        let event = |index| armed.iter().find(|(of, _)| *of == index).map(|(_, interrupt)| interrupt.clone());
        let (server, trigger) = Interrupt::pair()?;
        link.when_server_ends(trigger);
        let events = DeviceEvents::with_server(event(irq::ERR), event(irq::REQ), Some(server))?;
        Ok(Self { used, max_fds: max_fds.max(1), on: Mutex::new(false), armed, events })
    }

    /// Returns the number of vectors.
    pub(super) fn vectors(&self) -> u32 {
        self.used.map_or(0, |(_, count)| count)
    }

    fn on(&self) -> MutexGuard<'_, bool> {
        lock(&self.on)
    }

    /// Enables vectors `0..count`, with as many descriptors per message as the server accepts.
    pub(super) fn enable(
        &self,
        link: &Arc<ServerConnection>,
        count: u32,
    ) -> Result<Vec<Interrupt>, InterruptError> {
        let mut on = self.on();
        if *on {
            return Err(InterruptError::AlreadyEnabled);
        }
        let used = self.used.filter(|(_, available)| count != 0 && count <= *available);
        let too_many = InterruptError::TooMany { asked: count, available: self.vectors() };
        let (index, _) = used.ok_or(too_many)?;
        let made: Result<Vec<_>, _> =
            (0..count).map(|_| Interrupt::pair().map(|(interrupt, _)| interrupt)).collect();
        let mut interrupts: Vec<Interrupt> = made?;
        if index == irq::INTX {
            let line: Arc<dyn Unmask> = Arc::new(IntxLine(Arc::clone(link)));
            interrupts = interrupts.into_iter().map(|interrupt| interrupt.level(Arc::clone(&line))).collect();
        }
        let mut start = 0;
        for part in interrupts.chunks(self.max_fds) {
            let files: Vec<_> = part.iter().map(AsFd::as_fd).collect();
            if let Err(source) = trigger(link, index, start, &files) {
                // The ones before the refused one must not stay enabled. If this fails, the connection has ended, and they with it.
                let _ = off(link, index);
                return Err(InterruptError::Server { count, source });
            }
            start = start.saturating_add(u32::try_from(part.len()).unwrap_or(u32::MAX));
        }
        *on = true;
        Ok(interrupts)
    }

    /// Disables all vectors.
    pub(super) fn disable(&self, link: &ServerConnection) -> Result<(), InterruptError> {
        let mut on = self.on();
        if let (true, Some((index, _))) = (*on, self.used) {
            off(link, index).map_err(|source| InterruptError::Server { count: 0, source })?;
        }
        *on = false;
        Ok(())
    }

    /// Restores a common state after a reset, since servers differ in whether event descriptors survive it: vectors are disabled, events
    /// are enabled.
    pub(super) fn after_reset(&self, link: &ServerConnection) -> Result<(), InterruptError> {
        self.disable(link)?;
        for (index, interrupt) in &self.armed {
            trigger(link, *index, 0, &[interrupt.as_fd()])
                .map_err(|source| InterruptError::Server { count: 1, source })?;
        }
        Ok(())
    }
}

/// INTx of a served device.
struct IntxLine(Arc<ServerConnection>);

impl fmt::Debug for IntxLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IntxLine")
    }
}

impl Unmask for IntxLine {
    fn unmask(&self) {
        let (data, action) = (IrqData::None, IrqAction::Unmask);
        // A thread that waits for the line notices the failure by its deadline; an ended connection is reported at the next access.
        if let Err(error) = set(&self.0, SetIrqs { data, action, index: irq::INTX, start: 0, count: 1 }, &[])
        {
            tracing::warn!(%error, "the interrupt line stays masked");
        }
    }
}

fn ask(link: &ServerConnection, index: u32) -> Result<IrqInfo, ServerError> {
    link.ask(&Request::DeviceGetIrqInfo(InfoRequest { argsz: 16, index }), &[], |reply, _| match reply {
        Reply::DeviceGetIrqInfo(info) if info.index == index => Ok(info),
        _ => Err(protocol("a reply about another interrupt type")),
    })
}

/// Assigns `files` to the interrupts from `start` on.
fn trigger(
    link: &ServerConnection,
    index: u32,
    start: u32,
    files: &[BorrowedFd<'_>],
) -> Result<(), ServerError> {
    let (data, action) = (IrqData::EventFds, IrqAction::Trigger);
    // A message carries far fewer descriptors.
    let count = u32::try_from(files.len()).debug_expect("descriptors of one message").unwrap_or(u32::MAX);
    set(link, SetIrqs { data, action, index, start, count }, files)
}

/// Removes all event descriptors of the kind.
fn off(link: &ServerConnection, index: u32) -> Result<(), ServerError> {
    let (data, action) = (IrqData::None, IrqAction::Trigger);
    set(link, SetIrqs { data, action, index, start: 0, count: 0 }, &[])
}

fn set(link: &ServerConnection, irqs: SetIrqs<'_>, files: &[BorrowedFd<'_>]) -> Result<(), ServerError> {
    link.ask(&Request::DeviceSetIrqs(irqs), files, |reply, _| match reply {
        Reply::DeviceSetIrqs => Ok(()),
        _ => Err(protocol("a reply to another command")),
    })
}
