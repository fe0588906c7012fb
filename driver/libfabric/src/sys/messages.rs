//! Messages with tags, and access to remote memory.

use super::{FidEp, NO_SIZE, operations};
use core::ffi::c_void;
use libc::iovec;

#[repr(C)]
pub(crate) struct FiMsgTagged {
    pub(crate) msg_iov: *const iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

operations! {
    FiOpsTagged {
        recv(*mut FidEp, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize = NO_SIZE;
        recvv(*mut FidEp, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize = NO_SIZE;
        recvmsg(*mut FidEp, *const FiMsgTagged, u64) -> isize = NO_SIZE;
        send(*mut FidEp, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize = NO_SIZE;
        sendv(*mut FidEp, *const iovec, *mut *mut c_void, usize, u64, u64, *mut c_void) -> isize = NO_SIZE;
        sendmsg(*mut FidEp, *const FiMsgTagged, u64) -> isize = NO_SIZE;
        inject(*mut FidEp, *const c_void, usize, u64, u64) -> isize = NO_SIZE;
        senddata(*mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize = NO_SIZE;
        injectdata(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize = NO_SIZE;
    }
}

#[repr(C)]
pub(crate) struct FiRmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FiMsgRma {
    pub(crate) msg_iov: *const iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const FiRmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

operations! {
    FiOpsRma {
        read(*mut FidEp, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize = NO_SIZE;
        readv(*mut FidEp, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize = NO_SIZE;
        readmsg(*mut FidEp, *const FiMsgRma, u64) -> isize = NO_SIZE;
        write(*mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize = NO_SIZE;
        writev(*mut FidEp, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize = NO_SIZE;
        writemsg(*mut FidEp, *const FiMsgRma, u64) -> isize = NO_SIZE;
        inject(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize = NO_SIZE;
        writedata(*mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, u64, *mut c_void) -> isize = NO_SIZE;
        injectdata(*mut FidEp, *const c_void, usize, u64, u64, u64, u64) -> isize = NO_SIZE;
    }
}
