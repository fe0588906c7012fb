//! The steps of opening a served device, each with its own error.

use core::ops::Range;
use core::time::Duration;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::SealFlags;
use rustix::io::Errno;

use super::bar::{ConfigRegion, Region, bar_region};
use super::connection::ServerConnection;
use super::error::{VfioUserOpenError, protocol};
use super::interrupts::Interrupts;
use super::socket::Connection;
use super::wire::{
    Capabilities, DeviceInfo, InfoRequest, MAJOR, MAX_DATA, MAX_FDS, MINOR, RegionInfo, Reply, Request,
    Version, device_flags, region, region_flags,
};
use fpga_pci::{BarInfo, BarKind, InterruptError, OsError, ServerError, config};

/// Options of the connection to a server.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct VfioUserOptions {
    /// Maximum time of one message and its reply. An access that is not answered by then fails
    /// ([`ServerError::TimedOut`]), and the card can be used again once the server has answered; any other request ends the connection.
    /// Default 30 s: a server on a busy machine, or one that is being debugged, is not a removed card.
    pub deadline: Duration,
    /// Register writes request no reply, as on a bus: the next read waits for them. A refusal of a write is then not reported. Default
    /// true.
    pub posted_writes: bool,
    /// Map the parts of a BAR that the server shares, if its file is sealed against shrinking: an access to memory of a shrunk file would
    /// end this process. Default true.
    pub map_bars: bool,
    /// Register writes go through memory that is shared with the server, if it offers that: without a message each. Only with
    /// [`posted_writes`](Self::posted_writes). Default true.
    pub shared_writes: bool,
}

impl Default for VfioUserOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(30), posted_writes: true, map_bars: true, shared_writes: true }
    }
}

/// Environment variable with the maximum time of a message to a vfio-user server and its reply, in seconds.
pub const MESSAGE_TIMEOUT_VARIABLE: &str = "FPGA_MESSAGE_TIMEOUT";

impl VfioUserOptions {
    /// Returns the defaults, changed by the environment variable [`MESSAGE_TIMEOUT_VARIABLE`]. An empty variable is ignored.
    ///
    /// # Errors
    /// [`VfioUserOpenError::Environment`].
    pub fn from_environment() -> Result<Self, VfioUserOpenError> {
        Self::from_variable(
            std::env::var_os(MESSAGE_TIMEOUT_VARIABLE).map(|text| text.to_string_lossy().into_owned()),
        )
    }

    fn from_variable(text: Option<String>) -> Result<Self, VfioUserOpenError> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Self::default()) };
        let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match seconds.filter(|time| !time.is_zero()) {
            Some(deadline) => Ok(Self::default().deadline(deadline)),
            None => Err(VfioUserOpenError::Environment { variable: MESSAGE_TIMEOUT_VARIABLE, text }),
        }
    }
}

fpga_registers::setters! {
    impl VfioUserOptions {
        /// Sets the maximum time of one message.
        deadline: Duration;
        /// Sets whether register writes are sent without reply.
        posted_writes: bool;
        /// Sets whether shared parts of a BAR are mapped.
        map_bars: bool;
        /// Sets whether register writes go through shared memory.
        shared_writes: bool;
    }
}

/// Region that the server shares: its file, its offset in the file, and the ranges that may be mapped.
pub(super) struct SharedRegion {
    pub(super) file: Arc<OwnedFd>,
    pub(super) offset: u64,
    pub(super) areas: Vec<Range<u64>>,
}

/// Properties of the device as reported by the server.
pub(super) struct DeviceDescription {
    pub(super) link: Arc<ServerConnection>,
    pub(super) capabilities: Capabilities,
    pub(super) device: DeviceInfo,
    pub(super) config: ConfigRegion,
    pub(super) bars: [Option<BarInfo>; 6],
    pub(super) shared: [Option<SharedRegion>; 6],
    pub(super) interrupts: Interrupts,
}

/// Bytes requested first for a region's description: more than any known server sends.
const REGION_INFO: u32 = 4096;
/// Maximum number of bytes requested: space for some thousand areas.
const MAX_REGION_INFO_SIZE: u32 = 1 << 16;

