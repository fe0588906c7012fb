//! Options of a transfer after defaults and checks.

use std::time::Duration;

use fpga_driver::{NiInfo, NodeId};
use fpga_netmodel::Rate;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::tuning::{Tuning, max_window};
use fpga_rdma::{EndpointOptions, LinkFeedback, SendNotify, SendOptions};

use crate::cli::{FeedbackArgs, Notifier, Scheme, SegmentLength, TransferArgs};
use crate::config::TransferDefaults;
use crate::error::CliError;
use crate::impair::ImpairArgs;
use crate::stream::Source;
use crate::target::{HopOptions, Opened};
use crate::units::binary_size;

/// Default of `--size`.
const DEFAULT_SIZE: u64 = 64 << 20;
/// Default of `--size` for inspected transfers: enough to fill every table, and done quickly.
const INSPECTED_TRANSFER_BYTES: u64 = 1 << 20;
/// Default of `--chunk`: memory that is used again is faster than memory that is used for the first time.
const CHUNK: u64 = 8 << 20;
/// Alignment of chunks in card memory.
const CHUNK_ALIGNMENT: u64 = 4096;
/// Escape timeout for served cards. Such a card shares its CPU with others, and so do the links between such cards: a packet may be late by
/// the time slices of several processes.
const SERVED_ESCAPE_TIMEOUT: Duration = Duration::from_millis(50);
/// Default of `--hop-queue`.
const HOP_QUEUE: Duration = Duration::from_micros(50);
/// Default of `--seed`.
const SEED: u64 = 1;
/// Default of `--reorder`.
pub(super) const REORDER: u16 = 64;
/// Usual payload of a packet in bytes: the largest path MTU of InfiniBand and RoCE.
const USUAL_PACKET: u32 = 4096;
/// Payload of a packet in bytes where a segment has less than [`USUAL_PACKET`]: that of the default card.
const MIN_USUAL_PACKET: u32 = 512;
/// Maximum segment length that the driver chooses for a node whose mask it does not know.
const USUAL_SEGMENT: u32 = 16 << 10;

/// Options of a transfer.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) size: u64,
    pub(super) seed: u64,
    pub(super) packet: Option<u32>,
    /// `None`: not requested.
    pub(super) reorder: Option<u16>,
    /// Other impairments of the simulated network.
    pub(super) impair: ImpairArgs,
    /// Link feedback.
    feedback: FeedbackArgs,
    /// Schemes, default first; the transfers of a long file alternate between them.
    pub(super) schemes: Vec<Scheme>,
    tuning: Tuning,
    no_congestion_window: bool,
    round_trip: Option<Duration>,
    pub(super) notify: Notifier,
    deadline: Option<Duration>,
    priority: u8,
    /// Whether the card raises an event for every packet, so that the mirror has masks.
    pub(super) packet_events: bool,
    threshold: Option<u32>,
    /// `None`: chosen by the driver.
    segment: Option<u32>,
    /// `None`: the default, or the size of card memory if that is less.
    chunk: Option<u64>,
}

impl Plan {
    pub(super) fn new(args: &TransferArgs, defaults: &TransferDefaults) -> Result<Self, CliError> {
        Ok(Self {
            size: args.size.or(defaults.size).unwrap_or(DEFAULT_SIZE),
            seed: args.seed.or(defaults.seed).unwrap_or(SEED),
            packet: args.packet.or(defaults.packet),
            reorder: args.reorder.or(defaults.reorder),
            impair: args.impair.or(&defaults.impair()),
            feedback: args.feedback.clone(),
            schemes: args.scheme.clone(),
            tuning: tuning(args)?,
            no_congestion_window: args.no_congestion_window,
            round_trip: args.round_trip,
            notify: args.notify.or(defaults.notify).unwrap_or(Notifier::Receiver),
            deadline: args.deadline.or(defaults.deadline),
            priority: args.priority.or(defaults.priority).unwrap_or(0),
            packet_events: false,
            threshold: narrow("--threshold", args.threshold.or(defaults.threshold))?,
            segment: match args.segment.or(defaults.segment) {
                Some(SegmentLength::Bytes(bytes)) => narrow("--segment", Some(bytes))?,
                Some(SegmentLength::Auto) | None => None,
            },
            chunk: args.chunk.or(defaults.chunk),
        })
    }

