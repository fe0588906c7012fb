//! Every wait ends in time: no later than a tenth of its timeout, or 50 ms, after it. The clock counts steps and sleeps
//! ([`FaultInjectingBackend::use_virtual_monotonic_clock`]), so that a loaded machine does not change the result.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use core::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fpga_driver::bulk::{self, BulkError};
use fpga_driver::errors::CopyFault;
use fpga_driver::{
    Cancellation, Card, CardAddr, CardRange, CdmaError, ChannelError, Direction, Error, NodeId, OpenOptions,
    TransferError, WaitMode, WaitOptions,
};
use fpga_pci::Backend;
use fpga_pci::Bounced;
use fpga_rdma::{Endpoint, EndpointError, SendOptions, SharedEndpoint};
use fpga_registers::cdma::CdmaBlock;
use fpga_registers::xdma::{ChannelBlock, channel_base};
use fpga_sim::SimNetwork;
use fpga_tests::cards::{DMA_BAR, with_channels};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};
use fpga_tests::testbed::options;

const TIMEOUTS: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(200), Duration::from_secs(30)];
/// The CDMA's registers in the user BAR of the built-in card.
const CDMA: u64 = 0x1000;
const USER_BAR: u8 = 0;

fn opened(cards: u32) -> (SimNetwork, Arc<FaultInjectingBackend>, Card) {
    let builder = SimNetwork::builder().card(with_channels(1, 1)).cards(cards - 1);
    let network = builder.build().unwrap();
    let injector = FaultInjectingBackend::new(network.backend(0), Vec::new());
    let card = Card::from_backend_with(injector.clone(), OpenOptions::default()).unwrap();
    (network, injector, card)
}

/// Runs a wait of `timeout`, and checks its duration.
fn timed<T>(injector: &FaultInjectingBackend, timeout: Duration, what: &str, wait: impl FnOnce() -> T) -> T {
    let before = injector.now();
    let waited = wait();
    let took = Duration::from_nanos(injector.now() - before);
    let most = (timeout / 10).max(Duration::from_millis(50));
    assert!(took >= timeout && took <= timeout + most, "{what}: {took:?} instead of {timeout:?}");
    waited
}

/// Makes a channel hang: the engine is never started and always busy, so that no transfer ends and the engine does not stop.
fn make_channel_hang(injector: &FaultInjectingBackend, direction: Direction) {
    let base = channel_base(direction, 0);
    let at = |address: fpga_driver::BarOffset| address.get();
    injector.drop_writes(vec![(DMA_BAR, at(ChannelBlock::CONTROL.address(base)))]);
    injector.replace(vec![ReplacedRegister {
        bar: DMA_BAR,
        at: at(ChannelBlock::STATUS.address(base)),
        value: 1,
    }]);
}

#[test]
fn channel_wait_ends_at_timeout_in_every_mode() {
    for timeout in TIMEOUTS {
        for mode in
            [WaitMode::Poll, WaitMode::Interrupt, WaitMode::Hybrid { spin: Duration::from_micros(20) }]
        {
            let (_network, injector, card) = opened(1);
            card.enable_interrupts().unwrap();
            let mut channel = card.h2c(0).unwrap();
            make_channel_hang(&injector, Direction::H2c);
            let ticket = channel.submit(card.buffer(5000).unwrap(), CardAddr::ZERO).unwrap();
            injector.use_virtual_monotonic_clock();
            let wait = WaitOptions::default().mode(mode).timeout(timeout);
            let error = timed(&injector, timeout, "wait", || channel.wait(ticket, wait)).unwrap_err();
            assert!(matches!(error.kind, ChannelError::TimedOut { .. }), "{error}");
        }
    }
}

