//! Data: every direction and run mode, every way to wait, buffers, parts of attached memory, lists, memory of the caller's.

use fpga_driver::pci::{DmaAccess, SharedMemory};
use fpga_driver::{AttachedMemory, Piece, RunMode, WaitMode, WaitOptions, bulk};
use rand_core::Rng;
use rand_pcg::Pcg64;

use super::{Bench, Case, Verdict, case};
use crate::bytes;
use crate::conformance::Skip;
use crate::conformance::bench::{Lane, Opened, patient};
use crate::rig::Way;

pub(super) const CASES: &[Case] = &[
    case("transfer.stop_runs.poll", &[], |bench| sizes(bench, RunMode::StopRuns, WaitMode::Poll)),
    case("transfer.stop_runs.interrupt", &[], |bench| sizes(bench, RunMode::StopRuns, WaitMode::Interrupt)),
    case("transfer.stop_runs.hybrid", &[], |bench| sizes(bench, RunMode::StopRuns, HYBRID)),
    case("transfer.credit_ring.poll", &[], |bench| sizes(bench, RunMode::CreditRing, WaitMode::Poll)),
    case("transfer.credit_ring.interrupt", &[], |bench| {
        sizes(bench, RunMode::CreditRing, WaitMode::Interrupt)
    }),
    case("transfer.credit_ring.hybrid", &[], |bench| sizes(bench, RunMode::CreditRing, HYBRID)),
    case("transfer.attached_memory", &[], attached),
    case("transfer.lists", &[], lists),
    case("transfer.callers_memory", &[], callers_memory),
    case("transfer.long", &[], long),
];

const HYBRID: WaitMode = WaitMode::Hybrid { spin: core::time::Duration::from_micros(30) };

/// Lengths and offsets around everything that has an edge: bytes, beats, pages, descriptors.
const LENGTHS: [usize; 11] = [1, 3, 64, 65, 4095, 4096, 4097, 8192, 65_537, 300_000, (1 << 20) + 5];
const OFFSETS: [u64; 4] = [0, 1, 63, 4095];

/// The ways of one run mode; the skip if there is none.
fn ways(opened: &Opened, mode: RunMode) -> impl Iterator<Item = Way> {
    opened.ways().into_iter().filter(move |way| way.mode == mode)
}

fn sizes(bench: &mut Bench<'_>, mode: RunMode, wait: WaitMode) -> Verdict {
    let opened = bench.open();
    opened.needs(4096)?;
    if wait != WaitMode::Poll {
        opened.interrupts()?;
    }
    for way in ways(&opened, mode) {
        let mut lane = opened.lane(way)?;
        for (n, length) in LENGTHS.into_iter().enumerate() {
            for (k, offset) in OFFSETS.into_iter().enumerate() {
                if opened.scratch.contains(opened.at(offset), length as u64) {
                    lane.check((n * 16 + k) as u64, length, offset, patient().mode(wait));
                }
            }
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// A repeatable source of numbers.
struct Dice(Pcg64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Pcg64::new(u128::from(seed), 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96))
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end.max(1) as u64).unwrap_or(0)
    }
}

/// Host memory, card memory, and two arrays that say what has to be in them.
struct Model {
    memory: AttachedMemory,
    host: Vec<u8>,
    card: Vec<u8>,
}

impl Model {
    fn begin(lane: &mut Lane, opened: &Opened, size: usize, seed: u64) -> Self {
        let area = opened.card.area(size).expect("DMA memory");
        let memory = lane.channel.attach(area).expect("attached");
        let (host, card) = (bytes(seed, size), bytes(seed + 1, size));
        lane.write(lane.at(0), &card);
        lane.channel.memory(memory).expect("attached").write(0, &host).expect("inside");
        Self { memory, host, card }
    }

    fn copied(&mut self, to_card: bool, offset: usize, card: usize, length: usize) {
        if to_card {
            self.card[card..card + length].copy_from_slice(&self.host[offset..offset + length]);
        } else {
            self.host[offset..offset + length].copy_from_slice(&self.card[card..card + length]);
        }
    }

    /// Every byte is as it has to be, those that no transfer was to touch too.
    fn check(&self, lane: &mut Lane) {
        let mut host = vec![0; self.host.len()];
        lane.channel.memory(self.memory).expect("attached").read(0, &mut host).expect("inside");
        assert!(host == self.host, "{:?}: host memory is not what it has to be", lane.way);
        let card = lane.read(lane.at(0), self.card.len());
        assert!(card == self.card, "{:?}: card memory is not what it has to be", lane.way);
    }
}