    /// Sets the packet size of cards whose description says nothing about it, if the user has not chosen one: that of today's networks, or
    /// a segment if that is shorter.
    pub(super) fn with_usual_packets(self) -> Self {
        let longest =
            self.segment.map_or(USUAL_PACKET, |segment| segment.clamp(MIN_USUAL_PACKET, USUAL_PACKET));
        let usual = 1 << longest.ilog2();
        Self { packet: self.packet.or(Some(usual)), ..self }
    }

    /// Plan of a transfer for inspection: the card raises an event for every packet, since a listing also compares masks.
    pub(super) fn for_inspection(args: &TransferArgs, defaults: &TransferDefaults) -> Result<Self, CliError> {
        let size = args.size.or(defaults.size).unwrap_or(INSPECTED_TRANSFER_BYTES);
        Ok(Self { size, packet_events: true, ..Self::new(args, defaults)? })
    }

    /// Hop of the simulated network, if one is requested.
    pub(super) fn hop(&self) -> Option<HopOptions> {
        let queue = Nanos::from(self.feedback.hop_queue.unwrap_or(HOP_QUEUE));
        let feedback = self.feedback.hop_feedback.unwrap_or_default();
        self.feedback.hop.map(|rate| HopOptions {
            rate: Rate { rate, queue },
            feedback: feedback.into(),
            controller: self.feedback.controller.map(NodeId::new),
        })
    }

    /// Checks the packet size. It is fixed when a card is built: for a real card the option only states the expected size.
    pub(super) fn check_packet(&self, opened: &Opened) -> Result<(), CliError> {
        let (Some(wanted), Some(ni)) = (self.packet, &opened.card.info().ni) else { return Ok(()) };
        let built = 1u32.checked_shl(ni.packet_size_log2.into()).unwrap_or(0);
        if wanted == built {
            return Ok(());
        }
        let card = opened.card.name();
        Err(CliError::usage(format!("{card} is built for packets of {built} bytes, not {wanted}"))
            .advise("omit --packet"))
    }

    /// Fails if segments would be shorter than a packet of the card, because every packet would be a segment with its own state; or, in the
    /// registry scheme, longer than a mask or a transmit window.
    pub(super) fn check_segment(&self, opened: &Opened) -> Result<(), CliError> {
        let (Some(segment), Some(ni)) = (self.segment, &opened.card.info().ni) else { return Ok(()) };
        let packet = 1_u32.checked_shl(ni.packet_size_log2.into()).unwrap_or(u32::MAX);
        let longest = longest_segment(ni);
        let is_limited = self.schemes.is_empty() || self.schemes.contains(&Scheme::Registry);
        let wrong = match segment {
            _ if segment < packet => {
                format!("is less than a packet of {} ({packet} bytes)", opened.card.name())
            }
            _ if is_limited && segment > longest => {
                format!("is more than a mask of {} covers and a transmit window holds", opened.card.name())
            }
            _ => return Ok(()),
        };
        let range = if is_limited { format!("{packet} to {longest}") } else { format!("{packet} or more") };
        Err(CliError::usage(format!("--segment {segment} {wrong}"))
            .advise(format!("give {range}, or omit --segment")))
    }

    /// Returns whether the choice of segment lengths needs the receiver's mask: the card could send longer segments than usual.
    pub(super) fn needs_mask(&self, opened: &Opened) -> bool {
        let longest = opened.card.info().ni.as_ref().map_or(0, longest_segment);
        self.segment.is_none() && self.schemes.contains(&Scheme::Registry) && longest > USUAL_SEGMENT
    }

