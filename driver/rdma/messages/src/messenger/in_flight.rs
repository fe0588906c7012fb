//! Transfers of the endpoint whose completions have not been taken, by the slots of their tickets.

use super::outgoing::InFlight;
use fpga_rdma::SendTicket;

/// Transfers in progress.
#[derive(Debug, Default)]
pub(super) struct TransfersInFlight {
    by_slot: Vec<Option<(SendTicket, InFlight)>>,
    /// Transfers that have ended, and whose slots have been used again before their completions were taken.
    ended: Vec<(SendTicket, InFlight)>,
    count: usize,
}

impl TransfersInFlight {
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn insert(&mut self, ticket: SendTicket, transfer: InFlight) {
        let slot = ticket.slot() as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        if let Some(entry) = self.by_slot.get_mut(slot) {
            self.count += 1;
            self.ended.extend(entry.replace((ticket, transfer)));
        }
    }

    /// Removes a transfer that has completed.
    pub(super) fn remove(&mut self, ticket: SendTicket) -> Option<InFlight> {
        let entry = self.by_slot.get_mut(ticket.slot() as usize)?;
        let (_, transfer) = entry.take_if(|(known, _)| *known == ticket).or_else(|| {
            let at = self.ended.iter().position(|(known, _)| *known == ticket)?;
            Some(self.ended.swap_remove(at))
        })?;
        self.count -= 1;
        Some(transfer)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SendTicket, &InFlight)> {
        self.by_slot.iter().flatten().chain(&self.ended).map(|(ticket, transfer)| (*ticket, transfer))
    }
}
