//! How an endpoint is opened, and how one transfer is made.

use std::time::Duration;

use fpga_firmware::event::FaultReason;
use fpga_firmware::generated::{Scheme, ni as at};
use fpga_firmware::wire::MESSAGE_PACKETS_MAX;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::tuning::{Tuning, max_window};
use fpga_protocol::sender::{Notify, SenderConfig, TimeoutPolicy};
use fpga_registers::CardAddr;

use super::SchemeList;
use super::events::EventRing;
use crate::ni::NiInfo;

/// Learnt, but never below what a host that polls now and then needs to see an answer, and a full pipe to carry it.
const TIMEOUT: TimeoutPolicy = TimeoutPolicy::Adaptive {
    initial: Nanos::from_millis(1),
    least: Nanos::from_micros(100),
    most: Nanos::from_millis(100),
};

/// Packets of a message, if nothing else is asked for.
const MESSAGE_PACKETS: u32 = 256;

/// How to open an endpoint.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndpointOptions {
    /// H2C channel that the endpoint takes for itself; `None`: the card's last. A card with one channel only is written through
    /// [`Endpoint::write`](super::Endpoint::write).
    pub channel: Option<u8>,
    /// C2H channel that the endpoint takes for itself once it lets others read: it fetches their requests. `None`: the card's last.
    pub read_channel: Option<u8>,
    /// Transfers of more bytes than this join the big-transfer queue; `None`: 16 KiB, or a segment if that is shorter.
    pub big_threshold: Option<u32>,
    /// Bytes of a segment; `None`: as many as a mask holds, at most 16 KiB. By other schemes than the registry's, bytes of a
    /// message, rounded down to whole packets; `None`: 256 packets.
    pub segment_size: Option<u32>,
    /// Rules that the card goes by, as sender and as receiver, of all transfers that name none; the nodes that it talks to have to go by them,
    /// too. Default: the receive registry, whose sender is this host. By any other, the card makes transfers by itself. The interface is
    /// told while it rests, and a change forgets what it has: so it holds as long as the endpoint is open.
    pub scheme: Scheme,
    /// By which others transfers of the endpoint, and of others to it, may go ([`SendOptions::scheme`]); default: none. Only where the card's
    /// interface has the capability MIXED. With the registry and others on together, each has half of the card's registry entries.
    pub other_schemes: SchemeList,
    /// Round trip that the timers of schemes other than the registry's are made for: a little too long costs time where packets are
    /// lost, too short makes packets be sent twice. Default 100 us.
    pub round_trip: Duration,
    /// Parameters of schemes other than the registry's, in place of the specification's; of the nodes that one talks to, the same. A window
    /// that is given is that of each scheme that is on and has one.
    pub tuning: Tuning,
    /// Entries of the event ring, a power of two from 64. Default 4096. Half of it is for what comes of packets in flight
    /// ([`ops`](Self::ops)). The other half is for notifications of arrivals that nobody has polled for: once it is full, transfers to this
    /// node that notify end as [not ready](fpga_protocol::sender::TransferError::ReceiverNotReady) at their senders. All others arrive whether
    /// this endpoint is polled or not.
    pub event_entries: u32,
    /// User interrupt by which the card ends a wait that sleeps, 0 to 15. Default 0.
    pub event_line: u8,
    /// Random number of this life of the sender; `None`: from the system. Fixed only where a run must be repeatable.
    pub incarnation: Option<u32>,
    /// Report every packet that reaches the registry, so that the mirror can follow the masks of its segments too. Messages of the other
    /// schemes are not reported packet by packet.
    pub packet_events: bool,
    /// Tell of every segment that is complete ([`Endpoint::next_segment`](super::Endpoint::next_segment)), besides the one notification of
    /// each whole transfer: for whoever works on the first parts of a long transfer while the others are under way. They wait until they
    /// are taken. The card drops such events where nobody polls: a transfer's notification stands for all of its segments, those among them
    /// that were not told. Default: no.
    pub segment_arrivals: bool,
    /// Where the CDMA descriptors go in card memory; `None`: the last 64 KiB of it.
    pub chain: Option<CardAddr>,
    /// Silence after which a packet is sent again. Default: learnt from the round trips seen, at least 100 us.
    pub timeout: TimeoutPolicy,
    /// A transfer of which nothing was acknowledged for so long, and no "busy" came, is given up. Default 1 s.
    pub give_up: Duration,
    /// How long this card remembers what it has a part of without hearing of its sender: longer than any sender's `give_up`, by three packet
    /// lifetimes (30 ms). `None`: 2 s, or twice this endpoint's own `give_up` if that is longer. Nodes that [ask](super::Endpoint::wait_peer) are
    /// refused where they are more patient; others must not be.
    pub registry_timeout: Option<Duration>,
    /// How long this card keeps a packet whose segment's first one has not come, in whole microseconds. Default 1 ms; longer than
    /// four round trips (spec 2.2.4), so more where the network or the other side is software. What waits in vain is refused and
    /// sent again.
    pub escape_timeout: Duration,
    /// Packets in flight: entries of the op table, 1 to 32768, and about a quarter of the event ring's at most; `None`: 256, or as many as the
    /// event ring has room for. Long ways take more: two and a half times a link's bandwidth-delay product where packets are lost
    /// ([`fpga_protocol::sender::SenderConfig::op_entries`]).
    pub ops: Option<u32>,
    /// Transfers queued or under way, 1 to 2^20; `None`: 1024. Of those that the card makes, never more than it has room for, and than the event
    /// ring has room for their ends.
    pub transfers: Option<u32>,
    /// Nodes that may have transfers at once, 1 to 8192; `None`: 64.
    pub destinations: Option<u32>,
    /// Bytes of the copy engine's data path, 4 to 64, where it was built without data realignment (DRE, PG034): what is sent then has to
    /// begin at a multiple of it, and what does not is refused. No register tells. `None`: the build realigns, and sources are anywhere.
    pub source_alignment: Option<u32>,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            channel: None,
            read_channel: None,
            big_threshold: None,
            segment_size: None,
            scheme: Scheme::Registry,
            other_schemes: SchemeList::NONE,
            round_trip: Duration::from_micros(100),
            tuning: Tuning::default(),
            event_entries: 4096,
            event_line: 0,
            incarnation: None,
            packet_events: false,
            segment_arrivals: false,
            chain: None,
            timeout: TIMEOUT,
            give_up: Duration::from_secs(1),
            registry_timeout: None,
            escape_timeout: Duration::from_millis(1),
            ops: None,
            transfers: None,
            destinations: None,
            source_alignment: None,
        }
    }
}

