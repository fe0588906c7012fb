//! Versions, invalid messages, and their effects.

use crate::served::client::{Client, DMA, LONG, Served, file, version};
use fpga_vfio_user::socket::SocketError;
use fpga_vfio_user::wire::{Command, Header, Kind, MAX_MESSAGE, Reply, Request, encode_request};
use std::os::fd::AsFd;

/// Proposal of QEMU 11 (`hw/vfio-user/proxy.c`), version 0.0.
const QEMU: &str = r#"{"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "max_msg_fds": 16, "max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}}"#;

/// Message with a custom header.
fn raw(command: Command, size: u32, body: &[u8]) -> Vec<u8> {
    let header = Header { id: 77, command, size, kind: Kind::Request { no_reply: false } };
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn protocol_qemu_gets_own_version_and_short_replies() {
    let served = Served::start();
    let mut client = Client::bare(&served.path);
    let mut body = vec![0; 4];
    body.extend_from_slice(QEMU.as_bytes());
    body.push(0);
    let message = raw(Command::VERSION, 16 + u32::try_from(body.len()).unwrap(), &body);
    client.connection.send(&message, &[], LONG).unwrap();
    let (header, answer) = client.receive().unwrap();
    assert_eq!((header.id, header.kind), (77, Kind::Reply { error: None }));
    assert!(answer.len() <= body.len(), "QEMU refuses longer answers");
    assert_eq!((&answer[..4], answer.last()), (&[0; 4][..], Some(&0)));
    let Ok(Some(Reply::Version(agreed))) = Reply::decode(Command::VERSION, answer) else {
        panic!("{answer:?}")
    };
    // QEMU gives up the device above 16.
    assert_eq!((agreed.capabilities.max_msg_fds, agreed.capabilities.max_dma_maps), (Some(16), None));
    assert!(agreed.capabilities.write_multiple());
    served.stop();
}

#[test]
fn protocol_version_is_negotiated_first_and_once() {
    let served = Served::start();
    // A later minor version is negotiated down to the server's.
    let mut client = Client::bare(&served.path);
    let answer = client.ask(&version(0, 9), &[]).unwrap();
    assert_eq!(answer[..4], [0, 0, 1, 0]);
    assert_eq!(client.ask(&version(0, 1), &[]).unwrap_err(), 22);
    client.read32(DMA, 0);
    drop(client);
    // Another major version: refused, and the connection ends.
    let mut client = Client::bare(&served.path);
    assert_eq!(client.ask(&version(1, 0), &[]).unwrap_err(), 93);
    assert_eq!(client.receive().unwrap_err(), SocketError::Closed);
    // Another message first.
    let mut client = Client::bare(&served.path);
    assert_eq!(client.ask(&Request::DeviceReset, &[]).unwrap_err(), 22);
    assert_eq!(client.receive().unwrap_err(), SocketError::Closed);
    served.connect();
    assert_eq!(served.stop().connections, 4);
}

#[test]
fn protocol_malformed_message_refused_unreadable_ends_connection() {
    let served = Served::start();
    let mut client = served.connect();
    for command in 2..20 {
        for length in [0_u32, 1, 15, 17, 200] {
            let command = Command(command);
            // These two are valid: a reset, and a query of which only the beginning is used.
            let info = command == Command::DEVICE_GET_INFO && length > 16;
            if info || (command, length) == (Command::DEVICE_RESET, 0) {
                continue;
            }
            let body = vec![0xEE; usize::try_from(length).unwrap()];
            client.connection.send(&raw(command, 16 + length, &body), &[], LONG).unwrap();
            let (header, rest) = client.receive().unwrap();
            assert_eq!((header.id, header.command, rest.len()), (77, command, 0));
            assert!(matches!(header.kind, Kind::Reply { error: Some(errno) } if errno != 0), "{header:?}");
        }
    }
    client.read32(DMA, 0);
    drop(client);
    let unreadable = [
        raw(Command::REGION_READ, 3, &[]),
        raw(Command::REGION_READ, MAX_MESSAGE + 1, &[]),
        raw(Command::REGION_READ, u32::MAX, &[]),
        vec![0xFF; 16],
        // A reply without a request.
        Header { id: 1, command: Command::DMA_READ, size: 16, kind: Kind::Reply { error: None } }
            .encode()
            .to_vec(),
    ];
    for message in unreadable {
        let mut client = served.connect();
        client.connection.send(&message, &[], LONG).unwrap();
        assert_eq!(client.receive().unwrap_err(), SocketError::Closed);
    }
    served.connect();
    let counts = served.stop();
    assert_eq!((counts.connections, counts.broken_connections), (7, 4));
}

#[test]
fn protocol_unfinished_message_ends_connection() {
    let served = Served::start();
    let mut client = served.connect();
    client.connection.send(&raw(Command::REGION_READ, 32, &[1, 2, 3]), &[], LONG).unwrap();
    assert_eq!(client.receive().unwrap_err(), SocketError::Closed);
    served.connect();
    assert_eq!(served.stop().broken_connections, 1);
}

#[test]
fn protocol_unexpected_descriptors_are_closed() {
    let served = Served::start();
    let mut client = served.connect();
    let memory = file(1, true);
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for _ in 0..300 {
        let fds = [memory.as_fd(), memory.as_fd(), memory.as_fd()];
        assert_eq!(client.ask(&Request::DeviceReset, &fds).unwrap_err(), 22);
        let map = Request::Unsupported(Command::DIRTY_PAGES);
        assert_eq!(client.ask(&map, &fds[..1]).unwrap_err(), 22);
    }
    assert!(open() < 300, "{} descriptors are open", open());
    served.stop();
}

#[test]
fn protocol_unsupported_command_is_reported() {
    let served = Served::start();
    let mut client = served.connect();
    for (command, errno) in [(6, 95), (14, 95), (16, 25), (17, 95), (18, 95), (999, 95)] {
        let mut out = Vec::new();
        encode_request(77, false, &Request::Unsupported(Command(command)), &mut out);
        out.resize(32, 0);
        out[4] = 32;
        client.connection.send(&out, &[], LONG).unwrap();
        let (header, _) = client.receive().unwrap();
        assert_eq!(header.kind, Kind::Reply { error: Some(errno) }, "command {command}");
    }
    served.stop();
}
