//! Work of the applications of a world of frame streams.

use fpga_frames::Geometry;
use fpga_protocol::Nanos;

use crate::choices::{Choices, Timed};

/// First address of the memory of a publisher or a subscriber.
pub const POOL: u64 = 0x1_0000;
/// Length of the memory in front of it and behind it that nothing may write, in bytes.
pub const GUARD: u64 = 0x1000;
/// Maximum length of a frame's data in bytes.
const MAX_DATA: u64 = 8192;

/// Publisher of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Maximum length of a frame's data in bytes.
    pub data: u64,
    /// Maximum length of a frame's value in bytes.
    pub value: u32,
    /// Slots of the pool.
    pub slots: u32,
    /// Maximum number of frames in ordinary memory.
    pub heap_slots: u32,
    /// Maximum number of subscribers.
    pub subscribers: u32,
    /// Maximum number of conversations.
    pub conversations: usize,
    /// Maximum time between two transfers to a subscriber.
    pub heartbeat: Nanos,
    /// Number of the first frame.
    pub sequence: u64,
    /// Position of the first frame.
    pub position: u32,
    /// Number before the first status.
    pub status: u32,
}

impl Source {
    /// Distance of two slots in bytes.
    #[must_use]
    pub fn stride(&self) -> u64 {
        Geometry::new(self.value, self.data).map_or(0, |geometry| geometry.stride())
    }
}

/// A step of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A frame is filled, and published or dropped some time later.
    Publish {
        /// Publishing node.
        source: usize,
        /// Length of the data in bytes.
        length: u64,
        /// Length of the value in bytes.
        value: u32,
        /// Time until it is published.
        hold: Nanos,
        /// Whether it is dropped instead.
        is_dropped: bool,
    },
    /// A node joins, unless it has joined.
    Join {
        /// Joining node.
        node: usize,
        /// Publishing node.
        source: usize,
        /// Slots.
        slots: u32,
        /// Maximum time for which it holds a frame.
        hold: Nanos,
    },
    /// A node leaves, if it has joined.
    Leave {
        /// Leaving node.
        node: usize,
    },
    /// The process of a subscriber ends without notice.
    Abandon {
        /// Node of the subscriber.
        node: usize,
    },
}

impl Act {
    /// Length of its data in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        if let Self::Publish { length, .. } = self { *length } else { 0 }
    }
}

/// Work of a world of frame streams. The first nodes are publishers, the others subscribers.
#[derive(Clone, Debug, PartialEq)]
pub struct Streams {
    /// Publishers, by node.
    pub sources: Vec<Source>,
    /// Steps, by time.
    pub acts: Vec<Timed<Act>>,
    /// Whether the publishers close before the subscribers leave.
    pub closes_first: bool,
    /// Whether nothing is published for longer than a silence that ends a subscription.
    pub rests: bool,
}

impl Streams {
    /// Chooses the steps of `nodes` nodes until the time `busy`. Packets have `packet_size` bytes.
    #[must_use]
    pub fn choose(choices: &mut Choices, nodes: usize, packet_size: u32, busy: Nanos) -> Self {
        let count = if nodes > 2 && choices.one_in(3) { 2 } else { 1 };
        let receivers = nodes - count;
        let sources: Vec<Source> = (0..count).map(|_| source(choices, receivers, packet_size)).collect();
        let mut acts = Vec::new();
        let slow = choices.of(&[1, 1, 200_000, 2_000_000]);
        let join = |choices: &mut Choices, node| Act::Join {
            node,
            source: choices.index(count),
            slots: choices.of(&[1, 1, 2, 2, 4, 8]),
            hold: Nanos::new(choices.below(slow)),
        };
        for node in count..nodes {
            let late = if choices.one_in(3) { busy.get() } else { busy.get() / 8 };
            acts.push((choices.below(late), join(choices, node)));
        }
        for _ in 0..8 + choices.below(50) {
            let node = count + choices.index(receivers);
            let act = match choices.below(16) {
                0 => Act::Leave { node },
                1 if choices.one_in(2) => Act::Abandon { node },
                1..=3 => join(choices, node),
                _ => {
                    let source = choices.index(count);
                    let Some(Source { data, value, .. }) = sources.get(source) else { continue };
                    let length = match choices.below(8) {
                        0 => 0,
                        1 => 1,
                        2 => *data,
                        3 => u64::from(packet_size) * choices.within(1..4),
                        _ => choices.below(data + 1),
                    };
                    let value = u32::try_from(choices.below(u64::from(*value) + 1)).unwrap_or(0);
                    let hold = if choices.one_in(4) { choices.scale(20) } else { 0 };
                    let (length, hold) = (length.min(*data), Nanos::new(hold));
                    Act::Publish { source, length, value, hold, is_dropped: choices.one_in(12) }
                }
            };
            let time = choices.below(busy.get());
            // Some frames follow each other at once.
            let copies = if matches!(act, Act::Publish { .. }) && choices.one_in(6) { 5 } else { 1 };
            acts.extend((0..copies).map(|_| (time, act.clone())));
        }
        let acts = acts.into_iter().enumerate();
        let timed = acts.map(|(number, (time, item))| Timed { number, time: Nanos::new(time), item });
        let mut acts: Vec<_> = timed.collect();
        acts.sort_by_key(|act| act.time);
        Self { sources, acts, closes_first: choices.one_in(2), rests: choices.one_in(4) }
    }
}

fn source(choices: &mut Choices, receivers: usize, packet_size: u32) -> Source {
    let receivers = u32::try_from(receivers).unwrap_or(1);
    let number = |choices: &mut Choices, least, most| u32::try_from(choices.within(least..most)).unwrap_or(1);
    Source {
        data: if choices.one_in(10) { 1 } else { 1 + choices.below(u64::from(packet_size) * 6) }
            .min(MAX_DATA),
        value: choices.of(&[0, 12, 64]),
        slots: number(choices, 1, 9),
        heap_slots: choices.of(&[0, 0, 1, 4]),
        subscribers: if choices.one_in(5) { number(choices, 1, 1 + u64::from(receivers)) } else { receivers },
        conversations: choices.of(&[1, 2, 16]),
        heartbeat: Nanos::from_millis(choices.of(&[2, 10, 40])),
        sequence: choices.of(&[0, 0, u64::MAX, u64::MAX - 5]),
        position: choices.of(&[0, 0, u32::MAX, u32::MAX - 5, 0x7FFF_FFFE]),
        status: choices.of(&[0, u32::MAX, u32::MAX - 3]),
    }
}
