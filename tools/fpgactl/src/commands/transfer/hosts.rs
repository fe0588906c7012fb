//! The two ends of a transfer, and the loop that drives both.

use std::time::{Duration, Instant};

use fpga_driver::endpoint::{RegionHandle, RemoteRegion, SchemeList, SendCompletion, SendTicket};
use fpga_driver::{C2hChannel, CardAddr, CardRange, Endpoint, Error, H2cChannel, NodeId, ReadVolatile, bulk};
use fpga_firmware::generated::Scheme as Rules;
use fpga_pci::Backoff;

use super::plan::Plan;
use super::{card_span, remainder, stall_limit};
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

/// Host and card A.
#[derive(Debug)]
pub(in crate::commands) struct SendingHost {
    // In drop order: the engines stop before the card closes.
    endpoint: Endpoint,
    /// `None`: the endpoint owns the card's only H2C channel.
    h2c: Option<H2cChannel>,
    opened: Opened,
}

/// Host and card B.
#[derive(Debug)]
pub(in crate::commands) struct ReceivingHost {
    endpoint: Endpoint,
    c2h: C2hChannel,
    opened: Opened,
    /// Destination of transfers, once it is opened.
    region: Option<RemoteRegion>,
}

/// One transfer that arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) completion: SendCompletion,
    /// Time from the send call until the sending host saw the completion, by card A's clock.
    pub(super) local: Duration,
    /// Time from the send call until the receiving host saw the notification, also by card A's clock.
    pub(super) remote: Duration,
}

impl SendingHost {
    pub(super) fn open(opened: Opened, plan: &Plan) -> Result<Self, CliError> {
        let endpoint = Endpoint::open_with(&opened.card, &plan.endpoint(&opened, 0)?)?;
        // The endpoint takes the last channel.
        let h2c = match opened.card.info().xdma.h2c_channels {
            0 | 1 => None,
            _ => Some(opened.card.h2c(0)?),
        };
        Ok(Self { endpoint, h2c, opened })
    }

    pub(in crate::commands) fn name(&self) -> String {
        self.opened.card.name().to_owned()
    }

    pub(super) const fn opened(&self) -> &Opened {
        &self.opened
    }

    pub(in crate::commands) const fn node(&self) -> NodeId {
        self.endpoint.node()
    }

    /// Asks `node` for its mask. Without an answer, segments have the usual length at most.
    pub(super) fn ask(&mut self, node: NodeId) {
        if let Err(error) = self.endpoint.wait_peer(node, ANSWER_TIME) {
            tracing::debug!(%error, "the receiver's mask is not known");
        }
    }

    pub(in crate::commands) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn poll(&mut self) -> Result<usize, CliError> {
        Ok(self.endpoint.poll()?)
    }

    /// Backs off after a poll that finds nothing.
    pub(super) fn rest(&self, backoff: &mut Backoff) {
        self.opened.card.back_off(backoff);
    }

    /// Starts the transfer of the loaded data; `None` if the other end has opened no region.
    pub(super) fn send(
        &mut self,
        to: &ReceivingHost,
        length: u64,
        plan: &Plan,
    ) -> Result<Option<SendTicket>, CliError> {
        let Some(region) = to.region else { return Ok(None) };
        Ok(Some(self.endpoint.send(self.address(), &region, 0, length, plan.send_options(self.ended()))?))
    }

    /// Number of completed transfers; also the number of the next one.
    fn ended(&self) -> u64 {
        let sender = self.endpoint.counters().sender;
        sender.completed.saturating_add(sender.failed)
    }

    /// Withdraws a transfer, and waits briefly until the card has received what is in flight to it.
    pub(super) fn withdraw(&mut self, ticket: SendTicket) {
        self.endpoint.cancel(ticket);
        let (mut backoff, began) = (Backoff::new(), Instant::now());
        for _ in 0..MAX_WITHDRAW_POLLS {
            // Errors are ignored: the transfer is withdrawn.
            if self.endpoint.is_idle() || self.endpoint.poll().is_err() || began.elapsed() > WITHDRAWAL_TIME {
                break;
            }
            self.rest(&mut backoff);
        }
    }

