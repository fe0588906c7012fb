//! Work of a card: the engine that the scheduler chooses does its next units.

use crate::card::Card;
use crate::host::HostPort;
use crate::link::{EngineContext, Upstream};
use crate::memory::PAGE;
use crate::ni::Ni;
use crate::pacer::TimePart;
use crate::work::{QUANTUM, Work};
use crate::xdma::StepResult;
use fpga_protocol::time::Nanos;

/// Maximum number of units of work that one engine does in a row before the next one is served.
const BURST: u32 = 64;

impl Card {
    /// Lets the next engine with work do one unit at time `now`: a descriptor fetch, a page of a descriptor's data, a packet, a timer.
    /// Returns whether there was any work.
    #[inline]
    pub fn step<H: HostPort>(&mut self, now: Nanos, host: &mut H) -> bool {
        self.set_now(now);
        // Most calls: the host looks for work at every poll.
        !self.is_quiet(now) && self.step_busy(host)
    }

    #[inline]
    fn is_quiet(&self, now: Nanos) -> bool {
        self.turns.is_quiet(now) && !self.space.has_committed() && !self.xdma.messages.is_waiting()
    }

    fn step_busy<H: HostPort>(&mut self, host: &mut H) -> bool {
        let delivered = self.deliver(host);
        if self.is_removed() {
            return delivered;
        }
        self.take_turn(host, 1) > 0 || delivered
    }

    /// Does up to `units` units of work at time `now`, and returns their number. 0 means that no work remains.
    ///
    /// The engines are served in the order of [`Self::step`], but each does a burst of units before the next one: at most 64, and fewer
    /// once 64 KiB were moved (256 KiB by an engine that has been the only one to work for 16 turns), so a turn takes some microseconds. Every engine does what it would have done unit by unit.
    /// Two things differ: the interleaving of several engines that access the same memory, and interrupts. A line is sampled after a
    /// burst, so several requests within one burst become one message. If the fault plan has a fault of the whole card at a descriptor, a
    /// burst is one unit: no work is done after the descriptor at which the fault happens.
    pub fn work<H: HostPort>(&mut self, now: Nanos, host: &mut H, units: u32) -> u32 {
        self.set_now(now);
        self.deliver(host);
        let burst = if self.plan.watches_descriptors() { 1 } else { BURST };
        let mut done = 0;
        while done < units && !self.is_removed() {
            match self.take_turn(host, (units - done).min(burst)) {
                0 => break,
                turn => done += turn,
            }
            // The next small request may already wait in the caller's queue.
            if self.turns.has_small_requests() {
                break;
            }
        }
        done
    }

    /// Advances the card's time to `now` without work: for events between two calls of [`work`](Self::work).
    #[inline]
    pub fn set_now(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.faults.set_time(self.now);
    }

    /// Engine bits of CDMA and NI.
    pub(crate) fn beyond_channels(&self) -> u32 {
        ((1 << (1 + Ni::ENGINES)) - 1) << self.xdma.channels()
    }

    /// Engine bits of the NI.
    fn ni_engines(&self) -> u32 {
        ((1 << Ni::ENGINES) - 1) << (self.xdma.channels() + 1)
    }

    /// Wakes the engines of the NI that have work after a packet has arrived.
    pub(crate) fn wake_ni(&mut self) {
        let ni = self.xdma.channels() + 1;
        let idle = self.ni.idle_engines(self.now, &self.space) << ni;
        self.turns.wake(self.ni_engines() & !idle);
        self.turns.alarm = self.turns.alarm.min(self.ni.deadline().unwrap_or(Nanos::MAX));
    }

    /// Gives the NI's transmitter the chance to work: the queue of frames has space.
    pub(crate) fn wake_transmitter(&mut self) {
        self.turns.wake(1 << (self.xdma.channels() + 1));
    }

    /// Engine bits of the channels.
    pub(crate) fn all_channels(&self) -> u32 {
        (1 << self.xdma.channels()) - 1
    }

