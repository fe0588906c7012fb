//! Simulations by handle, in the values that cross the boundary.

use std::sync::{Mutex, OnceLock};

use fpga_pci::lock;
use fpga_sim::{LoadedDescriptor, Unit};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::burst::MAX_WIDTH;
use crate::bus::{Command, WriteBeat};
use crate::lite::LiteAccess;
use crate::options::{Options, Parameters, StartError};
use crate::ports::Flags;
use crate::simulation::Simulation;
use crate::stream::StreamBeat;
use crate::trace::{Change, TraceOptions};

/// The simulation before it starts.
#[derive(Debug)]
struct Draft {
    parameters: Parameters,
    options: Options,
    error: Option<StartError>,
}

/// Maximum number of instances of `fpga_xdma`.
const INSTANCES: usize = 8;

/// Instances by handle.
static DRAFTS: Mutex<Vec<Draft>> = Mutex::new(Vec::new());
static SIMULATIONS: [OnceLock<Simulation>; INSTANCES] = [const { OnceLock::new() }; INSTANCES];

fn simulation(handle: i32) -> Option<&'static Simulation> {
    SIMULATIONS.get(usize::try_from(handle).ok()?)?.get()
}

fn report(error: &StartError) {
    tracing::error!("fpga_xdma: {}", error.with_help());
}

/// Sends messages to standard error, from the level in the environment on.
pub(crate) fn begin_log() {
    let level = std::env::var("FPGA_RTL_LOG").unwrap_or_else(|_| "warn".to_owned());
    let usual = Targets::new().with_default(LevelFilter::WARN);
    let filter = level.parse().unwrap_or(usual);
    let messages = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // A program that contains the simulator may have its own.
    let _ = tracing_subscriber::registry().with(messages).with(filter).try_init();
}

/// Begins with the module's parameters: data width, id width, channels, user interrupts, features (bit 0: AXI4-Stream, 1: bypass BAR,
/// 2: `axi_aclk` is `sys_clk`, 15:8: channels with a descriptor bypass port, H2C first).
pub(crate) fn open(parameters: [i32; 5]) -> i32 {
    begin_log();
    let mut drafts = lock(&DRAFTS);
    let Some(number) = i32::try_from(drafts.len()).ok().filter(|_| drafts.len() < INSTANCES) else {
        tracing::error!("fpga_xdma: a simulation has at most {INSTANCES} instances; remove the others");
        return -1;
    };
    let [data_bits, id_bits, channels, user_interrupts, features] =
        parameters.map(|value| u32::try_from(value).unwrap_or(0));
    let parameters = Parameters {
        data_bits,
        id_bits,
        channels,
        user_interrupts,
        stream: features & 1 != 0,
        bypass: features & 2 != 0,
        descriptor_bypass: features >> 8 & 0xFF,
        clock_input: features & 4 != 0,
    };
    let (options, error) = match Options::default().with_environment(|name| std::env::var(name).ok()) {
        // Sockets and cards belong to one instance, and the waveform to the first.
        Ok(options) if number > 0 => {
            (Options { socket: None, card: None, trace: TraceOptions::default(), ..options }, None)
        }
        Ok(options) => (options, None),
        Err(error) => (Options::default(), Some(error)),
    };
    drafts.push(Draft { parameters, options, error });
    number
}

/// Sets an option; an error is reported by [`start`].
pub(crate) fn option(handle: i32, name: &str, value: &str) {
    let mut drafts = lock(&DRAFTS);
    if let Some(draft) = usize::try_from(handle).ok().and_then(|number| drafts.get_mut(number))
        && let Err(error) = draft.options.set(name, value)
    {
        draft.error.get_or_insert(error);
    }
}

