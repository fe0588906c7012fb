//! Polls of the processes, and checks of what they report.

use fpga_frames::bootstrap::wire::Reason;
use fpga_frames::{BootstrapError, DropReason, Event, JoinError, PublisherEvent};
use fpga_protocol::Nanos;

use super::model::Member;
use super::node::{Choice, Role, Subscription};
use super::{IDLE_POLL, QUIET_POLL, World};
use crate::model::{Checked, Violation, check};

/// Share of the give-up time, in thousandths, from which a silence excuses a failure.
const EXCUSE: u64 = 400;

/// First word of a value's debug text.
fn kind_of(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

impl World<'_> {
    /// Whether transfers between a node and a publisher may have failed since a time.
    pub(super) fn is_excused(&self, node: usize, source: usize, since: Nanos) -> bool {
        let trouble = self.outages.trouble(self.plan, (node, source), since, self.network.now());
        let was_impaired =
            self.healed.is_none_or(|healed| since < healed.saturating_add(self.plan.longest_way()));
        // A transfer that waits for others is given up, if few packets fit into its time.
        let is_far = self.plan.round_trip() * 50 >= self.plan.give_up();
        trouble.is_restarted
            || trouble.silence >= EXCUSE
            || (was_impaired || is_far) && (trouble.is_harsh || trouble.lacks_answers)
    }

    /// Polls a process.
    pub(super) fn poll(&mut self, number: usize) -> Checked {
        let work = match &mut self.nodes[number].role {
            Role::Idle => 0,
            Role::Source { .. } => self.poll_source(number)?,
            Role::Joining(..) => self.poll_joining(number)?,
            Role::Subscribed(_) => self.poll_subscriber(number)?,
            Role::Leaving { .. } => self.poll_leaving(number)?,
        };
        let node = &mut self.nodes[number];
        node.idle_polls = if work > 0 { 0 } else { node.idle_polls.saturating_add(1) };
        let longest = if node.idle_polls < 8 {
            self.plan.cards.poll
        } else {
            let idle = self.plan.cards.poll.saturating_mul(1 << (node.idle_polls / 8).min(10));
            idle.min(if self.is_quiet { QUIET_POLL } else { IDLE_POLL })
        };
        node.next_poll = self.network.now().saturating_add(Nanos::new(1 + self.polls.below(longest.get())));
        Ok(())
    }

    fn poll_source(&mut self, number: usize) -> Result<usize, Violation> {
        self.publish_due(number)?;
        let Role::Source { publisher, .. } = &mut self.nodes[number].role else { return Ok(0) };
        let work =
            publisher.poll().map_err(|error| Violation(format!("publisher {number} failed: {error}")))?;
        self.take_publisher_events(number)?;
        Ok(work)
    }

    /// Takes the events of a publisher. Taking a frame may raise some as well.
    pub(super) fn take_publisher_events(&mut self, number: usize) -> Checked {
        let Role::Source { publisher, .. } = &mut self.nodes[number].role else { return Ok(()) };
        let events: Vec<PublisherEvent> = std::iter::from_fn(|| publisher.next_event()).collect();
        events.into_iter().try_for_each(|event| self.take_publisher_event(number, event))
    }

    fn take_publisher_event(&mut self, number: usize, event: PublisherEvent) -> Checked {
        let now = self.network.now();
        let life = self.streams[number].len() - 1;
        let next = self.streams[number][life].next();
        match event {
            PublisherEvent::Joined { id, node, first } => {
                self.coverage.count("streams joined", 1);
                let node = (node.get() as usize).wrapping_sub(1);
                self.trace.add(&[3, now.get(), number as u64, node as u64]);
                check(first.get() == next, || format!("{id} joins at frame {first}, the next is {next}"))?;
                let Role::Source { publisher, .. } = &self.nodes[number].role else { return Ok(()) };
                let slots = publisher.subscribers().find(|view| view.id == id).map_or(0, |view| view.slots);
                self.streams[number][life].members.push(Member {
                    id,
                    node,
                    first: next,
                    slots,
                    since: now,
                    in_flight: std::collections::VecDeque::new(),
                    lost: 0,
                    failed: 0,
                    is_leaving: false,
                    dropped: None,
                });
            }
            PublisherEvent::Dropped { id, node, reason, statistics } => {
                self.coverage.count(&format!("streams dropped {}", kind_of(&reason)), 1);
                self.trace.add(&[4, now.get(), number as u64, node.get().into()]);
                let members = &mut self.streams[number][life].members;
                let position = members.iter().position(|member| member.id == id);
                let position = position.ok_or_else(|| Violation(format!("unknown {id} was dropped")))?;
                members[position].dropped = Some(statistics);
                let member = &self.streams[number][life].members[position];
                let is_current = self.is_current(number, life, position);
                let is_allowed = match reason {
                    DropReason::Unsubscribed => member.is_leaving,
                    DropReason::Replaced => !is_current,
                    DropReason::Unreachable { .. } => {
                        !is_current || member.is_leaving || self.is_excused(member.node, number, member.since)
                    }
                    _ => false,
                };
                check(is_allowed, || format!("{reason:?} without a cause: publisher {number}, {member:?}"))?;
            }
            PublisherEvent::Rejected { .. } => self.coverage.count("streams join rejected", 1),
            other => return Err(Violation(format!("publisher {number}: {other:?}"))),
        }
        Ok(())
    }

    /// Whether a member is the subscription that its node has now.
    fn is_current(&self, source: usize, life: usize, member: usize) -> bool {
        let wanted = (source, life, member);
        match &self.nodes[self.streams[source][life].members[member].node].role {
            Role::Subscribed(of) => (of.choice.source, of.choice.life, of.member) == wanted,
            Role::Leaving { choice, member, .. } => (choice.source, choice.life, *member) == wanted,
            _ => false,
        }
    }

    fn poll_joining(&mut self, number: usize) -> Result<usize, Violation> {
        let Role::Joining(joining, choice) = &mut self.nodes[number].role else { return Ok(0) };
        let choice = *choice;
        let subscriber = match joining.poll() {
            Ok(None) => return Ok(0),
            Ok(Some(subscriber)) => subscriber,
            Err(error) => {
                self.check_join_error(number, &choice, &error)?;
                self.abandon(number)?;
                return Ok(1);
            }
        };
        self.trace.add(&[5, self.network.now().get(), number as u64]);
        let members = &self.streams[choice.source][choice.life].members;
        let found = members.iter().rposition(|member| member.node == number && member.slots == choice.slots);
        let member =
            found.ok_or_else(|| Violation(format!("node {number} has joined without its publisher")))?;
        let (expected, first) = (subscriber.expected().get(), members[member].first);
        check(expected == first, || {
            format!("node {number} expects frame {expected}, its publisher sends those from {first} on")
        })?;
        self.nodes[number].role = Role::Subscribed(Box::new(Subscription {
            held: Vec::new(),
            subscriber,
            choice,
            member,
            expected,
            is_ended: false,
        }));
        Ok(1)
    }

    /// Checks that a join may fail.
    fn check_join_error(&mut self, number: usize, choice: &Choice, error: &JoinError) -> Checked {
        let source = &self.work.sources[choice.source];
        let excused = self.is_excused(number, choice.source, choice.since);
        let stream = &self.streams[choice.source][choice.life];
        let is_replaced =
            choice.life + 1 < self.streams[choice.source].len() || self.nodes[choice.source].downs > 0;
        let JoinError::Bootstrap(reason) = error else {
            return Err(Violation(format!("join of node {number}: {error}")));
        };
        let (name, is_allowed) = match reason {
            BootstrapError::Refused { refusal, .. } => (
                kind_of(&refusal.reason),
                match refusal.reason {
                    // Former subscriptions may have been dropped since the refusal.
                    Reason::Taken => {
                        stream.members.iter().any(|member| member.node == number)
                            && !refusal.text.contains("accepts transfers")
                    }
                    Reason::Full => stream.members.len() >= source.subscribers as usize,
                    Reason::Closing => stream.is_closing,
                    _ => false,
                },
            ),
            BootstrapError::Closed { .. } | BootstrapError::Broken { .. } => {
                (kind_of(reason), is_replaced || excused || source.conversations < self.plan.nodes)
            }
            BootstrapError::TimedOut { .. } => (kind_of(reason), is_replaced || excused),
            _ => (String::new(), false),
        };
        self.coverage.count(&format!("streams join failed: {name}"), 1);
        check(is_allowed, || format!("join of node {number} failed without a cause: {error}; {choice:?}"))
    }

    fn poll_subscriber(&mut self, number: usize) -> Result<usize, Violation> {
        let mut work = self.release_due(number)?;
        loop {
            let Role::Subscribed(subscription) = &mut self.nodes[number].role else { return Ok(work) };
            if subscription.is_ended {
                // Only the statistics and the end of fetches follow.
                let ended = subscription.subscriber.poll();
                check(matches!(ended, Ok(Some(Event::Ended { .. }))), || {
                    format!("node {number}: {ended:?} after the end")
                })?;
                return Ok(work);
            }
            match subscription.subscriber.poll() {
                Ok(None) => return Ok(work),
                Ok(Some(event)) => {
                    work += 1;
                    self.take_event(number, event)?;
                }
                Err(error) => {
                    let choice = subscription.choice;
                    let stream = &self.streams[choice.source][choice.life];
                    let is_dropped = stream.members[subscription.member].dropped.is_some();
                    self.coverage.count(&format!("streams subscriber failed: {}", kind_of(&error)), 1);
                    let excused = is_dropped || self.is_excused(number, choice.source, choice.since);
                    check(excused, || format!("subscriber {number} failed without a cause: {error}"))?;
                    self.abandon(number)?;
                    return Ok(work + 1);
                }
            }
        }
    }

    fn take_event(&mut self, number: usize, event: Event) -> Checked {
        let now = self.network.now();
        let Role::Subscribed(subscription) = &mut self.nodes[number].role else { return Ok(()) };
        let Choice { source, life, hold, since, .. } = subscription.choice;
        let (member, expected) = (subscription.member, subscription.expected);
        let stream = &mut self.streams[source][life];
        match event {
            Event::Frame(frame) => {
                let sequence = frame.sequence().get();
                self.trace.add(&[6, now.get(), number as u64, sequence]);
                self.coverage.count("streams frame received", 1);
                check(sequence == expected, || {
                    format!("node {number} gets frame {sequence} and not {expected}, without a gap")
                })?;
                stream.check_frame(member, &frame)?;
                subscription.expected = expected.wrapping_add(1);
                let due = now.saturating_add(Nanos::new(self.polls.below(hold.get() + 1)));
                subscription.held.push((due, frame));
                self.release_due(number).map(|_| ())
            }
            Event::Gap { missed, first } => {
                self.trace.add(&[7, now.get(), number as u64, missed]);
                check(first.get() == expected, || {
                    format!("node {number} misses frames from {first} on and not from {expected} on")
                })?;
                subscription.expected = expected.wrapping_add(missed);
                let lost = stream.miss(member, expected, missed)?;
                self.coverage.count("streams gap", 1);
                self.coverage.count("streams frame lost", lost);
                let failed = self.failed_frames(source, life, member);
                let member = &self.streams[source][life].members[member];
                check(member.lost <= failed, || {
                    format!("{} frames are missed, and {failed} failed: {member:?}", member.lost)
                })?;
                check(lost == 0 || self.is_excused(number, source, since), || {
                    format!("node {number} misses {lost} frames that were sent, without a cause")
                })
            }
            Event::Ended { next } => {
                self.coverage.count("streams ended", 1);
                subscription.is_ended = true;
                let wanted = stream.next();
                check(stream.is_closing && next.get() == wanted && expected == wanted, || {
                    format!(
                        "node {number}: the stream ends at {next}, expected {expected}, published {wanted}"
                    )
                })
            }
            other => Err(Violation(format!("node {number}: {other:?}"))),
        }
    }

    /// Number of frames to a subscriber whose transfers have failed, as its publisher knows.
    fn failed_frames(&self, source: usize, life: usize, member: usize) -> u64 {
        let member = &self.streams[source][life].members[member];
        match (&self.nodes[source].role, member.dropped) {
            (_, Some(statistics)) => statistics.failed,
            (Role::Source { publisher, .. }, None) if life + 1 == self.streams[source].len() => {
                let view = publisher.subscribers().find(|view| view.id == member.id);
                view.map_or(0, |view| view.statistics.failed)
            }
            // A publisher that has ended does not tell.
            _ => u64::MAX,
        }
    }

    /// Returns the frames that were held long enough, and compares them again.
    fn release_due(&mut self, number: usize) -> Result<usize, Violation> {
        let now = self.network.now();
        let Role::Subscribed(subscription) = &mut self.nodes[number].role else { return Ok(0) };
        let Choice { source, life, .. } = subscription.choice;
        let stream = &mut self.streams[source][life];
        let mut count = 0;
        while let Some(at) = subscription.held.iter().position(|(due, _)| *due <= now) {
            let (_, frame) = subscription.held.swap_remove(at);
            stream.check_frame(subscription.member, &frame)?;
            stream.members[subscription.member].release(frame.sequence().get());
            count += 1;
        }
        Ok(count)
    }

    fn poll_leaving(&mut self, number: usize) -> Result<usize, Violation> {
        let Role::Leaving { leaving, choice, member, is_done } = &mut self.nodes[number].role else {
            return Ok(0);
        };
        let (choice, member) = (*choice, *member);
        match leaving.poll() {
            Ok(None) => return Ok(0),
            Ok(Some(_)) if *is_done => return Ok(0),
            Ok(Some(_)) => *is_done = true,
            Err(error) => {
                let is_dropped = self.streams[choice.source][choice.life].members[member].dropped.is_some();
                let excused = is_dropped || self.is_excused(number, choice.source, choice.since);
                check(excused, || format!("subscriber {number} cannot leave: {error}"))?;
                self.coverage.count("streams leave failed", 1);
                self.abandon(number)?;
                return Ok(1);
            }
        }
        self.trace.add(&[8, self.network.now().get(), number as u64]);
        self.coverage.count("streams left", 1);
        self.nodes[number].freeze(&self.network, number);
        // At the end the endpoint stays, so that its tables can be checked.
        if !self.is_final {
            self.abandon(number)?;
        }
        Ok(1)
    }
}
