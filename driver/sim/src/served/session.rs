//! One client: its messages and their replies, without the socket that carries them.

use super::MIN_DATA;
use super::client::ClientConnection;
use super::device;
use super::error::RequestError;
use super::irqs::{self, LineUnmask};
use super::posted::{MAX_WRITES_IN_A_ROW, PostedError, PostedWrites};
use super::slow_reads::{SlowRead, SlowReads};
use crate::dma::ClientMemory;
use crate::network::SimNetwork;
use crate::state::{CardFailure, Slot};
use fpga_card::{DesignAccess, Requester};
use fpga_pci::{DmaAccess, InterruptError};
use fpga_pci::{LogLimit, log_limited};
use fpga_registers::Iova;
use fpga_registers::cast::index;
use fpga_vfio_user::socket::Connection;
use fpga_vfio_user::wire::{
    Capabilities, Command, DeviceInfo, DmaMap, DmaUnmap, Header, Kind, MAJOR, MAX_DATA, MINOR, RegionInfo,
    Reply, Request, SmallWrite, Version, device_flags, dma_map_flags, dma_unmap_flags, encode_error,
    encode_reply, irq, region, region_flags,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Maximum number of file descriptors per message. QEMU accepts no larger number here than 16 (`VFIO_USER_MAX_MAX_FDS` in
/// `hw/vfio-user/protocol.h`) and gives up the device otherwise.
const MESSAGE_FDS: u32 = 16;
/// Granule of mappings.
const PAGE_SIZES: u64 = 4096;

/// Action after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Receive the next message.
    Continue,
    /// End the connection: client and server have no common protocol version. Pending output is sent first.
    Close,
}

/// State of a client's use of a card, from the first message to the end. When it is dropped, the card is made idle: bus mastering off,
/// interrupts and memory of the client released.
#[derive(Debug)]
pub struct Session {
    network: SimNetwork,
    card: usize,
    /// Whether the version is negotiated.
    settled: bool,
    /// Whether a design outside the model answers accesses of the user BAR.
    has_design: bool,
    /// Buffer for read data, kept to reuse its memory.
    data: Vec<u8>,
    refused: u64,
    /// Connection for memory that the client maps without a file, and for the replies of slow reads.
    peer: Option<Arc<ClientConnection>>,
    /// Thread of slow reads, once there was one.
    slow_reads: Option<SlowReads>,
    /// The client's ring of register writes.
    posted: Option<PostedWrites>,
    /// The client's descriptor for unmasking INTx, beside messages.
    line: Option<LineUnmask>,
    log: Arc<LogLimit>,
}

impl Session {
    /// Begins a session for card `card`, which is put into the state in which the kernel hands out a device. With an invalid number, the
    /// session refuses every request.
    #[must_use]
    pub fn new(network: &SimNetwork, card: usize) -> Self {
        Self::logging(network, card, Arc::new(LogLimit::new("clients")))
    }

    fn logging(network: &SimNetwork, card: usize, log: Arc<LogLimit>) -> Self {
        let has_design = network.with_card(card, |card| card.has_design()).unwrap_or(false);
        let session = Self {
            network: network.clone(),
            card,
            settled: false,
            has_design,
            data: Vec::new(),
            refused: 0,
            peer: None,
            slow_reads: None,
            posted: None,
            line: None,
            log,
        };
        session.close();
        let _ = session.with_slot(|slot| {
            slot.card.set_error_reporting(true);
            Ok(())
        });
        session
    }

    /// Like [`new`](Self::new), with a client at the other end of `connection` that can be asked for memory that it maps without a file,
    /// and answers within `answer`. Its requests are still passed to [`handle`](Self::handle).
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    pub fn with_client_memory(
        network: &SimNetwork,
        card: usize,
        connection: Connection,
        answer: Duration,
    ) -> Result<Self, InterruptError> {
        let log = Arc::new(LogLimit::new("clients"));
        Ok(Self::with_peer(
            network,
            card,
            Arc::new(ClientConnection::new(connection, answer, Arc::clone(&log))?),
            log,
        ))
    }

    /// Like [`new`](Self::new), with a client that can be asked for memory that it maps without a file.
    pub(super) fn with_peer(
        network: &SimNetwork,
        card: usize,
        peer: Arc<ClientConnection>,
        log: Arc<LogLimit>,
    ) -> Self {
        let mut session = Self::logging(network, card, log);
        let requester: Weak<dyn Requester> = Arc::downgrade(&(Arc::clone(&peer) as Arc<dyn Requester>));
        session.peer = Some(peer);
        let _ = session.with_slot(|slot| {
            slot.card.set_requester(requester);
            Ok(())
        });
        session
    }

    /// Returns whether a version was negotiated.
    pub(super) const fn is_negotiated(&self) -> bool {
        self.settled
    }

    /// Readable when the client has signalled its event descriptor for unmasking, if it has provided one.
    pub(super) fn line_unmask(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(AsFd::as_fd)
    }

    /// The client's ring of register writes, if it has one.
    pub(super) const fn posted(&mut self) -> Option<&mut PostedWrites> {
        self.posted.as_mut()
    }

    /// Executes the writes of the client's ring. Returns whether there were any, and refuses those that no region has, as a message without
    /// reply is refused.
    pub(super) fn execute_posted(&mut self) -> Result<bool, PostedError> {
        for count in 0..MAX_WRITES_IN_A_ROW {
            let next = self.posted.as_mut().map(PostedWrites::next).transpose()?.flatten();
            let Some(write) = next else { return Ok(count > 0) };
            if let Err(error) = self.write(&write) {
                self.refused += 1;
                log_limited!(self.log, WARN, command = %Command::SHARE_WRITES, %error, "refused");
            }
        }
        Ok(true)
    }

    /// Makes one small write.
    fn write(&self, write: &SmallWrite) -> Result<(), RequestError> {
        if self.has_design && self.write_design(write.region, write.offset, write.data())? {
            return Ok(());
        }
        self.with_slot(|slot| {
            check(slot, write.region, write.offset, write.data().len() as u64)?;
            device::write(slot, write.region, write.offset, write.data());
            Ok(())
        })
    }

    /// Unmasks INTx if the client has signalled the unmask descriptor.
    pub(super) fn serve_intx_unmask(&self) {
        if self.line.as_ref().is_some_and(LineUnmask::take) {
            let _ = self.with_slot(|slot| {
                irqs::unmask_line(slot);
                Ok(())
            });
        }
    }

    /// Returns the number of requests refused so far.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Handles one message: its header, its data, and its descriptors, which are closed unless they are used. Appends the reply to `out`,
    /// if there is one.
    pub fn handle(&mut self, header: &Header, body: &[u8], fds: Vec<OwnedFd>, out: &mut Vec<u8>) -> Next {
        let Kind::Request { no_reply } = header.kind else {
            // Reply without a request.
            log_limited!(self.log, WARN, command = %header.command, "the client sent a reply without a request");
            return Next::Close;
        };
        if let Err(error) = self.execute_posted() {
            log_limited!(self.log, WARN, %error, "the connection ends");
            return Next::Close;
        }
        let start = out.len();
        let answered = Request::decode(header.command, body)
            .map_err(RequestError::from)
            .and_then(|request| self.request((header.id, no_reply), &request, fds, out));
        let Err(error) = answered else {
            if no_reply {
                out.truncate(start);
            }
            return Next::Continue;
        };
        // A client that finds the channel taken tells its user.
        if !matches!(error, RequestError::StreamClaimed) {
            self.refused += 1;
            log_limited!(self.log, WARN, command = %header.command, %error, "refused");
        }
        out.truncate(start);
        if !no_reply {
            encode_error(header.id, header.command, error.errno(), out);
        }
        if self.settled { Next::Continue } else { Next::Close }
    }

    fn request(
        &mut self,
        (id, no_reply): (u16, bool),
        request: &Request<'_>,
        mut fds: Vec<OwnedFd>,
        out: &mut Vec<u8>,
    ) -> Result<(), RequestError> {
        let command = request.command();
        if !self.settled && command != Command::VERSION {
            return Err(RequestError::NoVersion);
        }
        let most = match request {
            Request::DmaMap(_) | Request::ShareWrites => 1,
            Request::DeviceSetIrqs(_) => usize::MAX,
            _ => 0,
        };
        if fds.len() > most {
            return Err(RequestError::Descriptors { command, got: fds.len() });
        }
        if let Request::Version(version) = request {
            encode_reply(id, &Reply::Version(self.negotiate(version)?), out);
            return Ok(());
        }
        if matches!(request, Request::ShareWrites) {
            let file = fds.pop().ok_or(RequestError::Descriptors { command, got: 0 })?;
            self.posted = Some(PostedWrites::map(file).map_err(RequestError::Ring)?);
            encode_reply(id, &Reply::ShareWrites, out);
            return Ok(());
        }
        if self.has_design && self.with_design((id, no_reply), request, out)? {
            return Ok(());
        }
        let mut data = std::mem::take(&mut self.data);
        let (peer, mut line) = (self.peer.clone(), self.line.take());
        let done = self.with_slot(|slot| {
            let reply = match request {
                Request::DeviceGetInfo(_) => Reply::DeviceGetInfo(DeviceInfo {
                    flags: device_flags::PCI | device_flags::RESET,
                    regions: region::COUNT,
                    irqs: irq::COUNT,
                }),
                Request::DeviceGetRegionInfo(info) => {
                    Reply::DeviceGetRegionInfo(region_info(slot, info.index)?.within(info.argsz))
                }
                Request::DeviceGetIrqInfo(info) => {
                    let answer = device::irq_info(&slot.card, info.index);
                    Reply::DeviceGetIrqInfo(answer.ok_or(RequestError::NoIrq(info.index))?)
                }
                Request::DeviceSetIrqs(irqs) => {
                    irqs::set(slot, irqs, std::mem::take(&mut fds), &mut line)?;
                    Reply::DeviceSetIrqs
                }
                Request::DmaMap(map) => {
                    dma_map(slot, map, fds.pop(), peer)?;
                    Reply::DmaMap
                }
                Request::DmaUnmap(unmap) => Reply::DmaUnmap(dma_unmap(slot, unmap)?),
                Request::RegionRead(access) => {
                    check(slot, access.region, access.offset, access.count.into())?;
                    data.clear();
                    data.resize(index(access.count), 0);
                    device::read(slot, access.region, access.offset, &mut data);
                    encode_reply(id, &Reply::RegionRead(*access, &data), out);
                    return Ok(());
                }
                Request::RegionWrite(access, data) => {
                    check(slot, access.region, access.offset, access.count.into())?;
                    device::write(slot, access.region, access.offset, data);
                    Reply::RegionWrite(*access)
                }
                Request::RegionWriteMulti(writes) => {
                    for write in writes {
                        check(slot, write.region, write.offset, write.data().len() as u64)?;
                        device::write(slot, write.region, write.offset, write.data());
                    }
                    Reply::RegionWriteMulti(writes.len() as u64)
                }
                Request::ClaimStream(claim) => {
                    if !slot.card.claim_stream(claim.is_c2h, claim.number, claim.takes) {
                        return Err(RequestError::StreamClaimed);
                    }
                    Reply::ClaimStream
                }
                Request::DeviceReset => {
                    if slot.failure == CardFailure::Gone || slot.card.is_removed() {
                        return Err(RequestError::Gone);
                    }
                    // The kernel restores the command register after the reset, and the client may have switched decoding off before (QEMU
                    // does, and maps the BARs again when its guest switches it on: a register that already reads as on is not written).
                    let decoding = slot.card.config().memory_decoding();
                    slot.reset();
                    slot.card.set_command(decoding, false);
                    slot.card.set_error_reporting(true);
                    irqs::restore(slot);
                    Reply::DeviceReset
                }
                _ => return Err(RequestError::Unsupported(command)),
            };
            encode_reply(id, &reply, out);
            Ok(())
        });
        (self.data, self.line) = (data, line);
        if matches!(request, Request::DeviceReset) {
            self.publish_generation();
        }
        done
    }

    /// Makes the register accesses of `request` that a design outside the model answers: without the lock, so that the card works and
    /// answers other accesses meanwhile. Returns `false` if the card itself answers. The reply to a slow read follows later.
    fn with_design(
        &mut self,
        (id, no_reply): (u16, bool),
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, RequestError> {
        match request {
            Request::RegionRead(access) => {
                let count = index(access.count);
                let Some(answering) = self.design_access(access.region, access.offset, count, None)? else {
                    return Ok(false);
                };
                let answering = if !no_reply && answering.has_slow_reads() {
                    match self.read_later(SlowRead { id, access: *access, design: answering }) {
                        Ok(()) => return Ok(true),
                        Err(SlowRead { design, .. }) => design,
                    }
                } else {
                    answering
                };
                let mut data = std::mem::take(&mut self.data);
                data.clear();
                data.resize(count, 0);
                answering.read(&mut data);
                self.note_design_access(access.region, access.offset, &data, false)?;
                encode_reply(id, &Reply::RegionRead(*access, &data), out);
                self.data = data;
                Ok(true)
            }
            Request::RegionWrite(access, data) => {
                let done = self.write_design(access.region, access.offset, data)?;
                if done {
                    encode_reply(id, &Reply::RegionWrite(*access), out);
                }
                Ok(done)
            }
            Request::RegionWriteMulti(writes) => {
                for write in writes {
                    self.write(write)?;
                }
                encode_reply(id, &Reply::RegionWriteMulti(writes.len() as u64), out);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Executes a read on the thread of slow reads. Returns the read if there is no such thread.
    fn read_later(&mut self, read: SlowRead) -> Result<(), SlowRead> {
        let Some(peer) = &self.peer else { return Err(read) };
        if self.slow_reads.is_none() {
            // Without a thread, other requests wait.
            self.slow_reads = SlowReads::start(&self.network, self.card, peer).ok();
        }
        match &self.slow_reads {
            Some(reads) => reads.queue(read),
            None => Err(read),
        }
    }

    /// Writes a region if a design answers there.
    fn write_design(&self, region: u32, offset: u64, data: &[u8]) -> Result<bool, RequestError> {
        let Some(answering) = self.design_access(region, offset, data.len(), Some(data))? else {
            return Ok(false);
        };
        // A write that is not a register access has no effect, as in the model.
        let _ = answering.write(data);
        self.note_design_access(region, offset, data, true)?;
        Ok(true)
    }

    /// The design's answer to an access, if a design answers there. `written`: data of a write, which is observed.
    fn design_access(
        &self,
        region: u32,
        offset: u64,
        count: usize,
        written: Option<&[u8]>,
    ) -> Result<Option<DesignAccess>, RequestError> {
        self.with_slot(|slot| {
            if slot.failure != CardFailure::None || region >= region::ROM || count == 0 {
                return Ok(None);
            }
            let access = slot.card.design_access(u8::try_from(region).unwrap_or(u8::MAX), offset, count);
            if let (Some(_), Some(data)) = (&access, written) {
                device::observe(slot, region, offset, data, true);
            }
            Ok(access)
        })
    }

    fn note_design_access(
        &self,
        region: u32,
        offset: u64,
        data: &[u8],
        write: bool,
    ) -> Result<(), RequestError> {
        self.with_slot(|slot| {
            if !write {
                device::observe(slot, region, offset, data, false);
            }
            let bar = u8::try_from(region).unwrap_or(u8::MAX);
            slot.card.note_design_access(bar, offset, data, write);
            Ok(())
        })
    }

    fn negotiate(&mut self, proposed: &Version) -> Result<Version, RequestError> {
        if self.settled {
            return Err(RequestError::VersionRepeated);
        }
        if proposed.major != MAJOR {
            return Err(RequestError::VersionMismatch { major: proposed.major, minor: proposed.minor });
        }
        let limit = proposed.capabilities.max_data();
        if limit < MIN_DATA {
            return Err(RequestError::DataLimit { limit });
        }
        self.settled = true;
        if let Some(peer) = &self.peer {
            peer.limit(limit);
        }
        // QEMU accepts no reply longer than its request: send only the necessary capabilities.
        let capabilities = Capabilities {
            max_msg_fds: Some(MESSAGE_FDS),
            max_data_xfer_size: Some(MAX_DATA),
            pgsizes: Some(PAGE_SIZES),
            write_multiple: Some(true),
            write_ring: proposed.capabilities.write_ring().then_some(true),
            stream_claims: (self.has_design && proposed.capabilities.stream_claims()).then_some(true),
            ..Capabilities::default()
        };
        Ok(Version { major: MAJOR, minor: proposed.minor.min(MINOR), capabilities })
    }

    fn with_slot<T>(
        &self,
        act: impl FnOnce(&mut Slot) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let mut state = self.network.lock();
        act(state.slots.get_mut(self.card).ok_or(RequestError::Gone)?)
    }

    /// A simulated network with a thread refuses stale BARs before locking.
    fn publish_generation(&self) {
        let state = self.network.lock();
        if let (Some(threaded), Some(slot)) = (self.network.threaded(), state.slots.get(self.card)) {
            threaded.set_generation(self.card, slot.generation);
        }
    }

    /// Notifies the client of a device-release request (REQ).
    pub(super) fn request_release(&self) {
        let _ = self.with_slot(|slot| {
            slot.host.signals.message(crate::signals::Kind::Req, 0);
            Ok(())
        });
    }

    fn close(&self) {
        let _ = self.with_slot(|slot| {
            slot.close();
            Ok(())
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Before the card is made idle.
        self.slow_reads = None;
        if self.network.is_own() {
            self.close();
        }
    }
}

fn region_info(slot: &Slot, index: u32) -> Result<RegionInfo, RequestError> {
    let size = device::region_size(&slot.card, index).ok_or(RequestError::NoRegion(index))?;
    let flags = match (size, index) {
        (0, _) => 0,
        (_, region::ROM) => region_flags::READ,
        _ => region_flags::READ | region_flags::WRITE,
    };
    Ok(RegionInfo { flags, index, size, ..RegionInfo::default() })
}

fn check(slot: &Slot, region: u32, offset: u64, count: u64) -> Result<(), RequestError> {
    let size = device::region_size(&slot.card, region).ok_or(RequestError::NoRegion(region))?;
    match offset.checked_add(count) {
        Some(end) if end <= size => Ok(()),
        _ => Err(RequestError::OutsideRegion { region, offset, count, size }),
    }
}

fn dma_map(
    slot: &mut Slot,
    map: &DmaMap,
    file: Option<OwnedFd>,
    peer: Option<Arc<ClientConnection>>,
) -> Result<(), RequestError> {
    let access = match map.flags {
        dma_map_flags::READ => DmaAccess::ReadByDevice,
        dma_map_flags::WRITE => DmaAccess::WriteByDevice,
        flags if flags == dma_map_flags::READ | dma_map_flags::WRITE => DmaAccess::Both,
        flags => return Err(RequestError::DmaFlags { command: Command::DMA_MAP, flags }),
    };
    let memory = match (file, peer) {
        (Some(file), _) => ClientMemory::File(file, map.offset),
        (None, Some(peer)) => ClientMemory::Remote(peer),
        (None, None) => ClientMemory::Unreachable,
    };
    Ok(slot.host.map.map_client(Iova::new(map.address), map.size, memory, access)?)
}

fn dma_unmap(slot: &mut Slot, unmap: &DmaUnmap) -> Result<DmaUnmap, RequestError> {
    let size = match unmap.flags {
        0 => slot.host.map.unmap_range(Iova::new(unmap.address), unmap.size)?,
        dma_unmap_flags::ALL if (unmap.address, unmap.size) == (0, 0) => {
            let size = slot.host.map.mapped_bytes();
            slot.host.map.unmap_all();
            size
        }
        flags => return Err(RequestError::DmaFlags { command: Command::DMA_UNMAP, flags }),
    };
    Ok(DmaUnmap { size, ..*unmap })
}
