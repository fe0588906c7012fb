//! Packet spraying: the choice among the path identifiers towards one destination.
//!
//! A switch that chooses between equal routes hashes the path identifier of a packet (docs/protocol.md 9.6). A sender
//! that uses many identifiers in turn spreads one transfer over all routes, and it avoids a bad route without knowing
//! it: the identifiers that lead there are *evicted* for a while.
//!
//! | Evidence | Reaction |
//! |---|---|
//! | an unmarked answer | its identifier is used again, in the order of the answers: routes get packets as fast as they deliver them (REPS) |
//! | an answer says that the packet was marked | its identifier is passed over once |
//! | a full queue cut off the packet's payload | its identifier is passed over three times |
//! | a packet is retransmitted because it seems lost | its identifier is evicted |
//! | an answer took more than twice the mean round trip | the packet's identifier is evicted |
//! | link feedback reports a congested link on the packet's path | its identifier is evicted |
//! | more than half of the identifiers are evicted | all return: the losses have nothing to do with routes |
//!
//! A sender with one identifier keeps it, so that its packets stay in order. After two losses in a row without an answer it uses another
//! one: a failed link does not end a transfer while another route exists (Protective ReRoute, Wetherall et al., 2023).
//!
//! Identifiers without an unmarked answer to use again follow in turn. An eviction ends after one to two epochs of 64 round trips. Then
//! the identifier is tried again: if its route is still bad, that costs one packet. Records are sets of identifiers and a queue of 64, so
//! that the state of a destination is small and independent of the number of its packets.
//!
//! The reuse of identifiers is that of REPS (Bonato et al., Recycled Entropies for Packet Spraying, 2024), the passing over that of the
//! public simulator of Ultra Ethernet (uet-htsim).

use crate::time::Nanos;

/// Maximum number of path identifiers.
pub const MAX_PATHS: u16 = fpga_firmware::generated::PATHS_MAX;
/// Round trips of an epoch.
const EPOCH: u64 = 64;
/// Length of an epoch before a round trip is known.
const FIRST_EPOCH: Nanos = Nanos::from_micros(1000);
/// Number of identifiers that wait to be used again, a power of two.
const REUSED: u8 = 64;
/// Number of times that an identifier is passed over after a cut packet, and the maximum.
const MAX_SKIPS: u8 = 3;
/// Losses in a row without an answer after which a sender with one identifier uses another one.
const MAX_LOSSES: u8 = 2;
/// Round trips after the last eviction in which reports about evicted identifiers concern packets that were sent before it.
const REPORTS_IN_FLIGHT: u64 = 4;

/// Set of path identifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct PathBits([u64; 4]);

impl PathBits {
    const fn parts(id: u8) -> (usize, u64) {
        ((id >> 6) as usize, 1 << (id & 63))
    }

    fn contains(&self, id: u8) -> bool {
        let (word, bit) = Self::parts(id);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, id: u8, present: bool) {
        let (word, bit) = Self::parts(id);
        if let Some(word) = self.0.get_mut(word) {
            *word = if present { *word | bit } else { *word & !bit };
        }
    }

    fn union(&self, other: &Self) -> Self {
        let mut all = *self;
        for (one, more) in all.0.iter_mut().zip(other.0) {
            *one |= more;
        }
        all
    }

    fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Path identifiers towards one destination; see [the module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathSet {
    /// Number of identifiers: 0 to `count - 1` are used.
    count: u16,
    /// Next identifier in turn.
    next: u8,
    /// Evicted in this epoch and in the last one.
    evicted: [PathBits; 2],
    /// Number of times that each identifier is passed over, 0 to 3: the low and the high bits.
    skips: [PathBits; 2],
    /// Identifiers whose last use was not answered.
    unanswered: PathBits,
    epoch: Nanos,
    evictions: u32,
    /// Identifiers whose packets were answered without a mark, the oldest first: used again before others.
    good: GoodPaths,
    /// Losses in a row without an answer; only with one identifier.
    losses: u8,
    /// Identifier of the shortest of the last round trips, and that round trip; it ages with every answer.
    fastest: (u8, Nanos),
    /// Time of the last eviction.
    evicted_at: Nanos,
}

/// Queue of path identifiers; a new one replaces the oldest one if it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GoodPaths {
    ids: [u8; REUSED as usize],
    first: u8,
    len: u8,
}

impl GoodPaths {
    const EMPTY: Self = Self { ids: [0; REUSED as usize], first: 0, len: 0 };

