//! What `top` looks at: a load that goes on and on, or a card as it is.

use std::time::{Duration, Instant};

use fpga_driver::endpoint::ReceiveTables;
use fpga_driver::protocol::Nanos;

use super::snapshot::{Sampler, Snapshot};
use crate::cli::TopArgs;
use crate::commands::inspect::ListingSource;
use crate::commands::transfer::load::Load;
use crate::error::CliError;
use crate::settings::Settings;
use crate::target::{self, Opened};

/// How long the cards work before somebody who waits is asked whether he still does.
const SLICE: Duration = Duration::from_millis(20);

/// What is watched, and what was seen of it last.
pub(super) struct Monitor {
    subject: MonitorTarget,
    sampler: Sampler,
    /// In this process, where time is the cards' own.
    simulated: bool,
}

/// A load, or a card that is only looked at. One without a network interface has no tables, only channels.
pub(super) enum MonitorTarget {
    Load(ListingSource),
    Card { opened: Opened, tables: Option<ListingSource> },
}

impl Monitor {
    /// Opens what is to be watched.
    ///
    /// # Errors
    /// See [`CliError`].
    pub(super) fn new(settings: &Settings, args: &TopArgs) -> Result<Self, CliError> {
        let simulated = settings.card.is_simulated();
        // As with the listings: a simulated card is fresh for every command, and nothing would ever happen on it.
        let load = &args.load;
        let subject = if simulated || load.peer.is_some() || load.size.is_some() || load.file.is_some() {
            MonitorTarget::Load(ListingSource::Load(Box::new(Load::begin(settings, load)?)))
        } else {
            return Self::of(target::observe(&settings.card)?);
        };
        Ok(Self { subject, sampler: Sampler::default(), simulated })
    }

    /// A card as it is.
    ///
    /// # Errors
    /// [`CliError::Endpoint`].
    pub(super) fn of(opened: Opened) -> Result<Self, CliError> {
        let tables = match opened.card.info().ni.as_ref().map(|ni| ni.node.get()) {
            Some(node) => {
                let tables = ReceiveTables::of(&opened.card)?;
                Some(ListingSource::Card { name: opened.card.name().to_owned(), node, tables })
            }
            None => None,
        };
        Ok(Self {
            subject: MonitorTarget::Card { opened, tables },
            sampler: Sampler::default(),
            simulated: false,
        })
    }

    /// Whether something is made to happen.
    pub(super) const fn is_load(&self) -> bool {
        matches!(self.subject, MonitorTarget::Load(_))
    }

    /// Whether time is the cards' own.
    pub(super) const fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Lets a load go on for as long as lies between two looks: by its own clock where it is simulated. `stop` is asked now and
    /// then. Whether it said yes. A card that is only looked at goes on by itself.
    ///
    /// # Errors
    /// See [`CliError`].
    pub(super) fn advance(
        &mut self,
        settings: &Settings,
        args: &TopArgs,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<bool, CliError> {
        let MonitorTarget::Load(ListingSource::Load(load)) = &mut self.subject else { return Ok(stop()) };
        let span = if self.simulated { args.step } else { args.interval };
        let nanos = |span: Duration| Nanos::new(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        let until = load.now.saturating_add(nanos(span));
        while load.now < until {
            let began = Instant::now();
            while load.now < until && began.elapsed() < SLICE {
                let piece = load.now.saturating_add(nanos(SLICE / 1000));
                load.run_until(piece.min(until), settings.deadline)?;
            }
            if stop() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks.
    ///
    /// # Errors
    /// See [`CliError`].
    pub(super) fn sample(&mut self) -> Result<Snapshot, CliError> {
        if let MonitorTarget::Load(ListingSource::Load(load)) = &mut self.subject {
            load.compare_mirror()?;
        }
        self.sampler.sample(&self.subject)
    }
}
