//! The AXI4 master: accesses of the channels, their bursts, and the responses.
//!
//! Sans-IO: the simulator's side takes commands and data beats and returns responses; the card's side begins accesses and takes results.
//! Several bursts of each direction are outstanding. Bursts of one id are answered in order, those of different ids in any order.

use std::collections::VecDeque;

use fpga_sim::{AxiAccess, DesignError, Unit};

use crate::burst::{Burst, MAX_WIDTH};

/// Maximum number of outstanding bursts of one direction.
const OUTSTANDING: usize = 8;

/// An access of a channel, from its beginning until its result is taken.
#[derive(Debug)]
struct Pending {
    /// Distinguishes it from an abandoned access of the same unit.
    serial: u64,
    access: AxiAccess,
    is_write: bool,
    data: Vec<u8>,
    /// Bytes whose bursts were issued.
    issued: usize,
    /// Bursts without a response.
    outstanding: usize,
    /// First error of a response.
    error: Option<DesignError>,
    /// The simulator may issue its bursts.
    is_admitted: bool,
    /// The requester does not take the result.
    is_abandoned: bool,
}

impl Pending {
    fn has_burst(&self) -> bool {
        self.is_admitted && self.issued < self.data.len() && self.error.is_none()
    }

    fn is_over(&self) -> bool {
        self.outstanding == 0 && (self.issued == self.data.len() || self.error.is_some())
    }
}

/// A burst in progress.
#[derive(Clone, Copy, Debug)]
struct Issued {
    unit: Unit,
    /// Serial number of the access.
    serial: u64,
    id: u32,
    burst: Burst,
    /// Data beats so far.
    beats: usize,
}

/// Address phase of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) id: u32,
    pub(crate) at: u64,
    /// Number of beats.
    pub(crate) beats: usize,
    pub(crate) is_fixed: bool,
    /// Bytes of a beat (log2).
    pub(crate) size: u32,
}

/// One data beat of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteBeat {
    pub(crate) data: [u8; MAX_WIDTH],
    pub(crate) strobes: u64,
    pub(crate) is_last: bool,
}

/// Response code of AXI (A3.4.4).
pub(crate) fn response(code: u32) -> Result<(), DesignError> {
    match code & 3 {
        2 => Err(DesignError::Slave),
        3 => Err(DesignError::Decode),
        _ => Ok(()),
    }
}

/// Response that belongs to no burst, or a burst with the wrong number of beats: a defect of the slave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BusError {
    #[error("{channel} response with id {id}, which no outstanding burst has")]
    NoBurst { channel: char, id: u32 },
    #[error(
        "R beat {beat} of the burst of {unit:?} at {at:#x} has RLAST {last}, but the burst has {beats} beats",
        last = u8::from(*.is_last)
    )]
    WrongLast { unit: Unit, at: u64, beat: usize, beats: usize, is_last: bool },
}

/// State of the master.
#[derive(Debug)]
pub(crate) struct Bus {
    width: usize,
    ids: u32,
    accesses: Vec<Pending>,
    /// Bursts whose data is not complete (writes), in the order of their commands.
    data: VecDeque<Issued>,
    /// Bursts without a response.
    writes: VecDeque<Issued>,
    reads: VecDeque<Issued>,
    /// An access has ended since this was last taken.
    has_ended: bool,
    /// An aligned access of 1, 2, 4... bytes is one beat of this size, as a load or store of the host.
    is_narrow: bool,
    /// Serial number of the next access.
    next: u64,
    /// Abandoned accesses that have ended late.
    dropped: u64,
}

impl Bus {
    /// A bus of `width` bytes whose ids have `id_bits`.
    pub(crate) fn new(width: usize, id_bits: u32) -> Self {
        Self {
            width,
            ids: 1 << id_bits.min(16),
            accesses: Vec::new(),
            data: VecDeque::new(),
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            has_ended: false,
            is_narrow: false,
            next: 0,
            dropped: 0,
        }
    }

    /// A bus for accesses of the host: beats of the size of the access.
    pub(crate) fn narrow(width: usize, id_bits: u32) -> Self {
        Self { is_narrow: true, ..Self::new(width, id_bits) }
    }

    /// Begins an access. A channel has one at a time.
    pub(crate) fn begin(&mut self, access: AxiAccess, is_write: bool, data: Vec<u8>, is_admitted: bool) {
        self.accesses.retain(|pending| pending.access.unit != access.unit || pending.is_abandoned);
        let serial = self.next;
        self.next += 1;
        self.accesses.push(Pending {
            serial,
            access,
            is_write,
            data,
            issued: 0,
            outstanding: 0,
            error: None,
            is_admitted,
            is_abandoned: false,
        });
    }

