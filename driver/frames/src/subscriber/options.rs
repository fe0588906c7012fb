//! Options of a subscriber.

use std::time::Duration;

use fpga_driver::CardRange;

/// Options for joining as a [`Subscriber`](super::Subscriber).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SubscriberOptions {
    /// Maximum number of frames that wait or are being read: a power of two. The publisher skips a subscriber without a free slot. Default
    /// 8.
    pub slots: u32,
    /// Card memory to use; `None`: all memory that the endpoint does not use.
    pub memory: Option<CardRange>,
    /// H2C channel for the credit to the card; must not be the endpoint's. Default 0.
    pub h2c: u8,
    /// C2H channel for frames from the card; `None`: the first that the endpoint does not use.
    pub c2h: Option<u8>,
    /// Time limit for joining: the blocking connect and the conversation after it, together. Default 2 s.
    pub patience: Duration,
    /// Number of missing heartbeats after which the publisher counts as failed. Default 6.
    pub missed_heartbeats: u32,
    /// Number of consecutive failures after which the publisher counts as failed (credits), or this side ends with
    /// [`LocalError::Fault`](crate::LocalError::Fault) (transfers between host and card). Default 4.
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
