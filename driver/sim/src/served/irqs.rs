//! `DEVICE_SET_IRQS`: assigns event descriptors to interrupts, masks, unmasks and triggers them.

use super::device;
use super::error::RequestError;
use crate::signals::Kind;
use crate::state::Slot;
use core::mem::MaybeUninit;
use fpga_pci::{InterruptError, InterruptTrigger};
use fpga_vfio_user::wire::{IrqAction, IrqData, SetIrqs};
use rustix::event::{Timespec, epoll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Event descriptor that the client signals to have INTx unmasked, as it does with the kernel (`VFIO_IRQ_SET_ACTION_UNMASK` with an
/// eventfd) and as QEMU with KVM does here: KVM signals it when the guest has handled the interrupt. The specification of vfio-user makes
/// the server signal such a descriptor instead. A line that stays masked until the client reads what the server itself has written would
/// never fire again, so the kernel's meaning is used.
///
/// As in the kernel, an earlier signal counts. The descriptor is polled through an edge-triggered epoll descriptor and read only if a read
/// does not block: file flags are shared by all owners of the file and must not be changed by this process.
#[derive(Debug)]
pub(super) struct LineUnmask {
    edges: OwnedFd,
    signalled: OwnedFd,
    reads: bool,
}

impl LineUnmask {
    fn new(signalled: OwnedFd) -> Result<Self, InterruptError> {
        // Requirements are those of an event descriptor for signalling.
        let signalled = InterruptTrigger::check(signalled)?;
        let refuse = |errno: Errno| InterruptError::NoDescriptor { source: errno.into() };
        let edges = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refuse)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&edges, &signalled, epoll::EventData::new_u64(0), flags).map_err(refuse)?;
        let reads = rustix::fs::fcntl_getfl(&signalled).map_err(refuse)?.contains(OFlags::NONBLOCK);
        Ok(Self { edges, signalled, reads })
    }

    /// Returns whether it was signalled since the last call.
    pub(super) fn take(&self) -> bool {
        let mut event = [const { MaybeUninit::<epoll::Event>::uninit() }; 1];
        // Only an interruption by a signal can fail here, and it is equivalent to no event.
        let seen = epoll::wait(&self.edges, &mut event, Some(&Timespec::default()));
        let signalled = seen.is_ok_and(|(seen, _)| !seen.is_empty());
        if signalled && self.reads {
            // The number of signals does not matter, nor whether another reader was faster.
            let _ = rustix::io::read(&self.signalled, &mut [0; 8]);
        }
        signalled
    }
}

impl AsFd for LineUnmask {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.edges.as_fd()
    }
}

/// Executes the request. `line` is the client's unmask descriptor for INTx.
pub(super) fn set(
    slot: &mut Slot,
    request: &SetIrqs<'_>,
    mut fds: Vec<OwnedFd>,
    line: &mut Option<LineUnmask>,
) -> Result<(), RequestError> {
    let SetIrqs { data, action, index, start, count } = *request;
    let info = device::irq_info(&slot.card, index);
    let (Some(kind), Some(info)) = (device::kind(index), info) else {
        return Err(RequestError::NoIrq(index));
    };
    if data == IrqData::None && action == IrqAction::Trigger && count == 0 {
        disable(slot, kind);
        if kind == Kind::Intx {
            *line = None;
        }
        return Ok(());
    }
    // The sum was checked when the message was parsed.
    if count == 0 || start.saturating_add(count) > info.count {
        return Err(RequestError::IrqRange { index, start, count, available: info.count });
    }
    let vectors = start..start + count;
    if data == IrqData::EventFds {
        if (kind, action) == (Kind::Intx, IrqAction::Unmask) {
            // INTx is one line: there is one descriptor, or none to remove it.
            if fds.len() > 1 {
                return Err(RequestError::IrqDescriptors { got: fds.len(), count });
            }
            let unmask = fds.pop().map(LineUnmask::new).transpose();
            *line = unmask.map_err(|source| RequestError::IrqDescriptor { index, number: 0, source })?;
            return Ok(());
        }
        // The kernel does not mask messages by descriptors either.
        if action != IrqAction::Trigger {
            return Err(RequestError::IrqAction { index });
        }
        return assign(slot, kind, request, fds);
    }
    // There are as many booleans as vectors.
    let chosen = |number: u32| match data {
        IrqData::Bool(bytes) => {
            usize::try_from(number - start).ok().and_then(|at| bytes.get(at)).is_some_and(|byte| *byte != 0)
        }
        _ => true,
    };
    for number in vectors.filter(|number| chosen(*number)) {
        match action {
            IrqAction::Trigger => slot.host.signals.signal(kind, place(number)),
            IrqAction::Mask => set_masked(slot, kind, index, number, true)?,
            IrqAction::Unmask => set_masked(slot, kind, index, number, false)?,
        }
    }
    Ok(())
}

