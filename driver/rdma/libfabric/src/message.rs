//! Messages: sending and receiving, with and without tags.

use crate::code::Code;
use crate::endpoint::Endpoint;
use crate::endpoint_core::{posted, user};
use crate::entry::{calls, check_flags, structure, to_u64};
use crate::info::RX_FLAGS;
use crate::memory::address_of;
use crate::object::borrow;
use crate::posting::{Flags, Transmission, one, several};
use crate::sys::*;
use core::ffi::c_void;
use core::ptr::null_mut;
use fpga_messages::{CompletionKind, HostRanges, Peek, ReceiveRequest, SendRequest, TagPattern, Token};

pub(crate) static MESSAGES: FiOpsMsg =
    FiOpsMsg { recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata, ..FiOpsMsg::NONE };

/// Message to send.
pub(crate) struct Outgoing {
    pub(crate) data: HostRanges,
    pub(crate) peer: u64,
    pub(crate) tag: Option<u64>,
    /// Immediate data, if `has_immediate` or `FI_REMOTE_CQ_DATA`.
    pub(crate) immediate: u64,
    pub(crate) has_immediate: bool,
    pub(crate) flags: Flags,
    pub(crate) context: *mut c_void,
}

/// Sends a message.
#[inline]
pub(crate) fn send_message(endpoint: *mut FidEp, message: &Outgoing) -> Result<isize, Code> {
    let endpoint: &Endpoint = borrow(endpoint)?;
    let &Outgoing { data, peer, tag, immediate, has_immediate, flags, context } = message;
    let entry_flags = FI_SEND | if tag.is_some() { FI_TAGGED } else { FI_MSG };
    let transmission = Transmission { kind: CompletionKind::Send, entry_flags, flags, context };
    let immediate = transmission.has_data(has_immediate)?.then_some(immediate);
    endpoint.core.post(|state| {
        let peer = state.peer(peer)?;
        transmission.prepare(endpoint, state, data)?.post(state, |engine, data, complete, token| {
            engine.send(&SendRequest { peer, data, tag, immediate, complete, token })
        })
    })
}

/// Receive buffer.
pub(crate) struct Incoming {
    pub(crate) data: HostRanges,
    pub(crate) peer: u64,
    pub(crate) tag: Option<TagPattern>,
    /// Flags of the call; `None`: the endpoint's.
    pub(crate) flags: Option<u64>,
    pub(crate) context: *mut c_void,
}

/// Posts a receive, or looks for a message.
#[inline]
pub(crate) fn receive_message(endpoint: *mut FidEp, buffer: &Incoming) -> Result<isize, Code> {
    let endpoint: &Endpoint = borrow(endpoint)?;
    let &Incoming { data, peer, tag, flags, context } = buffer;
    let flags = match flags {
        Some(flags) => {
            let special = FI_PEEK | FI_CLAIM | FI_DISCARD;
            let multi = if tag.is_some() { 0 } else { FI_MULTI_RECV };
            check_flags(flags, RX_FLAGS & !FI_MULTI_RECV | special | multi, EBADFLAGS)?;
            flags
        }
        None if tag.is_some() => endpoint.rx_flags() & !FI_MULTI_RECV,
        None => endpoint.rx_flags(),
    };
    let core = &endpoint.core;
    let is_directed = core.is_directed || tag.is_some() && core.is_tagged_directed;
    let is_multi = flags & FI_MULTI_RECV != 0;
    if is_multi && data.as_slice().len() != 1 {
        return Err(EINVAL);
    }
    core.post(|state| {
        let from = if is_directed && peer != FI_ADDR_UNSPEC { Some(state.peer(peer)?) } else { None };
        let asks =
            state.rx.as_ref().is_some_and(|binding| !binding.is_selective || flags & FI_COMPLETION != 0);
        let report = if asks { user::REPORT } else { 0 };
        let multi = is_multi.then_some(to_u64(state.min_multi_receive));
        let context = address_of(context.cast_const());
        let mut request = ReceiveRequest { from, tag, data, multi, token: Token { context, user: report } };
        if flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) == 0 {
            return posted(state.engine()?.receive(&request));
        }
        let (is_peek, is_claim, is_discard) =
            (flags & FI_PEEK != 0, flags & FI_CLAIM != 0, flags & FI_DISCARD != 0);
        let engine = state.engine()?;
        posted(match (is_peek, is_claim, is_discard) {
            (true, false, false) => engine.peek(request.without_data(), Peek::Look),
            (true, true, false) => engine.peek(request.without_data(), Peek::Claim),
            (true, false, true) => engine.peek(request.without_data(), Peek::Discard),
            (false, true, is_discard) => engine.receive_claimed(&request, is_discard),
            _ => return Err(EINVAL),
        })
    })
}

/// Change of a request that only looks for a message.
trait WithoutData {
    fn without_data(&mut self) -> &Self;
}

impl WithoutData for ReceiveRequest {
    fn without_data(&mut self) -> &Self {
        (self.data, self.multi) = (HostRanges::default(), None);
        self.token.user |= user::PEEK;
        self
    }
}

/// Message without a tag and immediate data.
fn plain(data: HostRanges, peer: u64, flags: Flags, context: *mut c_void) -> Outgoing {
    Outgoing { data, peer, tag: None, immediate: 0, has_immediate: false, flags, context }
}

calls! {
    send(endpoint, buffer, length, _descriptor, peer, context) {
        send_message(endpoint, &plain(one(buffer, length)?, peer, Flags::Default, context))
    }

    sendv(endpoint, ranges, _descriptors, count, peer, context) {
        send_message(endpoint, &plain(several(ranges, count)?, peer, Flags::Default, context))
    }

    sendmsg(endpoint, message, flags) {
        let message = structure(message)?;
        let data = several(message.msg_iov, message.iov_count)?;
        let plain = plain(data, message.addr, Flags::Call(flags), message.context);
        send_message(endpoint, &Outgoing { immediate: message.data, ..plain })
    }

    inject(endpoint, buffer, length, peer) {
        send_message(endpoint, &plain(one(buffer, length)?, peer, Flags::Inject, null_mut()))
    }

    senddata(endpoint, buffer, length, _descriptor, immediate, peer, context) {
        let plain = plain(one(buffer, length)?, peer, Flags::Default, context);
        send_message(endpoint, &Outgoing { immediate, has_immediate: true, ..plain })
    }

    injectdata(endpoint, buffer, length, immediate, peer) {
        let plain = plain(one(buffer, length)?, peer, Flags::Inject, null_mut());
        send_message(endpoint, &Outgoing { immediate, has_immediate: true, ..plain })
    }

    recv(endpoint, into, length, _descriptor, peer, context) {
        let data = one(into, length)?;
        receive_message(endpoint, &Incoming { data, peer, tag: None, flags: None, context })
    }

    recvv(endpoint, ranges, _descriptors, count, peer, context) {
        let data = several(ranges, count)?;
        receive_message(endpoint, &Incoming { data, peer, tag: None, flags: None, context })
    }

    recvmsg(endpoint, message, flags) {
        let message = structure(message)?;
        let data = several(message.msg_iov, message.iov_count)?;
        let (peer, context) = (message.addr, message.context);
        receive_message(endpoint, &Incoming { data, peer, tag: None, flags: Some(flags), context })
    }
}
