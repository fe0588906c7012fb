//! The card's AXI ports as both sides see them: the card as its design, the simulator cycle by cycle.
//!
//! # When simulated time advances
//!
//! Locked (the default), simulated time stands still while nothing happens. A *batch* begins when an access is admitted, an interrupt is
//! acknowledged or the card is reset. It ends `settle` cycles after the last activity: an access in progress, a change of `usr_irq_req`, work of an
//! `fpga_cdma`. Then the simulator's thread blocks until the next batch. Accesses that arrive during a batch are admitted at its end, so that a host that
//! waits for each of its operations gives the same run, cycle by cycle. Only while an access is without a response for long (a slave that
//! does not answer) are they admitted in between: every [`ADMIT_EVERY`] cycles.
//!
//! The card continues its descriptors on the simulator's thread, in the cycle in which a response arrives: those accesses belong to the
//! batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use fpga_pci::lock;
use fpga_registers::CardAddr;
use fpga_sim::{AxiAccess, Design, DesignError, Requester, StreamBytes, Unit};

use crate::bus::{Bus, BusError};
use crate::group;
use crate::lite::{Lite, LiteAccess, WHOLE};
use crate::options::{ClockMode, Options, Parameters};
use crate::stream::{StreamBeat, StreamPorts};

/// Cycles of a batch between two admissions of other accesses.
const ADMIT_EVERY: u64 = 4096;
/// Cycles for which a register write keeps its requester waiting. After it, the write counts as posted.
const POSTED_AFTER: u64 = 2048;
/// Cycles of `axi_aresetn` low, and of the following quiet time. `fpga_xdma` holds the reset for half of it.
const RESET_CYCLES: u64 = 64;
/// Cycles without a response after which an access is reported.
const REPORT_AFTER: u64 = 1_000_000;
/// Interval in which a blocked requester checks for the end of the simulation. A lost wake-up would cost this time at most.
const CHECK: Duration = Duration::from_millis(50);

/// Result of a clock cycle: what `fpga_xdma` does in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) write_command: bool,
    pub(crate) write_data: bool,
    pub(crate) read_command: bool,
    pub(crate) register: bool,
    /// Write command, write data and read command of the bypass master, one bit each.
    pub(crate) bypass: u32,
    pub(crate) reset: bool,
    pub(crate) finish: bool,
    /// A batch begins.
    pub(crate) begins: bool,
    /// Lines of `usr_irq_ack` for this cycle.
    pub(crate) acknowledged: u32,
    /// H2C stream ports with a beat for the design, and C2H stream ports that are ready (TREADY), one bit each.
    pub(crate) stream_beats: u32,
    pub(crate) stream_ready: u32,
    /// Descriptor bypass ports that are ready.
    pub(crate) loads: u32,
}

/// Work outside the ports that a cycle causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// Lines of `usr_irq_req` that rose, and that fell.
    pub(crate) raised: u32,
    pub(crate) lowered: u32,
    /// An access has a result.
    pub(crate) has_ended: bool,
}

#[derive(Debug)]
struct State {
    bus: Bus,
    /// Master of the bypass BAR (`m_axib`).
    bypass: Bus,
    lite: Lite,
    /// Ports by channel number; none on a memory-mapped build.
    streams: Vec<StreamPorts>,
    cycle: u64,
    /// Cycle of the last activity, and of the begin of the batch.
    active: u64,
    began: u64,
    /// Cycle of the last response or command.
    progress: u64,
    is_reported: bool,
    requests: u32,
    acknowledged: u32,
    is_reset_requested: bool,
    /// A channel waits for a descriptor of the design: it gets a batch.
    is_descriptor_wanted: bool,
    /// The design has loaded a descriptor.
    is_loaded: bool,
    /// No command before this cycle.
    quiet_until: u64,
    is_ended: bool,
    /// Accesses begun by this thread are admitted at once.
    simulator: Option<ThreadId>,
}

/// Wakes the simulator's thread.
#[derive(Debug)]
struct Bell(Condvar);

impl Bell {
    fn notify_all(&self) {
        self.0.notify_all();
        group::ring();
    }
}

/// Both AXI masters, shared by the card and the simulator.
#[derive(Debug)]
pub(crate) struct Ports {
    state: Mutex<State>,
    to_simulator: Bell,
    /// Nothing to do in the last cycle.
    is_resting: AtomicBool,
    to_host: Condvar,
    /// Held for an access of the bypass BAR: one at a time.
    bypass_turn: Mutex<()>,
    /// Program of the host that waits for register and bypass accesses.
    requester: Mutex<Option<Weak<dyn Requester>>>,
    clock: ClockMode,
    settle: u64,
    read_timeout: Option<u64>,
}

