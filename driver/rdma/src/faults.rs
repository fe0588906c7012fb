//! Faults that other nodes and the card's tables cause: kept until they are taken, with limited log lines.

use std::collections::VecDeque;

use fpga_firmware::event::{Event, FaultReason};
use fpga_pci::LogLimit;
use fpga_protocol::Nanos;
use fpga_protocol::mirror::MirrorError;

/// Maximum number of faults kept until they are taken; older ones are dropped.
const MAX_KEPT_FAULTS: usize = 256;

/// Faults that were not taken yet.
#[derive(Debug)]
pub(super) struct Faults {
    events: VecDeque<Event>,
    mirror: VecDeque<MirrorError>,
    event_log: LogLimit,
    refusal_log: LogLimit,
    mirror_log: LogLimit,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            mirror: VecDeque::new(),
            event_log: LogLimit::new("faults of the network interface"),
            refusal_log: LogLimit::new("refused writes of other nodes"),
            mirror_log: LogLimit::new("the mirror of the receiving side"),
        }
    }
}

impl Faults {
    /// Logs and keeps a fault event. Returns the number of faults dropped.
    pub(super) fn record(&mut self, now: Nanos, card: &str, event: Event) -> u64 {
        let reason = event.fault_reason().map_or("unknown", FaultReason::name);
        let (node, address, length) = (event.node.get(), event.address, event.length);
        if event.fault_reason() == Some(FaultReason::Violation) {
            // For example, the region of the peer was closed just now, and the peer does not know it yet.
            if self.refusal_log.permits(now.into()) {
                tracing::info!(card, node, %address, length, "a node tried to write where it may not, and was refused");
            }
        } else if self.event_log.permits(now.into()) {
            tracing::warn!(card, reason, node, %address, length, "the network interface reports a fault: look at its fault log");
        }
        keep(&mut self.events, event)
    }

    /// Logs and keeps an event that contradicts earlier ones. Returns the number of faults dropped.
    pub(super) fn record_mirror(&mut self, now: Nanos, card: &str, error: MirrorError) -> u64 {
        if self.mirror_log.permits(now.into()) {
            tracing::warn!(card, %error, "mirror of the receiving side");
        }
        keep(&mut self.mirror, error)
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn next_contradiction(&mut self) -> Option<MirrorError> {
        self.mirror.pop_front()
    }
}

/// Appends `item` and keeps the latest [`MAX_KEPT_FAULTS`]. Returns the number of items dropped.
fn keep<T>(queue: &mut VecDeque<T>, item: T) -> u64 {
    let full = queue.len() >= MAX_KEPT_FAULTS;
    if full {
        queue.pop_front();
    }
    queue.push_back(item);
    full.into()
}
