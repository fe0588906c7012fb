//! Fuzzes the functions of `fpga.h` with sequences of calls: live, closed, changed and invented handles, null pointers, any numbers. Each pointer is null
//! or points to memory of the stated length. No call panics or writes beyond that memory, each failure has its text, and at the end each
//! handle closes exactly once.
//!
//! An input is a sequence of calls: the number of a function, then its arguments. Bytes behind the end of the input are 0. Numbers of functions
//! are positions in the list below: new functions go to its end, and inputs keep their meaning.
#![no_main]

use core::ffi::{CStr, c_char, c_void};

use fpga as _;
use libfuzzer_sys::fuzz_target;

use arguments::*;
use input::{Input, Memory, Region, STUCK, World};

/// Maximum number of calls of an input, and of handles that are open at a time: an input ends within milliseconds.
const MAX_CALLS: usize = 96;
const MAX_HANDLES: usize = 24;
/// Status of a handle that is not open, of an engine that does not stop, and of a defect of the library.
const HANDLE: i32 = 2;
const WEDGED: i32 = 12;
const INTERNAL: i32 = 16;

#[path = "c_calls/arguments.rs"]
mod arguments;
#[path = "c_calls/input.rs"]
mod input;

/// Declares the functions, and calls one by its number.
macro_rules! functions {
    ($($name:ident($($kind:ty),*);)*) => {
        unsafe extern "C" {
            $(fn $name($(_: <$kind as Argument>::C),*) -> i32;)*
        }

        const FUNCTIONS: &[fn(&mut Input, &mut World) -> i32] = &[$(
            |input, world| {
                let _ = (&input, &world);
                // SAFETY: pointers are null or point to memory of the stated length, and names end in a zero byte.
                unsafe { $name($(<$kind>::make(input, world)),*) }
            },
        )*];
    };
}

