//! Joining a stream.

use std::net::SocketAddr;
use std::time::Duration;

use fpga_driver::{CardAddr, NodeId};
use fpga_rdma::{Endpoint, RemoteRegion};

use super::{StreamParameters, Subscriber, SubscriberOptions};
use crate::blocks::BLOCK_BYTES;
use crate::bootstrap::wire::{Accepted, Hello, Join, Offer, Window};
use crate::bootstrap::{BootstrapClient, ConversationClock, JoinConnection, Step};
use crate::error::JoinError;
use crate::geometry::{Geometry, GeometryError};
use crate::publisher::MAX_UNREAD_STATUSES;
use fpga_frames_wire::Arrivals;
use fpga_frames_wire::Sequence;

/// Number of events of a status, which is a transfer of one segment.
const STATUS_EVENTS: u64 = 3;

/// Interval in which a node that joins looks whether its card is present, by the clock of the conversation.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(20);

/// Bootstrap conversation with a publisher that never blocks: for programs that drive both sides.
///
/// Dropping it ends the conversation and closes the endpoint.
#[derive(Debug)]
pub struct Joining {
    talk: BootstrapClient,
    options: SubscriberOptions,
    endpoint: Option<Endpoint>,
    stream_parameters: Option<StreamParameters>,
    clock: ConversationClock,
    /// Time of the last look whether the card is present.
    looked: Duration,
}

/// Checks that the event ring holds the events of all slots and of everything else, so that a program that does not poll for a while loses
/// none.
fn check_events(endpoint: &Endpoint, geometry: &Geometry, slots: u32, segment: u32) -> Result<(), JoinError> {
    let entries = endpoint.event_entries();
    let segments = geometry.stride().div_ceil(segment.max(1).into());
    // A registration and a completion for each segment, and the notification. A frame that does not come is followed by a status.
    let frame = segments.saturating_mul(2).saturating_add(1 + STATUS_EVENTS);
    let statuses = u64::from(MAX_UNREAD_STATUSES + 2) * STATUS_EVENTS;
    let needed = frame.saturating_mul(slots.into()).saturating_add(statuses);
    // The card accepts events of other nodes for at most half of the ring, and an eighth may have been read without the card's knowledge.
    if needed > u64::from(entries / 8 * 3) {
        let card = endpoint.card().name().to_owned();
        return Err(JoinError::EventRing { card, slots, segments, needed, entries });
    }
    Ok(())
}

/// Checks the options, and returns the first message.
fn check_options(endpoint: &Endpoint, options: &SubscriberOptions) -> Result<Hello, JoinError> {
    if !crate::possible_slots(options.slots) {
        let card = endpoint.card().name().to_owned();
        return Err(JoinError::Geometry { card, cause: GeometryError::Slots { slots: options.slots } });
    }
    Ok(Hello { node: endpoint.node().get(), incarnation: endpoint.incarnation().get() })
}

impl Joining {
    pub(super) fn begin(
        endpoint: Endpoint,
        address: SocketAddr,
        options: SubscriberOptions,
    ) -> Result<Self, JoinError> {
        let hello = check_options(&endpoint, &options)?;
        let clock = ConversationClock::wall();
        let talk = BootstrapClient::begin(address, hello, options.patience, clock.now(&endpoint))?;
        Ok(Self::with(endpoint, talk, options, clock))
    }

    pub(super) fn begin_over(
        endpoint: Endpoint,
        connection: Box<dyn JoinConnection>,
        publisher: SocketAddr,
        options: SubscriberOptions,
    ) -> Result<Self, JoinError> {
        let hello = check_options(&endpoint, &options)?;
        let now = endpoint.now();
        let talk = BootstrapClient::begin_over(connection, publisher, hello, options.patience, now);
        Ok(Self::with(endpoint, talk, options, ConversationClock::Endpoint))
    }

    fn with(
        endpoint: Endpoint,
        talk: BootstrapClient,
        options: SubscriberOptions,
        clock: ConversationClock,
    ) -> Self {
        let looked = clock.now(&endpoint);
        Self { talk, options, endpoint: Some(endpoint), stream_parameters: None, clock, looked }
    }

