//! The measured loops. They match the loops of `tools/bench/peer/dmadev_skeleton.c`, which measures DPDK's software DMA device.

use std::time::{Duration, Instant};

use fpga_driver::{Card, Ticket, WaitMode};
use fpga_pci::Backoff;
use rustix::time::{ClockId, clock_gettime};

use super::channel::BenchChannel;
use super::histogram::LatencyHistogram;
use super::progress::Row;
use crate::error::CliError;
use crate::progress::Deadline;

/// Rounds without progress between two steps of the backoff.
const ROUNDS_PER_BACKOFF_STEP: u32 = 64;
/// Rounds without progress before the first step of the backoff: about 10 us.
const SPIN_ROUNDS: u32 = 1024;
/// Rounds before the first reading of the clock.
const INITIAL_ROUNDS: u32 = 64;
/// Maximum number of rounds between two readings of the clock.
const MAX_ROUNDS: u32 = 4096;
/// Target time between two readings of the clock.
const CLOCK_READ_SPAN: Duration = Duration::from_micros(200);
/// Time without progress after which a channel counts as stuck, unless `--timeout` is given: the driver's own limit on a wait.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum number of latencies and of closed batches, however long they take.
const MIN_SAMPLES: u64 = 100;
const MIN_BATCHES: u64 = 16;
/// Time between two checks of signals and limits while latencies are measured.
const CHECK_NS: u64 = 10_000_000;
/// Initial (and shortest) pause and maximum pause of a closed batch.
const MIN_PAUSE: Duration = Duration::from_micros(2);
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// Maximum pause that keeps the CPU busy. The first operation after a sleep runs with cold caches.
const MAX_SPIN: Duration = Duration::from_millis(1);
/// Consecutive batches that were not complete after their pause; at this number, no pause is long enough.
const MAX_MISSED_BATCHES: u32 = 128;

/// Parts of a row's time (`--seconds`): the throughput run, and the latest end of latencies and of closed batches.
pub(super) mod share {
    pub(crate) const THROUGHPUT: f64 = 0.85;
    pub(crate) const LATENCY: f64 = 1.03;
    pub(crate) const BATCHES: f64 = 1.12;
}

/// Load on the channels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    /// Operations in flight per channel.
    pub(super) depth: u64,
    /// Operations submitted per round and channel.
    pub(super) batch: u64,
    /// How to wait when the pipeline is full; `None`: poll in every round.
    pub(super) wait: Option<WaitMode>,
    /// Deadline of the command.
    pub(super) deadline: Deadline,
    /// Whether the simulated card's thread shares the CPU with this one.
    pub(super) shared_cpu: bool,
    /// The row being measured.
    pub(super) row: &'a Row<'a>,
}

impl Load<'_> {
    /// Fails if the command has to end; updates the progress bar.
    fn check(&self) -> Result<(), CliError> {
        self.row.show();
        self.deadline.check(|| "dma bench".to_owned())
    }

    /// Time without progress after which a channel counts as stuck.
    fn stall_limit(&self) -> Duration {
        self.deadline.limit_or(STALL_TIMEOUT)
    }
}

/// Number of rounds between two readings of the clock. It follows [`CLOCK_READ_SPAN`], so that a round costs the same at every size.
#[derive(Debug)]
struct ClockInterval {
    rounds: u32,
    every: u32,
    last: Duration,
}

impl ClockInterval {
    const fn new() -> Self {
        Self { rounds: 0, every: INITIAL_ROUNDS, last: Duration::ZERO }
    }

    /// Counts a round. Returns whether the clock has to be read.
    #[inline]
    const fn is_due(&mut self) -> bool {
        self.rounds += 1;
        self.rounds >= self.every
    }

    /// Adapts the number of rounds after a reading of the clock, `elapsed` since the run began.
    fn adapt(&mut self, elapsed: Duration) {
        let span = elapsed.saturating_sub(self.last);
        if span < CLOCK_READ_SPAN && self.rounds >= self.every {
            self.every = (self.every * 2).min(MAX_ROUNDS);
        } else if span > CLOCK_READ_SPAN * 2 {
            self.every = (self.every / 2).max(1);
        }
        (self.rounds, self.last) = (0, elapsed);
    }
}

