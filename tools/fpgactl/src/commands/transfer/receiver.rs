//! The receiving program: compares a chunk with the source while the network moves the next one.

use std::collections::VecDeque;

use fpga_pci::Backoff;
use fpga_registers::quantity;

use super::counters::NiCounters;
use super::end::{Common, Ended, Pump, Stall};
use super::hosts::{End, ReceivingHost};
use super::peer::{Phase, Status};
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::stream::{Compare, Source, SourceReader, StreamPosition};

/// One transfer that has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) length: u64,
    /// Time at which the receiving host saw the notification, by its card's clock.
    pub(super) at: u64,
}

/// State of the receiving program.
pub(super) struct Receiver<'a> {
    pub(super) host: &'a mut ReceivingHost,
    pub(super) common: Common<'a>,
    pub(super) source: &'a Source,
    pub(super) out: Option<&'a mut OutFile>,
    inbox: Inbox,
    verified: Vec<Arrival>,
}

/// Notifications that have arrived.
#[derive(Debug, Default)]
struct Inbox {
    /// Addresses, lengths and times.
    arrived: VecDeque<(u64, Arrival)>,
    /// First error of a poll while the program was busy with something else.
    failed: Option<CliError>,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(
        host: &'a mut ReceivingHost,
        common: Common<'a>,
        source: &'a Source,
        out: Option<&'a mut OutFile>,
    ) -> Self {
        Self { host, common, source, out, inbox: Inbox::default(), verified: Vec::new() }
    }

    /// Runs the program. Returns the verified transfers in any case.
    pub(super) fn run(mut self) -> (Vec<Arrival>, Result<NiCounters, Ended>) {
        let result = self.receive_all();
        self.common.finish(&result);
        (self.verified, result)
    }

    fn receive_all(&mut self) -> Result<NiCounters, Ended> {
        let mut counters = NiCounters::new(self.host.endpoint())?;
        let mut reader = self.source.open(self.common.deadline)?;
        let (mut number, mut start) = (0, 0);
        while let Some((address, arrival)) = self.wait_for(number)? {
            self.check_notice(number, address, arrival.length)?;
            self.one(number, start, arrival, &mut reader)?;
            counters.update(self.host.endpoint())?;
            start += arrival.length;
            number += 1;
            self.common.peer.show(Status { count: number, bytes: start, ..Status::default() });
        }
        let Self { host, common, inbox, .. } = self;
        let status = Status { count: number, bytes: start, ..Status::default() };
        common.settle(&mut ReceiverPump { end: host.end_mut(), inbox }, status)?;
        counters.update(self.host.endpoint())?;
        Ok(counters)
    }

    /// Waits for the notification of transfer `number`; `None` if the sender has finished before it.
    fn wait_for(&mut self, number: u64) -> Result<Option<(u64, Arrival)>, Ended> {
        let mut stall = Stall::new(self.host.end().now(), self.common.peer.other());
        let mut backoff = Backoff::new();
        loop {
            let worked = self.inbox.poll(self.host.end_mut());
            if let Some(error) = self.inbox.failed.take() {
                return Err(error.into());
            }
            if let Some(notice) = self.inbox.arrived.pop_front() {
                return Ok(Some(notice));
            }
            let other = self.common.peer.other();
            if matches!(other.phase, Phase::Finished | Phase::Quiet) && other.count == number {
                return Ok(None);
            }
            other.check()?;
            self.common.deadline.check(|| format!("transfer {}", number + 1))?;
            let now = self.host.end().now();
            if stall.has_news(worked, now, other) {
                backoff.reset();
            } else if other.phase != Phase::Running
                // Before that, the sender detects that there is no progress.
                && let Some(waited) = stall.waited(now, self.common.deadline)
            {
                return Err(Ended::Stalled { transfer: number + 1, waited, seen: false });
            } else {
                self.host.end().rest(&mut backoff);
            }
        }
    }

    /// Checks that a notification is of transfer `number`.
    fn check_notice(&self, number: u64, address: u64, length: u64) -> Result<(), CliError> {
        let slot = self.common.layout.slot(number);
        let expected_address = self.host.address(slot);
        let other = self.common.peer.other();
        // Only the last transfer may be shorter.
        let expected = if other.count == number + 1 { other.bytes } else { self.common.layout.chunk };
        if (address, length) == (expected_address.get(), expected) {
            return Ok(());
        }
        Err(CliError::failed(format!(
            "{}: it announces the arrival of {} at {} instead of {} at {expected_address}: another sender uses the same memory",
            self.host.name(),
            quantity(length, "byte"),
            fpga_driver::CardAddr::new(address),
            quantity(expected, "byte"),
        )))
    }

    /// Compares transfer `number`, which begins at byte `start` of the stream, and takes further notifications meanwhile.
    fn one(
        &mut self,
        number: u64,
        start: u64,
        arrival: Arrival,
        reader: &mut SourceReader<'_>,
    ) -> Result<(), Ended> {
        let slot = self.common.layout.slot(number);
        let address = self.host.address(slot);
        tracing::info!(transfer = number + 1, bytes = arrival.length, "arrived");
        let place = StreamPosition { card: self.host.name(), transfer: number + 1, start, address };
        let mut sink = Compare::new(reader, self.out.as_deref_mut(), place);
        let (inbox, peer) = (&mut self.inbox, &self.common.peer);
        let verifying =
            |done| Status { count: number, bytes: start + done, is_verifying: true, ..Status::default() };
        peer.show(verifying(0));
        let mut progress = |done| peer.show(verifying(done));
        let mut between = |end: &mut End| inbox.poll(end);
        let (length, deadline) = (arrival.length, self.common.deadline);
        self.host.unload(&mut sink, (address, length), deadline, &mut progress, &mut between)?;
        self.verified.push(arrival);
        Ok(())
    }
}

impl Inbox {
    /// Polls the endpoint and takes its notifications. Returns whether there was work.
    fn poll(&mut self, end: &mut End) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let work = match end.poll() {
            Ok(work) => work,
            Err(error) => {
                self.failed = Some(error);
                return false;
            }
        };
        while let Some(notice) = end.next_notification() {
            let arrival = Arrival { length: notice.length, at: end.now() };
            self.arrived.push_back((notice.address.get(), arrival));
        }
        work > 0
    }
}

/// The receiver's part of the wait for the end.
struct ReceiverPump<'a> {
    end: &'a mut End,
    inbox: &'a mut Inbox,
}

impl Pump for ReceiverPump<'_> {
    fn poll(&mut self) -> Result<bool, CliError> {
        let worked = self.inbox.poll(self.end);
        self.inbox.failed.take().map_or(Ok(worked), Err)
    }

    fn end(&self) -> &End {
        self.end
    }
}
