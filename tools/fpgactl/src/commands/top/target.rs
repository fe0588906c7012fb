//! Target of `top`.

use crate::commands::inspect::ListingSource;
use crate::target::Opened;

/// Load that runs continuously, or a card that is only inspected. A card without a network interface has channels, but no tables.
pub(super) enum MonitorTarget {
    Load(ListingSource),
    Card { opened: Opened, tables: Option<ListingSource> },
}
