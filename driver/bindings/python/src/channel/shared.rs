//! A channel that Python threads share.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use fpga_driver::{ChannelOptions, Direction, Ticket};
use fpga_pci::Clock;
use pyo3::prelude::*;

use super::engine::stops::{Abandoned, MAX_STOP, MIN_STOP, STOP_POLL_INTERVAL};
use super::engine::{Engine, Outcome};
use super::work::{Step, Work};
use crate::error::{Class, Failure};
use crate::memory::{Regions, Registrar};
use crate::owned::{Held, Owned};
use crate::wait::{self, Limit, Pause, lock};

/// Maximum wait of a query for calls of other threads; then it returns the state that the last query has read.
const MAX_QUERY_WAIT: Duration = Duration::from_millis(10);
/// Steps of a card in virtual time for one poll by an event loop.
const STEPS_PER_POLL: u32 = 64;

/// Channel that Python threads share.
pub(crate) struct Shared {
    pub(crate) direction: Direction,
    pub(crate) number: u8,
    /// Name of the card.
    pub(crate) card: String,
    pub(crate) regions: Arc<Regions>,
    pub(crate) engine: Owned<Engine>,
    /// Number of transfers in flight at the last query.
    in_flight: AtomicU32,
    /// Whether `deferred` is not empty.
    has_deferred: AtomicBool,
    deferred: Mutex<Deferred>,
}

/// Work for the next call of the channel.
#[derive(Default)]
struct Deferred {
    /// Regions whose objects are gone, to be deregistered.
    regions: Vec<u64>,
    /// Transfers whose calls have ended, to be cancelled.
    abandoned: Vec<Abandoned>,
}

impl Shared {
    /// Takes a channel of a card.
    pub(crate) fn open(
        py: Python<'_>,
        opened: fpga_driver::Card,
        regions: &Arc<Regions>,
        (direction, number): (Direction, u8),
        options: ChannelOptions,
    ) -> Result<Arc<Self>, Failure> {
        let direct = wait::detached(py, || opened.channel(direction, number, options))?;
        let label = format!("{}{number}", direction);
        let shared = Arc::new(Self {
            direction,
            number,
            card: opened.name().to_owned(),
            regions: Arc::clone(regions),
            engine: Owned::new(opened.name().to_owned(), label, Engine::new(opened, direct)),
            in_flight: AtomicU32::new(0),
            has_deferred: AtomicBool::new(false),
            deferred: Mutex::default(),
        });
        let own: Weak<Self> = Arc::downgrade(&shared);
        regions.attach(own);
        Ok(shared)
    }

    pub(crate) fn label(&self) -> &str {
        self.engine.name()
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.engine.is_closed()
    }

