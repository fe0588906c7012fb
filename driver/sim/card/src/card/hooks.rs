//! Direct accesses to the card's state, and fault hooks: for tests and simulations.

use fpga_registers::CardAddr;

use super::{Card, NoSuchAddress};
use crate::counters::{AccessLog, CardCounters};
use crate::fault_log::FaultLog;
use crate::fault_plan::StreamWritebackFault;

impl Card {
    /// Reads card memory directly, without an access by software.
    ///
    /// # Errors
    /// [`NoSuchAddress`] names the first address without memory.
    pub fn peek(&self, at: CardAddr, into: &mut [u8]) -> Result<(), NoSuchAddress> {
        self.space.read(at, into).map_err(|(_, at)| NoSuchAddress { at })
    }

    /// Writes card memory directly, without an access by software. A write to a commit word still starts the transmission.
    ///
    /// # Errors
    /// [`NoSuchAddress`] names the first address without memory; the bytes before it are written.
    pub fn poke(&mut self, at: CardAddr, from: &[u8]) -> Result<(), NoSuchAddress> {
        self.space.write(at, from).map_err(|(_, at)| NoSuchAddress { at })
    }

    /// Counters of the card.
    #[must_use]
    pub const fn counters(&self) -> &CardCounters {
        &self.counters
    }

    /// Sets all counters to zero.
    pub fn clear_counters(&mut self) {
        self.counters = CardCounters::default();
    }

    /// Returns the number of 64 KiB pages of card memory that were written at least once.
    #[must_use]
    pub const fn resident_pages(&self) -> usize {
        self.space.resident_pages()
    }

    /// Faults of the engines, including those that no status bit shows.
    #[must_use]
    pub const fn faults(&self) -> &FaultLog {
        &self.faults
    }

    /// Replaces the access log; returns the old one.
    pub fn set_access_log(&mut self, log: AccessLog) -> AccessLog {
        std::mem::replace(&mut self.log, log)
    }

    /// The access log.
    #[must_use]
    pub const fn access_log(&self) -> &AccessLog {
        &self.log
    }

    /// Fault hook: `length` bytes of card address space at `at` answer SLVERR from now on. A length of 0 ends it.
    pub fn poison(&mut self, at: CardAddr, length: u64) {
        self.space.poison(at, length);
    }

    /// Fault hook: `length` bytes of card address space at `at` never answer from now on. A length of 0 ends it. An engine that accesses
    /// them hangs. It stays busy until the card is reset, whatever software does and even if the range answers again. The bypass BAR reads
    /// all ones there.
    pub fn silence(&mut self, at: CardAddr, length: u64) {
        self.space.silence(at, length);
    }

    /// Fault hook: every completed-descriptor count that the card reports (register and write-back) has this value. Tests how software
    /// handles an impossible count. `None` ends it.
    pub fn override_completed_count(&mut self, count: Option<u32>) {
        self.plan.override_count(count);
    }

    /// Fault hook: sets whether the stream port behind H2C channel `channel` accepts data (TREADY). While it does not, the channel stalls
    /// and stays busy whatever software does.
    pub fn set_stream_ready(&mut self, channel: u8, ready: bool) {
        self.streams.set_ready(channel, ready);
        self.turns.awake |= self.all_channels();
    }

    /// Puts `bytes` into the stream port of C2H channel `channel`, as user logic would. With `end`, the last byte ends its packet. Returns
    /// the number of bytes that were accepted (0 on a memory-mapped build). The packet ends only if all bytes were accepted.
    pub fn push_stream(&mut self, channel: u8, bytes: &[u8], end: bool) -> usize {
        self.turns.awake |= self.all_channels();
        self.streams.push(channel.into(), bytes, end)
    }

    /// Fault hook: sets the fault in the metadata that C2H stream channels write back from now on. `None` ends it.
    pub fn break_stream_writeback(&mut self, fault: Option<StreamWritebackFault>) {
        self.plan.break_metadata(fault);
    }
}
