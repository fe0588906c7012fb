//! Fuzzes the functions of `fpga.h` with sequences of calls: live, closed, changed and invented handles, null pointers, any numbers. Each pointer is null
//! or points to memory of the stated length. No call panics or writes beyond that memory, each failure has its text, and at the end each
//! handle closes exactly once.
//!
//! An input is a sequence of calls: the number of a function, then its arguments. Bytes behind the end of the input are 0.
#![no_main]

use core::ffi::{c_char, c_void};
use core::marker::PhantomData;

use fpga as _;
use libfuzzer_sys::fuzz_target;

/// Maximum number of calls of an input, and of handles that are open at a time: an input ends within milliseconds.
const MAX_CALLS: usize = 64;
const MAX_HANDLES: usize = 24;
/// Maximum length of memory for a call.
const MAX_MEMORY: usize = 9000;
/// Maximum time that a call waits. A wait without a limit may never end.
const MAX_WAIT_NS: u64 = 50_000;
/// Status of a handle that is not open, and of a defect of the library.
const HANDLE: i32 = 2;
const INTERNAL: i32 = 16;
/// Bytes on both sides of each memory, which a call must not write.
const FENCE: usize = 64;
const FENCE_BYTE: u8 = 0xA5;

/// The rest of an input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// A number: small, at a boundary, or any.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=127 => small.into(),
            shift @ 128..=191 => 1 << (shift - 128),
            shift @ 192..=223 => (1 << (shift - 191)) - 1,
            224..=239 => u64::from(self.byte()) * 64,
            240..=247 => u64::MAX - u64::from(self.byte()),
            _ => self.word(),
        }
    }
}

/// Memory for a call, between fences.
struct Memory {
    words: Vec<u64>,
    length: usize,
}

impl Memory {
    fn new(length: usize) -> Self {
        let words = vec![u64::from_ne_bytes([FENCE_BYTE; 8]); (length + 2 * FENCE).div_ceil(8)];
        let mut memory = Self { words, length };
        memory.bytes().fill(0);
        memory
    }

    fn all(&mut self) -> &mut [u8] {
        let length = self.words.len() * 8;
        // SAFETY: the bytes of the words.
        unsafe { core::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), length) }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let length = self.length;
        &mut self.all()[FENCE..FENCE + length]
    }

    fn check(&mut self) {
        let length = self.length;
        let all = self.all();
        assert!(all[..FENCE].iter().chain(&all[FENCE + length..]).all(|byte| *byte == FENCE_BYTE));
    }
}

/// State between calls.
#[derive(Default)]
struct World {
    live: Vec<u64>,
    closed: Vec<u64>,
    /// Length of the memory of the last pointer; any length if that was null.
    length: Option<usize>,
    /// Memory of the current call, and the handle that it closes.
    memory: Vec<Memory>,
    closing: u64,
    /// The current call's new handle.
    created: Option<*const u64>,
}

impl World {
    fn handle(&mut self, input: &mut Input) -> u64 {
        let pick = |list: &[u64], at: usize| list.get(at % list.len().max(1)).copied().unwrap_or(0);
        match input.byte() {
            at @ 0..=229 => pick(&self.live, at.into()),
            230..=237 => pick(&self.closed, input.byte().into()),
            238..=245 => pick(&self.live, input.byte().into()) ^ 1 << (input.byte() % 64),
            246..=250 => 0,
            _ => input.word(),
        }
    }

    /// Memory with a text and a zero byte.
    fn text(&mut self, text: &[u8], is_null: bool) -> *const c_char {
        let pointer = self.pointer(text.len() + 1, is_null);
        if !is_null {
            let bytes = self.memory.last_mut().unwrap().bytes();
            bytes.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        }
        self.length = None;
        pointer.cast_const().cast()
    }

    /// Memory for a call, unless it is to be null.
    fn pointer(&mut self, length: usize, is_null: bool) -> *mut c_void {
        if is_null {
            self.length = None;
            return core::ptr::null_mut();
        }
        self.length = Some(length);
        self.memory.push(Memory::new(length));
        self.memory.last_mut().unwrap().bytes().as_mut_ptr().cast()
    }
}

/// Argument of a function.
trait Argument {
    type C: Copy;
    fn make(input: &mut Input, world: &mut World) -> Self::C;
}

