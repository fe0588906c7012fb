//! Fabrics and domains with their descriptions; address vectors and memory regions.

use super::attributes::{FiEpAttr, FiRxAttr, FiTxAttr};
use super::endpoint::FidEp;
use super::events::{FiCntrAttr, FiCqAttr, FiEqAttr, FidCntr, FidCq, FidEq};
use super::fid::Fid;
use super::messages::FiAtomicAttr;
use super::{NO_INT, operations, structures};
use core::ffi::{c_char, c_int, c_void};
use libc::iovec;

structures! {
    FiFabricAttr = fi_fabric_attr {
        fabric: *mut FidFabric,
        name: *mut c_char,
        prov_name: *mut c_char,
        prov_version: u32,
        api_version: u32,
    }

    FiInfo = fi_info {
        next: *mut FiInfo,
        caps: u64,
        mode: u64,
        addr_format: u32,
        src_addrlen: usize,
        dest_addrlen: usize,
        src_addr: *mut c_void,
        dest_addr: *mut c_void,
        handle: *mut Fid,
        tx_attr: *mut FiTxAttr,
        rx_attr: *mut FiRxAttr,
        ep_attr: *mut FiEpAttr,
        domain_attr: *mut FiDomainAttr,
        fabric_attr: *mut FiFabricAttr,
        nic: *mut c_void,
    }

    FiDomainAttr = fi_domain_attr {
        domain: *mut FidDomain,
        name: *mut c_char,
        threading: c_int,
        control_progress: c_int,
        data_progress: c_int,
        resource_mgmt: c_int,
        av_type: c_int,
        mr_mode: c_int,
        mr_key_size: usize,
        cq_data_size: usize,
        cq_cnt: usize,
        ep_cnt: usize,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        max_ep_tx_ctx: usize,
        max_ep_rx_ctx: usize,
        max_ep_stx_ctx: usize,
        max_ep_srx_ctx: usize,
        cntr_cnt: usize,
        mr_iov_limit: usize,
        caps: u64,
        mode: u64,
        auth_key: *mut u8,
        auth_key_size: usize,
        max_err_data: usize,
        mr_cnt: usize,
        tclass: u32,
        @newer {
            /// This and the following fields: since 1.20 and later.
            max_ep_auth_key: usize,
            max_group_id: u32,
            max_cntr_value: u64,
            max_err_cntr_value: u64,
            max_xpu_ctx_cnt: usize,
        }
    }

    FidFabric = fid_fabric { fid: Fid, ops: *const FiOpsFabric, api_version: u32, }

    FidDomain = fid_domain { fid: Fid, ops: *const FiOpsDomain, mr: *const FiOpsMr, }

    FiAvAttr = fi_av_attr {
        r#type: c_int,
        rx_ctx_bits: c_int,
        count: usize,
        ep_per_node: usize,
        name: *const c_char,
        map_addr: *mut c_void,
        flags: u64,
    }

    FidAv = fid_av { fid: Fid, ops: *const FiOpsAv, }

    FidMr = fid_mr { fid: Fid, mem_desc: *mut c_void, key: u64, }

    /// Fields up to those of version 1.17.
    FiMrAttr = fi_mr_attr {
        mr_iov: *const iovec,
        iov_count: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        context: *mut c_void,
        auth_key_size: usize,
        auth_key: *mut u8,
        iface: c_int,
        device: u64,
    }

    /// Description of a provider for the library.
    FiProvider = fi_provider {
        version: u32,
        fi_version: u32,
        /// The library's.
        context: [*mut c_void; 4],
        name: *const c_char,
        getinfo: unsafe extern "C" fn(
            u32,
            *const c_char,
            *const c_char,
            u64,
            *const FiInfo,
            *mut *mut FiInfo,
        ) -> c_int,
        fabric: unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
        cleanup: unsafe extern "C" fn(),
    }
}

operations! {
    FiOpsFabric = fi_ops_fabric {
        domain(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int = NO_INT;
        passive_ep(*mut FidFabric, *mut FiInfo, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
        eq_open(*mut FidFabric, *mut FiEqAttr, *mut *mut FidEq, *mut c_void) -> c_int = NO_INT;
        wait_open(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int = NO_INT;
        trywait(*mut FidFabric, *mut *mut Fid, c_int) -> c_int = NO_INT;
        domain2(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, u64, *mut c_void) -> c_int = NO_INT;
    }

    FiOpsDomain = fi_ops_domain {
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
        @newer {
            xpu_ctx(*mut FidDomain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
        }
    }

    FiOpsMr = fi_ops_mr {
        reg(*mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int = NO_INT;
        regv(*mut Fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int = NO_INT;
        regattr(*mut Fid, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int = NO_INT;
    }

    FiOpsAv = fi_ops_av {
        insert(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int = NO_INT;
        insertsvc(*mut FidAv, *const c_char, *const c_char, *mut u64, u64, *mut c_void) -> c_int = NO_INT;
        insertsym(*mut FidAv, *const c_char, usize, *const c_char, usize, *mut u64, u64, *mut c_void) -> c_int = NO_INT;
        remove(*mut FidAv, *mut u64, usize, u64) -> c_int = NO_INT;
        lookup(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int = NO_INT;
        straddr(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char = core::ptr::null();
        av_set(*mut FidAv, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int = NO_INT;
        @newer {
            insert_auth_key(*mut FidAv, *const c_void, usize, *mut u64, u64) -> c_int = NO_INT;
            lookup_auth_key(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int = NO_INT;
            set_user_id(*mut FidAv, u64, u64, u64) -> c_int = NO_INT;
            lookup2(*mut FidAv, u64, *mut c_void, *mut usize, u64, *mut c_void) -> c_int = NO_INT;
        }
    }
}
