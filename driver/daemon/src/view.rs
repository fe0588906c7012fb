//! The view of one client.

use fpga_driver::{CardInfo, NodeId, VIEW_SUBSYSTEM};
use fpga_sim::CardDescription;

/// Subsystem device id of a view without the network interface of its card: drivers must not look for it.
const NO_NI: u16 = 7;
/// Card address of the memory of a view's network interface: beyond the addresses of any card.
const NI_MEMORY: u64 = 1 << 56;
/// Bytes of that memory. Its pages are allocated when they are written.
const NI_MEMORY_BYTES: u64 = 2 << 30;
/// BARs of a view have at least this size (PG195).
const MIN_BAR: u64 = 128;

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
