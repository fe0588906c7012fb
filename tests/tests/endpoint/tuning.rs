//! Parameters of schemes: each has an effect, and invalid values are refused.

use fpga_driver::Advice;
use fpga_netmodel::{Conditions, Delay, Impairments, Loss, Order, Probability};
use fpga_protocol::scheme::tuning::Tuning;

use super::*;

const LENGTH: usize = 400_000;

/// Cost of a transfer: time, and retransmitted packets.
fn cost(scheme: Scheme, loss: f64, change: impl Fn(&mut EndpointOptions)) -> (Duration, u64) {
    cost_of_seed(7, scheme, loss, change)
}

fn cost_of_seed(
    seed: u64,
    scheme: Scheme,
    loss: f64,
    change: impl Fn(&mut EndpointOptions),
) -> (Duration, u64) {
    let delay = Delay::Exponential { least: Nanos::ZERO, mean: Nanos::from_micros(2) };
    let lost = Loss::Independent(Probability::new(loss).unwrap());
    let conditions = Conditions::default().loss(lost).delay(delay);
    let order = Order::Random { depth: 8, patience: Nanos::from_micros(20) };
    let network = Impairments::both(conditions).order(order).distance(Nanos::from_micros(5));
    let mut net = Testbed::impaired(2, network, seed, |mut options| {
        (options.scheme, options.round_trip) = (scheme, Duration::from_micros(20));
        // Which gives the receiver window credits.
        options.congestion = false;
        change(&mut options);
        options
    });
    let region = net.region(1, TARGET, 1 << 20).remote;
    let data = bytes(1, LENGTH);
    net.put(0, SOURCE, &data);
    net.send(0, SOURCE, &region, 0, LENGTH as u64);
    net.settle();
    let done = net.completions[0].pop_front().unwrap();
    assert_eq!(done.result, Ok(()), "{scheme}");
    assert!(net.get(1, TARGET, LENGTH) == data, "{scheme}");
    net.assert_clean();
    (done.finished - done.started, done.retransmits)
}

fn tuned(scheme: Scheme, loss: f64, choose: impl Fn(&mut Tuning)) -> (Duration, u64) {
    cost(scheme, loss, |options| choose(&mut options.tuning))
}

#[test]
fn tuning_small_window_is_slow() {
    for scheme in [Scheme::AdaptiveWindow, Scheme::Selective] {
        let usual = tuned(scheme, 0.0, |_| {}).0;
        let narrow = tuned(scheme, 0.0, |tuning| tuning.window = Some(2)).0;
        assert!(narrow > 2 * usual, "{scheme}: {usual:?} and {narrow:?}");
    }
    // The receiver's window: packets beyond it are retransmitted.
    let usual = tuned(Scheme::ReceiverWindow, 0.0, |_| {}).1;
    let narrow = tuned(Scheme::ReceiverWindow, 0.0, |tuning| tuning.window = Some(4)).1;
    assert!(narrow > usual + 50, "{usual} and {narrow} packets");
}

#[test]
fn tuning_credit_mode_holds_packets_beyond_window() {
    let narrow = |tuning: &mut Tuning| tuning.window = Some(8);
    let without = tuned(Scheme::ReceiverWindow, 0.0, narrow).1;
    let with = tuned(Scheme::ReceiverWindow, 0.0, |tuning| {
        narrow(tuning);
        tuning.credit = true;
    });
    assert!(with.1 * 4 < without, "{with:?} and {without} packets");
}

#[test]
fn tuning_early_range_requests_retransmit_more() {
    let after =
        |requests| tuned(Scheme::ReceiverWindow, 0.3, move |tuning| tuning.resend_after = Some(requests)).1;
    assert!(after(1) != after(200), "{} and {}", after(1), after(200));
}

#[test]
fn tuning_adaptive_timeout_follows_parameters() {
    let usual = tuned(Scheme::AdaptiveWindow, 0.0, |_| {});
    let literal = tuned(Scheme::AdaptiveWindow, 0.0, |tuning| tuning.literal = true);
    assert!(literal.1 > usual.1 + 20, "{usual:?} and {literal:?}: E2-1");
    // One sample gives no deviation, so that every packet that is later than the sample is retransmitted.
    let one = tuned(Scheme::AdaptiveWindow, 0.0, |tuning| {
        (tuning.literal, tuning.samples) = (true, Some(1));
    });
    assert!(one != literal, "{one:?}");
    // A timer that checks only once in a hundred round trips finds few late packets.
    let rare = tuned(Scheme::AdaptiveWindow, 0.0, |tuning| {
        (tuning.literal, tuning.walk) = (true, Some(Duration::from_millis(2)));
    });
    assert!(rare.1 * 2 < literal.1, "{rare:?} and {literal:?}");
}

/// The configured round trip is a first guess, and the first answer replaces it.
#[test]
fn tuning_wrong_round_trip_is_forgotten() {
    for scheme in [Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective] {
        let trip = |micros| {
            let change =
                move |options: &mut EndpointOptions| options.round_trip = Duration::from_micros(micros);
            // Which packets are lost matters more than the guess does.
            (1..=5).map(|seed| cost_of_seed(seed, scheme, 0.02, change).0).sum::<Duration>()
        };
        let (near, far) = (trip(20), trip(1000));
        assert!(far < near * 3 / 2, "{scheme}: {near:?} and {far:?}");
    }
}

#[test]
fn tuning_invalid_value_is_refused_without_trace() {
    let network = fpga_tests::cards::network(CardDescription::default());
    let card = Card::from_backend(network.backend(0)).unwrap();
    let open = |scheme, others: &[Scheme], choose: &dyn Fn(&mut Tuning)| {
        let mut options = options(1);
        (options.scheme, options.other_schemes) = (scheme, others.iter().copied().collect());
        choose(&mut options.tuning);
        Endpoint::open_with(&card, &options).map(drop)
    };
    let wide = |tuning: &mut Tuning| tuning.window = Some(512);
    open(Scheme::Selective, &[], &wide).unwrap();
    // Of several schemes, the smallest maximum applies; the registry has none.
    open(Scheme::Registry, &[Scheme::Selective], &wide).unwrap();
    for scheme in [Scheme::ReceiverWindow, Scheme::AdaptiveWindow] {
        let error = open(Scheme::Selective, &[scheme], &wide).unwrap_err();
        assert!(
            matches!(error.kind, EndpointError::Tuning { scheme: found, .. } if found == scheme),
            "{error}"
        );
        assert_eq!(error.advice(), Some(Advice::ChooseTuning), "{error}");
    }
    let wrong: [&dyn Fn(&mut Tuning); 4] = [
        &|tuning| tuning.window = Some(0),
        &|tuning| tuning.resend_after = Some(0),
        &|tuning| tuning.samples = Some(257),
        &|tuning| tuning.walk = Some(Duration::ZERO),
    ];
    for choose in wrong {
        let error = open(Scheme::AdaptiveWindow, &[], choose).unwrap_err();
        assert!(matches!(error.kind, EndpointError::Tuning { .. }), "{error}");
    }
    // The next owner of the card does not inherit the tuning.
    open(Scheme::AdaptiveWindow, &[], &|tuning| tuning.window = Some(3)).unwrap();
    open(Scheme::AdaptiveWindow, &[], &|_| {}).unwrap();
    let window = fpga_firmware::generated::ni::SCHEME_WINDOW + 4 * Scheme::AdaptiveWindow.value();
    let at = BarOffset::new((ni::BLOCK_OFFSET + window).into());
    assert_eq!(card.user_bar().unwrap().read32(at).unwrap(), 0);
}
