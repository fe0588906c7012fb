//! Exported functions of `include/fpga.h`, which the build script writes. Each calls the function of the same name in this package.

use crate::abi::*;
use crate::call::call;
#[cfg(not(feature = "sim"))]
use crate::error::Failure;

/// Functions of the header, without what [`call`] does.
mod functions {
    #[cfg(feature = "sim")]
    pub(super) use crate::network::*;
    pub(super) use crate::{
        buffer::*, buffer_free::*, card::*, cdma::*, cdma_ring::*, channel::*, endpoint::*, error::*,
        frames::*, interrupt::*, map::*, publisher::*, recovery::*, region::*, remote::*, stream::*,
        subscriber::*, transfer::*, wait::*,
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

/// Failure of calls that need simulated cards.
#[cfg(not(feature = "sim"))]
fn no_simulator() -> Failure {
    Failure::of(Status::Unsupported, "the library is built without simulated cards")
        .advise("build it with the feature `sim`")
}

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    use super::*;

    #[test]
    fn network_without_simulator_is_unsupported() {
        let mut network = 7;
        assert_eq!(fpga_network_create(core::ptr::null(), 0, &raw mut network), Status::Unsupported);
        assert_eq!(fpga_network_step(1, core::ptr::null_mut()), Status::Unsupported);
    }
}
