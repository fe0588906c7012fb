//! How a publisher is opened.

use std::time::Duration;

use fpga_driver::CardRange;
use fpga_driver::endpoint::SendOptions;

use crate::sequence::Sequence;

/// Subscribers that one publisher can have: as many as a set of them has bits.
pub const MAX_SUBSCRIBERS: u32 = 64;

/// How to open a [`Publisher`](super::Publisher).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PublisherOptions {
    /// Bytes of data that a frame holds at most. Default 1 MiB.
    pub max_data_length: u64,
    /// Bytes of the value in front of the data at most. Default 64.
    pub max_value_length: u32,
    /// Slots of the pool: frames that are being filled or are on their way at once. As long as there are several subscribers, transfers
    /// to one of them hold half of the slots at most, and it misses what comes beyond that. Default 16.
    pub slots: u32,
    /// Frames that may be filled besides, in ordinary memory, when all slots are on their way. They are copied when a slot is free. Default
    /// 8.
    pub heap_slots: u32,
    /// Subscribers at most, up to [`MAX_SUBSCRIBERS`]; each takes a memory window of the card. Default 8.
    pub subscribers: u32,
    /// Every subscriber hears something at least so often. Default 500 ms.
    pub heartbeat: Duration,
    /// How often one after the other: transfers to a subscriber fail, and it is dropped; credits or statuses are not moved between host and
    /// card, and the publisher ends with [`PublisherError::Fault`](crate::PublisherError::Fault). Default 4.
    pub failures: u32,
    /// Number of the first frame. Default 0.
    pub first_sequence: Sequence,
    /// Position of every subscriber's first frame (see [`Credits`](crate::Credits)). Default 0.
    pub first_position: u32,
    /// Number before every subscriber's first status; numbers of statuses are counted modulo 2^32. Default 0.
    pub first_status: u32,
    /// Card memory to use; `None`: all that the endpoint leaves.
    pub memory: Option<CardRange>,
    /// H2C channel by which frames reach the card; not the endpoint's. Default 0.
    pub h2c: u8,
    /// C2H channel by which credits come back; `None`: the first that the endpoint does not use.
    pub c2h: Option<u8>,
    /// How frames are sent: their priority, and how long one is worth sending.
    pub send: SendOptions,
    /// Conversations that go on at once with those who want to be subscribers. Default 16.
    pub conversations: usize,
    /// How long such a conversation may take. Default 2 s.
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
            failures: 4,
            first_sequence: Sequence::new(0),
            first_position: 0,
            first_status: 0,
            memory: None,
            h2c: 0,
            c2h: None,
            send: SendOptions::default(),
            conversations: 16,
            patience: Duration::from_secs(2),
        }
    }
}