    /// Whether the publisher has not answered yet.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.stream_parameters.is_none()
    }

    /// Starts the conversation again after the publisher closed the connection without an answer. Connects, which may block.
    pub(super) fn reconnect(&mut self, timeout: Duration) -> Result<(), JoinError> {
        if let Some(endpoint) = &self.endpoint {
            self.talk = self.talk.reconnect(timeout, self.clock.now(endpoint))?;
        }
        Ok(())
    }

    /// Returns an error if the program requests that the endpoint's waits end.
    pub(super) fn check_cancelled(&self, waited: Duration) -> Result<(), JoinError> {
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        Ok(endpoint.check_cancelled(waited).map_err(super::SubscriberError::from)?)
    }

    /// Lets a simulated card in this process work, and answer the publisher, which may probe this node's earlier window. Call it between
    /// two polls.
    pub fn relax(&self) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.relax();
        }
    }

    /// Advances the conversation. Returns the subscriber once the publisher has accepted it. Never waits.
    ///
    /// # Errors
    /// See [`JoinError`]. The endpoint is closed in this case.
    pub fn poll(&mut self) -> Result<Option<Subscriber>, JoinError> {
        let Some(endpoint) = &self.endpoint else {
            return Err(JoinError::Offer { node: NodeId::ANY, what: "a second acceptance" });
        };
        let now = self.clock.now(endpoint);
        match self.talk.poll(now)? {
            Step::Nothing => {
                if now.saturating_sub(self.looked) >= PRESENCE_INTERVAL {
                    self.looked = now;
                    endpoint.check_card().map_err(super::SubscriberError::from)?;
                }
            }
            Step::Offer(offer) => self.offered(&offer)?,
            Step::Accepted(accepted) => return self.accepted(&accepted).map(Some),
        }
        Ok(None)
    }

    fn offered(&mut self, offer: &Offer) -> Result<(), JoinError> {
        let node = NodeId::new(offer.node);
        let (Some(endpoint), None) = (&mut self.endpoint, &self.stream_parameters) else {
            return Err(JoinError::Offer { node, what: "a second offer" });
        };
        if node == NodeId::ANY || node == endpoint.node() {
            return Err(JoinError::Offer { node, what: "its node number is not a valid node number" });
        }
        if offer.segment == 0 {
            return Err(JoinError::Offer { node, what: "segments of 0 bytes" });
        }
        let card = endpoint.card().name().to_owned();
        let wrong = |source| JoinError::Geometry { card: card.clone(), cause: source };
        let geometry = Geometry::new(offer.max_value_length, offer.max_data_length).map_err(wrong)?;
        let memory = self.options.memory.unwrap_or_else(|| endpoint.usable_memory());
        // Two blocks follow the slots: the publisher's status, and the source of the credit, which the publisher may not write.
        let layout = geometry.layout(self.options.slots, 2, memory).map_err(wrong)?;
        check_events(endpoint, &geometry, self.options.slots, offer.segment)?;
        let mut range = layout.range();
        range.length -= BLOCK_BYTES;
        let window = endpoint.open_region(node, range).map_err(super::SubscriberError::from)?;
        let Window { address, length, key } =
            Window { address: range.start.get(), length: range.length, key: window.remote.key };
        self.talk.join(Join {
            window: Window { address, length, key },
            slots: self.options.slots,
            challenge: offer.challenge,
        });
        let shape = StreamParameters {
            stream: offer.stream,
            publisher: node,
            heartbeat_ms: offer.heartbeat_ms.max(1),
            geometry,
            layout,
            window,
        };
        self.stream_parameters = Some(shape);
        Ok(())
    }

    fn accepted(&mut self, accepted: &Accepted) -> Result<Subscriber, JoinError> {
        let (Some(endpoint), Some(shape)) = (self.endpoint.take(), self.stream_parameters.take()) else {
            return Err(JoinError::Offer { node: NodeId::ANY, what: "an acceptance before its offer" });
        };
        let Window { address, length, key } = accepted.credit;
        if length < BLOCK_BYTES {
            return Err(JoinError::Offer { node: shape.publisher, what: "a window too small for a credit" });
        }
        let credit = RemoteRegion { node: shape.publisher, address: CardAddr::new(address), length, key };
        let slots = self.options.slots;
        let Some(arrivals) = Arrivals::new(slots, accepted.position) else {
            let card = endpoint.card().name().to_owned();
            return Err(JoinError::Geometry { card, cause: GeometryError::Slots { slots } });
        };
        let start = (arrivals, Sequence::new(accepted.sequence));
        Ok(Subscriber::new(endpoint, shape, credit, start, self.options.clone())?)
    }
}
