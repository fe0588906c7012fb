//! Waiting for an engine to come to rest, by looking at its registers.

use core::time::Duration;

use fpga_pci::Transport;

/// How long an engine may take to come to rest after it was told to stop, or was reset, in nanoseconds. It finishes what it has begun
/// on its bus: the longest descriptor is 256 MiB, 1.1 s on the slowest link (one lane of the first generation); an AXI slave that
/// does not answer never lets go. A card that is well needs microseconds; a simulated one may be without a processor for some tenths
/// of a second.
pub(crate) const REST_LIMIT_NS: u64 = 2_000_000_000;

/// So many looks there are at least, however fast the clock goes: no pause between two of them counts for more.
const LOOKS: u64 = 8;

/// So long it looks without a pause, in nanoseconds: what is well is at rest by then.
const EAGER_NS: u64 = 200_000;
/// The pauses after that: this part of the time that has passed, so that whoever waits is late by no more than that, and at most so
/// many nanoseconds.
const PAUSE_SHARE: u64 = 16;
const LONGEST_PAUSE_NS: u64 = 10_000_000;

/// Looks until there is something to see. Returns how long it has looked, in nanoseconds, if that is not the case for `limit`.
///
/// `look` is told how long it has been. The clock is taken before each look: whatever holds this thread up between the two, the
/// engine had that time too. And a long pause between two looks counts as a short one: what stops this program (a debugger, a
/// host that freezes its virtual machine) may have stopped a simulated card with it.
///
/// What takes its time is looked at ever more rarely: an engine that never comes to rest costs some hundred register reads, not as
/// many as fit into the limit. Each of them is a stall of a microsecond on hardware, and two processes' work where the card is
/// simulated by another one.
pub(crate) fn look_until<T, E>(
    transport: &dyn Transport,
    limit: u64,
    mut look: impl FnMut(u64) -> Result<Option<T>, E>,
) -> Result<Result<T, u64>, E> {
    let (mut last, mut waited) = (transport.now(), 0_u64);
    loop {
        let now = transport.now();
        waited = waited.saturating_add(now.saturating_sub(last).min((limit / LOOKS).max(1)));
        last = now;
        if let Some(seen) = look(waited)? {
            return Ok(Ok(seen));
        }
        if waited >= limit {
            return Ok(Err(waited));
        }
        if waited >= EAGER_NS {
            let pause = (waited / PAUSE_SHARE).min(LONGEST_PAUSE_NS).min(limit - waited);
            transport.pause(Duration::from_nanos(pause));
            continue;
        }
        transport.relax();
        // Each look has the card's attention, and whoever waits for longer than a look is better off without this processor. A card
        // that is simulated by a thread of this process may need it.
        std::thread::yield_now();
    }
}

#[cfg(test)]
#[cfg(feature = "mock")]
mod tests {
    use super::*;
    use fpga_core::Nanos;
    use fpga_mock::World;

    /// Looks at a world whose clock goes on by these nanoseconds between looks; what comes of it, and the number of looks.
    fn look(pause: u64, limit: u64, there: impl Fn(u64) -> bool) -> (Result<(), u64>, u64) {
        let world = World::builder().cards(1).time(Nanos::ZERO, Nanos::new(pause)).build().unwrap();
        let mut looks = 0;
        let seen = look_until(&*world.transport(0), limit, |_| {
            looks += 1;
            Ok::<_, ()>(there(looks).then_some(()))
        });
        (seen.unwrap(), looks)
    }

    #[test]
    fn what_is_there_at_the_last_look_is_in_time() {
        assert_eq!(look(100, 1000, |_| false), (Err(1000), 11));
        assert_eq!(look(100, 1000, |looks| looks == 11), (Ok(()), 11));
        assert_eq!(look(100, 0, |_| true), (Ok(()), 1));
        assert_eq!(look(100, 0, |_| false), (Err(0), 1));
    }

    #[test]
    fn what_takes_long_is_looked_at_rarely_and_noticed_soon() {
        let (seen, looks) = look(1000, REST_LIMIT_NS, |_| false);
        assert!(
            seen.is_err_and(|waited| (REST_LIMIT_NS..REST_LIMIT_NS + 1000).contains(&waited)),
            "{seen:?}"
        );
        assert!(looks < 600, "{looks} looks in vain");
        // By how much somebody is late for whom it is over after this time.
        for over in [1_000, 100_000, 1_000_000, 30_000_000, 1_500_000_000] {
            let world = World::builder().cards(1).time(Nanos::ZERO, Nanos::new(1000)).build().unwrap();
            let seen = look_until(&*world.transport(0), REST_LIMIT_NS, |waited| {
                Ok::<_, ()>((waited >= over).then_some(waited))
            });
            let late = seen.unwrap().unwrap() - over;
            assert!(late <= (over / PAUSE_SHARE).min(LONGEST_PAUSE_NS) + 2000, "{late} ns late after {over}");
        }
    }

    #[test]
    fn a_clock_that_leaps_leaves_time_for_some_looks() {
        let (seen, looks) = look(u64::MAX / 64, 1000, |_| false);
        assert_eq!((seen, looks), (Err(1000), LOOKS + 1));
        let (seen, looks) = look(1 << 40, 5, |_| false);
        assert_eq!((seen, looks), (Err(5), 6), "each look counts for something");
    }
}
