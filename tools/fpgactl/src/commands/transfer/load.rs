//! Runs one transfer up to some point, or transfers in sequence, for listings in the middle of it.

use fpga_diag::inspect::Inspect as _;
use std::time::Duration;

use super::{stalled, unsent};
use fpga_pci::Backoff;
use fpga_protocol::Nanos;
use fpga_protocol::mirror::Difference;
use fpga_rdma::{Endpoint, SendTicket};

use super::hosts::{ReceivingHost, SendingHost, ends};
use super::plan::Plan;
use super::{Ends, card_span, open_ends, stall_limit};
use crate::cli::TransferArgs;
use crate::error::CliError;
use crate::progress::Deadline;
use crate::settings::Settings;
use crate::target::Opened;

/// Polls for a moment without an event in flight; after this number the mirror is compared as it is.
const MAX_POLLS: u32 = 256;

/// Both ends in the middle of a transfer, which is withdrawn at the end.
#[derive(Debug)]
pub struct Load {
    pub(in crate::commands) sending: SendingHost,
    pub(in crate::commands) receiving: ReceivingHost,
    /// Bytes of the transfer.
    pub(in crate::commands) length: u64,
    /// Acknowledged bytes of the transfer.
    pub(in crate::commands) acknowledged: u64,
    /// Time since its submission, by the card's clock.
    pub(in crate::commands) elapsed: Duration,
    /// Time of the card's clock.
    pub(in crate::commands) now: Nanos,
    /// Differences between the receiver's mirror and its card.
    pub(in crate::commands) differences: Vec<Difference>,
    /// Completed transfers.
    pub(in crate::commands) ended: u64,
    under_way: Option<SendTicket>,
    plan: Plan,
    /// Time of the transfer's submission, and of the last progress.
    began: u64,
    last_work_at: u64,
    /// Acknowledged bytes of the earlier transfers.
    before: u64,
}

impl Drop for Load {
    /// Withdraws the transfer, and waits until what is in flight to the card has arrived: engines must not be stopped in the middle of it.
    fn drop(&mut self) {
        if let Some(ticket) = self.under_way {
            self.sending.withdraw(ticket);
        }
    }
}

impl Load {
    /// Opens both ends, puts the data into the sending card's memory and submits the transfer that `args` describe.
    pub fn begin(settings: &Settings, args: &TransferArgs) -> Result<Self, CliError> {
        let plan = Plan::for_inspection(args, &settings.transfer)?;
        // Listings show one moment of both ends: one thread drives them, with a common clock.
        let Ends { source, mut sending, mut receiving, .. } = open_ends(settings, args, &plan, false)?;
        if plan.needs_mask(sending.opened()) {
            sending.ask(receiving.node());
        }
        let length = source.next_part(0, plan.chunk_size(source.length(), &ends(&sending, &receiving))?)?;
        if length > 0 {
            receiving.open_region(length)?;
            let mut reader = source.open(settings.deadline)?;
            sending.load(&mut reader, (0, length), settings.deadline, &mut |_| (), &mut |_| false)?;
        }
        let mut load = Self {
            length,
            acknowledged: 0,
            elapsed: Duration::ZERO,
            now: Nanos::new(sending.opened().now()),
            differences: Vec::new(),
            ended: 0,
            under_way: None,
            plan,
            began: 0,
            last_work_at: 0,
            before: 0,
            sending,
            receiving,
        };
        load.submit()?;
        Ok(load)
    }

    /// Submits the transfer, for the first time or again.
    fn submit(&mut self) -> Result<(), CliError> {
        self.began = self.sending.opened().now();
        self.last_work_at = self.began;
        self.before = self.sending.acknowledged_bytes();
        self.acknowledged = 0;
        self.under_way = match self.receiving.region() {
            Some(region) => Some(self.sending.send(&region, 0, self.length, &self.plan)?),
            None => None,
        };
        Ok(())
    }

