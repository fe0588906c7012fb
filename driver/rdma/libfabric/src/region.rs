//! Memory registration.

use crate::code::Code;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::entry::{array, call, check_flags, set, structure, to_u64};
use crate::memory::address_of;
use crate::object::{Head, Held, Object, borrow, close_object, is_same, object, publish};
use crate::sys::*;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use fpga_messages::{RegionError, RemoteAccess};
use libc::iovec;
use std::sync::Arc;

const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Memory region.
#[repr(C)]
struct Region {
    head: Head<FidMr>,
    domain: Held<Domain>,
    key: u64,
}

static FID: FiOps = FiOps { close: close_object::<Region>, bind, control, ..FiOps::NONE };
/// Functions of a domain that register memory.
pub(crate) static MEMORY: FiOpsMr = FiOpsMr { reg, regv, regattr, ..FiOpsMr::NONE };

object!(Region: FidMr, FI_CLASS_MR, FID);

impl Drop for Region {
    fn drop(&mut self) {
        self.domain.regions.deregister(self.key);
        self.domain.accesses.unbind(self.key);
    }
}

/// Memory that a program registers.
struct Registration {
    address: u64,
    length: u64,
    access: u64,
    offset: u64,
    requested_key: u64,
    context: *mut c_void,
}

fn register(
    domain: *mut Fid,
    registration: &Registration,
    flags: u64,
    out: *mut *mut FidMr,
) -> Result<c_int, Code> {
    let domain: &Domain = borrow(domain)?;
    set(out, null_mut())?;
    check_flags(flags, FI_MORE, EBADFLAGS)?;
    check_flags(registration.access, ACCESS, EINVAL)?;
    let Registration { address, length, access, offset, requested_key, context } = *registration;
    let access = RemoteAccess { read: access & FI_REMOTE_READ != 0, write: access & FI_REMOTE_WRITE != 0 };
    let base = if domain.choice.has_virtual_addresses { address } else { offset };
    let requested = (!domain.choice.has_provider_keys).then_some(requested_key);
    let key =
        domain.regions.register(address, length, base, access, requested).map_err(|error| match error {
            RegionError::KeyInUse { .. } => ENOKEY,
            _ => EINVAL,
        })?;
    // The descriptor is not needed for local access; a pointer that is not null makes it visible that there is one.
    let head = Head::new(FidMr { fid: Region::fid(context), mem_desc: null_mut(), key });
    let region = match Held::new(domain) {
        Ok(domain) => Region { head, domain, key },
        Err(code) => {
            domain.regions.deregister(key);
            return Err(code);
        }
    };
    let region = publish(Arc::new(region));
    // SAFETY: the program does not have the region yet.
    unsafe { (*region).mem_desc = region.cast() };
    set(out, region)?;
    Ok(0)
}

/// The one range of a registration.
fn range(ranges: *const iovec, count: usize) -> Result<(u64, u64), Code> {
    match array(ranges, count)? {
        [range] => Ok((address_of(range.iov_base), to_u64(range.iov_len))),
        _ => Err(EINVAL),
    }
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    buffer: *const c_void,
    length: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let (address, length) = (address_of(buffer), to_u64(length));
        register(
            domain,
            &Registration { address, length, access, offset, requested_key, context },
            flags,
            out,
        )
    })
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    ranges: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let (address, length) = range(ranges, count)?;
        register(
            domain,
            &Registration { address, length, access, offset, requested_key, context },
            flags,
            out,
        )
    })
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attributes: *const FiMrAttr,
    flags: u64,
    out: *mut *mut FidMr,
) -> c_int {
    call(|| {
        let attributes = structure(attributes)?;
        // Before the flags are known to have no other meaning of the ranges.
        check_flags(flags, FI_MORE, EBADFLAGS)?;
        let domain_object: &Domain = borrow(domain)?;
        if domain_object.api_version >= crate::sys::version(1, 10) && attributes.iface != FI_HMEM_SYSTEM {
            return Err(EOPNOTSUPP);
        }
        let (address, length) = range(attributes.mr_iov, attributes.iov_count)?;
        let FiMrAttr { access, offset, requested_key, context, .. } = *attributes;
        register(
            domain,
            &Registration { address, length, access, offset, requested_key, context },
            flags,
            out,
        )
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    call(|| {
        let region: &Region = borrow(fid)?;
        // Regions belong to all endpoints of their domain: they are bound to counters only.
        if structure(other.cast_const())?.fclass != FI_CLASS_CNTR {
            return Err(ENOSYS);
        }
        let counter: &Counter = borrow(other)?;
        check_flags(flags, FI_REMOTE_READ | FI_REMOTE_WRITE, EBADFLAGS)?;
        if flags == 0 {
            return Err(EINVAL);
        }
        let domain = &*region.domain;
        if !is_same(domain, &*counter.domain) {
            return Err(EDOMAIN);
        }
        let (is_read, is_write) = (flags & FI_REMOTE_READ != 0, flags & FI_REMOTE_WRITE != 0);
        domain
            .accesses
            .bind(region.key, Arc::new(Held::new(counter)?), is_read, is_write, || domain.endpoints())?;
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, _argument: *mut c_void) -> c_int {
    call(|| {
        let _: &Region = borrow(fid)?;
        match command {
            FI_ENABLE | FI_REFRESH => Ok(0),
            _ => Err(ENOSYS),
        }
    })
}
