//! Performance monitor of a channel (PG195, 0xC0 to 0xD0).
//!
//! The model uses its host's time, which has no beats: data may move in zero time. A channel counts at least one clock per beat, so the
//! cycle counter is never behind the data counter, and a rate computed from both never exceeds the data path's.

use crate::offsets::channel as at;
use fpga_protocol::time::Nanos;
use fpga_registers::cast::{high32, low32};

const AUTO: u32 = 1 << 0;
const CLEAR: u32 = 1 << 1;
const RUN: u32 = 1 << 2;
/// The counters have 42 bits and saturate.
const LIMIT: u64 = (1 << 42) - 1;
const SATURATED: u32 = 1 << 16;
/// AXI user clock of the model: 250 MHz.
const NANOS_PER_CYCLE: u64 = 4;

/// Cycle and data counters.
#[derive(Debug, Default)]
pub(crate) struct Performance {
    control: u32,
    counting_since: Option<Nanos>,
    cycles: u64,
    beats: u64,
}

impl Performance {
    pub(crate) fn read(&self, offset: u32, now: Nanos) -> u32 {
        let cycles = self.cycles_at(now);
        match offset {
            at::PERFORMANCE_CONTROL => self.control,
            at::PERFORMANCE_CYCLES_LOW => low32(cycles),
            at::PERFORMANCE_CYCLES_HIGH => high_word(cycles),
            at::PERFORMANCE_DATA_LOW => low32(self.beats),
            at::PERFORMANCE_DATA_HIGH => high_word(self.beats),
            _ => 0,
        }
    }

    pub(crate) fn write(&mut self, value: u32, now: Nanos) {
        if value & CLEAR != 0 {
            self.clear(now);
        }
        self.control = value & (AUTO | RUN);
        if self.control & RUN != 0 {
            self.counting_since.get_or_insert(now);
        } else {
            self.pause(now);
        }
    }

    /// Handles a 0->1 edge of Run: "auto" clears and starts the counters.
    pub(crate) fn run_edge(&mut self, now: Nanos) {
        if self.control & AUTO != 0 {
            self.clear(now);
            if self.control & RUN != 0 {
                self.counting_since = Some(now);
            }
        }
    }

    /// Handles the end of a Stop descriptor: "auto" stops the counters.
    pub(crate) fn stop_descriptor(&mut self, now: Nanos) {
        if self.control & AUTO != 0 {
            self.pause(now);
        }
    }

    pub(crate) const fn is_counting(&self) -> bool {
        self.counting_since.is_some()
    }

    pub(crate) fn count(&mut self, bytes: usize, width_bytes: u32) {
        if self.counting_since.is_some() {
            let beats = (bytes as u64).div_ceil(width_bytes.max(1).into());
            self.beats = self.beats.saturating_add(beats).min(LIMIT);
        }
    }

    fn clear(&mut self, now: Nanos) {
        self.cycles = 0;
        self.beats = 0;
        if self.counting_since.is_some() {
            self.counting_since = Some(now);
        }
    }

    fn pause(&mut self, now: Nanos) {
        self.cycles = self.cycles_at(now);
        self.counting_since = None;
    }

    fn cycles_at(&self, now: Nanos) -> u64 {
        let running =
            self.counting_since.map_or(0, |since| now.saturating_sub(since).get() / NANOS_PER_CYCLE);
        self.cycles.saturating_add(running).max(self.beats).min(LIMIT)
    }
}

fn high_word(count: u64) -> u32 {
    high32(count) | if count == LIMIT { SATURATED } else { 0 }
}
