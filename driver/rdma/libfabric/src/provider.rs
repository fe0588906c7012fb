//! Entry of the provider: descriptions, fabrics, and the functions that open domains and endpoints.

use crate::code::Code;
use crate::counter::{self, Counter};
use crate::domain::{Domain, DomainChoice};
use crate::endpoint::{ENDPOINT, Endpoint, NAMES};
use crate::endpoint_core::{Core, CoreOptions};
use crate::entry::{array, call, check_flags, optional, set, structure, text};
use crate::events::{self, EventQueue};
use crate::fabric::Fabric;
use crate::hints;
use crate::info::{
    ACCESS_DIRECTIONS, Description, MAX_QUEUE_SIZE, MESSAGE_DIRECTIONS, NAME, QUEUE_SIZE, RX_FLAGS, TX_FLAGS,
};
use crate::log;
use crate::object::{Head, Held, Object, borrow, close_object, is_same, object, publish};
use crate::queue::Queue;
use crate::resolve::{UNSPECIFIED, resolve};
use crate::sys::*;
use crate::vector_calls;
use crate::{access, atomic, message, queue_calls, region, tagged, unsupported};
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use fpga_messages::{Address, MessengerOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

static FABRIC_FID: FiOps = FiOps { close: close_object::<Fabric>, ..FiOps::NONE };
static FABRIC: FiOpsFabric = FiOpsFabric {
    domain,
    eq_open: events::open,
    wait_open: unsupported::wait_open,
    trywait,
    domain2,
    ..FiOpsFabric::NONE
};
static DOMAIN_FID: FiOps = FiOps { close: close_object::<Domain>, bind: bind_domain, ..FiOps::NONE };
static DOMAIN: FiOpsDomain = FiOpsDomain {
    av_open: vector_calls::open,
    cq_open: queue_calls::open,
    endpoint,
    cntr_open: counter::open,
    query_atomic: atomic::query,
    poll_open: unsupported::poll_open,
    endpoint2,
    ..FiOpsDomain::NONE
};
static COLLECTIVE: FiOpsCollective = FiOpsCollective::NONE;

object!(Fabric: FidFabric, FI_CLASS_FABRIC, FABRIC_FID);

object!(Domain: FidDomain, FI_CLASS_DOMAIN, DOMAIN_FID);

/// Flags of `fi_getinfo`.
const GETINFO_FLAGS: u64 =
    FI_SOURCE | FI_NUMERICHOST | FI_PROV_ATTR_ONLY | FI_RESCAN | INTERNAL_GETINFO_FLAGS;

pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    out: *mut *mut FiInfo,
) -> c_int {
    call(|| {
        set(out, null_mut())?;
        check_flags(flags, GETINFO_FLAGS, EBADFLAGS)?;
        let options = MessengerOptions::from_environment().map_err(|text| {
            log::warn(format_args!("{text}"));
            ENODATA
        })?;
        let mut description =
            Description { api_version: version, domain: options.card, ..Description::default() };
        let hints = optional(hints)?;
        if let Some(hints) = hints {
            description.apply(hints, version)?;
        }
        let (node, service) = (text(node)?, text(service)?);
        let (source, destination) = addresses(node, service, flags, hints)?;
        description.source = source.to_string();
        description.destination = destination.map(|address| address.to_string());
        set(out, description.into_info()?)?;
        Ok(0)
    })
}

/// Source and destination from the names of node and service, or from hints.
fn addresses(
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: Option<&FiInfo>,
) -> Result<(Address, Option<Address>), Code> {
    let is_numeric = flags & FI_NUMERICHOST != 0;
    let is_named = node.is_some() || service.is_some();
    let hint = |choose: fn(&FiInfo) -> (*mut c_void, usize)| match hints.map(choose) {
        Some((address, length)) => hints::address(address.cast_const().cast(), length),
        None => Ok(None),
    };
    let (any, local) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::LOCALHOST));
    if flags & FI_SOURCE != 0 {
        let source = if is_named { resolve(node, service, any, is_numeric)? } else { UNSPECIFIED };
        return Ok((source, hint(|hints| (hints.dest_addr, hints.dest_addrlen))?));
    }
    let source = hint(|hints| (hints.src_addr, hints.src_addrlen))?.unwrap_or(UNSPECIFIED);
    let destination = if is_named {
        Some(resolve(node, service, local, is_numeric)?)
    } else {
        hint(|hints| (hints.dest_addr, hints.dest_addrlen))?
    };
    Ok((source, destination))
}

pub(crate) unsafe extern "C" fn fabric(
    attributes: *mut FiFabricAttr,
    out: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let attributes = structure(attributes)?;
        set(out, null_mut())?;
        if text(attributes.name)?.is_some_and(|name| name != NAME) {
            return Err(EINVAL);
        }
        let raw = FidFabric {
            fid: Fabric::fid(context),
            ops: &raw const FABRIC,
            api_version: attributes.api_version,
        };
        set(out, publish(Arc::new(Fabric { head: Head::new(raw) })))?;
        Ok(0)
    })
}

unsafe extern "C" fn domain(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let fabric: &Fabric = borrow(fabric)?;
        let info = structure(info)?;
        set(out, null_mut())?;
        let attributes = structure(info.domain_attr)?;
        let known = FI_MR_BASIC | FI_MR_SCALABLE | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
        if attributes.mr_mode & !known != 0 {
            return Err(EINVAL);
        }
        let is_basic = attributes.mr_mode == FI_MR_BASIC;
        let choice = DomainChoice {
            has_virtual_addresses: is_basic || attributes.mr_mode & FI_MR_VIRT_ADDR != 0,
            has_provider_keys: is_basic || attributes.mr_mode & FI_MR_PROV_KEY != 0,
            is_automatic: attributes.data_progress == FI_PROGRESS_AUTO,
        };
        let raw =
            FidDomain { fid: Domain::fid(context), ops: &raw const DOMAIN, mr: &raw const region::MEMORY };
        let domain = Domain::new(Head::new(raw), Held::new(fabric)?, choice);
        set(out, publish(Arc::new(domain)))?;
        Ok(0)
    })
}

