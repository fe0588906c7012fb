//! A new tail while the engine works: every interleaving of the driver's writes and the engine's steps.

use super::*;

/// Bytes of the copies: the engine needs a different number of steps for each.
const LENGTHS: [usize; 3] = [200_000, 100, 130_000];

/// The engine takes a given number of steps before the tail's low word of each copy but the first, and between its low and its high word.
/// Its progress by then decides whether it continues by itself, is started again, or is started once too often. In every case each copy is
/// done once, in order, and its bytes arrive.
#[test]
fn cdma_ring_tail_writes_interleaved_with_engine_steps_are_correct() {
    let high = (USER_BAR, CdmaBlock::TAILDESC_HIGH.address(CDMA).get());
    for route in SETUPS {
        let network = fast_network(with_channels(1, 1));
        let injector = FaultInjectingBackend::new(network.backend(0), Vec::new());
        let card = Card::from_backend(injector.clone()).unwrap();
        let mut ring: CdmaRing<usize> = ring(&card, route, options());
        let data = LENGTHS.map(|length| bytes(length as u64, length));
        for (n, data) in data.iter().enumerate() {
            poke(&network, 0, at(0x20_0000 + ((n as u64) << 20)), data);
        }
        let mut seen = [0, 0];
        // Ten steps are more than any of the copies needs.
        let steps = if route == DescriptorRoute::Bypass { 0..10 } else { 0..7 };
        for (before, between, again, last) in steps.clone().flat_map(|a| {
            let steps = steps.clone();
            steps.clone().flat_map(move |b| {
                let steps = steps.clone();
                steps.step_by(2).flat_map(move |c| [0, 1, 3, 9].map(|d| (a, b, c, d)))
            })
        }) {
            let what = format!("{route:?}: {before} {between} {again} {last}");
            let (executed_before, overruns) = (executed(&network), ring.overruns());
            for (n, _) in LENGTHS.iter().enumerate() {
                poke(&network, 0, at(FAR + ((n as u64) << 20)), &[0; 64]);
            }
            injector.delay_writes(high, &[0, between, last]);
            for (n, (length, steps)) in LENGTHS.into_iter().zip([0, before, again]).enumerate() {
                let offset = (n as u64) << 20;
                ring.copy(at(0x20_0000 + offset), at(FAR + offset), length as u64, n).unwrap();
                for _ in 0..steps {
                    network.step();
                }
                ring.poll().unwrap();
                if route == DescriptorRoute::Channel {
                    // The descriptors are in flight: the tail is written when they have arrived.
                    while ring.free_descriptors() == 15 - n as u32 && network.step() {}
                    ring.poll().unwrap();
                }
            }
            while ring.in_flight() != 0 {
                ring.poll().unwrap();
                ring.relax();
            }
            let done = drain(&mut ring);
            assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2], "{what}");
            assert!(done.iter().all(|done| done.outcome.is_ok()), "{what}: {done:?}");
            assert_eq!(executed(&network) - executed_before, 3, "{what}: each copy is executed once");
            for (n, data) in data.iter().enumerate() {
                assert!(
                    peek(&network, 0, at(FAR + ((n as u64) << 20)), 64) == data[..64],
                    "{what}: copy {n}"
                );
            }
            seen[usize::from(ring.overruns() != overruns)] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{route:?}: runs with and without an extra start: {seen:?}");
        let last = at(FAR + (2 << 20));
        assert!(peek(&network, 0, last, LENGTHS[2]) == data[2]);
    }
}