/// Converts an interrupt number to an index.
fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn assign(slot: &mut Slot, kind: Kind, request: &SetIrqs<'_>, fds: Vec<OwnedFd>) -> Result<(), RequestError> {
    let SetIrqs { index, start, count, .. } = *request;
    let triggers: Vec<Option<InterruptTrigger>> = if fds.is_empty() {
        (0..count).map(|_| None).collect()
    } else if u32::try_from(fds.len()) == Ok(count) {
        let take = |(number, file)| match InterruptTrigger::from_descriptor(file) {
            Ok(trigger) => Ok(Some(trigger)),
            Err(source) => Err(RequestError::IrqDescriptor { index, number, source }),
        };
        (start..).zip(fds).map(take).collect::<Result<_, _>>()?
    } else {
        return Err(RequestError::IrqDescriptors { got: fds.len(), count });
    };
    let heard = triggers.iter().all(Option::is_some);
    slot.host.signals.assign(kind, place(start), triggers);
    match kind {
        Kind::Msix => {
            if !slot.card.config().msix_enabled() {
                slot.card.enable_msix(0);
            }
            // The client keeps the table (its guest may never reach the card's own): entries without an event descriptor are masked, so
            // that interrupts that arrive meanwhile become pending.
            let (first, count) = (u16::try_from(start), u16::try_from(count));
            slot.card.set_msix_masked(first.unwrap_or(u16::MAX), count.unwrap_or(0), !heard);
        }
        Kind::Msi => device::enable_msi(&mut slot.card, start.saturating_add(count)),
        Kind::Intx => assert_line(slot),
        Kind::Err | Kind::Req => {}
    }
    Ok(())
}

fn set_masked(
    slot: &mut Slot,
    kind: Kind,
    index: u32,
    number: u32,
    masked: bool,
) -> Result<(), RequestError> {
    match kind {
        Kind::Msix => slot.card.set_msix_masked(u16::try_from(number).unwrap_or(u16::MAX), 1, masked),
        Kind::Msi => slot.host.signals.set_masked(kind, place(number), masked),
        Kind::Intx if masked => slot.host.signals.set_masked(kind, 0, true),
        Kind::Intx => unmask_line(slot),
        Kind::Err | Kind::Req => return Err(RequestError::IrqAction { index }),
    }
    Ok(())
}

/// Unmasks INTx.
pub(super) fn unmask_line(slot: &mut Slot) {
    slot.host.signals.set_masked(Kind::Intx, 0, false);
    assert_line(slot);
}

/// INTx is level-triggered: a (new) listener is signalled if the line is asserted now.
fn assert_line(slot: &mut Slot) {
    if slot.card.line_asserted() {
        slot.host.signals.line();
    }
}

fn disable(slot: &mut Slot, kind: Kind) {
    slot.host.signals.clear(kind);
    match kind {
        Kind::Msix => slot.card.disable_msix(),
        Kind::Msi => device::disable_msi(&mut slot.card),
        Kind::Intx | Kind::Err | Kind::Req => {}
    }
}

/// Restores enabled interrupts after a reset of the card, as the kernel restores configuration space.
pub(super) fn restore(slot: &mut Slot) {
    let msix: Vec<usize> = slot.host.signals.assigned(Kind::Msix).collect();
    if !msix.is_empty() {
        slot.card.enable_msix(0);
    }
    for number in msix.into_iter().filter_map(|number| u16::try_from(number).ok()) {
        slot.card.set_msix_masked(number, 1, false);
    }
    let msi = slot.host.signals.assigned(Kind::Msi).last();
    if let Some(last) = msi.and_then(|last| u32::try_from(last).ok()) {
        device::enable_msi(&mut slot.card, last.saturating_add(1));
    }
}
