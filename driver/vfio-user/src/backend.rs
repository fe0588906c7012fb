//! The client: a served PCI function as a backend.

use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use fpga_registers::Iova;
use fpga_registers::pci::{command, header};
use fpga_registers::xdma::Direction;
use rustix::io::Errno;

use super::bar::{ConfigRegion, Region, ServedBar, bar_region};
use super::connection::{self, ServerConnection};
use super::error::{VfioUserOpenError, protocol};
use super::interrupts::Interrupts;
use super::open::{SharedRegion, VfioUserOptions, describe};
use super::socket::Connection;
use super::wire::{DmaMap, DmaUnmap, MAX_DATA, Reply, Request, StreamClaim, device_flags, dma_map_flags};
use fpga_pci::mmio::{Liveness, MappedBar, bus_errors_caught};
use fpga_pci::{
    Backend, Bar, BarError, BarInfo, BarKind, ConfigSpaceError, DeviceEvents, DmaAccess, DmaMapError,
    Interrupt, InterruptError, MemoryKind, OsError, Process, ResetError, ResetLevel, ServerError,
    SharedMemory, backend, config, lock,
};

/// A PCI function that another process serves on a socket.
///
/// Memory is passed to the server as file descriptors: [`memory_kind`](Backend::memory_kind) requests memory that has one. Memory without a
/// file ([`SharedMemory::anonymous`], [`SharedMemory::from_mapping`]) can be mapped as well: the server then accesses it by messages, which
/// a thread of this process answers. This is slow, and not every server supports it.
///
/// Once a message has failed for any reason other than a refusal by the server, the connection is closed. All further requests then fail at
/// once with [`ServerError::Disconnected`], and open [`Bar`]s report [`MmioError::is_gone`](fpga_pci::MmioError::is_gone).
///
/// Dropping the backend switches bus mastering off first, then interrupts, then ends the connection, upon which the server drops all
/// mappings. In a child after a fork, dropping it sends nothing.
pub struct VfioUserBackend {
    name: String,
    link: Arc<ServerConnection>,
    options: VfioUserOptions,
    config: Arc<ConfigRegion>,
    bars: [Option<BarInfo>; 6],
    shared: [Option<SharedRegion>; 6],
    interrupts: Interrupts,
    can_reset: bool,
    /// Maximum number of bytes of one message.
    most: u32,
    /// The server has clients that take stream channels from each other.
    claims_streams: bool,
    max_maps: usize,
    page: u64,
    /// Thread that answers the server's requests, once there is memory that the server can only access by messages.
    answers: Mutex<Option<JoinHandle<()>>>,
    /// Dropped after the connection is closed.
    server: Option<Box<dyn fmt::Debug + Send + Sync>>,
    process: Process,
    single_cpu: bool,
}

/// Addresses available to the device: the protocol does not limit them, so they are those that every IOMMU has, without page 0.
const ADDRESSES: RangeInclusive<Iova> = Iova::new(0x1000)..=Iova::new((1 << 48) - 1);

/// Number of wait steps before the CPU is yielded to another process: the server may need this CPU.
const RELAX_BURST: u32 = 64;

/// Time in which a claim of a stream channel is repeated: the server may not have seen yet that a client before has gone.
const CLAIM_RETRIES: Duration = Duration::from_millis(200);
/// Pause between two claims.
const CLAIM_PAUSE: Duration = Duration::from_millis(5);

impl fmt::Debug for VfioUserBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioUserBackend")
            .field("name", &self.name)
            .field("bars", &self.bars)
            .field("vectors", &self.interrupts.vectors())
            .finish_non_exhaustive()
    }
}

impl VfioUserBackend {
    /// Opens the function that is served at `socket`, with default options.
    ///
    /// # Errors
    /// See [`VfioUserOpenError`].
    pub fn open(socket: &Path) -> Result<Self, VfioUserOpenError> {
        Self::open_with(socket, VfioUserOptions::default())
    }

