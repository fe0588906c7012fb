//! The order in which the engines of a card work.

use crate::card::Card;
use crate::host::HostPort;
use crate::link::{EngineContext, Upstream};
use crate::ni::Ni;
use crate::xdma::StepResult;
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::Direction;

/// Units of work that one engine does in a row before the next one has its turn.
const BURST: u32 = 64;

/// Whose turn it is, and who need not be asked.
#[derive(Debug)]
pub(crate) struct EngineScheduler {
    /// The engine whose turn it is.
    next: u32,
    /// Engines that may have work, one bit each: H2C channels, C2H channels, CDMA, and the parts of the NI. What is not
    /// in it was asked, had nothing to do, and nothing has happened since that could have changed this.
    pub(crate) awake: u32,
    /// When the clock will give a stream channel, the CDMA or the NI something to do.
    alarm: Nanos,
    /// Channels that wait for the link, one bit each.
    paced: u32,
    /// With a rate: the turn at which each engine worked last.
    worked: [u64; ENGINES],
    turn: u64,
}

/// Engines of a card, at most: eight channels, the CDMA, the parts of the NI.
const ENGINES: usize = 8 + 1 + Ni::ENGINES as usize;

impl EngineScheduler {
    /// Everybody is asleep.
    pub(crate) const fn new() -> Self {
        Self { next: 0, awake: 0, alarm: Nanos::MAX, paced: 0, worked: [0; ENGINES], turn: 0 }
    }
}

impl EngineScheduler {
    /// The next engine in the round that is awake. Some engine is.
    const fn following(&self) -> u32 {
        let ahead = self.awake >> self.next << self.next;
        if ahead != 0 { ahead } else { self.awake }.trailing_zeros()
    }

    /// The engine among those awake that has not worked for longest: channels that wait for the link do not come round in order.
    fn least_recently_run(&self) -> u32 {
        let awake = (0..).zip(self.worked).filter(|(engine, _)| self.awake & 1 << engine != 0);
        awake.min_by_key(|(_, worked)| *worked).map_or_else(|| self.following(), |(engine, _)| engine)
    }

    fn note(&mut self, engine: u32) {
        self.turn += 1;
        if let Some(worked) = usize::try_from(engine).ok().and_then(|engine| self.worked.get_mut(engine)) {
            *worked = self.turn;
        }
    }
}

impl Card {
    /// Lets the next engine that has something to do take one unit of work at time `now`: a descriptor fetch, a page
    /// of a descriptor's data, a packet, a timer. Returns whether there was any.
    pub fn step<H: HostPort>(&mut self, now: Nanos, host: &mut H) -> bool {
        self.set_now(now);
        if self.is_removed() {
            return self.deliver(host);
        }
        let delivered = self.deliver(host);
        self.take_turn(host, 1) > 0 || delivered
    }

