//! Writes, reads and atomic operations on registered memory: as requester, and for peers.

use super::{CardMessenger, PostError};
use crate::address::PeerId;
use crate::layout::{Doorbell, MAX_EAGER, PortNumber};
use crate::operation::{Local, Operation, OperationId, Role};
use crate::peer::{Payload, QueuedRecord};
use crate::port::PortOptions;
use crate::region::RemoteAccess;
use crate::request::{AccessRequest, AtomicCall, AtomicRequest, HostMemory, HostRanges, Token};
use crate::wire::{Header, Kind, MAX_GRANT};
use fpga_driver::SharedSlice;

const READ: RemoteAccess = RemoteAccess { read: true, write: false };
const WRITE: RemoteAccess = RemoteAccess { read: false, write: true };
const BOTH: RemoteAccess = RemoteAccess { read: true, write: true };

/// Copies the application's memory to `to`.
fn copy_out(memory: &dyn HostMemory, from: &HostRanges, to: &mut [u8]) {
    from.parts(0, from.length(), |address, position, part| {
        let (start, end) =
            (usize::try_from(position).unwrap_or(0), usize::try_from(position + part).unwrap_or(0));
        if let Some(place) = to.get_mut(start..end) {
            memory.read(address, SharedSlice::from_mut(place));
        }
    });
}

impl CardMessenger {
    fn begin_access(
        &mut self,
        port: PortNumber,
        role: Role,
        request: &AccessRequest,
    ) -> Result<(OperationId, Header), PostError> {
        let length = request.data.length();
        self.check_peer(port, request.peer)?;
        Self::check_inject(request.complete, length)?;
        if length != request.remote.length {
            return Err(PostError::Invalid { text: "local and remote memory differ in length" });
        }
        let mut operation =
            Operation::new(role, request.peer, request.token, Local::Host(request.data), length);
        operation.complete = request.complete;
        let id = self.operations.insert(operation).ok_or(PostError::Full)?;
        let header = Header {
            operation: id.index,
            length,
            tag: request.remote.key,
            address: request.remote.address,
            immediate: request.immediate,
            wants_done: true,
            ..Header::new(Kind::Write)
        };
        Ok((id, header))
    }

    /// Writes to a peer's memory. It completes when the data is there.
    pub(crate) fn write(&mut self, port: PortNumber, request: &AccessRequest) -> Result<(), PostError> {
        let (id, mut header) = self.begin_access(port, Role::Write, request)?;
        let length = request.data.length();
        let payload = if length <= MAX_EAGER {
            if let Some(operation) = self.operations.get_mut(id) {
                (operation.sent, operation.is_granted) = (length, true);
            }
            Payload::Host(request.data)
        } else {
            header.kind = Kind::LargeWrite;
            Payload::None
        };
        self.submit(request.peer, QueuedRecord { header, payload, operation: Some(id) });
        self.start();
        Ok(())
    }

    /// Reads a peer's memory.
    pub(crate) fn read(&mut self, port: PortNumber, request: &AccessRequest) -> Result<(), PostError> {
        let (id, mut header) = self.begin_access(port, Role::Read, request)?;
        if request.data.length() <= MAX_EAGER {
            header.kind = Kind::Read;
            self.submit(request.peer, QueuedRecord { header, payload: Payload::None, operation: None });
        } else {
            header.kind = Kind::LargeRead;
            if let Some(operation) = self.operations.get_mut(id) {
                operation.request = Some(header);
            }
            self.request_data(id);
        }
        self.start();
        Ok(())
    }

