//! One simulation: the card behind its socket, and the simulator's side of its ports.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fpga_pci::lock;
use fpga_sim::served::CardServer;
use fpga_sim::{LoadedDescriptor, SimNetwork, Unit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::bus::{Bus, BusError};
use crate::exit::exit_now;
use crate::options::{Options, Parameters, StartError};
use crate::pace::Pacer;
use crate::ports::{Flags, Ports};
use crate::record::{self, Record};
use crate::trace::Trace;

/// Time for the simulator to end at the next cycle.
const STUCK: Duration = Duration::from_secs(3);

/// A running simulation.
#[derive(Debug)]
pub(crate) struct Simulation {
    network: SimNetwork,
    pub(crate) ports: Arc<Ports>,
    server: Mutex<Option<Server>>,
    msi_messages: AtomicU16,
    has_descriptor_bypass: bool,
    pub(crate) pacer: Option<Pacer>,
    pub(crate) trace: Trace,
    /// `sys_rst_n` is low.
    is_in_reset: AtomicBool,
}

/// Ends the simulation when the server's thread ends, also by a panic.
struct EndGuard(Arc<Ports>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The thread that serves the card; dropping `stop` ends it.
#[derive(Debug)]
struct Server {
    stop: UnixStream,
    thread: JoinHandle<()>,
}

impl Simulation {
    /// Builds the card and serves it.
    pub(crate) fn start(parameters: &Parameters, options: &Options) -> Result<Self, StartError> {
        options.check(parameters)?;
        let description = parameters.card(options.card.as_deref())?;
        let socket = options.socket.as_deref().ok_or(StartError::NoSocket)?;
        let record = options.record.as_deref().map(|path| {
            let unusable = |cause| StartError::Record { path: path.to_owned(), cause };
            Record::create(path, parameters).map_err(unusable)
        });
        let record = record.transpose()?;
        let ports = Arc::new(Ports::new(parameters, options, record.clone()));
        let design: Arc<Ports> = Arc::clone(&ports);
        let network = SimNetwork::builder().card_with_design(description, design).build()?;
        if let Some(record) = record {
            network.observe(0, record);
        }
        let has_descriptor_bypass = parameters.descriptor_bypass != 0;
        for channel in (0..4_u8).filter(|channel| u32::from(*channel) < parameters.channels) {
            let units = [Unit::H2c(channel), Unit::C2h(channel)];
            for (unit, bit) in units.into_iter().zip([channel, channel + 4]) {
                if parameters.descriptor_bypass >> bit & 1 != 0 {
                    network.with_card(0, |card| card.set_descriptor_bypass(unit));
                }
            }
        }
        crate::ports::join(&ports);
        let server = CardServer::bind(socket)?;
        let server = if options.once { server.once() } else { server };
        let system = |what| move |cause| StartError::System { what, cause };
        let (stop, stopped) = UnixStream::pair().map_err(system("the server cannot be stopped"))?;
        let stopped = OwnedFd::from(stopped);
        let (served, ended) = (network.clone(), EndGuard(Arc::clone(&ports)));
        let serve = move || {
            let _ended = ended;
            if let Err(error) = server.run(&served, 0, stopped) {
                tracing::error!(%error, "the card is no longer served");
            }
        };
        let thread = std::thread::Builder::new().name("fpga-server".into()).spawn(serve);
        let thread = thread.map_err(system("the server's thread cannot be started"))?;
        if options.signals {
            end_at_signals(&ports).map_err(system("signals cannot be handled"))?;
        }
        if let Some(limit) = options.timeout {
            end_after(limit, &ports).map_err(system("the time limit cannot be set"))?;
        }
        tracing::info!("ready {}", socket.display());
        if options.announce {
            // A closed standard output does not concern the card.
            let _ = writeln!(std::io::stdout(), "ready {}", socket.display());
        }
        let server = Mutex::new(Some(Server { stop, thread }));
        Ok(Self {
            network,
            ports,
            server,
            msi_messages: AtomicU16::new(0),
            has_descriptor_bypass,
            pacer: options.ratio.map(Pacer::new),
            trace: Trace::new(options.trace),
            is_in_reset: AtomicBool::new(false),
        })
    }

    /// One cycle of `axi_aclk`, after its responses: interrupts, the card's work, and what the masters do next. `accepted`: H2C stream
    /// ports whose beat the design took in the cycle before.
    pub(crate) fn clock(&self, requests: u32, accepted: u32) -> Flags {
        let events = self.ports.begin_cycle(requests, accepted);
        let lines = |mask: u32| (0..16_u8).filter(move |line| mask >> line & 1 != 0);
        if events.raised | events.lowered != 0 {
            for line in lines(events.lowered) {
                self.network.set_user_interrupt(0, line, false);
            }
            for line in lines(events.raised) {
                self.network.set_user_interrupt(0, line, true);
            }
        }
        if events.has_ended {
            self.network.continue_card(0);
        }
        let mut flags = self.ports.end_cycle();
        if self.has_descriptor_bypass && !flags.reset && !flags.finish {
            flags.loads = self.network.with_card(0, |card| card.bypass_ready()).unwrap_or(0);
        }
        if flags.begins {
            let messages = self.network.with_card(0, |card| card.config().msi_messages()).unwrap_or(0);
            self.msi_messages.store(messages, Ordering::Relaxed);
        }
        flags
    }

    /// `sys_rst_n` in this cycle. Its falling edge resets the card, as PERST# does: the host's transfers end with errors.
    pub(crate) fn hold_in_reset(&self, is_low: bool) {
        let is_new = self.is_in_reset.swap(is_low, Ordering::Relaxed) != is_low;
        if is_new && let Some(record) = self.ports.record() {
            record.line(format_args!("sys_rst_n {}", u8::from(!is_low)));
        }
        if is_new && is_low {
            tracing::warn!(cycle = self.ports.cycle(), "sys_rst_n is low: the card is reset");
            self.network.with_card(0, |card| card.reset());
        }
    }

    /// Waits until simulated time `now` (in ps) is not ahead of the wall clock.
    pub(crate) fn pace(&self, now: u64) {
        if let Some(pacer) = &self.pacer {
            pacer.pace(now, || self.ports.has_ended());
        }
    }

    /// Handles a response to a memory master, and reports a defect of the slave.
    pub(crate) fn responded(
        &self,
        master: i32,
        code: u32,
        handle: impl FnOnce(&mut Bus) -> Result<(), BusError>,
    ) {
        let result = self.ports.bus(master, handle);
        self.trace.response(code);
        if result.is_err() {
            self.trace.error();
        }
        self.ports.check(master, result);
    }

    /// Loads a descriptor of the design at a bypass port.
    pub(crate) fn load(&self, unit: Unit, descriptor: &LoadedDescriptor) {
        if let Some(record) = self.ports.record() {
            let LoadedDescriptor { source, destination, length, control } = descriptor;
            record.line(format_args!("load {unit:?} {source:x} {destination:x} {length} {control:x}"));
        }
        let taken = self.network.with_card(0, |card| card.load_descriptor(unit, descriptor));
        self.ports.loaded(unit, taken == Some(true));
    }

    /// Returns the number of enabled MSI messages when the batch began: 0, or a power of two.
    pub(crate) fn msi_messages(&self) -> u16 {
        self.msi_messages.load(Ordering::Relaxed)
    }

    /// Ends the server and waits for it.
    pub(crate) fn end(&self) {
        self.ports.end();
        if let Some(Server { stop, thread }) = lock(&self.server).take() {
            drop(stop);
            // A panic of that thread was reported when it occurred.
            let _ = thread.join();
        }
        record::flush_all();
    }
}

/// Ends the simulation at the signals that end a program, so that the simulator closes its files.
fn end_at_signals(ports: &Arc<Ports>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let ports = Arc::clone(ports);
    let wait = move || {
        if signals.forever().next().is_some() {
            end(&ports, "a signal");
        }
    };
    std::thread::Builder::new().name("fpga-signals".into()).spawn(wait).map(drop)
}

/// Ends the simulation after `limit`.
fn end_after(limit: Duration, ports: &Arc<Ports>) -> std::io::Result<()> {
    let ports = Arc::clone(ports);
    let wait = move || {
        std::thread::sleep(limit);
        tracing::error!("the simulation ends: its time limit of {limit:?} is over");
        end(&ports, "its time limit");
    };
    std::thread::Builder::new().name("fpga-limit".into()).spawn(wait).map(drop)
}

/// Ends the simulation in the next cycle of `axi_aclk`, or this process if there is none.
fn end(ports: &Ports, reason: &str) {
    ports.end();
    // The simulator's thread ends the process meanwhile.
    std::thread::sleep(STUCK);
    // The process ends without the simulator: its waveform is not complete.
    let _ = writeln!(
        std::io::stderr(),
        "fpga_xdma: axi_aclk has no further cycle after {reason}: the design does not end a time step; the process ends"
    );
    record::flush_all();
    exit_now(1);
}
