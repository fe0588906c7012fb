//! Pacing of DMA to the rate of the described link (`link.rate: described`).
//!
//! Without it, data moves in zero time and an engine executes all its descriptors in one turn; a circular ring then completes in bursts of
//! 64. With it, an engine executes one unit at a time (a descriptor, or 64 KiB of a long one), and its direction of the link is busy for
//! the duration of the unit's packets.

use crate::description::{CardDescription, LinkRate};
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::Direction;

/// Bytes of a packet beside its payload: framing, sequence number, header with a 64-bit address, LCRC (PCIe 3.0, 2.2 and 3.5).
const OVERHEAD: u64 = 24;
/// AXI clock of the model, 250 MHz: the data path moves its width in each cycle.
const CLOCKS_PER_MICROSECOND: u64 = 250;
/// Picoseconds per nanosecond. Time is kept in picoseconds: 64 bytes take 4 ns on the widest link.
const PICOS: u64 = 1000;

/// Time at which the link becomes free, per direction.
#[derive(Debug)]
pub(crate) struct LinkPacer {
    /// Bytes per microsecond; `None`: no limit.
    rate: Option<u64>,
    ways: [DirectionPacer; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct DirectionPacer {
    /// Time at which the direction becomes free, in picoseconds.
    free: u64,
    /// A unit has waited for the direction: the next one begins when the link becomes free, even if that is noticed later.
    wanted: bool,
}

const fn place(direction: Direction) -> usize {
    match direction {
        Direction::C2h => 1,
        _ => 0,
    }
}

impl LinkPacer {
    pub(crate) fn new(description: &CardDescription) -> Self {
        let rate = match description.link.rate {
            LinkRate::Unlimited => None,
            LinkRate::Described => {
                let path = u64::from(description.xdma.data_width / 8) * CLOCKS_PER_MICROSECOND;
                Some(description.link.bytes_per_microsecond().min(path).max(1))
            }
        };
        Self { rate, ways: [DirectionPacer::default(); 2] }
    }

    pub(crate) fn reset(&mut self) {
        self.ways = [DirectionPacer::default(); 2];
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.rate.is_some()
    }

    /// Whether the next unit can begin. If not, the direction is marked as wanted.
    pub(crate) fn is_free(&mut self, direction: Direction, now: Nanos) -> bool {
        let Some(way) = self.ways.get_mut(place(direction)) else { return true };
        let free = way.free <= now.get().saturating_mul(PICOS);
        way.wanted |= !free;
        free
    }

    /// Marks the direction as unused: none of its engines has work, so the next unit begins when it is submitted.
    pub(crate) fn unused(&mut self, direction: Direction) {
        if let Some(way) = self.ways.get_mut(place(direction)) {
            way.wanted = false;
        }
    }

    /// Accounts for a unit of `bytes` in packets of at most `payload` bytes.
    pub(crate) fn moved(&mut self, direction: Direction, bytes: u64, payload: u64, now: Nanos) {
        let (Some(rate), Some(way)) = (self.rate, self.ways.get_mut(place(direction))) else { return };
        if bytes == 0 {
            // No data, for example a fetch of descriptors.
            return;
        }
        let on_the_link = bytes + bytes.div_ceil(payload.max(1)) * OVERHEAD;
        let took = on_the_link.saturating_mul(1000 * PICOS) / rate;
        let began = if way.wanted { way.free } else { way.free.max(now.get().saturating_mul(PICOS)) };
        let free = began.saturating_add(took);
        // The next unit could have begun by now, too.
        *way = DirectionPacer { free, wanted: way.wanted && free <= now.get().saturating_mul(PICOS) };
    }

    /// Earliest time at which a wanted direction becomes free.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let wanted = self.ways.iter().filter(|way| way.wanted);
        wanted.map(|way| Nanos::new(way.free.div_ceil(PICOS))).min()
    }
}
