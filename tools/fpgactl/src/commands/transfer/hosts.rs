//! The two ends of a transfer.

use std::time::{Duration, Instant};

use fpga_driver::{C2hChannel, CardAddr, CardRange, Error, H2cChannel, NodeId, ReadVolatile, bulk};
use fpga_firmware::generated::Scheme as Rules;
use fpga_pci::Backoff;
use fpga_rdma::{Endpoint, Notification, RegionHandle, RemoteRegion, SchemeList, SendCompletion, SendTicket};

use super::plan::Plan;
use super::remainder;
use crate::error::CliError;
use crate::progress::Deadline;
use crate::stream::{Compare, SourceReader};
use crate::target::Opened;

/// Limits of the wait until nothing of a withdrawn transfer is in flight to the card: polls, and wall-clock time.
const MAX_WITHDRAW_POLLS: u32 = 100_000;
const WITHDRAWAL_TIME: Duration = Duration::from_secs(1);
/// Maximum wait for the answer to a query, on the card's clock.
const ANSWER_TIME: Duration = Duration::from_millis(20);
/// Bytes written at once through an endpoint's own channel.
const CHUNK_BYTES: usize = 1 << 20;

/// A card and its endpoint.
#[derive(Debug)]
pub(in crate::commands) struct End {
    // In drop order: the engines stop before the card closes.
    endpoint: Endpoint,
    opened: Opened,
}

/// Host and card A.
#[derive(Debug)]
pub(in crate::commands) struct SendingHost {
    /// `None`: the endpoint owns the card's only H2C channel.
    h2c: Option<H2cChannel>,
    end: End,
}

/// Host and card B.
#[derive(Debug)]
pub(in crate::commands) struct ReceivingHost {
    c2h: C2hChannel,
    end: End,
    /// Destination of transfers, once it is opened.
    region: Option<RemoteRegion>,
}

/// Work of an end between two polls of a channel. Returns whether there was any.
pub(super) type Between<'a> = &'a mut dyn FnMut(&mut End) -> bool;

impl End {
    pub(super) fn name(&self) -> String {
        self.opened.card.name().to_owned()
    }

    pub(super) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) const fn opened(&self) -> &Opened {
        &self.opened
    }

    pub(super) fn poll(&mut self) -> Result<usize, CliError> {
        Ok(self.endpoint.poll()?)
    }

    /// Time of the card's clock, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.opened.now()
    }

    /// Backs off after a poll that finds nothing.
    pub(super) fn rest(&self, backoff: &mut Backoff) {
        self.opened.card.back_off(backoff);
    }

    /// Completion of the transfer, if there is one. No other transfer exists.
    pub(super) fn take_completion(&mut self, ticket: SendTicket) -> Option<SendCompletion> {
        self.endpoint.next_completion().filter(|done| done.ticket == ticket)
    }

    pub(super) fn next_notification(&mut self) -> Option<Notification> {
        self.endpoint.next_notification()
    }

    /// Start address of the transfers' data in card memory.
    pub(super) fn base(&self) -> CardAddr {
        self.endpoint.usable_memory().start
    }
}

impl SendingHost {
    pub(super) fn open(opened: Opened, plan: &Plan) -> Result<Self, CliError> {
        let endpoint = Endpoint::open_with(&opened.card, &plan.endpoint(&opened, 0)?)?;
        // The endpoint takes the last channel.
        let h2c = match opened.card.info().xdma.h2c_channels {
            0 | 1 => None,
            _ => Some(opened.card.h2c(0)?),
        };
        Ok(Self { h2c, end: End { endpoint, opened } })
    }

    pub(in crate::commands) fn name(&self) -> String {
        self.end.opened.card.name().to_owned()
    }

    pub(super) const fn opened(&self) -> &Opened {
        &self.end.opened
    }

    pub(in crate::commands) const fn node(&self) -> NodeId {
        self.end.endpoint.node()
    }

    /// Asks `node` for its mask. Without an answer, segments have the usual length at most.
    pub(super) fn ask(&mut self, node: NodeId) {
        if let Err(error) = self.end.endpoint.wait_peer(node, ANSWER_TIME) {
            tracing::debug!(%error, "the receiver's mask is not known");
        }
    }

    pub(in crate::commands) const fn endpoint(&self) -> &Endpoint {
        &self.end.endpoint
    }