/// Wait of the measured loops: backs off, and reports a stuck channel.
#[derive(Debug)]
struct StallDetector {
    backoff: Backoff,
    /// Consecutive rounds without progress.
    empty_rounds: u32,
    since: Option<Instant>,
    /// Whether the thread has slept since the clock was read.
    slept: bool,
}

impl StallDetector {
    const fn new() -> Self {
        Self { backoff: Backoff::new(), empty_rounds: 0, since: None, slept: false }
    }

    #[inline]
    const fn reset(&mut self) {
        self.backoff.reset();
        (self.empty_rounds, self.since) = (0, None);
    }

    /// Called after a round without progress. Returns whether there was no progress for too long.
    #[inline]
    fn check_after_empty_round(&mut self, card: &Card, load: &Load<'_>) -> Result<bool, CliError> {
        self.empty_rounds = self.empty_rounds.wrapping_add(1);
        if !self.empty_rounds.is_multiple_of(ROUNDS_PER_BACKOFF_STEP) {
            return Ok(false);
        }
        // The clock is not read while an operation may be about to complete: the reading would add to its latency.
        if self.empty_rounds < SPIN_ROUNDS && !load.shared_cpu && !self.backoff.is_contended() {
            core::hint::spin_loop();
            return Ok(false);
        }
        self.back_off(card, load)
    }

    #[cold]
    fn back_off(&mut self, card: &Card, load: &Load<'_>) -> Result<bool, CliError> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if card.back_off(&mut self.backoff) {
            load.check()?;
            self.slept = true;
            // Polls are rare from now on: a pause follows each of them.
            self.empty_rounds = SPIN_ROUNDS + ROUNDS_PER_BACKOFF_STEP - 1;
        }
        Ok(since.elapsed() > load.stall_limit())
    }
}

/// Cost of a throughput run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Operations of all channels.
    pub(super) operations: u64,
    pub(super) span: Duration,
    /// CPU time of this thread.
    pub(super) thread: Duration,
    /// CPU time of all threads, the simulated card's among them.
    pub(super) process: Duration,
}

/// All channels, driven in turn by this thread.
#[derive(Debug)]
pub(super) struct BenchChannels {
    /// Those that are measured.
    pub(super) channels: Vec<BenchChannel>,
    /// Channel that is kept busy and not measured (`--beside`).
    pub(super) beside: Option<BenchChannel>,
}

/// Operations in flight on the channel that is kept busy.
const DEPTH_BESIDE: u64 = 16;

/// Tops up the operations in flight. It is polled while other channels are measured, so it never sleeps.
fn keep_busy(channel: &mut BenchChannel, load: &Load<'_>) -> Result<(), CliError> {
    channel.total = u64::MAX;
    let load = Load { depth: DEPTH_BESIDE, batch: DEPTH_BESIDE, wait: None, ..*load };
    round(channel, &load).map(drop)
}

/// Waits until nothing is in flight.
fn drain(card: &Card, channel: &mut BenchChannel, load: &Load<'_>) -> Result<(), CliError> {
    let mut stall = StallDetector::new();
    while channel.done < channel.submitted {
        if channel.poll()? > 0 {
            stall.reset();
        } else if stall.check_after_empty_round(card, load)? {
            channel.stall_report(load.stall_limit())?;
        }
    }
    channel.check_completions()
}

/// One round of a channel: submits up to a batch, then polls once. Returns whether there was progress.
#[inline]
fn round(channel: &mut BenchChannel, load: &Load<'_>) -> Result<bool, CliError> {
    let mut burst = 0;
    let mut last = None;
    while channel.submitted < channel.total
        && channel.submitted - channel.done < load.depth
        && burst < load.batch
    {
        let Some(ticket) = channel.submit()? else { break };
        last = Some(ticket);
        burst += 1;
    }
    let ended = channel.poll()?;
    if let Some(mode) = load.wait {
        return wait(channel, load, mode, last);
    }
    Ok(burst + ended != 0)
}

