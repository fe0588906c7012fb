//! What is behind the lock: cards with their host sides, the network, time; and how work is done.

use crate::backend::SimBackend;
use crate::dma::RemoteMemory;
use crate::host::HostSide;
use crate::in_flight::{FramesInFlight, Sent};
use crate::link::UdpLink;
use crate::threaded::posted::{Cursor, PostedWrite};
use fpga_card::{Card, CardCounters};
use fpga_firmware::NodeId;
use fpga_protocol::time::Nanos;
use std::sync::Weak;
use std::time::Instant;

/// Units of work that a card that works by itself is given at a time at most.
const UNITS: u32 = 64;
/// So many bytes moved are enough for once: a few microseconds, after which somebody may want the lock.
const BURST_BYTES: u64 = 64 * 1024;
/// What a frame costs, as so many bytes.
const FRAME_BYTES: u64 = 2048;
/// Frames delivered at a time at most.
const BURST_FRAMES: u32 = 16;

/// How a card fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CardFailure {
    /// It works.
    None,
    /// It left the bus: accesses report [`fpga_pci::MmioError::Gone`], configuration space reads as all ones, it does
    /// nothing any more.
    Gone,
    /// Registers read as all ones and take no writes, but configuration space answers (lost memory decoding, a
    /// partial reconfiguration).
    AllOnes,
}

/// One card with its host side.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) card: Card,
    pub(crate) host: HostSide,
    pub(crate) failure: CardFailure,
    /// Counts resets, so that BARs opened before one are refused.
    pub(crate) generation: u32,
    pub(crate) opened: Weak<SimBackend>,
    /// Where the card's queue of posted writes was emptied up to; stays at its start where writes are made at once.
    pub(crate) posted: Cursor,
    /// Units of work at a time: fewer where they are long ones.
    units: u32,
}

impl Slot {
    pub(crate) fn new(card: Card) -> Self {
        Self {
            card,
            host: HostSide::default(),
            failure: CardFailure::None,
            generation: 0,
            opened: Weak::new(),
            posted: Cursor::default(),
            units: UNITS,
        }
    }

    /// A posted write arrives.
    pub(crate) fn apply(&mut self, write: PostedWrite) {
        if self.failure == CardFailure::None && write.is_of(self.generation) {
            self.card.bar_write(write.bar(), write.offset(), &write.value(), &mut self.host);
        }
    }

    /// Some work, for a few microseconds if it goes on as before.
    fn burst(&mut self, now: Nanos) -> u32 {
        if self.failure == CardFailure::Gone {
            return 0;
        }
        let before = cost(self.card.counters());
        if let Some(owner) = self.host.map.remote_memory().cloned() {
            return self.burst_with_client_memory(now, owner.as_ref());
        }
        let done = self.card.work(now, &mut self.host, self.units);
        if done != 0 {
            let cost = cost(self.card.counters()).wrapping_sub(before);
            if cost > BURST_BYTES {
                let units = u64::from(self.units) * BURST_BYTES / cost;
                self.units = u32::try_from(units).unwrap_or(UNITS).max(1);
            } else if cost <= BURST_BYTES / 2 {
                self.units = (self.units * 2).min(UNITS);
            }
        }
        done
    }

    /// The same for a card whose client is asked for its memory: unit by unit, each with the owner's whole time limit, until the owner
    /// has kept the card waiting.
    fn burst_with_client_memory(&mut self, now: Nanos, owner: &dyn RemoteMemory) -> u32 {
        let mut done = 0;
        while done < UNITS {
            owner.begin_unit();
            match self.card.work(now, &mut self.host, 1) {
                0 => break,
                units => done += units,
            }
            if owner.is_budget_used() {
                break;
            }
        }
        done
    }

    /// What a hot reset does, and the kernel after it: it restores what it owns of configuration space; bus mastering is
    /// the driver's. BARs that were opened before are stale.
    pub(crate) fn reset(&mut self) {
        self.card.reset();
        self.card.set_command(true, false);
        self.failure = CardFailure::None;
        self.generation = self.generation.wrapping_add(1);
    }

