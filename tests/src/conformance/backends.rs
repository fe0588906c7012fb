//! Backends of this process, one for a card that is served on a socket, and one for an existing card.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use fpga_card::CardDescription;
use fpga_card::fault_plan::FaultsDescription;
use fpga_driver::{BarOffset, CardRange};
use fpga_pci::Backend;
use fpga_protocol::Nanos;
use fpga_sim::served::{CardServer, MessageCount};
use fpga_sim::{SimNetwork, ThreadOptions};
use fpga_vfio_user::VfioUserBackend;

use super::fault_control::FaultControl;
use super::{Build, Capability, Fixture, TestBackend, UserLevel};
use crate::cards;

/// Backend with a simulated card in this process: a new card for every case.
#[derive(Debug)]
pub struct InProcess {
    name: &'static str,
    threaded: bool,
}

/// Backend whose card runs only when it is stepped, in virtual time: every run is the same.
pub const INLINE: InProcess = InProcess { name: "inline", threaded: false };

/// Backend whose card runs in its own thread, in real time, as hardware does.
pub const THREADED: InProcess = InProcess { name: "threaded", threaded: true };

/// Description of a card in this process: two channels in each direction, and virtual time that advances fast while the card is idle.
fn description() -> CardDescription {
    cards::with_channels(2, 2)
}

impl TestBackend for InProcess {
    fn name(&self) -> &str {
        self.name
    }

    fn missing_reason(&self, ability: Capability) -> Option<&'static str> {
        match ability {
            Capability::Repeatable if self.threaded => {
                Some("the card runs in its own thread, so runs are not repeatable")
            }
            _ => None,
        }
    }

    fn fixture(&self) -> Result<Box<dyn Fixture>, String> {
        self.make(description())
    }

    fn fixture_of(&self, build: &Build) -> Result<Box<dyn Fixture>, String> {
        self.make(build.description())
    }
}

impl InProcess {
    fn make(&self, card: CardDescription) -> Result<Box<dyn Fixture>, String> {
        let network = SimNetwork::builder().card(card);
        let network = if self.threaded {
            network.threaded(ThreadOptions::default())
        } else {
            // Virtual time advances fast while the card is idle: waits of seconds end at once.
            network.time(Nanos::new(100), Nanos::from_micros(20))
        };
        Ok(Box::new(SimFixture(network.build().map_err(|error| error.to_string())?)))
    }
}

struct SimFixture(SimNetwork);

impl Fixture for SimFixture {
    fn open_backend(&self) -> Result<Arc<dyn Backend>, String> {
        Ok(self.0.backend(0))
    }

    fn card(&self) -> Option<(SimNetwork, usize)> {
        Some((self.0.clone(), 0))
    }
}

/// Reason why a vfio-user backend has no huge pages.
const SHARED_MEMORY_REASON: &str = "memory that is shared with another process has normal pages";

/// Backend with a simulated card behind a UNIX socket (vfio-user), served by a thread of this process: a new card for every case.
#[derive(Debug)]
pub struct ServedCard;

impl TestBackend for ServedCard {
    fn name(&self) -> &str {
        "vfio-user"
    }

    fn missing_reason(&self, ability: Capability) -> Option<&'static str> {
        match ability {
            Capability::Repeatable => Some("the card runs in its own thread, so runs are not repeatable"),
            Capability::HugePages => Some(SHARED_MEMORY_REASON),
            _ => None,
        }
    }

    fn fixture(&self) -> Result<Box<dyn Fixture>, String> {
        Self::make(description())
    }

    fn fixture_of(&self, build: &Build) -> Result<Box<dyn Fixture>, String> {
        Self::make(build.description())
    }
}

impl ServedCard {
    fn make(card: CardDescription) -> Result<Box<dyn Fixture>, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket =
            std::env::temp_dir().join(format!("fpga-conformance-{}-{number}.sock", std::process::id()));
        let network = SimNetwork::builder().card(card).build().map_err(|error| error.to_string())?;
        let server = CardServer::bind(&socket).map_err(|error| error.to_string())?;
        let messages = server.message_count();
        let (stop, end) = rustix::pipe::pipe().map_err(|error| error.to_string())?;
        let card = network.clone();
        let thread = std::thread::Builder::new()
            .name("served card".to_owned())
            .spawn(move || server.run(&card, 0, stop).map(drop).map_err(|error| error.to_string()))
            .map_err(|error| error.to_string())?;
        Ok(Box::new(ServedFixture { network, socket, messages, end: Some(end), thread: Some(thread) }))
    }
}

