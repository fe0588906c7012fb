//! Round trips from 1 us to 1 s, and ones that change: timers learn them, whatever their start value.

use fpga_netmodel::Impairments;

use super::*;

const LENGTH: usize = 256 << 10;
const PACKETS: u64 = 512;

fn network(scheme: Scheme, one_way: Nanos, round_trip: Option<Duration>) -> Testbed {
    Testbed::impaired(2, Impairments::default().distance(one_way), 1, |mut options| {
        options.scheme = scheme;
        options.round_trip = round_trip.unwrap_or(options.round_trip);
        options
    })
}

/// Sends [`LENGTH`] bytes. Returns the number of retransmitted packets, and the time in round trips of twice `one_way`.
fn cost(net: &mut Testbed, scheme: Scheme, one_way: Nanos) -> (u64, u64) {
    let region = net.region(1, TARGET, LENGTH as u64).remote;
    let data = bytes(one_way.get(), LENGTH);
    net.put(0, SOURCE, &data);
    net.send(0, SOURCE, &region, 0, LENGTH as u64);
    net.settle();
    let done = net.completions[0].pop_front().unwrap();
    assert_eq!(done.result, Ok(()), "{scheme}: {one_way} one way");
    assert!(net.get(1, TARGET, LENGTH) == data, "{scheme}: {one_way} one way: different data");
    let took = u64::try_from((done.finished - done.started).as_nanos()).unwrap();
    (done.retransmits, took / (2 * one_way.get()))
}

/// A round trip of a second has to be stated: no transfer is given up before it.
#[test]
fn round_trips_from_microsecond_to_second_cost_few_retransmissions() {
    for scheme in [Scheme::Registry, Scheme::Selective] {
        for one_way in [500, 5_000, 50_000, 500_000, 5_000_000, 50_000_000, 500_000_000].map(Nanos::new) {
            let stated = (one_way >= Nanos::from_millis(50)).then(|| Duration::from_nanos(2 * one_way.get()));
            let mut net = network(scheme, one_way, stated);
            let (retransmits, round_trips) = cost(&mut net, scheme, one_way);
            println!("{scheme} {one_way}: {retransmits} retransmissions, {round_trips} round trips");
            assert!(retransmits <= PACKETS / 8, "{scheme}: {one_way}: {retransmits} retransmissions");
            assert!(
                one_way < Nanos::from_micros(50) || round_trips <= 16,
                "{scheme}: {one_way}: {round_trips}"
            );
        }
    }
}

/// A hundred times longer and shorter, while the endpoints are open. The receiver window is not among the schemes: it requests each packet
/// about ten times.
#[test]
fn round_trips_that_change_hundredfold_cost_few_retransmissions() {
    for scheme in [Scheme::Registry, Scheme::AdaptiveWindow, Scheme::Selective] {
        let mut net = network(scheme, Nanos::from_micros(5), None);
        for one_way in [5, 500, 5, 500].map(Nanos::from_micros) {
            net.network.set_distance(one_way);
            let (retransmits, round_trips) = cost(&mut net, scheme, one_way);
            println!("{scheme} {one_way}: {retransmits} retransmissions, {round_trips} round trips");
            let most = if scheme == Scheme::AdaptiveWindow { PACKETS } else { PACKETS / 8 };
            assert!(retransmits <= most, "{scheme}: {one_way}: {retransmits} retransmissions");
        }
        net.assert_clean();
    }
}
