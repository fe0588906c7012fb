//! `card serve`: offers a simulated card as a vfio-user device, until a signal.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use fpga_sim::link::{Link, LinkCounters, LinkKey, ShmLink, ShmLinkOptions, UdpLink, UdpLinkOptions};
use fpga_sim::served::{CardServer, Listener, ServeCounts, SocketFile};
use fpga_sim::{LinkRate, SCHEMA_VERSION, SimNetwork};
use serde::Serialize;

use crate::cli::{LinkAddress, ServeArgs};
use crate::control;
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::output;
use crate::settings::Settings;
use crate::stop;
use crate::target;

/// First line of output, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Ready<'a> {
    /// Path of the socket.
    pub(crate) ready: &'a str,
}

/// Counters of a served card since its creation, across resets.
#[derive(Debug, Serialize)]
struct Stats {
    socket: String,
    card: String,
    seconds: f64,
    /// CPU time of the server process.
    cpu_seconds: f64,
    connections: u64,
    turned_away: u64,
    messages: u64,
    refused_requests: u64,
    broken_connections: u64,
    memory_messages: u64,
    mmio_reads: u64,
    mmio_writes: u64,
    config_reads: u64,
    config_writes: u64,
    interrupts: u64,
    /// Interrupt requests of each line of user logic.
    user_interrupts: [u64; 16],
    descriptor_fetches: u64,
    descriptors: u64,
    /// Bytes moved in both directions.
    dma_bytes: u64,
    h2c_bytes: u64,
    c2h_bytes: u64,
    writebacks: u64,
    /// Stream builds: number of descriptors with a partial beat in the middle of a packet, and of C2H buffers that are not a multiple of 64
    /// bytes.
    partial_beats: u64,
    odd_stream_buffers: u64,
    cdma_descriptors: u64,
    cdma_bytes: u64,
    refused_dma_reads: u64,
    refused_dma_writes: u64,
    /// Link statistics; `null` without a link.
    link: Option<LinkStats>,
    faults: u64,
    /// Last faults since the last reset, oldest first.
    fault_log: Vec<FaultEntry>,
}

/// Datagrams and frames, as in [`LinkCounters`].
#[derive(Debug, Serialize)]
struct LinkStats {
    sent: u64,
    flooded: u64,
    unsent: u64,
    received: u64,
    malformed: u64,
    strangers: u64,
    misdirected: u64,
    unauthenticated: u64,
    replayed: u64,
}

impl From<LinkCounters> for LinkStats {
    fn from(counters: LinkCounters) -> Self {
        let LinkCounters {
            sent,
            flooded,
            unsent,
            received,
            malformed,
            unknown_senders: strangers,
            misdirected,
            unauthenticated,
            replayed,
            ..
        } = counters;
        Self { sent, flooded, unsent, received, malformed, strangers, misdirected, unauthenticated, replayed }
    }
}

/// One fault of the card's log.
#[derive(Debug, Serialize)]
struct FaultEntry {
    time_ns: u64,
    kind: String,
    unit: String,
    address: String,
    detail: u32,
}

/// Runs the command.
///
/// # Errors
/// Wrong usage if there is no simulated card to serve; those of its description, its sockets and the statistics.
pub fn run(settings: &Settings, args: &ServeArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let description = match &args.card_file {
        Some(file) => Some(target::read(file, settings.deadline)?),
        None => settings.card.description()?,
    };
    let Some(mut description) = description else {
        let card = &settings.card;
        return Err(CliError::usage(format!(
            "{card} is not a simulated card, and no other kind can be served"
        ))
        .advise("give --card-file, or omit --card"));
    };
    let name = description.name.clone();
    description.ni.node_id = args.node.unwrap_or(description.ni.node_id);
    if args.link_rate {
        description.link.rate = LinkRate::Described;
        // The option, not the file, uses the key: descriptions of earlier versions, such as those of built-in cards, accept it too.
        description.schema_version = SCHEMA_VERSION;
    }
    let impairments = args.impair.model(args.reorder)?;
    let network = SimNetwork::builder().card(description).impairments(impairments).seed(args.seed);
    let (link, link_file) = open_link(args)?.unzip();
    let network = match link {
        Some(link) => network.link(link),
        None => network,
    };
    let network = network.build()?;
    // Created at once: finding it unwritable at the end would lose the statistics.
    let stats = match &args.stats {
        Some(path) => Some((path, OutFile::create(path, settings.deadline)?)),
        None => None,
    };
    stop::install_handlers()?;
    let (ended, end) = UnixStream::pair().map_err(CliError::signals)?;
    // A signal ends both sockets; the card's may end earlier.
    let signalled = stop::signalled().unwrap_or(ended.as_fd());
    // Clients' files are mapped.
    target::catch();
    let server = CardServer::bind(&args.socket)?;
    let control = args.control.as_deref().map(Listener::bind).transpose()?;
    let files = [server.file(), control.as_ref().map(Listener::file)];
    stop::remove_on_exit(files.into_iter().chain([link_file.flatten()]).flatten().collect())?;
    let socket = args.socket.display().to_string();
    if settings.json {
        output::line(&Ready { ready: &socket }, out)?;
    } else {
        output::write_all(format!("ready {socket}\n").as_bytes(), out)?;
    }
    let began = Instant::now();
    let live = server.live_counts();
    let so_far = || {
        let counts =
            collect(&network, socket.clone(), name.clone(), began.elapsed().as_secs_f64(), live.get());
        serde_json::to_value(counts).unwrap_or_default()
    };
    let (served, controlled) = thread::scope(|scope| {
        let (network, ended, so_far) = (&network, ended.as_fd(), &so_far);
        let limits = control::Limits::default();
        let controlled = control
            .as_ref()
            .map(|listener| scope.spawn(move || control::serve(network, listener, ended, so_far, limits)));
        let served = server.run(network, 0, signalled);
        drop(end);
        // Propagates a panic of that thread.
        let controlled = controlled
            .map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (served, controlled)
    });
    if let Some((path, mut file)) = stats {
        let counts = *served.as_ref().unwrap_or(&ServeCounts::default());
        let content = collect(&network, socket.clone(), name.clone(), began.elapsed().as_secs_f64(), counts);
        let mut text = Vec::new();
        output::document(&content, &mut text)?;
        file.write_all(&text).map_err(|error| CliError::carried(path, "write it", error))?;
        file.commit()?;
    }
    served?;
    controlled.map_err(CliError::signals)
}