    /// Serves the engines until one has done work, at most `most` units, and sends the resulting interrupts. Returns the number of units.
    fn take_turn<H: HostPort>(&mut self, host: &mut H, most: u32) -> u32 {
        if self.turns.alarm <= self.now || self.space.has_committed() {
            self.turns.awake |= self.beyond_channels();
            if self.description.xdma.stream {
                self.turns.awake |= self.all_channels();
            }
            self.turns.alarm = Nanos::MAX;
        }
        if self.turns.paced_until <= self.now {
            let (ended, next) = self.pace.ended(self.turns.paced, self.now);
            self.turns.awake |= ended;
            self.turns.paced &= !ended;
            self.turns.paced_until = next;
        }
        let paced = self.pace.is_on();
        if self.turns.awake & self.beyond_channels() != 0 {
            self.rest_idle_engines();
        }
        while self.turns.awake != 0 {
            let before = self.moved();
            let engine = if paced { self.turns.least_recently_run() } else { self.turns.following() };
            let StepResult { units, waiting } = if paced {
                let Some(turn) = self.paced_work(engine, host) else {
                    self.turns.wait_until(engine, self.pace.end(engine));
                    continue;
                };
                turn
            } else {
                self.engine_work(engine, host, most)
            };
            if waiting || units == 0 {
                self.turns.awake &= !(1 << engine);
            }
            if self.faults.has_completions() {
                for completion in self.faults.take_completions() {
                    self.config.note_completion(completion);
                }
            }
            if units > 0 {
                if self.plan.has_due() {
                    self.apply_due();
                }
                self.turns.took_turn(engine, self.moved().wrapping_sub(before));
                self.turns.next = if engine + 1 < self.engines() { engine + 1 } else { 0 };
                if paced {
                    self.turns.note(engine);
                }
                self.sample_interrupts();
                self.deliver(host);
                return units;
            }
        }
        0
    }

    /// Does for CDMA and the engines of the NI that have no work what follows a unit that has done nothing: cheaper than to let them try.
    fn rest_idle_engines(&mut self) {
        let cdma = self.xdma.channels();
        let ni = cdma + 1;
        let mut idle = u32::from(self.cdma.is_idle(self.now)) << cdma;
        idle |= self.ni.idle_engines(self.now, &self.space) << ni;
        idle &= self.turns.awake;
        if idle == 0 {
            return;
        }
        self.turns.awake &= !idle;
        if idle >> cdma & 1 != 0 {
            self.turns.alarm = self.turns.alarm.min(self.cdma.deadline().unwrap_or(Nanos::MAX));
        }
        if idle >> ni != 0 {
            self.turns.alarm = self.turns.alarm.min(self.ni.deadline().unwrap_or(Nanos::MAX));
        }
        if self.pace.is_on() {
            self.pace.pause(idle);
        }
    }

    /// Lets an engine do one unit of work once its duration is over. Returns `None` before that.
    #[inline(never)]
    fn paced_work<H: HostPort>(&mut self, engine: u32, host: &mut H) -> Option<StepResult> {
        let unit = self.next_unit(engine);
        let payload = 128 << self.config.max_payload();
        if !self.pace.has_ended(engine, unit, payload, self.now) {
            return None;
        }
        let before = self.moved();
        let turn = self.engine_work(engine, host, 1);
        let bytes = self.moved().wrapping_sub(before);
        if let Work::Stream { direction } = unit {
            self.pace.streamed(direction, bytes, payload, engine, self.now);
        }
        if unit != Work::Instant || turn.units == 0 {
            self.pace.executed(engine, bytes, turn.units > 0);
        }
        Some(turn)
    }

    /// Returns the next unit of an engine.
    fn next_unit(&self, engine: u32) -> Work {
        let channels = self.xdma.channels();
        if engine < channels {
            self.xdma.next_unit(engine)
        } else if engine == channels {
            self.cdma.next_unit(&self.space)
        } else {
            self.ni.next_unit(engine - channels - 1)
        }
    }