    /// Polls both ends until `enough` returns true or the transfer has ended. Polls at least once.
    fn poll_until(&mut self, deadline: Deadline, enough: impl Fn(&Self) -> bool) -> Result<(), CliError> {
        let mut backoff = Backoff::new();
        while let Some(ticket) = self.under_way {
            let work = self.sending.poll()? + self.receiving.poll()?;
            self.receiving.drop_notifications();
            self.read_clock();
            self.acknowledged = self.sending.acknowledged_bytes().saturating_sub(self.before);
            if let Some(done) = self.sending.take_completion(ticket) {
                self.under_way = None;
                self.ended += 1;
                let (card, transfer) = (self.sending.name(), self.ended);
                done.result.map_err(|error| unsent(&card, transfer, &error))?;
                break;
            }
            if enough(self) {
                break;
            }
            deadline.check(|| "the transfer to inspect".to_owned())?;
            let now = self.now.get();
            if work > 0 {
                self.last_work_at = now;
                backoff.reset();
            } else if now.saturating_sub(self.last_work_at) > stall_limit(deadline) {
                let (transfer, waited) = (self.ended + 1, card_span(self.last_work_at, now));
                return Err(stalled(transfer, waited, "no further packet is acknowledged"));
            } else {
                self.sending.opened().card.back_off(&mut backoff);
            }
        }
        Ok(())
    }

    /// Both ends, the sender first.
    pub(in crate::commands) const fn ends(&self) -> [(&Opened, &Endpoint); 2] {
        [self.sending.both(), self.receiving.both()]
    }

    /// Acknowledged bytes of all transfers together.
    pub(in crate::commands) const fn acknowledged_in_all(&self) -> u64 {
        self.before.saturating_add(self.acknowledged)
    }

    fn read_clock(&mut self) {
        let now = self.sending.opened().now();
        self.now = Nanos::new(now);
        self.elapsed = card_span(self.began, now);
    }

    /// Continues until the card's clock reaches `until`; each time the transfer ends, it is submitted again.
    pub fn run_until(&mut self, until: Nanos, deadline: Deadline) -> Result<(), CliError> {
        let mut backoff = Backoff::new();
        while self.now < until {
            if self.under_way.is_none() {
                self.submit()?;
            }
            // There is nothing to send: only time advances.
            if self.under_way.is_none() {
                deadline.check(|| "the transfer to inspect".to_owned())?;
                self.sending.rest(&mut backoff);
                self.read_clock();
            }
            self.poll_until(deadline, |load| load.now >= until)?;
        }
        Ok(())
    }

    /// Compares the receiver's mirror with its card, at a moment without an event in flight.
    pub fn compare_mirror(&mut self) -> Result<(), CliError> {
        self.differences = self.receiving.endpoint().check_mirror()?;
        let mut backoff = Backoff::new();
        for _ in 0..MAX_POLLS {
            if self.differences.is_empty() {
                break;
            }
            // The sender is not polled meanwhile: what is in flight arrives, and then no event is in flight.
            self.sending.rest(&mut backoff);
            self.receiving.poll()?;
            self.differences = self.receiving.endpoint().check_mirror()?;
        }
        self.read_clock();
        Ok(())
    }
}

/// Runs the transfer that `args` describe until `part` of it (0 to 1) is acknowledged, or until it has ended.
pub fn run_to(settings: &Settings, args: &TransferArgs, part: f64) -> Result<Load, CliError> {
    let mut load = Load::begin(settings, args)?;
    let enough = wanted(load.length, part);
    load.poll_until(settings.deadline, |load| load.acknowledged >= enough)?;
    load.compare_mirror()?;
    Ok(load)
}

/// Converts `part` of `length` to bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a length, to the percent"
)]
fn wanted(length: u64, part: f64) -> u64 {
    (length as f64 * part.clamp(0.0, 1.0)) as u64
}
