//! Simulated cards of processes, and the links between them.
//!
//! A card's link has a UDP socket, whose address is the messenger's, and a socket for shared memory ([`Neighbours`]).

use crate::error::{MessengerError, card_error};
use crate::layout::Layout;
use crate::options::{LinkChoice, MessengerOptions};
use fpga_driver::Card;
use fpga_driver::NodeId;
use fpga_netmodel::{Conditions, Impairments, Loss, Order, Probability};
use fpga_sim::link::{Link, LinkAddress, LinkError, LinkEvents, LinkKey, Neighbours};
use fpga_sim::{Attendant, CardDescription, SimNetwork};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Time without progress after which a thread works for the card.
const ATTENTION: Duration = Duration::from_millis(10);
/// Number of peers for which a simulated card has memory: one for each memory window but that of the hello slots.
const PEERS: u64 = 1023;

/// Links of a simulated card.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) network: SimNetwork,
    pub(crate) address: SocketAddr,
    /// Until the handle has taken it.
    pub(crate) events: Option<LinkEvents>,
    choice: LinkChoice,
    neighbours: Neighbours,
    /// Acknowledges packets while the application computes.
    _attendant: Attendant,
}

fn link_error(error: impl core::fmt::Display) -> MessengerError {
    MessengerError::Link { text: error.to_string() }
}

/// Error of a link, with its advice.
fn advised(error: &LinkError) -> MessengerError {
    match error.help() {
        Some(help) => link_error(format_args!("{error}: {help}")),
        None => link_error(error),
    }
}

/// Opens a simulated card with links.
pub(crate) fn open(
    description: Option<&Path>,
    options: &MessengerOptions,
) -> Result<(Card, Linked), MessengerError> {
    let mut card = match description {
        Some(name) => CardDescription::find(name).map_err(card_error)?,
        None => {
            let mut card = CardDescription::linked();
            card.memory.size = card.memory.size.max(Layout::needed(PEERS));
            card
        }
    };
    let key = options.link_key.as_deref().map(LinkKey::read).transpose().map_err(link_error)?;
    let (link, neighbours) = Link::neighbouring(options.listen, key).map_err(|error| advised(&error))?;
    let address = neighbours.address();
    let node = neighbours.node();
    card.ni.node_id = node.get();
    let loss = Probability::new(options.loss).map_err(link_error)?;
    let conditions = Conditions::default().loss(Loss::Independent(loss));
    let order = match options.reorder {
        0 | 1 => Order::InOrder,
        depth => Order::random(depth as usize),
    };
    let impairments = Impairments::both(conditions).order(order);
    let network =
        SimNetwork::builder().card(card).impairments(impairments).seed(options.seed ^ u64::from(node.get()));
    let network = network.link(link).build().map_err(link_error)?;
    let card = Card::from_backend(network.backend(0)).map_err(card_error)?;
    let events = network.link_events().ok_or_else(|| link_error("it was not opened"))?;
    let attendant = Attendant::start(&network, ATTENTION).map_err(link_error)?;
    let events = Some(events);
    Ok((card, Linked { network, address, events, choice: options.link, neighbours, _attendant: attendant }))
}

impl Linked {
    /// Bytes that the card and its link have copied.
    pub(crate) fn copied_bytes(&self) -> Option<u64> {
        let card = self.network.with_card(0, |card| *card.counters())?;
        let link = self.network.link_counters()?;
        let channels = card.h2c_bytes + card.c2h_bytes + card.cdma_bytes;
        Some(channels + card.buffered_payload_bytes + card.received_payload_bytes + link.copied_bytes)
    }

    /// Prepares the way to a peer. Returns `false` if there is none.
    pub(crate) fn locate(&self, address: SocketAddr) -> bool {
        self.locate_at(NodeId::of_link(address), Some(address))
    }

    /// Prepares the way to the view of a shared card, whose node id contains its address. Returns `false` if there is none.
    pub(crate) fn locate_node(&self, node: NodeId) -> bool {
        self.locate_at(node, self.neighbours.address_of(node))
    }

    fn locate_at(&self, node: NodeId, address: Option<SocketAddr>) -> bool {
        if node == self.neighbours.node() {
            // Frames for the card itself do not leave.
            return true;
        }
        let way = match self.choice {
            LinkChoice::Auto => self.neighbours.way(node, address),
            LinkChoice::Shm => Some(self.neighbours.by_memory(node)),
            LinkChoice::Udp => address.map(LinkAddress::Udp),
        };
        way.is_some_and(|way| self.network.locate(node, &way))
    }
}
