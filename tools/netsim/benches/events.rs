//! Events per second on one core: every host of a network of about 128 sends one MiB to another, at the same time.
//!
//! An element is a packet at a switch or a host. Building the hosts is not counted.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fpga_netsim::{Scenario, Scheme, Simulation, SimulationError, Topology};

fn permutation(criterion: &mut Criterion) {
    let topologies = [
        ("torus of 125", Topology::Torus { side: 5 }),
        ("switch of 128", Topology::Tree { arity: 128, levels: 1, up: 1 }),
    ];
    let mut group = criterion.benchmark_group("permutation");
    group.sample_size(10);
    for (name, topology) in topologies {
        for scheme in [Scheme::Registry, Scheme::Selective, Scheme::SenderWindow] {
            let scenario = Scenario::new(1).scheme(scheme).topology(topology).permutation(1 << 20);
            let run = |simulation: Result<Simulation, SimulationError>| simulation.and_then(Simulation::run);
            let Ok(report) = run(Simulation::new(&scenario)) else { continue };
            group.throughput(Throughput::Elements(report.packet_events));
            group.bench_function(format!("{name}/{scheme}"), |bencher| {
                bencher.iter_batched(|| Simulation::new(&scenario), run, BatchSize::PerIteration);
            });
        }
    }
    group.finish();
}

criterion_group!(benches, permutation);
criterion_main!(benches);
