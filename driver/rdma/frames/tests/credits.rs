//! Model check of a publisher's and a subscriber's counters with every possible behaviour of the network between them: every state,
//! starting at the end of the range, so that positions wrap.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::collections::{BTreeSet, HashSet};

use fpga_frames::{Arrivals, Credits, FramePosition};

/// Transfer in flight. Transfers end in any order; one that fails may have arrived all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Transfer {
    place: (u32, u32),
    arrived: bool,
}

/// State of both sides, and of the network between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    credits: Credits,
    arrivals: Arrivals,
    transfers: BTreeSet<Transfer>,
    /// Positions that are being read.
    readers: BTreeSet<u32>,
    /// Credit in flight: the newest one replaces the one before.
    credit: Option<u32>,
    /// Status in flight.
    status: Option<u32>,
    /// Number of frames promised so far.
    promised: u32,
}

impl State {
    fn new(slots: u32, first: u32) -> Self {
        Self {
            credits: Credits::new(slots, first).unwrap(),
            arrivals: Arrivals::new(slots, first).unwrap(),
            transfers: BTreeSet::new(),
            readers: BTreeSet::new(),
            credit: None,
            status: None,
            promised: 0,
        }
    }

    fn steps(&self, slots: u32, frames: u32) -> Vec<Self> {
        let mut found = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            found.push(next);
        };
        if self.promised < frames && self.credits.free_slots() > 0 {
            step(&|state| {
                assert!(state.credits.reserve());
                state.promised += 1;
            });
        }
        if let Some(FramePosition { position, slot }) = self.credits.due() {
            step(&|state| {
                // The slot that is written now is not being read, and no other transfer writes it.
                assert!(state.readers.iter().all(|reader| reader % slots != slot), "{state:?}");
                assert!(state.transfers.iter().all(|other| other.place.1 != slot), "{state:?}");
                state.credits.start();
                state.transfers.insert(Transfer { place: (position, slot), arrived: false });
            });
        }
        for &transfer in &self.transfers {
            let (position, slot) = transfer.place;
            if transfer.arrived {
                for heard in [true, false] {
                    step(&|state| {
                        state.transfers.remove(&transfer);
                        assert!(state.credits.end(position, heard));
                        assert!(!state.credits.end(position, heard), "twice");
                    });
                }
            } else {
                step(&|state| {
                    state.transfers.remove(&transfer);
                    state.transfers.insert(Transfer { arrived: true, ..transfer });
                    state.arrivals.arrived(slot, 1).unwrap();
                    assert!(state.arrivals.arrived(slot, 1).is_err(), "twice");
                });
                step(&|state| {
                    state.transfers.remove(&transfer);
                    assert!(state.credits.end(position, false));
                });
            }
        }
        step(&|state| {
            if let Some((place, _)) = state.arrivals.read() {
                assert!(state.readers.insert(place.position));
            }
        });
        for &reader in &self.readers {
            step(&|state| {
                state.readers.remove(&reader);
                assert!(state.arrivals.release(reader));
                assert!(!state.arrivals.release(reader), "twice");
            });
        }
        step(&|state| state.credit = Some(state.arrivals.consumed()));
        if let Some(credit) = self.credit {
            step(&|state| {
                state.credits.consume(credit).unwrap();
                state.credit = None;
            });
        }
        if self.credits.needs_status() {
            step(&|state| state.status = Some(state.credits.settled()));
        }
        if let Some(settled) = self.status {
            step(&|state| {
                state.arrivals.settled(settled).unwrap();
                state.status = None;
            });
        }
        found
    }

    /// Ends all transfers, successfully or not, and reads their frames; then all slots are free again.
    fn check_end(mut self, slots: u32) {
        for transfer in std::mem::take(&mut self.transfers) {
            assert!(self.credits.end(transfer.place.0, transfer.arrived));
        }
        while let Some(place) = self.credits.due() {
            self.credits.start();
            self.arrivals.arrived(place.slot, 1).unwrap();
            assert!(self.credits.end(place.position, true));
        }
        self.arrivals.settled(self.credits.settled()).unwrap();
        for reader in std::mem::take(&mut self.readers) {
            assert!(self.arrivals.release(reader));
        }
        while let Some((place, _)) = self.arrivals.read() {
            assert!(self.arrivals.release(place.position));
        }
        assert_eq!(self.arrivals.consumed(), self.credits.sent(), "every position has ended");
        self.credits.consume(self.arrivals.consumed()).unwrap();
        assert_eq!((self.credits.free_slots(), self.credits.needs_status()), (slots, false));
    }
}

fn search(slots: u32, first: u32, frames: u32) -> usize {
    let mut seen = HashSet::new();
    let mut open = vec![State::new(slots, first)];
    while let Some(state) = open.pop() {
        if seen.contains(&state) {
            continue;
        }
        open.extend(state.steps(slots, frames));
        state.clone().check_end(slots);
        seen.insert(state);
    }
    seen.len()
}

#[test]
fn credits_no_slot_written_while_read_and_none_lost() {
    for (slots, frames) in [(1, 4), (2, 4)] {
        // The range of positions ends in the middle of the frames.
        for first in [0, u32::MAX, u32::MAX - 1] {
            let states = search(slots, first, frames);
            assert!(states > 100, "{slots} slots from {first}: {states} states");
        }
    }
}

#[test]
fn credits_impossible_value_is_refused() {
    let mut credits = Credits::new(4, u32::MAX).unwrap();
    for _ in 0..3 {
        assert!(credits.reserve());
        credits.start();
    }
    // From MAX to 2, with every kind of wrap.
    for impossible in [3, 100, 1 << 31, u32::MAX - 1] {
        let error = credits.consume(impossible).unwrap_err();
        assert_eq!((error.found, error.consumed, error.started), (impossible, u32::MAX, 2));
        assert!(error.to_string().contains("4294967295 to 2"), "{error}");
    }
    assert_eq!(credits.consume(1), Ok(2));
    assert!(credits.consume(0).is_err(), "the count decreases");
    assert_eq!(credits.free_slots(), 1, "a slot whose transfer has not ended is not free");
    assert!(credits.end(u32::MAX, true) && credits.end(0, true));
    assert_eq!(credits.free_slots(), 3);
    for slots in [0, 3, 8192, u32::MAX] {
        assert_eq!(Credits::new(slots, 0), None, "{slots}");
    }
}
