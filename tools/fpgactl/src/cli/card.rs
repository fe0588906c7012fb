//! `card`: descriptions of simulated cards, and served cards.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{LinkAddress, link_address, reorder_depth, whole};
use crate::impair::ImpairArgs;

/// Work with card descriptions.
#[derive(Debug, Clone, Subcommand)]
pub enum CardCommand {
    /// Check a card description
    #[command(after_help = "Examples:\n  \
                        fpgactl card check card.yaml\n  \
                        envsubst < card.yaml.in | fpgactl card check -")]
    Check {
        /// The description: a file, the name of a built-in one, or -: standard input
        #[arg(value_name = "FILE.yaml")]
        file: PathBuf,
    },
    /// Serve a simulated card to other programs, as a vfio-user device, until SIGINT or SIGTERM
    Serve(Box<ServeArgs>),
    /// Own a card that several programs share, until SIGINT or SIGTERM
    ///
    /// Each client gets a vfio-user device of its own, with DMA registers, interrupts and an IOMMU map of its own; card memory, registers of
    /// the design and user interrupts are shared. No client reaches another one's memory. If the card has the network interface, each client
    /// gets one of its own, with memory of its own: frames go through the owner to other clients, and by shared memory and UDP to clients of
    /// other owners and to simulated cards. An AXI4-Stream channel has one client
    /// at a time.
    Share(ShareArgs),
    /// Pull a served card out, put it back, make it fail, raise its user interrupts
    Control(ControlArgs),
}

/// Options of `card share`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
                        fpgactl card share --card 0000:65:00.0 --background\n  \
                        fpgactl run --card 0000:65:00.0 -- ./application &\n  \
                        fpgactl top --card 0000:65:00.0\n\n\
                        The same without this command, which the first program starts:\n  \
                        fpgactl run --card shared:0000:65:00.0 -- ./application &\n  \
                        fpgactl top --card shared:0000:65:00.0")]
pub struct ShareArgs {
    /// Path of the socket, which only this user can open: other programs name the card vfio-user:PATH [default: a file in
    /// $XDG_RUNTIME_DIR/fpgad, where programs of this user find it by the card's name]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// End with the last client, or if none comes in the first minute
    #[arg(long)]
    pub until_unused: bool,
    /// Return when programs can connect; messages of the owner go to a file beside the socket
    #[arg(long)]
    pub background: bool,
    /// IP address at which the clients' network interfaces receive frames by UDP [default: FPGA_ADDRESS, or the address of this machine]
    #[arg(long, value_name = "IP", conflicts_with = "no_interface")]
    pub address: Option<IpAddr>,
    /// File of the key of the clients' links: 64 hexadecimal digits, the same for all cards of the network. Datagrams by UDP carry a tag of it, and
    /// those without are dropped [default: FPGA_LINK_KEY, or no key]
    #[arg(long, value_name = "FILE", conflicts_with = "no_interface")]
    pub link_key: Option<PathBuf>,
    /// Give clients no network interface
    #[arg(long = "no-ni")]
    pub no_interface: bool,
}

impl ShareArgs {
    /// The option that the process in the background does not get.
    pub(crate) const BACKGROUND: &str = "--background";
}

/// Options of `card control`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A client of the card observes these changes as failures of a real card. Programs may also write to the control \
                        socket: one JSON document per line, each answered by one: {\"do\":\"faults\",\"faults\":{\"list\":[...]}}, \
                        {\"do\":\"pull-out\"}, {\"do\":\"put-back\"}, {\"do\":\"user-interrupt\",\"line\":0,\"on\":true}, \
                        {\"do\":\"pulse-user-interrupt\",\"line\":0}, {\"do\":\"stats\"}, {\"do\":\"state\"}.\n\n\
                        Examples:\n  \
                        fpgactl card serve --socket /tmp/card --control /tmp/control &\n  \
                        fpgactl card control /tmp/control faults faults.yaml\n  \
                        fpgactl card control /tmp/control pull-out"
)]
pub struct ControlArgs {
    /// Control socket: the --control path of `card serve`
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Action.
    #[command(subcommand)]
    pub command: ControlCommand,
}