    /// Abandons the access of `unit`: its requester waits no longer. It stays on the bus.
    pub(crate) fn abandon(&mut self, unit: Unit) {
        for pending in self.accesses.iter_mut().filter(|pending| pending.access.unit == unit) {
            pending.is_abandoned = true;
        }
    }

    /// Takes the result of the access of `unit`, and copies the data of a read.
    pub(crate) fn take(&mut self, unit: Unit, into: &mut [u8]) -> Result<(), DesignError> {
        let found = |pending: &Pending| pending.access.unit == unit && !pending.is_abandoned;
        let found = self.accesses.iter().position(found);
        let Some(index) = found else { return Err(DesignError::Slave) };
        if !self.accesses.get(index).is_some_and(Pending::is_over) {
            return Err(DesignError::Pending);
        }
        let pending = self.accesses.swap_remove(index);
        if let Some(error) = pending.error {
            return Err(error);
        }
        let count = into.len().min(pending.data.len());
        if let (Some(into), Some(from)) = (into.get_mut(..count), pending.data.get(..count)) {
            into.copy_from_slice(from);
        }
        Ok(())
    }

    /// Drops everything, as a reset of both sides does.
    pub(crate) fn reset(&mut self) {
        let Self { is_narrow, next, dropped, .. } = *self;
        *self = Self { is_narrow, next, dropped, ..Self::new(self.width, self.ids.trailing_zeros()) };
    }

    /// Lets the simulator issue the bursts of every access.
    pub(crate) fn admit(&mut self) {
        for pending in &mut self.accesses {
            pending.is_admitted = true;
        }
    }

    /// Returns whether an access waits to be admitted.
    pub(crate) fn has_unadmitted(&self) -> bool {
        self.accesses.iter().any(|pending| !pending.is_admitted)
    }

    /// Returns whether an admitted access has no result yet.
    pub(crate) fn is_active(&self) -> bool {
        self.accesses.iter().any(|pending| pending.is_admitted && !pending.is_over())
    }

