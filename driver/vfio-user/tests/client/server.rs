//! A small PCI device behind a socket, correct except for one message.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fpga_pci::SharedMemory;
use fpga_vfio_user::socket::Connection;
use fpga_vfio_user::wire::{
    Capabilities, Command, DeviceInfo, DmaMap, DmaTransfer, HEADER_LENGTH, Header, IrqAction, IrqData,
    IrqInfo, Kind, RegionInfo, Reply, Request, SparseArea, Version, encode_error, encode_reply,
    encode_request, irq, irq_flags, region, region_flags,
};

/// Longer than any test.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(120);

/// Bytes of BAR 0; the second page may be shared.
pub(crate) const BAR: usize = 3 * 4096;

/// Faulty behaviour of the server for one message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ServerFault {
    Refuse(u32),
    NoReply,
    /// Keep the reply until [`Device::send_held`].
    HoldReply,
    Close,
    /// Close after this number of bytes of the reply.
    CloseWithin(usize),
    WrongId,
    WrongCommand,
    /// Send a request before the reply.
    RequestFirst,
    /// Change the length by this number of bytes.
    Length(i32),
    /// Send bytes that are not a message.
    Garbage,
    /// Send the correct reply with this number of descriptors.
    Descriptors(usize),
    /// Change one byte in the body.
    Flip(usize),
}

/// State of the device, and effects of the client's requests.
pub(crate) struct Device {
    pub(crate) version: Version,
    pub(crate) flags: u32,
    pub(crate) regions: u32,
    pub(crate) config: Vec<u8>,
    pub(crate) bar: Vec<u8>,
    /// The second page of BAR 0, shared.
    pub(crate) shared: Option<SharedMemory>,
    /// Announced mappable areas, if different from the real ones.
    pub(crate) sparse: Option<Vec<SparseArea>>,
    pub(crate) vectors: u32,
    /// Whether it has INTx, and the number of unmaskings.
    pub(crate) line: bool,
    pub(crate) unmasked: u32,
    /// Whether it supports device-release requests (REQ).
    pub(crate) wanted_back: bool,
    pub(crate) request: Option<OwnedFd>,
    pub(crate) irqs: BTreeMap<u32, OwnedFd>,
    pub(crate) max_fds_seen: usize,
    pub(crate) maps: BTreeMap<u64, (DmaMap, Option<OwnedFd>)>,
    pub(crate) resets: u32,
    pub(crate) writes: Vec<(u32, u64, Vec<u8>)>,
    pub(crate) twist: Option<(Command, ServerFault)>,
    /// The reply that a fault holds, and a handle of the connection.
    pub(crate) held: Option<(Connection, Vec<u8>)>,
    /// Requests to send to the client before the next reply, and the client's replies.
    pub(crate) questions: Vec<ServerRequest>,
    pub(crate) answers: Vec<Result<Vec<u8>, u32>>,
}

/// A request of the server.
#[derive(Debug, Clone)]
pub(crate) enum ServerRequest {
    Read(u64, u64),
    Write(u64, Vec<u8>),
    Unknown,
}

impl Default for Device {
    fn default() -> Self {
        let mut config = vec![0; 256];
        // Vendor, device; BAR 0 with 64 bits, which takes two registers.
        config[..4].copy_from_slice(&[0xEE, 0x10, 0x38, 0x90]);
        config[0x10] = 4;
        let capabilities = Capabilities { max_msg_fds: Some(3), ..Capabilities::default() };
        Self {
            version: Version { major: 0, minor: 1, capabilities },
            flags: 3,
            regions: region::COUNT,
            config,
            bar: (0..BAR).map(|at| at.to_le_bytes()[0]).collect(),
            shared: None,
            sparse: None,
            vectors: 8,
            line: false,
            unmasked: 0,
            wanted_back: false,
            request: None,
            irqs: BTreeMap::new(),
            max_fds_seen: 0,
            maps: BTreeMap::new(),
            resets: 0,
            writes: Vec::new(),
            twist: None,
            held: None,
            questions: Vec::new(),
            answers: Vec::new(),
        }
    }
}

