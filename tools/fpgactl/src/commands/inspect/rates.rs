//! Rates towards receivers under link feedback, and the controlled list.

use fpga_diag::inspect::Inspect as _;
use fpga_diag::inspect::{FULL_RATE, RateView, ReceiveTables};
use fpga_registers::quantity;
use serde::Serialize;

use super::{ListingSource, in_micros, span_text};
use crate::error::CliError;
use crate::output::listing;

/// Rates of host and card.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct RatesReport {
    /// Node that gets reports of congested links; `null`: none, or the card is only inspected.
    controller: Option<u32>,
    /// Nodes to which the host or the card sends at a lowered rate.
    controlled: Vec<u32>,
    rates: Vec<RateRow>,
}

#[derive(Debug, Serialize)]
struct RateRow {
    /// Part that sends at this rate: the host (registry), or the card (message schemes).
    sender: &'static str,
    node: u32,
    /// Share of the line rate.
    rate: f64,
    controlled: bool,
    /// Minimum delay of its answers; `null` before the first one.
    min_delay_us: Option<f64>,
    /// Recent maximum.
    max_delay_us: f64,
    /// Number of the last inquiry on its path; 0: none.
    inquiry: u32,
    /// Congested links that answered it.
    congested_links: u32,
}

impl RateRow {
    fn of(sender: &'static str, view: &RateView) -> Self {
        Self {
            sender,
            node: view.node.get(),
            rate: f64::from(view.rate) / f64::from(FULL_RATE),
            controlled: view.is_controlled(),
            min_delay_us: view.min_delay.map(in_micros),
            max_delay_us: in_micros(view.max_delay),
            inquiry: view.inquiry,
            congested_links: view.congested,
        }
    }
}

impl RatesReport {
    /// Returns `None` if link feedback is off.
    pub(super) fn of(scene: &ListingSource, tables: &ReceiveTables) -> Result<Option<Self>, CliError> {
        if !tables.link_feedback()? {
            return Ok(None);
        }
        let (host, controller) = match scene {
            ListingSource::Load(load) => {
                let endpoint = load.sending.endpoint();
                let controller = endpoint.link_feedback().and_then(|feedback| feedback.controller);
                (endpoint.rates(), controller.map(fpga_driver::NodeId::get))
            }
            ListingSource::Card { .. } => (Vec::new(), None),
        };
        let card = tables.rates()?;
        let rates: Vec<_> = host
            .iter()
            .map(|view| RateRow::of("host", view))
            .chain(card.iter().map(|view| RateRow::of("card", view)))
            .collect();
        let controlled = rates.iter().filter(|row| row.controlled).map(|row| row.node).collect();
        Ok(Some(Self { controller, controlled, rates }))
    }

    pub(super) fn text(&self) -> String {
        let mut text =
            format!("link feedback: {} at a lowered rate\n", quantity(self.controlled.len(), "receiver"));
        if self.rates.is_empty() {
            return text;
        }
        text += &listing(
            &self.rates,
            &[
                ("sender", &|row| row.sender.to_owned()),
                (">node", &|row| row.node.to_string()),
                (">rate", &|row| format!("{:.1} %", row.rate * 100.0)),
                (">min delay", &|row| row.min_delay_us.map_or_else(|| "-".to_owned(), span_text)),
                (">max delay", &|row| span_text(row.max_delay_us)),
                (">inquiry", &|row| row.inquiry.to_string()),
                (">congested links", &|row| row.congested_links.to_string()),
            ],
        );
        text
    }
}
