//! Messages that matched no posted receive, in the order of arrival: of each peer, and of all.
//!
//! A receive from one peer looks at the messages of that peer alone, and a message is removed from any position without moving others: a flood of
//! one peer does not slow down receives from another one.

use crate::address::PeerId;
use crate::wire::Header;

/// Message that matched no posted receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) peer: PeerId,
    /// Number of the peer's sessions that had ended when it arrived.
    pub(crate) session: u32,
    pub(crate) header: Header,
    /// Data; empty for a large message.
    pub(crate) data: Vec<u8>,
}

/// Number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(u32);

/// Neighbours of an entry in a list.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    previous: Option<EntryId>,
    next: Option<EntryId>,
}

/// First and last entry of a list.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    first: Option<EntryId>,
    last: Option<EntryId>,
}

/// Lists that an entry is in.
#[derive(Clone, Copy, Debug)]
enum List {
    All,
    OfPeer(PeerId),
}

#[derive(Debug)]
struct Entry {
    /// `None` if the entry is free.
    message: Option<Unexpected>,
    all: Links,
    of_peer: Links,
}

/// Queue of messages. Entries of removed messages are used again.
#[derive(Debug, Default)]
pub(crate) struct UnexpectedQueue {
    entries: Vec<Entry>,
    free: Vec<EntryId>,
    all: Ends,
    /// By the numbers of the peers.
    by_peer: Vec<Ends>,
}

/// Number of entries that an empty queue keeps.
const MAX_SPARE: usize = 1024;

impl UnexpectedQueue {
    /// Appends a message.
    pub(crate) fn push(&mut self, message: Unexpected) {
        let peer = message.peer;
        let index = peer.0 as usize;
        if self.by_peer.len() <= index {
            self.by_peer.resize(index + 1, Ends::default());
        }
        let entry = Entry { message: Some(message), all: Links::default(), of_peer: Links::default() };
        let id = match self.free.pop() {
            Some(id) => {
                if let Some(free) = self.entries.get_mut(id.0 as usize) {
                    *free = entry;
                }
                id
            }
            None => {
                // Limited by the credit of all peers.
                let id = EntryId(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
                self.entries.push(entry);
                id
            }
        };
        for list in [List::All, List::OfPeer(peer)] {
            let last = self.ends(list).and_then(|ends| ends.last.replace(id));
            match last.and_then(|last| self.links(last, list)) {
                Some(links) => links.next = Some(id),
                None => self.set_first(list, Some(id)),
            }
            if let Some(links) = self.links(id, list) {
                links.previous = last;
            }
        }
    }

    /// Returns the first message, of `from` or of any peer, that `accepts` accepts.
    pub(crate) fn find(
        &self,
        from: Option<PeerId>,
        mut accepts: impl FnMut(&Unexpected) -> bool,
    ) -> Option<EntryId> {
        let ends = match from {
            Some(peer) => *self.by_peer.get(peer.0 as usize)?,
            None => self.all,
        };
        let mut next = ends.first;
        while let Some(id) = next {
            let entry = self.entries.get(id.0 as usize)?;
            if entry.message.as_ref().is_some_and(&mut accepts) {
                return Some(id);
            }
            next = if from.is_some() { entry.of_peer.next } else { entry.all.next };
        }
        None
    }

    /// Returns a message.
    pub(crate) fn get(&self, id: EntryId) -> Option<&Unexpected> {
        self.entries.get(id.0 as usize)?.message.as_ref()
    }

    /// Removes a message.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Unexpected> {
        let message = self.entries.get_mut(id.0 as usize)?.message.take()?;
        for list in [List::All, List::OfPeer(message.peer)] {
            let Links { previous, next } = self.links(id, list).copied().unwrap_or_default();
            match previous.and_then(|previous| self.links(previous, list)) {
                Some(links) => links.next = next,
                None => self.set_first(list, next),
            }
            match next.and_then(|next| self.links(next, list)) {
                Some(links) => links.previous = previous,
                None => {
                    if let Some(ends) = self.ends(list) {
                        ends.last = previous;
                    }
                }
            }
        }
        self.free.push(id);
        if self.all.first.is_none() && self.entries.len() > MAX_SPARE {
            (self.entries, self.free) = Default::default();
        }
        Some(message)
    }

