//! DMA channels: opening, options, and the memory that is registered with them. Streams are channels, too.

use core::ffi::c_int;
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::{HashMap, VecDeque};

use fpga_driver::errors::ChannelFault;
use fpga_driver::{
    C2hStream, Card, ChannelError, ChannelEvents, ChannelOptions, Direction, DmaBuffer, Error, H2cStream,
    MemoryHandle, RunMode, ScatterGatherEntry, WaitMode, WaitOptions, stream::PacketFragment,
};

use crate::buffer;
use crate::call::{call, duration, read_options, set};
use crate::error::Failure;
use crate::handle::{self, Kind, Object};
use crate::layout::c_struct;
use crate::status::Status;
use crate::wait::CANCELLATION;

/// Direction of a channel, as in the header.
const H2C: i32 = 0;
const C2H: i32 = 1;
/// Number of failures that a channel keeps until they are taken.
const MAX_FAILURES: usize = 1024;

c_struct! {
    /// Options of a channel. A member that is 0 stands for its default.
    COptions = "fpga_channel_options" {
        descriptors: u32,
        transfers: u32,
        max_descriptor_length: u32,
        run_mode: i32,
        long_blocks: u32,
        fixed_address: u32,
        report_each: u32,
        reserved: u32,
    }
}

c_struct! {
    /// Options of a wait.
    CWait = "fpga_wait_options" {
        mode: i32,
        reserved: u32,
        spin_ns: u64,
        cancel: *const c_int,
    }
}

/// Modes of the handles of channels, for calls of other threads: C2H streams, and all others.
pub(crate) const RECEIVING_MODE: usize = 1;
const OTHER_MODE: usize = 2;

/// Channel, its card for buffers of blocking calls, and the buffers that are registered with it.
pub(crate) struct Channel {
    pub(crate) card: Card,
    pub(crate) engine: Engine,
    /// Memory of each registered buffer, by the buffer's handle.
    registered: HashMap<u64, MemoryHandle, BuildHasherDefault<HandleHasher>>,
    /// The buffer that was used last. 0 stands for none.
    last: (u64, Option<MemoryHandle>),
    /// Failures that the program has not taken.
    pub(crate) failures: VecDeque<(u64, Box<Error<ChannelFault>>)>,
    /// Interrupt of the channel, once the program has asked for it.
    pub(crate) events: Option<ChannelEvents>,
    /// Scratch space for lists, kept between calls.
    pub(crate) list: Vec<ScatterGatherEntry>,
    pub(crate) fragments: Vec<PacketFragment>,
    pub(crate) receiving: Receiving,
}

/// State of receiving, for C2H streams.
#[derive(Default)]
pub(crate) struct Receiving {
    /// Parts of the packet that the program has, or gets next: address and length.
    pub(crate) pieces: Vec<(usize, usize)>,
    /// The packet is one that the program has not seen yet.
    pub(crate) is_pending: bool,
    /// Error that the next call returns.
    pub(crate) failed: Option<Failure>,
    /// Buffer of single packets, while it is not posted; with the packet that the program has no space for.
    pub(crate) buffer: Option<DmaBuffer>,
    pub(crate) is_received: bool,
    pub(crate) is_posted: bool,
}

// SAFETY: the only type of this kind.
unsafe impl Object for Channel {
    const KIND: Kind = Kind::Channel;
}

pub(crate) enum Engine {
    Memory(fpga_driver::Channel),
    H2cStream(H2cStream),
    C2hStream(Box<C2hStream>),
}

/// Calls the same method of each kind of channel that transfers are submitted to.
macro_rules! each {
    ($engine:expr, $inner:ident => $call:expr) => {
        match $engine {
            $crate::channel::Engine::Memory($inner) => $call,
            $crate::channel::Engine::H2cStream($inner) => $call,
            $crate::channel::Engine::C2hStream(_) => return Err($crate::channel::receives()),
        }
    };
}
pub(crate) use each;

