//! Atomic operations.

use super::{FidEp, NO_INT, NO_SIZE, operations};
use core::ffi::{c_int, c_void};

#[repr(C)]
pub(crate) struct FiIoc {
    pub(crate) addr: *mut c_void,
    pub(crate) count: usize,
}

#[repr(C)]
pub(crate) struct FiRmaIoc {
    pub(crate) addr: u64,
    pub(crate) count: usize,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FiAtomicAttr {
    pub(crate) count: usize,
    pub(crate) size: usize,
}

#[repr(C)]
pub(crate) struct FiMsgAtomic {
    pub(crate) msg_iov: *const FiIoc,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const FiRmaIoc,
    pub(crate) rma_iov_count: usize,
    pub(crate) datatype: c_int,
    pub(crate) op: c_int,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

operations! {
    FiOpsAtomic {
        write(*mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void) -> isize = NO_SIZE;
        writev(*mut FidEp, *const FiIoc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void) -> isize = NO_SIZE;
        writemsg(*mut FidEp, *const FiMsgAtomic, u64) -> isize = NO_SIZE;
        inject(*mut FidEp, *const c_void, usize, u64, u64, u64, c_int, c_int) -> isize = NO_SIZE;
        readwrite(*mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void) -> isize = NO_SIZE;
        readwritev(*mut FidEp, *const FiIoc, *mut *mut c_void, usize, *mut FiIoc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void) -> isize = NO_SIZE;
        readwritemsg(*mut FidEp, *const FiMsgAtomic, *mut FiIoc, *mut *mut c_void, usize, u64) -> isize = NO_SIZE;
        compwrite(*mut FidEp, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void) -> isize = NO_SIZE;
        compwritev(*mut FidEp, *const FiIoc, *mut *mut c_void, usize, *const FiIoc, *mut *mut c_void, usize, *mut FiIoc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void) -> isize = NO_SIZE;
        compwritemsg(*mut FidEp, *const FiMsgAtomic, *const FiIoc, *mut *mut c_void, usize, *mut FiIoc, *mut *mut c_void, usize, u64) -> isize = NO_SIZE;
        writevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int = NO_INT;
        readwritevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int = NO_INT;
        compwritevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int = NO_INT;
    }
}
