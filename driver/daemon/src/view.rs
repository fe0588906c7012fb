//! The view of one client.

use std::sync::Arc;
use std::time::Duration;

use fpga_driver::{CardInfo, NodeId, VIEW_SUBSYSTEM};
use fpga_sim::link::Link;
use fpga_sim::{CardDescription, SimNetwork, SimNetworkError};

use crate::accesses::ViewAccesses;
use crate::card::SharedCard;

/// Subsystem device id of a view without the network interface of its card: drivers must not look for it.
const NO_NI: u16 = 7;
/// Card address of the memory of a view's network interface: beyond the addresses of any card.
const NI_MEMORY: u64 = 1 << 56;
/// Bytes of that memory. Its pages are allocated when they are written.
const NI_MEMORY_BYTES: u64 = 2 << 30;
/// BARs of a view have at least this size (PG195).
const MIN_BAR: u64 = 128;

/// View of a shared card for one client: a simulated card, behind whose AXI ports is the shared one.
#[derive(Debug, Clone)]
pub struct View {
    network: SimNetwork,
    accesses: Arc<ViewAccesses>,
}

impl View {
    /// Creates view number `number` of `card`. `node`: id of its network interface, if it has one; `link`: way of its frames. Without a link,
    /// time is virtual.
    ///
    /// # Errors
    /// [`SimNetworkError`].
    pub fn new(
        card: &Arc<SharedCard>,
        number: u64,
        node: Option<NodeId>,
        link: Option<Link>,
    ) -> Result<Self, SimNetworkError> {
        let accesses = Arc::new(ViewAccesses::new(Arc::clone(card), number));
        let (description, design) = (description(card.card().info(), node), Arc::clone(&accesses));
        let builder = SimNetwork::builder();
        let builder = match node {
            Some(_) => builder.card_with_design_beyond(description, design),
            None => builder.card_with_design(description, design),
        };
        let builder = link.into_iter().fold(builder, fpga_sim::SimNetworkBuilder::link);
        Ok(Self { network: builder.build()?, accesses })
    }

    /// The simulated network whose card 0 the client uses.
    #[must_use]
    pub const fn network(&self) -> &SimNetwork {
        &self.network
    }

    /// Passes results of the shared card on to the view's engines, and has them work until virtual time `now`. For a view that no server drives.
    pub fn advance(&self, now: Duration) {
        let _ = self.network.with_card(0, |card| card.poll_design());
        self.network.advance(now.saturating_sub(self.network.now().into()).into());
    }

    /// Frees what the client has of the shared card: it has ended.
    pub fn end(&self) {
        self.accesses.end();
    }
}

/// Description of a view of a card: its ids, channels and BARs. `node`: id of the view's network interface, if it has one.
pub(crate) fn description(info: &CardInfo, node: Option<NodeId>) -> CardDescription {
    let mut view = CardDescription::linked();
    view.name = format!("view of {}", info.name);
    view.pci.vendor = info.ids.vendor;
    view.pci.device = info.ids.device;
    (view.pci.subsystem_vendor, view.pci.subsystem_device) = info.ids.subsystem;
    match node {
        Some(node) => {
            (view.pci.subsystem_vendor, view.pci.subsystem_device) = VIEW_SUBSYSTEM;
            view.ni.node_id = node.get();
            (view.memory.base, view.memory.size) = (NI_MEMORY, NI_MEMORY_BYTES);
            view.ni.window_base = NI_MEMORY + NI_MEMORY_BYTES;
        }
        None if info.ni.is_some() => view.pci.subsystem_device = NO_NI,
        None => {}
    }
    view.xdma.h2c_channels = info.xdma.h2c_channels;
    view.xdma.c2h_channels = info.xdma.c2h_channels;
    view.xdma.ip_version = info.xdma.version;
    view.xdma.stream = info.xdma.stream;
    view.stream.stop_drops_empty = true;
    if let Some(width) = info.xdma.data_width.and_then(|width| u16::try_from(width).ok()) {
        view.xdma.data_width = width;
    }
    match (&mut view.bars.user, info.roles.user) {
        (Some(user), Some(bar)) => user.size = bar.size.max(MIN_BAR),
        (user, None) => *user = None,
        (None, Some(_)) => {}
    }
    // Its window is not part of the shared card: the DMA engines reach the same memory.
    view.bars.bypass = None;
    view
}
