//! Cancelling one transfer of any kind in any state: it ends as aborted in order, and all others arrive.

use std::collections::BTreeMap;

use fpga_driver::{
    Completion, DmaBuffer, Error, MemoryHandle, RunMode, ScatterGatherEntry, Ticket, errors::FaultCause,
};
use fpga_tests::bed::TestSetup;
use fpga_tests::cards::poke;

use super::*;

/// Bytes of one transfer: eight short descriptors.
const LENGTH: usize = 8 * 4096;
pub(crate) const TRANSFERS: usize = 5;

/// Kind of a transfer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Buffer,
    Part,
    /// Two halves that are not adjacent.
    List,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Buffer, Kind::Part, Kind::List];

/// A transfer and its expected data.
struct Transfer {
    ticket: Ticket,
    kind: Kind,
    /// Offset in the registered memory.
    offset: usize,
    at: CardAddr,
    data: Vec<u8>,
}

fn place(number: usize) -> CardAddr {
    CardAddr::new(0x10_0000 + ((number as u64) << 17))
}

/// Halves of the transfer at `offset`: on the card's side they are not adjacent.
fn halves(memory: MemoryHandle, offset: usize, length: usize, at: CardAddr) -> [ScatterGatherEntry; 2] {
    let first = length / 2;
    let second = at.checked_add(first as u64 + 64).unwrap();
    [
        ScatterGatherEntry { memory, offset, length: first, card: at },
        ScatterGatherEntry { memory, offset: offset + first, length: length - first, card: second },
    ]
}

fn submit(
    bed: &mut TestBed,
    memory: MemoryHandle,
    kind: Kind,
    number: usize,
    length: usize,
) -> Result<Transfer, Error<SubmitError>> {
    let (offset, at, data) = (number * LENGTH, place(number), bytes(number as u64, length));
    let ticket = match kind {
        Kind::Buffer => {
            let buffer = bed.buffer(at, &data);
            bed.channel.submit(buffer, at).map_err(|refused| refused.error)?
        }
        Kind::Part => {
            bed.put(memory, offset, at, &data);
            bed.channel.submit_at(memory, offset, length, at)?
        }
        Kind::List => {
            let entries = halves(memory, offset, length, at);
            for entry in &entries {
                let from = entry.offset - offset;
                bed.put(memory, entry.offset, entry.card, &data[from..from + entry.length]);
            }
            bed.channel.submit_list(&entries)?
        }
    };
    Ok(Transfer { ticket, kind, offset, at, data })
}

/// Asserts that the transfer's data has arrived.
fn assert_arrived(bed: &TestBed, memory: MemoryHandle, transfer: &Transfer, buffer: Option<&DmaBuffer>) {
    let Transfer { kind, offset, at, data, .. } = transfer;
    match kind {
        Kind::Buffer => assert!(bed.moved(buffer.unwrap(), *at, data), "{:?}", bed.setup),
        Kind::Part => assert!(bed.arrived(memory, *offset, *at, data.len()) == *data, "{:?}", bed.setup),
        Kind::List => {
            for entry in halves(memory, *offset, data.len(), *at) {
                let from = entry.offset - offset;
                let found = bed.arrived(memory, entry.offset, entry.card, entry.length);
                assert!(found == data[from..from + entry.length], "{:?}", bed.setup);
            }
        }
    }
}

/// Compares completions with expectations: `cancelled` ended as aborted, all others succeeded.
fn check(
    bed: &TestBed,
    memory: MemoryHandle,
    transfers: &[Transfer],
    cancelled: &[Ticket],
    done: Vec<Completion>,
) {
    assert!(done.is_sorted_by_key(|done| done.ticket), "in the order of submission");
    let mut done: BTreeMap<_, _> = done.into_iter().map(|done| (done.ticket, done)).collect();
    for transfer in transfers {
        let ended = done.remove(&transfer.ticket);
        let was_cancelled = cancelled.contains(&transfer.ticket);
        let Some(ended) = ended else {
            assert!(
                transfer.kind != Kind::Buffer && !was_cancelled,
                "{:?}: {:?}",
                bed.setup,
                transfer.ticket
            );
            assert_arrived(bed, memory, transfer, None);
            continue;
        };
        assert_eq!(ended.buffer.is_some(), transfer.kind == Kind::Buffer, "{:?}", bed.setup);
        if was_cancelled {
            assert_eq!(ended.outcome.unwrap_err().kind.cause, FaultCause::Aborted);
        } else {
            assert_eq!(
                ended.outcome,
                Ok(transfer.data.len() as u64),
                "{:?} {:?}",
                bed.setup,
                transfer.ticket
            );
            assert_arrived(bed, memory, transfer, ended.buffer.as_ref());
        }
    }
    assert!(done.is_empty(), "ended twice, or never submitted: {done:?}");
}

