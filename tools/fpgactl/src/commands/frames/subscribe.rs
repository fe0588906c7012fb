//! `stream subscribe`.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fpga_driver::WriteVolatile;
use fpga_frames::{
    BootstrapError, Event, JoinError, ReceivedFrame, Subscriber, SubscriberError, SubscriberOptions,
};
use fpga_pci::{LogLimit, log_limited};
use fpga_registers::quantity;
use serde::Serialize;

use super::{CHECKSUM, InternalErrorCounts, LinkedCard, LiveLine, ReportTimer, checksum};
use crate::advice::render;
use crate::cli::SubscribeArgs;
use crate::error::CliError;
use crate::outfile::{self, OutFile};
use crate::output::{self, Report};
use crate::progress::Deadline;
use crate::settings::Settings;
use crate::stop;

/// Timeout for leaving the stream.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two polls of a conversation of four messages.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// Time for which the join is retried after the publisher closes the connection without an answer, if no other time was requested.
const SILENT_CLOSE_RETRY_TIME: Duration = Duration::from_secs(10);
/// Time between two attempts to find the publisher, and between two checks for a signal.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Result of a subscription.
#[derive(Debug, Serialize)]
pub(super) struct SubscribeReport {
    node: u32,
    publisher: u32,
    frames: u64,
    bytes: u64,
    /// Frames whose checksum was correct.
    checked: u64,
    /// Frames that did not match their checksum.
    damaged: u64,
    gaps: u64,
    missed: u64,
    /// Other protocol errors of the publisher.
    faults: u64,
    /// First visible frame number, and the number after the last one.
    first: u64,
    next: u64,
    /// Whether the publisher has ended the stream.
    ended: bool,
    seconds: f64,
    goodput_gb_per_s: f64,
    credits: u64,
    internal: InternalErrorCounts,
}

impl Report for SubscribeReport {
    fn text(&self) -> String {
        output::pairs(&[
            (
                "frames",
                format!("{} ({}, {} checked)", self.frames, quantity(self.bytes, "byte"), self.checked),
            ),
            ("missed", format!("{} in {}", self.missed, quantity(self.gaps, "gap"))),
            ("damaged", self.damaged.to_string()),
            ("goodput", format!("{:.3} GB/s ({:.3} s)", self.goodput_gb_per_s, self.seconds)),
            (
                "ended",
                if self.ended { "by the publisher" } else { "before the end of the stream" }.to_owned(),
            ),
        ])
    }
}

enum Sink {
    Check,
    Folder(PathBuf),
    Out(OutFile),
}

impl Sink {
    fn take(&mut self, frame: &ReceivedFrame, deadline: Deadline) -> Result<(), CliError> {
        match self {
            Self::Check => Ok(()),
            Self::Out(out) => out
                .write_all_volatile(frame.data())
                .map_err(|error| CliError::carried(Path::new("-"), "write it", error)),
            Self::Folder(folder) => {
                let path = folder.join(format!("frame-{:020}", frame.sequence().get()));
                let mut file = OutFile::create(&path, deadline)?;
                file.write_all_volatile(frame.data())
                    .map_err(|error| CliError::carried(&path, "write it", error))?;
                file.commit()
            }
        }
    }
}

/// Resolves the publisher's name: at least one address.
fn resolve(place: &str) -> Result<Vec<SocketAddr>, CliError> {
    let unknown = |reason: String| {
        CliError::failed(format!("{place}: {reason}"))
            .advise("check the name, or give the publisher's address")
    };
    let found: Vec<_> = place.to_socket_addrs().map_err(|error| unknown(error.to_string()))?.collect();
    if found.is_empty() { Err(unknown("it has no address".to_owned())) } else { Ok(found) }
}

/// Reason to retry a join.
#[derive(Debug, Clone, Copy)]
enum RetryReason {
    Never,
    /// Only if retries were requested: no publisher listens, or it is busy or has no free slot.
    OnRequest,
    /// For a short time in any case: a publisher with many callers closed the connection before it read this request.
    ClosedSilently,
}

