//! Options of a subscriber.

use std::time::Duration;

use fpga_driver::CardRange;

/// Default time without a message, or without an answer, after which the other side counts as failed.
pub(crate) const DEFAULT_MAX_SILENCE: Duration = Duration::from_secs(20);

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
    /// Time limit for joining: the blocking connect and the conversation after it, together. Default 10 s.
    pub patience: Duration,
    /// Time without a message after which the publisher counts as failed. Periods in which this subscriber did not poll count as one
    /// heartbeat at most. Default 20 s: a machine may be too busy to run one of the two processes for several seconds.
    pub max_silence: Duration,
    /// Minimum number of missing heartbeats for that, whatever `max_silence` is: a publisher with a long period is silent between two
    /// heartbeats. Default 6.
    pub missed_heartbeats: u32,
    /// Number of consecutive refusals after which the publisher counts as failed (credits), or of consecutive failures after which this
    /// side ends with [`LocalError::Fault`](crate::LocalError::Fault) (transfers between host and card). Default 4.
    pub failures: u32,
}

impl Default for SubscriberOptions {
    fn default() -> Self {
        Self {
            slots: 8,
            memory: None,
            h2c: 0,
            c2h: None,
            patience: Duration::from_secs(10),
            max_silence: DEFAULT_MAX_SILENCE,
            missed_heartbeats: 6,
            failures: 4,
        }
    }
}
