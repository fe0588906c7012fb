//! Options of a publisher.

use std::time::Duration;

use fpga_driver::CardRange;
use fpga_rdma::SendOptions;

use crate::subscriber::DEFAULT_MAX_SILENCE;
use fpga_frames_wire::Sequence;

/// Maximum number of subscribers of one publisher: the number of bits of a `SubscriberSet`.
pub const MAX_SUBSCRIBERS: u32 = 64;

/// Options for opening a [`Publisher`](super::Publisher).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PublisherOptions {
    /// Maximum length of a frame's data in bytes. Default 1 MiB.
    pub max_data_length: u64,
    /// Maximum length of the value in front of the data in bytes. Default 64.
    pub max_value_length: u32,
    /// Slots of the pool: maximum number of frames that are being filled or are in flight. With several subscribers, transfers to one of
    /// them hold at most half of the slots, and it misses further frames. Default 16.
    pub slots: u32,
    /// Maximum number of additional frames in ordinary memory, used when all slots are in flight. They are copied when a slot is free.
    /// At most 65536. Default 8.
    pub heap_slots: u32,
    /// Maximum number of subscribers, up to [`MAX_SUBSCRIBERS`]; each one uses a memory window of the card. Default 8.
    pub subscribers: u32,
    /// Maximum time between two transfers to a subscriber. Default 500 ms.
    pub heartbeat: Duration,
    /// Time for which transfers to a subscriber may fail, without one that arrives, before the subscriber is dropped; one whose card refuses
    /// them is dropped at once. Default 20 s: a machine may be too busy to run a subscriber with a simulated card for several seconds.
    pub max_silence: Duration,
    /// Minimum number of consecutive failures for that (transfers to a subscriber), and number of those after which the publisher ends with
    /// [`LocalError::Fault`](crate::LocalError::Fault) (credits or statuses between host and card). Default 4.
    pub failures: u32,
    /// Sequence number of the first frame. Default 0.
    pub first_sequence: Sequence,
    /// Position of every subscriber's first frame (see [`Credits`](crate::Credits)). Default 0.
    pub first_position: u32,
    /// Number before every subscriber's first status; status numbers are counted modulo 2^32. Default 0.
    pub first_status: u32,
    /// Card memory to use; `None`: all memory that the endpoint does not use.
    pub memory: Option<CardRange>,
    /// H2C channel for frames to the card; must not be the endpoint's. Default 0.
    pub h2c: u8,
    /// C2H channel for credits from the card; `None`: the first that the endpoint does not use.
    pub c2h: Option<u8>,
    /// Send options of frames: priority, and time limit of a transfer.
    pub send: SendOptions,
    /// Maximum number of simultaneous conversations with joining nodes. Default 16.
    pub conversations: usize,
    /// Time limit of such a conversation. Default 10 s.
    pub patience: Duration,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self {
            max_data_length: 1 << 20,
            max_value_length: 64,
            slots: 16,
            heap_slots: 8,
            subscribers: 8,
            heartbeat: Duration::from_millis(500),
            max_silence: DEFAULT_MAX_SILENCE,
            failures: 4,
            first_sequence: Sequence::new(0),
            first_position: 0,
            first_status: 0,
            memory: None,
            h2c: 0,
            c2h: None,
            send: SendOptions::default(),
            conversations: 16,
            patience: Duration::from_secs(10),
        }
    }
}
