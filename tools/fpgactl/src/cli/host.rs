//! `list`, `doctor`, `bind`, `release`, `dump`: commands for the host.

use std::path::PathBuf;

use clap::Args;
use fpga_host::Roots;

/// Which machine is looked at.
#[derive(Debug, Clone, Default, Args)]
pub struct HostArgs {
    /// Look at the machine whose sys, proc, dev, lib and run are below this directory [default: /]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

impl HostArgs {
    /// Roots of the file-system trees to use.
    #[must_use]
    pub fn roots(&self) -> Roots {
        self.root.as_deref().map_or_else(Roots::default, Roots::with_root)
    }
}

/// Options of `list`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    after_help = "Known ids are those that the vendor's driver lists; a design with ids of its own is shown by --all, and can be named all \
                        the same.\n\n\
                        Examples:\n  \
                        fpgactl list\n  \
                        fpgactl list --all\n  \
                        fpgactl list --json"
)]
pub struct ListArgs {
    /// Every PCI function, not only those with known ids
    #[arg(long)]
    pub all: bool,
    /// The machine.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `doctor`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    after_help = "Each line is one check: pass; warn (works, but slower or less safely than it could); fail (no card can be used like \
                        that); skip (another check's failure, or the kind of card, makes it pointless); then what to do. Exit status 1 if \
                        a check failed. Nothing is changed and no card is opened. The checks are of all cards with known ids, or of the \
                        one that --card names.\n\n\
                        Examples:\n  \
                        fpgactl doctor\n  \
                        fpgactl doctor | grep ^fail\n  \
                        fpgactl doctor --card 0000:65:00.0 --json"
)]
pub struct DoctorArgs {
    /// The machine.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `bind`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Which driver the function had is kept in /run/fpga/bound until it is released, or the machine restarts (which undoes \
                        bindings, too). If anything fails, the function gets its old driver back. Needs root.\n\n\
                        Examples:\n  \
                        fpgactl bind 0000:65:00.0\n  \
                        fpgactl bind 0000:65:00.1 --force   # a function with ids that are not known"
)]
pub struct BindArgs {
    /// Address of the function, as `fpgactl list` prints it
    #[arg(value_name = "BDF")]
    pub address: String,
    /// Bind it even if it has ids that no known card has
    #[arg(long)]
    pub force: bool,
    /// The machine.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `release`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A function that was not bound by `fpgactl bind` goes to whichever driver of the kernel's wants it. One that a program \
                        has open is not touched. Needs root.\n\n\
                        Examples:\n  \
                        fpgactl release 0000:65:00.0"
)]
pub struct ReleaseArgs {
    /// Address of the function, as `fpgactl list` prints it
    #[arg(value_name = "BDF")]
    pub address: String,
    /// The machine.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `dump`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The file is text, for people. The card is looked at as it is: nothing of it is stopped, set or cleared, so this works \
                        where an engine hangs, and what cannot be told of a card says why. Left out of every part are the host's and \
                        users' names, paths, serial numbers, MAC and IP addresses and UUIDs.\n\n\
                        Examples:\n  \
                        fpgactl dump --card 0000:65:00.0 --out report.txt\n  \
                        sudo fpgactl dump --card 0000:65:00.0 --out report.txt   # with the kernel's log"
)]
pub struct DumpArgs {
    /// The file to write; -: standard output
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The machine.
    #[command(flatten)]
    pub host: HostArgs,
}
