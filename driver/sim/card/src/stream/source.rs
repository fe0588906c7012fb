//! Traffic source: packets of seeded lengths and contents, with gaps and a rate.

use super::description::SourceDescription;
use super::fifo::Fifo;
use fpga_protocol::time::Nanos;

/// Maximum number of bytes that the source writes into its port's FIFO at a time.
const CHUNK: usize = 4096;

impl SourceDescription {
    /// Returns packet `number` of C2H channel `channel`, as the source generates it.
    #[must_use]
    pub fn packet(&self, channel: u8, number: u64) -> Vec<u8> {
        let mut generator = Packet::new(self, channel, number);
        let mut bytes = vec![0; usize::try_from(generator.length()).unwrap_or(0)];
        generator.fill(&mut bytes);
        bytes
    }
}

/// Generator of one packet. (SplitMix64: any seed works, and its state is one word.)
#[derive(Debug)]
pub(super) struct Packet {
    state: u64,
    length: u64,
    /// Unused bytes of the current word.
    word: u64,
    left: u32,
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

impl Packet {
    pub(super) fn new(description: &SourceDescription, channel: u8, number: u64) -> Self {
        let mut state = description.seed;
        state = next(&mut state) ^ u64::from(channel);
        state = next(&mut state) ^ number;
        let span = u64::from(description.longest.saturating_sub(description.shortest)) + 1;
        let length = u64::from(description.shortest) + next(&mut state) % span;
        Self { state, length, word: 0, left: 0 }
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn fill(&mut self, into: &mut [u8]) {
        for byte in into {
            if self.left == 0 {
                (self.word, self.left) = (next(&mut self.state), 8);
            }
            [*byte, ..] = self.word.to_le_bytes();
            self.word >>= 8;
            self.left -= 1;
        }
    }
}

/// Generator of the packets of one C2H channel.
#[derive(Debug)]
pub(super) struct Source {
    description: SourceDescription,
    channel: u8,
    packet: Packet,
    /// Number of the current packet, and its remaining bytes.
    number: u64,
    left: u64,
    /// Earliest time of the next data.
    ready_at: Nanos,
}

impl Source {
    pub(super) fn new(description: &SourceDescription, channel: u8) -> Self {
        let packet = Packet::new(description, channel, 0);
        Self {
            left: packet.length(),
            packet,
            description: description.clone(),
            channel,
            number: 0,
            ready_at: Nanos::new(description.gap_ns),
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(&self.description, self.channel);
    }

    /// Writes the data that is due at time `now` into `fifo`, as far as it fits.
    pub(super) fn run(&mut self, fifo: &mut Fifo, now: Nanos) {
        while self.ready_at <= now && self.left > 0 && !self.has_ended() {
            let most = usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK);
            let into = fifo.vacant(most);
            let count = into.len();
            if count == 0 {
                return;
            }
            self.packet.fill(into);
            fifo.filled(count);
            if !self.description.endless_packet {
                self.left -= count as u64;
            }
            // The rate does not accumulate: time without polls is not made up for.
            let mut pause = 0;
            if self.description.bytes_per_us > 0 {
                pause = (count as u64).saturating_mul(1000) / u64::from(self.description.bytes_per_us);
            }
            if self.left == 0 {
                fifo.end_packet();
                pause = pause.saturating_add(self.description.gap_ns);
                self.number += 1;
                self.packet = Packet::new(&self.description, self.channel, self.number);
                self.left = self.packet.length();
            }
            if pause > 0 {
                self.ready_at = now.saturating_add(Nanos::new(pause));
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.description.packets.is_some_and(|packets| self.number >= packets)
    }

    /// Time at which the next data is due.
    pub(super) fn next(&self) -> Option<Nanos> {
        (!self.has_ended()).then_some(self.ready_at)
    }
}