/// Opens the link of `--link`, if there is one. Returns it with the file of its socket, if it has one.
fn open_link(args: &ServeArgs) -> Result<Option<(Link, Option<SocketFile>)>, CliError> {
    let Some((local, peers)) = args.link.split_first() else { return Ok(None) };
    let mixed =
        || CliError::usage("--link: some are udp:ADDR, others shm:PATH").advise("give ends of one kind");
    match local {
        LinkAddress::Udp(local) => {
            let key = args.link_key.as_deref().map(LinkKey::read).transpose()?;
            let mut options = UdpLinkOptions::new(*local).mtu(args.link_mtu.into()).key(key);
            for peer in peers {
                let LinkAddress::Udp(peer) = peer else { return Err(mixed()) };
                options = options.peer(*peer);
            }
            Ok(Some((UdpLink::bind(options)?.into(), None)))
        }
        LinkAddress::Shm(_) if args.link_key.is_some() => {
            Err(CliError::usage("--link-key: a link by shared memory has no datagrams").advise("omit it"))
        }
        LinkAddress::Shm(local) => {
            let mut options = ShmLinkOptions::new(local);
            for peer in peers {
                let LinkAddress::Shm(peer) = peer else { return Err(mixed()) };
                options = options.peer(peer);
            }
            let link = ShmLink::bind(&options)?;
            let file = link.file();
            Ok(Some((link.into(), Some(file))))
        }
    }
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}

fn collect(network: &SimNetwork, socket: String, card: String, seconds: f64, served: ServeCounts) -> Stats {
    let seen = network.with_card(0, |card| {
        let log = card.faults().iter().map(|fault| FaultEntry {
            time_ns: fault.time.get(),
            kind: format!("{:?}", fault.kind),
            unit: format!("{:?}", fault.unit),
            address: format!("{:#x}", fault.address),
            detail: fault.detail,
        });
        (*card.counters(), card.faults().ever(), log.collect())
    });
    // The network was built with one card.
    let (counters, faults, fault_log) = seen.unwrap_or_default();
    let refused = network.refused_accesses(0);
    Stats {
        socket,
        card,
        seconds,
        cpu_seconds: cpu_seconds(),
        connections: served.connections,
        turned_away: served.turned_away,
        messages: served.messages,
        refused_requests: served.refused_requests,
        broken_connections: served.broken_connections,
        memory_messages: served.memory_messages,
        mmio_reads: counters.mmio_reads,
        mmio_writes: counters.mmio_writes,
        config_reads: counters.config_reads,
        config_writes: counters.config_writes,
        interrupts: counters.interrupts,
        user_interrupts: counters.user_interrupts,
        descriptor_fetches: counters.descriptor_fetches,
        descriptors: counters.descriptors,
        dma_bytes: counters.h2c_bytes.saturating_add(counters.c2h_bytes),
        h2c_bytes: counters.h2c_bytes,
        c2h_bytes: counters.c2h_bytes,
        writebacks: counters.writebacks,
        partial_beats: counters.partial_beats,
        odd_stream_buffers: counters.odd_stream_buffers,
        cdma_descriptors: counters.cdma_descriptors,
        cdma_bytes: counters.cdma_bytes,
        refused_dma_reads: refused.reads,
        refused_dma_writes: refused.writes,
        link: network.link_counters().map(Into::into),
        faults,
        fault_log,
    }
}
