//! What is simulated: one transfer over one path.

use fpga_core::Nanos;
use fpga_core::impair::{BitRate, Conditions, Impairments, Order, OrderError, Rate};
use fpga_core::receiver::{ReceiverConfig, ReceiverConfigError};
use fpga_core::sender::{ConfigError, Notify, SenderConfig};
use fpga_firmware::{Incarnation, NodeId};

/// The node that sends.
pub const SENDER: NodeId = NodeId::new(1);
/// The node that receives.
pub const RECEIVER: NodeId = NodeId::new(2);

/// One transfer from one node to another, and the path between them.
///
/// Rate, delay, order and conditions hold for both directions; each direction has random numbers of its own.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// Bytes of the transfer.
    pub length: u64,
    /// Rate of the link, in each direction. Default 100 Gbit/s.
    pub rate: BitRate,
    /// Time from one end to the other. Default 1 µs.
    pub delay: Nanos,
    /// Order of delivery. Default: in order.
    pub order: Order,
    /// What happens to data packets. Default: nothing.
    pub data: Conditions,
    /// What happens to all others. Default: nothing.
    pub control: Conditions,
    /// Seed of everything random.
    pub seed: u64,
    /// Who tells the receiving application. Default: its own node.
    pub notify: Notify,
    /// The sending side.
    pub sender: SenderConfig,
    /// The receiving side. Its packet size and mask bits are the sender's, whatever stands here.
    pub receiver: ReceiverConfig,
}

impl Scenario {
    /// A transfer of `length` bytes with the defaults above.
    #[must_use]
    pub fn new(length: u64) -> Self {
        Self {
            length,
            rate: BitRate::from_gbps(100),
            delay: Nanos::from_micros(1),
            order: Order::InOrder,
            data: Conditions::default(),
            control: Conditions::default(),
            seed: 0,
            notify: Notify::Receiver,
            sender: SenderConfig::default(),
            receiver: ReceiverConfig::new(RECEIVER, Incarnation::new(2)),
        }
    }

    /// Rate of the link.
    #[must_use]
    pub fn rate(mut self, rate: BitRate) -> Self {
        self.rate = rate;
        self
    }

    /// Time from one end to the other.
    #[must_use]
    pub fn delay(mut self, delay: Nanos) -> Self {
        self.delay = delay;
        self
    }

    /// Order of delivery.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What happens to data packets.
    #[must_use]
    pub fn data(mut self, conditions: Conditions) -> Self {
        self.data = conditions;
        self
    }

    /// What happens to acknowledgements, refusals and notices.
    #[must_use]
    pub fn control(mut self, conditions: Conditions) -> Self {
        self.control = conditions;
        self
    }

    /// Everything that a link does to frames, in one direction.
    pub(crate) fn impairments(&self) -> Impairments {
        let mut impairments = Impairments::both(self.data)
            .order(self.order.clone())
            .rate(Rate { rate: self.rate, queue: Nanos::MAX })
            .distance(self.delay);
        impairments.control = self.control;
        impairments
    }

    /// Seed of everything random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Who tells the receiving application.
    #[must_use]
    pub fn notify(mut self, notify: Notify) -> Self {
        self.notify = notify;
        self
    }

    /// The sending side.
    #[must_use]
    pub fn sender(mut self, config: SenderConfig) -> Self {
        self.sender = config;
        self
    }

    /// The receiving side.
    #[must_use]
    pub fn receiver(mut self, config: ReceiverConfig) -> Self {
        self.receiver = config;
        self
    }
}

/// A scenario that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Nothing to simulate.
    #[error("a transfer of no bytes sends nothing: give at least one")]
    Empty,
    /// Nothing would ever arrive.
    #[error("a link of 0 bit/s: give at least one")]
    NoRate,
    /// See [`OrderError`].
    #[error("delivery order: {0}")]
    Order(#[from] OrderError),
    /// See [`ConfigError`].
    #[error("sender: {0}")]
    Sender(#[from] ConfigError),
    /// See [`ReceiverConfigError`].
    #[error("receiver: {0}")]
    Receiver(#[from] ReceiverConfigError),
}