/// Handles differ in their low bits most.
#[derive(Default)]
struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    #[inline]
    fn write_u64(&mut self, handle: u64) {
        self.0 = (self.0 ^ handle).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Failure of a function that a C2H stream does not have.
#[cold]
pub(crate) fn receives() -> Failure {
    Failure::argument("the channel is a C2H stream, which receives packets")
        .advise("use fpga_stream_next or fpga_stream_receive")
}

impl Channel {
    fn new(card: Card, engine: Engine) -> Self {
        Self {
            card,
            engine,
            registered: HashMap::default(),
            last: (0, None),
            failures: VecDeque::new(),
            events: None,
            list: Vec::new(),
            fragments: Vec::new(),
            receiving: Receiving::default(),
        }
    }

    /// Returns a buffer's memory. The first time, it is registered.
    #[inline]
    pub(crate) fn memory(&mut self, own: u64, buffer: u64) -> Result<MemoryHandle, Failure> {
        if let (known, Some(memory)) = self.last
            && known == buffer
        {
            return Ok(memory);
        }
        self.look_up(own, buffer)
    }

    fn look_up(&mut self, own: u64, buffer: u64) -> Result<MemoryHandle, Failure> {
        let memory = match self.registered.get(&buffer) {
            Some(memory) => *memory,
            None => self.register(own, buffer)?,
        };
        self.last = (buffer, Some(memory));
        Ok(memory)
    }

    #[cold]
    fn register(&mut self, own: u64, buffer: u64) -> Result<MemoryHandle, Failure> {
        if matches!(self.engine, Engine::C2hStream(_)) {
            return Err(receives());
        }
        let area = buffer::memory_for(buffer, own)?;
        match each!(&mut self.engine, engine => engine.register_memory(area)) {
            Ok(memory) => {
                self.registered.insert(buffer, memory);
                Ok(memory)
            }
            Err(refused) => {
                buffer::forget(buffer, own);
                Err(refused.error.into())
            }
        }
    }

    /// Ends the use of a buffer.
    pub(crate) fn deregister(&mut self, buffer: u64) -> Result<(), Failure> {
        let Some(memory) = self.registered.get(&buffer).copied() else { return Ok(()) };
        drop(each!(&mut self.engine, engine => engine.deregister_memory(memory))?);
        self.registered.remove(&buffer);
        self.last = (0, None);
        Ok(())
    }

    /// Takes failures from the engine and keeps them for the program. Returns the first of them.
    pub(crate) fn collect_failures(&mut self) -> Result<Option<Error<ChannelFault>>, Failure> {
        let mut first = None;
        while let Some(done) = each!(&mut self.engine, engine => engine.next_completion()) {
            if let Err(fault) = done.outcome {
                if first.is_none() {
                    first = Some((*fault).clone());
                }
                if self.failures.len() == MAX_FAILURES {
                    self.failures.pop_front();
                }
                self.failures.push_back((done.ticket.number(), fault));
            }
        }
        Ok(first)
    }
}

/// Returns the wait of a caller, and the flag that ends it; null for that of the thread.
pub(crate) fn wait_options(
    timeout_ns: u64,
    options: *const CWait,
    size: usize,
) -> Result<(WaitOptions, *const c_int), Failure> {
    if size == 0 && options.is_null() {
        return Ok((polling(timeout_ns), core::ptr::null()));
    }
    let options = read_options(options, size)?;
    let mode = match options.mode {
        0 => WaitMode::Poll,
        1 => WaitMode::Interrupt,
        2 => WaitMode::Hybrid { spin: duration(options.spin_ns) },
        _ => return Err(Failure::argument("mode is no fpga_wait_mode")),
    };
    Ok((polling(timeout_ns).mode(mode), options.cancel))
}

/// Returns a wait that polls.
pub(crate) fn polling(timeout_ns: u64) -> WaitOptions {
    let limit = duration(timeout_ns);
    WaitOptions::default().timeout(limit).total(limit).cancel(CANCELLATION)
}

pub(crate) fn run_mode(mode: i32) -> Result<RunMode, Failure> {
    match mode {
        0 | 1 => Ok(RunMode::Batch),
        2 => Ok(RunMode::Credit),
        _ => Err(Failure::argument("run_mode is no fpga_run_mode")),
    }
}

impl COptions {
    fn options(&self) -> Result<ChannelOptions, Failure> {
        let mut options = ChannelOptions::default()
            .run_mode(run_mode(self.run_mode)?)
            .long_blocks(self.long_blocks != 0)
            .fixed_address(self.fixed_address != 0)
            .report_each(self.report_each != 0);
        for (given, place) in [
            (self.descriptors, &mut options.descriptors),
            (self.transfers, &mut options.transfers),
            (self.max_descriptor_length, &mut options.max_descriptor_length),
        ] {
            if given != 0 {
                *place = given;
            }
        }
        Ok(options)
    }
}

/// Returns a direction of a caller: true for H2C.
pub(crate) fn is_h2c(direction: i32) -> Result<bool, Failure> {
    match direction {
        H2C => Ok(true),
        C2H => Ok(false),
        _ => Err(Failure::argument("direction is neither FPGA_H2C nor FPGA_C2H")),
    }
}

/// Returns the number of a channel or a line.
pub(crate) fn number(number: u32) -> Result<u8, Failure> {
    u8::try_from(number).map_err(|_| Failure::argument("the number is above 255"))
}

/// Opens a memory-mapped channel or a stream.
pub(crate) fn open(
    card: u64,
    direction: i32,
    channel: u32,
    out: *mut u64,
    take: impl FnOnce(&Card, bool, u8) -> Result<Engine, Failure>,
) -> Result<(), Failure> {
    set(out, 0)?;
    let card = handle::shared(card, Card::clone)?;
    let engine = take(&card, is_h2c(direction)?, number(channel)?)?;
    let mode = if matches!(engine, Engine::C2hStream(_)) { RECEIVING_MODE } else { OTHER_MODE };
    set(out, handle::add_in_mode(Channel::new(card, engine), mode)?)
}

fn open_memory(card: &Card, h2c: bool, number: u8, options: ChannelOptions) -> Result<Engine, Failure> {
    let direction = if h2c { Direction::H2c } else { Direction::C2h };
    Ok(Engine::Memory(card.channel(direction, number, options)?))
}

/// Takes a channel of a card.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_open(card: u64, direction: i32, number: u32, out: *mut u64) -> Status {
    let options = ChannelOptions::default();
    call(|| open(card, direction, number, out, |card, h2c, number| open_memory(card, h2c, number, options)))
}

