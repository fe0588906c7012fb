//! DMA channels without faults: every channel, every size, order, refusals, futures.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::panic, reason = "a panic is the failure report")]

use fpga_tests::causes::Lower as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use fpga_driver::{
    CardAddr, ChannelError, ChannelOptions, Completion, Direction, Error, H2cChannel, ResourceError,
    SubmitError, WaitMode, WaitOptions, bulk,
};
use fpga_pci::{DmaAccess, HugePages, SharedMemory};
use fpga_ring::ring::RefusalReason;
use fpga_sim::SimNetwork;
use fpga_tests::bytes;
use fpga_tests::cards::{assert_closed, assert_pool, network, open, peek, poke, with_channels};

/// Number of allocations for descriptors and write-back of one channel.
const AREAS: usize = 1;

/// Polls and lets the card work until `count` transfers have ended.
fn finish(network: &SimNetwork, channel: &mut H2cChannel, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    for _ in 0..1_000_000 {
        channel.poll().unwrap();
        done.extend(std::iter::from_fn(|| channel.next_completion()));
        if done.len() >= count {
            return done;
        }
        network.step();
    }
    panic!("{} of {count} transfers ended", done.len());
}

#[test]
fn channels_every_channel_of_every_card_transfers() {
    for (h2c, c2h) in (1..=4).flat_map(|h2c| (1..=4).map(move |c2h| (h2c, c2h))) {
        let network = network(with_channels(h2c, c2h));
        let card = open(&network);
        assert_eq!((card.info().xdma.h2c_channels, card.info().xdma.c2h_channels), (h2c, c2h));
        card.enable_interrupts().unwrap();
        let by_interrupt = WaitOptions::default().mode(WaitMode::Interrupt);
        for number in 0..h2c {
            let data = bytes(number.into(), 10_001);
            let at = CardAddr::new(0x12_3457 + 0x1_0000 * u64::from(number));
            let mut channel = card.h2c(number).unwrap();
            assert_eq!(channel.name().to_string(), format!("h2c{number}"));
            channel.write_with(card.buffer_from(&data).unwrap(), at, by_interrupt).unwrap();
            assert_eq!(peek(&network, 0, at, data.len()), data, "{h2c}+{c2h} h2c{number}");
        }
        for number in 0..c2h {
            let data = bytes(100 + u64::from(number), 10_001);
            let at = CardAddr::new(0x52_3459 + 0x1_0000 * u64::from(number));
            poke(&network, 0, at, &data);
            let mut channel = card.c2h(number).unwrap();
            assert_eq!(channel.name().to_string(), format!("c2h{number}"));
            let buffer = channel.read_with(card.buffer(data.len()).unwrap(), at, by_interrupt).unwrap();
            assert_eq!(buffer.to_vec(), data, "{h2c}+{c2h} c2h{number}");
        }
        assert!(
            matches!(card.h2c(h2c), Err(Error { kind: ResourceError::NoSuchChannel { available, .. }, .. }) if available == h2c)
        );
        assert!(
            matches!(card.c2h(c2h), Err(Error { kind: ResourceError::NoSuchChannel { available, .. }, .. }) if available == c2h)
        );
        assert_pool(&card, 0, 0);
        drop(card);
        assert_closed(&network, 0);
    }
}

#[test]
fn ring_full_submit_returns_buffer() {
    for (options, capacity) in [
        (ChannelOptions::default().descriptors(8).transfers(64), 8),
        (ChannelOptions::default().descriptors(64).transfers(4), 4),
    ] {
        let network = network(with_channels(1, 1));
        let card = open(&network);
        let mut channel = card.h2c_with(0, options).unwrap();
        for _ in 0..capacity {
            channel.submit(card.buffer(4096).unwrap(), CardAddr::ZERO).unwrap();
        }
        let refused =
            channel.submit(card.buffer_from(&[7; 4096]).unwrap(), CardAddr::new(0x5000)).unwrap_err();
        assert_eq!(refused.error.kind, SubmitError::Full { needed: 1, free: 0 });
        assert_eq!(refused.payload.to_vec(), [7; 4096], "untouched");
        assert_pool(&card, AREAS + capacity + 1, 0);
        assert_eq!(channel.in_flight() as usize, capacity);
        let done = finish(&network, &mut channel, capacity);
        assert!(done.iter().all(|done| done.outcome == Ok(4096)));
        // The same call with the same buffer succeeds now, because the ring has space.
        let ticket = channel.submit(refused.payload, CardAddr::new(0x5000)).unwrap();
        channel.wait(ticket, WaitOptions::default()).unwrap().outcome.unwrap();
        assert_eq!(peek(&network, 0, CardAddr::new(0x5000), 4096), [7; 4096]);
        drop(done);
        assert_pool(&card, AREAS, 0);
    }
}