/// Action on a served card.
#[derive(Debug, Clone, Subcommand)]
pub enum ControlCommand {
    /// Replace the fault plan; faults that have occurred remain
    Faults {
        /// Fault plan: a file like the section `faults` of a card description; -: standard input [default: no further faults]
        #[arg(value_name = "FILE.yaml")]
        file: Option<PathBuf>,
    },
    /// Take the card out of its slot, without a warning
    #[command(name = "pull-out")]
    Unplug,
    /// Put it back, in its power-on state
    #[command(name = "put-back")]
    Replug,
    /// Raise or lower an interrupt line of the card's user logic (usr_irq_req): a level, which stays until it is changed, or a pulse
    UserInterrupt {
        /// Interrupt line: 0 to 15
        #[arg(value_name = "N", value_parser = whole::<u8>(0, 15))]
        line: u8,
        /// High, low, or high for one interrupt
        level: Level,
    },
    /// Print for each planned fault the number of opportunities and the number of occurrences
    State,
    /// Print the current counters of the card and its server, which `card serve --stats` writes at the end
    Stats,
}

/// The level of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// High: requests an interrupt
    On,
    /// Low
    Off,
    /// High until the card has sent the interrupt (usr_irq_ack), then low: with the legacy line, until the host masks it. A line that the
    /// host has masked stays high until it is enabled
    Pulse,
}

/// Options of `card serve`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Prints one line, `ready SOCKET`, when a client can connect (with --json a document in one line). One client at a time \
                        is served; after it disconnects, the next one finds the card in the same state, with bus mastering off. QEMU \
                        connects the card with\n  \
                        -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"SOCKET\"}}'\n\
                        and memory that can be shared (-object memory-backend-memfd,share=on).\n\n\
                        With --control, `fpgactl card control` pulls the card out, puts it back and makes it fail while it is served. \
                        It has 16 connections; when others wait, one that has been idle for a second is closed.\n\n\
                        SIGINT and SIGTERM end the server normally; a second signal, or a cleanup of more than ten \
                        seconds, ends it at once. The sockets are removed in both cases.\n\n\
                        Examples:\n  \
                        fpgactl card serve --socket /tmp/card\n  \
                        fpgactl card serve --socket /tmp/card --card-file us-plus-x16 --stats stats.json\n  \
                        fpgactl card serve --socket /tmp/a --node 1 --link udp:10.0.0.1:7000 --link udp:10.0.0.2:7000\n  \
                        fpgactl card serve --socket /tmp/a --node 1 --link shm:/tmp/a.link --link shm:/tmp/b.link"
)]
pub struct ServeArgs {
    /// Socket to listen on
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Description of the card: a file, the name of a built-in one, or -: standard input [default: --card, if that is a simulated one]
    #[arg(long, value_name = "FILE.yaml")]
    pub card_file: Option<PathBuf>,
    /// Write the card's counters to this file (-: standard output) at the end
    #[arg(long, value_name = "FILE.json")]
    pub stats: Option<PathBuf>,
    /// Control socket to listen on for `card control`
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// DMA moves no faster than the described link (`link.rate: described`) [default: from the description]
    #[arg(long)]
    pub link_rate: bool,
    /// Node id of the card on the network [default: from the description]
    #[arg(long, value_name = "NODE", value_parser = whole::<u32>(0, 4_294_967_294))]
    pub node: Option<u32>,
    /// Connect to the networks of other processes by UDP, or by shared memory on one machine: first the receive address (udp:ADDR) or
    /// socket (shm:PATH) of this process, then those of the others. Without further ones it answers the processes that send to it
    #[arg(long, value_name = "udp:ADDR|shm:PATH", value_parser = link_address)]
    pub link: Vec<LinkAddress>,
    /// MTU of UDP: largest IP packet in bytes that every network between the processes carries. Packets of up to 1KiB fit 1500
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = whole::<u16>(576, 65_535), requires = "link")]
    pub link_mtu: u16,
    /// File of the key that both ends of a link by UDP share: 64 hexadecimal digits. Datagrams carry a tag of it, and those without are dropped
    #[arg(long, value_name = "FILE", requires = "link")]
    pub link_key: Option<PathBuf>,
    /// Number of packets that the simulated network holds back and releases in random order, 0 to 4096; 0: in order
    #[arg(long, value_name = "N", value_parser = reorder_depth, default_value_t = 0)]
    pub reorder: u16,
    /// Seed of the network's random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// Impairments of the packets that the card sends.
    #[command(flatten)]
    pub impair: ImpairArgs,
}