#[test]
fn blocking_transfer_ends_at_timeout_though_engine_does_not_stop() {
    for timeout in TIMEOUTS {
        let (_network, injector, card) = opened(1);
        let mut channel = card.c2h(0).unwrap();
        make_channel_hang(&injector, Direction::C2h);
        injector.use_virtual_monotonic_clock();
        let wait = WaitOptions::default().timeout(timeout);
        let buffer = card.buffer(1 << 20).unwrap();
        let failed = timed(&injector, timeout, "read", || channel.read_with(buffer, CardAddr::ZERO, wait))
            .unwrap_err();
        assert!(
            matches!(failed.error.kind, TransferError::Channel(ChannelError::TimedOut { .. })),
            "{failed}"
        );
        // The engine may still write to the buffer.
        assert!(failed.buffer.is_none());
        assert!(channel.submit(card.buffer(64).unwrap(), CardAddr::ZERO).is_err() || channel.poll().is_err());
    }
}

#[test]
fn bulk_transfer_ends_at_total_timeout() {
    let total = Duration::from_millis(300);
    let (_network, injector, card) = opened(1);
    let mut channel = card.h2c(0).unwrap();
    injector.use_virtual_monotonic_clock();
    // The channel hangs after some chunks, when most of the time has passed.
    let mut source = Bounced::new(std::io::repeat(7));
    let wait = WaitOptions::default().total(total);
    let hanging = Arc::clone(&injector);
    let mut progress = |done: u64| {
        if done == 3 << 20 {
            hanging.pause(total / 2);
            make_channel_hang(&hanging, Direction::H2c);
        }
    };
    // The abort has the engine's own timeout.
    let card = &card;
    let before = injector.now();
    let failed =
        bulk::write_from(card, &mut channel, &mut source, CardAddr::ZERO, 64 << 20, wait, &mut progress);
    // The engine does not stop either; that error tells the user what to do.
    assert!(
        matches!(
            failed,
            Err(Error { kind: BulkError::Channel { cause: ChannelError::Wedged { .. }, .. }, .. })
        ),
        "{failed:?}"
    );
    let took = Duration::from_nanos(injector.now() - before);
    assert!(took >= total && took <= total + Duration::from_millis(2050), "{took:?}");
}

#[test]
fn short_idle_timeout_gives_up_engine_early() {
    let limit = Duration::from_millis(20);
    let (_network, injector, card) = opened(1);
    drop(card);
    let card = Card::from_backend_with(injector.clone(), OpenOptions::default().idle_timeout(limit)).unwrap();
    let mut channel = card.h2c(0).unwrap();
    make_channel_hang(&injector, Direction::H2c);
    channel.submit(card.buffer(5000).unwrap(), CardAddr::ZERO).unwrap();
    channel.poll().unwrap();
    injector.use_virtual_monotonic_clock();
    let error = timed(&injector, limit, "abort", || channel.abort()).unwrap_err();
    assert!(
        matches!(error.kind, ChannelError::Wedged { waited, .. } if (20..=22).contains(&waited.as_millis())),
        "{error}"
    );
}

#[test]
fn cdma_copy_ends_at_timeout_though_engine_hangs() {
    for timeout in TIMEOUTS.into_iter().filter(|timeout| *timeout < Duration::from_secs(1)) {
        let (_network, injector, card) = opened(1);
        let mut cdma = card.cdma().unwrap();
        let at = CDMA + CdmaBlock::SR.address(fpga_driver::BarOffset::ZERO).get();
        let control = CDMA + CdmaBlock::CR.address(fpga_driver::BarOffset::ZERO).get();
        // An engine that is never idle, and a reset that never ends.
        injector.replace(vec![
            ReplacedRegister { bar: USER_BAR, at, value: 0 },
            ReplacedRegister { bar: USER_BAR, at: control, value: 4 },
        ]);
        injector.use_virtual_monotonic_clock();
        let copy = || cdma.copy_with_timeout(CardAddr::ZERO, CardAddr::new(1 << 20), 4096, timeout);
        let error = timed(&injector, timeout, "copy", copy).unwrap_err();
        assert!(matches!(error.kind, CdmaError::Stuck { .. }), "{error}");
        std::mem::forget(cdma);
    }
}

