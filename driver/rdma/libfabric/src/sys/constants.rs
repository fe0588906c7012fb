//! Constants of libfabric.

use core::ffi::c_int;

/// Version number of an interface.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// Version that the layouts here follow.
pub(crate) const API_VERSION: u32 = version(2, 6);

macro_rules! bits {
    ($($name:ident = $bit:literal;)*) => {
        $(pub(crate) const $name: u64 = 1 << $bit;)*
        /// Names of the headers and values.
        #[cfg(test)]
        pub(crate) const BITS: &[(&str, u64)] = &[$((stringify!($name), $name)),*];
    };
}

bits! {
    FI_MSG = 1;
    FI_RMA = 2;
    FI_TAGGED = 3;
    FI_ATOMIC = 4;
    FI_MULTICAST = 5;
    FI_COLLECTIVE = 6;
    FI_READ = 8;
    FI_WRITE = 9;
    FI_RECV = 10;
    FI_SEND = 11;
    FI_REMOTE_READ = 12;
    FI_REMOTE_WRITE = 13;
    FI_MULTI_RECV = 16;
    FI_REMOTE_CQ_DATA = 17;
    FI_MORE = 18;
    FI_PEEK = 19;
    FI_TRIGGER = 20;
    FI_FENCE = 21;
    FI_COMPLETION = 24;
    FI_INJECT = 25;
    FI_INJECT_COMPLETE = 26;
    FI_TRANSMIT_COMPLETE = 27;
    FI_DELIVERY_COMPLETE = 28;
    FI_AFFINITY = 29;
    FI_COMMIT_COMPLETE = 30;
    FI_MATCH_COMPLETE = 31;
    FI_HMEM = 47;
    FI_VARIABLE_MSG = 48;
    FI_SOURCE_ERR = 50;
    FI_LOCAL_COMM = 51;
    FI_REMOTE_COMM = 52;
    FI_SHARED_AV = 53;
    FI_PROV_ATTR_ONLY = 54;
    FI_NUMERICHOST = 55;
    FI_RMA_EVENT = 56;
    FI_SOURCE = 57;
    FI_DIRECTED_RECV = 59;
    FI_CLAIM = 59;
    FI_NAMED_RX_CTX = 58;
    FI_DISCARD = 58;
    FI_SYNC_ERR = 58;
    FI_SELECTIVE_COMPLETION = 59;
    FI_ORDER_SAS = 8;
}

/// Same value as [`FI_COMPLETION`].
pub(crate) const FI_EVENT: u64 = FI_COMPLETION;
/// Since version 2.0.
pub(crate) const FI_TAGGED_DIRECTED_RECV: u64 = 1 << 45;
/// Since version 2.0: look for devices again.
pub(crate) const FI_RESCAN: u64 = 1 << 35;
/// Flags that parts of the library pass to each other.
pub(crate) const INTERNAL_GETINFO_FLAGS: u64 = 0xf << 56;

pub(crate) const FI_ADDR_UNSPEC: u64 = u64::MAX;
pub(crate) const FI_ADDR_NOTAVAIL: u64 = u64::MAX;
/// Provider-specific protocol: messages between FPGA cards.
pub(crate) const PROTOCOL: u32 = 1 << 31 | 0x4650;
/// Tag format that permits any use of the bits.
pub(crate) const FI_TAG_GENERIC: u64 = 0xaaaa_aaaa_aaaa_aaaa;

macro_rules! numbers {
    ($($name:ident: $type:ty = $value:literal;)*) => {
        $(pub(crate) const $name: $type = $value;)*
        /// Names of the headers and values.
        #[cfg(test)]
        pub(crate) const NUMBERS: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),*];
    };
}

