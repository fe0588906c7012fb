//! Scheduling of the engines of a card.

use crate::memory::PAGE;
use crate::ni::Ni;
use fpga_protocol::time::Nanos;
use fpga_registers::cast::index;

/// Number of turns of the same engine in a row after which its turns are long: it was alone for about 64 us.
const LONG_TURN_AFTER: u32 = 16;
/// Number of bytes of a long turn: about 15 us.
const LONG_TURN: u64 = 4 * PAGE as u64;

/// Number of bytes of a short turn: about 1 us.
pub(crate) const SHORT_TURN: u64 = 16 << 10;
/// Number of turns for which the turns of other engines are short after one that moved little data.
const SHORT_TURNS: u32 = 64;

/// Scheduling state: the next engine, and the engines that have no work.
#[derive(Debug)]
pub(crate) struct EngineScheduler {
    /// Engine to be served next.
    pub(crate) next: u32,
    /// Engines that may have work, one bit each: H2C channels, C2H channels, CDMA, and the engines of the NI. A cleared bit means that the
    /// engine had nothing to do and that nothing has happened since that could have changed this.
    pub(crate) awake: u32,
    /// Time at which a timer gives work to a stream channel, the CDMA or the NI. At first at once: a reset may leave a timer due, which would
    /// otherwise be the next deadline without ever being served.
    pub(crate) alarm: Nanos,
    /// Engines whose unit in progress has not ended, one bit each.
    pub(crate) paced: u32,
    /// Earliest end of these units.
    pub(crate) paced_until: Nanos,
    /// Engine of the last turn, and the number of turns that it had in a row.
    last: u32,
    in_a_row: u32,
    /// Engine that last moved less than [`SHORT_TURN`] bytes in a turn, and the number of turns since then.
    small: u32,
    since_small: u32,
    /// With pacing: the turn at which each engine worked last.
    worked: [u64; ENGINES],
    turn: u64,
}

/// Maximum number of engines of a card: eight channels, the CDMA, the engines of the NI.
pub(crate) const ENGINES: usize = 8 + 1 + Ni::ENGINES as usize;

/// Numbers of the set bits, in ascending order.
pub(crate) fn bits(mut word: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u32::BITS).then_some(bit)
    })
}

impl EngineScheduler {
    /// State in which no engine has work.
    pub(crate) const fn new() -> Self {
        Self {
            next: 0,
            awake: 0,
            alarm: Nanos::ZERO,
            paced: 0,
            paced_until: Nanos::MAX,
            last: 0,
            in_a_row: 0,
            small: 0,
            since_small: u32::MAX,
            worked: [0; ENGINES],
            turn: 0,
        }
    }

    /// Records a turn of `engine` that moved this many bytes.
    pub(crate) const fn took_turn(&mut self, engine: u32, bytes: u64) {
        self.in_a_row = if engine == self.last { self.in_a_row.saturating_add(1) } else { 0 };
        self.last = engine;
        if bytes > 0 && bytes < SHORT_TURN {
            (self.small, self.since_small) = (engine, 0);
        } else {
            self.since_small = self.since_small.saturating_add(1);
        }
    }

    /// Returns whether another engine than that of the last turn has recently moved little data: its next request shall not wait long.
    pub(crate) const fn has_small_requests(&self) -> bool {
        self.since_small < SHORT_TURNS && self.small != self.last
    }

    /// Maximum number of bytes of the next turn of `engine`: short beside an engine with small requests, long for an engine that has been
    /// the only one to work. The first small request beside a long transfer may wait for a long turn, later ones do not.
    pub(crate) const fn turn_bytes(&self, engine: u32) -> u64 {
        if self.since_small < SHORT_TURNS && self.small != engine {
            SHORT_TURN
        } else if engine == self.last && self.in_a_row >= LONG_TURN_AFTER {
            LONG_TURN
        } else {
            PAGE as u64
        }
    }

    /// Next engine in the round that is awake. At least one engine must be awake.
    pub(crate) const fn following(&self) -> u32 {
        let ahead = self.awake >> self.next << self.next;
        if ahead != 0 { ahead } else { self.awake }.trailing_zeros()
    }

    /// Awake engine that has not worked for longest: engines whose units take time do not follow the round.
    pub(crate) fn least_recently_run(&self) -> u32 {
        let worked = |engine: u32| self.worked.get(index(engine)).copied().unwrap_or(u64::MAX);
        bits(self.awake).min_by_key(|engine| worked(*engine)).unwrap_or_else(|| self.following())
    }

    /// Gives `engines`, one bit each, the chance to work, except those whose unit in progress has not ended.
    pub(crate) const fn wake(&mut self, engines: u32) {
        self.awake |= engines & !self.paced;
    }

    /// Records that the unit in progress of `engine` ends at `end`.
    pub(crate) fn wait_until(&mut self, engine: u32, end: Nanos) {
        self.awake &= !(1 << engine);
        self.paced |= 1 << engine;
        self.paced_until = self.paced_until.min(end);
    }

    /// Returns whether no engine has work at `now`.
    pub(crate) fn is_quiet(&self, now: Nanos) -> bool {
        self.awake == 0 && self.alarm > now && self.paced_until > now
    }

    pub(crate) fn note(&mut self, engine: u32) {
        self.turn += 1;
        if let Some(worked) = usize::try_from(engine).ok().and_then(|engine| self.worked.get_mut(engine)) {
            *worked = self.turn;
        }
    }
}
