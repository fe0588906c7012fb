//! Work of the applications of a world of messages.

use fpga_protocol::Nanos;

use crate::choices::{Choices, Timed};

/// Length of the registered memory that each other node may write, in bytes.
pub const WRITABLE_LENGTH: u64 = 0x8_0000;
/// Length of the registered memory that other nodes may read, in bytes.
pub const READABLE_LENGTH: u64 = 0x1_0000;
/// Number of counters of a node for atomic operations.
pub const COUNTERS: u64 = 4;

/// When an operation completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At once.
    Injected,
    /// At the peer's card.
    Transmitted,
    /// In the memory of the peer's process.
    Delivered,
    /// Once a receive has matched.
    Matched,
}

/// How an application gets a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Get {
    /// With a buffer for one message.
    One,
    /// With a buffer that takes messages until fewer bytes than this are free.
    Several(u64),
    /// Claims one that has arrived, and takes it after a time.
    Claim(Nanos),
    /// The same, and drops it.
    ClaimAndDrop(Nanos),
    /// Looks for one that has arrived.
    Look,
    /// Drops one that has arrived.
    Drop,
}

/// A request of an application.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// Message.
    Send {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// Tag.
        tag: Option<u64>,
        /// Length in bytes.
        length: u64,
        /// Time of the completion.
        end: End,
    },
    /// Receive.
    Receive {
        /// Receiver.
        node: usize,
        /// Sender; `None`: any.
        from: Option<usize>,
        /// Tag, and bits that are not compared.
        tag: Option<(u64, u64)>,
        /// Length of the buffer in bytes.
        length: u64,
        /// Time after which it is cancelled.
        cancel: Option<Nanos>,
        /// How it gets a message.
        get: Get,
    },
    /// Write to the memory of another node.
    Write {
        /// Writer.
        from: usize,
        /// Owner.
        to: usize,
        /// Offset in the owner's memory.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Whether the owner gets a completion.
        is_immediate: bool,
        /// Whether the key is wrong.
        is_wrong: bool,
    },
    /// Read of the memory of another node.
    Read {
        /// Reader.
        from: usize,
        /// Owner.
        to: usize,
        /// Offset in the owner's memory.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Whether the key is wrong.
        is_wrong: bool,
    },
    /// Addition of 1 to a counter of another node.
    Add {
        /// Requester.
        from: usize,
        /// Owner.
        to: usize,
        /// Number of the counter.
        counter: u64,
        /// Whether the earlier value is returned.
        fetches: bool,
    },
    /// Registered memory gets another key.
    Renew {
        /// Owner.
        node: usize,
    },
}

impl Call {
    /// Node of the application.
    #[must_use]
    pub const fn node(&self) -> usize {
        match self {
            Self::Send { from, .. }
            | Self::Write { from, .. }
            | Self::Read { from, .. }
            | Self::Add { from, .. } => *from,
            Self::Receive { node, .. } | Self::Renew { node } => *node,
        }
    }

    /// Length of its data in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        match self {
            Self::Send { length, .. }
            | Self::Receive { length, .. }
            | Self::Write { length, .. }
            | Self::Read { length, .. } => *length,
            Self::Add { .. } => 8,
            Self::Renew { .. } => 0,
        }
    }
}

/// Work of a world of messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Messages {
    /// Requests, by time.
    pub calls: Vec<Timed<Call>>,
    /// Bytes of messages without a receive that are kept for each peer.
    pub unexpected: u64,
    /// Whether the owners of memory get completions of all accesses.
    pub reports_access: bool,
}

impl Messages {
    /// Chooses the requests of `nodes` nodes. Packets have `packet_size` bytes.
    #[must_use]
    pub fn choose(choices: &mut Choices, nodes: usize, packet_size: u32, busy: Nanos) -> Self {
        let count = usize::try_from(8 + choices.below(56)).unwrap_or(0);
        let longest = u64::from(packet_size).saturating_mul(400).min(600_000);
        let mut written = vec![0; nodes];
        let favourite = choices.one_in(3).then(|| choices.index(nodes));
        let tags = choices.within(1..4);
        // Messages wait for their receives, and their senders for them.
        let is_late = choices.one_in(3);
        let mut calls = Vec::new();
        for number in 0..count {
            let time = Nanos::new(choices.below(busy.get()));
            let from = choices.index(nodes);
            let other = choices.index(nodes);
            let to = favourite.filter(|_| choices.one_in(2)).unwrap_or(other);
            let length = match choices.below(12) {
                0 => 0,
                1..=4 => choices.below(300),
                5 | 6 => choices.below(4200),
                7 | 8 => (16 << 10) - 8 + choices.below(17),
                9 => choices.below(140_000),
                10 => (128 << 10) - 2 + choices.below(5),
                _ => choices.below(600_000),
            }
            .min(longest);
            let tag = if choices.one_in(3) { None } else { Some(choices.below(tags)) };
            let item = match choices.below(16) {
                0..=5 => Call::Send {
                    from,
                    to,
                    tag,
                    length,
                    end: match if is_late { 1 + choices.below(2) } else { choices.below(5) } {
                        0 if length <= fpga_messages::MAX_INJECT => End::Injected,
                        1 => End::Matched,
                        2 => End::Delivered,
                        _ => End::Transmitted,
                    },
                },
                6..=10 => Call::Receive {
                    node: to,
                    from: (!choices.one_in(3)).then_some(from),
                    tag: tag.map(|tag| (tag, choices.of(&[0, 0, 1, u64::MAX]))),
                    length: if choices.one_in(6) { length } else { longest },
                    cancel: choices.one_in(8).then(|| Nanos::new(choices.scale(21))),
                    get: Get::One,
                },
                11 | 12 => {
                    let offset = written[to];
                    if offset + length > WRITABLE_LENGTH {
                        continue;
                    }
                    written[to] = offset + length;
                    let is_wrong = choices.one_in(12);
                    Call::Write { from, to, offset, length, is_immediate: choices.one_in(2), is_wrong }
                }
                13 => {
                    let length = length.min(READABLE_LENGTH);
                    let offset = choices.below(READABLE_LENGTH - length + 1);
                    Call::Read { from, to, offset, length, is_wrong: choices.one_in(12) }
                }
                14 => Call::Add { from, to, counter: choices.below(COUNTERS), fetches: !choices.one_in(3) },
                _ if choices.one_in(3) => Call::Renew { node: to },
                _ => continue,
            };
            let is_receive = matches!(item, Call::Receive { .. });
            let delay = if is_late && is_receive { busy } else { Nanos::ZERO };
            calls.push(Timed { number, time: time.saturating_add(delay), item });
        }
        calls.sort_by_key(|call| call.time);
        let unexpected = choices.of(&[0, 256, 4096, 65_536, 16 << 20]);
        Self { calls, unexpected, reports_access: choices.one_in(4) }
    }

    /// Changes how some of the messages are received.
    pub fn choose_gets(&mut self, choices: &mut Choices) {
        for call in &mut self.calls {
            let Call::Receive { tag, length, cancel, get, .. } = &mut call.item else { continue };
            *get = match choices.below(10) {
                0 | 1 if tag.is_none() => Get::Several(choices.of(&[1, 64, 4096, (*length / 2).max(1)])),
                2 => Get::Claim(Nanos::new(choices.scale(22))),
                3 => Get::ClaimAndDrop(Nanos::new(choices.scale(22))),
                4 => Get::Look,
                5 => Get::Drop,
                _ => Get::One,
            };
            match get {
                Get::One => {}
                Get::Several(least) => *length = (*length).max(*least),
                _ => *cancel = None,
            }
        }
    }
}
