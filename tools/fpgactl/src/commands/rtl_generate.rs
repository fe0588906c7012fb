//! `rtl wrapper` and `rtl registers`: SystemVerilog from descriptions.

use fpga_register_map::{RegisterMap, rtl};
use fpga_rtl::wrapper::{self, WrapperOptions};
use fpga_sim::CardDescription;

use crate::cli::{RtlRegistersArgs, RtlWrapperArgs};
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::settings::Settings;

/// Runs `rtl wrapper`.
///
/// # Errors
/// [`CliError::Wrapper`]; those of the card file and of the output file.
pub fn wrapper(settings: &Settings, args: &RtlWrapperArgs) -> Result<(), CliError> {
    let card = CardDescription::load(&args.card_file)?;
    let options = WrapperOptions {
        module: args.module.clone(),
        user_interrupts: args.user_interrupts,
        descriptor_bypass: args.descriptor_bypass,
        cfg_mgmt: args.cfg_mgmt,
        clock_input: args.clock_input,
    };
    let text = wrapper::wrapper(&card, &options)?;
    OutFile::write_whole(&args.out, text.as_bytes(), settings.deadline)
}

/// Runs `rtl registers`.
///
/// # Errors
/// [`CliError::Skeleton`]; those of the map and of the output file.
pub fn registers(settings: &Settings, args: &RtlRegistersArgs) -> Result<(), CliError> {
    let map = RegisterMap::load(&args.map)?;
    let module = args.module.clone().unwrap_or_else(|| {
        let stem = args
            .map
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().replace(['-', '.'], "_"));
        format!("{stem}_registers")
    });
    let text = rtl::skeleton(&map, &module)
        .map_err(|source| CliError::Skeleton { map: args.map.clone(), source })?;
    OutFile::write_whole(&args.out, text.as_bytes(), settings.deadline)
}
