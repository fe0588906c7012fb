//! Messages with and without tags.

use super::fixture::{AGAIN, Choice, Program, context, f, read, read_error, try_read};
use super::loopback::MAX_UNEXPECTED;
use crate::sys::*;
use core::ffi::CStr;
use core::ptr::{null, null_mut};
use libc::iovec;

#[test]
fn message_without_tag_arrives() {
    let program = Program::new();
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    let mut buffer = [0_u8; 16];
    assert_eq!(f!(b.msg.recv(buffer.as_mut_ptr().cast(), 16, null_mut(), FI_ADDR_UNSPEC, context(5))), 0);
    assert_eq!(f!(a.msg.senddata(b"hello".as_ptr().cast(), 5, null_mut(), 77, 1, context(6))), 0);
    let (sent, _) = read(program.a.queue).unwrap();
    assert_eq!((sent.op_context, sent.flags, sent.len), (context(6), FI_SEND | FI_MSG, 5));
    let (received, source) = read(program.b.queue).unwrap();
    assert_eq!((received.op_context, received.flags), (context(5), FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA));
    assert_eq!((received.len, received.data, source), (5, 77, 0));
    assert_eq!(&buffer[..5], b"hello");
    assert_eq!(try_read(program.b.queue).map(|_| ()), Err(AGAIN));
}

#[test]
fn tagged_message_matches_pattern() {
    let program = Program::new();
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    let (mut first, mut second) = ([0_u8; 4], [0_u8; 4]);
    assert_eq!(f!(a.tagged.send(b"one".as_ptr().cast(), 3, null_mut(), 1, 0x101, context(1))), 0);
    assert_eq!(f!(a.tagged.inject(b"two".as_ptr().cast(), 3, 1, 0x202)), 0);
    assert_eq!(f!(b.tagged.recv(first.as_mut_ptr().cast(), 4, null_mut(), 0, 0x200, 0xff, context(2))), 0);
    let ranges = [
        iovec { iov_base: second.as_mut_ptr().cast(), iov_len: 1 },
        iovec { iov_base: second[2..].as_mut_ptr().cast(), iov_len: 2 },
    ];
    assert_eq!(f!(b.tagged.recvv(ranges.as_ptr(), null_mut(), 2, FI_ADDR_UNSPEC, 0x101, 0, context(3))), 0);
    let (entry, _) = read(program.b.queue).unwrap();
    assert_eq!((entry.op_context, entry.tag, entry.flags), (context(2), 0x202, FI_RECV | FI_TAGGED));
    let (entry, _) = read(program.b.queue).unwrap();
    assert_eq!((entry.op_context, entry.tag, entry.len), (context(3), 0x101, 3));
    assert_eq!((&first, &second), (b"two\0", b"o\0ne"));
    // The injected message has no completion.
    assert_eq!(read(program.a.queue).unwrap().0.op_context, context(1));
    assert_eq!(try_read(program.a.queue).map(|_| ()), Err(AGAIN));
}

#[test]
fn message_longer_than_buffer_is_truncated() {
    let program = Program::new();
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    let mut buffer = [0_u8; 2];
    assert_eq!(f!(b.tagged.recv(buffer.as_mut_ptr().cast(), 2, null_mut(), 0, 9, 0, context(5))), 0);
    assert_eq!(f!(a.tagged.send(b"hello".as_ptr().cast(), 5, null_mut(), 1, 9, null_mut())), 0);
    let error = read_error(program.b.queue);
    assert_eq!(
        (error.op_context, error.err, error.len, error.olen, error.tag),
        (context(5), ETRUNC.get(), 2, 3, 9)
    );
    // SAFETY: the provider's text ends with a null byte and is valid until the next error is read.
    let text = unsafe { CStr::from_ptr(error.err_data.cast()) };
    assert!(text.to_str().unwrap().contains("longer"), "{text:?}");
    let queue = program.b.queue;
    let mut short = [1; 8];
    let returned = f!(queue.ops.strerror(error.prov_errno, error.err_data, short.as_mut_ptr(), 8));
    assert_eq!(returned, short.as_ptr());
    // SAFETY: the function has written a text of at most 8 bytes.
    assert_eq!(unsafe { CStr::from_ptr(returned) }, c"the mes");
}

