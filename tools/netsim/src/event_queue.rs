//! Calendar queue of future events.
//!
//! Nearly every event of a network lies at most one packet's waiting and travel time ahead, and many lie in between. So events are put into
//! slots of equal length by their times, and sorted only when their slot is reached, a few at a time: a larger network has more and shorter
//! slots. Events beyond all slots together, such as timers, wait in a heap. An event is moved twice, regardless of the number of events; a comparison or radix heap moves it once
//! per level. Simultaneous events come out in the order in which they went in.

use std::collections::BinaryHeap;

/// Future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Time in picoseconds since the start.
    pub(crate) at: u64,
    /// [`EventAction`], in the upper bits, and the host, port or vertex. Both share one word, because a field of one byte would leave a
    /// padding hole that is copied in parts.
    tag: u32,
    /// The packet, if one is concerned.
    pub(crate) packet: u32,
    /// Destination host of a packet, and its length in bytes: all that a switch needs. The headers of a large network's packets do not fit
    /// into a cache.
    pub(crate) to: u32,
    pub(crate) length: u32,
}

/// Kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventAction {
    /// A transfer is submitted: `packet` is the flow.
    Begin,
    /// A host polls its timers and sends what it can.
    Wake,
    /// A packet has left a host and enters the impairments of its link.
    Leave,
    /// A host's link delivers a frame.
    Deliver,
    /// A packet arrives at a vertex.
    Arrive,
    /// A packet arrives at its host.
    Receive,
    /// A port with priorities has sent a packet.
    Sent,
}

impl EventAction {
    /// Returns whether a packet is in flight.
    pub(crate) const fn is_about_a_packet(self) -> bool {
        !matches!(self, Self::Begin | Self::Wake)
    }
}

/// Bits of a tag for the host, port or vertex: a network has far fewer of them.
const PLACE_BITS: u32 = 29;

impl Event {
    /// Creates an event without a packet.
    pub(crate) const fn new(at: u64, what: EventAction, place: u32) -> Self {
        Self { at, tag: (what as u32) << PLACE_BITS | place, packet: 0, to: 0, length: 0 }
    }

    /// Sets the packet or the flow.
    #[must_use]
    pub(crate) const fn of(self, packet: u32) -> Self {
        Self { packet, ..self }
    }

    /// Sets the destination host and the length in bytes.
    #[must_use]
    pub(crate) const fn bound(self, to: u32, length: u32) -> Self {
        Self { to, length, ..self }
    }

    pub(crate) const fn what(&self) -> EventAction {
        match self.tag >> PLACE_BITS {
            0 => EventAction::Begin,
            1 => EventAction::Wake,
            2 => EventAction::Leave,
            3 => EventAction::Deliver,
            4 => EventAction::Arrive,
            5 => EventAction::Receive,
            _ => EventAction::Sent,
        }
    }

    /// Host, port or vertex.
    pub(crate) const fn place(&self) -> u32 {
        self.tag & ((1 << PLACE_BITS) - 1)
    }
}

/// Minimum and maximum number of slots of a calendar, as powers of two. The lists of the largest one take 256 KiB.
const SLOT_BITS: core::ops::RangeInclusive<u32> = 12..=16;
/// Bits of a slot's number among the slots of the largest calendar.
const SLOT_MASK: u64 = 0xFFFF;
/// Marks "no event".
const NONE: u32 = u32::MAX;

/// Events of one slot, in order. A list of such chunks costs one cache miss per chunk, not per event.
#[derive(Clone, Copy, Debug)]
struct EventChunk {
    events: [Event; CHUNK_EVENTS],
    count: u32,
    /// Index of the previous chunk, or of the next free one.
    next: u32,
}

/// Events per chunk: a chunk takes two cache lines.
const CHUNK_EVENTS: usize = 5;

/// Event beyond the calendar. Ordered by time, then by turn; the first one is greatest.
#[derive(Clone, Copy, Debug)]
struct FarEvent {
    event: Event,
    turn: u64,
}

impl Ord for FarEvent {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (other.event.at, other.turn).cmp(&(self.event.at, self.turn))
    }
}

impl PartialOrd for FarEvent {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FarEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for FarEvent {}

/// Calendar queue. See the module's description.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// Events of the current slot, ordered by time, then by turn; those before `taken` have happened.
    present: Vec<Event>,
    taken: usize,
    /// Number of the current slot, counted from time 0.
    slot: u64,
    /// Time of the last event taken out.
    last: u64,
    /// Length of a slot in picoseconds, as a power of two.
    width: u32,
    /// Last chunk of each future slot, by the low bits of its number.
    heads: Box<[u32]>,
    /// Bit per slot with events, and bit per nonzero word of it.
    occupied: Box<[u64]>,
    words: Box<[u64]>,
    /// Number of slots with events.
    listed: u32,
    chunks: Vec<EventChunk>,
    free: u32,
    later: BinaryHeap<FarEvent>,
    turn: u64,
}

