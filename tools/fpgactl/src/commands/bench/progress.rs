//! Progress of `dma bench`, and the time of a row.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::progress::Progress;

/// Time between two updates of the bar: drawing it costs the measuring thread some microseconds.
const UPDATE: Duration = Duration::from_millis(200);

/// Progress of all rows, in milliseconds of measuring time.
#[derive(Debug)]
pub(super) struct Rows {
    bar: Progress,
    seconds: Duration,
}

/// One row: start of its measurement, and planned duration.
#[derive(Debug)]
pub(super) struct Row<'a> {
    rows: &'a Rows,
    number: u32,
    began: Instant,
    excluded: Cell<Duration>,
    shown: Cell<Instant>,
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Rows {
    /// Creates a bar over `count` rows of `seconds` each; `wanted` as for [`Progress::new`].
    pub(super) fn new(count: usize, seconds: Duration, wanted: bool) -> Self {
        let total = millis(seconds).saturating_mul(count as u64);
        Self { bar: Progress::counting(total, "ms", wanted), seconds }
    }

    /// Begins the measurement of row `number`.
    pub(super) fn begin(&self, number: u32, name: String) -> Row<'_> {
        self.bar.phase(name);
        let began = Instant::now();
        let row =
            Row { rows: self, number, began, excluded: Cell::new(Duration::ZERO), shown: Cell::new(began) };
        row.draw(Duration::ZERO);
        row
    }
}

impl Row<'_> {
    /// Remaining time of a part of the row's time.
    pub(super) fn left(&self, share: f64) -> Duration {
        self.rows.seconds.mul_f64(share).saturating_sub(self.elapsed())
    }

    /// Time measured so far.
    fn elapsed(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.excluded.get())
    }

    /// Does unmeasured work, which takes none of the row's time.
    pub(super) fn pause_timer<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.excluded.set(self.excluded.get() + began.elapsed());
        done
    }

    /// Updates the display, at most once per update interval.
    pub(super) fn show(&self) {
        let now = Instant::now();
        if now.duration_since(self.shown.get()) >= UPDATE {
            self.shown.set(now);
            self.draw(self.elapsed());
        }
    }

    fn draw(&self, elapsed: Duration) {
        let before = millis(self.rows.seconds).saturating_mul(self.number.into());
        self.rows.bar.at(before.saturating_add(millis(elapsed.min(self.rows.seconds))));
    }
}