/// Submits five transfers, lets `prepare` bring the channel into a state, cancels one and checks the result.
pub(crate) fn cancelled_after(
    setup: TestSetup,
    kind: Kind,
    which: usize,
    prepare: &dyn Fn(&mut TestBed),
) -> bool {
    let options = setup.options().descriptors(128).transfers(16).max_descriptor_length(4096);
    let mut bed = TestBed::with(setup, options);
    let memory = bed.register_memory(TRANSFERS * LENGTH);
    let transfers: Vec<_> =
        (0..TRANSFERS).map(|n| submit(&mut bed, memory, kind, n, LENGTH).unwrap()).collect();
    prepare(&mut bed);
    let ticket = transfers[which].ticket;
    let withdrawn = bed.channel.cancel(ticket).unwrap();
    if withdrawn {
        // The answer to a second cancel is consistent.
        let again = bed.channel.cancel(ticket).unwrap();
        assert!(again || bed.channel.has_ended(ticket));
    }
    let done = bed.finish();
    let cancelled: Vec<_> = withdrawn.then_some(ticket).into_iter().collect();
    check(&bed, memory, &transfers, &cancelled, done);
    assert_eq!(bed.channel.ended(), TRANSFERS as u64);
    // Nothing uses the memory any more.
    drop(bed.channel.deregister_memory(memory).unwrap());
    bed.assert_works(1);
    assert_pool(&bed.card, AREA, 0);
    withdrawn
}

fn every_case(mut case: impl FnMut(TestSetup, Kind, usize)) {
    for setup in SETUPS {
        for kind in KINDS {
            for which in [0, TRANSFERS / 2, TRANSFERS - 1] {
                case(setup, kind, which);
            }
        }
    }
}

#[test]
fn cancel_queued_transfer_returns_buffer() {
    every_case(|setup, kind, which| {
        assert!(cancelled_after(setup, kind, which, &|_| ()));
    });
}

/// Cancels after every `middle` steps in the transfer in the middle, and after every `others` steps in the first and the last.
fn cancel_in_middle(middle: usize, others: usize) {
    every_case(|setup, kind, which| {
        let mut reported = [false; 2];
        let stride = if which == TRANSFERS / 2 { middle } else { others };
        for steps in (0..60).step_by(stride).chain([100]) {
            let withdrawn = cancelled_after(setup, kind, which, &|bed| {
                bed.channel.poll().unwrap();
                bed.step(steps);
            });
            reported[usize::from(withdrawn)] = true;
            assert!(
                !withdrawn || reported == [false, true],
                "{setup:?} {kind:?}: more steps never make a cancel earlier"
            );
        }
        assert_eq!(
            reported,
            [true, true],
            "{setup:?} {kind:?} {which}: cancels before and after the start were both seen"
        );
    });
}

#[test]
fn cancel_transfer_in_middle_keeps_others() {
    cancel_in_middle(4, 12);
}

#[test]
#[ignore = "long: 2 s: every moment of the transfer in the middle"]
fn cancel_transfer_at_every_moment_keeps_others() {
    cancel_in_middle(1, 5);
}

/// A transfer of one long descriptor: the engine completes what it has started.
#[test]
fn cancel_single_descriptor_in_progress_ends_it() {
    for setup in SETUPS {
        // Every moment around the start, and some later ones.
        for steps in (0..10).chain([15, 29]) {
            let mut bed = TestBed::new(setup);
            let memory = bed.register_memory(2 << 20);
            let data = bytes(1, 1 << 20);
            bed.put(memory, 0, CardAddr::ZERO, &data);
            let long = bed.channel.submit_at(memory, 0, 1 << 20, CardAddr::ZERO).unwrap();
            let behind = bed.channel.submit_at(memory, 1 << 20, 64, CardAddr::new(0x100_0000)).unwrap();
            bed.channel.poll().unwrap();
            bed.step(steps);
            let withdrawn = bed.channel.cancel(long).unwrap();
            assert!(!withdrawn || !bed.channel.has_ended(behind));
            let done = bed.finish();
            assert_eq!(done.len(), usize::from(withdrawn), "{setup:?} after {steps} steps");
            assert!(withdrawn || bed.arrived(memory, 0, CardAddr::ZERO, 1 << 20) == data);
            assert!(!(withdrawn && steps > 5), "{setup:?}: a transfer in progress is not withdrawn");
            bed.assert_works(2);
        }
    }
}

