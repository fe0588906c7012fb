//! Arguments of functions, made from an input.

use core::ffi::{c_char, c_void};
use core::marker::PhantomData;

use super::input::{self, Input, Readable, Region, World, wait_flag};
use super::{
    HANDLE, fpga_endpoint_get_counters, fpga_frame_data, fpga_publisher_get_state, fpga_subscriber_get_state,
};

/// Maximum length of memory for a call.
const MAX_MEMORY: usize = 9000;
/// Maximum time that a call waits. A wait without a limit may never end.
const MAX_WAIT_NS: u64 = 50_000;
/// Maximum virtual time that passes in a call.
const MAX_SPAN_NS: u64 = 2_000_000;

/// Argument of a function.
pub(crate) trait Argument {
    type C: Copy;
    fn make(input: &mut Input, world: &mut World) -> Self::C;
}

/// Declares arguments that are made by an expression.
macro_rules! arguments {
    ($($(#[$meta:meta])* $name:ident: $of:ty = |$input:ident, $world:ident| $make:expr;)*) => {
        $($(#[$meta])* pub(crate) struct $name;
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
    /// Virtual time that passes.
    Span: u64 = |input, _world| input.number() % MAX_SPAN_NS;
    /// Time of a wait that the thread's flag ends.
    Limit: u64 = |input, world| match input.byte() {
        0..=99 if world.is_cancelled => u64::MAX,
        _ => input.number() % MAX_WAIT_NS,
    };
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
    /// A region: mostly one that was opened.
    Target: *const Region = |input, world| {
        let known = world.regions.get(usize::from(input.byte())).copied();
        let region = known.unwrap_or_else(|| region(input));
        if input.byte() >= 250 { core::ptr::null() } else { world.words(&region, 32).cast_const().cast() }
    };
    /// Where an opened region goes to.
    Opened: *mut Region = |input, world| {
        let pointer = world.pointer(size_of::<Region>(), input.byte() >= 250).cast::<Region>();
        world.region = (!pointer.is_null()).then_some(pointer.cast_const());
        pointer
    };
    /// A readable range: mostly one that was opened.
    Source: *const Readable = |input, world| {
        let known = world.readables.get(usize::from(input.byte())).copied();
        let readable = known.unwrap_or_else(|| {
            let [node, address, length, key] = region(input);
            [node, input.number(), node, address, length, key]
        });
        if input.byte() >= 250 { core::ptr::null() } else { world.words(&readable, 48).cast_const().cast() }
    };
    /// Where an opened readable range goes to.
    Lent: *mut Readable = |input, world| {
        let pointer = world.pointer(size_of::<Readable>(), input.byte() >= 250).cast::<Readable>();
        world.readable = (!pointer.is_null()).then_some(pointer.cast_const());
        pointer
    };
    /// Endpoint, publisher, subscriber or frame that the call may close.
    Consumed: u64 = |input, world| {
        let handle = world.handle(input);
        world.consumed = OPEN.iter().find(|is_open| is_open(handle)).map(|is_open| input::Consumed { handle, is_open: *is_open });
        handle
    };
    /// Event of a subscriber; its size follows.
    Event: *mut c_void = |input, world| {
        let size = if input.byte() < 200 { 40 } else { usize::from(input.byte() % 64) };
        let pointer = world.pointer(size, input.byte() >= 250);
        world.event = (!pointer.is_null() && size >= 16).then_some(pointer.cast_const().cast());
        pointer
    };
    /// Address and port of this machine, or no address.
    Local: *const c_char = |input, world| {
        let at = usize::from(input.byte());
        let address = match at {
            0..=127 if !world.address.is_empty() => world.address.clone(),
            0..=199 => b"127.0.0.1:0".to_vec(),
            _ => ["", "127.0.0.1", "[::1]:0", "\u{e9}:1", "127.0.0.1:65536"][at % 5].into(),
        };
        world.text(&address, at >= 250)
    };
    /// Where an address goes to; the size of its memory follows.
    Bound: *mut c_char = |input, world| {
        let size = if input.byte() < 200 { 64 } else { usize::from(input.byte() % 64) };
        let pointer = world.pointer(size, input.byte() >= 250).cast::<c_char>();
        world.bound = (!pointer.is_null() && size == 64).then_some(pointer.cast_const());
        pointer
    };
    /// Options of a wait; their size follows.
    Wait: *mut c_void = |input, world| {
        let size = match input.byte() {
            0..=127 => return world.pointer(0, true),
            128..=200 => 24,
            // Members end whole.
            size => usize::from(size % 5) * 8,
        };
        let mode = u64::from(input.byte() % 5);
        let spin = input.number() % MAX_WAIT_NS;
        let flag = wait_flag(input).addr() as u64;
        world.words(&[mode, spin, flag], size)
    };
    /// Flag of a thread: set, not set, none, or not aligned.
    Flag: *const i32 = |input, world| match input.byte() {
        0..=239 => world.thread_flag(input),
        // Refused: the flag before stays.
        _ => core::ptr::dangling::<i32>().wrapping_byte_add(1),
    };
    /// Memory of the program to register; its length follows.
    Program: *mut c_void = |input, world| match input.byte() {
        0..=239 => world.pages(1 + usize::from(input.byte() % 4)),
        240..=247 => {
            // Not aligned, or no whole pages.
            let pointer = world.pages(2);
            world.length = Some(usize::from(input.byte()) * 17);
            pointer.wrapping_byte_add(usize::from(input.byte() % 8) * 8)
        }
        _ => world.pointer(0, true),
    };
    /// Plan of faults.
    Faults: *const c_char = |input, world| {
        let plans = [
            "",
            "list: [{fault: cdma_stall}]",
            "list: [{fault: stall}]",
            "list: [{fault: surprise_removal}]",
            "list: [{fault: no fault}]",
            "list: 3",
        ];
        let at = usize::from(input.byte());
        world.text(plans[at % plans.len()].as_bytes(), at >= 250)
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

/// Register map of the texts.
const MAP: &str = include_str!("../../../../examples/maps/simulated-card.yaml");

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
pub(crate) struct Out<T>(PhantomData<T>);

impl<T> Argument for Out<T> {
    type C = *mut T;

    fn make(input: &mut Input, world: &mut World) -> *mut T {
        world.pointer(size_of::<T>(), input.byte() >= 240).cast()
    }
}

/// An invented region.
fn region(input: &mut Input) -> Region {
    [1 + u64::from(input.byte() % 3), input.number(), input.number(), input.number()]
}

/// Whether a handle is an open endpoint, publisher, subscriber or frame.
const OPEN: [fn(u64) -> bool; 4] = [
    |handle| is_open(handle, fpga_endpoint_get_counters),
    |handle| is_open(handle, fpga_publisher_get_state),
    |handle| is_open(handle, fpga_subscriber_get_state),
    |handle| {
        let (mut data, mut length) = (core::ptr::null_mut(), 0);
        // SAFETY: both are valid.
        unsafe { fpga_frame_data(handle, &raw mut data, &raw mut length) != HANDLE }
    },
];

fn is_open(handle: u64, state: unsafe extern "C" fn(u64, *mut c_void, usize) -> i32) -> bool {
    let mut memory = [0_u64; 32];
    // SAFETY: the memory has this size.
    unsafe { state(handle, memory.as_mut_ptr().cast(), size_of_val(&memory)) != HANDLE }
}
