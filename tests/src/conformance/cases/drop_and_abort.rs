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
fn halves(lane: &ChannelPair, memory: MemoryHandle, n: usize) -> [ScatterGatherEntry; 2] {
    let (offset, first) = (n * LENGTH, LENGTH / 2);
    let at = |offset: usize| lane.at(n as u64 * PLACE + offset as u64);
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
        lane: &mut ChannelPair,
        count: usize,
        step: usize,
    ) -> Self {
        let area = opened.card.registered_memory(count * LENGTH).expect("DMA memory");
        let memory = lane.channel.register_memory(area).expect("registration succeeds");
        let ready: Vec<_> = (0..count)
            .map(|n| {
                let data = bytes((step << 8 | n) as u64, LENGTH);
                let (kind, at) = (KINDS[n % KINDS.len()], lane.at(n as u64 * PLACE));
                let buffer = match kind {
                    Kind::Buffer => Some(lane.buffer(at, &data)),
                    Kind::Part => {
                        lane.put(memory, n * LENGTH, at, &data);
                        None
                    }
                    Kind::List => {
                        for entry in halves(lane, memory, n) {
                            let from = entry.offset - n * LENGTH;
                            lane.put(memory, entry.offset, entry.card, &data[from..from + entry.length]);
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
                lane.channel.poll().expect("started");
                if let Some((network, _)) = context.simulated() {
                    for _ in 0..step {
                        network.step();
                    }
                }
            }
            let ticket = match (kind, buffer) {
                (_, Some(buffer)) => lane.channel.submit(buffer, at).expect("accepted"),
                (Kind::List, None) => {
                    let entries = halves(lane, memory, n);
                    lane.channel.submit_list(&entries).expect("accepted")
                }
                (_, None) => lane.channel.submit_at(memory, n * LENGTH, LENGTH, at).expect("accepted"),
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
    fn aborted(self, lane: &mut ChannelPair) -> Vec<usize> {
        let way = lane.way;
        assert_eq!(lane.channel.in_flight(), 0);
        let completions: Vec<_> = core::iter::from_fn(|| lane.channel.next_completion()).collect();
        let mut completions = completions.into_iter().peekable();
        let mut aborted = Vec::new();
        for (n, (ticket, kind, data)) in self.transfers.into_iter().enumerate() {
            assert!(lane.channel.has_ended(ticket));
            let done = completions.next_if(|done| done.ticket == ticket);
            let arrived = match done.map(|done| (done.outcome, done.buffer)) {
                Some((Err(fault), buffer)) => {
                    assert_eq!(fault.kind.cause, FaultCause::Aborted, "{way:?}: transfer {n}");
                    assert_eq!(buffer.is_some(), kind == Kind::Buffer, "{way:?}: transfer {n}");
                    aborted.push(n);
                    continue;
                }
                Some((Ok(length), buffer)) => {
                    assert_eq!(
                        (length, kind),
                        (LENGTH as u64, Kind::Buffer),
                        "only successful buffers have completions"
                    );
                    let at = lane.at(n as u64 * PLACE);
                    lane.moved(&buffer.expect("the buffer is returned"), at, &data)
                }
                None if kind == Kind::List => halves(lane, self.memory, n).into_iter().all(|entry| {
                    let from = entry.offset - n * LENGTH;
                    lane.arrived(self.memory, entry.offset, entry.card, &data[from..from + entry.length])
                }),
                None => {
                    assert_eq!(kind, Kind::Part, "{way:?}: the buffer of transfer {n} was not returned");
                    let at = lane.at(n as u64 * PLACE);
                    lane.arrived(self.memory, n * LENGTH, at, &data)
                }
            };
            assert!(arrived, "{way:?}: the data of transfer {n} differs from the data sent");
        }
        assert!(completions.next().is_none(), "{way:?}: a completion without a transfer");
        drop(lane.channel.deregister_memory(self.memory).expect("nothing is in flight"));
        aborted
    }
}

/// Time for an engine to stop.
const STOP: core::time::Duration = core::time::Duration::from_secs(2);

fn lane(opened: &Opened, way: TestSetup) -> Result<ChannelPair, Skip> {
    opened.needs(6 * PLACE)?;
    opened.lane_with(way, way.options().max_descriptor_length(4096))
}

/// One transfer is cancelled at any stage; the others arrive. Half of the calls do not wait for the engine.
fn cancel(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    for way in opened.ways() {
        let mut lane = lane(&opened, way)?;
        let cases = [(0, 0), (1, 10), (3, 40), (4, 0), (2, 90), (0, 10), (2, 40), (4, 60)];
        // In virtual time, the stop of the last posted transfer is requested at every moment, also while its last descriptor is executed.
        let steps = if context.real_time() { 0..0 } else { 80..140 };
        let sweep = steps.flat_map(|step| [(4, 0), (3, step)]);
        for (number, (victim, step)) in cases.into_iter().chain(sweep).enumerate() {
            let flight = Flight::begin(context, &opened, &mut lane, 5, step);
            let ticket = flight.ticket(victim);
            let cancelled = if number % 2 == 0 {
                lane.channel.cancel(ticket).expect("the engine stops")
            } else {
                loop {
                    match lane.channel.try_cancel(ticket, STOP).expect("the engine stops") {
                        Some(cancelled) => break cancelled,
                        // Other callers may poll meanwhile.
                        None => drop(lane.channel.poll().expect("the channel works")),
                    }
                }
            };
            lane.channel.wait_ended(flight.ticket(4), long_wait()).expect("the transfers complete");
            let expected: &[usize] = if cancelled { &[victim] } else { &[] };
            assert_eq!(flight.aborted(&mut lane), expected, "{way:?}");
        }
        lane.assert_works(1);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn abort(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    for way in opened.ways() {
        let mut lane = lane(&opened, way)?;
        // In virtual time, at every moment of the transfers.
        let moments =
            if context.real_time() { vec![0, 1, 7, 30, 60, 200] } else { (0..50).chain([60, 200]).collect() };
        for step in moments {
            let flight = Flight::begin(context, &opened, &mut lane, 5, step);
            let mut aborted = if step % 2 == 0 { lane.channel.abort().map(Some) } else { Ok(None) };
            while aborted == Ok(None) {
                aborted = lane.channel.try_abort(STOP);
            }
            assert_eq!(aborted, Ok(Some(5)), "{way:?} after {step} steps");
            assert_eq!(lane.channel.abort(), Ok(0), "{way:?}: nothing remains to abort");
            let aborted = flight.aborted(&mut lane);
            assert!(aborted.ends_with(&[4]), "{way:?}: a transfer that was only queued is aborted");
            assert_eq!(aborted, Vec::from_iter(5 - aborted.len()..5), "{way:?}: in order");
            lane.assert_works(step as u64);
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
    let ways = probe.ways();
    probe.close();
    for (n, order) in orders(4).into_iter().step_by(each).enumerate() {
        // Backends in virtual time run every order with every setup, the others with one setup per order.
        let ways = if context.real_time() { &ways[n % ways.len()..][..1] } else { &ways[..] };
        for (k, way) in ways.iter().enumerate() {
            drop_all(context, *way, &order, [0, 3, 10, 25, 40, 300][(n + k) % 6])?;
        }
    }
    let opened = context.open();
    opened.lane(ways[0])?.assert_works(1);
    opened.close();
    Ok(())
}

/// Drops channel, card, buffer and registered memory in `order` after `step` units of work, on a healthy card.
fn drop_all(context: &CaseContext<'_>, way: TestSetup, order: &[usize], step: usize) -> Verdict {
    let opened = context.open();
    let mut lane = lane(&opened, way)?;
    lane.assert_works(step as u64);
    Flight::begin(context, &opened, &mut lane, 4, step);
    let Opened { card, injector, messages, .. } = opened;
    let pool = card.memory().clone();
    let (buffer, area) = (card.buffer(5000).expect("memory"), card.registered_memory(5000).expect("memory"));
    let mut things: [Option<Box<dyn Any>>; 4] = [
        Some(Box::new(lane.into_channel())),
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
    assert_eq!((stats.in_use, stats.quarantined), (0, 0), "{way:?} {order:?}: {stats:?}");
    drop(pool);
    assert!(injector.mappings().is_empty(), "{way:?} {order:?}: all memory is unmapped");
    // A server makes its card idle some time after the client has disconnected, so that this cannot be checked there.
    if let (Some((network, number)), None) = (context.simulated(), messages) {
        assert_closed(&network, number);
    }
    Ok(())
}

fn uncollected(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    for way in opened.ways() {
        let mut lane = lane(&opened, way)?;
        let flight = Flight::begin(context, &opened, &mut lane, 5, 0);
        lane.channel.wait_ended(flight.ticket(4), long_wait()).expect("the transfers complete");
        // The rings of two channels, registered memory, two buffers.
        opened.assert_pool(5, 0);
        drop(lane);
        opened.assert_pool(0, 0);
    }
    opened.close();
    Ok(())
}