#[test]
fn cancel_unknown_or_old_ticket_is_refused() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(4096);
        let first = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        bed.channel.wait_ended(first, WaitOptions::default()).unwrap();
        let buffer = bed.card.buffer(64).unwrap();
        let second = bed.channel.submit(buffer, CardAddr::ZERO).unwrap();
        bed.channel.wait_ended(second, WaitOptions::default()).unwrap();
        for ticket in [first, second, first] {
            assert_eq!(bed.channel.cancel(ticket), Ok(false), "{setup:?}");
        }
        assert_eq!(bed.channel.next_completion().unwrap().outcome, Ok(64), "the transfer is unaffected");
        let mut other = setup.take(&bed.card, 1, setup.options()).unwrap();
        for _ in 0..2 {
            let unknown = other.cancel(first);
            assert!(matches!(unknown, Err(Error { kind: ChannelError::UnknownTicket, .. })), "{unknown:?}");
        }
        // Such a cancel does not disturb a transfer in flight either.
        let running = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        bed.channel.poll().unwrap();
        let before = bed.card.counters();
        assert_eq!(bed.channel.cancel(first), Ok(false));
        assert_eq!(bed.card.counters(), before, "no register was touched");
        bed.channel.wait_ended(running, WaitOptions::default()).unwrap();
    }
}

/// Cancels all transfers in random order.
pub(crate) fn cancel_all(setup: TestSetup, seed: u64) {
    let mut rng = TestRng::new(seed);
    let options = setup.options().descriptors(128).transfers(16).max_descriptor_length(4096);
    let mut bed = TestBed::with(setup, options);
    let memory = bed.register_memory(TRANSFERS * LENGTH);
    let transfers: Vec<_> =
        (0..TRANSFERS).map(|n| submit(&mut bed, memory, rng.one_of(&KINDS), n, LENGTH).unwrap()).collect();
    if rng.below(4) != 0 {
        bed.channel.poll().unwrap();
    }
    bed.step(rng.below(60));
    let mut order: Vec<_> = (0..TRANSFERS).collect();
    for n in (1..TRANSFERS).rev() {
        order.swap(n, rng.below(n + 1));
    }
    let cancelled: Vec<_> = order
        .into_iter()
        .map(|n| transfers[n].ticket)
        .filter(|ticket| bed.channel.cancel(*ticket).unwrap())
        .collect();
    assert_eq!(bed.channel.in_flight(), 0, "{setup:?}: no transfer remains in flight");
    let done = bed.completions();
    check(&bed, memory, &transfers, &cancelled, done);
    bed.assert_works(3);
    assert_pool(&bed.card, 1 + AREA, 0);
}

#[test]
fn cancel_all_in_any_order_returns_all() {
    for setup in SETUPS {
        for seed in 0..40 {
            cancel_all(setup, seed);
        }
    }
}

/// Submitting, polling, stepping and cancelling in any interleaving.
#[test]
fn cancel_random_interleaving_keeps_invariants() {
    for setup in SETUPS {
        for seed in 0..25 {
            interleaved(setup, seed);
        }
    }
}

pub(crate) fn interleaved(setup: TestSetup, seed: u64) {
    const COUNT: usize = 48;
    let mut rng = TestRng::new(seed);
    let longest = rng.one_of(&[4096, 8192, 1 << 20]);
    let options = setup.options().descriptors(64).transfers(16).max_descriptor_length(longest);
    let mut bed = TestBed::with(setup, options.report_each(rng.below(2) == 0));
    let memory = bed.register_memory(COUNT * LENGTH);
    let mut transfers = Vec::new();
    let mut cancelled = Vec::new();
    let mut done = Vec::new();
    while transfers.len() < COUNT || bed.channel.in_flight() > 0 {
        match rng.below(8) {
            0..3 if transfers.len() < COUNT => {
                let length = rng.one_of(&[2, 64, 4096, 5000, 20_000, LENGTH]);
                let kind = rng.one_of(&KINDS);
                match submit(&mut bed, memory, kind, transfers.len(), length) {
                    Ok(transfer) => transfers.push(transfer),
                    Err(error) => assert!(error.is_full(), "{error}"),
                }
            }
            3 if !transfers.is_empty() => {
                let behind = rng.below(transfers.len().min(12));
                let ticket = transfers[transfers.len() - 1 - behind].ticket;
                if bed.channel.cancel(ticket).unwrap() && !cancelled.contains(&ticket) {
                    cancelled.push(ticket);
                }
            }
            4 | 5 => {
                bed.channel.poll().unwrap();
            }
            6 => done.extend(bed.completions()),
            _ => bed.step(rng.below(20)),
        }
    }
    done.extend(bed.completions());
    assert!(!cancelled.is_empty());
    check(&bed, memory, &transfers, &cancelled, done);
    bed.assert_works(seed);
    assert_eq!(bed.channel.ended(), COUNT as u64 + 1);
}

