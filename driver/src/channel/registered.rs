//! Registered memory of a channel, and transfers of parts of it.
//!
//! A [`DmaBuffer`](fpga_pci::DmaBuffer) moves with every transfer. For small transfers at high rates this costs more than the transfer.
//! Registered memory is passed to the channel once; a transfer names a part of it, and a success is only counted.

use std::sync::atomic::{AtomicU64, Ordering};

use fpga_pci::{RegisteredMemory, SharedSlice};
use fpga_registers::xdma::Direction;
use fpga_registers::{CardAddr, Iova};
use fpga_ring::ring::{HostRange, SgEntry};

use super::Ticket;
use super::engine::{Engine, Side};
use super::memory::{DEREGISTERED, MemoryHandle, RegisteredEntry, ScatterGatherEntry};
use crate::error::{ChannelError, Refused, SubmitError};
use fpga_pci::DmaBuffer;

/// Number of the next registration of this process. It is process-wide, so that the handle of another channel matches nothing here: a
/// refusal is better than a transfer of the wrong memory.
static NEXT: AtomicU64 = AtomicU64::new(DEREGISTERED + 1);

impl Engine {
    pub(crate) fn register_memory(
        &mut self,
        area: RegisteredMemory,
    ) -> Result<MemoryHandle, Refused<RegisteredMemory, SubmitError>> {
        if let Err(error) = self.check_usable() {
            return Err(Refused { error: SubmitError::Channel(error), payload: area });
        }
        if !area.is_from(&self.card.pool) {
            let error = SubmitError::ForeignBuffer;
            return Err(Refused { error, payload: area });
        }
        if let Err(error) = self.check_access(area.access()) {
            return Err(Refused { error, payload: area });
        }
        let free = self.registered.iter().position(|slot| slot.area.is_none());
        let index = free.unwrap_or(self.registered.len());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let entry = RegisteredEntry {
            start: area.iova().get(),
            length: area.len(),
            area: Some(area),
            number,
            used_until: 0,
        };
        match self.registered.get_mut(index) {
            Some(slot) => *slot = entry,
            None => self.registered.push(entry),
        }
        Ok(MemoryHandle { index, number })
    }

    fn slot(&self, memory: MemoryHandle) -> Option<&RegisteredEntry> {
        self.registered.get(memory.index).filter(|slot| slot.number == memory.number && slot.area.is_some())
    }