/// Sleeps until the oldest burst completes once no more can be submitted.
fn wait(
    channel: &mut BenchChannel,
    load: &Load<'_>,
    mode: WaitMode,
    last: Option<Ticket>,
) -> Result<bool, CliError> {
    if let Some(ticket) = last {
        channel.bursts.push_back(ticket);
    }
    if channel.submitted < channel.total && channel.submitted - channel.done < load.depth {
        return Ok(true);
    }
    if let Some(ticket) = channel.bursts.pop_front() {
        channel.wait(ticket, load.deadline.wait().mode(mode))?;
    }
    Ok(true)
}

/// End condition of a throughput run.
#[derive(Debug, Clone, Copy)]
enum RunEnd {
    /// After this number of operations per channel.
    Operations(u64),
    /// After this time, and at least `least` operations per channel. `estimate` is the assumed seconds per operation until a better value
    /// is measured.
    Time { span: Duration, least: u64, estimate: f64 },
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn float(count: u64) -> f64 {
    count as f64
}

impl RunEnd {
    /// Operations that may be submitted before the clock is read for the first time.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, and not negative"
    )]
    fn first(self, depth: u64) -> u64 {
        match self {
            Self::Operations(total) => total,
            // A pipeline that takes longer to drain than the run may last is not filled.
            Self::Time { span, least, estimate } if float(depth) * estimate > span.as_secs_f64() / 2.0 => {
                least.max((span.as_secs_f64() / estimate) as u64)
            }
            Self::Time { .. } => u64::MAX,
        }
    }

    /// Returns whether the operations that a channel has in flight take the rest of the time, after `elapsed`.
    fn is_near(self, elapsed: Duration, submitted: u64, done: u64) -> bool {
        let Self::Time { span, estimate, .. } = self else { return false };
        let each = if done == 0 { estimate } else { elapsed.as_secs_f64() / float(done) };
        elapsed.as_secs_f64() + float(submitted - done) * each >= span.as_secs_f64()
    }

    /// Stops submission on a channel if the end is near.
    fn apply(self, channel: &mut BenchChannel, elapsed: Duration) {
        if let Self::Time { least, .. } = self
            && channel.total > channel.submitted
            && self.is_near(elapsed, channel.submitted, channel.done)
        {
            channel.total = channel.submitted.max(least);
        }
    }
}

impl BenchChannels {
    /// Fails if an operation of any channel failed.
    fn check(&mut self) -> Result<(), CliError> {
        self.beside.iter_mut().chain(&mut self.channels).try_for_each(BenchChannel::check_completions)
    }

    pub(super) fn restart(&mut self) {
        self.channels.iter_mut().for_each(BenchChannel::restart);
    }

    pub(super) fn clear(&mut self, card: &Card) -> Result<(), CliError> {
        self.channels.iter_mut().try_for_each(|channel| channel.clear(card))
    }

    /// Drives all channels until `end`. Returns the duration.
    fn throughput(&mut self, card: &Card, load: &Load<'_>, end: RunEnd) -> Result<Duration, CliError> {
        self.restart();
        let first = end.first(load.depth);
        self.channels.iter_mut().for_each(|channel| channel.total = first);
        let (mut stall, mut reading) = (StallDetector::new(), ClockInterval::new());
        let began = Instant::now();
        loop {
            let (mut moved, mut open) = (false, false);
            for channel in &mut self.channels {
                moved |= round(channel, load)?;
                open |= channel.done < channel.total;
            }
            if !open {
                break;
            }
            if let Some(beside) = &mut self.beside {
                keep_busy(beside, load)?;
            }
            if moved {
                stall.reset();
            } else if stall.check_after_empty_round(card, load)? {
                self.stall_report(load.stall_limit())?;
            }
            if reading.is_due() | core::mem::take(&mut stall.slept) {
                load.check()?;
                let elapsed = began.elapsed();
                reading.adapt(elapsed);
                self.channels.iter_mut().for_each(|channel| end.apply(channel, elapsed));
            }
        }
        let span = began.elapsed();
        self.drain_beside(card, load)?;
        self.check()?;
        Ok(span)
    }

    /// Lets the channel that is kept busy become idle.
    fn drain_beside(&mut self, card: &Card, load: &Load<'_>) -> Result<(), CliError> {
        self.beside.as_mut().map_or(Ok(()), |beside| drain(card, beside, load))
    }