#[test]
fn cancelled_receive_completes_with_error() {
    let program = Program::new();
    let b = program.b.endpoint;
    let mut buffer = [0_u8; 2];
    assert_eq!(f!(b.msg.recv(buffer.as_mut_ptr().cast(), 2, null_mut(), FI_ADDR_UNSPEC, context(5))), 0);
    // SAFETY: an endpoint of this provider.
    assert_eq!(unsafe { ((*(*b).ops).cancel)(b.cast(), context(5)) }, 0);
    let error = read_error(program.b.queue);
    assert_eq!((error.op_context, error.err), (context(5), ECANCELED.get()));
}

#[test]
fn multi_receive_buffer_takes_messages_until_it_is_full() {
    let program = Program::new();
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    let least = 4_usize;
    // SAFETY: the option is a `size_t`.
    let set = unsafe {
        ((*(*b).ops).setopt)(b.cast(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, (&raw const least).cast(), 8)
    };
    assert_eq!(set, 0);
    let mut buffer = [0_u8; 10];
    let range = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 10 };
    let message = FiMsg {
        msg_iov: &raw const range,
        desc: null_mut(),
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        context: context(8),
        data: 0,
    };
    assert_eq!(f!(b.msg.recvmsg(&raw const message, FI_MULTI_RECV)), 0);
    for text in [b"abcd", b"efgh"] {
        assert_eq!(f!(a.msg.inject(text.as_ptr().cast(), 4, 1)), 0);
    }
    let (first, _) = read(program.b.queue).unwrap();
    let (last, _) = read(program.b.queue).unwrap();
    assert_eq!((first.flags & FI_MULTI_RECV, first.buf.cast_const()), (0, buffer.as_ptr().cast()));
    assert_eq!(
        (last.flags & FI_MULTI_RECV, last.buf.cast_const()),
        (FI_MULTI_RECV, buffer[4..].as_ptr().cast())
    );
    assert_eq!(&buffer[..8], b"abcdefgh");
}

#[test]
fn peeked_message_is_claimed_and_received() {
    let program = Program::new();
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    let mut message = FiMsgTagged {
        msg_iov: null(),
        desc: null_mut(),
        iov_count: 0,
        addr: FI_ADDR_UNSPEC,
        tag: 4,
        ignore: 0,
        context: context(9),
        data: 0,
    };
    assert_eq!(f!(b.tagged.recvmsg(&raw const message, FI_PEEK)), 0);
    assert_eq!(read_error(program.b.queue).err, ENOMSG.get());
    assert_eq!(f!(a.tagged.inject(b"hello".as_ptr().cast(), 5, 1, 4)), 0);
    assert_eq!(f!(b.tagged.recvmsg(&raw const message, FI_PEEK | FI_CLAIM)), 0);
    assert_eq!(read(program.b.queue).unwrap().0.len, 5);
    let mut buffer = [0_u8; 5];
    let range = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 5 };
    (message.msg_iov, message.iov_count) = (&raw const range, 1);
    assert_eq!(f!(b.tagged.recvmsg(&raw const message, FI_CLAIM)), 0);
    assert_eq!(read(program.b.queue).unwrap().0.op_context, context(9));
    assert_eq!(&buffer, b"hello");
    assert_eq!(f!(b.tagged.recvmsg(&raw const message, FI_DISCARD)), -(EINVAL.get() as isize));
}

#[test]
fn send_to_full_peer_is_tried_again() {
    let program = Program::new();
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    for _ in 0..MAX_UNEXPECTED {
        assert_eq!(f!(a.tagged.inject(null(), 0, 1, 1)), 0);
    }
    assert_eq!(f!(a.tagged.inject(null(), 0, 1, 1)), AGAIN);
    assert_eq!(f!(b.tagged.recv(null_mut(), 0, null_mut(), 0, 1, 0, null_mut())), 0);
    assert_eq!(f!(a.tagged.inject(null(), 0, 1, 1)), 0);
}

#[test]
fn receive_without_directed_capability_ignores_sender() {
    let program = Program::with(&Choice::default(), |info| {
        info.caps &= !FI_DIRECTED_RECV;
        // SAFETY: the description has its attributes.
        unsafe { (*info.rx_attr).caps &= !FI_DIRECTED_RECV };
    });
    let (a, b) = (program.a.endpoint, program.b.endpoint);
    let mut buffer = [0_u8; 1];
    // The sender is A, which has address 0.
    assert_eq!(f!(b.msg.recv(buffer.as_mut_ptr().cast(), 1, null_mut(), 1, null_mut())), 0);
    assert_eq!(f!(a.msg.inject(b"x".as_ptr().cast(), 1, 1)), 0);
    assert!(read(program.b.queue).is_ok());
}
