//! Functions of `fpga.h` for Rust: declared as C declares them, so that a call is the same as that of a C program.

use core::ffi::{CStr, c_char};

// The library itself, which defines the functions.
use fpga as _;

unsafe extern "C" {
    fn fpga_open(name: *const c_char, card: *mut u64) -> i32;
    fn fpga_close(card: u64) -> i32;
    fn fpga_channel_open(card: u64, direction: i32, number: u32, channel: *mut u64) -> i32;
    fn fpga_channel_close(channel: u64) -> i32;
    fn fpga_buffer_create(card: u64, length: usize, buffer: *mut u64) -> i32;
    fn fpga_buffer_free(buffer: u64) -> i32;
    fn fpga_submit(
        channel: u64,
        buffer: u64,
        offset: usize,
        length: usize,
        card_address: u64,
        ticket: *mut u64,
    ) -> i32;
    fn fpga_poll(channel: u64, ended: *mut usize) -> i32;
}

type Submit = unsafe extern "C" fn(u64, u64, usize, usize, u64, *mut u64) -> i32;
type Poll = unsafe extern "C" fn(u64, *mut usize) -> i32;

/// An H2C channel of a simulated card, and a buffer.
#[derive(Debug)]
pub(crate) struct Calls {
    card: u64,
    channel: u64,
    buffer: u64,
    submit: Submit,
    poll: Poll,
}

impl Calls {
    pub(crate) fn open(name: &CStr, length: usize) -> Self {
        let (mut card, mut channel, mut buffer) = (0, 0, 0);
        // SAFETY: the name ends in a zero byte, and the out parameters are variables.
        let opened = unsafe {
            fpga_open(name.as_ptr(), &raw mut card) == 0
                && fpga_channel_open(card, 0, 0, &raw mut channel) == 0
                && fpga_buffer_create(card, length, &raw mut buffer) == 0
        };
        assert!(opened, "the simulated card opens");
        // The optimiser must not inline the functions into this program, as it cannot in a C program.
        let submit = core::hint::black_box(fpga_submit as Submit);
        Self { card, channel, buffer, submit, poll: core::hint::black_box(fpga_poll as Poll) }
    }

    #[inline]
    pub(crate) fn submit(&self, offset: usize, length: usize, card_address: u64) {
        // SAFETY: a ticket may be null; everything else is a number.
        let status = unsafe {
            (self.submit)(self.channel, self.buffer, offset, length, card_address, core::ptr::null_mut())
        };
        assert_eq!(status, 0, "there is space in the ring");
    }

    #[inline]
    pub(crate) fn poll(&self) -> usize {
        let mut ended = 0;
        // SAFETY: the out parameter is a variable.
        let status = unsafe { (self.poll)(self.channel, &raw mut ended) };
        assert_eq!(status, 0, "the card is healthy");
        ended
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // SAFETY: handles are numbers.
        let closed = unsafe {
            [fpga_channel_close(self.channel), fpga_buffer_free(self.buffer), fpga_close(self.card)]
        };
        assert_eq!(closed, [0; 3]);
    }
}