    #[cold]
    fn stall_report(&mut self, limit: Duration) -> Result<(), CliError> {
        self.channels
            .iter_mut()
            .filter(|channel| channel.done < channel.total)
            .try_for_each(|channel| channel.stall_report(limit))
    }

    fn submitted(&self) -> u64 {
        self.channels.iter().map(|channel| channel.submitted).sum()
    }

    /// Passes once over the working set of `slots` buffers. Returns the time per operation in seconds.
    pub(super) fn warm_up(&mut self, card: &Card, load: &Load<'_>, slots: u64) -> Result<f64, CliError> {
        let took = self.throughput(card, load, RunEnd::Operations(slots))?;
        Ok(took.as_secs_f64().max(1e-9) / float(slots.max(1)))
    }

    /// Measures for `span`, and over the whole working set of `slots` buffers.
    pub(super) fn measure(
        &mut self,
        card: &Card,
        load: &Load<'_>,
        span: Duration,
        slots: u64,
        estimate: f64,
    ) -> Result<Run, CliError> {
        let clocks = [ClockId::ThreadCPUTime, ClockId::ProcessCPUTime];
        let before = clocks.map(cpu_time);
        let span = self.throughput(card, load, RunEnd::Time { span, least: slots, estimate })?;
        let [thread, process] = clocks.map(cpu_time);
        let [thread_before, process_before] = before;
        Ok(Run {
            operations: self.submitted(),
            span,
            thread: thread.saturating_sub(thread_before),
            process: process.saturating_sub(process_before),
        })
    }

    /// Measures up to `samples` operations, one at a time, alternating between the channels, until the row's time for them is over.
    pub(super) fn latencies(
        &mut self,
        card: &Card,
        load: &Load<'_>,
        samples: u64,
    ) -> Result<LatencyHistogram, CliError> {
        self.restart();
        let mut spans = LatencyHistogram::new();
        let left = load.row.left(share::LATENCY);
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let (mut spent, mut checked) = (0_u64, 0);
        while spans.count() < samples && (spans.count() < MIN_SAMPLES || spent < left) {
            // The sum of the measured latencies serves as clock.
            if spent - checked >= CHECK_NS {
                checked = spent;
                load.check()?;
            }
            if let Some(beside) = &mut self.beside {
                keep_busy(beside, load)?;
            }
            for channel in &mut self.channels {
                let span = one_at_a_time(card, channel, load)?;
                spans.record(span);
                spent = spent.saturating_add(span);
            }
        }
        self.drain_beside(card, load)?;
        self.check()?;
        Ok(spans)
    }

    /// CPU time for submitting and reaping an operation, in nanoseconds; `None` if no batch completed within one pause.
    ///
    /// Closed batches: a whole batch is submitted (timed), then the channel is not accessed until the card has probably completed it (not timed),
    /// then one call reaps it (timed). A batch that is not complete by then would include waiting: it is omitted, and the pause grows.
    /// Otherwise the pause shrinks slowly, down to its initial value. The cost of reading the clock is subtracted from both spans. The
    /// result is the median batch.
    pub(super) fn cpu_ns(
        &mut self,
        card: &Card,
        load: &Load<'_>,
        batches: u64,
    ) -> Result<Option<f64>, CliError> {
        self.restart();
        let mut totals = Totals { clock: clock_cost(), pause: MIN_PAUSE, ..Totals::default() };
        for batch in 0..batches {
            if batch >= MIN_BATCHES && load.row.left(share::BATCHES).is_zero() {
                break;
            }
            load.check()?;
            for channel in &mut self.channels {
                totals.closed_batch(card, channel, load)?;
            }
            if totals.in_a_row >= MAX_MISSED_BATCHES {
                break;
            }
        }
        self.check()?;
        totals.spans.sort_unstable();
        let median = totals.spans.get(totals.spans.len() / 2);
        #[expect(clippy::cast_precision_loss, reason = "batches are short")]
        let batch = load.batch.min(load.depth) as f64;
        Ok(median.map(|span| span.as_secs_f64() * 1e9 / batch))
    }
}

