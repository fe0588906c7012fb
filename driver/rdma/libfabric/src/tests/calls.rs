//! Arguments that are wrong, and orders of calls that are.

use super::fixture::{Program, close, description, f, free, name, opened};
use crate::sys::*;
use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::{null, null_mut};

#[test]
fn wrong_objects_are_refused() {
    let program = Program::new();
    let (domain, queue) = (program.domain, program.a.queue);
    let a = program.a.endpoint;
    let foreign = FidEp {
        fid: Fid { fclass: FI_CLASS_EP, context: null_mut(), ops: null() },
        ops: null(),
        cm: null(),
        msg: null(),
        rma: null(),
        tagged: null(),
        atomic: null(),
        collective: null(),
    };
    // SAFETY: calls with objects that are none.
    let results = unsafe {
        let send = (*(*a).msg).send;
        [null_mut(), (&raw const foreign).cast_mut(), domain.cast(), a.wrapping_byte_add(1)]
            .map(|endpoint| send(endpoint, null(), 0, null_mut(), 0, null_mut()))
    };
    assert_eq!(results, [-(EINVAL.get() as isize); 4]);
    assert_eq!(f!(queue.ops.read(null_mut(), 1)), -(EINVAL.get() as isize));
    assert_eq!(f!(a.msg.send(null(), 1, null_mut(), 0, null_mut())), -(EINVAL.get() as isize));
    assert_eq!(f!(a.msg.send(null(), 0, null_mut(), 99, null_mut())), -(EINVAL.get() as isize));
    assert_eq!(f!(a.msg.sendv(null(), null_mut(), 9, 0, null_mut())), -(EINVAL.get() as isize));
    let long = vec![0_u8; crate::info::INJECT_SIZE + 1];
    assert_eq!(f!(a.msg.inject(long.as_ptr().cast(), long.len(), 0)), -(EMSGSIZE.get() as isize));
}

#[test]
fn objects_in_use_are_busy() {
    let program = Program::new();
    assert_eq!(close(program.fabric), -EBUSY.get());
    assert_eq!(close(program.domain), -EBUSY.get());
    assert_eq!(close(program.vector), -EBUSY.get());
    assert_eq!(close(program.a.queue), -EBUSY.get());
}

#[test]
fn endpoint_before_enable_refuses_operations() {
    let program = Program::new();
    let (domain, info, vector) = (program.domain, program.info, program.vector);
    let endpoint = opened(|out| f!(domain.ops.endpoint(info, out, null_mut())));
    assert_eq!(f!(endpoint.msg.send(null(), 0, null_mut(), 0, null_mut())), -(EOPBADSTATE.get() as isize));
    assert_eq!(f!(endpoint => control(FI_ENABLE, null_mut())), -ENOAV.get());
    assert_eq!(f!(endpoint => bind(vector.cast(), 0)), 0);
    assert_eq!(f!(endpoint => bind(vector.cast(), 0)), -EINVAL.get());
    assert_eq!(f!(endpoint => bind(null_mut(), 0)), -EINVAL.get());
    assert!(name(endpoint).starts_with(b"fpga://127.0.0.1:"));
    assert_eq!(close(endpoint), 0);
}

#[test]
fn alias_has_its_own_flags() {
    let program = Program::new();
    let a = program.a.endpoint;
    let mut alias = null_mut::<Fid>();
    let mut request = FiAlias { fid: &raw mut alias, flags: FI_SEND | FI_DELIVERY_COMPLETE };
    assert_eq!(f!(a => control(FI_ALIAS, (&raw mut request).cast())), 0);
    let mut flags = FI_SEND;
    assert_eq!(f!(alias => control(FI_GETOPSFLAG, (&raw mut flags).cast())), 0);
    assert_eq!(flags, FI_DELIVERY_COMPLETE);
    assert_eq!(close(a), -EBUSY.get());
    assert_eq!(close(alias), 0);
}

#[test]
fn addresses_are_accepted_in_three_forms() {
    let program = Program::new();
    let vector = program.vector;
    let mut indices = [0_u64; 3];
    let insert = |addresses: *const u8, count: usize, indices: &mut [u64; 3]| -> c_int {
        f!(vector.ops.insert(addresses.cast(), count, indices.as_mut_ptr(), 0, null_mut()))
    };
    let packed = b"fpga://10.0.0.1:1\0fpga://10.0.0.2:22\0bad\0";
    assert_eq!(insert(packed.as_ptr(), 3, &mut indices), 2);
    assert_eq!(indices, [2, 3, FI_ADDR_NOTAVAIL]);
    let pointers = [c"fpga://10.0.0.3:1".as_ptr(), c"fpga://10.0.0.4:1".as_ptr()];
    assert_eq!(insert(pointers.as_ptr().cast(), 2, &mut indices), 2);
    assert_eq!(indices[..2], [4, 5]);
    let mut codes = [9_i32; 2];
    let mixed = f!(vector.ops.insert(
        c"none".as_ptr().cast(),
        1,
        indices.as_mut_ptr(),
        FI_SYNC_ERR,
        codes.as_mut_ptr().cast()
    ));
    assert_eq!((mixed, codes), (0, [EINVAL.get(), 9]));
    let (node, service) = (c"10.0.0.255".as_ptr(), c"7".as_ptr());
    assert_eq!(f!(vector.ops.insertsym(node, 2, service, 1, indices.as_mut_ptr(), 0, null_mut())), 2);
    let (mut text, mut length) = ([0_u8; 64], 64);
    assert_eq!(f!(vector.ops.lookup(indices[1], text.as_mut_ptr().cast(), &raw mut length)), 0);
    assert!(text.starts_with(b"fpga://10.0.1.0:7\0"));
    assert_eq!(f!(vector.ops.remove(indices.as_mut_ptr(), 2, 0)), 0);
    assert_eq!(f!(vector.ops.remove(indices.as_mut_ptr(), 1, 0)), -EINVAL.get());
    assert_eq!(f!(vector.ops.lookup(indices[1], text.as_mut_ptr().cast(), &raw mut length)), -EINVAL.get());
}

