//! The sending program: loads a chunk into card A's memory while the network moves the one before.

use std::time::Duration;

use super::unsent;
use fpga_driver::NodeId;
use fpga_pci::Backoff;
use fpga_rdma::{RemoteRegion, SendCompletion, SendTicket};

use super::counters::NiCounters;
use super::end::{Common, Ended, Pump, Stall};
use super::hosts::{End, SendingHost};
use super::peer::{Peer, Status};
use crate::error::CliError;
use crate::progress::Progress;
use crate::stream::{Source, SourceReader};

/// One transfer that the network has moved.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) length: u64,
    pub(super) completion: SendCompletion,
    /// Time of the send call, by the card's clock.
    pub(super) began: u64,
    /// Time from the send call until the sending host saw the completion, by the same clock.
    pub(super) local: Duration,
}

/// Transfer in progress.
#[derive(Debug)]
struct Current {
    ticket: SendTicket,
    length: u64,
    began: u64,
    /// Acknowledged bytes before it.
    acknowledged: u64,
}

/// State of the sending program.
pub(super) struct Sender<'a> {
    pub(super) host: &'a mut SendingHost,
    pub(super) common: Common<'a>,
    pub(super) source: &'a Source,
    pub(super) progress: &'a Progress,
    /// Destination, and the node that has it.
    pub(super) region: RemoteRegion,
    pub(super) receiver: NodeId,
    /// Bytes loaded so far.
    loaded: u64,
    outbox: Outbox,
}

/// Transfers in progress and completed.
#[derive(Debug, Default)]
struct Outbox {
    current: Option<Current>,
    departures: Vec<Departure>,
    /// Bytes of the completed ones.
    sent: u64,
    /// First error of a poll while the program was busy with something else.
    failed: Option<CliError>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(
        host: &'a mut SendingHost,
        common: Common<'a>,
        (source, progress): (&'a Source, &'a Progress),
        (region, receiver): (RemoteRegion, NodeId),
    ) -> Self {
        Self { host, common, source, progress, region, receiver, loaded: 0, outbox: Outbox::default() }
    }

    /// Runs the program.
    pub(super) fn run(mut self) -> (Vec<Departure>, Result<NiCounters, Ended>) {
        let result = self.transfer_all();
        self.common.finish(&result);
        (self.outbox.departures, result)
    }

    fn transfer_all(&mut self) -> Result<NiCounters, Ended> {
        let mut counters = NiCounters::new(self.host.endpoint())?;
        if self.common.plan.needs_mask(self.host.opened()) {
            self.host.ask(self.receiver);
        }
        let mut reader = self.source.open(self.common.deadline)?;
        let (mut number, mut start, mut last) = (0, 0, 0);
        loop {
            if self.common.layout.slots == 1 {
                self.wait_for_slot(number)?;
            }
            let length = self.source.next_part(start, self.common.layout.chunk)?;
            if length == 0 {
                break;
            }
            self.one(number, (start, length), &mut reader)?;
            counters.update(self.host.endpoint())?;
            start += length;
            number += 1;
            last = length;
        }
        self.wait_until_sent()?;
        let status = Status { count: number, bytes: last, ..Status::default() };
        let Self { host, common, outbox, progress, .. } = self;
        let moved = 2 * start;
        common.settle(
            &mut SenderPump { end: host.end_mut(), outbox, progress, peer: &common.peer, moved },
            status,
        )?;
        counters.update(self.host.endpoint())?;
        Ok(counters)
    }

    /// Loads one chunk and starts its transfer, once the one before is complete and the receiver has space for it.
    fn one(
        &mut self,
        number: u64,
        (start, length): (u64, u64),
        reader: &mut SourceReader<'_>,
    ) -> Result<(), Ended> {
        let offset = self.common.layout.slot(number);
        let (progress, peer, common) = (self.progress, &self.common.peer, &self.common);
        self.loaded = start;
        let before = start + self.outbox.sent;
        let outbox = &mut self.outbox;
        let mut step = |done: u64| {
            progress.step(|| format!("transfer {}: to card A", number + 1), done, length);
            progress.at((before + done + peer.other().bytes) / 3);
        };
        let wait = common.deadline;
        let loaded =
            self.host.load(reader, (offset, length), wait, &mut step, &mut |endpoint| outbox.poll(endpoint));
        loaded.map_err(|error| self.source.explain(error))?;
        self.loaded = start + length;
        self.wait_until_sent()?;
        self.wait_for_slot(number)?;
        self.common.peer.show(Status { count: number + 1, bytes: length, ..Status::default() });
        let began = self.host.end().now();
        let ticket = self.host.send(&self.region, offset, length, self.common.plan)?;
        let acknowledged = self.host.acknowledged_bytes();
        self.outbox.current = Some(Current { ticket, length, began, acknowledged });
        Ok(())
    }

