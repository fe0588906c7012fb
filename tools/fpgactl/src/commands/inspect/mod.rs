//! `ops`, `queues`, `registry`, `escape`, `stats`: the state of a card's transport.
//!
//! Op table and queues are the sending host's; registry and escape channel are the receiving card's, and its host has a mirror
//! of them. A card that is only looked at shows the second kind. So that there is something to see of both, a load can be made: a
//! transfer, made as `transfer` makes it, of which the listing is taken in the middle.

mod picture;
mod receiving;
mod sending;
mod stats;

use std::time::Duration;

use fpga_driver::endpoint::ReceiveTables;

use crate::cli::{ListingArgs, Scheme};
use crate::commands::transfer::load::{self, Load};
use crate::error::CliError;
use crate::settings::Settings;
use crate::target;

pub use picture::LoadProgress;
pub use receiving::{EscapeReport, RegistryReport};
pub use sending::{OpsReport, QueuesReport};
pub use stats::StatsReport;

/// Where the listing is taken.
pub(in crate::commands) enum ListingSource {
    /// In the middle of a transfer.
    Load(Box<Load>),
    /// Of a card as it is.
    Card { name: String, node: u32, tables: ReceiveTables },
}

fn scene(settings: &Settings, args: &ListingArgs) -> Result<ListingSource, CliError> {
    // A simulated card is fresh for every command: without a load there would never be anything to see.
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
    Ok(ListingSource::Card { name: opened.card.name().to_owned(), node, tables })
}

/// `ops`.
///
/// # Errors
/// See [`CliError`].
pub fn ops(settings: &Settings, args: &ListingArgs) -> Result<OpsReport, CliError> {
    OpsReport::new(&scene(settings, args)?)
}

/// `queues`.
///
/// # Errors
/// See [`CliError`].
pub fn queues(settings: &Settings, args: &ListingArgs) -> Result<QueuesReport, CliError> {
    Ok(QueuesReport::new(&scene(settings, args)?))
}

/// `registry`.
///
/// # Errors
/// See [`CliError`].
pub fn registry(settings: &Settings, args: &ListingArgs) -> Result<RegistryReport, CliError> {
    RegistryReport::new(&scene(settings, args)?)
}

/// `escape`.
///
/// # Errors
/// See [`CliError`].
pub fn escape(settings: &Settings, args: &ListingArgs) -> Result<EscapeReport, CliError> {
    EscapeReport::new(&scene(settings, args)?)
}

/// `stats`.
///
/// # Errors
/// See [`CliError`].
pub fn stats(settings: &Settings, args: &ListingArgs) -> Result<StatsReport, CliError> {
    StatsReport::new(&scene(settings, args)?)
}

/// The rules that a card goes by where a transfer names none.
fn scheme_name(tables: &ReceiveTables) -> Result<&'static str, CliError> {
    Ok(tables.scheme()?.map_or("unknown", Scheme::name_of))
}

/// All rules that a card goes by, the default ones among them.
fn scheme_names(tables: &ReceiveTables) -> Result<Vec<&'static str>, CliError> {
    Ok(tables.schemes()?.iter().map(Scheme::name_of).collect())
}

/// Whether one of the schemes is one of messages.
fn has_messages(schemes: &[&str]) -> bool {
    schemes.iter().any(|scheme| *scheme != REGISTRY)
}

/// The registry's scheme, whose packets are of segments.
const REGISTRY: &str = Scheme::Registry.name();

/// A span in microseconds, for JSON.
fn in_micros(span: fpga_driver::protocol::Nanos) -> f64 {
    Duration::from_nanos(span.get()).as_secs_f64() * 1e6
}

/// A span for people.
fn span_text(micros: f64) -> String {
    if micros < 10_000.0 { format!("{micros:.1} µs") } else { format!("{:.1} ms", micros / 1000.0) }
}
