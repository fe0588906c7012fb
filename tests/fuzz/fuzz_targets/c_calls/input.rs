//! Inputs, memory of calls, and the state between calls.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicI32, Ordering};
use std::alloc::Layout;
use std::sync::Mutex;

/// Bytes on both sides of each memory, which a call must not write.
const FENCE: usize = 64;
const FENCE_BYTE: u8 = 0xA5;
/// Size of a page.
const PAGE: usize = 4096;

/// Layout of `fpga_region`.
pub(crate) type Region = [u64; 4];
/// Layout of `fpga_readable`.
pub(crate) type Readable = [u64; 6];

/// The rest of an input.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    pub(crate) fn word(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// A number: small, at a boundary, or any.
    pub(crate) fn number(&mut self) -> u64 {
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
pub(crate) struct Memory {
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

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let length = self.length;
        &mut self.all()[FENCE..FENCE + length]
    }

    pub(crate) fn check(&mut self) {
        let length = self.length;
        let all = self.all();
        assert!(all[..FENCE].iter().chain(&all[FENCE + length..]).all(|byte| *byte == FENCE_BYTE));
    }
}

/// Pages of the program that a card may access: between fences of one page.
pub(crate) struct Pages {
    start: *mut u8,
    length: usize,
}

impl Pages {
    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length + 2 * PAGE, PAGE).unwrap()
    }

    fn new(length: usize) -> Self {
        let layout = Self::layout(length);
        // SAFETY: the size is not 0.
        let start = unsafe { std::alloc::alloc(layout) };
        if start.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        // SAFETY: `layout.size()` bytes were allocated.
        unsafe { start.write_bytes(FENCE_BYTE, layout.size()) };
        Self { start, length }
    }

    fn data(&self) -> *mut u8 {
        self.start.wrapping_add(PAGE)
    }
}

// SAFETY: the memory belongs to this value.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        for at in (0..PAGE).chain(PAGE + self.length..2 * PAGE + self.length) {
            // SAFETY: inside the allocation, which was written.
            assert_eq!(unsafe { self.start.add(at).read_volatile() }, FENCE_BYTE);
        }
        // SAFETY: allocated with this layout. No card accesses it: its buffer was freed.
        unsafe { std::alloc::dealloc(self.start, Self::layout(self.length)) };
    }
}

/// Flag of the thread's waits, and of a single wait.
static FLAGS: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];
/// Registered memory that cards may still access, because an engine did not stop.
pub(crate) static STUCK: Mutex<Vec<Pages>> = Mutex::new(Vec::new());

/// A handle that a call may close, although it fails.
pub(crate) struct Consumed {
    pub(crate) handle: u64,
    /// Returns whether the handle is open.
    pub(crate) is_open: fn(u64) -> bool,
}

/// State between calls.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) live: Vec<u64>,
    pub(crate) closed: Vec<u64>,
    /// Regions and readable ranges that were opened.
    pub(crate) regions: Vec<Region>,
    pub(crate) readables: Vec<Readable>,
    /// Address at which the last publisher listens.
    pub(crate) address: Vec<u8>,
    /// Whether waits of the thread end because of its flag.
    pub(crate) is_cancelled: bool,
    /// Registered memory by the handle of its buffer.
    pub(crate) registered: Vec<(u64, Pages)>,
    /// Length of the memory of the last pointer; any length if that was null.
    pub(crate) length: Option<usize>,
    /// Memory of the current call, and the handle that it closes.
    pub(crate) memory: Vec<Memory>,
    pub(crate) pages: Option<Pages>,
    pub(crate) closing: u64,
    pub(crate) consumed: Option<Consumed>,
    /// Results of the current call if it succeeds: a new handle, an event that may have a frame, and others.
    pub(crate) created: Option<*const u64>,
    pub(crate) event: Option<*const u64>,
    pub(crate) region: Option<*const Region>,
    pub(crate) readable: Option<*const Readable>,
    pub(crate) bound: Option<*const c_char>,
}

impl World {
    pub(crate) fn handle(&mut self, input: &mut Input) -> u64 {
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
    pub(crate) fn text(&mut self, text: &[u8], is_null: bool) -> *const c_char {
        let pointer = self.pointer(text.len() + 1, is_null);
        if !is_null {
            let bytes = self.memory.last_mut().unwrap().bytes();
            bytes.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        }
        self.length = None;
        pointer.cast_const().cast()
    }

    /// Memory for a call, unless it is to be null.
    pub(crate) fn pointer(&mut self, length: usize, is_null: bool) -> *mut c_void {
        if is_null {
            self.length = None;
            return core::ptr::null_mut();
        }
        self.length = Some(length);
        self.memory.push(Memory::new(length));
        self.memory.last_mut().unwrap().bytes().as_mut_ptr().cast()
    }

    /// Memory of `length` bytes with these words.
    pub(crate) fn words(&mut self, words: &[u64], length: usize) -> *mut c_void {
        let pointer = self.pointer(length, false);
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        let memory = self.memory.last_mut().unwrap();
        memory.bytes().iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        pointer
    }

    /// Pages that the call registers.
    pub(crate) fn pages(&mut self, count: usize) -> *mut c_void {
        self.length = Some(count * PAGE);
        self.pages.insert(Pages::new(count * PAGE)).data().cast()
    }

    /// Flag of the thread's waits that is set or not, or null.
    pub(crate) fn thread_flag(&mut self, input: &mut Input) -> *const i32 {
        let flag = flag(input, &FLAGS[0]);
        self.is_cancelled = !flag.is_null() && FLAGS[0].load(Ordering::Relaxed) != 0;
        flag
    }
}

fn flag(input: &mut Input, flag: &AtomicI32) -> *const i32 {
    let choice = input.byte();
    flag.store((choice % 2).into(), Ordering::Relaxed);
    if choice >= 200 { core::ptr::null() } else { flag.as_ptr() }
}

/// Flag of a single wait that is set or not, or null.
pub(crate) fn wait_flag(input: &mut Input) -> *const i32 {
    flag(input, &FLAGS[1])
}
