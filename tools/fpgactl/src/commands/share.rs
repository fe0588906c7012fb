//! `card share`: one process owns a card, others are its clients.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fpga_driver::SharedSocket;
use fpga_sim::link::LinkKey;
use fpgad::{Owner, OwnerOptions, ViewInterface};

use crate::cli::ShareArgs;
use crate::commands::serve::Ready;
use crate::error::CliError;
use crate::output;
use crate::settings::Settings;
use crate::stop;
use crate::target;

/// Maximum length of an owner's error message, in bytes.
const MAX_MESSAGE: u64 = 4096;

/// Shares the card until a signal comes, or until the last client has gone.
pub fn run(settings: &Settings, args: &ShareArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let found = SharedSocket::of(settings.card.spec.card());
    if args.socket.is_none() {
        found.create_folder().map_err(fpgad::OwnerError::from)?;
    }
    let socket = args.socket.as_deref().unwrap_or(found.path());
    if args.background {
        return start(settings, socket, out);
    }
    stop::install_handlers()?;
    // Clients' files are mapped.
    target::catch();
    // Released after the card is closed.
    let _lock;
    let opened = target::open_attended(&settings.card)?;
    let lock = args.socket.is_none().then(|| found.clone());
    let interface = interface(args);
    let link_key = match interface {
        ViewInterface::Absent => None,
        _ => link_key(args)?,
    };
    let ends_with_last = args.until_unused;
    let options = OwnerOptions { ends_with_last, lock, interface, link_key, ..OwnerOptions::default() };
    let owner = Owner::bind(opened.card.clone(), socket, options)?;
    stop::remove_on_exit(vec![owner.file()])?;
    ready(settings, socket, out)?;
    // Installed above.
    let Some(signalled) = stop::signalled() else { return Ok(()) };
    _lock = owner.run(signalled)?;
    Ok(())
}

fn interface(args: &ShareArgs) -> ViewInterface {
    if args.no_interface {
        return ViewInterface::Absent;
    }
    // Openers pass their environment to the owner. A port belongs to one of them.
    let variable = || {
        let text = std::env::var("FPGA_ADDRESS").ok()?;
        text.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
    };
    args.address.or_else(variable).map_or(ViewInterface::Linked, ViewInterface::LinkedAt)
}

fn link_key(args: &ShareArgs) -> Result<Option<LinkKey>, CliError> {
    let variable = || std::env::var_os("FPGA_LINK_KEY").filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = args.link_key.clone().or_else(variable);
    Ok(path.as_deref().map(LinkKey::read).transpose()?)
}

fn ready(settings: &Settings, socket: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    let socket = socket.display().to_string();
    if settings.json {
        return output::line(&Ready { ready: &socket }, out);
    }
    output::write_all(format!("ready {socket}\n").as_bytes(), out)
}

/// Starts the owner as a process of its own, and waits until it is ready.
fn start(settings: &Settings, socket: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    let log = SharedSocket::at(socket).beside("log");
    // Takes the name of the log, which may be that of a running owner or a link to something else, when the owner is ready.
    let own = SharedSocket::at(socket).beside(&format!("log.{}", std::process::id()));
    let fail = |error: io::Error| CliError::failed(error.to_string());
    fpga_pci::keep_descriptors().map_err(|error| CliError::failed(error.to_string()))?;
    // Left by a process that was killed and had the same number.
    let _ = std::fs::remove_file(&own);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let mut messages = options.open(&own).map_err(|error| CliError::carried(&own, "write it", error))?;
    let started = spawn(&messages).and_then(|(mut owner, line)| {
        if !line.is_empty() {
            std::fs::rename(&own, &log).inspect_err(|_| _ = owner.kill())?;
        }
        Ok((owner, line))
    });
    let _ = std::fs::remove_file(&own);
    let (mut owner, line) = started.map_err(fail)?;
    if !line.is_empty() {
        return ready(settings, socket, out);
    }
    let status = owner.wait().map_err(fail)?;
    let mut message = String::new();
    // The file is shared with the owner, and so is the position in it.
    messages.rewind().map_err(fail)?;
    messages.take(MAX_MESSAGE).read_to_string(&mut message).map_err(fail)?;
    let message = message.trim();
    let message = message.strip_prefix("fpgactl: ").unwrap_or(message);
    // The owner's message, with its advice.
    Err(match message.split_once("\nhelp: ") {
        _ if message.is_empty() => CliError::failed(status.to_string()),
        Some((problem, help)) => CliError::failed(problem).advise(help),
        None => CliError::failed(message),
    })
}

/// Starts the owner, and returns what it says when it is ready; an empty text if it has ended.
fn spawn(messages: &File) -> io::Result<(Child, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    let ours = [ShareArgs::BACKGROUND, "--json"];
    command.args(std::env::args_os().skip(1).filter(|argument| !ours.iter().any(|ours| argument == ours)));
    // Of its own group: it does not get the terminal's signals.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut owner = command.stderr(messages.try_clone()?).spawn()?;
    let mut line = String::new();
    if let Some(output) = owner.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    Ok((owner, line))
}
