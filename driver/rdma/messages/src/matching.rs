//! Matching of messages with receives, in the order of arrival and in the order in which receives were posted.

use crate::address::PeerId;
use crate::buffers::{BufferId, Buffers};
use crate::completion::Failure;
use crate::request::{HostRanges, ReceiveRequest, TagPattern, Token};
use crate::unexpected::{EntryId, Unexpected, UnexpectedQueue};
use crate::wire::{Header, Kind};
use std::collections::VecDeque;

/// Destination of a matched message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matched {
    pub(crate) token: Token,
    pub(crate) data: HostRanges,
    /// Buffer for several messages.
    pub(crate) buffer: Option<BufferId>,
}

/// Posted receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) request: ReceiveRequest,
    pub(crate) buffer: Option<BufferId>,
}

/// Message that a request has claimed.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// Context of the request.
    context: u64,
    pub(crate) message: Unexpected,
    /// Failure of its sender: its data will not arrive.
    pub(crate) failure: Option<Failure>,
}

/// Message that a receive matched when it was posted.
#[derive(Debug)]
pub(crate) struct PostMatch {
    pub(crate) message: Unexpected,
    pub(crate) destination: Matched,
    /// Whether the receive takes no further messages.
    pub(crate) is_used_up: bool,
}

/// Posted receives, and messages that matched none. The first queue of each is for messages without a tag, the second for messages with one.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    posted: [VecDeque<Posted>; 2],
    unexpected: [UnexpectedQueue; 2],
    /// Messages that requests have claimed.
    claimed: Vec<Claimed>,
    /// Buffers of earlier messages, for reuse.
    spare: Vec<Vec<u8>>,
    /// Buffers for several messages.
    pub(crate) buffers: Buffers,
}

/// Maximum number of message buffers that are kept for reuse.
const MAX_SPARE: usize = 256;

fn tags_match(pattern: Option<TagPattern>, tag: u64) -> bool {
    pattern.is_none_or(|TagPattern { tag: expected, ignore }| (expected ^ tag) & !ignore == 0)
}

fn matches(request: &ReceiveRequest, peer: PeerId, header: &Header) -> bool {
    request.from.is_none_or(|from| from == peer) && tags_match(request.tag, header.tag)
}

impl Matching {
    /// Returns the destination of a message that has arrived. The receive is removed unless its buffer takes further messages.
    pub(crate) fn arrived(&mut self, peer: PeerId, header: &Header) -> Option<Matched> {
        let posted = self.posted.get_mut(usize::from(header.is_tagged))?;
        let index = posted.iter().position(|posted| matches(&posted.request, peer, header))?;
        let receive = posted.get_mut(index)?;
        let (matched, is_used_up) = take_part(&mut self.buffers, receive, header.length);
        if is_used_up {
            posted.remove(index);
        }
        Some(matched)
    }

    /// Queues a message that matches no posted receive. `fill` writes its data.
    pub(crate) fn keep(
        &mut self,
        peer: PeerId,
        session: u32,
        header: Header,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let mut data = self.spare.pop().unwrap_or_default();
        data.clear();
        data.resize(length, 0);
        fill(&mut data);
        if let Some(queue) = self.unexpected.get_mut(usize::from(header.is_tagged)) {
            queue.push(Unexpected { peer, session, header, data });
        }
    }

