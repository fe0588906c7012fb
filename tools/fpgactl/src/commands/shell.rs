//! `completions` and `man`: files for packagers of the program.

use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use fpga_sim::CardDescription;
use serde::Serialize;

use crate::cli::Cli;
use crate::error::CliError;
use crate::outfile::{self, OutFile};
use crate::output::Report;
use crate::progress::Deadline;

/// Completion script for a shell.
#[must_use]
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut hinted(Cli::command()), "fpgactl", &mut script);
    script
}

/// The command with hints that shells cannot guess: the built-in cards, and options whose values are not files. The address of a real card
/// and the path of a description are typed.
fn hinted(command: Command) -> Command {
    let hint = |arg: Arg| match arg.get_id().as_str() {
        "card" | "peer" => {
            // clap keeps names forever; the program ends after this.
            let others = CardDescription::builtins().filter(|known| known.name != "default");
            let built_in = others.map(|known| &*format!("mock:{}", known.name).leak());
            arg.value_parser(PossibleValuesParser::new(std::iter::once("mock").chain(built_in)))
        }
        _ if arg.get_action().takes_values()
            && arg.get_possible_values().is_empty()
            && arg.get_value_hint() == ValueHint::Unknown =>
        {
            arg.value_hint(ValueHint::Other)
        }
        _ => arg,
    };
    command.mut_args(hint).mut_subcommands(hinted)
}

/// Manual pages that were written.
#[derive(Debug, Serialize)]
pub struct ManReport {
    files: Vec<String>,
}

impl Report for ManReport {
    fn text(&self) -> String {
        self.files.iter().fold(String::new(), |text, file| text + file + "\n")
    }
}

/// Writes one manual page per command to the directory `out`, which is created if necessary.
///
/// # Errors
/// Wrong usage for standard output.
pub fn man(out: &Path, deadline: Deadline) -> Result<ManReport, CliError> {
    if outfile::is_stdout(out) {
        let text = format!("--out {}: a page for each command does not go to standard output", out.display());
        return Err(CliError::usage(text).advise("name a folder"));
    }
    let fail = |source| CliError::file(out, "write manual pages there", source);
    std::fs::create_dir_all(out).map_err(fail)?;
    let mut command = Cli::command();
    // Propagates the global options and names the subcommands.
    command.build();
    let mut files = Vec::new();
    write_pages(&command, out, &mut files, deadline)?;
    files.sort();
    Ok(ManReport { files })
}

fn write_pages(
    command: &clap::Command,
    out: &Path,
    files: &mut Vec<String>,
    deadline: Deadline,
) -> Result<(), CliError> {
    let page = clap_mangen::Man::new(command.clone());
    let path = out.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).map_err(|source| CliError::file(&path, "write it", source))?;
    OutFile::write_whole(&path, &text, deadline)?;
    files.push(path.display().to_string());
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        write_pages(sub, out, files, deadline)?;
    }
    Ok(())
}
