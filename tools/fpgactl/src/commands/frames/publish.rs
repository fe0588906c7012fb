//! `stream publish`.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fpga_driver::ReadVolatile;
use fpga_frames::{
    DropReason, Frame, PublishError, Publisher, PublisherEvent, PublisherOptions, SubscriberStatistics,
    TakeError,
};
use fpga_pci::LogLimit;
use fpga_registers::quantity;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::pacer::FramePacer;
use super::{CHECKSUM, InternalErrorCounts, LinkedCard, LiveLine, ReportTimer, checksum};
use crate::cli::PublishArgs;
use crate::error::CliError;
use crate::output::{self, Report};
use crate::settings::Settings;
use crate::stop;
use crate::stream::open_at_once;
use crate::units;

/// Frames published between two checks for other work.
const BURST: u32 = 32;
/// One frame in this number is long if most are short (`--mostly`).
const LONG: u32 = 32;
/// Timeout for the delivery of the last frames.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time between two polls. A longer gap is a delay of the machine, not of a subscriber.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Statistics of one subscriber over its subscription.
#[derive(Debug, Serialize)]
struct SubscriberReport {
    id: String,
    node: u32,
    sent: u64,
    arrived: u64,
    skipped: u64,
    failed: u64,
    /// Reason why the subscription ended early; `null` if it did not.
    gone: Option<String>,
    /// Whether the subscriber ended its subscription itself: data that had not arrived then does not count as missing.
    #[serde(skip)]
    left: bool,
}

impl SubscriberReport {
    fn new(id: String, node: u32, counts: SubscriberStatistics, gone: Option<&DropReason>) -> Self {
        let SubscriberStatistics { sent, arrived, skipped, failed, .. } = counts;
        let left = matches!(gone, Some(DropReason::Unsubscribed | DropReason::Replaced));
        Self { id, node, sent, arrived, skipped, failed, gone: gone.map(ToString::to_string), left }
    }

    /// Frames sent to the subscriber that neither arrived nor are among the earlier `failed` ones. 0 if it left.
    const fn missing(&self, failed: u64) -> u64 {
        if self.left { 0 } else { self.sent.saturating_sub(self.arrived).saturating_sub(failed) }
    }
}

/// Result of publishing.
#[derive(Debug, Serialize)]
pub(super) struct PublishReport {
    node: u32,
    frame_bytes: u64,
    published: u64,
    /// Frames that were due by `--rate` and not available in time.
    late: u64,
    unsent: u64,
    sent: u64,
    skipped: u64,
    arrived: u64,
    failed: u64,
    bytes: u64,
    seconds: f64,
    frames_per_second: f64,
    goodput_gb_per_s: f64,
    rejected: u64,
    /// Frames accepted for those who were subscribers at the end and not delivered; 0 before the end.
    undelivered: u64,
    subscribers: Vec<SubscriberReport>,
    internal: InternalErrorCounts,
}

impl Report for PublishReport {
    fn text(&self) -> String {
        let mut text = output::pairs(&[
            (
                "published",
                format!(
                    "{} of up to {}",
                    quantity(self.published, "frame"),
                    units::binary_size(self.frame_bytes)
                ),
            ),
            ("rate", format!("{:.1} frames/s ({:.3} s)", self.frames_per_second, self.seconds)),
            ("sent", format!("{} ({} arrived, {} failed)", self.sent, self.arrived, self.failed)),
            ("skipped", format!("{} without a free slot", self.skipped)),
            ("goodput", format!("{:.3} GB/s to all subscribers together", self.goodput_gb_per_s)),
        ]);
        if self.late > 0 {
            text += &output::pairs(&[(
                "late",
                format!("{} due by --rate, not available in time", quantity(self.late, "frame")),
            )]);
        }
        if self.undelivered > 0 {
            text += &output::pairs(&[(
                "undelivered",
                format!("{} of those sent before the end", self.undelivered),
            )]);
        }
        for it in &self.subscribers {
            let gone = it.gone.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            text += &format!(
                "node {}: sent {}, arrived {}, skipped {}, failed {}{gone}\n",
                it.node, it.sent, it.arrived, it.skipped, it.failed
            );
        }
        text
    }
}

/// Source of frames.
enum Source {
    Pattern(Pattern),
    Stream(StreamSource),
}

/// Random bytes.
struct Pattern {
    random: Pcg64Mcg,
    /// Maximum length of most frames, if lengths differ.
    mostly: Option<u64>,
}

impl Pattern {
    fn fill(&mut self, frame: &mut Frame) -> Result<(), CliError> {
        let room = frame.data_mut().len() as u64;
        let longest = match self.mostly {
            Some(mostly) if !self.random.next_u32().is_multiple_of(LONG) => mostly.min(room),
            _ => room,
        };
        let shorter = match self.mostly {
            Some(_) => self.random.next_u64() % (longest / 2 + 1),
            None => 0,
        };
        let length = usize::try_from(longest - shorter).unwrap_or(usize::MAX);
        frame.set_len(length)?;
        frame.data().write_chunks(|_, chunk| self.random.fill_bytes(chunk));
        Ok(())
    }
}