functions! {
    fpga_open(Name, Created);
    fpga_close(Closing);
    fpga_get_info(Handle, Options, Size);
    fpga_get_name(Handle, Bytes, Size);
    fpga_get_memory_range(Handle, Number, Out<u64>, Out<u64>);
    fpga_enable_interrupts(Handle, Out<u32>);
    fpga_read32(Handle, Choice, Address, Out<u32>);
    fpga_read64(Handle, Choice, Address, Out<u64>);
    fpga_write32(Handle, Choice, Address, Number);
    fpga_write64(Handle, Choice, Address, Address);
    fpga_buffer_create(Handle, Length, Created);
    fpga_buffer_data(Handle, Out<*mut c_void>, Out<usize>);
    fpga_buffer_free(Closing);
    fpga_channel_open(Handle, Choice, Number, Created);
    fpga_channel_open_with(Handle, Choice, Number, Options, Size, Created);
    fpga_channel_close(Closing);
    fpga_write(Handle, Address, Bytes, Size, Limit);
    fpga_write_with(Handle, Address, Bytes, Size, Timeout, Wait, Size);
    fpga_read(Handle, Address, Bytes, Size, Limit);
    fpga_read_with(Handle, Address, Bytes, Size, Timeout, Wait, Size);
    fpga_submit(Handle, Handle, Length, Length, Address, Out<u64>);
    fpga_submit_list(Handle, Segments, Size, Out<u64>);
    fpga_poll(Handle, Out<usize>);
    fpga_progress(Handle, Out<u64>, Out<u32>);
    fpga_wait(Handle, Address, Limit);
    fpga_wait_with(Handle, Address, Timeout, Wait, Size);
    fpga_next_failure(Handle, Out<u64>);
    fpga_cancel(Handle, Address, Out<u32>);
    fpga_abort(Handle);
    fpga_channel_fd(Handle, Out<i32>);
    fpga_channel_take(Handle, Out<u64>);
    fpga_channel_arm(Handle);
    fpga_channel_disarm(Handle);
    fpga_stream_open(Handle, Choice, Number, Options, Size, Created);
    fpga_stream_send(Handle, Bytes, Size, Limit);
    fpga_stream_next(Handle, Out<usize>);
    fpga_stream_wait(Handle, Timeout, Wait, Size, Out<usize>);
    fpga_stream_pieces(Handle, Pieces, Size, Out<usize>);
    fpga_stream_copy(Handle, Length, Bytes, Size);
    fpga_stream_release(Handle);
    fpga_stream_receive(Handle, Bytes, Size, Limit, Out<usize>);
    fpga_stream_stop(Handle);
    fpga_stream_get_statistics(Handle, Options, Size);
    fpga_set_write_flush_timeout(Handle, Number);
    fpga_open_with(Name, Options, Size, Created);
    fpga_interrupt_open(Handle, Bytes, Words, Created);
    fpga_interrupt_close(Closing);
    fpga_interrupt_wait(Handle, Limit, Out<u32>, Out<[u64; 16]>);
    fpga_interrupt_take(Handle, Out<u32>, Out<[u64; 16]>);
    fpga_interrupt_rearm(Handle, Number);
    fpga_interrupt_enable(Handle, Number, Number);
    fpga_interrupt_get_count(Handle, Number, Out<u64>, Out<i32>);
    fpga_interrupt_fd(Handle, Out<i32>);
    fpga_get_user_lines(Handle, Bytes, Size);
    fpga_map_parse(Yaml, Name, Created);
    fpga_map_close(Closing);
    fpga_map_read(Handle, Handle, Register, Out<u32>);
    fpga_map_take(Handle, Handle, Register, Out<u32>);
    fpga_map_write(Handle, Handle, Register, Number);
    fpga_map_set(Handle, Handle, Register, Register);
    fpga_map_value_text(Handle, Register, Number, Bytes, Size, Out<usize>);
    fpga_map_value_number(Handle, Register, Register, Out<u32>);
    fpga_map_get_value(Handle, Register, Number, Bytes, Size, Out<u32>);
    fpga_map_count(Handle, Out<usize>);
    fpga_map_get_entry(Handle, Length, Bytes, Size, Options, Size);
    fpga_cdma_open(Handle, Created);
    fpga_cdma_open_at(Handle, Address, Created);
    fpga_cdma_close(Closing);
    fpga_cdma_copy(Handle, Address, Address, Address, Limit);
    fpga_cdma_get_status(Handle, Out<u32>, Out<u32>, Out<u32>);
    fpga_cdma_reset(Handle);
    fpga_cdma_ring_start(Handle, Options, Size);
    fpga_cdma_ring_stop(Handle);
    fpga_cdma_ring_submit(Handle, Copies, Size, Out<u64>);
    fpga_cdma_ring_poll(Handle, Out<u64>, Out<u32>);
    fpga_cdma_ring_wait(Handle, Address, Timeout, Wait, Size);
    fpga_cdma_ring_next_failure(Handle, Out<u64>);
    fpga_cdma_ring_abort(Handle);
    fpga_recover(Handle, Options, Size, Bytes, Size, Bytes, Size);
    fpga_network_create(Network, Size, Created);
    fpga_network_close(Closing);
    fpga_network_open(Handle, Number, Created);
    fpga_network_fail(Handle, Number, Choice);
    fpga_network_replug(Handle, Number);
    fpga_network_set_user_interrupt(Handle, Number, Number, Number);
    fpga_network_pulse_user_interrupt(Handle, Number, Number, Out<u32>);
    fpga_network_peek(Handle, Number, Address, Bytes, Size);
    fpga_network_poke(Handle, Number, Address, Bytes, Size);
    fpga_network_poison(Handle, Number, Address, Address);
    fpga_network_step(Handle, Out<u32>);
    fpga_endpoint_open(Handle, Scheme, Size, Created);
    fpga_endpoint_close(Closing);
    fpga_endpoint_get_info(Handle, Bytes, Size);
    fpga_endpoint_get_counters(Handle, Bytes, Size);
    fpga_region_open(Handle, Number, Address, Address, Opened);
    fpga_region_close(Handle, Target);
    fpga_region_encode(Target, Bytes, Size);
    fpga_region_decode(Bytes, Size, Out<Region>);
    fpga_endpoint_send(Handle, Address, Target, Address, Address, Scheme, Size, Out<u64>);
    fpga_endpoint_poll(Handle, Out<usize>);
    fpga_endpoint_next_completion(Handle, Bytes, Size, Out<u32>);
    fpga_endpoint_wait(Handle, Address, Limit, Bytes, Size);
    fpga_endpoint_cancel(Handle, Address, Out<u32>);
    fpga_endpoint_next_notification(Handle, Bytes, Size, Out<u32>);
    fpga_endpoint_wait_notification(Handle, Limit, Bytes, Size);
    fpga_endpoint_write(Handle, Address, Bytes, Size);
    fpga_endpoint_wait_peer(Handle, Number, Limit, Bytes, Size);
    fpga_set_cancel_flag(Flag);
    fpga_buffer_register(Handle, Program, Size, Created);
    fpga_network_set_faults(Handle, Number, Faults);
    fpga_readable_open(Handle, Number, Address, Address, Lent);
    fpga_readable_close(Handle, Source);
    fpga_readable_encode(Source, Bytes, Size);
    fpga_readable_decode(Bytes, Size, Out<[u64; 6]>);
    fpga_endpoint_read(Handle, Source, Address, Address, Address, Scheme, Size, Out<u64>);
    fpga_endpoint_next_read(Handle, Bytes, Size, Out<u32>);
    fpga_endpoint_wait_read(Handle, Address, Limit, Bytes, Size);
    fpga_endpoint_cancel_read(Handle, Address, Out<u32>);
    fpga_publisher_open(Consumed, Options, Size, Created);
    fpga_publisher_listen(Handle, Local, Bound, Size);
    fpga_publisher_poll(Handle, Out<usize>);
    fpga_publisher_next_event(Handle, Bytes, Size, Bytes, Size);
    fpga_publisher_take(Handle, Created);
    fpga_publisher_publish(Handle, Consumed, Out<u64>, Out<u32>, Out<u32>);
    fpga_publisher_end(Handle);
    fpga_publisher_close(Consumed, Limit);
    fpga_publisher_get_state(Handle, Bytes, Size);
    fpga_frame_data(Handle, Out<*mut c_void>, Out<usize>);
    fpga_frame_value(Handle, Out<*const c_void>, Out<usize>);
    fpga_frame_set_length(Handle, Length);
    fpga_frame_write(Handle, Bytes, Size);
    fpga_frame_set_value(Handle, Bytes, Size);
    fpga_frame_free(Closing);
    fpga_subscriber_open(Consumed, Local, Options, Size, Created);
    fpga_subscriber_poll(Handle, Event, Size);
    fpga_subscriber_wait(Handle, Limit, Event, Size);
    fpga_subscriber_leave(Consumed, Limit);
    fpga_subscriber_close(Closing);
    fpga_subscriber_get_state(Handle, Bytes, Size);
    fpga_network_settle(Handle, Out<u64>);
    fpga_network_advance(Handle, Span);
}

