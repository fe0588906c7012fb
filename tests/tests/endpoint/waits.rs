//! Waits that sleep: how often they poll, and that they miss no event.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fpga_driver::{Error, OpenOptions};
use fpga_netmodel::Impairments;
use fpga_pci::Backend;
use fpga_rdma::SharedEndpoint;
use fpga_sim::{SimNetwork, ThreadOptions};
use fpga_tests::cards::poke;
use fpga_tests::fault_injecting::FaultInjectingBackend;

use super::*;

/// Two ends with a network delay of `way`, with or without interrupts.
fn endpoints_with_delay(way: Nanos, interrupts: bool) -> Testbed {
    let mut net = Testbed::impaired(2, Impairments::default().distance(way), 1, |options| options);
    for index in [0, 1] {
        let card = net.end(index).card().clone();
        net.ends[index] = None;
        if interrupts {
            card.enable_interrupts().unwrap();
        }
        net.ends[index] = Some(Endpoint::open_with(&card, &options(0x30 + index as u32)).unwrap());
    }
    // The delay after the earlier incarnation has passed.
    net.network.advance(Nanos::from_millis(20));
    net
}

#[test]
fn wait_long_transfer_polls_rarely() {
    for (interrupts, most) in [(true, 400), (false, 12_000)] {
        let mut net = endpoints_with_delay(Nanos::from_millis(9), interrupts);
        let region = net.region(1, TARGET, 8_000);
        net.put(0, SOURCE, &bytes(1, 8_000));
        let (began, turns) = (net.network.now(), net.end(0).counters().turns);
        let ticket = net.send(0, SOURCE, &region.remote, 0, 8_000);
        let done = net.end(0).wait(ticket, Duration::from_secs(1)).unwrap();
        assert_eq!(done.result, Ok(()));
        let waited = net.network.now().saturating_sub(began);
        assert!((Nanos::from_millis(18)..Nanos::from_millis(20)).contains(&waited), "{waited:?}");
        let turns = net.end(0).counters().turns - turns;
        assert!(turns <= most, "{turns} turns, interrupts: {interrupts}");
        assert!(net.get(1, TARGET, 8_000) == bytes(1, 8_000));
        net.settle();
        net.assert_clean();
    }
}

/// An event between the last poll and the sleep ends the sleep: whenever it arrives, the wait ends without delay.
#[test]
fn wait_ten_thousand_sleeps_miss_no_event() {
    let mut net = endpoints_with_delay(Nanos::from_micros(50), true);
    let region = net.region(1, TARGET, 100_000);
    net.put(0, SOURCE, &bytes(2, 100_000));
    let mut rng = 9_u64;
    for n in 0..10_000 {
        rng = rng.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let length = 1 + (rng >> 33) % 2000;
        let began = net.network.now();
        let ticket = net.send(0, SOURCE, &region.remote, 0, length);
        let done = net.end(0).wait(ticket, Duration::from_secs(1)).unwrap();
        assert_eq!(done.result, Ok(()), "{n}");
        let waited = net.network.now().saturating_sub(began);
        assert!(waited < Nanos::from_micros(200), "{n}: {waited:?}");
        net.poll(1).unwrap();
        net.notifications[1].clear();
    }
    net.settle();
    net.assert_clean();
}

/// The polls of a task are as rare, because it sleeps inside of them.
#[test]
fn wait_task_of_long_transfer_polls_rarely() {
    let mut net = endpoints_with_delay(Nanos::from_millis(9), false);
    let region = net.region(1, TARGET, 8_000);
    let (began, turns) = (net.network.now(), net.end(0).counters().turns);
    let ticket = net.send(0, SOURCE, &region.remote, 0, 8_000);
    let end = net.end(0);
    let done = {
        let mut task = pin!(end.completion(ticket));
        loop {
            match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(done) => break done.unwrap(),
                Poll::Pending => {}
            }
        }
    };
    assert_eq!(done.result, Ok(()));
    let waited = net.network.now().saturating_sub(began);
    assert!((Nanos::from_millis(18)..Nanos::from_millis(20)).contains(&waited), "{waited:?}");
    let turns = net.end(0).counters().turns - turns;
    assert!(turns <= 12_000, "{turns} turns");
}

/// Shared endpoints on cards that run in their own threads; their waits are ended only by an interrupt or by another thread.
fn threaded_endpoints(way: Nanos) -> (SimNetwork, Vec<(SharedEndpoint, Arc<FaultInjectingBackend>)>) {
    let network = SimNetwork::builder().cards(2).threaded(ThreadOptions::default());
    let network = network.impairments(Impairments::default().distance(way)).build().unwrap();
    let end = |number: u32| {
        let injector = FaultInjectingBackend::new(network.backend(number as usize), Vec::new());
        let backend = Arc::<FaultInjectingBackend>::clone(&injector) as Arc<dyn Backend>;
        let card = Card::from_backend_with(backend, OpenOptions::default()).unwrap();
        card.enable_interrupts().unwrap();
        injector.ignore_timeouts(true);
        let mut options = options(0x20 + number);
        // In real time a machine may stop for a second; these tests are not about transfers that are given up because of that.
        options.give_up = Duration::from_secs(60);
        (Endpoint::open_with(&card, &options).unwrap().into(), injector)
    };
    let ends = (0..2).map(end).collect();
    (network, ends)
}

