//! What each op number last stood for: a packet or an acknowledgement that arrives under a number which names another packet by then
//! would be taken for that one's.

use std::collections::HashMap;

use fpga_firmware::wire::{Control, DataHeader};
use fpga_firmware::{OpNumber, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::{Promise, Tally};

/// A packet, whatever its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    transfer: TransferId,
    segment: SegmentIndex,
    address: CardAddr,
}

/// The numbers that one life of a sender has given out.
#[derive(Debug, Default)]
pub(super) struct Names {
    last: HashMap<OpNumber, Named>,
    newest: Option<TransferId>,
}

impl Names {
    /// A packet leaves under its number.
    pub(super) fn leaves(&mut self, header: &DataHeader, tally: &mut Tally) {
        let named = Named { transfer: header.transfer, segment: header.segment, address: header.address };
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
    pub(super) fn arrives(&self, header: &DataHeader) -> Result<(), Promise> {
        let named = Named { transfer: header.transfer, segment: header.segment, address: header.address };
        let is_own_failure = self.last.get(&header.op) == Some(&named);
        if is_own_failure { Ok(()) } else { Err(Promise::Renamed { op: header.op.get() }) }
    }

    /// An acknowledgement arrives: the packet that it is about has the number still. Refusals may come later, of packets that have
    /// waited in vain in the escape channel; the sender knows them by their transfer and segment.
    pub(super) fn acknowledged(&self, control: &Control) -> Result<(), Promise> {
        let Control::Ack(ack) = control else { return Ok(()) };
        let named = self.last.get(&ack.op);
        let is_own_failure =
            named.is_some_and(|named| (named.transfer, named.segment) == (ack.transfer, ack.segment));
        if is_own_failure { Ok(()) } else { Err(Promise::Renamed { op: ack.op.get() }) }
    }
}
