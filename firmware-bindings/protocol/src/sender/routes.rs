//! Path identifiers of transmit windows (docs/protocol.md 9.6).
//!
//! Each packet of a window has its own identifier; a retransmission gets another one.

use alloc::boxed::Box;

use fpga_firmware::ids::OpNumber;
use fpga_registers::cast::index;

use super::types::{Answer, Ops};
use super::{Sender, SenderConfig};
use crate::op_table::Op;
use crate::spray::PathSet;
use crate::time::Nanos;

/// Path identifiers towards each destination, and that of each packet in flight.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    sets: Box<[PathSet]>,
    /// By slot of the op number: identifier of the last transmission.
    last: Box<[u8]>,
}

impl Routes {
    /// Bytes for each destination, and for each op number.
    pub(super) const BYTES: usize = size_of::<PathSet>();
    pub(super) const BYTES_PER_OP: usize = size_of::<u8>();

    pub(super) fn new(config: &SenderConfig) -> Self {
        let set = PathSet::new(config.paths, 0);
        Self {
            sets: alloc::vec![set; index(config.destinations)].into_boxed_slice(),
            last: alloc::vec![0; index(config.op_entries)].into_boxed_slice(),
        }
    }

    /// Returns the identifiers towards a destination.
    pub(super) fn set_mut(&mut self, destination: u32) -> Option<&mut PathSet> {
        self.sets.get_mut(index(destination))
    }

    /// Returns the identifier of the last transmission of a packet.
    pub(super) fn last(&self, op: OpNumber) -> u8 {
        self.last.get(usize::from(op.slot())).copied().unwrap_or(0)
    }
}

impl Sender {
    /// Begins with all identifiers towards a destination whose record is new.
    pub(super) fn renew_routes(&mut self, destination: u32) {
        let record = self.destinations.get(destination);
        if record.transfers != 0 || record.trip.samples != 0 {
            return;
        }
        let node = record.node;
        if let Some(set) = self.routes.sets.get_mut(index(destination)) {
            *set = PathSet::new(self.config.paths, node.get());
        }
    }

    /// Chooses the identifiers of a window of new packets, and returns that of the first; without op numbers, that of its only packet.
    pub(super) fn route(&mut self, destination: u32, first: u16, ops: &mut Ops) -> u8 {
        let Some(set) = self.routes.sets.get_mut(index(destination)) else { return 0 };
        for number in 0..usize::from(ops.len()) {
            let route = if first == 0 && number == 0 { set.choose_first() } else { set.choose() };
            ops.set_path(number, route);
            if let Some(op) = ops.as_slice().get(number)
                && let Some(last) = self.routes.last.get_mut(usize::from(op.slot()))
            {
                *last = route;
            }
        }
        if ops.is_empty() { set.choose() } else { ops.path(0) }
    }

    /// Returns the identifier of a retransmission. If the packet was not refused, it seems lost.
    pub(super) fn other_route(&mut self, now: Nanos, destination: u32, op: &Op) -> u8 {
        let trip = self.destinations.get(destination).trip.known_mean();
        let Some(set) = self.routes.sets.get_mut(index(destination)) else { return 0 };
        let Some(last) = self.routes.last.get_mut(usize::from(op.number.slot())) else { return 0 };
        if op.busy == 0 {
            set.note_lost(now, *last, trip);
        }
        *last = set.choose();
        *last
    }

    /// Records that a full queue on the path of a packet cut off its payload: the identifier is passed over for a while.
    pub(super) fn note_cut(&mut self, destination: u32, op: &Op) {
        let Some(set) = self.routes.sets.get_mut(index(destination)) else { return };
        if let Some(last) = self.routes.last.get(usize::from(op.number.slot())) {
            set.note_cut(*last);
        }
    }

    /// Records what an acknowledgement tells about the path of its packet. `delay`: its round trip, if it is certain.
    pub(super) fn note_route(&mut self, now: Nanos, destination: u32, answer: &Answer, delay: Option<Nanos>) {
        let trip = self.destinations.get(destination).trip.known_mean();
        if let Some(set) = self.routes.sets.get_mut(index(destination)) {
            set.note_answer(now, answer.notes.path, answer.notes.marked, delay, trip);
        }
    }
}