#[test]
fn submit_contiguous_memory_uses_one_descriptor() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let count = || card.counters().unwrap().descriptors;
    let mut h2c = card.h2c(0).unwrap();
    let before = count();
    h2c.write(card.buffer(1 << 20).unwrap(), CardAddr::new(3)).unwrap();
    assert_eq!(count() - before, 1, "1 MiB in one allocation");
    drop(h2c);
    // The safe setting for IP builds with the long-descriptor quirk: one page per descriptor.
    let mut h2c = card.h2c_with(0, ChannelOptions::default().max_descriptor_length(4096)).unwrap();
    let before = count();
    h2c.write(card.memory().allocate_aligned(1 << 20, 4096).unwrap(), CardAddr::new(3)).unwrap();
    assert_eq!(count() - before, 256);
    let mut c2h = card.c2h(0).unwrap();
    let before = count();
    c2h.read(card.buffer(3 << 20).unwrap(), CardAddr::new(77)).unwrap();
    assert_eq!(count() - before, 1, "3 MiB in one allocation");
}

#[test]
fn submit_empty_buffer_completes_without_card() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let mut channel = card.h2c(0).unwrap();
    let mut buffer = card.buffer(64).unwrap();
    buffer.set_len(0).unwrap();
    let before = card.counters();
    let buffer = channel.write(buffer, CardAddr::ZERO).unwrap();
    assert_eq!(card.counters(), before, "no register access");
    let refused = channel.submit(buffer, CardAddr::ZERO).unwrap_err();
    assert!(matches!(refused.error.kind.lower(), Some(RefusalReason::Empty)));
    assert_eq!(channel.in_flight(), 0);
    assert_eq!(card.counters(), before);
    let mut c2h = card.c2h(0).unwrap();
    let before = card.counters();
    c2h.read(refused.payload, CardAddr::ZERO).unwrap();
    assert_eq!(card.counters(), before);
    assert_pool(&card, 2 * AREAS, 0);
}

#[test]
fn ticket_is_accepted_once() {
    let network = network(with_channels(2, 1));
    let card = open(&network);
    let mut channel = card.h2c(0).unwrap();
    let tickets: Vec<_> =
        (0..4).map(|_| channel.submit(card.buffer(100).unwrap(), CardAddr::ZERO).unwrap()).collect();
    // Out of order: completions of the others stay.
    for ticket in [tickets[2], tickets[0], tickets[3], tickets[1]] {
        let done = channel.wait(ticket, WaitOptions::default()).unwrap();
        assert_eq!((done.ticket, done.outcome), (ticket, Ok(100)));
        assert!(done.buffer.is_some());
        let again = channel.wait(ticket, WaitOptions::default());
        assert!(matches!(again, Err(Error { kind: ChannelError::UnknownTicket, .. })), "{again:?}");
    }
    assert!(channel.next_completion().is_none());
    // A ticket of another channel, with a number that this channel has not reached.
    let mut other = card.h2c(1).unwrap();
    assert!(matches!(
        other.wait(tickets[3], WaitOptions::default()),
        Err(Error { kind: ChannelError::UnknownTicket, .. })
    ));
    assert_pool(&card, 2 * AREAS, 0);
}

/// Drives a future to completion: channels request the next poll by themselves.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("the future does not complete");
}

#[test]
fn completion_future_resolves() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let mut writer = card.h2c(0).unwrap();
    let mut reader = card.c2h(0).unwrap();
    let data = bytes(9, 200_000);
    let read_back = block_on(async {
        let ticket = writer.submit(card.buffer_from(&data).unwrap(), CardAddr::new(5)).unwrap();
        let done = writer.completion(ticket).await.unwrap();
        assert_eq!(done.outcome, Ok(200_000));
        let ticket = reader.submit(done.buffer.unwrap(), CardAddr::new(5)).unwrap();
        reader.completion(ticket).await.unwrap().buffer.unwrap()
    });
    assert!(read_back.to_vec() == data);
    let ticket = writer.submit(read_back, CardAddr::ZERO).unwrap();
    block_on(writer.completion(ticket)).unwrap();
    assert!(matches!(
        block_on(writer.completion(ticket)),
        Err(Error { kind: ChannelError::UnknownTicket, .. })
    ));
}

#[test]
fn completion_future_dropped_leaves_transfer_in_flight() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let mut channel = card.h2c(0).unwrap();
    let data = bytes(3, 1 << 20);
    let ticket = channel.submit(card.buffer_from(&data).unwrap(), CardAddr::ZERO).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut future = pin!(channel.completion(ticket));
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(channel.in_flight(), 1);
    assert_pool(&card, AREAS + 1, 0);
    let done = finish(&network, &mut channel, 1).pop().unwrap();
    assert_eq!((done.ticket, done.outcome), (ticket, Ok(1 << 20)));
    assert!(peek(&network, 0, CardAddr::ZERO, 1 << 20) == data);
    drop(done.buffer);
    assert_pool(&card, AREAS, 0);
    // Dropping a future that was never polled has no effect.
    let ticket = channel.submit(card.buffer(64).unwrap(), CardAddr::ZERO).unwrap();
    drop(channel.completion(ticket));
    assert_eq!(finish(&network, &mut channel, 1).pop().unwrap().ticket, ticket);
}

