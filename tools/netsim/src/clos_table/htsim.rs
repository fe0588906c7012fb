//! Files, arguments and output of uet-htsim (`htsim_uec`, <https://github.com/ultraethernet/uet-htsim>).

use std::fmt::Write as _;

use super::{ClosRow, HOSTS, HOSTS_PER_LEAF, LEAVES, LINK_DELAY, PACKET_LOG2, RowSample};
use crate::numbers::float;
use crate::scenario::Flow;

/// Names of the files that the program reads and writes in its working directory.
pub const MATRIX: &str = "flows.cm";
/// File with the network.
pub const TOPOLOGY: &str = "network.topo";
/// File with the program's own log.
const LOG: &str = "log";
/// Bytes of headers of a packet.
const HEADER_BYTES: u32 = 64;
/// Simulated time after which the program ends, in µs.
const END_US: u32 = 20_000;

/// Text of the network's file.
#[must_use]
pub fn topology(row: &ClosRow) -> String {
    let (gbps, spines, delay) = (row.gbps, row.spines, LINK_DELAY.get());
    let oversubscribed = HOSTS_PER_LEAF / spines.max(1);
    format!(
        "Nodes {HOSTS}\nTiers 2\nPodsize {HOSTS}\n\n\
         Tier 0\nDownlink_speed_Gbps {gbps}\nRadix_Down {HOSTS_PER_LEAF}\nRadix_Up {spines}\n\
         Downlink_Latency_ns {delay}\nSwitch_Latency_ns 0\nOversubscribed {oversubscribed}\n\n\
         Tier 1\nDownlink_speed_Gbps {gbps}\nRadix_Down {LEAVES}\nDownlink_Latency_ns {delay}\nSwitch_Latency_ns 0\n"
    )
}

/// Submission of a flow in whole µs: the program reads the numbers of `start` as µs, although its documentation says ps.
const fn start_us(flow: &Flow) -> u64 {
    flow.at.get() / 1000
}

/// Text of the flow list: flow n has the id n + 1.
#[must_use]
pub fn matrix(flows: &[Flow]) -> String {
    let mut text = format!("Nodes {HOSTS}\nConnections {}\n", flows.len());
    for (id, flow) in (1..).zip(flows) {
        let Flow { from, to, length, .. } = flow;
        let start = start_us(flow);
        let id: usize = id;
        let _ = writeln!(text, "{from}->{to} id {id} start {start} size {length}");
    }
    text
}

/// Arguments of the program; `seed` selects its random numbers.
#[must_use]
pub fn arguments(row: &ClosRow, seed: u64) -> Vec<String> {
    let mut arguments: Vec<String> = [
        ("-tm", MATRIX.to_owned()),
        ("-topo", TOPOLOGY.to_owned()),
        ("-linkspeed", (row.gbps * 1000).to_string()),
        ("-mtu", ((1 << PACKET_LOG2) + HEADER_BYTES).to_string()),
        ("-end", END_US.to_string()),
        ("-sender_cc_algo", "nscc".to_owned()),
        ("-seed", seed.to_string()),
        ("-o", LOG.to_owned()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect();
    // Without an option the program sprays over all paths.
    let options = [(row.paths == 1, "-paths"), (row.slow_spine, "-failed")];
    for (_, name) in options.into_iter().filter(|(wanted, _)| *wanted) {
        arguments.extend([name.to_owned(), "1".to_owned()]);
    }
    arguments
}

/// Word after `name`.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().skip_while(|word| *word != name).nth(1)
}

/// Reads the program's output: a line `Flow ... flowId N ... finished at US ...` of each completed flow, and a line `New: N Rtx: N` with
/// the packets. `None` if the latter is missing: the run did not end.
#[must_use]
pub fn results(flows: &[Flow], output: &str) -> Option<RowSample> {
    let mut sample = RowSample::default();
    let mut has_counts = false;
    for line in output.lines() {
        if let (Some(new), Some(again)) = (value(line, "New:"), value(line, "Rtx:")) {
            (sample.packets, sample.retransmits) = (new.parse().ok()?, again.parse().ok()?);
            has_counts = true;
        } else if line.starts_with("Flow ") && line.contains(" finished at ") {
            let end: f64 = value(line, "at")?.trim_end_matches(',').parse().ok()?;
            let id: usize = value(line, "flowId")?.parse().ok()?;
            let flow = flows.get(id.checked_sub(1)?)?;
            sample.add_time(flow.length, end - float(start_us(flow)));
        }
    }
    sample.failures = flows.len().saturating_sub(sample.times.len()) as u64;
    has_counts.then_some(sample)
}

#[cfg(test)]
mod tests {
    use super::super::FlowTimes;
    use super::*;
    use fpga_protocol::Nanos;

    #[test]
    fn htsim_files_describe_row() {
        let [row] = [ClosRow::ALL.iter().find(|row| row.name == "oversubscribed").unwrap()];
        assert!(
            topology(row)
                .contains("\nRadix_Up 3\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\nOversubscribed 4\n")
        );
        let flow = Flow { at: Nanos::new(20_999), ..Flow::new(3, 4, 65_536) };
        assert_eq!(matrix(&[flow]), "Nodes 144\nConnections 1\n3->4 id 1 start 20 size 65536\n");
        let arguments = arguments(row, 7).join(" ");
        assert!(
            arguments.contains("-linkspeed 100000 -mtu 4160 ") && arguments.contains(" -seed 7 "),
            "{arguments}"
        );
        assert!(!arguments.contains("-paths") && !arguments.contains("-failed"), "{arguments}");
    }

    #[test]
    fn htsim_output_is_read() {
        let flows = [Flow { at: Nanos::from_micros(20), ..Flow::new(0, 1, 10) }, Flow::new(1, 2, 20)];
        let text = "Flow Uec_0_1 flowId 1 uecSrc 0 starting at 20\n\
                    Flow Uec_0_1 flowId 1 uecSrc 0 finished at 36.5 total messages 1 total packets 16\n\
                    New: 16 Rtx: 4 RTS: 0 Bounced: 0\n";
        let sample = results(&flows, text).unwrap();
        let expected = FlowTimes { flows: 1, mean_us: 16.5, p99_us: 16.5, max_us: 16.5 };
        assert_eq!((sample.times(None), sample.failures), (Some(expected), 1));
        assert!((sample.retransmitted_percent() - 25.0).abs() < 1e-9);
        for broken in ["", "New: 1 Rtx: x\n", "Flow a flowId 3 finished at 1\nNew: 1 Rtx: 1\n"] {
            assert_eq!(results(&flows, broken), None, "{broken}");
        }
    }
}
