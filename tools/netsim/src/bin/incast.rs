//! Many senders to one receiver through one switch, as CSV: completion time, fairness and retransmissions of every scheme, with and without
//! congestion windows.

use std::process::ExitCode;

use clap::Parser;
use fpga_netsim::{Report, Scenario, Scheme, Simulation, Topology};
use fpga_protocol::feedback::congestion::CongestionConfig;

/// Measures incasts at 100 Gbit/s: every combination of the given senders, lengths and schemes.
#[derive(Debug, Parser)]
struct Options {
    /// Numbers of senders.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32, 64])]
    senders: Vec<u32>,
    /// Lengths of each sender's transfer in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [65_536, 262_144, 1_048_576])]
    bytes: Vec<u64>,
    /// Schemes; none: all.
    #[arg(long, value_delimiter = ',')]
    schemes: Vec<String>,
    /// Queue of the switch's port in packets of 512 bytes.
    #[arg(long, default_value_t = 64)]
    queue: u64,
    /// Switches the congestion windows off.
    #[arg(long)]
    off: bool,
    /// Instead of an incast, a permutation of this number of hosts: nothing is congested.
    #[arg(long)]
    permutation: Option<u32>,
    /// Window before the first measurement, in packets.
    #[arg(long)]
    initial: Option<u32>,
}

/// Bytes on the wire of a full packet.
const PACKET: u64 = 572;

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53, to be divided")]
fn line(scenario: &Scenario, senders: u32, bytes: u64, report: &Report) -> String {
    let (jain, last) = (report.fairness(bytes), report.last_arrival().get());
    let payload = scenario.rate.time_of(u64::from(senders) * bytes.div_ceil(512) * PACKET).get();
    let ideal = payload + 2 * scenario.delay.get();
    let refusals: u64 = report.hosts.iter().map(|host| host.refusals).sum();
    let timeouts: u64 = report.hosts.iter().map(|host| host.timeouts).sum();
    format!(
        "{},{senders},{bytes},{:.1},{:.3},{jain:.4},{:.4},{},{timeouts},{refusals},{}",
        scenario.scheme.name(),
        last as f64 / 1e3,
        last as f64 / ideal as f64,
        report.packets_ratio() - 1.0,
        report.dropped,
        report.failures()
    )
}

fn measure(options: &Options) -> Result<(), String> {
    println!("scheme,senders,bytes,us,of_bottleneck,jain,retransmitted,dropped,timeouts,refusals,failures");
    let wanted = |scheme: &Scheme| {
        options.schemes.is_empty() || options.schemes.iter().any(|name| *name == scheme.name())
    };
    let mut config = CongestionConfig::DEFAULT;
    config.initial = options.initial.unwrap_or(config.initial);
    for scheme in Scheme::ALL.iter().copied().filter(wanted) {
        for senders in &options.senders {
            for bytes in &options.bytes {
                let arity = options.permutation.unwrap_or(senders + 1);
                let base = Scenario::new(*bytes)
                    .scheme(scheme)
                    .topology(Topology::Tree { arity, levels: 1, up: 1 })
                    .queue(options.queue * PACKET)
                    .congestion((!options.off).then_some(config));
                let (mut scenario, through) = match options.permutation {
                    Some(_) => (base.permutation(*bytes), 1),
                    None => (base.incast(*senders, *bytes), *senders),
                };
                scenario.contexts = Some(senders.max(&64) * 2);
                scenario.limit = fpga_protocol::Nanos::from_secs(2);
                let report = Simulation::new(&scenario)
                    .and_then(Simulation::run)
                    .map_err(|error| error.to_string())?;
                println!("{}", line(&scenario, through, *bytes, &report));
            }
            if options.permutation.is_some() {
                break;
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