    /// Executes an atomic operation on a peer's memory.
    pub(crate) fn atomic(&mut self, port: PortNumber, request: &AtomicRequest) -> Result<(), PostError> {
        self.check_peer(port, request.peer)?;
        let length = request.remote.length;
        let suits = |ranges: &HostRanges| ranges.length() == 0 || ranges.length() == length;
        if !suits(&request.operand) || !suits(&request.compare) || !suits(&request.fetch) {
            return Err(PostError::Invalid { text: "operands differ in length from the remote memory" });
        }
        let operands = request.operand.length() + request.compare.length();
        if operands > MAX_EAGER || length > MAX_EAGER {
            return Err(PostError::Invalid { text: "an atomic operation has too many operands" });
        }
        let mut operation = Operation::new(
            Role::Atomic,
            request.peer,
            request.token,
            Local::Host(request.fetch),
            request.fetch.length(),
        );
        operation.complete = request.complete;
        let id = self.operations.insert(operation).ok_or(PostError::Full)?;
        let header = Header {
            operation: id.index,
            length,
            tag: request.remote.key,
            address: request.remote.address,
            atomic: [request.operation, request.datatype],
            // The earlier content is asked for.
            wants_done: request.fetch.length() == 0,
            // Whether there is an operand besides the one to compare with.
            is_tagged: request.operand.length() > 0,
            ..Header::new(Kind::Atomic)
        };
        let mut operands = self.buffer(operands);
        let split = usize::try_from(request.operand.length()).unwrap_or(0);
        if let Some((first, second)) = operands.split_at_mut_checked(split) {
            let memory = &*self.ports[port].options.memory;
            copy_out(memory, &request.operand, first);
            copy_out(memory, &request.compare, second);
        }
        self.submit(
            request.peer,
            QueuedRecord { header, payload: Payload::Bytes(operands), operation: None },
        );
        self.start();
        Ok(())
    }

    /// Executes a peer's write whose data is in the record.
    pub(super) fn write_arrived(&mut self, id: PeerId, header: &Header, data: SharedSlice<'_>) {
        let local = Local::Region { key: header.tag, address: header.address };
        if !self.scatter_local(id, &local, 0, data) {
            self.ring(id, Doorbell::Refused(header.operation));
            return;
        }
        self.ring(id, Doorbell::Done(header.operation));
        if header.immediate.is_some() || self.port_of(id).options.reports_access {
            self.report_access(id, header, Role::Absorb);
        }
    }

    /// Reports an access whose data was in the record.
    fn report_access(&mut self, id: PeerId, header: &Header, role: Role) {
        let local = Local::Region { key: header.tag, address: header.address };
        let mut operation = Operation::new(role, id, Token::default(), local, header.length);
        operation.immediate = header.immediate;
        self.report(&operation, Ok(()));
    }

    /// Grants landing slots for a peer's large write.
    pub(super) fn large_write_arrived(&mut self, id: PeerId, header: &Header) {
        let local = Local::Region { key: header.tag, address: header.address };
        let regions = &self.port_of(id).options.regions;
        if regions.with(header.tag, header.address, header.length, WRITE, |_| ()).is_none() {
            self.ring(id, Doorbell::Refused(header.operation));
            return;
        }
        let mut operation = Operation::new(Role::Absorb, id, Token::default(), local, header.length);
        operation.immediate = header.immediate;
        operation.peer_operation = header.operation;
        operation.wants_done = true;
        let Some(number) = self.operations.insert(operation) else {
            self.ring(id, Doorbell::Refused(header.operation));
            return;
        };
        let request = Header {
            operation: number.index,
            peer_operation: header.operation,
            length: header.length,
            ..Header::new(Kind::Grant)
        };
        if let Some(operation) = self.operations.get_mut(number) {
            operation.request = Some(request);
        }
        self.request_data(number);
    }

    /// Executes a peer's read whose data fits in a record.
    pub(super) fn read_arrived(&mut self, id: PeerId, header: &Header) {
        if header.length > MAX_EAGER {
            return;
        }
        let mut bytes = self.buffer(header.length);
        let PortOptions { memory, regions, reports_access, .. } = &self.port_of(id).options;
        let reports_access = *reports_access;
        let copied = regions.with(header.tag, header.address, header.length, READ, |host| {
            memory.read(host, SharedSlice::from_mut(&mut bytes));
        });
        if copied.is_none() {
            self.ring(id, Doorbell::Refused(header.operation));
            return;
        }
        self.answer(id, header.operation, bytes);
        if reports_access {
            self.report_access(id, header, Role::Serve);
        }
    }

