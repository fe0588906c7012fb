//! Advice for each error: what a person can do about it, without the words of one front end. Front ends that know more, such as the
//! option that sets a limit, match the variant.

use std::borrow::Cow;

use super::{
    BarError, ConfigSpaceError, ConnectionError, DmaAllocError, DmaMapError, InterruptError, IovaError,
    MemoryError, MmioError, ResetError, ServerError,
};
use crate::ResetLevel;

/// Advice for a server that does not answer in time.
const SLOW_SERVER: &str = "let the server run, or allow more time for an answer";

impl MmioError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::OutOfRange { .. } => "check the number of the BAR and the offset of the register",
            Self::Misaligned { .. } => "access registers at multiples of their width",
            Self::Gone { .. } => "open the card again when it is back",
            Self::Stale { .. } => "open the BAR again and initialise the device",
            Self::Refused { .. } => "check that memory decoding is on in the device's command register",
            Self::Server { source, .. } => return source.help(),
            Self::OtherProcess(inner) => inner.help(),
        }))
    }
}

impl BarError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Absent { .. } => Some("choose a BAR that the device implements".into()),
            Self::MapFailed { .. } => Some(
                "check the address space limit (ulimit -v), and that no other driver holds the device".into(),
            ),
            Self::BadIndex { .. } | Self::Unsupported { .. } => None,
        }
    }
}

impl ConfigSpaceError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Refused { .. } => Some("check that the device is still on the bus".into()),
            Self::Gone => Some("open the card again when it is back".into()),
            Self::Server { source, .. } => source.help(),
            Self::OutOfRange { .. } | Self::BadCapabilityList { .. } => None,
        }
    }
}

impl DmaMapError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Misaligned { .. } => "round address and length to the page size",
            Self::OutsideRanges { .. } => "take addresses from the permitted ranges",
            Self::Overlap { .. } => "unmap the existing mapping first, or take other addresses",
            Self::NotMapped { .. } => "unmap with the address and length of the mapping",
            Self::LockedMemory { needed, .. } => {
                let kib = needed.div_ceil(1024);
                return Some(Cow::Owned(format!(
                    "raise the limit (ulimit -l {kib}), \"USER - memlock {kib}\" in /etc/security/limits.conf, or LimitMEMLOCK={needed} in a systemd unit"
                )));
            }
            Self::LockedMemoryOfUser { .. } => {
                "end other programs that use cards, or raise the limit (ulimit -l, memlock in limits.conf, LimitMEMLOCK= in a systemd unit)"
            }
            Self::TooManyMappings { .. } => {
                "map fewer, larger regions, or raise dma_entry_limit of module vfio_iommu_type1"
            }
            Self::LimitReached { .. } => "check free memory, or map fewer, larger regions",
            Self::Refused { .. } => "read the kernel's log (dmesg), and check IOMMU and device",
            Self::Server { source, .. } => return source.help(),
        }))
    }
}

impl InterruptError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::TooMany { .. } => "share vectors, or poll",
            Self::AlreadyEnabled => "disable the interrupts first: one call enables all vectors",
            Self::NoDescriptor { .. } => "raise the limit on open files (ulimit -n)",
            Self::Refused { .. } => "poll instead, or read the kernel's log (dmesg)",
            Self::WaitFailed { .. } => "poll instead, or open the card again",
            Self::Server { source, .. } => return source.help(),
            Self::OtherProcess(inner) => inner.help(),
        }))
    }
}

impl ResetError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Unsupported { level: ResetLevel::Function } => {
                "use a hot reset of the slot, or power-cycle the card"
            }
            Self::Unsupported { level: ResetLevel::Hot } => {
                "use a function reset, if supported, or power-cycle the card"
            }
            Self::NotOwned { .. } => {
                "bind them to vfio-pci in the same IOMMU group, or remove them (echo 1 > /sys/bus/pci/devices/ADDRESS/remove)"
            }
            Self::Failed { .. } | Self::Server { .. } => "do not reuse DMA memory of this device",
            Self::NoAnswer { .. } => "power-cycle it",
        }))
    }
}

impl MemoryError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Unavailable { .. } => Some("check free memory and the limits of this process".into()),
            Self::OutOfRange { .. } | Self::Misaligned { .. } | Self::BadLength { .. } => None,
        }
    }
}

impl IovaError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub const fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Exhausted { .. } => Some(Cow::Borrowed("free other buffers, or take a smaller one")),
            Self::BadRequest { .. } | Self::NotAllocated { .. } => None,
        }
    }
}

impl DmaAllocError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::BadRequest { .. } => return None,
            Self::Exhausted { .. } => "drop buffers, or raise the limit of the pool",
            Self::NotWholePages { .. } => "round the memory up to whole pages",
            Self::AlreadyMapped { .. } => "share that area, or drop it first (in quarantine it stays mapped)",
            Self::AddressWidth { .. } => {
                "state the card's address bits if it has more, or move it to a slot below another root port"
            }
            Self::Memory(inner) => return inner.help(),
            Self::Iova(inner) => return inner.help(),
            Self::Map(inner) => return inner.help(),
            Self::OtherProcess(inner) => inner.help(),
        }))
    }
}

impl ServerError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Refused { .. } => Some("read the log of the server".into()),
            Self::TimedOut { .. } => Some(SLOW_SERVER.into()),
            Self::ConnectionLost { cause, .. } | Self::Disconnected { cause, .. } => {
                cause.help().or(Some("open the card again when its server is back".into()))
            }
        }
    }
}

impl ConnectionError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub const fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Protocol { .. } => {
                Some(Cow::Borrowed("use a server of this protocol, and of this program's version"))
            }
            Self::TimedOut { .. } => Some(Cow::Borrowed(SLOW_SERVER)),
            Self::Closed | Self::ClosedLocally | Self::System(_) => None,
        }
    }
}
