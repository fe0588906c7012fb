//! `events`: device events of a card other than its interrupts.

use std::io::Write;
use std::time::{Duration, Instant};

use fpga_pci::{DeviceEvent, DeviceEvents};
use fpga_registers::quantity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::cli::EventsArgs;
use crate::error::CliError;
use crate::output::{self, Report};
use crate::settings::Settings;
use crate::stop;
use crate::target;

/// Maximum duration of one wait, so that the time limit is kept.
const WAIT: Duration = Duration::from_secs(60);

/// One event.
#[derive(Debug, Serialize)]
struct EventReport {
    card: String,
    event: &'static str,
    /// Seconds since the command began to watch.
    seconds: f64,
    #[serde(skip)]
    meaning: String,
}

impl Report for EventReport {
    fn text(&self) -> String {
        format!("{} after {:.1} s: {} ({})\n", self.card, self.seconds, self.event, self.meaning)
    }
}

const fn name(event: DeviceEvent) -> &'static str {
    match event {
        DeviceEvent::BusError => "bus-error",
        DeviceEvent::ReleaseRequested => "release-requested",
        DeviceEvent::ServerGone => "server-gone",
        _ => "other",
    }
}

/// Sleeps until there may be an event, a signal arrives, or the time is over.
fn sleep(events: &DeviceEvents, span: Duration) -> Result<(), CliError> {
    let mut waits = vec![PollFd::new(events, PollFlags::IN)];
    waits.extend(stop::signalled().map(|signalled| PollFd::from_borrowed_fd(signalled, PollFlags::IN)));
    // A span longer than the kernel supports waits without limit.
    let span = Timespec::try_from(span).ok();
    match poll(&mut waits, span.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(CliError::signals(errno.into())),
    }
}

/// Watches a card and prints each event, with `--json` one JSON document per line. Ends after the requested number of events, at a signal,
/// and when the system requests the release of the card, which the end of this program releases.
///
/// # Errors
/// As [`target::reach`]; wrong usage for a card without events; [`CliError::timed_out`].
pub fn run(settings: &Settings, args: &EventsArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let card = settings.card.to_string();
    let backend = target::reach(&settings.card)?;
    let events = backend.events().map_err(|error| CliError::failed(format!("{card}: {error}")))?;
    let all = [DeviceEvent::BusError, DeviceEvent::ReleaseRequested, DeviceEvent::ServerGone];
    if !all.into_iter().any(|event| events.can_have(event)) {
        return Err(CliError::usage(format!("{card} has no events"))
            .advise("name a card at a PCI address or a vfio-user: card with --card"));
    }
    let began = Instant::now();
    eprintln!("fpgactl: watching {card}");
    let mut seen = 0;
    while seen < args.count {
        let Some(event) = events.poll() else {
            if stop::is_asked() {
                break;
            }
            settings.deadline.check_time(|| match args.count {
                u64::MAX => format!("{card}: watching, {} seen", quantity(seen, "event")),
                count => format!("{card}: watching, {seen} of {} seen", quantity(count, "event")),
            })?;
            sleep(&events, settings.deadline.left().map_or(WAIT, |left| left.min(WAIT)))?;
            continue;
        };
        seen += 1;
        let seconds = began.elapsed().as_secs_f64();
        let report =
            EventReport { card: card.clone(), event: name(event), seconds, meaning: event.to_string() };
        output::print_line(&report, settings.json, out)?;
        match event {
            DeviceEvent::ReleaseRequested => break,
            DeviceEvent::ServerGone => {
                let text = format!("{card}: the process that serves the card has ended");
                return Err(CliError::failed(text).advise("start it again with `fpgactl card serve`"));
            }
            _ => {}
        }
    }
    Ok(())
}
