//! Messages with tags.

use crate::entry::{call, structure};
use crate::message::{Incoming, Outgoing, receive_message, send_message};
use crate::posting::{Flags, one, several};
use crate::sys::{FI_CLAIM, FI_DISCARD, FI_PEEK, FiMsgTagged, FiOpsTagged, FidEp};
use core::ffi::c_void;
use core::ptr::null_mut;
use fpga_messages::{HostRanges, TagPattern};
use libc::iovec;

pub(crate) static TAGGED: FiOpsTagged = FiOpsTagged {
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
    ..FiOpsTagged::NONE
};

/// Message without immediate data.
fn tagged(data: HostRanges, peer: u64, tag: u64, flags: Flags, context: *mut c_void) -> Outgoing {
    Outgoing { data, peer, tag: Some(tag), immediate: 0, has_immediate: false, flags, context }
}

unsafe extern "C" fn send(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    _descriptor: *mut c_void,
    peer: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    call(|| send_message(endpoint, &tagged(one(buffer, length)?, peer, tag, Flags::Default, context)))
}

unsafe extern "C" fn sendv(
    endpoint: *mut FidEp,
    ranges: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    peer: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    call(|| send_message(endpoint, &tagged(several(ranges, count)?, peer, tag, Flags::Default, context)))
}

unsafe extern "C" fn sendmsg(endpoint: *mut FidEp, message: *const FiMsgTagged, flags: u64) -> isize {
    call(|| {
        let message = structure(message)?;
        let data = several(message.msg_iov, message.iov_count)?;
        let tagged = tagged(data, message.addr, message.tag, Flags::Call(flags), message.context);
        send_message(endpoint, &Outgoing { immediate: message.data, ..tagged })
    })
}

unsafe extern "C" fn inject(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    peer: u64,
    tag: u64,
) -> isize {
    call(|| send_message(endpoint, &tagged(one(buffer, length)?, peer, tag, Flags::Inject, null_mut())))
}

unsafe extern "C" fn senddata(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    _descriptor: *mut c_void,
    immediate: u64,
    peer: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    call(|| {
        let tagged = tagged(one(buffer, length)?, peer, tag, Flags::Default, context);
        send_message(endpoint, &Outgoing { immediate, has_immediate: true, ..tagged })
    })
}

unsafe extern "C" fn injectdata(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    immediate: u64,
    peer: u64,
    tag: u64,
) -> isize {
    call(|| {
        let tagged = tagged(one(buffer, length)?, peer, tag, Flags::Inject, null_mut());
        send_message(endpoint, &Outgoing { immediate, has_immediate: true, ..tagged })
    })
}

unsafe extern "C" fn recv(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    length: usize,
    _descriptor: *mut c_void,
    peer: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    call(|| {
        let (data, tag) = (one(buffer, length)?, Some(TagPattern { tag, ignore }));
        receive_message(endpoint, &Incoming { data, peer, tag, flags: None, context })
    })
}

unsafe extern "C" fn recvv(
    endpoint: *mut FidEp,
    ranges: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    peer: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    call(|| {
        let (data, tag) = (several(ranges, count)?, Some(TagPattern { tag, ignore }));
        receive_message(endpoint, &Incoming { data, peer, tag, flags: None, context })
    })
}

unsafe extern "C" fn recvmsg(endpoint: *mut FidEp, message: *const FiMsgTagged, flags: u64) -> isize {
    call(|| {
        let message = structure(message)?;
        // Requests that look for a message or drop it have no buffer: programs may leave the ranges undefined.
        let is_dropped = flags & FI_PEEK != 0 || flags & FI_CLAIM != 0 && flags & FI_DISCARD != 0;
        let data =
            if is_dropped { HostRanges::default() } else { several(message.msg_iov, message.iov_count)? };
        let tag = Some(TagPattern { tag: message.tag, ignore: message.ignore });
        let (peer, context) = (message.addr, message.context);
        receive_message(endpoint, &Incoming { data, peer, tag, flags: Some(flags), context })
    })
}
