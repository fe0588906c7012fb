//! Replay of single worlds.
#![expect(clippy::panic, reason = "a panic is the failure report")]

use fpga_swarm::Reduction;
use fpga_swarm::swarm::seed_of;

/// Runs a world that must not fail.
fn replay(part: &Reduction) {
    if let Err(violation) = part.run() {
        panic!("{}\n{}", violation.0, part.as_test());
    }
}

#[test]
fn worlds_of_one_seed_have_one_trace() {
    let mut counts = std::collections::BTreeMap::new();
    for world in (0..40).map(|number| Reduction::whole(seed_of(7, number))) {
        // Two worlds of each kind.
        let count = counts.entry(world.plan().work.name()).or_insert(0);
        *count += 1;
        if *count > 2 {
            continue;
        }
        let traces = [(); 2].map(|()| world.run().map(|outcome| outcome.trace));
        assert_eq!(traces[0], traces[1], "{}", world.as_test());
    }
    assert!(counts.len() >= 3 && counts.values().all(|count| *count >= 2), "{counts:?}");
}

#[test]
fn worlds_of_some_seeds_end() {
    for number in 0..30 {
        replay(&Reduction::whole(seed_of(1, number)));
    }
}

/// A selective message whose node could not be reached, while a request to the same node was repeated: the time of all tries of the request
/// was taken for the round trip, and the message was not sent again before it was given up.
#[test]
fn world_6754d1_ends() {
    replay(&Reduction {
        seed: 0x3e9b46ae7d9a931d,
        actions: Some(vec![20, 16]),
        faults: Some(vec![0]),
        without: vec!["extras", "loss", "copies", "damage", "trims", "delay", "disorder", "slow"],
    });
}
/// An injected message that its receiver could not keep, for a receive with a shorter buffer: the whole message was written to staging memory
/// with space for the shorter part, over the record behind it.
#[test]
fn world_24f632_ends() {
    replay(&Reduction {
        seed: 0x5540c98a00caee7f,
        actions: Some(vec![14, 35, 8, 28, 24]),
        faults: Some(vec![]),
        without: vec!["loss", "copies", "damage", "trims", "delay", "disorder", "slow", "target", "clocks"],
    });
}
