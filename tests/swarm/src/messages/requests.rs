//! Submission and cancellation of requests.

use fpga_messages::{
    AccessRequest, AtomicRequest, CompleteWhen, HostRange, HostRanges, Peek, PeerId, PostError,
    ReceiveRequest, RemoteRange, SendRequest, TagPattern, Token,
};

use super::World;
use super::model::{ENDED, Request};
use super::plan::{Call, End, Get};
use super::process::{ADD, longest};
use crate::model::{Checked, UNTOUCHED, Violation, data};

/// Number of the receives of everything.
const EVERYTHING: usize = usize::MAX;

fn ranges(address: u64, length: u64) -> HostRanges {
    // In two parts, if that is possible.
    let first = if address.is_multiple_of(2) { length } else { length / 3 };
    let parts = [(address, first), (address + first, length - first)];
    let parts = parts.into_iter().filter(|(_, length)| *length > 0);
    HostRanges::new(parts.map(|(address, length)| HostRange { address, length })).unwrap_or_default()
}

/// Request of a [`Call::Receive`].
fn receive_request(call: &Call, address: u64, token: Token) -> ReceiveRequest {
    let Call::Receive { from, tag, length, get, .. } = *call else { unreachable!("no receive: {call:?}") };
    let (multi, data) = match get {
        Get::Several(least) => (Some(least), HostRanges::one(address, length).unwrap_or_default()),
        _ => (None, ranges(address, length)),
    };
    let tag = tag.map(|(tag, ignore)| TagPattern { tag, ignore });
    ReceiveRequest { from: from.map(peer), tag, data, multi, token }
}

fn peer(node: usize) -> PeerId {
    PeerId(u32::try_from(node).unwrap_or(u32::MAX))
}

