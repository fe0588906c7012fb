//! Channels that end while they have work: on request, by being dropped, by a thread's panic, by a reset, because the card is removed,
//! because the engine does not stop. Memory that the card may still reach stays in quarantine; all other memory is returned.

use fpga_driver::{
    Card, Error, MemoryHandle, ResourceError, RunMode, ScatterGatherEntry, Ticket, errors::FaultCause,
};
use fpga_pci::Backend;
use fpga_pci::{MmioError, QuarantineReason, ResetLevel};
use fpga_registers::xdma::{ChannelBlock, channel_base};
use fpga_sim::{CardFailure, SimNetwork};
use fpga_tests::bed::{Channel, TestSetup};
use fpga_tests::cards::{DMA_BAR, channels_idle, fast_network, network, open, with_channels};
use fpga_tests::causes::Lower as _;
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};

use super::*;

/// Bytes of one transfer: eight descriptors.
const LENGTH: usize = 8 * 4096;

const fn place(number: u64) -> CardAddr {
    CardAddr::new(0x10_0000 + (number << 17))
}

/// A channel with work in every state.
pub(crate) struct Work {
    /// Registered, never used.
    idle: MemoryHandle,
    /// All of its transfers have ended.
    done: MemoryHandle,
    posted: MemoryHandle,
    /// Queued after the run, not posted.
    queued: MemoryHandle,
    /// Posted: buffer, part, list, buffer. Then queued: part, buffer.
    tickets: [Ticket; 6],
    data: [Vec<u8>; 6],
}

const BUFFERS: [usize; 3] = [0, 3, 5];

impl Work {
    fn begin(bed: &mut TestBed, steps: usize) -> Self {
        let [idle, done, posted, queued] = [0; 4].map(|_| bed.register_memory(2 * LENGTH));
        let ended = bed.channel.submit_at(done, 0, 100, CardAddr::ZERO).unwrap();
        bed.channel.wait_ended(ended, WaitOptions::default()).unwrap();
        let data = [0, 1, 2, 3, 4, 5].map(|n| bytes(n, LENGTH));
        bed.put(posted, 0, place(1), &data[1]);
        bed.put(posted, LENGTH, place(2), &data[2]);
        bed.put(queued, 0, place(4), &data[4]);
        let buffer = |bed: &mut TestBed, n: usize| {
            let at = place(n as u64);
            let buffer = bed.buffer(at, &data[n]);
            bed.channel.submit(buffer, at).unwrap()
        };
        let first = buffer(bed, 0);
        let part = bed.channel.submit_at(posted, 0, LENGTH, place(1)).unwrap();
        let entry = ScatterGatherEntry { memory: posted, offset: LENGTH, length: LENGTH, card: place(2) };
        let list = bed.channel.submit_list(&[entry]).unwrap();
        let last = buffer(bed, 3);
        bed.channel.poll().unwrap();
        bed.step(steps);
        let behind = bed.channel.submit_at(queued, 0, LENGTH, place(4)).unwrap();
        let very_last = buffer(bed, 5);
        let tickets = [first, part, list, last, behind, very_last];
        Self { idle, done, posted, queued, tickets, data }
    }

    /// Checks that everything has ended: successful transfers have arrived, all others have failed for `cause`. Returns the number of failed
    /// transfers, and how many of those did not return their buffer.
    fn check(&self, bed: &mut TestBed, cause: &FaultCause) -> (usize, usize) {
        assert_eq!(bed.channel.in_flight(), 0);
        let mut completions = bed.completions().into_iter().peekable();
        let (mut failed, mut kept) = (0, 0);
        for (n, ticket) in self.tickets.into_iter().enumerate() {
            let buffered = BUFFERS.contains(&n);
            let done = completions.next_if(|done| done.ticket == ticket);
            assert!(bed.channel.has_ended(ticket));
            match done.map(|done| (done.outcome, done.buffer)) {
                Some((Err(fault), buffer)) => {
                    assert_eq!(fault.kind.cause, *cause);
                    failed += 1;
                    kept += usize::from(buffered && buffer.is_none());
                    assert!(buffered || buffer.is_none());
                }
                Some((Ok(length), buffer)) => {
                    assert_eq!((length, failed), (LENGTH as u64, 0), "in order");
                    assert!(bed.moved(&buffer.unwrap(), place(n as u64), &self.data[n]), "{:?}", bed.setup);
                }
                None => {
                    assert!(!buffered && failed == 0, "{:?}: {n}", bed.setup);
                    let offset = if n == 2 { LENGTH } else { 0 };
                    let memory = if n == 4 { self.queued } else { self.posted };
                    if bed.channel.memory(memory).is_some() {
                        let arrived = bed.arrived(memory, offset, place(n as u64), LENGTH);
                        assert!(arrived == self.data[n], "{:?}", bed.setup);
                    }
                }
            }
        }
        assert!(completions.next().is_none());
        (failed, kept)
    }

