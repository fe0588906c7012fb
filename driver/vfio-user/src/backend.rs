//! The client: a served PCI function as a transport.

use core::fmt;
use core::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use fpga_registers::Iova;
use fpga_registers::pci::{command, header};
use rustix::io::Errno;

use super::bar::{ConfigRegion, Region, ServedBar, bar_region};
use super::connection::{self, ServerConnection};
use super::error::{VfioUserOpenError, protocol};
use super::interrupts::Interrupts;
use super::open::{SharedRegion, VfioUserOptions, describe};
use super::socket::Connection;
use super::wire::{DmaMap, DmaUnmap, MAX_DATA, Reply, Request, device_flags, dma_map_flags};
use fpga_pci::mmio::{Liveness, MappedBar, bus_errors_caught};
use fpga_pci::{
    Backend, Bar, BarError, BarInfo, BarKind, ConfigError, DeviceEvents, DmaAccess, DmaMapError, Interrupt,
    InterruptError, MemoryKind, OsError, ResetError, ResetLevel, ServerError, SharedMemory, config,
};

/// A PCI function that another process serves on a socket.
///
/// Memory is passed to the server as file descriptors: [`memory_kind`](Backend::memory_kind) asks for memory that has one.
/// Memory without ([`SharedMemory::anonymous`], [`SharedMemory::from_mapping`]) can be mapped as well: the server then reads and
/// writes it by messages that a thread of this process answers, which is slow, and which not every server does.
///
/// Once a message has failed for any reason but the server's refusal the connection is closed, everything fails fast
/// with [`ServerError::Disconnected`], and open [`Bar`]s answer nothing any more: [`MmioError::is_gone`](fpga_pci::MmioError::is_gone).
///
/// Dropping it switches bus mastering off first, then interrupts, then ends the connection, with which the server gives up
/// all mappings.
pub struct VfioUserBackend {
    name: String,
    link: Arc<ServerConnection>,
    options: VfioUserOptions,
    config: Arc<ConfigRegion>,
    bars: [Option<BarInfo>; 6],
    shared: [Option<SharedRegion>; 6],
    interrupts: Interrupts,
    can_reset: bool,
    /// Most bytes of one message.
    most: u32,
    max_maps: usize,
    page: u64,
    /// Answers the server's requests, once there is memory that it can only reach in that way.
    answers: Mutex<Option<JoinHandle<()>>>,
}

/// Addresses that the device is given: nothing in the protocol limits them, so they are those that every IOMMU has, without
/// page 0.
const ADDRESSES: RangeInclusive<Iova> = Iova::new(0x1000)..=Iova::new((1 << 48) - 1);

/// How many steps of waiting go without letting another process run: the server may need this CPU.
const RELAX_BURST: u32 = 64;

impl fmt::Debug for VfioUserBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioUserBackend")
            .field("name", &self.name)
            .field("bars", &self.bars)
            .field("vectors", &self.interrupts.vectors())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Opens the function that is served at the other end of `connection`; `socket` is what messages call it.
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
        // The smallest page size that both have.
        let page = (1_u64 << of.page_sizes().trailing_zeros()).max(rustix::param::page_size() as u64);
        let transport = Self {
            name: format!("vfio-user:{}", socket.display()),
            options,
            bars: described.bars,
            shared: described.shared,
            interrupts: described.interrupts,
            can_reset: described.device.flags & device_flags::RESET != 0,
            most: of.max_data().min(MAX_DATA),
            max_maps: usize::try_from(of.max_dma_maps()).unwrap_or(usize::MAX),
            page,
            answers: Mutex::new(None),
            config: Arc::new(described.config),
            link: described.link,
        };
        transport.prepare_function()?;
        Ok(transport)
    }

    /// What a kernel does to a function before it hands it to a driver: awake, decoding memory, and no DMA until it is wanted.
    fn prepare_function(&self) -> Result<(), ConfigError> {
        config::identity(self)?;
        // Whoever had it before may have put it to sleep, as the kernel's driver does with a function that nobody has open.
        config::wake(self)?;
        let before = config::read_u16(self, header::COMMAND)?;
        let wanted = (before | command::MEMORY_SPACE) & !command::BUS_MASTER;
        if wanted != before {
            self.config_write(header::COMMAND, &wanted.to_le_bytes())?;
        }
        self.set_bus_master(false)
    }

    /// Sees to it that the server's requests are answered at any time from now on.
    fn answer_requests(&self) -> Result<(), OsError> {
        let mut answers = lock(&self.answers);
        if answers.is_none() {
            *answers = Some(connection::spawn(&self.link)?);
        }
        Ok(())
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

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigError> {
        config::ConfigSpace::read(&*self.config, at, into)
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigError> {
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
            // A server that takes its memory back raises SIGBUS as a device does that is removed.
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
            // Before the server is told: it may use it before its answer is here.
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
            // Compared as numbers: a server may give any, and not all of them are numbers of errors.
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
            // With the connection the server loses all mappings, if it still lives. That is as good as an answer where the
            // server has closed its end, and where only this process could reach the memory for it.
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

    /// What the server can map by itself.
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
        Ok(self.interrupts.events.clone())
    }

    /// The protocol knows one reset, of the device alone. Interrupts are off afterwards.
    fn reset(&self, level: ResetLevel) -> Result<(), ResetError> {
        if level != ResetLevel::Function || !self.can_reset {
            return Err(ResetError::Unsupported { level });
        }
        // A device that no longer answers cannot be told to stop; the reset is still worth trying.
        let _ = self.set_bus_master(false);
        // Before the reset: no handle from before may reach the device in the middle of it.
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

    fn now(&self) -> u64 {
        fpga_pci::wait::monotonic_ns()
    }

    fn relax(&self) {
        fpga_pci::wait::spin_and_yield(RELAX_BURST);
    }
}

impl Drop for VfioUserBackend {
    fn drop(&mut self) {
        if self.link.check().is_ok() {
            // First: whatever the device still had in mind, it does no more DMA.
            if let Err(error) = self.set_bus_master(false) {
                tracing::warn!(device = self.name, %error, "bus mastering could not be switched off before closing");
            }
            if let Err(error) = self.disable_interrupts() {
                tracing::warn!(device = self.name, %error, "interrupts could not be switched off before closing");
            }
        }
        self.link.close();
        if let Some(thread) = lock(&self.answers).take() {
            // It does not panic; if it did, its message has been printed.
            let _ = thread.join();
        }
    }
}
