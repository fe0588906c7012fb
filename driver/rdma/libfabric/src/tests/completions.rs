//! Completion queues, counters and waiting.

use super::fixture::{AGAIN, Choice, Program, close, context, f, name, opened, read, try_read};
use super::loopback::fail_card;
use crate::sys::*;
use core::ffi::CStr;
use core::mem::zeroed;
use core::ptr::null_mut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;

#[test]
fn selective_completion_reports_only_marked_operations() {
    let choice = Choice { bind_flags: FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION, ..Choice::default() };
    let program = Program::with(&choice, |_| {});
    let a = program.a.endpoint;
    assert_eq!(f!(a.msg.send(b"x".as_ptr().cast(), 1, null_mut(), 1, context(1))), 0);
    assert_eq!(try_read(program.a.queue).map(|_| ()), Err(AGAIN));
    let message = FiMsg {
        msg_iov: core::ptr::null(),
        desc: null_mut(),
        iov_count: 0,
        addr: 1,
        context: context(2),
        data: 0,
    };
    // These flags state when the operation is complete.
    for flags in [0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE] {
        assert_eq!(f!(a.msg.sendmsg(&raw const message, flags)), 0);
    }
    let (b, mut buffer) = (program.b.endpoint, [0_u8; 1]);
    for _ in 0..5 {
        let buffer = buffer.as_mut_ptr().cast();
        assert_eq!(f!(b.msg.recv(buffer, 1, null_mut(), FI_ADDR_UNSPEC, null_mut())), 0);
    }
    assert_eq!(f!(a.msg.sendmsg(&raw const message, FI_DELIVERY_COMPLETE)), 0);
    assert_eq!(try_read(program.a.queue).map(|_| ()), Err(AGAIN));
    assert_eq!(f!(a.msg.sendmsg(&raw const message, FI_COMPLETION)), 0);
    assert_eq!(read(program.a.queue).unwrap().0.op_context, context(2));
    assert_eq!(f!(a.msg.sendmsg(&raw const message, 1 << 62)), -(EBADFLAGS.get() as isize));
}

#[test]
fn match_completion_waits_for_match() {
    let program = Program::new();
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    let data = *b"injected";
    let range = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: 8 };
    let message = FiMsg {
        msg_iov: &raw const range,
        desc: null_mut(),
        iov_count: 1,
        addr: 1,
        context: context(2),
        data: 0,
    };
    assert_eq!(f!(a.msg.sendmsg(&raw const message, FI_MATCH_COMPLETE | FI_INJECT)), 0);
    assert_eq!(try_read(program.a.queue).map(|_| ()), Err(AGAIN));
    let mut buffer = [0_u8; 8];
    assert_eq!(f!(b.msg.recv(buffer.as_mut_ptr().cast(), 8, null_mut(), FI_ADDR_UNSPEC, null_mut())), 0);
    assert_eq!(read(program.a.queue).unwrap().0.op_context, context(2));
    assert_eq!(buffer, data);
}

#[test]
fn full_queue_keeps_completions_in_engine() {
    let program = Program::with(&Choice { queue_size: 1, ..Choice::default() }, |_| {});
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    // More than a queue has space for.
    for _ in 0..200 {
        assert_eq!(f!(b.msg.recv(null_mut(), 0, null_mut(), FI_ADDR_UNSPEC, null_mut())), 0);
        assert_eq!(f!(a.msg.send(core::ptr::null(), 0, null_mut(), 1, null_mut())), 0);
    }
    for _ in 0..200 {
        read(program.a.queue).unwrap();
    }
    assert_eq!(try_read(program.a.queue).map(|_| ()), Err(AGAIN));
}

#[test]
fn blocking_read_returns_at_completion_timeout_and_signal() {
    let program = Program::new();
    let (queue, b) = (program.b.queue, program.b.endpoint);
    let mut entries = [const { core::mem::MaybeUninit::<FiCqTaggedEntry>::uninit() }; 2];
    let array = entries.as_mut_ptr().cast();
    assert_eq!(f!(queue.ops.sread(array, 2, core::ptr::null(), 1)), AGAIN);
    assert_eq!(f!(queue.ops.signal()), 0);
    assert_eq!(f!(queue.ops.sread(array, 2, core::ptr::null(), -1)), AGAIN);
    assert_eq!(f!(b.msg.recv(null_mut(), 0, null_mut(), FI_ADDR_UNSPEC, null_mut())), 0);
    let sender = program.a.endpoint as usize;
    let thread = std::thread::spawn(move || {
        let a = core::ptr::with_exposed_provenance_mut::<FidEp>(sender);
        f!(a.msg.inject(core::ptr::null(), 0, 1))
    });
    assert_eq!(f!(queue.ops.sread(array, 2, core::ptr::null(), -1)), 1);
    assert_eq!(thread.join().unwrap(), 0);
}

