//! Fuzzes vfio-user messages to a client and to a server, and a client whose server behaves as the input says: it answers correctly, with
//! other bytes, with an error, with a request of its own, or it closes the connection.
#![no_main]

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use fpga_pci::{Backend, DmaAccess, HugePages, ResetLevel, SharedMemory};
use fpga_registers::{BarOffset, Iova};
use fpga_vfio_user::socket::Connection;
use fpga_vfio_user::wire::{
    Capabilities, Command, DeviceInfo, HEADER_LENGTH, Header, IrqInfo, Kind, RegionInfo, Reply, Request,
    Version, encode_error, encode_reply, region,
};
use fpga_vfio_user::{VfioUserBackend, VfioUserOptions};
use libfuzzer_sys::fuzz_target;

/// Timeout for a busy machine: normally no wait lasts that long, because the server closes when the input ends.
const DEADLINE: Duration = Duration::from_secs(20);
const BAR: u64 = 8192;

fn messages(bytes: &[u8]) {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_LENGTH>() else { return };
    let command = match Header::decode(header) {
        Ok(header) => {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
            header.command
        }
        // The rest may still be a valid message.
        Err(_) => Command(u16::from_ne_bytes([header[2], header[3]])),
    };
    if let Ok(request) = Request::decode(command, body) {
        let mut again = Vec::new();
        request.encode(&mut again);
        assert_eq!(Request::decode(command, &again), Ok(request));
    }
    if let Ok(Some(reply)) = Reply::decode(command, body) {
        let mut again = Vec::new();
        reply.encode(&mut again);
        assert!(matches!(Reply::decode(command, &again), Ok(Some(_))));
    }
}

