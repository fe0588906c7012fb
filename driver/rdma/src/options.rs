//! Options of endpoints and of single transfers.

use std::path::PathBuf;
use std::time::Duration;

use fpga_firmware::TransferId;
use fpga_firmware::event::FaultReason;
use fpga_firmware::generated::{Scheme, ni as at};
use fpga_firmware::wire::MESSAGE_PACKETS_MAX;
use fpga_protocol::feedback::congestion::CongestionConfig;
use fpga_protocol::scheme::tuning::{Tuning, max_window};
use fpga_protocol::sender::{Notify, SenderConfig};
use fpga_registers::CardAddr;

use super::SchemeList;
use super::completion::SendTimeout;
use super::events::EventRing;
use super::link_options::LinkFeedback;
use fpga_driver::NiInfo;

/// Default number of packets of a message.
const MESSAGE_PACKETS: u32 = 256;

/// Options for opening an endpoint.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndpointOptions {
    /// H2C channel that the endpoint takes; `None`: the card's last one. On a card with a single channel, write with
    /// [`Endpoint::write`](super::Endpoint::write).
    pub channel: Option<u8>,
    /// C2H channel that the endpoint takes when it first lets others read, to fetch their requests. `None`: the card's last one.
    pub read_channel: Option<u8>,
    /// Length in bytes above which a transfer joins the big-transfer queue; `None`: 8 KiB, or the segment size if that is smaller.
    pub big_threshold: Option<u32>,
    /// Size of a segment in bytes. `None`: chosen for each transfer above the threshold by its length and the times of the path:
    /// those of the card's description if it is simulated, otherwise of a card with 17 GB/s of memory at 100 Gbit/s, since no register
    /// reports them. At most the capacity of a mask and of a transmit window; for a node whose mask is not known
    /// ([`Endpoint::wait_peer`](super::Endpoint::wait_peer)), at most 16 KiB. Under message schemes, the size of a message in bytes,
    /// rounded down to whole packets; `None`: 256 packets.
    pub segment_size: Option<u32>,
    /// Default scheme of the card, as sender and as receiver; its peers must run it too. Default: the receive registry, whose sender is
    /// this host. Under any other scheme the card sends transfers by itself. The scheme is set while the NI is idle, and a change clears
    /// the NI's state; therefore it is fixed while the endpoint is open.
    pub scheme: Scheme,
    /// Additional schemes that transfers of this endpoint, and transfers to it, may use ([`SendOptions::scheme`]); default: none. Requires
    /// the NI capability MIXED. If the registry and other schemes are active together, each side has half of the card's registry entries.
    pub other_schemes: SchemeList,
    /// First guess of the round trip time, for the timers of message schemes. The schemes measure round trips and forget it with the first
    /// answer; it costs time only if one of the first packets to a node is lost. Also the round trip of [`link_feedback`](Self::link_feedback),
    /// which does not measure it: the interval between two changes of a rate. [`give_up`](Self::give_up) is at least eight of it. Default 100
    /// us; state a round trip above 100 ms.
    pub round_trip: Duration,
    /// Number of path identifiers towards each node, 1 to 256. Packets of all schemes use them in turn, and avoid those whose packets are
    /// lost or late, or whose links report congestion (docs/protocol.md 9.6). Worth it in networks whose switches choose routes by the identifier. Default 1.
    pub paths: u16,
    /// Parameters of message schemes that replace those of the specification; peers must use the same ones. A given window applies to each
    /// active scheme that has one.
    pub tuning: Tuning,
    /// Number of entries of the event ring, a power of two from 64. Default 16384 (1 MiB of host memory). Half of the ring is for events of packets in flight
    /// ([`ops`](Self::ops)). The other half is for notifications of arrivals and for mirror events (of the card's registry and escape
    /// channel), which may take half of it. Events that were not taken with [`poll`](super::Endpoint::poll) keep their entries.
    ///
    /// While that half is full, transfers to this node that request a notification end at their senders as
    /// [not ready](super::SendFailure::ReceiverNotReady), and mirror events are dropped and counted: the next poll reads
    /// the card's tables instead. All other transfers arrive whether or not this endpoint is polled.
    pub event_entries: u32,
    /// User interrupt with which the card ends the sleep of a wait, 0 to 15. Default 0.
    pub event_line: u8,
    /// Incarnation number of this node, not 0, later than every earlier one (docs/protocol.md 6.4); `None`: from the system clock, the card and
    /// [`incarnation_file`](Self::incarnation_file). Other nodes refuse an earlier one. Set it only if a run must be repeatable.
    pub incarnation: Option<u32>,
    /// File with the last incarnation number, which keeps the order of incarnations when the system clock is set back. It is created if
    /// needed; a file that cannot be used is ignored. `None`: `/var/lib/fpga/incarnation`, or `fpga/incarnation` in the user's state
    /// directory; for simulated cards, no file.
    pub incarnation_file: Option<PathBuf>,
    /// Id of the first transfer to each node that the host sends (docs/protocol.md 1.6). Ids wrap, so every value is valid; tests of the wrap
    /// begin near it. Default 0.
    pub first_transfer: u32,
    /// Report every packet that reaches the registry, so that the mirror can also follow the masks of its segments. Messages of other
    /// schemes are not reported packet by packet. Default false.
    pub packet_events: bool,
    /// Report every complete segment ([`Endpoint::next_segment`](super::Endpoint::next_segment)) in addition to the one notification of
    /// each whole transfer, for applications that process the first parts of a long transfer while the others are in flight. Reports are
    /// kept until they are taken. The card drops such events if the host does not poll; the transfer's notification then stands for all its
    /// segments, including those not reported. Default false.
    pub segment_arrivals: bool,
    /// Card address of the CDMA descriptors; `None`: in the last 64 KiB of card memory.
    pub chain: Option<CardAddr>,
    /// Time without an acknowledgement after which a packet is retransmitted. Default: adaptive from the measured round trips, at least 100
    /// us.
    pub timeout: SendTimeout,
    /// Give-up time: a transfer ends with an error after this time without an acknowledgement or a "busy" answer. Default 1 s; at least eight
    /// times [`round_trip`](Self::round_trip), because one answer must have time to arrive.
    pub give_up: Duration,
    /// Registry timeout: time that this card keeps a partly received transfer without packets of its sender. It must be longer than any
    /// sender's `give_up` by three packet lifetimes (30 ms). `None`: 2 s, or twice this endpoint's own `give_up` if that is longer. The
    /// endpoint of a node that [queries](super::Endpoint::wait_peer) this one refuses transfers to it if its own give-up time is too long;
    /// other nodes must not have a longer one.
    pub registry_timeout: Option<Duration>,
    /// Escape timeout: time that this card keeps a packet that arrived before the start packet of its segment, in whole microseconds.
    /// Default 1 ms. It must be longer than four round trips (docs/protocol.md 2.3), so increase it if the network or the other side is
    /// software. After the timeout the packet is refused and retransmitted.
    pub escape_timeout: Duration,
    /// Maximum number of packets in flight: entries of the op table, 1 to 32768, and at most about a quarter of the event ring's entries;
    /// `None`: 4096, or fewer if the event ring has less space. A path needs as many as its bandwidth-delay product, and two and a half
    /// times as many if packets are lost ([`fpga_protocol::sender::SenderConfig::op_entries`]); three quarters are for one destination.
    pub ops: Option<u32>,
    /// Congestion window towards each node (docs/protocol.md 9.5), for measurements without it `false`, then on all nodes: a receiver whose
    /// window is off sends no limits (receiver window), and senders with a window towards it are slow.
    /// Default: on. The first window of transfers that the host sends (registry scheme) is 64 KiB, at least 32 packets; the card, which sends
    /// the others, begins with 32 packets.
    pub congestion: bool,
    /// Maximum number of transfers queued or in progress, 1 to 2^20; `None`: 1024. Transfers that the card sends are also limited by the
    /// card's capacity and by the event ring's space for their completions.
    pub transfers: Option<u32>,
    /// Maximum number of nodes with transfers at the same time, 1 to 8192; `None`: 64.
    pub destinations: Option<u32>,
    /// Width of the CDMA engine's data path in bytes, 4 to 64, if it was built without data realignment (DRE, PG034). Source addresses must
    /// then be multiples of it; others are refused. No register reports this property. `None`: the build realigns, and sources may have any
    /// address.
    pub source_alignment: Option<u32>,
    /// Link feedback: the host's sender (registry) and the card's (message schemes whose answers give delays) send inquiries when packets are
    /// late, and avoid congested links by other [`paths`](Self::paths), or lower their rates to the receivers behind them. Requires the NI capability LINK_FEEDBACK. Its round trip is
    /// [`round_trip`](Self::round_trip). Default: off, link packets are ignored.
    pub link_feedback: Option<LinkFeedback>,
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
            paths: 1,
            tuning: Tuning::default(),
            event_entries: 16_384,
            event_line: 0,
            incarnation: None,
            incarnation_file: None,
            first_transfer: 0,
            packet_events: false,
            segment_arrivals: false,
            chain: None,
            timeout: SendTimeout::default(),
            give_up: Duration::from_secs(1),
            registry_timeout: None,
            escape_timeout: Duration::from_millis(1),
            ops: None,
            congestion: true,
            transfers: None,
            destinations: None,
            source_alignment: None,
            link_feedback: None,
        }
    }
}

