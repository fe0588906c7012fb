//! DMA channels: opening, options, and the memory that is registered with them. Streams are channels, too.

use core::ffi::c_int;
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use fpga_driver::errors::ChannelFault;
use fpga_driver::{
    C2hStream, Card, ChannelError, ChannelEvents, ChannelOptions, Direction, DmaBuffer, Error, H2cStream,
    MemoryHandle, RunMode, ScatterGatherEntry, WaitMode, WaitOptions, stream::PacketFragment,
};

use crate::abi::{
    FPGA_C2H, FPGA_H2C, FPGA_RUN_BATCH, FPGA_RUN_CREDIT, FPGA_RUN_DEFAULT, FPGA_WAIT_HYBRID,
    FPGA_WAIT_INTERRUPT, FPGA_WAIT_POLL, Status, fpga_channel_options, fpga_wait_options,
};
use crate::buffer;
use crate::call::{duration, read_options, set, set_option};
use crate::error::Failure;
use crate::failures::Failures;
use crate::handle::{self, Kind, Object};
use crate::wait::CANCELLATION;

/// Modes of the handles of channels ([`handle::with_claimed_in`]): C2H streams, and all others.
pub(crate) const RECEIVING_MODE: usize = 1;
const OTHER_MODE: usize = 2;

/// A DMA or stream channel, with the buffers that are registered with it.
pub(crate) struct Channel {
    /// Card, for buffers of blocking calls.
    pub(crate) card: Card,
    pub(crate) engine: Engine,
    /// Memory of each registered buffer, by the buffer's handle.
    registered: HashMap<u64, MemoryHandle, BuildHasherDefault<HandleHasher>>,
    /// Buffer of the last transfer, 0 for none, and its memory.
    last: (u64, Option<MemoryHandle>),
    /// Failures that the program has not taken.
    pub(crate) failures: Failures<ChannelFault>,
    /// Interrupt of the channel, after the first call of `fpga_channel_fd` or `fpga_channel_take`.
    pub(crate) events: Option<ChannelEvents>,
    /// Elements of the list or packet that is being submitted; kept, so that submissions do not allocate.
    pub(crate) list: Vec<ScatterGatherEntry>,
    pub(crate) fragments: Vec<PacketFragment>,
    pub(crate) receiving: Receiving,
}

/// State of receiving, for C2H streams.
#[derive(Default)]
pub(crate) struct Receiving {
    /// Parts of the current or pending packet: host address and length in bytes.
    pub(crate) pieces: Vec<(usize, usize)>,
    /// The packet has not been returned to the program yet.
    pub(crate) is_pending: bool,
    /// Error for the next call.
    pub(crate) failed: Option<Failure>,
    /// Buffer of `fpga_stream_receive` while it is not posted; with `is_received`, it has a packet that the program had no space for.
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

/// Evaluates `$call` with the channel of a memory-mapped engine or an H2C stream; returns an error for a C2H stream.
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

/// Hash of a handle. Handles differ mainly in their low bits.
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

/// Failure of submissions to a C2H stream.
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
            failures: Failures::new(),
            events: None,
            list: Vec::new(),
            fragments: Vec::new(),
            receiving: Receiving::default(),
        }
    }

    /// Returns the memory of a buffer; the first use registers it with the channel. `own` is the channel's handle.
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
                buffer::remove_channel(buffer, own);
                Err(refused.error.into())
            }
        }
    }

    /// Deregisters a buffer, if it is registered.
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
            self.failures.record(done.ticket.number(), done.outcome, &mut first);
        }
        Ok(first)
    }
}

/// Returns the options of a wait, and the flag that cancels it: null stands for the flag of the thread.
pub(crate) fn wait_options(
    timeout_ns: u64,
    options: *const fpga_wait_options,
    size: usize,
) -> Result<(WaitOptions, *const c_int), Failure> {
    if size == 0 && options.is_null() {
        return Ok((polling(timeout_ns), core::ptr::null()));
    }
    let options = read_options(options, size)?;
    let mode = match options.mode {
        FPGA_WAIT_POLL => WaitMode::Poll,
        FPGA_WAIT_INTERRUPT => WaitMode::Interrupt,
        FPGA_WAIT_HYBRID => WaitMode::Hybrid { spin: duration(options.spin_ns) },
        _ => {
            return Err(Failure::argument(&format!(
                "mode is {}, which is not a value of fpga_wait_mode",
                options.mode
            )));
        }
    };
    Ok((polling(timeout_ns).mode(mode), options.cancel))
}

