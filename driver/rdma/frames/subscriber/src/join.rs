//! Joining: the link is opened first, then the conversation over TCP.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fpga_firmware::generated::{PACKET_SIZE_LOG2_MAX, PACKET_SIZE_LOG2_MIN};
use fpga_firmware::wire::{Control, Packet};
use fpga_firmware::{Incarnation, NodeId};
use fpga_frames_wire::blocks::BLOCK_BYTES;
use fpga_frames_wire::messages::{Offer, Window};
use fpga_frames_wire::{Arrivals, GapDetector, Sequence, possible_slots};

use crate::bootstrap::{Conversation, is_waiting};
use crate::credit::CreditSender;
use crate::error::JoinError;
use crate::memory::Memory;
use crate::node::ReceivingNode;
use crate::packet::{Identity, REGISTRY_SCHEME};
use crate::stream::{Joined, Numbers, Stream};
use crate::subscriber::{MAX_DATAGRAM, Shared, Subscriber};

/// Alignment of slots in bytes.
const ALIGNMENT: u64 = 64;
/// Interval at which an unanswered HELLO is repeated.
const HELLO_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time limit: a year. It keeps times in the range of the clock.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum number of waits for the clock's next tick, each of [`CLOCK_WAIT`].
const MAX_CLOCK_WAITS: u32 = 100;
const CLOCK_WAIT: Duration = Duration::from_millis(5);
/// Packet size in a HELLO before that of the publisher's card is known, as a power of two: 512 bytes, the default of cards.
const DEFAULT_PACKET_SIZE_LOG2: u8 = 9;

/// Options for joining.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscriberOptions {
    /// Node number of this subscriber, unique in the network of cards.
    pub node: u32,
    /// UDP address of the publisher's link (`fpgactl card serve --link`, `fpgactl stream publish --link`).
    pub link: SocketAddr,
    /// Local UDP address; the publisher's link must accept it as a peer. Default: any address of the family of `link`, any port.
    pub local: Option<SocketAddr>,
    /// Maximum number of frames that wait or are being read: a power of two. The publisher skips a subscriber without a free slot. Default
    /// 8.
    pub slots: u32,
    /// Limit of the memory for slots, in bytes. Default 1 GiB.
    pub max_memory: u64,
    /// Time limit for joining. Default 10 s.
    pub timeout: Duration,
    /// Time without a packet after which the publisher counts as failed. Periods in which the receiving thread did not run count as one
    /// heartbeat at most. Default 20 s: a machine may be too busy to run one of the two processes for several seconds.
    pub max_silence: Duration,
    /// Minimum number of missing heartbeats for that, whatever `max_silence` is: a publisher with a long period is silent between two
    /// heartbeats. Default 6.
    pub missed_heartbeats: u32,
    /// Incarnation of this node: later than that of an earlier run with the same node number. Default: sixteenths of a second of the
    /// system clock; joining then waits for the next one.
    pub incarnation: Option<u32>,
}

impl SubscriberOptions {
    /// Creates options for node `node` and the publisher's link address.
    #[must_use]
    pub const fn new(node: u32, link: SocketAddr) -> Self {
        Self {
            node,
            link,
            local: None,
            slots: 8,
            max_memory: 1 << 30,
            timeout: Duration::from_secs(10),
            max_silence: Duration::from_secs(20),
            missed_heartbeats: 6,
            incarnation: None,
        }
    }
}

impl Subscriber {
    /// Joins the stream of the publisher whose bootstrap port is `publisher`. Waits at most [`timeout`](SubscriberOptions::timeout).
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(publisher: SocketAddr, options: &SubscriberOptions) -> Result<Self, JoinError> {
        check(options)?;
        let until = Instant::now().checked_add(options.timeout.min(MAX_TIMEOUT));
        let until = until.unwrap_or_else(Instant::now);
        let (socket, local) = open(options)?;
        let failed = |cause| JoinError::Socket { local, cause };
        let incarnation = options.incarnation.unwrap_or_else(next_incarnation);
        let (mut talk, offer) = Conversation::begin(publisher, options.node, incarnation, until)?;
        if offer.node == NodeId::ANY.get() || offer.node == options.node {
            return Err(JoinError::Option { what: "node", expected: "a number that no other node has" });
        }
        let identity = exchange_hello(&socket, options, incarnation, &offer, until)?;
        let (stride, slots) = (stride(options, &offer)?, options.slots);
        let count = usize::try_from(slots).unwrap_or(usize::MAX);
        let too_large =
            JoinError::Memory { needed: stride as u64 * u64::from(slots), limit: options.max_memory };
        let memory = Memory::new(count, stride).ok_or(too_large)?;
        let window = Window { address: 0, length: memory.length(), key: random() };
        let identity = Identity { key: window.key, ..identity };
        let heartbeat = Duration::from_millis(offer.heartbeat_ms.max(1).into());
        let silence = heartbeat.saturating_mul(options.missed_heartbeats.max(1)).max(options.max_silence);
        let numbers = Numbers { stream: offer.stream, heartbeat, silence, slots };
        let now = Instant::now();
        let node =
            ReceivingNode::new(identity, memory, slots, now).ok_or(JoinError::Scheme { node: offer.node })?;
        // The node works before the join: the publisher may ask it whether an earlier subscriber with its number still exists.
        let shared = Arc::new(Shared::new(socket, Stream::new(node, numbers, now)));
        let subscriber = Self::start(shared).map_err(failed)?;
        let accepted = talk.join(&offer, window, slots)?;
        let Window { address, length, key } = accepted.credit;
        if length < BLOCK_BYTES {
            return Err(JoinError::Message { publisher, what: "a window too small for a credit".to_owned() });
        }
        let arrivals = Arrivals::new(slots, accepted.position).ok_or(WRONG_SLOTS)?;
        let mut stream = subscriber.shared().lock();
        stream.joined = Some(Joined {
            slots: arrivals,
            credit: CreditSender::new(address, key, accepted.position),
            gaps: GapDetector::new(Sequence::new(accepted.sequence)),
        });
        // Frames may have arrived before the acceptance.
        stream.take_notices();
        drop(stream);
        Ok(subscriber)
    }
}

