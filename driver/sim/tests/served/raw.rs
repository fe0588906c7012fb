//! A vfio-user client that sends exactly the given messages.

use fpga_pci::SharedMemory;
use fpga_vfio_user::socket::{Connection, SocketError};
use fpga_vfio_user::wire::{
    Capabilities, DmaMap, Header, Kind, RegionAccess, Reply, Request, Version, WRITE_RING, encode_request,
    region,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Timeout that no working operation reaches.
pub(crate) const LONG: Duration = Duration::from_secs(120);
pub(crate) const PAGE: u64 = 4096;
/// BAR numbers of the built-in card.
pub(crate) const USER: u32 = 0;
pub(crate) const DMA: u32 = 1;
pub(crate) const BYPASS: u32 = 2;

/// One connection.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    id: u16,
    body: Vec<u8>,
}

/// Reply: the data after the header, or an error.
pub(crate) type Answer<'a> = Result<&'a [u8], u32>;

impl Client {
    /// Connects and negotiates the version.
    pub(crate) fn connect(path: &Path) -> Self {
        let mut client = Self::bare(path);
        client.ask(&version(0, 1), &[]).unwrap();
        client
    }

    /// Connects with a ring of register writes.
    pub(crate) fn with_ring(path: &Path) -> (Self, SharedMemory) {
        let mut client = Self::bare(path);
        let capabilities = Capabilities { write_ring: Some(true), ..Capabilities::default() };
        let version = Request::Version(Version { major: 0, minor: 1, capabilities });
        let Reply::Version(answer) =
            Reply::decode(version.command(), client.ask(&version, &[]).unwrap()).unwrap().unwrap()
        else {
            panic!("no version")
        };
        assert!(answer.capabilities.write_ring());
        let memory = SharedMemory::memfd("writes", WRITE_RING.length()).unwrap();
        client.ask(&Request::ShareWrites, &[memory.file().unwrap()]).unwrap();
        (client, memory)
    }

    pub(crate) fn bare(path: &Path) -> Self {
        Self { connection: Connection::connect(path, LONG).unwrap(), id: 0, body: Vec::new() }
    }

    /// Sends a request and returns its number.
    pub(crate) fn send(&mut self, request: &Request<'_>, no_reply: bool, fds: &[BorrowedFd<'_>]) -> u16 {
        let mut out = Vec::new();
        self.id = self.id.wrapping_add(1);
        encode_request(self.id, no_reply, request, &mut out);
        self.connection.send(&out, fds, LONG).unwrap();
        self.id
    }

    pub(crate) fn receive(&mut self) -> Result<(Header, &[u8]), SocketError> {
        let mut fds = Vec::new();
        let header = self.connection.receive(&mut self.body, &mut fds, LONG)?;
        assert!(fds.is_empty());
        Ok((header, &self.body))
    }

    pub(crate) fn ask(&mut self, request: &Request<'_>, fds: &[BorrowedFd<'_>]) -> Answer<'_> {
        self.send(request, false, fds);
        let id = self.id;
        let (header, body) = self.receive().unwrap();
        assert_eq!((header.id, header.command), (id, request.command()));
        match header.kind {
            Kind::Reply { error: None } => Ok(body),
            Kind::Reply { error: Some(errno) } => Err(errno),
            Kind::Request { .. } => panic!("unexpected request of the server: {header:?}"),
        }
    }

    /// Sends raw bytes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.connection.send(bytes, &[], LONG).unwrap();
    }

    /// Returns the next request of the server: its header and body.
    pub(crate) fn asked(&mut self) -> (Header, Vec<u8>) {
        let (header, body) = self.receive().unwrap();
        assert!(matches!(header.kind, Kind::Request { no_reply: false }), "{header:?}");
        (header, body.to_vec())
    }

    /// Sends a read request and returns the data of the reply.
    pub(crate) fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let body = self.ask(&Request::RegionRead(RegionAccess { offset, region, count }), &[])?;
        assert_eq!(body.len(), 16 + usize::try_from(count).unwrap());
        Ok(body[16..].to_vec())
    }

    pub(crate) fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), u32> {
        let count = u32::try_from(data.len()).unwrap();
        let body = self.ask(&Request::RegionWrite(RegionAccess { offset, region, count }, data), &[])?;
        assert_eq!(body.len(), 16);
        Ok(())
    }

    pub(crate) fn read32(&mut self, region: u32, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(region, offset, 4).unwrap().try_into().unwrap())
    }

    pub(crate) fn write32(&mut self, region: u32, offset: u64, value: u32) {
        self.write(region, offset, &value.to_le_bytes()).unwrap();
    }

    pub(crate) fn map(
        &mut self,
        address: u64,
        size: u64,
        flags: u32,
        file: Option<(&OwnedFd, u64)>,
    ) -> Result<(), u32> {
        let offset = file.map_or(0, |(_, offset)| offset);
        let fds: Vec<_> = file.iter().map(|(file, _)| file.as_fd()).collect();
        self.ask(&Request::DmaMap(DmaMap { flags, offset, address, size }), &fds).map(|_| ())
    }

    pub(crate) fn bus_master(&mut self, on: bool) {
        self.write(region::CONFIG, 4, &[if on { 6 } else { 2 }, 0]).unwrap();
    }

    /// Starts H2C channel 0 on the descriptor at `at`.
    pub(crate) fn start_h2c(&mut self, at: u64) {
        self.write32(DMA, 0x0004, 0);
        self.write(DMA, 0x4080, &at.to_le_bytes()).unwrap();
        self.write32(DMA, 0x4088, 0);
        // Run, interrupts for stopped and completed.
        self.write32(DMA, 0x0004, 0x00F8_3E1F);
    }

    /// Reads H2C channel 0's status until the channel is not busy.
    pub(crate) fn h2c_idle(&mut self) -> u32 {
        let began = std::time::Instant::now();
        loop {
            let status = self.read32(DMA, 0x0040);
            if status & 1 == 0 {
                return status;
            }
            assert!(began.elapsed() < LONG, "status {status:#x}");
        }
    }
}

/// The first message.
pub(crate) fn version(major: u16, minor: u16) -> Request<'static> {
    Request::Version(Version { major, minor, capabilities: Capabilities::default() })
}

/// A descriptor of 32 bytes that ends its run (PG195, "Descriptor Format": magic, length, source, destination, next).
pub(crate) fn descriptor(length: u32, source: u64, destination: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xAD4B_0013, length] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for address in [source, destination, 0] {
        bytes.extend_from_slice(&address.to_le_bytes());
    }
    bytes
}

/// Creates a client file, sealed against shrinking or not.
pub(crate) fn file(pages: u64, sealed: bool) -> OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("client", flags).unwrap();
    rustix::fs::ftruncate(&file, pages * PAGE).unwrap();
    if sealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    }
    file
}
