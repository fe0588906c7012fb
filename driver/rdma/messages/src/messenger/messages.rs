//! Messages and receives.

use super::{CardMessenger, PostError};
use crate::address::PeerId;
use crate::completion::{Completion, CompletionKind, Failure};
use crate::layout::{Doorbell, MAX_EAGER, MAX_OPERATIONS, PortNumber};
use crate::matching::{Claimed, Matched, Posted};
use crate::operation::{Local, Operation, Role};
use crate::peer::{Payload, QueuedRecord, eager_units};
use crate::request::{CompleteWhen, Peek, ReceiveRequest, SendRequest};
use crate::unexpected::Unexpected;
use crate::wire::{Header, Kind};
use fpga_driver::SharedSlice;

impl CardMessenger {
    /// Sends a message of a port.
    pub(crate) fn send(&mut self, port: PortNumber, request: &SendRequest) -> Result<(), PostError> {
        let length = request.data.length();
        self.check_peer(port, request.peer)?;
        Self::check_inject(request.complete, length)?;
        let mut operation =
            Operation::new(Role::Send, request.peer, request.token, Local::Host(request.data), length);
        operation.complete = request.complete;
        (operation.is_tagged, operation.tag) = (request.tag.is_some(), request.tag.unwrap_or(0));
        let is_large = length > MAX_EAGER;
        if !is_large {
            (operation.sent, operation.is_granted) = (length, true);
        }
        // Injected messages too: a message that is lost has a completion.
        let id = self.operations.insert(operation).ok_or(PostError::Full)?;
        let header = Header {
            is_tagged: request.tag.is_some(),
            tag: request.tag.unwrap_or(0),
            immediate: request.immediate,
            wants_done: request.complete.waits_for_peer(),
            wants_match: request.complete == CompleteWhen::Matched,
            operation: id.index,
            length,
            ..Header::new(if is_large { Kind::LargeMessage } else { Kind::Message })
        };
        let payload = if is_large { Payload::None } else { Payload::Host(request.data) };
        self.submit(request.peer, QueuedRecord { header, payload, operation: Some(id) });
        self.start();
        Ok(())
    }

    /// Starts the copies to host memory that were submitted.
    pub(super) fn start(&mut self) {
        if let Err(text) = self.kick() {
            self.fail_card(&text);
        }
    }

    /// Posts a receive of a port.
    pub(crate) fn receive(&mut self, port: PortNumber, request: &ReceiveRequest) -> Result<(), PostError> {
        self.check_receive(port, request)?;
        let buffer = request.multi.map(|_| self.ports[port].matching.buffers.insert());
        let mut receive = Posted { request: *request, buffer };
        while let Some(found) = self.ports[port].matching.post(&mut receive) {
            self.deliver(found.message, &found.destination);
            if found.is_used_up {
                break;
            }
        }
        Ok(())
    }

