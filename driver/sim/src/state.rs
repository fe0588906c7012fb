//! State behind the lock: cards with their host sides, the network, time; and the order of work.

use crate::dma::RemoteMemory;
use crate::host::{DirectPort, HostSide};
use crate::in_flight::Sent;
use crate::link::{Link, ReceivedFrame};
use crate::partition::port::Frames;
use crate::served::ServerAlarm;
use crate::threaded::posted::{Cursor, PostedWrite};
use crate::time::TimeSpent;
use fpga_card::{Card, CardCounters, DesignPoll, FrameSource as _, TimePart};
use fpga_firmware::NodeId;
use fpga_protocol::time::Nanos;
use fpga_registers::bytes::u32_at;
use std::sync::Weak;
use std::time::Instant;

/// Maximum number of units of work that a card does in one call when it works by itself.
const UNITS: u32 = 64;
/// Maximum number of bytes moved in one burst: a few microseconds, after which another thread may want the lock.
const BURST_BYTES: u64 = 64 * 1024;
/// Cost of a frame, expressed in bytes.
const FRAME_BYTES: u64 = 2048;
/// Maximum number of frames delivered in one burst.
const BURST_FRAMES: u32 = 16;
/// The same with a link to other processes: a frame that leaves or arrives is copied, and many share a system call.
const LINK_BURST_FRAMES: u32 = 64;

/// Failure mode of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CardFailure {
    /// The card works.
    None,
    /// The card has left the bus: accesses report [`fpga_pci::MmioError::Gone`], configuration space reads as all ones, and the card does
    /// no work.
    Gone,
    /// Registers read as all ones and ignore writes, but configuration space answers (lost memory decoding, a partial reconfiguration).
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
    /// Held by the backends of the card: they share its mappings and interrupts.
    pub(crate) opened: Weak<()>,
    /// Position up to which the card's queue of posted writes was drained; stays at its start where writes are executed at once.
    pub(crate) posted: Cursor,
    /// Units of work per call: fewer if they are long.
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

    /// Executes a posted write.
    pub(crate) fn apply(&mut self, write: PostedWrite) {
        if self.failure == CardFailure::None && write.is_of(self.generation) {
            self.card.bar_write(write.bar(), write.offset(), &write.value(), &mut self.host);
        }
    }

    /// Does some work, for a few microseconds at the current rate.
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

    /// Same as [`burst`](Self::burst) for a card whose client is asked for its memory: unit by unit, each with the full time limit of the
    /// owner, until the owner has used the wait budget.
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

    /// Performs a hot reset and the kernel's actions after it: the kernel restores the parts of configuration space that it owns; bus
    /// mastering belongs to the driver. Earlier opened BARs become stale.
    pub(crate) fn reset(&mut self) {
        self.card.reset();
        self.card.set_command(true, false);
        self.failure = CardFailure::None;
        self.generation = self.generation.wrapping_add(1);
    }

    /// Closes the device: bus mastering is switched off first, so that afterwards nothing can reach the memory.
    pub(crate) fn close(&mut self) {
        self.card.hand_back();
        self.host.signals.clear_all();
        self.host.map.unmap_all();
    }
}

/// Work of a card so far, expressed in bytes moved.
const fn cost(counters: &CardCounters) -> u64 {
    let bytes = counters.h2c_bytes.wrapping_add(counters.c2h_bytes).wrapping_add(counters.cdma_bytes);
    let frames = counters.frames_sent.wrapping_add(counters.frames_received);
    bytes.wrapping_add(frames.wrapping_mul(FRAME_BYTES))
}

/// All state behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) slots: Vec<Slot>,
    pub(crate) network: Frames,
    /// Link to cards in other processes.
    pub(crate) link: Option<Link>,
    /// Start of time in a simulated network that shares it with other processes: time is real there.
    pub(crate) epoch: Option<Instant>,
    pub(crate) now: Nanos,
    /// Time that a partition must not pass before it has exchanged frames with the others; [`Nanos::MAX`] without others.
    pub(crate) horizon: Nanos,
    /// Where the virtual time went.
    pub(crate) spent: TimeSpent,
    pub(crate) unit_time: Nanos,
    pub(crate) idle_time: Nanos,
    pub(crate) units_per_relax: u32,
    pub(crate) turn: usize,
    /// Frames that are delivered together; empty between bursts.
    pub(crate) inbox: Vec<Sent>,
    /// Units of work that the cards did by themselves.
    pub(crate) worked: u64,
    /// Sleeping servers that drive the network in real time.
    pub(crate) alarms: Vec<Weak<ServerAlarm>>,
    /// Simulates a defect in a card.
    #[cfg(test)]
    pub(crate) panics: bool,
}

