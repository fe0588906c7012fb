//! Audit of op numbers. A packet or an acknowledgement that arrives under a number that names another packet by then would be taken for
//! that one's.

use std::collections::HashMap;

use fpga_firmware::wire::{Control, DataHeader};
use fpga_firmware::{OpNumber, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::{Invariant, SoakTotals};

/// Identity of a packet, independent of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacketIdentity {
    transfer: TransferId,
    segment: SegmentIndex,
    address: CardAddr,
}

/// Numbers that one incarnation of a sender has assigned.
#[derive(Debug, Default)]
pub(super) struct OpNumberAudit {
    last: HashMap<OpNumber, PacketIdentity>,
    newest: Option<TransferId>,
}

impl OpNumberAudit {
    /// Records a packet that is sent under its number.
    pub(super) fn record_sent(&mut self, header: &DataHeader, tally: &mut SoakTotals) {
        let named =
            PacketIdentity { transfer: header.transfer, segment: header.segment, address: header.address };
        let before = self.last.insert(header.op, named);
        tally.numbers_reused += u64::from(before.is_some_and(|before| before != named));
        let newest = self.newest.get_or_insert(named.transfer);
        if newest.is_older_than(named.transfer) {
            // Ids rise, so a smaller number means that they have wrapped.
            tally.ids_wrapped += u64::from(named.transfer.get() < newest.get());
            *newest = named.transfer;
        }
    }

    /// Checks that the number of an arriving packet still names it.
    pub(super) fn record_received(&self, header: &DataHeader) -> Result<(), Invariant> {
        let named =
            PacketIdentity { transfer: header.transfer, segment: header.segment, address: header.address };
        let is_own_failure = self.last.get(&header.op) == Some(&named);
        if is_own_failure { Ok(()) } else { Err(Invariant::OpNumberReused { op: header.op.get() }) }
    }

    /// Checks that the number of an arriving acknowledgement still names its packet. Refusals may arrive later, for packets that expired in
    /// the escape channel; the sender identifies them by transfer and segment.
    pub(super) fn record_acknowledged(&self, control: &Control) -> Result<(), Invariant> {
        let Control::Ack(ack) = control else { return Ok(()) };
        let named = self.last.get(&ack.op);
        let is_own_failure =
            named.is_some_and(|named| (named.transfer, named.segment) == (ack.transfer, ack.segment));
        if is_own_failure { Ok(()) } else { Err(Invariant::OpNumberReused { op: ack.op.get() }) }
    }
}
