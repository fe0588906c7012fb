//! User interrupts: lines that the design on the card raises, and programs that wait for them.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::os::fd::AsFd;
use std::thread;

use fpga_driver::user_interrupt::Delivery;
use fpga_driver::{
    Error, OpenOptions, ResourceError, UserInterrupt, UserInterrupts, WaitMode,
    user_interrupt::UserInterruptError,
};
use fpga_pci::Backend;
use fpga_pci::ResetLevel;
use fpga_sim::CardFailure;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Case, CaseContext, Verdict, case};
use crate::TIMEOUT;
use crate::cards::DMA_BAR;
use crate::conformance::UserLevel::{High, Low, Pulse};
use crate::conformance::builds::{FEW_VECTORS, LEGACY_LINE, ONE_MESSAGE};
use crate::conformance::case_context::{Opened, long_wait};
use crate::conformance::{Build, Capability};

const LINES: &[Capability] = &[Capability::UserLines];

pub(super) const CASES: &[Case] = &[
    case("user_interrupts.rise_is_one_interrupt", LINES, arm_for_next),
    case("user_interrupts.rises_of_few_vectors", LINES, |context| build(context, &FEW_VECTORS)),
    case("user_interrupts.rises_of_one_message", LINES, |context| build(context, &ONE_MESSAGE)),
    case("user_interrupts.rises_of_intx", LINES, |context| build(context, &LEGACY_LINE)),
    case("user_interrupts.early_interrupt_is_kept", LINES, request_before_wait),
    case("user_interrupts.pulses_are_counted", LINES, pulses),
    case("user_interrupts.rearm_finds_line_still_high", LINES, rearm),
    case("user_interrupts.disabled_line_is_silent", LINES, disabled),
    case("user_interrupts.several_lines", LINES, several),
    case("user_interrupts.waiters_are_woken", LINES, sleeping_waiters),
    case("user_interrupts.descriptor_is_readable", LINES, readable),
    case("user_interrupts.future", LINES, future),
    case("user_interrupts.high_line_does_not_affect_channels", LINES, |context| {
        high_line(context, context.open())
    }),
    case("user_interrupts.high_intx_does_not_affect_channels", LINES, |context| {
        context.on(&LEGACY_LINE, |context| high_line(context, open_on(context)))
    }),
    case("user_interrupts.dropped_handle_masks_line", &[], dropped),
    case("user_interrupts.refusals", &[], refusals),
    case("user_interrupts.removed_card_ends_waits", &[], removed),
    case("user_interrupts.reset_ends_waits", &[Capability::BusReset], reset),
];

/// Interrupt lines that nothing else on the card uses.
const LINE: u8 = 3;
const OTHER: u8 = 7;
/// Timeout of a wait that must end without an interrupt.
const NOTHING: Duration = Duration::from_millis(60);

/// Opens the card with a given DMA BAR: the driver finds the BAR by the MSI-X table, which these builds lack.
fn open_on(context: &CaseContext<'_>) -> Opened {
    context.open_with(OpenOptions::default().dma_bar(DMA_BAR))
}

fn take(opened: &Opened, line: u8) -> UserInterrupt {
    opened.card.user_interrupt(line).unwrap_or_else(|error| panic!("{error}"))
}

fn assert_nothing(irq: &UserInterrupt) {
    let waited = irq.wait(NOTHING);
    assert!(matches!(waited, Err(Error { kind: UserInterruptError::TimedOut { .. }, .. })), "{waited:?}");
}

fn arm_for_next(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    rises_on(context, &opened, LINE);
    opened.close();
    Ok(())
}

fn build(context: &CaseContext<'_>, build: &Build) -> Verdict {
    context.on(build, |context| {
        let opened = open_on(context);
        // These lines share vectors with each other.
        for line in [LINE, LINE + 2] {
            rises_on(context, &opened, line);
        }
        opened.close();
        Ok(())
    })
}

