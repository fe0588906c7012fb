//! Events per second and memory of one run of a permutation: every host of the network sends to another one at the same time.
//!
//! ```text
//! cargo run --release -p fpga-netsim --example event_rate -- torus 16 selective 65536
//! ```
//!
//! Arguments: topology (`torus SIDE`, `tree ARITY,LEVELS,UP`, `fat-tree RADIX,TIERS`), scheme, bytes of each flow, and `observe` to record queues as
//! `fpgactl sim run` does. An event is whatever the event queue returns; a packet event is the arrival of a packet at a switch or at its
//! host. Time is CPU time of the run without the construction of the hosts; memory is the peak resident set of the process.

use std::error::Error;
use std::time::Duration;

use fpga_netsim::{Clos, Scenario, Scheme, Simulation, Topology};
use rustix::time::{ClockId, clock_gettime};

fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Peak resident set in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0) << 10
}

fn topology(kind: &str, size: &str) -> Result<Topology, Box<dyn Error>> {
    let numbers = size.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    Ok(match (kind, numbers.as_slice()) {
        ("torus", &[side]) => Topology::Torus { side },
        ("tree", &[arity, levels, up]) => Topology::Tree { arity, levels, up },
        ("fat-tree", &[radix, tiers]) => Topology::Clos(Clos::fat_tree(radix, tiers)?),
        _ => {
            return Err(format!(
                "{kind} {size}: give torus SIDE, tree ARITY,LEVELS,UP or fat-tree RADIX,TIERS"
            )
            .into());
        }
    })
}

fn scheme(name: &str) -> Result<Scheme, Box<dyn Error>> {
    Ok(match name {
        "registry" => Scheme::Registry,
        "receiver-window" => Scheme::ReceiverWindow,
        "sender-window" => Scheme::SenderWindow,
        "adaptive-window" => Scheme::AdaptiveWindow,
        "selective" => Scheme::Selective,
        _ => return Err(format!("{name}: no such scheme").into()),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, size, name, bytes, rest @ ..] = arguments.as_slice() else {
        return Err("give a topology, its size, a scheme and the bytes of each flow".into());
    };
    let mut scenario =
        Scenario::new(1).scheme(scheme(name)?).topology(topology(kind, size)?).permutation(bytes.parse()?);
    scenario.observe = rest.iter().any(|word| word == "observe");
    let before = peak_memory();
    let simulation = Simulation::new(&scenario)?;
    let built = peak_memory().saturating_sub(before);
    let begun = processor_time();
    let report = simulation.run()?;
    let span = processor_time().saturating_sub(begun);
    let hosts = u64::try_from(report.hosts.len())?.max(1);
    let per_second = |events: u64| u128::from(events) * 1_000_000_000 / span.as_nanos().max(1);
    println!(
        "{kind} {size}: {hosts} hosts, {} events, {} packet events, {} ms, {} events/s, {} packet events/s, {} bytes a host built, {} bytes a host, {} kB peak, ended {}, {} dropped, {} failures",
        report.events,
        report.packet_events,
        span.as_millis(),
        per_second(report.events),
        per_second(report.packet_events),
        built / hosts,
        peak_memory().saturating_sub(before) / hosts,
        peak_memory() >> 10,
        report.ended,
        report.dropped,
        report.failures(),
    );
    Ok(())
}
