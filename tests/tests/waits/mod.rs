//! Every wait of the Rust API x every way to end it x every kind of card.
//!
//! | Way | Where it exists |
//! |---|---|
//! | removal of the card; registers that read as all ones | every wait |
//! | the process that serves the card ends | every wait, served cards |
//! | time limit | every wait that takes one |
//! | cancellation flag ([`WaitOptions::cancel`], `Endpoint::set_cancellation`, progress of a copy) | channels, streams, CDMA, endpoints, frames |
//! | masking of the line by another handle | user interrupts |
//! | second waiter | user interrupts, shared endpoints: their rows have two waiters, and both end |
//!
//! Not in the table, because the API makes it impossible: closing, cancelling or aborting from another thread what a thread waits with. The
//! waits of channels, streams, rings, `Cdma`, `Endpoint`, `PendingSend`, `PendingRead`, `Subscriber` and `Publisher` borrow their object
//! exclusively or take it; a shared endpoint closes with its last handle, which the waiter has. Futures have no time limit and no flag: their
//! task drops them. `abort`, `cancel` and resets have the engine's own time limit (tests/tests/timeouts.rs). Packages without waits: `fpga-messages`, which is polled.
//! `DeviceEvents::wait` is not about a card that is removed; the tests of `fpga-pci` have it.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::panic, reason = "a panic is the failure report")]

mod endpoints;
mod engines;
mod frames;
mod scene;

use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use fpga_driver::{Cancellation, WaitOptions};
use fpga_sim::CardFailure;

use scene::{Kind, Scene};

/// Maximum delay that passes: a hundred times the usual delays, because the machine may be busy, and virtual time then passes slowly. A wait
/// that nothing ends takes for ever.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Limit of waits that something else ends: not the maximum, so that sums do not depend on saturation.
const NEVER: Duration = Duration::from_secs(1_000_000);
const SHORT: Duration = Duration::from_millis(20);
/// Time that a waiter has until its wait is ended. A waiter that begins later has to end as well.
const PAUSE: Duration = Duration::from_millis(10);

/// Threads of each kind of card: most of their time is the delays of waits that sleep.
const THREADS: usize = 4;

/// Way to end a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Removal,
    /// The card's registers read as all ones, as those of a card that has lost its configuration.
    AllOnes,
    ServerEnds,
    Limit,
    Flag,
    Disable,
}

impl End {
    /// Names of errors that report this end.
    const fn errors(self) -> &'static [&'static str] {
        match self {
            Self::Removal | Self::AllOnes => &["Gone"],
            Self::ServerEnds => &["Gone", "Server", "Closed"],
            // The reset of a stalled copy engine does not end either.
            Self::Limit => &["TimedOut", "Stuck", "NoArrival", "NoPeer"],
            Self::Flag => &["Cancelled", "Stopped"],
            Self::Disable => &["Disabled"],
        }
    }
}

/// Waits without a limit and without a flag: futures and event loops.
const UNLIMITED: &[End] = &[End::Removal, End::AllOnes, End::ServerEnds];
const CANCELLABLE: &[End] = &[End::Removal, End::AllOnes, End::ServerEnds, End::Limit, End::Flag];
const MASKABLE: &[End] = &[End::Removal, End::AllOnes, End::ServerEnds, End::Limit, End::Disable];

/// Time limit of a wait, and the flag that cancels it.
#[derive(Clone, Copy)]
struct Limits {
    timeout: Duration,
    flag: &'static AtomicBool,
}

impl Limits {
    fn cancellation(self) -> Cancellation {
        Cancellation::new(self.flag)
    }

    fn wait(self) -> WaitOptions {
        WaitOptions::default().timeout(self.timeout).cancel(self.cancellation())
    }
}

/// A wait of one thread. Returns the error's names.
type Call = Box<dyn FnMut() -> Result<(), String> + Send>;

/// A row of the table.
struct Wait {
    name: &'static str,
    /// The card has streams.
    streams: bool,
    ends: &'static [End],
    /// The wait has a limit of its own, which passes at once in virtual time.
    real_time: bool,
    /// Prepares the waits of one or two threads.
    open: fn(&Scene, Limits) -> Vec<Call>,
}

const fn wait(name: &'static str, ends: &'static [End], open: fn(&Scene, Limits) -> Vec<Call>) -> Wait {
    Wait { name, streams: false, ends, real_time: false, open }
}

/// Names of an error and its causes.
fn named<T, E: core::fmt::Debug>(result: Result<T, E>) -> Result<(), String> {
    result.map(drop).map_err(|error| format!("{error:?}"))
}

