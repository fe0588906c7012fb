//! Endpoints: binding, enabling, options and names.

use crate::code::Code;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::endpoint_core::{Binding, Core, State};
use crate::entry::{call, check_flags, copy_out, get, set, structure, to_count};
use crate::events::EventQueue;
use crate::info::{INJECT_SIZE, MAX_ATOMIC, MAX_MESSAGE, RX_FLAGS, TX_FLAGS};
use crate::memory::address_of;
use crate::object::{Head, Held, Object, borrow, close, is_same, object, publish};
use crate::queue::Queue;
use crate::sys::*;
use crate::vector::{ADDRESS_LENGTH, AddressVector, encode};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use fpga_messages::Address;
use std::sync::Arc;

static FID: FiOps = FiOps { close: close_endpoint, bind, control, ..FiOps::NONE };
pub(crate) static ENDPOINT: FiOpsEp =
    FiOpsEp { cancel, getopt, setopt, rx_size_left, tx_size_left, ..FiOpsEp::NONE };
pub(crate) static NAMES: FiOpsCm = FiOpsCm { setname, getname, ..FiOpsCm::NONE };

/// Endpoint, or an alias of one with other default flags.
#[repr(C)]
pub(crate) struct Endpoint {
    head: Head<FidEp>,
    pub(crate) core: Arc<Core>,
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    /// The endpoint of which this is an alias.
    original: Option<Held<Endpoint>>,
}

object!(Endpoint: FidEp, FI_CLASS_EP, FID);

impl Endpoint {
    pub(crate) fn new(raw: FidEp, core: Core, tx_flags: u64, rx_flags: u64) -> Self {
        let (tx_flags, rx_flags) = (AtomicU64::new(tx_flags), AtomicU64::new(rx_flags));
        Self { head: Head::new(raw), core: Arc::new(core), tx_flags, rx_flags, original: None }
    }

    /// Default flags of operations that send, write or read.
    #[inline]
    pub(crate) fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    /// Default flags of receives.
    #[inline]
    pub(crate) fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }

    /// Default flags of the direction that `flags` name, and the flags that it permits.
    fn flags_of(&self, flags: u64) -> Result<(&AtomicU64, u64), Code> {
        match flags & (FI_SEND | FI_RECV) {
            FI_SEND => Ok((&self.tx_flags, TX_FLAGS)),
            FI_RECV => Ok((&self.rx_flags, RX_FLAGS)),
            _ => Err(EINVAL),
        }
    }

    fn set_flags(&self, flags: u64) -> Result<(), Code> {
        let (target, known) = self.flags_of(flags)?;
        let flags = flags & !(FI_SEND | FI_RECV);
        check_flags(flags, known, EBADFLAGS)?;
        target.store(flags, Ordering::Relaxed);
        Ok(())
    }

    /// Creates an alias with other flags.
    fn alias(&self, request: &FiAlias) -> Result<(), Code> {
        let original = self.original.as_deref().unwrap_or(self);
        let raw = self.head.raw();
        // SAFETY: the structure lives as long as the endpoint; tables and class do not change.
        let raw = unsafe {
            FidEp {
                fid: Self::fid((*raw).fid.context),
                ops: (*raw).ops,
                cm: (*raw).cm,
                msg: (*raw).msg,
                rma: (*raw).rma,
                tagged: (*raw).tagged,
                atomic: (*raw).atomic,
                collective: (*raw).collective,
            }
        };
        let alias = Self {
            head: Head::new(raw),
            core: Arc::clone(&self.core),
            tx_flags: AtomicU64::new(self.tx_flags()),
            rx_flags: AtomicU64::new(self.rx_flags()),
            original: Some(Held::new(original)?),
        };
        alias.set_flags(request.flags)?;
        // The pointer is checked before the program owns the alias.
        set(request.fid, core::ptr::null_mut())?;
        set(request.fid, publish(Arc::new(alias)).cast())
    }
}

