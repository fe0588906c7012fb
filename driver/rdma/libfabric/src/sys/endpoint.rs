//! Endpoints and their tables of functions: options, names, messages, tagged messages, remote memory, atomic operations.

use super::attributes::{FiRxAttr, FiTxAttr};
use super::fid::Fid;
use super::messages::{FiIoc, FiMsg, FiMsgAtomic, FiMsgRma, FiMsgTagged};
use super::{NO_INT, NO_SIZE, operations, structures};
use core::ffi::{c_int, c_void};
use libc::iovec;

structures! {
    FidEp = fid_ep {
        fid: Fid,
        ops: *const FiOpsEp,
        cm: *const FiOpsCm,
        msg: *const FiOpsMsg,
        rma: *const FiOpsRma,
        tagged: *const FiOpsTagged,
        atomic: *const FiOpsAtomic,
        collective: *const FiOpsCollective,
    }
}

operations! {
    FiOpsEp = fi_ops_ep {
        cancel(*mut Fid, *mut c_void) -> isize = NO_SIZE;
        getopt(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int = NO_INT;
        setopt(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int = NO_INT;
        tx_ctx(*mut FidEp, c_int, *mut FiTxAttr, *mut *mut FidEp, *mut c_void) -> c_int = NO_INT;
        rx_ctx(*mut FidEp, c_int, *mut FiRxAttr, *mut *mut FidEp, *mut c_void) -> c_int = NO_INT;
        rx_size_left(*mut FidEp) -> isize = NO_SIZE;
        tx_size_left(*mut FidEp) -> isize = NO_SIZE;
        @newer {
            export_xpu(*mut FidEp, u64, *mut c_void) -> c_int = NO_INT;
        }
    }

    FiOpsCm = fi_ops_cm {
        setname(*mut Fid, *mut c_void, usize) -> c_int = NO_INT;
        getname(*mut Fid, *mut c_void, *mut usize) -> c_int = NO_INT;
        getpeer(*mut FidEp, *mut c_void, *mut usize) -> c_int = NO_INT;
        connect(*mut FidEp, *const c_void, *const c_void, usize) -> c_int = NO_INT;
        listen(*mut c_void) -> c_int = NO_INT;
        accept(*mut FidEp, *const c_void, usize) -> c_int = NO_INT;
        reject(*mut c_void, *mut Fid, *const c_void, usize) -> c_int = NO_INT;
        shutdown(*mut FidEp, u64) -> c_int = NO_INT;
        join(*mut FidEp, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
    }

    FiOpsMsg = fi_ops_msg {
        recv(*mut FidEp, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize = NO_SIZE;
        recvv(*mut FidEp, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> isize = NO_SIZE;
        recvmsg(*mut FidEp, *const FiMsg, u64) -> isize = NO_SIZE;
        send(*mut FidEp, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize = NO_SIZE;
        sendv(*mut FidEp, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> isize = NO_SIZE;
        sendmsg(*mut FidEp, *const FiMsg, u64) -> isize = NO_SIZE;
        inject(*mut FidEp, *const c_void, usize, u64) -> isize = NO_SIZE;
        senddata(*mut FidEp, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize = NO_SIZE;
        injectdata(*mut FidEp, *const c_void, usize, u64, u64) -> isize = NO_SIZE;
    }

    FiOpsCollective = fi_ops_collective {
        barrier(*mut FidEp, u64, *mut c_void) -> isize = NO_SIZE;
        broadcast(*mut FidEp, *mut c_void, usize, *mut c_void, u64, u64, c_int, u64, *mut c_void) -> isize = NO_SIZE;
        alltoall(*mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, u64, *mut c_void) -> isize = NO_SIZE;
        allreduce(*mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, c_int, u64, *mut c_void) -> isize = NO_SIZE;
        allgather(*mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, u64, *mut c_void) -> isize = NO_SIZE;
        reduce_scatter(*mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, c_int, u64, *mut c_void) -> isize = NO_SIZE;
        reduce(*mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, c_int, u64, *mut c_void) -> isize = NO_SIZE;
        scatter(*mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, u64, *mut c_void) -> isize = NO_SIZE;
        gather(*mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, u64, *mut c_void) -> isize = NO_SIZE;
        msg(*mut FidEp, *const c_void, *mut c_void, *mut *mut c_void, usize, u64) -> isize = NO_SIZE;
        barrier2(*mut FidEp, u64, u64, *mut c_void) -> isize = NO_SIZE;
    }

    FiOpsTagged = fi_ops_tagged {
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

    FiOpsRma = fi_ops_rma {
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

    FiOpsAtomic = fi_ops_atomic {
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
