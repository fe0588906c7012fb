//! Network between the cards, with its impairments.

use crate::fabric::Fabric;
use crate::hop::{HopQueue, SimHop};
use fpga_card::Card;
use fpga_netmodel::{Class, Frame as _, ImpairedLink, Impairments, LinkCounters, OrderError};
use fpga_protocol::time::Nanos;
use fpga_registers::bytes::u32_at;

/// Maximum number of frames on the wire; beyond it the cards get back-pressure.
pub(crate) const CAPACITY: usize = 4096;

/// A frame and the card whose buffer it is.
pub(crate) type Sent = (usize, Vec<u8>);

/// Frames in flight.
#[derive(Debug)]
pub(crate) struct FramesInFlight {
    path: ImpairedLink<Sent>,
    /// Network of the caller, which takes all frames.
    fabric: Option<Box<dyn Fabric>>,
    /// Hops in the order in which frames pass them.
    pub(crate) hops: Vec<HopQueue>,
    /// Whether frames take time: a frame that is not due is not delivered early.
    timed: bool,
    /// Whether frames pass unchanged, in order and at once.
    transparent: bool,
    pub(crate) undeliverable: u64,
}

impl FramesInFlight {
    pub(crate) fn new(impairments: Impairments, hops: Vec<SimHop>, seed: u64) -> Result<Self, OrderError> {
        let plain = Impairments::default();
        let timed = !hops.is_empty()
            || impairments.distance != plain.distance
            || impairments.rate != plain.rate
            || impairments.data.delay != plain.data.delay
            || impairments.control.delay != plain.control.delay;
        let transparent = hops.is_empty() && impairments == plain;
        let hops = hops.into_iter().map(|hop| HopQueue::new(hop, seed)).collect::<Result<_, _>>()?;
        let path = ImpairedLink::new(impairments, CAPACITY, seed)?;
        Ok(Self { path, fabric: None, hops, timed, transparent, undeliverable: 0 })
    }

    /// Passes all frames to a network of the caller, which takes time.
    pub(crate) fn with_fabric(mut self, fabric: Option<Box<dyn Fabric>>) -> Self {
        self.timed |= fabric.is_some();
        self.transparent &= fabric.is_none();
        self.fabric = fabric;
        self
    }

    /// Changes the time that frames travel from now on.
    pub(crate) const fn set_distance(&mut self, distance: Nanos) {
        self.path.set_distance(distance);
        (self.timed, self.transparent) = (true, false);
    }

    /// Returns whether the impairments give frames a delay or a rate.
    pub(crate) const fn is_timed(&self) -> bool {
        self.timed
    }

    /// Returns whether a frame would leave at once and unchanged.
    pub(crate) fn is_bypassable(&self) -> bool {
        self.transparent && !self.is_busy()
    }

    /// Counts `frames` data frames of `bytes` bytes together that have bypassed the network.
    pub(crate) fn note_passed(&mut self, frames: u64, bytes: u64) {
        self.path.note_passed(Class::Data, frames, bytes);
    }

    /// Returns whether frames are on the way.
    pub(crate) fn is_busy(&self) -> bool {
        self.len() != 0
    }

    pub(crate) fn len(&self) -> usize {
        let beside = self.fabric.as_ref().map_or(0, |fabric| fabric.in_flight());
        self.hops.iter().fold(self.path.len() + beside, |sum, hop| sum.saturating_add(hop.frames.len()))
    }

    /// Passes a frame to the next hop, from hop `first` on, or to the network behind them. Returns a frame that is lost.
    ///
    /// # Errors
    /// The frame, if there is no space for it.
    fn admit(
        &mut self,
        first: usize,
        now: Nanos,
        sent: Sent,
        spare: &mut Option<Sent>,
    ) -> Result<Option<Sent>, Sent> {
        if let Some(fabric) = &mut self.fabric {
            fabric.offer(now, sent.0, sent.1);
            return Ok(None);
        }
        if self.hops.is_empty() {
            return self.path.offer_with(now, sent, spare);
        }
        let (node, path) = (u32_at(&sent.1, 8), sent.path());
        let passes = |hop: &&mut HopQueue| node.is_some_and(|node| hop.is_for(node, path));
        let hop = self.hops.iter_mut().skip(first).find(passes);
        let Some(hop) = hop else { return self.path.offer_with(now, sent, spare) };
        let action = hop.arrive(now, &sent.1);
        let owner = sent.0;
        let taken = if action.forwards {
            let before = hop.frames.counters().data.overflowed + hop.frames.counters().control.overflowed;
            let taken = hop.frames.offer_with(now, sent, spare);
            let after = hop.frames.counters().data.overflowed + hop.frames.counters().control.overflowed;
            hop.counters.overflowed += after - before;
            taken
        } else {
            Ok(Some(sent))
        };
        if let Some(frame) = action.sends {
            // It leaves at the hop's own switch, and takes the way of any frame. Without space it is lost.
            let _ = self.admit(0, now, (owner, frame), &mut None);
        }
        taken
    }

    /// Moves frames that have left a hop on.
    fn pass_hops(&mut self, now: Nanos) {
        for at in 0..self.hops.len() {
            while let Some(sent) = self.hops.get_mut(at).and_then(|hop| hop.frames.poll(now)) {
                if self.admit(at + 1, now, sent, &mut None).is_err() {
                    self.undeliverable += 1;
                }
            }
        }
    }

    /// Takes a frame that reaches the network at `at`. Returns a frame that is lost, also if the network has no space.
    pub(crate) fn accept(&mut self, at: Nanos, sent: Sent, spare: &mut Option<Sent>) -> Option<Sent> {
        match self.admit(0, at, sent, spare) {
            Ok(lost) => lost,
            Err(refused) => {
                self.undeliverable += 1;
                Some(refused)
            }
        }
    }

    /// Takes frames that card `sender` has to send while there is space.
    pub(crate) fn fill(&mut self, sender: usize, card: &mut Card, now: Nanos) {
        // Copies and lost frames of the network use the sender's buffers, too: no allocation.
        let mut spare = None;
        while self.len() < CAPACITY {
            let Some((frame, now)) = card.take_frame_at(now) else { break };
            if spare.is_none() {
                spare = Some((sender, card.spare_frame()));
            }
            if let Some((_, lost)) = self.accept(now, (sender, frame), &mut spare) {
                card.recycle_frame(lost);
            }
        }
        if let Some((_, frame)) = spare {
            card.recycle_frame(frame);
        }
    }

    /// Returns the next frame that is due.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Sent> {
        if let Some(fabric) = &mut self.fabric {
            return fabric.poll(now);
        }
        self.pass_hops(now);
        self.path.poll(now)
    }

    /// Returns any frame when there is no other work and frames take no time: frames held for reordering would otherwise never be
    /// delivered.
    pub(crate) fn next_when_idle(&mut self) -> Option<Sent> {
        if self.timed { None } else { self.path.poll_any() }
    }

    /// Deadline of the next frame.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let hops = self.hops.iter().filter_map(|hop| hop.frames.poll_timeout());
        let fabric = self.fabric.as_ref().and_then(|fabric| fabric.poll_timeout());
        hops.chain(self.path.poll_timeout()).chain(fabric).min()
    }

    pub(crate) const fn counters(&self) -> &LinkCounters {
        self.path.counters()
    }
}
