//! Two links in one folder, and peers that do not keep to the protocol.

use super::connection::{LENGTH, RING};
use super::*;
use fpga_card::FrameSource as _;
use fpga_firmware::wire::START_HEADER_LENGTH;
use fpga_pci::memory::{RingReader, RingWriter};
use fpga_pci::{HugePages, SharedMemory};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::unix::net::UnixStream;
use tempfile::TempDir;

const ONE: NodeId = NodeId::new(1);
const TWO: NodeId = NodeId::new(2);

/// Creates a link that accepts any process, and one that has it as a peer.
fn pair(folder: &TempDir) -> (ShmLink, ShmLink) {
    let path = |name| folder.path().join(name);
    let first = ShmLink::bind(&ShmLinkOptions::new(path("one"))).unwrap();
    let second = ShmLink::bind(&ShmLinkOptions::new(path("two")).peer(path("one"))).unwrap();
    (first, second)
}

fn frame(source: NodeId, destination: NodeId, byte: u8, length: usize) -> Vec<u8> {
    let head = [0, source.get(), destination.get()].into_iter().flat_map(u32::to_le_bytes);
    head.chain(std::iter::repeat_n(byte, length)).collect()
}

fn send(link: &mut ShmLink, frame: &[u8]) {
    link.queue(frame);
    link.flush();
}

/// Returns the next frame for `node`, after looking for what has happened on the sockets.
fn receive(link: &mut ShmLink, node: NodeId) -> Option<Vec<u8>> {
    link.look();
    link.receive(|other| other == node).map(<[u8]>::to_vec)
}

fn is_readable(link: &ShmLink) -> bool {
    let events = link.events();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&events, PollFlags::IN)], Some(&now)).unwrap() != 0
}

fn ring() -> (RingWriter, RingReader, SharedMemory) {
    let memory = SharedMemory::anonymous(LENGTH, HugePages::No).unwrap();
    (RingWriter::new(RING, memory.clone()), RingReader::new(RING, memory.clone()), memory)
}

#[test]
fn shm_link_learns_node_from_first_frame() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = pair(&folder);
    // No process has connected yet, and the first end has no peers.
    send(&mut first, &frame(ONE, TWO, 0, 20));
    assert_eq!((first.counters.flooded, first.counters.sent), (1, 0));
    let sent = frame(TWO, ONE, 1, 5000);
    send(&mut second, &sent);
    assert_eq!(receive(&mut first, ONE), Some(sent));
    let sent = frame(ONE, TWO, 2, 0);
    send(&mut first, &sent);
    assert_eq!(receive(&mut second, TWO), Some(sent));
    assert_eq!(receive(&mut second, TWO), None);
    assert_eq!((first.counters.sent, second.counters.received), (1, 1));
    assert_eq!((second.counters.flooded, second.counters.unsent), (1, 0));
}

/// Frames of a process that has ended still arrive; its successor takes its place in both directions.
#[test]
fn shm_link_peer_restart_is_reconnected() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let open = |own, peer| ShmLink::bind(&ShmLinkOptions::new(path(own)).peer(path(peer))).unwrap();
    let mut first = open("one", "two");
    let mut second = open("two", "one");
    for round in 0..3 {
        let sent = frame(TWO, ONE, round, 300);
        send(&mut second, &sent);
        drop(second);
        assert_eq!(receive(&mut first, ONE), Some(sent));
        assert_eq!(receive(&mut first, ONE), None);
        // No process listens.
        let unsent = first.counters.unsent;
        send(&mut first, &frame(ONE, TWO, 0, 300));
        assert_eq!(first.counters.unsent, unsent + 1);
        second = open("two", "one");
        let sent = frame(ONE, TWO, round, 500);
        send(&mut first, &sent);
        assert_eq!(receive(&mut second, TWO), Some(sent));
    }
}

#[test]
fn shm_link_sleeping_side_is_woken() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = pair(&folder);
    assert!(first.prepare_to_sleep() && !is_readable(&first));
    // A process that connects, then frames.
    for byte in 0..3 {
        second.queue(&frame(TWO, ONE, byte, 100));
        second.flush();
        assert!(is_readable(&first));
        assert!(first.receive(|node| node == ONE).is_some());
        // Awake: the next frame needs no system call, and is found before the next sleep.
        send(&mut second, &frame(TWO, ONE, byte, 100));
        assert!(!is_readable(&first) && !first.prepare_to_sleep());
        assert!(first.receive(|node| node == ONE).is_some());
        assert!(first.prepare_to_sleep() && !is_readable(&first));
    }
    drop(second);
    assert!(is_readable(&first));
    assert!(first.receive(|node| node == ONE).is_none());
    assert!(first.prepare_to_sleep() && !is_readable(&first));
}