/// As [`fpga_channel_open`], with options.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_open_with(
    card: u64,
    direction: i32,
    number: u32,
    options: *const COptions,
    size: usize,
    out: *mut u64,
) -> Status {
    call(|| {
        open(card, direction, number, out, |card, h2c, number| {
            open_memory(card, h2c, number, read_options(options, size)?.options()?)
        })
    })
}

/// Closes a channel. Transfers in flight are aborted.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_close(channel: u64) -> Status {
    call(|| Ok(handle::close::<Channel>(channel)?))
}

/// Returns the file descriptor of a channel's interrupt.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_fd(channel: u64, fd: *mut i32) -> Status {
    use std::os::fd::AsRawFd as _;
    call(|| {
        set(fd, -1)?;
        handle::with(channel, |channel: &mut Channel| {
            let events = channel.events()?;
            set(fd, events.as_raw_fd())
        })
    })
}

impl Channel {
    fn events(&mut self) -> Result<&ChannelEvents, Failure> {
        if self.events.is_none() {
            let events: Result<_, Error<ChannelError>> = match &self.engine {
                Engine::Memory(engine) => engine.events(),
                Engine::H2cStream(engine) => engine.events(),
                Engine::C2hStream(engine) => engine.events(),
            };
            self.events = Some(events?);
        }
        self.events.as_ref().ok_or_else(|| Status::Internal.into())
    }
}

/// Enables the channel's interrupt.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_arm(channel: u64) -> Status {
    call(|| {
        handle::with(channel, |channel: &mut Channel| {
            Ok(match &mut channel.engine {
                Engine::Memory(engine) => engine.arm(),
                Engine::H2cStream(engine) => engine.arm(),
                Engine::C2hStream(engine) => engine.arm(),
            }?)
        })
    })
}

/// Disables the channel's interrupt.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_disarm(channel: u64) -> Status {
    call(|| {
        handle::with(channel, |channel: &mut Channel| {
            Ok(match &mut channel.engine {
                Engine::Memory(engine) => engine.disarm(),
                Engine::H2cStream(engine) => engine.disarm(),
                Engine::C2hStream(engine) => engine.disarm(),
            }?)
        })
    })
}

/// Takes the interrupts that have arrived.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_take(channel: u64, count: *mut u64) -> Status {
    call(|| {
        set(count, 0)?;
        handle::with(channel, |channel: &mut Channel| set(count, channel.events()?.take()))
    })
}
