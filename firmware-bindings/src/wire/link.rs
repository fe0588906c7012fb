//! Link feedback packets (docs/protocol.md 3.13): inquiries about the links of a path, and reports of their load.

use super::{CRC_LENGTH, Common, EncodeError, PacketKind, WireError, exact, finish};
use crate::bytes::{ByteImage, u16_at, u32_at};
use crate::generated::LINK_WHOLE;
use crate::generated::layout::{
    link_active as active_at, link_inquiry as inquiry_at, link_passive as passive_at, link_slow as slow_at,
};
use crate::ids::NodeId;

/// Load of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkLoad {
    /// Link number, unique in the network.
    pub link: u32,
    /// Rate at which the link forwards packets, as a fraction of its capacity: 0 to [`LINK_WHOLE`].
    pub rate: u16,
    /// Fill level of its queue: 0 to [`LINK_WHOLE`].
    pub queue: u16,
}

/// Link feedback by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkFeedback {
    /// From a sender towards a receiver: every hop on the path that supports it answers and forwards it.
    Inquiry {
        /// Number that the answers repeat.
        number: u32,
    },
    /// From a hop to the sender of the inquiry.
    Passive {
        /// Number of the inquiry.
        number: u32,
        /// Receiver that the inquiry was addressed to.
        receiver: NodeId,
        /// Load of the link.
        state: LinkLoad,
    },
    /// To the controller: from a hop on its own initiative, or from a sender that learned of a congested link.
    Active {
        /// Node that sends over the link.
        sender: NodeId,
        /// Destination of that traffic.
        receiver: NodeId,
        /// Load of the link.
        state: LinkLoad,
    },
    /// From the controller to a sender: the controller knows no route around the link.
    Slow {
        /// Avoid the packet's path to this node, or reduce the traffic to it.
        receiver: NodeId,
    },
}

/// Link feedback packet, without payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkPacket {
    /// Common header. A hop is not a node: its packets have the receiver as source. The path is that of the packet that the feedback is
    /// about, and [`super::Flags::LAST_HOP`] means that all paths use the link.
    pub common: Common,
    /// Content of the packet.
    pub word: LinkFeedback,
}

impl LinkFeedback {
    /// Returns the nodes and the load in the packet.
    const fn content(&self) -> ([Option<NodeId>; 2], Option<LinkLoad>) {
        match *self {
            Self::Inquiry { .. } => ([None; 2], None),
            Self::Passive { receiver, state, .. } => ([Some(receiver), None], Some(state)),
            Self::Active { sender, receiver, state } => ([Some(sender), Some(receiver)], Some(state)),
            Self::Slow { receiver } => ([Some(receiver), None], None),
        }
    }

    /// Destination of the traffic that the feedback is about; `None` for an inquiry, which is addressed to it.
    #[must_use]
    pub const fn receiver(&self) -> Option<NodeId> {
        match *self {
            Self::Inquiry { .. } => None,
            Self::Passive { receiver, .. } | Self::Active { receiver, .. } | Self::Slow { receiver } => {
                Some(receiver)
            }
        }
    }

    fn check(&self, common: &Common) -> Result<(), WireError> {
        let (nodes, state) = self.content();
        if nodes.contains(&Some(NodeId::ANY)) {
            return Err(WireError::ReservedNode { from: common.source, to: NodeId::ANY });
        }
        match state {
            Some(LinkLoad { link, rate, queue }) if rate > LINK_WHOLE || queue > LINK_WHOLE => {
                Err(WireError::LinkState { link, rate, queue })
            }
            _ => Ok(()),
        }
    }
}

