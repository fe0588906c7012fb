//! One channel of one card, whatever its direction and run mode, so that a test is written once for all of them.

use core::fmt;

use fpga_card::CardDescription;
use fpga_driver::pci::SharedSlice;
use fpga_driver::registers::xdma::{SGDMA_COMMON_BASE, SgdmaCommonBlock};
use fpga_driver::sim::{SimNetwork, ThreadOptions};
use fpga_driver::{
    C2hChannel, Card, CardAddr, ChannelError, ChannelEvents, ChannelOptions, Completion, Direction,
    DmaBuffer, H2cChannel, MemoryHandle, Refused, RegisterRefused, RegisteredMemory, ResourceError, RunMode,
    ScatterGatherEntry, SubmitError, Ticket, TransferFailed, WaitOptions,
};

use crate::cards::{self, peek, poke, with_channels};

/// A channel of either direction.
#[derive(Debug)]
pub enum Channel {
    /// Host to card.
    H2c(H2cChannel),
    /// Card to host.
    C2h(C2hChannel),
}

/// Calls the method of the channel inside.
macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Channel {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The channel's.
                pub fn $name(&mut self, $($argument: $kind),*) -> $result {
                    match self {
                        Self::H2c(channel) => channel.$name($($argument),*),
                        Self::C2h(channel) => channel.$name($($argument),*),
                    }
                }
            )*
        }
    };
}

forward! {
    /// As the channel's.
    submit(buffer: DmaBuffer, card: CardAddr) -> Result<Ticket, Refused>;
    /// As the channel's.
    register_memory(area: RegisteredMemory) -> Result<MemoryHandle, RegisterRefused>;
    /// As the channel's.
    deregister_memory(memory: MemoryHandle) -> Result<RegisteredMemory, ChannelError>;
    /// As the channel's.
    submit_at(memory: MemoryHandle, offset: usize, length: usize, card: CardAddr) -> Result<Ticket, SubmitError>;
    /// As the channel's.
    submit_list(pieces: &[ScatterGatherEntry]) -> Result<Ticket, SubmitError>;
    /// As the channel's.
    poll() -> Result<usize, ChannelError>;
    /// As the channel's.
    next_completion() -> Option<Completion>;
    /// As the channel's.
    wait(ticket: Ticket, options: WaitOptions) -> Result<Completion, ChannelError>;
    /// As the channel's.
    wait_ended(ticket: Ticket, options: WaitOptions) -> Result<(), ChannelError>;
    /// As the channel's.
    cancel(ticket: Ticket) -> Result<bool, ChannelError>;
    /// As the channel's.
    abort() -> Result<usize, ChannelError>;
    /// As the channel's.
    arm() -> Result<(), ChannelError>;
    /// As the channel's.
    disarm() -> Result<(), ChannelError>;
    /// As the channel's.
    events() -> Result<ChannelEvents, ChannelError>;
}

impl Channel {
    /// As the channel's.
    #[must_use]
    pub fn memory(&self, memory: MemoryHandle) -> Option<SharedSlice<'_>> {
        match self {
            Self::H2c(channel) => channel.memory(memory),
            Self::C2h(channel) => channel.memory(memory),
        }
    }

    /// As the channel's.
    #[must_use]
    pub fn ended(&self) -> u64 {
        match self {
            Self::H2c(channel) => channel.ended(),
            Self::C2h(channel) => channel.ended(),
        }
    }

    /// As the channel's.
    #[must_use]
    pub fn has_ended(&self, ticket: Ticket) -> bool {
        match self {
            Self::H2c(channel) => channel.has_ended(ticket),
            Self::C2h(channel) => channel.has_ended(ticket),
        }
    }

    /// As the channel's.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        match self {
            Self::H2c(channel) => channel.in_flight(),
            Self::C2h(channel) => channel.in_flight(),
        }
    }

    /// Lets time pass. A card with a thread may need this processor to get on.
    pub fn relax(&self) {
        std::thread::yield_now();
        match self {
            Self::H2c(channel) => channel.relax(),
            Self::C2h(channel) => channel.relax(),
        }
    }

    /// `write_with` or `read_with`.
    ///
    /// # Errors
    /// The channel's.
    pub fn transfer(
        &mut self,
        buffer: DmaBuffer,
        card: CardAddr,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed> {
        match self {
            Self::H2c(channel) => channel.write_with(buffer, card, options),
            Self::C2h(channel) => channel.read_with(buffer, card, options),
        }
    }
}

