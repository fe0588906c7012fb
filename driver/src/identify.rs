//! Identity of a card: PCI ids, and the identity block of its network interface.

use fpga_firmware::identity::{Identity, IdentityError, IdentityReadError};
use fpga_pci::{Backend, Bar, ConfigSpaceError, MmioError, config};
use fpga_registers::pci::{command, header};

use crate::discover::BarRoles;
use crate::error::OpenError;
use crate::info::{PciIds, VIEW_SUBSYSTEM};
use crate::ni::NiInfo;
use crate::options::{NetworkInterface, OpenOptions};
use crate::silence::AllOnesCause;

/// PCI subsystem ids (vendor, device) of bitstreams with an identity block. Only with these ids is the user BAR read without an explicit
/// option.
pub const NI_SUBSYSTEM: (u16, u16) = (fpga_registers::pci::VENDOR_XILINX, 0x4E49);

pub(crate) fn read_ids(backend: &dyn Backend) -> Result<PciIds, OpenError> {
    let read = || -> Result<PciIds, ConfigSpaceError> {
        let (vendor, device) = config::identity(backend)?;
        let subsystem = (
            config::read_u16(backend, header::SUBSYSTEM_VENDOR_ID)?,
            config::read_u16(backend, header::SUBSYSTEM_ID)?,
        );
        let enabled = config::read_u16(backend, header::COMMAND)?;
        if vendor != fpga_registers::pci::VENDOR_NONE && enabled & command::MEMORY_SPACE == 0 {
            backend.config_write(header::COMMAND, &(enabled | command::MEMORY_SPACE).to_le_bytes())?;
        }
        Ok(PciIds { vendor, device, subsystem })
    };
    let ids = match read() {
        Err(ConfigSpaceError::Gone) => return Err(OpenError::Gone),
        other => other?,
    };
    if ids.vendor == fpga_registers::pci::VENDOR_NONE {
        return Err(OpenError::Gone);
    }
    Ok(ids)
}

/// Replaces the error of an identity block that reads as all ones by its cause, on a card whose DMA BAR answers.
pub(crate) fn silent_user_bar(error: OpenError) -> OpenError {
    match error {
        OpenError::Cause(cause)
            if matches!(
                cause.get(),
                Some(IdentityReadError::<MmioError>::Refused(IdentityError::AllOnes))
            ) =>
        {
            OpenError::UserLogic(AllOnesCause::UserLogic)
        }
        error => error,
    }
}

pub(crate) type Interface = (Option<Identity>, Option<NiInfo>);

pub(crate) fn network_interface(
    options: &OpenOptions,
    subsystem: (u16, u16),
    roles: &BarRoles,
    bar: Option<&Bar>,
) -> Result<Interface, OpenError> {
    let wanted = match options.network_interface {
        NetworkInterface::Ignored => false,
        NetworkInterface::Expected => true,
        NetworkInterface::BySubsystem => [NI_SUBSYSTEM, VIEW_SUBSYSTEM].contains(&subsystem),
    };
    if !wanted {
        return Ok((None, None));
    }
    let (Some(bar), Some(role)) = (bar, roles.user) else {
        return Err(OpenError::RoleAbsent { role: "user (AXI-Lite)", needed_for: "the network interface" });
    };
    let needed = u64::from(fpga_firmware::generated::USER_BAR_MIN_SIZE);
    if role.size < needed {
        return Err(OpenError::BarTooSmall { role: "user", index: role.index, size: role.size, needed });
    }
    let identity = Identity::read(bar, bar.size()).map_err(|source| match source {
        IdentityReadError::Access { error, .. } => OpenError::from(error),
        source => source.into(),
    })?;
    let ni = NiInfo::read(bar, &identity)?;
    Ok((Some(identity), Some(ni)))
}
