use super::*;

const CONFIG: CongestionConfig = CongestionConfig::DEFAULT;
const TRIP: u64 = 4000;

/// A window after the first acknowledgements of a path that delivers a packet each `spacing` nanoseconds.
fn measured(spacing: u64) -> (CongestionWindow, u64) {
    let mut window = CongestionWindow::new(&CONFIG);
    for sent in 1..=CONFIG.initial {
        window.note_sent(&CONFIG, Nanos::new(1), sent);
    }
    assert_eq!(window.permit(Nanos::new(1), CONFIG.initial), Permit::Closed);
    let mut now = 1 + TRIP;
    for _ in 0..=TRAIN {
        window.sample(&CONFIG, Nanos::new(now), Nanos::new(TRIP), false);
        window.note_sent(&CONFIG, Nanos::new(now), CONFIG.initial);
        now += spacing;
    }
    (window, now)
}

/// Passes `rounds` round trips in which every packet takes `delay`, a full window each.
fn pass(window: &mut CongestionWindow, now: &mut u64, delay: u64, rounds: u32) {
    for _ in 0..rounds {
        *now += delay + 1;
        for _ in 0..window.packets() {
            window.note_sent(&CONFIG, Nanos::new(*now), u32::MAX);
            window.sample(&CONFIG, Nanos::new(*now), Nanos::new(delay), false);
        }
    }
}

#[test]
fn window_first_acknowledgements_spacing_gives_share_of_path() {
    assert_eq!(measured(40).0.packets(), 100);
    assert_eq!(measured(200).0.packets(), 20);
    // Slower than the initial window: at most halved at once.
    assert_eq!(measured(499).0.packets(), 16);
}

#[test]
fn window_of_host_is_64_kib_and_at_least_32_packets() {
    for (packet, packets) in [(64, 1024), (512, 128), (2048, 32), (4096, 32), (0, 65_536)] {
        assert_eq!(CongestionConfig::for_host(packet).initial, packets, "packets of {packet} bytes");
    }
    let most = CongestionWindow::new(&CongestionConfig::for_host(0)).packets();
    assert_eq!(most, CONFIG.most);
}

/// Every other packet is answered after one that left later.
#[test]
fn window_doubles_on_reordering_path_of_sender_that_is_alone() {
    let grown = |senders: u8| {
        let mut window = CongestionWindow::new(&CONFIG);
        window.note_senders(&CONFIG, senders);
        let mut now = 0;
        let mut sizes = alloc::vec::Vec::new();
        for _ in 0..6 {
            now += 2 * TRIP + 1;
            for packet in 0..u64::from(window.packets()) {
                let delay = TRIP + packet % 2 * TRIP;
                window.note_sent(&CONFIG, Nanos::new(now), u32::MAX);
                window.sample(&CONFIG, Nanos::new(now), Nanos::new(delay), false);
            }
            sizes.push(window.packets());
        }
        sizes
    };
    assert_eq!(grown(1), [32, 64, 128, 256, 512, 1024]);
    // Half of the way to the share of two, then by a quarter.
    assert_eq!(grown(2), [48, 61, 78, 98, 123, 155]);
}

#[test]
fn window_standing_queue_shrinks_to_few_packets_of_it() {
    let (mut window, mut now) = measured(40);
    pass(&mut window, &mut now, 2 * TRIP, 40);
    // window (1 - base / delay) = window / 16 + 1/2.
    assert!((1..=4).contains(&window.packets()), "{}", window.packets());
}

#[test]
fn window_empty_path_grows_to_maximum() {
    let (mut window, mut now) = measured(400);
    pass(&mut window, &mut now, TRIP, 40);
    assert_eq!(window.packets(), CONFIG.most);
}

#[test]
fn window_refused_segment_shrinks_to_few_packets_unless_sender_is_alone() {
    for (senders, packets) in [(0, 4), (1, 100), (2, 4)] {
        let (mut window, _) = measured(40);
        if senders != 0 {
            window.note_senders(&CONFIG, senders);
        }
        let before = window.packets();
        window.note_refused(&CONFIG);
        assert_eq!(window.packets(), packets.min(before), "{senders} senders");
    }
    let mut window = CongestionWindow::new(&CONFIG);
    window.note_senders(&CONFIG, 1);
    window.note_refused(&CONFIG);
    assert_eq!(window.packets(), 4, "a first window");
}

