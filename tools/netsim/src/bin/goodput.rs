//! Goodput of a link with loss and reordering, and the retransmissions needed, as CSV: the registry scheme with its default timers, one
//! transfer per seed, compared with the same link without loss and in order.

use std::process::ExitCode;

use clap::Parser;
use fpga_netmodel::{Conditions, Loss, Order, Probability};
use fpga_netsim::{BitRate, FlowReport, Scenario, Simulation};
use fpga_protocol::Nanos;
use fpga_protocol::sender::SenderConfig;

/// Measures the goodput of one transfer per seed. Without loss, every retransmission is spurious.
#[derive(Debug, Parser)]
struct Options {
    /// Length of the transfer in bytes.
    #[arg(long, default_value_t = 16 << 20)]
    length: u64,
    /// Fraction of packets lost, data and answers alike.
    #[arg(long, default_value_t = 0.005)]
    loss: f64,
    /// Maximum number of packets that overtake one packet; 0: no reordering.
    #[arg(long, default_value_t = 64)]
    disorder: u32,
    /// Number of runs, each with a separate seed.
    #[arg(long, default_value_t = 8)]
    seeds: u64,
    /// Maximum number of packets in flight.
    #[arg(long, default_value_t = 4096)]
    op_entries: u32,
    /// Link rate in Gbit/s.
    #[arg(long, default_value_t = 80)]
    rate: u64,
    /// One-way delay in nanoseconds.
    #[arg(long, default_value_t = 800)]
    delay: u64,
}

fn run(scenario: &Scenario) -> Result<(FlowReport, u64), String> {
    let report = Simulation::new(scenario).and_then(Simulation::run).map_err(|error| error.to_string())?;
    let flow = report.flows.first().copied().unwrap_or_default();
    if let Some(error) = flow.error {
        return Err(error.to_string());
    }
    let refusals = report.hosts.first().map_or(0, |host| host.refusals);
    Ok((flow, refusals))
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53, to be divided")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn compare(options: &Options) -> Result<(), String> {
    let mut sender = SenderConfig::default();
    sender.op_entries = options.op_entries;
    let link = Scenario::new(options.length)
        .rate(BitRate::from_gbps(options.rate))
        .delay(Nanos::new(options.delay))
        .sender(sender);
    let (ideal, _) = run(&link)?;
    let ideal = ideal.goodput(options.length).get();
    let loss = Probability::new(options.loss).map_err(|error| error.to_string())?;
    let conditions = Conditions::default().loss(Loss::Independent(loss));
    let mut impaired = link.data(conditions).control(conditions);
    if options.disorder > 0 {
        // Maximum hold-back time: the time of `disorder` packets, 60 ns each at 80 Gbit/s.
        let hold_back = Nanos::new(4_800 / options.rate.max(1) * u64::from(options.disorder));
        impaired = impaired.order(Order::Degree { degree: options.disorder, patience: hold_back });
    }
    println!("loss,disorder,seed,goodput_share,packets,again,again_share,refusals");
    for seed in 0..options.seeds {
        let (flow, refusals) = run(&impaired.clone().seed(seed))?;
        println!(
            "{},{},{seed},{:.4},{},{},{:.6},{refusals}",
            options.loss,
            options.disorder,
            share(flow.goodput(options.length).get(), ideal),
            flow.packets,
            flow.retransmits,
            share(flow.retransmits, flow.packets)
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