numbers! {
    FI_FORMAT_UNSPEC: u32 = 0;
    FI_ADDR_STR: u32 = 9;
    FI_AV_UNSPEC: c_int = 0;
    FI_AV_MAP: c_int = 1;
    FI_AV_TABLE: c_int = 2;
    FI_MR_BASIC: c_int = 1;
    FI_MR_SCALABLE: c_int = 2;
    FI_MR_VIRT_ADDR: c_int = 16;
    FI_MR_PROV_KEY: c_int = 64;
    FI_PROGRESS_UNSPEC: c_int = 0;
    FI_PROGRESS_AUTO: c_int = 1;
    FI_PROGRESS_MANUAL: c_int = 2;
    FI_THREAD_SAFE: c_int = 1;
    FI_THREAD_ENDPOINT: c_int = 5;
    FI_RM_ENABLED: c_int = 2;
    FI_EP_UNSPEC: c_int = 0;
    FI_EP_RDM: c_int = 3;
    FI_CLASS_FABRIC: usize = 1;
    FI_CLASS_DOMAIN: usize = 2;
    FI_CLASS_EP: usize = 3;
    FI_CLASS_AV: usize = 11;
    FI_CLASS_MR: usize = 12;
    FI_CLASS_EQ: usize = 13;
    FI_CLASS_CQ: usize = 14;
    FI_CLASS_CNTR: usize = 15;
    FI_GETOPSFLAG: c_int = 2;
    FI_SETOPSFLAG: c_int = 3;
    FI_ALIAS: c_int = 4;
    FI_GETWAIT: c_int = 5;
    FI_ENABLE: c_int = 6;
    FI_REFRESH: c_int = 14;
    FI_GETWAITOBJ: c_int = 16;
    FI_WAIT_NONE: c_int = 0;
    FI_WAIT_UNSPEC: c_int = 1;
    FI_WAIT_FD: c_int = 3;
    FI_WAIT_YIELD: c_int = 5;
    FI_CQ_FORMAT_UNSPEC: c_int = 0;
    FI_CQ_FORMAT_CONTEXT: c_int = 1;
    FI_CQ_FORMAT_MSG: c_int = 2;
    FI_CQ_FORMAT_DATA: c_int = 3;
    FI_CQ_FORMAT_TAGGED: c_int = 4;
    FI_CQ_COND_NONE: c_int = 0;
    FI_CQ_COND_THRESHOLD: c_int = 1;
    FI_CNTR_EVENTS_COMP: c_int = 0;
    FI_AV_COMPLETE: u32 = 5;
    FI_OPT_ENDPOINT: c_int = 0;
    FI_OPT_MIN_MULTI_RECV: c_int = 0;
    FI_OPT_CM_DATA_SIZE: c_int = 1;
    FI_OPT_TX_SIZE: c_int = 6;
    FI_OPT_RX_SIZE: c_int = 7;
    FI_HMEM_SYSTEM: c_int = 0;
    FI_INT8: c_int = 0;
    FI_UINT8: c_int = 1;
    FI_INT16: c_int = 2;
    FI_UINT16: c_int = 3;
    FI_INT32: c_int = 4;
    FI_UINT32: c_int = 5;
    FI_INT64: c_int = 6;
    FI_UINT64: c_int = 7;
    FI_FLOAT: c_int = 8;
    FI_DOUBLE: c_int = 9;
    FI_FLOAT_COMPLEX: c_int = 10;
    FI_DOUBLE_COMPLEX: c_int = 11;
    FI_LONG_DOUBLE: c_int = 12;
    FI_LONG_DOUBLE_COMPLEX: c_int = 13;
    FI_INT128: c_int = 14;
    FI_UINT128: c_int = 15;
    FI_MIN: c_int = 0;
    FI_MAX: c_int = 1;
    FI_SUM: c_int = 2;
    FI_PROD: c_int = 3;
    FI_LOR: c_int = 4;
    FI_LAND: c_int = 5;
    FI_BOR: c_int = 6;
    FI_BAND: c_int = 7;
    FI_LXOR: c_int = 8;
    FI_BXOR: c_int = 9;
    FI_ATOMIC_READ: c_int = 10;
    FI_ATOMIC_WRITE: c_int = 11;
    FI_CSWAP: c_int = 12;
    FI_CSWAP_NE: c_int = 13;
    FI_CSWAP_LE: c_int = 14;
    FI_CSWAP_LT: c_int = 15;
    FI_CSWAP_GE: c_int = 16;
    FI_CSWAP_GT: c_int = 17;
    FI_MSWAP: c_int = 18;
}

