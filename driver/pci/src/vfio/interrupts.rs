//! Interrupts of an opened device: MSI-X before MSI before INTx, and the indices for errors and release requests.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_INTX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX,
};

use super::sys::{Calls, SetIrqs};
use crate::interrupt::Unmask;
use crate::{DeviceEvents, Interrupt, InterruptError, OsError, lock};

/// Flags: signal a descriptor at each interrupt.
const TRIGGER: u32 = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
/// Flags: unmask the line when a descriptor is signalled.
const UNMASK: u32 = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_UNMASK;
/// Flags: remove all descriptors.
const OFF: u32 = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;

/// Kind of interrupt of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IrqKind {
    Msix,
    Msi,
    /// Level-triggered: the kernel masks the line when it fires.
    Intx,
}

impl IrqKind {
    const fn index(self) -> u32 {
        match self {
            Self::Msix => VFIO_PCI_MSIX_IRQ_INDEX,
            Self::Msi => VFIO_PCI_MSI_IRQ_INDEX,
            Self::Intx => VFIO_PCI_INTX_IRQ_INDEX,
        }
    }
}

/// The interrupts of one device.
#[derive(Debug)]
pub(super) struct Interrupts {
    /// `None`: the device has no interrupts.
    pub(super) kind: Option<IrqKind>,
    pub(super) vectors: u32,
    on: Mutex<bool>,
}

impl Interrupts {
    /// Finds the best interrupt kind of the device.
    pub(super) fn find(device: Calls<'_>) -> Result<Self, OsError> {
        for kind in [IrqKind::Msix, IrqKind::Msi, IrqKind::Intx] {
            let (_, vectors) = device.irq_info(kind.index())?;
            if vectors != 0 {
                return Ok(Self { kind: Some(kind), vectors, on: Mutex::new(false) });
            }
        }
        Ok(Self { kind: None, vectors: 0, on: Mutex::new(false) })
    }

    fn on(&self) -> MutexGuard<'_, bool> {
        lock(&self.on)
    }

    /// Enables vectors `0..count`.
    pub(super) fn enable(&self, device: Calls<'_>, count: u32) -> Result<Vec<Interrupt>, InterruptError> {
        let mut on = self.on();
        if *on {
            return Err(InterruptError::AlreadyEnabled);
        }
        let kind = self.kind.filter(|_| count != 0 && count <= self.vectors);
        let kind = kind.ok_or(InterruptError::TooMany { asked: count, available: self.vectors })?;
        let interrupts: Result<Vec<_>, _> =
            (0..count).map(|_| Interrupt::pair().map(|(interrupt, _)| interrupt)).collect();
        let mut interrupts = interrupts?;
        let files: Vec<RawFd> = interrupts.iter().map(AsRawFd::as_raw_fd).collect();
        let refused = |source| InterruptError::Refused { count, source };
        match device.set_irqs(kind.index(), TRIGGER, SetIrqs::Files(&files)).map_err(refused)? {
            0 => {}
            // Not an error for the kernel: nothing is enabled, and it returns the available number.
            available => return Err(InterruptError::TooMany { asked: count, available }),
        }
        if kind == IrqKind::Intx {
            let unmask = || -> Result<_, InterruptError> {
                let (waiting, trigger) = Interrupt::pair()?;
                let files = [waiting.as_raw_fd()];
                device.set_irqs(kind.index(), UNMASK, SetIrqs::Files(&files)).map_err(refused)?;
                Ok(trigger)
            };
            match unmask() {
                Ok(trigger) => {
                    let unmask: Arc<dyn Unmask> = Arc::new(trigger);
                    let level = |interrupt: Interrupt| interrupt.level(Arc::clone(&unmask));
                    interrupts = interrupts.into_iter().map(level).collect();
                }
                Err(error) => {
                    // A line that cannot be unmasked would fire only once.
                    let _ = device.set_irqs(kind.index(), OFF, SetIrqs::Count(0));
                    return Err(error);
                }
            }
        }
        *on = true;
        Ok(interrupts)
    }

    /// Disables all vectors.
    pub(super) fn disable(&self, device: Calls<'_>) -> Result<(), InterruptError> {
        let mut on = self.on();
        if let (true, Some(kind)) = (*on, self.kind) {
            device
                .set_irqs(kind.index(), OFF, SetIrqs::Count(0))
                .map_err(|source| InterruptError::Refused { count: 0, source })?;
        }
        *on = false;
        Ok(())
    }
}

/// Arms the error and request interrupts that the device has: a function without PCI Express has no error interrupt. An interrupt that the
/// kernel refuses is omitted and logged, because the device can be used without it.
pub(super) fn arm_events(device: Calls<'_>, name: &str) -> Result<DeviceEvents, InterruptError> {
    let arm = |index: u32, what: &str| -> Result<Option<Interrupt>, InterruptError> {
        if !matches!(device.irq_info(index), Ok((_, vectors)) if vectors != 0) {
            tracing::debug!(device = name, what, "the device does not report this");
            return Ok(None);
        }
        let (interrupt, _) = Interrupt::pair()?;
        match device.set_irqs(index, TRIGGER, SetIrqs::Files(&[interrupt.as_raw_fd()])) {
            Ok(_) => Ok(Some(interrupt)),
            Err(error) => {
                tracing::warn!(device = name, what, %error, "the system refuses to report this");
                Ok(None)
            }
        }
    };
    let error = arm(VFIO_PCI_ERR_IRQ_INDEX, "bus errors")?;
    let release = arm(VFIO_PCI_REQ_IRQ_INDEX, "requests to give it back")?;
    DeviceEvents::new(error, release)
}
