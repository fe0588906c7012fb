//! Part of the simulation that the waveform contains (`+fpga_trace_from`, `+fpga_trace_until`).

use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use fpga_pci::lock;

use crate::bus::Command;

/// Default of `trace_after` if there is a trigger for the end.
const AFTER: u64 = 64;

/// AXI masters of `fpga_xdma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Master {
    Memory,
    Lite,
    Bypass,
}

impl Master {
    /// The memory master of this number at the boundary.
    pub(crate) const fn numbered(number: i32) -> Self {
        if number == 0 { Self::Memory } else { Self::Bypass }
    }
}

/// Event that begins or ends the waveform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// `cycle:N`: cycle of `axi_aclk`, as in messages.
    Cycle(u64),
    /// `read:[MASTER:]ADDRESS`, `write:[MASTER:]ADDRESS`.
    Access { is_write: bool, master: Option<Master>, address: u64 },
    /// `dma`: the first burst of `m_axi`, or the first beat of a stream port.
    Dma,
    /// `error`: SLVERR, DECERR or a response that breaks the protocol.
    Error,
    /// `design`: the design calls `fpga_xdma_trace_trigger`.
    Design,
}

/// Form of a trigger, for messages.
pub(crate) const TRIGGERS: &str = "`cycle:N`, `read:ADDRESS`, `write:ADDRESS` (or `read:m_axil:ADDRESS`, with m_axi, m_axil or m_axib), `dma`, `error` or `design`";

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl FromStr for Trigger {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("dma", None) => Ok(Self::Dma),
            ("error", None) => Ok(Self::Error),
            ("design", None) => Ok(Self::Design),
            ("cycle", Some(cycle)) => number(cycle).map(Self::Cycle).ok_or(()),
            ("read" | "write", Some(place)) => {
                let (master, address) = match place.split_once(':') {
                    None => (None, place),
                    Some(("m_axi", address)) => (Some(Master::Memory), address),
                    Some(("m_axil", address)) => (Some(Master::Lite), address),
                    Some(("m_axib", address)) => (Some(Master::Bypass), address),
                    Some(_) => return Err(()),
                };
                let address = number(address).ok_or(())?;
                Ok(Self::Access { is_write: kind == "write", master, address })
            }
            _ => Err(()),
        }
    }
}

/// An event at the boundary.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// First and last address.
    Access {
        is_write: bool,
        master: Master,
        first: u64,
        last: u64,
    },
    Stream,
    Error,
    Design,
}

impl Trigger {
    fn fires_at(self, event: Event) -> bool {
        match (self, event) {
            (
                Self::Access { is_write, master, address },
                Event::Access { is_write: writes, master: by, first, last },
            ) => {
                is_write == writes
                    && master.is_none_or(|master| master == by)
                    && (first..=last).contains(&address)
            }
            (Self::Dma, Event::Access { master: Master::Memory, .. } | Event::Stream)
            | (Self::Error, Event::Error)
            | (Self::Design, Event::Design) => true,
            _ => false,
        }
    }
}

/// Triggers of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceOptions {
    pub(crate) from: Option<Trigger>,
    pub(crate) until: Option<Trigger>,
    /// Cycles of the waveform after `until`; without `until`, after its begin.
    pub(crate) after: Option<u64>,
}

impl TraceOptions {
    /// Returns whether the waveform is a part of the simulation.
    pub(crate) const fn is_partial(&self) -> bool {
        self.from.is_some() || self.until.is_some() || self.after.is_some()
    }
}

/// Progress of the waveform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before `from`.
    Waiting,
    /// Recorded until the trigger.
    On,
    /// Recorded up to this cycle.
    Until(u64),
    Over,
}

/// Command for the waveform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Begin,
    End,
}

/// Waveform of a simulation: the triggers and how far they are.
#[derive(Debug)]
pub(crate) struct Trace {
    options: TraceOptions,
    /// An event can change the state.
    is_watching: AtomicBool,
    /// The triggers that fired in this cycle: from, until.
    fired: Mutex<(bool, bool)>,
    state: Mutex<State>,
}

impl Trace {
    pub(crate) fn new(options: TraceOptions) -> Self {
        Self {
            options,
            is_watching: AtomicBool::new(options.is_partial()),
            fired: Mutex::new((false, false)),
            state: Mutex::new(State::Waiting),
        }
    }

    fn note(&self, event: Event) {
        let fires = |trigger: Option<Trigger>| trigger.is_some_and(|trigger| trigger.fires_at(event));
        let mut fired = lock(&self.fired);
        fired.0 |= fires(self.options.from);
        fired.1 |= fires(self.options.until);
    }

