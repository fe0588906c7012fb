//! Atomic operations of peers, executed on the application's memory.
//!
//! One lock per domain makes them atomic towards each other. They are not atomic towards the application's own instructions.

use crate::entry::to_size;
use crate::sys::*;
use core::ffi::c_int;
use core::ptr::with_exposed_provenance_mut;
use fpga_messages::{AtomicCall, AtomicUnit};
use std::sync::{Mutex, PoisonError};

/// Executes atomic operations.
#[derive(Default)]
pub(crate) struct HostAtomics {
    lock: Mutex<()>,
}

/// Kind of call of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicKind {
    /// Operand only.
    Write,
    /// Returns the earlier value.
    Fetch,
    /// Compares, and returns the earlier value.
    Compare,
}

/// Value of an application.
trait Value: Copy {
    fn zeroed() -> Self;
    /// Result of `operation`: `Some(None)` leaves the value as it is, `None` is an operation that the type does not have.
    fn apply(operation: c_int, old: Self, operand: Self, compare: Self) -> Option<Option<Self>>;
}

/// Operations that integers and floating-point numbers have.
macro_rules! ordered {
    ($operation:ident, $old:ident, $operand:ident, $compare:ident, $sum:expr, $product:expr, $zero:expr, $one:expr) => {
        match $operation {
            FI_MIN => Some(($operand < $old).then_some($operand)),
            FI_MAX => Some(($operand > $old).then_some($operand)),
            FI_SUM => Some(Some($sum)),
            FI_PROD => Some(Some($product)),
            FI_LOR => Some(Some(if $old != $zero || $operand != $zero { $one } else { $zero })),
            FI_LAND => Some(Some(if $old != $zero && $operand != $zero { $one } else { $zero })),
            FI_LXOR => Some(Some(if ($old != $zero) != ($operand != $zero) { $one } else { $zero })),
            FI_ATOMIC_READ => Some(None),
            FI_ATOMIC_WRITE => Some(Some($operand)),
            FI_CSWAP => Some(($compare == $old).then_some($operand)),
            FI_CSWAP_NE => Some(($compare != $old).then_some($operand)),
            FI_CSWAP_LE => Some(($compare <= $old).then_some($operand)),
            FI_CSWAP_LT => Some(($compare < $old).then_some($operand)),
            FI_CSWAP_GE => Some(($compare >= $old).then_some($operand)),
            FI_CSWAP_GT => Some(($compare > $old).then_some($operand)),
            _ => None,
        }
    };
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Value for $type {
            fn zeroed() -> Self {
                0
            }

            fn apply(operation: c_int, old: Self, operand: Self, compare: Self) -> Option<Option<Self>> {
                match operation {
                    FI_BOR => Some(Some(old | operand)),
                    FI_BAND => Some(Some(old & operand)),
                    FI_BXOR => Some(Some(old ^ operand)),
                    FI_MSWAP => Some(Some((operand & compare) | (old & !compare))),
                    _ => ordered!(operation, old, operand, compare, old.wrapping_add(operand), old.wrapping_mul(operand), 0, 1),
                }
            }
        })*
    };
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64, i128, u128);

macro_rules! floats {
    ($($type:ty),*) => {
        $(impl Value for $type {
            fn zeroed() -> Self {
                0.0
            }

            #[expect(clippy::float_cmp, reason = "libfabric compares for equality")]
            fn apply(operation: c_int, old: Self, operand: Self, compare: Self) -> Option<Option<Self>> {
                ordered!(operation, old, operand, compare, old + operand, old * operand, 0.0, 1.0)
            }
        }

        impl Value for [$type; 2] {
            fn zeroed() -> Self {
                [0.0; 2]
            }

            #[expect(clippy::float_cmp, reason = "libfabric compares for equality")]
            fn apply(operation: c_int, old: Self, operand: Self, compare: Self) -> Option<Option<Self>> {
                let ([a, b], [c, d]) = (old, operand);
                let truth = |value: bool| Some(Some([if value { 1.0 } else { 0.0 }, 0.0]));
                let (is_old, is_operand) = (old != [0.0; 2], operand != [0.0; 2]);
                match operation {
                    FI_SUM => Some(Some([a + c, b + d])),
                    FI_PROD => Some(Some([a * c - b * d, a * d + b * c])),
                    FI_LOR => truth(is_old || is_operand),
                    FI_LAND => truth(is_old && is_operand),
                    FI_LXOR => truth(is_old != is_operand),
                    FI_ATOMIC_READ => Some(None),
                    FI_ATOMIC_WRITE => Some(Some(operand)),
                    FI_CSWAP => Some((compare == old).then_some(operand)),
                    FI_CSWAP_NE => Some((compare != old).then_some(operand)),
                    _ => None,
                }
            }
        })*
    };
}
floats!(f32, f64);

