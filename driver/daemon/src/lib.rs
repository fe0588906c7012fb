//! Owner process of cards that several processes share.
//!
//! The owner opens a card, and gives every client a *view* of it: a vfio-user device of its own, with XDMA registers, interrupts and an
//! IOMMU map of its own. A view is the model of the simulated card, behind whose AXI ports is the shared card ([`SharedCard`]). So every
//! program that can use a card on a vfio-user socket can share one, unchanged. Register writes of this project's programs come by a ring in shared memory.
//!
//! | A client | The view |
//! |---|---|
//! | runs descriptors of its own ring | fetches them from the client's memory, and has the owner's channels move the data; it works and answers meanwhile |
//! | uses several channels, or long descriptors | has several transfers in flight, in buffers of the owner; those of one channel keep their order |
//! | writes registers of the DMA engine | changes its own engine only |
//! | sends or receives packets (AXI4-Stream) | takes the stream channel, which has one client at a time, and moves the bytes in buffers of the owner; the card holds the client back, and the client the card |
//! | accesses registers of the design (user BAR) | accesses those of the card, if it has no network interface |
//! | uses the network interface | has one of its own, with memory and a node id of its own: frames reach other views through the owner's switch, views of other owners and simulated cards by shared memory or UDP ([`ViewInterface`]) |
//! | waits for user interrupts | gets those of the card, as all clients that have enabled the line |
//! | exits or is killed | ends with its connection, after the transfer in progress: the card never knows an address of a client's memory; its stream channels are free, and the rest of a packet that it was sending or receiving reaches no other client |
//!
//! Its threads call functions that a program can call instead of them: [`View::advance`], [`Forwarding::step`], [`SharedCard::poll_streams`].
//!
//! A view reaches no memory but its client's: the card transfers to and from buffers of the owner. The price is one copy.

mod accesses;
mod card;
mod channel;
mod error;
mod interrupts;
mod lane;
mod sequence;
mod server;
mod stream_in;
mod stream_out;
mod transfer;
mod view;

pub use card::SharedCard;
pub use error::ShareError;
pub use interrupts::{Forwarding, Views};
pub use server::{FIRST_CLIENT, Owner, OwnerError, OwnerOptions, ViewInterface};
pub use view::View;