/// Returns options of a wait that polls.
pub(crate) fn polling(timeout_ns: u64) -> WaitOptions {
    let limit = duration(timeout_ns);
    WaitOptions::default().timeout(limit).total(limit).cancel(CANCELLATION)
}

pub(crate) fn run_mode(mode: i32) -> Result<RunMode, Failure> {
    match mode {
        FPGA_RUN_DEFAULT | FPGA_RUN_BATCH => Ok(RunMode::Batch),
        FPGA_RUN_CREDIT => Ok(RunMode::Credit),
        _ => Err(Failure::argument(&format!("run_mode is {mode}, which is not a value of fpga_run_mode"))),
    }
}

impl fpga_channel_options {
    fn options(&self) -> Result<ChannelOptions, Failure> {
        let mut options = ChannelOptions::default()
            .run_mode(run_mode(self.run_mode)?)
            .long_blocks(self.long_blocks != 0)
            .fixed_address(self.fixed_address != 0)
            .report_each(self.report_each != 0);
        set_option(&mut options.descriptors, self.descriptors);
        set_option(&mut options.transfers, self.transfers);
        set_option(&mut options.max_descriptor_length, self.max_descriptor_length);
        Ok(options)
    }
}

/// Returns whether an `fpga_direction` is H2C.
pub(crate) fn is_h2c(direction: i32) -> Result<bool, Failure> {
    match direction {
        FPGA_H2C => Ok(true),
        FPGA_C2H => Ok(false),
        _ => Err(Failure::argument("direction is neither FPGA_H2C nor FPGA_C2H")),
    }
}

/// Converts the number of a channel or an interrupt line.
pub(crate) fn number(number: u32) -> Result<u8, Failure> {
    u8::try_from(number)
        .map_err(|_| Failure::argument(&format!("the number is {number}, the maximum is 255")))
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
    let card = handle::card(card)?;
    let engine = take(&card, is_h2c(direction)?, number(channel)?)?;
    let mode = if matches!(engine, Engine::C2hStream(_)) { RECEIVING_MODE } else { OTHER_MODE };
    set(out, handle::add_in_mode(Channel::new(card, engine), mode)?)
}

fn open_memory(card: &Card, h2c: bool, number: u8, options: ChannelOptions) -> Result<Engine, Failure> {
    let direction = if h2c { Direction::H2c } else { Direction::C2h };
    Ok(Engine::Memory(card.channel(direction, number, options)?))
}

pub(crate) fn fpga_channel_open(
    card: u64,
    direction: i32,
    number: u32,
    out: *mut u64,
) -> Result<(), Failure> {
    let options = ChannelOptions::default();
    open(card, direction, number, out, |card, h2c, number| open_memory(card, h2c, number, options))
}

pub(crate) fn fpga_channel_open_with(
    card: u64,
    direction: i32,
    number: u32,
    options: *const fpga_channel_options,
    size: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    open(card, direction, number, out, |card, h2c, number| {
        open_memory(card, h2c, number, read_options(options, size)?.options()?)
    })
}

pub(crate) fn fpga_channel_close(channel: u64) -> Result<(), Failure> {
    Ok(handle::close::<Channel>(channel)?)
}

pub(crate) fn fpga_channel_fd(channel: u64, fd: *mut i32) -> Result<(), Failure> {
    use std::os::fd::AsRawFd as _;
    set(fd, -1)?;
    handle::with(channel, |channel: &mut Channel| set(fd, channel.events()?.as_raw_fd()))
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

pub(crate) fn fpga_channel_arm(channel: u64) -> Result<(), Failure> {
    handle::with(channel, |channel: &mut Channel| {
        Ok(match &mut channel.engine {
            Engine::Memory(engine) => engine.arm(),
            Engine::H2cStream(engine) => engine.arm(),
            Engine::C2hStream(engine) => engine.arm(),
        }?)
    })
}

pub(crate) fn fpga_channel_disarm(channel: u64) -> Result<(), Failure> {
    handle::with(channel, |channel: &mut Channel| {
        Ok(match &mut channel.engine {
            Engine::Memory(engine) => engine.disarm(),
            Engine::H2cStream(engine) => engine.disarm(),
            Engine::C2hStream(engine) => engine.disarm(),
        }?)
    })
}

pub(crate) fn fpga_channel_take(channel: u64, count: *mut u64) -> Result<(), Failure> {
    set(count, 0)?;
    handle::with(channel, |channel: &mut Channel| set(count, channel.events()?.take()))
}