impl Ports {
    pub(crate) fn new(parameters: &Parameters, options: &Options) -> Self {
        let width = usize::try_from(parameters.data_bits / 8).unwrap_or(64);
        let state = State {
            bus: Bus::new(width, parameters.id_bits),
            bypass: Bus::narrow(width, parameters.id_bits),
            lite: Lite::default(),
            streams: (0..if parameters.stream { parameters.channels } else { 0 })
                .map(|_| StreamPorts::new(width))
                .collect(),
            cycle: 0,
            active: 0,
            began: 0,
            progress: 0,
            is_reported: false,
            requests: 0,
            acknowledged: 0,
            is_reset_requested: true,
            is_descriptor_wanted: false,
            is_loaded: false,
            quiet_until: 0,
            is_ended: false,
            simulator: None,
        };
        Self {
            state: Mutex::new(state),
            to_simulator: Bell(Condvar::new()),
            is_resting: AtomicBool::new(false),
            to_host: Condvar::new(),
            bypass_turn: Mutex::new(()),
            requester: Mutex::new(None),
            clock: options.clock,
            settle: options.settle,
            read_timeout: (options.read_timeout > 0).then_some(options.read_timeout),
        }
    }

    /// Begins a cycle in which `usr_irq_req` has the lines `requests`, and the design has taken the beats of the H2C stream ports
    /// `accepted` in the cycle before.
    pub(crate) fn begin_cycle(&self, requests: u32, accepted: u32) -> Events {
        let mut state = lock(&self.state);
        state.cycle += 1;
        let news = state.stream_news(accepted);
        let changed = requests ^ state.requests;
        let events = Events {
            raised: changed & requests,
            lowered: changed & !requests,
            has_ended: state.bus.take_ended() | news | std::mem::take(&mut state.is_loaded),
        };
        if changed != 0 {
            state.requests = requests;
            tracing::debug!(cycle = state.cycle, "usr_irq_req: {requests:#x}");
            state.active = state.cycle;
        }
        if events.has_ended {
            state.simulator = Some(std::thread::current().id());
        }
        events
    }

    /// Decides what `fpga_xdma` does in the cycle. Locked, this waits for work once a batch has ended.
    pub(crate) fn end_cycle(&self) -> Flags {
        let mut state = lock(&self.state);
        self.is_resting.store(false, Ordering::Relaxed);
        loop {
            if state.is_ended {
                return Flags { finish: group::finishes(), ..Flags::default() };
            }
            if std::mem::take(&mut state.is_reset_requested) {
                state.begin_batch();
                state.quiet_until = state.cycle + RESET_CYCLES;
                return Flags { reset: true, ..Flags::default() };
            }
            if state.acknowledged != 0 {
                state.active = state.cycle;
                break;
            }
            let cycle = state.cycle;
            // Interrupts of this cycle come before its register responses.
            if state.lite.publish() | state.lite.expire(cycle) | state.bypass.take_ended() {
                self.to_host.notify_all();
            }
            if state.is_active() || cycle < state.quiet_until {
                state.active = cycle;
                if self.clock == ClockMode::Free || (cycle - state.began).is_multiple_of(ADMIT_EVERY) {
                    state.admit();
                }
                state.report_silence();
                break;
            }
            if self.clock == ClockMode::Locked && cycle - state.active < self.settle {
                break;
            }
            let is_free = self.clock == ClockMode::Free;
            let may_begin = is_free || !group::is_other_in_batch(self);
            if may_begin && (state.has_unadmitted() || state.is_descriptor_wanted) {
                state.is_descriptor_wanted = false;
                state.begin_batch();
                state.admit();
                break;
            }
            self.is_resting.store(true, Ordering::Relaxed);
            if is_free || group::is_other_at_work(self) {
                break;
            }
            if group::is_shared() {
                drop(state);
                group::wait(CHECK);
                state = lock(&self.state);
            } else {
                state = self.wait(&self.to_simulator.0, state);
            }
            self.is_resting.store(false, Ordering::Relaxed);
        }
        let may_begin = state.cycle >= state.quiet_until;
        Flags {
            write_command: may_begin && state.bus.has_command(true),
            // Also the data of a command of this cycle.
            write_data: may_begin && (state.bus.has_data() || state.bus.has_command(true)),
            read_command: may_begin && state.bus.has_command(false),
            register: may_begin && state.lite.has_access(),
            bypass: if may_begin { flags_of(&state.bypass) } else { 0 },
            acknowledged: std::mem::take(&mut state.acknowledged),
            begins: state.began == state.cycle,
            stream_beats: if may_begin { state.ports_that(StreamPorts::has_beat) } else { 0 },
            stream_ready: if may_begin { state.ports_that(StreamPorts::is_ready) } else { 0 },
            ..Flags::default()
        }
    }

