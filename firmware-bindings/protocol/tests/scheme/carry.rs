//! One message on the reference path, for the schemes of cards and for the baselines of the network simulator.

use fpga_protocol::Nanos;
use fpga_protocol::scheme::{Answer, MessageReceiver, MessageSender, Packet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The reference path: 10 GB/s, 800 ns one way, packets of 512 bytes and a header.
pub(crate) const PACKET_TIME: Nanos = Nanos::new(55);
pub(crate) const ONE_WAY: Nanos = Nanos::new(800);
pub(crate) const ROUND_TRIP: Nanos = Nanos::new(1655);

/// Result of a message on the reference path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageOutcome {
    /// Time when the sender knew that the whole message had arrived; `None`: not before the limit.
    pub(crate) done: Option<Nanos>,
    pub(crate) sent: u32,
}

/// Transfers a message in order until `limit`. `lost` lists the transmissions that are lost, counted from 0.
pub(crate) fn carry(
    mut sender: impl MessageSender,
    mut receiver: impl MessageReceiver,
    lost: &[u32],
    limit: Nanos,
) -> MessageOutcome {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum EventAction {
        Data(Packet),
        Answer(Answer),
        Timer,
        Free,
    }
    let mut events = BinaryHeap::new();
    let (mut number, mut sent, mut free, mut wake) = (0_u64, 0_u32, Nanos::ZERO, Nanos::MAX);
    events.push(Reverse((Nanos::ZERO, number, EventAction::Free)));
    while let Some(Reverse((now, _, what))) = events.pop() {
        if now > limit {
            break;
        }
        let mut add = |at: Nanos, what| {
            number += 1;
            events.push(Reverse((at, number, what)));
        };
        match what {
            EventAction::Data(packet) => {
                let complete = receiver.is_complete();
                receiver.handle_packet(now, &packet);
                if complete {
                    add(now.saturating_add(ONE_WAY), EventAction::Answer(Answer::Done));
                }
            }
            EventAction::Answer(answer) => sender.handle_answer(now, &answer),
            EventAction::Timer => {
                wake = if wake <= now { Nanos::MAX } else { wake };
                sender.handle_timeout(now);
                receiver.handle_timeout(now);
            }
            EventAction::Free => {}
        }
        while let Some(answer) = receiver.poll_answer() {
            add(now.saturating_add(ONE_WAY), EventAction::Answer(answer));
        }
        if sender.is_done() {
            return MessageOutcome { done: Some(now), sent };
        }
        if free <= now
            && let Some(packet) = sender.poll_packet(now)
        {
            if !lost.contains(&sent) {
                add(now.saturating_add(PACKET_TIME).saturating_add(ONE_WAY), EventAction::Data(packet));
            }
            sent += 1;
            free = now.saturating_add(PACKET_TIME);
            add(free, EventAction::Free);
        }
        let due = [sender.poll_timeout(), receiver.poll_timeout()].into_iter().flatten().min();
        // One event for the next timer; an obsolete one has no effect.
        if let Some(due) = due.map(|due| due.max(now.saturating_add(Nanos::new(1)))).filter(|due| *due < wake)
        {
            wake = due;
            add(due, EventAction::Timer);
        }
    }
    MessageOutcome { done: None, sent }
}