    /// Completion of the transfer, if there is one. No other transfer exists.
    pub(super) fn take_completion(&mut self, ticket: SendTicket) -> Option<SendCompletion> {
        self.endpoint.next_completion().filter(|done| done.ticket == ticket)
    }

    pub(super) fn usable(&self) -> u64 {
        self.endpoint.usable_memory().length
    }

    pub(super) fn ops_in_use(&self) -> u64 {
        let ops = self.endpoint.sender().map_or(0, |sender| sender.ops().count());
        // If the card sends, only it knows the packets: transfers are counted instead.
        let registry_alone = self.endpoint.schemes() == SchemeList::NONE.with(Rules::Registry);
        let transfers = if registry_alone { 0 } else { self.endpoint.transfers().len() };
        (ops + transfers) as u64
    }

    /// The card and its endpoint.
    pub(in crate::commands) const fn both(&self) -> (&Opened, &Endpoint) {
        (&self.opened, &self.endpoint)
    }

    /// Bytes acknowledged since the endpoint was opened, as if every packet were full: for the progress bar.
    pub(super) fn acknowledged_bytes(&self) -> u64 {
        let log2 = self.opened.card.info().ni.as_ref().map_or(0, |ni| ni.packet_size_log2);
        self.endpoint.counters().sender.acknowledged.checked_shl(log2.into()).unwrap_or(0)
    }

    /// Start address of every chunk in card A's memory.
    fn address(&self) -> CardAddr {
        self.endpoint.usable_memory().start
    }

    /// Writes the next `length` bytes of the stream to card memory.
    pub(super) fn load(
        &mut self,
        source: &mut SourceReader<'_>,
        length: u64,
        deadline: Deadline,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), CliError> {
        let to = self.address();
        match &mut self.h2c {
            Some(h2c) => {
                let wait = deadline.wait();
                Ok(bulk::write_from(&self.opened.card, h2c, source, to, length, wait, progress)?)
            }
            None => self.load_by_endpoint(source, to, length, deadline, progress),
        }
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
        let mut buffer = self.opened.card.buffer(chunk_length(0))?;
        while done < length {
            deadline.check(|| format!("writing to {}", self.name()))?;
            let failed = |kind| Error { kind, place: self.opened.card.place() };
            let short = || failed(bulk::BulkError::Short { done, length });
            buffer.set_len(chunk_length(done)).map_err(|_| short())?;
            source.read_exact_volatile(buffer.memory()).map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => short(),
                _ => failed(bulk::BulkError::Stream { done, cause: error }),
            })?;
            let written = self.endpoint.write(buffer, remainder(to, done));
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
            return Err(CliError::NoReadChannel { card: opened.card.name().to_owned() });
        }
        let c2h = opened.card.c2h(channel)?;
        Ok(Self { endpoint, c2h, opened, region: None })
    }

    pub(in crate::commands) fn name(&self) -> String {
        self.opened.card.name().to_owned()
    }

    pub(in crate::commands) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(in crate::commands) const fn node(&self) -> NodeId {
        self.endpoint.node()
    }

    pub(super) fn usable(&self) -> u64 {
        self.endpoint.usable_memory().length
    }

    pub(super) fn poll(&mut self) -> Result<usize, CliError> {
        Ok(self.endpoint.poll()?)
    }

    /// The card and its endpoint.
    pub(in crate::commands) const fn both(&self) -> (&Opened, &Endpoint) {
        (&self.opened, &self.endpoint)
    }

    /// Discards notifications: no caller waits for them.
    pub(super) fn drop_notifications(&mut self) {
        while self.endpoint.next_notification().is_some() {}
    }

    /// Destination address of every chunk in card B's memory.
    pub(super) fn address(&self) -> CardAddr {
        self.endpoint.usable_memory().start
    }

    /// Lets any node write the first `length` bytes of card memory: only the sender knows the key.
    pub(super) fn open_region(&mut self, length: u64) -> Result<RegionHandle, CliError> {
        let region = self.endpoint.open_region(NodeId::ANY, CardRange::new(self.address(), length))?;
        self.region = Some(region.remote);
        Ok(region)
    }

    pub(super) fn close_region(&mut self, region: &RegionHandle) -> Result<(), CliError> {
        self.region = None;
        Ok(self.endpoint.close_region(region)?)
    }

    /// Passes the received bytes to `sink`.
    pub(super) fn unload(
        &mut self,
        sink: &mut Compare<'_, '_>,
        length: u64,
        deadline: Deadline,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), CliError> {
        let from = self.address();
        let wait = deadline.wait();
        Ok(bulk::read_into(&self.opened.card, &mut self.c2h, from, length, sink, wait, progress)?)
    }
}

