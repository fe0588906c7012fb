//! Event queues, completion queues and counters.

use super::fid::Fid;
use super::{NO_INT, NO_SIZE, operations};
use core::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub(crate) struct FiEqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FiEqEntry {
    pub(crate) fid: *mut Fid,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiEqErrEntry {
    pub(crate) fid: *mut Fid,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}

operations! {
    FiOpsEq {
        read(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize = NO_SIZE;
        readerr(*mut FidEq, *mut FiEqErrEntry, u64) -> isize = NO_SIZE;
        write(*mut FidEq, u32, *const c_void, usize, u64) -> isize = NO_SIZE;
        sread(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize = NO_SIZE;
        strerror(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char = core::ptr::null();
    }
}

#[repr(C)]
pub(crate) struct FidEq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsEq,
}

/// Fields up to those of version 1.17.
#[repr(C)]
pub(crate) struct FiCqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct FiCqEntry {
    pub(crate) op_context: *mut c_void,
}

#[repr(C)]
pub(crate) struct FiCqMsgEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
}

#[repr(C)]
pub(crate) struct FiCqDataEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiCqTaggedEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

/// Fields up to those of version 1.17: the caller's structure may be no longer. A newer header sets `src_addr` itself.
#[repr(C)]
pub(crate) struct FiCqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}

operations! {
    FiOpsCq {
        read(*mut FidCq, *mut c_void, usize) -> isize = NO_SIZE;
        readfrom(*mut FidCq, *mut c_void, usize, *mut u64) -> isize = NO_SIZE;
        readerr(*mut FidCq, *mut FiCqErrEntry, u64) -> isize = NO_SIZE;
        sread(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize = NO_SIZE;
        sreadfrom(*mut FidCq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize = NO_SIZE;
        signal(*mut FidCq) -> c_int = NO_INT;
        strerror(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char = core::ptr::null();
        export_xpu(*mut FidCq, u64, *mut c_void) -> c_int = NO_INT;
    }
}

#[repr(C)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsCq,
}

/// Fields up to those of version 1.17.
#[repr(C)]
pub(crate) struct FiCntrAttr {
    pub(crate) events: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}

operations! {
    FiOpsCntr {
        read(*mut FidCntr) -> u64 = 0;
        readerr(*mut FidCntr) -> u64 = 0;
        add(*mut FidCntr, u64) -> c_int = NO_INT;
        set(*mut FidCntr, u64) -> c_int = NO_INT;
        wait(*mut FidCntr, u64, c_int) -> c_int = NO_INT;
        adderr(*mut FidCntr, u64) -> c_int = NO_INT;
        seterr(*mut FidCntr, u64) -> c_int = NO_INT;
        export_xpu(*mut FidCntr, u64, *mut c_void) -> c_int = NO_INT;
    }
}

#[repr(C)]
pub(crate) struct FidCntr {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsCntr,
}
