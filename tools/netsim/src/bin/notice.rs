//! Time by which a receiver's own completion precedes the sender's notification, hop by hop, as CSV: see [`fpga_netsim::notice`].

use std::process::ExitCode;

use clap::Parser;
use fpga_netsim::{BitRate, Scenario, notice};
use fpga_protocol::Nanos;

/// Notification of the receiving application by its own node and by the sender: one transfer over paths of 1 to `hops` hops.
#[derive(Debug, Parser)]
struct Options {
    /// Length of the transfer in bytes.
    #[arg(long, default_value_t = 4096)]
    length: u64,
    /// Delay of one hop, in nanoseconds.
    #[arg(long, default_value_t = 800)]
    delay: u64,
    /// Maximum number of hops.
    #[arg(long, default_value_t = 8)]
    hops: u64,
    /// Link rate in Gbit/s.
    #[arg(long, default_value_t = 80)]
    rate: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let scenario = Scenario::new(options.length)
        .congestion(None)
        .rate(BitRate::from_gbps(options.rate))
        .delay(Nanos::new(options.delay));
    match notice::by_hops(&scenario, options.hops) {
        Ok(rows) => {
            println!("hops,round_trip_ns,own_ns,told_ns,saved_ns,saved_percent");
            for row in rows {
                let percent = row.saved().get() * 100 / row.told.get().max(1);
                let [round_trip, own, told, saved] =
                    [row.round_trip, row.own, row.told, row.saved()].map(Nanos::get);
                println!("{},{round_trip},{own},{told},{saved},{percent}", row.hops);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