/// The fastest packet of each round trip shows that there is no queue.
#[test]
fn window_jitter_does_not_shrink() {
    let (mut window, mut now) = measured(40);
    for round in 0..100_u64 {
        now += TRIP + 1;
        for packet in 0..u64::from(window.packets()) {
            let delay = TRIP + (packet * 37 + round) % 60 * 100;
            window.note_sent(&CONFIG, Nanos::new(now), u32::MAX);
            window.sample(&CONFIG, Nanos::new(now), Nanos::new(delay), false);
        }
    }
    assert!(window.packets() >= 100, "{}", window.packets());
}

#[test]
fn window_random_loss_does_not_shrink_heavy_loss_shrinks_once() {
    let (mut window, mut now) = measured(40);
    pass(&mut window, &mut now, TRIP, 1);
    let size = window.packets();
    window.note_lost(size / 20);
    pass(&mut window, &mut now, TRIP, 1);
    assert!(window.packets() >= size);
    let size = window.packets();
    window.note_lost(size * 2);
    pass(&mut window, &mut now, TRIP, 1);
    let cut = window.packets();
    assert!(cut < size && cut >= size / 4, "{size}, {cut}");
    pass(&mut window, &mut now, TRIP, 2);
    assert!(window.packets() >= cut);
}

/// Any order of signals: a packet can always leave sooner or later, without one in flight.
#[test]
fn window_any_signals_never_stay_closed() {
    let mut state = 9_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for run in 0..200 {
        let mut window = CongestionWindow::new(&CONFIG);
        let mut now = run * 1_000_000;
        for _ in 0..500 {
            now += random(20_000);
            let at = Nanos::new(now);
            match random(9) {
                8 => window.note_trimmed(&CONFIG, at),
                0 => window.note_lost(1 + u32::try_from(random(100)).unwrap()),
                1 => window.note_timeout(&CONFIG, at),
                2 => window.grant(),
                3 => window.hold(),
                4 | 5 => window.note_sent(&CONFIG, at, u32::try_from(random(50)).unwrap()),
                _ => window.sample(&CONFIG, at, Nanos::new(random(100_000)), random(8) == 0),
            }
            assert!((1..=CONFIG.most).contains(&window.packets()));
            match window.permit(at, 0) {
                Permit::Now => {}
                Permit::At(next) => {
                    // At most 64 of the longest round trips.
                    assert!(next <= Nanos::new(now + 65 * 100_000), "{next} after {now}");
                    assert_eq!(window.permit(next, 0), Permit::Now);
                }
                Permit::Closed => unreachable!("nothing in flight"),
            }
        }
    }
}

/// Passes one round trip of `delay`; the window with all packets marked, or with none.
fn pass_marked(window: &mut CongestionWindow, now: &mut u64, delay: u64, marked: bool) {
    *now += delay + 1;
    for _ in 0..window.packets() {
        window.note_sent(&CONFIG, Nanos::new(*now), u32::MAX);
        window.sample(&CONFIG, Nanos::new(*now), Nanos::new(delay), marked);
    }
}

/// Bandwidth-delay product of [`TRIP`] at 100 Gbit/s: 90 packets.
const PRODUCT: u32 = 4_000_000 / CONFIG.packet_ps;

#[test]
fn window_marks_below_target_delay_do_not_shrink() {
    let (mut window, mut now) = measured(40);
    pass(&mut window, &mut now, TRIP, 2);
    for _ in 0..20 {
        pass_marked(&mut window, &mut now, TRIP + TRIP / 2, true);
    }
    assert!((PRODUCT..=PRODUCT * 6 / 5 + 1).contains(&window.packets()), "{}", window.packets());
}

