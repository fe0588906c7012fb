//! Channel under load with its two working sets: one in host memory, one in card memory.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use fpga_driver::{
    C2hChannel, Card, CardAddr, Channel, ChannelError, ChannelOptions, Direction, Error, H2cChannel,
    MemoryHandle, ReadVolatile, SharedSlice, Ticket, TransferError, WaitOptions, WriteVolatile, bulk,
    errors::CardPart,
};
use fpga_pci::Bounced;

use crate::error::CliError;
use crate::progress::Deadline;
use crate::stream::{Compare, Source, StreamPosition};

fn view<'a>(channel: &'a Channel, memory: MemoryHandle, card: &Card) -> Result<SharedSlice<'a>, CliError> {
    // The memory stays registered for the whole run: only a defect of this program reaches the error.
    channel.memory(memory).ok_or_else(|| {
        let place = card.place().of_part(CardPart::Channel(channel.name()));
        Error { kind: TransferError::from(ChannelError::NotRegistered), place }.into()
    })
}

/// Adjacent buffers of one size, in card memory and in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkingSet {
    /// Size of a buffer, in bytes.
    pub(super) size: usize,
    /// Number of buffers.
    pub(super) slots: u64,
    /// Address in card memory.
    pub(super) card: CardAddr,
    /// Seed of the content.
    pub(super) seed: u64,
    /// Deadline of the command.
    pub(super) deadline: Deadline,
}

impl WorkingSet {
    pub(super) const fn bytes(&self) -> u64 {
        self.size as u64 * self.slots
    }

    fn content(&self) -> Source {
        Source::Random { seed: self.seed, length: self.bytes() }
    }

    fn position(&self, card: &Card) -> StreamPosition {
        StreamPosition { card: card.name().to_owned(), transfer: 1, start: 0, address: self.card }
    }

    /// Writes the content to card memory, for engines that read it there.
    pub(super) fn write_to_card(&self, card: &Card, channel: &mut H2cChannel) -> Result<(), CliError> {
        let source = self.content();
        let mut reader = source.open(self.deadline)?;
        let options = self.deadline.wait();
        bulk::write_from(card, channel, &mut reader, self.card, self.bytes(), options, &mut |_| {})
            .map_err(|error| source.explain(error.into()))
    }

    /// Compares card memory with the content.
    pub(super) fn compare_on_card(&self, card: &Card, channel: &mut C2hChannel) -> Result<(), CliError> {
        let source = self.content();
        let mut expected = source.open(self.deadline)?;
        let mut compare = Compare::new(&mut expected, None, self.position(card));
        let options = self.deadline.wait();
        Ok(bulk::read_into(card, channel, self.card, self.bytes(), &mut compare, options, &mut |_| {})?)
    }
}

/// Channel with its working set.
#[derive(Debug)]
pub(super) struct BenchChannel {
    channel: Channel,
    direction: Direction,
    pub(super) set: WorkingSet,
    memory: MemoryHandle,
    /// Operations submitted and completed since [`restart`](Self::restart).
    pub(super) submitted: u64,
    pub(super) done: u64,
    /// Operations to be submitted.
    pub(super) total: u64,
    /// The last operation of each burst in flight, if bursts are waited for.
    pub(super) bursts: VecDeque<Ticket>,
    /// Operations that the channel had completed before [`restart`](Self::restart).
    before: u64,
    last: Option<Ticket>,
}

impl BenchChannel {
    /// Takes channel `number` and fills the host memory that the engine will read.
    pub(super) fn new(
        card: &Card,
        direction: Direction,
        number: u8,
        options: ChannelOptions,
        set: WorkingSet,
    ) -> Result<Self, CliError> {
        let mut channel = card.channel(direction, number, options)?;
        let length = usize::try_from(set.bytes()).unwrap_or(usize::MAX);
        let memory =
            channel.register_memory(card.registered_memory(length)?).map_err(|refused| dma(refused.error))?;
        let created = Self {
            channel,
            direction,
            set,
            memory,
            submitted: 0,
            done: 0,
            total: 0,
            bursts: VecDeque::new(),
            before: 0,
            last: None,
        };
        if direction == Direction::H2c {
            let source = set.content();
            let mut reader = source.open(set.deadline)?;
            let view = view(&created.channel, memory, card)?;
            reader
                .read_exact_volatile(view)
                .map_err(|error| CliError::carried(Path::new("random bytes"), "make them", error))?;
        }
        Ok(created)
    }

    const fn is_to_host(&self) -> bool {
        matches!(self.direction, Direction::C2h)
    }

    /// Compares host memory with the content, if the engine wrote it.
    pub(super) fn compare_on_host(&self, card: &Card) -> Result<(), CliError> {
        if !self.is_to_host() {
            return Ok(());
        }
        let source = self.set.content();
        let mut expected = source.open(self.set.deadline)?;
        let mut compare = Compare::new(&mut expected, None, self.set.position(card));
        let view = view(&self.channel, self.memory, card)?;
        // The comparison's error carries a `CliError`, as a stream's does.
        compare
            .write_all_volatile(view)
            .map_err(|error| CliError::carried(Path::new("host memory"), "compare it", error))
    }

