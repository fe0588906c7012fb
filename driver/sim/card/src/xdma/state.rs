//! State of a channel's engine.

use super::prefetch::{Fetched, Prefetch};
use crate::description::WritebackRule;
use fpga_protocol::time::Nanos;

/// Build options of the card for the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineOptions {
    pub(crate) writeback: WritebackRule,
    pub(crate) long_descriptor_quirk: bool,
    pub(crate) busy_after_error: bool,
    /// Clearing Run drops a C2H stream descriptor without data.
    pub(crate) stop_drops_empty: bool,
    /// Write flush timeout (PG195, 0x60 of the config block): 2 to this power clocks; 0 is never. Set by software.
    pub(crate) flush_timeout: u32,
}

/// Fetch and execution state.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) active: bool,
    pub(super) stopping: bool,
    /// An AXI slave did not answer the descriptor in flight: only a reset of the card ends this state.
    pub(super) hangs: bool,
    /// A 0->1 edge of Run while the old descriptor was still in flight.
    pub(super) restart: Option<(u64, u32)>,
    pub(super) prefetch: Prefetch,
    pub(super) flight: Option<ActiveDescriptor>,
    /// Number of descriptors at the head of the buffer that a design has begun ahead.
    pub(super) ahead: usize,
    /// The design still has to drop some.
    pub(super) drops_ahead: bool,
    /// State of a stream's descriptor in flight.
    pub(super) open: OpenDescriptor,
    pub(super) width_bytes: u32,
}

impl Engine {
    pub(crate) fn new(capacity: usize, width_bytes: u32) -> Self {
        Self {
            active: false,
            stopping: false,
            hangs: false,
            restart: None,
            prefetch: Prefetch::new(capacity),
            flight: None,
            ahead: 0,
            drops_ahead: false,
            open: OpenDescriptor::NEW,
            width_bytes,
        }
    }

    pub(crate) const fn busy(&self) -> bool {
        self.active
    }

    /// Returns whether the engine only has to continue with the chain.
    pub(super) const fn is_running_normally(&self) -> bool {
        self.active && !self.stopping && self.restart.is_none()
    }

    pub(crate) fn start(&mut self, first: u64, adjacent: u32) {
        if self.active {
            self.restart = Some((first, adjacent));
        } else {
            self.begin(first, adjacent);
        }
    }

    pub(crate) const fn request_stop(&mut self) {
        self.restart = None;
        self.stopping = self.active;
    }

    /// Drops everything, as a reset does.
    pub(crate) const fn abandon(&mut self) {
        self.active = false;
        self.stopping = false;
        self.hangs = false;
        self.restart = None;
        self.flight = None;
        self.drop_ahead();
        self.open = OpenDescriptor::NEW;
        self.prefetch.clear();
    }

    /// Drops the descriptors that a design has begun ahead: it is told in the next step.
    pub(super) const fn drop_ahead(&mut self) {
        self.drops_ahead |= self.ahead > 0;
        self.ahead = 0;
    }

    pub(super) fn begin(&mut self, first: u64, adjacent: u32) {
        self.abandon();
        self.active = true;
        self.prefetch.begin(first, adjacent);
    }
}

/// Descriptor in execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveDescriptor {
    pub(super) flags: u32,
    pub(super) remaining: u32,
    pub(super) source: u64,
    pub(super) destination: u64,
    /// The AXI address does not increment.
    pub(super) fixed: bool,
    /// Length of the access that a design outside the model has not answered yet; 0 if there is none.
    pub(super) pending: u32,
}

impl ActiveDescriptor {
    pub(super) const fn new(fetched: &Fetched, fixed: bool) -> Self {
        let Fetched { control: flags, length: remaining, source, destination, .. } = *fetched;
        Self { flags, remaining, source, destination, fixed, pending: 0 }
    }

    /// Records that `length` bytes with incrementing addresses were moved.
    pub(super) const fn advance(&mut self, length: u32) {
        self.remaining = self.remaining.saturating_sub(length);
        self.source = self.source.wrapping_add(length as u64);
        self.destination = self.destination.wrapping_add(length as u64);
    }
}

/// State of the C2H descriptor in flight besides its remaining length.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenDescriptor {
    pub(super) received: u32,
    /// Time at which it was opened or got its last byte.
    pub(super) since: Nanos,
    /// Time at which a timer acts on it, or on the port that it waits for.
    pub(super) wakes: Option<Nanos>,
    /// The port accepts no data; the stall was counted.
    pub(super) held: bool,
}

impl OpenDescriptor {
    pub(super) const NEW: Self = Self { received: 0, since: Nanos::ZERO, wakes: None, held: false };
}
