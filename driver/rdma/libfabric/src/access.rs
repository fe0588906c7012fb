//! Access to remote memory.

use crate::code::Code;
use crate::endpoint::Endpoint;
use crate::entry::{array, calls, structure, to_u64};
use crate::object::borrow;
use crate::posting::{Flags, Transmission, one, several};
use crate::sys::{EINVAL, FI_READ, FI_RMA, FI_WRITE, FiMsgRma, FiOpsRma, FidEp};
use core::ffi::c_void;
use core::ptr::null_mut;
use fpga_messages::{AccessRequest, CompletionKind, HostRanges, RemoteRange};

pub(crate) static ACCESS: FiOpsRma = FiOpsRma {
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
    ..FiOpsRma::NONE
};

/// Requested access.
struct Access {
    data: HostRanges,
    peer: u64,
    address: u64,
    key: u64,
    immediate: u64,
    has_immediate: bool,
    flags: Flags,
    context: *mut c_void,
}

fn access(endpoint: *mut FidEp, kind: CompletionKind, access: &Access) -> Result<isize, Code> {
    let endpoint: &Endpoint = borrow(endpoint)?;
    let &Access { data, peer, address, key, immediate, has_immediate, flags, context } = access;
    let is_read = kind == CompletionKind::Read;
    let entry_flags = FI_RMA | if is_read { FI_READ } else { FI_WRITE };
    let transmission = Transmission { kind, entry_flags, flags, context };
    let has_data = transmission.has_data(has_immediate)?;
    if is_read && has_data {
        return Err(EINVAL);
    }
    let remote = RemoteRange { address, length: data.length(), key };
    endpoint.core.post(|state| {
        let peer = state.peer(peer)?;
        let immediate = has_data.then_some(immediate);
        transmission.prepare(endpoint, state, data)?.post(state, |engine, data, complete, token| {
            let request = AccessRequest { peer, data, remote, immediate, complete, token };
            if is_read { engine.read(&request) } else { engine.write(&request) }
        })
    })
}

/// Access with the endpoint's flags, without immediate data.
fn plain(data: HostRanges, peer: u64, address: u64, key: u64, context: *mut c_void) -> Access {
    Access { data, peer, address, key, immediate: 0, has_immediate: false, flags: Flags::Default, context }
}

/// Access of a call with a structure.
fn of_message(message: *const FiMsgRma, flags: u64) -> Result<Access, Code> {
    let message = structure(message)?;
    let data = several(message.msg_iov, message.iov_count)?;
    let [remote] = array(message.rma_iov, message.rma_iov_count)? else { return Err(EINVAL) };
    if to_u64(remote.len) != data.length() {
        return Err(EINVAL);
    }
    let plain = plain(data, message.addr, remote.addr, remote.key, message.context);
    Ok(Access { immediate: message.data, flags: Flags::Call(flags), ..plain })
}

calls! {
    read(endpoint, into, length, _descriptor, peer, address, key, context) {
        access(endpoint, CompletionKind::Read, &plain(one(into, length)?, peer, address, key, context))
    }

    readv(endpoint, ranges, _descriptors, count, peer, address, key, context) {
        access(endpoint, CompletionKind::Read, &plain(several(ranges, count)?, peer, address, key, context))
    }

    readmsg(endpoint, access_message, flags) {
        access(endpoint, CompletionKind::Read, &of_message(access_message, flags)?)
    }

    write(endpoint, buffer, length, _descriptor, peer, address, key, context) {
        access(endpoint, CompletionKind::Write, &plain(one(buffer, length)?, peer, address, key, context))
    }

    writev(endpoint, ranges, _descriptors, count, peer, address, key, context) {
        access(endpoint, CompletionKind::Write, &plain(several(ranges, count)?, peer, address, key, context))
    }

    writemsg(endpoint, access_message, flags) {
        access(endpoint, CompletionKind::Write, &of_message(access_message, flags)?)
    }

    inject(endpoint, buffer, length, peer, address, key) {
        let plain = plain(one(buffer, length)?, peer, address, key, null_mut());
        access(endpoint, CompletionKind::Write, &Access { flags: Flags::Inject, ..plain })
    }

    writedata(endpoint, buffer, length, _descriptor, immediate, peer, address, key, context) {
        let plain = plain(one(buffer, length)?, peer, address, key, context);
        access(endpoint, CompletionKind::Write, &Access { immediate, has_immediate: true, ..plain })
    }

    injectdata(endpoint, buffer, length, immediate, peer, address, key) {
        let plain = plain(one(buffer, length)?, peer, address, key, null_mut());
        let access_request = Access { immediate, has_immediate: true, flags: Flags::Inject, ..plain };
        access(endpoint, CompletionKind::Write, &access_request)
    }
}
