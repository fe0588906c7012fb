//! `DEVICE_SET_IRQS`: argsz (4 bytes), flags (4), index (4), start (4), count (4), then one byte an interrupt where the
//! data are booleans. `struct vfio_irq_set` in `linux/vfio.h`.

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

/// To which interrupts the action applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IrqData<'a> {
    /// To all of the range at once. With a count of 0 and [`IrqAction::Trigger`]: all interrupts of the kind are disabled.
    None,
    /// To those whose byte is not 0.
    Bool(&'a [u8]),
    /// Later, and then an event descriptor is signalled: one comes along for each interrupt, or none at all to take back
    /// those that were given before.
    EventFds,
}

/// What is done, or what an event descriptor will tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IrqAction {
    /// The interrupt is masked.
    Mask,
    /// It is unmasked.
    Unmask,
    /// It is raised.
    Trigger,
}

/// Who is told of interrupts, or what is to happen to them now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetIrqs<'a> {
    /// To which.
    pub data: IrqData<'a>,
    /// What.
    pub action: IrqAction,
    /// Kind of interrupt: see [`irq`](super::irq).
    pub index: u32,
    /// First one of the range.
    pub start: u32,
    /// How many.
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

    /// The size argument is not looked at: the crate `vfio_user` leaves the data out of it, QEMU counts them in.
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