#[test]
fn shm_link_process_with_other_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let mut link = ShmLink::bind(&ShmLinkOptions::new(path("one")).peer(path("two"))).unwrap();
    let mut unknown_peer = ShmLink::bind(&ShmLinkOptions::new(path("three")).peer(path("one"))).unwrap();
    send(&mut unknown_peer, &frame(TWO, ONE, 0, 20));
    assert_eq!(receive(&mut link, ONE), None);
    assert_eq!((link.counters.unknown_senders, link.counters.received), (1, 0));
}

#[test]
fn shm_link_invalid_first_message_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = pair(&folder);
    let path = folder.path().join("one");
    let hello = [&connection::HELLO[..], b"/two"].concat();
    for message in [&b""[..], b"hello", &hello, &[0; 5000]] {
        let unknown_peer = UnixStream::connect(&path).unwrap();
        std::io::Write::write_all(&mut &unknown_peer, message).unwrap();
        drop(unknown_peer);
        assert_eq!(receive(&mut first, ONE), None);
    }
    // As many silent ones as there is space for do not keep others out.
    let _silent: Vec<_> = (0..2 * MAX_CONNECTIONS)
        .map(|_| {
            let unknown_peer = UnixStream::connect(&path).unwrap();
            first.look();
            unknown_peer
        })
        .collect();
    let sent = frame(TWO, ONE, 1, 20);
    send(&mut second, &sent);
    assert_eq!(receive(&mut first, ONE), Some(sent));
}

/// A file that could become shorter would end this process.
#[test]
fn shm_link_unsealed_or_short_file_is_refused() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    for (length, seals, is_valid) in [
        (2 * LENGTH, SealFlags::SHRINK, true),
        (2 * LENGTH, SealFlags::GROW, false),
        (2 * LENGTH, SealFlags::SHRINK | SealFlags::WRITE, false),
        (LENGTH, SealFlags::SHRINK, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (mut first, _second) = pair(&folder);
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, length as u64).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        let unknown_peer = UnixStream::connect(folder.path().join("one")).unwrap();
        let files = [file.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let hello = [std::io::IoSlice::new(&connection::HELLO), std::io::IoSlice::new(b"/two")];
        rustix::net::sendmsg(&unknown_peer, &hello, &mut control, SendFlags::empty()).unwrap();
        first.look();
        assert_eq!(first.slots.iter().any(|slot| matches!(slot, Slot::Open(_))), is_valid, "{seals:?}");
    }
}

#[test]
fn shm_link_invalid_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one");
    let own = ShmLink::bind(&ShmLinkOptions::new(&path).peer(&path)).unwrap_err();
    assert!(matches!(own, LinkError::OwnPath { .. }), "{own}");
    let long = ShmLink::bind(&ShmLinkOptions::new(folder.path().join("x".repeat(108)))).unwrap_err();
    assert!(matches!(long, LinkError::LongPath { .. }), "{long}");
    let _used = ShmLink::bind(&ShmLinkOptions::new(&path)).unwrap();
    let used = ShmLink::bind(&ShmLinkOptions::new(&path)).unwrap_err();
    assert!(matches!(used, LinkError::Listen(_)), "{used}");
}

#[test]
fn shm_long_frame_of_card_stays_in_ring() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = pair(&folder);
    let sent = frame(TWO, ONE, 7, 5000);
    let is_shared = |link: &mut ShmLink| {
        link.look();
        match link.receive_shared(|node| node == ONE).unwrap() {
            ReceivedFrame::Copied(copy) => (false, copy.to_vec()),
            ReceivedFrame::Shared(frame) => {
                let mut bytes = vec![0; sent.len()];
                assert!(frame.read(0, &mut bytes) && !frame.read(1, &mut bytes));
                assert_eq!((frame.length(), frame.start()), (sent.len(), &sent[..START_HEADER_LENGTH]));
                assert_eq!(frame.into_copy(), Some(bytes.as_slice()));
                (true, bytes)
            }
        }
    };
    second.queue_parts([&sent[..60], &sent[60..5000], &sent[5000..]]);
    second.queue(&sent);
    second.flush();
    // The second one may have been damaged by a simulated network.
    assert_eq!(is_shared(&mut first), (true, sent.clone()));
    assert_eq!(is_shared(&mut first), (false, sent.clone()));
    second.queue_parts([&sent[..60], &sent[60..500], &[]]);
    second.flush();
    assert_eq!(is_shared(&mut first), (false, sent[..500].to_vec()));
    assert_eq!((first.counters.received, first.counters.malformed), (3, 0));
}

