//! Transfers that end early: cancelled, aborted, or dropped in every order. Every buffer is accounted for, and the card works.

use std::any::Any;

use fpga_driver::{MemoryHandle, ScatterGatherEntry, Ticket, errors::FaultCause};

use super::{Case, CaseContext, Verdict, case};
use crate::bed::TestSetup;
use crate::cards::assert_closed;
use crate::conformance::Skip;
use crate::conformance::case_context::{ChannelPair, Opened, long_wait};
use crate::{bytes, orders};

pub(super) const CASES: &[Case] = &[
    case("ending.cancel", &[], cancel),
    case("ending.abort", &[], abort),
    case("ending.drop_in_every_order_releases_memory", &[], dropped),
    case("ending.completions_not_taken", &[], uncollected),
];

const LENGTH: usize = 100_001;
const PLACE: u64 = 1 << 20;

/// Kind of a transfer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A buffer, which is returned with the completion.
    Buffer,
    /// A part of registered memory.
    Part,
    /// The two halves of a part, at separate addresses in the card.
    List,
}

const KINDS: [Kind; 3] = [Kind::Buffer, Kind::Part, Kind::List];

/// Transfers in flight; transfer `n` is of kind `n % 3`.
struct Flight {
    /// Registered memory of the parts and lists.
    memory: MemoryHandle,
    transfers: Vec<(Ticket, Kind, Vec<u8>)>,
}

/// Halves of transfer `n`.
fn halves(pair: &ChannelPair, memory: MemoryHandle, n: usize) -> [ScatterGatherEntry; 2] {
    let (offset, first) = (n * LENGTH, LENGTH / 2);
    let at = |offset: usize| pair.at(n as u64 * PLACE + offset as u64);
    [
        ScatterGatherEntry { memory, offset, length: first, card: at(0) },
        ScatterGatherEntry { memory, offset: offset + first, length: LENGTH - first, card: at(first + 64) },
    ]
}

impl Flight {
    /// Starts `count` transfers, of which the last stays in the queue. `step`: units of work that a card in this process does then.
    fn begin(
        context: &CaseContext<'_>,
        opened: &Opened,
        pair: &mut ChannelPair,
        count: usize,
        step: usize,
    ) -> Self {
        let area = opened.card.registered_memory(count * LENGTH).expect("DMA memory");
        let memory = pair.channel.register_memory(area).expect("registration succeeds");
        let ready: Vec<_> = (0..count)
            .map(|n| {
                let data = bytes((step << 8 | n) as u64, LENGTH);
                let (kind, at) = (KINDS[n % KINDS.len()], pair.at(n as u64 * PLACE));
                let buffer = match kind {
                    Kind::Buffer => Some(pair.buffer(at, &data)),
                    Kind::Part => {
                        pair.put(memory, n * LENGTH, at, &data);
                        None
                    }
                    Kind::List => {
                        for entry in halves(pair, memory, n) {
                            let from = entry.offset - n * LENGTH;
                            pair.put(memory, entry.offset, entry.card, &data[from..from + entry.length]);
                        }
                        None
                    }
                };
                (buffer, kind, at, data)
            })
            .collect();
        let mut transfers = Vec::new();
        for (n, (buffer, kind, at, data)) in ready.into_iter().enumerate() {
            if n + 1 == count {
                pair.channel.poll().expect("started");
                if let Some((network, _)) = context.simulated() {
                    for _ in 0..step {
                        network.step();
                    }
                }
            }
            let ticket = match (kind, buffer) {
                (_, Some(buffer)) => pair.channel.submit(buffer, at).expect("accepted"),
                (Kind::List, None) => {
                    let entries = halves(pair, memory, n);
                    pair.channel.submit_list(&entries).expect("accepted")
                }
                (_, None) => pair.channel.submit_at(memory, n * LENGTH, LENGTH, at).expect("accepted"),
            };
            transfers.push((ticket, kind, data));
        }
        Self { memory, transfers }
    }

    fn ticket(&self, n: usize) -> Ticket {
        self.transfers[n].0
    }