    fn all(&self) -> [MemoryHandle; 4] {
        [self.idle, self.done, self.posted, self.queued]
    }

    /// Deregisters all memory.
    fn deregister_memory(&self, bed: &mut TestBed) {
        for memory in self.all() {
            drop(bed.channel.deregister_memory(memory).unwrap());
        }
    }
}

fn short(setup: TestSetup) -> fpga_driver::ChannelOptions {
    setup.options().max_descriptor_length(4096)
}

#[test]
fn abort_before_start_and_after_end_is_harmless() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        assert_eq!(bed.channel.abort(), Ok(0));
        let memory = bed.register_memory(4096);
        bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        assert_eq!(bed.channel.abort(), Ok(1), "queued only");
        assert_eq!(bed.completions().len(), 1);
        bed.assert_works(1);
        bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        bed.channel.poll().unwrap();
        bed.network.step_until_idle();
        assert_eq!(bed.channel.abort(), Ok(1), "complete, but not polled yet");
        assert_eq!(bed.completions().len(), 0, "the transfer had succeeded");
        // After a cancel: some of its transfers are back in the queue.
        let tickets = [0, 1, 2].map(|_| bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap());
        bed.channel.poll().unwrap();
        assert_eq!(bed.channel.cancel(tickets[1]), Ok(true));
        assert_eq!(bed.channel.abort(), Ok(3));
        assert_eq!(bed.completions().len(), 3);
        bed.assert_works(2);
    }
}

/// Asserts that all of the card works after it is opened again.
fn assert_opens(network: &SimNetwork, setup: TestSetup) {
    let card = open(network);
    assert_pool(&card, 0, 0);
    let mut bed = TestBed::on(network.clone(), card, setup, setup.options());
    bed.assert_works(9);
    drop(bed);
    assert_closed(network, 0);
}

fn drop_stops_card_writes(stride: usize) {
    for setup in SETUPS {
        for steps in (0..45).step_by(stride) {
            let mut bed = TestBed::with(setup, short(setup));
            Work::begin(&mut bed, steps);
            let TestBed { channel, card, network, .. } = bed;
            drop(channel);
            assert!(channels_idle(&network, 0), "{setup:?} after {steps} steps");
            assert_pool(&card, 0, 0);
            // Memory that the engine could reach has another owner now.
            let mut witness = card.buffer(1 << 20).unwrap();
            witness.fill(0x5A);
            let before = network.with_card(0, |card| card.counters().descriptors);
            network.step_until_idle();
            assert!(witness.to_vec().iter().all(|byte| *byte == 0x5A));
            assert_eq!(network.with_card(0, |card| card.counters().descriptors), before);
        }
    }
}

#[test]
fn drop_channel_stops_card_writes() {
    drop_stops_card_writes(4);
}

#[test]
#[ignore = "long: 2 s: at every moment"]
fn drop_channel_at_every_moment_stops_card_writes() {
    drop_stops_card_writes(1);
}

#[test]
fn drop_by_panicking_thread_releases_channel() {
    for setup in SETUPS {
        for steps in [0, 5, 30] {
            let mut bed = TestBed::with(setup, short(setup));
            let TestBed { card, network, .. } = {
                Work::begin(&mut bed, steps);
                bed
            };
            // The thread uses another channel of the same card.
            let mut channel = setup.take(&card, 1, short(setup)).unwrap();
            let thread = std::thread::spawn({
                let card = card.clone();
                move || {
                    let memory = channel.register_memory(card.registered_memory(LENGTH).unwrap()).unwrap();
                    channel.submit_at(memory, 0, LENGTH, CardAddr::ZERO).unwrap();
                    channel.submit(card.buffer(LENGTH).unwrap(), CardAddr::ZERO).unwrap();
                    channel.poll().unwrap();
                    // Panics without printing a message.
                    std::panic::resume_unwind(Box::new("a panic of the thread"));
                }
            });
            assert!(thread.join().is_err());
            assert!(channels_idle(&network, 0));
            assert_pool(&card, 0, 0);
            let mut bed = TestBed::on(network, card, setup, setup.options());
            bed.assert_works(3);
            drop(bed.channel);
            bed.channel = setup.take(&bed.card, 1, setup.options()).unwrap();
            bed.assert_works(4);
            drop((bed.channel, bed.card));
            assert_closed(&bed.network, 0);
        }
    }
}

