//! Effects of answers and timeouts on contexts and transfers.

use fpga_firmware::generated::DELAY_UNIT_NS;
use fpga_firmware::wire::{AnswerBody, Flags, MessageAnswer, NackReason};

use super::{Context, MAX_DOUBLINGS, Sender, SenderConfig, Stage};
use crate::scheme::MessageSender;
use crate::scheme::message_scheme::{MessageScheme, ReusableSender};
use crate::sender::{Command, SendFailure};
use crate::time::Nanos;
use fpga_registers::cast::index;

/// Returns the time at which a refused message begins again: when the receiver expects to have space, if it reports that. Nodes
/// that are refused together spread over an eighth of that time. In any case before its receiver's silence timeout.
fn held_until<R: MessageScheme>(
    now: Nanos,
    config: &SenderConfig<R>,
    context: &Context<R::Sender>,
    delay: u16,
) -> Nanos {
    let wait = if delay == 0 {
        config.ask.saturating_mul(1 << context.tries.min(MAX_DOUBLINGS))
    } else {
        let wait = u64::from(delay) * u64::from(DELAY_UNIT_NS);
        let spread = u64::from((config.node.get() ^ context.number << 8).wrapping_mul(0x9E37_79B9) >> 24);
        Nanos::new(wait + wait * spread / 2048)
    };
    now.saturating_add(wait.min(Nanos::new(config.give_up.get() / 4)))
}

impl<R: MessageScheme> Sender<R> {
    pub(super) fn answer(&mut self, now: Nanos, answer: &MessageAnswer) {
        let slot = u32::from(answer.message.context());
        let known = self.contexts.get(index(slot)).is_some_and(|context| {
            context.stage != Stage::Idle
                && context.number == answer.message.number()
                && context.node == answer.common.source
                && answer.peer_incarnation == self.incarnation
                && answer.common.destination == self.config.node
        });
        if !known {
            self.counters.stale += 1;
            return;
        }
        let transfer = self.contexts[index(slot)].transfer;
        let incarnation = answer.common.incarnation;
        let known = *self.transfers.get_mut(transfer).incarnation.get_or_insert(incarnation);
        if incarnation.is_earlier_than(known) {
            self.counters.stale += 1;
            return;
        }
        if known != incarnation {
            // The state of the other incarnation is lost, including acknowledged packets.
            let error = self.refused(slot, NackReason::Unknown);
            self.fail(now, transfer, error);
            return;
        }
        let context = &mut self.contexts[index(slot)];
        context.last_heard = now;
        match answer.body {
            AnswerBody::Accepted => {
                self.transfers.get_mut(transfer).not_ready = None;
                context.peer_context = answer.context;
                if context.stage != Stage::Sending {
                    // Karn's rule: of several requests it is not known which one was answered. The time since the
                    // first one is a sample only if there is no better one.
                    let certain = context.tries == 1 || self.paths.trip(context.path).samples == 0;
                    let delay = certain.then(|| now.saturating_sub(context.requested));
                    context.stage = Stage::Sending;
                    if let Some(delay) = delay {
                        self.sample(now, slot, delay);
                    }
                    let context = &mut self.contexts[index(slot)];
                    context.end.begin(now, context.count, false, &self.paths.trip(context.path));
                }
            }
            AnswerBody::Refused(NackReason::Busy | NackReason::EscapeFull, delay) => {
                self.counters.busy += 1;
                // A packet may have been accepted since: then there is a context.
                if context.peer_context.is_none() && !matches!(context.stage, Stage::BackedOff(_)) {
                    context.tries = context.tries.saturating_add(1);
                    context.stage = Stage::BackedOff(held_until(now, &self.config, context, delay));
                }
            }
            AnswerBody::Refused(NackReason::NotReady, delay) => {
                self.counters.not_ready += 1;
                if context.peer_context.is_none() {
                    let record = self.transfers.get_mut(transfer);
                    let since = *record.not_ready.get_or_insert(now);
                    let is_over = now.saturating_sub(since) >= self.config.give_up;
                    if record.command.deadline.is_none() && is_over {
                        let error = self.refused(slot, NackReason::NotReady);
                        self.fail(now, transfer, error);
                        return;
                    }
                    if !matches!(context.stage, Stage::BackedOff(_)) {
                        context.tries = context.tries.saturating_add(1);
                        context.stage = Stage::BackedOff(held_until(now, &self.config, context, delay));
                    }
                }
            }
            AnswerBody::Superseded(newest) => {
                let (node, address) = (context.node, context.announcement.base);
                self.fail(now, transfer, SendFailure::Superseded { node, address, newest });
                return;
            }
            AnswerBody::Refused(reason, _) => {
                let error = self.refused(slot, reason);
                self.fail(now, transfer, error);
                return;
            }
            AnswerBody::Done => {
                // A message of one packet has no other answer.
                if let Some(flow) = &mut self.flow
                    && context.end.gives_delays()
                    && (context.count, context.sent) == (1, 1)
                {
                    flow.sample(now, context.node, now.saturating_sub(context.last_sent));
                }
                self.message_done(now, slot);
                return;
            }
            _ => {
                self.transfers.get_mut(transfer).not_ready = None;
                if context.peer_context.is_none() {
                    context.peer_context = answer.context;
                }
                if let (Stage::BackedOff(_), false) = (context.stage, context.end.requests_context()) {
                    // It was accepted after the refusal.
                    context.stage = Stage::Sending;
                }
                if let (Stage::Sending, Some(said)) = (context.stage, super::super::from_wire(&answer.body)) {
                    let again = context.end.in_flight().map_or(0, |(_, again)| again);
                    context.end.handle_answer(now, &said);
                    let lost = context.end.in_flight().map_or(0, |(_, now)| now.saturating_sub(again));
                    let marked = answer.common.flags.contains(Flags::ECHO);
                    let covered = context.end.take_covered();
                    let (delay, node, path) = (context.end.take_delay(), context.node, context.path);
                    self.paths.note_route(now, path, answer.common.path, marked, delay);
                    self.paths.control(path, |config, window| {
                        window.note_lost(lost);
                        window.note_arrived(covered.saturating_sub(delay.is_some().into()));
                        window.note_senders(config, answer.senders);
                        if let Some(delay) = delay {
                            window.sample(config, now, delay, marked);
                        }
                    });
                    self.recount(slot);
                    if let Some(delay) = delay {
                        if let Some(flow) = &mut self.flow {
                            flow.sample(now, node, delay);
                        }
                        self.sample(now, slot, delay);
                    }
                    if self.contexts[index(slot)].end.is_done() {
                        self.message_done(now, slot);
                        return;
                    }
                }
            }
        }
        self.touch(slot);
    }