/// Start of `fpga_error`.
#[repr(C)]
struct LastError {
    status: i32,
    part: i32,
    numbers: [u32; 2],
    message: *const c_char,
}

unsafe extern "C" {
    fn fpga_last_error() -> *const LastError;
}

/// Checks what a call has left behind.
fn check(status: i32, world: &mut World) {
    world.memory.iter_mut().for_each(Memory::check);
    assert_ne!(status, INTERNAL);
    // SAFETY: the memory of the call still exists, and is aligned.
    let created = world.created.take().map(|at| unsafe { at.read() });
    match created {
        Some(handle) => {
            assert_eq!(handle != 0, status == 0, "a new handle and success belong together");
            if handle != 0 {
                world.live.push(handle);
                world.registered.extend(world.pages.take().map(|pages| (handle, pages)));
            }
        }
        None if (status == 0 || status == WEDGED) && world.closing != 0 => {
            let at = world.live.iter().position(|handle| *handle == world.closing);
            world.closed.push(world.live.remove(at.expect("only an open handle closes")));
            release(status, world.closing, world);
        }
        None => {}
    }
    if status != 0 {
        // SAFETY: the error is valid until the next call of this thread, and its message ends in a zero byte.
        let (kept, first) = unsafe {
            let error = fpga_last_error().as_ref().expect("a failed call has an error");
            (error.status, error.message.read())
        };
        assert!(kept == status && first != 0, "status {status}, kept {kept}");
    }
    keep(status, world);
    if let Some(consumed) = world.consumed.take()
        && !(consumed.is_open)(consumed.handle)
    {
        world.live.retain(|handle| *handle != consumed.handle);
        world.closed.push(consumed.handle);
    }
    world.memory.clear();
    world.pages = None;
    world.length = None;
    world.closing = 0;
}