/// Of the waiting threads one sleeps for all; the others sleep until it wakes them. Each thread gets its completions.
fn many_threads_wait(each: usize) {
    const THREADS: usize = 4;
    // If a sender fails, the receivers end, and the report shows why.
    const LIMIT: Duration = Duration::from_secs(60);
    let (network, ends) = threaded_endpoints(Nanos::from_micros(60));
    let region = ends[1].0.open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    poke(&network, 0, SOURCE, &bytes(3, 1 << 20));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (end, region) = (&ends[0].0, &region);
            scope.spawn(move || {
                let mut rng = thread as u64;
                for n in 0..each {
                    rng = rng.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                    let (place, length) = ((thread as u64) << 16, 1 + (rng >> 33) % 2000);
                    let mut sent =
                        end.send(at(SOURCE, place), region, place, length, SendOptions::default()).unwrap();
                    assert_eq!(sent.wait(LIMIT).unwrap().result, Ok(()), "{n}");
                }
            });
        }
        for _ in 0..THREADS {
            let end = &ends[1].0;
            scope.spawn(move || {
                for _ in 0..each {
                    end.wait_notification(LIMIT).unwrap();
                }
            });
        }
    });
    for (number, (end, injector)) in ends.iter().enumerate() {
        assert_eq!(injector.lost_wakeups(), 0, "end {number}");
        assert!(injector.sleeps() > 0, "end {number}");
        assert_eq!(end.next_notification(), None, "end {number}");
    }
}

#[test]
fn wait_many_threads_miss_no_event() {
    many_threads_wait(800);
}

#[test]
#[ignore = "long: 2 s: 10,000 waits"]
fn wait_many_threads_miss_no_event_in_longer_run() {
    many_threads_wait(2500);
}

/// One thread sleeps. A transfer that another thread starts and does not wait for wakes it: the sleeping thread drives the endpoint for
/// all.
#[test]
fn wait_sleeping_thread_drives_transfers_of_others() {
    let (network, ends) = threaded_endpoints(Nanos::ZERO);
    let [(first, injector), (second, _)] = &ends[..] else { panic!("two ends") };
    poke(&network, 0, SOURCE, &bytes(1, 100_000));
    let region =
        |end: &SharedEndpoint| end.open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    let regions = [region(first), region(second)];
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| first.wait_notification(Duration::from_secs(600)).unwrap());
        for n in 0..100 {
            while injector.waiter_count() == 0 {
                std::thread::yield_now();
            }
            drop(first.send(SOURCE, &regions[1], n, 1000, SendOptions::default()).unwrap());
            assert_eq!(second.wait_notification(Duration::from_secs(600)).unwrap().address, at(TARGET, n));
        }
        // The notification that the sleeping thread waits for.
        let mut last = second.send(SOURCE, &regions[0], 0, 1000, SendOptions::default()).unwrap();
        assert_eq!(last.wait(Duration::from_secs(600)).unwrap().result, Ok(()));
        assert_eq!(sleeper.join().unwrap().address, TARGET);
    });
    assert_eq!(injector.lost_wakeups(), 0);
}

/// Each wait ends at its own timeout, also while another thread sleeps for longer.
#[test]
fn wait_waiters_end_at_own_timeout() {
    let mut net = endpoints_with_delay(Nanos::from_millis(9), true);
    let region = net.region(1, TARGET, 1000);
    let end: SharedEndpoint = net.ends[0].take().unwrap().into();
    let mut sent = end.send(SOURCE, &region.remote, 0, 1000, SendOptions::default()).unwrap();
    std::thread::scope(|scope| {
        let waits: Vec<_> = [30, 3, 700, 4, 5]
            .map(|limit| {
                let end = &end;
                scope.spawn(move || end.wait_notification(Duration::from_millis(limit)).unwrap_err())
            })
            .into();
        assert_eq!(sent.wait(Duration::from_secs(600)).unwrap().result, Ok(()));
        for wait in waits {
            let late = wait.join().unwrap();
            assert!(matches!(late, Error { kind: EndpointError::NoArrival { .. }, .. }), "{late}");
        }
    });
}

#[test]
fn wait_timed_out_leaves_transfer() {
    let mut net = endpoints_with_delay(Nanos::from_millis(9), true);
    let region = net.region(1, TARGET, 1000);
    let ticket = net.send(0, SOURCE, &region.remote, 0, 1000);
    let began = net.network.now();
    let late = net.end(0).wait(ticket, Duration::from_millis(3)).unwrap_err();
    assert!(matches!(late, Error { kind: EndpointError::TimedOut { .. }, .. }), "{late}");
    let waited = net.network.now().saturating_sub(began);
    assert!((Nanos::from_millis(3)..Nanos::from_millis(4)).contains(&waited), "{waited:?}");
    assert_eq!(net.end(0).wait(ticket, Duration::from_secs(1)).unwrap().result, Ok(()));
}
