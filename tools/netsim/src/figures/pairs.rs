//! Traffic of a torus: every host sends to one host and receives from one.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use crate::{Flow, Scenario};

/// Replaces the flows by `length` bytes from each host, all at once, to another one that receives only these: a random cycle of all hosts.
pub(super) fn pairs(scenario: Scenario, length: u64, seed: u64) -> Scenario {
    let mut numbers = Pcg32::new(seed, 0x7A1F_0C0B);
    let mut to: Vec<u32> = (0..scenario.topology.hosts()).collect();
    // Sattolo's shuffle: one cycle, so that no host sends to itself.
    for last in (1..to.len()).rev() {
        let drawn = (u64::from(numbers.next_u32()) * last as u64) >> 32;
        to.swap(last, usize::try_from(drawn).unwrap_or(0));
    }
    scenario.flows((0..).zip(to).map(|(from, to)| Flow::new(from, to, length)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Topology;

    /// Every host sends once and receives once, never to itself; other seeds give other pairs.
    #[test]
    fn torus_pairs_are_cycle_of_all_hosts() {
        let of = |seed| {
            pairs(Scenario::new(512).congestion(None).topology(Topology::Torus { side: 4 }), 512, seed)
        };
        for seed in 0..20 {
            let scenario = of(seed);
            scenario.validate().unwrap();
            let mut to: Vec<u32> = scenario.flows.iter().map(|flow| flow.to).collect();
            to.sort_unstable();
            assert_eq!(to, (0..64).collect::<Vec<_>>());
            assert_eq!(of(seed).flows, scenario.flows);
        }
        assert_ne!(of(1).flows, of(2).flows);
    }
}