#[test]
fn event_queue_reports_insertions() {
    let program = Program::new();
    let (fabric, domain) = (program.fabric, program.domain);
    // SAFETY: zero is a value of all fields.
    let (mut attributes, mut options): (FiEqAttr, FiAvAttr) = unsafe { (zeroed(), zeroed()) };
    (attributes.wait_obj, attributes.flags, options.flags) = (FI_WAIT_UNSPEC, FI_WRITE, FI_EVENT);
    let events = opened(|out| f!(fabric.ops.eq_open(&raw mut attributes, out, null_mut())));
    let vector = opened(|out| f!(domain.ops.av_open(&raw mut options, out, null_mut())));
    let insert = || f!(vector.ops.insert(c"bad".as_ptr().cast(), 1, null_mut(), 0, null_mut()));
    assert_eq!(insert(), -ENOEQ.get());
    assert_eq!(f!(vector => bind(events.cast(), 0)), 0);
    assert_eq!(insert(), 0);
    // SAFETY: zero is a value of all fields.
    let (mut entry, mut error): (FiEqEntry, FiEqErrEntry) = unsafe { (zeroed(), zeroed()) };
    let mut kind = 0;
    let read = |entry: &mut FiEqEntry, kind: &mut u32| {
        f!(events.ops.read(kind, core::ptr::from_mut(entry).cast(), 24, 0))
    };
    assert_eq!(read(&mut entry, &mut kind), -(EAVAIL.get() as isize));
    assert!(f!(events.ops.readerr(&raw mut error, 0)) > 0);
    assert_eq!((error.err, error.data), (EINVAL.get(), 0));
    assert_eq!(read(&mut entry, &mut kind), 24);
    assert_eq!((kind, entry.data, entry.fid), (FI_AV_COMPLETE, 0, vector.cast()));
    assert_eq!(f!(events.ops.write(4242, b"event".as_ptr().cast(), 5, 0)), 5);
    let mut text = [0_u8; 8];
    assert_eq!(f!(events.ops.sread(&raw mut kind, text.as_mut_ptr().cast(), 8, -1, 0)), 5);
    assert_eq!((kind, &text[..5]), (4242, &b"event"[..]));
    assert_eq!((close(vector), close(events)), (0, 0));
}

#[test]
fn descriptions_follow_hints() {
    let ask = |change: &dyn Fn(&mut FiInfo)| {
        let (hints, mut answer) = (description(|info| change(info)), null_mut());
        // SAFETY: hints that this provider has allocated.
        let code =
            unsafe { crate::provider::getinfo(version(2, 0), null(), null(), 0, hints, &raw mut answer) };
        free(hints);
        (code, answer)
    };
    let refused: [&dyn Fn(&mut FiInfo); 6] = [
        &|info| info.caps |= 1 << 5,
        &|info| info.addr_format = 1,
        // SAFETY: the description has its attributes.
        &|info| unsafe { (*info.ep_attr).r#type = 1 },
        // SAFETY: as above.
        &|info| unsafe { (*info.tx_attr).inject_size = 1 << 20 },
        // SAFETY: as above.
        &|info| unsafe { (*info.tx_attr).msg_order = 1 << 1 },
        // SAFETY: as above.
        &|info| unsafe { (*info.domain_attr).mr_mode = FI_MR_BASIC | FI_MR_PROV_KEY },
    ];
    for change in refused {
        assert_eq!(ask(change).0, -ENODATA.get());
    }
    let (code, answer) = ask(&|info| {
        info.caps = FI_RMA | FI_READ;
        // SAFETY: the description has its attributes.
        unsafe {
            ((*info.tx_attr).caps, (*info.rx_attr).caps) = (0, 0);
            (*info.domain_attr).mr_mode = FI_MR_PROV_KEY | 1 << 2;
        }
    });
    assert_eq!(code, 0);
    // SAFETY: `getinfo` has returned a description.
    let (caps, tx, rx, mode) = unsafe {
        (
            (*answer).caps,
            (*(*answer).tx_attr).caps,
            (*(*answer).rx_attr).caps,
            (*(*answer).domain_attr).mr_mode,
        )
    };
    assert_eq!(caps, FI_RMA | FI_READ | FI_LOCAL_COMM | FI_REMOTE_COMM);
    assert_eq!((tx, rx, mode), (FI_RMA | FI_READ, FI_RMA, 0));
    free(answer);
    // Events of access have a cost: only for programs that ask for them.
    for (requested, has_events) in [(0, 0), (FI_RMA, 0), (FI_RMA | FI_RMA_EVENT, FI_RMA_EVENT)] {
        let (code, answer) = ask(&|info| {
            info.caps = requested;
            // SAFETY: the description has its attributes.
            unsafe { ((*info.tx_attr).caps, (*info.rx_attr).caps) = (0, 0) };
        });
        assert_eq!(code, 0);
        // SAFETY: `getinfo` has returned a description.
        let (caps, rx) = unsafe { ((*answer).caps, (*(*answer).rx_attr).caps) };
        assert_eq!((caps & FI_RMA_EVENT, rx & FI_RMA_EVENT), (has_events, has_events));
        free(answer);
    }
}
