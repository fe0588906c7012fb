//! Whole messages or typed errors, and no leaked file descriptor.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::event::EventfdFlags;

use super::*;
use crate::wire::{Command, Kind, MAX_MESSAGE, Request};

const SHORT_TIMEOUT: Duration = Duration::from_millis(20);
const LONG_TIMEOUT: Duration = Duration::from_secs(120);

/// Creates a pipe to trace a descriptor: the write end stays open while any copy of it exists; its read end shows this.
fn tracer() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)
        .expect("a pipe")
}

/// Returns whether every copy of the pipe's write end has been closed.
fn all_closed(read_end: &OwnedFd) -> bool {
    matches!(rustix::io::read(read_end, &mut [0_u8; 1][..]), Ok(0))
}

fn header(size: usize) -> [u8; HEADER_LENGTH] {
    let size = u32::try_from(size).expect("a small message");
    Header { id: 7, command: Command::REGION_READ, size, kind: Kind::Request { no_reply: false } }.encode()
}

fn message(length: usize) -> Vec<u8> {
    let mut message = header(HEADER_LENGTH + length).to_vec();
    message.extend((0..length).map(|byte| byte.to_le_bytes()[0]));
    message
}

#[test]
fn socket_messages_arrive_whole_and_separate() {
    let (here, there) = Connection::pair().expect("a socket pair");
    let (first, second) = (message(5), message(300));
    there.send(&[first.clone(), second.clone()].concat(), &[], LONG_TIMEOUT).expect("sent");
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    let got = here.receive(&mut body, &mut fds, LONG_TIMEOUT).expect("the first message");
    assert_eq!((got.body_length(), &body[..]), (5, &first[HEADER_LENGTH..]));
    here.receive(&mut body, &mut fds, LONG_TIMEOUT).expect("the second message");
    assert_eq!(&body[..], &second[HEADER_LENGTH..]);
    assert!(fds.is_empty());
    assert_eq!(here.is_readable(), Ok(false));
}

#[test]
fn socket_message_larger_than_buffer_is_completed() {
    let (here, there) = Connection::pair().expect("a socket pair");
    let sent = message(1 << 20);
    let copy = sent.clone();
    let sender = std::thread::spawn(move || there.send(&copy, &[], LONG_TIMEOUT));
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    here.receive(&mut body, &mut fds, LONG_TIMEOUT).expect("a large message");
    assert_eq!(sender.join().expect("no panic"), Ok(()));
    assert!(body == sent[HEADER_LENGTH..]);
}

#[test]
fn socket_descriptors_arrive_with_message() {
    let (here, there) = Connection::pair().expect("a socket pair");
    let event = rustix::event::eventfd(3, EventfdFlags::CLOEXEC).expect("an eventfd");
    there.send(&message(1), &[], LONG_TIMEOUT).expect("sent");
    there.send(&message(2), &[event.as_fd(), event.as_fd()], LONG_TIMEOUT).expect("sent");
    there.send(&message(3), &[], LONG_TIMEOUT).expect("sent");
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    for (length, count) in [(1, 0), (2, 2), (3, 0)] {
        here.receive(&mut body, &mut fds, LONG_TIMEOUT).expect("a message");
        assert_eq!((body.len(), fds.len()), (length, count));
        for fd in &fds {
            let flags = rustix::io::fcntl_getfd(fd).expect("an open descriptor");
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "{}", fd.as_raw_fd());
        }
    }
}

#[test]
fn socket_silent_peer_times_out_at_deadline() {
    let (here, there) = Connection::pair().expect("a socket pair");
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    let late = Err(SocketError::TimedOut { after: SHORT_TIMEOUT });
    assert_eq!(here.receive(&mut body, &mut fds, SHORT_TIMEOUT), late);
    // A header without its body counts as silence, and its descriptors are closed.
    let (read_end, write_end) = tracer();
    there.send(&header(40), &[write_end.as_fd()], LONG_TIMEOUT).expect("sent");
    drop(write_end);
    assert_eq!(here.receive(&mut body, &mut fds, SHORT_TIMEOUT), late);
    assert!(all_closed(&read_end) && fds.is_empty() && body.is_empty());
    // The peer does not receive.
    let large = message(1 << 20);
    let sent = (0..64).find_map(|_| there.send(&large, &[], SHORT_TIMEOUT).err());
    assert_eq!(sent, Some(SocketError::Incomplete { after: SHORT_TIMEOUT }));
    assert_eq!(
        there.send(&header(16), &[], SHORT_TIMEOUT),
        Err(SocketError::TimedOut { after: SHORT_TIMEOUT })
    );
}

