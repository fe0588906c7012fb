//! Link feedback: what the interface adds to the flow control of its message sender.
//!
//! The message sender ([`super::scheme::MessageNode`]) sends inquiries and reports, and lowers its rates. The host is the sender of the
//! registry: it gets the feedback for this node as events. The controller of a network may be at this node.

use super::settings::Settings;
use fpga_firmware::generated::counters;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{Common, LinkFeedback, LinkPacket};
use fpga_protocol::feedback::controller::{Controller, ControllerConfig, StaticRouting};
use fpga_protocol::time::Nanos;

/// Round trips after the last report of a link for which it counts as congested.
const MEMORY_ROUND_TRIPS: u64 = 4;
/// Number of congested links above which other routes are assumed to be as bad.
const LINKS: u32 = 2;

/// Counts since reset.
#[derive(Debug, Default)]
pub(super) struct LinkCounts {
    inquiries_sent: u32,
    passive_received: u32,
    active_sent: u32,
    active_received: u32,
    slow_sent: u32,
    slow_received: u32,
    pub(super) events_dropped: u32,
}

impl LinkCounts {
    pub(super) const fn note_sent(&mut self, word: &LinkFeedback) {
        let count = match word {
            LinkFeedback::Inquiry { .. } => &mut self.inquiries_sent,
            LinkFeedback::Active { .. } => &mut self.active_sent,
            LinkFeedback::Slow { .. } => &mut self.slow_sent,
            LinkFeedback::Passive { .. } => return,
        };
        *count = count.wrapping_add(1);
    }

    pub(super) const fn read(&self, register: u32) -> Option<u32> {
        Some(match register {
            counters::LINK_INQUIRIES_SENT => self.inquiries_sent,
            counters::LINK_PASSIVE_RECEIVED => self.passive_received,
            counters::LINK_ACTIVE_SENT => self.active_sent,
            counters::LINK_ACTIVE_RECEIVED => self.active_received,
            counters::LINK_SLOW_SENT => self.slow_sent,
            counters::LINK_SLOW_RECEIVED => self.slow_received,
            counters::LINK_EVENTS_DROPPED => self.events_dropped,
            _ => return None,
        })
    }
}

/// Counts, and the controller if it is at this node.
#[derive(Debug, Default)]
pub(super) struct LinkUnit {
    pub(super) counts: LinkCounts,
    controller: Option<Controller>,
}

impl LinkUnit {
    /// Starts again with these settings; the counts stay.
    pub(super) fn rebuild(&mut self, settings: &Settings) {
        let trip = Nanos::new(settings.round_trip_ns.into());
        let config = ControllerConfig { links: LINKS, memory: trip.saturating_mul(MEMORY_ROUND_TRIPS) };
        self.controller = settings.link.is_on().then(|| Controller::new(config));
    }

    /// Counts a packet for this node. Returns the answer of the controller, if it is at this node.
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        packet: &LinkPacket,
        settings: &Settings,
    ) -> Option<LinkPacket> {
        let count = match packet.word {
            LinkFeedback::Inquiry { .. } => return None,
            LinkFeedback::Passive { .. } => &mut self.counts.passive_received,
            LinkFeedback::Slow { .. } => &mut self.counts.slow_received,
            LinkFeedback::Active { .. } => &mut self.counts.active_received,
        };
        if matches!(packet.word, LinkFeedback::Active { .. })
            && settings.link.controller() != settings.node_id
        {
            return None;
        }
        *count = count.wrapping_add(1);
        let LinkPacket { common, word } =
            self.controller.as_mut()?.report(now, packet, &mut StaticRouting)?;
        self.counts.note_sent(&word);
        let (source, incarnation) = (NodeId::new(settings.node_id), Incarnation::new(settings.incarnation));
        Some(LinkPacket { common: Common { source, incarnation, ..common }, word })
    }
}