/// A rise is one interrupt, however long the line is high. The next interrupt needs a fall first.
fn rises_on(context: &CaseContext<'_>, opened: &Opened, line: u8) {
    let irq = take(opened, line);
    assert_nothing(&irq);
    for round in 0..3 {
        context.user_line(line, High);
        assert_eq!(irq.wait(TIMEOUT), Ok(1), "{:?}, round {round}", irq.delivery());
        assert_eq!(irq.is_pending(), Ok(true));
        assert_nothing(&irq);
        context.user_line(line, Low);
        assert_nothing(&irq);
        assert_eq!(irq.is_pending(), Ok(false));
    }
    assert_eq!(irq.count(), 3);
}

/// An interrupt that the design raises before the first wait is reported to that wait, whether the line was taken before or after it.
fn request_before_wait(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    context.user_line(LINE, High);
    let irq = take(&opened, LINE);
    assert_eq!(irq.wait(TIMEOUT), Ok(1));
    context.user_line(LINE, Low);
    context.user_line(LINE, High);
    context.user_line(LINE, Low);
    if irq.delivery() == Delivery::Message {
        assert_eq!(irq.wait(TIMEOUT), Ok(1), "the pulse is reported although the line is low");
    }
    drop(irq);
    // An interrupt that was not collected is not reported to the next owner.
    context.user_line(LINE, High);
    context.user_line(LINE, Low);
    assert_nothing(&take(&opened, LINE));
    opened.close();
    Ok(())
}

fn pulses(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let irq = take(&opened, LINE);
    for count in [1, 2, 5] {
        for _ in 0..count {
            context.user_line(LINE, Pulse);
        }
        let seen = irq.wait(TIMEOUT).expect("the interrupt arrives");
        // If the card runs in its own thread, an MSI-X message may still be in flight. If the driver polls the line's level, several
        // pulses count as one.
        let mut seen = seen;
        while irq.delivery() == Delivery::Message && seen < count {
            seen += irq.wait(TIMEOUT).expect("the remaining interrupts arrive");
        }
        assert!((1..=count).contains(&seen), "{seen} of {count}");
        assert_eq!(irq.take(), Ok(0));
    }
    drop(irq);
    opened.close();
    Ok(())
}

fn rearm(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let irq = take(&opened, LINE);
    context.user_line(LINE, High);
    for _ in 0..3 {
        assert_eq!(irq.wait(TIMEOUT), Ok(1));
        irq.rearm().expect("the card answers");
    }
    assert_eq!(irq.wait(TIMEOUT), Ok(1));
    context.user_line(LINE, Low);
    irq.rearm().expect("the card answers");
    assert_nothing(&irq);
    drop(irq);
    opened.close();
    Ok(())
}

fn disabled(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let irq = take(&opened, LINE);
    assert!(irq.is_enabled());
    irq.disable().expect("the card answers");
    context.user_line(LINE, High);
    assert_eq!(irq.take(), Ok(0));
    let waited = irq.wait(TIMEOUT);
    assert!(matches!(waited, Err(Error { kind: UserInterruptError::Disabled, .. })), "{waited:?}");
    assert_eq!(irq.is_pending(), Ok(true));
    irq.enable().expect("the card answers");
    assert_eq!(irq.wait(TIMEOUT), Ok(1), "the line is still high");
    context.user_line(LINE, Low);
    drop(irq);
    opened.close();
    Ok(())
}

fn several(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let all: UserInterrupts = opened.card.user_interrupts(&[LINE, OTHER, 15]).expect("three lines");
    let waited = all.wait(NOTHING);
    match waited {
        Err(Error { kind: UserInterruptError::TimedOut { lines, .. }, .. }) => {
            assert_eq!(lines, [LINE, OTHER, 15])
        }
        other => panic!("{other:?}"),
    }
    context.user_line(15, High);
    assert_eq!(all.wait(TIMEOUT), Ok(vec![(15, 1)]));
    context.user_line(OTHER, High);
    context.user_line(15, Low);
    assert_eq!(all.wait(TIMEOUT), Ok(vec![(OTHER, 1)]));
    context.user_line(OTHER, Low);
    context.user_line(LINE, High);
    context.user_line(15, High);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(all.wait(TIMEOUT).expect("both interrupts arrive"));
    }
    seen.sort_unstable();
    assert_eq!(seen, [(LINE, 1), (15, 1)]);
    context.user_line(LINE, Low);
    context.user_line(15, Low);
    drop(all);
    opened.close();
    Ok(())
}

