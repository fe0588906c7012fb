//! Waits of frame streams.

use std::net::{SocketAddr, TcpListener};

use fpga_driver::Card;
use fpga_frames::{Publisher, PublisherOptions, Subscriber, SubscriberOptions};
use fpga_rdma::{Endpoint, EndpointOptions};
use fpga_sim::CardFailure;

use super::endpoints::endpoint;
use super::{CANCELLABLE, NEVER, Scene, UNLIMITED, Wait, block_on, one, wait};

pub(super) const WAITS: &[Wait] = &[
    wait("subscriber join", CANCELLABLE, |scene, limits| {
        let listener = TcpListener::bind(local()).unwrap();
        let mut end = Some(endpoint(scene, limits));
        let mut options = SubscriberOptions::default();
        options.patience = limits.timeout;
        one(move || {
            let address = listener.local_addr().unwrap();
            Subscriber::join(end.take().unwrap(), address, options.clone())
        })
    }),
    wait("subscriber wait", CANCELLABLE, |scene, limits| {
        let (mut subscriber, publisher) = joined(endpoint(scene, limits), peer(scene));
        one(move || {
            let _ = &publisher;
            subscriber.wait(limits.timeout)
        })
    }),
    wait("subscriber event (future)", UNLIMITED, |scene, limits| {
        let (mut subscriber, publisher) = joined(endpoint(scene, limits), peer(scene));
        one(move || {
            let _ = &publisher;
            block_on(subscriber.event())
        })
    }),
    wait("subscriber leave", CANCELLABLE, |scene, limits| {
        let (subscriber, publisher) = joined(endpoint(scene, limits), peer(scene));
        scene.network.fail(1, CardFailure::Gone);
        let mut subscriber = Some(subscriber);
        one(move || {
            let _ = &publisher;
            subscriber.take().unwrap().leave(limits.timeout)
        })
    }),
    wait("publisher close", CANCELLABLE, |scene, limits| {
        let (subscriber, publisher) = joined(peer(scene), endpoint(scene, limits));
        // The notification of the end does not arrive.
        scene.network.fail(1, CardFailure::Gone);
        let mut publisher = Some(publisher);
        one(move || {
            let _ = &subscriber;
            publisher.take().unwrap().close(limits.timeout)
        })
    }),
];

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Endpoint of card 1.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn peer(scene: &Scene) -> Endpoint {
    let card = Card::from_backend(scene.network.backend(1)).unwrap();
    let mut options = EndpointOptions::default();
    options.give_up = NEVER;
    Endpoint::open_with(&card, &options).unwrap()
}

/// A subscriber that has joined. Virtual time makes neither side late.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn joined(subscribing: Endpoint, publishing: Endpoint) -> (Subscriber, Publisher) {
    let mut options = PublisherOptions::default();
    (options.max_silence, options.max_data_length) = (NEVER, 4096);
    let mut publisher = Publisher::new(publishing, options).unwrap();
    let address = publisher.listen(local()).unwrap();
    let mut options = SubscriberOptions::default();
    options.max_silence = NEVER;
    let mut joining = Subscriber::begin_join(subscribing, address, options).unwrap();
    loop {
        publisher.poll().unwrap();
        if let Some(subscriber) = joining.poll().unwrap() {
            // Until the publisher knows of it.
            while publisher.subscribers().next().is_none() {
                publisher.poll().unwrap();
                publisher.relax();
            }
            return (subscriber, publisher);
        }
        joining.relax();
        publisher.relax();
    }
}