    /// Takes the fact that an access has ended.
    pub(crate) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.has_ended)
    }

    /// Accesses in progress: channel, first address, direction.
    pub(crate) fn in_progress(&self) -> impl Iterator<Item = (Unit, u64, bool)> {
        let open = self.accesses.iter().filter(|pending| pending.is_admitted && !pending.is_over());
        open.map(|pending| (pending.access.unit, pending.access.at.get(), pending.is_write))
    }

    /// Returns whether a write (read) command can be issued.
    pub(crate) fn has_command(&self, is_write: bool) -> bool {
        let issued = if is_write { &self.writes } else { &self.reads };
        issued.len() < OUTSTANDING
            && self.accesses.iter().any(|pending| pending.is_write == is_write && pending.has_burst())
    }

    /// Write command 0, write data 1 (also that of a command of this cycle), read command 2.
    pub(crate) fn flags(&self) -> u32 {
        let (write, read) = (self.has_command(true), self.has_command(false));
        u32::from(write) | u32::from(write || self.has_data()) << 1 | u32::from(read) << 2
    }

    /// Takes the next write (read) command. Channels take turns.
    pub(crate) fn command(&mut self, is_write: bool) -> Option<Command> {
        if !self.has_command(is_write) {
            return None;
        }
        let wanted = |pending: &Pending| pending.is_write == is_write && pending.has_burst();
        let index = self.accesses.iter().position(wanted)?;
        // To the back: the next command is another channel's, if it has one.
        let mut pending = self.accesses.remove(index);
        let burst = Burst::next(&pending.access, pending.issued, pending.data.len(), self.width);
        let (unit, serial) = (pending.access.unit, pending.serial);
        let length = burst.length;
        let is_beat = length == pending.data.len()
            && length.is_power_of_two()
            && length <= self.width
            && pending.access.at.get().is_multiple_of(length as u64);
        let size = if self.is_narrow && is_beat { length } else { self.width };
        pending.issued += burst.length;
        pending.outstanding += 1;
        self.accesses.push(pending);
        let issued = Issued { unit, serial, id: id_of(unit) % self.ids, burst, beats: 0 };
        if is_write {
            self.data.push_back(issued);
            self.writes.push_back(issued);
        } else {
            self.reads.push_back(issued);
        }
        let Burst { at, beats, is_fixed, .. } = burst;
        Some(Command { id: issued.id, at, beats, is_fixed, size: size.trailing_zeros() })
    }

    /// Returns whether a data beat of an issued write waits.
    pub(crate) fn has_data(&self) -> bool {
        !self.data.is_empty()
    }

    /// Takes the next data beat.
    pub(crate) fn data(&mut self) -> Option<WriteBeat> {
        let issued = self.data.front_mut()?;
        let beat = issued.burst.beat(issued.beats);
        issued.beats += 1;
        let is_last = issued.beats == issued.burst.beats;
        let serial = issued.serial;
        if is_last {
            self.data.pop_front();
        }
        let mut write = WriteBeat { data: [0; MAX_WIDTH], strobes: 0, is_last };
        let from = self.accesses.iter().find(|pending| pending.serial == serial)?;
        let from = from.data.get(beat.offset..beat.offset + beat.length)?;
        write.data.get_mut(beat.lane..beat.lane + beat.length)?.copy_from_slice(from);
        let lanes = u64::MAX.checked_shr(64 - u32::try_from(beat.length).ok()?).unwrap_or(0);
        write.strobes = lanes << beat.lane;
        Some(write)
    }

    /// Handles a write response.
    pub(crate) fn write_response(&mut self, id: u32, code: u32) -> Result<(), BusError> {
        let found = self.writes.iter().position(|issued| issued.id == id);
        let issued = found.and_then(|index| self.writes.remove(index));
        let issued = issued.ok_or(BusError::NoBurst { channel: 'B', id })?;
        self.end(issued.serial, response(code));
        Ok(())
    }

    /// Handles a beat of read data.
    pub(crate) fn read_data(
        &mut self,
        id: u32,
        data: &[u8; MAX_WIDTH],
        code: u32,
        is_last: bool,
    ) -> Result<(), BusError> {
        let index = self.reads.iter().position(|issued| issued.id == id);
        let issued = index.and_then(|index| self.reads.get_mut(index));
        let issued = issued.ok_or(BusError::NoBurst { channel: 'R', id })?;
        let Issued { unit, serial, burst, beats: number, .. } = *issued;
        issued.beats += 1;
        let ends = issued.beats == burst.beats;
        if let Some(pending) = self.accesses.iter_mut().find(|pending| pending.serial == serial) {
            let beat = burst.beat(number);
            let from = data.get(beat.lane..beat.lane + beat.length);
            let into = pending.data.get_mut(beat.offset..beat.offset + beat.length);
            if let (Some(from), Some(into)) = (from, into) {
                into.copy_from_slice(from);
            }
            if let Err(error) = response(code) {
                pending.error.get_or_insert(error);
            }
        }
        // A burst of a wrong length ends with its RLAST, so that the channel does not wait for beats that never arrive.
        if ends || is_last {
            if let Some(index) = index {
                self.reads.remove(index);
            }
            self.end(serial, if is_last == ends { Ok(()) } else { Err(DesignError::Slave) });
        }
        if is_last == ends {
            return Ok(());
        }
        Err(BusError::WrongLast { unit, at: burst.at, beat: number, beats: burst.beats, is_last })
    }

    fn end(&mut self, serial: u64, result: Result<(), DesignError>) {
        let Some(index) = self.accesses.iter().position(|pending| pending.serial == serial) else { return };
        let Some(pending) = self.accesses.get_mut(index) else { return };
        pending.outstanding = pending.outstanding.saturating_sub(1);
        if let Err(error) = result {
            pending.error.get_or_insert(error);
        }
        let is_over = pending.is_over();
        if pending.is_abandoned && is_over {
            let access = self.accesses.swap_remove(index).access;
            self.dropped += 1;
            tracing::warn!(
                dropped = self.dropped,
                "late end of the access at {:#x}, whose client has disconnected",
                access.at.get()
            );
        } else {
            self.has_ended |= is_over;
        }
    }
}

/// Id of a channel's bursts: its number; the directions have separate AXI channels.
fn id_of(unit: Unit) -> u32 {
    match unit {
        Unit::H2c(number) | Unit::C2h(number) => number.into(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use fpga_registers::CardAddr;

    use super::*;

    #[test]
    fn late_response_to_abandoned_access_does_not_end_next_one() {
        let mut bus = Bus::narrow(32, 4);
        let access = |at| AxiAccess { unit: Unit::Xdma, at: CardAddr::new(at), fixed: None };
        bus.begin(access(0x40), false, vec![0; 4], true);
        assert!(bus.command(false).is_some());
        bus.abandon(Unit::Xdma);
        bus.begin(access(0x80), false, vec![0; 4], true);
        assert_eq!(bus.take(Unit::Xdma, &mut [0; 4]), Err(DesignError::Pending));
        assert_eq!(bus.command(false).map(|command| command.at), Some(0x80));
        // Bursts of one id are answered in order: the first one is the abandoned one's.
        bus.read_data(0, &[1; MAX_WIDTH], 0, true).expect("a response");
        assert!(!bus.take_ended());
        assert_eq!(bus.take(Unit::Xdma, &mut [0; 4]), Err(DesignError::Pending));
        bus.read_data(0, &[2; MAX_WIDTH], 0, true).expect("a response");
        assert!(bus.take_ended());
        let mut data = [0; 4];
        assert_eq!((bus.take(Unit::Xdma, &mut data), data, bus.dropped), (Ok(()), [2; 4], 1));
        assert!(!bus.is_active());
    }
}