    /// What closing the device does: bus mastering goes first, so that afterwards nothing is left that could reach
    /// the memory.
    pub(crate) fn close(&mut self) {
        self.card.hand_back();
        self.host.signals.clear_all();
        self.host.map.unmap_all();
    }
}

/// What a card has done, as bytes moved.
const fn cost(counters: &CardCounters) -> u64 {
    let bytes = counters.h2c_bytes.wrapping_add(counters.c2h_bytes).wrapping_add(counters.cdma_bytes);
    let frames = counters.frames_sent.wrapping_add(counters.frames_received);
    bytes.wrapping_add(frames.wrapping_mul(FRAME_BYTES))
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) slots: Vec<Slot>,
    pub(crate) network: FramesInFlight,
    /// The way to cards elsewhere.
    pub(crate) link: Option<UdpLink>,
    /// When time began, in a world that shares it with others: nothing is virtual there.
    pub(crate) epoch: Option<Instant>,
    pub(crate) now: Nanos,
    pub(crate) unit_time: Nanos,
    pub(crate) idle_time: Nanos,
    pub(crate) units_per_relax: u32,
    pub(crate) turn: usize,
    /// Frames that are delivered together; empty between two bursts.
    pub(crate) inbox: Vec<Sent>,
    /// Units of work that the cards did by themselves.
    pub(crate) worked: u64,
    /// What a defect in a card would be.
    #[cfg(test)]
    pub(crate) panics: bool,
}

impl State {
    /// Some work. Returns whether there was any.
    pub(crate) fn relax(&mut self) -> bool {
        if let Some(epoch) = self.epoch {
            // Every look at the link is a system call, so there is one for as much work as a burst holds.
            self.now = self.now.max(since(epoch));
            return self.burst() > 0;
        }
        for _ in 0..self.units_per_relax {
            if !self.step() {
                self.advance_time(self.idle_time);
                return false;
            }
        }
        true
    }

    /// Advances virtual time to the next timer, or to `limit`: there was nothing to do at time `before`, and a pause of the driver's takes
    /// no longer than what happens in it.
    pub(crate) fn advance_to_next_event(&mut self, before: Nanos, limit: Nanos) {
        if self.epoch.is_none() {
            // What was due before has brought no work, and must not hold time up. What falls due in the last step is next.
            let next = self.next_deadline_after(before);
            self.now = self.now.max(next.map_or(limit, |next| next.min(limit)));
        }
    }

    pub(crate) fn step(&mut self) -> bool {
        if let Some(epoch) = self.epoch {
            self.now = self.now.max(since(epoch));
        }
        if self.receive(1) != 0 {
            return true;
        }
        let participants = self.slots.len() + 1;
        for _ in 0..participants {
            let participant = self.turn;
            self.turn = (self.turn + 1) % participants;
            let worked = match self.slots.get_mut(participant) {
                Some(slot) if slot.failure == CardFailure::Gone => false,
                Some(slot) => {
                    let worked = slot.card.step(self.now, &mut slot.host);
                    self.network.fill(participant, &mut slot.card, self.now);
                    worked
                }
                None => match self.network.next(self.now) {
                    Some((sender, frame)) => {
                        self.deliver(sender, frame);
                        true
                    }
                    None => false,
                },
            };
            if worked {
                self.advance_time(self.unit_time);
                return true;
            }
        }
        // Frames that wait for company would wait in vain.
        let Some((sender, frame)) = self.network.next_when_idle() else { return false };
        self.deliver(sender, frame);
        self.advance_time(self.unit_time);
        true
    }

    /// Lets virtual time pass.
    fn advance_time(&mut self, span: Nanos) {
        if self.epoch.is_none() {
            self.now = self.now.saturating_add(span);
        }
    }

