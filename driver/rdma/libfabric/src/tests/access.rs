//! Registered memory, remote access and atomic operations.

use super::fixture::{Choice, Program, close, context, f, opened, read, read_error};
use super::loopback::UNKNOWN_KEY;
use crate::memory::address_of;
use crate::sys::*;
use core::ptr::null_mut;

#[test]
fn write_and_read_move_data() {
    let program = Program::new();
    let a = program.a.endpoint;
    let (mut memory, mut back) = ([0_u8; 8], [0_u8; 8]);
    let address = address_of(memory.as_mut_ptr());
    let data = *b"12345678";
    assert_eq!(f!(a.rma.writedata(data.as_ptr().cast(), 8, null_mut(), 5, 1, address, 1, context(1))), 0);
    let (entry, _) = read(program.a.queue).unwrap();
    assert_eq!((entry.op_context, entry.flags), (context(1), FI_RMA | FI_WRITE));
    let (entry, _) = read(program.b.queue).unwrap();
    assert_eq!((entry.op_context, entry.data, entry.len), (null_mut(), 5, 8));
    assert_eq!(entry.flags, FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA);
    assert_eq!(f!(a.rma.read(back.as_mut_ptr().cast(), 8, null_mut(), 1, address, 1, context(2))), 0);
    assert_eq!(read(program.a.queue).unwrap().0.flags, FI_RMA | FI_READ);
    assert_eq!((memory, back), (data, data));
    assert_eq!(f!(a.rma.inject(data.as_ptr().cast(), 8, 1, address, UNKNOWN_KEY)), 0);
    assert_eq!(read_error(program.a.queue).err, EKEYREJECTED.get());
}

#[test]
fn atomic_operations_change_and_fetch() {
    let program = Program::new();
    let a = program.a.endpoint;
    let mut memory = [10_u32, 20];
    let address = address_of(memory.as_mut_ptr());
    let (operand, compare, mut result) = ([1_u32, 2], [11_u32, 0], [0_u32; 2]);
    let (start, old) = (operand.as_ptr().cast(), result.as_mut_ptr().cast());
    assert_eq!(f!(a.atomic.write(start, 2, null_mut(), 1, address, 1, FI_UINT32, FI_SUM, context(1))), 0);
    assert_eq!(read(program.a.queue).unwrap().0.flags, FI_ATOMIC | FI_WRITE);
    let compares = compare.as_ptr().cast();
    let swapped = f!(a.atomic.compwrite(
        start,
        2,
        null_mut(),
        compares,
        null_mut(),
        old,
        null_mut(),
        1,
        address,
        1,
        FI_UINT32,
        FI_CSWAP,
        context(2)
    ));
    assert_eq!(swapped, 0);
    assert_eq!(read(program.a.queue).unwrap().0.flags, FI_ATOMIC | FI_READ);
    assert_eq!((memory, result), ([1, 22], [11, 22]));
    let read_all = f!(a.atomic.readwrite(
        core::ptr::null(),
        2,
        null_mut(),
        old,
        null_mut(),
        1,
        address,
        1,
        FI_UINT32,
        FI_ATOMIC_READ,
        null_mut()
    ));
    assert_eq!((read_all, result), (0, [1, 22]));
    let mut count = 0;
    assert_eq!(f!(a.atomic.writevalid(FI_DOUBLE, FI_SUM, &raw mut count)), 0);
    assert_eq!(count, crate::info::MAX_ATOMIC / 8);
    assert_eq!(f!(a.atomic.writevalid(FI_DOUBLE, FI_BOR, &raw mut count)), -EOPNOTSUPP.get());
    assert_eq!(f!(a.atomic.compwritevalid(FI_DOUBLE, FI_SUM, &raw mut count)), -EOPNOTSUPP.get());
}

#[test]
fn region_keys_follow_mode() {
    for (mode, offers) in [(0, 4711), (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR, 0)] {
        let program = Program::with(&Choice::default(), |info| {
            // SAFETY: the description has its attributes.
            unsafe { (*info.domain_attr).mr_mode = mode };
        });
        let domain = program.domain;
        let memory = [0_u8; 64];
        // SAFETY: a domain of this provider.
        let register = |key: u64, access: u64, out: *mut *mut FidMr| unsafe {
            ((*(*domain).mr).reg)(
                domain.cast(),
                memory.as_ptr().cast(),
                64,
                access,
                0,
                key,
                0,
                out,
                null_mut(),
            )
        };
        let region = opened(|out| register(4711, FI_REMOTE_READ | FI_REMOTE_WRITE, out));
        // SAFETY: an open region.
        assert_eq!(unsafe { (*region).key }, offers);
        let mut second = null_mut();
        if mode == 0 {
            assert_eq!(register(4711, FI_REMOTE_READ, &raw mut second), -ENOKEY.get());
        }
        assert_eq!(register(1, 1 << 40, &raw mut second), -EINVAL.get());
        assert_eq!(close(domain), -EBUSY.get());
        assert_eq!(close(region), 0);
    }
}