/// Rearms a line that is low. Its register writes are posted, and the read of `is_pending` pushes them to the card: if the line rose before
/// they arrived, that rise would be reported twice.
fn rearm_low(irq: &UserInterrupt) {
    irq.rearm().expect("the card answers");
    assert_eq!(irq.is_pending(), Ok(false));
}

/// Two threads wait for one line, and each interrupt wakes exactly one of them.
fn sleeping_waiters(context: &mut CaseContext<'_>) -> Verdict {
    if !context.real_time() {
        return Err(crate::conformance::Skip("in virtual time waiting threads do not sleep".to_owned()));
    }
    let opened = context.open();
    let irq = take(&opened, LINE);
    let seen: u64 = thread::scope(|scope| {
        let waiters = [0, 1].map(|_| {
            let irq = irq.clone();
            scope.spawn(move || irq.wait(TIMEOUT).expect("one interrupt per thread"))
        });
        // A thread that does not sleep yet when the line rises finds the interrupt in its first check.
        for _ in 0..2 {
            let before = irq.count();
            context.user_line(LINE, High);
            while irq.count() == before && !waiters.iter().all(thread::ScopedJoinHandle::is_finished) {
                thread::yield_now();
            }
            context.user_line(LINE, Low);
            // A driver that samples the level counts two rises as one unless it reads the low level between them.
            rearm_low(&irq);
        }
        waiters.map(|waiter| waiter.join().expect("no panic")).iter().sum()
    });
    assert_eq!((seen, irq.count()), (2, 2));
    drop(irq);
    opened.close();
    Ok(())
}

fn readable(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let irq = take(&opened, LINE);
    for _ in 0..3 {
        context.user_line(LINE, High);
        let seen = loop {
            let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
            let woken = rustix::event::poll(&mut [PollFd::new(&irq.as_fd(), PollFlags::IN)], Some(&limit));
            assert_eq!(woken, Ok(1), "the event fd becomes readable");
            match irq.take() {
                Ok(0) => {}
                other => break other,
            }
        };
        assert_eq!(seen, Ok(1));
        context.user_line(LINE, Low);
        rearm_low(&irq);
        assert_eq!(irq.take(), Ok(0));
    }
    drop(irq);
    opened.close();
    Ok(())
}

/// A waiting future is pending before the interrupt, with few register reads for its polls, and ready after it.
fn future(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let irq = take(&opened, LINE);
    let mut task_context = Context::from_waker(Waker::noop());
    let mut arrived = Box::pin(irq.arrived());
    let traffic = opened.injector.traffic();
    for _ in 0..50 {
        assert!(arrived.as_mut().poll(&mut task_context).is_pending());
    }
    if irq.delivery() == Delivery::Message {
        let reads = opened.injector.traffic().reads - traffic.reads;
        assert!(reads <= 4, "{reads} register reads for a task that waits");
    }
    context.user_line(LINE, High);
    let seen = loop {
        if let Poll::Ready(seen) = arrived.as_mut().poll(&mut task_context) {
            break seen;
        }
    };
    assert_eq!(seen, Ok(1));
    context.user_line(LINE, Low);
    drop(arrived);
    drop(irq);
    opened.close();
    Ok(())
}

