//! Event queues, completion queues and counters.

use super::fid::Fid;
use super::{NO_INT, NO_SIZE, operations, structures};
use core::ffi::{c_char, c_int, c_void};

structures! {
    FiEqAttr = fi_eq_attr {
        size: usize,
        flags: u64,
        wait_obj: c_int,
        signaling_vector: c_int,
        wait_set: *mut c_void,
    }

    #[derive(Clone, Copy)]
    FiEqEntry = fi_eq_entry { fid: *mut Fid, context: *mut c_void, data: u64, }

    FiEqErrEntry = fi_eq_err_entry {
        fid: *mut Fid,
        context: *mut c_void,
        data: u64,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
    }

    FidEq = fid_eq { fid: Fid, ops: *const FiOpsEq, }

    /// Fields up to those of version 1.17.
    FiCqAttr = fi_cq_attr {
        size: usize,
        flags: u64,
        format: c_int,
        wait_obj: c_int,
        signaling_vector: c_int,
        wait_cond: c_int,
        wait_set: *mut c_void,
    }

    FiCqEntry = fi_cq_entry { op_context: *mut c_void, }

    FiCqMsgEntry = fi_cq_msg_entry { op_context: *mut c_void, flags: u64, len: usize, }

    FiCqDataEntry = fi_cq_data_entry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
    }

    FiCqTaggedEntry = fi_cq_tagged_entry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
    }

    /// Fields up to those of version 1.17: the caller's structure may be no longer. A newer header sets `src_addr` itself.
    FiCqErrEntry = fi_cq_err_entry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
        olen: usize,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
    }

    FidCq = fid_cq { fid: Fid, ops: *const FiOpsCq, }

    /// Fields up to those of version 1.17.
    FiCntrAttr = fi_cntr_attr { events: c_int, wait_obj: c_int, wait_set: *mut c_void, flags: u64, }

    FidCntr = fid_cntr { fid: Fid, ops: *const FiOpsCntr, }
}

operations! {
    FiOpsEq = fi_ops_eq {
        read(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize = NO_SIZE;
        readerr(*mut FidEq, *mut FiEqErrEntry, u64) -> isize = NO_SIZE;
        write(*mut FidEq, u32, *const c_void, usize, u64) -> isize = NO_SIZE;
        sread(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize = NO_SIZE;
        strerror(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char = core::ptr::null();
    }

    FiOpsCq = fi_ops_cq {
        read(*mut FidCq, *mut c_void, usize) -> isize = NO_SIZE;
        readfrom(*mut FidCq, *mut c_void, usize, *mut u64) -> isize = NO_SIZE;
        readerr(*mut FidCq, *mut FiCqErrEntry, u64) -> isize = NO_SIZE;
        sread(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize = NO_SIZE;
        sreadfrom(*mut FidCq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize = NO_SIZE;
        signal(*mut FidCq) -> c_int = NO_INT;
        strerror(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char = core::ptr::null();
        @newer {
            export_xpu(*mut FidCq, u64, *mut c_void) -> c_int = NO_INT;
        }
    }

    FiOpsCntr = fi_ops_cntr {
        read(*mut FidCntr) -> u64 = 0;
        readerr(*mut FidCntr) -> u64 = 0;
        add(*mut FidCntr, u64) -> c_int = NO_INT;
        set(*mut FidCntr, u64) -> c_int = NO_INT;
        wait(*mut FidCntr, u64, c_int) -> c_int = NO_INT;
        adderr(*mut FidCntr, u64) -> c_int = NO_INT;
        seterr(*mut FidCntr, u64) -> c_int = NO_INT;
        @newer {
            export_xpu(*mut FidCntr, u64, *mut c_void) -> c_int = NO_INT;
        }
    }
}