impl World<'_> {
    /// Submits the calls that wait, as far as they are accepted. Those of one node stay in order.
    pub(super) fn submit_waiting(&mut self) -> Checked {
        let mut blocked = vec![false; self.plan.nodes];
        for index in std::mem::take(&mut self.waiting) {
            let call = self.work.calls[index].clone();
            let node = call.item.node();
            let is_accepted = !blocked[node]
                && self.nodes[node].is_running()
                && self.submit(call.number, &call.item, false)?;
            if !is_accepted {
                blocked[node] = true;
                self.waiting.push(index);
            }
        }
        Ok(())
    }

    /// Submits a call. Returns whether it was accepted, or refused for good.
    pub(super) fn submit(&mut self, number: usize, call: &Call, is_probe: bool) -> Result<bool, Violation> {
        let (node, now) = (call.node(), self.network.now());
        if let Call::Renew { node } = call {
            self.renew(*node)?;
            return Ok(true);
        }
        let owner = match call {
            Call::Send { to, .. } | Call::Write { to, .. } | Call::Read { to, .. } | Call::Add { to, .. } => {
                *to
            }
            Call::Receive { from, .. } => from.unwrap_or(node),
            Call::Renew { .. } => node,
        };
        let lives = (self.nodes[node].life, self.nodes[owner].life);
        // A node that is down has the key of its next process.
        let key = match (call, &self.nodes[owner].process) {
            (Call::Send { .. } | Call::Receive { .. } | Call::Renew { .. }, _) => 0,
            (_, Some(process)) => process.key,
            (_, None) => return Ok(true),
        };
        let Some(process) = &mut self.nodes[node].process else { return Ok(false) };
        let length = call.length();
        let free = process.free;
        let address = match call {
            Call::Receive { tag, .. } if number == EVERYTHING => {
                process.everything[usize::from(tag.is_some())]
            }
            _ => process.allocate(length, length >= 256 << 10),
        };
        let token = Token { context: self.requests.len() as u64, user: number as u64 };
        let data_range = ranges(address, length);
        let immediate = Some(number as u64);
        let remote = |part: u64, offset, is_wrong: bool| RemoteRange {
            address: offset,
            length,
            key: key.wrapping_add(part) ^ u64::from(is_wrong) << 40,
        };
        let mut complete = CompleteWhen::Transmitted;
        match call {
            Call::Send { .. } | Call::Write { .. } => process.memory.write(address, &data(number, length)),
            Call::Add { .. } => process.memory.write(address, &1_u64.to_le_bytes()),
            _ => process.memory.fill(address, length, UNTOUCHED),
        }
        let messenger = &mut process.messenger;
        let posted = match call {
            Call::Send { to, tag, end, .. } => {
                complete = match end {
                    End::Injected => CompleteWhen::Injected,
                    End::Transmitted => CompleteWhen::Transmitted,
                    End::Delivered => CompleteWhen::Delivered,
                    End::Matched => CompleteWhen::Matched,
                };
                messenger.send(&SendRequest {
                    peer: peer(*to),
                    data: data_range,
                    tag: *tag,
                    immediate,
                    complete,
                    token,
                })
            }
            Call::Receive { get, .. } => {
                let mut request = receive_request(call, address, token);
                match get {
                    Get::One | Get::Several(_) => messenger.receive(&request),
                    Get::Look | Get::Drop | Get::Claim(_) | Get::ClaimAndDrop(_) => {
                        request.data = HostRanges::default();
                        let what = match get {
                            Get::Look => Peek::Look,
                            Get::Drop => Peek::Discard,
                            _ => Peek::Claim,
                        };
                        messenger.peek(&request, what)
                    }
                }
            }
            Call::Write { to, offset, is_immediate, is_wrong, .. } => messenger.write(&AccessRequest {
                peer: peer(*to),
                data: data_range,
                remote: remote(0, *offset, *is_wrong),
                immediate: immediate.filter(|_| *is_immediate),
                complete,
                token,
            }),
            Call::Read { to, offset, is_wrong, .. } => messenger.read(&AccessRequest {
                peer: peer(*to),
                data: data_range,
                remote: remote(1, *offset, *is_wrong),
                immediate: None,
                complete,
                token,
            }),
            Call::Add { to, counter, fetches, .. } => {
                // The fetched value replaces the operand.
                let fetch = if *fetches { ranges(address, 8) } else { HostRanges::default() };
                messenger.atomic(&AtomicRequest {
                    peer: peer(*to),
                    operation: ADD[0],
                    datatype: ADD[1],
                    remote: remote(2, counter * 8, false),
                    operand: ranges(address, 8),
                    compare: HostRanges::default(),
                    fetch,
                    complete,
                    token,
                })
            }
            Call::Renew { .. } => Ok(()),
        };
        match posted {
            Ok(()) => {}
            Err(PostError::Full) => {
                process.free = free;
                self.coverage.count("messages full", 1);
                return Ok(false);
            }
            Err(PostError::Failed(failure)) => {
                self.coverage.count("messages refused", 1);
                let excuse = self.is_excused(node, call.node_of_peer());
                if !excuse || is_probe {
                    return Err(Violation(format!("refused without a cause: {failure}: {call:?}")));
                }
                return Ok(true);
            }
            Err(error) => return Err(Violation(format!("not accepted: {error}: {call:?}"))),
        }
        if complete == CompleteWhen::Injected {
            process.memory.fill(address, length, ENDED);
        }
        if let Call::Receive { cancel: Some(span), .. } = call {
            self.cancels.push((now.saturating_add(*span), self.requests.len()));
        }
        self.requests.push(Request {
            number,
            call: call.clone(),
            lives,
            address,
            submitted: now,
            key,
            result: None,
            partner: None,
            is_cancelled: false,
            is_renewed: false,
            is_probe,
            reports: 0,
            frozen: None,
            parts: Vec::new(),
        });
        Ok(true)
    }

    /// Changes the keys of a node's registered memory.
    fn renew(&mut self, node: usize) -> Checked {
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        let key = process.key;
        process.renew()?;
        self.coverage.count("messages keys renewed", 1);
        for request in self.requests.iter_mut().filter(|request| request.key == key) {
            if request.result.is_none() {
                request.is_renewed = true;
            }
            // Nothing of it may be written from now on.
            if let Call::Write { offset, length, .. } = request.call {
                request.frozen = Some(process.memory.read(super::process::WRITABLE + offset, length));
            }
        }
        Ok(())
    }

    /// Takes or drops claimed messages whose time has come.
    pub(super) fn take_claimed(&mut self) -> Checked {
        let now = self.network.now();
        for position in (0..self.claims.len()).rev() {
            let (time, index) = self.claims[position];
            let request = &self.requests[index];
            let node = &mut self.nodes[request.call.node()];
            if time > now || node.pauses > 0 {
                continue;
            }
            self.claims.swap_remove(position);
            let Some(process) = node.process.as_mut().filter(|_| node.life == request.lives.0) else {
                continue;
            };
            let token = Token { context: index as u64, user: request.number as u64 };
            let posted = receive_request(&request.call, request.address, token);
            let Call::Receive { get, .. } = request.call else { continue };
            let taken = process.messenger.receive_claimed(&posted, matches!(get, Get::ClaimAndDrop(_)));
            taken.map_err(|error| Violation(format!("claimed message: {error}: {request:?}")))?;
        }
        Ok(())
    }

    /// Cancels receives whose time has come.
    pub(super) fn cancel_due(&mut self) {
        let now = self.network.now();
        for position in (0..self.cancels.len()).rev() {
            if self.cancels[position].0 <= now {
                let (_, index) = self.cancels.swap_remove(position);
                self.cancel(index);
            }
        }
    }

    pub(super) fn cancel(&mut self, index: usize) {
        let request = &mut self.requests[index];
        let node = &mut self.nodes[request.call.node()];
        let Some(process) = &mut node.process else { return };
        if node.life == request.lives.0 && request.result.is_none() && node.pauses == 0 {
            request.is_cancelled |= process.messenger.cancel(index as u64);
            self.coverage.count("messages cancel", 1);
        }
    }

    /// Posts receives of everything at all nodes.
    pub(super) fn receive_everything(&mut self) -> Checked {
        let length = longest(self.plan);
        for node in 0..self.plan.nodes {
            for (index, tag) in [None, Some((0, u64::MAX))].into_iter().enumerate() {
                let is_waiting = self.nodes[node].everything[index]
                    .is_some_and(|request| self.requests[request].result.is_none());
                if is_waiting || !self.nodes[node].is_running() {
                    continue;
                }
                let call = Call::Receive { node, from: None, tag, length, cancel: None, get: Get::One };
                if self.submit(EVERYTHING, &call, false)? {
                    self.nodes[node].everything[index] = Some(self.requests.len() - 1);
                }
            }
        }
        Ok(())
    }
}