/// Options of one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendOptions {
    /// Notification of the receiving application. Default: by the receiving card, when the last packet arrives. A notification needs a free
    /// slot in the receiving host's event ring; without one, the transfer ends as [not
    /// ready](super::SendFailure::ReceiverNotReady). [`Notify::None`] needs no slot.
    pub notify: Notify,
    /// Time after which the transfer is given up, regardless of progress. A receiver that is not ready for the notification is retried
    /// until then; without a deadline, for [`give_up`](EndpointOptions::give_up).
    pub deadline: Option<Duration>,
    /// Priority: the transfer is served before waiting transfers of lower priority; 0 is the lowest and the default. Priorities are strict:
    /// as long as higher ones wait, lower ones wait too.
    pub priority: u8,
    /// Scheme, one of those that the endpoint was opened with; `None`: the default scheme ([`EndpointOptions::scheme`]). A read uses it for
    /// the request and for the answer.
    pub scheme: Option<Scheme>,
    /// Maximum size of a segment of this transfer in bytes, where the network to the node carries shorter packets better than those of
    /// the card; `None`: [`EndpointOptions::segment_size`] alone. Only the registry scheme, and only above
    /// [`EndpointOptions::big_threshold`].
    pub segment_size: Option<u32>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { notify: Notify::Receiver, deadline: None, priority: 0, scheme: None, segment_size: None }
    }
}