    /// Access to a memory master (0 `m_axi`, 1 `m_axib`) for a command or a response of the cycle.
    pub(crate) fn bus<T>(&self, master: i32, act: impl FnOnce(&mut Bus) -> T) -> T {
        let mut state = lock(&self.state);
        state.note_progress();
        act(if master == 0 { &mut state.bus } else { &mut state.bypass })
    }

    /// Notes that the design has loaded a descriptor for `unit`.
    pub(crate) fn loaded(&self, unit: Unit, is_taken: bool) {
        let mut state = lock(&self.state);
        state.note_progress();
        (state.is_loaded, state.active) = (true, state.cycle);
        if !is_taken {
            tracing::error!(
                cycle = state.cycle,
                "descriptor of {unit:?} loaded while its bypass port is not ready"
            );
        }
    }

    /// The next beat for the H2C stream port of `channel`.
    pub(crate) fn stream_beat(&self, channel: usize) -> Option<StreamBeat> {
        let mut state = lock(&self.state);
        state.note_progress();
        state.streams.get_mut(channel)?.beat()
    }

    /// A beat from the C2H stream port of `channel`.
    pub(crate) fn stream_data(&self, channel: usize, beat: &StreamBeat) {
        let mut state = lock(&self.state);
        state.note_progress();
        let cycle = state.cycle;
        if let Some(port) = state.streams.get_mut(channel)
            && let Err(error) = port.arrived(beat, cycle)
        {
            tracing::error!(cycle, "s_axis_c2h_{channel}: {error}");
        }
    }

    fn with_stream<T>(&self, channel: u8, act: impl FnOnce(&mut StreamPorts, bool) -> T) -> Option<T> {
        let mut state = lock(&self.state);
        let is_simulator = state.simulator == Some(std::thread::current().id());
        let result = state.streams.get_mut(usize::from(channel)).map(|port| act(port, is_simulator));
        let wakes = !is_simulator && state.has_unadmitted();
        drop(state);
        if wakes {
            self.to_simulator.notify_all();
        }
        result
    }

    /// Reports a defect of the slave, with its cycle.
    pub(crate) fn check(&self, master: i32, result: Result<(), BusError>) {
        if let Err(error) = result {
            let cycle = lock(&self.state).cycle;
            let name = if master == 0 { "m_axi" } else { "m_axib" };
            tracing::error!(cycle, "{name}: {error}");
        }
    }

    /// The next register access for the bus.
    pub(crate) fn register(&self) -> Option<LiteAccess> {
        let mut state = lock(&self.state);
        state.note_progress();
        state.lite.take()
    }

    /// The response to the register access on the bus.
    pub(crate) fn register_response(&self, data: u32, code: u32) {
        let mut state = lock(&self.state);
        state.note_progress();
        if !state.lite.respond(data, code) {
            tracing::error!(cycle = state.cycle, "m_axil: response without an access");
        }
    }

    /// Cycles so far.
    pub(crate) fn cycle(&self) -> u64 {
        lock(&self.state).cycle
    }

