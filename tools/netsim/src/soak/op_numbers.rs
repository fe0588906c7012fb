//! What each op number last stood for: a packet or an acknowledgement that arrives under a number which names another packet by then
//! would be taken for that one's.

use std::collections::HashMap;

use fpga_firmware::wire::{Control, DataHeader};
use fpga_firmware::{OpNumber, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::{Invariant, SoakTotals};

/// A packet, whatever its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacketIdentity {
    transfer: TransferId,
    segment: SegmentIndex,
    address: CardAddr,
}

/// The numbers that one life of a sender has given out.
#[derive(Debug, Default)]
pub(super) struct OpNumberAudit {
    last: HashMap<OpNumber, PacketIdentity>,
    newest: Option<TransferId>,
}

impl OpNumberAudit {
    /// A packet leaves under its number.
    pub(super) fn record_sent(&mut self, header: &DataHeader, tally: &mut SoakTotals) {
        let named =
            PacketIdentity { transfer: header.transfer, segment: header.segment, address: header.address };
        let before = self.last.insert(header.op, named);
        tally.numbers_reused += u64::from(before.is_some_and(|before| before != named));
        let newest = self.newest.get_or_insert(named.transfer);
        if newest.is_older_than(named.transfer) {
            // Upwards is round the end, where the number is smaller.
            tally.ids_wrapped += u64::from(named.transfer.get() < newest.get());
            *newest = named.transfer;
        }
    }

    /// A packet arrives: its number is still its own.
    pub(super) fn record_received(&self, header: &DataHeader) -> Result<(), Invariant> {
        let named =
            PacketIdentity { transfer: header.transfer, segment: header.segment, address: header.address };
        let is_own_failure = self.last.get(&header.op) == Some(&named);
        if is_own_failure { Ok(()) } else { Err(Invariant::OpNumberReused { op: header.op.get() }) }
    }

    /// An acknowledgement arrives: the packet that it is about has the number still. Refusals may come later, of packets that have
    /// waited in vain in the escape channel; the sender knows them by their transfer and segment.
    pub(super) fn record_acknowledged(&self, control: &Control) -> Result<(), Invariant> {
        let Control::Ack(ack) = control else { return Ok(()) };
        let named = self.last.get(&ack.op);
        let is_own_failure =
            named.is_some_and(|named| (named.transfer, named.segment) == (ack.transfer, ack.segment));
        if is_own_failure { Ok(()) } else { Err(Invariant::OpNumberReused { op: ack.op.get() }) }
    }
}
