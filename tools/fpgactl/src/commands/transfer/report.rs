//! Report of `transfer`.

use std::time::Duration;

use fpga_registers::quantity;
use fpga_sim::TimeSpent;
use serde::Serialize;

use super::hosts::{ReceivingHost, SendingHost};
use super::plan::{Plan, REORDER};
use super::receiver::Arrival;
use super::sender::Departure;
use super::{Moved, card_span};
use crate::chart;
use crate::cli::Notifier;
use crate::impair::ImpairReport;
use crate::output::{Report, pairs};
use crate::stream::Source;
use crate::style::OutputStyle;
use crate::units::{binary_size, gigabytes_per_second, micros, rate};

/// Report of a successful transfer. The keys are a contract with scripts.
#[derive(Debug, Serialize)]
pub struct TransferReport {
    source: String,
    sender: String,
    receiver: String,
    bytes: u64,
    verified: bool,
    written: bool,
    /// Wall-clock time from the first byte read to the last byte compared.
    seconds: f64,
    goodput_gb_per_s: f64,
    /// Clock of `card_seconds` and the latencies.
    card_clock: &'static str,
    /// Time from the send call until both hosts have seen the end, all transfers together, by the card's clock. Other chunks are loaded and
    /// compared meanwhile.
    card_seconds: f64,
    card_goodput_gb_per_s: f64,
    /// Where the virtual time of the sending card and its host went, from the first byte read to the last byte compared; `null` for a real
    /// card.
    time: Option<TimeReport>,
    /// The same of the receiving card.
    receiver_time: Option<TimeReport>,
    transfers: u64,
    segments: u64,
    silent_segments: u64,
    /// All packets, retransmissions included.
    packets_sent: u64,
    packets_received: u64,
    retransmits: u64,
    duplicates_dropped: u64,
    escape_hits: u64,
    escape_dropped: u64,
    registrations: u64,
    local_completions: u64,
    remote_notifications: u64,
    local_completion_us: Latency,
    remote_notification_us: Latency,
    /// Entries of op table, registry and escape channel in use at the end.
    leftovers: u64,
    notify: &'static str,
    scheme: String,
    seed: u64,
    /// Reorder depth; `null` between real cards.
    reorder: Option<u16>,
    /// Other impairments of the simulated network; `null` between real cards.
    impairments: Option<ImpairReport>,
    #[serde(skip)]
    span: Duration,
    #[serde(skip)]
    card_span: Duration,
    /// End of the last transfer, by the card's clock.
    #[serde(skip)]
    last_end: u64,
    /// Characters of a bar chart of the times; `None`: no chart.
    #[serde(skip)]
    chart: Option<OutputStyle>,
}

/// Numbers of a transfer between simulated cards, for a comparison.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct CardRun {
    /// Time until both hosts have seen the end, by the card's clock.
    pub(in crate::commands) micros: f64,
    pub(in crate::commands) retransmits: u64,
    /// Data packets that the receiver has not got.
    pub(in crate::commands) lost: u64,
}

/// Names of the parts of the sender's time.
const SENDER_TIMES: [&str; 4] =
    ["sender: in PCIe", "sender: in card", "sender: in network", "sender: in host"];
/// Names of the parts of the receiver's time.
const RECEIVER_TIMES: [&str; 4] =
    ["receiver: in PCIe", "receiver: in card", "receiver: in network", "receiver: in host"];

/// Parts of the virtual time, in µs. They add up to the whole: time in which several parts work belongs to a network port, otherwise to
/// a card.
#[derive(Debug, Clone, Copy, Serialize)]
struct TimeReport {
    /// PCIe links: data, descriptors, events, and the latency of requests.
    pcie_us: f64,
    /// Inside cards: the CDMA and card memory.
    card_us: f64,
    /// Network ports and the way between the cards.
    network_us: f64,
    /// Nothing was in progress: software, or everybody waited for a timer.
    host_us: f64,
}

impl From<TimeSpent> for TimeReport {
    fn from(spent: TimeSpent) -> Self {
        let us = |part: fpga_protocol::Nanos| micros(part.get());
        Self {
            pcie_us: us(spent.pcie),
            card_us: us(spent.card),
            network_us: us(spent.network),
            host_us: us(spent.host),
        }
    }
}

