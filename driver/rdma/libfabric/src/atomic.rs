//! Atomic operations on remote memory. The peer's host executes them.

use crate::atomic_unit::{AtomicKind, value_size};
use crate::code::Code;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::entry::{array, call, calls, check_flags, set, structure, to_u64};
use crate::info::MAX_ATOMIC;
use crate::object::borrow;
use crate::posting::{Flags, Transmission, values};
use crate::sys::*;
use crate::unsupported::refuse_datatype;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use fpga_messages::{AtomicRequest, CompletionKind, HostRanges, RemoteRange};

pub(crate) static ATOMIC: FiOpsAtomic = FiOpsAtomic {
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
    ..FiOpsAtomic::NONE
};

/// Flags of queries: kinds of calls.
const FI_FETCH_ATOMIC: u64 = 1 << 58;
const FI_COMPARE_ATOMIC: u64 = 1 << 59;
/// Maximum number of ranges of one operand.
const MAX_PARTS: usize = fpga_messages::MAX_RANGES;

/// Ranges of one operand: address, and number of values.
#[derive(Clone, Copy)]
struct Parts {
    parts: [(*const c_void, usize); MAX_PARTS],
    used: usize,
}

impl Parts {
    const NONE: Self = Self { parts: [(null_mut::<c_void>().cast_const(), 0); MAX_PARTS], used: 0 };

    fn one(start: *const c_void, count: usize) -> Self {
        let mut all = Self::NONE;
        if let Some(first) = all.parts.first_mut() {
            *first = (start, count);
            all.used = 1;
        }
        all
    }

    fn several(ranges: *const FiIoc, count: usize) -> Result<Self, Code> {
        if count > MAX_PARTS {
            return Err(EINVAL);
        }
        let mut all = Self::NONE;
        for (part, range) in all.parts.iter_mut().zip(array(ranges, count)?) {
            *part = (range.addr.cast_const(), range.count);
            all.used += 1;
        }
        Ok(all)
    }

    fn values(&self, size: usize) -> Result<HostRanges, Code> {
        values(self.parts.get(..self.used).unwrap_or_default(), size)
    }
}

/// Requested operation.
struct Operation {
    call: AtomicKind,
    operand: Parts,
    compare: Parts,
    result: Parts,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    flags: Flags,
    context: *mut c_void,
    /// Number of values that the call states for the remote side, if it does.
    remote_count: Option<usize>,
}

fn execute(endpoint: *mut FidEp, request: &Operation) -> Result<isize, Code> {
    let endpoint: &Endpoint = borrow(endpoint)?;
    let size = value_size(request.call, request.datatype, request.operation)
        .ok_or_else(|| refuse_datatype(request.datatype))?;
    let is_fetch = request.call != AtomicKind::Write;
    // A read has no operand: programs may pass any pointer.
    let is_read = request.operation == FI_ATOMIC_READ;
    let operand = if is_read { HostRanges::default() } else { request.operand.values(size)? };
    let (compare, fetch) = (request.compare.values(size)?, request.result.values(size)?);
    let length = if is_read { fetch.length() } else { operand.length() };
    let remote_fits =
        request.remote_count.is_none_or(|count| count.checked_mul(size).map(to_u64) == Some(length));
    let compare_fits = request.call != AtomicKind::Compare || compare.length() == length;
    if length == 0 || !remote_fits || !compare_fits || is_fetch && fetch.length() != length {
        return Err(EINVAL);
    }
    let (Ok(operation), Ok(datatype)) = (u8::try_from(request.operation), u8::try_from(request.datatype))
    else {
        return Err(EOPNOTSUPP);
    };
    let entry_flags = FI_ATOMIC | if is_fetch { FI_READ } else { FI_WRITE };
    let transmission = Transmission {
        kind: CompletionKind::Atomic,
        entry_flags,
        flags: request.flags,
        context: request.context,
    };
    if transmission.has_data(false)? {
        return Err(EOPNOTSUPP);
    }
    let remote = RemoteRange { address: request.address, length, key: request.key };
    endpoint.core.post(|state| {
        let peer = state.peer(request.peer)?;
        transmission.prepare(endpoint, state, operand)?.post(state, |engine, operand, complete, token| {
            engine.atomic(&AtomicRequest {
                peer,
                operation,
                datatype,
                remote,
                operand,
                compare,
                fetch,
                complete,
                token,
            })
        })
    })
}

/// Remote side, type and operation of a call.
struct Target(u64, u64, u64, c_int, c_int);

fn plain(call: AtomicKind, operand: Parts, target: &Target, context: *mut c_void) -> Operation {
    let &Target(peer, address, key, datatype, operation) = target;
    let (compare, result, flags, remote_count) = (Parts::NONE, Parts::NONE, Flags::Default, None);
    Operation {
        call,
        operand,
        compare,
        result,
        peer,
        address,
        key,
        datatype,
        operation,
        flags,
        context,
        remote_count,
    }
}

fn of_message(call: AtomicKind, message: *const FiMsgAtomic, flags: u64) -> Result<Operation, Code> {
    let message = structure(message)?;
    let [remote] = array(message.rma_iov, message.rma_iov_count)? else { return Err(EINVAL) };
    let target = Target(message.addr, remote.addr, remote.key, message.datatype, message.op);
    // A read has no operand.
    let operand = if message.op == FI_ATOMIC_READ {
        Parts::NONE
    } else {
        Parts::several(message.msg_iov, message.iov_count)?
    };
    let plain = plain(call, operand, &target, message.context);
    Ok(Operation { flags: Flags::Call(flags), remote_count: Some(remote.count), ..plain })
}

