//! Identity of a card: PCI ids, and the identity block of its network interface.

use fpga_firmware::identity::{Identity, IdentityError, ReadError};
use fpga_pci::{Backend, Bar, ConfigError, MmioError, config};
use fpga_registers::pci::{command, header};

use crate::discover::BarRoles;
use crate::error::OpenError;
use crate::info::PciIds;
use crate::ni::NiInfo;
use crate::options::{NetworkInterface, OpenOptions};
use crate::silence::AllOnesCause;

/// PCI subsystem ids (vendor, device) of bitstreams with an identity block. Only with these ids is the user BAR read without an explicit
/// option.
pub const NI_SUBSYSTEM: (u16, u16) = (fpga_registers::pci::VENDOR_XILINX, 0x4E49);

pub(crate) fn mmio(card: &str, source: MmioError) -> OpenError {
    OpenError::Mmio { card: card.to_owned(), source }
}

pub(crate) fn read_ids(backend: &dyn Backend, name: &str) -> Result<PciIds, OpenError> {
    let read = || -> Result<PciIds, ConfigError> {
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
        Err(ConfigError::Gone) => return Err(OpenError::Gone { card: name.to_owned() }),
        other => other.map_err(|source| OpenError::Config { card: name.to_owned(), source })?,
    };
    if ids.vendor == fpga_registers::pci::VENDOR_NONE {
        return Err(OpenError::Gone { card: name.to_owned() });
    }
    Ok(ids)
}

/// Replaces the error of an identity block that reads as all ones by its cause, on a card whose DMA BAR answers.
pub(crate) fn silent_user_bar(card: &str, error: OpenError) -> OpenError {
    match error {
        OpenError::Identity { source: ReadError::Refused(IdentityError::AllOnes), .. } => {
            OpenError::UserLogic { card: card.to_owned(), cause: AllOnesCause::UserLogic }
        }
        error => error,
    }
}

pub(crate) type Interface = (Option<Identity>, Option<NiInfo>);

pub(crate) fn network_interface(
    card: &str,
    options: &OpenOptions,
    subsystem: (u16, u16),
    roles: &BarRoles,
    bar: Option<&Bar>,
) -> Result<Interface, OpenError> {
    let wanted = match options.network_interface {
        NetworkInterface::Ignored => false,
        NetworkInterface::Expected => true,
        NetworkInterface::BySubsystem => subsystem == NI_SUBSYSTEM,
    };
    if !wanted {
        return Ok((None, None));
    }
    let (Some(bar), Some(role)) = (bar, roles.user) else {
        return Err(OpenError::RoleAbsent {
            card: card.to_owned(),
            role: "user (AXI-Lite)",
            needed_for: "the network interface",
        });
    };
    let needed = u64::from(fpga_firmware::generated::USER_BAR_MIN_SIZE);
    if role.size < needed {
        return Err(OpenError::BarTooSmall {
            card: card.to_owned(),
            role: "user",
            index: role.index,
            size: role.size,
            needed,
        });
    }
    let identity = Identity::read(bar, bar.size()).map_err(|source| match source {
        ReadError::Access { error, .. } => mmio(card, error),
        source => OpenError::Identity { card: card.to_owned(), source },
    })?;
    let ni = NiInfo::read(bar, &identity).map_err(|source| mmio(card, source))?;
    Ok((Some(identity), Some(ni)))
}
