//! Hops of the network: switch ports with a rate and a queue in front of one card, with or without link feedback.
//!
//! ```text
//! card -> frames to the hop's node -> queue of the hop -> network -> card
//!             inquiry, congestion: answers and reports -> network -> sender, controller
//! ```

use fpga_firmware::generated::PacketKind;
use fpga_firmware::ids::NodeId;
use fpga_firmware::wire::{Common, Flags, LINK_WHOLE, Packet};
use fpga_netmodel::{BitRate, Class, Frame as _, ImpairedLink, Impairments, OrderError, Rate, route_of};
use fpga_protocol::feedback::hop::{Hop, HopConfig};
use fpga_protocol::feedback::{Limits, LinkLoad, LinkPacket, Word};
use fpga_protocol::time::Nanos;
use fpga_registers::bytes::u32_at;

/// Maximum number of frames in a hop's queue, beside its length in time.
const CAPACITY: usize = 4096;
/// Bytes of the longest link packet, with some space.
const LINK_BYTES: usize = 64;

/// Support of link feedback at a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HopFeedback {
    /// Answers inquiries, and reports a congested link to the controller.
    #[default]
    Answers,
    /// Does not know link packets, and forwards them as any others.
    Forwards,
    /// Does not know link packets, and drops them.
    Drops,
}

/// One of several routes of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopRoute {
    /// Number of the route, from 0.
    pub number: u8,
    /// Number of routes; 0 counts as 1.
    pub of: u8,
}

/// A hop in front of one card: all frames for that node pass its queue, or those of one route.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimHop {
    /// Node whose frames pass it.
    pub to: NodeId,
    /// Number of its link in link packets.
    pub link: u32,
    /// Rate and maximum queueing time; a frame that would wait longer is dropped.
    pub rate: Rate,
    /// Rate of the network's links, of which link packets give this link's rate as a fraction. Default: its own.
    pub line: BitRate,
    /// Route of the frames that pass it, and the number of routes, by their path identifiers ([`fpga_netmodel::route_of`]). `None`: all frames.
    pub route: Option<HopRoute>,
    /// Whether its link ends at the card, as link packets say (LAST_HOP). Default: without route.
    pub last_hop: bool,
    /// Support of link feedback.
    pub feedback: HopFeedback,
    /// Node of the controller; `None`: it reports nothing by itself.
    pub controller: Option<NodeId>,
    /// Round trip of the network: a queue that becomes shorter is not reported again for this time, and two packets of a kind have a
    /// sixteenth of it between them. Default 10 us.
    pub round_trip: Nanos,
}

impl SimHop {
    /// Creates a hop that answers inquiries, as link `link` in front of node `to`.
    #[must_use]
    pub const fn new(to: NodeId, link: u32, rate: Rate) -> Self {
        Self {
            to,
            link,
            rate,
            line: rate.rate,
            route: None,
            last_hop: true,
            feedback: HopFeedback::Answers,
            controller: None,
            round_trip: Nanos::from_micros(10),
        }
    }

    /// Restricts it to the frames of one route, so that its link is not the last hop.
    #[must_use]
    pub const fn route(mut self, route: HopRoute) -> Self {
        (self.route, self.last_hop) = (Some(route), false);
        self
    }
}

fpga_registers::setters! {
    impl SimHop {
        /// Sets the support of link feedback.
        feedback: HopFeedback;
        /// Sets the node of the controller.
        controller: NodeId => Some;
        /// Sets the rate of the network's links.
        line: BitRate;
        /// Sets the round trip of the network.
        round_trip: Nanos;
    }
}

/// Counts of a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HopCounters {
    /// Frames that arrived.
    pub frames: u64,
    /// Frames that its full queue dropped.
    pub overflowed: u64,
    /// Inquiries that arrived.
    pub inquiries: u64,
    /// Link packets that it dropped because it does not know them.
    pub link_packets_dropped: u64,
    /// Answers to inquiries that it sent (LINK_PASSIVE).
    pub passive: u64,
    /// Reports that it sent (LINK_ACTIVE).
    pub active: u64,
}

/// Queue and feedback state of a hop.
#[derive(Debug)]
pub(crate) struct HopQueue {
    description: SimHop,
    pub(crate) frames: ImpairedLink<(usize, Vec<u8>)>,
    config: HopConfig,
    hop: Hop,
    pub(crate) counters: HopCounters,
}

