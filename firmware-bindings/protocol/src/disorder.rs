//! Disorder of a path: how late a packet can be beyond the arrival of a packet that was sent after it.
//!
//! A packet that a later one has overtaken is either lost or late. It counts as lost when it is missing for longer than
//! the *reorder window* (RACK, RFC 8985). The window follows the lateness of the packets that did arrive.

use crate::time::Nanos;

/// Number of samples per epoch. After each epoch the older statistics count half.
const EPOCH: u32 = 128;
/// Means of the lateness after which a packet counts as lost: one exponential delay in a thousand is longer than seven, one in
/// seven longer than two. As long as nothing was lost, waiting costs nothing, and one in a thousand is too many.
const MEANS: u64 = 7;
const MEANS_CLEAN: u64 = 14;
const MEANS_LOSSY: u64 = 2;

/// Lateness of the packets of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Disorder {
    /// Maximum lateness in this epoch and in the one before.
    longest: [Nanos; 2],
    /// Samples of this epoch.
    samples: u32,
    /// Whether the first epoch is over.
    settled: bool,
    /// Sum of the lateness in this epoch, and the mean of the epoch before.
    sum: u64,
    mean: Nanos,
    /// Margin of the window over the maximum, in eighths.
    margin: u32,
    /// Necessary retransmissions, and spurious ones (`wasted`); old ones count less.
    useful: u32,
    wasted: u32,
}

impl Disorder {
    /// Records a packet that arrived `late` after the first packet that had overtaken it; zero if there was none.
    pub(crate) fn sample(&mut self, late: Nanos) {
        let [now, before] = &mut self.longest;
        *now = (*now).max(late);
        self.sum = self.sum.saturating_add(late.get());
        self.samples += 1;
        if self.samples == EPOCH {
            (*before, *now) = (*now, Nanos::ZERO);
            self.settled = true;
            self.mean = Nanos::new(self.sum / u64::from(EPOCH));
            (self.samples, self.sum) = (0, 0);
            self.margin = self.margin.saturating_sub(1);
            (self.useful, self.wasted) = (self.useful / 2, self.wasted / 2);
        }
    }

    /// Records that a retransmission has replaced a lost packet.
    pub(crate) const fn note_useful(&mut self) {
        self.useful = self.useful.saturating_add(1);
    }

    /// Records that a retransmitted packet was late, not lost, and widens the window.
    pub(crate) fn note_wasted(&mut self) {
        self.wasted = self.wasted.saturating_add(1);
        if !self.is_lossy() {
            self.margin = (self.margin + 4).min(32);
        }
    }

    /// Whether more retransmissions replaced lost packets than late ones: then waiting costs more than it saves.
    const fn is_lossy(&self) -> bool {
        self.useful > self.wasted
    }

    /// Whether the first epoch, in which missing packets count as samples, is not over.
    pub(crate) const fn is_new(&self) -> bool {
        !self.settled
    }

    /// Returns the reorder window, at least `floor`.
    ///
    /// `late`: sum of the times for which packets are missing now; it counts in the first epoch only. The first packets
    /// to arrive are the fastest, so the missing ones carry information, too. The lateness of late and arrived packets
    /// divided by the number of arrived ones is the mean of an exponential delay (the maximum-likelihood estimate of
    /// censored samples). `is_all_sent`: no new packet waits, so a spurious retransmission delays nothing.
    pub(crate) fn window(&self, floor: Nanos, late: u64, is_all_sent: bool) -> Nanos {
        let [now, before] = self.longest;
        let share = if self.is_lossy() { 7 } else { 12 };
        let seen = now.max(before).saturating_mul(u64::from(share + self.margin)).get() / 8;
        let means = |count: u64| match self.settled {
            true => self.mean.get().saturating_mul(count),
            false => self.sum.saturating_add(late).saturating_mul(count) / u64::from(self.samples.max(1)),
        };
        // At the end of the transmission the mean decides alone: the maximum of many delays is several means.
        let wide = match (is_all_sent, self.settled) {
            (true, _) if self.is_lossy() => means(MEANS_LOSSY),
            (true, true) if self.useful == 0 => means(MEANS_CLEAN),
            (true, _) => means(MEANS),
            (false, true) => seen,
            (false, false) => means(MEANS).max(seen),
        };
        // A wait of zero would expire in the nanosecond in which it started, forever.
        Nanos::new(wide).max(floor).max(Nanos::new(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_of_ordered_path_is_floor_after_some_samples() {
        let mut disorder = Disorder::default();
        let floor = Nanos::new(100);
        for _ in 0..20 {
            disorder.sample(Nanos::ZERO);
        }
        // One packet is missing for 2000 ns: 7 means of 2000 / 20.
        assert_eq!(disorder.window(floor, 2000, false), Nanos::new(700));
        assert_eq!(disorder.window(floor, 2000, true), Nanos::new(700));
        disorder.note_useful();
        assert_eq!(disorder.window(floor, 2000, true), Nanos::new(200));
        for _ in 0..EPOCH {
            disorder.sample(Nanos::ZERO);
        }
        assert_eq!(disorder.window(floor, 1000, false), floor);
    }

    #[test]
    fn window_exceeds_lateness_seen_and_widens_after_waste() {
        let mut disorder = Disorder::default();
        for _ in 0..EPOCH {
            disorder.sample(Nanos::new(800));
        }
        assert_eq!(disorder.window(Nanos::ZERO, 0, false), Nanos::new(1200));
        disorder.note_wasted();
        assert_eq!(disorder.window(Nanos::ZERO, 0, false), Nanos::new(1600));
        for _ in 0..3 {
            disorder.note_useful();
        }
        assert_eq!(disorder.window(Nanos::ZERO, 0, false), Nanos::new(1100));
    }

    #[test]
    fn window_of_path_without_losses_is_twice_as_wide_at_end() {
        let mut disorder = Disorder::default();
        for _ in 0..EPOCH {
            disorder.sample(Nanos::new(100));
        }
        assert_eq!(disorder.window(Nanos::ZERO, 0, true), Nanos::new(1400));
        // One lost packet, and a spurious retransmission: losses occur, and are not the rule.
        disorder.note_wasted();
        disorder.note_useful();
        assert_eq!(disorder.window(Nanos::ZERO, 0, true), Nanos::new(700));
    }

    #[test]
    fn window_without_sample_outlasts_wait() {
        assert!(Disorder::default().window(Nanos::ZERO, 1000, true) > Nanos::new(1000));
    }
}