/// Since version 2.0: one call drives control and data.
pub(crate) const FI_PROGRESS_CONTROL_UNIFIED: c_int = 3;
/// Options that newer versions have, as `size_t`.
pub(crate) const FI_OPT_MAX_MSG_SIZE: c_int = 12;
pub(crate) const FI_OPT_MAX_TAGGED_SIZE: c_int = 13;
pub(crate) const FI_OPT_MAX_RMA_SIZE: c_int = 14;
pub(crate) const FI_OPT_MAX_ATOMIC_SIZE: c_int = 15;
pub(crate) const FI_OPT_INJECT_MSG_SIZE: c_int = 16;
pub(crate) const FI_OPT_INJECT_TAGGED_SIZE: c_int = 17;
pub(crate) const FI_OPT_INJECT_RMA_SIZE: c_int = 18;
pub(crate) const FI_OPT_INJECT_ATOMIC_SIZE: c_int = 19;
/// `bool`; shared memory between cards is a link like another one.
pub(crate) const FI_OPT_SHARED_MEMORY_PERMITTED: c_int = 11;

/// Error code, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(c_int);

impl Code {
    pub(crate) const fn new(number: c_int) -> Self {
        Self(number)
    }

    pub(crate) const fn get(self) -> c_int {
        self.0
    }
}

macro_rules! codes {
    ($($name:ident = $header:ident = $value:expr;)*) => {
        $(pub(crate) const $name: Code = Code($value);)*
        /// Names of the headers and values.
        #[cfg(test)]
        pub(crate) const CODES: &[(&str, Code)] = &[$((stringify!($header), $name)),*];
    };
}

codes! {
    EIO = FI_EIO = libc::EIO;
    EAGAIN = FI_EAGAIN = libc::EAGAIN;
    ENOMEM = FI_ENOMEM = libc::ENOMEM;
    EBUSY = FI_EBUSY = libc::EBUSY;
    EINVAL = FI_EINVAL = libc::EINVAL;
    ENOSYS = FI_ENOSYS = libc::ENOSYS;
    ENOMSG = FI_ENOMSG = libc::ENOMSG;
    ENODATA = FI_ENODATA = libc::ENODATA;
    EMSGSIZE = FI_EMSGSIZE = libc::EMSGSIZE;
    ENOPROTOOPT = FI_ENOPROTOOPT = libc::ENOPROTOOPT;
    EOPNOTSUPP = FI_EOPNOTSUPP = libc::EOPNOTSUPP;
    ESHUTDOWN = FI_ESHUTDOWN = libc::ESHUTDOWN;
    ECONNRESET = FI_ECONNRESET = libc::ECONNRESET;
    ETIMEDOUT = FI_ETIMEDOUT = libc::ETIMEDOUT;
    EHOSTUNREACH = FI_EHOSTUNREACH = libc::EHOSTUNREACH;
    ECANCELED = FI_ECANCELED = libc::ECANCELED;
    EKEYREJECTED = FI_EKEYREJECTED = libc::EKEYREJECTED;
    EOTHER = FI_EOTHER = 256;
    EOPBADSTATE = FI_EOPBADSTATE = 258;
    ETOOSMALL = FI_ETOOSMALL = 257;
    EAVAIL = FI_EAVAIL = 259;
    EBADFLAGS = FI_EBADFLAGS = 260;
    ENOEQ = FI_ENOEQ = 261;
    EDOMAIN = FI_EDOMAIN = 262;
    ENOCQ = FI_ENOCQ = 263;
    ETRUNC = FI_ETRUNC = 265;
    ENOKEY = FI_ENOKEY = 266;
    ENOAV = FI_ENOAV = 267;
}