const WRONG_SLOTS: JoinError = JoinError::Option { what: "slots", expected: "a power of two up to 4096" };

const fn check(options: &SubscriberOptions) -> Result<(), JoinError> {
    if options.node == NodeId::ANY.get() {
        return Err(JoinError::Option { what: "node", expected: "0 to 4294967294" });
    }
    if !possible_slots(options.slots) {
        return Err(WRONG_SLOTS);
    }
    Ok(())
}

fn open(options: &SubscriberOptions) -> Result<(UdpSocket, SocketAddr), JoinError> {
    let any: SocketAddr = if options.link.is_ipv4() {
        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let local = options.local.unwrap_or(any);
    // Connected: the system drops datagrams from other addresses.
    let opened = UdpSocket::bind(local).and_then(|socket| socket.connect(options.link).map(|()| socket));
    opened.map(|socket| (socket, local)).map_err(|cause| JoinError::Socket { local, cause })
}

/// Exchanges HELLO with the publisher's card, which thereby learns this node's address. Returns the identity of both nodes, without a key.
fn exchange_hello(
    socket: &UdpSocket,
    options: &SubscriberOptions,
    incarnation: u32,
    offer: &Offer,
    until: Instant,
) -> Result<Identity, JoinError> {
    let failed = |cause| JoinError::Socket { local: options.link, cause };
    let identity = Identity {
        node: NodeId::new(options.node),
        incarnation: Incarnation::new(incarnation),
        peer: NodeId::new(offer.node),
        peer_incarnation: Incarnation::default(),
        packet_size_log2: DEFAULT_PACKET_SIZE_LOG2,
        key: 0,
    };
    let mut out = Vec::new();
    identity.hello(&mut out, false);
    let mut buffer = vec![0; MAX_DATAGRAM];
    let mut again = Instant::now();
    loop {
        let now = Instant::now();
        if now >= until {
            return Err(JoinError::NoLink { node: offer.node, link: options.link });
        }
        if now >= again {
            let _ = socket.send(&out);
            again = now + HELLO_INTERVAL;
        }
        let left = again.min(until).saturating_duration_since(now).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).map_err(failed)?;
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) => {
                if !is_waiting(error.kind()) {
                    // A report that the last HELLO met no receiver: the link may open later.
                    std::thread::sleep(left);
                }
                continue;
            }
        };
        let answer = identity.parse(buffer.get(..length).unwrap_or_default());
        if let Some(Packet::Control(Control::HelloReply(hello))) = answer {
            let packet_size_log2 = hello.packet_size_log2;
            if hello.schemes & REGISTRY_SCHEME == 0
                || !(PACKET_SIZE_LOG2_MIN..=PACKET_SIZE_LOG2_MAX).contains(&packet_size_log2)
            {
                return Err(JoinError::Scheme { node: offer.node });
            }
            return Ok(Identity { peer_incarnation: hello.common.incarnation, packet_size_log2, ..identity });
        }
    }
}

/// Returns the length of a slot in bytes.
fn stride(options: &SubscriberOptions, offer: &Offer) -> Result<usize, JoinError> {
    let whole = offer.max_data_length.checked_add(BLOCK_BYTES + u64::from(offer.max_value_length));
    let stride = whole.and_then(|whole| whole.checked_next_multiple_of(ALIGNMENT)).unwrap_or(u64::MAX);
    let needed = stride.saturating_mul(options.slots.into());
    let limit = options.max_memory;
    usize::try_from(stride)
        .ok()
        .filter(|_| needed <= limit && isize::try_from(needed).is_ok())
        .ok_or(JoinError::Memory { needed, limit })
}

/// Returns an incarnation later than every one that this process has used, and waits until the clock is past it, so that the next process
/// has a later one, too. Two runs with the same number would be one to the publisher's card, which would take new credits for old ones.
fn next_incarnation() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let now = clock();
    let choose = |last: u32| if last != 0 && !is_earlier(last, now) { last.wrapping_add(1) } else { now };
    let before = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(choose(last)));
    let number = choose(before.unwrap_or(0));
    for _ in 0..MAX_CLOCK_WAITS {
        if is_earlier(number, clock()) {
            break;
        }
        std::thread::sleep(CLOCK_WAIT);
    }
    number
}

/// Whether incarnation `a` is earlier than `b`.
fn is_earlier(a: u32, b: u32) -> bool {
    Incarnation::new(a).is_earlier_than(Incarnation::new(b))
}

/// Returns sixteenths of a second of the system clock, modulo 2^32.
fn clock() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ticks = since.as_millis() * 16 / 1000;
    u32::try_from(ticks & u128::from(u32::MAX)).unwrap_or(1).max(1)
}

/// Returns an unpredictable number from the seed of the standard library's hash maps, which the operating system provides.
fn random() -> u64 {
    RandomState::new().hash_one(Instant::now())
}
