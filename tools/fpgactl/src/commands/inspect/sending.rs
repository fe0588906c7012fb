//! `ops` and `queues`: tables of the sending host.

use fpga_diag::inspect::Inspect as _;
use fpga_diag::inspect::{ReceiveTables, SendingContext};
use fpga_protocol::Nanos;
use fpga_protocol::op_table::OpState;
use fpga_protocol::segment::TransferClass;
use fpga_protocol::sender::TransferStage;
use fpga_registers::quantity;
use serde::Serialize;

use super::rates::RatesReport;
use super::{
    ListingSource, LoadProgress, REGISTRY, has_messages, in_micros, scheme_name, scheme_names, span_text,
};
use crate::cli::Scheme;
use crate::error::CliError;
use crate::output::{Report, listing};
use crate::units::binary_size;

/// Report of `ops`.
#[derive(Debug, Serialize)]
pub struct OpsReport {
    pub(in crate::commands) card: String,
    pub(in crate::commands) node: u32,
    #[serde(flatten)]
    pub(in crate::commands) moment: Option<LoadProgress>,
    /// Entries of the op table; `null` if the card is only inspected: the table belongs to its driver.
    pub(in crate::commands) capacity: Option<u32>,
    pub(in crate::commands) in_use: usize,
    pub(in crate::commands) ops: Vec<OpRow>,
    /// Default scheme, for transfers that name none.
    pub(in crate::commands) scheme: &'static str,
    /// All active schemes. Under the message schemes the card sends, and has messages instead of an op table.
    pub(in crate::commands) schemes: Vec<&'static str>,
    pub(in crate::commands) messages: Vec<MessageRow>,
    /// Rates towards receivers, and the controlled list; `null` without link feedback.
    pub(in crate::commands) link_feedback: Option<RatesReport>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct MessageRow {
    pub(in crate::commands) context: u32,
    /// Scheme that sends it.
    pub(in crate::commands) scheme: &'static str,
    pub(in crate::commands) state: &'static str,
    pub(in crate::commands) node: u32,
    pub(in crate::commands) message: String,
    /// The receiver's context; `null`: unknown.
    pub(in crate::commands) receivers_context: Option<u32>,
    pub(in crate::commands) transfer: u32,
    pub(in crate::commands) base: String,
    pub(in crate::commands) length: u32,
    pub(in crate::commands) packets: u32,
    /// All packets before this one have arrived, according to the answers received.
    pub(in crate::commands) first_open: u32,
    /// All packets before this one were sent.
    pub(in crate::commands) first_unsent: u32,
    pub(in crate::commands) packets_sent: u32,
    pub(in crate::commands) tries: u32,
    /// Time since the last packet from the receiver.
    pub(in crate::commands) age_us: f64,
}

impl MessageRow {
    fn of(found: &SendingContext) -> Self {
        let state = match (found.asking, found.held) {
            (true, _) => "asking",
            (_, true) => "held",
            _ => "sending",
        };
        Self {
            context: found.index,
            scheme: found.scheme.map_or("unknown", Scheme::name_of),
            state,
            node: found.node.get(),
            message: found.message.to_string(),
            receivers_context: found.theirs,
            transfer: found.transfer.get(),
            base: found.base.to_string(),
            length: found.length,
            packets: found.packets,
            first_open: found.base_packet,
            first_unsent: found.fresh,
            packets_sent: found.sent,
            tries: found.tries,
            age_us: in_micros(found.age),
        }
    }

