//! `DEVICE_SET_IRQS`: who is told of interrupts, and what is to happen to them now.

use super::device;
use super::error::RequestError;
use crate::signals::Kind;
use crate::state::Slot;
use fpga_pci::InterruptTrigger;
use fpga_pci::vfio_user::wire::{IrqAction, IrqData, SetIrqs};
use std::os::fd::OwnedFd;

/// Carries the request out.
pub(super) fn set(slot: &mut Slot, request: &SetIrqs<'_>, fds: Vec<OwnedFd>) -> Result<(), RequestError> {
    let SetIrqs { data, action, index, start, count } = *request;
    let info = device::irq_info(&slot.card, index);
    let (Some(kind), Some(info)) = (device::kind(index), info) else {
        return Err(RequestError::NoIrq(index));
    };
    if data == IrqData::None && action == IrqAction::Trigger && count == 0 {
        disable(slot, kind);
        return Ok(());
    }
    // The sum was checked when the message was taken apart.
    if count == 0 || start.saturating_add(count) > info.count {
        return Err(RequestError::IrqRange { index, start, count, available: info.count });
    }
    let vectors = start..start + count;
    if data == IrqData::EventFds {
        if action != IrqAction::Trigger {
            return Err(RequestError::IrqAction { index });
        }
        return assign(slot, kind, request, fds);
    }
    // Of booleans there are as many as vectors.
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

/// A number of an interrupt as an index.
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
            // The client keeps the table (its guest may never reach the card's own): entries that nobody hears are masked,
            // so that what comes meanwhile shows as pending.
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
        Kind::Intx => {
            slot.host.signals.set_masked(kind, 0, masked);
            if !masked {
                assert_line(slot);
            }
        }
        Kind::Err | Kind::Req => return Err(RequestError::IrqAction { index }),
    }
    Ok(())
}

/// The line is a level: whoever listens (again) is told of it if it is asserted now.
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

/// After a reset of the card: as the kernel restores configuration space, what was enabled is enabled again.
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