/// Options of one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendOptions {
    /// Who tells the receiving application. Default: its own card, when the last packet arrives. A notification needs room in the
    /// receiving host's event ring: without it, the transfer ends as
    /// [not ready](fpga_protocol::sender::TransferError::ReceiverNotReady). [`Notify::None`] needs nothing of that host.
    pub notify: Notify,
    /// Give up after this long, whatever the progress. A receiver that is not ready for the notification is tried for so long; without
    /// a deadline, for [`give_up`](EndpointOptions::give_up).
    pub deadline: Option<Duration>,
    /// Goes before transfers of a lower priority that wait; 0 is the lowest and the default. Strict: as long as higher ones wait,
    /// lower ones do too.
    pub priority: u8,
    /// By which rules, of those that the endpoint was opened with; `None`: by its default ones ([`EndpointOptions::scheme`]). A read's request
    /// goes by them, and so does its answer.
    pub scheme: Option<Scheme>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { notify: Notify::Receiver, deadline: None, priority: 0, scheme: None }
    }
}

impl SendOptions {
    /// Before which others.
    #[must_use]
    pub const fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// By which rules.
    #[must_use]
    pub const fn scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = Some(scheme);
        self
    }

    /// Who tells the receiving application.
    #[must_use]
    pub const fn notify(mut self, notify: Notify) -> Self {
        self.notify = notify;
        self
    }

    /// Give up after `deadline`.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// Registers for the parameters of schemes, in the order of their offsets; the first scheme that cannot have them, if there is one.
pub(super) fn parameters(options: &EndpointOptions) -> Result<Vec<(u32, u32)>, Scheme> {
    let tuning = &options.tuning;
    if let Some(scheme) = schemes(options).iter().find(|scheme| !tuning.fits(*scheme)) {
        return Err(scheme);
    }
    let on = |scheme| schemes(options).contains(scheme) && max_window(scheme).is_some();
    let mut registers: Vec<_> = windows()
        .map(|(scheme, register)| (register, tuning.window.filter(|_| on(scheme)).unwrap_or(0)))
        .collect();
    let flag = |set, bit| if set { bit } else { 0 };
    let after =
        u32::from(tuning.resend_after.unwrap_or(0)) << at::receiver_window_options::RESEND_AFTER_SHIFT;
    let samples = u32::from(tuning.samples.unwrap_or(0)) << at::adaptive_options::SAMPLES_SHIFT;
    let walk = tuning.walk.map_or(0, |span| u32::try_from(span.get()).unwrap_or(u32::MAX));
    registers.extend([
        (at::RECEIVER_WINDOW_OPTIONS, after | flag(tuning.credit, at::receiver_window_options::CREDIT)),
        (at::ADAPTIVE_OPTIONS, samples | flag(tuning.literal, at::adaptive_options::LITERAL)),
        (at::ADAPTIVE_WALK_NS, walk),
    ]);
    Ok(registers)
}