/// Time from before the submission to after the poll that found the operation complete, in nanoseconds.
#[inline]
fn one_at_a_time(card: &Card, channel: &mut BenchChannel, load: &Load<'_>) -> Result<u64, CliError> {
    let mut stall = StallDetector::new();
    let began = Instant::now();
    let ticket = channel.submit()?;
    match (load.wait, ticket) {
        (Some(mode), Some(ticket)) => channel.wait(ticket, load.deadline.wait().mode(mode))?,
        _ => {
            while channel.poll()? == 0 {
                if stall.check_after_empty_round(card, load)? {
                    channel.stall_report(load.stall_limit())?;
                }
            }
        }
    }
    Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// State kept over closed batches.
#[derive(Debug, Default)]
struct Totals {
    clock: Duration,
    pause: Duration,
    /// Times of the batches that completed within one pause.
    spans: Vec<Duration>,
    /// Consecutive batches omitted.
    in_a_row: u32,
}

impl Totals {
    fn closed_batch(
        &mut self,
        card: &Card,
        channel: &mut BenchChannel,
        load: &Load<'_>,
    ) -> Result<(), CliError> {
        let batch = load.batch.min(load.depth);
        let began = Instant::now();
        for _ in 0..batch {
            channel.submit()?;
        }
        let early = channel.poll()?;
        let submitted = Instant::now();
        if load.shared_cpu || self.pause > MAX_SPIN {
            // The card may need this CPU.
            std::thread::sleep(self.pause);
        }
        while submitted.elapsed() < self.pause {}
        let back = Instant::now();
        let mut done = channel.poll()?;
        let reaped = Instant::now();
        if early == 0 && done == batch {
            let span = (submitted - began) + (reaped - back);
            self.spans.push(span.saturating_sub(2 * self.clock));
            self.in_a_row = 0;
            self.pause = MIN_PAUSE.max(self.pause - self.pause / 64);
            return Ok(());
        }
        done += early;
        let mut stall = StallDetector::new();
        while done < batch {
            match channel.poll()? {
                0 if stall.check_after_empty_round(card, load)? => {
                    channel.stall_report(load.stall_limit())?
                }
                0 => {}
                more => {
                    done += more;
                    stall.reset();
                }
            }
        }
        self.in_a_row += 1;
        if done == batch && early == 0 {
            self.pause = MAX_PAUSE.min(self.pause + self.pause / 4);
        }
        Ok(())
    }
}

/// Returns the median difference between two consecutive readings of the clock.
pub(super) fn clock_cost() -> Duration {
    let mut spans: Vec<Duration> = (0..2001)
        .map(|_| {
            let began = Instant::now();
            began.elapsed()
        })
        .collect();
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied().unwrap_or_default()
}

fn cpu_time(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models a channel that takes `each` seconds per operation, always has `depth` of them in flight, and is polled after every operation.
    /// Returns the duration of the run in seconds.
    fn run(end: RunEnd, depth: u64, each: f64) -> f64 {
        let first = end.first(depth);
        for done in 0..u64::MAX {
            let submitted = (done + depth).min(first);
            if submitted == first || end.is_near(Duration::from_secs_f64(float(done) * each), submitted, done)
            {
                return float(submitted) * each;
            }
        }
        f64::INFINITY
    }

    #[test]
    fn throughput_run_keeps_to_time_at_every_speed() {
        for each in [1e-5, 1e-3, 0.02] {
            for (depth, span) in [(1, 0.2), (256, 0.2), (256, 1.0), (4096, 5.0)] {
                let end = |estimate| RunEnd::Time { span: Duration::from_secs_f64(span), least: 1, estimate };
                let took = run(end(each), depth, each);
                assert!((took - span).abs() <= each + span * 0.01, "{took} s of {span}: {each}, {depth}");
                // If the pipeline does not fill within the time, a wrong estimate changes the duration at most by this factor.
                for wrong in [0.5, 2.0] {
                    let took = run(end(each * wrong), depth, each);
                    let most = (span * 2.0).max(float(depth) * each) + each;
                    assert!(
                        took >= span * 0.49 - each && took <= most,
                        "{took} s of {span}: {each}, {depth}, {wrong}"
                    );
                }
            }
        }
    }

    #[test]
    fn run_over_working_set_ends_after_operations() {
        let end = RunEnd::Operations(100);
        assert_eq!(end.first(256), 100);
        assert!(!end.is_near(Duration::from_secs(3600), 256, 0));
    }
}
