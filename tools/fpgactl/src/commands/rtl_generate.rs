//! `rtl wrapper`, `rtl registers` and `rtl board`: SystemVerilog and projects from descriptions.

use std::path::Path;

use fpga_register_map::{RegisterMap, rtl};
use fpga_rtl::board::{Board, BoardNetwork};
use fpga_rtl::wrapper::{self, WrapperOptions};
use fpga_sim::CardDescription;
use serde::Serialize;

use crate::cli::{RtlBoardArgs, RtlRegistersArgs, RtlWrapperArgs};
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::output::Report;
use crate::settings::Settings;

/// A module that was written.
#[derive(Debug, Serialize)]
pub struct ModuleReport {
    module: String,
    file: String,
    lines: usize,
}

impl Report for ModuleReport {
    fn text(&self) -> String {
        format!("module {} in {}\n", self.module, self.file)
    }
}

fn write(settings: &Settings, module: String, text: &str, out: &Path) -> Result<ModuleReport, CliError> {
    OutFile::write_whole(out, text.as_bytes(), settings.deadline)?;
    Ok(ModuleReport { module, file: out.display().to_string(), lines: text.lines().count() })
}

/// Runs `rtl wrapper`.
pub fn wrapper(settings: &Settings, args: &RtlWrapperArgs) -> Result<ModuleReport, CliError> {
    let card = CardDescription::load(&args.card_file)?;
    let options = WrapperOptions {
        module: args.module.clone(),
        user_interrupts: args.user_interrupts,
        descriptor_bypass: args.descriptor_bypass,
        cfg_mgmt: args.cfg_mgmt,
        clock_input: args.clock_input,
    };
    let text = wrapper::wrapper(&card, &options)?;
    write(settings, options.module, &text, &args.out)
}

/// Runs `rtl registers`.
pub fn registers(settings: &Settings, args: &RtlRegistersArgs) -> Result<ModuleReport, CliError> {
    let map = RegisterMap::load(&args.map)?;
    let module = args.module.clone().unwrap_or_else(|| {
        let stem = args
            .map
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().replace(['-', '.'], "_"));
        format!("{stem}_registers")
    });
    let text = rtl::skeleton(&map, &module).map_err(|error| {
        CliError::failed(format!("register map {}: {error}", args.map.display())).advised(error.help())
    })?;
    write(settings, module, &text, &args.out)
}

/// A project that was written.
#[derive(Debug, Serialize)]
pub struct BoardReport {
    board: String,
    part: String,
    files: Vec<String>,
}

impl Report for BoardReport {
    fn text(&self) -> String {
        let files = self.files.len();
        format!(
            "project for {} ({}): {files} files; not built by this project, which has no vendor tools\n",
            self.board, self.part
        )
    }
}

/// Runs `rtl board`.
pub fn board(args: &RtlBoardArgs) -> Result<BoardReport, CliError> {
    let refused =
        |error: fpga_rtl::board::BoardError| CliError::failed(error.to_string()).advised(error.help());
    let board = Board::named(&args.board)
        .map_err(|error| CliError::usage(error.to_string()).advised(error.help()))?;
    let card = match &args.card_file {
        Some(file) => CardDescription::load(file)?,
        None => board.card(),
    };
    let network = if args.external_network { BoardNetwork::External } else { BoardNetwork::Loopback };
    let files = board.write(&card, network, &args.out).map_err(refused)?;
    Ok(BoardReport {
        board: board.name.to_owned(),
        part: board.part.to_owned(),
        files: files.iter().map(|file| file.display().to_string()).collect(),
    })
}