/// Queries everything that does not change. `socket` is for error messages.
pub(super) fn describe(
    connection: Connection,
    socket: &Path,
    options: &VfioUserOptions,
) -> Result<DeviceDescription, VfioUserOpenError> {
    let peer = |source: ServerError| VfioUserOpenError::Server { socket: socket.to_owned(), source };
    let not_pci = |what: &'static str| VfioUserOpenError::NotPci { socket: socket.to_owned(), what };
    let link = Arc::new(ServerConnection::new(connection, options.deadline));
    let shares_writes = options.posted_writes && options.shared_writes;
    let capabilities = negotiate(&link, socket, shares_writes)?;
    let device = device_info(&link).map_err(peer)?;
    if device.flags & device_flags::PCI == 0 {
        return Err(not_pci("it does not call itself one"));
    }
    if device.regions <= region::CONFIG {
        return Err(not_pci("it has no configuration space"));
    }
    let most = capabilities.max_data().min(MAX_DATA);
    let (config, _) = region_info(&link, region::CONFIG).map_err(peer)?;
    // At least the header, and at most the size that PCI Express defines.
    if !(256..=4096).contains(&config.size) {
        return Err(not_pci("its configuration space has neither 256 nor 4096 bytes"));
    }
    let config =
        Region { link: Arc::clone(&link), index: region::CONFIG, size: config.size, most, posted: false };
    let config = ConfigRegion(config);
    let registers = config::bar_registers(&config)?;
    let mut bars = [None; 6];
    let mut shared = [const { None }; 6];
    for index in 0..6_u8 {
        let (info, file) = region_info(&link, bar_region(index)).map_err(peer)?;
        if info.size == 0 {
            continue;
        }
        let slot = usize::from(index);
        // A register that reads as zero (no address assigned) but has a size is still a memory BAR.
        let register = registers[slot];
        bars[slot] = Some(BarInfo {
            index,
            size: info.size,
            kind: register.map_or(BarKind::Memory32, |register| register.kind),
            prefetchable: register.is_some_and(|register| register.prefetchable),
        });
        if let Some(file) = file.filter(|_| options.map_bars) {
            shared[slot] = mappable(&info, file, index);
        }
    }
    let max_fds = usize::try_from(capabilities.max_msg_fds()).unwrap_or(MAX_FDS).min(MAX_FDS);
    let interrupts = Interrupts::find(&link, device.irqs, max_fds).map_err(|error| match error {
        InterruptError::Server { source, .. } => peer(source),
        other => VfioUserOpenError::Interrupts(other),
    })?;
    if shares_writes
        && capabilities.write_ring()
        && let Err(error) = link.share_writes()
    {
        link.check().map_err(peer)?;
        tracing::debug!(%error, "register writes are sent by messages");
    }
    Ok(DeviceDescription { link, capabilities, device, config, bars, shared, interrupts })
}

/// Negotiates a version and capabilities.
fn negotiate(
    link: &ServerConnection,
    socket: &Path,
    shares_writes: bool,
) -> Result<Capabilities, VfioUserOpenError> {
    let capabilities = Capabilities {
        max_msg_fds: u32::try_from(MAX_FDS).ok(),
        max_data_xfer_size: Some(MAX_DATA),
        write_ring: shares_writes.then_some(true),
        stream_claims: Some(true),
        ..Capabilities::default()
    };
    let proposed = Version { major: MAJOR, minor: MINOR, capabilities };
    let reply = link.ask(&Request::Version(proposed), &[], |reply, _| match reply {
        Reply::Version(version) => Ok(version),
        _ => Err(protocol("a reply to another command")),
    });
    let version = reply.map_err(|source| match source {
        // Reply of a card's server to a second client.
        ServerError::Refused { source, .. } if source == OsError::from(Errno::BUSY) => {
            VfioUserOpenError::Busy { socket: socket.to_owned() }
        }
        source => VfioUserOpenError::Server { socket: socket.to_owned(), source },
    })?;
    if version.major != MAJOR || version.minor > MINOR {
        let Version { major, minor, .. } = version;
        return Err(VfioUserOpenError::Version { socket: socket.to_owned(), major, minor });
    }
    let of = &version.capabilities;
    for (name, value, fine, needed) in [
        (
            "max_msg_fds",
            u64::from(of.max_msg_fds()),
            of.max_msg_fds() >= 1,
            "at least 1: memory and interrupts are shared by file descriptors",
        ),
        (
            "max_data_xfer_size",
            of.max_data().into(),
            of.max_data() >= 8,
            "at least 8: registers have up to 64 bits",
        ),
        (
            "max_dma_maps",
            of.max_dma_maps().into(),
            of.max_dma_maps() >= 1,
            "at least 1: there is no DMA without",
        ),
        ("pgsizes", of.page_sizes(), of.page_sizes() != 0, "at least one page size"),
    ] {
        if !fine {
            return Err(VfioUserOpenError::Capability { socket: socket.to_owned(), name, value, needed });
        }
    }
    Ok(version.capabilities)
}