    pub(crate) fn registered(&self, memory: MemoryHandle) -> Option<SharedSlice<'_>> {
        Some(self.slot(memory)?.area.as_ref()?.memory())
    }

    /// Returns the memory once no transfer uses it.
    pub(crate) fn deregister_memory(
        &mut self,
        memory: MemoryHandle,
    ) -> Result<RegisteredMemory, ChannelError> {
        self.check_process()?;
        let ended = self.ring.ended();
        let used_until = self.slot(memory).map(|slot| slot.used_until);
        if used_until.is_some_and(|until| until > ended) {
            return Err(ChannelError::MemoryInUse);
        }
        let slot = self.registered.get_mut(memory.index).filter(|_| used_until.is_some());
        let area = slot.and_then(|slot| {
            slot.number = DEREGISTERED;
            slot.area.take()
        });
        match area {
            Some(area) => Ok(area),
            None => Err(ChannelError::NotRegistered),
        }
    }

    /// Queues a transfer of a part of registered memory.
    #[inline]
    pub(crate) fn submit_at(
        &mut self,
        memory: MemoryHandle,
        offset: usize,
        length: usize,
        card: CardAddr,
    ) -> Result<Ticket, SubmitError> {
        if let Some(slot) = self.registered.get_mut(memory.index)
            && slot.number == memory.number
            && offset <= slot.length
            && length <= slot.length - offset
            && self.plain_submissions
            && self.main_memory.contains(card, length as u64)
            && self.process.is_current()
        {
            // The area lies inside the address space, so the sum does too.
            let host = HostRange::new(Iova::new(slot.start + offset as u64), length as u64);
            let queued = self.ring.submit_without_payload(host, card);
            if let Ok(token) = queued {
                slot.used_until = token.number() + 1;
                return Ok(Ticket(token.number()));
            }
        }
        self.submit_at_checked(ScatterGatherEntry { memory, offset, length, card })
    }

    /// As [`submit_at`](Self::submit_at), for the less common cases and for the detailed error.
    #[cold]
    fn submit_at_checked(&mut self, piece: ScatterGatherEntry) -> Result<Ticket, SubmitError> {
        let segment = self.segment(&piece)?;
        match self.ring.submit_without_payload(segment.host, segment.card) {
            Ok(token) => {
                self.mark_used(piece.memory, token.number() + 1);
                Ok(Ticket(token.number()))
            }
            Err(reason) => Err(self.refused(reason)),
        }
    }

    /// Returns a range of registered memory for a stream, which has no card address.
    pub(super) fn registered_range(
        &self,
        memory: MemoryHandle,
        offset: usize,
        length: usize,
    ) -> Result<HostRange, SubmitError> {
        let piece = ScatterGatherEntry { memory, offset, length, card: CardAddr::ZERO };
        self.segment(&piece).map(|segment| segment.host)
    }

    pub(super) fn mark_used(&mut self, memory: MemoryHandle, until: u64) {
        if let Some(slot) = self.registered.get_mut(memory.index).filter(|slot| slot.number == memory.number)
        {
            slot.used_until = slot.used_until.max(until);
        }
    }

    /// Checks one entry of a list.
    fn segment(&self, piece: &ScatterGatherEntry) -> Result<SgEntry, SubmitError> {
        self.check_usable().map_err(SubmitError::Channel)?;
        let ScatterGatherEntry { memory, offset, length, card } = *piece;
        let Some(slot) = self.slot(memory) else {
            return Err(SubmitError::NotRegistered);
        };
        if offset.checked_add(length).is_none_or(|end| end > slot.length) {
            return Err(SubmitError::MemoryRange { offset, length, size: slot.length });
        }
        let host = HostRange::new(Iova::new(slot.start + offset as u64), length as u64);
        self.check(host, card)?;
        Ok(SgEntry { host, card })
    }

    /// Queues a scatter-gather list as one transfer.
    pub(crate) fn submit_list(
        &mut self,
        pieces: impl Iterator<Item = ScatterGatherEntry> + Clone,
    ) -> Result<Ticket, SubmitError> {
        let mut segments = core::mem::take(&mut self.list);
        segments.clear();
        let result = self.queue_list(pieces, &mut segments);
        // Memory that one very long list needed is not kept.
        segments.clear();
        segments.shrink_to(MAX_KEPT_LIST);
        self.list = segments;
        result
    }

    fn queue_list(
        &mut self,
        pieces: impl Iterator<Item = ScatterGatherEntry> + Clone,
        segments: &mut Vec<SgEntry>,
    ) -> Result<Ticket, SubmitError> {
        for piece in pieces.clone().filter(|piece| piece.length != 0) {
            segments.push(self.segment(&piece)?);
        }
        self.check_process().map_err(SubmitError::Channel)?;
        self.check_overlap(segments)?;
        match self.ring.submit_segments(segments.iter().copied(), None::<DmaBuffer>) {
            Ok(token) => {
                for piece in pieces {
                    self.mark_used(piece.memory, token.number() + 1);
                }
                Ok(Ticket(token.number()))
            }
            Err((reason, _)) => Err(self.refused(reason)),
        }
    }

    /// Refuses lists whose destinations overlap: the order of the writes would be undefined. Sources may overlap.
    fn check_overlap(&mut self, segments: &[SgEntry]) -> Result<(), SubmitError> {
        let no_address = self.options.fixed_address || matches!(self.side, Side::Stream);
        if no_address && matches!(self.direction(), Direction::H2c) {
            return Ok(());
        }
        let to_card = matches!(self.direction(), Direction::H2c);
        let destination = |segment: &SgEntry| {
            let start = if to_card { segment.card.get() } else { segment.host.start.get() };
            (start, segment.host.length)
        };
        let mut sorted = core::mem::take(&mut self.list_order);
        sorted.clear();
        sorted.extend(segments.iter().map(destination));
        sorted.sort_unstable();
        let overlap = sorted.iter().zip(sorted.iter().skip(1)).find(|((a, length), (b, _))| b - a < *length);
        let found = overlap.map(|((first, _), (second, length))| SubmitError::Overlap {
            first: *first,
            second: *second,
            length: *length,
        });
        sorted.clear();
        sorted.shrink_to(MAX_KEPT_LIST);
        self.list_order = sorted;
        found.map_or(Ok(()), Err)
    }
}

/// Maximum number of list elements whose memory a channel keeps between lists.
const MAX_KEPT_LIST: usize = 4096;
