//! Fuzzes a server with any messages of a client: each gets one readable answer, or none where no answer is requested, and afterwards no
//! memory is mapped and no descriptor is open.
//!
//! An input is a sequence of messages: command, flags (bit 0: no answer requested), kinds of attached descriptors (2 bits each), length of
//! the body (2 bytes), body. It starts after the version exchange unless its first byte is odd. Instead of a message there can be bytes for
//! the socket (flags bit 1): the card reads them when it accesses memory that was mapped without a file.
#![no_main]

use std::os::fd::OwnedFd;
use std::time::Duration;

use fpga_sim::served::{Next, Session};
use fpga_sim::{CardDescription, SimNetwork};
use fpga_vfio_user::socket::Connection;
use fpga_vfio_user::wire::{Command, HEADER_LENGTH, Header, Kind, Reply, Request, Version};
use libfuzzer_sys::fuzz_target;
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};

/// Units of work that the card does after each message: a client may make it run for ever.
const UNITS: u32 = 64;

fn file(sealed: bool) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("fuzz", flags).expect("a file");
    rustix::fs::ftruncate(&file, 64 * 4096).expect("a few pages");
    if sealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("seals are allowed");
    }
    file
}

fn descriptors(mut choice: u8) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    while choice != 0 {
        fds.push(match choice & 3 {
            0 => rustix::pipe::pipe().expect("a pipe").0,
            1 => rustix::event::eventfd(0, EventfdFlags::NONBLOCK).expect("an event descriptor"),
            2 => file(true),
            _ => file(false),
        });
        choice >>= 2;
    }
    fds
}

/// Handles one message and checks its answer. Returns whether the session continues.
fn exchange(session: &mut Session, command: Command, no_reply: bool, fds: Vec<OwnedFd>, body: &[u8]) -> bool {
    let size = u32::try_from(HEADER_LENGTH + body.len()).expect("at most 64 KiB");
    let header = Header { id: 0x1234, command, size, kind: Kind::Request { no_reply } };
    let mut out = Vec::new();
    let next = session.handle(&header, body, fds, &mut out);
    if no_reply {
        assert!(out.is_empty(), "an answer although none was requested");
    } else {
        let (head, rest) = out.split_first_chunk().expect("an answer");
        let answer = Header::decode(head).expect("a header that can be read");
        assert_eq!((answer.id, answer.command, answer.body_length()), (0x1234, command, rest.len()));
        match answer.kind {
            Kind::Reply { error: None } => {
                assert!(matches!(Reply::decode(command, rest), Ok(Some(_))), "{command}: {rest:?}");
            }
            Kind::Reply { error: Some(errno) } => assert!(errno != 0 && rest.is_empty()),
            Kind::Request { .. } => panic!("a question"),
        }
    }
    next == Next::Continue
}

fuzz_target!(|input: &[u8]| {
    let mut description = CardDescription::default();
    description.memory.size = 1 << 20;
    let network = SimNetwork::builder().card(description).build().expect("a small card");
    // The session does not wait: data must be on the socket already.
    let (server_end, client_end) = Connection::pair().expect("a socket pair");
    let mut session =
        Session::with_client_memory(&network, 0, server_end, Duration::ZERO).expect("an event descriptor");
    let Some((first, mut rest)) = input.split_first() else { return };
    if first & 1 == 0 {
        let mut body = Vec::new();
        Request::Version(Version::default()).encode(&mut body);
        assert!(exchange(&mut session, Command::VERSION, false, Vec::new(), &body));
    }
    while let Some(([command, flags, fds, low, high], behind)) = rest.split_first_chunk::<5>() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
        let (body, behind) = behind.split_at(length);
        if flags & 2 != 0 {
            // The other end closes at the session's first error.
            let _ = client_end.send(body, &[], Duration::ZERO);
        } else if !exchange(&mut session, Command((*command).into()), flags & 1 != 0, descriptors(*fds), body)
        {
            break;
        }
        for _ in 0..UNITS {
            if !network.step() {
                break;
            }
        }
        rest = behind;
    }
    drop(session);
    assert_eq!(network.mapped_bytes(0), 0);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    assert!(open < 64, "{open} descriptors are open");
});