    /// Closes the channel.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.engine.shut(py)
    }

    /// Calls `call` with the engine. Waits for calls of other threads.
    pub(super) fn with<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Engine) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut held = self.engine.hold(py, &mut Limit::none())?;
        let engine = held.value()?;
        self.run_deferred(engine);
        call(engine)
    }

    /// As [`with`](Self::with), without the interpreter's lock, and with a short wait. `None`: other threads use the channel.
    pub(super) fn query<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Engine) -> Result<R, Failure> + Send,
    ) -> Result<Option<R>, Failure> {
        let mut held: Held<'_, Engine> = match self.engine.hold(py, &mut Limit::of(MAX_QUERY_WAIT)) {
            Ok(held) => held,
            Err(failure) if failure.is(Class::TimedOutError) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let engine = held.value()?;
        let result = py.detach(|| {
            self.run_deferred(engine);
            call(engine)
        });
        self.in_flight.store(engine.in_flight(), Ordering::Relaxed);
        result.map(Some)
    }

    /// Number of transfers in flight.
    pub(super) fn in_flight(&self, py: Python<'_>) -> Result<u32, Failure> {
        Ok(match self.query(py, |engine| Ok(engine.in_flight()))? {
            Some(now) => now,
            None => self.in_flight.load(Ordering::Relaxed),
        })
    }

    /// Polls once for a task of an event loop; a card in this thread works for some steps.
    pub(super) fn step(engine: &mut Engine) -> Result<(), Failure> {
        if engine.card.clock() != Clock::Virtual {
            // An event loop polls rarely.
            engine.direct.note_sleep();
            return engine.poll().map(drop);
        }
        for _ in 0..STEPS_PER_POLL {
            engine.direct.relax();
            if engine.poll()? > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Calls `turn` until it has a result, as [`Owned::turns`].
    #[inline]
    pub(super) fn turns<R: Send>(
        &self,
        py: Python<'_>,
        limit: &mut Limit,
        mut turn: impl FnMut(&mut Engine, &mut Limit, &Pause<'_>) -> Result<Option<R>, Failure> + Send,
    ) -> Result<R, Failure> {
        self.engine.turns(py, limit, |engine, limit, pause| {
            self.run_deferred(engine);
            turn(engine, limit, pause)
        })
    }

    /// Does the work of a blocking call. If the call ends early, its transfers are cancelled.
    #[inline]
    pub(super) fn run(&self, py: Python<'_>, work: &mut impl Work, limit: &mut Limit) -> Result<(), Failure> {
        let done = self.turns(py, limit, |engine, limit, pause| {
            loop {
                match work.advance(engine)? {
                    Step::Done => return Ok(Some(())),
                    Step::Waiting(ticket) if engine.wait_part(ticket, limit, pause)? => {}
                    Step::Waiting(_) => return Ok(None),
                }
            }
        });
        done.map_err(|failure| self.after_early_end(py, work, failure, limit))
    }

    /// Cancels the transfers of a call that has ended early, and waits some time for the engine to stop. Returns the failure to report: if
    /// the engine does not stop either, that one, which has the remedy. No signal handlers run meanwhile.
    #[cold]
    fn after_early_end(
        &self,
        py: Python<'_>,
        work: &mut impl Work,
        failure: Failure,
        limit: &Limit,
    ) -> Failure {
        if failure.is(Class::OtherProcessError) {
            // A signal handler has forked; the transfers are those of the parent.
            return failure;
        }
        let late = failure.is(Class::TimedOutError);
        // After its timeout, an engine that does not stop within a tenth of that time counts as hung.
        let patience = if late { work.stop_time(limit.total()) } else { MIN_STOP };
        let abandoned = work.take_in_flight(late.then_some(patience));
        if abandoned.is_empty() {
            return failure;
        }
        self.defer(|deferred| deferred.abandoned.extend(abandoned));
        // A call that is ended from outside ends soon; the next call continues.
        let end = Instant::now() + if late { 2 * patience } else { patience / 2 };
        loop {
            let stopped = match self.engine.try_hold() {
                None => {
                    py.detach(|| std::thread::sleep(STOP_POLL_INTERVAL));
                    Ok(self.engine.is_closed())
                }
                Some(mut held) => match held.value() {
                    Err(_) => Ok(true),
                    Ok(engine) => py.detach(|| {
                        self.run_deferred(engine);
                        let polled = engine.continue_stops();
                        if engine.is_stopping() {
                            engine.card.pause(STOP_POLL_INTERVAL);
                        }
                        polled.map(|()| !engine.is_stopping())
                    }),
                },
            };
            match stopped {
                Err(second) if late => return second,
                Ok(false) if Instant::now() < end => {}
                Ok(_) | Err(_) => return failure,
            }
        }
    }

    /// Cancels the transfers of an asynchronous call with the next calls of the channel, and now if no other thread has it.
    pub(super) fn abandon(&self, abandoned: Vec<Abandoned>) {
        // A child of this process cancels nothing.
        if abandoned.is_empty() || !self.regions.is_own() {
            return;
        }
        self.defer(|deferred| deferred.abandoned.extend(abandoned));
        if let Some(mut held) = self.engine.try_hold()
            && let Ok(engine) = held.value()
        {
            self.run_deferred(engine);
            // The next call reports what is wrong with the channel.
            let _ = engine.continue_stops();
        }
    }

    /// Cancels a transfer. Returns false if it had ended.
    pub(super) fn cancel(&self, py: Python<'_>, ticket: Ticket, outcome: &Outcome) -> Result<bool, Failure> {
        let mut begun = false;
        self.turns(py, &mut Limit::none(), |engine, _, _| {
            if !begun {
                begun = true;
                let (first, last, limit, _memory) = (ticket, ticket, MAX_STOP, None);
                engine.begin_cancel(Abandoned { first, last, limit, _memory }, false);
            }
            let stopped = engine.continue_stops();
            if engine.has_ended(ticket) {
                // A transfer that ends together with its channel is not the end of the cancellation.
                return stopped.map(|()| Some(outcome.get().is_some_and(Option::is_some)));
            }
            stopped?;
            if !engine.is_cancelling(ticket) {
                // Withdrawn; it ends after the earlier ones.
                return Ok(Some(true));
            }
            engine.card.pause(STOP_POLL_INTERVAL);
            Ok(None)
        })
    }

    /// Ends everything in flight. Returns the number of transfers that ended.
    pub(super) fn abort(&self, py: Python<'_>) -> Result<usize, Failure> {
        let mut before = None;
        self.turns(py, &mut Limit::none(), |engine, _, _| {
            let before = *before.get_or_insert_with(|| {
                engine.begin_abort();
                engine.ended()
            });
            engine.continue_stops()?;
            if !engine.is_aborting() {
                return Ok(Some(usize::try_from(engine.ended() - before).unwrap_or(usize::MAX)));
            }
            engine.card.pause(STOP_POLL_INTERVAL);
            Ok(None)
        })
    }

    /// Arms the channel, and returns the descriptor of its interrupts; `None` if there is none.
    pub(super) fn arm(&self, py: Python<'_>) -> Result<Option<RawFd>, Failure> {
        let armed = self.query(py, |engine| {
            if engine.card.clock() == Clock::Virtual {
                // A card inside this thread works only while it is polled.
                return Ok(None);
            }
            let Ok(events) = engine.direct.events() else { return Ok(None) };
            let _ = events.take();
            // Queued transfers start before the channel is armed: a run clears the line.
            engine.poll()?;
            engine.direct.arm()?;
            Ok(Some(events.as_raw_fd()))
        })?;
        Ok(armed.flatten())
    }

    /// Adds deferred work.
    fn defer(&self, add: impl FnOnce(&mut Deferred)) {
        add(&mut lock(&self.deferred));
        self.has_deferred.store(true, Ordering::Release);
    }

    /// Does deferred work.
    #[inline]
    fn run_deferred(&self, engine: &mut Engine) {
        if self.has_deferred.load(Ordering::Relaxed) {
            self.run_deferred_now(engine);
        }
    }

    #[cold]
    fn run_deferred_now(&self, engine: &mut Engine) {
        self.has_deferred.store(false, Ordering::Release);
        let mut deferred = lock(&self.deferred);
        for abandoned in deferred.abandoned.drain(..) {
            engine.adopt(abandoned);
        }
        // Regions that a transfer still uses stay.
        deferred.regions.retain(|number| !engine.deregister(*number));
        if !deferred.regions.is_empty() {
            self.has_deferred.store(true, Ordering::Release);
        }
    }
}

impl Registrar for Shared {
    fn deregister(&self, py: Python<'_>, number: u64, waits: bool) -> Result<(), Failure> {
        if !self.regions.is_own() {
            return Ok(());
        }
        self.defer(|deferred| deferred.regions.push(number));
        let held = match self.engine.try_hold() {
            None if waits && self.is_open() => match self.engine.hold(py, &mut Limit::none()) {
                Err(failure) if failure.is(Class::ClosedError) => None,
                held => Some(held?),
            },
            held => held,
        };
        if let Some(mut held) = held
            && let Ok(engine) = held.value()
        {
            py.detach(|| self.run_deferred(engine));
        }
        Ok(())
    }
}