    pub(super) fn poll(&mut self) -> Result<usize, CliError> {
        Ok(self.end.endpoint.poll()?)
    }

    /// Backs off after a poll that finds nothing.
    pub(super) fn rest(&self, backoff: &mut Backoff) {
        self.end.opened.card.back_off(backoff);
    }

    /// Starts the transfer of the data at `offset` to the same offset in `region`.
    pub(super) fn send(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        length: u64,
        plan: &Plan,
    ) -> Result<SendTicket, CliError> {
        let (source, options) = (remainder(self.end.base(), offset), plan.send_options(self.ended()));
        Ok(self.end.endpoint.send(source, region, offset, length, options)?)
    }

    pub(super) const fn end(&self) -> &End {
        &self.end
    }

    pub(super) const fn end_mut(&mut self) -> &mut End {
        &mut self.end
    }

    /// Number of completed transfers; also the number of the next one.
    fn ended(&self) -> u64 {
        let sender = self.end.endpoint.counters().sender;
        sender.completed.saturating_add(sender.failed)
    }

    /// Withdraws a transfer, and waits briefly until the card has received what is in flight to it.
    pub(super) fn withdraw(&mut self, ticket: SendTicket) {
        self.end.endpoint.cancel(ticket);
        let (mut backoff, began) = (Backoff::new(), Instant::now());
        for _ in 0..MAX_WITHDRAW_POLLS {
            // Errors are ignored: the transfer is withdrawn.
            if self.end.endpoint.is_idle()
                || self.end.endpoint.poll().is_err()
                || began.elapsed() > WITHDRAWAL_TIME
            {
                break;
            }
            self.rest(&mut backoff);
        }
    }

    /// Completion of the transfer, if there is one. No other transfer exists.
    pub(super) fn take_completion(&mut self, ticket: SendTicket) -> Option<SendCompletion> {
        self.end.endpoint.next_completion().filter(|done| done.ticket == ticket)
    }

    pub(super) fn usable(&self) -> u64 {
        self.end.endpoint.usable_memory().length
    }

    pub(super) fn ops_in_use(&self) -> u64 {
        let ops = self.end.endpoint.sender().map_or(0, |sender| sender.ops().count());
        // If the card sends, only it knows the packets: transfers are counted instead.
        let registry_alone = self.end.endpoint.schemes() == SchemeList::NONE.with(Rules::Registry);
        let transfers = if registry_alone { 0 } else { self.end.endpoint.transfers().len() };
        (ops + transfers) as u64
    }

    /// The card and its endpoint.
    pub(in crate::commands) const fn both(&self) -> (&Opened, &Endpoint) {
        (&self.end.opened, &self.end.endpoint)
    }

    /// Bytes acknowledged since the endpoint was opened, as if every packet were full: for the progress bar.
    pub(super) fn acknowledged_bytes(&self) -> u64 {
        let log2 = self.end.opened.card.info().ni.as_ref().map_or(0, |ni| ni.packet_size_log2);
        self.end.endpoint.counters().sender.acknowledged.checked_shl(log2.into()).unwrap_or(0)
    }

    /// Writes the next `length` bytes of the stream to card memory, `offset` bytes after its start; does `between` meanwhile, unless the
    /// endpoint itself writes.
    pub(super) fn load(
        &mut self,
        source: &mut SourceReader<'_>,
        (offset, length): (u64, u64),
        deadline: Deadline,
        progress: &mut dyn FnMut(u64),
        between: Between<'_>,
    ) -> Result<(), CliError> {
        let to = remainder(self.end.base(), offset);
        let Some(h2c) = &mut self.h2c else {
            return self.load_by_endpoint(source, to, length, deadline, progress);
        };
        let card = self.end.opened.card.clone();
        let end = &mut self.end;
        let beside = bulk::Beside { progress, between_polls: &mut || between(end) };
        Ok(bulk::write_beside(&card, h2c, source, to, length, deadline.wait(), beside)?)
    }

