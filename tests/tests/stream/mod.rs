//! AXI4-Stream channels through the whole stack: single packets, waits, invalid data, and the ends of a stream. The conformance cases
//! `stream.*`, `fault.stream_*` and `cost.stream` test the rest. In every case a packet arrives complete or is reported as lost, and memory
//! that the card may still reach is never reused.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::panic, reason = "a panic is the failure report")]

mod drop_and_abort;
mod faults;
mod single;
mod waits;

use core::time::Duration;

use fpga_driver::{
    C2hStream, Card, ChannelOptions, H2cStream, MemoryHandle, RunMode, WaitOptions, stream::C2hStreamOptions,
};
use fpga_protocol::Nanos;
use fpga_sim::{SimNetwork, ThreadOptions};
use fpga_tests::bytes;
use fpga_tests::cards::{self, described};

/// Card sections: two stream loopbacks. Without data the engine closes a descriptor after the write flush timeout; dropped buffers are
/// returned.
const LOOPS: &str =
    "xdma: { stream: true, h2c_channels: 2, c2h_channels: 2 }\nstream:\n  flush_empty: true\n";
/// Card sections: the same with the behaviour that PG195 guarantees: an engine without data stays busy.
const STRICT: &str =
    "xdma: { stream: true, h2c_channels: 2, c2h_channels: 2 }\nstream:\n  stop_drops_empty: false\n";

/// Both run modes of a ring.
const MODES: [RunMode; 2] = [RunMode::Credit, RunMode::Batch];

/// A card, and both ends of its first loopback. Field order is drop order.
struct StreamLoopback {
    tx: H2cStream,
    rx: C2hStream,
    card: Card,
    network: SimNetwork,
}

/// Description, run mode, and thread of a test's card.
#[derive(Clone, Copy, Debug)]
struct Setup {
    sections: &'static str,
    mode: RunMode,
    threaded: bool,
}

impl Setup {
    const fn new(mode: RunMode) -> Self {
        Self { sections: LOOPS, mode, threaded: false }
    }

    const fn strict() -> Self {
        Self { sections: STRICT, ..Self::new(RunMode::Credit) }
    }

    fn network(self) -> SimNetwork {
        let builder = SimNetwork::builder().card(described(self.sections));
        let builder = if self.threaded {
            builder.threaded(ThreadOptions::default())
        } else {
            // Virtual time advances fast while the card is idle: some tests wait for seconds.
            builder.time(Nanos::new(100), Nanos::from_micros(10))
        };
        builder.build().unwrap()
    }

    fn open(self, buffers: u32, size: usize) -> StreamLoopback {
        let network = self.network();
        let card = cards::open(&network);
        self.on(network, card, buffers, size)
    }

    fn on(self, network: SimNetwork, card: Card, buffers: u32, size: usize) -> StreamLoopback {
        let options = C2hStreamOptions::default().buffers(buffers).buffer_size(size).run_mode(self.mode);
        let rx = card.c2h_stream_with(0, options).unwrap();
        let tx = card.h2c_stream_with(0, ChannelOptions::default().run_mode(self.mode)).unwrap();
        StreamLoopback { tx, rx, card, network }
    }
}

/// Every mode, with a card that runs only when it is stepped, and with one that runs in its own thread.
fn setups() -> impl Iterator<Item = Setup> {
    [false, true]
        .into_iter()
        .flat_map(|threaded| MODES.into_iter().map(move |mode| Setup { threaded, ..Setup::new(mode) }))
}

impl StreamLoopback {
    fn register_memory(&mut self, content: &[u8]) -> MemoryHandle {
        let area = self.card.registered_memory(content.len()).unwrap();
        area.memory().write(0, content).unwrap();
        self.tx.register_memory(area).unwrap()
    }

    fn send(&mut self, data: &[u8]) {
        self.tx.submit(self.card.buffer_from(data).unwrap()).unwrap();
        self.tx.poll().unwrap();
    }

    /// Waits until the card has received everything that was sent.
    fn sent(&mut self) {
        let watchdog = ProgressWatchdog::new(&self.network);
        while self.tx.in_flight() > 0 {
            self.tx.poll().unwrap();
            watchdog.relax(&self.rx);
        }
    }

    /// Next packet. Polls the sender meanwhile.
    fn receive(&mut self) -> Vec<u8> {
        let watchdog = ProgressWatchdog::new(&self.network);
        loop {
            self.tx.poll().unwrap();
            if let Some(packet) = self.rx.next_packet().unwrap() {
                return packet.to_vec();
            }
            watchdog.relax(&self.rx);
        }
    }

    /// Asserts that a packet passes the loopback.
    fn assert_works(&mut self, seed: u64) {
        let data = bytes(seed, 3001);
        self.send(&data);
        assert!(self.receive() == data);
    }

    /// Lets the card work until it is idle.
    fn settle(&mut self) {
        self.network.step_until_idle();
    }
}

/// Fails a test that makes no progress.
struct ProgressWatchdog<'a> {
    network: &'a SimNetwork,
    until: u64,
}

impl<'a> ProgressWatchdog<'a> {
    fn new(network: &'a SimNetwork) -> Self {
        Self { network, until: network.now().get() + 20_000_000_000 }
    }

    fn relax(&self, rx: &C2hStream) {
        // A card with its own thread may need this processor to make progress.
        std::thread::yield_now();
        rx.relax();
        assert!(self.network.now().get() < self.until, "no packet within the timeout: {:?}", rx.statistics());
    }
}

fn within(time: Duration) -> WaitOptions {
    WaitOptions::default().timeout(time)
}
