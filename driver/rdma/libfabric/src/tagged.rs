//! Messages with tags.

use crate::entry::{calls, structure};
use crate::message::{Incoming, Outgoing, receive_message, send_message};
use crate::posting::{Flags, one, several};
use crate::sys::{FI_CLAIM, FI_DISCARD, FI_PEEK, FiOpsTagged};
use core::ffi::c_void;
use core::ptr::null_mut;
use fpga_messages::{HostRanges, TagPattern};

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

calls! {
    send(endpoint, buffer, length, _descriptor, peer, tag, context) {
        send_message(endpoint, &tagged(one(buffer, length)?, peer, tag, Flags::Default, context))
    }

    sendv(endpoint, ranges, _descriptors, count, peer, tag, context) {
        send_message(endpoint, &tagged(several(ranges, count)?, peer, tag, Flags::Default, context))
    }

    sendmsg(endpoint, tagged_message, flags) {
        let message = structure(tagged_message)?;
        let data = several(message.msg_iov, message.iov_count)?;
        let tagged = tagged(data, message.addr, message.tag, Flags::Call(flags), message.context);
        send_message(endpoint, &Outgoing { immediate: message.data, ..tagged })
    }

    inject(endpoint, buffer, length, peer, tag) {
        send_message(endpoint, &tagged(one(buffer, length)?, peer, tag, Flags::Inject, null_mut()))
    }

    senddata(endpoint, buffer, length, _descriptor, immediate, peer, tag, context) {
        let tagged = tagged(one(buffer, length)?, peer, tag, Flags::Default, context);
        send_message(endpoint, &Outgoing { immediate, has_immediate: true, ..tagged })
    }

    injectdata(endpoint, buffer, length, immediate, peer, tag) {
        let tagged = tagged(one(buffer, length)?, peer, tag, Flags::Inject, null_mut());
        send_message(endpoint, &Outgoing { immediate, has_immediate: true, ..tagged })
    }

    recv(endpoint, into, length, _descriptor, peer, tag, ignore, context) {
        let (data, tag) = (one(into, length)?, Some(TagPattern { tag, ignore }));
        receive_message(endpoint, &Incoming { data, peer, tag, flags: None, context })
    }

    recvv(endpoint, ranges, _descriptors, count, peer, tag, ignore, context) {
        let (data, tag) = (several(ranges, count)?, Some(TagPattern { tag, ignore }));
        receive_message(endpoint, &Incoming { data, peer, tag, flags: None, context })
    }

    recvmsg(endpoint, tagged_message, flags) {
        let message = structure(tagged_message)?;
        // Requests that look for a message or drop it have no buffer: programs may leave the ranges undefined.
        let is_dropped = flags & FI_PEEK != 0 || flags & FI_CLAIM != 0 && flags & FI_DISCARD != 0;
        let data =
            if is_dropped { HostRanges::default() } else { several(message.msg_iov, message.iov_count)? };
        let tag = Some(TagPattern { tag: message.tag, ignore: message.ignore });
        let (peer, context) = (message.addr, message.context);
        receive_message(endpoint, &Incoming { data, peer, tag, flags: Some(flags), context })
    }
}
