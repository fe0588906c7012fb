//! `stream publish`.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use fpga_frames::{
    Frame, PublishError, Publisher, PublisherEvent, PublisherOptions, SubscriberStatistics, TakeError,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use serde::Serialize;

use super::{CHECKSUM, Live, Repaired, Station, checksum, interruption, is_set};
use crate::cli::PublishArgs;
use crate::error::CliError;
use crate::output::{self, Report};
use crate::settings::Settings;
use crate::units;

/// How long the last frames may take.
const CLOSING: Duration = Duration::from_secs(10);

/// One subscriber, while it was one.
#[derive(Debug, Serialize)]
struct Subscriber {
    id: String,
    node: u32,
    sent: u64,
    arrived: u64,
    skipped: u64,
    failed: u64,
    /// Why it was one no more before the end; `null` if it stayed.
    gone: Option<String>,
}

impl Subscriber {
    fn new(id: String, node: u32, counts: SubscriberStatistics, gone: Option<String>) -> Self {
        let SubscriberStatistics { sent, arrived, skipped, failed, .. } = counts;
        Self { id, node, sent, arrived, skipped, failed, gone }
    }
}

/// What was published.
#[derive(Debug, Serialize)]
pub(super) struct PublishReport {
    node: u32,
    frame_bytes: u64,
    published: u64,
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
    subscribers: Vec<Subscriber>,
    internal: Repaired,
}

impl Report for PublishReport {
    fn text(&self) -> String {
        let mut text = output::pairs(&[
            (
                "published",
                format!("{} frames of up to {}", self.published, units::binary_size(self.frame_bytes)),
            ),
            ("rate", format!("{:.1} frames/s ({:.3} s)", self.frames_per_second, self.seconds)),
            ("sent", format!("{} ({} arrived, {} failed)", self.sent, self.arrived, self.failed)),
            ("skipped", format!("{} for want of room", self.skipped)),
            ("goodput", format!("{:.3} GB/s to all subscribers together", self.goodput_gb_per_s)),
        ]);
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

/// Where frames come from.
enum Source {
    Pattern(Pcg64Mcg),
    Stream(Box<dyn Read>, std::path::PathBuf),
}

impl Source {
    fn open(args: &PublishArgs) -> Result<Self, CliError> {
        match &args.file {
            None => Ok(Self::Pattern(Pcg64Mcg::new(u128::from(args.seed)))),
            Some(path) if path == Path::new("-") => {
                Ok(Self::Stream(Box::new(std::io::stdin().lock()), "standard input".into()))
            }
            Some(path) => {
                let file = File::open(path).map_err(|error| CliError::file(path, "open it", error))?;
                Ok(Self::Stream(Box::new(file), path.clone()))
            }
        }
    }

    /// Fills a frame; false at the end.
    fn fill(&mut self, frame: &mut Frame) -> Result<bool, CliError> {
        match self {
            Self::Pattern(random) => {
                random.fill_bytes(frame.data());
                Ok(true)
            }
            Self::Stream(stream, path) => {
                let room = frame.room();
                let mut length = 0;
                while let Some(rest) = room.get_mut(length..).filter(|rest| !rest.is_empty()) {
                    match stream.read(rest) {
                        Ok(0) => break,
                        Ok(count) => length += count,
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(CliError::file(path, "read it", error)),
                    }
                }
                frame.set_len(length).map_err(CliError::Frame)?;
                Ok(length > 0)
            }
        }
    }
}

struct Job<'a> {
    args: &'a PublishArgs,
    publisher: Publisher,
    source: Source,
    /// A frame that waits for its time.
    filled: Option<Frame>,
    published: u64,
    bytes: u64,
    rejected: u64,
    gone: Vec<Subscriber>,
    began: Option<Instant>,
}

impl Job<'_> {
    /// What has happened to subscribers.
    fn take_events(&mut self) {
        while let Some(event) = self.publisher.next_event() {
            match event {
                PublisherEvent::Gone { id, node, reason, statistics } => {
                    tracing::info!(%id, %node, %reason, "gone");
                    let reason = Some(reason.to_string());
                    self.gone.push(Subscriber::new(id.to_string(), node.get(), statistics, reason));
                }
                PublisherEvent::Rejected { peer, why } => {
                    tracing::info!(%peer, why, "rejected");
                    self.rejected += 1;
                }
                event => tracing::info!(?event),
            }
        }
    }