impl LinkPacket {
    /// Kind of the packet.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        match self.word {
            LinkFeedback::Inquiry { .. } => PacketKind::LinkInquiry,
            LinkFeedback::Passive { .. } => PacketKind::LinkPassive,
            LinkFeedback::Active { .. } => PacketKind::LinkActive,
            LinkFeedback::Slow { .. } => PacketKind::LinkSlow,
        }
    }

    /// Length of the packet in bytes, checksum included.
    #[must_use]
    pub const fn length(&self) -> usize {
        super::header_length(self.kind()) + CRC_LENGTH
    }

    pub(super) fn parse(kind: PacketKind, body: &[u8]) -> Result<Self, WireError> {
        let (common, word) = match kind {
            PacketKind::LinkInquiry => {
                let bytes: &[u8; inquiry_at::LAYOUT_SIZE] = exact(kind, body)?;
                let number = u32_at::<{ inquiry_at::NUMBER }, _>(bytes);
                (Common::read(bytes), LinkFeedback::Inquiry { number })
            }
            PacketKind::LinkPassive => {
                let bytes: &[u8; passive_at::LAYOUT_SIZE] = exact(kind, body)?;
                let state = LinkLoad {
                    link: u32_at::<{ passive_at::LINK }, _>(bytes),
                    rate: u16_at::<{ passive_at::RATE }, _>(bytes),
                    queue: u16_at::<{ passive_at::QUEUE }, _>(bytes),
                };
                let receiver = NodeId::new(u32_at::<{ passive_at::RECEIVER }, _>(bytes));
                let number = u32_at::<{ passive_at::NUMBER }, _>(bytes);
                (Common::read(bytes), LinkFeedback::Passive { number, receiver, state })
            }
            PacketKind::LinkActive => {
                let bytes: &[u8; active_at::LAYOUT_SIZE] = exact(kind, body)?;
                let state = LinkLoad {
                    link: u32_at::<{ active_at::LINK }, _>(bytes),
                    rate: u16_at::<{ active_at::RATE }, _>(bytes),
                    queue: u16_at::<{ active_at::QUEUE }, _>(bytes),
                };
                let sender = NodeId::new(u32_at::<{ active_at::SENDER }, _>(bytes));
                let receiver = NodeId::new(u32_at::<{ active_at::RECEIVER }, _>(bytes));
                (Common::read(bytes), LinkFeedback::Active { sender, receiver, state })
            }
            PacketKind::LinkSlow => {
                let bytes: &[u8; slow_at::LAYOUT_SIZE] = exact(kind, body)?;
                let receiver = NodeId::new(u32_at::<{ slow_at::RECEIVER }, _>(bytes));
                (Common::read(bytes), LinkFeedback::Slow { receiver })
            }
            other => return Err(WireError::Kind { found: other.value() }),
        };
        word.check(&common)?;
        Ok(Self { common, word })
    }

    /// Writes the packet to the start of `buffer`. Returns its length.
    ///
    /// # Errors
    /// [`EncodeError::BufferTooSmall`], or [`EncodeError::Invalid`] for a packet that [`super::Packet::parse`] would refuse.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        self.common.check(self.kind())?;
        self.word.check(&self.common)?;
        match self.word {
            LinkFeedback::Inquiry { number } => {
                let mut image = ByteImage::<{ inquiry_at::LAYOUT_SIZE }>::new();
                image.put::<{ inquiry_at::NUMBER }, _>(number);
                self.write(image, buffer)
            }
            LinkFeedback::Passive { number, receiver, state } => {
                let mut image = ByteImage::<{ passive_at::LAYOUT_SIZE }>::new();
                image.put::<{ passive_at::NUMBER }, _>(number);
                image.put::<{ passive_at::RECEIVER }, _>(receiver.get());
                image.put::<{ passive_at::LINK }, _>(state.link);
                image.put::<{ passive_at::RATE }, _>(state.rate);
                image.put::<{ passive_at::QUEUE }, _>(state.queue);
                self.write(image, buffer)
            }
            LinkFeedback::Active { sender, receiver, state } => {
                let mut image = ByteImage::<{ active_at::LAYOUT_SIZE }>::new();
                image.put::<{ active_at::SENDER }, _>(sender.get());
                image.put::<{ active_at::RECEIVER }, _>(receiver.get());
                image.put::<{ active_at::LINK }, _>(state.link);
                image.put::<{ active_at::RATE }, _>(state.rate);
                image.put::<{ active_at::QUEUE }, _>(state.queue);
                self.write(image, buffer)
            }
            LinkFeedback::Slow { receiver } => {
                let mut image = ByteImage::<{ slow_at::LAYOUT_SIZE }>::new();
                image.put::<{ slow_at::RECEIVER }, _>(receiver.get());
                self.write(image, buffer)
            }
        }
    }

    fn write<const LENGTH: usize>(
        &self,
        mut image: ByteImage<LENGTH>,
        buffer: &mut [u8],
    ) -> Result<usize, EncodeError> {
        self.common.put(self.kind(), &mut image);
        let available = buffer.len();
        let place = buffer
            .first_chunk_mut::<LENGTH>()
            .ok_or(EncodeError::BufferTooSmall { needed: LENGTH + CRC_LENGTH, available })?;
        image.store(place);
        finish(buffer, LENGTH)
    }
}