    /// Whether the last cycle had nothing to do.
    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting.load(Ordering::Relaxed)
    }

    /// Whether the batch is so long that others do not wait for its end.
    pub(crate) fn is_batch_long(&self) -> bool {
        let state = lock(&self.state);
        state.cycle - state.began >= ADMIT_EVERY
    }

    /// Whether the simulator's thread has something to do.
    pub(crate) fn has_work(&self) -> bool {
        let state = lock(&self.state);
        state.is_ended
            || state.is_reset_requested
            || state.acknowledged != 0
            || state.is_descriptor_wanted
            || state.has_unadmitted()
    }

    /// Whether the simulation ends.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).is_ended
    }

    /// Ends the simulation: requesters that wait read all ones.
    pub(crate) fn end(&self) {
        lock(&self.state).is_ended = true;
        self.to_simulator.notify_all();
        self.to_host.notify_all();
    }

    fn wait<'a>(&self, on: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        match on.wait_timeout(state, CHECK) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    fn begin(&self, access: AxiAccess, is_write: bool, data: Vec<u8>) -> DesignError {
        let mut state = lock(&self.state);
        let is_admitted =
            self.clock == ClockMode::Free || state.simulator == Some(std::thread::current().id());
        tracing::debug!(cycle = state.cycle, is_write, is_admitted, length = data.len(), "m_axi: {access:?}");
        state.bus.begin(access, is_write, data, is_admitted);
        drop(state);
        self.to_simulator.notify_all();
        DesignError::Pending
    }

    /// Whether the requester of an access that `began` then has gone.
    fn has_gone(&self, began: Instant) -> bool {
        began.elapsed() >= CHECK
            && lock(&self.requester)
                .as_ref()
                .and_then(Weak::upgrade)
                .is_some_and(|requester| requester.has_gone())
    }

    /// Makes an access of the bypass BAR and waits for its result.
    fn access_bypass(
        &self,
        at: CardAddr,
        is_write: bool,
        data: Vec<u8>,
        into: &mut [u8],
    ) -> Result<(), DesignError> {
        let _turn = lock(&self.bypass_turn);
        let access = AxiAccess { unit: Unit::Xdma, at, fixed: None };
        let mut state = lock(&self.state);
        state.bypass.begin(access, is_write, data, false);
        self.to_simulator.notify_all();
        let began = Instant::now();
        loop {
            match state.bypass.take(access.unit, into) {
                Err(DesignError::Pending) if self.has_gone(began) => {
                    state.bypass.abandon(access.unit);
                    return Err(DesignError::Decode);
                }
                Err(DesignError::Pending) if !state.is_ended => state = self.wait(&self.to_host, state),
                Err(DesignError::Pending) => return Err(DesignError::Decode),
                result => return result,
            }
        }
    }

    /// Makes a register access and waits for its answer.
    fn access_register(&self, access: LiteAccess, limit: Option<u64>) -> u32 {
        let mut state = lock(&self.state);
        let ticket = state.lite.begin(access, limit);
        self.to_simulator.notify_all();
        let began = Instant::now();
        loop {
            if let Some(answer) = state.lite.answer(ticket) {
                return answer;
            }
            if self.has_gone(began) {
                state.lite.abandon(ticket);
                return u32::MAX;
            }
            if state.is_ended {
                return u32::MAX;
            }
            state = self.wait(&self.to_host, state);
        }
    }
}

/// Write command 0, write data 1 (also that of a command of this cycle), read command 2.
pub(crate) fn flags_of(bus: &Bus) -> u32 {
    let command = bus.has_command(true);
    u32::from(command) | u32::from(command || bus.has_data()) << 1 | u32::from(bus.has_command(false)) << 2
}

impl State {
    fn begin_batch(&mut self) {
        tracing::debug!(cycle = self.cycle, "batch");
        (self.began, self.active, self.progress) = (self.cycle, self.cycle, self.cycle);
        self.is_reported = false;
    }

    fn has_unadmitted(&self) -> bool {
        self.bus.has_unadmitted()
            || self.bypass.has_unadmitted()
            || self.lite.has_unadmitted()
            || self.streams.iter().any(StreamPorts::has_unadmitted)
    }

    fn is_active(&self) -> bool {
        self.bus.is_active()
            || self.bypass.is_active()
            || self.lite.is_active()
            || crate::cdma::is_any_busy()
            || self.streams.iter().any(StreamPorts::is_active)
    }

    /// Stream ports for which `is` holds, one bit each.
    fn ports_that(&self, is: impl Fn(&StreamPorts) -> bool) -> u32 {
        self.streams.iter().enumerate().fold(0, |mask, (number, port)| mask | u32::from(is(port)) << number)
    }

    /// Handles accepted beats; returns whether the card can continue a stream channel.
    fn stream_news(&mut self, accepted: u32) -> bool {
        let cycle = self.cycle;
        if accepted != 0 {
            self.note_progress();
        }
        let mut any = false;
        for (number, port) in self.streams.iter_mut().enumerate() {
            if accepted >> number & 1 != 0 {
                port.accepted();
            }
            any |= port.take_news(cycle);
        }
        any
    }

    fn admit(&mut self) {
        if self.has_unadmitted() {
            tracing::debug!(cycle = self.cycle, "admitted");
        }
        self.bus.admit();
        self.bypass.admit();
        self.lite.admit(self.cycle);
        self.streams.iter_mut().for_each(StreamPorts::admit);
    }

    const fn note_progress(&mut self) {
        (self.progress, self.is_reported) = (self.cycle, false);
    }

