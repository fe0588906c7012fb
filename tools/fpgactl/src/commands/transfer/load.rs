//! A transfer up to some point, for listings of what is under way then.

use std::time::Duration;

use fpga_driver::core::Nanos;
use fpga_driver::core::mirror::Difference;
use fpga_driver::endpoint::SendTicket;

use super::ends::{Receiving, Sending};
use super::plan::Plan;
use super::{STALL_NS, card_span, open_ends};
use crate::cli::TransferArgs;
use crate::error::CliError;
use crate::settings::Settings;

/// Looks for a moment in which no event is under way; after so many the mirror is compared as it is.
const LOOKS: u32 = 256;

/// Both ends in the middle of a transfer, which is withdrawn in the end.
#[derive(Debug)]
pub struct Load {
    pub(in crate::commands) sending: Sending,
    pub(in crate::commands) receiving: Receiving,
    /// Bytes of the transfer.
    pub(in crate::commands) length: u64,
    /// Of these, acknowledged.
    pub(in crate::commands) acknowledged: u64,
    /// Since it was submitted, by the card's clock.
    pub(in crate::commands) elapsed: Duration,
    /// The card's clock.
    pub(in crate::commands) now: Nanos,
    /// Where the receiver's mirror differs from its card.
    pub(in crate::commands) differences: Vec<Difference>,
    under_way: Option<SendTicket>,
}

impl Drop for Load {
    /// Withdraws the transfer, and lets what is on its way to the card arrive: engines are not to be stopped in the middle of it.
    fn drop(&mut self) {
        if let Some(ticket) = self.under_way {
            self.sending.withdraw(ticket);
        }
    }
}

/// Makes the transfer that `args` describe until `part` of it (0 to 1) is acknowledged, or until it has ended.
///
/// # Errors
/// See [`CliError`].
pub fn run_to(settings: &Settings, args: &TransferArgs, part: f64) -> Result<Load, CliError> {
    let mut plan = Plan::new(args, &settings.transfer)?;
    // A listing compares every field, masks too.
    plan.packet_events = true;
    let (source, mut sending, mut receiving) = open_ends(settings, args, &plan)?;
    let length = plan.chunk_size(source.length(), &sending, &receiving)?;
    if length > 0 {
        receiving.open_region(length)?;
        let mut reader = source.open(settings.deadline)?;
        sending.load(&mut reader, length, settings.deadline, &mut |_| ())?;
    }
    let began = sending.opened().now();
    let enough = wanted(length, part);
    let mut acknowledged = 0;
    let mut under_way = None;
    if let Some(ticket) = sending.send(&receiving, length, &plan)? {
        let mut last_work = began;
        loop {
            let work = sending.poll()? + receiving.poll()?;
            let now = sending.opened().now();
            acknowledged = sending.acknowledged_bytes();
            if let Some(done) = sending.take_completion(ticket) {
                let card = sending.name();
                done.result.map_err(|source| CliError::Network { card, transfer: 1, source })?;
                break;
            }
            if acknowledged >= enough {
                under_way = Some(ticket);
                break;
            }
            settings.deadline.check(|| "the transfer to look at".to_owned())?;
            if work > 0 {
                last_work = now;
            } else if now.saturating_sub(last_work) > STALL_NS {
                let missing = "nothing more is acknowledged";
                return Err(CliError::Stalled { transfer: 1, waited: card_span(last_work, now), missing });
            } else {
                sending.relax();
            }
        }
    }
    let mut differences = receiving.endpoint().check_mirror()?;
    for _ in 0..LOOKS {
        if differences.is_empty() {
            break;
        }
        // The sender rests meanwhile: what is under way arrives, and then no event is.
        sending.relax();
        receiving.poll()?;
        differences = receiving.endpoint().check_mirror()?;
    }
    let now = sending.opened().now();
    Ok(Load {
        length,
        acknowledged,
        elapsed: card_span(began, now),
        now: Nanos::new(now),
        differences,
        under_way,
        sending,
        receiving,
    })
}

/// Bytes that `part` of `length` are.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a length, to the percent"
)]
fn wanted(length: u64, part: f64) -> u64 {
    (length as f64 * part.clamp(0.0, 1.0)) as u64
}
