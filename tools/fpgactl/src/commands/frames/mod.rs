//! `stream`: frame streams between cards.

mod pacer;
mod publish;
mod subscribe;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpga_driver::{Card, SharedSlice};
use fpga_firmware::crc::crc32c;
use fpga_firmware::generated::EVENT_RING_ENTRIES_MAX;
use fpga_frames::InternalErrors;
use fpga_pci::Backend;
use fpga_rdma::{Endpoint, EndpointOptions};
use fpga_sim::SimNetwork;
use fpga_sim::link::{UdpLink, UdpLinkOptions};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::cli::{StreamCommand, StreamLinkArgs};
use crate::error::CliError;
use crate::impair::ImpairArgs;
use crate::output::{self, Report};
use crate::settings::Settings;
use crate::style;
use crate::target::{self, CardOpener as _};

/// Escape timeout. Cards of several processes share CPUs: a packet may be late by several time slices.
const ESCAPE_TIMEOUT: Duration = Duration::from_millis(50);
/// Maximum give-up time, for the same reason: with a dozen busy programs on two CPUs, a round trip between four processes takes 250 ms.
const MAX_GIVE_UP: Duration = Duration::from_secs(5);
/// Bytes of the header value of a frame: its number and a CRC-32C of the data.
const CHECKSUM: usize = 12;
/// Interval between updates of the live statistics.
const LIVE: Duration = Duration::from_millis(200);

/// Runs the command.
pub fn run(
    settings: &Settings,
    command: &StreamCommand,
    out: &mut dyn std::io::Write,
) -> Result<(), CliError> {
    match command {
        StreamCommand::Publish(args) => publish::run(settings, args, out),
        StreamCommand::Subscribe(args) => subscribe::run(settings, args, out),
    }
}

/// Counts of inconsistencies that were repaired on either side.
#[derive(Debug, Serialize)]
struct InternalErrorCounts {
    heap_frames: u64,
    postponed: u64,
    fetched_again: u64,
    strays: u64,
    lost_uploads: u64,
    lost_slots: u64,
    resent: u64,
    voided: u64,
    faults: u64,
}

impl From<InternalErrors> for InternalErrorCounts {
    fn from(errors: InternalErrors) -> Self {
        Self {
            heap_frames: errors.heap_frames,
            postponed: errors.postponed,
            fetched_again: errors.fetched_again,
            strays: errors.stray_notifications,
            lost_uploads: errors.lost_uploads,
            lost_slots: errors.lost_slots,
            resent: errors.resent,
            voided: errors.voided,
            faults: errors.faults,
        }
    }
}

/// Returns the number and CRC-32C of a frame. The CRC is computed over a copy in memory that is reused for every frame.
fn checksum(number: u64, data: SharedSlice<'_>) -> [u8; CHECKSUM] {
    thread_local!(static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    let crc = COPY.with_borrow_mut(|copy| {
        copy.resize(data.len(), 0);
        // The length is that of the data.
        let whole = data.read(0, copy);
        debug_assert!(whole.is_ok());
        crc32c(copy)
    });
    let mut value = [0; CHECKSUM];
    if let Some((head, tail)) = value.split_first_chunk_mut::<8>() {
        *head = number.to_le_bytes();
        tail.copy_from_slice(&crc.to_le_bytes());
    }
    value
}

/// Card with a link to other cards.
struct LinkedCard {
    backend: Arc<dyn Backend>,
}

impl LinkedCard {
    fn reach(settings: &Settings, link: &StreamLinkArgs) -> Result<Self, CliError> {
        let described = settings.card.description()?;
        let backend = match (described, link.link.split_first()) {
            (Some(mut description), Some((&local, peers))) => {
                description.ni.node_id = link.node.unwrap_or(description.ni.node_id);
                let impair = ImpairArgs { loss: link.loss, ..ImpairArgs::default() };
                let network = SimNetwork::builder().impairments(impair.model(0)?).seed(link.seed);
                let options = UdpLinkOptions::new(local);
                let udp = UdpLink::bind(peers.iter().copied().fold(options, UdpLinkOptions::peer))?;
                settings.card.with_observer(network.card(description).link(udp).build()?.backend(0))
            }
            (Some(_), None) => {
                let text = "a simulated card of this process has no other card on its network";
                return Err(CliError::usage(text).advise("connect it with --link, or name a card of another process with --card (`fpgactl card serve --link` serves one)"));
            }
            (None, Some(_)) => {
                let card = &settings.card;
                return Err(CliError::usage(format!(
                    "--link applies only to simulated cards of this process, and {card} is not one"
                ))
                .advise("omit --link"));
            }
            (None, None) => target::reach(&settings.card)?,
        };
        Ok(Self { backend })
    }

    /// Endpoint of a stream whose other side is lost after `max_silence`.
    fn endpoint(&self, max_silence: Duration) -> Result<Endpoint, CliError> {
        let card = Card::from_backend(Arc::clone(&self.backend))?;
        let mut options = EndpointOptions::default();
        (options.escape_timeout, options.give_up) = (ESCAPE_TIMEOUT, MAX_GIVE_UP.min(max_silence));
        options.event_entries = EVENT_RING_ENTRIES_MAX;
        Ok(Endpoint::open_with(&card, &options)?)
    }
}

/// Timer for periodic reports while the stream runs.
struct ReportTimer {
    span: Option<Duration>,
    last: Instant,
}

impl ReportTimer {
    fn new(span: Option<Duration>) -> Self {
        Self { span, last: Instant::now() }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let Some(span) = self.span else { return false };
        let due = now.saturating_duration_since(self.last) >= span;
        if due {
            self.last = now;
        }
        due
    }

    /// Prints the last report; after periodic reports, as one line in the same form.
    fn print(&self, report: &impl Report, json: bool, out: &mut dyn std::io::Write) -> Result<(), CliError> {
        match self.span {
            Some(_) => output::print_line(report, json, out),
            None => output::print(report, json, out),
        }
    }
}

/// One line that changes, on a terminal.
struct LiveLine {
    bar: ProgressBar,
    shown: Instant,
}

impl LiveLine {
    fn new(settings: &Settings) -> Self {
        let seen = settings.progress && style::redraws(&std::io::stderr());
        let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        // The message only, cut off at the terminal's width. A stream has no length for a bar.
        let bar = match ProgressStyle::with_template("{wide_msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Self { bar, shown: Instant::now() }
    }

    fn show(&mut self, text: impl FnOnce() -> String) {
        if !self.bar.is_hidden() && self.shown.elapsed() >= LIVE {
            self.shown = Instant::now();
            self.bar.set_message(text());
            self.bar.tick();
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
