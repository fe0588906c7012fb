//! Functions of address vectors.

use crate::code::Code;
use crate::domain::Domain;
use crate::entry::{
    array, call, call_or, check_flags, copy_out, copy_text, get, set, set_element, structure, text, to_u64,
};
use crate::events::EventQueue;
use crate::memory::address_of;
use crate::object::{Head, Held, Object, borrow, close_object, is_same, object, publish};
use crate::resolve::{resolve, successor};
use crate::sys::*;
use crate::vector::{ADDRESS_LENGTH, AddressVector, encode};
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use fpga_messages::Address;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

static FID: FiOps = FiOps { close: close_object::<AddressVector>, bind, ..FiOps::NONE };
static VECTOR: FiOpsAv = FiOpsAv { insert, insertsvc, insertsym, remove, lookup, straddr, ..FiOpsAv::NONE };

/// Names without a node are those of this machine.
const DEFAULT_NODE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Flag of an address vector whose nodes all have the same number of endpoints.
const FI_SYMMETRIC: u64 = 1 << 59;
/// Maximum number of addresses in one call.
const MAX_COUNT: usize = 1 << 24;

object!(AddressVector: FidAv, FI_CLASS_AV, FID);

pub(crate) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attributes: *mut FiAvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let domain: &Domain = borrow(domain)?;
        let given = structure(attributes)?;
        set(out, null_mut())?;
        check_flags(given.flags, FI_EVENT | FI_SYMMETRIC, EBADFLAGS)?;
        if !given.name.is_null() {
            // Vectors are not shared between processes.
            return Err(ENOSYS);
        }
        if given.rx_ctx_bits != 0 || !matches!(given.r#type, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE) {
            return Err(EINVAL);
        }
        let head = Head::new(FidAv { fid: AddressVector::fid(context), ops: &raw const VECTOR });
        let vector = AddressVector::new(head, Held::new(domain)?, given.flags & FI_EVENT != 0);
        if given.r#type == FI_AV_UNSPEC {
            // SAFETY: `structure` has checked the pointer; the type is a field that the caller reads after the call.
            unsafe { (&raw mut (*attributes).r#type).write(FI_AV_TABLE) };
        }
        set(out, publish(Arc::new(vector)))?;
        Ok(0)
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    call(|| {
        let vector: &AddressVector = borrow(fid)?;
        let events: &EventQueue = borrow(other)?;
        check_flags(flags, 0, EBADFLAGS)?;
        if !is_same(&*events.fabric, &*vector.domain.fabric) {
            return Err(EDOMAIN);
        }
        vector.bind(Held::new(events)?)?;
        Ok(0)
    })
}

/// Inserts addresses, and reports the result as the flags and the kind of the vector require it.
fn insert_all(
    vector: *mut FidAv,
    addresses: impl FnOnce() -> Result<Vec<Result<Address, Code>>, Code>,
    indices: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> Result<c_int, Code> {
    let fid = vector.cast::<Fid>();
    let vector: &AddressVector = borrow(vector)?;
    check_flags(flags, FI_MORE | FI_SYNC_ERR, EBADFLAGS)?;
    let has_codes = flags & FI_SYNC_ERR != 0;
    if vector.is_asynchronous && vector.events().is_none() {
        return Err(ENOEQ);
    }
    if has_codes && (vector.is_asynchronous || context.is_null()) {
        return Err(EINVAL);
    }
    let results = vector.insert(addresses()?.into_iter());
    let (mut count, mut failures) = (0, Vec::new());
    for (index, result) in results.into_iter().enumerate() {
        let (address, code) = match result {
            Ok(address) => (address, 0),
            Err(code) => (FI_ADDR_NOTAVAIL, code.get()),
        };
        match result {
            Ok(_) => count += 1,
            Err(code) => failures.push((index, code)),
        }
        if !indices.is_null() {
            set_element(indices, index, address)?;
        }
        if has_codes {
            set_element(context.cast::<c_int>(), index, code)?;
        }
    }
    match vector.events() {
        Some(events) if vector.is_asynchronous => {
            events.inserted(fid, context, count, &failures);
            Ok(0)
        }
        _ => c_int::try_from(count).map_err(|_| EINVAL),
    }
}

unsafe extern "C" fn insert(
    vector: *mut FidAv,
    addresses: *const c_void,
    count: usize,
    indices: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    call(|| insert_all(vector, || decode_all(addresses.cast(), count), indices, flags, context))
}

unsafe extern "C" fn insertsvc(
    vector: *mut FidAv,
    node: *const c_char,
    service: *const c_char,
    index: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let (node, service) = (text(node)?, text(service)?);
        if node.is_none() && service.is_none() {
            return Err(EINVAL);
        }
        let is_numeric = flags & FI_NUMERICHOST != 0;
        let address = resolve(node, service, DEFAULT_NODE, is_numeric).map_err(|_| EINVAL);
        insert_all(vector, || Ok(vec![address]), index, flags & !FI_NUMERICHOST, context)
    })
}

