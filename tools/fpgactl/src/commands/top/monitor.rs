//! Monitor of `top`: advances and samples its target.

use std::time::{Duration, Instant};

use fpga_diag::inspect::ReceiveTables;
use fpga_protocol::Nanos;

use super::snapshot::{Sampler, Snapshot};
use super::target::MonitorTarget;
use crate::cli::TopArgs;
use crate::commands::inspect::ListingSource;
use crate::commands::transfer::load::Load;
use crate::error::CliError;
use crate::settings::Settings;
use crate::target::{self, Opened};

/// Maximum time that the cards work between two checks for a stop request.
const SLICE: Duration = Duration::from_millis(20);

/// Target of `top`, and its last sample.
pub(super) struct Monitor {
    target: MonitorTarget,
    sampler: Sampler,
    /// Whether the cards are in this process and have virtual time.
    simulated: bool,
}

impl Monitor {
    /// Opens the target.
    pub(super) fn new(settings: &Settings, args: &TopArgs) -> Result<Self, CliError> {
        let simulated = settings.card.is_simulated();
        // As with the listings: a simulated card is new for every command, and would stay idle.
        let load = &args.load;
        let target = if simulated || load.peer.is_some() || load.size.is_some() || load.file.is_some() {
            MonitorTarget::Load(ListingSource::Load(Box::new(Load::begin(settings, load)?)))
        } else {
            return Self::of(target::observe(&settings.card)?);
        };
        Ok(Self { target, sampler: Sampler::default(), simulated })
    }

    /// Monitors a card in its current state.
    pub(super) fn of(opened: Opened) -> Result<Self, CliError> {
        let tables = match opened.card.info().ni.as_ref().map(|ni| ni.node.get()) {
            Some(node) => {
                let tables = ReceiveTables::of(&opened.card)?;
                Some(ListingSource::Card {
                    name: opened.card.name().to_owned(),
                    node,
                    tables: Box::new(tables),
                })
            }
            None => None,
        };
        Ok(Self {
            target: MonitorTarget::Card { opened, tables },
            sampler: Sampler::default(),
            simulated: false,
        })
    }

    /// Returns whether a load runs.
    pub(super) const fn is_load(&self) -> bool {
        matches!(self.target, MonitorTarget::Load(_))
    }

    /// Returns whether time is virtual.
    pub(super) const fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Runs a load for the time between two samples, by its own clock if it is simulated. Calls `stop` periodically and returns whether it
    /// returned true. A card that is only inspected needs no driving.
    pub(super) fn advance(
        &mut self,
        settings: &Settings,
        args: &TopArgs,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<bool, CliError> {
        let MonitorTarget::Load(ListingSource::Load(load)) = &mut self.target else { return Ok(stop()) };
        let span = if self.simulated { args.step } else { args.interval };
        let nanos = |span: Duration| Nanos::from(span);
        let until = load.now.saturating_add(nanos(span));
        while load.now < until {
            let began = Instant::now();
            while load.now < until && began.elapsed() < SLICE {
                let slice_end = load.now.saturating_add(nanos(SLICE / 1000));
                load.run_until(slice_end.min(until), settings.deadline)?;
            }
            if stop() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes a sample.
    pub(super) fn sample(&mut self) -> Result<Snapshot, CliError> {
        if let MonitorTarget::Load(ListingSource::Load(load)) = &mut self.target {
            load.compare_mirror()?;
        }
        self.sampler.sample(&self.target)
    }
}
