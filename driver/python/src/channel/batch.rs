//! Batches: one call for many small transfers of DMA memory.

use fpga_driver::{CardAddr, MemoryHandle, Ticket, WaitOptions};

use super::engine::{Engine, either};
use crate::error::{Class, Failure};
use crate::memory::{Place, Use};
use crate::numbers::Numbers;

/// Checked batch.
pub(super) struct Batch {
    pub(super) place: Place,
    /// Offset in `place` of each transfer.
    pub(super) offsets: Numbers,
    /// First card address of each transfer.
    pub(super) addresses: Numbers,
    /// Length of every transfer in bytes.
    pub(super) length: usize,
}

impl Batch {
    /// Checks that all transfers lie in the memory, so that none is started otherwise.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.offsets.len() != self.addresses.len() {
            return Err(Failure::value(format!(
                "{} offsets and {} addresses: give as many of both",
                self.offsets.len(),
                self.addresses.len()
            )));
        }
        let fits = |offset: &u64| {
            usize::try_from(*offset)
                .ok()
                .and_then(|offset| offset.checked_add(self.length))
                .is_some_and(|end| end <= self.place.length)
        };
        match self.offsets.0.iter().find(|offset| !fits(offset)) {
            None => Ok(()),
            Some(offset) => Err(Failure::new(
                Class::Range,
                format!(
                    "{} bytes at offset {offset} are not inside the memory of {} bytes",
                    self.length, self.place.length
                ),
            )),
        }
    }
}

impl Engine {
    /// Makes all transfers of a batch and waits. The ring is kept full. Returns the number of transfers made; after an error, what is in
    /// flight is waited for or cancelled.
    pub(super) fn batch(&mut self, batch: &Batch, options: WaitOptions) -> Result<(), Failure> {
        if batch.length == 0 || batch.offsets.len() == 0 {
            return Ok(());
        }
        let handle = self.handle(&batch.place.region)?;
        for address in &batch.addresses.0 {
            either!(self, channel => channel.check_range(CardAddr::new(*address), batch.length as u64))?;
        }
        // The memory is in use until this call returns, which waits for every transfer.
        let _memory = Use::of(&batch.place.region);
        let (mut first, mut last) = (None, None);
        let queued = self.queue(batch, handle, options, &mut first, &mut last);
        let (Some(first), Some(last)) = (first, last) else { return queued };
        let waited = queued.and_then(|()| self.wait_ended(last, options));
        if let Err(failure) = waited {
            // The first cause. What the end of the batch reports for its other transfers follows from it.
            let cause = self.take_failure(first, last);
            self.end(first, last);
            self.take_failure(first, last);
            return Err(cause.unwrap_or_else(|| self.after_early_end(failure)));
        }
        self.take_failure(first, last).map_or(Ok(()), Err)
    }

    /// Ends the transfers of a failed batch, before the caller may reuse its memory.
    #[cold]
    fn end(&mut self, first: Ticket, last: Ticket) {
        if self.is_alone() {
            let _ = self.abort();
        } else {
            // Transfers of others stay in flight.
            for number in (first.number()..=last.number()).rev() {
                if self.has_ended(Ticket::from_number(number)) {
                    break;
                }
                let _ = self.cancel(Ticket::from_number(number));
            }
        }
    }

    /// Submits all transfers, in order.
    fn queue(
        &mut self,
        batch: &Batch,
        handle: MemoryHandle,
        options: WaitOptions,
        first: &mut Option<Ticket>,
        last: &mut Option<Ticket>,
    ) -> Result<(), Failure> {
        let base = batch.place.offset;
        for (offset, address) in batch.offsets.0.iter().zip(&batch.addresses.0) {
            // The offset was checked against the memory.
            let offset = base.saturating_add(usize::try_from(*offset).unwrap_or(usize::MAX));
            let ticket = loop {
                let submitted = either!(self, channel =>
                    channel.submit_at(handle, offset, batch.length, CardAddr::new(*address)));
                match submitted {
                    Ok(ticket) => break ticket,
                    Err(error) if error.is_full() => self.make_room(options)?,
                    Err(error) => return Err(error.into()),
                }
            };
            first.get_or_insert(ticket);
            *last = Some(ticket);
        }
        Ok(())
    }

    /// Waits until at least one transfer has ended.
    fn make_room(&mut self, options: WaitOptions) -> Result<(), Failure> {
        if self.poll()? > 0 {
            return Ok(());
        }
        let oldest = Ticket::from_number(either!(self, channel => channel.ended()));
        self.wait_ended(oldest, options)
    }
}
