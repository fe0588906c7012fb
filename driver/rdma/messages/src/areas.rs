//! Numbers of the areas of card memory that peers write.

use crate::address::PeerId;
use std::collections::VecDeque;
use std::time::Duration;

/// Time after which the area of a closed port has another peer: what has arrived in it was noticed before.
const REST: Duration = Duration::from_millis(100);

/// Peers that own areas, and areas that closed ports have left.
#[derive(Debug, Default)]
pub(crate) struct Areas {
    owners: Vec<Option<PeerId>>,
    /// Free areas, and when they became free.
    free: VecDeque<(Duration, u32)>,
}

impl Areas {
    /// Returns the owner of an area.
    pub(crate) fn owner(&self, area: u32) -> Option<PeerId> {
        self.owners.get(area as usize).copied().flatten()
    }

    /// Returns the number that the next new peer gets. It may be beyond the card's memory.
    pub(crate) fn next(&self, now: Duration) -> u32 {
        match self.free.front() {
            Some((since, area)) if now.saturating_sub(*since) >= REST => *area,
            _ => u32::try_from(self.owners.len()).unwrap_or(u32::MAX),
        }
    }

    /// Gives the area that [`next`](Self::next) has returned to a peer.
    pub(crate) fn assign(&mut self, area: u32, peer: PeerId) {
        match self.owners.get_mut(area as usize) {
            Some(owner) => {
                *owner = Some(peer);
                self.free.pop_front();
            }
            None => self.owners.push(Some(peer)),
        }
    }

    /// Frees the area of a peer that will not return.
    pub(crate) fn release(&mut self, area: u32, now: Duration) {
        if let Some(owner) = self.owners.get_mut(area as usize)
            && owner.take().is_some()
        {
            self.free.push_back((now, area));
        }
    }

    /// Number of areas in use.
    pub(crate) fn count(&self) -> usize {
        self.owners.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_of_closed_ports_are_used_again_after_a_rest() {
        let mut areas = Areas::default();
        for number in 0..3 {
            let area = areas.next(Duration::ZERO);
            assert_eq!(area, number);
            areas.assign(area, PeerId(number + 10));
        }
        areas.release(1, Duration::ZERO);
        areas.release(1, Duration::ZERO);
        assert_eq!((areas.owner(1), areas.owner(2), areas.count()), (None, Some(PeerId(12)), 2));
        assert_eq!(areas.next(REST / 2), 3);
        assert_eq!(areas.next(REST), 1);
        areas.assign(1, PeerId(20));
        assert_eq!((areas.owner(1), areas.next(REST), areas.count()), (Some(PeerId(20)), 3, 3));
    }
}