/// Bytes from a pipe or file at an unknown rate. Subscribers wait for them, and reading must not block the other work.
struct StreamSource {
    file: File,
    path: PathBuf,
    /// Bytes of the next frame read so far.
    length: usize,
}

/// State of the next frame.
#[derive(PartialEq, Eq)]
enum NextFrame {
    Whole,
    Part,
    /// End of the input.
    End,
}

impl Source {
    fn open(args: &PublishArgs) -> Result<Self, CliError> {
        let Some(path) = &args.file else {
            if let Some(mostly) = args.mostly.filter(|mostly| !(1..=args.frame).contains(mostly)) {
                let frame = args.frame;
                return Err(CliError::usage(format!(
                    "--mostly {mostly}: out of range for frames of at most {frame} bytes (--frame)"
                ))
                .advise(format!("give 1 to {frame}")));
            }
            let random = Pcg64Mcg::new(u128::from(args.link.seed));
            return Ok(Self::Pattern(Pattern { random, mostly: args.mostly }));
        };
        let (file, path) = if path == Path::new("-") {
            // Without the standard library's buffer: readiness is queried from the system.
            (std::io::stdin().as_fd().try_clone_to_owned().map(File::from), Path::new("standard input"))
        } else {
            (open_at_once(path), path.as_path())
        };
        let file = file.map_err(|error| CliError::file(path, "open it", error))?;
        Ok(Self::Stream(StreamSource { file, path: path.to_owned(), length: 0 }))
    }

    /// Fills a frame as far as possible without waiting.
    fn fill(&mut self, frame: &mut Frame) -> Result<NextFrame, CliError> {
        match self {
            Self::Pattern(pattern) => pattern.fill(frame).map(|()| NextFrame::Whole),
            Self::Stream(stream) => stream.fill(frame),
        }
    }
}

impl StreamSource {
    fn is_readable(&self) -> bool {
        let mut wanted = [PollFd::new(&self.file, PollFlags::IN)];
        // End of file and errors also count as readable. Interrupted: retried at the next poll.
        poll(&mut wanted, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn fill(&mut self, frame: &mut Frame) -> Result<NextFrame, CliError> {
        let room = frame.data_mut();
        while self.length < room.len()
            && let Ok(rest) = room.slice(self.length, room.len() - self.length)
        {
            if !self.is_readable() {
                return Ok(NextFrame::Part);
            }
            match self.file.read_volatile(rest) {
                Ok(0) if self.length == 0 => return Ok(NextFrame::End),
                Ok(0) => break,
                Ok(count) => self.length += count,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
                    return Ok(NextFrame::Part);
                }
                Err(error) => return Err(CliError::file(&self.path, "read it", error)),
            }
        }
        let length = core::mem::take(&mut self.length);
        frame.set_len(length)?;
        Ok(NextFrame::Whole)
    }
}

/// Maximum number of departed subscribers in the report; the last ones are kept.
const MAX_GONE: usize = 4096;

struct PublishJob<'a> {
    args: &'a PublishArgs,
    publisher: Publisher,
    source: Source,
    /// Next frame, and whether it is complete.
    frame: Option<(Frame, bool)>,
    published: u64,
    bytes: u64,
    rejected: u64,
    gone: Vec<SubscriberReport>,
    log: LogLimit,
    began: Option<Instant>,
    /// Schedule from the first frame on, if there is a rate.
    pace: Option<FramePacer>,
    undelivered: Undelivered,
}

/// Frames that did not reach those who were subscribers when the end began.
#[derive(Clone, Copy, Default)]
struct Undelivered {
    frames: u64,
    subscribers: usize,
}

