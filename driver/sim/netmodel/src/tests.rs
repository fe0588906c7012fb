use super::*;
use proptest::prelude::*;

/// A frame with visible damage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NumberedFrame {
    number: u32,
    class: Class,
    length: u64,
    flipped: Vec<u64>,
}

impl Frame for NumberedFrame {
    fn class(&self) -> Class {
        self.class
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn flip_bit(&mut self, bit: u64) {
        assert!(bit < self.length * 8);
        self.flipped.push(bit);
    }
}

fn data(number: u32) -> NumberedFrame {
    NumberedFrame { number, class: Class::Data, length: 100, flipped: Vec::new() }
}

fn control(number: u32) -> NumberedFrame {
    NumberedFrame { class: Class::Control, ..data(number) }
}

fn probability(fraction: f64) -> Probability {
    Probability::new(fraction).unwrap()
}

/// Offers frames one per microsecond and returns the deliveries with their times.
fn run(
    impairments: Impairments,
    seed: u64,
    frames: impl Iterator<Item = NumberedFrame>,
) -> Vec<(Nanos, NumberedFrame)> {
    let mut link = ImpairedLink::new(impairments, 100_000, seed).unwrap();
    for (n, frame) in (0..).zip(frames) {
        link.offer(Nanos::from_micros(n), frame).unwrap();
    }
    let mut out = Vec::new();
    while let Some(at) = link.poll_timeout() {
        while let Some(frame) = link.poll(at) {
            out.push((at, frame));
        }
    }
    assert!(link.is_empty());
    assert_eq!(link.counters().delivered, out.len() as u64);
    out
}

fn numbers(out: &[(Nanos, NumberedFrame)]) -> Vec<u32> {
    out.iter().map(|(_, frame)| frame.number).collect()
}

fn every_cause() -> Conditions {
    Conditions::default()
        .loss(Loss::Bursts(Bursts::of(0.1, 4.0).unwrap()))
        .delay(Delay::Exponential { least: Nanos::from_micros(3), mean: Nanos::from_micros(20) })
        .copies(probability(0.05), Delay::Constant(Nanos::from_millis(1)))
        .damage(probability(0.2))
}

#[test]
fn link_default_changes_nothing() {
    let out = run(Impairments::default(), 1, (0..100).map(data));
    assert_eq!(numbers(&out), (0..100).collect::<Vec<_>>());
    assert!(
        out.iter()
            .all(|(at, frame)| *at == Nanos::from_micros(frame.number.into()) && frame.flipped.is_empty())
    );
}

#[test]
fn link_same_seed_replays_other_seed_differs() {
    let go = |seed| run(Impairments::both(every_cause()), seed, (0..500).map(data));
    assert_eq!(go(7), go(7));
    assert_ne!(go(7), go(8));
}

#[test]
fn link_changing_one_cause_keeps_decisions_of_others() {
    let whole = run(Impairments::both(every_cause()), 5, (0..2000).map(data));
    let lost = |out: &[(Nanos, NumberedFrame)]| {
        let there = numbers(out);
        (0..2000).filter(|n| !there.contains(n)).collect::<Vec<_>>()
    };
    let damaged = |out: &[(Nanos, NumberedFrame)]| {
        let mut damaged: Vec<_> = out
            .iter()
            .filter(|(_, f)| !f.flipped.is_empty())
            .map(|(_, f)| (f.number, f.flipped.clone()))
            .collect();
        damaged.sort_unstable();
        damaged
    };
    let others = Conditions { delay: Delay::default(), copy: Probability::NEVER, ..every_cause() };
    let plain = run(Impairments::both(others), 5, (0..2000).map(data));
    assert_eq!(lost(&whole), lost(&plain));
    assert_eq!(damaged(&whole), damaged(&plain));
    let no_loss = Conditions { loss: Loss::default(), ..every_cause() };
    let arrivals = |out: &[(Nanos, NumberedFrame)], number| {
        out.iter().find(|(_, f)| f.number == number).map(|(at, _)| *at)
    };
    let full = run(Impairments::both(no_loss), 5, (0..2000).map(data));
    assert!(numbers(&whole).iter().all(|n| arrivals(&whole, *n) == arrivals(&full, *n)));
    // Control packets in between are another class with other numbers.
    let between = run(Impairments::both(every_cause()), 5, (0..2000).flat_map(|n| [data(n), control(n)]));
    let there: Vec<_> = between.into_iter().filter(|(_, f)| f.class == Class::Data).collect();
    assert_eq!(lost(&there), lost(&whole));
}

#[test]
fn link_data_and_control_conditions_are_separate() {
    let mut impairments = Impairments::default();
    impairments.control.loss = Loss::Independent(Probability::ALWAYS);
    let out = run(impairments, 1, (0..50).flat_map(|n| [data(n), control(n)]));
    assert_eq!(out.len(), 50);
    assert!(out.iter().all(|(_, frame)| frame.class == Class::Data));
}

/// Compares within four standard deviations.
fn close(found: usize, of: usize, expected: f64) {
    let (found, of) = (f64::from(u32::try_from(found).unwrap()), f64::from(u32::try_from(of).unwrap()));
    let deviation = (expected * (1.0 - expected) / of).sqrt();
    assert!((found / of - expected).abs() < 4.0 * deviation, "found {found} of {of}, expected {expected}");
}

#[test]
fn link_measured_rates_match_configured_rates() {
    let conditions = Conditions::default()
        .loss(Loss::Independent(probability(0.1)))
        .copies(probability(0.05), Delay::default())
        .damage(probability(0.01));
    let mut link = ImpairedLink::new(Impairments::both(conditions), 1 << 17, 11).unwrap();
    for n in 0..100_000 {
        link.offer(Nanos::ZERO, data(n)).unwrap();
    }
    let counters = link.counters().data;
    close(usize::try_from(counters.lost).unwrap(), 100_000, 0.1);
    close(usize::try_from(counters.duplicated).unwrap(), 90_000, 0.05);
    close(usize::try_from(counters.damaged).unwrap(), 90_000, 0.01);
}

#[test]
fn link_bursts_have_configured_length_and_share() {
    let conditions = Conditions::default().loss(Loss::Bursts(Bursts::of(0.02, 10.0).unwrap()));
    let there = numbers(&run(Impairments::both(conditions), 2, (0..80_000).map(data)));
    let gaps: Vec<u32> = there.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|gap| *gap > 0).collect();
    let lost: u32 = gaps.iter().sum();
    let mean = f64::from(lost) / gaps.len() as f64;
    assert!((8.0..12.0).contains(&mean), "mean burst {mean}");
    assert!((1_200..2_100).contains(&lost), "{lost} lost");
}