/// Tries each address of the publisher once. All attempts together take at most the timeout of one ([`SubscriberOptions::patience`]): each
/// gets an equal part of the remaining time. Returns `None` if a signal arrived meanwhile.
fn try_join(
    station: &LinkedCard,
    args: &SubscribeArgs,
    addresses: &[SocketAddr],
) -> Result<Option<Subscriber>, (RetryReason, CliError)> {
    let mut last = Ok(None);
    let until = Instant::now() + SubscriberOptions::default().patience;
    for (address, left) in addresses.iter().copied().zip((1..=addresses.len()).rev()) {
        let mut options = SubscriberOptions::default();
        (options.slots, options.max_silence) = (args.slots, args.max_silence);
        let rest = until.saturating_duration_since(Instant::now());
        options.patience = rest / u32::try_from(left).unwrap_or(u32::MAX);
        let endpoint = station.endpoint(args.max_silence).map_err(|error| (RetryReason::Never, error))?;
        let joined = Subscriber::begin_join(endpoint, address, options).and_then(|mut joining| {
            loop {
                match joining.poll()? {
                    Some(subscriber) => return Ok(Some(subscriber)),
                    None if stop::is_asked() => return Ok(None),
                    None => {
                        joining.relax();
                        std::thread::sleep(POLL_INTERVAL);
                    }
                }
            }
        });
        let error = match joined {
            Ok(joined) => return Ok(joined),
            Err(error) => error,
        };
        let again = match &error {
            JoinError::Bootstrap(BootstrapError::Closed { .. } | BootstrapError::Broken { .. }) => {
                RetryReason::ClosedSilently
            }
            JoinError::Bootstrap(
                BootstrapError::Connect { .. }
                | BootstrapError::TimedOut { .. }
                | BootstrapError::Refused { .. },
            ) => RetryReason::OnRequest,
            _ => RetryReason::Never,
        };
        // A name often has an IPv4 and an IPv6 address, and the publisher listens on one of them.
        let is_elsewhere = matches!(error, JoinError::Bootstrap(BootstrapError::Connect { .. }));
        last = Err((again, error.into()));
        if !is_elsewhere {
            break;
        }
    }
    last
}

fn join(settings: &Settings, args: &SubscribeArgs) -> Result<Subscriber, CliError> {
    let station = LinkedCard::reach(settings, &args.link)?;
    let began = Instant::now();
    let until = began + args.retry.unwrap_or_default();
    loop {
        let tried = match resolve(&args.publisher) {
            Ok(addresses) => try_join(&station, args, &addresses),
            Err(error) => Err((RetryReason::OnRequest, error)),
        };
        let now = Instant::now();
        match tried {
            Ok(Some(subscriber)) => return Ok(subscriber),
            Ok(None) => {}
            Err((RetryReason::OnRequest, error)) if now < until => {
                tracing::debug!(%error, "retrying the join");
            }
            Err((RetryReason::ClosedSilently, error)) if now < until.max(began + SILENT_CLOSE_RETRY_TIME) => {
                tracing::debug!(%error, "retrying the join");
            }
            Err((_, error)) => return Err(error),
        }
        // The time limit still applies: the subscription has not started.
        settings.deadline.check(|| format!("looking for the publisher at {}", args.publisher))?;
        pause(RETRY_INTERVAL);
    }
}

/// Sleeps in intervals, until a signal arrives.
fn pause(span: Duration) {
    let until = Instant::now() + span;
    while !stop::is_asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(RETRY_INTERVAL));
    }
}

/// Runs the command.
pub(super) fn run(settings: &Settings, args: &SubscribeArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut sink = match &args.out {
        None => Sink::Check,
        Some(out) if outfile::is_stdout(out) => Sink::Out(OutFile::create(out, settings.deadline)?),
        Some(folder) => {
            fs::create_dir_all(folder).map_err(|error| CliError::file(folder, "create the folder", error))?;
            Sink::Folder(folder.clone())
        }
    };
    let mut job = SubscribeJob::new(join(settings, args)?);
    let mut every = ReportTimer::new(args.every);
    let ended = job.read(settings, args, &mut sink, &mut every, out);
    let report = job.report();
    let (damaged, frames) = (report.damaged, report.frames);
    match ended {
        // There is no publisher to leave; the frames received until then are reported.
        Err(ref error) if error.is_reported() => {}
        Ok(()) => job.leave(),
        Err(_) => {
            job.leave();
            return ended;
        }
    }
    every.print(&report, settings.json, out)?;
    match damaged {
        0 => ended,
        damaged => Err(CliError::failed(format!(
            "wrong checksum: {damaged} of {}; the report is on standard output",
            quantity(frames, "frame")
        ))
        .reported()),
    }
}

