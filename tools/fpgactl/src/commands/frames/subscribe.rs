//! `stream subscribe`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fpga_frames::{BootstrapError, Event, JoinError, ReceivedFrame, Subscriber, SubscriberOptions};
use serde::Serialize;

use super::{CHECKSUM, Live, Repaired, Station, checksum, interruption, is_set};
use crate::cli::SubscribeArgs;
use crate::error::CliError;
use crate::output::{self, Report};
use crate::settings::Settings;

/// How long a farewell may take.
const LEAVING: Duration = Duration::from_secs(2);
/// Between two tries to find the publisher.
const AGAIN: Duration = Duration::from_millis(50);

/// What has come.
#[derive(Debug, Serialize)]
pub(super) struct SubscribeReport {
    node: u32,
    publisher: u32,
    frames: u64,
    bytes: u64,
    /// Frames whose checksum was right.
    checked: u64,
    /// Frames that were not what their checksum says.
    damaged: u64,
    gaps: u64,
    missed: u64,
    /// Other things wrong with what the publisher sent.
    faults: u64,
    /// The first number that could be seen, and the one after the last.
    first: u64,
    next: u64,
    /// Whether the publisher has ended the stream.
    ended: bool,
    seconds: f64,
    goodput_gb_per_s: f64,
    credits: u64,
    internal: Repaired,
}

impl Report for SubscribeReport {
    fn text(&self) -> String {
        output::pairs(&[
            ("frames", format!("{} ({} bytes, {} checked)", self.frames, self.bytes, self.checked)),
            ("missed", format!("{} in {} gaps", self.missed, self.gaps)),
            ("damaged", self.damaged.to_string()),
            ("goodput", format!("{:.3} GB/s ({:.3} s)", self.goodput_gb_per_s, self.seconds)),
            ("ended", if self.ended { "by the publisher" } else { "before the stream" }.to_owned()),
        ])
    }
}

enum Sink<'a> {
    Check,
    Folder(PathBuf),
    Out(&'a mut dyn Write),
}

impl Sink<'_> {
    fn take(&mut self, frame: &ReceivedFrame) -> Result<(), CliError> {
        match self {
            Self::Check => Ok(()),
            Self::Out(out) => output::write_all(frame.data(), out),
            Self::Folder(folder) => {
                let path = folder.join(format!("frame-{:020}", frame.sequence().get()));
                fs::write(&path, frame.data()).map_err(|error| CliError::file(&path, "write it", error))
            }
        }
    }
}

fn join(settings: &Settings, args: &SubscribeArgs) -> Result<Subscriber, CliError> {
    let station = Station::reach(settings, &args.link)?;
    let until = Instant::now() + args.retry.unwrap_or_default();
    loop {
        let mut options = SubscriberOptions::default();
        options.slots = args.slots;
        let endpoint = station.endpoint()?;
        match Subscriber::join(endpoint, args.publisher, options) {
            Ok(subscriber) => return Ok(subscriber),
            Err(JoinError::Bootstrap(
                error @ (BootstrapError::Connect { .. }
                | BootstrapError::Closed { .. }
                | BootstrapError::Broken { .. }
                | BootstrapError::Refused { .. }),
            )) if Instant::now() < until => tracing::debug!(%error, "again"),
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(AGAIN);
    }
}

/// Runs the command.
pub(super) fn run(settings: &Settings, args: &SubscribeArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let to_output = args.out.as_deref() == Some(Path::new("-"));
    if to_output && settings.json {
        return Err(CliError::Usage(
            "standard output cannot have both the frames (--out -) and the report (--json); write frames to a folder".to_owned(),
        ));
    }
    let stop = interruption()?;
    if let Some(folder) = args.out.as_deref().filter(|_| !to_output) {
        fs::create_dir_all(folder).map_err(|error| CliError::file(folder, "create the folder", error))?;
    }
    let subscriber = join(settings, args)?;
    let report = {
        let sink = match &args.out {
            None => Sink::Check,
            Some(_) if to_output => Sink::Out(out),
            Some(folder) => Sink::Folder(folder.clone()),
        };
        read(settings, args, subscriber, sink, &stop)?
    };
    if to_output {
        // Nothing there but the frames.
        let _ = write!(std::io::stderr(), "{}", report.text());
    } else {
        output::print(&report, settings.json, out)?;
    }
    match report.damaged {
        0 => Ok(()),
        damaged => Err(CliError::DamagedFrames { damaged, frames: report.frames }),
    }
}

fn read(
    settings: &Settings,
    args: &SubscribeArgs,
    mut subscriber: Subscriber,
    mut sink: Sink<'_>,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<SubscribeReport, CliError> {
    let mut live = Live::new(settings);
    let first = subscriber.expected().get();
    let (mut checked, mut damaged, mut faults) = (0, 0, 0);
    let mut began = None;
    let mut ended = false;
    while !is_set(stop) && args.count.is_none_or(|count| subscriber.counts().frames < count) {
        match subscriber.poll()? {
            Some(Event::Frame(frame)) => {
                began.get_or_insert_with(Instant::now);
                if frame.value().len() == CHECKSUM {
                    if frame.value() == checksum(frame.sequence().get(), frame.data()) {
                        checked += 1;
                    } else {
                        damaged += 1;
                        tracing::error!(sequence = frame.sequence().get(), "not what its checksum says");
                    }
                }
                sink.take(&frame)?;
                if let Some(delay) = args.delay {
                    // What a slow program does meanwhile is not this one's business.
                    std::thread::sleep(delay);
                }
            }
            Some(Event::Gap { missed, first }) => tracing::info!(missed, first = first.get(), "gap"),
            Some(Event::Fault(error)) => {
                faults += 1;
                tracing::warn!(%error, "what the publisher sends");
            }
            Some(Event::Ended { .. }) => {
                ended = true;
                break;
            }
            Some(event) => tracing::info!(?event),
            None => subscriber.relax(),
        }
        live.show(|| {
            let counts = subscriber.counts();
            format!("{} frames, {} missed in {} gaps", counts.frames, counts.missed, counts.gaps)
        });
        settings.deadline.check(|| "subscribing".to_owned())?;
    }
    let span = began.map_or(Duration::ZERO, |began: Instant| began.elapsed());
    let (node, publisher, next) =
        (subscriber.endpoint().node().get(), subscriber.publisher().get(), subscriber.expected().get());
    let counts = subscriber.counts();
    if !ended && let Err(error) = subscriber.leave(LEAVING) {
        tracing::info!(%error, "left without an answer");
    }
    Ok(SubscribeReport {
        node,
        publisher,
        frames: counts.frames,
        bytes: counts.bytes,
        checked,
        damaged,
        gaps: counts.gaps,
        missed: counts.missed,
        faults,
        first,
        next,
        ended,
        seconds: span.as_secs_f64(),
        goodput_gb_per_s: crate::units::gigabytes_per_second(counts.bytes, span),
        credits: counts.credits,
        internal: counts.internal.into(),
    })
}