/// Direction, run mode, and where the card lives.
#[derive(Clone, Copy)]
pub struct TestSetup {
    /// Which way the data goes.
    pub direction: Direction,
    /// How the ring is kept running.
    pub mode: RunMode,
    /// The card works in a thread of its own, in real time.
    pub threaded: bool,
}

impl fmt::Debug for TestSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threaded = if self.threaded { " threaded" } else { "" };
        write!(f, "{:?} {:?}{threaded}", self.direction, self.mode)
    }
}

/// Both directions in both run modes.
const fn setups(threaded: bool) -> [TestSetup; 4] {
    [
        TestSetup { direction: Direction::H2c, mode: RunMode::Batch, threaded },
        TestSetup { direction: Direction::C2h, mode: RunMode::Batch, threaded },
        TestSetup { direction: Direction::H2c, mode: RunMode::Credit, threaded },
        TestSetup { direction: Direction::C2h, mode: RunMode::Credit, threaded },
    ]
}

/// Both directions in both run modes, with a card that works when it is told to: every run is the same.
pub const SETUPS: [TestSetup; 4] = setups(false);

/// The same with a card that works by itself: no two runs are the same.
pub const THREADED: [TestSetup; 4] = setups(true);

impl TestSetup {
    /// Whether the data goes to the card.
    #[must_use]
    pub fn to_card(self) -> bool {
        matches!(self.direction, Direction::H2c)
    }

    /// A network with this card alone.
    #[must_use]
    pub fn network(self, description: CardDescription) -> SimNetwork {
        let builder = SimNetwork::builder().card(description);
        let builder = if self.threaded { builder.threaded(ThreadOptions::default()) } else { builder };
        builder.build().expect("a card that can be built")
    }

    /// Default options in this run mode.
    #[must_use]
    pub fn options(self) -> ChannelOptions {
        ChannelOptions::default().run_mode(self.mode)
    }

    /// Takes channel `number`.
    ///
    /// # Errors
    /// The card's.
    pub fn take(self, card: &Card, number: u8, options: ChannelOptions) -> Result<Channel, ResourceError> {
        let options = options.run_mode(self.mode);
        if self.to_card() {
            card.h2c_with(number, options).map(Channel::H2c)
        } else {
            card.c2h_with(number, options).map(Channel::C2h)
        }
    }

    /// Puts `data` where a transfer between `memory` and `card` takes it from.
    pub fn put(
        self,
        network: &SimNetwork,
        memory: SharedSlice<'_>,
        offset: usize,
        card: CardAddr,
        data: &[u8],
    ) {
        if self.to_card() {
            memory.write(offset, data).expect("inside the memory");
        } else {
            poke(network, 0, card, data);
        }
    }

    /// What lies where a transfer between `memory` and `card` brings it.
    #[must_use]
    pub fn arrived(
        self,
        network: &SimNetwork,
        memory: SharedSlice<'_>,
        offset: usize,
        card: CardAddr,
        length: usize,
    ) -> Vec<u8> {
        if self.to_card() {
            return peek(network, 0, card, length);
        }
        let mut bytes = vec![0; length];
        memory.read(offset, &mut bytes).expect("inside the memory");
        bytes
    }

    /// A buffer for a transfer of `data` to or from `at`, which is where the data lies if it comes from the card.
    #[must_use]
    pub fn buffer(self, network: &SimNetwork, card: &Card, at: CardAddr, data: &[u8]) -> DmaBuffer {
        if self.to_card() {
            return card.buffer_from(data).expect("DMA memory");
        }
        poke(network, 0, at, data);
        let mut buffer = card.buffer(data.len()).expect("DMA memory");
        buffer.fill(0xEE);
        buffer
    }

    /// Whether `data` has gone its way between `buffer` and `at`.
    #[must_use]
    pub fn moved(self, network: &SimNetwork, buffer: &DmaBuffer, at: CardAddr, data: &[u8]) -> bool {
        if self.to_card() { peek(network, 0, at, data.len()) == data } else { buffer.to_vec() == data }
    }
}

/// A card with one channel taken.
#[derive(Debug)]
pub struct Rig {
    /// What the channel does.
    pub setup: TestSetup,
    /// Channel 0.
    pub channel: Channel,
    /// The card.
    pub card: Card,
    /// The network with that card alone.
    pub network: SimNetwork,
}