    const fn wrap(position: u8) -> u8 {
        position & (REUSED - 1)
    }

    fn push(&mut self, id: u8) {
        if self.len == REUSED {
            self.pop();
        }
        if let Some(entry) = self.ids.get_mut(usize::from(Self::wrap(self.first + self.len))) {
            *entry = id;
            self.len += 1;
        }
    }

    fn pop(&mut self) -> Option<u8> {
        let id = self.ids.get(usize::from(self.first)).copied().filter(|_| self.len != 0)?;
        self.first = Self::wrap(self.first + 1);
        self.len -= 1;
        Some(id)
    }
}

impl PathSet {
    /// Creates a set of `count` identifiers, 1 to [`MAX_PATHS`]; other values count as the nearest of them. Senders with
    /// different `seed`s begin with different identifiers.
    #[must_use]
    pub const fn new(count: u16, seed: u32) -> Self {
        let count = if count == 0 { 1 } else { count };
        let count = if count > MAX_PATHS { MAX_PATHS } else { count };
        let start = seed.wrapping_mul(0x9E37_79B9) >> 16;
        Self {
            count,
            next: low8(start % count as u32),
            evicted: [PathBits([0; 4]); 2],
            skips: [PathBits([0; 4]); 2],
            unanswered: PathBits([0; 4]),
            epoch: Nanos::ZERO,
            evictions: 0,
            good: GoodPaths::EMPTY,
            losses: 0,
            fastest: (0, Nanos::MAX),
            evicted_at: Nanos::ZERO,
        }
    }

    /// Number of identifiers.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Number of identifiers that are evicted now.
    #[must_use]
    pub fn evicted(&self) -> u32 {
        self.gone().len()
    }

    /// Number of evictions so far.
    #[must_use]
    pub const fn evictions(&self) -> u32 {
        self.evictions
    }

    fn gone(&self) -> PathBits {
        let [now, before] = &self.evicted;
        now.union(before)
    }

    const fn after(&self, id: u8) -> u8 {
        if id as u16 + 1 >= self.count { 0 } else { id + 1 }
    }

    /// Returns the first identifier in turn that is not in `avoid`.
    fn next_outside(&self, avoid: &PathBits) -> Option<u8> {
        let mut id = self.next;
        for _ in 0..self.count {
            if !avoid.contains(id) {
                return Some(id);
            }
            id = self.after(id);
        }
        None
    }

    /// Returns the identifier of the next packet: one whose packets arrive unmarked, or the next in turn that is neither evicted nor
    /// passed over.
    pub fn choose(&mut self) -> u8 {
        if self.count == 1 {
            return self.next;
        }
        let gone = self.gone();
        while let Some(id) = self.good.pop() {
            if !gone.contains(id) {
                return id;
            }
        }
        let mut passed = false;
        let mut id = self.next;
        for _ in 0..self.count {
            if !gone.contains(id) {
                if self.skips(id) == 0 {
                    self.next = self.after(id);
                    return id;
                }
                // One identifier is passed over for each choice, so that bad ones return.
                if !passed {
                    self.set_skips(id, self.skips(id) - 1);
                    passed = true;
                }
            }
            id = self.after(id);
        }
        let id = self.next_outside(&gone).unwrap_or(self.next);
        self.next = self.after(id);
        id
    }

    fn skips(&self, id: u8) -> u8 {
        let [low, high] = &self.skips;
        u8::from(low.contains(id)) + 2 * u8::from(high.contains(id))
    }

    fn set_skips(&mut self, id: u8, count: u8) {
        let [low, high] = &mut self.skips;
        low.set(id, count & 1 != 0);
        high.set(id, count & 2 != 0);
    }

    /// Records that a full queue cut off the payload of a packet with identifier `id`.
    pub fn note_cut(&mut self, id: u8) {
        if self.count != 1 && u16::from(id) < self.count {
            self.set_skips(id, MAX_SKIPS);
            self.unanswered.set(id, false);
        }
    }