/// Reaction of a hop to a frame that arrives.
pub(crate) struct HopAction {
    /// Whether the frame joins the queue.
    pub(crate) forwards: bool,
    /// Packet that the hop sends.
    pub(crate) sends: Option<Vec<u8>>,
}

impl HopQueue {
    pub(crate) fn new(description: SimHop, seed: u64) -> Result<Self, OrderError> {
        let frames = ImpairedLink::new(Impairments::default().rate(description.rate), CAPACITY, seed)?;
        let config = HopConfig {
            limits: Limits::default(),
            gap: Nanos::new(description.round_trip.get() / 16 + 1),
            patience: description.round_trip,
        };
        Ok(Self { description, frames, config, hop: Hop::default(), counters: HopCounters::default() })
    }

    /// Returns whether a frame for `node` with this path identifier passes the hop.
    pub(crate) fn is_for(&self, node: u32, path: u8) -> bool {
        let on_route = |route: HopRoute| route_of(path, route.of) == route.number;
        self.description.to.get() == node && self.description.route.is_none_or(on_route)
    }

    /// Load of the link, as link packets give it.
    fn load(&self, now: Nanos) -> LinkLoad {
        let thousandths = |part: u64, whole: u64| {
            let share = u128::from(part) * u128::from(LINK_WHOLE) / u128::from(whole.max(1));
            u16::try_from(share).unwrap_or(LINK_WHOLE).min(LINK_WHOLE)
        };
        let SimHop { link, rate, line, .. } = &self.description;
        let waits = self.frames.free_at().saturating_sub(now);
        LinkLoad {
            link: *link,
            rate: thousandths(rate.rate.get(), line.get()),
            queue: thousandths(waits.get(), rate.queue.get()),
        }
    }

    /// Handles a frame that arrives.
    pub(crate) fn arrive(&mut self, now: Nanos, frame: &Vec<u8>) -> HopAction {
        self.counters.frames += 1;
        let kind = frame.get(1).and_then(|kind| PacketKind::try_from(*kind).ok());
        let is_link = matches!(
            kind,
            Some(
                PacketKind::LinkInquiry
                    | PacketKind::LinkPassive
                    | PacketKind::LinkActive
                    | PacketKind::LinkSlow
            )
        );
        self.counters.inquiries += u64::from(kind == Some(PacketKind::LinkInquiry));
        match self.description.feedback {
            HopFeedback::Drops if is_link => {
                self.counters.link_packets_dropped += 1;
                return HopAction { forwards: false, sends: None };
            }
            HopFeedback::Drops | HopFeedback::Forwards => return HopAction { forwards: true, sends: None },
            HopFeedback::Answers => {}
        }
        let sends = self.feedback(now, frame, kind).and_then(|(to, word)| {
            let count = match word {
                Word::Passive { .. } => &mut self.counters.passive,
                _ => &mut self.counters.active,
            };
            *count += 1;
            // A hop is not a node: its packets have the receiver as source.
            let common = Common {
                source: self.description.to,
                destination: to,
                flags: if self.description.last_hop { Flags::LAST_HOP } else { Flags::NONE },
                path: frame.path(),
                ..Common::default()
            };
            let mut buffer = vec![0; LINK_BYTES];
            let length = LinkPacket { common, word }.encode(&mut buffer).ok()?;
            buffer.truncate(length);
            Some(buffer)
        });
        HopAction { forwards: true, sends }
    }

    /// Returns the packet that a frame causes, with its destination.
    fn feedback(&mut self, now: Nanos, frame: &Vec<u8>, kind: Option<PacketKind>) -> Option<(NodeId, Word)> {
        let source = NodeId::new(u32_at(frame, 4)?);
        let state = self.load(now);
        if kind == Some(PacketKind::LinkInquiry) {
            let Ok(Packet::Link(LinkPacket { word: Word::Inquiry { number }, .. })) = Packet::parse(frame)
            else {
                return None;
            };
            let word = self.hop.inquiry(now, &self.config, state, number, self.description.to)?;
            return Some((source, word));
        }
        if frame.class() != Class::Data {
            return None;
        }
        let controller = self.description.controller?;
        let word = self.hop.packet(now, &self.config, state, (source, self.description.to))?;
        Some((controller, word))
    }
}