    /// Options of an endpoint; `salt` distinguishes the two ends.
    ///
    /// # Errors
    /// Wrong usage for a threshold above the card's maximum segment length.
    pub(super) fn endpoint(&self, opened: &Opened, salt: u64) -> Result<EndpointOptions, CliError> {
        let mut options = EndpointOptions::default();
        if opened.served {
            options.escape_timeout = SERVED_ESCAPE_TIMEOUT;
        }
        options.scheme = self.schemes.first().map_or(options.scheme, |scheme| scheme.rules());
        options.other_schemes = self.schemes.iter().skip(1).map(|scheme| scheme.rules()).collect();
        options.tuning = self.tuning;
        options.round_trip = self.round_trip.unwrap_or(options.round_trip);
        // On a slow network, an answer needs time to arrive.
        let jitter = self.impair.jitter.unwrap_or_default().saturating_mul(4);
        let delay = self.impair.delay.unwrap_or_default().saturating_add(jitter);
        options.give_up = options.give_up.max(delay.saturating_mul(16));
        options.packet_events = self.packet_events;
        options.congestion = !self.no_congestion_window;
        if self.feedback.link_feedback {
            let mut feedback = LinkFeedback::default();
            feedback.controller = self.feedback.controller.map(NodeId::new);
            options.link_feedback = Some(feedback);
        }
        options.big_threshold = self.threshold;
        let registry = self.schemes.contains(&Scheme::Registry);
        let ni = opened.card.info().ni.as_ref();
        if let (true, Some(threshold), Some(ni)) = (registry, self.threshold, ni)
            && threshold > longest_segment(ni)
        {
            let longest = longest_segment(ni);
            return Err(CliError::usage(format!(
                "--threshold {threshold}: a transfer up to the threshold is one segment, of at most {longest} bytes on {}",
                opened.card.name(),
            ))
            .advise(format!("give --threshold {longest} or less")));
        }
        options.segment_size = self.segment;
        // On simulated cards a run is repeatable to the last packet. Other nodes may know a later incarnation of a real card.
        if opened.simulated {
            let mixed = self.seed.wrapping_mul(2).wrapping_add(salt);
            // 0 stands for none.
            options.incarnation = Some(u32::try_from(mixed & 0xFFFF_FFFF).unwrap_or(0).max(1));
        }
        Ok(options)
    }

    /// Options of transfer `number`, counted from 0.
    pub(super) fn send_options(&self, number: u64) -> SendOptions {
        let notify = match self.notify {
            Notifier::Receiver => SendNotify::Receiver,
            Notifier::Sender => SendNotify::Sender,
        };
        let mut options = SendOptions::default().notify(notify).priority(self.priority);
        let turn = number.checked_rem(self.schemes.len() as u64).and_then(|turn| usize::try_from(turn).ok());
        options.scheme = turn.and_then(|turn| self.schemes.get(turn)).map(|scheme| scheme.rules());
        self.deadline.map_or(options, |deadline| options.deadline(deadline))
    }

    /// Chunk size in bytes for a stream of `length` bytes, if known: the requested size, if it fits into both cards' memory. `ends`: names and
    /// usable memory of the cards.
    pub(super) fn chunk_size(&self, length: Option<u64>, ends: &[(String, u64); 2]) -> Result<u64, CliError> {
        let mut chunk = self.chunk.unwrap_or(CHUNK).min(length.unwrap_or(u64::MAX));
        for (card, usable) in ends {
            if chunk > *usable {
                if self.chunk.is_some() || *usable == 0 {
                    return Err(CliError::usage(format!(
                        "{card}: a chunk of {} does not fit into its {} of usable memory",
                        binary_size(chunk),
                        binary_size(*usable)
                    ))
                    .advise("give a smaller --chunk"));
                }
                chunk = *usable;
            }
        }
        Ok(chunk)
    }