impl TimeReport {
    /// The parts as lines of the report, each with its share and, with a chart, a bar.
    fn lines(
        self,
        names: [&'static str; 4],
        chart: Option<OutputStyle>,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let parts = [self.pcie_us, self.card_us, self.network_us, self.host_us];
        let all: f64 = parts.iter().sum();
        names.into_iter().zip(parts).map(move |(name, part)| {
            let share = if all > 0.0 { part / all } else { 0.0 };
            let bar = chart.map_or_else(String::new, |style| chart::bar(share, style));
            (name, format!("{part:>10.1} µs {:>5.1} %  {bar}", share * 100.0).trim_end().to_owned())
        })
    }
}

/// Latencies of several transfers in µs; `null` if there was none.
#[derive(Debug, Default, Serialize)]
struct Latency {
    min: Option<f64>,
    mean: Option<f64>,
    max: Option<f64>,
    #[serde(skip)]
    sum: Duration,
    #[serde(skip)]
    count: u32,
}

impl Latency {
    fn add(&mut self, span: Duration) {
        let in_micros = |span: Duration| micros(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        let micros = in_micros(span);
        self.sum += span;
        self.count = self.count.saturating_add(1);
        self.min = Some(self.min.map_or(micros, |min| min.min(micros)));
        self.max = Some(self.max.map_or(micros, |max| max.max(micros)));
        self.mean = Some(in_micros(self.sum / self.count));
    }

    fn text(&self) -> String {
        match (self.min, self.mean, self.max) {
            (Some(min), Some(mean), Some(max)) if self.count > 1 => {
                format!("{mean:.1} µs on average, {min:.1} to {max:.1} µs")
            }
            (Some(only), ..) => format!("{only:.1} µs"),
            _ => "-".to_owned(),
        }
    }
}

impl TransferReport {
    pub(super) fn new(
        sending: &SendingHost,
        receiving: &ReceivingHost,
        source: &Source,
        plan: &Plan,
        written: bool,
        chart: Option<OutputStyle>,
    ) -> Self {
        let simulated = sending.opened().simulated;
        Self {
            source: source.name(),
            sender: sending.name(),
            receiver: receiving.name(),
            bytes: 0,
            // A report exists only if every byte was compared.
            verified: true,
            written,
            seconds: 0.0,
            goodput_gb_per_s: 0.0,
            card_clock: if simulated { "virtual" } else { "host" },
            card_seconds: 0.0,
            card_goodput_gb_per_s: 0.0,
            time: None,
            receiver_time: None,
            transfers: 0,
            segments: 0,
            silent_segments: 0,
            packets_sent: 0,
            packets_received: 0,
            retransmits: 0,
            duplicates_dropped: 0,
            escape_hits: 0,
            escape_dropped: 0,
            registrations: 0,
            local_completions: 0,
            remote_notifications: 0,
            local_completion_us: Latency::default(),
            remote_notification_us: Latency::default(),
            leftovers: 0,
            notify: match plan.notify {
                Notifier::Receiver => "receiver",
                Notifier::Sender => "sender",
            },
            scheme: plan.schemes.iter().map(|scheme| scheme.name()).collect::<Vec<_>>().join(","),
            seed: plan.seed,
            reorder: simulated.then_some(plan.reorder.unwrap_or(REORDER)),
            impairments: simulated.then(|| plan.impair.report()),
            span: Duration::ZERO,
            card_span: Duration::ZERO,
            last_end: 0,
            chart,
        }
    }

    /// Numbers for a comparison with other transfers.
    pub(in crate::commands) fn card_run(&self) -> CardRun {
        CardRun {
            micros: self.card_seconds * 1e6,
            retransmits: self.retransmits,
            lost: self.packets_sent.saturating_sub(self.packets_received),
        }
    }