/// The register of each scheme's window.
fn windows() -> impl Iterator<Item = (Scheme, u32)> {
    Scheme::ALL.iter().map(|scheme| (*scheme, at::SCHEME_WINDOW + 4 * scheme.value()))
}

/// All schemes that the endpoint goes by.
pub(super) fn schemes(options: &EndpointOptions) -> SchemeList {
    options.other_schemes.with(options.scheme)
}

/// Packets of a message, where the card makes them.
pub(super) fn message_packets(options: &EndpointOptions, info: &NiInfo) -> u32 {
    let whole =
        options.segment_size.map(|bytes| bytes.checked_shr(info.packet_size_log2.into()).unwrap_or(0));
    whole.unwrap_or(MESSAGE_PACKETS).clamp(1, MESSAGE_PACKETS_MAX)
}

pub(super) fn sender_config(options: &EndpointOptions, info: &NiInfo) -> SenderConfig {
    let mut config = SenderConfig::default();
    let whole_mask = u32::from(info.mask_bits).checked_shl(u32::from(info.packet_size_log2)).unwrap_or(0);
    // A window carries a segment, so a segment is no longer than a window's payload.
    let longest = whole_mask.min(info.windows.payload_size);
    config.segment_size = options.segment_size.unwrap_or_else(|| longest.min(16 << 10));
    config.big_threshold = options.big_threshold.unwrap_or(config.segment_size.min(16 << 10));
    config.packet_size_log2 = info.packet_size_log2;
    config.mask_bits = info.mask_bits;
    config.retry.timeout = options.timeout;
    config.retry.give_up = Nanos::new(u64::try_from(options.give_up.as_nanos()).unwrap_or(u64::MAX));
    config.op_entries = options.ops.unwrap_or_else(|| config.op_entries.min(max_ops(options, info)));
    config.transfers = options.transfers.unwrap_or(config.transfers);
    config.destinations = options.destinations.unwrap_or(config.destinations);
    config
}

/// Packets in flight that the event ring has room for. Half of it is for what comes of them: at worst two events each, the acknowledgement
/// and the end of a segment of one packet; one for each window given back and each reason of faults, and one for dropped events.
pub(super) fn max_ops(options: &EndpointOptions, info: &NiInfo) -> u32 {
    let half = EventRing::entries_of(info, options.event_entries) / 2;
    let commands = if schemes(options).has_messages() { max_commands(options, info) } else { 0 };
    (half.saturating_sub(commands) / 2).saturating_sub(single_events(info).div_ceil(2)).max(1)
}

/// Events of a host's own doing that come one at a time: of a window given back, of a reason of faults, of dropped events.
fn single_events(info: &NiInfo) -> u32 {
    1 + info.windows.count + FaultReason::ALL.iter().map(|_| 1).sum::<u32>()
}

/// Transfers that the card may have: as many as it has room for, and as the event ring has room for their ends. Where this host sends packets,
/// too, the answers to those have at least the other half of that room.
pub(super) fn max_commands(options: &EndpointOptions, info: &NiInfo) -> u32 {
    let own = (EventRing::entries_of(info, options.event_entries) / 2).saturating_sub(single_events(info));
    let share = if schemes(options).contains(Scheme::Registry) { own / 2 } else { own };
    let asked = options.transfers.unwrap_or(info.command_entries);
    asked.min(info.command_entries).min(share).max(1)
}

/// Everything that the chain copies besides sources has to suit an engine without realignment, too: where windows take payload and
/// commit word, and where the packets of a source begin. Its slots are made of lines of 64 bytes.
pub(super) fn check_source_alignment(
    options: &EndpointOptions,
    info: &NiInfo,
) -> Result<(), (u32, &'static str)> {
    let Some(alignment) = options.source_alignment else { return Ok(()) };
    if !alignment.is_power_of_two() || !(4..=64).contains(&alignment) {
        return Err((alignment, "a power of two from 4 to 64: the bytes of the copy engine's data path"));
    }
    let windows = &info.windows;
    let packet = 1_u32.checked_shl(info.packet_size_log2.into()).unwrap_or(0);
    let suits = [windows.stride, windows.payload_offset, windows.commit_offset, packet]
        .iter()
        .all(|bytes| bytes.is_multiple_of(alignment));
    if suits && windows.base.is_aligned_to(alignment.into()) {
        Ok(())
    } else {
        Err((
            alignment,
            "one that the card's packets and transmit windows have too (`fpgactl info` shows them)",
        ))
    }
}