/// A queue of three round trips: the mean delay passes the target after about 20 answers, then one decrease per round trip of at most a half.
#[test]
fn window_marks_above_target_delay_shrink_once_per_round_trip() {
    let (mut window, mut now) = measured(40);
    pass(&mut window, &mut now, TRIP, 2);
    let mut sizes = alloc::vec![window.packets()];
    for _ in 0..12 {
        pass_marked(&mut window, &mut now, 4 * TRIP, true);
        sizes.push(window.packets());
    }
    for pair in sizes.windows(2) {
        assert!(pair[1] * 2 + 2 >= pair[0], "at most a half per round trip: {sizes:?}");
    }
    assert!(sizes[12] <= 4 && sizes[12] >= 1, "{sizes:?}");
    // Without marks and queue it grows again, up to 1.2 products.
    for _ in 0..60 {
        pass_marked(&mut window, &mut now, TRIP, false);
    }
    assert_eq!(window.packets(), PRODUCT * 6 / 5 + 1);
}

#[test]
fn window_cut_packet_costs_one_and_mostly_cut_window_adapts_to_arrivals() {
    let (mut window, mut now) = measured(40);
    pass(&mut window, &mut now, TRIP, 2);
    let size = window.packets();
    window.note_trimmed(&CONFIG, Nanos::new(now));
    assert_eq!(window.packets(), size - 1);
    // Incast: 3 packets of each window arrive, the others are cut. After one interval the window is what arrives.
    for _ in 0..4 {
        now += 2 * TRIP;
        for packet in 0..window.packets() {
            let at = Nanos::new(now + u64::from(packet));
            if packet < 3 {
                window.sample(&CONFIG, at, Nanos::new(2 * TRIP), true);
            } else {
                window.note_trimmed(&CONFIG, at);
            }
        }
    }
    assert!((1..=3).contains(&window.packets()), "{}", window.packets());
}

/// After 64 round trips without a mark, a queue shrinks the window although nothing is marked.
#[test]
fn window_marked_rules_end_after_64_round_trips() {
    let (mut window, mut now) = measured(40);
    pass_marked(&mut window, &mut now, TRIP, true);
    assert_eq!(window.marked.rounds, MARKED_ROUNDS);
    let mut rounds = 0;
    while window.marked.rounds != 0 {
        pass_marked(&mut window, &mut now, TRIP, false);
        rounds += 1;
    }
    // The last marked answer may belong to the first of them.
    assert!((63..=64).contains(&rounds), "{rounds}");
    pass(&mut window, &mut now, 8 * TRIP, 20);
    assert!(window.packets() < PRODUCT, "{}", window.packets());
}

#[test]
fn window_of_many_senders_begins_with_half_of_share_and_keeps_to_share_in_queue() {
    let (mut window, mut now) = measured(40);
    window.note_senders(&CONFIG, 16);
    assert_eq!(window.packets(), CONFIG.shared / 16 / 2);
    // A queue of a tenth of the base: without others, the window would grow.
    pass(&mut window, &mut now, TRIP, 1);
    pass(&mut window, &mut now, TRIP * 11 / 10, 20);
    assert!((2..=8).contains(&window.packets()), "{}", window.packets());
    // A node between two transfers does not count for a moment: no new start.
    let size = window.packets();
    window.note_senders(&CONFIG, 15);
    window.note_senders(&CONFIG, 16);
    assert_eq!(window.packets(), size);
}

/// A host that answers late and irregularly, with a queue that this sender does not share.
#[test]
fn window_alone_at_noisy_receiver_is_not_held_back_by_delays() {
    let (mut window, mut now) = measured(400);
    window.note_senders(&CONFIG, 1);
    for round in 0..40_u64 {
        now += 8 * TRIP;
        for packet in 0..u64::from(window.packets()) {
            let delay = TRIP + (packet * 7919 + round * 104_729) % (3 * TRIP) + TRIP / 2 * (round % 3);
            window.note_sent(&CONFIG, Nanos::new(now), u32::MAX);
            window.sample(&CONFIG, Nanos::new(now), Nanos::new(delay), false);
        }
    }
    assert!(window.packets() >= CONFIG.shared, "{}", window.packets());
}
