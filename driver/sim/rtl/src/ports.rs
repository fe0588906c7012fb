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

mod group;
mod host;
mod state;

use std::fmt::Arguments;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use fpga_pci::lock;
use fpga_sim::{Requester, Unit};

use crate::bus::{Bus, BusError};
use crate::lite::LiteAccess;
use crate::options::{ASSUMED_PERIOD, ClockMode, Options, Parameters};
use crate::record::Record;
use crate::stream::{StreamBeat, StreamPorts};
pub(crate) use group::join;
use state::State;

/// Cycles of a batch between two admissions of other accesses.
const ADMIT_EVERY: u64 = 4096;
/// Cycles of `axi_aresetn` low, and of the following quiet time. `fpga_xdma` holds the reset for half of it.
const RESET_CYCLES: u64 = 64;
/// Wall-clock time after which the host no longer waits for a read, if the design has had [`MIN_READ_CYCLES`] for it: clients give up after some
/// seconds (QEMU five), and 50 ms of simulated time take longer.
const READ_WALL_TIME: Duration = Duration::from_secs(1);
const MIN_READ_CYCLES: u64 = 100_000;
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
    /// Cycles after which a read of the host ends without a response; [`u64::MAX`]: never.
    read_timeout: AtomicU64,
    /// The limit is the default, and a slow simulator does not keep the host waiting for it.
    is_default_limit: bool,
    record: Option<Arc<Record>>,
}

impl Ports {
    pub(crate) fn new(parameters: &Parameters, options: &Options, record: Option<Arc<Record>>) -> Self {
        Self {
            state: Mutex::new(State::new(parameters)),
            to_simulator: Bell(Condvar::new()),
            is_resting: AtomicBool::new(false),
            to_host: Condvar::new(),
            bypass_turn: Mutex::new(()),
            requester: Mutex::new(None),
            clock: options.clock,
            settle: options.settle,
            is_default_limit: options.read_timeout.is_none(),
            read_timeout: AtomicU64::new(options.read_cycles(ASSUMED_PERIOD).unwrap_or(u64::MAX)),
            record,
        }
    }

    /// Sets the limit of a read of the host in cycles.
    pub(crate) fn limit_reads(&self, cycles: Option<u64>) {
        self.read_timeout.store(cycles.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn read_limit(&self) -> u64 {
        self.read_timeout.load(Ordering::Relaxed)
    }

    /// Returns whether a read of the host that `began` then, `cycles` ago, has waited long enough.
    fn is_overdue(&self, cycles: u64, began: Instant) -> bool {
        let is_slow = self.is_default_limit && cycles >= MIN_READ_CYCLES && began.elapsed() >= READ_WALL_TIME;
        is_slow || cycles >= self.read_limit()
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
            self.note(format_args!("usr_irq_req {requests:x}"));
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
                self.note(format_args!("reset"));
                return Flags { reset: true, ..Flags::default() };
            }
            if state.acknowledged != 0 {
                state.active = state.cycle;
                self.note(format_args!("usr_irq_ack {:x}", state.acknowledged));
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
            if let Some(record) = &self.record {
                record.flush();
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
            bypass: if may_begin { state.bypass.flags() } else { 0 },
            acknowledged: std::mem::take(&mut state.acknowledged),
            begins: state.began == state.cycle,
            stream_beats: if may_begin { state.ports_that(StreamPorts::has_beat) } else { 0 },
            stream_ready: if may_begin { state.offer_ready() } else { 0 },
            ..Flags::default()
        }
    }

    /// The record of the simulation, if it has one.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    fn note(&self, event: Arguments<'_>) {
        if let Some(record) = &self.record {
            record.line(event);
        }
    }

    /// Simulated time of the cycle that begins, for the record.
    pub(crate) fn set_time(&self, picoseconds: u64) {
        if let Some(record) = &self.record {
            record.set_time(lock(&self.state).cycle + 1, picoseconds);
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
            state.report_defect(
                format_args!("descriptor bypass port of {unit:?}"),
                format_args!("descriptor loaded while the port is not ready"),
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
            && !state.is_reset_requested
        {
            state.report_defect(format_args!("s_axis_c2h_{channel}"), format_args!("{error}"));
        }
    }

    /// Reports a defect of the slave, with its cycle.
    pub(crate) fn check(&self, master: i32, result: Result<(), BusError>) {
        if let Err(error) = result {
            let mut state = lock(&self.state);
            // The card has been reset, the design not yet: its responses belong to accesses that are gone.
            if state.is_reset_requested {
                return;
            }
            let name = if master == 0 { "m_axi" } else { "m_axib" };
            state.report_defect(format_args!("{name}"), format_args!("{error}"));
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
        if !state.lite.respond(data, code) && !state.is_reset_requested {
            state.report_defect(format_args!("m_axil"), format_args!("response without an access"));
        }
    }

    /// Cycles so far.
    pub(crate) fn cycle(&self) -> u64 {
        lock(&self.state).cycle
    }

    /// Returns whether the last cycle had nothing to do.
    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting.load(Ordering::Relaxed)
    }

    /// Returns whether the batch has lasted for [`ADMIT_EVERY`] cycles: other instances do not wait for its end.
    pub(crate) fn is_batch_long(&self) -> bool {
        let state = lock(&self.state);
        state.cycle - state.began >= ADMIT_EVERY
    }

    /// Returns whether the simulator's thread has something to do.
    pub(crate) fn has_work(&self) -> bool {
        let state = lock(&self.state);
        state.is_ended
            || state.is_reset_requested
            || state.acknowledged != 0
            || state.is_descriptor_wanted
            || state.has_unadmitted()
    }

    /// Returns whether the simulation ends.
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
}