    fn all(tables: &ReceiveTables) -> Result<Vec<Self>, CliError> {
        let found = |index| Ok(tables.sending(index)?.as_ref().map(Self::of));
        (0..tables.sending_contexts()).filter_map(|index| found(index).transpose()).collect()
    }
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct OpRow {
    pub(in crate::commands) op: String,
    pub(in crate::commands) state: &'static str,
    pub(in crate::commands) node: u32,
    pub(in crate::commands) transfer: u32,
    pub(in crate::commands) segment: u32,
    pub(in crate::commands) packet: u16,
    pub(in crate::commands) address: String,
    pub(in crate::commands) length: u32,
    pub(in crate::commands) tries: u8,
    /// Consecutive timeouts.
    pub(in crate::commands) silent: u8,
    /// Consecutive "busy" answers.
    pub(in crate::commands) busy: u8,
    /// Time since it was last sent.
    pub(in crate::commands) age_us: f64,
    /// Time until it is retransmitted without an answer; negative: overdue; `null`: it waits for a transmit window.
    pub(in crate::commands) deadline_us: Option<f64>,
}

/// Microseconds until a deadline; negative once it has passed.
fn left(at: Nanos, now: Nanos) -> f64 {
    in_micros(at.saturating_sub(now)) - in_micros(now.saturating_sub(at))
}

fn left_text(left: Option<f64>) -> String {
    match left {
        Some(left) if left < 0.0 => "overdue".to_owned(),
        Some(left) => format!("in {}", span_text(left)),
        None => "-".to_owned(),
    }
}

const fn state_name(state: OpState) -> &'static str {
    match state {
        OpState::Free => "free",
        OpState::InFlight => "in flight",
        OpState::Waiting => "waiting",
        OpState::Due => "due",
        _ => "other",
    }
}

impl OpsReport {
    pub(in crate::commands) fn new(scene: &ListingSource) -> Result<Self, CliError> {
        let moment = LoadProgress::of(scene);
        let (card, node, tables) = match scene {
            ListingSource::Load(load) => {
                (load.sending.name(), load.sending.node().get(), load.sending.endpoint().tables())
            }
            ListingSource::Card { name, node, tables } => (name.clone(), *node, (**tables).clone()),
        };
        let tables = &tables;
        let (scheme, schemes) = (scheme_name(tables)?, scheme_names(tables)?);
        let messages = if has_messages(&schemes) { MessageRow::all(tables)? } else { Vec::new() };
        let link_feedback = RatesReport::of(scene, tables)?;
        let (sender, now) = match scene {
            ListingSource::Load(load) => (load.sending.endpoint().sender(), load.now),
            ListingSource::Card { .. } => (None, Nanos::ZERO),
        };
        let Some(sender) = sender else {
            // The op table belongs to the driver, and whether there is one is unknown.
            let capacity = (!schemes.contains(&REGISTRY)).then(|| tables.sending_contexts());
            let in_use = messages.len();
            return Ok(Self {
                card,
                node,
                moment,
                capacity,
                in_use,
                ops: Vec::new(),
                scheme,
                schemes,
                messages,
                link_feedback,
            });
        };
        let ops: Vec<_> = sender
            .packets()
            .map(|packet| OpRow {
                op: packet.op.to_string(),
                state: state_name(packet.state),
                node: packet.node.get(),
                transfer: packet.transfer.get(),
                segment: packet.segment,
                packet: packet.packet,
                address: packet.address.to_string(),
                length: packet.length,
                tries: packet.tries,
                silent: packet.silent,
                busy: packet.busy,
                age_us: in_micros(now.saturating_sub(packet.sent)),
                deadline_us: packet.deadline.map(|at| left(at, now)),
            })
            .collect();
        let capacity = Some(sender.config().op_entries);
        let in_use = ops.len();
        Ok(Self { card, node, moment, capacity, in_use, ops, scheme, schemes, messages, link_feedback })
    }
}

/// Summary of the rows of an op table: number of rows per state, and the row with the most tries.
fn summary(ops: &[OpRow]) -> String {
    let count = |state| ops.iter().filter(|op| op.state == state_name(state)).count();
    let mut text = format!(
        "{} in flight, {} waiting for a receiver that was busy, {} due for a transmit window",
        count(OpState::InFlight),
        count(OpState::Waiting),
        count(OpState::Due)
    );
    let worst = |left: &&OpRow, right: &&OpRow| {
        left.tries.cmp(&right.tries).then(left.age_us.total_cmp(&right.age_us))
    };
    if let Some(op) = ops.iter().max_by(worst).filter(|op| op.tries > 1) {
        text += &format!("; most tries: {} ({} to node {})", op.tries, op.op, op.node);
    }
    text + "\n"
}

fn message_table(messages: &[MessageRow]) -> String {
    listing(
        messages,
        &[
            (">context", &|row| row.context.to_string()),
            ("scheme", &|row| row.scheme.to_owned()),
            ("state", &|row| row.state.to_owned()),
            (">node", &|row| row.node.to_string()),
            ("message", &|row| row.message.clone()),
            (">theirs", &|row| {
                row.receivers_context.map_or_else(|| "-".to_owned(), |context| context.to_string())
            }),
            (">transfer", &|row| row.transfer.to_string()),
            ("base", &|row| row.base.clone()),
            (">bytes", &|row| row.length.to_string()),
            (">packets", &|row| row.packets.to_string()),
            (">arrived", &|row| row.first_open.to_string()),
            (">begun", &|row| row.first_unsent.to_string()),
            (">sent", &|row| row.packets_sent.to_string()),
            (">tries", &|row| row.tries.to_string()),
            (">heard", &|row| format!("{} ago", span_text(row.age_us))),
        ],
    )
}

impl Report for OpsReport {
    fn text(&self) -> String {
        let mut text = match self.capacity {
            Some(capacity) if !self.schemes.contains(&REGISTRY) => format!(
                "{}, node {}: the card sends ({}), {} of {capacity} contexts in use\n",
                self.card,
                self.node,
                self.schemes.join(", "),
                self.in_use
            ),
            Some(capacity) => format!(
                "{}, node {}: {} of {capacity} entries of the op table in use\n",
                self.card, self.node, self.in_use
            ),
            None => format!(
                "{}, node {}: the op table belongs to the sending driver, and this command sends nothing\n",
                self.card, self.node
            ),
        };
        text += &format!("{}\n", LoadProgress::text(self.moment.as_ref()));
        if let Some(feedback) = &self.link_feedback {
            text += &feedback.text();
        }
        if !self.messages.is_empty() {
            if self.schemes.contains(&REGISTRY) {
                text += &format!(
                    "by other schemes the card sends, {} now:\n",
                    quantity(self.messages.len(), "message")
                );
            }
            text += &message_table(&self.messages);
        }
        if self.ops.is_empty() {
            return text;
        }
        text += &summary(&self.ops);
        text + &listing(
            &self.ops,
            &[
                ("op", &|op| op.op.clone()),
                ("state", &|op| op.state.to_owned()),
                (">node", &|op| op.node.to_string()),
                (">transfer", &|op| op.transfer.to_string()),
                (">segment", &|op| op.segment.to_string()),
                (">packet", &|op| op.packet.to_string()),
                ("address", &|op| op.address.clone()),
                (">bytes", &|op| op.length.to_string()),
                (">tries", &|op| op.tries.to_string()),
                (">silent", &|op| op.silent.to_string()),
                (">busy", &|op| op.busy.to_string()),
                (">sent", &|op| format!("{} ago", span_text(op.age_us))),
                (">retry", &|op| left_text(op.deadline_us)),
            ],
        )
    }
}

/// Report of `queues`.
#[derive(Debug, Serialize)]
pub struct QueuesReport {
    pub(in crate::commands) card: String,
    pub(in crate::commands) node: u32,
    #[serde(flatten)]
    pub(in crate::commands) moment: Option<LoadProgress>,
    /// Longer transfers join the big-transfer queue; `null` if the card is only inspected.
    pub(in crate::commands) big_threshold: Option<u32>,
    pub(in crate::commands) segment_size: Option<u32>,
    /// Under a message scheme, the card cuts transfers into packets and sends them.
    pub(in crate::commands) card_sends: bool,
    pub(in crate::commands) destinations: Vec<DestinationRow>,
    pub(in crate::commands) transfers: Vec<TransferRow>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct DestinationRow {
    pub(in crate::commands) node: u32,
    pub(in crate::commands) regular: u32,
    pub(in crate::commands) big: u32,
    pub(in crate::commands) under_way: u32,
    pub(in crate::commands) packets_in_flight: u32,
    pub(in crate::commands) big_head_remaining: u64,
    /// Its last event was a timeout: it gets no new packets.
    pub(in crate::commands) suspect: bool,
    /// Smoothed mean of its round trips; `null` before the first.
    pub(in crate::commands) round_trip_us: Option<f64>,
    /// Initial retransmission timeout of a packet.
    pub(in crate::commands) timeout_us: f64,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct TransferRow {
    pub(in crate::commands) slot: u32,
    pub(in crate::commands) queue: &'static str,
    pub(in crate::commands) stage: &'static str,
    /// `null` until part of it has been sent.
    pub(in crate::commands) transfer: Option<u32>,
    pub(in crate::commands) node: u32,
    pub(in crate::commands) destination: String,
    pub(in crate::commands) length: u64,
    pub(in crate::commands) remaining: u64,
    pub(in crate::commands) segments: u32,
    pub(in crate::commands) outstanding_segments: u32,
    pub(in crate::commands) packets_acknowledged: u64,
    pub(in crate::commands) packets_sent: u64,
    pub(in crate::commands) retransmits: u64,
    pub(in crate::commands) age_us: f64,
    /// Time until it is given up regardless of progress; negative: overdue; `null`: no deadline.
    pub(in crate::commands) deadline_us: Option<f64>,
}

impl QueuesReport {
    pub(in crate::commands) fn new(scene: &ListingSource) -> Self {
        let moment = LoadProgress::of(scene);
        let load = match scene {
            ListingSource::Load(load) => load,
            ListingSource::Card { name, node, .. } => {
                return Self {
                    card: name.clone(),
                    node: *node,
                    moment,
                    big_threshold: None,
                    segment_size: None,
                    card_sends: false,
                    destinations: Vec::new(),
                    transfers: Vec::new(),
                };
            }
        };
        let sender = load.sending.endpoint().sender();
        let now = load.now;
        let destinations = sender.into_iter().flat_map(|sender| {
            sender.queues().map(|queue| DestinationRow {
                node: queue.node.get(),
                regular: queue.regular,
                big: queue.big,
                under_way: queue.under_way,
                packets_in_flight: queue.in_flight,
                big_head_remaining: queue.big_head_remaining,
                suspect: queue.suspect,
                round_trip_us: (queue.round_trip.samples > 0).then(|| in_micros(queue.round_trip.mean)),
                timeout_us: in_micros(sender.config().retry.wait(&queue.round_trip, 0)),
            })
        });
        let transfers = load.sending.endpoint().transfers();
        let transfers = transfers.iter().map(|transfer| TransferRow {
            slot: transfer.ticket.slot(),
            queue: if transfer.class == TransferClass::Big { "big" } else { "regular" },
            stage: match transfer.stage {
                TransferStage::Queued => "queued",
                TransferStage::InProgress => "in flight",
                _ => "announcing",
            },
            transfer: transfer.transfer.map(fpga_firmware::TransferId::get),
            node: transfer.node.get(),
            destination: transfer.destination.to_string(),
            length: transfer.length,
            remaining: transfer.remaining,
            segments: transfer.segments,
            outstanding_segments: transfer.outstanding,
            packets_acknowledged: transfer.acknowledged,
            packets_sent: transfer.packets,
            retransmits: transfer.retransmits,
            age_us: in_micros(now.saturating_sub(transfer.started)),
            deadline_us: transfer.deadline.map(|at| left(at, now)),
        });
        Self {
            card: load.sending.name(),
            node: load.sending.node().get(),
            moment,
            big_threshold: sender.map(|sender| sender.config().big_threshold),
            segment_size: sender.map(|sender| sender.config().segment_size),
            card_sends: sender.is_none(),
            destinations: destinations.collect(),
            transfers: transfers.collect(),
        }
    }
}

impl Report for QueuesReport {
    fn text(&self) -> String {
        let mut text = match (self.big_threshold, self.segment_size) {
            (Some(threshold), Some(segment)) => format!(
                "{}, node {}: transfers above {} join the big queue, in segments of at most {}\n",
                self.card,
                self.node,
                binary_size(threshold.into()),
                binary_size(segment.into())
            ),
            _ if self.card_sends => {
                format!("{}, node {}: the card sends; its transfers have one queue\n", self.card, self.node)
            }
            _ => format!(
                "{}, node {}: the queues belong to the sending driver, and this command sends nothing\n",
                self.card, self.node
            ),
        };
        text += &format!("{}\n", LoadProgress::text(self.moment.as_ref()));
        if !self.destinations.is_empty() {
            text += &listing(
                &self.destinations,
                &[
                    (">to node", &|row| row.node.to_string()),
                    (">regular", &|row| row.regular.to_string()),
                    (">big", &|row| row.big.to_string()),
                    (">active", &|row| row.under_way.to_string()),
                    (">in flight", &|row| quantity(row.packets_in_flight, "packet").to_string()),
                    (">rest of head", &|row| binary_size(row.big_head_remaining)),
                    (">round trip", &|row| row.round_trip_us.map_or_else(|| "-".to_owned(), span_text)),
                    (">time-out", &|row| span_text(row.timeout_us)),
                    ("last event", &|row| {
                        match (row.suspect, row.round_trip_us) {
                            (true, _) => "time-out",
                            (false, Some(_)) => "answer",
                            (false, None) => "-",
                        }
                        .to_owned()
                    }),
                ],
            );
        }
        if !self.transfers.is_empty() {
            text += &listing(
                &self.transfers,
                &[
                    (">slot", &|row| row.slot.to_string()),
                    ("queue", &|row| row.queue.to_owned()),
                    ("stage", &|row| row.stage.to_owned()),
                    (">transfer", &|row| row.transfer.map_or_else(|| "-".to_owned(), |id| id.to_string())),
                    (">node", &|row| row.node.to_string()),
                    (">length", &|row| binary_size(row.length)),
                    (">uncut", &|row| binary_size(row.remaining)),
                    (">segments", &|row| row.segments.to_string()),
                    (">open", &|row| row.outstanding_segments.to_string()),
                    (">acked", &|row| row.packets_acknowledged.to_string()),
                    (">sent", &|row| row.packets_sent.to_string()),
                    (">resent", &|row| row.retransmits.to_string()),
                    (">age", &|row| span_text(row.age_us)),
                    (">deadline", &|row| left_text(row.deadline_us)),
                ],
            );
        }
        text
    }
}