    /// Whether the next frame may be published now.
    fn is_time(&self, now: Instant) -> bool {
        let Some(began) = self.began else { return false };
        match self.args.rate {
            #[expect(clippy::cast_precision_loss, reason = "a point in time")]
            Some(rate) => now.saturating_duration_since(began).as_secs_f64() >= self.published as f64 / rate,
            None => {
                let mut all = self.publisher.subscribers().peekable();
                all.peek().is_some() && all.all(|subscriber| subscriber.room > 0)
            }
        }
    }

    /// Publishes what is due; false at the end.
    fn publish(&mut self) -> Result<bool, CliError> {
        if self.args.count.is_some_and(|count| self.published >= count) {
            return Ok(false);
        }
        if self.filled.is_none() {
            let mut frame = match self.publisher.take() {
                Ok(frame) => frame,
                Err(TakeError::Full { .. }) => return Ok(true),
                Err(error) => return Err(error.into()),
            };
            if !self.source.fill(&mut frame)? {
                return Ok(false);
            }
            self.filled = Some(frame);
        }
        if !self.is_time(Instant::now()) {
            return Ok(true);
        }
        let Some(mut frame) = self.filled.take() else { return Ok(true) };
        let value = checksum(self.publisher.next_sequence().get(), frame.data());
        let length = frame.data().len() as u64;
        frame.set_value(&value).map_err(CliError::Frame)?;
        self.published += 1;
        match self.publisher.publish(frame) {
            Ok(published) => self.bytes += length * u64::from(published.sent.len()),
            Err(PublishError::NoRoom { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }
}

/// Runs the command.
pub(super) fn run(settings: &Settings, args: &PublishArgs) -> Result<PublishReport, CliError> {
    let stop = interruption()?;
    let source = Source::open(args)?;
    let endpoint = Station::reach(settings, &args.link)?.endpoint()?;
    let mut options = PublisherOptions::default();
    (options.data_room, options.slots) = (args.frame, args.slots);
    options.subscribers = args.max_subscribers.max(args.subscribers);
    options.value_room = u32::try_from(CHECKSUM).unwrap_or(0);
    let mut publisher = Publisher::new(endpoint, options)?;
    let address = publisher.listen(args.listen)?;
    // Nobody may be left who reads it.
    let _ = writeln!(std::io::stderr(), "ready {address}");
    let mut job = Job {
        args,
        publisher,
        source,
        filled: None,
        published: 0,
        bytes: 0,
        rejected: 0,
        gone: Vec::new(),
        began: None,
    };
    let mut live = Live::new(settings);
    while !is_set(&stop) {
        let work = job.publisher.poll()?;
        job.take_events();
        if job.began.is_none() && job.publisher.subscribers().count() as u64 >= u64::from(args.subscribers) {
            job.began = Some(Instant::now());
        }
        if !job.publish()? {
            break;
        }
        live.show(|| {
            let statistics = job.publisher.statistics();
            format!(
                "{} frames to {} subscribers, {} skipped, {} failed",
                job.published,
                job.publisher.subscribers().count(),
                statistics.skipped,
                statistics.failed
            )
        });
        settings.deadline.check(|| "publishing".to_owned())?;
        if work == 0 {
            job.publisher.relax();
        }
    }
    drop(job.filled.take());
    let seconds = job.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
    let closing = Instant::now();
    job.publisher.begin_close();
    while !job.publisher.is_closed() {
        if job.publisher.poll()? == 0 {
            job.publisher.relax();
        }
        job.take_events();
        if closing.elapsed() > CLOSING {
            tracing::warn!("the last frames did not arrive within {CLOSING:?}");
            break;
        }
    }
    let statistics = job.publisher.statistics();
    let mut subscribers = job.gone;
    let stayed = job.publisher.subscribers();
    subscribers
        .extend(stayed.map(|it| Subscriber::new(it.id.to_string(), it.node.get(), it.statistics, None)));
    #[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
    let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    Ok(PublishReport {
        node: job.publisher.node().get(),
        frame_bytes: args.frame,
        published: statistics.published,
        unsent: statistics.unsent,
        sent: statistics.sent,
        skipped: statistics.skipped,
        arrived: statistics.arrived,
        failed: statistics.failed,
        bytes: job.bytes,
        seconds,
        frames_per_second: per_second(statistics.published),
        goodput_gb_per_s: per_second(job.bytes) / 1e9,
        rejected: job.rejected,
        subscribers,
        internal: statistics.internal.into(),
    })
}
