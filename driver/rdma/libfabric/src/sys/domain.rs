//! Fabrics and domains with their descriptions; address vectors and memory regions.

use super::attributes::{FiEpAttr, FiRxAttr, FiTxAttr};
use super::endpoint::FidEp;
use super::events::{FiCntrAttr, FiCqAttr, FiEqAttr, FidCntr, FidCq, FidEq};
use super::fid::Fid;
use super::messages::FiAtomicAttr;
use super::{NO_INT, operations};
use core::ffi::{c_char, c_int, c_void};
use libc::iovec;

#[repr(C)]
pub(crate) struct FiFabricAttr {
    pub(crate) fabric: *mut FidFabric,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FiInfo {
    pub(crate) next: *mut FiInfo,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut Fid,
    pub(crate) tx_attr: *mut FiTxAttr,
    pub(crate) rx_attr: *mut FiRxAttr,
    pub(crate) ep_attr: *mut FiEpAttr,
    pub(crate) domain_attr: *mut FiDomainAttr,
    pub(crate) fabric_attr: *mut FiFabricAttr,
    pub(crate) nic: *mut c_void,
}

#[repr(C)]
pub(crate) struct FiDomainAttr {
    pub(crate) domain: *mut FidDomain,
    pub(crate) name: *mut c_char,
    pub(crate) threading: c_int,
    pub(crate) control_progress: c_int,
    pub(crate) data_progress: c_int,
    pub(crate) resource_mgmt: c_int,
    pub(crate) av_type: c_int,
    pub(crate) mr_mode: c_int,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
    pub(crate) tclass: u32,
    /// This and the following fields: since 1.20 and later.
    pub(crate) max_ep_auth_key: usize,
    pub(crate) max_group_id: u32,
    pub(crate) max_cntr_value: u64,
    pub(crate) max_err_cntr_value: u64,
    pub(crate) max_xpu_ctx_cnt: usize,
}

operations! {
    FiOpsFabric {
        domain(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int = NO_INT;
        passive_ep(*mut FidFabric, *mut FiInfo, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
        eq_open(*mut FidFabric, *mut FiEqAttr, *mut *mut FidEq, *mut c_void) -> c_int = NO_INT;
        wait_open(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int = NO_INT;
        trywait(*mut FidFabric, *mut *mut Fid, c_int) -> c_int = NO_INT;
        domain2(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, u64, *mut c_void) -> c_int = NO_INT;
    }
}

#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsFabric,
    pub(crate) api_version: u32,
}

operations! {
    FiOpsDomain {
        av_open(*mut FidDomain, *mut FiAvAttr, *mut *mut FidAv, *mut c_void) -> c_int = NO_INT;
        cq_open(*mut FidDomain, *mut FiCqAttr, *mut *mut FidCq, *mut c_void) -> c_int = NO_INT;
        endpoint(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int = NO_INT;
        scalable_ep(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int = NO_INT;
        cntr_open(*mut FidDomain, *mut FiCntrAttr, *mut *mut FidCntr, *mut c_void) -> c_int = NO_INT;
        poll_open(*mut FidDomain, *mut c_void, *mut *mut c_void) -> c_int = NO_INT;
        stx_ctx(*mut FidDomain, *mut FiTxAttr, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
        srx_ctx(*mut FidDomain, *mut FiRxAttr, *mut *mut FidEp, *mut c_void) -> c_int = NO_INT;
        query_atomic(*mut FidDomain, c_int, c_int, *mut FiAtomicAttr, u64) -> c_int = NO_INT;
        query_collective(*mut FidDomain, c_int, *mut c_void, u64) -> c_int = NO_INT;
        endpoint2(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, u64, *mut c_void) -> c_int = NO_INT;
        xpu_ctx(*mut FidDomain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
    }
}

operations! {
    FiOpsMr {
        reg(*mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int = NO_INT;
        regv(*mut Fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int = NO_INT;
        regattr(*mut Fid, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int = NO_INT;
    }
}

#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsDomain,
    pub(crate) mr: *const FiOpsMr,
}

#[repr(C)]
pub(crate) struct FiAvAttr {
    pub(crate) r#type: c_int,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

operations! {
    FiOpsAv {
        insert(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int = NO_INT;
        insertsvc(*mut FidAv, *const c_char, *const c_char, *mut u64, u64, *mut c_void) -> c_int = NO_INT;
        insertsym(*mut FidAv, *const c_char, usize, *const c_char, usize, *mut u64, u64, *mut c_void) -> c_int = NO_INT;
        remove(*mut FidAv, *mut u64, usize, u64) -> c_int = NO_INT;
        lookup(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int = NO_INT;
        straddr(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char = core::ptr::null();
        av_set(*mut FidAv, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
        insert_auth_key(*mut FidAv, *const c_void, usize, *mut u64, u64) -> c_int = NO_INT;
        lookup_auth_key(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int = NO_INT;
        set_user_id(*mut FidAv, u64, u64, u64) -> c_int = NO_INT;
        lookup2(*mut FidAv, u64, *mut c_void, *mut usize, u64, *mut c_void) -> c_int = NO_INT;
    }
}

#[repr(C)]
pub(crate) struct FidAv {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsAv,
}

#[repr(C)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

/// Fields up to those of version 1.17.
#[repr(C)]
pub(crate) struct FiMrAttr {
    pub(crate) mr_iov: *const iovec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
    pub(crate) iface: c_int,
    pub(crate) device: u64,
}

/// Description of a provider for the library.
#[repr(C)]
pub(crate) struct FiProvider {
    pub(crate) version: u32,
    pub(crate) fi_version: u32,
    /// The library's.
    pub(crate) context: [*mut c_void; 4],
    pub(crate) name: *const c_char,
    pub(crate) getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const FiInfo,
        *mut *mut FiInfo,
    ) -> c_int,
    pub(crate) fabric: unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub(crate) cleanup: unsafe extern "C" fn(),
}
