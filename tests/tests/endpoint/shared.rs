//! Endpoints that threads and tasks share.

use fpga_driver::Error;
use std::collections::HashSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use fpga_rdma::{Notification, PendingSend, SendCompletion, SharedEndpoint};
use fpga_sim::{SimNetwork, ThreadOptions};
use fpga_tests::cards::{peek, poke};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(60);

fn is_shared<T: Send + Sync + Clone>(_: &T) {}
fn is_sent<T: Send>(_: &T) {}

fn endpoints(network: &SimNetwork, count: usize) -> Vec<SharedEndpoint> {
    (0..count)
        .map(|number| {
            let card = Card::from_backend(network.backend(number)).unwrap();
            Endpoint::open_with(&card, &options(0x20 + number as u32)).unwrap().into()
        })
        .collect()
}

/// Polls the tasks in turn until all have ended: a minimal executor.
fn run<T>(tasks: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let mut context = Context::from_waker(Waker::noop());
    let (mut tasks, mut results): (Vec<_>, Vec<_>) = (tasks.into_iter().enumerate().collect(), Vec::new());
    while !tasks.is_empty() {
        tasks.retain_mut(|(number, task)| match task.as_mut().poll(&mut context) {
            Poll::Ready(result) => {
                results.push((*number, result));
                false
            }
            Poll::Pending => true,
        });
    }
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Several threads per node send to all nodes and wait for their own transfers; other threads share the arrivals.
#[test]
fn shared_endpoint_many_threads_on_three_nodes() {
    const NODES: usize = 3;
    const THREADS: usize = 3;
    const TRANSFERS: usize = 12;
    let order = DeliveryOrder::Random { seed: 4, depth: 16 };
    let network = order.network().cards(NODES as u32).threaded(ThreadOptions::default());
    let network = network.build().unwrap();
    let ends = endpoints(&network, NODES);
    is_shared(&ends[0]);
    let regions: Vec<_> = ends
        .iter()
        .map(|end| end.open_region(NodeId::ANY, CardRange::new(TARGET, 64 << 20)).unwrap().remote)
        .collect();
    // Each transfer has its own place, at the same offset at both ends.
    let place =
        |from: usize, thread: usize, n: usize| ((from * THREADS + thread) * TRANSFERS + n) as u64 * 0x8000;
    let length = |thread: usize, n: usize| 1 + (thread * 7919 + n * 2791) % 0x7000;
    let data = |from, thread, n| bytes(place(from, thread, n), length(thread, n));
    for from in 0..NODES {
        for thread in 0..THREADS {
            for n in 0..TRANSFERS {
                poke(&network, from, at(SOURCE, place(from, thread, n)), &data(from, thread, n));
            }
        }
    }
    let per_node = THREADS * TRANSFERS;
    let arrivals: Vec<Vec<Notification>> = std::thread::scope(|scope| {
        for (from, end) in ends.iter().enumerate() {
            for thread in 0..THREADS {
                let (end, regions) = (end.clone(), &regions);
                scope.spawn(move || {
                    for n in 0..TRANSFERS {
                        let to = &regions[(from + n) % NODES];
                        let place = place(from, thread, n);
                        let options = SendOptions::default();
                        let mut sent = end
                            .send(at(SOURCE, place), to, place, length(thread, n) as u64, options)
                            .unwrap();
                        let done = sent.wait(TIMEOUT).unwrap();
                        assert_eq!((done.ticket, done.result), (sent.ticket(), Ok(())));
                    }
                });
            }
        }
        // Two listeners per node: each arrival goes to one of them.
        let listeners: Vec<_> = ends
            .iter()
            .flat_map(|end| [end, end])
            .map(|end| {
                let end = end.clone();
                scope.spawn(move || {
                    (0..per_node / 2).map(|_| end.wait_notification(TIMEOUT).unwrap()).collect()
                })
            })
            .collect();
        listeners.into_iter().map(|listener| listener.join().unwrap()).collect()
    });
    for to in 0..NODES {
        let heard: HashSet<_> =
            arrivals[2 * to..2 * to + 2].iter().flatten().map(|notice| notice.address).collect();
        let mut expected = HashSet::new();
        for from in 0..NODES {
            for (thread, n) in (0..THREADS).flat_map(|thread| (0..TRANSFERS).map(move |n| (thread, n))) {
                if (from + n) % NODES == to {
                    let place = at(TARGET, place(from, thread, n));
                    expected.insert(place);
                    let data = data(from, thread, n);
                    assert!(peek(&network, to, place, data.len()) == data, "{from} to {to}: {thread}, {n}");
                }
            }
        }
        assert_eq!(heard, expected);
        assert_eq!(ends[to].counters().sender.completed, per_node as u64);
        assert_eq!(ends[to].next_notification(), None);
    }
}

#[test]
fn shared_endpoint_tasks_on_one_thread() {
    let network = random(2).network().cards(2).build().unwrap();
    let ends = endpoints(&network, 2);
    let region = ends[1].open_region(ends[0].node(), CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    poke(&network, 0, SOURCE, &bytes(1, 1 << 20));
    let send = |n: u64| {
        let (end, region) = (&ends[0], &region);
        let task = async move {
            let place = n * 0x1_0000;
            let sent = end.send(at(SOURCE, place), region, place, 0x1_0000, SendOptions::default()).unwrap();
            is_sent(&sent);
            let ticket = sent.ticket();
            let done = sent.await.unwrap();
            assert_eq!((done.ticket, done.result), (ticket, Ok(())));
            0_u64
        };
        Box::pin(task) as Pin<Box<dyn Future<Output = u64>>>
    };
    let hear = || {
        let end = &ends[1];
        let task = async move { end.notification().await.unwrap().address.get() - TARGET.get() };
        Box::pin(task) as Pin<Box<dyn Future<Output = u64>>>
    };
    let results = run((0..16).map(send).chain((0..16).map(|_| hear())).collect());
    let heard: HashSet<_> = results[16..].iter().copied().collect();
    assert_eq!(heard, (0..16).map(|n| n * 0x1_0000).collect());
    assert!(peek(&network, 1, TARGET, 1 << 20) == bytes(1, 1 << 20));
}

/// An endpoint with a single owner task.
#[test]
fn endpoint_completion_future_of_single_owner() {
    let mut net = Testbed::new(random(5));
    let region = net.region(1, TARGET, 50_000).remote;
    net.put(0, SOURCE, &bytes(3, 50_000));
    let ticket = net.send(0, SOURCE, &region, 0, 50_000);
    {
        let mut done = pin!(net.end(0).completion(ticket));
        is_sent(&done);
        // The future is polled once and dropped: the transfer continues.
        assert!(done.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let end = net.end(0);
    let task: Pin<Box<dyn Future<Output = Result<SendCompletion, Error<EndpointError>>> + '_>> =
        Box::pin(end.completion(ticket));
    let done = run(vec![task]).remove(0).unwrap();
    assert_eq!((done.ticket, done.result), (ticket, Ok(())));
    assert!(net.get(1, TARGET, 50_000) == bytes(3, 50_000));
}

#[test]
fn shared_endpoint_dropped_handles_and_cancelled_transfers() {
    let network = random(1).network().cards(2).build().unwrap();
    let ends = endpoints(&network, 2);
    let region = ends[1].open_region(NodeId::ANY, CardRange::new(TARGET, 4 << 20)).unwrap().remote;
    poke(&network, 0, SOURCE, &bytes(1, 4 << 20));
    let send = |n: u64| -> PendingSend {
        ends[0].send(at(SOURCE, n), &region, n, 100_000, SendOptions::default()).unwrap()
    };
    // A transfer whose handle is dropped still arrives.
    drop(send(0));
    assert!(ends[1].inspect(Endpoint::is_idle));
    let notice = loop {
        ends[0].poll().unwrap();
        match ends[1].wait_notification(Duration::from_micros(100)) {
            Ok(notice) => break notice,
            Err(error) => assert!(matches!(error.kind, EndpointError::NoArrival { .. }), "{error}"),
        }
    };
    assert_eq!((notice.address, notice.length), (TARGET, 100_000));
    // A cancelled transfer reports it once; the others are not affected.
    let (mut first, mut gone, mut last) = (send(0), send(200_000), send(400_000));
    assert!(matches!(gone.try_take(), Ok(None)));
    assert!(gone.cancel());
    assert!(!gone.cancel());
    let result = gone.wait(TIMEOUT).unwrap().result;
    assert!(matches!(result, Err(SendFailure::Cancelled { .. })), "{result:?}");
    // A wait that is too short has no other effect.
    let late = last.wait(Duration::ZERO).unwrap_err();
    assert!(matches!(late, Error { kind: EndpointError::TimedOut { .. }, .. }), "{late}");
    for pending in [&mut first, &mut last] {
        assert_eq!(pending.wait(TIMEOUT).unwrap().result, Ok(()));
    }
    assert!(peek(&network, 1, at(TARGET, 400_000), 100_000) == bytes(1, 4 << 20)[400_000..500_000]);
    assert_eq!(ends[0].counters().sender.completed, 3);
    assert_eq!(ends[0].counters().sender.failed, 1);
}

/// Each waiting thread gets the error when an endpoint fails; earlier completions are still returned.
#[test]
fn shared_endpoint_failure_reaches_every_waiter() {
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let ends = endpoints(&network, 2);
    let region = ends[1].open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    let mut ended = ends[0].send(SOURCE, &region, 0, 100, SendOptions::default()).unwrap();
    while ends[0].counters().sender.completed == 0 {
        ends[0].poll().unwrap();
        network.step();
    }
    let mut waiting: Vec<_> =
        (0..3).map(|_| ends[0].send(SOURCE, &region, 0, 50_000, SendOptions::default()).unwrap()).collect();
    network.fail(0, CardFailure::Gone);
    std::thread::scope(|scope| {
        for pending in &mut waiting {
            scope.spawn(|| {
                let error = pending.wait(TIMEOUT).unwrap_err();
                assert!(!matches!(error.kind, EndpointError::TimedOut { .. }), "{error}");
            });
        }
    });
    assert_eq!(ended.try_take().unwrap().expect("the operation has ended").result, Ok(()));
}