    /// Time at which work in progress ends: a unit of an engine, or the frame in the network port.
    #[must_use]
    pub fn work_deadline(&self) -> Option<Nanos> {
        let port = (self.pace.is_on() && self.ni.has_frames()).then(|| self.pace.port_free());
        let paced = (self.turns.paced != 0).then_some(self.turns.paced_until);
        paced.into_iter().chain(port).min()
    }

    /// Part that is working; of several the last in the order PCIe, card, network.
    #[must_use]
    pub fn part_in_progress(&self) -> Option<TimePart> {
        let pcie =
            if self.description.ni.event_push { !(1 << self.xdma.channels()) } else { self.all_channels() };
        if self.pace.port_free() > self.now {
            Some(TimePart::Network)
        } else if self.turns.paced & !pcie != 0 {
            Some(TimePart::Card)
        } else {
            (self.turns.paced != 0).then_some(TimePart::Pcie)
        }
    }

    /// Bytes that all engines have moved.
    const fn moved(&self) -> u64 {
        let counters = &self.counters;
        counters.h2c_bytes.wrapping_add(counters.c2h_bytes).wrapping_add(counters.cdma_bytes)
    }

    fn engines(&self) -> u32 {
        self.xdma.channels() + 1 + Ni::ENGINES
    }

    /// Does up to `most` units of work of engine number `engine`.
    #[inline]
    fn engine_work<H: HostPort>(&mut self, engine: u32, host: &mut H, most: u32) -> StepResult {
        let channels = self.xdma.channels();
        let Self { config, space, streams, counters, faults, plan, now, xdma, .. } = self;
        let (bus_master, now) = (config.bus_master(), *now);
        let (turn, paced) = (self.turns.turn_bytes(engine), self.pace.is_on());
        let quantum = match usize::try_from(turn) {
            _ if paced => QUANTUM,
            Ok(turn) if most > 1 => turn.min(PAGE),
            _ => PAGE,
        };
        if engine < channels {
            let upstream = Upstream { host, bus_master, counters, faults, plan };
            let mut lanes = EngineContext { upstream, space, streams, now, quantum, turn, paced };
            let turn = xdma.work(engine, &mut lanes, most);
            if self.description.xdma.stream {
                // Channels create work for each other, and so do timers.
                if turn.units > 0 {
                    self.turns.awake |= self.all_channels();
                }
                if turn.waiting {
                    self.turns.alarm = self.turns.alarm.min(self.xdma.deadline().unwrap_or(Nanos::MAX));
                }
            }
            return turn;
        }
        let host: &mut dyn HostPort = host;
        let upstream = Upstream { host, bus_master, counters, faults, plan };
        let mut lanes = EngineContext { upstream, space, streams, now, quantum, turn, paced };
        if engine == channels {
            let turn = times(most, || self.cdma.step(&mut lanes));
            if turn.waiting {
                self.turns.alarm = self.turns.alarm.min(self.cdma.deadline().unwrap_or(Nanos::MAX));
            }
            return turn;
        }
        let part = engine - channels - 1;
        let turn = times(most, || self.ni.step(part, &mut lanes));
        if turn.units > 0 {
            // They create work for each other. Data that the CDMA has written into a transmit window is announced by its commit word.
            self.turns.wake(self.ni_engines());
        }
        if turn.waiting {
            self.turns.alarm = self.turns.alarm.min(self.ni.deadline().unwrap_or(Nanos::MAX));
        }
        turn
    }
}

/// Calls `unit` until it reports that there was nothing to do, at most `most` times.
fn times(most: u32, mut unit: impl FnMut() -> bool) -> StepResult {
    match (0..most).find(|_| !unit()) {
        Some(units) => StepResult { units, waiting: true },
        None => StepResult { units: most, waiting: false },
    }
}
