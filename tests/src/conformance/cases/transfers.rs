//! Data: every direction and run mode, every wait mode, buffers, parts of registered memory, lists, the caller's memory.

use std::collections::VecDeque;

use fpga_driver::{
    ChannelOptions, Error, MemoryHandle, RunMode, ScatterGatherEntry, SubmitError, Ticket, WaitMode,
    WaitOptions, bulk,
};
use fpga_pci::{DmaAccess, SharedMemory};
use rand_core::Rng;
use rand_pcg::Pcg64;

use super::{Case, CaseContext, Verdict, case};
use crate::bed::{TestSetup, relax};
use crate::bytes;
use crate::conformance::Skip;
use crate::conformance::case_context::{ChannelPair, Opened, long_wait};

pub(super) const CASES: &[Case] = &[
    case("transfer.batch_mode.poll", &[], |context| sizes(context, RunMode::Batch, WaitMode::Poll)),
    case("transfer.batch_mode.interrupt", &[], |context| sizes(context, RunMode::Batch, WaitMode::Interrupt)),
    case("transfer.batch_mode.hybrid", &[], |context| sizes(context, RunMode::Batch, HYBRID)),
    case("transfer.credit_mode.poll", &[], |context| sizes(context, RunMode::Credit, WaitMode::Poll)),
    case("transfer.credit_mode.interrupt", &[], |context| {
        sizes(context, RunMode::Credit, WaitMode::Interrupt)
    }),
    case("transfer.credit_mode.hybrid", &[], |context| sizes(context, RunMode::Credit, HYBRID)),
    case("transfer.registered_memory", &[], registered),
    case("transfer.lists", &[], lists),
    case("transfer.caller_memory", &[], callers_memory),
    case("transfer.long", &[], long),
];

const HYBRID: WaitMode = WaitMode::Hybrid { spin: core::time::Duration::from_micros(30) };

/// Lengths and offsets around every boundary: bytes, beats, pages, descriptors.
const LENGTHS: [usize; 11] = [1, 3, 64, 65, 4095, 4096, 4097, 8192, 65_537, 300_000, (1 << 20) + 5];
const OFFSETS: [u64; 4] = [0, 1, 63, 4095];

/// Setups of one run mode; skips the case if there is none.
fn setups(opened: &Opened, mode: RunMode) -> impl Iterator<Item = TestSetup> {
    opened.setups().into_iter().filter(move |setup| setup.mode == mode)
}