fpga_registers::setters! {
    impl SendOptions {
        /// Sets the priority.
        priority: u8;
        /// Sets the scheme.
        scheme: Scheme => Some;
        /// Sets the notification of the receiving application.
        notify: Notify;
        /// Sets the time after which the transfer is given up.
        deadline: Duration => Some;
        /// Sets the maximum size of a segment.
        segment_size: u32 => Some;
    }
}

/// Returns the registers of the scheme parameters with their values. The error is the first scheme that does not support them.
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
    let walk = tuning.walk.map_or(0, |span| u32::try_from(span.as_nanos()).unwrap_or(u32::MAX));
    registers.extend([
        (at::RECEIVER_WINDOW_OPTIONS, after | flag(tuning.credit, at::receiver_window_options::CREDIT)),
        (at::ADAPTIVE_OPTIONS, samples | flag(tuning.literal, at::adaptive_options::LITERAL)),
        (at::ADAPTIVE_WALK_NS, walk),
    ]);
    Ok(registers)
}

/// Returns each scheme with the register of its window.
fn windows() -> impl Iterator<Item = (Scheme, u32)> {
    Scheme::ALL.iter().map(|scheme| (*scheme, at::SCHEME_WINDOW + 4 * scheme.value()))
}

impl EndpointOptions {
    /// Returns the give-up time in use.
    pub(super) fn effective_give_up(&self) -> Duration {
        self.give_up.max(self.round_trip.saturating_mul(8))
    }
}

