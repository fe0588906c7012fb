//! Waits of endpoints: with an owner, and shared by threads.

use fpga_driver::{CardAddr, Error, NodeId};
use fpga_pci::Backoff;
use fpga_rdma::{
    Endpoint, EndpointError, EndpointOptions, PendingRead, PendingSend, ReadTicket, RemoteReadable,
    RemoteRegion, SendOptions, SendTicket, SharedEndpoint,
};

use super::{CANCELLABLE, End, Limits, NEVER, Scene, UNLIMITED, Wait, block_on, call, one, wait};

/// A node that does not exist.
const NOBODY: NodeId = NodeId::new(77);

pub(super) const WAITS: &[Wait] = &[
    wait("endpoint wait", CANCELLABLE, |scene, limits| {
        let (mut end, ticket) = sending(scene, limits);
        one(move || end.wait(ticket, limits.timeout))
    }),
    wait("endpoint completion (future)", UNLIMITED, |scene, limits| {
        let (mut end, ticket) = sending(scene, limits);
        one(move || block_on(end.completion(ticket)))
    }),
    wait("endpoint wait_read", CANCELLABLE, |scene, limits| {
        let (mut end, ticket) = reading(scene, limits);
        one(move || end.wait_read(ticket, limits.timeout))
    }),
    wait("endpoint wait_notification", CANCELLABLE, |scene, limits| {
        let mut end = endpoint(scene, limits);
        one(move || end.wait_notification(limits.timeout))
    }),
    wait("endpoint wait_peer", CANCELLABLE, |scene, limits| {
        let mut end = endpoint(scene, limits);
        one(move || end.wait_peer(NOBODY, limits.timeout))
    }),
    Wait {
        real_time: true,
        ..wait("endpoint write", WRITE, |scene, limits| {
            let (card, mut end) = (scene.card.clone(), endpoint(scene, limits));
            scene.inject(STALLS);
            one(move || end.write(card.buffer(64).unwrap(), CardAddr::ZERO))
        })
    },
    wait("shared wait_notification", CANCELLABLE, |scene, limits| {
        let end = shared(scene, limits);
        [end.clone(), end].map(|end| call(move || end.wait_notification(limits.timeout))).into()
    }),
    wait("shared wait_peer", CANCELLABLE, |scene, limits| {
        let end = shared(scene, limits);
        [end.clone(), end].map(|end| call(move || end.wait_peer(NOBODY, limits.timeout))).into()
    }),
    wait("shared notification (future)", UNLIMITED, |scene, limits| {
        let end = shared(scene, limits);
        [end.clone(), end].map(|end| call(move || block_on(end.notification()))).into()
    }),
    wait("shared send", CANCELLABLE, |scene, limits| {
        let end = shared(scene, limits);
        [send(&end), send(&end)].map(|mut sent| call(move || sent.wait(limits.timeout))).into()
    }),
    wait("shared send (future)", UNLIMITED, |scene, limits| {
        let end = shared(scene, limits);
        [send(&end), send(&end)].map(|mut sent| call(move || block_on(&mut sent))).into()
    }),
    wait("shared send try_take (loop)", UNLIMITED, |scene, limits| {
        let end = shared(scene, limits);
        let mut sent = send(&end);
        one(move || {
            while sent.try_take()?.is_none() {
                end.card().back_off(&mut Backoff::new());
            }
            Ok::<_, Error<EndpointError>>(())
        })
    }),
    wait("shared read", CANCELLABLE, |scene, limits| {
        let end = shared(scene, limits);
        [read(&end, 0), read(&end, 64)].map(|mut read| call(move || read.wait(limits.timeout))).into()
    }),
    wait("shared read (future)", UNLIMITED, |scene, limits| {
        let end = shared(scene, limits);
        [read(&end, 0), read(&end, 64)].map(|mut read| call(move || block_on(&mut read))).into()
    }),
    // A sleeper and a thread that it wakes.
    wait("shared send beside wait_notification", CANCELLABLE, |scene, limits| {
        let end = shared(scene, limits);
        let mut sent = send(&end);
        vec![call(move || end.wait_notification(limits.timeout)), call(move || sent.wait(limits.timeout))]
    }),
];

/// Any of the channels may be the endpoint's.
const STALLS: &str = "{fault: stall, channel: h2c0}, {fault: stall, channel: h2c1}, {fault: stall, channel: h2c2}, {fault: stall, channel: h2c3}";
/// The channel's time limit is fixed.
const WRITE: &[End] = &[End::Removal, End::AllOnes, End::ServerEnds, End::Flag];

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
pub(super) fn endpoint(scene: &Scene, limits: Limits) -> Endpoint {
    let mut options = EndpointOptions::default();
    options.give_up = NEVER;
    let mut end = Endpoint::open_with(&scene.card, &options).unwrap();
    end.set_cancellation(Some(limits.cancellation()));
    end
}

fn shared(scene: &Scene, limits: Limits) -> SharedEndpoint {
    endpoint(scene, limits).into()
}

fn region() -> RemoteRegion {
    RemoteRegion { node: NOBODY, address: CardAddr::new(0x20000), length: 64, key: 5 }
}

fn readable() -> RemoteReadable {
    RemoteReadable { node: NOBODY, length: 64, mailbox: region() }
}

fn patient() -> SendOptions {
    let mut options = SendOptions::default();
    options.deadline = Some(NEVER);
    options
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn sending(scene: &Scene, limits: Limits) -> (Endpoint, SendTicket) {
    let mut end = endpoint(scene, limits);
    let ticket = end.send(CardAddr::new(0x10000), &region(), 0, 64, SendOptions::default()).unwrap();
    (end, ticket)
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn reading(scene: &Scene, limits: Limits) -> (Endpoint, ReadTicket) {
    let mut end = endpoint(scene, limits);
    let ticket = end.read(&readable(), 0, CardAddr::new(0x10000), 64, patient()).unwrap();
    (end, ticket)
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn send(end: &SharedEndpoint) -> PendingSend {
    end.send(CardAddr::new(0x10000), &region(), 0, 64, SendOptions::default()).unwrap()
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn read(end: &SharedEndpoint, offset: u64) -> PendingRead {
    end.read(&readable(), 0, CardAddr::new(0x10000 + offset), 64, patient()).unwrap()
}