unsafe extern "C" fn domain2(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    out: *mut *mut FidDomain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -EOPNOTSUPP.get();
    }
    // SAFETY: the requirements are those of this function.
    unsafe { domain(fabric, info, out, context) }
}

unsafe extern "C" fn bind_domain(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    call(|| {
        let domain: &Domain = borrow(fid)?;
        let events: &EventQueue = borrow(other)?;
        check_flags(flags, 0, EBADFLAGS)?;
        // Domains have no events: registrations end with their call.
        if is_same(&*events.fabric, &*domain.fabric) { Ok(0) } else { Err(EDOMAIN) }
    })
}

/// Capabilities of one part of an endpoint, and whether it has one of `directions`.
fn has_direction(caps: u64, directions: u64) -> bool {
    caps & (MESSAGE_DIRECTIONS | ACCESS_DIRECTIONS) == 0 || caps & directions != 0
}

unsafe extern "C" fn endpoint(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let domain: &Domain = borrow(domain)?;
        let info = structure(info)?;
        set(out, null_mut())?;
        if let Some(attributes) = optional(info.ep_attr)? {
            if !matches!(attributes.r#type, FI_EP_UNSPEC | FI_EP_RDM) {
                return Err(EOPNOTSUPP);
            }
            if attributes.tx_ctx_cnt > 1 || attributes.rx_ctx_cnt > 1 {
                return Err(EOPNOTSUPP);
            }
        }
        let (mut tx_caps, mut rx_caps) = (info.caps, info.caps);
        let (mut tx_flags, mut rx_flags) = (0, 0);
        let (mut tx_size, mut rx_size) = (QUEUE_SIZE, QUEUE_SIZE);
        if let Some(tx) = optional(info.tx_attr)? {
            (tx_caps, tx_flags, tx_size) = (tx.caps, tx.op_flags, tx.size.max(1));
        }
        if let Some(rx) = optional(info.rx_attr)? {
            (rx_caps, rx_flags, rx_size) = (rx.caps, rx.op_flags, rx.size.max(1));
        }
        check_flags(tx_flags, TX_FLAGS, EBADFLAGS)?;
        check_flags(rx_flags, RX_FLAGS, EBADFLAGS)?;
        if tx_size > MAX_QUEUE_SIZE || rx_size > MAX_QUEUE_SIZE {
            return Err(EINVAL);
        }
        let source =
            hints::address(info.src_addr.cast_const().cast(), info.src_addrlen).map_err(|_| EINVAL)?;
        let options = CoreOptions {
            tx_size,
            rx_size,
            is_directed: (info.caps | rx_caps) & FI_DIRECTED_RECV != 0,
            is_tagged_directed: (info.caps | rx_caps) & FI_TAGGED_DIRECTED_RECV != 0,
            has_tx: has_direction(tx_caps, FI_SEND | FI_READ | FI_WRITE),
            has_rx: has_direction(rx_caps, FI_RECV),
            reports_access: (info.caps | rx_caps) & FI_RMA_EVENT != 0,
            listen: match source {
                Some(Address::Link(listen)) if source != Some(UNSPECIFIED) => Some(listen),
                _ => None,
            },
        };
        let raw = FidEp {
            fid: Endpoint::fid(context),
            ops: &raw const ENDPOINT,
            cm: &raw const NAMES,
            msg: &raw const message::MESSAGES,
            rma: &raw const access::ACCESS,
            tagged: &raw const tagged::TAGGED,
            atomic: &raw const atomic::ATOMIC,
            collective: &raw const COLLECTIVE,
        };
        let core = Core::new(Held::new(domain)?, options);
        set(out, publish(Arc::new(Endpoint::new(raw, core, tx_flags, rx_flags))))?;
        Ok(0)
    })
}

unsafe extern "C" fn endpoint2(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    out: *mut *mut FidEp,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -EOPNOTSUPP.get();
    }
    // SAFETY: the requirements are those of this function.
    unsafe { endpoint(domain, info, out, context) }
}

unsafe extern "C" fn trywait(fabric: *mut FidFabric, objects: *mut *mut Fid, count: c_int) -> c_int {
    call(|| {
        let _: &Fabric = borrow(fabric)?;
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        for object in array(objects.cast_const(), count)? {
            let may_wait = match structure(object.cast_const())?.fclass {
                FI_CLASS_CQ => {
                    let queue: &Queue = borrow(*object)?;
                    queue.sources.try_wait(&|| queue.is_ready())
                }
                FI_CLASS_EQ => {
                    let events: &EventQueue = borrow(*object)?;
                    events.sources.try_wait(&|| !events.is_empty())
                }
                FI_CLASS_CNTR => {
                    let counter: &Counter = borrow(*object)?;
                    // A program that waits for a counter reads it before each wait.
                    counter.sources.try_wait(&|| false)
                }
                _ => return Err(ENOSYS),
            };
            if !may_wait {
                return Err(EAGAIN);
            }
        }
        Ok(0)
    })
}

/// The library unloads the provider, or the process ends. Objects that are still open belong to the program.
pub(crate) unsafe extern "C" fn cleanup() {}