/// A call that detects, or may detect, the state of the card.
pub(crate) type PollCall = fn(&mut TestBed, &Work) -> Result<(), Error<ChannelError>>;

pub(crate) const POLL_CALLS: [(&str, PollCall); 5] = [
    ("abort", |bed, _| bed.channel.abort().map(drop)),
    ("cancel", |bed, work| bed.channel.cancel(work.tickets[3]).map(drop)),
    ("wait", |bed, work| bed.channel.wait(work.tickets[5], WaitOptions::default()).map(drop)),
    ("wait_ended", |bed, work| bed.channel.wait_ended(work.tickets[4], WaitOptions::default())),
    ("poll", |bed, _| {
        loop {
            bed.channel.poll()?;
            bed.channel.relax();
        }
    }),
];

/// Resets the card after `steps` units of work, and lets `poll_call` detect it.
pub(crate) fn reset(setup: TestSetup, (name, poll_call): (&str, PollCall), steps: usize) {
    let stale = |error: &ChannelError| matches!(error.lower(), Some(MmioError::Stale { .. }));
    let mut bed = TestBed::with(setup, short(setup));
    let work = Work::begin(&mut bed, steps);
    bed.network.backend(0).reset(ResetLevel::Hot).unwrap();
    let error = poll_call(&mut bed, &work).unwrap_err();
    assert!(stale(&error.kind), "{setup:?} {name}: {error}");
    let (failed, kept) = work.check(&mut bed, &FaultCause::Reset);
    assert!(failed >= 2 && kept == 0, "{setup:?} {name}: {failed} failed, {kept} kept");
    // The error is returned by the call that detects it, and by every later call.
    assert!(stale(&bed.channel.poll().unwrap_err().kind));
    assert!(stale(&bed.channel.abort().unwrap_err().kind));
    assert!(stale(&bed.channel.cancel(work.tickets[0]).unwrap_err().kind));
    let refused = bed.channel.submit_at(work.idle, 0, 64, CardAddr::ZERO).unwrap_err();
    assert!(matches!(&refused, Error { kind: SubmitError::Channel(error), .. } if stale(error)), "{refused}");
    let refused = bed.channel.submit(bed.card.buffer(64).unwrap(), CardAddr::ZERO).unwrap_err();
    assert!(matches!(&refused.error.kind, SubmitError::Channel(error) if stale(error)), "{refused}");
    drop(refused);
    let refused = bed.channel.register_memory(bed.card.registered_memory(64).unwrap()).unwrap_err();
    assert!(matches!(&refused.error.kind, SubmitError::Channel(error) if stale(error)), "{refused}");
    drop(refused);
    work.deregister_memory(&mut bed);
    assert_pool(&bed.card, AREA, 0);
    drop((bed.channel, bed.card));
    assert_closed(&bed.network, 0);
    assert_opens(&bed.network, setup);
}

#[test]
fn reset_returns_all_buffers() {
    for (setup, poll_call) in
        SETUPS.into_iter().flat_map(|setup| POLL_CALLS.map(|poll_call| (setup, poll_call)))
    {
        for steps in [0, 1, 2, 9, 20, 30, 40, 300] {
            reset(setup, poll_call, steps);
        }
    }
}

/// With nothing posted the doorbell is the first access that detects the reset.
#[test]
fn reset_before_first_doorbell_is_detected() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(4096);
        let ticket = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        let buffered = bed.channel.submit(bed.card.buffer(64).unwrap(), CardAddr::ZERO).unwrap();
        bed.network.backend(0).reset(ResetLevel::Hot).unwrap();
        let error = bed.channel.wait(buffered, WaitOptions::default()).unwrap_err();
        assert!(matches!(error.kind.lower(), Some(MmioError::Stale { .. })), "{setup:?}: {error}");
        assert!(
            bed.channel.has_ended(ticket),
            "{setup:?}: the error is reported once, and all transfers have ended"
        );
        let done = bed.channel.wait(buffered, WaitOptions::default()).unwrap();
        assert_eq!(done.outcome.unwrap_err().kind.cause, FaultCause::Reset);
        drop(done.buffer.unwrap());
        assert!(bed.channel.deregister_memory(memory).is_ok());
        assert_pool(&bed.card, AREA, 0);
    }
}