    /// Does up to `units` units of work at time `now`, and returns how many; 0 means that nothing is left to do.
    ///
    /// The engines have their turns in the order of [`Self::step`], but each does a burst of units before the next one: at
    /// most 64, and fewer once 64 KiB were moved, so a turn takes some microseconds. Every engine does what it would have
    /// done unit by unit.
    /// What differs is what several engines do to the same memory at the same time, and interrupts: a line is looked at
    /// after a burst, so what a burst raised more than once is one message. Where a fault plan has something befall the whole
    /// card at a descriptor, a burst is one unit: nothing is done after the descriptor at which it strikes.
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
        }
        done
    }

    pub(crate) fn set_now(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.faults.set_time(self.now);
    }

    /// The engine bits of CDMA and NI.
    pub(crate) fn beyond_channels(&self) -> u32 {
        ((1 << (1 + Ni::ENGINES)) - 1) << self.xdma.channels()
    }

    /// The engine bits of the channels.
    pub(crate) fn all_channels(&self) -> u32 {
        (1 << self.xdma.channels()) - 1
    }

    /// Gives the engines their turn until one has done something, at most `most` units, and sends the interrupts that
    /// come of it. Returns the units.
    fn take_turn<H: HostPort>(&mut self, host: &mut H, most: u32) -> u32 {
        if self.turns.alarm <= self.now || self.space.has_committed() {
            self.turns.awake |= self.beyond_channels();
            if self.description.xdma.stream {
                self.turns.awake |= self.all_channels();
            }
            self.turns.alarm = Nanos::MAX;
        }
        if self.turns.paced != 0 && self.pace.deadline().is_none_or(|free| free <= self.now) {
            self.turns.awake |= std::mem::take(&mut self.turns.paced);
        }
        while self.turns.awake != 0 {
            let paced = self.pace.is_on();
            let engine = if paced { self.turns.least_recently_run() } else { self.turns.following() };
            let StepResult { units, waiting } = if paced && engine < self.xdma.channels() {
                let Some(turn) = self.rate_limited_work(engine, host) else {
                    self.turns.awake &= !(1 << engine);
                    self.turns.paced |= 1 << engine;
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

    /// Work of a channel at the rate of the link: a unit at a time. `None`: the link is busy.
    #[inline(never)]
    fn rate_limited_work<H: HostPort>(&mut self, engine: u32, host: &mut H) -> Option<StepResult> {
        let to_card = engine < u32::from(self.description.xdma.h2c_channels);
        let direction = if to_card { Direction::H2c } else { Direction::C2h };
        if !self.pace.is_free(direction, self.now) {
            return None;
        }
        let moved = |card: &Self| card.counters.h2c_bytes.wrapping_add(card.counters.c2h_bytes);
        let before = moved(self);
        let turn = self.engine_work(engine, host, 1);
        let bytes = moved(self).wrapping_sub(before);
        let h2c = (1_u32 << self.description.xdma.h2c_channels) - 1;
        let way = if to_card { h2c } else { self.all_channels() & !h2c };
        if turn.units == 0 && (self.turns.awake | self.turns.paced) & way & !(1 << engine) == 0 {
            self.pace.unused(direction);
        }
        let payload = 128 << self.config.max_payload();
        self.pace.moved(direction, bytes, payload, self.now);
        Some(turn)
    }

    /// When the link will be free for a channel that waits for it.
    pub(crate) fn pace_deadline(&self) -> Option<Nanos> {
        self.pace.deadline().filter(|_| self.turns.paced != 0)
    }

    fn engines(&self) -> u32 {
        self.xdma.channels() + 1 + Ni::ENGINES
    }

    /// Up to `most` units of engine number `engine`.
    #[inline]
    fn engine_work<H: HostPort>(&mut self, engine: u32, host: &mut H, most: u32) -> StepResult {
        let channels = self.xdma.channels();
        let Self { config, space, streams, counters, faults, plan, now, xdma, .. } = self;
        let (bus_master, now) = (config.bus_master(), *now);
        if engine < channels {
            let upstream = Upstream { host, bus_master, counters, faults, plan };
            let mut lanes = EngineContext { upstream, space, streams, now };
            let turn = xdma.work(engine, &mut lanes, most);
            if self.description.xdma.stream {
                // Channels give each other work, and the clock does.
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
        let mut lanes = EngineContext { upstream, space, streams, now };
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
            // The parts give each other work.
            self.turns.awake |= self.beyond_channels();
        }
        if turn.waiting {
            self.turns.alarm = self.turns.alarm.min(self.ni.deadline().unwrap_or(Nanos::MAX));
        }
        turn
    }
}

/// Does `unit` until it says that there was nothing to do, at most `most` times.
fn times(most: u32, mut unit: impl FnMut() -> bool) -> StepResult {
    match (0..most).find(|_| !unit()) {
        Some(units) => StepResult { units, waiting: true },
        None => StepResult { units: most, waiting: false },
    }
}
