//! Structures, constants and function tables of libfabric, as `rdma/*.h` defines them.
//!
//! Each structure has the newest known layout (2.6). Structures only grow at their ends: a program or library of an older version uses a prefix.
//! Structures that the caller allocates are read only up to the fields of version 1.17, the oldest supported one.
//!
//! Names of fields are those of the headers: the layout test compares them by name. Fields in `@newer` are not in every supported version.

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

/// Structure of the headers: its size, and its fields with their offsets, without those that are newer than the oldest supported version.
#[cfg(test)]
struct Layout {
    name: &'static str,
    size: usize,
    fields: &'static [(&'static str, usize)],
}

/// Defines structures of the headers, and their layouts.
macro_rules! structures {
    ($($(#[$meta:meta])* $name:ident = $header:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
        $(@newer { $($(#[$newer_doc:meta])* $newer:ident: $newer_type:ty,)* })?
    })*) => {
        $($(#[$meta])*
        #[repr(C)]
        pub(crate) struct $name {
            $($(#[$doc])* pub(crate) $field: $type,)*
            $($($(#[$newer_doc])* pub(crate) $newer: $newer_type,)*)?
        })*

        #[cfg(test)]
        pub(super) const STRUCTURES: &[super::Layout] = &[$(super::Layout {
            name: stringify!($header),
            size: size_of::<$name>(),
            fields: &[$((stringify!($field), core::mem::offset_of!($name, $field))),*],
        }),*];
    };
}
use structures;

/// Defines tables of functions, their layouts, and the table `NONE` whose functions all refuse: inline functions of libfabric's headers call
/// most of them without a check.
macro_rules! operations {
    ($($name:ident = $header:ident {
        $($field:ident($($argument:ty),*) -> $result:ty = $refusal:expr;)*
        $(@newer { $($newer:ident($($newer_argument:ty),*) -> $newer_result:ty = $newer_refusal:expr;)* })?
    })*) => {
        $(#[repr(C)]
        pub(crate) struct $name {
            pub(crate) size: usize,
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            $($(pub(crate) $newer: unsafe extern "C" fn($($newer_argument),*) -> $newer_result,)*)?
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
                $($($newer: {
                    unsafe extern "C" fn refuse($(_: $newer_argument),*) -> $newer_result {
                        $newer_refusal
                    }
                    refuse
                },)*)?
            };
        })*

        #[cfg(test)]
        pub(super) const TABLES: &[super::Layout] = &[$(super::Layout {
            name: stringify!($header),
            size: size_of::<$name>(),
            fields: &[("size", 0), $((stringify!($field), core::mem::offset_of!($name, $field))),*],
        }),*];
    };
}
use operations;

/// Result of functions that do not exist here, as `int`.
const NO_INT: core::ffi::c_int = -ENOSYS.get();
/// Result of functions that do not exist here, as `ssize_t`.
const NO_SIZE: isize = NO_INT as isize;