    /// Records a round trip of a context's path. After the first one, every context of the path has its timers from
    /// it: a wrong first guess ends here.
    fn sample(&mut self, now: Nanos, slot: u32, delay: Nanos) {
        let path = self.contexts[index(slot)].path;
        if !self.paths.sample(path, delay) {
            return;
        }
        let trip = self.paths.trip(path);
        for other in (0..self.config.contexts).filter(|other| *other != slot) {
            let context = &mut self.contexts[index(other)];
            if context.stage != Stage::Idle && context.path == path {
                context.end.learn(now, &trip);
                self.watch(other);
            }
        }
    }

    pub(super) fn refused(&self, slot: u32, reason: NackReason) -> SendFailure {
        let context = &self.contexts[index(slot)];
        let (node, address) = (context.node, context.announcement.base);
        let acknowledged = self.transfers.get(context.transfer).acknowledged;
        let tries = context.tries.max(1);
        match reason {
            NackReason::Unknown => SendFailure::Forgotten { node, address, acknowledged, tries },
            NackReason::Scheme => SendFailure::Scheme { node, address },
            NackReason::NotReady => SendFailure::ReceiverNotReady { node, address, acknowledged, tries },
            reason => SendFailure::Refused { node, address, acknowledged, tries, reason },
        }
    }

    /// Frees a context for the next message.
    pub(super) fn release(&mut self, now: Nanos, slot: u32) {
        let part = self.part(self.contexts[index(slot)].number);
        let context = &mut self.contexts[index(slot)];
        let before = core::mem::take(&mut context.in_flight);
        self.paths.recount(context.path, before, 0);
        self.paths.give_back(context.path);
        self.opened |= self.held.count() > 0;
        context.stage = Stage::Idle;
        context.left[part] = now.max(Nanos::new(1));
        self.timers.stop(slot);
        for set in [&mut self.ready, &mut self.low, &mut self.paced, &mut self.held] {
            set.remove(slot);
        }
        self.idle.push_back(&mut self.links, slot);
        self.blocked = false;
    }