fn sizes(context: &mut CaseContext<'_>, mode: RunMode, wait: WaitMode) -> Verdict {
    let opened = context.open();
    opened.needs(4096)?;
    if wait != WaitMode::Poll {
        opened.interrupts()?;
    }
    for setup in setups(&opened, mode) {
        let mut pair = opened.pair(setup)?;
        for (n, length) in LENGTHS.into_iter().enumerate() {
            for (k, offset) in OFFSETS.into_iter().enumerate() {
                if opened.scratch.contains(opened.at(offset), length as u64) {
                    pair.check((n * 16 + k) as u64, length, offset, long_wait().mode(wait));
                }
            }
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Repeatable random numbers.
struct TestRng(Pcg64);

impl TestRng {
    fn new(seed: u64) -> Self {
        Self(Pcg64::new(u128::from(seed), 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96))
    }

    /// Random number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end.max(1) as u64).unwrap_or(0)
    }
}

/// Page size: bytes that a ring of any shape moves at once.
const PAGE: usize = 4096;

/// Host memory, card memory, and two arrays with their expected contents: whole pages.
struct Model {
    memory: MemoryHandle,
    host: Vec<u8>,
    card: Vec<u8>,
}

impl Model {
    fn begin(pair: &mut ChannelPair, opened: &Opened, size: usize, seed: u64) -> Self {
        let area = opened.card.registered_memory(size).expect("DMA memory");
        let memory = pair.channel.register_memory(area).expect("registration succeeds");
        let (host, card) = (bytes(seed, size), bytes(seed + 1, size));
        for (n, page) in card.chunks(PAGE).enumerate() {
            pair.write(pair.at((n * PAGE) as u64), page);
        }
        pair.channel.memory(memory).expect("registered memory").write(0, &host).expect("inside");
        Self { memory, host, card }
    }

    fn copied(&mut self, to_card: bool, offset: usize, card: usize, length: usize) {
        if to_card {
            self.card[card..card + length].copy_from_slice(&self.host[offset..offset + length]);
        } else {
            self.host[offset..offset + length].copy_from_slice(&self.card[card..card + length]);
        }
    }

    /// Checks every byte, including those that no transfer may change.
    fn check(&self, pair: &mut ChannelPair) {
        let mut host = vec![0; self.host.len()];
        pair.channel.memory(self.memory).expect("registered memory").read(0, &mut host).expect("inside");
        assert!(host == self.host, "{:?}: host memory differs from the expected contents", pair.setup);
        let mut card = Vec::new();
        while card.len() < self.card.len() {
            card.extend(pair.read(pair.at(card.len() as u64), PAGE));
        }
        assert!(card == self.card, "{:?}: card memory differs from the expected contents", pair.setup);
    }
}

/// Buffers in flight on a channel whose other transfers are parts: ticket, length, and the data expected in host memory.
type Buffers = VecDeque<(Ticket, usize, Option<Vec<u8>>)>;

/// Submits as soon as the ring has space.
fn submit(
    pair: &mut ChannelPair,
    mut transfer: impl FnMut(&mut ChannelPair) -> Result<Ticket, Error<SubmitError>>,
) -> Ticket {
    loop {
        match transfer(pair) {
            Ok(ticket) => return ticket,
            Err(refused) => assert!(refused.is_full(), "{refused}"),
        }
        let before = pair.channel.ended();
        let ended = pair.channel.poll().expect("polling succeeds");
        assert_eq!(pair.channel.ended() - before, ended as u64, "{:?}", pair.setup);
        relax(&pair.channel);
    }
}

/// Collects the available completions: those of buffers, in order. Successful parts make none; they are only counted.
fn take(pair: &mut ChannelPair, buffers: &mut Buffers) {
    while let Some(done) = pair.channel.next_completion() {
        let (ticket, length, data) =
            buffers.pop_front().expect("a buffer has a completion; a successful part has none");
        assert_eq!((done.ticket, done.outcome), (ticket, Ok(length as u64)), "{:?}", pair.setup);
        let buffer = done.buffer.expect("the buffer is returned");
        assert!(
            data.is_none_or(|data| buffer.to_vec() == data),
            "{:?}: a buffer of {length} bytes",
            pair.setup
        );
    }
}

/// Parts of any offset and length with buffers between them, many in flight, in one direction. They are executed in order, in rings that
/// wrap around many times.
fn registered(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    opened.needs(64 << 10)?;
    for setup in opened.setups() {
        let options = setup.options();
        for options in [
            options,
            options.descriptors(1024).transfers(256).max_descriptor_length(1 << 20),
            options.descriptors(64).transfers(16).max_descriptor_length(1 << 20).long_blocks(true),
            options.descriptors(8).transfers(8).max_descriptor_length(4096),
            options.descriptors(2).transfers(1),
        ] {
            parts(&opened, setup, options)?;
            parts(&opened, setup, options.report_each(true))?;
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn parts(opened: &Opened, setup: TestSetup, options: ChannelOptions) -> Verdict {
    const SIZE: usize = 64 << 10;
    let mut pair = opened.pair_with(setup, options)?;
    let mut model = Model::begin(&mut pair, opened, SIZE, 1);
    let memory = model.memory;
    let mut rng = TestRng::new(7);
    let mut buffers = Buffers::new();
    let before = pair.channel.ended();
    for _ in 0..6 {
        let mut last = None;
        for n in 0..50 {
            let most = [64, 4096, 20_000][rng.below(3)];
            let length = 1 + rng.below(most);
            let (offset, card) = (rng.below(SIZE - length), rng.below(SIZE - length));
            let at = pair.at(card as u64);
            if n % 3 > 0 {
                last = Some(submit(&mut pair, |pair| pair.channel.submit_at(memory, offset, length, at)));
                model.copied(setup.to_card(), offset, card, length);
                continue;
            }
            let data = bytes(n, length);
            let mut buffer = Some(opened.card.buffer_from(&data).expect("DMA memory"));
            let ticket = submit(&mut pair, |pair| {
                let given = buffer.take().expect("the buffer is returned");
                pair.channel.submit(given, at).map_err(|refused| {
                    buffer = Some(refused.payload);
                    refused.error
                })
            });
            let place = &mut model.card[card..card + length];
            let brings = if setup.to_card() {
                place.copy_from_slice(&data);
                None
            } else {
                Some(place.to_vec())
            };
            buffers.push_back((ticket, length, brings));
            last = Some(ticket);
            take(&mut pair, &mut buffers);
        }
        pair.channel.wait_ended(last.expect("submitted"), long_wait()).expect("the transfers complete");
        take(&mut pair, &mut buffers);
        assert!(buffers.is_empty(), "{setup:?}: {} buffers were not returned", buffers.len());
    }
    assert_eq!(pair.channel.ended() - before, 300, "{setup:?}");
    model.check(&mut pair);
    drop(pair.channel.deregister_memory(memory).expect("nothing is in flight"));
    Ok(())
}

/// Lists of scattered entries, each list one transfer, one at a time and several in a small ring.
fn lists(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    opened.needs(LISTS as u64)?;
    for setup in opened.setups() {
        scattered(&opened, setup, setup.options(), 1)?;
        scattered(&opened, setup, setup.options().descriptors(64).transfers(8), 4)?;
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Bytes of host memory and of card memory that the lists use.
const LISTS: usize = 128 << 10;

/// Submits lists and waits for one in `wait` of them.
fn scattered(opened: &Opened, setup: TestSetup, options: ChannelOptions, wait: usize) -> Verdict {
    const PAGES: usize = LISTS / PAGE;
    let mut pair = opened.pair_with(setup, options)?;
    let mut model = Model::begin(&mut pair, opened, LISTS, 3);
    let memory = model.memory;
    let mut rng = TestRng::new(11);
    let mut last = None;
    for _ in 0..20 * wait {
        let mut entries = Vec::new();
        // One entry per page on either side, so that destinations do not overlap.
        let turn = rng.below(PAGES);
        for page in 0..PAGES {
            if rng.below(3) == 0 {
                continue;
            }
            let length = rng.below(PAGE / 2);
            let offset = page * PAGE + rng.below(PAGE / 2);
            let card = (page + turn) % PAGES * PAGE + rng.below(PAGE / 2);
            entries.push(ScatterGatherEntry { memory, offset, length, card: pair.at(card as u64) });
            model.copied(setup.to_card(), offset, card, length);
        }
        let ticket = submit(&mut pair, |pair| pair.channel.submit_list(&entries));
        if rng.below(wait) == 0 {
            pair.channel.wait_ended(ticket, long_wait()).expect("the list completes");
        }
        last = Some(ticket);
    }
    pair.channel.wait_ended(last.expect("submitted"), long_wait()).expect("the lists complete");
    assert!(pair.channel.next_completion().is_none(), "successful lists have no completion");
    model.check(&mut pair);
    Ok(())
}

/// A caller's memory is mapped once, used without a copy, and returned.
fn callers_memory(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let size = 64 << 10;
    opened.needs(size as u64)?;
    for setup in opened.setups() {
        let mut pair = opened.pair(setup)?;
        let memory = SharedMemory::memfd("callers-memory", size).expect("memory");
        let (host, card) = (bytes(5, size), bytes(6, size));
        pair.write(pair.at(0), &card);
        memory.write(0, &host).expect("inside");
        let access = if setup.to_card() { DmaAccess::ReadByDevice } else { DmaAccess::WriteByDevice };
        let mapped = opened.injector.mappings().len();
        let area = opened.card.map_memory(memory.clone(), access).expect("mapped");
        assert_eq!(opened.injector.mappings().len(), mapped + 1, "one mapping for the whole area");
        let handle = pair.channel.register_memory(area).expect("registration succeeds");
        let at = pair.at(0);
        let ticket = pair.channel.submit_at(handle, 0, size, at).expect("accepted");
        pair.channel.wait_ended(ticket, long_wait()).expect("the transfer completes");
        let expected = if setup.to_card() { host } else { card };
        let mut bytes = vec![0; size];
        memory.read(0, &mut bytes).expect("inside");
        assert!(bytes == expected, "{setup:?}: host memory");
        assert!(pair.read(at, size) == expected, "{setup:?}: card memory");
        drop(pair.channel.deregister_memory(handle).expect("nothing is in flight"));
        assert_eq!(opened.injector.mappings().len(), mapped, "unmapped when the area is dropped");
        assert_eq!(opened.card.memory().stats().caller_areas, 0);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// A stream of megabytes through a few buffers.
fn long(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let length = 16 << 20;
    opened.needs(length + 77)?;
    let no_channel = |error| Skip(format!("the case needs a channel in each direction: {error}"));
    let mut h2c = opened.card.h2c(0).map_err(no_channel)?;
    let mut c2h = opened.card.c2h(0).map_err(no_channel)?;
    let data = bytes(9, usize::try_from(length).unwrap_or(0));
    let (at, options) = (opened.at(77), WaitOptions::default().timeout(crate::TIMEOUT));
    let mut reported = 0;
    let write = bulk::write_from(&opened.card, &mut h2c, &mut &data[..], at, length, options, &mut |done| {
        reported = done
    });
    write.expect("the write succeeds");
    assert_eq!(reported, length);
    let mut back = Vec::new();
    bulk::read_into(&opened.card, &mut c2h, at, length, &mut back, options, &mut |_| ())
        .expect("the read succeeds");
    assert!(back == data);
    drop((h2c, c2h));
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}