/// Returns all schemes of the endpoint.
pub(super) fn schemes(options: &EndpointOptions) -> SchemeList {
    options.other_schemes.with(options.scheme)
}

/// Returns the number of packets of a message that the card sends.
pub(super) fn message_packets(options: &EndpointOptions, info: &NiInfo) -> u32 {
    let whole =
        options.segment_size.map(|bytes| bytes.checked_shr(info.packet_size_log2.into()).unwrap_or(0));
    whole.unwrap_or(MESSAGE_PACKETS).clamp(1, MESSAGE_PACKETS_MAX)
}

/// Default number of op table entries: 100 Gbit/s over a round trip of 100 us.
const OPS: u32 = 4096;

pub(super) fn sender_config(options: &EndpointOptions, info: &NiInfo) -> SenderConfig {
    let mut config = SenderConfig::default();
    config.paths = options.paths;
    let whole_mask = u32::from(info.mask_bits).checked_shl(u32::from(info.packet_size_log2)).unwrap_or(0);
    // A window carries a segment, so a segment is no longer than a window's payload.
    let longest = whole_mask.min(info.windows.payload_size);
    config.segment_size = options.segment_size.unwrap_or(longest);
    config.big_threshold = options.big_threshold.unwrap_or(config.segment_size.min(8 << 10));
    config.packet_size_log2 = info.packet_size_log2;
    config.mask_bits = info.mask_bits;
    config.retry.timeout = options.timeout.policy();
    config.retry.give_up = options.effective_give_up().into();
    config.op_entries = options.ops.unwrap_or_else(|| OPS.min(max_ops(options, info)));
    config.congestion = options.congestion.then(|| CongestionConfig::for_host(config.packet_size()));
    config.transfers = options.transfers.unwrap_or(config.transfers);
    config.destinations = options.destinations.unwrap_or(config.destinations);
    config.first_transfer = TransferId::new(options.first_transfer);
    config
}

/// Returns the maximum number of packets in flight that the event ring has space for. Half of the ring is for their events: at most two
/// each, the acknowledgement and the end of a segment of one packet; plus one for each released window, one for each fault reason, and one
/// for dropped events.
pub(super) fn max_ops(options: &EndpointOptions, info: &NiInfo) -> u32 {
    let half = EventRing::entries_of(info, options.event_entries) / 2;
    let commands = if schemes(options).has_messages() { max_commands(options, info) } else { 0 };
    (half.saturating_sub(commands) / 2).saturating_sub(single_events(info).div_ceil(2)).max(1)
}

/// Returns the number of host events that occur one at a time: one per released window, one per fault reason, one for dropped events.
fn single_events(info: &NiInfo) -> u32 {
    1 + info.windows.count + FaultReason::ALL.iter().map(|_| 1).sum::<u32>()
}

/// Returns the maximum number of transfers that the card may hold: limited by the card's capacity and by the event ring's space for their
/// ends. If this host also sends packets, their acknowledgements get at least the other half of that space.
pub(super) fn max_commands(options: &EndpointOptions, info: &NiInfo) -> u32 {
    let own = (EventRing::entries_of(info, options.event_entries) / 2).saturating_sub(single_events(info));
    let share = if schemes(options).contains(Scheme::Registry) { own / 2 } else { own };
    let asked = options.transfers.unwrap_or(info.command_entries);
    asked.min(info.command_entries).min(share).max(1)
}

/// Checks that everything that the chain copies besides sources also suits an engine without realignment: the window offsets of payload and
/// commit word, and the start of each packet in a source. The chain's slots consist of 64-byte lines.
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
        Err((alignment, "one that the card's packets and transmit windows have too"))
    }
}