impl State {
    /// Does some work. Returns whether there was any.
    pub(crate) fn relax(&mut self) -> bool {
        if let Some(epoch) = self.epoch {
            // Every poll of the link is a system call, so there is one per burst of work.
            self.now = self.now.max(since(epoch));
            return self.burst() > 0;
        }
        // The poll itself takes time; the cards work meanwhile.
        let began = self.now;
        let end = began.saturating_add(self.unit_time).min(self.horizon);
        let mut units = 0;
        while units < self.units_per_relax && self.step_until(end) {
            units += 1;
        }
        if units == 0 {
            // Nothing to do: up to the next event, which a poll does not miss.
            self.rest(began.saturating_add(self.idle_time));
        } else if units < self.units_per_relax {
            self.pass(end);
            self.exchange_frames(end);
        }
        units > 0
    }

    /// Lets time pass until `target` or the next event before it: there is nothing to do now.
    pub(crate) fn rest(&mut self, target: Nanos) {
        loop {
            let next = self.next_deadline_after(self.now).map_or(target, |next| next.min(target));
            self.pass(next);
            if self.now < self.horizon {
                return;
            }
            self.exchange_frames(next);
            if self.now >= next {
                return;
            }
        }
    }

    /// At the horizon: exchanges frames with the other partitions, which gives a later horizon. Waits for them. `until`: time before which
    /// this partition does nothing unless a frame arrives.
    fn exchange_frames(&mut self, until: Nanos) {
        if self.now < self.horizon {
            return;
        }
        let idle = self.work_deadline().is_none();
        if let Frames::Port(port) = &mut self.network {
            self.horizon = port.exchange(idle, until, self.horizon);
            if let Some(slot) = self.slots.first_mut() {
                port.give_back(&mut slot.card);
            }
        }
    }

    /// Advances virtual time to the next timer, or to `limit`: there was nothing to do at time `before`, and a pause of the driver lasts no
    /// longer than the events in it.
    pub(crate) fn advance_to_next_event(&mut self, before: Nanos, limit: Nanos) {
        if self.epoch.is_none() {
            // Timers that were due before have caused no work, and must not stop time. Timers that fall due in the last step are next.
            let next = self.next_deadline_after(before);
            self.rest(next.map_or(limit, |next| next.min(limit)));
        }
    }

    /// Does one unit of work, also one that is in progress and ends later. Returns whether there was any.
    pub(crate) fn step(&mut self) -> bool {
        self.step_until(Nanos::MAX)
    }

    /// Does one unit of work that ends by `limit`; time passes until its end. Timers that are due later do not count as work.
    pub(crate) fn step_until(&mut self, limit: Nanos) -> bool {
        // At the horizon itself, frames of other partitions may be due.
        let limit = limit.min(self.horizon.saturating_sub(Nanos::new(1)));
        loop {
            if self.now >= self.horizon {
                return false;
            }
            if self.step_now() {
                return true;
            }
            match self.work_deadline() {
                Some(end) if end <= limit && end > self.now => self.pass(end),
                Some(end) if end > limit => return false,
                // Also if a deadline has passed without work.
                _ => return self.epoch.is_none() && self.deliver_held(),
            }
        }
    }

    /// Next end of work in progress: of a unit of a card, or of a frame's way through a network that holds no frames back.
    fn work_deadline(&self) -> Option<Nanos> {
        if self.epoch.is_some() {
            return None;
        }
        let mut next = if self.network.is_timed() { None } else { self.network.next_deadline() };
        for slot in self.slots.iter().filter(|slot| slot.failure != CardFailure::Gone) {
            next = earlier(next, slot.card.work_deadline());
        }
        next
    }

    /// Part that is working; `None` if nothing is in progress.
    fn part_in_progress(&self) -> Option<TimePart> {
        let cards = self.slots.iter().filter(|slot| slot.failure != CardFailure::Gone);
        let part = cards.filter_map(|slot| slot.card.part_in_progress()).max();
        part.or_else(|| self.network.is_busy().then_some(TimePart::Network))
    }

