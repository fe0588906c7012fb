//! `card check`: whether a card can be built from a description; `card serve`: see [`serve`]; `card control`: see [`control`].

use std::io::Write;
use std::path::Path;

use fpga_driver::mock::World;
use serde::Serialize;

use crate::cli::CardCommand;
use crate::commands::{control, serve};
use crate::error::CliError;
use crate::output::{self, Report, pairs};
use crate::settings::Settings;
use crate::target;
use crate::units::binary_size;

/// The main facts of a description that is in order.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    file: String,
    valid: bool,
    name: String,
    memory_bytes: u64,
    h2c_channels: u8,
    c2h_channels: u8,
    node_id: u32,
    packet_bytes: u32,
    mask_bits: u16,
}

impl Report for CheckReport {
    fn text(&self) -> String {
        pairs(&[
            ("file", format!("{}: in order", self.file)),
            ("name", self.name.clone()),
            ("memory", binary_size(self.memory_bytes)),
            ("channels", format!("{} H2C, {} C2H", self.h2c_channels, self.c2h_channels)),
            ("node", self.node_id.to_string()),
            ("packets", format!("{} B, {} to a segment at most", self.packet_bytes, self.mask_bits)),
        ])
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Description`], [`CliError::NoSuchCard`], [`CliError::World`]; those of [`serve::run`] and [`control::run`].
pub fn run(settings: &Settings, command: &CardCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        CardCommand::Check { file } => output::print(&check(file)?, settings.json, out),
        CardCommand::Serve(args) => serve::run(settings, args, out),
        CardCommand::Control(args) => output::print(&control::run(args)?, settings.json, out),
    }
}

fn check(file: &Path) -> Result<CheckReport, CliError> {
    let description = target::load(file)?;
    let report = CheckReport {
        file: file.display().to_string(),
        valid: true,
        name: description.name.clone(),
        memory_bytes: description.memory.size,
        h2c_channels: description.xdma.h2c_channels,
        c2h_channels: description.xdma.c2h_channels,
        node_id: description.ni.node_id,
        packet_bytes: description.ni.packet_size,
        mask_bits: description.ni.mask_bits,
    };
    // Building it finds what a look at single values cannot.
    World::builder().card(description).build()?;
    Ok(report)
}