struct ServedFixture {
    network: SimNetwork,
    socket: PathBuf,
    messages: MessageCount,
    /// The server ends when this descriptor is closed.
    end: Option<OwnedFd>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Fixture for ServedFixture {
    fn open_backend(&self) -> Result<Arc<dyn Backend>, String> {
        match VfioUserBackend::open(&self.socket) {
            Ok(backend) => Ok(Arc::new(backend)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn card(&self) -> Option<(SimNetwork, usize)> {
        Some((self.network.clone(), 0))
    }

    fn messages(&self) -> Option<MessageCount> {
        Some(self.messages.clone())
    }
}

impl Drop for ServedFixture {
    fn drop(&mut self) {
        self.end = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            // The reader of a failed case needs this error.
            let _ = writeln!(std::io::stderr(), "served card: {error}");
        }
    }
}

/// Opens the backend of a card.
type OpenBackend = dyn Fn() -> Result<Arc<dyn Backend>, String> + Send + Sync;

/// Backend with an existing card, the same for every case: behind a kernel, behind a socket, or in a slot.
pub struct ExternalCard {
    name: String,
    reach: Arc<OpenBackend>,
    /// Cards of other builds, in the order in which [`FaultControl`] numbers them.
    others: Vec<(&'static Build, Arc<OpenBackend>)>,
    /// Control that causes faults of the cards themselves.
    fault_control: Option<FaultControl>,
    /// Accesses that the IOMMU refuses may be provoked: the machine does not stop at one.
    provoke: bool,
    /// Another process shares the memory of the card.
    passes_memory_on: bool,
    /// The card is reached through a kernel.
    via_kernel: bool,
    /// Memory of the card, if it does not report it.
    memory: Option<CardRange>,
    /// Offset of the registers of its copy engine, if it does not report it.
    cdma_offset: Option<BarOffset>,
}

impl core::fmt::Debug for ExternalCard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ExternalCard").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ExternalCard {
    /// A backend with this name for the card that `reach` opens. `provoke`: accesses that the IOMMU refuses may be made; there are machines
    /// that stop at one.
    #[must_use]
    pub fn new(name: String, provoke: bool, reach: Arc<OpenBackend>) -> Self {
        Self {
            name,
            reach,
            others: Vec::new(),
            fault_control: None,
            provoke,
            passes_memory_on: false,
            via_kernel: false,
            memory: None,
            cdma_offset: None,
        }
    }

    /// States the memory of a card that does not report it.
    #[must_use]
    pub fn with_memory(mut self, memory: Option<CardRange>) -> Self {
        self.memory = memory;
        self
    }

    /// States the offset of the registers of the copy engine of a card that does not report it.
    #[must_use]
    pub fn with_cdma_offset(mut self, offset: Option<BarOffset>) -> Self {
        self.cdma_offset = offset;
        self
    }

    /// Marks the card as served by another process, which shares the memory.
    #[must_use]
    pub fn passing_memory_on(mut self) -> Self {
        self.passes_memory_on = true;
        self
    }

    /// Marks the card as reached through a kernel, which may reset it between two owners.
    #[must_use]
    pub fn via_kernel(mut self) -> Self {
        self.via_kernel = true;
        self
    }

    /// Adds a card of this build.
    #[must_use]
    pub fn with(mut self, build: &'static Build, reach: Arc<OpenBackend>) -> Self {
        self.others.push((build, reach));
        self
    }

    /// Sets the control that causes faults of the cards themselves.
    #[must_use]
    pub fn outside(mut self, outside: Option<FaultControl>) -> Self {
        self.fault_control = outside;
        self
    }
}

impl TestBackend for ExternalCard {
    fn name(&self) -> &str {
        &self.name
    }

    fn missing_reason(&self, ability: Capability) -> Option<&'static str> {
        match ability {
            Capability::CardFaults | Capability::Removal | Capability::UserLines
                if self.fault_control.is_none() =>
            {
                Some(
                    "the card is accessible only through its bus, which cannot set faults or raise interrupts",
                )
            }
            Capability::CardLogic => Some("the suite cannot control the logic behind the card's streams"),
            Capability::Repeatable => Some("the card runs on its own, so runs are not repeatable"),
            Capability::DmaRefusal if !self.provoke => {
                Some("accesses that the IOMMU refuses are excluded with --gentle")
            }
            Capability::HugePages if self.passes_memory_on => Some(SHARED_MEMORY_REASON),
            Capability::CardFaults
            | Capability::Removal
            | Capability::UserLines
            | Capability::DmaRefusal
            | Capability::BusReset
            | Capability::HugePages => None,
        }
    }

    fn fixture(&self) -> Result<Box<dyn Fixture>, String> {
        Ok(Box::new(ExternalFixture {
            reach: Arc::clone(&self.reach),
            number: 0,
            outside: self.fault_control.clone(),
            memory: self.memory,
            cdma_offset: self.cdma_offset,
        }))
    }

    fn fixture_of(&self, build: &Build) -> Result<Box<dyn Fixture>, String> {
        let found = (1..).zip(&self.others).find(|(_, (there, _))| *there == build);
        let Some((number, (_, reach))) = found else {
            return Err(format!("this backend has no card of the build `{}`", build.name));
        };
        Ok(Box::new(ExternalFixture {
            reach: Arc::clone(reach),
            number,
            outside: self.fault_control.clone(),
            memory: None,
            cdma_offset: None,
        }))
    }

    fn resets_between_owners(&self) -> bool {
        self.via_kernel
    }
}

struct ExternalFixture {
    reach: Arc<OpenBackend>,
    number: usize,
    outside: Option<FaultControl>,
    memory: Option<CardRange>,
    /// Offset of the registers of its copy engine, if it does not report it.
    cdma_offset: Option<BarOffset>,
}

impl ExternalFixture {
    fn outside(&self) -> Result<&FaultControl, String> {
        self.outside.as_ref().ok_or_else(|| super::NO_CARD_ACCESS_REASON.to_owned())
    }
}

impl Fixture for ExternalFixture {
    fn open_backend(&self) -> Result<Arc<dyn Backend>, String> {
        (self.reach)()
    }

    fn memory(&self) -> Option<CardRange> {
        self.memory
    }

    fn cdma_offset(&self) -> Option<BarOffset> {
        self.cdma_offset
    }

    fn set_faults(&self, faults: &FaultsDescription) -> Result<(), String> {
        self.outside()?.set_faults(self.number, faults)
    }

    fn strikes(&self) -> Result<u64, String> {
        self.outside()?.strikes(self.number)
    }

    fn replug(&self) -> Result<(), String> {
        self.outside()?.replug(self.number)
    }

    fn user_line(&self, line: u8, level: UserLevel) -> Result<(), String> {
        self.outside()?.user_line(self.number, line, level)
    }

    fn bus_error(&self) -> Result<(), String> {
        self.outside()?.bus_error(self.number)
    }
}