impl PublishJob<'_> {
    /// Processes the events of subscribers.
    fn take_events(&mut self) {
        while let Some(event) = self.publisher.next_event() {
            match event {
                PublisherEvent::Dropped { id, node, reason, statistics } => {
                    match reason {
                        DropReason::Unsubscribed | DropReason::Replaced => {
                            tracing::info!(%id, %node, %reason, "subscriber removed")
                        }
                        // Rate limit: a node that joins repeatedly and cannot be reached does not fill the log.
                        _ if !self.log.permits_now() => {}
                        _ => tracing::warn!(
                            "{id} (node {node}) was removed from the stream: {reason}; {} of {} to it arrived, and it may join again",
                            statistics.arrived,
                            quantity(statistics.sent, "frame")
                        ),
                    }
                    if self.gone.len() >= MAX_GONE {
                        self.gone.remove(0);
                    }
                    self.gone.push(SubscriberReport::new(
                        id.to_string(),
                        node.get(),
                        statistics,
                        Some(&reason),
                    ));
                }
                PublisherEvent::Rejected { peer, reason: why } => {
                    tracing::info!(%peer, why, "rejected");
                    self.rejected += 1;
                }
                PublisherEvent::UploadFailed { sequence, fault } if self.log.permits_now() => {
                    tracing::warn!(
                        "frame {sequence} could not be written to the card, and no subscriber receives it: {fault}"
                    );
                }
                PublisherEvent::Fault { what, fault } if self.log.permits_now() => {
                    tracing::warn!(
                        "{what} could not be moved between host and card, and is retried: {fault}"
                    );
                }
                event if self.log.permits_now() => tracing::info!(?event),
                _ => {}
            }
        }
    }

    /// Returns whether the next frame may be published now.
    fn is_time(&mut self, now: Instant) -> bool {
        if self.began.is_none() {
            return false;
        }
        match &mut self.pace {
            Some(pace) => pace.is_due(now),
            None => {
                let mut all = self.publisher.subscribers().peekable();
                all.peek().is_some() && all.all(|subscriber| subscriber.room > 0)
            }
        }
    }

    /// Publishes a frame if one is available and due. Returns `None` at the end, else whether it published.
    fn publish(&mut self) -> Result<Option<bool>, CliError> {
        if self.args.count.is_some_and(|count| self.published >= count) {
            return Ok(None);
        }
        let (mut frame, mut whole) = match self.frame.take() {
            Some(begun) => begun,
            None => match self.publisher.take() {
                Ok(frame) => (frame, false),
                Err(TakeError::Full { .. }) => return Ok(Some(false)),
                Err(error) => return Err(error.into()),
            },
        };
        if !whole {
            match self.source.fill(&mut frame)? {
                NextFrame::Whole => whole = true,
                NextFrame::Part => {}
                NextFrame::End => return Ok(None),
            }
        }
        if !whole || !self.is_time(Instant::now()) {
            self.frame = Some((frame, whole));
            return Ok(Some(false));
        }
        let value = checksum(self.publisher.next_sequence().get(), frame.data());
        let length = frame.data().len() as u64;
        frame.set_value(&value)?;
        self.published += 1;
        if let Some(pace) = &mut self.pace {
            pace.published();
        }
        match self.publisher.publish(frame) {
            Ok(published) => self.bytes += length * u64::from(published.sent.len()),
            Err(PublishError::NoFreeSlot { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Some(true))
    }

    /// Publishes the due frames, up to a burst. Returns `None` at the end, else their number.
    fn burst(&mut self) -> Result<Option<u32>, CliError> {
        for count in 0..BURST {
            match self.publish()? {
                Some(true) => {}
                Some(false) => return Ok(Some(count)),
                None => return Ok(None),
            }
        }
        Ok(Some(BURST))
    }

    /// Report of the publisher: its current subscribers and those that are `gone`.
    fn report(&self, seconds: f64, gone: Vec<SubscriberReport>) -> PublishReport {
        let statistics = self.publisher.statistics();
        let mut subscribers = gone;
        let stayed = self.publisher.subscribers();
        subscribers.extend(
            stayed.map(|it| SubscriberReport::new(it.id.to_string(), it.node.get(), it.statistics, None)),
        );
        #[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        PublishReport {
            node: self.publisher.node().get(),
            frame_bytes: self.args.frame,
            published: statistics.published,
            late: self.pace.map_or(0, |pace| pace.late()),
            unsent: statistics.unsent,
            sent: statistics.sent,
            skipped: statistics.skipped,
            arrived: statistics.arrived,
            failed: statistics.failed,
            bytes: self.bytes,
            seconds,
            frames_per_second: per_second(statistics.published),
            goodput_gb_per_s: per_second(self.bytes) / 1e9,
            rejected: self.rejected,
            undelivered: self.undelivered.frames,
            subscribers,
            internal: statistics.internal.into(),
        }
    }

    fn seconds(&self) -> f64 {
        self.began.map_or(0.0, |began| began.elapsed().as_secs_f64())
    }

    /// Ends the stream: accepted frames are delivered first, up to the timeout.
    fn close(&mut self, limit: Duration) -> Result<(), CliError> {
        drop(self.frame.take());
        let (mut waited, mut looked) = (Duration::ZERO, Instant::now());
        // Transfers that failed before belong to frames that were live then; frames accepted now have to arrive.
        let before: Vec<_> = self.publisher.subscribers().collect();
        self.publisher.begin_close();
        while !self.publisher.is_closed() {
            if self.publisher.poll()? == 0 {
                self.publisher.back_off();
            }
            self.take_events();
            let now = Instant::now();
            waited += now.saturating_duration_since(looked).min(POLL_INTERVAL);
            looked = now;
            if waited > limit {
                tracing::warn!(
                    "the last frames, or the end of the stream, did not arrive at every subscriber within {limit:?}"
                );
                break;
            }
        }
        let after: Vec<_> = self.publisher.subscribers().collect();
        for view in before {
            let id = view.id.to_string();
            let stayed = after
                .iter()
                .find(|it| it.id == view.id)
                .map(|it| SubscriberReport::new(id.clone(), it.node.get(), it.statistics, None));
            let Some(subscriber) = stayed.as_ref().or_else(|| self.gone.iter().rfind(|it| it.id == id))
            else {
                continue;
            };
            let missing = subscriber.missing(view.statistics.failed);
            self.undelivered.frames += missing;
            self.undelivered.subscribers += usize::from(missing > 0);
        }
        Ok(())
    }
}

