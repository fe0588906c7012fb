//! The measured loops. What they do is what `tools/xtask/peer/dmadev_skeleton.c` does with DPDK's software DMA device.

use std::time::{Duration, Instant};

use fpga_driver::{C2hChannel, Card, H2cChannel, Ticket, WaitOptions};
use rustix::time::{ClockId, clock_gettime};

use super::lane::{Channel, Lane};
use super::report::Latencies;
use crate::error::CliError;
use crate::progress::Deadline;

/// Rounds without progress after which the CPU (or a card inside this thread) is given way.
const PATIENCE: u32 = 64;
/// Rounds without progress between looks at the clock.
const LOOK_EVERY: u32 = 1 << 16;
/// Without progress for this long, a channel is stuck: the driver's own limit on a wait.
const STUCK: Duration = Duration::from_secs(10);
/// Bytes of the run that finds out how many operations fit, and its operations at least.
const TRIAL_BYTES: u64 = 256 << 20;
const TRIAL: u64 = 65536;
/// First and shortest pause of a closed batch, and the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Batches in a row that were not done after their pause: no pause will do.
const HOPELESS: u32 = 128;

/// How the channels are driven.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Operations in flight per channel.
    pub(super) depth: u64,
    /// Operations submitted per round and channel.
    pub(super) batch: u64,
    /// How to wait where the pipeline is full; `None`: not at all, but look in every round.
    pub(super) wait: Option<WaitOptions>,
    /// When the command has to give up.
    pub(super) deadline: Deadline,
}

/// What a throughput run took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Of all channels.
    pub(super) operations: u64,
    pub(super) span: Duration,
    /// CPU time of this thread.
    pub(super) thread: Duration,
    /// CPU time of all threads, the simulated card's among them.
    pub(super) process: Duration,
}

/// All channels, driven in turn by this thread.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) h2c: Vec<Lane<H2cChannel>>,
    pub(super) c2h: Vec<Lane<C2hChannel>>,
}

/// One round of a channel: submit up to a batch, then look once. Returns whether anything moved.
#[inline]
fn round<C: Channel>(lane: &mut Lane<C>, load: &Load, total: u64) -> Result<bool, CliError> {
    let mut burst = 0;
    let mut last = None;
    while lane.submitted < total && lane.submitted - lane.done < load.depth && burst < load.batch {
        let Some(ticket) = lane.submit()? else { break };
        last = Some(ticket);
        burst += 1;
    }
    let ended = lane.poll()?;
    if let Some(options) = load.wait {
        return wait(lane, load, options, last, total);
    }
    Ok(burst + ended != 0)
}

/// Sleeps for the oldest burst once no more can be submitted.
fn wait<C: Channel>(
    lane: &mut Lane<C>,
    load: &Load,
    options: WaitOptions,
    last: Option<Ticket>,
    total: u64,
) -> Result<bool, CliError> {
    if let Some(ticket) = last {
        lane.bursts.push_back(ticket);
    }
    if lane.submitted < total && lane.submitted - lane.done < load.depth {
        return Ok(true);
    }
    if let Some(ticket) = lane.bursts.pop_front() {
        lane.wait(ticket, options)?;
    }
    Ok(true)
}

impl Lanes {
    /// Fails if an operation of any channel failed.
    fn check(&mut self) -> Result<(), CliError> {
        self.h2c.iter_mut().try_for_each(Lane::check_completions)?;
        self.c2h.iter_mut().try_for_each(Lane::check_completions)
    }

    pub(super) fn restart(&mut self) {
        self.h2c.iter_mut().for_each(Lane::restart);
        self.c2h.iter_mut().for_each(Lane::restart);
    }

    pub(super) fn clear(&mut self, card: &Card) -> Result<(), CliError> {
        self.h2c.iter_mut().try_for_each(|lane| lane.clear(card))?;
        self.c2h.iter_mut().try_for_each(|lane| lane.clear(card))
    }

    pub(super) const fn count(&self) -> u64 {
        (self.h2c.len() + self.c2h.len()) as u64
    }

