//! Objects of a program with two endpoints, opened as programs do it.

use crate::sys::*;
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, zeroed};
use core::ptr::{null, null_mut};
use fpga_messages::MAX_TEXT;

/// Calls a function of an object's table: `f!(object.table.function(arguments))`, with the object as the first argument.
macro_rules! f {
    ($object:ident.$table:ident.$function:ident($($argument:expr),*)) => {
        // SAFETY: the tests pass objects of this provider and buffers that live longer than the operations.
        unsafe { ((*(*$object).$table).$function)($object, $($argument),*) }
    };
    ($fid:ident => $function:ident($($argument:expr),*)) => {
        // SAFETY: as above.
        unsafe { ((*(*$fid.cast::<crate::sys::Fid>()).ops).$function)($fid.cast(), $($argument),*) }
    };
}
pub(super) use f;

/// Description for two endpoints.
pub(super) fn description(change: impl FnOnce(&mut FiInfo)) -> *mut FiInfo {
    let mut info = null_mut();
    // SAFETY: null stands for no names and no hints.
    let result =
        unsafe { crate::provider::getinfo(version(1, 17), null(), null(), 0, null(), &raw mut info) };
    assert_eq!(result, 0);
    // SAFETY: `getinfo` has returned a description that no other code has.
    change(unsafe { &mut *info });
    info
}

/// Releases a description as `fi_freeinfo` does.
pub(super) fn free(info: *mut FiInfo) {
    // SAFETY: all parts are from the C library's allocator.
    unsafe {
        for part in [
            (*info).src_addr,
            (*info).dest_addr,
            (*info).tx_attr.cast(),
            (*info).rx_attr.cast(),
            (*info).ep_attr.cast(),
        ] {
            libc::free(part);
        }
        libc::free((*(*info).domain_attr).name.cast());
        libc::free((*(*info).fabric_attr).name.cast());
        libc::free((*info).domain_attr.cast());
        libc::free((*info).fabric_attr.cast());
        libc::free(info.cast());
    }
}

/// Opens an object.
pub(super) fn opened<T>(open: impl FnOnce(*mut *mut T) -> c_int) -> *mut T {
    let mut object = null_mut();
    assert_eq!(open(&raw mut object), 0);
    assert!(!object.is_null());
    object
}

/// Closes an object.
pub(super) fn close<T>(object: *mut T) -> c_int {
    let fid = object.cast::<Fid>();
    f!(fid => close())
}

/// One endpoint with its queue.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) queue: *mut FidCq,
    pub(super) endpoint: *mut FidEp,
}

/// Objects of the program.
pub(super) struct Program {
    pub(super) info: *mut FiInfo,
    pub(super) fabric: *mut FidFabric,
    pub(super) domain: *mut FidDomain,
    pub(super) vector: *mut FidAv,
    pub(super) a: Side,
    pub(super) b: Side,
}

/// Choices of a test.
pub(super) struct Choice {
    pub(super) wait_object: c_int,
    pub(super) bind_flags: u64,
    pub(super) queue_size: usize,
}

impl Default for Choice {
    fn default() -> Self {
        Self { wait_object: FI_WAIT_UNSPEC, bind_flags: FI_SEND | FI_RECV, queue_size: 0 }
    }
}

impl Program {
    pub(super) fn new() -> Self {
        Self::with(&Choice::default(), |_| {})
    }

    pub(super) fn with(choice: &Choice, change: impl FnOnce(&mut FiInfo)) -> Self {
        let info = description(change);
        // SAFETY: the description has its attributes.
        let attributes = unsafe { (*info).fabric_attr };
        // SAFETY: valid attributes.
        let fabric = opened(|out| unsafe { crate::provider::fabric(attributes, out, null_mut()) });
        let domain = opened(|out| f!(fabric.ops.domain(info, out, null_mut())));
        // SAFETY: zero is a value of all fields.
        let mut attributes: FiAvAttr = unsafe { zeroed() };
        let vector = opened(|out| f!(domain.ops.av_open(&raw mut attributes, out, null_mut())));
        let [a, b] = [(); 2].map(|()| Self::side(choice, info, domain, vector));
        let program = Self { info, fabric, domain, vector, a, b };
        let names = [name(a.endpoint), name(b.endpoint)].concat();
        let mut indices = [7, 7];
        let inserted = f!(vector.ops.insert(names.as_ptr().cast(), 2, indices.as_mut_ptr(), 0, null_mut()));
        assert_eq!((inserted, indices), (2, [0, 1]));
        program
    }