/// Removes the card after `steps` units of work, and lets `poll_call` detect it.
pub(crate) fn left(
    setup: TestSetup,
    (name, poll_call): (&str, PollCall),
    failure: CardFailure,
    steps: usize,
) {
    let mut bed = TestBed::with(setup, short(setup));
    let work = Work::begin(&mut bed, steps);
    bed.network.fail(0, failure);
    let error = poll_call(&mut bed, &work).unwrap_err();
    let Error { kind: ChannelError::Gone { quarantined, .. }, .. } = error else {
        panic!("{setup:?} {name}: {error}")
    };
    let (_, kept) = work.check(&mut bed, &FaultCause::Gone);
    let posts = !matches!(name, "abort" | "cancel");
    assert_kept(&mut bed, &work, posts, kept, quarantined, QuarantineReason::DeviceGone);
    drop((bed.channel, bed.card));
    bed.network.fail(0, CardFailure::None);
    assert_opens(&bed.network, setup);
}

#[test]
fn removed_card_quarantines_reachable_memory() {
    for (setup, poll_call) in
        SETUPS.into_iter().flat_map(|setup| POLL_CALLS.map(|poll_call| (setup, poll_call)))
    {
        for steps in [0, 9, 300] {
            for failure in [CardFailure::Gone, CardFailure::AllOnes] {
                left(setup, poll_call, failure, steps);
            }
        }
    }
}

#[test]
fn stuck_engine_quarantines_reachable_memory() {
    for (setup, (name, poll_call)) in
        SETUPS.into_iter().flat_map(|setup| POLL_CALLS[..2].iter().map(move |poll_call| (setup, *poll_call)))
    {
        for steps in [0, 9, 300] {
            let network = fast_network(with_channels(2, 2));
            let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
            let card = Card::from_backend(backend.clone()).unwrap();
            let mut bed = TestBed::on(network, card, setup, short(setup));
            let work = Work::begin(&mut bed, steps);
            let status = ChannelBlock::STATUS.address(channel_base(setup.direction, 0)).get();
            backend.replace(vec![ReplacedRegister { bar: DMA_BAR, at: status, value: 1 }]);
            let error = poll_call(&mut bed, &work).unwrap_err();
            let Error { kind: ChannelError::Wedged { quarantined, waited, .. }, .. } = error else {
                panic!("{setup:?} {name}: {error}")
            };
            assert_eq!(waited.as_millis(), 2000, "{setup:?} {name}");
            let refused = bed.channel.submit_at(work.idle, 0, 64, CardAddr::ZERO);
            assert!(
                matches!(refused, Err(Error { kind: SubmitError::Channel(ChannelError::Wedged { .. }), .. })),
                "{setup:?} {name}: {refused:?}"
            );
            let (_, kept) = work.check(&mut bed, &FaultCause::Wedged);
            assert_kept(
                &mut bed,
                &work,
                !matches!(name, "abort" | "cancel"),
                kept,
                quarantined,
                QuarantineReason::IdleNotConfirmed,
            );
            // The neighbouring channel is not affected.
            let TestBed { channel, card, network, .. } = bed;
            let other = setup.take(&card, 1, setup.options()).unwrap();
            let mut other = TestBed { setup, channel: other, card, network };
            let ticket = {
                let memory = other.register_memory(4096);
                other.channel.submit_at(memory, 0, 4096, CardAddr::ZERO).unwrap()
            };
            other.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            drop(channel);
        }
    }
}