    /// Reports accesses for which nothing has happened for long, once.
    fn report_silence(&mut self) {
        if self.is_reported || self.cycle.saturating_sub(self.progress) < REPORT_AFTER {
            return;
        }
        self.is_reported = true;
        let (cycle, cycles) = (self.cycle, REPORT_AFTER);
        for (unit, at, is_write) in self.bus.in_progress() {
            let what = if is_write { "write" } else { "read" };
            tracing::warn!(cycle, "m_axi: {what} at {at:#x} of {unit:?}: no progress for {cycles} cycles");
        }
        for (number, _) in self.streams.iter().enumerate().filter(|(_, port)| port.is_stalled()) {
            tracing::warn!(cycle, "m_axis_h2c_{number}: TREADY low for {cycles} cycles");
        }
        for (_, at, is_write) in self.bypass.in_progress() {
            let what = if is_write { "write" } else { "read" };
            tracing::warn!(cycle, "m_axib: {what} at {at:#x}: no progress for {cycles} cycles");
        }
        if let Some(LiteAccess { at, value, .. }) = self.lite.in_progress() {
            let what = if value.is_some() { "write" } else { "read" };
            tracing::warn!(cycle, "m_axil: {what} at {at:#x}: no response for {cycles} cycles");
        }
    }
}

impl Design for Ports {
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        Err(self.begin(access, false, vec![0; into.len()]))
    }

    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError> {
        Err(self.begin(access, true, from.to_vec()))
    }

    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        let mut state = lock(&self.state);
        // Register writes of the host wake the channel, too. The simulator's thread alone continues it, in the cycle of the response.
        if state.simulator != Some(std::thread::current().id()) {
            return Err(DesignError::Pending);
        }
        state.bus.take(access.unit, into)
    }

    fn send_stream(&self, channel: u8, from: &[u8], ends: bool) -> Result<(), DesignError> {
        let free = self.clock == ClockMode::Free;
        self.with_stream(channel, |port, is_simulator| port.send(from, ends, is_simulator || free));
        Err(DesignError::Pending)
    }

    fn stream_sent(&self, channel: u8) -> Result<(), DesignError> {
        let sent = |port: &mut StreamPorts, is_simulator: bool| {
            if is_simulator { port.sent() } else { Err(DesignError::Pending) }
        };
        self.with_stream(channel, sent).unwrap_or(Ok(()))
    }

    fn receive_stream(&self, channel: u8, into: &mut [u8]) -> Result<StreamBytes, DesignError> {
        self.with_stream(channel, |port, is_simulator| port.receive(into, is_simulator))
            .unwrap_or(Err(DesignError::Pending))
    }

    fn read_register(&self, offset: u64) -> u32 {
        self.access_register(LiteAccess { at: offset, value: None, strobes: 0 }, self.read_timeout)
    }

    fn write_register(&self, offset: u64, value: u32) {
        self.write_register_bytes(offset, value, WHOLE);
    }

    fn write_register_bytes(&self, offset: u64, value: u32, strobes: u8) {
        self.access_register(LiteAccess { at: offset, value: Some(value), strobes }, Some(POSTED_AFTER));
    }

    fn read_bypass(&self, at: CardAddr, into: &mut [u8]) -> Result<(), DesignError> {
        self.access_bypass(at, false, vec![0; into.len()], into)
    }

    fn write_bypass(&self, at: CardAddr, from: &[u8]) -> Result<(), DesignError> {
        self.access_bypass(at, true, from.to_vec(), &mut [])
    }

    fn set_requester(&self, requester: Weak<dyn Requester>) {
        *lock(&self.requester) = Some(requester);
    }

    fn descriptor_wanted(&self, _unit: Unit) {
        lock(&self.state).is_descriptor_wanted = true;
        self.to_simulator.notify_all();
    }

    fn interrupts_acknowledged(&self, lines: u32) {
        let mut state = lock(&self.state);
        state.acknowledged |= lines;
        tracing::debug!(cycle = state.cycle, "usr_irq_ack: {lines:#x}");
        drop(state);
        self.to_simulator.notify_all();
    }

    fn reset(&self) {
        let mut state = lock(&self.state);
        state.bus.reset();
        state.bypass.reset();
        state.lite.reset();
        state.streams.iter_mut().for_each(StreamPorts::reset);
        state.acknowledged = 0;
        state.is_reset_requested = true;
        drop(state);
        self.to_simulator.notify_all();
        self.to_host.notify_all();
    }
}
