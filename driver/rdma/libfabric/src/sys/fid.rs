//! Head of all objects.

use super::{NO_INT, operations};
use core::ffi::{c_char, c_int, c_void};

/// Head of each object.
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const FiOps,
}

operations! {
    FiOps {
        close(*mut Fid) -> c_int = NO_INT;
        bind(*mut Fid, *mut Fid, u64) -> c_int = NO_INT;
        control(*mut Fid, c_int, *mut c_void) -> c_int = NO_INT;
        ops_open(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
        tostr(*const Fid, *mut c_char, usize) -> c_int = NO_INT;
        ops_set(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int = NO_INT;
    }
}

#[repr(C)]
pub(crate) struct FiAlias {
    pub(crate) fid: *mut *mut Fid,
    pub(crate) flags: u64,
}