    /// Checks that everything has ended: successful transfers have arrived, all others were aborted and returned their buffers. Returns the
    /// numbers of the aborted transfers.
    fn aborted(self, pair: &mut ChannelPair) -> Vec<usize> {
        let setup = pair.setup;
        assert_eq!(pair.channel.in_flight(), 0);
        let completions: Vec<_> = core::iter::from_fn(|| pair.channel.next_completion()).collect();
        let mut completions = completions.into_iter().peekable();
        let mut aborted = Vec::new();
        for (n, (ticket, kind, data)) in self.transfers.into_iter().enumerate() {
            assert!(pair.channel.has_ended(ticket));
            let done = completions.next_if(|done| done.ticket == ticket);
            let arrived = match done.map(|done| (done.outcome, done.buffer)) {
                Some((Err(fault), buffer)) => {
                    assert_eq!(fault.kind.cause, FaultCause::Aborted, "{setup:?}: transfer {n}");
                    assert_eq!(buffer.is_some(), kind == Kind::Buffer, "{setup:?}: transfer {n}");
                    aborted.push(n);
                    continue;
                }
                Some((Ok(length), buffer)) => {
                    assert_eq!(
                        (length, kind),
                        (LENGTH as u64, Kind::Buffer),
                        "only successful buffers have completions"
                    );
                    let at = pair.at(n as u64 * PLACE);
                    pair.moved(&buffer.expect("the buffer is returned"), at, &data)
                }
                None if kind == Kind::List => halves(pair, self.memory, n).into_iter().all(|entry| {
                    let from = entry.offset - n * LENGTH;
                    pair.arrived(self.memory, entry.offset, entry.card, &data[from..from + entry.length])
                }),
                None => {
                    assert_eq!(kind, Kind::Part, "{setup:?}: the buffer of transfer {n} was not returned");
                    let at = pair.at(n as u64 * PLACE);
                    pair.arrived(self.memory, n * LENGTH, at, &data)
                }
            };
            assert!(arrived, "{setup:?}: the data of transfer {n} differs from the data sent");
        }
        assert!(completions.next().is_none(), "{setup:?}: a completion without a transfer");
        drop(pair.channel.deregister_memory(self.memory).expect("nothing is in flight"));
        aborted
    }
}

/// Time for an engine to stop.
const STOP: core::time::Duration = core::time::Duration::from_secs(2);

fn pair(opened: &Opened, setup: TestSetup) -> Result<ChannelPair, Skip> {
    opened.needs(6 * PLACE)?;
    opened.pair_with(setup, setup.options().max_descriptor_length(4096))
}