    fn answer(&mut self, id: PeerId, operation: u32, bytes: Vec<u8>) {
        let header =
            Header { peer_operation: operation, length: bytes.len() as u64, ..Header::new(Kind::Answer) };
        self.submit(id, QueuedRecord { header, payload: Payload::Bytes(bytes), operation: None });
    }

    /// Executes a peer's large read. The peer has granted landing slots for it.
    pub(super) fn large_read_arrived(&mut self, id: PeerId, header: &Header) {
        let local = Local::Region { key: header.tag, address: header.address };
        let regions = &self.port_of(id).options.regions;
        let permitted = regions.with(header.tag, header.address, header.length, READ, |_| ()).is_some();
        let mut operation = Operation::new(Role::Serve, id, Token::default(), local, header.length);
        operation.peer_operation = header.operation;
        let grants = (1..=MAX_GRANT).contains(&usize::from(header.grant.count)) && header.length > 0;
        let number = if permitted && grants { self.operations.insert(operation) } else { None };
        match number {
            Some(number) => self.begin_sending(number, header.length, header.grant),
            None => self.ring(id, Doorbell::Refused(header.operation)),
        }
    }

    /// Processes the answer to a read or an atomic operation of this side.
    pub(super) fn answered(&mut self, id: PeerId, header: &Header, data: SharedSlice<'_>) {
        let Some(number) = self.operations.named(header.peer_operation, id) else { return };
        let Some(operation) = self.operations.get(number) else { return };
        let is_asked = matches!(operation.role, Role::Read | Role::Atomic);
        if !is_asked || data.len() as u64 != operation.length || operation.grant.count > 0 {
            return;
        }
        let local = operation.local;
        self.scatter_local(id, &local, 0, data);
        self.finish(number, Ok(()));
    }

    /// Executes a peer's atomic operation.
    pub(super) fn atomic_arrived(&mut self, id: PeerId, header: &Header, data: SharedSlice<'_>) {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let fetches = !header.wants_done;
        let split = if header.is_tagged { length } else { 0 };
        let is_complete = data.len().checked_sub(split).is_some_and(|rest| rest == 0 || rest == length);
        if header.length > MAX_EAGER || !is_complete {
            self.ring(id, Doorbell::Unsupported(header.operation));
            return;
        }
        let mut operands = std::mem::take(&mut self.scratch);
        operands.clear();
        operands.resize(data.len(), 0);
        let _ = data.read(0, &mut operands);
        let mut fetched = self.buffer(if fetches { header.length } else { 0 });
        let (operand, compare) = operands.split_at_checked(split).unwrap_or_default();
        let [operation, datatype] = header.atomic;
        let PortOptions { atomics, regions, reports_access, .. } = &self.port_of(id).options;
        let reports_access = *reports_access;
        let done = regions.with(header.tag, header.address, header.length, BOTH, |host| {
            atomics.apply(AtomicCall {
                operation,
                datatype,
                address: host,
                length: header.length,
                operand,
                compare,
                fetch: &mut fetched,
            })
        });
        self.scratch = operands;
        if done == Some(true) && reports_access {
            self.report_access(id, header, if fetches { Role::Serve } else { Role::Absorb });
        }
        match done {
            None => self.ring(id, Doorbell::Refused(header.operation)),
            Some(false) => self.ring(id, Doorbell::Unsupported(header.operation)),
            Some(true) if fetches => self.answer(id, header.operation, fetched),
            Some(true) => self.ring(id, Doorbell::Done(header.operation)),
        }
    }
}