/// Keeps what a successful call has written for later calls.
fn keep(status: i32, world: &mut World) {
    let (event, region, readable, bound) =
        (world.event.take(), world.region.take(), world.readable.take(), world.bound.take());
    if status != 0 {
        return;
    }
    // SAFETY: the memory of the call still exists, is aligned, and has the length of the type; a text in it ends in a zero byte.
    unsafe {
        let frame = event.map_or(0, |event| event.add(1).read());
        world.live.extend((frame != 0).then_some(frame));
        world.regions.extend(region.map(|at| at.read()));
        world.readables.extend(readable.map(|at| at.read()));
        if let Some(bound) = bound {
            world.address = CStr::from_ptr(bound).to_bytes().to_vec();
        }
    }
}

/// Unmaps registered memory whose buffer was freed, unless a card may still access it.
fn release(status: i32, buffer: u64, world: &mut World) {
    if let Some(at) = world.registered.iter().position(|(handle, _)| *handle == buffer) {
        let (_, pages) = world.registered.swap_remove(at);
        if status == WEDGED {
            STUCK.lock().unwrap().push(pages);
        }
    }
}

/// Closes a publisher, whose frames may not have arrived.
unsafe extern "C" fn close_publisher(publisher: u64) -> i32 {
    // SAFETY: a handle is a number.
    match unsafe { fpga_publisher_close(publisher, 0) } {
        HANDLE => HANDLE,
        _ => 0,
    }
}

fuzz_target!(|input: &[u8]| {
    let (mut input, mut world) = (Input(input), World::default());
    for _ in 0..MAX_CALLS {
        if input.0.is_empty() || world.live.len() == MAX_HANDLES {
            break;
        }
        let number = usize::from(input.byte()) % FUNCTIONS.len();
        let status = FUNCTIONS[number](&mut input, &mut world);
        check(status, &mut world);
    }
    // SAFETY: null removes the flag.
    assert_eq!(unsafe { fpga_set_cancel_flag(core::ptr::null()) }, 0);
    // Frames outlive their streams. Channels and engines before buffers, which their transfers may use.
    let close = [
        close_publisher,
        fpga_subscriber_close,
        fpga_frame_free,
        fpga_channel_close,
        fpga_cdma_close,
        fpga_endpoint_close,
        fpga_interrupt_close,
        fpga_map_close,
        fpga_buffer_free,
        fpga_close,
        fpga_network_close,
    ];
    for function in close {
        for handle in core::mem::take(&mut world.live) {
            // SAFETY: a handle is a number.
            let status = unsafe { function(handle) };
            if status == HANDLE {
                world.live.push(handle);
                continue;
            }
            assert!(status == 0 || status == WEDGED, "a handle of this kind closes: {status}");
            // SAFETY: as above.
            assert_eq!(unsafe { function(handle) }, HANDLE);
            release(status, handle, &mut world);
        }
    }
    assert!(world.live.is_empty(), "{} handles did not close", world.live.len());
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    assert!(open < 64, "{open} descriptors are open");
});
