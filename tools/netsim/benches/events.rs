//! Packet events per second on one core: every host of a network of about 128 sends one MiB to another, at the same time.
//!
//! A packet event is the arrival of a packet at a switch or at its host: one for each packet and hop, data and answers alike. Other events
//! (timers, hosts that check for their next packet) are not counted, and neither is building the hosts. Time is CPU time, so that other
//! programs on the machine matter only through its caches.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_netsim::{Scenario, Scheme, Simulation, Topology};
use rustix::time::{ClockId, clock_gettime};

fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Time and packet events of a run; `None` if it fails.
fn run(scenario: &Scenario) -> Option<(Duration, u64)> {
    let simulation = Simulation::new(scenario).ok()?;
    let begun = processor_time();
    let report = simulation.run().ok()?;
    Some((processor_time().saturating_sub(begun), report.packet_events))
}

fn permutation(criterion: &mut Criterion) {
    let topologies = [
        ("torus of 125", Topology::Torus { side: 5 }),
        ("two levels of switches, 144", Topology::Tree { arity: 12, levels: 2, up: 12 }),
        ("switch of 128", Topology::Tree { arity: 128, levels: 1, up: 1 }),
    ];
    let mut group = criterion.benchmark_group("permutation");
    group.sample_size(10);
    for (name, topology) in topologies {
        for scheme in [Scheme::Registry, Scheme::Selective, Scheme::SenderWindow] {
            let scenario = Scenario::new(1).scheme(scheme).topology(topology).permutation(1 << 20);
            let Some((_, events)) = run(&scenario) else { continue };
            group.throughput(Throughput::Elements(events));
            group.bench_function(format!("{name}/{scheme}"), |bencher| {
                bencher.iter_custom(|times| {
                    (0..times).filter_map(|_| run(&scenario)).map(|(time, _)| time).sum()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, permutation);
criterion_main!(benches);