fn call<T, E: core::fmt::Debug>(mut wait: impl FnMut() -> Result<T, E> + Send + 'static) -> Call {
    Box::new(move || named(wait()))
}

fn one<T, E: core::fmt::Debug>(wait: impl FnMut() -> Result<T, E> + Send + 'static) -> Vec<Call> {
    vec![call(wait)]
}

/// Runs a future in this thread, which asks to be polled again itself.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = core::pin::pin!(future);
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    loop {
        if let core::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Ends one wait in one way. Returns the longest delay of its waiters, or what is wrong.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn run(row: &Wait, end: End, kind: Kind) -> Result<Duration, String> {
    let cell = format!("{}, {end:?}, {kind:?}", row.name);
    let mut scene = Scene::open(kind, row.streams);
    let flag: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let timeout = if end == End::Limit { SHORT } else { NEVER };
    let calls = (row.open)(&scene, Limits { timeout, flag });
    let count = calls.len();
    let begun = AtomicUsize::new(0);
    let (sender, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        for mut wait in calls {
            let (begun, sender) = (&begun, sender.clone());
            scope.spawn(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                let began = Instant::now();
                let result = wait();
                // Before the wait's object is dropped, which may stop an engine.
                sender.send((result, began, Instant::now())).unwrap();
            });
        }
        while begun.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(PAUSE);
        let triggered = Instant::now();
        match end {
            End::Removal => scene.remove(),
            End::AllOnes => scene.fail(CardFailure::AllOnes),
            End::ServerEnds => scene.end_server(),
            End::Flag => flag.store(true, Ordering::Relaxed),
            End::Disable => scene.disable_lines(),
            End::Limit => {}
        }
        let (mut longest, mut wrong) = (Duration::ZERO, Ok(()));
        for _ in 0..count {
            let (result, began, at) = ended.recv_timeout(Duration::from_secs(120)).unwrap_or_else(|_| {
                scene.remove();
                flag.store(true, Ordering::Relaxed);
                panic!("{cell}: the wait does not end")
            });
            let since = if end == End::Limit { began + SHORT } else { triggered };
            longest = longest.max(at.saturating_duration_since(since));
            let error = result.err().unwrap_or_default();
            let is_named = end.errors().iter().any(|name| error.contains(name));
            if !is_named {
                wrong = Err(format!("{cell}: {error:?}"));
            }
        }
        // An engine that is gone is not waited for.
        scene.remove();
        wrong.map(|()| longest)
    })
}

fn rows() -> impl Iterator<Item = &'static Wait> {
    engines::WAITS.iter().chain(endpoints::WAITS).chain(frames::WAITS)
}

/// Runs the cells of the table that `is_part` selects by number and kind, the kinds of cards beside each other. Prints the longest delays.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn table(is_part: fn(usize, Kind) -> bool) {
    let mut cells = Vec::new();
    for row in rows() {
        for &end in row.ends {
            cells.push((row, end));
        }
    }
    std::thread::scope(|scope| {
        let kinds = Kind::ALL.map(|kind| {
            let cells = &cells;
            let thread = move |thread: usize| {
                let (mut delays, mut wrong) = (Vec::new(), Vec::new());
                for (number, (row, end)) in cells.iter().enumerate() {
                    // Only a served card has a server.
                    let has_server = *end != End::ServerEnds || kind == Kind::Served;
                    let exists = has_server && !(row.real_time && kind == Kind::Mock);
                    if exists && number / Kind::ALL.len() % THREADS == thread && is_part(number, kind) {
                        match run(row, *end, kind) {
                            Ok(delay) => delays.push((delay, row.name, *end)),
                            Err(cell) => wrong.push(cell),
                        }
                    }
                }
                assert!(wrong.is_empty(), "{wrong:#?}");
                delays
            };
            core::array::from_fn::<_, THREADS, _>(|number| number)
                .map(|number| scope.spawn(move || thread(number)))
        });
        for (kind, threads) in Kind::ALL.into_iter().zip(kinds) {
            let delays: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            let (longest, name, end) = delays.iter().max_by_key(|(delay, ..)| *delay).copied().unwrap();
            println!("{kind:?}: {} cells, longest delay {longest:?} ({name}, {end:?})", delays.len());
            assert!(longest < MAX_DELAY, "{kind:?}: {name}, {end:?}: {longest:?}");
        }
    });
}

/// Half of the waits and ways, each on one kind of card.
#[test]
fn waits_end_on_each_card() {
    table(|number, kind| number % (2 * Kind::ALL.len()) == 2 * kind as usize);
}

#[test]
#[ignore = "long: 20 s: every wait in every setup on every kind of card"]
fn waits_of_rust_api_end_in_every_way() {
    table(|_, _| true);
}