    /// Returns a message's buffer for reuse.
    pub(crate) fn recycle(&mut self, data: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(data);
        }
    }

    fn find_entry(&self, request: &ReceiveRequest) -> Option<EntryId> {
        let queue = self.unexpected.get(usize::from(request.tag.is_some()))?;
        queue.find(request.from, |message| tags_match(request.tag, message.header.tag))
    }

    /// Posts a receive, or returns the message that it matches. For a buffer for several messages, the caller repeats the call until the buffer
    /// is used up or no message matches.
    pub(crate) fn post(&mut self, receive: &mut Posted) -> Option<PostMatch> {
        let is_tagged = usize::from(receive.request.tag.is_some());
        let Some(id) = self.find_entry(&receive.request) else {
            if let Some(queue) = self.posted.get_mut(is_tagged) {
                queue.push_back(*receive);
            }
            return None;
        };
        let message = self.unexpected.get_mut(is_tagged)?.remove(id)?;
        let (destination, is_used_up) = take_part(&mut self.buffers, receive, message.header.length);
        Some(PostMatch { message, destination, is_used_up })
    }

    /// Returns the sender and the header of the first message that a receive would match.
    pub(crate) fn find(&self, request: &ReceiveRequest) -> Option<(PeerId, Header)> {
        let queue = self.unexpected.get(usize::from(request.tag.is_some()))?;
        let message = queue.get(self.find_entry(request)?)?;
        Some((message.peer, message.header))
    }

    /// Removes the first message that a receive would match.
    pub(crate) fn take(&mut self, request: &ReceiveRequest) -> Option<Unexpected> {
        let id = self.find_entry(request)?;
        self.unexpected.get_mut(usize::from(request.tag.is_some()))?.remove(id)
    }

    /// Claims the first message that a receive would match, under the context of the request.
    pub(crate) fn claim(&mut self, request: &ReceiveRequest) {
        if let Some(message) = self.take(request) {
            self.claimed.push(Claimed { context: request.token.context, message, failure: None });
        }
    }

    /// Removes the message that was claimed with `context`.
    pub(crate) fn take_claimed(&mut self, is_tagged: bool, context: u64) -> Option<Claimed> {
        let is_claimed =
            |claimed: &Claimed| claimed.context == context && claimed.message.header.is_tagged == is_tagged;
        let index = self.claimed.iter().position(is_claimed)?;
        Some(self.claimed.remove(index))
    }

    /// Removes the oldest receive with `context`.
    pub(crate) fn cancel(&mut self, context: u64) -> Option<Posted> {
        self.posted.iter_mut().find_map(|queue| {
            let index = queue.iter().position(|posted| posted.request.token.context == context)?;
            queue.remove(index)
        })
    }

    /// Removes the receives that accept only messages of `peer`, or all receives, and returns them. Removes the large messages of `peer`, or of
    /// all peers, as well: their data will not arrive. Those that were claimed stay, to report the failure.
    pub(crate) fn fail(&mut self, peer: Option<PeerId>, failure: &Failure) -> Vec<Posted> {
        let mut failed = Vec::new();
        for queue in &mut self.posted {
            queue.retain(|posted| {
                let hit = peer.is_none() || posted.request.from == peer;
                if hit {
                    failed.push(*posted);
                }
                !hit
            });
        }
        let is_large = |message: &Unexpected| message.header.kind == Kind::LargeMessage;
        for queue in &mut self.unexpected {
            queue.remove_all(peer, is_large);
        }
        for claimed in &mut self.claimed {
            let hit = peer.is_none_or(|peer| claimed.message.peer == peer);
            if hit && is_large(&claimed.message) && claimed.failure.is_none() {
                claimed.failure = Some(failure.clone());
            }
        }
        failed
    }

    /// Appends the peers from which posted receives expect messages.
    pub(crate) fn sources(&self, into: &mut Vec<PeerId>) {
        into.extend(self.posted.iter().flatten().filter_map(|posted| posted.request.from));
    }

    /// Returns the number of messages that match no receive, and the bytes of their kept data.
    pub(crate) fn unexpected(&self) -> (usize, u64) {
        let claimed = self.claimed.iter().map(|claimed| &claimed.message);
        let all = self.unexpected.iter().flat_map(UnexpectedQueue::iter).chain(claimed);
        all.fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.data.len() as u64))
    }

    /// Whether a receive from any source is posted: the failure of a peer does not end it.
    pub(crate) fn accepts_any_source(&self) -> bool {
        self.posted.iter().flatten().any(|posted| posted.request.from.is_none())
    }

    /// Whether a receive is posted.
    pub(crate) fn is_waiting(&self) -> bool {
        self.posted.iter().any(|queue| !queue.is_empty())
    }
}