/// Sends one chunk, numbered from 1, and drives both ends until each has seen its completion.
pub(super) fn exchange(
    sending: &mut SendingHost,
    receiving: &mut ReceivingHost,
    plan: &Plan,
    (number, length): (u64, u64),
    deadline: Deadline,
    progress: &mut dyn FnMut(u64),
) -> Result<Arrival, CliError> {
    let closed = || CliError::ChunkTooLarge { card: receiving.name(), chunk: length, usable: 0 };
    let region = receiving.region.ok_or_else(closed)?;
    let began = sending.opened.now();
    let ticket = sending.send(receiving, length, plan)?.ok_or_else(closed)?;
    let (mut local, mut remote) = (None, None);
    let mut last_work_at = began;
    let acknowledged = sending.acknowledged_bytes();
    let mut backoff = Backoff::new();
    loop {
        let work = sending.endpoint.poll()? + receiving.endpoint.poll()?;
        let now = sending.opened.now();
        while let Some(done) = sending.endpoint.next_completion() {
            if done.ticket == ticket {
                done.result.map_err(|source| CliError::Network {
                    card: sending.name(),
                    transfer: number,
                    source,
                })?;
                local = Some((done, card_span(began, now)));
            }
        }
        while let Some(notice) = receiving.endpoint.next_notification() {
            if (notice.address, notice.length) != (region.address, length) {
                return Err(CliError::UnexpectedNotice {
                    card: receiving.name(),
                    length: notice.length,
                    address: notice.address,
                    expected: length,
                    expected_address: region.address,
                });
            }
            remote = Some(card_span(began, now));
        }
        if let (Some((completion, local)), Some(remote)) = (local, remote) {
            return Ok(Arrival { completion, local, remote });
        }
        deadline.check(|| format!("transfer {number}"))?;
        if work > 0 {
            last_work_at = now;
            backoff.reset();
            progress(sending.acknowledged_bytes() - acknowledged);
            continue;
        }
        if now.saturating_sub(last_work_at) > stall_limit(deadline) {
            let missing = match (local, remote) {
                (None, None) => "neither the sender's completion nor the receiver's notification has arrived",
                (None, Some(_)) => "the sender's completion has not arrived",
                _ => "the receiver's notification has not arrived",
            };
            return Err(CliError::Stalled {
                transfer: number,
                waited: card_span(last_work_at, now),
                missing,
            });
        }
        sending.opened.card.back_off(&mut backoff);
    }
}

/// Waits until everything in flight has ended: windows are returned, registry entries are released.
pub(super) fn settle(
    sending: &mut SendingHost,
    receiving: &mut ReceivingHost,
    deadline: Deadline,
) -> Result<(), CliError> {
    let mut last_work_at = sending.opened.now();
    // Some rounds without work after both are idle: an event may be in flight to the host, and the network holds copies for up to 20 us.
    let mut quiet = 0;
    let mut backoff = Backoff::new();
    while quiet < 32 {
        let work = sending.endpoint.poll()? + receiving.endpoint.poll()?;
        let now = sending.opened.now();
        let idle = sending.endpoint.is_idle() && receiving.endpoint.is_idle();
        quiet = if work == 0 && idle { quiet + 1 } else { 0 };
        if work > 0 {
            last_work_at = now;
            backoff.reset();
        } else if now.saturating_sub(last_work_at) > stall_limit(deadline) {
            // The caller counts and reports whatever remains.
            return Ok(());
        }
        deadline.check(|| "waiting for both ends to become idle".to_owned())?;
        sending.opened.card.back_off(&mut backoff);
    }
    Ok(())
}

/// Names and usable memory of both cards in bytes.
pub(super) fn ends(sending: &SendingHost, receiving: &ReceivingHost) -> [(String, u64); 2] {
    [(sending.name(), sending.usable()), (receiving.name(), receiving.usable())]
}
