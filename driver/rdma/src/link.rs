//! Link feedback of an endpoint: the registers, and the rates of the host.

use fpga_firmware::NodeId;
use fpga_firmware::generated::{NODE_ANY, ni as at};

use super::link_options::LinkFeedback;
use super::{Endpoint, EndpointError, EndpointOptions};
use fpga_driver::NiInfo;
use fpga_driver::extension::RegisterBlock;

/// Checks the option against the card.
pub(super) fn check(options: &EndpointOptions, info: &NiInfo) -> Result<(), EndpointError> {
    let Some(feedback) = options.link_feedback else { return Ok(()) };
    let refuse =
        |what, found: u32, expected| Err(EndpointError::Option { what, found: found.into(), expected });
    if !info.link_feedback {
        return refuse("link feedback", 1, "off: this card's interface does not take part in it");
    }
    if feedback.line_rate_mbps == 0 {
        return refuse("the line rate of link feedback", 0, "at least 1 Mbit/s");
    }
    if feedback.controller == Some(NodeId::ANY) {
        return refuse("the controller of link feedback", NODE_ANY, "one node, or none");
    }
    Ok(())
}

/// Writes the option to the NI, and overrides the choice of an earlier owner.
pub(super) fn configure(
    ni: &RegisterBlock,
    options: &EndpointOptions,
    info: &NiInfo,
) -> Result<(), EndpointError> {
    if !info.link_feedback {
        return Ok(());
    }
    let Some(feedback) = options.link_feedback else {
        return Ok(ni.write(at::LINK_CONTROL, 0)?);
    };
    let trip = u32::try_from(options.round_trip.as_nanos()).unwrap_or(u32::MAX).max(1);
    ni.write(at::ROUND_TRIP_NS, trip)?;
    ni.write(at::LINK_CONTROLLER, feedback.controller.map_or(NODE_ANY, NodeId::get))?;
    ni.write(at::LINK_RATE_MBPS, feedback.line_rate_mbps)?;
    ni.write(at::LINK_CONTROL, at::link_control::ENABLE)?;
    Ok(())
}

impl Endpoint {
    /// Returns the link feedback option with which the endpoint was opened.
    #[must_use]
    pub const fn link_feedback(&self) -> Option<LinkFeedback> {
        self.settings.link_feedback
    }
}
