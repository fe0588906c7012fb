//! `ops`, `queues`, `registry`, `escape`, `stats`: the state of a card's RDMA transport.
//!
//! Op table and queues belong to the sending host. Registry and escape channel belong to the receiving card, and its host has a mirror of
//! them. Without a load, only the second kind is shown. The command can make a load: a transfer as `transfer` makes it, in the middle of
//! which the listing is taken.

mod picture;
mod rates;
mod receiving;
mod sending;
mod stats;

use std::time::Duration;

use fpga_diag::inspect::ReceiveTables;

use crate::cli::{ListingArgs, Scheme};
use crate::commands::transfer::load::{self, Load};
use crate::error::CliError;
use crate::settings::Settings;
use crate::target;

pub use picture::LoadProgress;
pub use receiving::{EscapeReport, RegistryReport};
pub use sending::{OpsReport, QueuesReport};
pub use stats::StatsReport;

/// Moment and source of the listing.
pub(in crate::commands) enum ListingSource {
    /// In the middle of a transfer.
    Load(Box<Load>),
    /// Card in its current state.
    Card { name: String, node: u32, tables: Box<ReceiveTables> },
}

fn scene(settings: &Settings, args: &ListingArgs) -> Result<ListingSource, CliError> {
    // A simulated card is new for every command: without a load its tables are empty.
    let wanted = settings.card.is_simulated()
        || args.load.peer.is_some()
        || args.load.size.is_some()
        || args.load.file.is_some();
    if wanted {
        return Ok(ListingSource::Load(Box::new(load::run_to(settings, &args.load, args.at)?)));
    }
    let opened = target::observe(&settings.card)?;
    let tables = ReceiveTables::of(&opened.card)?;
    let node = opened.card.info().ni.as_ref().map_or(0, |ni| ni.node.get());
    Ok(ListingSource::Card { name: opened.card.name().to_owned(), node, tables: Box::new(tables) })
}

/// Runs `ops`.
pub fn ops(settings: &Settings, args: &ListingArgs) -> Result<OpsReport, CliError> {
    OpsReport::new(&scene(settings, args)?)
}

/// Runs `queues`.
pub fn queues(settings: &Settings, args: &ListingArgs) -> Result<QueuesReport, CliError> {
    Ok(QueuesReport::new(&scene(settings, args)?))
}

/// Runs `registry`.
pub fn registry(settings: &Settings, args: &ListingArgs) -> Result<RegistryReport, CliError> {
    RegistryReport::new(&scene(settings, args)?)
}

/// Runs `escape`.
pub fn escape(settings: &Settings, args: &ListingArgs) -> Result<EscapeReport, CliError> {
    EscapeReport::new(&scene(settings, args)?)
}

/// Runs `stats`.
pub fn stats(settings: &Settings, args: &ListingArgs) -> Result<StatsReport, CliError> {
    StatsReport::new(&scene(settings, args)?)
}

/// Default scheme of a card, for transfers that name none.
fn scheme_name(tables: &ReceiveTables) -> Result<&'static str, CliError> {
    Ok(tables.scheme()?.map_or("unknown", Scheme::name_of))
}

/// All active schemes of a card, including the default.
fn scheme_names(tables: &ReceiveTables) -> Result<Vec<&'static str>, CliError> {
    Ok(tables.schemes()?.iter().map(Scheme::name_of).collect())
}

/// Returns whether one of the schemes is a message scheme.
fn has_messages(schemes: &[&str]) -> bool {
    schemes.iter().any(|scheme| *scheme != REGISTRY)
}

/// Name of the registry scheme, whose packets belong to segments.
const REGISTRY: &str = Scheme::Registry.name();

/// Converts a span to microseconds, for JSON.
fn in_micros(span: impl Into<Duration>) -> f64 {
    span.into().as_secs_f64() * 1e6
}

/// Formats a span for people.
fn span_text(micros: f64) -> String {
    if micros < 10_000.0 { format!("{micros:.1} µs") } else { format!("{:.1} ms", micros / 1000.0) }
}