impl Rig {
    /// A card with two channels each way.
    #[must_use]
    pub fn new(way: TestSetup) -> Self {
        Self::with(way, way.options())
    }

    /// The same, with options; the run mode is `way`'s.
    #[must_use]
    pub fn with(way: TestSetup, options: ChannelOptions) -> Self {
        let network = way.network(with_channels(2, 2));
        let card = cards::open(&network);
        Self::on(network, card, way, options)
    }

    /// On a card of the caller's.
    #[must_use]
    pub fn on(network: SimNetwork, card: Card, way: TestSetup, options: ChannelOptions) -> Self {
        let channel = way.take(&card, 0, options).expect("a channel");
        Self { setup: way, channel, card, network }
    }

    /// With interrupts enabled.
    #[must_use]
    pub fn with_interrupts(way: TestSetup) -> Self {
        let network = way.network(with_channels(2, 2));
        let card = cards::open(&network);
        card.enable_interrupts().expect("interrupts");
        Self::on(network, card, way, way.options())
    }

    /// Attaches `length` bytes.
    pub fn register_memory(&mut self, length: usize) -> MemoryHandle {
        let area = self.card.registered_memory(length).expect("DMA memory");
        self.channel.register_memory(area).expect("attached")
    }

    /// The bytes of attached memory.
    #[must_use]
    pub fn memory(&self, memory: MemoryHandle) -> SharedSlice<'_> {
        self.channel.memory(memory).expect("attached")
    }

    /// Puts `data` where a transfer between `memory` and `card` takes it from.
    pub fn put(&self, memory: MemoryHandle, offset: usize, card: CardAddr, data: &[u8]) {
        self.setup.put(&self.network, self.memory(memory), offset, card, data);
    }

    /// What lies where a transfer between `memory` and `card` brings it.
    #[must_use]
    pub fn arrived(&self, memory: MemoryHandle, offset: usize, card: CardAddr, length: usize) -> Vec<u8> {
        self.setup.arrived(&self.network, self.memory(memory), offset, card, length)
    }

    /// A buffer for a transfer of `data` to or from `at`.
    #[must_use]
    pub fn buffer(&self, at: CardAddr, data: &[u8]) -> DmaBuffer {
        self.setup.buffer(&self.network, &self.card, at, data)
    }

    /// Whether `data` has gone its way between `buffer` and `at`.
    #[must_use]
    pub fn moved(&self, buffer: &DmaBuffer, at: CardAddr, data: &[u8]) -> bool {
        self.setup.moved(&self.network, buffer, at, data)
    }

    /// Lets the card do `count` units of work; one with a thread has done some already, and goes on.
    pub fn step(&self, count: usize) {
        for _ in 0..count {
            self.network.step();
        }
    }

    /// Polls until nothing is in flight; the completions, in order.
    pub fn finish(&mut self) -> Vec<Completion> {
        let began = self.network.now();
        while self.channel.in_flight() > 0 {
            self.channel.poll().expect("the channel works");
            self.channel.relax();
            let waited = self.network.now().get().saturating_sub(began.get());
            assert!(
                u128::from(waited) < crate::TIMEOUT.as_nanos(),
                "{:?}: {} transfers do not end",
                self.setup,
                self.channel.in_flight()
            );
        }
        self.completions()
    }

    /// What has ended and was not taken.
    pub fn completions(&mut self) -> Vec<Completion> {
        core::iter::from_fn(|| self.channel.next_completion()).collect()
    }

    /// A transfer through the channel arrives.
    pub fn assert_works(&mut self, seed: u64) {
        let data = crate::bytes(seed, 20_001);
        let at = CardAddr::new(0xC_0001);
        let buffer = self.buffer(at, &data);
        let buffer = match self.channel.transfer(buffer, at, WaitOptions::default()) {
            Ok(buffer) => buffer,
            Err(failed) => panic!("{:?}: {failed}", self.setup),
        };
        assert!(self.moved(&buffer, at, &data), "{:?}", self.setup);
        // It works the same way as before: an endless run is still one.
        let held = SgdmaCommonBlock::CREDIT_MODE.address(SGDMA_COMMON_BASE);
        let word = cards::register(&self.network, 0, cards::DMA_BAR, held);
        let bit = if self.setup.to_card() { 0 } else { 16 };
        assert_eq!(word >> bit & 1 == 1, matches!(self.setup.mode, RunMode::Credit));
    }
}
