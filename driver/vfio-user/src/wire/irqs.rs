//! `DEVICE_SET_IRQS`: argsz (4 bytes), flags (4), index (4), start (4), count (4), then one byte per interrupt if the data are booleans.
//! `struct vfio_irq_set` in `linux/vfio.h`.

use super::bytes::Bytes;
use super::{Command, WireError};

const DATA_NONE: u32 = 1 << 0;
const DATA_BOOL: u32 = 1 << 1;
const DATA_EVENTFD: u32 = 1 << 2;
const DATA: u32 = DATA_NONE | DATA_BOOL | DATA_EVENTFD;
const ACTION_MASK: u32 = 1 << 3;
const ACTION_UNMASK: u32 = 1 << 4;
const ACTION_TRIGGER: u32 = 1 << 5;
const ACTIONS: u32 = ACTION_MASK | ACTION_UNMASK | ACTION_TRIGGER;

/// Interrupts to which the action applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IrqData<'a> {
    /// The whole range at once. With a count of 0 and [`IrqAction::Trigger`]: all interrupts of the kind are disabled.
    None,
    /// The interrupts whose byte is not 0.
    Bool(&'a [u8]),
    /// The action occurs later and is signalled by an event descriptor: one is passed for each interrupt, or none to remove the earlier
    /// ones.
    EventFds,
}

/// Action that is performed, or that an event descriptor signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IrqAction {
    /// Masks the interrupt.
    Mask,
    /// Unmasks the interrupt.
    Unmask,
    /// Triggers the interrupt.
    Trigger,
}

/// Configures event descriptors, or performs an action at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetIrqs<'a> {
    /// Interrupts that are selected.
    pub data: IrqData<'a>,
    /// Action.
    pub action: IrqAction,
    /// Interrupt kind: see [`irq`](super::irq).
    pub index: u32,
    /// First interrupt of the range.
    pub start: u32,
    /// Number of interrupts.
    pub count: u32,
}

impl<'a> SetIrqs<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (data, bytes): (u32, &[u8]) = match self.data {
            IrqData::None => (DATA_NONE, &[]),
            IrqData::Bool(bytes) => (DATA_BOOL, bytes),
            IrqData::EventFds => (DATA_EVENTFD, &[]),
        };
        let action = match self.action {
            IrqAction::Mask => ACTION_MASK,
            IrqAction::Unmask => ACTION_UNMASK,
            IrqAction::Trigger => ACTION_TRIGGER,
        };
        let argsz = u32::try_from(20 + bytes.len()).unwrap_or(u32::MAX);
        for word in [argsz, data | action, self.index, self.start, self.count] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.extend_from_slice(bytes);
    }

    /// Decodes the request. The size argument is ignored: the crate `vfio_user` excludes the data from it, QEMU includes it.
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        const COMMAND: Command = Command::DEVICE_SET_IRQS;
        let mut bytes = Bytes::at_least(COMMAND, body, 20)?;
        bytes.u32()?;
        let (flags, index, start, count) = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
        let rest = bytes.rest();
        let wrong = WireError::Flags { command: COMMAND, flags };
        let (data, length) = match flags & DATA {
            DATA_NONE => (IrqData::None, 0),
            DATA_BOOL => (IrqData::Bool(rest), u64::from(count)),
            DATA_EVENTFD => (IrqData::EventFds, 0),
            _ => return Err(wrong),
        };
        let action = match flags & !DATA {
            ACTION_MASK => IrqAction::Mask,
            ACTION_UNMASK => IrqAction::Unmask,
            ACTION_TRIGGER => IrqAction::Trigger,
            _ => return Err(wrong),
        };
        const { assert!(DATA | ACTIONS == 0x3F) };
        if rest.len() as u64 != length {
            return Err(WireError::Count { command: COMMAND, count: length, got: rest.len() as u64 });
        }
        if start.checked_add(count).is_none() {
            return Err(WireError::Count {
                command: COMMAND,
                count: count.into(),
                got: (u32::MAX - start).into(),
            });
        }
        Ok(Self { data, action, index, start, count })
    }
}