    /// Returns the identifier of the first packet of a segment, without which the receiver does not answer the others: the one with the
    /// shortest of the last round trips.
    pub fn choose_first(&mut self) -> u8 {
        let (id, delay) = self.fastest;
        if self.count == 1 || delay == Nanos::MAX || self.is_evicted(id) { self.choose() } else { id }
    }

    /// Returns the identifier for the first of `count` packets that use consecutive ones ([`Self::first_of`]); the next
    /// choice continues behind them.
    pub const fn reserve(&mut self, count: u32) -> u8 {
        let first = self.next;
        if self.count != 1 {
            self.next = self.first_of(first, count);
        }
        first
    }

    /// Returns the identifier for the first transmission of packet `index` of a sequence that began with identifier `start`. It is
    /// known without a record, so that [`Self::note_lost`] can be told about the packet later.
    #[must_use]
    pub const fn first_of(&self, start: u8, index: u32) -> u8 {
        if self.count == 1 { start } else { low8((start as u32).wrapping_add(index) % self.count as u32) }
    }

    /// Records that a packet with identifier `id` is sent.
    pub fn note_sent(&mut self, id: u8) {
        self.unanswered.set(id, true);
    }

    /// Whether no packet with identifier `id` was answered since one was last sent. Only where every packet is answered.
    #[must_use]
    pub fn is_unanswered(&self, id: u8) -> bool {
        self.unanswered.contains(id)
    }

    /// Whether an identifier is evicted.
    #[must_use]
    pub fn is_evicted(&self, id: u8) -> bool {
        self.evicted.iter().any(|bits| bits.contains(id))
    }

    /// Length of an epoch. `trip`: mean round trip, if it is known.
    fn epoch_of(trip: Option<Nanos>) -> Nanos {
        trip.map_or(FIRST_EPOCH, |trip| trip.saturating_mul(EPOCH)).max(Nanos::new(1))
    }

    /// Begins the next epoch if it is time.
    fn renew(&mut self, now: Nanos, trip: Option<Nanos>) {
        if now < self.epoch {
            return;
        }
        // After a long pause, both epochs are over.
        let span = Self::epoch_of(trip);
        let [now_gone, _] = self.evicted;
        let paused = self.epoch.saturating_add(span) < now;
        let kept = if paused { PathBits::default() } else { now_gone };
        if paused {
            (self.good, self.skips, self.fastest) = (GoodPaths::EMPTY, Default::default(), (0, Nanos::MAX));
        }
        self.evicted = [PathBits::default(), kept];
        self.epoch = now.saturating_add(span);
    }

    /// Records that a packet with identifier `id` seems lost. `trip`: mean round trip, if it is known.
    pub fn note_lost(&mut self, now: Nanos, id: u8, trip: Option<Nanos>) {
        if self.count == 1 {
            self.losses += 1;
            if self.losses == MAX_LOSSES {
                (self.next, self.losses) = (self.next.wrapping_add(1), 0);
            }
            return;
        }
        if u16::from(id) >= self.count {
            return;
        }
        self.renew(now, trip);
        if self.is_evicted(id) {
            return;
        }
        self.evict(now, id);
        if self.gone().len() > u32::from(self.count) / 2 {
            self.evicted = [PathBits::default(); 2];
        }
    }

    fn evict(&mut self, now: Nanos, id: u8) {
        self.evictions = self.evictions.saturating_add(1);
        self.evicted_at = now;
        let [now_gone, _] = &mut self.evicted;
        now_gone.set(id, true);
    }

    /// Records that link feedback reports a congested link on the path of a packet with identifier `id`. Returns whether it is avoided;
    /// otherwise the sender has to lower its rate.
    ///
    /// It is not avoided if there is one identifier, if half of the identifiers are evicted already, or if it was evicted long before: then
    /// the reports do not depend on paths.
    pub fn avoid(&mut self, now: Nanos, id: u8, trip: Option<Nanos>) -> bool {
        if self.count == 1 || u16::from(id) >= self.count {
            return false;
        }
        self.renew(now, trip);
        if self.is_evicted(id) {
            let in_flight = Nanos::new(Self::epoch_of(trip).get() / EPOCH * REPORTS_IN_FLIGHT);
            return now <= self.evicted_at.saturating_add(in_flight);
        }
        let remain = self.gone().len() < u32::from(self.count) / 2;
        if remain {
            self.evict(now, id);
        }
        remain
    }