/// A cancel after the engine has stopped on an error that is not reported yet.
#[test]
fn cancel_during_pending_error_reports_error() {
    for setup in SETUPS {
        for which in 0..TRANSFERS {
            let network = fpga_tests::cards::network(fpga_tests::cards::with_channels(2, 2));
            let card = fpga_tests::cards::open(&network);
            let mut bed = TestBed::on(network, card, setup, setup.options().max_descriptor_length(4096));
            let memory = bed.register_memory(TRANSFERS * LENGTH);
            let transfers: Vec<_> =
                (0..TRANSFERS).map(|n| submit(&mut bed, memory, Kind::Buffer, n, LENGTH).unwrap()).collect();
            // An error in the third transfer, at its third page.
            bed.network.with_card(0, |card| card.poison(place(2).checked_add(2 * 4096).unwrap(), 64));
            bed.channel.poll().unwrap();
            bed.network.step_until_idle();
            let withdrawn = bed.channel.cancel(transfers[which].ticket).unwrap();
            assert_eq!(withdrawn, which >= 2, "{setup:?}: the first two had arrived");
            assert_eq!(bed.channel.in_flight(), 0, "an error ends all transfers");
            let done = bed.completions();
            assert_eq!(done.len(), TRANSFERS);
            for (n, done) in done.into_iter().enumerate() {
                assert!(done.buffer.is_some());
                match (n, done.outcome) {
                    (0 | 1, outcome) => assert_eq!(outcome, Ok(LENGTH as u64)),
                    (2, outcome) => {
                        let fault = outcome.unwrap_err();
                        assert!(matches!(fault.kind.cause, FaultCause::Status(_)), "{fault}");
                        assert_eq!(fault.kind.position.unwrap().bytes_done, 2 * 4096);
                    }
                    (_, outcome) => assert_eq!(outcome.unwrap_err().kind.cause, FaultCause::EarlierFault),
                }
            }
            bed.network.with_card(0, |card| card.poison(CardAddr::ZERO, 0));
            bed.assert_works(4);
        }
    }
}

/// Posted work continues where it stopped: an executed descriptor is not executed again.
#[test]
fn cancel_moves_no_descriptor_twice() {
    for setup in SETUPS {
        // Few enough steps that the last transfer does not start.
        for steps in 0..30 {
            let mut bed = TestBed::with(setup, setup.options().max_descriptor_length(4096));
            let memory = bed.register_memory(TRANSFERS * LENGTH);
            let before = bed.card.counters().unwrap().descriptors;
            let tickets: Vec<_> = (0..TRANSFERS)
                .map(|n| submit(&mut bed, memory, Kind::Part, n, LENGTH).unwrap().ticket)
                .collect();
            bed.channel.poll().unwrap();
            bed.step(steps);
            let withdrawn = bed.channel.cancel(tickets[TRANSFERS - 1]).unwrap();
            assert!(withdrawn);
            bed.finish();
            let executed = bed.card.counters().unwrap().descriptors - before;
            assert_eq!(executed, (TRANSFERS as u64 - 1) * 8, "{setup:?} after {steps} steps");
        }
    }
}

/// A cancel costs a few register accesses, and only where the engine has to be stopped.
#[test]
fn cancel_queued_transfer_needs_no_register_access() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(4096);
        poke(&bed.network, 0, CardAddr::ZERO, &[1]);
        // The first transfer is posted; in batch mode the second one waits for its end.
        let first = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        bed.channel.poll().unwrap();
        let second = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        if matches!(setup.mode, RunMode::Batch) {
            bed.channel.poll().unwrap();
        }
        let before = bed.card.counters();
        assert_eq!(bed.channel.cancel(second), Ok(true));
        assert_eq!(bed.card.counters(), before, "{setup:?}");
        assert_eq!(bed.channel.cancel(first), Ok(true));
        let after = bed.card.counters().unwrap();
        let before = before.unwrap();
        assert!(after.mmio_reads - before.mmio_reads <= 4, "{setup:?}");
        assert!(after.mmio_writes - before.mmio_writes <= 2, "{setup:?}");
        assert_eq!(bed.completions().len(), 2);
    }
}
