//! What happens next: a radix heap.
//!
//! Simulated time only moves forward, so an event is kept by the highest bit in which its time differs from the last one
//! taken out. When the lowest bucket is empty, the next one is spread over those below it. An event moves at most once per bit,
//! which is less than a comparison heap does for the thousands of events of a large network. Events of one moment come out in the
//! order in which they went in: they always lie in one bucket, in that order.

/// Something that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Picoseconds since the start.
    pub(crate) at: u64,
    pub(crate) what: What,
    /// The host, port or vertex, by `what`.
    pub(crate) place: u32,
    /// The packet, where one is concerned.
    pub(crate) packet: u32,
}

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum What {
    /// A transfer is submitted: `packet` is the flow.
    Begin,
    /// A host looks at its timers and sends what it can.
    Wake,
    /// A packet has left a host and is given to what its link does to it.
    Leave,
    /// A host's link delivers something.
    Deliver,
    /// A packet is at a vertex.
    Arrive,
    /// A packet is at its host.
    Take,
}

impl What {
    /// Whether a packet is on its way.
    pub(crate) const fn is_about_a_packet(self) -> bool {
        !matches!(self, Self::Begin | Self::Wake)
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// Bucket 0 holds events of the time `last`; bucket b those that differ from it in bit b - 1 and none above.
    buckets: Vec<Vec<Event>>,
    /// Taken out of bucket 0 already.
    taken: usize,
    /// Bit b: bucket b + 1 is not empty.
    occupied: u64,
    last: u64,
    spare: Vec<Event>,
}

impl EventQueue {
    /// With room for so many events at a time; where there are more, it grows. Buckets change places with the spare one, so all
    /// have the same room; pages of those that stay empty are never touched.
    pub(crate) fn new(room: usize) -> Self {
        let buckets = (0..65).map(|_| Vec::with_capacity(room)).collect();
        Self { buckets, taken: 0, occupied: 0, last: 0, spare: Vec::with_capacity(room) }
    }

    /// Events before the last one taken out happen now.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        let differing = event.at.max(self.last) ^ self.last;
        let bucket = 64 - differing.leading_zeros() as usize;
        if let Some(events) = self.buckets.get_mut(bucket) {
            events.push(event);
        }
        if bucket > 0 {
            self.occupied |= 1 << (bucket - 1);
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.buckets.first().and_then(|events| events.get(self.taken)).copied() {
                self.taken += 1;
                return Some(event);
            }
            if let Some(events) = self.buckets.first_mut() {
                events.clear();
            }
            self.taken = 0;
            if self.occupied == 0 {
                return None;
            }
            let bucket = self.occupied.trailing_zeros() as usize + 1;
            self.occupied &= self.occupied - 1;
            let empty = core::mem::take(&mut self.spare);
            let mut events = core::mem::replace(self.buckets.get_mut(bucket)?, empty);
            self.last = events.iter().map(|event| event.at).min()?;
            for event in events.drain(..) {
                self.push(event);
            }
            self.spare = events;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;
    use std::collections::BTreeMap;

    /// Against an ordered map by time and number of insertion.
    #[test]
    fn comes_out_by_time_and_then_by_turn() {
        let mut numbers = Pcg32::new(7, 11);
        let (mut queue, mut model) = (EventQueue::new(16), BTreeMap::new());
        let mut now = 0_u64;
        for turn in 0..100_000_u32 {
            if numbers.next_u32().is_multiple_of(2) {
                let bits = numbers.next_u32() % 40;
                let at = now + (u64::from(numbers.next_u32()) << 8 & ((1 << bits) - 1));
                queue.push(Event { at, what: What::Wake, place: 0, packet: turn });
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