    /// Removes the messages, of `from` or of all peers, that `accepts` accepts.
    pub(crate) fn remove_all(&mut self, from: Option<PeerId>, mut accepts: impl FnMut(&Unexpected) -> bool) {
        let list = from.map_or(List::All, List::OfPeer);
        let mut next = self.ends(list).and_then(|ends| ends.first);
        while let Some(id) = next {
            next = self.links(id, list).and_then(|links| links.next);
            if self.get(id).is_some_and(&mut accepts) {
                self.remove(id);
            }
        }
    }

    /// Returns all messages, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Unexpected> {
        self.entries.iter().filter_map(|entry| entry.message.as_ref())
    }

    fn ends(&mut self, list: List) -> Option<&mut Ends> {
        match list {
            List::All => Some(&mut self.all),
            List::OfPeer(peer) => self.by_peer.get_mut(peer.0 as usize),
        }
    }

    fn set_first(&mut self, list: List, first: Option<EntryId>) {
        if let Some(ends) = self.ends(list) {
            ends.first = first;
        }
    }

    fn links(&mut self, id: EntryId, list: List) -> Option<&mut Links> {
        let entry = self.entries.get_mut(id.0 as usize)?;
        Some(match list {
            List::All => &mut entry.all,
            List::OfPeer(_) => &mut entry.of_peer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    fn message(peer: u32, tag: u64) -> Unexpected {
        let header = Header { tag, ..Header::new(Kind::Message) };
        Unexpected { peer: PeerId(peer), session: 0, header, data: Vec::new() }
    }

    proptest::proptest! {
        /// The queue finds and removes what a list in order of arrival would.
        #[test]
        fn unexpected_queue_matches_a_list(
            steps in proptest::collection::vec((0_u32..4, 0_u64..3, proptest::bool::ANY, proptest::bool::ANY), 0..200),
        ) {
            let (mut queue, mut list) = (UnexpectedQueue::default(), Vec::new());
            for (peer, tag, is_push, is_directed) in steps {
                if is_push {
                    queue.push(message(peer, tag));
                    list.push((peer, tag));
                    continue;
                }
                let from = is_directed.then_some(PeerId(peer));
                let found = queue.find(from, |message| message.header.tag == tag);
                let index = list.iter().position(|(sender, sent)| (!is_directed || *sender == peer) && *sent == tag);
                let found = found.and_then(|id| queue.remove(id)).map(|message| (message.peer.0, message.header.tag));
                proptest::prop_assert_eq!(found, index.map(|index| list.remove(index)));
            }
            queue.remove_all(Some(PeerId(1)), |message| message.header.tag == 2);
            list.retain(|entry| *entry != (1, 2));
            queue.remove_all(None, |message| message.header.tag == 1);
            list.retain(|(_, tag)| *tag != 1);
            let mut rest = Vec::new();
            while let Some(message) = queue.find(None, |_| true).and_then(|id| queue.remove(id)) {
                rest.push((message.peer.0, message.header.tag));
            }
            proptest::prop_assert_eq!(rest, list);
        }
    }

    #[test]
    fn unexpected_queue_empty_releases_its_memory() {
        let mut queue = UnexpectedQueue::default();
        for _ in 0..2 {
            for number in 0..5000 {
                queue.push(message(number % 3, 0));
            }
            while let Some(id) = queue.find(Some(PeerId(2)), |_| true).or_else(|| queue.find(None, |_| true))
            {
                assert!(queue.get(id).is_some());
                assert!(queue.remove(id).is_some());
                assert!(queue.remove(id).is_none());
            }
            assert_eq!((queue.entries.len(), queue.iter().count()), (0, 0));
        }
    }
}
