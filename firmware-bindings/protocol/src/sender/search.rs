//! The choice of the next packets by a search over all destinations, as a reference for [`super::turns`]. Debug builds
//! compare both with few destinations.

use fpga_registers::cast::index;

use super::Sender;
use super::issue::{Candidate, Claim, OpBudget};
use crate::segment::TransferClass;
use crate::time::Nanos;

/// Number of destinations up to which debug builds compare.
const MAX_SEARCHED: u32 = 8;

impl Sender {
    pub(super) fn is_searchable(&self) -> bool {
        self.destinations.used() <= MAX_SEARCHED
    }

    /// Returns what [`Sender::choose_from`] has to choose.
    pub(super) fn search(&self, pool: &OpBudget) -> Option<Candidate> {
        assert_eq!([pool.expected, pool.begun], self.search_claims(), "claims on op numbers");
        let regular = self.search_regular(pool);
        let owes = self.search_yielded(pool.now) && !self.search_returned();
        let big_may_go = regular.is_none() || (self.last_was_regular && !owes);
        let big = if big_may_go { self.search_big(pool, owes) } else { None };
        big.or(regular)
    }

    fn search_claims(&self) -> [bool; 2] {
        let records = (0..self.destinations.used()).map(|at| self.destinations.get(at));
        let heads = records.flat_map(|record| [record.regular.head(), record.big.head()]).flatten();
        let claims = heads.filter_map(|slot| self.claim(slot));
        claims.fold([false; 2], |[expected, begun], claim| match claim {
            Claim::Expected => [true, begun],
            Claim::Started => [expected, true],
        })
    }

    fn search_yielded(&self, now: Nanos) -> bool {
        (0..self.destinations.used()).any(|destination| {
            let head = self.destinations.get(destination).regular.head();
            head.is_some_and(|slot| {
                self.was_passed(destination, slot) && self.capacity(now, destination, slot) != 0
            })
        })
    }

    fn search_returned(&self) -> bool {
        (0..self.destinations.used()).any(|destination| {
            let head = self.destinations.get(destination).big.head();
            let partial = head.and_then(|slot| self.transfers[index(slot)].partial);
            partial.is_some_and(|partial| self.segments.get(partial).issued == 0)
        })
    }

    fn search_regular(&self, pool: &OpBudget) -> Option<Candidate> {
        let mut best: Option<((u8, u64), Candidate)> = None;
        for destination in 0..self.destinations.used() {
            let Some(slot) = self.destinations.get(destination).regular.head() else { continue };
            let transfer = &self.transfers[index(slot)];
            let rank = (u8::MAX - transfer.command.priority, transfer.arrival);
            let class = TransferClass::Regular;
            let budget = self.budget(pool, class, destination, slot);
            let candidate = Candidate { slot, destination, class, budget };
            if best.is_none_or(|(first, _)| rank < first) && budget != 0 {
                best = Some((rank, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    fn search_big(&self, pool: &OpBudget, owing: bool) -> Option<Candidate> {
        let used = self.destinations.used();
        let mut best: Option<(u8, Candidate)> = None;
        for destination in (self.big_turn..used).chain(0..self.big_turn.min(used)) {
            let Some(slot) = self.destinations.get(destination).big.head() else { continue };
            if owing && self.claim(slot) != Some(Claim::Expected) {
                continue;
            }
            let priority = self.transfers[index(slot)].command.priority;
            let class = TransferClass::Big;
            let budget = self.budget(pool, class, destination, slot);
            let candidate = Candidate { slot, destination, class, budget };
            if best.is_none_or(|(most, _)| priority > most) && budget != 0 {
                best = Some((priority, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    /// Whether every destination whose congestion window is full has a note of it, and none releases packets earlier.
    pub(super) fn has_noted_all(&self, now: Nanos) -> bool {
        let mut pace = Nanos::MAX;
        for at in 0..self.destinations.used() {
            if self.destinations.get(at).transfers != 0 && self.room(now, at) == 0 {
                let release = self.destinations.release_time(at).filter(|release| *release > now);
                pace = pace.min(release.unwrap_or(Nanos::MAX));
                if !self.destinations.is_held(at) {
                    return false;
                }
            }
        }
        self.config.congestion.is_none() || pace == self.pace
    }
}