/// Calls a generic function with the type of `datatype`; `None` for another one.
macro_rules! with_type {
    ($datatype:expr, $function:ident($($argument:expr),*)) => {
        match $datatype {
            FI_INT8 => $function::<i8>($($argument),*),
            FI_UINT8 => $function::<u8>($($argument),*),
            FI_INT16 => $function::<i16>($($argument),*),
            FI_UINT16 => $function::<u16>($($argument),*),
            FI_INT32 => $function::<i32>($($argument),*),
            FI_UINT32 => $function::<u32>($($argument),*),
            FI_INT64 => $function::<i64>($($argument),*),
            FI_UINT64 => $function::<u64>($($argument),*),
            FI_INT128 => $function::<i128>($($argument),*),
            FI_UINT128 => $function::<u128>($($argument),*),
            FI_FLOAT => $function::<f32>($($argument),*),
            FI_DOUBLE => $function::<f64>($($argument),*),
            FI_FLOAT_COMPLEX => $function::<[f32; 2]>($($argument),*),
            FI_DOUBLE_COMPLEX => $function::<[f64; 2]>($($argument),*),
            _ => None,
        }
    };
}

fn size_if<T: Value>(operation: c_int) -> Option<usize> {
    T::apply(operation, T::zeroed(), T::zeroed(), T::zeroed()).map(|_| size_of::<T>())
}

/// Size of a value in bytes, if the type has the operation and the operation is one of this kind of call.
pub(crate) fn value_size(call: AtomicKind, datatype: c_int, operation: c_int) -> Option<usize> {
    let fits = match operation {
        FI_MIN..=FI_BXOR | FI_ATOMIC_WRITE => call != AtomicKind::Compare,
        FI_ATOMIC_READ => call == AtomicKind::Fetch,
        FI_CSWAP..=FI_MSWAP => call == AtomicKind::Compare,
        _ => false,
    };
    if fits { with_type!(datatype, size_if(operation)) } else { None }
}

/// Value at `index` of the operand's bytes; zero if the operation has none.
fn value<T: Value>(bytes: &[u8], index: usize) -> T {
    let size = size_of::<T>();
    let part = bytes.get(index * size..(index + 1) * size);
    // SAFETY: the bytes are as many as T has, and every bit pattern is a T: the types are numbers and pairs of them.
    part.map_or_else(T::zeroed, |part| unsafe { part.as_ptr().cast::<T>().read_unaligned() })
}

fn apply_to<T: Value>(
    operation: c_int,
    memory: *mut u8,
    count: usize,
    operand: &[u8],
    compare: &[u8],
    fetch: &mut [u8],
) -> Option<()> {
    size_if::<T>(operation)?;
    for index in 0..count {
        let target = memory.wrapping_add(index * size_of::<T>()).cast::<T>();
        // SAFETY: the engine has checked that the range is in a region that the application keeps while it is registered. Addresses may be
        // unaligned. Other threads of the application do not access the values without libfabric's completion semantics.
        let old = unsafe { target.read_unaligned() };
        if let Some(result) = fetch.get_mut(index * size_of::<T>()..(index + 1) * size_of::<T>()) {
            // SAFETY: `result` has the size of T.
            unsafe { result.as_mut_ptr().cast::<T>().write_unaligned(old) };
        }
        if let Some(new) = T::apply(operation, old, value(operand, index), value(compare, index))? {
            // SAFETY: as for reading.
            unsafe { target.write_unaligned(new) };
        }
    }
    Some(())
}

fn size_of_value<T: Value>() -> Option<usize> {
    Some(size_of::<T>())
}

impl AtomicUnit for HostAtomics {
    fn apply(&self, call: AtomicCall<'_>) -> bool {
        let AtomicCall { operand, compare, fetch, .. } = call;
        let (operation, datatype) = (c_int::from(call.operation), c_int::from(call.datatype));
        let memory = with_exposed_provenance_mut::<u8>(to_size(call.address));
        let Some(size) = with_type!(datatype, size_of_value()) else { return false };
        let count = to_size(call.length) / size;
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        with_type!(datatype, apply_to(operation, memory, count, operand, compare, fetch)).is_some()
    }
}