    /// Returns the identifier of an inquiry to the links of a path: the next one in turn with a packet that is not answered, else the
    /// next one. Only where every packet is answered.
    #[must_use]
    pub fn unanswered(&self) -> u8 {
        let mut id = self.next;
        for _ in 0..self.count {
            if self.is_unanswered(id) {
                return id;
            }
            id = self.after(id);
        }
        self.next
    }

    /// Records the round trip of an unmarked packet; `None`: marked, or not measured.
    fn note_fastest(&mut self, id: u8, trip: Option<Nanos>) {
        let (fastest, least) = self.fastest;
        self.fastest = match trip {
            Some(trip) if trip <= least || fastest == id => (id, trip),
            None if fastest == id => (id, Nanos::MAX),
            _ => (fastest, least.saturating_add(Nanos::new(least.get() / 32))),
        };
    }

    /// Records an answer about a packet with identifier `id`: its delay, if that was measured, and whether it was marked.
    pub fn note_answer(
        &mut self,
        now: Nanos,
        id: u8,
        marked: bool,
        delay: Option<Nanos>,
        trip: Option<Nanos>,
    ) {
        self.losses = 0;
        if self.count == 1 || u16::from(id) >= self.count {
            return;
        }
        self.renew(now, trip);
        self.unanswered.set(id, false);
        if marked {
            self.set_skips(id, (self.skips(id) + 1).min(MAX_SKIPS));
        } else {
            self.good.push(id);
        }
        self.note_fastest(id, delay.filter(|_| !marked));
        if let (Some(delay), Some(trip)) = (delay, trip)
            && delay > trip.saturating_mul(2)
        {
            self.note_lost(now, id, Some(trip));
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "identifiers are below 256")]
const fn low8(id: u32) -> u8 {
    id as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const TRIP: Nanos = Nanos::new(1000);

    fn at(round_trips: u64) -> Nanos {
        TRIP.saturating_mul(round_trips)
    }

    fn used(set: &mut PathSet, packets: usize) -> Vec<u32> {
        let mut used = alloc::vec![0; 256];
        for _ in 0..packets {
            used[usize::from(set.choose())] += 1;
        }
        used
    }

    #[test]
    fn spray_uses_every_path_equally() {
        for count in [1, 2, 3, 7, 64, 255, 256] {
            let mut set = PathSet::new(count, 17);
            let used = used(&mut set, usize::from(count) * 5);
            assert!(used[..usize::from(count)].iter().all(|times| *times == 5), "{count}: {used:?}");
        }
        assert_eq!((PathSet::new(0, 1).count(), PathSet::new(1000, 1).count()), (1, 256));
        let starts: alloc::collections::BTreeSet<_> =
            (0..64).map(|seed| PathSet::new(256, seed).choose()).collect();
        assert!(starts.len() > 50, "{starts:?}");
    }

    #[test]
    fn spray_evicted_path_returns_after_one_to_two_epochs() {
        for start in [0, 1, 63] {
            let mut set = PathSet::new(16, 0);
            // Begins the first epoch.
            set.note_answer(at(0), 0, false, None, Some(TRIP));
            set.note_lost(at(start), 5, Some(TRIP));
            let mut back = None;
            for now in start..400 {
                set.note_answer(at(now), 0, false, Some(TRIP), Some(TRIP));
                let found = used(&mut set, 32)[5] != 0;
                assert_eq!(found, !set.is_evicted(5));
                if found {
                    back = back.or(Some(now - start));
                }
            }
            assert!((EPOCH..=2 * EPOCH).contains(&back.unwrap()), "{start}: {back:?}");
            assert_eq!(set.evictions(), 1);
        }
    }

    #[test]
    fn spray_losses_of_all_paths_evict_none() {
        let mut set = PathSet::new(64, 3);
        for id in 0..32 {
            set.note_lost(at(1), id, Some(TRIP));
            assert_eq!(set.evicted(), u32::from(id) + 1);
        }
        set.note_lost(at(1), 40, Some(TRIP));
        assert_eq!(set.evicted(), 0);
        // Identifiers outside the set change nothing.
        let before = set;
        set.note_lost(at(1), 64, Some(TRIP));
        set.note_answer(at(1), 200, true, Some(at(100)), Some(TRIP));
        assert_eq!(set, before);
        let mut single = PathSet::new(1, 3);
        single.note_lost(at(1), 0, Some(TRIP));
        assert_eq!((single.choose(), single.evicted()), (0, 0));
        // The second loss in a row without an answer changes the route.
        single.note_answer(at(1), 0, false, None, Some(TRIP));
        single.note_lost(at(1), 0, Some(TRIP));
        assert_eq!(single.choose(), 0);
        single.note_lost(at(1), 0, Some(TRIP));
        assert_eq!((single.choose(), single.choose_first(), single.first_of(1, 9)), (1, 1, 1));
    }

    /// A report about one of eight identifiers evicts it; further reports about it are of packets in flight, until they last too long.
    #[test]
    fn spray_reported_path_is_avoided_until_reports_concern_all() {
        let mut set = PathSet::new(8, 0);
        set.note_answer(at(0), 0, true, None, Some(TRIP));
        assert!(set.avoid(at(10), 3, Some(TRIP)) && set.avoid(at(14), 3, Some(TRIP)));
        assert_eq!((set.evicted(), used(&mut set, 70)[3]), (1, 0));
        // The identifier is not used any more, and is reported all the same: hops repeat no path.
        assert!(!set.avoid(at(15), 3, Some(TRIP)));
        // Half of the identifiers are avoided, and one more is not.
        for id in 4..7 {
            assert!(set.avoid(at(20), id, Some(TRIP)), "{id}");
        }
        assert!(set.avoid(at(21), 3, Some(TRIP)) && !set.avoid(at(21), 0, Some(TRIP)));
        assert_eq!((set.evicted(), used(&mut set, 70)[0] > 0), (4, true));
        assert!(!set.avoid(at(63), 0, Some(TRIP)));
        set.note_answer(at(64), 0, false, None, Some(TRIP));
        assert!(!set.avoid(at(65), 0, Some(TRIP)));
        assert!(set.avoid(at(128), 0, Some(TRIP)), "the evictions have ended");
        // An eviction by loss: the report of the queue that lost the packet is no new evidence.
        set.note_lost(at(300), 7, Some(TRIP));
        assert!(set.avoid(at(302), 7, Some(TRIP)));
        // One identifier, and those outside the set.
        assert!(!PathSet::new(1, 0).avoid(at(1), 0, Some(TRIP)));
        assert!(!PathSet::new(8, 0).avoid(at(1), 8, Some(TRIP)));
    }

    #[test]
    fn spray_inquiry_takes_unanswered_path_in_turn() {
        let mut set = PathSet::new(8, 0);
        assert_eq!(set.unanswered(), 0);
        for _ in 0..6 {
            let id = set.choose();
            set.note_sent(id);
        }
        assert_eq!(set.unanswered(), 0, "the one used longest ago: 6 and 7 were not used");
        set.note_answer(at(1), 0, true, None, Some(TRIP));
        assert_eq!(set.unanswered(), 1);
    }

    #[test]
    fn spray_slow_path_is_evicted_and_marked_path_used_less() {
        let mut set = PathSet::new(8, 0);
        set.note_answer(at(1), 2, false, Some(at(2)), Some(TRIP));
        assert!(!set.is_evicted(2), "not more than twice the mean");
        set.note_answer(at(1), 2, false, Some(Nanos::new(2001)), Some(TRIP));
        assert!(set.is_evicted(2));
        for id in [0, 1, 3, 4, 5, 6, 7] {
            set.note_answer(at(1), id, id == 3, Some(TRIP), Some(TRIP));
        }
        // Unmarked ones are used again once for each answer; then each is used in turn, and the marked one is passed over once.
        assert_eq!(used(&mut set, 6)[..8], [1, 1, 0, 0, 1, 1, 1, 1]);
        let times = used(&mut set, 69);
        assert_eq!(times[..8], [10, 10, 0, 9, 10, 10, 10, 10]);
        set.note_cut(4);
        let times = used(&mut set, 67);
        assert_eq!(times[..8], [10, 10, 0, 10, 7, 10, 10, 10]);
        // Where all paths are marked, all are used.
        for id in 0..8 {
            set.note_answer(at(1), id, true, Some(TRIP), Some(TRIP));
        }
        assert!(used(&mut set, 700).iter().take(8).enumerate().all(|(id, times)| (id == 2) == (*times == 0)));
    }
}