    /// Waits until the receiver has verified the chunk that was in the slot of chunk `number`.
    fn wait_for_slot(&mut self, number: u64) -> Result<(), Ended> {
        let slots = self.common.layout.slots;
        self.wait(|sender| sender.common.peer.other().count.saturating_add(slots) > number)
    }

    /// Waits for the completion of the transfer in progress.
    fn wait_until_sent(&mut self) -> Result<(), Ended> {
        self.wait(|sender| sender.outbox.current.is_none())
    }

    fn wait(&mut self, is_over: impl Fn(&Self) -> bool) -> Result<(), Ended> {
        let mut stall = Stall::new(self.host.end().now(), self.common.peer.other());
        let mut backoff = Backoff::new();
        loop {
            let worked = self.outbox.poll(self.host.end_mut());
            if let Some(error) = self.outbox.failed.take() {
                return Err(error.into());
            }
            if is_over(self) {
                return Ok(());
            }
            let number = self.outbox.departures.len() as u64 + 1;
            let other = self.common.peer.other();
            other.check()?;
            self.common.deadline.check(|| format!("transfer {number}"))?;
            let now = self.host.end().now();
            if stall.has_news(worked, now, other) {
                backoff.reset();
                self.report();
            } else if let Some(waited) = stall.waited(now, self.common.deadline) {
                let sent = self.outbox.current.is_none();
                return Err(Ended::Stalled { transfer: number, waited, seen: sent });
            } else {
                self.host.rest(&mut backoff);
            }
        }
    }

    /// Shows the progress of the transfer in progress.
    fn report(&self) {
        let Some(current) = self.outbox.current.as_ref().filter(|_| self.progress.is_shown()) else { return };
        let number = self.outbox.departures.len() as u64 + 1;
        let done = self.host.acknowledged_bytes().saturating_sub(current.acknowledged).min(current.length);
        self.progress.step(|| format!("transfer {number}: network"), done, current.length);
        let moved = self.loaded + self.outbox.sent + done + self.common.peer.other().bytes;
        self.progress.at(moved / 3);
    }
}

impl Outbox {
    /// Polls the endpoint and takes the completion of the transfer in progress. Returns whether there was work.
    fn poll(&mut self, endpoint: &mut End) -> bool {
        if self.failed.is_some() {
            return false;
        }
        match endpoint.poll() {
            Ok(work) => {
                self.take_completion(endpoint);
                work > 0
            }
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }

    fn take_completion(&mut self, endpoint: &mut End) {
        let Some(current) = &self.current else { return };
        let Some(completion) = endpoint.take_completion(current.ticket) else { return };
        let local = super::card_span(current.began, endpoint.now());
        let (length, began) = (current.length, current.began);
        self.current = None;
        if let Err(failure) = completion.result {
            let transfer = self.departures.len() as u64 + 1;
            self.failed = Some(unsent(&endpoint.name(), transfer, &failure));
            return;
        }
        tracing::info!(
            transfer = self.departures.len() + 1,
            bytes = length,
            completed_after = ?local,
            retransmits = completion.retransmits,
            "sent"
        );
        self.sent += length;
        self.departures.push(Departure { length, completion, began, local });
    }
}

/// The sender's part of the wait for the end.
struct SenderPump<'a> {
    end: &'a mut End,
    outbox: &'a mut Outbox,
    progress: &'a Progress,
    peer: &'a Peer,
    /// Bytes loaded and sent, together.
    moved: u64,
}

impl Pump for SenderPump<'_> {
    fn poll(&mut self) -> Result<bool, CliError> {
        let worked = self.outbox.poll(self.end);
        self.outbox.failed.take().map_or(Ok(worked), Err)
    }

    fn end(&self) -> &End {
        self.end
    }

    fn report(&self) {
        self.progress.at((self.moved + self.peer.other().bytes) / 3);
    }
}