    /// `total` operations per channel; returns how long they took.
    fn throughput(&mut self, load: &Load, total: u64) -> Result<Duration, CliError> {
        self.restart();
        let (mut fruitless, mut rounds, mut news) = (0_u32, 0_u32, None);
        let began = Instant::now();
        loop {
            let (mut moved, mut open) = (false, false);
            for lane in &mut self.h2c {
                moved |= round(lane, load, total)?;
                open |= lane.done < total;
            }
            for lane in &mut self.c2h {
                moved |= round(lane, load, total)?;
                open |= lane.done < total;
            }
            if !open {
                break;
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(LOOK_EVERY) {
                load.deadline.check(|| "dma bench".to_owned())?;
            }
            if moved {
                (fruitless, news) = (0, None);
                continue;
            }
            fruitless = fruitless.wrapping_add(1);
            if fruitless.is_multiple_of(PATIENCE) {
                self.relax();
            }
            if fruitless.is_multiple_of(LOOK_EVERY) {
                load.deadline.check(|| "dma bench".to_owned())?;
                if news.get_or_insert_with(Instant::now).elapsed() > STUCK {
                    self.stuck(total)?;
                }
            }
        }
        let span = began.elapsed();
        self.check()?;
        Ok(span)
    }

    fn relax(&self) {
        self.h2c.iter().for_each(|lane| lane.channel.relax());
        self.c2h.iter().for_each(|lane| lane.channel.relax());
    }

    #[cold]
    fn stuck(&mut self, total: u64) -> Result<(), CliError> {
        self.h2c.iter_mut().filter(|lane| lane.done < total).try_for_each(Lane::stuck)?;
        self.c2h.iter_mut().filter(|lane| lane.done < total).try_for_each(Lane::stuck)
    }

    /// How many operations per channel take about `span`. Goes over the working set once before, which warms it up.
    pub(super) fn operations(
        &mut self,
        load: &Load,
        span: Duration,
        size: u64,
        slots: u64,
    ) -> Result<u64, CliError> {
        self.throughput(load, slots)?;
        let trial = TRIAL.min((TRIAL_BYTES / size).max(slots));
        let took = self.throughput(load, trial)?.as_secs_f64().max(1e-9);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate, and not negative"
        )]
        let fitting = (span.as_secs_f64() / took * trial as f64) as u64;
        Ok(fitting.max(slots))
    }

    /// The measured run.
    pub(super) fn measure(&mut self, load: &Load, operations: u64) -> Result<Run, CliError> {
        let clocks = [ClockId::ThreadCPUTime, ClockId::ProcessCPUTime];
        let before = clocks.map(cpu_time);
        let span = self.throughput(load, operations)?;
        let [thread, process] = clocks.map(cpu_time);
        let [thread_before, process_before] = before;
        Ok(Run {
            operations: operations * self.count(),
            span,
            thread: thread.saturating_sub(thread_before),
            process: process.saturating_sub(process_before),
        })
    }

    /// Latencies of `samples` operations at least, one at a time, the channels in turn.
    pub(super) fn latencies(&mut self, load: &Load, samples: u64) -> Result<Latencies, CliError> {
        self.restart();
        let mut spans = Latencies::new();
        while spans.count() < samples {
            if spans.count() % 1024 < 8 {
                load.deadline.check(|| "dma bench".to_owned())?;
            }
            for lane in &mut self.h2c {
                spans.record(one_at_a_time(lane, load)?);
            }
            for lane in &mut self.c2h {
                spans.record(one_at_a_time(lane, load)?);
            }
        }
        self.check()?;
        Ok(spans)
    }

    /// What submitting and reaping an operation costs this CPU, in nanoseconds; `None` where no batch was done in one pause.
    ///
    /// Closed batches: a whole batch is submitted, which is timed; then nothing is touched for so long that the card is done
    /// with it, which is not timed; then it is reaped by one call, which is timed. A batch that was not done by then would
    /// have had waiting in it: it is left out, and the pause grows; else it shrinks slowly, down to where it began. The clock's
    /// own cost is taken off both spans. The median batch counts.
    pub(super) fn cpu_ns(&mut self, load: &Load, batches: u64) -> Result<Option<f64>, CliError> {
        self.restart();
        let mut totals = Totals { clock: clock_cost(), pause: FIRST_PAUSE, ..Totals::default() };
        for _ in 0..batches {
            for lane in &mut self.h2c {
                totals.closed_batch(lane, load)?;
            }
            for lane in &mut self.c2h {
                totals.closed_batch(lane, load)?;
            }
            if totals.in_a_row >= HOPELESS {
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

/// From before the submission to after the look that found the operation done, in nanoseconds.
#[inline]
fn one_at_a_time<C: Channel>(lane: &mut Lane<C>, load: &Load) -> Result<u64, CliError> {
    let mut fruitless = 0_u32;
    let mut since = None;
    let began = Instant::now();
    let ticket = lane.submit()?;
    match (load.wait, ticket) {
        (Some(options), Some(ticket)) => lane.wait(ticket, options)?,
        _ => {
            while lane.poll()? == 0 {
                fruitless = fruitless.wrapping_add(1);
                if fruitless.is_multiple_of(PATIENCE) {
                    lane.channel.relax();
                }
                if fruitless.is_multiple_of(LOOK_EVERY)
                    && since.get_or_insert_with(Instant::now).elapsed() > STUCK
                {
                    lane.stuck()?;
                }
            }
        }
    }
    Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// What is kept over closed batches.
#[derive(Debug, Default)]
struct Totals {
    clock: Duration,
    pause: Duration,
    /// Of those that were done in one pause.
    spans: Vec<Duration>,
    /// Batches left out in a row.
    in_a_row: u32,
}

impl Totals {
    fn closed_batch<C: Channel>(&mut self, lane: &mut Lane<C>, load: &Load) -> Result<(), CliError> {
        let batch = load.batch.min(load.depth);
        let began = Instant::now();
        for _ in 0..batch {
            lane.submit()?;
        }
        let early = lane.poll()?;
        let submitted = Instant::now();
        while submitted.elapsed() < self.pause {}
        let back = Instant::now();
        let mut done = lane.poll()?;
        let reaped = Instant::now();
        if early == 0 && done == batch {
            let span = (submitted - began) + (reaped - back);
            self.spans.push(span.saturating_sub(2 * self.clock));
            self.in_a_row = 0;
            self.pause = FIRST_PAUSE.max(self.pause - self.pause / 64);
            return Ok(());
        }
        done += early;
        let mut news = Instant::now();
        while done < batch {
            match lane.poll()? {
                0 if news.elapsed() > STUCK => lane.stuck()?,
                0 => lane.channel.relax(),
                more => {
                    done += more;
                    news = Instant::now();
                }
            }
        }
        self.in_a_row += 1;
        if done == batch && early == 0 {
            self.pause = LONGEST_PAUSE.min(self.pause + self.pause / 4);
        }
        Ok(())
    }
}

/// What two readings of the clock in a row differ by: the median of many.
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
