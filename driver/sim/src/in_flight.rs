//! Network between the cards, with its impairments.

use fpga_card::Card;
use fpga_netmodel::{ImpairedLink, Impairments, LinkCounters, OrderError};
use fpga_protocol::time::Nanos;

/// Maximum number of frames on the wire; beyond it the cards get back-pressure.
const CAPACITY: usize = 4096;

/// A frame and the card whose buffer it is.
pub(crate) type Sent = (usize, Vec<u8>);

/// Frames in flight.
#[derive(Debug)]
pub(crate) struct FramesInFlight {
    path: ImpairedLink<Sent>,
    /// Whether frames take time: a frame that is not due is not delivered early.
    timed: bool,
    pub(crate) undeliverable: u64,
}

impl FramesInFlight {
    pub(crate) fn new(impairments: Impairments, seed: u64) -> Result<Self, OrderError> {
        let plain = Impairments::default();
        let timed = impairments.distance != plain.distance
            || impairments.rate != plain.rate
            || impairments.data.delay != plain.data.delay
            || impairments.control.delay != plain.control.delay;
        Ok(Self { path: ImpairedLink::new(impairments, CAPACITY, seed)?, timed, undeliverable: 0 })
    }

    /// Whether the impairments give frames a delay or a rate.
    pub(crate) const fn is_timed(&self) -> bool {
        self.timed
    }

    /// Whether frames are on the way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.path.is_empty()
    }

    /// Takes frames that card `sender` has to send while there is space.
    pub(crate) fn fill(&mut self, sender: usize, card: &mut Card, now: Nanos) {
        // Copies and lost frames of the network use the sender's buffers, too: no allocation.
        let mut spare = None;
        while self.path.len() < CAPACITY {
            let Some((frame, now)) = card.take_frame_at(now) else { break };
            if spare.is_none() {
                spare = Some((sender, card.spare_frame()));
            }
            match self.path.offer_with(now, (sender, frame), &mut spare) {
                Ok(None) => {}
                Ok(Some((_, lost))) => card.recycle_frame(lost),
                // Excluded by the check above.
                Err((_, frame)) => {
                    card.recycle_frame(frame);
                    self.undeliverable += 1;
                }
            }
        }
        if let Some((_, frame)) = spare {
            card.recycle_frame(frame);
        }
    }

    /// Returns the next frame that is due.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Sent> {
        self.path.poll(now)
    }

    /// Returns any frame when there is no other work and frames take no time: frames held for reordering would otherwise never be
    /// delivered.
    pub(crate) fn next_when_idle(&mut self) -> Option<Sent> {
        if self.timed { None } else { self.path.poll_any() }
    }

    /// Deadline of the next frame.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.path.poll_timeout()
    }

    pub(crate) const fn counters(&self) -> &LinkCounters {
        self.path.counters()
    }
}
