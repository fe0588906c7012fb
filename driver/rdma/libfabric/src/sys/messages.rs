//! Descriptions of single operations: messages, access to remote memory, atomic operations.

use super::structures;
use core::ffi::{c_int, c_void};
use libc::iovec;

structures! {
    FiMsg = fi_msg {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: u64,
        context: *mut c_void,
        data: u64,
    }

    FiMsgTagged = fi_msg_tagged {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: u64,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
        data: u64,
    }

    FiRmaIov = fi_rma_iov { addr: u64, len: usize, key: u64, }

    FiMsgRma = fi_msg_rma {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: u64,
        rma_iov: *const FiRmaIov,
        rma_iov_count: usize,
        context: *mut c_void,
        data: u64,
    }

    FiIoc = fi_ioc { addr: *mut c_void, count: usize, }

    FiRmaIoc = fi_rma_ioc { addr: u64, count: usize, key: u64, }

    FiAtomicAttr = fi_atomic_attr { count: usize, size: usize, }

    FiMsgAtomic = fi_msg_atomic {
        msg_iov: *const FiIoc,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: u64,
        rma_iov: *const FiRmaIoc,
        rma_iov_count: usize,
        datatype: c_int,
        op: c_int,
        context: *mut c_void,
        data: u64,
    }
}