    /// Takes up to `most` frames from elsewhere.
    fn receive(&mut self, most: u32) -> u32 {
        let Self { slots, network, link: Some(link), now, .. } = self else { return 0 };
        for taken in 0..most {
            let is_here = |node: NodeId| slots.iter().any(|slot| slot.card.node_id() == node.get());
            let Some(frame) = link.receive(is_here) else { return taken };
            let receiver = slots
                .iter_mut()
                .enumerate()
                .find(|(_, slot)| Some(slot.card.node_id()) == destination(frame));
            if let Some((number, slot)) = receiver
                && slot.failure != CardFailure::Gone
            {
                slot.card.receive_frame(*now, frame);
                network.fill(number, &mut slot.card, *now);
            }
        }
        most
    }

    fn deliver(&mut self, sender: usize, frame: Vec<u8>) {
        let destination = destination(&frame);
        let receiver =
            self.slots.iter_mut().enumerate().find(|(_, slot)| Some(slot.card.node_id()) == destination);
        match receiver {
            Some((number, slot)) if slot.failure != CardFailure::Gone => {
                slot.card.receive_frame(self.now, &frame);
                self.network.fill(number, &mut slot.card, self.now);
            }
            // Not here; a card that is gone does not live elsewhere.
            None if self.link.is_some() => {
                if let Some(link) = &mut self.link {
                    link.send(&frame);
                }
            }
            _ => self.network.undeliverable += 1,
        }
        if let Some(slot) = self.slots.get_mut(sender) {
            slot.card.recycle_frame(frame);
        }
    }

    /// Delivers what is due, answers that are due at once included, up to a burst. Returns the frames.
    fn deliver_burst(&mut self) -> u64 {
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut room = BURST_FRAMES;
        loop {
            while let Some(less) = room.checked_sub(1)
                && let Some(sent) = self.network.next(self.now)
            {
                inbox.push(sent);
                room = less;
            }
            if inbox.is_empty() {
                self.inbox = inbox;
                return (BURST_FRAMES - room).into();
            }
            for slot in self.slots.iter().filter(|slot| slot.card.expects_frames()) {
                let node = Some(slot.card.node_id());
                inbox
                    .iter()
                    .filter(|(_, frame)| destination(frame) == node)
                    .for_each(|(_, frame)| slot.card.expect_frame(frame));
            }
            for (sender, frame) in inbox.drain(..) {
                self.deliver(sender, frame);
            }
        }
    }

    /// What the worker does at a time: a burst of every card, and some deliveries. Returns the units; 0 says that nothing
    /// is left to do at this time.
    pub(crate) fn burst(&mut self) -> u64 {
        #[cfg(test)]
        assert!(!self.panics, "as the test asked for");
        let mut done = 0;
        for (number, slot) in self.slots.iter_mut().enumerate() {
            done += u64::from(slot.burst(self.now));
            self.network.fill(number, &mut slot.card, self.now);
        }
        done += u64::from(self.receive(BURST_FRAMES));
        done += self.deliver_burst();
        if done == 0
            && let Some((sender, frame)) = self.network.next_when_idle()
        {
            // As in `step`.
            self.deliver(sender, frame);
            done = 1;
        }
        self.worked += done;
        done
    }

    /// Posted writes of all cards taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.slots.iter().map(|slot| slot.posted.taken()).sum()
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let cards = self.slots.iter().filter_map(|slot| slot.card.next_deadline());
        cards.chain(self.network.next_deadline()).min()
    }

    /// The next deadline after `time`, by which everything was done that was due.
    pub(crate) fn next_deadline_after(&self, time: Nanos) -> Option<Nanos> {
        let cards = self.slots.iter().filter_map(|slot| slot.card.next_deadline_after(time));
        cards.chain(self.network.next_deadline().filter(|deadline| *deadline > time)).min()
    }
}

fn since(epoch: Instant) -> Nanos {
    Nanos::new(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Destination node: the third word of every packet's header.
fn destination(frame: &[u8]) -> Option<u32> {
    let bytes = frame.get(8..12)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}
