//! Admission of subscribers.

use fpga_driver::{CardAddr, CardRange, NodeId};
use fpga_rdma::RemoteRegion;

use super::subscriber_state::{ProbeState, SubscriberState};
use super::{ControlBlock, Publisher, PublisherEvent, SubscriberId, SubscriberStatistics};
use crate::blocks::{BLOCK, BLOCK_BYTES};
use crate::bootstrap::wire::{Accepted, Hello, Join, Offer, Reason, Refusal, Window};
use crate::bootstrap::{AdmissionControl, JoinState, Verdict};
use crate::credits::Credits;

fn refuse<T>(reason: Reason, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { reason, text: text.into() })
}

impl Publisher {
    /// Advances the conversations with nodes that want to join.
    pub(super) fn poll_joins(&mut self) -> usize {
        let mut listeners = core::mem::take(&mut self.listeners);
        let mut work = 0;
        for listener in &mut listeners {
            let now = listener.clock().now(&self.endpoint);
            work += listener.poll(now, self);
            while let Some(rejected) = listener.next_rejected() {
                work += 1;
                self.event(PublisherEvent::Rejected { peer: rejected.peer, reason: rejected.reason });
            }
        }
        self.listeners = listeners;
        work
    }

    pub(super) fn active_count(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.gone.is_none()).count()
    }

    fn check(&self, hello: &Hello) -> Result<NodeId, Refusal> {
        if self.closing {
            return refuse(Reason::Closing, "the stream is closing");
        }
        let node = NodeId::new(hello.node);
        if node == NodeId::ANY || node == self.endpoint.node() {
            return refuse(
                Reason::Garbage,
                format!("node {node} cannot be a subscriber: it is this publisher's own node, or none"),
            );
        }
        let again = self.members.iter().flatten().any(|member| member.gone.is_none() && member.node == node);
        let most = usize::try_from(self.options.subscribers).unwrap_or(usize::MAX);
        if self.active_count() >= most && !again {
            return refuse(Reason::Full, format!("the maximum of {most} subscribers is reached"));
        }
        Ok(node)
    }
}

impl AdmissionControl for Publisher {
    fn offer(&mut self, hello: &Hello) -> Result<Offer, Refusal> {
        self.check(hello)?;
        Ok(Offer {
            stream: self.stream,
            node: self.endpoint.node().get(),
            max_value_length: self.geometry.max_value_length(),
            max_data_length: self.geometry.max_data_length(),
            slots: self.options.slots,
            segment: self.endpoint.segment_length(NodeId::new(hello.node), self.geometry.stride()),
            challenge: 0,
            heartbeat_ms: u32::try_from(self.options.heartbeat.as_millis()).unwrap_or(u32::MAX).max(1),
        })
    }

    fn admit(&mut self, hello: &Hello, join: &Join, visit: &mut JoinState) -> Verdict {
        match self.try_admit(hello, join, visit) {
            Ok(Some(accepted)) => Verdict::Accepted(accepted),
            Ok(None) => Verdict::Pending,
            Err(refusal) => Verdict::Refused(refusal),
        }
    }
}

impl Publisher {
    /// Decides about a join. `None`: not decided yet.
    fn try_admit(
        &mut self,
        hello: &Hello,
        join: &Join,
        visit: &mut JoinState,
    ) -> Result<Option<Accepted>, Refusal> {
        let node = self.check(hello)?;
        let first = self.options.first_position;
        let Some(credits) = Credits::new(join.slots, first) else {
            let text =
                format!("{} slots: the number of slots must be a power of two, up to 4096", join.slots);
            return refuse(Reason::Geometry, text);
        };
        let stride = self.geometry.stride();
        let needed = stride.checked_mul(join.slots.into()).and_then(|all| all.checked_add(BLOCK_BYTES));
        let Window { address, length, key } = join.window;
        if needed.is_none_or(|needed| length < needed) || address.checked_add(length).is_none() {
            let text = format!(
                "{length} bytes at {address:#x} are too few for {} slots of {stride} bytes and the block of {BLOCK_BYTES} bytes after them",
                join.slots
            );
            return refuse(Reason::Geometry, text);
        }
        // A node has one endpoint. If it was opened again, the old one's window is closed and refuses a transfer. If the old window accepts
        // the transfer, another process claims to be this node.
        let before =
            self.members.iter_mut().flatten().find(|member| member.node == node && member.gone.is_none());
        if let Some(member) = before {
            let number = match visit.probe {
                Some((id, number)) if id == member.id => number,
                _ => member.probes.request_probe(),
            };
            visit.probe = Some((member.id, number));
            if !member.probes.has_arrived(number) {
                return Ok(None);
            }
            let text = format!(
                "node {node} already is a subscriber, and its card accepts transfers; stop that subscriber first"
            );
            return refuse(Reason::Taken, text);
        }
        let place = self.members.iter().position(Option::is_none);
        let Some((place, index)) = place.and_then(|place| Some((place, u8::try_from(place).ok()?))) else {
            return refuse(
                Reason::Full,
                "transfers to subscribers that have left are still in flight: repeat it in a second",
            );
        };
        let block = u32::try_from(self.members.len() + place).unwrap_or(u32::MAX);
        let cell = CardRange::new(self.layout.address(self.layout.block_offset(block)), BLOCK_BYTES);
        let carrier = match self.card.buffer(BLOCK) {
            Ok(buffer) => ControlBlock::Idle(buffer),
            Err(error) => return refuse(Reason::Failed, error.to_string()),
        };
        let window = match self.endpoint.open_region(node, cell) {
            Ok(window) => window,
            Err(error) => return refuse(Reason::Failed, error.to_string()),
        };
        let credit = Window { address: cell.start.get(), length: cell.length, key: window.remote.key };
        let id = SubscriberId { index, number: self.members_made };
        self.members_made += 1;
        let now = self.now();
        let member = SubscriberState {
            id,
            node,
            slots: join.slots,
            region: RemoteRegion { node, address: CardAddr::new(address), length, key },
            credits,
            window,
            carrier,
            credit_news: false,
            credit_fetched: false,
            unreadable: 0,
            failures: 0,
            failing_since: None,
            last_sent: now,
            settled_reported: first,
            status: self.options.first_status,
            status_there: self.options.first_status,
            unread_statuses: 0,
            status_due: false,
            end_begun: false,
            end_reported: false,
            probes: ProbeState::default(),
            gone: None,
            statistics: SubscriberStatistics::default(),
        };
        if let Some(free) = self.members.get_mut(place) {
            *free = Some(member);
        }
        self.event(PublisherEvent::Joined { id, node, first: self.next });
        Ok(Some(Accepted { sequence: self.next.get(), position: first, credit }))
    }
}