    /// Does one unit of work at the current time.
    fn step_now(&mut self) -> bool {
        if let Some(epoch) = self.epoch {
            self.now = self.now.max(since(epoch));
        }
        if self.link.is_some() && self.receive(1) != 0 {
            return true;
        }
        let participants = self.slots.len() + 1;
        for _ in 0..participants {
            let participant = self.turn;
            self.turn = if participant + 1 < participants { participant + 1 } else { 0 };
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
                        self.flush();
                        true
                    }
                    None => false,
                },
            };
            if worked {
                return true;
            }
        }
        self.epoch.is_some() && self.deliver_held()
    }

    /// Delivers a frame held for reordering, which would otherwise never be delivered. Returns `false` if there is none.
    fn deliver_held(&mut self) -> bool {
        let Some((sender, frame)) = self.network.next_when_idle() else { return false };
        self.deliver(sender, frame);
        self.flush();
        true
    }

    /// Lets virtual time pass until `end`; all work that was due is done.
    pub(crate) fn pass(&mut self, end: Nanos) {
        let end = end.min(self.horizon);
        if end > self.now {
            self.spent.add(self.part_in_progress(), end.saturating_sub(self.now));
            self.now = end;
        }
    }

    /// Receives up to `most` frames from other processes.
    fn receive(&mut self, most: u32) -> u32 {
        let Self { slots, network, link: Some(link), now, .. } = self else { return 0 };
        for taken in 0..most {
            let is_here = |node: NodeId| slots.iter().any(|slot| slot.card.node_id() == node.get());
            let Some(frame) = link.receive_shared(is_here) else { return taken };
            let start = match &frame {
                ReceivedFrame::Copied(frame) => frame,
                ReceivedFrame::Shared(frame) => frame.start(),
            };
            let node = destination(start);
            let receiver = slots.iter_mut().enumerate().find(|(_, slot)| Some(slot.card.node_id()) == node);
            if let Some((number, slot)) = receiver
                && slot.failure != CardFailure::Gone
            {
                receive_frame(&mut slot.card, *now, frame);
                network.fill(number, &mut slot.card, *now);
            }
        }
        most
    }

    /// Sends the frames that wait for a system call of the link.
    fn flush(&mut self) {
        if let Some(link) = &mut self.link {
            link.flush();
        }
    }

    /// Delivers a frame. One that leaves through the link waits for [`flush`](Self::flush).
    fn deliver(&mut self, sender: usize, frame: Vec<u8>) {
        let destination = destination(&frame);
        let receiver =
            self.slots.iter_mut().enumerate().find(|(_, slot)| Some(slot.card.node_id()) == destination);
        match receiver {
            Some((number, slot)) if slot.failure != CardFailure::Gone => {
                slot.card.receive_frame(self.now, &frame);
                self.network.fill(number, &mut slot.card, self.now);
            }
            // The node is not here; a card that is gone is not in another process.
            None if self.link.is_some() => {
                if let Some(link) = &mut self.link {
                    link.queue(&frame);
                }
            }
            _ => self.network.count_undeliverable(),
        }
        if let Some(frame) = self.network.take_back(sender, frame)
            && let Some(slot) = self.slots.get_mut(sender)
        {
            slot.card.recycle_frame(frame);
        }
    }

    /// Delivers the frames that are due, including replies that are due at once, up to a burst. Returns the number of frames.
    fn deliver_burst(&mut self) -> u64 {
        let mut inbox = std::mem::take(&mut self.inbox);
        let most = if self.link.is_some() { LINK_BURST_FRAMES } else { BURST_FRAMES };
        let mut room = most;
        loop {
            while let Some(less) = room.checked_sub(1)
                && let Some(sent) = self.network.next(self.now)
            {
                inbox.push(sent);
                room = less;
            }
            if inbox.is_empty() {
                self.inbox = inbox;
                self.flush();
                return (most - room).into();
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

    /// One iteration of the worker: a burst of every card, and some deliveries. Returns the number of units; 0 means that nothing remains
    /// to do at this time.
    pub(crate) fn burst(&mut self) -> u64 {
        #[cfg(test)]
        assert!(!self.panics, "panic requested by the test");
        let mut done = 0;
        // Several cards may send to each other: their frames pass the network.
        let bypasses = self.slots.len() == 1 && self.network.is_bypassable();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if bypasses {
                slot.host.direct.link = self.link.take();
            }
            done += u64::from(slot.burst(self.now));
            if bypasses {
                let DirectPort { link, frames, bytes } = std::mem::take(&mut slot.host.direct);
                self.link = link;
                self.network.with_path(|path| path.note_passed(frames, bytes));
            }
            self.network.fill(number, &mut slot.card, self.now);
        }
        done += u64::from(self.receive(LINK_BURST_FRAMES));
        done += self.deliver_burst();
        if done == 0 && self.deliver_held() {
            done = 1;
        }
        self.worked += done;
        done
    }

    /// Posted writes of all cards executed so far.
    pub(crate) fn taken(&self) -> u64 {
        self.slots.iter().map(|slot| slot.posted.taken()).sum()
    }

    /// Advances time to that of the servers, for work on another thread: they do so only between their sleeps.
    pub(crate) fn catch_up(&mut self) {
        let Some(now) = self.alarms.iter().filter_map(Weak::upgrade).map(|alarm| alarm.now()).max() else {
            return;
        };
        self.now = self.now.max(now);
        for slot in &mut self.slots {
            slot.card.set_now(self.now);
        }
    }

    /// Raises a line of a card's user interrupts, as of [`SimNetwork::pulse_user_interrupt`](crate::SimNetwork::pulse_user_interrupt).
    pub(crate) fn pulse_user_interrupt(&mut self, card: usize, line: u8) -> Option<bool> {
        self.catch_up();
        let slot = self.slots.get_mut(card)?;
        let acknowledged = slot.card.pulse_user_interrupt(line, &mut slot.host);
        self.wake_servers();
        acknowledged
    }

    /// Wakes the servers that sleep beyond the next deadline, after work on another thread.
    pub(crate) fn wake_servers(&mut self) {
        if self.alarms.is_empty() {
            return;
        }
        self.alarms.retain(|alarm| alarm.strong_count() != 0);
        if let Some(deadline) = self.next_deadline() {
            self.alarms.iter().filter_map(Weak::upgrade).for_each(|alarm| alarm.wake_before(deadline));
        }
    }

    /// Looks for responses of designs: whether there are some, or the time until the next look.
    pub(crate) fn poll_designs(&mut self) -> DesignPoll {
        let polled = self.slots.iter_mut().map(|slot| slot.card.poll_design());
        polled.fold(DesignPoll::Idle, |one, other| match (one, other) {
            (DesignPoll::Responded, _) | (_, DesignPoll::Responded) => DesignPoll::Responded,
            (DesignPoll::Waiting(one), DesignPoll::Waiting(other)) => DesignPoll::Waiting(one.min(other)),
            (DesignPoll::Idle, other) => other,
            (one, _) => one,
        })
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let cards = self.slots.iter().filter_map(|slot| slot.card.next_deadline());
        cards.chain(self.network.next_deadline()).min()
    }

    /// Returns the next deadline after `time`; all work due by `time` is done.
    pub(crate) fn next_deadline_after(&self, time: Nanos) -> Option<Nanos> {
        let cards = self.slots.iter().filter_map(|slot| slot.card.next_deadline_after(time));
        cards.chain(self.network.next_deadline().filter(|deadline| *deadline > time)).min()
    }
}

/// Passes a frame of the link to a card.
fn receive_frame(card: &mut Card, now: Nanos, frame: ReceivedFrame<'_>) {
    let copied = match frame {
        ReceivedFrame::Copied(frame) => Some(frame),
        ReceivedFrame::Shared(frame) if card.receive_in_place(now, &frame) => None,
        ReceivedFrame::Shared(frame) => frame.into_copy(),
    };
    if let Some(frame) = copied {
        card.receive_frame(now, frame);
    }
}

/// Returns the earlier of two times, if there is any.
fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn since(epoch: Instant) -> Nanos {
    Nanos::from(epoch.elapsed())
}

/// Destination node: the third word of every packet's header.
fn destination(frame: &[u8]) -> Option<u32> {
    u32_at(frame, 8)
}