#[test]
fn link_delay_distributions_have_mean_and_bounds() {
    let micros = Nanos::from_micros;
    for (delay, least, most, mean) in [
        (Delay::Constant(micros(7)), 7.0, 7.0, 7.0),
        (Delay::Uniform { least: micros(5), most: micros(15) }, 5.0, 15.0, 10.0),
        (Delay::Exponential { least: micros(2), mean: micros(10) }, 2.0, 300.0, 12.0),
        (Delay::Normal { mean: micros(50), deviation: micros(5) }, 20.0, 80.0, 50.0),
        // The mean of exp(N(0, s)) is exp(s^2 / 2).
        (
            Delay::LogNormal { least: micros(1), median: micros(10), sigma: 0.5 },
            1.0,
            200.0,
            1.0 + 10.0 * 1.133,
        ),
    ] {
        let out = run(Impairments::both(Conditions::default().delay(delay)), 3, (0..20_000).map(data));
        let delays: Vec<f64> =
            out.iter().map(|(at, f)| (at.get() as f64 / 1000.0) - f64::from(f.number)).collect();
        let found = delays.iter().sum::<f64>() / delays.len() as f64;
        assert!((found - mean).abs() < mean * 0.03, "{delay:?}: mean {found}, expected {mean}");
        assert!(delays.iter().all(|d| (least..=most).contains(d)), "{delay:?}");
    }
}