unsafe extern "C" fn close_endpoint(fid: *mut Fid) -> c_int {
    call(|| {
        let endpoint = close::<Endpoint>(fid)?;
        if endpoint.original.is_none() {
            endpoint.core.shut();
        }
        Ok(0)
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    call(|| {
        let endpoint: &Endpoint = borrow(fid)?;
        let class = structure(other.cast_const())?.fclass;
        let domain = &*endpoint.core.domain;
        let mut state = endpoint.core.lock();
        if state.is_enabled {
            return Err(EOPBADSTATE);
        }
        match class {
            FI_CLASS_AV => {
                check_flags(flags, 0, EBADFLAGS)?;
                let vector: &AddressVector = borrow(other)?;
                check_domain(domain, &vector.domain)?;
                set_once(&mut state.vector, Held::new(vector)?)?;
            }
            FI_CLASS_CQ => {
                let queue: &Queue = borrow(other)?;
                check_domain(domain, &queue.domain)?;
                bind_queue(&mut state, queue, flags)?;
            }
            FI_CLASS_CNTR => {
                let counter: &Counter = borrow(other)?;
                check_domain(domain, &counter.domain)?;
                bind_counter(&mut state, counter, flags)?;
            }
            FI_CLASS_EQ => {
                check_flags(flags, 0, EBADFLAGS)?;
                let events: &EventQueue = borrow(other)?;
                if !is_same(&*events.fabric, &*domain.fabric) {
                    return Err(EDOMAIN);
                }
                set_once(&mut state.events, Held::new(events)?)?;
            }
            _ => return Err(EINVAL),
        }
        Ok(0)
    })
}

fn check_domain(own: &Domain, other: &Domain) -> Result<(), Code> {
    if is_same(own, other) { Ok(()) } else { Err(EDOMAIN) }
}

/// Sets a value that must not be set yet.
fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), Code> {
    if slot.is_some() {
        return Err(EINVAL);
    }
    *slot = Some(value);
    Ok(())
}

fn bind_queue(state: &mut State, queue: &Queue, flags: u64) -> Result<(), Code> {
    check_flags(flags, FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION, EBADFLAGS)?;
    let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
    let (is_tx, is_rx) = (flags & FI_SEND != 0, flags & FI_RECV != 0);
    if !is_tx && !is_rx || is_tx && state.tx.is_some() || is_rx && state.rx.is_some() {
        return Err(EINVAL);
    }
    if is_tx {
        state.tx = Some(Binding { queue: Held::new(queue)?, is_selective });
    }
    if is_rx {
        state.rx = Some(Binding { queue: Held::new(queue)?, is_selective });
    }
    Ok(())
}

fn bind_counter(state: &mut State, counter: &Counter, flags: u64) -> Result<(), Code> {
    check_flags(flags, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, EBADFLAGS)?;
    if flags == 0 {
        return Err(EINVAL);
    }
    let counters = &mut state.counters;
    let slots = [
        (FI_SEND, &mut counters.send),
        (FI_RECV, &mut counters.receive),
        (FI_READ, &mut counters.read),
        (FI_WRITE, &mut counters.write),
        (FI_REMOTE_READ, &mut counters.remote_read),
        (FI_REMOTE_WRITE, &mut counters.remote_write),
    ];
    let chosen = slots.into_iter().filter(|(flag, _)| flags & flag != 0);
    let chosen: Vec<_> = chosen.map(|(_, slot)| slot).collect();
    if chosen.iter().any(|slot| slot.is_some()) {
        return Err(EINVAL);
    }
    for slot in chosen {
        *slot = Some(Held::new(counter)?);
    }
    Ok(())
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    call(|| {
        let endpoint: &Endpoint = borrow(fid)?;
        match command {
            FI_ENABLE => enable(&endpoint.core)?,
            FI_ALIAS => endpoint.alias(structure(argument.cast::<FiAlias>().cast_const())?)?,
            FI_GETOPSFLAG => {
                let (flags, _) = endpoint.flags_of(get(argument.cast::<u64>().cast_const())?)?;
                set(argument.cast(), flags.load(Ordering::Relaxed))?;
            }
            FI_SETOPSFLAG => endpoint.set_flags(get(argument.cast::<u64>().cast_const())?)?,
            _ => return Err(ENOSYS),
        }
        Ok(0)
    })
}

fn enable(core: &Arc<Core>) -> Result<(), Code> {
    let mut state = core.lock();
    if state.is_enabled {
        return Err(EOPBADSTATE);
    }
    if state.vector.is_none() {
        return Err(ENOAV);
    }
    let counters = &state.counters;
    let counts_tx = counters.send.is_some() || counters.read.is_some() || counters.write.is_some();
    if core.has_tx && state.tx.is_none() && !counts_tx
        || core.has_rx && state.rx.is_none() && counters.receive.is_none()
    {
        return Err(ENOCQ);
    }
    core.open(&mut state)?;
    state.is_enabled = true;
    state.follow_vector();
    drop(state);
    core.attach();
    Ok(())
}

unsafe extern "C" fn setname(fid: *mut Fid, address: *mut c_void, length: usize) -> c_int {
    call(|| {
        let endpoint: &Endpoint = borrow(fid)?;
        let address =
            crate::hints::address(address.cast_const().cast(), length).ok().flatten().ok_or(EINVAL)?;
        let mut state = endpoint.core.lock();
        if state.engine.is_some() {
            return Err(EOPBADSTATE);
        }
        match address {
            Address::Link(listen) => state.listen = Some(listen),
            // The node id of a card is that of its bitstream.
            Address::Node(_) | Address::NodeAt(..) => return Err(EINVAL),
        }
        Ok(0)
    })
}

unsafe extern "C" fn getname(fid: *mut Fid, address: *mut c_void, length: *mut usize) -> c_int {
    call(|| {
        let endpoint: &Endpoint = borrow(fid)?;
        let space = get(length.cast_const())?;
        let name = endpoint.core.open(&mut endpoint.core.lock())?;
        set(length, ADDRESS_LENGTH)?;
        copy_out(address.cast(), space, &encode(name))?;
        if space < ADDRESS_LENGTH { Err(ETOOSMALL) } else { Ok(0) }
    })
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    call(|| {
        let endpoint: &Endpoint = borrow(fid)?;
        endpoint.core.post(|state| {
            // Nothing to cancel: the operation's completion is in progress.
            state.engine()?.cancel(address_of(context.cast_const()));
            Ok(())
        })
    })
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    call(|| {
        let endpoint: &Endpoint = borrow(fid)?;
        if level != FI_OPT_ENDPOINT {
            return Err(ENOPROTOOPT);
        }
        let result = match name {
            FI_OPT_MIN_MULTI_RECV => endpoint.core.lock().min_multi_receive,
            FI_OPT_CM_DATA_SIZE => 0,
            FI_OPT_TX_SIZE => endpoint.core.tx_size,
            FI_OPT_RX_SIZE => endpoint.core.rx_size,
            FI_OPT_MAX_MSG_SIZE | FI_OPT_MAX_TAGGED_SIZE | FI_OPT_MAX_RMA_SIZE => MAX_MESSAGE,
            FI_OPT_MAX_ATOMIC_SIZE | FI_OPT_INJECT_ATOMIC_SIZE => MAX_ATOMIC,
            FI_OPT_INJECT_MSG_SIZE | FI_OPT_INJECT_TAGGED_SIZE | FI_OPT_INJECT_RMA_SIZE => INJECT_SIZE,
            _ => return Err(ENOPROTOOPT),
        };
        if get(length.cast_const())? < size_of::<usize>() {
            return Err(ETOOSMALL);
        }
        set(value.cast(), result)?;
        set(length, size_of::<usize>())?;
        Ok(0)
    })
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    call(|| {
        let endpoint: &Endpoint = borrow(fid)?;
        if level != FI_OPT_ENDPOINT {
            return Err(ENOPROTOOPT);
        }
        if name == FI_OPT_SHARED_MEMORY_PERMITTED {
            // FPGA_LINK decides about the links of simulated cards.
            return Ok(0);
        }
        if length != size_of::<usize>() {
            return Err(EINVAL);
        }
        let value = get(value.cast::<usize>())?;
        let limit = match name {
            FI_OPT_MIN_MULTI_RECV => {
                endpoint.core.lock().min_multi_receive = value;
                return Ok(0);
            }
            FI_OPT_MAX_MSG_SIZE | FI_OPT_MAX_TAGGED_SIZE | FI_OPT_MAX_RMA_SIZE => MAX_MESSAGE,
            FI_OPT_MAX_ATOMIC_SIZE | FI_OPT_INJECT_ATOMIC_SIZE => MAX_ATOMIC,
            FI_OPT_INJECT_MSG_SIZE | FI_OPT_INJECT_TAGGED_SIZE | FI_OPT_INJECT_RMA_SIZE => INJECT_SIZE,
            _ => return Err(ENOPROTOOPT),
        };
        // A lower limit of the program needs no action here.
        if value <= limit { Ok(0) } else { Err(EINVAL) }
    })
}

unsafe extern "C" fn tx_size_left(endpoint: *mut FidEp) -> isize {
    call(|| {
        let endpoint: &Endpoint = borrow(endpoint)?;
        let mut state = endpoint.core.lock();
        if !state.is_enabled {
            return Err(EOPBADSTATE);
        }
        let in_progress = state.engine()?.in_progress();
        Ok(to_count(endpoint.core.tx_size.saturating_sub(in_progress)))
    })
}

unsafe extern "C" fn rx_size_left(endpoint: *mut FidEp) -> isize {
    call(|| {
        let endpoint: &Endpoint = borrow(endpoint)?;
        if endpoint.core.lock().is_enabled { Ok(to_count(endpoint.core.rx_size)) } else { Err(EOPBADSTATE) }
    })
}
