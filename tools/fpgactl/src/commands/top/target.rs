//! Subject of `top`.

use crate::commands::inspect::ListingSource;
use crate::target::Opened;

/// A load, or a card that is only inspected. A card without a network interface has no tables, only channels.
pub(super) enum MonitorTarget {
    Load(ListingSource),
    Card { opened: Opened, tables: Option<ListingSource> },
}
