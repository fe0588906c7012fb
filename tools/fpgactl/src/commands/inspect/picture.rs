//! Moment at which a listing was taken.

use serde::Serialize;

use super::ListingSource;
use crate::units::binary_size;

/// Progress of the load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadProgress {
    /// Size of the transfer in bytes.
    pub of_bytes: u64,
    /// Acknowledged bytes, as if every packet were full.
    pub acknowledged_bytes: u64,
    /// Time since its submission, by the card's clock.
    pub elapsed_us: f64,
}

impl LoadProgress {
    pub(super) fn of(scene: &ListingSource) -> Option<Self> {
        let ListingSource::Load(load) = scene else { return None };
        Some(Self {
            of_bytes: load.length,
            acknowledged_bytes: load.acknowledged.min(load.length),
            elapsed_us: load.elapsed.as_secs_f64() * 1e6,
        })
    }

    /// Line below a listing's head.
    pub(super) fn text(moment: Option<&Self>) -> String {
        match moment {
            Some(Self { of_bytes, acknowledged_bytes, elapsed_us }) => format!(
                "in the middle of a transfer of {}: {} acknowledged after {elapsed_us:.1} µs",
                binary_size(*of_bytes),
                binary_size(*acknowledged_bytes)
            ),
            None => "current state of the card; --size starts a transfer to inspect".to_owned(),
        }
    }
}