fn open<'a>(settings: &Settings, args: &'a PublishArgs) -> Result<PublishJob<'a>, CliError> {
    let source = Source::open(args)?;
    let endpoint = LinkedCard::reach(settings, &args.link)?.endpoint(args.max_silence)?;
    let mut options = PublisherOptions::default();
    (options.max_data_length, options.slots) = (args.frame, args.slots);
    options.subscribers = args.max_subscribers.max(args.subscribers);
    (options.heartbeat, options.max_silence) = (args.heartbeat, args.max_silence);
    options.max_value_length = u32::try_from(CHECKSUM).unwrap_or(0);
    let mut publisher = Publisher::new(endpoint, options)?;
    let address = publisher.listen(args.listen)?;
    // The reader of standard error may be gone.
    let _ = writeln!(std::io::stderr(), "ready {address}");
    Ok(PublishJob {
        args,
        publisher,
        source,
        frame: None,
        published: 0,
        bytes: 0,
        rejected: 0,
        gone: Vec::new(),
        log: LogLimit::new("subscribers"),
        began: None,
        pace: None,
        undelivered: Undelivered::default(),
    })
}

/// Runs the command.
pub(super) fn run(settings: &Settings, args: &PublishArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut job = open(settings, args)?;
    let mut live = LiveLine::new(settings);
    let mut every = ReportTimer::new(args.every);
    while !stop::is_asked() {
        let work = job.publisher.poll()?;
        job.take_events();
        if job.began.is_none() && job.publisher.subscribers().count() as u64 >= u64::from(args.subscribers) {
            let now = Instant::now();
            (job.began, job.pace) = (Some(now), args.rate.map(|rate| FramePacer::new(rate, now)));
        }
        let Some(count) = job.burst()? else { break };
        live.show(|| {
            let statistics = job.publisher.statistics();
            format!(
                "{} to {}, {} skipped, {} failed",
                quantity(job.published, "frame"),
                quantity(job.publisher.subscribers().count(), "subscriber"),
                statistics.skipped,
                statistics.failed
            )
        });
        if every.is_due(Instant::now()) {
            output::print_line(&job.report(job.seconds(), Vec::new()), settings.json, out)?;
        }
        settings.deadline.check_time(|| "publishing".to_owned())?;
        if work == 0 && count == 0 {
            job.publisher.back_off();
        } else {
            // A card of this process works here only. Frames that no subscriber has a slot for access no register, and on a busy machine
            // there may always be another one due.
            job.publisher.relax();
        }
    }
    let seconds = job.seconds();
    job.close(settings.deadline.limit_or(CLOSE_TIMEOUT))?;
    job.log.finish();
    let gone = core::mem::take(&mut job.gone);
    every.print(&job.report(seconds, gone), settings.json, out)?;
    match job.undelivered {
        Undelivered { frames: 0, .. } => Ok(()),
        Undelivered { frames, subscribers } => Err(CliError::failed(format!(
            "of the accepted frames, {} did not arrive at the end, at {subscribers} of the subscribers: the report on standard output has each of them",
            quantity(frames, "frame")
        ))
        .reported()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscriber(sent: u64, arrived: u64, gone: Option<&DropReason>) -> SubscriberReport {
        let mut subscriber =
            SubscriberReport::new("subscriber 1".to_owned(), 2, SubscriberStatistics::default(), gone);
        (subscriber.sent, subscriber.arrived) = (sent, arrived);
        subscriber
    }

    #[test]
    fn missing_frames_subscriber_left_counts_none() {
        let unreadable = DropReason::Unreadable(fpga_frames::blocks::BlockError::Short { found: 0 });
        for (gone, missing) in [
            (None, 2),
            (Some(&unreadable), 2),
            (Some(&DropReason::Unsubscribed), 0),
            (Some(&DropReason::Replaced), 0),
        ] {
            assert_eq!(subscriber(10, 5, gone).missing(3), missing, "{gone:?}");
        }
        assert_eq!(subscriber(10, 10, None).missing(3), 0);
    }
}