/// Asserts that `kept` buffers, the ring, and the memory of posted transfers are in quarantine, and nothing else.
fn assert_kept(
    bed: &mut TestBed,
    work: &Work,
    posts: bool,
    kept: usize,
    quarantined: usize,
    reason: QuarantineReason,
) {
    let setup = bed.setup;
    let posted_kept = bed.channel.memory(work.posted).is_none();
    // A call that polls may have posted the rest before.
    let queued_kept = posts && bed.channel.memory(work.queued).is_none();
    assert_eq!(quarantined, kept + usize::from(posted_kept) + usize::from(queued_kept), "{setup:?}");
    for (memory, kept) in
        [(work.idle, false), (work.done, false), (work.posted, posted_kept), (work.queued, queued_kept)]
    {
        match bed.channel.deregister_memory(memory).map(drop) {
            Ok(()) => assert!(!kept),
            Err(Error { kind: ChannelError::NotRegistered, .. }) => {
                assert!(kept, "{setup:?}: the memory was not posted to the card")
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_pool(&bed.card, 0, quarantined + 1);
    assert!(bed.card.memory().quarantined().iter().all(|record| record.reason == reason));
}

/// Memory that is not in flight when the channel is dropped goes back to the pool, in every state of the engine.
#[test]
fn wedged_channel_dropped_quarantines_posted_memory_only() {
    for setup in SETUPS {
        let network = fast_network(with_channels(2, 2));
        let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
        let card = Card::from_backend(backend.clone()).unwrap();
        let mut bed = TestBed::on(network, card, setup, short(setup));
        Work::begin(&mut bed, 2);
        let status = ChannelBlock::STATUS.address(channel_base(setup.direction, 0)).get();
        backend.replace(vec![ReplacedRegister { bar: DMA_BAR, at: status, value: 1 }]);
        let TestBed { channel, card, network: _network, .. } = bed;
        let channel: Channel = channel;
        drop(channel);
        // Two buffers, the memory of the part and the list, the ring.
        assert_pool(&card, 0, 4);
    }
}

/// Taking a channel whose engine still runs for its last owner is refused. The engine's state is not changed: it must not be given
/// memory that goes back to the pool with the refusal.
#[test]
fn take_busy_channel_is_refused_and_untouched() {
    for setup in SETUPS {
        let network = network(with_channels(2, 2));
        let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
        let card = Card::from_backend(backend.clone()).unwrap();
        let mut channel = setup.take(&card, 0, short(setup)).unwrap();
        channel.submit(card.buffer(4 * LENGTH).unwrap(), CardAddr::ZERO).unwrap();
        channel.poll().unwrap();
        // Without register writes the engine cannot be stopped.
        backend.refuse_writes(true);
        let error = channel.abort().unwrap_err();
        assert!(matches!(error.kind.lower(), Some(MmioError::Refused { .. })), "{setup:?}: {error}");
        assert_eq!(channel.in_flight(), 1, "{setup:?}: neither lost nor returned");
        drop(channel);
        backend.refuse_writes(false);
        for _ in 0..3 {
            let refused = setup.take(&card, 0, short(setup));
            assert!(
                matches!(refused, Err(Error { kind: ResourceError::Busy { .. }, .. })),
                "{setup:?}: {refused:?}"
            );
        }
        assert_pool(&card, 0, 2);
        let mut witnesses: Vec<_> = (0..64).map(|_| card.buffer(16 << 10).unwrap()).collect();
        for witness in &mut witnesses {
            witness.fill(0x5A);
        }
        network.step_until_idle();
        for witness in &witnesses {
            assert!(
                witness.to_vec().iter().all(|byte| *byte == 0x5A),
                "{setup:?}: the card wrote back into released memory"
            );
        }
        drop(witnesses);
        if matches!(setup.mode, RunMode::Batch) {
            // The run has ended by itself.
            let channel = setup.take(&card, 0, setup.options()).unwrap();
            let mut bed = TestBed { setup, channel, card, network };
            bed.assert_works(5);
        }
    }
}

#[test]
fn take_channel_of_removed_card_is_refused() {
    for setup in SETUPS {
        for failure in [CardFailure::Gone, CardFailure::AllOnes] {
            let network = network(with_channels(2, 2));
            let card = open(&network);
            network.fail(0, failure);
            let refused = setup.take(&card, 0, setup.options());
            assert!(
                matches!(&refused, Err(error) if matches!(error.kind.lower(), Some(MmioError::Gone { .. }))),
                "{setup:?} {failure:?}: {refused:?}"
            );
            network.fail(0, CardFailure::None);
            let channel = setup.take(&card, 0, setup.options()).unwrap();
            let mut bed = TestBed { setup, channel, card, network };
            bed.assert_works(6);
        }
    }
}

#[test]
fn channels_end_independently() {
    let network = network(with_channels(4, 4));
    let card = open(&network);
    let mut beds: Vec<_> = (0..4)
        .flat_map(|number| {
            let (card, network) = (&card, &network);
            [0, 1].map(move |direction| {
                let setup = SETUPS[usize::from(number % 2 == 1) * 2 + direction];
                let channel = setup.take(card, number, short(setup)).unwrap();
                TestBed { setup, channel, card: card.clone(), network: network.clone() }
            })
        })
        .collect();
    let works: Vec<_> = beds.iter_mut().map(|bed| Work::begin(bed, 3)).collect();
    // Every other channel is aborted, the rest continue.
    for (n, (bed, work)) in beds.iter_mut().zip(&works).enumerate() {
        if n % 2 == 0 {
            bed.channel.abort().unwrap();
            work.check(bed, &FaultCause::Aborted);
        }
    }
    for (n, (bed, work)) in beds.iter_mut().zip(&works).enumerate() {
        if n % 2 == 1 {
            bed.channel.wait_ended(work.tickets[5], WaitOptions::default()).unwrap();
            assert_eq!(bed.completions().len(), BUFFERS.len(), "{:?}", bed.setup);
        }
        work.deregister_memory(bed);
    }
    drop(beds);
    assert_pool(&card, 0, 0);
}
