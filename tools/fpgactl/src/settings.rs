//! Global options merged with the defaults file.

use std::sync::Arc;
use std::time::Duration;

use fpga_input::FileKind;
use fpga_register_map::RegisterMap;

use crate::cli::GlobalArgs;
use crate::config::{Config, TransferDefaults};
use crate::design::Design;
use crate::error::CliError;
use crate::progress::Deadline;
use crate::record::Recording;
use crate::stream::{Input, read_yaml};
use crate::style::OutputStyle;
use crate::target::{AccessChoice, CardChoice, Target};

/// Settings that apply to every command.
#[derive(Debug)]
pub struct Settings {
    /// `--card`, with `--dma-bar`, `--cdma-offset`, `--ni`, `--map` and `--record`.
    pub card: CardChoice,
    /// `peer` of the defaults file.
    pub peer: Option<Target>,
    /// `--vfio`, `--vf-token` and `--message-timeout`, for a peer as for the card.
    pub access: AccessChoice,
    /// `--json`.
    pub json: bool,
    /// Style of standard output: `--color`, NO_COLOR, the locale.
    pub style: OutputStyle,
    /// Whether a progress bar is requested.
    pub progress: bool,
    /// Number of `-v` options.
    pub verbose: u8,
    /// `--timeout`, counted from the creation of the settings.
    pub deadline: Deadline,
    /// Defaults of `transfer`.
    pub transfer: TransferDefaults,
}

impl Settings {
    /// Reads the defaults file, if one is named; command-line options override it. Relative paths in it refer to the working directory, as
    /// on the command line.
    pub fn new(args: &GlobalArgs) -> Result<Self, CliError> {
        let config = match &args.config {
            Some(file) => {
                let deadline = Deadline::after(args.timeout);
                Config::parse(file, &read_yaml(FileKind::CONFIGURATION, file, deadline)?)?
            }
            None => Config::default(),
        };
        let timeout: Option<Duration> = args.timeout.or(config.timeout);
        let access = AccessChoice {
            interface: args.vfio,
            token: args.vf_token,
            message_timeout: args.message_timeout.or(config.message_timeout),
            timeout,
        };
        let deadline = Deadline::after(args.timeout.or(config.timeout));
        let map = match args.map.as_deref().or(config.map.as_deref()) {
            Some(file) => Some(match Input::named(file, deadline)? {
                Some(input) => RegisterMap::read(file, input)?,
                None => RegisterMap::load(file)?,
            }),
            None => None,
        };
        let map = map.map(Arc::new);
        let recording =
            args.record.as_deref().map(|path| Recording::create(path, deadline)).transpose()?.map(Arc::new);
        let target = args.card.clone().or(config.card).unwrap_or_default().through(access);
        Ok(Self {
            card: CardChoice::new(
                target,
                Design { dma_bar: args.dma_bar, cdma_offset: args.cdma_offset, interface: args.ni },
                map,
                recording,
            )
            .within(timeout),
            peer: config.peer,
            access,
            json: args.json || config.json,
            style: OutputStyle::of(args.color.or(config.color).unwrap_or_default()),
            progress: !(args.no_progress || config.no_progress),
            verbose: args.verbose.max(config.verbose),
            deadline,
            transfer: config.transfer,
        })
    }
}