impl EventQueue {
    /// Creates a queue for a network of `hosts`, with space for `capacity` events at a time; it grows if there are more. Most events should
    /// lie at most `span` picoseconds ahead.
    pub(crate) fn new(hosts: u32, capacity: usize, span: u64) -> Self {
        let bits = (hosts.max(1).ilog2() + 9).clamp(*SLOT_BITS.start(), *SLOT_BITS.end());
        let slots = 1_usize << bits;
        Self {
            present: Vec::with_capacity(capacity.min(1 << 10)),
            taken: 0,
            slot: 0,
            last: 0,
            width: (span >> bits).max(1).ilog2() + 1,
            heads: vec![NONE; slots].into_boxed_slice(),
            occupied: vec![0; slots / 64].into_boxed_slice(),
            words: vec![0; slots / 64 / 64].into_boxed_slice(),
            listed: 0,
            chunks: Vec::with_capacity(capacity),
            free: NONE,
            later: BinaryHeap::with_capacity(capacity),
            turn: 0,
        }
    }

    /// Number of slots.
    #[inline]
    const fn slots(&self) -> u64 {
        self.heads.len() as u64
    }

    /// Index of a slot's list.
    #[inline]
    const fn place(&self, slot: u64) -> usize {
        (slot & SLOT_MASK) as usize & (self.heads.len() - 1)
    }