#[test]
fn link_rate_spaces_frames_and_queue_is_bounded() {
    // 100 bytes take 100 ns; the fourth one at the same time would wait 300 ns.
    let rate = Rate { rate: BitRate::from_gbps(8), queue: Nanos::new(200) };
    let mut link = ImpairedLink::new(Impairments::default().rate(rate), 16, 0).unwrap();
    for n in 0..4 {
        link.offer(Nanos::ZERO, data(n)).unwrap();
    }
    assert_eq!((link.counters().data.overflowed, link.free_at()), (1, Nanos::new(300)));
    for (n, at) in [(0, 100), (1, 200), (2, 300)] {
        assert_eq!(link.poll(Nanos::new(at - 1)), None);
        assert_eq!(link.poll(Nanos::new(at)), Some(data(n)));
    }
    assert!(link.is_empty());
}

#[test]
fn link_blackout_drops_offered_frames() {
    let mut impairments =
        Impairments::both(Conditions::default().delay(Delay::Constant(Nanos::from_micros(50))));
    impairments.blackouts.push(Blackout { from: Nanos::from_micros(10), length: Nanos::from_micros(20) });
    let out = numbers(&run(impairments, 0, (0..60).map(data)));
    assert_eq!(out, (0..10).chain(30..60).collect::<Vec<_>>());
}

#[test]
fn link_damage_flips_one_to_three_bits() {
    let out =
        run(Impairments::both(Conditions::default().damage(Probability::ALWAYS)), 4, (0..3000).map(data));
    let mut seen = [0; 4];
    for (_, frame) in &out {
        let mut bits = frame.flipped.clone();
        bits.dedup();
        assert_eq!(bits.len(), frame.flipped.len());
        seen[bits.len()] += 1;
    }
    assert!(seen[0] == 0 && seen[1..].iter().all(|n| *n > 800), "{seen:?}");
}

#[test]
fn link_full_returns_frame() {
    let mut link = ImpairedLink::new(Impairments::default(), 2, 0).unwrap();
    link.offer(Nanos::ZERO, data(0)).unwrap();
    link.offer(Nanos::ZERO, data(1)).unwrap();
    assert_eq!(link.offer(Nanos::ZERO, data(2)), Err(data(2)));
    assert_eq!(link.poll_any(), Some(data(0)));
    assert_eq!(link.offer(Nanos::ZERO, data(2)), Ok(()));
}

#[test]
fn link_invalid_distribution_parameters_are_refused() {
    for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert!(matches!(Probability::new(wrong), Err(DistributionError::Probability { .. })));
        assert!(matches!(Bursts::of(wrong, 2.0), Err(DistributionError::Bursts { .. })));
    }
    assert!(Bursts::of(0.9, 1.0).is_err(), "bursts of one frame lose at most every second frame");
    assert!(Bursts::of(0.1, 0.5).is_err());
    assert_eq!(Probability::new(1.0), Ok(Probability::ALWAYS));
    assert_eq!(Probability::one_in(0), Probability::NEVER);
}

proptest! {
    /// For any conditions: every frame is delivered once, twice if duplicated, or counted as lost.
    #[test]
    fn link_any_conditions_account_for_every_frame(seed: u64, loss in 0.0..1.0f64, copy in 0.0..1.0f64, degree in 0u32..50,
                                    queue in 0u64..5000, rate in 1u64..100) {
        let conditions = Conditions::default()
            .loss(Loss::Independent(probability(loss)))
            .delay(Delay::Exponential { least: Nanos::ZERO, mean: Nanos::from_micros(5) })
            .copies(probability(copy), Delay::default());
        let impairments = Impairments::both(conditions)
            .order(Order::Degree { degree, patience: Nanos::from_micros(9) })
            .rate(Rate { rate: BitRate::new(rate * 10_000_000), queue: Nanos::new(queue) });
        let mut link = ImpairedLink::new(impairments, 1000, seed).unwrap();
        for n in 0..200 {
            link.offer(Nanos::new(u64::from(n) * 500), data(n)).unwrap();
        }
        let mut out = [0u32; 200];
        while let Some(at) = link.poll_timeout() {
            while let Some(frame) = link.poll(at) {
                out[frame.number as usize] += 1;
            }
        }
        prop_assert!(link.is_empty());
        let counters = link.counters().data;
        prop_assert!(out.iter().all(|count| *count <= 2));
        prop_assert_eq!(out.iter().filter(|count| **count == 0).count() as u64, counters.lost + counters.overflowed);
        prop_assert_eq!(out.iter().filter(|count| **count == 2).count() as u64, counters.duplicated);
    }
}

