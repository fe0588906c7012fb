//! Phases after the work: every node joins and gets frames, leaves, and nothing remains.

use fpga_protocol::Nanos;

use super::node::{Choice, Role, max_silence};
use super::{World, end_limit};
use crate::model::{Checked, Outcome, Violation, check};
use crate::node::{check_endpoint, count_endpoint};
use crate::schedule::Stage as _;

/// Rounds of frames that every subscriber must get.
const ROUNDS: u32 = 3;

impl World<'_> {
    /// Lets time pass until `done`, within `limit`.
    fn until(
        &mut self,
        phase: &str,
        limit: Nanos,
        mut done: impl FnMut(&mut Self) -> Result<bool, Violation>,
    ) -> Checked {
        let end = self.now().saturating_add(limit);
        while !done(self)? {
            self.turn(end)?;
            check(self.now() < end, || {
                let states: Vec<String> = (0..self.nodes.len()).map(|number| self.state(number)).collect();
                format!(
                    "{phase}: not ended {} ms after the world has healed: {states:#?}",
                    limit.get() / 1_000_000
                )
            })?;
        }
        Ok(())
    }

    fn state(&self, number: usize) -> String {
        match &self.nodes[number].role {
            Role::Source { publisher, filled } => {
                let views: Vec<_> = publisher.subscribers().collect();
                let (free, statistics) = (publisher.free_slots(), publisher.statistics());
                format!("publisher: {free} slots free, {} filled, {views:?}, {statistics:?}", filled.len())
            }
            Role::Subscribed(of) => format!(
                "subscriber: {:?}, member {}, expects {}, holds {}, {:?}",
                of.choice,
                of.member,
                of.expected,
                of.held.len(),
                of.subscriber.counts()
            ),
            Role::Leaving { choice, is_done, .. } => format!("leaving: {choice:?}, done {is_done}"),
            Role::Joining(_, choice) => format!("joining: {choice:?}"),
            Role::Idle => "idle".to_owned(),
        }
    }

    /// Begins the joins of nodes that do nothing. Returns whether every node has joined whose publisher has space for it.
    fn join_all(&mut self) -> Result<bool, Violation> {
        let mut is_whole = true;
        for number in self.work.sources.len()..self.nodes.len() {
            let source = number % self.work.sources.len();
            match &self.nodes[number].role {
                Role::Subscribed(_) => {}
                Role::Idle => {
                    let Role::Source { publisher, .. } = &self.nodes[source].role else { continue };
                    if publisher.subscribers().count() >= self.work.sources[source].subscribers as usize
                        && !publisher.subscribers().any(|view| view.node.get() as usize == number + 1)
                    {
                        continue;
                    }
                    is_whole = false;
                    let hold = Nanos::from_micros(20);
                    let since = self.now();
                    self.join(number, Choice { source, life: 0, slots: 2, hold, since })?;
                }
                _ => is_whole = false,
            }
        }
        Ok(is_whole)
    }

    /// Whether no frame is held or in flight, and all credits were returned.
    fn is_settled(&self) -> bool {
        self.nodes.iter().enumerate().all(|(number, node)| match &node.role {
            Role::Source { publisher, filled } => {
                let slots = self.work.sources[number].slots;
                if publisher.free_slots() != slots as usize {
                    return false;
                }
                let share = if publisher.subscribers().count() > 1 { (slots / 2).max(1) } else { u32::MAX };
                filled.is_empty() && publisher.subscribers().all(|view| view.room == view.slots.min(share))
            }
            Role::Subscribed(subscription) => subscription.held.is_empty(),
            Role::Leaving { is_done, .. } => *is_done,
            Role::Joining(..) => false,
            Role::Idle => true,
        })
    }

    /// Whether every subscriber has got every frame.
    fn is_delivered(&self) -> bool {
        self.nodes.iter().all(|node| match &node.role {
            Role::Subscribed(of) => {
                let next = self.streams[of.choice.source].last().map(super::Stream::next);
                of.choice.life + 1 == self.streams[of.choice.source].len() && next == Some(of.expected)
            }
            _ => true,
        })
    }

    /// Publishes one frame of each publisher.
    fn publish_round(&mut self) -> Checked {
        let now = self.now();
        for source in 0..self.work.sources.len() {
            self.probes += 1;
            let length = self.probes as u64 % (self.work.sources[source].data + 1);
            let is_taken = self.fill(source, (self.probes, length, 0), now, false)?;
            check(is_taken, || format!("publisher {source} has no frame to fill"))?;
            let Role::Source { publisher, .. } = &self.nodes[source].role else { continue };
            let count = publisher.subscribers().count();
            let sent = self.streams[source].last().and_then(|stream| stream.records.last());
            let sent = sent.map_or(0, |record| record.sent.len() as usize);
            check(sent == count, || format!("a frame of {source} is sent to {sent} of {count} with space"))?;
        }
        Ok(())
    }

    /// Waits until all nodes have joined and all frames have arrived, and publishes frames that must arrive.
    pub(super) fn probe(&mut self) -> Checked {
        self.probe_rounds()?;
        if self.work.rests {
            let limit = self.now().saturating_add(Nanos::from(max_silence(self.plan) * 2));
            while self.now() < limit {
                self.turn(limit)?;
            }
            self.coverage.count("streams rest", 1);
            self.probe_rounds()?;
        }
        // Frames that are in flight when the streams end.
        for source in 0..self.work.sources.len() {
            for _ in 0..4 {
                self.probes += 1;
                let now = self.now();
                self.fill(source, (self.probes, self.work.sources[source].data, 0), now, false)?;
            }
        }
        Ok(())
    }

    fn probe_rounds(&mut self) -> Checked {
        let mut rounds = 0;
        self.until("joins and frames", end_limit(self.plan), |world| {
            if !world.join_all()? || !world.is_settled() || !world.is_delivered() && rounds > 0 {
                return Ok(false);
            }
            rounds += 1;
            if rounds <= ROUNDS {
                world.publish_round()?;
            }
            Ok(rounds > ROUNDS)
        })
    }

    /// All nodes leave; the publishers close before or afterwards.
    pub(super) fn leave_all(&mut self) -> Checked {
        self.is_final = true;
        let limit = end_limit(self.plan);
        if !self.work.closes_first {
            self.leave_each(limit)?;
            self.until("departures are known", limit, |world| {
                let is_left = |node: &super::Node| match &node.role {
                    Role::Source { publisher, .. } => publisher.subscribers().count() == 0,
                    _ => true,
                };
                Ok(world.nodes.iter().all(is_left) && world.is_settled())
            })?;
        }
        for source in 0..self.work.sources.len() {
            let Role::Source { publisher, .. } = &mut self.nodes[source].role else { continue };
            publisher.begin_close();
            if let Some(stream) = self.streams[source].last_mut() {
                stream.is_closing = true;
            }
        }
        self.until("ends of streams", limit, |world| {
            Ok(world.nodes.iter().all(|node| match &node.role {
                Role::Source { publisher, .. } => publisher.is_closed(),
                Role::Subscribed(subscription) => subscription.is_ended && subscription.held.is_empty(),
                _ => true,
            }))
        })?;
        if self.work.closes_first {
            self.leave_each(limit)?;
        }
        Ok(())
    }

    fn leave_each(&mut self, limit: Nanos) -> Checked {
        for number in 0..self.nodes.len() {
            self.leave(number);
        }
        self.until("departures", limit, |world| {
            let is_left = |node: &super::Node| {
                matches!(&node.role, Role::Source { .. } | Role::Idle | Role::Leaving { is_done: true, .. })
            };
            Ok(world.nodes.iter().all(is_left))
        })
    }

    /// Waits until the receivers' timers have expired, and checks that all tables are empty and all slots are free.
    pub(super) fn rest(&mut self) -> Checked {
        let span = Nanos::from(self.plan.registry_timeout()).saturating_add(Nanos::from_millis(60));
        let limit = self.now().saturating_add(span).saturating_add(self.plan.longest_way());
        self.is_quiet = true;
        while self.now() < limit {
            self.turn(limit)?;
        }
        for number in 0..self.nodes.len() {
            self.network.advance(Nanos::from_micros(20));
            self.poll(number)?;
        }
        for (number, node) in self.nodes.iter().enumerate() {
            if let Some(endpoint) = node.role.endpoint() {
                check_endpoint(number, endpoint)?;
            }
            if let Role::Source { publisher, .. } = &node.role {
                let (free, slots) = (publisher.free_slots(), self.work.sources[number].slots as usize);
                check(free == slots, || format!("publisher {number}: {free} of {slots} slots are free"))?;
            }
        }
        Ok(())
    }

    /// Checks memory, and ends all processes.
    pub(super) fn close(mut self) -> Result<Outcome, Violation> {
        let time = self.now();
        for number in 0..self.nodes.len() {
            self.nodes[number].check_guards(&self.network, number)?;
            if let Some(endpoint) = self.nodes[number].role.endpoint() {
                count_endpoint(endpoint, &mut self.coverage);
            }
            self.count(number);
            self.nodes[number].end(number)?;
            let (mapped, refused) =
                (self.network.mapped_bytes(number), self.network.refused_accesses(number));
            check(mapped == 0, || format!("node {number}: {mapped} bytes of host memory stay mapped"))?;
            check(self.nodes[number].was_removed || (refused.reads, refused.writes) == (0, 0), || {
                format!("node {number}: the card has accessed host memory that is not mapped: {refused:?}")
            })?;
        }
        let (frames, coverage) = self.wires.finish();
        self.trace.add(&[frames.hash(), frames.events]);
        self.coverage.join(&coverage);
        Ok(Outcome { trace: self.trace, coverage: self.coverage, time })
    }

    /// Counts what a publisher has counted.
    fn count(&mut self, number: usize) {
        let Role::Source { publisher, .. } = &self.nodes[number].role else { return };
        let statistics = publisher.statistics();
        let internal = statistics.internal;
        let states = [
            ("streams publisher postponed", internal.postponed),
            ("streams publisher fetched again", internal.fetched_again),
            ("streams publisher stray notifications", internal.stray_notifications),
            ("streams publisher resent statuses", internal.resent),
            ("streams publisher failed frames", statistics.failed),
            ("streams publisher shared transfers", statistics.sent.saturating_sub(statistics.transfers)),
        ];
        for (name, times) in states.into_iter().filter(|(_, times)| *times > 0) {
            self.coverage.count(name, times);
        }
    }
}