/// A copy that its caller stops inside a chunk ends soon, though neither the chunk nor the reset ends. The next copy completes the reset.
#[test]
fn cdma_copy_stopped_inside_chunk_ends_soon_though_engine_hangs() {
    const CHUNK: u64 = 4 << 20;
    let (_network, injector, card) = opened(1);
    let mut cdma = card.cdma().unwrap();
    let register = |address: fpga_driver::BarOffset| CDMA + address.get();
    let at = register(CdmaBlock::SR.address(fpga_driver::BarOffset::ZERO));
    let control = register(CdmaBlock::CR.address(fpga_driver::BarOffset::ZERO));
    let (from, to) = (CardAddr::ZERO, CardAddr::new(2 * CHUNK));
    let (hanging, mut hung_at) = (Arc::clone(&injector), 0);
    let error = cdma
        .copy_with_progress(from, to, 2 * CHUNK, None, &mut |done| {
            assert_eq!(done, CHUNK);
            if hung_at > 0 {
                return ControlFlow::Break(());
            }
            hanging.use_virtual_monotonic_clock();
            hanging.replace(vec![
                ReplacedRegister { bar: USER_BAR, at, value: 0 },
                ReplacedRegister { bar: USER_BAR, at: control, value: 4 },
            ]);
            hung_at = hanging.now();
            ControlFlow::Continue(())
        })
        .unwrap_err();
    let took = Duration::from_nanos(injector.now() - hung_at);
    assert!(matches!(error.kind, CdmaError::Copy { cause: CopyFault::Stopped, done: CHUNK, .. }), "{error}");
    assert!(took <= Duration::from_millis(50), "{took:?}");
    injector.replace(Vec::new());
    cdma.copy(from, to, 4096).unwrap();
}

#[test]
fn endpoint_waits_end_at_timeout() {
    for timeout in [5, 200, 3000].map(Duration::from_millis) {
        for interrupts in [false, true] {
            let (_network, injector, card) = opened(2);
            if interrupts {
                card.enable_interrupts().unwrap();
            }
            let mut settings = options(1);
            settings.give_up = Duration::from_secs(100);
            let mut end = Endpoint::open_with(&card, &settings).unwrap();
            injector.use_virtual_monotonic_clock();
            let error = timed(&injector, timeout, "arrival", || end.wait_notification(timeout)).unwrap_err();
            assert!(matches!(error.kind, EndpointError::NoArrival { .. }), "{error}");
            let error =
                timed(&injector, timeout, "meet", || end.wait_peer(NodeId::new(77), timeout)).unwrap_err();
            assert!(matches!(error.kind, EndpointError::NoPeer { .. }), "{error}");
            let region =
                end.open_region(NodeId::ANY, CardRange::new(CardAddr::new(1 << 24), 4096)).unwrap().remote;
            let mut elsewhere = region;
            elsewhere.node = NodeId::new(77);
            let ticket = end.send(CardAddr::new(1 << 25), &elsewhere, 0, 64, SendOptions::default()).unwrap();
            let error = timed(&injector, timeout, "send", || end.wait(ticket, timeout)).unwrap_err();
            assert!(matches!(error.kind, EndpointError::TimedOut { .. }), "{error}");
            let end = SharedEndpoint::from(end);
            let error =
                timed(&injector, timeout, "shared arrival", || end.wait_notification(timeout)).unwrap_err();
            assert!(matches!(error.kind, EndpointError::NoArrival { .. }), "{error}");
            let mut sent =
                end.send(CardAddr::new(1 << 25), &elsewhere, 0, 64, SendOptions::default()).unwrap();
            let error = timed(&injector, timeout, "shared send", || sent.wait(timeout)).unwrap_err();
            assert!(matches!(error.kind, EndpointError::TimedOut { .. }), "{error}");
        }
    }
}