    /// Layout of the chunks of `source` in card memory: space for two, so that one can be loaded and unloaded while the network moves the
    /// other, if there is that much memory. A source that cannot be read again from its start is kept one chunk at a time.
    pub(super) fn layout(&self, source: &Source, ends: &[(String, u64); 2]) -> Result<Layout, CliError> {
        let length = source.length();
        let mut chunk = self.chunk_size(length, ends)?;
        let usable = ends.iter().map(|(_, usable)| *usable).min().unwrap_or(0);
        let half = usable / 2 / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
        let Some(length) = length.filter(|length| *length > chunk) else { return Ok(Layout::single(chunk)) };
        if self.chunk.is_none() && chunk > half && half > 0 {
            chunk = half.min(length);
        }
        let stride = chunk.next_multiple_of(CHUNK_ALIGNMENT);
        Ok(if stride <= half { Layout { chunk, stride, slots: 2 } } else { Layout::single(chunk) })
    }
}

/// Where chunks are in the memory of both cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Length in bytes of all chunks but the last.
    pub(super) chunk: u64,
    stride: u64,
    /// Number of chunks that have space: 1 or 2.
    pub(super) slots: u64,
}

impl Layout {
    const fn single(chunk: u64) -> Self {
        Self { chunk, stride: 0, slots: 1 }
    }

    /// Offset of chunk `number`, counted from 0, in bytes.
    pub(super) const fn slot(&self, number: u64) -> u64 {
        if number.is_multiple_of(2) { 0 } else { self.stride }
    }

    /// Bytes of card memory that the chunks use.
    pub(super) const fn span(&self) -> u64 {
        self.stride + self.chunk
    }
}

/// Parameters of schemes. A parameter that none of the schemes has is an error.
fn tuning(args: &TransferArgs) -> Result<Tuning, CliError> {
    let mut tuning = Tuning::default();
    (tuning.window, tuning.credit, tuning.resend_after) = (args.window, args.credit, args.resend_after);
    tuning.literal = args.literal;
    let usage = |option: &str, schemes: &str| {
        Err(CliError::usage(format!("{option} applies only to {schemes}"))
            .advise("omit it, or choose another --scheme"))
    };
    let has_window = |scheme: &Scheme| max_window(scheme.rules()).is_some();
    if args.window.is_some() && !args.scheme.iter().any(has_window) {
        return usage("--window", "receiver-window, adaptive-window and selective");
    }
    let receiver_window = args.scheme.contains(&Scheme::ReceiverWindow);
    if args.credit && !receiver_window {
        return usage("--credit", "receiver-window");
    }
    if args.resend_after.is_some() && !receiver_window {
        return usage("--resend-after", "receiver-window");
    }
    if args.literal && !args.scheme.contains(&Scheme::AdaptiveWindow) {
        return usage("--literal", "adaptive-window");
    }
    match args.scheme.iter().find(|scheme| !tuning.fits(scheme.rules())) {
        None => Ok(tuning),
        Some(scheme) => {
            let most = max_window(scheme.rules()).unwrap_or(0);
            Err(CliError::usage(format!("--window: out of range for {}", scheme.name()))
                .advise(format!("give 1 to {most}")))
        }
    }
}

/// Maximum segment length in bytes: what a registry entry's mask covers and a transmit window holds.
fn longest_segment(ni: &NiInfo) -> u32 {
    let mask = u32::from(ni.mask_bits).checked_shl(ni.packet_size_log2.into()).unwrap_or(0);
    mask.min(ni.windows.payload_size)
}

fn narrow(option: &str, value: Option<u64>) -> Result<Option<u32>, CliError> {
    let Some(value) = value else { return Ok(None) };
    u32::try_from(value).map(Some).map_err(|_| {
        CliError::usage(format!("{option} {value} is above 4 GiB, far more than a segment holds"))
    })
}
