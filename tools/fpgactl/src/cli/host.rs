//! `list`, `doctor`, `bind`, `release`, `dump`: commands for the host.

use std::path::PathBuf;

use clap::Args;
use fpga_host::Roots;

/// Machine to examine.
#[derive(Debug, Clone, Default, Args)]
pub struct HostArgs {
    /// Root directory with sys, proc, dev, lib and run of the machine to examine [default: /]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

impl HostArgs {
    /// Roots of the file-system trees to use.
    #[must_use]
    pub fn roots(&self) -> Roots {
        self.root.as_deref().map_or_else(Roots::default, Roots::with_root)
    }

    /// Whether they are those of the running machine.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.root.is_none()
    }
}

/// Options of `list`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    after_help = "Known ids are those that the vendor's driver lists; --all also shows designs with other ids, which other commands \
                        accept by address.\n\n\
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
    after_help = "Each line is one check: pass; warn (works, but slower or less safely than possible); fail (no card is usable); \
                        skip (does not apply, because of another failed check or the kind of card); then the advice. Exit status 1 if \
                        a check failed. Nothing is changed and no card is opened. The checks cover all cards with known ids, or of the \
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
    after_help = "The previous driver is recorded in /run/fpga/bound until the function is released, or the machine restarts (which \
                        also undoes bindings). If a step fails, the function returns to its previous driver. Needs root.\n\n\
                        Examples:\n  \
                        fpgactl bind 0000:65:00.0\n  \
                        fpgactl bind 0000:65:00.1 --force   # a function with ids that are not known"
)]
pub struct BindArgs {
    /// Address of the function, as `fpgactl list` prints it
    #[arg(value_name = "BDF")]
    pub address: String,
    /// Bind it even if its ids are not those of a known card
    #[arg(long)]
    pub force: bool,
    /// The machine.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `release`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A function that was not bound by `fpgactl bind` goes to the kernel driver that matches it. A function that a \
                        program has open is not released. Needs root.\n\n\
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
    after_help = "The file is readable text. The card is only read: no state of it is stopped, set or cleared, so the command works \
                        with a hanging engine, and a part that cannot be read has the reason instead. Every part omits the host's and \
                        users' names, paths, serial numbers, MAC and IP addresses and UUIDs.\n\n\
                        Examples:\n  \
                        fpgactl dump --card 0000:65:00.0 --out report.txt\n  \
                        sudo fpgactl dump --card 0000:65:00.0 --out report.txt   # with the kernel's log"
)]
pub struct DumpArgs {
    /// Output file; -: standard output
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The machine.
    #[command(flatten)]
    pub host: HostArgs,
}