#[test]
fn channels_share_scarce_vectors() {
    for vectors in [1, 3, 7] {
        let mut file = with_channels(4, 4);
        file.interrupts.msix_vectors = vectors;
        let network = network(file);
        let card = open(&network);
        let granted = card.enable_interrupts().unwrap();
        assert_eq!((granted.vectors, granted.channels), (vectors.into(), 8));
        assert!(granted.is_shared());
        assert_eq!(card.enable_interrupts().unwrap(), granted, "a second call has no effect");
        let by_interrupt = WaitOptions::default().mode(WaitMode::Interrupt);
        // Each channel waits while another's interrupt is in the vector that both share.
        let mut channels: Vec<_> = (0..4).map(|number| card.h2c(number).unwrap()).collect();
        let mut submit = |channel: &mut H2cChannel| {
            let buffer = card.buffer(4096).unwrap();
            channel.submit(buffer, CardAddr::ZERO).unwrap()
        };
        for _ in 0..5 {
            let tickets: Vec<_> = channels.iter_mut().map(&mut submit).collect();
            for (channel, ticket) in channels.iter_mut().zip(tickets).rev() {
                assert_eq!(channel.wait(ticket, by_interrupt).unwrap().outcome, Ok(4096));
            }
        }
    }
}

#[test]
fn submit_buffer_with_wrong_access_is_refused() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let (mut h2c, mut c2h) = (card.h2c(0).unwrap(), card.c2h(0).unwrap());
    let area = |access| {
        let memory = SharedMemory::anonymous(4096, HugePages::No).unwrap();
        card.map_memory(memory, access).unwrap()
    };
    let (read_only, write_only) = (DmaAccess::ReadByDevice, DmaAccess::WriteByDevice);
    let refused = c2h.register_memory(area(read_only)).unwrap_err();
    assert!(matches!(refused.error.kind, SubmitError::NoAccess { access: DmaAccess::ReadByDevice, .. }));
    assert!(refused.error.to_string().contains("needs WriteByDevice"), "{}", refused.error);
    let refused = h2c.register_memory(area(write_only)).unwrap_err();
    assert!(matches!(refused.error.kind, SubmitError::NoAccess { access: DmaAccess::WriteByDevice, .. }));
    let source = h2c.register_memory(area(read_only)).unwrap();
    let ticket = h2c.submit_at(source, 0, 4096, CardAddr::ZERO).unwrap();
    h2c.wait_ended(ticket, WaitOptions::default()).unwrap();
    assert!(
        c2h.register_memory(area(write_only)).is_ok() && c2h.register_memory(area(DmaAccess::Both)).is_ok()
    );

    let (to_card, from_card) = (Direction::H2c, Direction::C2h);
    let refused = c2h.submit(card.buffer_for(to_card, 64).unwrap(), CardAddr::ZERO).unwrap_err();
    assert!(matches!(refused.error.kind, SubmitError::NoAccess { .. }));
    let refused = h2c.submit(card.buffer_for(from_card, 64).unwrap(), CardAddr::ZERO).unwrap_err();
    assert!(matches!(refused.error.kind, SubmitError::NoAccess { .. }));
    let mut source = card.buffer_for(to_card, 64).unwrap();
    source.fill(0x5A);
    h2c.write(source, CardAddr::ZERO).unwrap();
    let back = c2h.read(card.buffer_for(from_card, 64).unwrap(), CardAddr::ZERO).unwrap();
    assert_eq!(back.to_vec(), [0x5A; 64]);
}

/// A channel whose direction is known at run time copies in it, and refuses copies in the other one before anything moves.
#[test]
fn channel_of_any_direction_refuses_copies_of_the_other() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let wait = WaitOptions::default();
    let data = bytes(3, 5000);
    let mut h2c = card.channel(Direction::H2c, 0, ChannelOptions::default()).unwrap();
    let mut c2h = card.c2h(0).unwrap().into_any();
    bulk::write_from(&card, &mut h2c, &mut &data[..], CardAddr::ZERO, 5000, wait, &mut |_| ()).unwrap();
    let mut copy = Vec::new();
    bulk::read_into(&card, &mut c2h, CardAddr::ZERO, 5000, &mut copy, wait, &mut |_| ()).unwrap();
    assert!(copy == data);
    let other = bytes(4, 5000);
    let write = bulk::write_from(&card, &mut c2h, &mut &other[..], CardAddr::ZERO, 5000, wait, &mut |_| ());
    let mut nothing = Vec::new();
    let read = bulk::read_into(&card, &mut h2c, CardAddr::ZERO, 5000, &mut nothing, wait, &mut |_| ());
    for (refused, found, text) in
        [(write, Direction::C2h, "mock:0 c2h0"), (read, Direction::H2c, "mock:0 h2c0")]
    {
        let error = refused.unwrap_err();
        assert!(
            matches!(&error.kind, bulk::BulkError::Submit(SubmitError::Direction { found: at, .. }) if *at == found),
            "{error}"
        );
        assert!(error.to_string().starts_with(text), "{error}");
        assert!(error.advice().is_some(), "{error}");
    }
    assert!(nothing.is_empty() && peek(&network, 0, CardAddr::ZERO, 5000) == data);
}