/// Starts the simulation. Returns 0 if it does not run. Bit 0: it runs; 1: [`pace`] is called in each cycle; 2: [`trace`] is.
pub(crate) fn start(handle: i32) -> i32 {
    let mut drafts = lock(&DRAFTS);
    let Ok(number) = usize::try_from(handle) else { return 0 };
    let (Some(draft), Some(place)) = (drafts.get_mut(number), SIMULATIONS.get(number)) else { return 0 };
    if number > 0 && draft.options.socket.is_none() {
        draft.error.get_or_insert(StartError::NoSocketOf(number));
    }
    let started = match draft.error.take() {
        Some(error) => Err(error),
        None => Simulation::start(&draft.parameters, &draft.options),
    };
    match started {
        Ok(simulation) => {
            let wanted = 1
                | i32::from(simulation.pacer.is_some()) << 1
                | i32::from(draft.options.trace.is_partial()) << 2
                | i32::from(simulation.ports.record().is_some()) << 3;
            if place.set(simulation).is_ok() { wanted } else { 0 }
        }
        Err(error) => {
            report(&error);
            0
        }
    }
}

/// Half a period of `axi_aclk` in ps; `otherwise` without the option.
pub(crate) fn half_period(handle: i32, otherwise: i32) -> i32 {
    let drafts = lock(&DRAFTS);
    let draft = usize::try_from(handle).ok().and_then(|number| drafts.get(number));
    let period = draft.and_then(|draft| draft.options.period);
    let half = period.and_then(|period| i32::try_from(period / 2).ok()).unwrap_or(otherwise);
    if let (Some(draft), Some(simulation)) = (draft, simulation(handle)) {
        let period = u32::try_from(half).unwrap_or(0).saturating_mul(2);
        simulation.ports.limit_reads(draft.options.read_cycles(period));
    }
    half
}

/// Begin of a cycle at simulated time `now` in ps, with option `ratio`.
pub(crate) fn pace(handle: i32, now: u64) {
    if let Some(simulation) = simulation(handle) {
        simulation.pace(now);
    }
}

/// End of a cycle, with triggers of the waveform: 1 begins it, 2 ends it.
pub(crate) fn trace(handle: i32) -> i32 {
    let Some(simulation) = simulation(handle) else { return 0 };
    match simulation.trace.end_cycle(simulation.ports.cycle()) {
        Change::None => 0,
        Change::Begin => 1,
        Change::End => 2,
    }
}

/// Fires the trigger `design` of the waveform.
pub(crate) fn trace_trigger() {
    if let Some(simulation) = simulation(0) {
        simulation.trace.design();
    }
}

/// One cycle. `requests`: `usr_irq_req` 15:0, accepted beats of the H2C stream ports 19:16, `sys_rst_n` low 20.
/// Flags: write command 0, write data 1, read
/// command 2, register access 3, reset 4, end of the simulation 5; MSI enabled 8, its number of messages (log2) 11:9; acknowledged lines
/// 31:16; of `m_axib` write command 12, write data 13, read command 14; H2C stream ports with a beat 35:32, C2H stream ports that are ready 39:36,
/// descriptor bypass ports that are ready 47:40 (H2C first).
pub(crate) fn clock(handle: i32, requests: u32) -> u64 {
    let (flags, messages) = match simulation(handle) {
        Some(simulation) => {
            simulation.hold_in_reset(requests >> 20 & 1 != 0);
            (simulation.clock(requests & 0xFFFF, requests >> 16 & 0xF), simulation.msi_messages())
        }
        None => (Flags { finish: true, ..Flags::default() }, 0),
    };
    let low = u32::from(flags.write_command)
        | u32::from(flags.write_data) << 1
        | u32::from(flags.read_command) << 2
        | u32::from(flags.register) << 3
        | u32::from(flags.reset) << 4
        | u32::from(flags.finish) << 5
        | u32::from(messages != 0) << 8
        | messages.checked_ilog2().unwrap_or(0) << 9
        | (flags.bypass & 7) << 12
        | (flags.acknowledged & 0xFFFF) << 16;
    let high = flags.stream_beats & 0xF | (flags.stream_ready & 0xF) << 4 | (flags.loads & 0xFF) << 8;
    u64::from(low) | u64::from(high) << 32
}

