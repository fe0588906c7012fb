//! Connection of two processes: a socket, and a file with a ring for each direction.
//!
//! The process that connects creates the file and sends it with its first message: [`HELLO`], and the path of its own link. After that, a
//! byte of any value wakes the other side, and the end of the socket is the end of the connection.

use super::{MAX_DATAGRAM, MAX_PATH};
use fpga_pci::SharedMemory;
use fpga_pci::memory::{RingLayout, RingReader, RingWriter};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Start of the first message: the letters FPLS and a version in memory order.
pub(super) const HELLO: [u8; 8] = *b"FPLS\x02\0\0\0";
/// Both rings: 4 MiB for the packets of an op table, as wrapped frames.
pub(super) const RING: RingLayout = RingLayout::new(22, MAX_DATAGRAM);
/// Bytes of a ring in the file.
pub(super) const LENGTH: usize = RING.length();
/// Wake-ups that one call takes from the socket.
const WAKE_BYTES: usize = 256;

/// A connection that has its rings.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) reader: RingReader,
    pub(super) writer: RingWriter,
    /// Position of its peer in the list of peers.
    pub(super) peer: usize,
    /// The other side has ended: its records are still read.
    pub(super) ended: bool,
}

/// Result of reading the first message of a connection.
pub(super) enum Greeting {
    /// Not there yet.
    Missing,
    /// Invalid, or the other side has ended.
    Invalid,
    /// Valid: path of the sender, and its file.
    Valid(PathBuf, SharedMemory),
}

/// Parts of the file: what the connecting side writes, and what it reads.
fn rings(file: &SharedMemory) -> Option<(SharedMemory, SharedMemory)> {
    Some((file.part(0, LENGTH).ok()?, file.part(LENGTH, LENGTH).ok()?))
}

impl Connection {
    /// Connects to the link at `to` as the link at `own`; `None` if no process listens there, or the system refuses.
    pub(super) fn open(own: &Path, to: &Path, peer: usize) -> Option<Self> {
        let address = SocketAddrUnix::new(to).ok()?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        rustix::net::connect(&socket, &address).ok()?;
        let file = SharedMemory::memfd("fpga-link", 2 * LENGTH).ok()?;
        let (write, read) = rings(&file)?;
        let descriptors = [file.file()?];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let own = own.as_os_str().as_bytes();
        let message = [IoSlice::new(&HELLO), IoSlice::new(own)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(&socket, &message, &mut control, flags).ok()?;
        (sent == HELLO.len() + own.len()).then(|| Self::new(socket, peer, read, write))
    }

    /// Completes a connection that the other side has opened with `file`.
    pub(super) fn accept(socket: OwnedFd, peer: usize, file: &SharedMemory) -> Option<Self> {
        let (read, write) = rings(file)?;
        Some(Self::new(socket, peer, read, write))
    }

    fn new(socket: OwnedFd, peer: usize, read: SharedMemory, write: SharedMemory) -> Self {
        let (reader, writer) = (RingReader::new(RING, read), RingWriter::new(RING, write));
        Self { socket, reader, writer, peer, ended: false }
    }

    /// Wakes the other side.
    pub(super) fn wake(&mut self) {
        match rustix::net::send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            // Wake-ups that it has not taken are enough.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.ended = true,
        }
    }

    /// Takes wake-ups from the socket, and notes the end of the other side.
    pub(super) fn take_wake_ups(&mut self) {
        let mut bytes = [0; WAKE_BYTES];
        match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.ended = true,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.ended = true,
        }
    }
}

/// Reads the first message of a connection that was accepted.
pub(super) fn greeting(socket: BorrowedFd<'_>) -> Greeting {
    let mut bytes = [0; HELLO.len() + MAX_PATH + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
    {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Greeting::Missing,
        Err(_) => return Greeting::Invalid,
    };
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let mut files: Vec<OwnedFd> = files.flatten().collect();
    let path = bytes.get(..received.bytes).and_then(|bytes| bytes.strip_prefix(&HELLO));
    match (path, files.pop()) {
        (Some(path), Some(file))
            if files.is_empty()
                && path.len() <= MAX_PATH
                && !received.flags.contains(ReturnFlags::CTRUNC) =>
        {
            SharedMemory::from_sealed_file(file, 2 * LENGTH)
                .map_or(Greeting::Invalid, |memory| Greeting::Valid(OsStr::from_bytes(path).into(), memory))
        }
        _ => Greeting::Invalid,
    }
}
