//! Flags, local ranges, and time of completion of operations that are posted.

use crate::code::Code;
use crate::endpoint::Endpoint;
use crate::endpoint_core::{State, posted, user};
use crate::engine::Engine;
use crate::entry::{array, to_u64};
use crate::info::{MAX_ATOMIC, TX_FLAGS};
use crate::memory::address_of;
use crate::sys::*;
use crate::unsupported::check_operation_flags;
use core::ffi::c_void;
use fpga_messages::{CompleteWhen, CompletionKind, HostRange, HostRanges, MAX_INJECT, PostError, Token};
use libc::iovec;

/// Where the flags of an operation come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flags {
    /// The endpoint's default flags.
    Default,
    /// Flags of the call, which replace the endpoint's.
    Call(u64),
    /// An inject call: the data is copied, and there is no completion.
    Inject,
}

/// Operation that sends, writes or reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmission {
    pub(crate) kind: CompletionKind,
    /// Flags of its completion entry.
    pub(crate) entry_flags: u64,
    pub(crate) flags: Flags,
    pub(crate) context: *mut c_void,
}

/// Prepared operation: token and time of completion for the engine.
pub(crate) struct Posting {
    data: HostRanges,
    complete: CompleteWhen,
    token: Token,
    /// Slot of the copied data plus one; 0 without a copy.
    slot: u64,
}

impl Posting {
    /// Posts the operation by `post`. The slot is released if the engine refuses it.
    #[inline]
    pub(crate) fn post(
        self,
        state: &mut State,
        post: impl FnOnce(&mut dyn Engine, HostRanges, CompleteWhen, Token) -> Result<(), PostError>,
    ) -> Result<(), Code> {
        let result = posted(post(state.engine()?, self.data, self.complete, self.token));
        if result.is_err() && self.slot != 0 {
            state.staging.release(self.slot);
        }
        result
    }
}

impl Transmission {
    /// Checks flags of the call, and returns whether there is immediate data.
    pub(crate) fn has_data(&self, implied: bool) -> Result<bool, Code> {
        match self.flags {
            Flags::Call(flags) => {
                check_operation_flags(flags, TX_FLAGS | FI_REMOTE_CQ_DATA)?;
                Ok(implied || flags & FI_REMOTE_CQ_DATA != 0)
            }
            Flags::Default | Flags::Inject => Ok(implied),
        }
    }

    /// Prepares an operation with local data that is sent (`HostRanges` of reads are not copied).
    pub(crate) fn prepare(
        &self,
        endpoint: &Endpoint,
        state: &mut State,
        data: HostRanges,
    ) -> Result<Posting, Code> {
        let flags = match self.flags {
            Flags::Call(flags) => flags,
            Flags::Default | Flags::Inject => endpoint.tx_flags(),
        };
        let is_inject = matches!(self.flags, Flags::Inject)
            || flags & FI_INJECT != 0 && self.kind != CompletionKind::Read;
        // Flags such as FI_DELIVERY_COMPLETE state when an operation is complete, not whether it has an entry (fi_endpoint(3),
        // FI_SELECTIVE_COMPLETION). MPICH counts such operations and has no request for an entry.
        let asks = !matches!(self.flags, Flags::Inject)
            && state.tx.as_ref().is_some_and(|binding| !binding.is_selective || flags & FI_COMPLETION != 0);
        let mut complete = if flags & FI_MATCH_COMPLETE != 0 {
            CompleteWhen::Matched
        } else if flags & FI_DELIVERY_COMPLETE != 0 {
            CompleteWhen::Delivered
        } else {
            CompleteWhen::Transmitted
        };
        let mut mark = self.entry_flags | if asks { user::REPORT } else { 0 };
        let (mut data, mut slot) = (data, 0);
        if is_inject {
            if data.length() > MAX_INJECT {
                return Err(EMSGSIZE);
            }
            if asks || state.counters.of(self.kind, self.entry_flags).is_some() {
                if data.length() > 0 {
                    (data, slot) = state.staging.copy(&data)?;
                    mark |= slot << user::SLOT_SHIFT;
                }
            } else {
                // Nothing shows when it is complete, whatever the endpoint's flags ask for: MPICH sends small messages so, also many that
                // nobody receives yet.
                complete = CompleteWhen::Injected;
            }
        }
        let token = Token { context: address_of(self.context.cast_const()), user: mark };
        Ok(Posting { data, complete, token, slot })
    }
}

/// One local range.
#[inline]
pub(crate) fn one(buffer: *const c_void, length: usize) -> Result<HostRanges, Code> {
    if length == 0 {
        return Ok(HostRanges::default());
    }
    if buffer.is_null() {
        return Err(EINVAL);
    }
    HostRanges::one(address_of(buffer), to_u64(length)).ok_or(EINVAL)
}

/// Several local ranges.
pub(crate) fn several(ranges: *const iovec, count: usize) -> Result<HostRanges, Code> {
    if count > fpga_messages::MAX_RANGES {
        return Err(EINVAL);
    }
    let ranges = array(ranges, count)?;
    if ranges.iter().any(|range| range.iov_len > 0 && range.iov_base.is_null()) {
        return Err(EINVAL);
    }
    let used = ranges.iter().filter(|range| range.iov_len > 0);
    HostRanges::new(
        used.map(|range| HostRange { address: address_of(range.iov_base), length: to_u64(range.iov_len) }),
    )
    .ok_or(EINVAL)
}

/// Local ranges of `count` values of `size` bytes each.
pub(crate) fn values(ranges: &[(*const c_void, usize)], size: usize) -> Result<HostRanges, Code> {
    let used = ranges.iter().filter(|(_, count)| *count > 0);
    let mut total = 0_usize;
    let mut all = [HostRange::default(); fpga_messages::MAX_RANGES];
    let mut filled = 0;
    for (start, count) in used {
        let length = count.checked_mul(size).ok_or(EINVAL)?;
        total = total.checked_add(length).filter(|total| *total <= MAX_ATOMIC).ok_or(EMSGSIZE)?;
        if start.is_null() {
            return Err(EINVAL);
        }
        *all.get_mut(filled).ok_or(EINVAL)? =
            HostRange { address: address_of(*start), length: to_u64(length) };
        filled += 1;
    }
    HostRanges::new(all.into_iter().take(filled)).ok_or(EINVAL)
}
