//! Head of all objects.

use super::{NO_INT, operations, structures};
use core::ffi::{c_char, c_int, c_void};

structures! {
    /// Head of each object.
    Fid = fid { fclass: usize, context: *mut c_void, ops: *const FiOps, }

    FiAlias = fi_alias { fid: *mut *mut Fid, flags: u64, }
}

operations! {
    FiOps = fi_ops {
        close(*mut Fid) -> c_int = NO_INT;
        bind(*mut Fid, *mut Fid, u64) -> c_int = NO_INT;
        control(*mut Fid, c_int, *mut c_void) -> c_int = NO_INT;
        ops_open(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
        tostr(*const Fid, *mut c_char, usize) -> c_int = NO_INT;
        ops_set(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int = NO_INT;
    }
}