/// Declares arguments that are made by an expression.
macro_rules! arguments {
    ($($(#[$meta:meta])* $name:ident: $of:ty = |$input:ident, $world:ident| $make:expr;)*) => {
        $($(#[$meta])* struct $name;
        impl Argument for $name {
            type C = $of;

            fn make($input: &mut Input, $world: &mut World) -> $of {
                $make
            }
        })*
    };
}

arguments! {
    /// Handle of any kind.
    Handle: u64 = |input, world| world.handle(input);
    /// Handle that the call closes.
    Closing: u64 = |input, world| {
        world.closing = world.handle(input);
        world.closing
    };
    /// Where a new handle goes to.
    Created: *mut u64 = |input, world| {
        let created = world.pointer(8, input.byte() >= 250).cast::<u64>();
        world.created = (!created.is_null()).then_some(created.cast_const());
        created
    };
    /// Enumeration: mostly a value that exists.
    Choice: i32 = |input, _world| match input.byte() {
        value @ 0..=239 => i32::from(value % 4),
        _ => input.word() as i32,
    };
    /// Number of a channel, an index, a value.
    Number: u32 = |input, _world| match input.byte() {
        value @ 0..=199 => u32::from(value % 4),
        _ => input.number() as u32,
    };
    /// Address, offset or value.
    Address: u64 = |input, _world| input.number();
    /// Length without memory.
    Length: usize = |input, _world| input.number() as usize;
    Timeout: u64 = |input, _world| input.number() % MAX_WAIT_NS;
    /// Memory with contents; a length follows.
    Bytes: *mut c_void = |input, world| {
        let length = input.number() as usize % MAX_MEMORY;
        let content = input.byte();
        let pointer = world.pointer(length, content >= 250);
        if let Some(memory) = world.memory.last_mut().filter(|_| content < 250) {
            memory.bytes().fill(content);
        }
        pointer
    };
    /// Structure whose members are mostly 0; its size follows.
    Options: *mut c_void = |input, world| {
        let size = match input.byte() {
            0..=127 => return world.pointer(0, true),
            size => usize::from(size - 128),
        };
        let pointer = world.pointer(size, false);
        let members = input.byte() % 4;
        for _ in 0..members {
            let (at, value) = (usize::from(input.byte()) * 4, input.number() as u32);
            let memory = world.memory.last_mut().unwrap();
            if let Some(member) = memory.bytes().get_mut(at..at + 4) {
                member.copy_from_slice(&value.to_le_bytes());
            }
        }
        pointer
    };
    /// Scatter-gather list; the number of its parts follows.
    Segments: *mut c_void = |input, world| {
        let count = usize::from(input.byte() % 5);
        let parts: Vec<[u64; 4]> = (0..count)
            .map(|_| [world.handle(input), input.number(), input.number(), input.number()])
            .collect();
        let pointer = world.pointer(count * 32, input.byte() >= 250);
        if let (Some(_), Some(memory)) = (world.length, world.memory.last_mut()) {
            let bytes = parts.iter().flatten().flat_map(|word| word.to_le_bytes());
            memory.bytes().iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
        world.length = world.length.map(|_| count);
        pointer
    };
    /// Array of `fpga_piece`; its capacity follows.
    Pieces: *mut c_void = |input, world| {
        let count = usize::from(input.byte() % 5);
        let pointer = world.pointer(count * 16, input.byte() >= 250);
        world.length = world.length.map(|_| count);
        pointer
    };
    /// Number of 32-bit words in the last memory; any number for null.
    Words: usize = |input, world| match world.length.take() {
        Some(length) => length / 4,
        None => input.number() as usize,
    };
    /// Parts of a copy inside the card; their number follows.
    Copies: *mut c_void = |input, world| {
        let count = usize::from(input.byte() % 5);
        let parts: Vec<u64> = (0..count * 3).map(|_| input.number()).collect();
        let pointer = world.pointer(count * 24, input.byte() >= 250);
        if let (Some(_), Some(memory)) = (world.length, world.memory.last_mut()) {
            let bytes = parts.iter().flat_map(|word| word.to_le_bytes());
            memory.bytes().iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
        world.length = world.length.map(|_| count);
        pointer
    };
    /// Options that begin with a text, which is null or valid; their size follows.
    Scheme: *mut c_void = |input, world| begins_with_texts(input, world, 2);
    /// Options of simulated cards: at most four of them, without a thread.
    Network: *mut c_void = |input, world| {
        let (cards, losses) = (u32::from(input.byte() % 5), input.number() as u32);
        let pointer = begins_with_texts(input, world, 1);
        let members = [(8, cards), (12, 0), (24, losses)];
        for (at, value) in members {
            if let Some(member) = world.memory.last_mut().and_then(|it| it.bytes().get_mut(at..at + 4)) {
                member.copy_from_slice(&value.to_le_bytes());
            }
        }
        pointer
    };
    /// A region, of the last node or invented.
    Target: *const Region = |input, world| {
        let region = [1 + input.byte() as u64 % 3, input.number(), input.number(), input.number()];
        let pointer = world.pointer(size_of::<Region>(), input.byte() >= 250).cast::<Region>();
        if !pointer.is_null() {
            // SAFETY: memory of this length was allocated for it.
            unsafe { pointer.write(region) };
        }
        pointer.cast_const()
    };
    /// Text of a register map: a small map, with bytes that the input replaces.
    Yaml: *const c_char = |input, world| {
        let mut text = MAP.as_bytes().to_vec();
        for _ in 0..input.byte() % 4 {
            let at = input.number() as usize % text.len();
            text[at] = input.byte().max(1);
        }
        world.text(&text, input.byte() >= 250)
    };
    /// Name of a register, field or value.
    Register: *const c_char = |input, world| {
        let names = ["copier.control", "copier.control.mode", "settings.scheme", "selective", "12", "copier.x", "\u{e9}.", ""];
        let at = usize::from(input.byte());
        world.text(names[at % names.len()].as_bytes(), at >= 250)
    };
    /// Length of the last memory; any length for null.
    Size: usize = |input, world| match world.length.take() {
        Some(length) => length,
        None if input.byte() < 200 => 0,
        None => input.number() as usize,
    };
    Name: *const c_char = |input, world| {
        let names = ["mock", "mock:us-plus-x8-stream", "mock:us-x8", "mock:a\u{300}b", "", "no card", "mock:"];
        let at = usize::from(input.byte());
        let pointer = world.pointer(32, at >= 250);
        if at < 250 {
            // Half of all are the plain card.
            let name = if at % 2 == 0 { "mock" } else { names[at / 2 % names.len()] };
            let bytes = world.memory.last_mut().unwrap().bytes();
            bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
            if at == 249 {
                bytes[0] = 0xff;
            }
        }
        pointer.cast_const().cast()
    };
}

/// Layout of `fpga_region`.
type Region = [u64; 4];

/// Register map of the texts.
const MAP: &str = include_str!("../../../examples/maps/simulated-card.yaml");

/// Memory for options of up to 127 bytes, of which the first pointers are null or lead to a text.
fn begins_with_texts(input: &mut Input, world: &mut World, texts: usize) -> *mut c_void {
    let names = ["registry", "adaptive-window", "us-x8", "us-plus-x8-stream", "no such name"];
    let size = usize::from(input.byte() % 128);
    if size == 0 {
        return world.pointer(0, true);
    }
    let texts: Vec<usize> = (0..texts)
        .map(|_| match input.byte() {
            at @ 0..=99 => world.text(names[usize::from(at) % names.len()].as_bytes(), false).addr(),
            _ => 0,
        })
        .collect();
    let pointer = world.pointer(size, false);
    let bytes = texts.iter().flat_map(|address| address.to_le_bytes());
    let memory = world.memory.last_mut().unwrap();
    memory.bytes().iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    // A structure that ends within a pointer would make it a wild one.
    if size < texts.len() * 8 {
        memory.bytes().fill(0);
    }
    pointer
}

/// Out parameter.
struct Out<T>(PhantomData<T>);

impl<T> Argument for Out<T> {
    type C = *mut T;

    fn make(input: &mut Input, world: &mut World) -> *mut T {
        world.pointer(size_of::<T>(), input.byte() >= 240).cast()
    }
}

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
    fpga_write(Handle, Address, Bytes, Size, Timeout);
    fpga_write_with(Handle, Address, Bytes, Size, Timeout, Options, Size);
    fpga_read(Handle, Address, Bytes, Size, Timeout);
    fpga_read_with(Handle, Address, Bytes, Size, Timeout, Options, Size);
    fpga_submit(Handle, Handle, Length, Length, Address, Out<u64>);
    fpga_submit_list(Handle, Segments, Size, Out<u64>);
    fpga_poll(Handle, Out<usize>);
    fpga_progress(Handle, Out<u64>, Out<u32>);
    fpga_wait(Handle, Address, Timeout);
    fpga_wait_with(Handle, Address, Timeout, Options, Size);
    fpga_next_failure(Handle, Out<u64>);
    fpga_cancel(Handle, Address, Out<u32>);
    fpga_abort(Handle);
    fpga_channel_fd(Handle, Out<i32>);
    fpga_channel_take(Handle, Out<u64>);
    fpga_channel_arm(Handle);
    fpga_channel_disarm(Handle);
    fpga_stream_open(Handle, Choice, Number, Options, Size, Created);
    fpga_stream_send(Handle, Bytes, Size, Timeout);
    fpga_stream_next(Handle, Out<usize>);
    fpga_stream_wait(Handle, Timeout, Options, Size, Out<usize>);
    fpga_stream_pieces(Handle, Pieces, Size, Out<usize>);
    fpga_stream_copy(Handle, Length, Bytes, Size);
    fpga_stream_release(Handle);
    fpga_stream_receive(Handle, Bytes, Size, Timeout, Out<usize>);
    fpga_stream_stop(Handle);
    fpga_stream_get_statistics(Handle, Options, Size);
    fpga_set_write_flush_timeout(Handle, Number);
    fpga_open_with(Name, Options, Size, Created);
    fpga_interrupt_open(Handle, Bytes, Words, Created);
    fpga_interrupt_close(Closing);
    fpga_interrupt_wait(Handle, Timeout, Out<u32>, Out<[u64; 16]>);
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
    fpga_cdma_copy(Handle, Address, Address, Address, Timeout);
    fpga_cdma_get_status(Handle, Out<u32>, Out<u32>, Out<u32>);
    fpga_cdma_reset(Handle);
    fpga_cdma_ring_start(Handle, Options, Size);
    fpga_cdma_ring_stop(Handle);
    fpga_cdma_ring_submit(Handle, Copies, Size, Out<u64>);
    fpga_cdma_ring_poll(Handle, Out<u64>, Out<u32>);
    fpga_cdma_ring_wait(Handle, Address, Timeout, Options, Size);
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
    fpga_region_open(Handle, Number, Address, Address, Out<Region>);
    fpga_region_close(Handle, Target);
    fpga_region_encode(Target, Bytes, Size);
    fpga_region_decode(Bytes, Size, Out<Region>);
    fpga_endpoint_send(Handle, Address, Target, Address, Address, Scheme, Size, Out<u64>);
    fpga_endpoint_poll(Handle, Out<usize>);
    fpga_endpoint_next_completion(Handle, Bytes, Size, Out<u32>);
    fpga_endpoint_wait(Handle, Address, Timeout, Bytes, Size);
    fpga_endpoint_cancel(Handle, Address, Out<u32>);
    fpga_endpoint_next_notification(Handle, Bytes, Size, Out<u32>);
    fpga_endpoint_wait_notification(Handle, Timeout, Bytes, Size);
    fpga_endpoint_write(Handle, Address, Bytes, Size);
    fpga_endpoint_wait_peer(Handle, Number, Timeout, Bytes, Size);
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
            }
        }
        None if status == 0 && world.closing != 0 => {
            let at = world.live.iter().position(|handle| *handle == world.closing);
            world.closed.push(world.live.remove(at.expect("only an open handle closes")));
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
    world.memory.clear();
    world.length = None;
    world.closing = 0;
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
    // Channels and engines first, as their transfers may use buffers.
    let close = [
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
        // SAFETY: a handle is a number.
        world.live.retain(|handle| match unsafe { function(*handle) } {
            0 => {
                // SAFETY: as above.
                assert_eq!(unsafe { function(*handle) }, HANDLE);
                false
            }
            status => {
                assert_eq!(status, HANDLE, "a handle of this kind closes");
                true
            }
        });
    }
    assert!(world.live.is_empty(), "{} handles did not close", world.live.len());
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    assert!(open < 64, "{open} descriptors are open");
});