#[test]
fn descriptor_becomes_readable_after_trywait() {
    let program = Program::with(&Choice { wait_object: FI_WAIT_FD, ..Choice::default() }, |_| {});
    let (fabric, queue) = (program.fabric, program.b.queue);
    let mut descriptor = -1;
    assert_eq!(f!(queue => control(FI_GETWAIT, (&raw mut descriptor).cast())), 0);
    let mut fids = [queue.cast::<Fid>()];
    assert_eq!(f!(fabric.ops.trywait(fids.as_mut_ptr(), 1)), 0);
    // SAFETY: the queue is open as long as the descriptor is used.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let is_readable = || {
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
            .unwrap()
            > 0
    };
    assert!(!is_readable());
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    assert_eq!(f!(b.msg.recv(null_mut(), 0, null_mut(), FI_ADDR_UNSPEC, null_mut())), 0);
    assert_eq!(f!(a.msg.inject(core::ptr::null(), 0, 1)), 0);
    assert!(is_readable());
    assert_eq!(f!(fabric.ops.trywait(fids.as_mut_ptr(), 1)), -EAGAIN.get());
    assert!(read(queue).is_ok());
    assert_eq!(f!(fabric.ops.trywait(fids.as_mut_ptr(), 1)), 0);
    assert!(!is_readable());
}

/// A program that waits for operations of peers has none of its own that fail.
#[test]
fn queue_of_failed_card_returns_error_after_its_entries() {
    let program = Program::new();
    let (queue, a, b) = (program.b.queue, program.a.endpoint, program.b.endpoint);
    assert_eq!(f!(b.msg.recv(null_mut(), 0, null_mut(), FI_ADDR_UNSPEC, null_mut())), 0);
    assert_eq!(f!(a.msg.inject(core::ptr::null(), 0, 1)), 0);
    fail_card(CStr::from_bytes_until_nul(&name(b)).unwrap().to_str().unwrap());
    assert!(try_read(queue).is_ok());
    let failed = -(EIO.get() as isize);
    assert_eq!(try_read(queue).map(|_| ()), Err(failed));
    let mut entries = [const { core::mem::MaybeUninit::<FiCqTaggedEntry>::uninit() }; 2];
    assert_eq!(f!(queue.ops.sread(entries.as_mut_ptr().cast(), 2, core::ptr::null(), -1)), failed);
    // That of another card is not concerned.
    assert_eq!(try_read(program.a.queue).map(|_| ()), Err(AGAIN));
}

#[test]
fn automatic_progress_fills_queue_without_calls() {
    let program = Program::with(&Choice::default(), |info| {
        // SAFETY: the description has its attributes.
        unsafe { (*info.domain_attr).data_progress = FI_PROGRESS_AUTO };
    });
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    let queue: &crate::queue::Queue = crate::object::borrow(program.b.queue).unwrap();
    assert_eq!(f!(b.msg.recv(null_mut(), 0, null_mut(), FI_ADDR_UNSPEC, null_mut())), 0);
    assert_eq!(f!(a.msg.inject(core::ptr::null(), 0, 1)), 0);
    while queue.is_empty() {
        std::thread::yield_now();
    }
    assert!(read(program.b.queue).is_ok());
}

#[test]
fn counter_counts_and_wakes() {
    let program = Program::new();
    let (domain, a) = (program.domain, program.a.endpoint);
    // SAFETY: zero is a value of all fields.
    let mut attributes: FiCntrAttr = unsafe { zeroed() };
    attributes.wait_obj = FI_WAIT_UNSPEC;
    let counter = opened(|out| f!(domain.ops.cntr_open(&raw mut attributes, out, null_mut())));
    // An enabled endpoint takes no counter.
    assert_eq!(f!(a => bind(counter.cast(), FI_SEND)), -EOPBADSTATE.get());
    let (info, vector) = (program.info, program.vector);
    let endpoint = opened(|out| f!(domain.ops.endpoint(info, out, null_mut())));
    assert_eq!(f!(endpoint => bind(vector.cast(), 0)), 0);
    assert_eq!(f!(endpoint => control(FI_ENABLE, null_mut())), -ENOCQ.get());
    assert_eq!(f!(endpoint => bind(counter.cast(), FI_SEND | FI_RECV)), 0);
    assert_eq!(f!(endpoint => control(FI_ENABLE, null_mut())), 0);
    // Injected operations are counted, too.
    assert_eq!(f!(endpoint.msg.inject(b"x".as_ptr().cast(), 1, 1)), 0);
    assert_eq!(f!(endpoint.msg.send(b"x".as_ptr().cast(), 1, null_mut(), 1, null_mut())), 0);
    assert_eq!(f!(counter.ops.wait(2, -1)), 0);
    assert_eq!(f!(counter.ops.read()), 2);
    assert_eq!(f!(counter.ops.wait(3, 1)), -ETIMEDOUT.get());
    assert_eq!(f!(counter.ops.add(1)), 0);
    assert_eq!(f!(counter.ops.wait(3, 1)), 0);
    assert_eq!(f!(counter.ops.readerr()), 0);
    assert_eq!(close(counter), -EBUSY.get());
    assert_eq!((close(endpoint), close(counter)), (0, 0));
}