    /// Opens the function that is served at `socket`.
    ///
    /// # Errors
    /// See [`VfioUserOpenError`].
    pub fn open_with(socket: &Path, options: VfioUserOptions) -> Result<Self, VfioUserOpenError> {
        Self::over(Connection::connect(socket, options.deadline)?, socket, options)
    }

    /// Opens the function that is served at the other end of `connection`; `socket` is its name in messages.
    ///
    /// # Errors
    /// See [`VfioUserOpenError`].
    pub fn over(
        connection: Connection,
        socket: &Path,
        options: VfioUserOptions,
    ) -> Result<Self, VfioUserOpenError> {
        let described = describe(connection, socket, &options)?;
        let of = &described.capabilities;
        // The smallest page size that both sides support.
        let page = (1_u64 << of.page_sizes().trailing_zeros()).max(rustix::param::page_size() as u64);
        let backend = Self {
            name: format!("vfio-user:{}", socket.display()),
            options,
            bars: described.bars,
            shared: described.shared,
            interrupts: described.interrupts,
            can_reset: described.device.flags & device_flags::RESET != 0,
            most: of.max_data().min(MAX_DATA),
            claims_streams: of.stream_claims(),
            max_maps: usize::try_from(of.max_dma_maps()).unwrap_or(usize::MAX),
            page,
            answers: Mutex::new(None),
            server: None,
            process: Process::current(),
            single_cpu: std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1),
            config: Arc::new(described.config),
            link: described.link,
        };
        backend.prepare_function()?;
        Ok(backend)
    }

    /// Names the card `name` instead of by its socket, which users may not have chosen.
    #[must_use]
    pub fn named(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// Keeps `server`, which ends the server when it is dropped, as long as this backend.
    #[must_use]
    pub fn with_server(mut self, server: impl fmt::Debug + Send + Sync + 'static) -> Self {
        self.server = Some(Box::new(server));
        self
    }

    /// Prepares a function as a kernel does before it hands it to a driver: in D0, memory decoding on, bus mastering off.
    fn prepare_function(&self) -> Result<(), ConfigSpaceError> {
        config::identity(self)?;
        // The previous user may have left it in D3, as the kernel's driver does with a function that is not open.
        backend::wake(self)?;
        let before = config::read_u16(self, header::COMMAND)?;
        let wanted = (before | command::MEMORY_SPACE) & !command::BUS_MASTER;
        if wanted != before {
            self.config_write(header::COMMAND, &wanted.to_le_bytes())?;
        }
        self.set_bus_master(false)
    }

    /// Makes sure that the server's requests are answered at any time from now on.
    fn answer_requests(&self) -> Result<(), OsError> {
        let mut answers = lock(&self.answers);
        if answers.is_none() {
            *answers = Some(connection::spawn(&self.link)?);
        }
        Ok(())
    }

    /// Claims or releases a stream channel, if the server has clients that share it.
    fn ask_claim(&self, direction: Direction, number: u8, takes: bool) -> Result<(), ServerError> {
        if !self.claims_streams {
            return Ok(());
        }
        let claim = StreamClaim { is_c2h: matches!(direction, Direction::C2h), number, takes };
        self.link.ask(&Request::ClaimStream(claim), &[], |reply, _| match reply {
            Reply::ClaimStream => Ok(()),
            _ => Err(protocol("a reply to another command")),
        })
    }

    fn region(&self, index: u8, size: u64) -> Region {
        let posted = self.options.posted_writes;
        Region { link: Arc::clone(&self.link), index: bar_region(index), size, most: self.most, posted }
    }
}

