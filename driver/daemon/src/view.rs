//! The view of one client.

use fpga_driver::CardInfo;
use fpga_sim::CardDescription;

/// Subsystem device id of a view of a card with the network interface: drivers must not look for it.
const NO_NI: u16 = 7;
/// BARs of a view have at least this size (PG195).
const MIN_BAR: u64 = 128;

/// Description of the views of a card: its ids, channels and BARs.
pub(crate) fn description(info: &CardInfo) -> CardDescription {
    let mut view = CardDescription::default();
    view.name = format!("view of {}", info.name);
    view.pci.vendor = info.ids.vendor;
    view.pci.device = info.ids.device;
    (view.pci.subsystem_vendor, view.pci.subsystem_device) = info.ids.subsystem;
    if info.ni.is_some() {
        view.pci.subsystem_device = NO_NI;
    }
    view.xdma.h2c_channels = info.xdma.h2c_channels;
    view.xdma.c2h_channels = info.xdma.c2h_channels;
    view.xdma.ip_version = info.xdma.version;
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