    fn check_receive(&self, port: PortNumber, request: &ReceiveRequest) -> Result<(), PostError> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone().into());
        }
        if let Some(peer) = request.from {
            // A peer that has failed may have left messages.
            match self.check_peer(port, peer) {
                Err(PostError::Failed(_)) if self.ports[port].matching.find(request).is_some() => {}
                Err(PostError::Full) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        if request.multi.is_some() && (request.tag.is_some() || request.data.as_slice().len() > 1) {
            return Err(PostError::Invalid {
                text: "a buffer for several messages has one range, and no tag",
            });
        }
        Ok(())
    }

    /// Looks for a message of a port that has arrived and that `request` matches.
    pub(crate) fn peek(
        &mut self,
        port: PortNumber,
        request: &ReceiveRequest,
        what: Peek,
    ) -> Result<(), PostError> {
        self.check_receive(port, request)?;
        let matching = &mut self.ports[port].matching;
        let Some((peer, header)) = matching.find(request) else {
            self.fail_receive(port, request, &Failure::NoMessage);
            return Ok(());
        };
        match what {
            Peek::Look => {}
            Peek::Claim => matching.claim(request),
            Peek::Discard => {
                if let Some(message) = matching.take(request) {
                    self.discard(message);
                }
            }
        }
        self.ports[port].completions.push_back(Completion {
            token: request.token,
            kind: CompletionKind::Receive,
            is_tagged: header.is_tagged,
            length: header.length,
            cut: 0,
            address: 0,
            tag: header.tag,
            immediate: header.immediate,
            source: Some(peer),
            key: None,
            is_last: false,
            result: Ok(()),
        });
        Ok(())
    }

    /// Receives the message that [`peek`](Self::peek) has claimed with the same context, or drops it.
    pub(crate) fn receive_claimed(
        &mut self,
        port: PortNumber,
        request: &ReceiveRequest,
        discard: bool,
    ) -> Result<(), PostError> {
        // Whether the sender has failed since does not matter.
        if let Some(failure) = &self.failed {
            return Err(failure.clone().into());
        }
        let claimed = self.ports[port].matching.take_claimed(request.tag.is_some(), request.token.context);
        let Claimed { message, failure, .. } =
            claimed.ok_or(PostError::Invalid { text: "no message was claimed with this context" })?;
        if let Some(failure) = failure.filter(|_| !discard) {
            self.fail_receive(port, request, &failure);
            return Ok(());
        }
        if discard {
            let (tag, is_tagged) = (message.header.tag, message.header.is_tagged);
            self.discard(message);
            self.ports[port].completions.push_back(Completion {
                token: request.token,
                kind: CompletionKind::Receive,
                is_tagged,
                length: 0,
                cut: 0,
                address: 0,
                tag,
                immediate: None,
                source: None,
                key: None,
                is_last: false,
                result: Ok(()),
            });
            return Ok(());
        }
        let matched = Matched { token: request.token, data: request.data, buffer: None };
        self.deliver(message, &matched);
        Ok(())
    }

    /// Cancels a posted receive of a port.
    pub(crate) fn cancel(&mut self, port: PortNumber, context: u64) -> bool {
        let Some(posted) = self.ports[port].matching.cancel(context) else { return false };
        self.fail_posted(port, &posted, &Failure::Cancelled);
        true
    }

    /// Delivers a queued message to a receive.
    fn deliver(&mut self, mut message: Unexpected, matched: &Matched) {
        let is_current = self.unkeep(&message);
        let (peer, mut header) = (message.peer, message.header);
        // A later session has other operations.
        header.wants_done &= is_current;
        if header.kind == Kind::LargeMessage {
            self.accept(peer, &header, matched);
        } else {
            self.take_message(peer, &header, matched, SharedSlice::from_mut(&mut message.data));
        }
        self.port_of_mut(peer).matching.recycle(message.data);
    }

    /// Drops a message, and completes the operation of its sender.
    fn discard(&mut self, message: Unexpected) {
        let is_current = self.unkeep(&message);
        if is_current && message.header.kind == Kind::LargeMessage {
            let header =
                Header { operation: 0, peer_operation: message.header.operation, ..Header::new(Kind::Grant) };
            self.submit(message.peer, QueuedRecord { header, payload: Payload::None, operation: None });
        }
        if is_current && message.header.wants_done {
            self.ring(message.peer, Doorbell::Done(message.header.operation));
        }
        self.port_of_mut(message.peer).matching.recycle(message.data);
    }

    /// Copies a message to the buffer of its receive.
    fn take_message(&mut self, peer: PeerId, header: &Header, matched: &Matched, data: SharedSlice<'_>) {
        let taken = (data.len() as u64).min(matched.data.length());
        let part = usize::try_from(taken).ok().and_then(|taken| data.slice(0, taken).ok());
        if let Some(part) = part {
            self.scatter_local(peer, &Local::Host(matched.data), 0, part);
        }
        if header.wants_done {
            self.ring(peer, Doorbell::Done(header.operation));
        }
        let operation = self.receive_operation(peer, header, matched, taken);
        self.report(&operation, Ok(()));
    }

    fn receive_operation(&self, peer: PeerId, header: &Header, matched: &Matched, taken: u64) -> Operation {
        let mut operation =
            Operation::new(Role::Receive, peer, matched.token, Local::Host(matched.data), taken);
        operation.cut = header.length - taken;
        (operation.tag, operation.is_tagged) = (header.tag, header.is_tagged);
        operation.immediate = header.immediate;
        operation.buffer = matched.buffer;
        operation.peer_operation = header.operation;
        operation.wants_done = header.wants_done;
        operation
    }

    /// Processes a message.
    pub(super) fn message(&mut self, peer: PeerId, header: &Header, data: SharedSlice<'_>) {
        let units = eager_units(header.length);
        let limit = self.port_of(peer).options.eager_limit;
        if !self.peers[peer].note_eager(units, limit) {
            self.fail_peer(peer);
            return;
        }
        match self.port_of_mut(peer).matching.arrived(peer, header) {
            Some(matched) => {
                self.free_eager(peer, units);
                self.take_message(peer, header, &matched, data);
            }
            None => {
                let session = self.peers[peer].ended;
                let mut kept = *header;
                kept.wants_done &= header.wants_match;
                self.port_of_mut(peer).matching.keep(peer, session, kept, data.len(), |into| {
                    let _ = data.read(0, into);
                });
                if header.wants_done && !header.wants_match {
                    self.ring(peer, Doorbell::Done(header.operation));
                }
            }
        }
    }

    /// Returns the credit of a message that has matched a receive, or was dropped.
    fn free_eager(&mut self, peer: PeerId, units: u32) {
        let limit = self.port_of(peer).options.eager_limit;
        if let Some(units) = self.peers[peer].free_eager(units, limit) {
            self.ring(peer, Doorbell::Eager(units));
        }
    }

    /// Notes that a queued message is no longer kept. Returns whether it is of the current session: the peer waits for an answer to no other one.
    fn unkeep(&mut self, message: &Unexpected) -> bool {
        let peer = &mut self.peers[message.peer];
        if message.session != peer.ended {
            return false;
        }
        if message.header.kind == Kind::LargeMessage {
            peer.announced = peer.announced.saturating_sub(1);
        } else {
            self.free_eager(message.peer, eager_units(message.header.length));
        }
        true
    }

    /// Processes the announcement of a large message.
    pub(super) fn large_message(&mut self, peer: PeerId, header: &Header) {
        if let Some(matched) = self.port_of_mut(peer).matching.arrived(peer, header) {
            self.accept(peer, header, &matched);
            return;
        }
        let state = &mut self.peers[peer];
        // Each is an operation of the peer.
        if state.announced == MAX_OPERATIONS {
            self.fail_peer(peer);
            return;
        }
        state.announced += 1;
        let session = state.ended;
        self.port_of_mut(peer).matching.keep(peer, session, *header, 0, |_| {});
    }

    /// Requests the data of a large message.
    fn accept(&mut self, peer: PeerId, header: &Header, matched: &Matched) {
        let taken = header.length.min(matched.data.length());
        let mut operation = self.receive_operation(peer, header, matched, taken);
        operation.is_granted = true;
        let Some(id) = self.operations.insert(operation) else {
            // All operations are in use: the sender waits until one has ended.
            self.postponed.push_back((peer, *header, *matched));
            return;
        };
        let request = Header {
            operation: id.index,
            peer_operation: header.operation,
            length: taken,
            ..Header::new(Kind::Grant)
        };
        if let Some(operation) = self.operations.get_mut(id) {
            operation.request = Some(request);
        }
        self.request_data(id);
    }

    /// Requests the data of large messages that found no free operation.
    pub(super) fn accept_postponed(&mut self) {
        for _ in 0..self.postponed.len() {
            if let Some((peer, header, matched)) = self.postponed.pop_front() {
                self.accept(peer, &header, &matched);
            }
        }
    }

    /// Ends receives whose large message found no free operation, of one peer or of all.
    pub(super) fn fail_postponed(&mut self, peer: Option<PeerId>, failure: &Failure) {
        for _ in 0..self.postponed.len() {
            let Some((from, header, matched)) = self.postponed.pop_front() else { return };
            if peer.is_none_or(|peer| peer == from) {
                let operation = self.receive_operation(from, &header, &matched, 0);
                self.report(&operation, Err(failure.clone()));
            } else {
                self.postponed.push_back((from, header, matched));
            }
        }
    }

    /// Processes the doorbell of a peer that has executed an operation.
    pub(super) fn peer_done(&mut self, id: PeerId, number: u32) {
        let Some(number) = self.operations.named(number, id) else { return };
        let Some(operation) = self.operations.get_mut(number) else { return };
        match operation.role {
            Role::Send | Role::Write => {
                operation.is_done = true;
                self.end_sending(number);
            }
            Role::Atomic => self.finish(number, Ok(())),
            Role::Read | Role::Receive | Role::Absorb | Role::Serve => {}
        }
    }

    /// Processes the doorbell of a peer that has refused an operation.
    pub(super) fn peer_refused(&mut self, id: PeerId, number: u32, failure: Failure) {
        if let Some(number) = self.operations.named(number, id)
            && let Some(operation) = self.operations.get_mut(number)
            && operation.role.is_own()
        {
            if matches!(operation.role, Role::Send | Role::Write) {
                operation.refused = Some(failure);
                self.end_refused(number);
            } else {
                self.finish(number, Err(failure));
            }
        }
    }
}