/// Encodes the correct answer to a request.
fn answer(id: u16, request: &Request<'_>, config: &mut [u8; 256], out: &mut Vec<u8>) {
    let reply = match request {
        Request::Version(_) => {
            Reply::Version(Version { major: 0, minor: 1, capabilities: Capabilities::default() })
        }
        Request::DeviceGetInfo(_) => Reply::DeviceGetInfo(DeviceInfo { flags: 3, regions: 9, irqs: 5 }),
        Request::DeviceGetRegionInfo(asked) => {
            let size = match asked.index {
                region::CONFIG => 256,
                region::BAR0 => BAR,
                _ => 0,
            };
            Reply::DeviceGetRegionInfo(RegionInfo {
                index: asked.index,
                size,
                flags: 3,
                ..RegionInfo::default()
            })
        }
        Request::DeviceGetIrqInfo(asked) => {
            Reply::DeviceGetIrqInfo(IrqInfo { flags: 1, index: asked.index, count: 4 })
        }
        Request::DeviceSetIrqs(_) => Reply::DeviceSetIrqs,
        Request::RegionRead(access) => {
            let mut data = vec![0; access.count as usize];
            if access.region == region::CONFIG {
                let from = config.iter().skip(access.offset as usize);
                data.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
            return encode_reply(id, &Reply::RegionRead(*access, &data), out);
        }
        Request::RegionWrite(access, data) => {
            if access.region == region::CONFIG {
                let to = config.iter_mut().skip(access.offset as usize);
                to.zip(*data).for_each(|(to, from)| *to = *from);
            }
            Reply::RegionWrite(*access)
        }
        Request::DmaMap(_) => Reply::DmaMap,
        Request::DmaUnmap(unmap) => Reply::DmaUnmap(*unmap),
        Request::DeviceReset => Reply::DeviceReset,
        other => return encode_error(id, other.command(), 95, out),
    };
    encode_reply(id, &reply, out);
}

/// Answers as `input` says, until it ends.
fn serve(connection: &Connection, mut input: &[u8]) {
    let mut config = [0; 256];
    config[..4].copy_from_slice(&[0xEE, 0x10, 0x38, 0x90]);
    let (mut body, mut fds) = (Vec::new(), Vec::<OwnedFd>::new());
    while let Ok(header) = connection.receive(&mut body, &mut fds, DEADLINE) {
        let Some((&choice, rest)) = input.split_first() else { return };
        input = rest;
        let length = usize::from(choice >> 3).min(input.len());
        let mut out = Vec::new();
        match (choice % 8, header.kind) {
            // A request without reply gets no answer.
            (0..=2, Kind::Request { no_reply: true }) => continue,
            (0..=2, Kind::Request { .. }) => {
                let request =
                    Request::decode(header.command, &body).expect("a valid request from the client");
                answer(header.id, &request, &mut config, &mut out);
                // The correct answer with some bytes of the body changed.
                if choice % 8 == 2 {
                    let (with, rest) = input.split_at(length);
                    input = rest;
                    let tail = out.iter_mut().skip(HEADER_LENGTH);
                    tail.zip(with).for_each(|(to, from)| *to ^= *from);
                }
            }
            (3, _) => encode_error(header.id, header.command, u32::from(choice >> 3), &mut out),
            // A reply with any body.
            (4, _) => {
                let (with, rest) = input.split_at(length);
                input = rest;
                let size = (HEADER_LENGTH + with.len()) as u32;
                let header = Header { size, kind: Kind::Reply { error: None }, ..header };
                out.extend_from_slice(&header.encode());
                out.extend_from_slice(with);
            }
            // A request to the client, and the correct answer after the client has replied.
            (5, Kind::Request { .. }) => {
                let (with, rest) = input.split_at(length);
                input = rest;
                let size = (HEADER_LENGTH + with.len()) as u32;
                let command = Command(u16::from(choice >> 3));
                let question = Header { id: 1, command, size, kind: Kind::Request { no_reply: false } };
                let question = [&question.encode(), with].concat();
                if connection.send(&question, &[], DEADLINE).is_err()
                    || connection.receive(&mut Vec::new(), &mut fds, DEADLINE).is_err()
                {
                    return;
                }
                let request =
                    Request::decode(header.command, &body).expect("a valid message from the client");
                answer(header.id, &request, &mut config, &mut out);
            }
            // Any bytes and then the end: they may be the start of a message.
            (6, _) => {
                let _ = connection.send(input, &[], DEADLINE);
                return;
            }
            _ => return,
        }
        if connection.send(&out, &[], DEADLINE).is_err() {
            return;
        }
    }
}

fn client(input: &[u8]) {
    let (client_end, server_end) = Connection::pair().expect("a socket pair");
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            serve(&server_end, input);
            server_end.shut_down();
        });
        use_card(client_end);
        // A scope ends with its threads' closures. The threads' own memory is freed a moment later, and until then the sanitizer reports it
        // as a leak.
        server.join().expect("a server without a panic");
    });
}

/// Typical accesses of a program to a card, as far as its server permits them.
fn use_card(connection: Connection) {
    let options = VfioUserOptions::default().deadline(DEADLINE);
    let Ok(backend) = VfioUserBackend::over(connection, Path::new("fuzz"), options) else { return };
    if let Ok(bar) = backend.open_bar(0) {
        let _ = bar.read32(BarOffset::new(0));
        let _ = bar.write64(BarOffset::new(8), 1);
        let _ = bar.read64(BarOffset::new(bar.size().saturating_sub(8) & !7));
    }
    // Three messages, or INTx if the server has none: INTx is unmasked by a message.
    if let Ok(interrupts) = backend.enable_interrupts(3).or_else(|_| backend.enable_interrupts(1)) {
        interrupts.iter().for_each(fpga_pci::Interrupt::rearm);
    }
    let iova = Iova::new(0x10_0000);
    if let Ok(memory) = SharedMemory::memfd("fpga-dma", 4096) {
        let _ = backend.map_dma(iova, &memory, DmaAccess::Both);
        let _ = backend.unmap_dma(iova, 4096);
    }
    // Memory of this process only, which the server's requests reach.
    if let Ok(memory) = SharedMemory::anonymous(4096, HugePages::No) {
        let _ = backend.map_dma(iova, &memory, DmaAccess::ReadByDevice);
    }
    let _ = backend.reset(ResetLevel::Function);
}

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        Some((0..=127, bytes)) => messages(bytes),
        Some((_, bytes)) => client(bytes),
        None => {}
    }
});