calls! {
    write(endpoint, buffer, count, _descriptor, peer, address, key, datatype, operation, context) {
        let target = Target(peer, address, key, datatype, operation);
        execute(endpoint, &plain(AtomicKind::Write, Parts::one(buffer, count), &target, context))
    }

    writev(endpoint, operands, _descriptors, count, peer, address, key, datatype, operation, context) {
        let target = Target(peer, address, key, datatype, operation);
        execute(endpoint, &plain(AtomicKind::Write, Parts::several(operands, count)?, &target, context))
    }

    writemsg(endpoint, atomic_message, flags) {
        execute(endpoint, &of_message(AtomicKind::Write, atomic_message, flags)?)
    }

    inject(endpoint, buffer, count, peer, address, key, datatype, operation) {
        let target = Target(peer, address, key, datatype, operation);
        let plain = plain(AtomicKind::Write, Parts::one(buffer, count), &target, null_mut());
        execute(endpoint, &Operation { flags: Flags::Inject, ..plain })
    }

    readwrite(
        endpoint, buffer, count, _descriptor, result, _result_descriptor, peer, address, key, datatype,
        operation, context
    ) {
        let target = Target(peer, address, key, datatype, operation);
        let plain = plain(AtomicKind::Fetch, Parts::one(buffer, count), &target, context);
        execute(endpoint, &Operation { result: Parts::one(result, count), ..plain })
    }

    readwritev(
        endpoint, operands, _descriptors, count, results, _result_descriptors, result_count, peer, address, key,
        datatype, operation, context
    ) {
        let target = Target(peer, address, key, datatype, operation);
        let operand = if operation == FI_ATOMIC_READ { Parts::NONE } else { Parts::several(operands, count)? };
        let plain = plain(AtomicKind::Fetch, operand, &target, context);
        execute(endpoint, &Operation { result: Parts::several(results, result_count)?, ..plain })
    }

    readwritemsg(endpoint, atomic_message, results, _result_descriptors, result_count, flags) {
        let plain = of_message(AtomicKind::Fetch, atomic_message, flags)?;
        execute(endpoint, &Operation { result: Parts::several(results, result_count)?, ..plain })
    }

    compwrite(
        endpoint, buffer, count, _descriptor, compare, _compare_descriptor, result, _result_descriptor, peer,
        address, key, datatype, operation, context
    ) {
        let target = Target(peer, address, key, datatype, operation);
        let plain = plain(AtomicKind::Compare, Parts::one(buffer, count), &target, context);
        let (compare, result) = (Parts::one(compare, count), Parts::one(result, count));
        execute(endpoint, &Operation { compare, result, ..plain })
    }

    compwritev(
        endpoint, operands, _descriptors, count, compares, _compare_descriptors, compare_count, results,
        _result_descriptors, result_count, peer, address, key, datatype, operation, context
    ) {
        let target = Target(peer, address, key, datatype, operation);
        let plain = plain(AtomicKind::Compare, Parts::several(operands, count)?, &target, context);
        let (compare, result) =
            (Parts::several(compares, compare_count)?, Parts::several(results, result_count)?);
        execute(endpoint, &Operation { compare, result, ..plain })
    }

    compwritemsg(
        endpoint, atomic_message, compares, _compare_descriptors, compare_count, results, _result_descriptors,
        result_count, flags
    ) {
        let plain = of_message(AtomicKind::Compare, atomic_message, flags)?;
        let (compare, result) =
            (Parts::several(compares, compare_count)?, Parts::several(results, result_count)?);
        execute(endpoint, &Operation { compare, result, ..plain })
    }
}

/// Number of values of one operation, if the type has it.
fn valid(
    endpoint: *mut FidEp,
    kind: AtomicKind,
    datatype: c_int,
    operation: c_int,
    count: *mut usize,
) -> c_int {
    call(|| {
        let _: &Endpoint = borrow(endpoint)?;
        let size = value_size(kind, datatype, operation).ok_or(EOPNOTSUPP)?;
        if !count.is_null() {
            set(count, MAX_ATOMIC / size)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn writevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    operation: c_int,
    count: *mut usize,
) -> c_int {
    valid(endpoint, AtomicKind::Write, datatype, operation, count)
}

unsafe extern "C" fn readwritevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    operation: c_int,
    count: *mut usize,
) -> c_int {
    valid(endpoint, AtomicKind::Fetch, datatype, operation, count)
}

unsafe extern "C" fn compwritevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    operation: c_int,
    count: *mut usize,
) -> c_int {
    valid(endpoint, AtomicKind::Compare, datatype, operation, count)
}

/// Function of domains: the properties of an operation.
pub(crate) unsafe extern "C" fn query(
    domain: *mut FidDomain,
    datatype: c_int,
    operation: c_int,
    attributes: *mut FiAtomicAttr,
    flags: u64,
) -> c_int {
    call(|| {
        let _: &Domain = borrow(domain)?;
        check_flags(flags, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC, EBADFLAGS)?;
        let kind = match flags {
            0 => AtomicKind::Write,
            FI_FETCH_ATOMIC => AtomicKind::Fetch,
            FI_COMPARE_ATOMIC => AtomicKind::Compare,
            _ => return Err(EINVAL),
        };
        let size = value_size(kind, datatype, operation).ok_or(EOPNOTSUPP)?;
        set(attributes, FiAtomicAttr { count: MAX_ATOMIC / size, size })?;
        Ok(0)
    })
}