    fn side(choice: &Choice, info: *mut FiInfo, domain: *mut FidDomain, vector: *mut FidAv) -> Side {
        // SAFETY: zero is a value of all fields.
        let mut attributes: FiCqAttr = unsafe { zeroed() };
        attributes.format = FI_CQ_FORMAT_TAGGED;
        attributes.wait_obj = choice.wait_object;
        attributes.size = choice.queue_size;
        let queue = opened(|out| f!(domain.ops.cq_open(&raw mut attributes, out, null_mut())));
        let endpoint = opened(|out| f!(domain.ops.endpoint(info, out, null_mut())));
        assert_eq!(f!(endpoint => bind(vector.cast(), 0)), 0);
        assert_eq!(f!(endpoint => bind(queue.cast(), choice.bind_flags)), 0);
        assert_eq!(f!(endpoint => control(FI_ENABLE, null_mut())), 0);
        Side { queue, endpoint }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for side in [self.a, self.b] {
            assert_eq!(close(side.endpoint), 0);
            assert_eq!(close(side.queue), 0);
        }
        assert_eq!((close(self.vector), close(self.domain), close(self.fabric)), (0, 0, 0));
        free(self.info);
    }
}

/// Address of an endpoint.
pub(super) fn name(endpoint: *mut FidEp) -> Vec<u8> {
    let mut name = vec![0xff; MAX_TEXT + 1];
    let mut length = name.len();
    let fid = endpoint.cast::<Fid>();
    // SAFETY: the buffer has the length that is passed.
    let result = unsafe { ((*(*endpoint).cm).getname)(fid, name.as_mut_ptr().cast(), &raw mut length) };
    assert_eq!((result, length), (0, MAX_TEXT + 1));
    name
}

/// Reads one entry and its source; waits for it, because the domain's thread may be about to report it.
pub(super) fn read(queue: *mut FidCq) -> Result<(FiCqTaggedEntry, u64), isize> {
    let begun = std::time::Instant::now();
    loop {
        match try_read(queue) {
            Err(AGAIN) if begun.elapsed().as_secs() < 60 => std::thread::yield_now(),
            result => return result,
        }
    }
}

/// Reads one completion, with its source.
pub(super) fn try_read(queue: *mut FidCq) -> Result<(FiCqTaggedEntry, u64), isize> {
    let mut entry = MaybeUninit::<FiCqTaggedEntry>::uninit();
    let mut source = 0;
    match f!(queue.ops.readfrom(entry.as_mut_ptr().cast(), 1, &raw mut source)) {
        // SAFETY: one entry was written.
        1 => Ok((unsafe { entry.assume_init() }, source)),
        other => Err(other),
    }
}

/// Reads one error.
pub(super) fn read_error(queue: *mut FidCq) -> FiCqErrEntry {
    assert_eq!(read(queue).map(|_| ()), Err(-(EAVAIL.get() as isize)));
    // SAFETY: zero is a value of all fields.
    let mut entry: FiCqErrEntry = unsafe { zeroed() };
    assert_eq!(f!(queue.ops.readerr(&raw mut entry, 0)), 1);
    entry
}

/// Result of a call that has no entry or cannot be accepted now.
pub(super) const AGAIN: isize = -(libc::EAGAIN as isize);

/// Context number as a pointer.
pub(super) fn context(number: usize) -> *mut c_void {
    core::ptr::without_provenance_mut(number)
}
