//! Structures, constants and function tables of libfabric, as `rdma/*.h` defines them.
//!
//! Each structure has the newest known layout (2.6). Structures only grow at their ends: a program or library of an older version uses a prefix.
//! Structures that the caller allocates are read only up to the fields of version 1.17, the oldest supported one.
//!
//! Names of fields are those of the headers: the layout test compares them by name.

mod attributes;
mod constants;
mod domain;
mod endpoint;
mod events;
mod fid;
#[cfg(test)]
mod layouts;
mod messages;

pub(crate) use attributes::{FiEpAttr, FiRxAttr, FiTxAttr};
pub(crate) use constants::*;
pub(crate) use domain::{
    FiAvAttr, FiDomainAttr, FiFabricAttr, FiInfo, FiMrAttr, FiOpsAv, FiOpsDomain, FiOpsFabric, FiOpsMr,
    FiProvider, FidAv, FidDomain, FidFabric, FidMr,
};
pub(crate) use endpoint::{
    FiOpsAtomic, FiOpsCm, FiOpsCollective, FiOpsEp, FiOpsMsg, FiOpsRma, FiOpsTagged, FidEp,
};
pub(crate) use events::{
    FiCntrAttr, FiCqAttr, FiCqDataEntry, FiCqEntry, FiCqErrEntry, FiCqMsgEntry, FiCqTaggedEntry, FiEqAttr,
    FiEqEntry, FiEqErrEntry, FiOpsCntr, FiOpsCq, FiOpsEq, FidCntr, FidCq, FidEq,
};
pub(crate) use fid::{FiAlias, FiOps, Fid};
pub(crate) use messages::{FiAtomicAttr, FiIoc, FiMsg, FiMsgAtomic, FiMsgRma, FiMsgTagged};

/// Defines a table of functions, and the table `NONE` whose functions all refuse: inline functions of libfabric's headers call most of
/// them without a check.
macro_rules! operations {
    ($(#[$meta:meta])* $name:ident { $($field:ident($($argument:ty),* $(,)?) -> $result:ty = $refusal:expr;)* }) => {
        $(#[$meta])*
        #[repr(C)]
        pub(crate) struct $name {
            pub(crate) size: usize,
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $name {
            /// Functions that refuse.
            pub(crate) const NONE: Self = Self {
                size: size_of::<Self>(),
                $($field: {
                    unsafe extern "C" fn refuse($(_: $argument),*) -> $result {
                        $refusal
                    }
                    refuse
                },)*
            };
        }
    };
}
use operations;

/// Result of functions that do not exist here, as `int`.
const NO_INT: core::ffi::c_int = -ENOSYS.get();
/// Result of functions that do not exist here, as `ssize_t`.
const NO_SIZE: isize = NO_INT as isize;