/// One transfer is cancelled at any stage; the others arrive. Half of the calls do not wait for the engine.
fn cancel(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    for setup in opened.setups() {
        let mut pair = pair(&opened, setup)?;
        let cases = [(0, 0), (1, 10), (3, 40), (4, 0), (2, 90), (0, 10), (2, 40), (4, 60)];
        // In virtual time, the stop of the last posted transfer is requested at every moment, also while its last descriptor is executed.
        let steps = if context.real_time() { 0..0 } else { 80..140 };
        let sweep = steps.flat_map(|step| [(4, 0), (3, step)]);
        for (number, (victim, step)) in cases.into_iter().chain(sweep).enumerate() {
            let flight = Flight::begin(context, &opened, &mut pair, 5, step);
            let ticket = flight.ticket(victim);
            let cancelled = if number % 2 == 0 {
                pair.channel.cancel(ticket).expect("the engine stops")
            } else {
                loop {
                    match pair.channel.try_cancel(ticket, STOP).expect("the engine stops") {
                        Some(cancelled) => break cancelled,
                        // Other callers may poll meanwhile.
                        None => drop(pair.channel.poll().expect("the channel works")),
                    }
                }
            };
            pair.channel.wait_ended(flight.ticket(4), long_wait()).expect("the transfers complete");
            let expected: &[usize] = if cancelled { &[victim] } else { &[] };
            assert_eq!(flight.aborted(&mut pair), expected, "{setup:?}");
        }
        pair.assert_works(1);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn abort(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    for setup in opened.setups() {
        let mut pair = pair(&opened, setup)?;
        // In virtual time, at every moment of the transfers.
        let moments =
            if context.real_time() { vec![0, 1, 7, 30, 60, 200] } else { (0..50).chain([60, 200]).collect() };
        for step in moments {
            let flight = Flight::begin(context, &opened, &mut pair, 5, step);
            let mut aborted = if step % 2 == 0 { pair.channel.abort().map(Some) } else { Ok(None) };
            while aborted == Ok(None) {
                aborted = pair.channel.try_abort(STOP);
            }
            assert_eq!(aborted, Ok(Some(5)), "{setup:?} after {step} steps");
            assert_eq!(pair.channel.abort(), Ok(0), "{setup:?}: nothing remains to abort");
            let aborted = flight.aborted(&mut pair);
            assert!(aborted.ends_with(&[4]), "{setup:?}: a transfer that was only queued is aborted");
            assert_eq!(aborted, Vec::from_iter(5 - aborted.len()..5), "{setup:?}: in order");
            pair.assert_works(step as u64);
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Channel, card, buffer and registered memory are dropped in every order while transfers are in flight.
fn dropped(context: &mut CaseContext<'_>) -> Verdict {
    // A real kernel needs time to open and close. There, every third order is enough: each object goes first twice. Backends of this
    // process run all orders.
    let each = if context.simulated().is_some() { 1 } else { 3 };
    let probe = context.open();
    let setups = probe.setups();
    probe.close();
    for (n, order) in orders(4).into_iter().step_by(each).enumerate() {
        // Backends in virtual time run every order with every setup, the others with one setup per order.
        let setups = if context.real_time() { &setups[n % setups.len()..][..1] } else { &setups[..] };
        for (k, setup) in setups.iter().enumerate() {
            drop_all(context, *setup, &order, [0, 3, 10, 25, 40, 300][(n + k) % 6])?;
        }
    }
    let opened = context.open();
    opened.pair(setups[0])?.assert_works(1);
    opened.close();
    Ok(())
}

/// Drops channel, card, buffer and registered memory in `order` after `step` units of work, on a healthy card.
fn drop_all(context: &CaseContext<'_>, setup: TestSetup, order: &[usize], step: usize) -> Verdict {
    let opened = context.open();
    let mut pair = pair(&opened, setup)?;
    pair.assert_works(step as u64);
    Flight::begin(context, &opened, &mut pair, 4, step);
    let Opened { card, injector, messages, .. } = opened;
    let pool = card.memory().clone();
    let (buffer, area) = (card.buffer(5000).expect("memory"), card.registered_memory(5000).expect("memory"));
    let mut things: [Option<Box<dyn Any>>; 4] = [
        Some(Box::new(pair.into_channel())),
        Some(Box::new(card)),
        Some(Box::new(buffer)),
        Some(Box::new(area)),
    ];
    for index in order {
        things[*index] = None;
        // Between the drops the card does the work that it still may do.
        if let Some((network, _)) = context.simulated() {
            for _ in 0..3 {
                network.step();
            }
        }
    }
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.quarantined), (0, 0), "{setup:?} {order:?}: {stats:?}");
    drop(pool);
    assert!(injector.mappings().is_empty(), "{setup:?} {order:?}: all memory is unmapped");
    // A server makes its card idle some time after the client has disconnected, so that this cannot be checked there.
    if let (Some((network, number)), None) = (context.simulated(), messages) {
        assert_closed(&network, number);
    }
    Ok(())
}

fn uncollected(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    for setup in opened.setups() {
        let mut pair = pair(&opened, setup)?;
        let flight = Flight::begin(context, &opened, &mut pair, 5, 0);
        pair.channel.wait_ended(flight.ticket(4), long_wait()).expect("the transfers complete");
        // The rings of two channels, registered memory, two buffers.
        opened.assert_pool(5, 0);
        drop(pair);
        opened.assert_pool(0, 0);
    }
    opened.close();
    Ok(())
}