fn device_info(link: &ServerConnection) -> Result<DeviceInfo, ServerError> {
    link.ask(&Request::DeviceGetInfo(InfoRequest { argsz: 16, index: 0 }), &[], |reply, _| match reply {
        Reply::DeviceGetInfo(info) => Ok(info),
        _ => Err(protocol("a reply to another command")),
    })
}

/// Returns a region, and the file that it may be mapped from.
fn region_info(link: &ServerConnection, index: u32) -> Result<(RegionInfo, Option<OwnedFd>), ServerError> {
    let ask = |argsz| {
        link.ask(&Request::DeviceGetRegionInfo(InfoRequest { argsz, index }), &[], |reply, fds| match reply {
            Reply::DeviceGetRegionInfo(info) if info.index == index => Ok((info, fds.pop())),
            _ => Err(protocol("a reply about another region")),
        })
    };
    let first = ask(REGION_INFO)?;
    if first.0.argsz <= REGION_INFO {
        return Ok(first);
    }
    // A description that still does not fit is ignored: the region is accessed by messages.
    ask(first.0.argsz.min(MAX_REGION_INFO_SIZE))
}

/// Returns the part of a region that can be mapped safely, in the whole pages that the server names.
fn mappable(info: &RegionInfo, file: OwnedFd, index: u8) -> Option<SharedRegion> {
    if info.flags & region_flags::MMAP == 0 {
        return None;
    }
    let seals = rustix::fs::fcntl_get_seals(file.as_fd()).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        tracing::debug!(
            bar = index,
            "the server's file could shrink under a mapping: the BAR is accessed by messages"
        );
        return None;
    }
    let size = rustix::fs::fstat(file.as_fd()).ok().and_then(|stat| u64::try_from(stat.st_size).ok())?;
    let page = rustix::param::page_size() as u64;
    let whole = |start: u64, length: u64| {
        let end = start.checked_add(length)?;
        let in_file = info.offset.checked_add(end)? <= size;
        let fits = length != 0 && end <= info.size && in_file;
        (fits && [start, info.offset].iter().all(|at| at.is_multiple_of(page))).then_some(start..end)
    };
    let areas: Option<Vec<_>> = match &info.sparse {
        Some(areas) => areas.iter().map(|area| whole(area.offset, area.size)).collect(),
        None => whole(0, info.size).map(|area| vec![area]),
    };
    let Some(areas) = areas.filter(|areas| !areas.is_empty()) else {
        tracing::warn!(
            bar = index,
            "the server shares parts that its file or the BAR does not have: accessed by messages"
        );
        return None;
    };
    Some(SharedRegion { file: Arc::new(file), offset: info.offset, areas })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_message_timeout_comes_from_environment() {
        let of = |text: &str| VfioUserOptions::from_variable(Some(text.to_owned()));
        assert_eq!(VfioUserOptions::from_variable(None).unwrap().deadline, Duration::from_secs(30));
        assert_eq!(of("").unwrap().deadline, Duration::from_secs(30));
        assert_eq!(of("2.5").unwrap().deadline, Duration::from_millis(2500));
        for wrong in ["0", "-1", "5s", "nan", "inf", "1e300", "soon"] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.starts_with("environment variable FPGA_MESSAGE_TIMEOUT"), "{error}");
        }
    }
}