    pub(super) fn message_done(&mut self, now: Nanos, slot: u32) {
        self.counters.messages += 1;
        let Context { transfer, count, .. } = self.contexts[index(slot)];
        self.release(now, slot);
        let record = self.transfers.get_mut(transfer);
        record.done += 1;
        record.acknowledged += u64::from(count);
        if record.done == record.messages {
            self.timers.stop(self.config.contexts + transfer);
            self.transfers.finish(now, transfer, Ok(()));
            self.counters.completed += 1;
        } else {
            self.news.insert(transfer);
        }
    }

    pub(super) fn fail(&mut self, now: Nanos, transfer: u32, error: SendFailure) {
        for slot in 0..self.config.contexts {
            let context = &self.contexts[index(slot)];
            if context.stage != Stage::Idle && context.transfer == transfer {
                self.release(now, slot);
            }
        }
        self.timers.stop(self.config.contexts + transfer);
        self.transfers.finish(now, transfer, Err(error));
        self.counters.failed += 1;
    }

    pub(super) fn context_timeout(&mut self, now: Nanos, slot: u32) {
        let context = &mut self.contexts[index(slot)];
        if context.last_heard.saturating_add(self.config.give_up) <= now {
            let (node, address, transfer) = (context.node, context.announcement.base, context.transfer);
            let tries = context.tries.max(u8::from(context.sent > 0));
            let acknowledged = self.transfers.get(transfer).acknowledged;
            self.counters.timeouts += 1;
            self.fail(now, transfer, SendFailure::Unanswered { node, address, acknowledged, tries });
            return;
        }
        match context.stage {
            Stage::RequestSent(at) if at <= now => {
                self.counters.timeouts += 1;
                context.stage = Stage::RequestDue;
            }
            Stage::BackedOff(at) if at <= now => {
                context.stage =
                    if context.end.requests_context() { Stage::RequestDue } else { Stage::Sending };
                context.end.begin(now, context.count, false, &self.paths.trip(context.path));
            }
            Stage::Sending => {
                let marked = context.end.in_flight().map_or(0, |(_, marked)| marked);
                let timeouts = context.end.handle_timeout(now);
                let lost = context.end.in_flight().map_or(0, |(_, now)| now.saturating_sub(marked));
                self.counters.timeouts += u64::from(timeouts);
                self.paths.control(context.path, |config, window| {
                    window.note_lost(lost);
                    if timeouts > 0 {
                        window.note_timeout(config, now);
                    } else if lost == 1 {
                        window.grant();
                    }
                });
                self.opened |= (lost > 0 || timeouts > 0) && self.held.count() > 0;
                if context.end.take_inquiry()
                    && let Some(flow) = &mut self.flow
                {
                    flow.inquire(now, context.node, self.paths.late_route(context.path));
                }
            }
            _ => {}
        }
        self.recount(slot);
        self.touch(slot);
    }

    pub(super) fn deadline(&mut self, now: Nanos, slot: u32) {
        let transfer = self.transfers.get(slot);
        let Command { node, destination: address, .. } = transfer.command;
        let acknowledged = transfer.acknowledged;
        let live = || self.contexts.iter().filter(|context| context.stage != Stage::Idle);
        // A transfer that has not begun waits for others that the receiver is not ready for.
        let waits = || {
            transfer.needs_slot()
                && live().any(|context| {
                    context.node == node && self.transfers.get(context.transfer).not_ready.is_some()
                })
        };
        let error = if transfer.not_ready.is_some() || waits() {
            let of_transfer = |context: &&Context<R::Sender>| context.transfer == slot;
            let tries = live().filter(of_transfer).map(|context| context.tries).max().unwrap_or(0);
            SendFailure::ReceiverNotReady { node, address, acknowledged, tries }
        } else {
            let tries = u8::from(transfer.packets > 0);
            SendFailure::Deadline { node, address, acknowledged, tries }
        };
        self.fail(now, slot, error);
    }
}
