//! The network between the cards, with everything that may happen to frames.

use fpga_card::Card;
use fpga_netmodel::{ImpairedLink, Impairments, LinkCounters, OrderError};
use fpga_protocol::time::Nanos;

/// Frames on the wire at once; beyond that cards are held back.
const CAPACITY: usize = 4096;

/// A frame and the card whose buffer it is.
pub(crate) type Sent = (usize, Vec<u8>);

/// Frames on their way.
#[derive(Debug)]
pub(crate) struct FramesInFlight {
    path: ImpairedLink<Sent>,
    /// Frames take their time: one that is not due is not delivered for want of anything else to do.
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

    /// Takes what card `sender` has to send, as far as there is room.
    pub(crate) fn fill(&mut self, sender: usize, card: &mut Card, now: Nanos) {
        // What the network copies and loses is of the sender's buffers, too: nothing is allocated for it.
        let mut spare = None;
        while self.path.len() < CAPACITY {
            let Some(frame) = card.take_frame() else { break };
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

    /// The next frame that is due.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Sent> {
        self.path.poll(now)
    }

    /// Any frame at all, for when nothing else is left to do and frames take no time: those that wait for company would wait in
    /// vain.
    pub(crate) fn next_when_idle(&mut self) -> Option<Sent> {
        if self.timed { None } else { self.path.poll_any() }
    }

    /// When the next frame is due.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.path.poll_timeout()
    }

    pub(crate) const fn counters(&self) -> &LinkCounters {
        self.path.counters()
    }
}
