//! `card share`: one process owns a card, others are its clients.

use std::io::Write;

use fpgad::{Owner, OwnerOptions};

use crate::cli::ShareArgs;
use crate::commands::serve::Ready;
use crate::error::CliError;
use crate::output;
use crate::settings::Settings;
use crate::stop;
use crate::target;

/// Shares the card until a signal comes, or until the last client has gone.
///
/// # Errors
/// As for opening the card; [`CliError::Share`], [`CliError::Signals`].
pub fn run(settings: &Settings, args: &ShareArgs, out: &mut dyn Write) -> Result<(), CliError> {
    stop::install_handlers()?;
    // Clients' files are mapped.
    target::catch();
    let opened = target::open_threaded(&settings.card, None, 0)?;
    let options = OwnerOptions { ends_with_last: args.until_unused, ..OwnerOptions::default() };
    let owner = Owner::bind(opened.card.clone(), &args.socket, options)?;
    stop::remove_on_exit(vec![owner.file()])?;
    let socket = args.socket.display().to_string();
    if settings.json {
        output::line(&Ready { ready: &socket }, out)?;
    } else {
        output::write_all(format!("ready {socket}\n").as_bytes(), out)?;
    }
    // Installed above.
    let Some(signalled) = stop::signalled() else { return Ok(()) };
    Ok(owner.run(signalled)?)
}