impl Backend for VfioUserBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        config::ConfigSpace::read(&*self.config, at, into)
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigSpaceError> {
        self.config.write(at, from)
    }

    fn bars(&self) -> [Option<BarInfo>; 6] {
        self.bars
    }

    fn open_bar(&self, index: u8) -> Result<Bar, BarError> {
        let bar = self.bars.get(usize::from(index)).ok_or(BarError::BadIndex { index })?;
        let bar = bar.ok_or(BarError::Absent { index })?;
        if bar.kind == BarKind::Io {
            return Err(BarError::Unsupported { index });
        }
        let mapped = match self.shared.get(usize::from(index)).and_then(Option::as_ref) {
            // A server that shrinks its shared memory raises SIGBUS, as a removed device does.
            Some(shared) if bus_errors_caught() => {
                let presence: Arc<dyn Liveness> = Arc::<ConfigRegion>::clone(&self.config);
                let file = Arc::clone(&shared.file);
                let mapped = MappedBar::map(file, shared.offset, bar.size, &shared.areas, presence)
                    .map_err(|(offset, source)| BarError::MapFailed { index, offset, source })?;
                Some((mapped, shared.areas.clone()))
            }
            _ => None,
        };
        Ok(Bar::new(Arc::new(ServedBar {
            region: self.region(index, bar.size),
            presence: Arc::clone(&self.config),
            mapped,
            generation: self.link.generation(),
        })))
    }

    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        let (address, length) = (iova.get(), memory.len() as u64);
        self.link.check().map_err(|source| DmaMapError::Server { iova, length, source })?;
        if ![address, length, memory.file_offset()].iter().all(|value| value.is_multiple_of(self.page)) {
            return Err(DmaMapError::Misaligned { iova, length, page: self.page });
        }
        let last = address.checked_add(length - 1).map(Iova::new);
        if !ADDRESSES.contains(&iova) || last.is_none_or(|last| !ADDRESSES.contains(&last)) {
            return Err(DmaMapError::OutsideRanges { iova, length });
        }
        if memory.file().is_none() {
            self.answer_requests().map_err(|source| DmaMapError::Refused { iova, length, source })?;
        }
        {
            let mut mapped = self.link.mapped();
            if mapped.overlaps(address, length) {
                return Err(DmaMapError::Overlap { iova, length });
            }
            if mapped.len() >= self.max_maps {
                return Err(DmaMapError::LimitReached { iova, length, source: Errno::NOSPC.into() });
            }
            // Before the request: the server may use the mapping before its reply arrives.
            mapped.insert(address, memory.clone(), access);
        }
        let read = if access.device_reads() { dma_map_flags::READ } else { 0 };
        let write = if access.device_writes() { dma_map_flags::WRITE } else { 0 };
        let map = DmaMap { flags: read | write, offset: memory.file_offset(), address, size: length };
        let file: Vec<_> = memory.file().into_iter().collect();
        let told = self.link.ask(&Request::DmaMap(map), &file, |reply, _| match reply {
            Reply::DmaMap => Ok(()),
            _ => Err(protocol("a reply to another command")),
        });
        told.map_err(|source| {
            self.link.mapped().remove(address);
            // Compared as numbers: a server may return any value, not only valid error numbers.
            let is = |reason: OsError, errno: Errno| reason.raw() == errno.raw_os_error();
            match source {
                ServerError::Refused { source: reason, .. } if is(reason, Errno::EXIST) => {
                    DmaMapError::Overlap { iova, length }
                }
                ServerError::Refused { source: reason, .. }
                    if [Errno::NOMEM, Errno::NOSPC, Errno::MFILE].iter().any(|errno| is(reason, *errno)) =>
                {
                    DmaMapError::LimitReached { iova, length, source: reason }
                }
                _ => DmaMapError::Server { iova, length, source },
            }
        })
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        let address = iova.get();
        if !self.link.mapped().contains(address, length) {
            return Err(DmaMapError::NotMapped { iova, length });
        }
        let unmap = DmaUnmap { argsz: 24, flags: 0, address, size: length };
        let told = self.link.ask(&Request::DmaUnmap(unmap), &[], |reply, _| match reply {
            Reply::DmaUnmap(got) if (got.address, got.size) == (address, length) => Ok(()),
            _ => Err(protocol("a reply about another mapping")),
        });
        if let Err(source) = told {
            // When the connection ends, the server loses all mappings, if it still runs. This counts as success if the server has closed
            // its end, or if the server could access the memory only through this process.
            let by_message = self.link.mapped().is_message_only(address);
            if !source.is_disconnected() || !(by_message || source.is_closed_by_server()) {
                return Err(DmaMapError::Server { iova, length, source });
            }
        }
        self.link.mapped().remove(address);
        Ok(())
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>> {
        vec![ADDRESSES]
    }

    fn dma_page_size(&self) -> u64 {
        self.page
    }

    /// Kind of memory that the server can map by itself.
    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::File
    }

    fn interrupt_vectors(&self) -> u32 {
        self.interrupts.vectors()
    }

    fn enable_interrupts(&self, count: u32) -> Result<Vec<Interrupt>, InterruptError> {
        self.interrupts.enable(&self.link, count)
    }

    fn disable_interrupts(&self) -> Result<(), InterruptError> {
        self.interrupts.disable(&self.link)
    }

    fn events(&self) -> Result<DeviceEvents, InterruptError> {
        // The thread that answers requests notices the end of the server.
        self.answer_requests().map_err(|source| InterruptError::NoDescriptor { source })?;
        Ok(self.interrupts.events.clone())
    }

    /// The protocol has one reset, of the device alone. Interrupts are disabled afterwards.
    fn reset(&self, level: ResetLevel) -> Result<(), ResetError> {
        if level != ResetLevel::Function || !self.can_reset {
            return Err(ResetError::Unsupported { level });
        }
        // A device that does not answer cannot be stopped; the reset is attempted anyway.
        let _ = self.set_bus_master(false);
        // Before the reset: no earlier handle may access the device during it.
        self.link.generation.fetch_add(1, Ordering::AcqRel);
        self.link
            .ask(&Request::DeviceReset, &[], |reply, _| match reply {
                Reply::DeviceReset => Ok(()),
                _ => Err(protocol("a reply to another command")),
            })
            .map_err(|source| ResetError::Server { level, source })?;
        self.interrupts.after_reset(&self.link).map_err(|_| ResetError::NoAnswer { level })?;
        self.prepare_function().map_err(|_| ResetError::NoAnswer { level })
    }

    fn claim_stream(&self, direction: Direction, number: u8) -> Result<bool, ServerError> {
        let began = Instant::now();
        loop {
            match self.ask_claim(direction, number, true) {
                Err(ServerError::Refused { source, .. }) if source == OsError::from(Errno::BUSY) => {}
                claimed => return claimed.map(|()| true),
            }
            if began.elapsed() >= CLAIM_RETRIES {
                return Ok(false);
            }
            std::thread::sleep(CLAIM_PAUSE);
        }
    }

    fn release_stream(&self, direction: Direction, number: u8) {
        // If the server has gone, so has the claim.
        let _ = self.ask_claim(direction, number, false);
    }

    fn now(&self) -> u64 {
        fpga_pci::wait::monotonic_ns()
    }

    fn relax(&self) {
        fpga_pci::wait::spin_and_yield(RELAX_BURST);
    }

    /// With one CPU, the server works only while this thread sleeps.
    fn pause(&self, span: core::time::Duration) {
        if self.single_cpu {
            fpga_pci::sleep(span);
        } else {
            self.link.pause(span);
        }
    }
}

impl Drop for VfioUserBackend {
    fn drop(&mut self) {
        if !self.process.is_current() {
            let answers = self.answers.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            // The connection, the thread and the server are the parent's.
            core::mem::forget((Arc::clone(&self.link), answers, self.server.take()));
            return;
        }
        if self.link.check().is_ok() {
            // First, so that the device starts no further DMA.
            if let Err(error) = self.set_bus_master(false) {
                tracing::warn!(device = self.name, %error, "bus mastering could not be switched off before closing");
            }
            if let Err(error) = self.disable_interrupts() {
                tracing::warn!(device = self.name, %error, "interrupts could not be switched off before closing");
            }
        }
        self.link.close();
        if let Some(thread) = lock(&self.answers).take() {
            // The thread does not panic; if it did, its message has been printed.
            let _ = thread.join();
        }
    }
}