/// Parts of any place and length, many in flight, in one direction; they are executed in order.
fn attached(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    let size = 64 << 10;
    opened.needs(size as u64)?;
    for way in opened.ways() {
        let mut lane = opened.lane(way)?;
        let mut model = Model::begin(&mut lane, &opened, size, 1);
        let mut dice = Dice::new(7);
        for _ in 0..8 {
            let mut last = None;
            for _ in 0..50 {
                let most = [64, 4096, 9000][dice.below(3)];
                let length = 1 + dice.below(most);
                let (offset, card) = (dice.below(size - length), dice.below(size - length));
                let at = lane.at(card as u64);
                match lane.channel.submit_at(model.memory, offset, length, at) {
                    Ok(ticket) => last = Some(ticket),
                    Err(refused) => panic!("{refused}"),
                }
                model.copied(way.to_card(), offset, card, length);
            }
            lane.channel.wait_ended(last.expect("submitted"), patient()).expect("they end");
            assert!(lane.channel.next_completion().is_none(), "success is only counted");
        }
        model.check(&mut lane);
        drop(lane.channel.detach(model.memory).expect("nothing is in flight"));
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Lists of scattered pieces, each list one transfer.
fn lists(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    let (size, step) = (128 << 10, 4096);
    opened.needs(size as u64)?;
    for way in opened.ways() {
        let mut lane = opened.lane(way)?;
        let mut model = Model::begin(&mut lane, &opened, size, 3);
        let mut dice = Dice::new(11);
        for _ in 0..20 {
            let mut pieces = Vec::new();
            // One piece a page on either side, so that destinations do not overlap.
            let turn = dice.below(size / step);
            for page in 0..size / step {
                if dice.below(3) == 0 {
                    continue;
                }
                let length = dice.below(step / 2);
                let offset = page * step + dice.below(step / 2);
                let card = (page + turn) % (size / step) * step + dice.below(step / 2);
                pieces.push(Piece { memory: model.memory, offset, length, card: lane.at(card as u64) });
                model.copied(way.to_card(), offset, card, length);
            }
            let ticket = lane.channel.submit_list(&pieces).expect("accepted");
            lane.channel.wait_ended(ticket, patient()).expect("it ends");
        }
        model.check(&mut lane);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// A caller's memory is mapped once, used without a copy, and given back.
fn callers_memory(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    let size = 64 << 10;
    opened.needs(size as u64)?;
    for way in opened.ways() {
        let mut lane = opened.lane(way)?;
        let memory = SharedMemory::memfd("callers-memory", size).expect("memory");
        let (host, card) = (bytes(5, size), bytes(6, size));
        lane.write(lane.at(0), &card);
        memory.write(0, &host).expect("inside");
        let access = if way.to_card() { DmaAccess::ReadByDevice } else { DmaAccess::WriteByDevice };
        let mapped = opened.seam.mappings().len();
        let area = opened.card.map_memory(memory.clone(), access).expect("mapped");
        assert_eq!(opened.seam.mappings().len(), mapped + 1, "one mapping for all of it");
        let attached = lane.channel.attach(area).expect("attached");
        let at = lane.at(0);
        let ticket = lane.channel.submit_at(attached, 0, size, at).expect("accepted");
        lane.channel.wait_ended(ticket, patient()).expect("it ends");
        let expected = if way.to_card() { host } else { card };
        let mut bytes = vec![0; size];
        memory.read(0, &mut bytes).expect("inside");
        assert!(bytes == expected, "{way:?}: host memory");
        assert!(lane.read(at, size) == expected, "{way:?}: card memory");
        drop(lane.channel.detach(attached).expect("nothing is in flight"));
        assert_eq!(opened.seam.mappings().len(), mapped, "unmapped with its area");
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// A stream of megabytes through a few buffers.
fn long(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    let length = 16 << 20;
    opened.needs(length + 77)?;
    let no_channel = |error| Skip(format!("no channel each way: {error}"));
    let mut h2c = opened.card.h2c(0).map_err(no_channel)?;
    let mut c2h = opened.card.c2h(0).map_err(no_channel)?;
    let data = bytes(9, usize::try_from(length).unwrap_or(0));
    let (at, options) = (opened.at(77), WaitOptions::default().timeout(crate::PATIENCE));
    let mut told = 0;
    let write = bulk::write_from(&opened.card, &mut h2c, &mut &data[..], at, length, options, &mut |done| {
        told = done
    });
    write.expect("it arrives");
    assert_eq!(told, length);
    let mut back = Vec::new();
    bulk::read_into(&opened.card, &mut c2h, at, length, &mut back, options, &mut |_| ())
        .expect("it comes back");
    assert!(back == data);
    drop((h2c, c2h));
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}