    fn is_watching(&self) -> bool {
        self.is_watching.load(Ordering::Relaxed)
    }

    /// A burst of a memory master.
    pub(crate) fn burst(&self, master: i32, is_write: bool, command: &Command) {
        if self.is_watching() {
            let (size, beats) = (1_u64 << command.size.min(16), command.beats as u64);
            let begin = command.at & !(size - 1);
            let length = size * if command.is_fixed { 1 } else { beats };
            let last = begin.saturating_add(length.saturating_sub(1));
            let master = Master::numbered(master);
            self.note(Event::Access { is_write, master, first: command.at, last });
        }
    }

    /// An access to the register at `at`.
    pub(crate) fn register(&self, is_write: bool, at: u64) {
        if self.is_watching() {
            let last = at.saturating_add(3);
            self.note(Event::Access { is_write, master: Master::Lite, first: at, last });
        }
    }

    /// A beat of a stream port.
    pub(crate) fn stream(&self) {
        if self.is_watching() {
            self.note(Event::Stream);
        }
    }

    /// A response code.
    pub(crate) fn response(&self, code: u32) {
        if code & 2 != 0 {
            self.error();
        }
    }

    /// A response that breaks the protocol.
    pub(crate) fn error(&self) {
        if self.is_watching() {
            self.note(Event::Error);
        }
    }

    /// A call of the design.
    pub(crate) fn design(&self) {
        if self.is_watching() {
            self.note(Event::Design);
        }
    }

    /// End of cycle `cycle`: what happens to the waveform in it.
    pub(crate) fn end_cycle(&self, cycle: u64) -> Change {
        let (from, until) = std::mem::take(&mut *lock(&self.fired));
        let is_at = |trigger| matches!(trigger, Some(Trigger::Cycle(at)) if cycle >= at);
        let mut state = lock(&self.state);
        match *state {
            State::Waiting if self.options.from.is_none() || from || is_at(self.options.from) => {
                tracing::info!(cycle, "the waveform begins");
                *state = match (self.options.until, self.options.after) {
                    (None, Some(after)) => State::Until(cycle.saturating_add(after)),
                    _ => State::On,
                };
                Change::Begin
            }
            State::On if until || is_at(self.options.until) => {
                *state = State::Until(cycle.saturating_add(self.options.after.unwrap_or(AFTER)));
                Change::None
            }
            State::Until(last) if cycle > last => {
                tracing::info!(cycle, "the waveform ends");
                self.is_watching.store(false, Ordering::Relaxed);
                *state = State::Over;
                Change::End
            }
            _ => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(from: &str, until: Option<&str>, after: Option<u64>) -> Trace {
        let from = Some(from.parse().expect("a trigger"));
        let until = until.map(|until| until.parse().expect("a trigger"));
        Trace::new(TraceOptions { from, until, after })
    }

    #[test]
    fn malformed_trigger_is_refused() {
        for text in
            ["", "dma:1", "cycle", "cycle:x", "read:", "read:m_axis:0", "write:0x", "cycle:-1", "wave"]
        {
            assert_eq!(text.parse::<Trigger>(), Err(()), "{text}");
        }
        let place = Trigger::Access { is_write: true, master: Some(Master::Lite), address: 16 };
        assert_eq!("write:m_axil:0x10".parse(), Ok(place));
    }

    #[test]
    fn burst_that_contains_address_begins_waveform() {
        let trace = trace("write:m_axi:0x1040", None, Some(2));
        let command = Command { id: 0, at: 0x1003, beats: 2, is_fixed: false, size: 5 };
        trace.burst(0, false, &command);
        assert_eq!(trace.end_cycle(1), Change::None);
        trace.burst(0, true, &command);
        assert_eq!(trace.end_cycle(2), Change::None);
        trace.burst(0, true, &Command { beats: 3, ..command });
        assert_eq!(trace.end_cycle(3), Change::Begin);
        assert_eq!(
            [4, 5, 6, 7].map(|cycle| trace.end_cycle(cycle)),
            [Change::None, Change::None, Change::End, Change::None]
        );
    }

    #[test]
    fn end_trigger_counts_after_begin_only() {
        let trace = trace("cycle:10", Some("error"), Some(0));
        trace.error();
        assert_eq!(trace.end_cycle(9), Change::None);
        trace.error();
        assert_eq!(trace.end_cycle(10), Change::Begin);
        assert_eq!(trace.end_cycle(11), Change::None);
        trace.response(2);
        assert_eq!(trace.end_cycle(12), Change::None);
        assert_eq!(trace.end_cycle(13), Change::End);
    }
}
