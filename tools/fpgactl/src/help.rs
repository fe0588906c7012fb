//! Help pages. The options of every command have a page of their own, `fpgactl help options`; the other pages point to it. Manual pages and
//! completions list them at each command.

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;

/// Name of the page with the options of every command.
pub(crate) const TOPIC: &str = "options";

/// Line of every other page.
const POINTER: &str = "Options of every command (--card, --json, --timeout, ...): fpgactl help options";

const ABOUT: &str = "Options of every command, before or after its name";

const AFTER: &str = "Examples:\n  \
                     fpgactl info --card 0000:65:00.0 --json\n  \
                     fpgactl --config defaults.yaml --timeout 30s transfer";

/// The command line as it is parsed, and as its help shows it.
pub(crate) fn command() -> Command {
    let all = Cli::command();
    let global: Vec<Arg> = all.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let topic = Command::new(TOPIC)
        .about(ABOUT)
        .override_usage("fpgactl COMMAND [OPTIONS]")
        .after_help(AFTER)
        .disable_help_flag(true)
        .hide(true)
        .args(global);
    let hidden = all.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
    prepared(hidden).subcommand(topic)
}

/// Adds the pointer to the pages of a command and of those below it. A negative number is a value, so that its refusal names the range.
fn prepared(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let is_value = arg.get_long().is_some() && arg.get_action().takes_values();
        if is_value { arg.allow_negative_numbers(true) } else { arg }
    });
    let after = command.get_after_help().map(StyledStr::to_string);
    let after = after.map_or_else(|| POINTER.to_owned(), |after| format!("{POINTER}\n\n{after}"));
    command.after_help(after).mut_subcommands(prepared)
}