struct SubscribeJob {
    subscriber: Subscriber,
    first: u64,
    checked: u64,
    damaged: u64,
    faults: u64,
    log: LogLimit,
    began: Option<Instant>,
    /// Time from the first frame to the last event.
    span: Duration,
    ended: bool,
}

impl SubscribeJob {
    fn new(subscriber: Subscriber) -> Self {
        let first = subscriber.expected().get();
        let (began, span) = (None, Duration::ZERO);
        Self {
            subscriber,
            first,
            checked: 0,
            damaged: 0,
            faults: 0,
            log: LogLimit::new("the publisher"),
            began,
            span,
            ended: false,
        }
    }

    fn frame(&mut self, frame: &ReceivedFrame) {
        self.began.get_or_insert_with(Instant::now);
        if frame.value().len() != CHECKSUM {
            return;
        }
        let mut value = [0; CHECKSUM];
        let read = frame.value().read(0, &mut value);
        if read.is_ok() && value == checksum(frame.sequence().get(), frame.data()) {
            self.checked += 1;
        } else {
            self.damaged += 1;
            log_limited!(
                self.log,
                ERROR,
                sequence = frame.sequence().get(),
                "the frame does not match its checksum"
            );
        }
    }

    fn read(
        &mut self,
        settings: &Settings,
        args: &SubscribeArgs,
        sink: &mut Sink,
        every: &mut ReportTimer,
        out: &mut dyn Write,
    ) -> Result<(), CliError> {
        let mut live = LiveLine::new(settings);
        while !stop::is_asked() && args.count.is_none_or(|count| self.subscriber.counts().frames < count) {
            let event = self.subscriber.poll().map_err(|error| match error {
                SubscriberError::Silent { .. } | SubscriberError::Unreachable { .. } => {
                    let frames = quantity(self.subscriber.counts().frames, "frame");
                    CliError::failed(format!("after {frames}: {error}"))
                        .advised(error.advice().map(|advice| render(&advice)))
                        .reported()
                }
                error => error.into(),
            })?;
            let now = Instant::now();
            match event {
                Some(Event::Frame(frame)) => {
                    self.frame(&frame);
                    sink.take(&frame, settings.deadline)?;
                    if let Some(delay) = args.delay {
                        // Simulates a slow program, which polls nothing meanwhile.
                        pause(delay);
                    }
                }
                Some(Event::Gap { missed, first }) => tracing::info!(missed, first = first.get(), "gap"),
                Some(Event::Fault(error)) => {
                    self.faults += 1;
                    log_limited!(self.log, WARN, %error, "protocol error of the publisher");
                }
                Some(Event::Ended { .. }) => {
                    self.ended = true;
                    break;
                }
                Some(event) => tracing::info!(?event),
                None => self.subscriber.back_off(),
            }
            self.span = self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
            live.show(|| {
                let counts = self.subscriber.counts();
                format!(
                    "{}, {} missed in {}",
                    quantity(counts.frames, "frame"),
                    counts.missed,
                    quantity(counts.gaps, "gap")
                )
            });
            if every.is_due(now) {
                output::print_line(&self.report(), settings.json, out)?;
            }
            settings.deadline.check_time(|| "subscribing".to_owned())?;
        }
        Ok(())
    }

    fn report(&self) -> SubscribeReport {
        let counts = self.subscriber.counts();
        SubscribeReport {
            node: self.subscriber.endpoint().node().get(),
            publisher: self.subscriber.publisher().get(),
            frames: counts.frames,
            bytes: counts.bytes,
            checked: self.checked,
            damaged: self.damaged,
            gaps: counts.gaps,
            missed: counts.missed,
            faults: self.faults,
            first: self.first,
            next: self.subscriber.expected().get(),
            ended: self.ended,
            seconds: self.span.as_secs_f64(),
            goodput_gb_per_s: crate::units::gigabytes_per_second(counts.bytes, self.span),
            credits: counts.credits,
            internal: counts.internal.into(),
        }
    }

    /// Leaves the stream and stops the card.
    fn leave(self) {
        if let Err(error) = self.subscriber.leave(LEAVE_TIMEOUT) {
            tracing::info!(%error, "left the stream without an answer");
        }
    }
}