/// Takes the part of a receive's buffer that a message of `length` bytes needs. Returns whether the receive is used up.
fn take_part(buffers: &mut Buffers, receive: &mut Posted, length: u64) -> (Matched, bool) {
    let Posted { request, buffer } = receive;
    let (Some(min_rest), Some(id)) = (request.multi, *buffer) else {
        return (Matched { token: request.token, data: request.data, buffer: None }, true);
    };
    let range = request.data.as_slice().first().copied().unwrap_or_default();
    let taken = length.min(range.length);
    let part = HostRanges::one(range.address, taken).unwrap_or_default();
    let rest = range.length - taken;
    request.data = HostRanges::one(range.address + taken, rest).unwrap_or_default();
    let is_used_up = rest < min_rest.max(1);
    buffers.matched(id, is_used_up);
    (Matched { token: request.token, data: part, buffer: Some(id) }, is_used_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(from: Option<u32>, tag: Option<(u64, u64)>, context: u64) -> Posted {
        let request = ReceiveRequest {
            from: from.map(PeerId),
            tag: tag.map(|(tag, ignore)| TagPattern { tag, ignore }),
            data: HostRanges::one(0x1000, 100).unwrap(),
            multi: None,
            token: Token { context, user: 0 },
        };
        Posted { request, buffer: None }
    }

    fn message(tag: Option<u64>, length: u64) -> Header {
        Header { is_tagged: tag.is_some(), tag: tag.unwrap_or(0), length, ..Header::new(Kind::Message) }
    }

    #[test]
    fn matching_uses_source_tag_and_order() {
        let mut matching = Matching::default();
        for request in
            [receive(Some(1), Some((5, 0)), 1), receive(None, Some((0, 0xff)), 2), receive(None, None, 3)]
        {
            assert!(matching.post(&mut request.clone()).is_none());
        }
        let context = |matched: Option<Matched>| matched.map(|matched| matched.token.context);
        assert_eq!(context(matching.arrived(PeerId(2), &message(Some(0x105), 1))), None);
        assert_eq!(context(matching.arrived(PeerId(2), &message(Some(5), 1))), Some(2));
        assert_eq!(context(matching.arrived(PeerId(1), &message(Some(5), 1))), Some(1));
        assert_eq!(context(matching.arrived(PeerId(1), &message(Some(5), 1))), None);
        assert_eq!(context(matching.arrived(PeerId(9), &message(None, 1))), Some(3));
        assert!(!matching.is_waiting());
    }

    #[test]
    fn matching_kept_messages_match_in_order_of_arrival() {
        let mut matching = Matching::default();
        for (tag, byte) in [(7, 1), (7, 2)] {
            matching.keep(PeerId(0), 0, message(Some(tag), 1), 1, |data| data.fill(byte));
        }
        let mut request = receive(None, Some((7, 0)), 1);
        assert_eq!(matching.find(&request.request).map(|(peer, _)| peer), Some(PeerId(0)));
        matching.claim(&receive(None, Some((7, 0)), 44).request);
        // The first one is claimed: the second one matches.
        let found = matching.post(&mut request).unwrap().message;
        assert_eq!(found.data, [2]);
        assert_eq!(matching.take_claimed(true, 44).unwrap().message.data, [1]);
        assert!(matching.post(&mut request).is_none());
        assert_eq!(matching.cancel(1).map(|posted| posted.request.token.context), Some(1));
        assert!(matching.cancel(1).is_none());
    }

    #[test]
    fn matching_buffer_for_several_messages_is_divided() {
        let mut matching = Matching::default();
        let mut request = receive(None, None, 1);
        request.request.multi = Some(40);
        request.buffer = Some(matching.buffers.insert());
        assert!(matching.post(&mut request).is_none());
        let first = matching.arrived(PeerId(0), &message(None, 30)).unwrap();
        assert_eq!((first.data.as_slice()[0].address, first.data.length()), (0x1000, 30));
        let second = matching.arrived(PeerId(0), &message(None, 31)).unwrap();
        assert_eq!((second.data.as_slice()[0].address, second.data.length()), (0x101e, 31));
        assert!(matching.arrived(PeerId(0), &message(None, 1)).is_none());
    }
}