/// A line that stays high does not wake channels that wait by interrupt, and does not make its own waiter spin.
fn high_line(context: &CaseContext<'_>, opened: Opened) -> Verdict {
    const TRANSFERS: u64 = 20;
    opened.needs(1 << 20)?;
    let irq = take(&opened, LINE);
    opened.interrupts()?;
    context.user_line(LINE, High);
    assert_eq!(irq.wait(TIMEOUT), Ok(1));
    for setup in opened.setups() {
        let mut pair = opened.pair(setup)?;
        let before = (opened.injector.traffic(), opened.injector.sleeps());
        for seed in 0..TRANSFERS {
            pair.check(seed, 20_001, 0x100, long_wait().mode(WaitMode::Interrupt));
        }
        let traffic = opened.injector.traffic();
        let woken = traffic.interrupts - before.0.interrupts;
        // Each round waits twice per transfer (a write that checks the data, and the transfer); a shared interrupt wakes both waiters.
        assert!(woken <= 6 * TRANSFERS, "{setup:?}: woken {woken} times for {TRANSFERS} transfers");
    }
    let (sleeps, traffic) = (opened.injector.sleeps(), opened.injector.traffic());
    assert_nothing(&irq);
    let (sleeps, reads) =
        (opened.injector.sleeps() - sleeps, opened.injector.traffic().reads - traffic.reads);
    assert!(sleeps + reads <= 600, "{sleeps} sleeps and {reads} reads without an interrupt");
    context.user_line(LINE, Low);
    assert_nothing(&irq);
    context.user_line(LINE, High);
    assert_eq!(irq.wait(TIMEOUT), Ok(1));
    context.user_line(LINE, Low);
    drop(irq);
    opened.close();
    Ok(())
}

fn dropped(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let enabled = || -> Vec<u8> {
        let states = opened.card.user_interrupt_states().expect("the card answers");
        states.into_iter().filter(|state| state.enabled).map(|state| state.line).collect()
    };
    assert!(enabled().is_empty());
    let (first, second) = (take(&opened, LINE), take(&opened, OTHER));
    if first.delivery() != Delivery::Polled {
        assert_eq!(enabled(), [LINE, OTHER]);
    }
    let clone = first.clone();
    drop((first, second));
    if clone.delivery() != Delivery::Polled {
        assert_eq!(enabled(), [LINE], "the line is enabled while a clone exists");
    }
    drop(clone);
    assert!(enabled().is_empty());
    opened.close();
    Ok(())
}

fn refusals(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let error = opened.card.user_interrupt(16).expect_err("line 16 does not exist");
    assert!(
        matches!(error.kind, ResourceError::NoSuchUserInterrupt { line: 16, available: 16, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("0 to 15"), "{error}");
    let irq = take(&opened, LINE);
    let error = opened.card.user_interrupt(LINE).expect_err("the line is in use");
    assert!(matches!(error.kind, ResourceError::InUse { .. }), "{error}");
    let error = opened.card.user_interrupts(&[OTHER, LINE]).expect_err("the line is in use");
    assert!(matches!(error.kind, ResourceError::InUse { .. }), "{error}");
    // A refused request for several lines takes none of them.
    drop((take(&opened, OTHER), irq));
    drop(take(&opened, LINE));
    opened.close();
    Ok(())
}

fn removed(context: &mut CaseContext<'_>) -> Verdict {
    for failure in [CardFailure::Gone, CardFailure::AllOnes] {
        let opened = context.open();
        let irq = take(&opened, LINE);
        // From the next register access on, the card does not answer.
        opened.injector.fail_after(0, failure);
        let waited = irq.wait(TIMEOUT);
        assert!(
            matches!(waited, Err(Error { kind: UserInterruptError::Gone, .. })),
            "{failure:?}: {waited:?}"
        );
        let taken = opened.card.user_interrupt(OTHER);
        assert!(taken.is_err(), "{failure:?}: {taken:?}");
        drop((irq, taken));
        opened.injector.restore();
        drop(opened);
        context.reset();
    }
    Ok(())
}

fn reset(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let irq = take(&opened, LINE);
    let reset =
        opened.injector.reset(ResetLevel::Hot).or_else(|_| opened.injector.reset(ResetLevel::Function));
    reset.expect("the backend has one of the resets");
    let waited = irq.wait(TIMEOUT);
    assert!(matches!(waited, Err(Error { kind: UserInterruptError::Reset, .. })), "{waited:?}");
    drop((irq, opened));
    // The card is healthy, and its lines can be taken again.
    let opened = context.open();
    assert_nothing(&take(&opened, LINE));
    opened.close();
    Ok(())
}
