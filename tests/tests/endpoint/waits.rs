//! Waits that sleep: how often they look, and that they miss nothing.

use fpga_driver::core::impair::Impairments;

use super::*;

/// Two ends whose packets are under way for so long, with interrupts or without.
fn far(way: Nanos, interrupts: bool) -> Net {
    let mut net = Net::impaired(2, Impairments::default().distance(way), 1, |options| options);
    for index in [0, 1] {
        let card = net.end(index).card().clone();
        net.ends[index] = None;
        if interrupts {
            card.enable_interrupts().unwrap();
        }
        net.ends[index] = Some(Endpoint::open_with(&card, &options(0x30 + index as u32)).unwrap());
    }
    // Quiet after the former life.
    net.world.advance(Nanos::from_millis(20));
    net
}

#[test]
fn a_wait_for_what_takes_long_looks_rarely() {
    for (interrupts, most) in [(true, 400), (false, 600)] {
        let mut net = far(Nanos::from_millis(9), interrupts);
        let region = net.region(1, TARGET, 10_000);
        net.put(0, SOURCE, &bytes(1, 10_000));
        let (began, turns) = (net.world.now(), net.end(0).counters().turns);
        let ticket = net.send(0, SOURCE, &region.remote, 0, 10_000);
        let done = net.end(0).wait(ticket, Duration::from_secs(1)).unwrap();
        assert_eq!(done.result, Ok(()));
        let waited = net.world.now().saturating_sub(began);
        assert!((Nanos::from_millis(18)..Nanos::from_millis(20)).contains(&waited), "{waited:?}");
        let turns = net.end(0).counters().turns - turns;
        assert!(turns <= most, "{turns} turns, interrupts: {interrupts}");
        assert!(net.get(1, TARGET, 10_000) == bytes(1, 10_000));
        net.settle();
        net.assert_clean();
    }
}

/// What ends between the last look and the sleep ends the sleep: at whatever moment it comes, nobody is late.
#[test]
fn ten_thousand_sleeps_miss_nothing() {
    let mut net = far(Nanos::from_micros(50), true);
    let region = net.region(1, TARGET, 100_000);
    net.put(0, SOURCE, &bytes(2, 100_000));
    let mut dice = 9_u64;
    for n in 0..10_000 {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let length = 1 + (dice >> 33) % 2000;
        let began = net.world.now();
        let ticket = net.send(0, SOURCE, &region.remote, 0, length);
        let done = net.end(0).wait(ticket, Duration::from_secs(1)).unwrap();
        assert_eq!(done.result, Ok(()), "{n}");
        let waited = net.world.now().saturating_sub(began);
        assert!(waited < Nanos::from_micros(200), "{n}: {waited:?}");
        net.poll(1).unwrap();
        net.notifications[1].clear();
    }
    net.settle();
    net.assert_clean();
}

#[test]
fn a_wait_that_is_over_leaves_the_transfer() {
    let mut net = far(Nanos::from_millis(9), true);
    let region = net.region(1, TARGET, 1000);
    let ticket = net.send(0, SOURCE, &region.remote, 0, 1000);
    let began = net.world.now();
    let late = net.end(0).wait(ticket, Duration::from_millis(3)).unwrap_err();
    assert!(matches!(late, EndpointError::TimedOut { .. }), "{late}");
    let waited = net.world.now().saturating_sub(began);
    assert!((Nanos::from_millis(3)..Nanos::from_millis(4)).contains(&waited), "{waited:?}");
    assert_eq!(net.end(0).wait(ticket, Duration::from_secs(1)).unwrap().result, Ok(()));
}
