//! How a subscriber joins.

use std::time::Duration;

use fpga_driver::CardRange;

/// How to become a [`Subscriber`](super::Subscriber).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SubscriberOptions {
    /// Frames that may wait or be read at once: a power of two. The publisher skips who has no room. Default 8.
    pub slots: u32,
    /// Card memory to use; `None`: all that the endpoint leaves.
    pub memory: Option<CardRange>,
    /// H2C channel by which the credit reaches the card; not the endpoint's. Default 0.
    pub h2c: u8,
    /// C2H channel by which frames leave it; `None`: the first that the endpoint does not use.
    pub c2h: Option<u8>,
    /// How long becoming a subscriber may take: connecting, which is waited for, and the conversation after it, together. Default 2 s.
    pub patience: Duration,
    /// Heartbeats of the publisher that may be missing before it is taken for dead. Default 6.
    pub missed_heartbeats: u32,
    /// How often one after the other: credits fail, and the publisher is taken for dead; something is not moved between host and card, and
    /// this side ends with [`SubscriberError::Fault`](crate::SubscriberError::Fault). Default 4.
    pub failures: u32,
}

impl Default for SubscriberOptions {
    fn default() -> Self {
        Self {
            slots: 8,
            memory: None,
            h2c: 0,
            c2h: None,
            patience: Duration::from_secs(2),
            missed_heartbeats: 6,
            failures: 4,
        }
    }
}
