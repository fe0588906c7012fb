//! One channel of one card in any direction and run mode, so that a test is written once for all of them.

use core::fmt;

use fpga_card::CardDescription;
use fpga_driver::{
    Card, CardAddr, ChannelOptions, Completion, Direction, DmaBuffer, Error, MemoryHandle, ResourceError,
    RunMode, WaitOptions,
};
use fpga_pci::SharedSlice;
use fpga_registers::xdma::{SGDMA_COMMON_BASE, SgdmaCommonBlock};
use fpga_sim::{SimNetwork, ThreadOptions};

use crate::cards::{self, peek, poke, with_channels};

pub use fpga_driver::Channel;

/// Lets time pass. A card with its own thread may need this processor to make progress.
pub fn relax(channel: &Channel) {
    std::thread::yield_now();
    channel.relax();
}

/// Direction, run mode, and whether the card runs in its own thread.
#[derive(Clone, Copy)]
pub struct TestSetup {
    /// Direction of the data.
    pub direction: Direction,
    /// Run mode of the ring.
    pub mode: RunMode,
    /// The card runs in its own thread, in real time.
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

/// Both directions in both run modes, with a card that runs only when it is stepped: every run is the same.
pub const SETUPS: [TestSetup; 4] = setups(false);

/// Both directions in both run modes, with a card that runs in its own thread: no two runs are the same.
pub const THREADED: [TestSetup; 4] = setups(true);

impl TestSetup {
    /// Whether the data goes to the card.
    #[must_use]
    pub fn to_card(self) -> bool {
        matches!(self.direction, Direction::H2c)
    }

    /// A network with this card only.
    #[must_use]
    pub fn network(self, description: CardDescription) -> SimNetwork {
        let builder = SimNetwork::builder().card(description);
        let builder = if self.threaded { builder.threaded(ThreadOptions::default()) } else { builder };
        builder.build().expect("a valid card description")
    }

    /// Default channel options in this run mode.
    #[must_use]
    pub fn options(self) -> ChannelOptions {
        ChannelOptions::default().run_mode(self.mode)
    }

    /// Takes channel `number` of this direction.
    ///
    /// # Errors
    /// The card's errors.
    pub fn take(
        self,
        card: &Card,
        number: u8,
        options: ChannelOptions,
    ) -> Result<Channel, Error<ResourceError>> {
        card.channel(self.direction, number, options.run_mode(self.mode))
    }

    /// Puts `data` at the source of a transfer between `memory` and `card`.
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

    /// Reads the destination of a transfer between `memory` and `card`.
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

    /// A buffer for a transfer of `data` to or from `at`. For a card-to-host transfer the data is written to `at`.
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

    /// Whether `data` is at the destination of a transfer between `buffer` and `at`.
    #[must_use]
    pub fn moved(self, network: &SimNetwork, buffer: &DmaBuffer, at: CardAddr, data: &[u8]) -> bool {
        if self.to_card() { peek(network, 0, at, data.len()) == data } else { buffer.to_vec() == data }
    }
}

/// A card with one channel taken.
#[derive(Debug)]
pub struct TestBed {
    /// Direction and run mode of the channel.
    pub setup: TestSetup,
    /// Channel 0.
    pub channel: Channel,
    /// The card.
    pub card: Card,
    /// The network with only that card.
    pub network: SimNetwork,
}

impl TestBed {
    /// A card with two channels in each direction.
    #[must_use]
    pub fn new(setup: TestSetup) -> Self {
        Self::with(setup, setup.options())
    }

    /// A card with two channels in each direction, and channel options; the run mode is that of `way`.
    #[must_use]
    pub fn with(setup: TestSetup, options: ChannelOptions) -> Self {
        let network = setup.network(with_channels(2, 2));
        let card = cards::open(&network);
        Self::on(network, card, setup, options)
    }

    /// A channel of the caller's card.
    #[must_use]
    pub fn on(network: SimNetwork, card: Card, setup: TestSetup, options: ChannelOptions) -> Self {
        let channel = setup.take(&card, 0, options).expect("a channel");
        Self { setup, channel, card, network }
    }

    /// A card with two channels in each direction and interrupts enabled.
    #[must_use]
    pub fn with_interrupts(setup: TestSetup) -> Self {
        let network = setup.network(with_channels(2, 2));
        let card = cards::open(&network);
        card.enable_interrupts().expect("interrupts");
        Self::on(network, card, setup, setup.options())
    }

    /// Registers `length` bytes of memory.
    pub fn register_memory(&mut self, length: usize) -> MemoryHandle {
        let area = self.card.registered_memory(length).expect("DMA memory");
        self.channel.register_memory(area).expect("registration succeeds")
    }

    /// The bytes of registered memory.
    #[must_use]
    pub fn memory(&self, memory: MemoryHandle) -> SharedSlice<'_> {
        self.channel.memory(memory).expect("registered memory")
    }

    /// Puts `data` at the source of a transfer between `memory` and `card`.
    pub fn put(&self, memory: MemoryHandle, offset: usize, card: CardAddr, data: &[u8]) {
        self.setup.put(&self.network, self.memory(memory), offset, card, data);
    }

    /// Reads the destination of a transfer between `memory` and `card`.
    #[must_use]
    pub fn arrived(&self, memory: MemoryHandle, offset: usize, card: CardAddr, length: usize) -> Vec<u8> {
        self.setup.arrived(&self.network, self.memory(memory), offset, card, length)
    }

    /// A buffer for a transfer of `data` to or from `at`.
    #[must_use]
    pub fn buffer(&self, at: CardAddr, data: &[u8]) -> DmaBuffer {
        self.setup.buffer(&self.network, &self.card, at, data)
    }

    /// Whether `data` is at the destination of a transfer between `buffer` and `at`.
    #[must_use]
    pub fn moved(&self, buffer: &DmaBuffer, at: CardAddr, data: &[u8]) -> bool {
        self.setup.moved(&self.network, buffer, at, data)
    }

    /// Lets the card do `count` units of work. A card with its own thread may have done some already, and continues.
    pub fn step(&self, count: usize) {
        for _ in 0..count {
            self.network.step();
        }
    }

    /// Polls until nothing is in flight. Returns the completions in order.
    pub fn finish(&mut self) -> Vec<Completion> {
        let began = self.network.now();
        while self.channel.in_flight() > 0 {
            self.channel.poll().expect("polling succeeds");
            relax(&self.channel);
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

    /// Completions that were not collected yet.
    pub fn completions(&mut self) -> Vec<Completion> {
        core::iter::from_fn(|| self.channel.next_completion()).collect()
    }

    /// Asserts that a transfer through the channel arrives.
    pub fn assert_works(&mut self, seed: u64) {
        let data = crate::bytes(seed, 20_001);
        let at = CardAddr::new(0xC_0001);
        let buffer = self.buffer(at, &data);
        let buffer = match self.channel.transfer(buffer, at, WaitOptions::default()) {
            Ok(buffer) => buffer,
            Err(failed) => panic!("{:?}: {failed}", self.setup),
        };
        assert!(self.moved(&buffer, at, &data), "{:?}", self.setup);
        // The run mode is unchanged: a ring in credit mode is still in credit mode.
        let held = SgdmaCommonBlock::CREDIT_MODE.address(SGDMA_COMMON_BASE);
        let word = cards::register(&self.network, 0, cards::DMA_BAR, held);
        let bit = if self.setup.to_card() { 0 } else { 16 };
        assert_eq!(word >> bit & 1 == 1, matches!(self.setup.mode, RunMode::Credit));
    }
}
