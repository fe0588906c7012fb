//! What a receiving side shows of itself.

use super::super::peers::PeerRecord;
use super::Receiver;
use crate::receiver::EntryView;
use crate::time::Nanos;
use fpga_firmware::wire::Announcement;

/// Running counts of a receiving side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverCounters {
    /// Packets taken, requests included.
    pub packets: u64,
    /// Packets written.
    pub written: u64,
    /// Packets that were here already.
    pub duplicates: u64,
    /// Packets that a window had no room for, or of a round that was given up.
    pub dropped: u64,
    /// Packets of messages that have ended, by their number or context.
    pub zombies: u64,
    /// Packets that contradict their message, or are for another node or scheme.
    pub bad_packets: u64,
    /// Packets that no memory window allows, or that memory refused.
    pub violations: u64,
    /// Messages that got no context.
    pub busy: u64,
    /// Last messages of a transfer that got no context because its notice had no slot in the host's event ring.
    pub not_ready: u64,
    /// Messages begun.
    pub begun: u64,
    /// Messages complete.
    pub complete: u64,
    /// Messages whose sender went on to another one, or fell silent.
    pub abandoned: u64,
    /// Transfers complete.
    pub notices: u64,
    /// Packets lost because what had been said before was not fetched.
    pub unpolled: u64,
}

impl Receiver {
    /// What context `slot` holds, as a register window shows it; `None` beyond the last.
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