/// The time of a card in this process is virtual. While the card is idle it advances to the next timer at once.
#[test]
fn virtual_wait_without_work_takes_few_steps() {
    let (network, injector, card) = opened(1);
    let mut end = Endpoint::open_with(&card, &options(1)).unwrap();
    let timeout = Duration::from_secs(60);
    let (began, turns) = (network.now(), end.counters().turns);
    let error = end.wait_notification(timeout).unwrap_err();
    assert!(matches!(error.kind, EndpointError::NoArrival { .. }), "{error}");
    let waited = Duration::from(network.now().saturating_sub(began));
    assert!(waited >= timeout && waited <= timeout + Duration::from_secs(1), "{waited:?}");
    let turns = end.counters().turns - turns;
    assert!(turns < 100_000, "{turns} turns");
    drop(injector);
}

/// A cancelled wait ends in every mode. An engine that does not stop gets its own timeout in a call that stops it.
#[test]
fn cancelled_wait_ends_in_every_mode_though_engine_does_not_stop() {
    static CANCELLED: AtomicBool = AtomicBool::new(true);
    let cancel = Cancellation::new(&CANCELLED);
    for mode in [WaitMode::Poll, WaitMode::Interrupt, WaitMode::Hybrid { spin: Duration::from_micros(20) }] {
        let (_network, injector, card) = opened(1);
        card.enable_interrupts().unwrap();
        let mut channel = card.h2c(0).unwrap();
        make_channel_hang(&injector, Direction::H2c);
        let ticket = channel.submit(card.buffer(5000).unwrap(), CardAddr::ZERO).unwrap();
        injector.use_virtual_monotonic_clock();
        let wait = WaitOptions::default().mode(mode).cancel(cancel);
        let before = injector.now();
        let error = channel.wait(ticket, wait).unwrap_err();
        assert!(matches!(error.kind, ChannelError::Cancelled { .. }), "{mode:?}: {error}");
        let error = channel.abort().unwrap_err();
        assert!(
            matches!(error.kind, ChannelError::Wedged { waited, .. } if waited.as_millis() >= 2000),
            "{mode:?}: {error}"
        );
        let took = Duration::from_nanos(injector.now() - before);
        assert!(took <= Duration::from_millis(2400), "{mode:?}: {took:?}");
    }
}

/// A cancelled copy ends soon, though the engine does not stop. What is in flight is not given up: the next call that stops the engine waits for
/// it.
#[test]
fn cancelled_copy_ends_soon_though_engine_does_not_stop() {
    static CANCELLED: AtomicBool = AtomicBool::new(true);
    let (_network, injector, card) = opened(1);
    let mut channel = card.h2c(0).unwrap();
    make_channel_hang(&injector, Direction::H2c);
    injector.use_virtual_monotonic_clock();
    let wait = WaitOptions::default().cancel(Cancellation::new(&CANCELLED));
    let before = injector.now();
    let mut source = Bounced::new(std::io::repeat(7));
    let copied = bulk::write_from(&card, &mut channel, &mut source, CardAddr::ZERO, 4096, wait, &mut |_| {});
    let error = copied.unwrap_err();
    assert!(
        matches!(error.kind, BulkError::Channel { done: 0, cause: ChannelError::Cancelled { .. } }),
        "{error}"
    );
    let took = Duration::from_nanos(injector.now() - before);
    assert!(took <= Duration::from_millis(40), "{took:?}");
    assert!(channel.is_stopping() && channel.in_flight() == 1);
    // The next copy waits for the engine as long as its own wait, which is cancelled, too.
    let copied = bulk::write_from(&card, &mut channel, &mut source, CardAddr::ZERO, 4096, wait, &mut |_| {});
    assert!(matches!(
        copied.unwrap_err().kind,
        BulkError::Channel { done: 0, cause: ChannelError::Cancelled { .. } }
    ));
    assert!(channel.is_stopping());
    // The engine stops late: nothing was given up, and a transfer that was submitted meanwhile succeeds.
    let ticket = channel.submit(card.buffer(64).unwrap(), CardAddr::ZERO).unwrap();
    injector.replace(Vec::new());
    injector.drop_writes(Vec::new());
    let done = channel.wait(ticket, WaitOptions::default()).unwrap();
    assert_eq!(done.outcome.unwrap(), 64);
    assert!(!channel.is_stopping() && channel.in_flight() == 0);
    assert!(channel.next_completion().is_none(), "completions of the cancelled copy are dropped");
    assert_eq!(card.memory().quarantined(), []);
}