    fn load_by_endpoint(
        &mut self,
        source: &mut SourceReader<'_>,
        to: CardAddr,
        length: u64,
        deadline: Deadline,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), CliError> {
        let mut done = 0;
        let chunk_length = |done: u64| usize::try_from(length - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let mut buffer = self.end.opened.card.buffer(chunk_length(0))?;
        while done < length {
            deadline.check(|| format!("writing to {}", self.name()))?;
            let failed = |kind| Error { kind, place: self.end.opened.card.place() };
            let short = || failed(bulk::BulkError::Short { done, length });
            buffer.set_len(chunk_length(done)).map_err(|_| short())?;
            source.read_exact_volatile(buffer.memory()).map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => short(),
                _ => failed(bulk::BulkError::Stream { done, cause: error }),
            })?;
            let written = self.end.endpoint.write(buffer, remainder(to, done));
            buffer = written.map_err(|failed| failed.error)?;
            done += buffer.len() as u64;
            progress(done);
        }
        Ok(())
    }
}

impl ReceivingHost {
    pub(super) fn open(opened: Opened, plan: &Plan) -> Result<Self, CliError> {
        let endpoint = Endpoint::open_with(&opened.card, &plan.endpoint(&opened, 1)?)?;
        // If the interface cannot push events, the endpoint fetches them through channel 0.
        let pushes = opened.card.info().ni.as_ref().is_some_and(|ni| ni.event_push);
        let channel = if pushes { 0 } else { 1 };
        if channel >= opened.card.info().xdma.c2h_channels {
            let card = opened.card.name();
            return Err(CliError::failed(format!(
                "{card}: its only C2H channel carries events, and no channel remains to read its memory"
            ))
            .advise("use a card with two C2H channels or with event push"));
        }
        let c2h = opened.card.c2h(channel)?;
        Ok(Self { c2h, end: End { endpoint, opened }, region: None })
    }

    pub(in crate::commands) fn name(&self) -> String {
        self.end.opened.card.name().to_owned()
    }

    pub(in crate::commands) const fn endpoint(&self) -> &Endpoint {
        &self.end.endpoint
    }

    pub(in crate::commands) const fn node(&self) -> NodeId {
        self.end.endpoint.node()
    }

    pub(super) fn usable(&self) -> u64 {
        self.end.endpoint.usable_memory().length
    }

    pub(super) fn poll(&mut self) -> Result<usize, CliError> {
        Ok(self.end.endpoint.poll()?)
    }

    /// The card and its endpoint.
    pub(in crate::commands) const fn both(&self) -> (&Opened, &Endpoint) {
        (&self.end.opened, &self.end.endpoint)
    }

    /// Discards notifications: no caller waits for them.
    pub(super) fn drop_notifications(&mut self) {
        while self.end.endpoint.next_notification().is_some() {}
    }

    /// Card address of the data at `offset`.
    pub(super) fn address(&self, offset: u64) -> CardAddr {
        remainder(self.end.base(), offset)
    }

    pub(super) const fn end(&self) -> &End {
        &self.end
    }

    pub(super) const fn end_mut(&mut self) -> &mut End {
        &mut self.end
    }

    /// Destination of transfers, once it is opened.
    pub(super) const fn region(&self) -> Option<RemoteRegion> {
        self.region
    }

    /// Lets any node write the first `length` bytes of card memory: only the sender knows the key.
    pub(super) fn open_region(&mut self, length: u64) -> Result<RegionHandle, CliError> {
        let region = self.end.endpoint.open_region(NodeId::ANY, CardRange::new(self.address(0), length))?;
        self.region = Some(region.remote);
        Ok(region)
    }

    pub(super) fn close_region(&mut self, region: &RegionHandle) -> Result<(), CliError> {
        self.region = None;
        Ok(self.end.endpoint.close_region(region)?)
    }

    /// Passes `length` received bytes from `address` on to `sink`; does `between` meanwhile.
    pub(super) fn unload(
        &mut self,
        sink: &mut Compare<'_, '_>,
        (address, length): (CardAddr, u64),
        deadline: Deadline,
        progress: &mut dyn FnMut(u64),
        between: Between<'_>,
    ) -> Result<(), CliError> {
        let card = self.end.opened.card.clone();
        let end = &mut self.end;
        let beside = bulk::Beside { progress, between_polls: &mut || between(end) };
        let wait = deadline.wait();
        Ok(bulk::read_beside(&card, &mut self.c2h, address, length, sink, wait, beside)?)
    }
}

/// Names and usable memory of both cards in bytes.
pub(super) fn ends(sending: &SendingHost, receiving: &ReceivingHost) -> [(String, u64); 2] {
    [(sending.name(), sending.usable()), (receiving.name(), receiving.usable())]
}