/// A server thread; it ends when its only client has disconnected.
pub(crate) struct Server {
    pub(crate) path: PathBuf,
    pub(crate) device: Arc<Mutex<Device>>,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start(device: Device) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let device = Arc::new(Mutex::new(device));
        let shared = Arc::clone(&device);
        let thread = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            serve(&Connection::new(socket.into()), &shared);
            let mut device = shared.lock().unwrap();
            device.irqs.clear();
            device.maps.clear();
            device.request = None;
            device.shared = None;
        });
        Self { path, device, thread: Some(thread), _directory: directory }
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Device) -> T) -> T {
        f(&mut self.device.lock().unwrap())
    }

    /// Waits until the client has disconnected.
    pub(crate) fn finish(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(connection: &Connection, device: &Mutex<Device>) {
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    while let Ok(header) = connection.receive(&mut body, &mut fds, LONG_TIMEOUT) {
        let Kind::Request { no_reply } = header.kind else { panic!("a reply to nothing: {header:?}") };
        let mut device = device.lock().unwrap();
        let questions = std::mem::take(&mut device.questions);
        for question in questions {
            let answer = ask(connection, &question);
            device.answers.push(answer);
        }
        let request = Request::decode(header.command, &body).unwrap();
        let mut reply = Vec::new();
        let mut shared = None;
        device.handle(header.id, &request, &mut fds, &mut reply, &mut shared);
        if no_reply {
            continue;
        }
        let with: Vec<_> = shared.iter().filter_map(SharedMemory::file).collect();
        let twist = device.twist.filter(|(command, _)| *command == header.command).map(|(_, twist)| twist);
        if twist.is_some() {
            device.twist = None;
        }
        if twist == Some(ServerFault::HoldReply) {
            let again = connection.as_fd().try_clone_to_owned().unwrap();
            device.held = Some((Connection::new(again), reply));
            continue;
        }
        if !send(connection, twist, &header, reply, &with) {
            return;
        }
    }
}

fn ask(connection: &Connection, question: &ServerRequest) -> Result<Vec<u8>, u32> {
    let mut out = Vec::new();
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    let request = match question {
        ServerRequest::Read(address, count) => {
            Request::DmaRead(DmaTransfer { address: *address, count: *count })
        }
        ServerRequest::Write(address, data) => {
            Request::DmaWrite(DmaTransfer { address: *address, count: data.len() as u64 }, data)
        }
        ServerRequest::Unknown => Request::Unsupported(Command(77)),
    };
    encode_request(0xAB, false, &request, &mut out);
    connection.send(&out, &[], LONG_TIMEOUT).unwrap();
    let header = connection.receive(&mut body, &mut fds, LONG_TIMEOUT).unwrap();
    assert_eq!((header.id, header.command), (0xAB, request.command()));
    match header.kind {
        Kind::Reply { error: Some(errno) } => Err(errno),
        Kind::Reply { error: None } => match Reply::decode(header.command, &body).unwrap().unwrap() {
            Reply::DmaRead(_, data) => Ok(data.to_vec()),
            Reply::DmaWrite(_) => Ok(Vec::new()),
            other => panic!("{other:?}"),
        },
        Kind::Request { .. } => panic!("a request in the middle of an answer"),
    }
}

/// Sends the reply, or a faulty one; returns whether the connection continues.
fn send(
    connection: &Connection,
    twist: Option<ServerFault>,
    header: &Header,
    mut reply: Vec<u8>,
    with: &[BorrowedFd<'_>],
) -> bool {
    let rewrite = |reply: &mut Vec<u8>, change: &dyn Fn(&mut Header)| {
        let mut header = Header::decode(reply.first_chunk().unwrap()).unwrap();
        change(&mut header);
        reply[..HEADER_LENGTH].copy_from_slice(&header.encode());
    };
    let send = |bytes: &[u8], fds: &[BorrowedFd<'_>]| connection.send(bytes, fds, LONG_TIMEOUT).is_ok();
    let Some(twist) = twist else { return send(&reply, with) };
    match twist {
        ServerFault::Refuse(errno) => {
            reply.clear();
            encode_error(header.id, header.command, errno, &mut reply);
            send(&reply, &[])
        }
        ServerFault::NoReply | ServerFault::HoldReply => true,
        ServerFault::Close => false,
        ServerFault::CloseWithin(bytes) => {
            send(&reply[..bytes.min(reply.len() - 1)], with);
            false
        }
        ServerFault::WrongId => {
            rewrite(&mut reply, &|header| header.id = header.id.wrapping_add(1));
            send(&reply, with)
        }
        ServerFault::WrongCommand => {
            rewrite(&mut reply, &|header| header.command = Command(header.command.0 + 1));
            send(&reply, with)
        }
        ServerFault::RequestFirst => {
            assert_eq!(ask(connection, &ServerRequest::Unknown), Err(95));
            send(&reply, with)
        }
        ServerFault::Length(change) => {
            let length = reply.len().saturating_add_signed(change as isize).max(HEADER_LENGTH);
            reply.resize(length, 0);
            rewrite(&mut reply, &|header| header.size = u32::try_from(length).unwrap());
            send(&reply, with)
        }
        ServerFault::Garbage => send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", &[]),
        ServerFault::Descriptors(count) => {
            let file = std::fs::File::open("/dev/null").unwrap();
            send(&reply, &vec![file.as_fd(); count])
        }
        ServerFault::Flip(at) => {
            if let Some(byte) = reply.get_mut(HEADER_LENGTH + at) {
                *byte ^= 0x55;
            }
            send(&reply, with)
        }
    }
}

impl Device {
    /// Sends the reply that [`ServerFault::HoldReply`] holds.
    pub(crate) fn send_held(&mut self) {
        let (connection, reply) = self.held.take().unwrap();
        connection.send(&reply, &[], LONG_TIMEOUT).unwrap();
    }

    fn handle(
        &mut self,
        id: u16,
        request: &Request<'_>,
        fds: &mut Vec<OwnedFd>,
        out: &mut Vec<u8>,
        with: &mut Option<SharedMemory>,
    ) {
        self.max_fds_seen = self.max_fds_seen.max(fds.len());
        let command = request.command();
        let region_bytes = |of: &Self, region| match region {
            region::CONFIG => Some(of.config.clone()),
            region::BAR0 => Some(of.bar.clone()),
            _ => None,
        };
        match request {
            Request::Version(_) => encode_reply(id, &Reply::Version(self.version.clone()), out),
            Request::DeviceGetInfo(_) => {
                let info = DeviceInfo { flags: self.flags, regions: self.regions, irqs: irq::COUNT };
                encode_reply(id, &Reply::DeviceGetInfo(info), out);
            }
            Request::DeviceGetRegionInfo(asked) => {
                let size = region_bytes(self, asked.index).map_or(0, |bytes| bytes.len() as u64);
                let mut info = RegionInfo { index: asked.index, size, flags: 3, ..RegionInfo::default() };
                if let (region::BAR0, Some(memory)) = (asked.index, &self.shared) {
                    info.flags |= region_flags::MMAP;
                    info.sparse = self.sparse.clone().or(Some(vec![SparseArea { offset: 4096, size: 4096 }]));
                    *with = Some(memory.clone());
                }
                encode_reply(id, &Reply::DeviceGetRegionInfo(info.within(asked.argsz)), out);
            }
            Request::DeviceGetIrqInfo(asked) => {
                let count = match asked.index {
                    irq::MSIX => self.vectors,
                    irq::INTX => self.line.into(),
                    irq::REQ => self.wanted_back.into(),
                    _ => 0,
                };
                let info = IrqInfo { flags: irq_flags::EVENTFD, index: asked.index, count };
                encode_reply(id, &Reply::DeviceGetIrqInfo(info), out);
            }
            Request::DeviceSetIrqs(set) if set.index == irq::REQ => {
                self.request = fds.pop();
                encode_reply(id, &Reply::DeviceSetIrqs, out);
            }
            Request::DeviceSetIrqs(set) if (set.index, set.action) == (irq::INTX, IrqAction::Unmask) => {
                assert_eq!((set.data, set.start, set.count), (IrqData::None, 0, 1));
                self.unmasked += 1;
                encode_reply(id, &Reply::DeviceSetIrqs, out);
            }
            Request::DeviceSetIrqs(set) => {
                let used = if self.line { irq::INTX } else { irq::MSIX };
                assert_eq!((set.index, set.action), (used, IrqAction::Trigger));
                match set.data {
                    IrqData::None if set.count == 0 => self.irqs.clear(),
                    IrqData::EventFds => {
                        assert_eq!(fds.len(), set.count as usize);
                        self.irqs.extend((set.start..).zip(fds.drain(..)));
                    }
                    _ => panic!("{set:?}"),
                }
                encode_reply(id, &Reply::DeviceSetIrqs, out);
            }
            Request::RegionRead(access) => {
                let bytes = region_bytes(self, access.region).unwrap();
                let start = usize::try_from(access.offset).unwrap();
                let data = &bytes[start..start + access.count as usize];
                encode_reply(id, &Reply::RegionRead(*access, data), out);
            }
            Request::RegionWrite(access, data) => {
                self.writes.push((access.region, access.offset, data.to_vec()));
                let bytes = if access.region == region::CONFIG { &mut self.config } else { &mut self.bar };
                let start = usize::try_from(access.offset).unwrap();
                bytes[start..start + data.len()].copy_from_slice(data);
                encode_reply(id, &Reply::RegionWrite(*access), out);
            }
            Request::DmaMap(map) => {
                self.maps.insert(map.address, (*map, fds.pop()));
                encode_reply(id, &Reply::DmaMap, out);
            }
            Request::DmaUnmap(unmap) => {
                self.maps.remove(&unmap.address);
                encode_reply(id, &Reply::DmaUnmap(*unmap), out);
            }
            Request::DeviceReset => {
                self.resets += 1;
                encode_reply(id, &Reply::DeviceReset, out);
            }
            _ => encode_error(id, command, 95, out),
        }
    }
}
