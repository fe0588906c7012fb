//! Cost of a transfer for the CPU core that submits and completes it: 256 at a time, through the public interface, without the card's own
//! work (it steps between the timed parts). For the additional cost of another core's caches see `fpgactl dma bench`.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_driver::{Card, CardAddr, ChannelOptions, RunMode};
use fpga_sim::SimNetwork;

const DEPTH: u64 = 256;
const SIZE: usize = 64;

type Failure = Box<dyn std::error::Error>;

fn registered(c: &mut Criterion, name: &str, mode: RunMode) -> Result<(), Failure> {
    let network = SimNetwork::builder().cards(1).build()?;
    let card = Card::from_backend(network.backend(0))?;
    let options = ChannelOptions::default().descriptors(512).transfers(256).run_mode(mode);
    let mut channel = card.h2c_with(0, options)?;
    let memory = channel.register_memory(card.registered_memory(SIZE * 4096)?)?;
    let mut slot = 0;
    let mut round = || -> Result<Duration, Failure> {
        let submitting = Instant::now();
        for _ in 0..DEPTH {
            slot = (slot + 1) % 4096;
            channel.submit_at(memory, slot * SIZE, SIZE, CardAddr::new((slot * SIZE) as u64))?;
        }
        channel.poll()?;
        let submitting = submitting.elapsed();
        network.step_until_idle();
        let taking = Instant::now();
        let ended = channel.poll()?;
        let taking = taking.elapsed();
        assert_eq!(ended as u64, DEPTH, "all of them are done");
        Ok(submitting + taking)
    };
    bench(c, name, &mut round);
    Ok(())
}

fn buffers(c: &mut Criterion) -> Result<(), Failure> {
    let network = SimNetwork::builder().cards(1).build()?;
    let card = Card::from_backend(network.backend(0))?;
    let mut channel = card.h2c_with(0, ChannelOptions::default().descriptors(512).transfers(256))?;
    let mut free = (0..DEPTH).map(|_| card.buffer(SIZE)).collect::<Result<Vec<_>, _>>()?;
    let mut round = || -> Result<Duration, Failure> {
        let submitting = Instant::now();
        let mut at = CardAddr::ZERO;
        while let Some(buffer) = free.pop() {
            channel.submit(buffer, at)?;
            at = at.checked_add(SIZE as u64).unwrap_or(CardAddr::ZERO);
        }
        channel.poll()?;
        let submitting = submitting.elapsed();
        network.step_until_idle();
        let taking = Instant::now();
        channel.poll()?;
        free.extend(std::iter::from_fn(|| channel.next_completion()).filter_map(|done| done.buffer));
        Ok(submitting + taking.elapsed())
    };
    bench(c, "owned buffers, batch mode", &mut round);
    Ok(())
}

#[expect(clippy::expect_used, reason = "a benchmark that cannot continue ends")]
fn bench(c: &mut Criterion, name: &str, round: &mut dyn FnMut() -> Result<Duration, Failure>) {
    let mut group = c.benchmark_group("channel submit+complete");
    group.throughput(Throughput::Elements(DEPTH));
    group.bench_function(name, |b| {
        b.iter_custom(|rounds| (0..rounds).map(|_| round().expect("a healthy card")).sum());
    });
    group.finish();
}

#[expect(clippy::expect_used, reason = "a benchmark that cannot continue ends")]
fn all(c: &mut Criterion) {
    registered(c, "registered memory, batch mode", RunMode::Batch).expect("a healthy card");
    registered(c, "registered memory, credit mode", RunMode::Credit).expect("a healthy card");
    buffers(c).expect("a healthy card");
}

criterion_group!(benches, all);
criterion_main!(benches);
