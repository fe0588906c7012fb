//! Counters and views of a receiver.

use super::super::peers::PeerRecord;
use super::Receiver;
use crate::receiver::EntryView;
use crate::scheme::message_scheme::{MessageScheme, ReusableReceiver};
use crate::time::Nanos;
use fpga_firmware::wire::Announcement;

/// Running counts of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverCounters {
    /// Packets processed, requests included.
    pub packets: u64,
    /// Packets written.
    pub written: u64,
    /// Packets received before.
    pub duplicates: u64,
    /// Packets beyond a window, or of a round that was given up.
    pub dropped: u64,
    /// Delayed duplicates: packets of messages that have ended, by their number or context.
    pub delayed_duplicates: u64,
    /// Messages refused because a later incarnation of their sender is known.
    pub superseded: u64,
    /// Packets that contradict their message, or are for another node or scheme.
    pub bad_packets: u64,
    /// Packets that no memory window allows, or that memory refuses.
    pub violations: u64,
    /// Messages refused because no context was free.
    pub busy: u64,
    /// Last messages of a transfer refused because its notification had no slot in the host's event ring.
    pub not_ready: u64,
    /// Messages begun.
    pub begun: u64,
    /// Messages complete.
    pub complete: u64,
    /// Messages given up because their sender moved on to another one, or sent nothing for the silence timeout.
    pub abandoned: u64,
    /// Transfers complete.
    pub notices: u64,
    /// Packets dropped because the caller had not polled the outputs.
    pub unpolled: u64,
}

impl<R: MessageScheme> Receiver<R> {
    /// Returns the content of context `slot`, as a register window shows it; `None` beyond the last.
    #[must_use]
    pub fn entry(&self, slot: u16, now: Nanos) -> Option<EntryView> {
        let context = self.contexts.get(usize::from(slot))?;
        let vacant = EntryView::vacant(context.generation);
        let Some(PeerRecord { key, message, last_heard: heard, .. }) =
            context.peer.and_then(|at| self.peers.get(at)).copied()
        else {
            return Some(vacant);
        };
        let Announcement { transfer, base, length, transfer_length, left, .. } = context.announcement;
        let (first, mask) = context.end.bitmap(context.count);
        Some(EntryView {
            valid: true,
            scheme: context.scheme,
            source: key.node,
            incarnation: key.incarnation,
            transfer,
            segment: message.get(),
            segment_count: left.saturating_add(1),
            base,
            length,
            expected: u16::try_from(context.count).unwrap_or(u16::MAX),
            notify: context.notifies,
            transfer_length,
            first,
            mask,
            age: now.saturating_sub(heard),
            ..vacant
        })
    }
}