/// As a copy, with transfers of others before and after the cancelled one, which continue.
#[test]
fn cancelled_blocking_transfer_ends_soon_and_others_continue() {
    static CANCELLED: AtomicBool = AtomicBool::new(true);
    let (_network, injector, card) = opened(1);
    let mut channel = card.h2c(0).unwrap();
    make_channel_hang(&injector, Direction::H2c);
    injector.use_virtual_monotonic_clock();
    let first = channel.submit(card.buffer(64).unwrap(), CardAddr::ZERO).unwrap();
    let wait = WaitOptions::default().cancel(Cancellation::new(&CANCELLED));
    let before = injector.now();
    let failed = channel.write_with(card.buffer(4096).unwrap(), CardAddr::ZERO, wait).unwrap_err();
    assert!(matches!(failed.error.kind, TransferError::Channel(ChannelError::Cancelled { .. })), "{failed}");
    let took = Duration::from_nanos(injector.now() - before);
    assert!(took <= Duration::from_millis(50), "{took:?}");
    assert!(failed.buffer.is_none() && channel.is_stopping() && channel.in_flight() == 2);
    let last = channel.submit(card.buffer(64).unwrap(), CardAddr::ZERO).unwrap();
    injector.replace(Vec::new());
    injector.drop_writes(Vec::new());
    assert_eq!(channel.wait(last, WaitOptions::default()).unwrap().outcome.unwrap(), 64);
    assert_eq!(channel.wait(first, WaitOptions::default()).unwrap().outcome.unwrap(), 64);
    assert!(!channel.is_stopping() && channel.in_flight() == 0 && channel.next_completion().is_none());
    assert_eq!(card.memory().quarantined(), []);
}

#[test]
fn wait_function_requests_cancellation_ends() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let cancel = Cancellation::from_function(|| CALLS.fetch_add(1, Ordering::Relaxed) == 2);
    let (_network, injector, card) = opened(1);
    let mut channel = card.h2c(0).unwrap();
    make_channel_hang(&injector, Direction::H2c);
    let ticket = channel.submit(card.buffer(5000).unwrap(), CardAddr::ZERO).unwrap();
    let error = channel.wait_ended(ticket, WaitOptions::default().cancel(cancel)).unwrap_err();
    assert!(matches!(error.kind, ChannelError::Cancelled { .. }), "{error}");
    assert_eq!(CALLS.load(Ordering::Relaxed), 3);
}

#[test]
fn bulk_transfer_cancelled_reports_bytes_done() {
    static CANCELLED: AtomicBool = AtomicBool::new(false);
    let (_network, _injector, card) = opened(1);
    let mut channel = card.h2c(0).unwrap();
    let wait = WaitOptions::default().cancel(Cancellation::new(&CANCELLED));
    let mut source = Bounced::new(std::io::repeat(7));
    let mut progress = |done: u64| CANCELLED.store(done >= 3 << 20, Ordering::Relaxed);
    let failed =
        bulk::write_from(&card, &mut channel, &mut source, CardAddr::ZERO, 64 << 20, wait, &mut progress);
    // Chunks that have ended before their wait are complete.
    let Err(Error { kind: BulkError::Channel { done, cause: ChannelError::Cancelled { .. } }, .. }) = failed
    else {
        panic!("{failed:?}")
    };
    assert!((3 << 20..64 << 20).contains(&done), "{done}");
}