#[test]
fn rate_fractions_of_nanosecond_do_not_accumulate() {
    let rate = BitRate::from_gbps(100);
    let byte = NumberedFrame { length: 1, ..data(0) };
    let link = || {
        ImpairedLink::new(Impairments::default().rate(Rate { rate, queue: Nanos::MAX }), 1 << 20, 0).unwrap()
    };
    let mut at_once = link();
    for _ in 0..1_000_000 {
        at_once.offer(Nanos::ZERO, byte.clone()).unwrap();
    }
    assert_eq!(at_once.free_at(), rate.time_of(1_000_000));
    assert_eq!(at_once.free_at(), Nanos::from_micros(80));
    // Also if the sender offers the next frame when the previous one has departed.
    let mut in_turn = link();
    for _ in 0..1_000_000 {
        in_turn.offer(in_turn.free_at(), byte.clone()).unwrap();
    }
    assert_eq!(in_turn.free_at(), Nanos::from_micros(80));
}

#[test]
fn rate_display_and_from_bytes_and_time() {
    use alloc::string::ToString;
    assert_eq!(BitRate::of(1_250_000, Nanos::from_micros(100)), BitRate::from_gbps(100));
    assert_eq!(BitRate::of(1, Nanos::ZERO), BitRate::new(0));
    assert_eq!(BitRate::new(12_345_678_901).to_string(), "12.345 Gbit/s");
    assert_eq!(BitRate::new(2_500_000).to_string(), "2.500 Mbit/s");
    assert_eq!(BitRate::new(9).to_string(), "9 bit/s");
}

/// An encoded packet with a path identifier.
fn packet(path: u8) -> Vec<u8> {
    use fpga_firmware::wire::{Ack, Common, Control};
    let common = Common { source: 1.into(), destination: 2.into(), path, ..Common::default() };
    let mut bytes = alloc::vec![0; 40];
    Control::Ack(Ack { common, ..Ack::default() }).encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn link_failed_route_loses_the_frames_of_its_paths() {
    let (from, length) = (Nanos::from_micros(1), Nanos::from_micros(1));
    let mut share = Vec::new();
    for failed in 0..4 {
        let mut impairments = Impairments::default();
        impairments.failed_routes.push(FailedRoute { routes: 4, failed, span: Blackout { from, length } });
        let mut link = ImpairedLink::new(impairments, 1000, 0).unwrap();
        for (now, lost) in [(0, false), (1, true), (2, false)] {
            let now = Nanos::from_micros(now);
            for path in 0..=255 {
                link.offer(now, packet(path)).unwrap();
            }
            let arrived: Vec<u8> = core::iter::from_fn(|| link.poll(now)).map(|frame| frame.path()).collect();
            if lost {
                share.extend((0..=255).filter(|path| !arrived.contains(path)));
            } else {
                assert_eq!(arrived.len(), 256);
            }
        }
    }
    // Each path has exactly one route.
    share.sort_unstable();
    assert_eq!(share, (0..=255).collect::<Vec<u8>>());
}

#[test]
fn link_marks_frames_that_wait_too_long() {
    use fpga_firmware::wire::{Flags, Packet};
    // 40 bytes take 40 ns.
    let rate = Rate { rate: BitRate::from_gbps(8), queue: Nanos::MAX };
    let impairments = Impairments::default().rate(rate).mark_after(Nanos::new(100));
    let mut link = ImpairedLink::new(impairments, 16, 0).unwrap();
    for path in 0..5 {
        link.offer(Nanos::ZERO, packet(path)).unwrap();
    }
    let marks: Vec<bool> = core::iter::from_fn(|| link.poll(Nanos::from_micros(1)))
        .map(|frame| Packet::parse(&frame).unwrap().common().flags == Flags::MARKED)
        .collect();
    // They wait 0, 40, 80, 120 and 160 ns.
    assert_eq!(marks, [false, false, false, true, true]);
    assert_eq!(link.counters().control.marked, 2);
}