    /// Overwrites the memory that the engine will write.
    pub(super) fn clear(&mut self, card: &Card) -> Result<(), CliError> {
        if self.is_to_host() {
            let memory = view(&self.channel, self.memory, card)?;
            return memory.fill(0, memory.len(), 0).map_err(|error| {
                CliError::failed(format!("{}: {error}", card.name())).advised(error.help())
            });
        }
        let mut zeros = Bounced::new(std::io::repeat(0));
        let (set, options) = (self.set, self.set.deadline.wait());
        Ok(bulk::write_from(
            card,
            &mut self.channel,
            &mut zeros,
            set.card,
            set.bytes(),
            options,
            &mut |_| {},
        )?)
    }

    /// Restarts the counts at zero.
    pub(super) fn restart(&mut self) {
        (self.submitted, self.done, self.before) = (0, 0, self.channel.ended());
        self.bursts.clear();
    }

    /// Submits the next operation; `None` if the ring is full.
    #[inline]
    pub(super) fn submit(&mut self) -> Result<Option<Ticket>, CliError> {
        let WorkingSet { size, slots, card, .. } = self.set;
        // The same division as in the peer's loop.
        let at = size as u64 * (self.submitted % slots);
        #[expect(clippy::cast_possible_truncation, reason = "below the length of the memory")]
        let offset = at as usize;
        match self.channel.submit_at(self.memory, offset, size, CardAddr::new(card.get() + at)) {
            Ok(ticket) => {
                self.submitted += 1;
                self.last = Some(ticket);
                Ok(Some(ticket))
            }
            Err(error) if error.is_full() => Ok(None),
            Err(error) => Err(dma(error)),
        }
    }

    /// Polls once. Returns the number of operations that completed.
    #[inline]
    pub(super) fn poll(&mut self) -> Result<u64, CliError> {
        let ended = self.channel.poll().map_err(dma)? as u64;
        self.done += ended;
        Ok(ended)
    }

    /// Waits for an operation; others may complete meanwhile.
    pub(super) fn wait(&mut self, ticket: Ticket, options: WaitOptions) -> Result<(), CliError> {
        self.channel.wait_ended(ticket, options).map_err(dma)?;
        self.done = self.channel.ended() - self.before;
        Ok(())
    }

    /// Returns the driver's error for a channel without progress for `span`, with the relevant registers.
    #[cold]
    pub(super) fn stall_report(&mut self, span: Duration) -> Result<(), CliError> {
        let Some(ticket) = self.last else { return Ok(()) };
        let waited = self.channel.wait_ended(ticket, WaitOptions::default().timeout(Duration::ZERO));
        waited.map_err(|mut error| {
            if let ChannelError::TimedOut { waited, .. } = &mut error.kind {
                waited.time = span;
            }
            dma(error)
        })?;
        self.done = self.channel.ended() - self.before;
        Ok(())
    }

    /// Fails if an operation failed: a successful one leaves no completion here.
    pub(super) fn check_completions(&mut self) -> Result<(), CliError> {
        match self.channel.next_completion().map(|done| done.outcome) {
            Some(Err(fault)) => Err(dma(*fault)),
            _ => Ok(()),
        }
    }
}

#[cold]
fn dma(error: impl Into<Error<TransferError>>) -> CliError {
    CliError::from(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{self, Target};
    use fpga_pci::Backoff;

    const SET: WorkingSet =
        WorkingSet { size: 100, slots: 700, card: CardAddr::new(0x3000), seed: 5, deadline: Deadline::NONE };

    fn run(card: &Card, channel: &mut BenchChannel, operations: u64) {
        let mut backoff = Backoff::new();
        while channel.done < operations {
            if channel.submitted < operations {
                channel.submit().unwrap();
            }
            if channel.poll().unwrap() == 0 {
                card.back_off(&mut backoff);
            } else {
                backoff.reset();
            }
        }
        channel.check_completions().unwrap();
    }

    /// Only the last buffer differs.
    #[test]
    fn working_set_unmoved_buffer_is_found() {
        let opened = target::open(&Target::default()).unwrap();
        let card = &opened.card;
        SET.write_to_card(card, &mut card.h2c(0).unwrap()).unwrap();
        let mut c2h = BenchChannel::new(card, Direction::C2h, 0, ChannelOptions::default(), SET).unwrap();
        c2h.clear(card).unwrap();
        run(card, &mut c2h, SET.slots - 1);
        let error = c2h.compare_on_host(card).unwrap_err();
        assert!(error.to_string().starts_with("data differ at offset 699"), "{error}");
        run(card, &mut c2h, SET.slots);
        c2h.compare_on_host(card).unwrap();

        drop(c2h);
        let mut h2c = BenchChannel::new(card, Direction::H2c, 0, ChannelOptions::default(), SET).unwrap();
        h2c.clear(card).unwrap();
        h2c.restart();
        run(card, &mut h2c, SET.slots - 1);
        let error = SET.compare_on_card(card, &mut card.c2h(0).unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("data differ at offset 699"), "{error}");
        run(card, &mut h2c, SET.slots);
        SET.compare_on_card(card, &mut card.c2h(0).unwrap()).unwrap();
    }
}
