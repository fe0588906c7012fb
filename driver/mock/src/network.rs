//! The network between the cards: lossless, in order or not.

use fpga_card::Card;
use fpga_core::impair::{self, Order, OrderError};
use fpga_core::time::Nanos;

/// Frames on the wire at once; beyond that cards are held back.
const CAPACITY: usize = 4096;
/// How long a frame waits for others to be shuffled with.
const PATIENCE: Nanos = Nanos::from_micros(20);

/// In which order frames are delivered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeliveryOrder {
    /// As they were sent.
    InOrder,
    /// At random among the frames on the wire, once there are `depth` of them or nothing else is left to do.
    Random {
        /// Seed: the same one gives the same order.
        seed: u64,
        /// Frames that are shuffled with each other, 1 to 4096.
        depth: usize,
    },
    /// A permutation, applied block by block: of the next n frames the one at position `script[0]` first, and so on.
    Script(Vec<usize>),
}

/// A frame and the card whose buffer it is.
type Sent = (usize, Vec<u8>);

/// Frames on their way.
#[derive(Debug)]
pub(crate) struct Network {
    path: impair::Network<Sent>,
    pub(crate) undeliverable: u64,
}

impl Network {
    pub(crate) fn new(order: &DeliveryOrder) -> Result<Self, OrderError> {
        let (order, seed) = match order {
            DeliveryOrder::InOrder => (Order::InOrder, 0),
            DeliveryOrder::Random { seed, depth } => {
                (Order::Random { depth: *depth, patience: PATIENCE }, *seed)
            }
            DeliveryOrder::Script(script) => (Order::Script(script.clone()), 0),
        };
        Ok(Self { path: impair::Network::new(order, CAPACITY, seed)?, undeliverable: 0 })
    }

    /// Takes what card `sender` has to send, as far as there is room.
    pub(crate) fn fill(&mut self, sender: usize, card: &mut Card, now: Nanos) {
        while self.path.len() < CAPACITY {
            let Some(frame) = card.take_frame() else { return };
            if let Err((_, frame)) = self.path.offer(now, (sender, frame)) {
                // Excluded by the check above.
                card.recycle_frame(frame);
                self.undeliverable += 1;
            }
        }
    }

    /// The next frame that is due.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Sent> {
        self.path.poll(now)
    }

    /// Any frame at all, for when nothing else is left to do.
    pub(crate) fn next_at_rest(&mut self) -> Option<Sent> {
        self.path.poll_any()
    }
}