/// Loads a descriptor at a bypass port. `port`: H2C channels 0 to 3, C2H channels 4 to 7.
pub(crate) fn load(handle: i32, port: i32, descriptor: &LoadedDescriptor) {
    let Ok(port) = u8::try_from(port) else { return };
    let unit = if port < 4 { Unit::H2c(port) } else { Unit::C2h(port - 4) };
    if let Some(simulation) = simulation(handle) {
        simulation.load(unit, descriptor);
    }
}

/// Simulated time at the begin of a cycle, for the record.
pub(crate) fn time(handle: i32, picoseconds: u64) {
    if let Some(simulation) = simulation(handle) {
        simulation.ports.set_time(picoseconds);
    }
}

pub(crate) fn stream_beat(handle: i32, channel: i32) -> Option<StreamBeat> {
    let (simulation, channel) = (simulation(handle)?, usize::try_from(channel).ok()?);
    simulation.trace.stream();
    let beat = simulation.ports.stream_beat(channel)?;
    if let Some(record) = simulation.ports.record() {
        record.stream("h2c", channel, &beat);
    }
    Some(beat)
}

pub(crate) fn stream_data(handle: i32, channel: i32, beat: &StreamBeat) {
    if let (Some(simulation), Ok(channel)) = (simulation(handle), usize::try_from(channel)) {
        simulation.trace.stream();
        if let Some(record) = simulation.ports.record() {
            record.stream("c2h", channel, beat);
        }
        simulation.ports.stream_data(channel, beat);
    }
}

pub(crate) fn command(handle: i32, master: i32, is_write: bool) -> Option<Command> {
    let simulation = simulation(handle)?;
    let command = simulation.ports.bus(master, |bus| bus.command(is_write))?;
    simulation.trace.burst(master, is_write, &command);
    if let Some(record) = simulation.ports.record() {
        record.command(master, is_write, &command);
    }
    Some(command)
}

pub(crate) fn write_data(handle: i32, master: i32) -> Option<WriteBeat> {
    let ports = &simulation(handle)?.ports;
    let beat = ports.bus(master, crate::bus::Bus::data)?;
    if let Some(record) = ports.record() {
        record.write_data(master, &beat);
    }
    Some(beat)
}

pub(crate) fn write_response(handle: i32, master: i32, id: u32, code: u32) {
    if let Some(simulation) = simulation(handle) {
        if let Some(record) = simulation.ports.record() {
            record.write_response(master, id, code);
        }
        simulation.responded(master, code, |bus| bus.write_response(id, code));
    }
}

pub(crate) fn read_data(handle: i32, master: i32, id: u32, data: &[u8; MAX_WIDTH], code: u32, is_last: bool) {
    if let Some(simulation) = simulation(handle) {
        if let Some(record) = simulation.ports.record() {
            record.read_data(master, id, data, code, is_last);
        }
        simulation.responded(master, code, |bus| bus.read_data(id, data, code, is_last));
    }
}

pub(crate) fn register(handle: i32) -> Option<LiteAccess> {
    let simulation = simulation(handle)?;
    let access = simulation.ports.register()?;
    simulation.trace.register(access.value.is_some(), access.at);
    if let Some(record) = simulation.ports.record() {
        record.register(&access);
    }
    Some(access)
}

pub(crate) fn register_response(handle: i32, data: u32, code: u32) {
    if let Some(simulation) = simulation(handle) {
        simulation.trace.response(code);
        if let Some(record) = simulation.ports.record() {
            record.register_response(data, code);
        }
        simulation.ports.register_response(data, code);
    }
}

pub(crate) fn close(handle: i32) {
    if let Some(simulation) = simulation(handle) {
        simulation.end();
        tracing::info!(cycles = simulation.ports.cycle(), "the simulation has ended");
    }
}

/// Words of a packed vector with these bytes, the lowest first.
pub(crate) fn words(bytes: &[u8; MAX_WIDTH]) -> [u32; MAX_WIDTH / 4] {
    let mut words = [0; MAX_WIDTH / 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// The reverse of [`words`].
pub(crate) fn bytes(words: &[u32; MAX_WIDTH / 4]) -> [u8; MAX_WIDTH] {
    let mut bytes = [0; MAX_WIDTH];
    for (word, bytes) in words.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = word.to_le_bytes();
    }
    bytes
}