    /// Adds an event. An event earlier than the last one taken out happens now.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        let event = Event { at: event.at.max(self.last), ..event };
        let ahead = (event.at >> self.width).saturating_sub(self.slot);
        if ahead == 0 {
            let (_, rest) = self.present.split_at(self.taken);
            let place = self.taken + rest.partition_point(|other| other.at <= event.at);
            self.present.insert(place, event);
        } else if ahead < self.slots() {
            self.list(event);
        } else {
            self.turn += 1;
            self.later.push(FarEvent { event, turn: self.turn });
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.present.get(self.taken) {
                self.taken += 1;
                self.last = event.at;
                return Some(*event);
            }
            if !self.advance_slot() {
                return None;
            }
        }
    }

    /// Adds an event to the list of its future slot.
    #[inline]
    fn list(&mut self, event: Event) {
        let place = self.place(event.at >> self.width);
        let Some(head) = self.heads.get_mut(place) else { return };
        if let Some(chunk) = self.chunks.get_mut(*head as usize)
            && let Some(space) = chunk.events.get_mut(chunk.count as usize)
        {
            *space = event;
            chunk.count += 1;
            return;
        }
        self.listed += u32::from(*head == NONE);
        let next = *head;
        if let Some(spare) = self.chunks.get_mut(self.free as usize) {
            // Events beyond the count are stale.
            *head = self.free;
            self.free = core::mem::replace(&mut spare.next, next);
            spare.count = 1;
            spare.events[0] = event;
        } else {
            *head = u32::try_from(self.chunks.len()).unwrap_or(NONE);
            self.chunks.push(EventChunk { events: [event; CHUNK_EVENTS], count: 1, next });
        }
        if let Some(word) = self.occupied.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
        if let Some(words) = self.words.get_mut(place / 4096) {
            *words |= 1 << (place / 64 % 64);
        }
    }

    /// Advances to the next slot with an event. Returns whether there is one.
    fn advance_slot(&mut self) -> bool {
        self.present.clear();
        self.taken = 0;
        // Events in the heap lie beyond every slot.
        let slot = match (self.next_occupied(), self.later.peek()) {
            (Some(slot), _) => slot,
            (None, Some(first)) => first.event.at >> self.width,
            (None, None) => return false,
        };
        self.slot = slot;
        // Done before anything else enters the slots that have come within reach, so that turns are kept.
        while let Some(first) = self.later.peek()
            && (first.event.at >> self.width) - slot < self.slots()
        {
            let event = first.event;
            self.later.pop();
            self.list(event);
        }
        self.take_slot(self.place(slot));
        true
    }

    /// Next slot with a list.
    fn next_occupied(&self) -> Option<u64> {
        if self.listed == 0 {
            return None;
        }
        let first = self.slot + 1;
        let at = self.place(first);
        let from_bit = self.occupied.get(at / 64).copied().unwrap_or(0) & (u64::MAX << (at % 64));
        let found = if from_bit != 0 {
            at / 64 * 64 + from_bit.trailing_zeros() as usize
        } else {
            // The words after this one, then those before it, and last the lower bits of this one.
            let behind = (u64::MAX << (at / 64 % 64)) << 1;
            let count = self.words.len();
            let word = (0..=count).find_map(|step| {
                let number = (at / 4096 + step) % count;
                let words = self.words.get(number)? & if step == 0 { behind } else { u64::MAX };
                (words != 0).then(|| number * 64 + words.trailing_zeros() as usize)
            })?;
            word * 64 + self.occupied.get(word)?.trailing_zeros() as usize
        };
        Some(first + ((found as u64).wrapping_sub(first) & (self.slots() - 1)))
    }

    /// Makes a slot's list the current events.
    fn take_slot(&mut self, place: usize) {
        let Some(head) = self.heads.get_mut(place) else { return };
        let mut at = core::mem::replace(head, NONE);
        while let Some(chunk) = self.chunks.get_mut(at as usize) {
            let next = core::mem::replace(&mut chunk.next, self.free);
            let count = chunk.count as usize;
            self.present.extend(chunk.events.iter().take(count).rev());
            self.free = at;
            at = next;
        }
        self.listed -= 1;
        if let Some(word) = self.occupied.get_mut(place / 64) {
            *word &= !(1 << (place % 64));
            if *word == 0
                && let Some(words) = self.words.get_mut(place / 4096)
            {
                *words &= !(1 << (place / 64 % 64));
            }
        }
        // Lists begin with their last event, and sorting keeps the order of simultaneous events.
        self.present.reverse();
        self.present.sort_by_key(|event| event.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;
    use std::collections::BTreeMap;

    /// Compares with an ordered map by time and insertion number, with calendars that most events miss and that most events hit.
    #[test]
    fn event_queue_orders_by_time_then_insertion() {
        let spans = [(1, 7), (1 << 12, 8), (1 << 20, 9), (1 << 31, 10), (1 << 40, 11)];
        for (hosts, (span, seed)) in
            [2, 32, 4096].into_iter().flat_map(|hosts| spans.map(|span| (hosts, span)))
        {
            let mut numbers = Pcg32::new(seed, 11);
            let (mut queue, mut model) = (EventQueue::new(hosts, 16, span), BTreeMap::new());
            let mut now = 0_u64;
            for turn in 0..100_000_u32 {
                // Growing for a while, then shrinking.
                let pushes = if turn % 4000 < 2000 { 3 } else { 1 };
                if numbers.next_u32() % 4 < pushes {
                    let bits = numbers.next_u32() % 40;
                    let at = now + (u64::from(numbers.next_u32()) << 8 & ((1 << bits) - 1));
                    queue.push(Event::new(at, EventAction::Wake, 0).of(turn));
                    model.insert((at, turn), ());
                } else {
                    let expected = model.pop_first().map(|(key, ())| key);
                    let found = queue.pop();
                    assert_eq!(found.map(|event| (event.at, event.packet)), expected);
                    now = found.map_or(now, |event| event.at);
                }
            }
            while let Some(event) = queue.pop() {
                assert_eq!(model.pop_first().map(|(key, ())| key), Some((event.at, event.packet)));
            }
            assert!(model.is_empty());
        }
    }

    #[test]
    fn event_queue_past_event_is_due_now() {
        let mut queue = EventQueue::new(2, 4, 1000);
        queue.push(Event::new(5000, EventAction::Wake, 1));
        assert_eq!(queue.pop().map(|event| event.at), Some(5000));
        queue.push(Event::new(6000, EventAction::Wake, 2));
        queue.push(Event::new(10, EventAction::Wake, 3));
        assert_eq!(queue.pop().map(|event| (event.at, event.place())), Some((5000, 3)));
        assert_eq!(queue.pop().map(|event| event.place()), Some(2));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn event_keeps_action_and_place() {
        let place = (1 << PLACE_BITS) - 1;
        for what in [
            EventAction::Begin,
            EventAction::Wake,
            EventAction::Leave,
            EventAction::Deliver,
            EventAction::Arrive,
            EventAction::Receive,
        ] {
            let event = Event::new(1, what, place).of(2).bound(3, 4);
            assert_eq!((event.what(), event.place(), event.packet), (what, place, 2));
            assert_eq!((event.to, event.length), (3, 4));
        }
    }
}