    /// Adds a transfer that arrived and was verified.
    pub(super) fn add(&mut self, departure: &Departure, arrival: &Arrival) {
        let done = &departure.completion;
        let (local, remote) = (departure.local, card_span(departure.began, arrival.at));
        self.bytes += departure.length;
        self.transfers += 1;
        self.segments += u64::from(done.segments);
        self.silent_segments += u64::from(done.silent_segments);
        self.retransmits += done.retransmits;
        self.local_completions += 1;
        self.remote_notifications += 1;
        self.local_completion_us.add(local);
        self.remote_notification_us.add(remote);
        // A transfer may begin before the receiving host has seen the end of the one before.
        let end =
            departure.began.saturating_add(u64::try_from(local.max(remote).as_nanos()).unwrap_or(u64::MAX));
        self.card_span += card_span(departure.began.max(self.last_end), end);
        self.last_end = self.last_end.max(end);
    }

    /// Adds the totals. `times`: virtual time of the sending and of the receiving card.
    pub(super) fn finish(&mut self, span: Duration, times: Option<[TimeSpent; 2]>, moved: &Moved) {
        let (sent, counters) = (moved.sent.sent(), &moved.received);
        self.span = span;
        let [time, receiver_time] = times.map_or([None; 2], |times| times.map(|time| Some(time.into())));
        (self.time, self.receiver_time) = (time, receiver_time);
        self.seconds = span.as_secs_f64();
        self.goodput_gb_per_s = gigabytes_per_second(self.bytes, span);
        self.card_seconds = self.card_span.as_secs_f64();
        self.card_goodput_gb_per_s = gigabytes_per_second(self.bytes, self.card_span);
        self.packets_sent = sent;
        self.packets_received = counters.received();
        self.duplicates_dropped = counters.duplicates();
        self.escape_hits = counters.escape_hits();
        self.escape_dropped = counters.escape_dropped();
        self.registrations = counters.registrations();
    }
}

impl Report for TransferReport {
    fn text(&self) -> String {
        let clock = if self.card_clock == "virtual" { "virtual card time" } else { "host's clock" };
        let order = match self.reorder {
            None => "in the order of the network".to_owned(),
            Some(0) => "in order".to_owned(),
            Some(depth) => format!("at random among {} held back", quantity(depth, "packet")),
        };
        let written = if self.written { ", written" } else { "" };
        let mut lines = vec![
            ("transfer", format!("{}: {} -> {}", self.source, self.sender, self.receiver)),
            ("bytes", format!("{} ({}), every byte verified{written}", self.bytes, binary_size(self.bytes))),
            ("goodput", format!("{} ({:.3} s, host to host)", rate(self.bytes, self.span), self.seconds)),
            (
                "on the network",
                format!("{} ({:.6} s of {clock})", rate(self.bytes, self.card_span), self.card_seconds),
            ),
        ];
        for (names, time) in [(SENDER_TIMES, self.time), (RECEIVER_TIMES, self.receiver_time)] {
            lines.extend(time.into_iter().flat_map(|time| time.lines(names, self.chart)));
        }
        lines.extend([
            ("transfers", self.transfers.to_string()),
            ("segments", format!("{} ({} without a completion event)", self.segments, self.silent_segments)),
            (
                "packets",
                format!(
                    "{} sent ({}); {} received, {} dropped",
                    self.packets_sent,
                    quantity(self.retransmits, "retransmission"),
                    self.packets_received,
                    quantity(self.duplicates_dropped, "duplicate")
                ),
            ),
            ("registrations", self.registrations.to_string()),
            (
                "escape channel",
                format!("{}, {} dropped", quantity(self.escape_hits, "packet"), self.escape_dropped),
            ),
            (
                "at the sender",
                format!(
                    "{}, {} ({clock})",
                    quantity(self.local_completions, "completion"),
                    self.local_completion_us.text()
                ),
            ),
            (
                "at the receiver",
                format!(
                    "{}, {} ({clock})",
                    quantity(self.remote_notifications, "notification"),
                    self.remote_notification_us.text()
                ),
            ),
            ("notified by", self.notify.to_owned()),
            ("still allocated", format!("{} (op table, registry, escape channel)", self.leftovers)),
            ("scheme", self.scheme.clone()),
            ("delivery", order),
            ("seed", self.seed.to_string()),
        ]);
        pairs(&lines)
    }
}