unsafe extern "C" fn insertsym(
    vector: *mut FidAv,
    node: *const c_char,
    node_count: usize,
    service: *const c_char,
    service_count: usize,
    indices: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let node = text(node)?.ok_or(EINVAL)?;
        let port: usize = text(service)?.ok_or(EINVAL)?.parse().map_err(|_| EINVAL)?;
        if node_count.checked_mul(service_count).is_none_or(|count| count > MAX_COUNT) {
            return Err(EINVAL);
        }
        let is_numeric = flags & FI_NUMERICHOST != 0;
        let address = |node: usize, offset: usize, first: &str| {
            let node = successor(first, node).ok_or(EINVAL)?;
            resolve(Some(&node), Some(&(port + offset).to_string()), DEFAULT_NODE, is_numeric)
                .map_err(|_| EINVAL)
        };
        let all = || {
            let nodes = 0..node_count;
            Ok(nodes
                .flat_map(|index| (0..service_count).map(move |offset| (index, offset)))
                .map(|(index, offset)| address(index, offset, node))
                .collect())
        };
        insert_all(vector, all, indices, flags & !FI_NUMERICHOST, context)
    })
}

unsafe extern "C" fn remove(vector: *mut FidAv, indices: *mut u64, count: usize, flags: u64) -> c_int {
    call(|| {
        let vector: &AddressVector = borrow(vector)?;
        check_flags(flags, 0, EBADFLAGS)?;
        for index in array(indices.cast_const(), count)? {
            vector.remove(*index)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn lookup(
    vector: *mut FidAv,
    index: u64,
    address: *mut c_void,
    length: *mut usize,
) -> c_int {
    call(|| {
        let vector: &AddressVector = borrow(vector)?;
        let space = get(length.cast_const())?;
        let found = vector.get(index).ok_or(EINVAL)?;
        copy_out(address.cast(), space, &encode(found))?;
        set(length, ADDRESS_LENGTH)?;
        Ok(0)
    })
}

unsafe extern "C" fn straddr(
    vector: *mut FidAv,
    address: *const c_void,
    buffer: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    call_or(core::ptr::null(), || {
        let _: &AddressVector = borrow(vector)?;
        let space = get(length.cast_const())?;
        let (bytes, _) = bytes_at(address.cast())?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if space > 0 {
            copy_text(buffer, space, &text)?;
        }
        set(length, text.len() + 1)?;
        Ok(buffer.cast_const())
    })
}

/// Address from its text.
fn parse(bytes: &[u8]) -> Result<Address, Code> {
    str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or(EINVAL)
}

/// Bytes of a text that ends with a null byte or at the maximum length, and the distance to what follows the null bytes after it.
fn bytes_at(start: *const u8) -> Result<(Vec<u8>, usize), Code> {
    if start.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: the bytes up to the first null byte are the program's address.
    let byte = |index: usize| unsafe { start.wrapping_add(index).read() };
    let bytes: Vec<u8> = (0..ADDRESS_LENGTH).map(byte).take_while(|byte| *byte != 0).collect();
    let end = bytes.len();
    Ok((bytes, end))
}

/// Addresses of a program. Programs pass them in three forms: texts of 64 bytes each, as `fi_getname` returns them; texts of which each begins behind the
/// null byte of the one before it; an array of pointers to texts.
fn decode_all(addresses: *const u8, count: usize) -> Result<Vec<Result<Address, Code>>, Code> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if addresses.is_null() || count > MAX_COUNT {
        return Err(EINVAL);
    }
    let mut all = Vec::with_capacity(count);
    let (first, _) = bytes_at(addresses)?;
    if parse(&first).is_err()
        && let Some(texts) = pointed_texts(addresses, count)
    {
        return Ok(texts.iter().map(|text| parse(text)).collect());
    }
    let mut start = addresses;
    for index in 0..count {
        let (text, end) = bytes_at(start)?;
        all.push(parse(&text));
        if index + 1 < count {
            // SAFETY: another address follows, so these bytes are the program's; none of them is beyond its first byte.
            let is_zero = |at: usize| unsafe { start.wrapping_add(at).read() } == 0;
            let next = (end..ADDRESS_LENGTH).find(|at| !is_zero(*at)).unwrap_or(ADDRESS_LENGTH);
            start = start.wrapping_add(next);
        }
    }
    Ok(all)
}

/// Texts of an array of pointers, if the first pointer is that of an address. The kernel reads the memory: bytes that are not pointers do no harm.
fn pointed_texts(pointers: *const u8, count: usize) -> Option<Vec<Vec<u8>>> {
    let text = |index: usize| {
        let mut pointer = [0; 8];
        let read = read_own(address_of(pointers) + to_u64(index) * 8, &mut pointer);
        let mut bytes = vec![0; ADDRESS_LENGTH];
        let length = if read == 8 { read_own(u64::from_ne_bytes(pointer), &mut bytes) } else { 0 };
        bytes.truncate(length);
        bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
    };
    parse(&text(0)).ok()?;
    Some((0..count).map(text).collect())
}

/// Reads memory of this process as far as it is mapped. Returns the number of bytes.
fn read_own(address: u64, to: &mut [u8]) -> usize {
    let start = core::ptr::with_exposed_provenance_mut(crate::entry::to_size(address));
    // A page boundary may be the end of what is mapped.
    let first = to.len().min(4096 - crate::entry::to_size(address % 4096));
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = [
        libc::iovec { iov_base: start, iov_len: first },
        libc::iovec { iov_base: start.wrapping_byte_add(first), iov_len: to.len() - first },
    ];
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: `local` is a buffer of this function; the kernel checks the addresses that it reads.
    let count = unsafe { libc::process_vm_readv(process, &raw const local, 1, remote.as_ptr(), 2, 0) };
    usize::try_from(count).unwrap_or(0)
}