#[test]
fn shm_frame_with_changed_start_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = pair(&folder);
    let sent = frame(TWO, ONE, 7, 5000);
    second.queue_parts([&sent, &[], &[]]);
    second.flush();
    first.look();
    let Some(ReceivedFrame::Shared(frame)) = first.receive_shared(|node| node == ONE) else {
        panic!("in the ring");
    };
    // The source of the first record of the ring: 16 bytes of the record, 16 of the wrapper, then the frame.
    let Some(Slot::Open(connection)) = second.slots.first() else { panic!("connected") };
    connection.writer.memory().store_u32(4096 + 32 + 4, 9).unwrap();
    assert_eq!(frame.start(), &sent[..START_HEADER_LENGTH], "copied before");
    assert_eq!(frame.into_copy(), None);
    assert_eq!(first.counters.malformed, 1);
}

#[test]
fn shm_ring_full_record_is_refused_until_read() {
    let (mut writer, mut reader, _) = ring();
    let mut buffer = vec![0; MAX_DATAGRAM];
    // Several times around the ring, at every position of its end.
    for round in 0..20_u8 {
        let mut count = 0;
        while writer.push(&[&[round; 16], &[round; 4000]]).unwrap() {
            count += 1;
        }
        assert!(count > 900, "{count}");
        assert_eq!(reader.next(&mut buffer), Ok(None), "not published");
        assert_eq!(writer.publish(), Ok(false));
        for _ in 0..count {
            assert_eq!(reader.next(&mut buffer), Ok(Some(4016)));
            assert!(buffer[..4016].iter().all(|byte| *byte == round));
        }
        assert_eq!(reader.next(&mut buffer), Ok(None));
    }
    assert_eq!(writer.push(&[&[0; 16], &vec![0; MAX_DATAGRAM]]), Ok(false), "too long");
}

proptest! {
    #[test]
    fn shm_ring_returns_records_in_order(lengths in prop::collection::vec(0..9000_usize, 1..300)) {
        let (mut writer, mut reader, _) = ring();
        let mut buffer = vec![0; MAX_DATAGRAM];
        for chunk in lengths.chunks(7) {
            for (byte, length) in (0_u8..).zip(chunk) {
                prop_assert!(writer.push(&[&[byte; 16], &vec![byte; *length]]).unwrap());
            }
            writer.publish().unwrap();
            for (byte, length) in (0_u8..).zip(chunk) {
                prop_assert_eq!(reader.next(&mut buffer), Ok(Some(length + 16)));
                prop_assert!(buffer[..length + 16].iter().all(|found| *found == byte));
            }
            prop_assert_eq!(reader.next(&mut buffer), Ok(None));
        }
    }

    /// The peer writes anything anywhere, between the calls of this side.
    #[test]
    fn shm_link_garbage_in_ring_ends_connection_only(
        writes in prop::collection::vec((0..2_usize, prop_oneof![0..300_usize, 4096..9000_usize], any::<u32>(), prop_oneof![0..200_usize, 2000..3000_usize]), 1..40),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (mut first, mut second) = pair(&folder);
        let peer = folder.path().join("bad");
        let mut bad = Connection::open(&peer, &folder.path().join("one"), 0).unwrap();
        let memory = bad.writer.memory().clone();
        for (ring, at, value, length) in writes {
            let mut header = wrapper::header(&frame(TWO, ONE, 0, length)).unwrap().0;
            if value % 2 == 0 {
                frame::mark_intact(&mut header);
            }
            let _ = bad.writer.push(&[&header, &frame(TWO, ONE, 0, length)]);
            let _ = bad.writer.publish();
            let other = bad.reader.memory().clone();
            let memory = if ring == 0 { &memory } else { &other };
            memory.store_u32(at / 4 * 4, value).unwrap();
            let _ = receive(&mut first, ONE);
            first.prepare_to_sleep();
            send(&mut first, &frame(ONE, TWO, 0, length));
        }
        drop(bad);
        while receive(&mut first, ONE).is_some() {}
        // Another peer is not affected.
        let sent = frame(NodeId::new(3), ONE, 9, 700);
        send(&mut second, &sent);
        prop_assert_eq!(receive(&mut first, ONE), Some(sent));
    }
}