#[test]
fn socket_close_between_and_within_message_differ() {
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    let whole = message(24);
    for cut in 0..whole.len() {
        let (here, there) = Connection::pair().expect("a socket pair");
        there.send(&whole[..cut], &[], LONG_TIMEOUT).expect("sent");
        drop(there);
        let expected = match cut {
            0 => SocketError::Closed,
            1..HEADER_LENGTH => SocketError::ClosedWithin { got: cut, expected: HEADER_LENGTH },
            _ => SocketError::ClosedWithin { got: cut - HEADER_LENGTH, expected: 24 },
        };
        assert_eq!(here.receive(&mut body, &mut fds, LONG_TIMEOUT), Err(expected));
        assert_eq!(here.send(&whole, &[], LONG_TIMEOUT), Err(SocketError::Closed));
    }
}

#[test]
fn socket_descriptors_of_bad_message_are_closed() {
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    for size in [3, MAX_MESSAGE as usize + 1] {
        let (here, there) = Connection::pair().expect("a socket pair");
        let (read_end, write_end) = tracer();
        there.send(&header(size), &[write_end.as_fd()], LONG_TIMEOUT).expect("sent");
        drop(write_end);
        let refused = here.receive(&mut body, &mut fds, LONG_TIMEOUT);
        assert!(matches!(refused, Err(SocketError::Malformed(WireError::Size { .. }))), "{refused:?}");
        assert!(all_closed(&read_end));
    }
    // Too many, in several parts of one message.
    let (here, there) = Connection::pair().expect("a socket pair");
    let (read_end, write_end) = tracer();
    let many = vec![write_end.as_fd(); MAX_FDS];
    let whole = message(8);
    there.send(&whole[..20], &many, LONG_TIMEOUT).expect("sent");
    there.send(&whole[20..], &many[..1], LONG_TIMEOUT).expect("sent");
    assert_eq!(
        there.send(&whole, &vec![write_end.as_fd(); MAX_FDS + 1], LONG_TIMEOUT),
        Err(SocketError::TooManyDescriptors)
    );
    drop(write_end);
    assert_eq!(here.receive(&mut body, &mut fds, LONG_TIMEOUT), Err(SocketError::TooManyDescriptors));
    assert!(all_closed(&read_end));
}

#[test]
fn socket_each_connect_failure_has_own_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let connect = |path: &Path| Connection::connect(path, SHORT_TIMEOUT).expect_err("nothing to connect to");

    let path = at("missing");
    assert_eq!(connect(&path), ConnectError::Missing { path: path.clone() });
    std::fs::write(at("file"), b"").expect("a file");
    let path = at("file/below");
    assert_eq!(connect(&path), ConnectError::Missing { path: path.clone() });
    let path = at("file");
    assert_eq!(connect(&path), ConnectError::NotASocket { path: path.clone(), what: "regular file" });
    let path = directory.path();
    assert_eq!(connect(path), ConnectError::NotASocket { path: path.to_owned(), what: "directory" });
    let path = at(&"long".repeat(40));
    assert_eq!(connect(&path), ConnectError::BadPath { path: path.clone() });

    let path = at("socket");
    drop(UnixListener::bind(&path).expect("a listener"));
    assert_eq!(connect(&path), ConnectError::NotListening { path: path.clone() });
    let path = at("datagram");
    let _datagram = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    assert_eq!(connect(&path), ConnectError::WrongKind { path: path.clone() });

    // A server that accepts no clients: its queue becomes full.
    let path = at("busy");
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("a socket");
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).expect("a path")).expect("bound");
    rustix::net::listen(&socket, 1).expect("listening");
    let mut waiting = Vec::new();
    let refused = loop {
        match Connection::connect(&path, SHORT_TIMEOUT) {
            Ok(connection) => waiting.push(connection),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100, "the queue has an end");
    };
    assert_eq!(refused, ConnectError::Busy { path, after: SHORT_TIMEOUT });
}

#[test]
fn socket_wait_ends_when_program_stops() {
    let hours = Duration::from_secs(24 * 3600);
    let (ours, theirs) = Connection::pair().expect("two ends");
    let (stop, stopped) = Connection::pair().expect("two ends");
    let ours = ours.with_stop(std::sync::Arc::new(stopped.as_fd().try_clone_to_owned().expect("works")));
    assert_eq!(ours.is_readable(), Ok(false));
    drop(stop);
    // Operations that do not block still work.
    let mut message = Vec::new();
    crate::wire::encode_request(1, false, &Request::DeviceReset, &mut message);
    theirs.send(&message, &[], hours).expect("works");
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    assert_eq!(ours.is_readable_within(hours), Ok(true));
    assert_eq!(ours.receive(&mut body, &mut fds, hours).expect("works").id, 1);
    assert_eq!(ours.is_readable(), Ok(false));
    assert_eq!(ours.is_readable_within(hours), Err(SocketError::Stopped));
    // Half a message, and a peer that receives nothing more.
    theirs.send(&message[..3], &[], hours).expect("works");
    assert_eq!(ours.receive(&mut body, &mut fds, hours), Err(SocketError::Stopped));
    let long = vec![0; 64 << 20];
    assert_eq!(ours.send(&long, &[], hours), Err(SocketError::Stopped));
}
