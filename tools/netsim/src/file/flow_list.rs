//! Lists of flows: CSV, and connection matrices of the simulator htsim.
//!
//! Both formats have one flow per line; `#` begins a comment line. CSV has a header with the columns `at_ns`, `from`, `to` and `bytes` in any
//! order. A connection matrix has `Nodes N` and `Connections N`, then lines `FROM->TO start PICOSECONDS size BYTES`; `id` and `prio` with their
//! numbers are accepted and have no effect. Triggers and failures have no counterpart and are refused.

use fpga_protocol::Nanos;

use crate::scenario::{Flow, MAX_FLOW_BYTES};

/// Reasons why a list of flows cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("flow list {name}:{line}: {problem}")]
pub struct FlowListError {
    /// File name.
    pub name: String,
    /// Line, from 1.
    pub line: usize,
    /// Reason, and the allowed values.
    pub problem: String,
}

/// Parsed list.
#[derive(Debug, Default)]
pub(super) struct FlowList {
    pub(super) flows: Vec<Flow>,
    /// Line of each flow.
    lines: Vec<usize>,
    /// Number of hosts that the list states, and its line.
    nodes: Option<(u64, usize)>,
}

/// Maximum time of a submission in nanoseconds.
const MAX_START: u64 = 60_000_000_000;
const MAX_FLOWS: usize = 1 << 22;

impl FlowList {
    /// Checks the list against the topology.
    pub(super) fn check(&self, name: &str, hosts: u32) -> Result<(), FlowListError> {
        let error = |line, problem| Err(FlowListError { name: name.to_owned(), line, problem });
        if let Some((nodes, line)) = self.nodes.filter(|(nodes, _)| *nodes > u64::from(hosts)) {
            return error(
                line,
                format!("{nodes} nodes, but the topology has {hosts} hosts: give a larger topology"),
            );
        }
        for (flow, line) in self.flows.iter().zip(&self.lines) {
            if let Some(host) = [flow.from, flow.to].into_iter().find(|host| *host >= hosts) {
                return error(*line, format!("host {host}, but the topology has hosts 0 to {}", hosts - 1));
            }
        }
        Ok(())
    }

    fn push(&mut self, line: usize, from: u32, to: u32, length: u64, at: u64) -> Result<(), String> {
        if from == to {
            return Err(format!("from host {from} to itself: give two hosts"));
        }
        if length == 0 || length > MAX_FLOW_BYTES {
            return Err(format!("{length} bytes: give 1 to {MAX_FLOW_BYTES}"));
        }
        if at > MAX_START {
            return Err(format!("begins at {at} ns: give 0 to {MAX_START}"));
        }
        if self.flows.len() >= MAX_FLOWS {
            return Err(format!("more than {MAX_FLOWS} flows: give fewer"));
        }
        self.flows.push(Flow { from, to, length, at: Nanos::new(at) });
        self.lines.push(line);
        Ok(())
    }
}

fn number<T: core::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("{name} = {}: give a whole number", fpga_input::shortened(text)))
}

/// Parses a list; the first line that is not a comment decides the format.
pub(super) fn parse(name: &str, text: &str) -> Result<FlowList, FlowListError> {
    let error = |line, problem| FlowListError { name: name.to_owned(), line, problem };
    let lines = || {
        (1..)
            .zip(text.lines().map(str::trim))
            .filter(|(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#'))
    };
    let Some((first, header)) = lines().next() else {
        return Err(error(
            1,
            "the list is empty: give a header at_ns,from,to,bytes and a line for each flow".to_owned(),
        ));
    };
    let mut list = FlowList::default();
    if header.contains("->") || header.starts_with("Nodes") || header.starts_with("Connections") {
        let mut connections = None;
        for (at, line) in lines() {
            matrix_line(&mut list, &mut connections, at, line).map_err(|problem| error(at, problem))?;
        }
        if let Some((count, line)) = connections.filter(|(count, _)| *count != list.flows.len() as u64) {
            let problem =
                format!("Connections {count}, but the list has {}: correct the number", list.flows.len());
            return Err(error(line, problem));
        }
    } else {
        let columns: Vec<&str> = header.split(',').map(str::trim).collect();
        let place = |wanted: &str| {
            let mut places = columns.iter().enumerate().filter(|(_, column)| **column == wanted);
            match (places.next(), places.next()) {
                (Some((place, _)), None) => Ok(place),
                _ => Err(error(
                    first,
                    format!("not one column {wanted}: begin with the header at_ns,from,to,bytes"),
                )),
            }
        };
        let places = [place("from")?, place("to")?, place("bytes")?, place("at_ns")?];
        if columns.len() != places.len() {
            return Err(error(first, format!("{} columns: give at_ns, from, to and bytes", columns.len())));
        }
        for (at, line) in lines().skip(1) {
            csv_line(&mut list, places, at, line).map_err(|problem| error(at, problem))?;
        }
    }
    if list.flows.is_empty() {
        return Err(error(first, "no flow follows: give a line for each flow".to_owned()));
    }
    Ok(list)
}

fn csv_line(list: &mut FlowList, places: [usize; 4], at: usize, line: &str) -> Result<(), String> {
    let values: Vec<&str> = line.split(',').collect();
    if values.len() != places.len() {
        return Err(format!("{} values: give 4, one for each column", values.len()));
    }
    let [from, to, bytes, start] = places.map(|place| values.get(place).copied().unwrap_or_default());
    let (from, to) = (number("from", from)?, number("to", to)?);
    list.push(at, from, to, number("bytes", bytes)?, number("at_ns", start)?)
}

fn matrix_line(
    list: &mut FlowList,
    connections: &mut Option<(u64, usize)>,
    at: usize,
    line: &str,
) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let head = words.next().unwrap_or_default();
    let mut value = |name: &str| match words.next() {
        Some(word) => Ok(word),
        None => Err(format!("{name} without a value: give one")),
    };
    if let Some((from, to)) = head.split_once("->") {
        let (from, to) = (number("source", from)?, number("destination", to)?);
        let (mut start, mut size) = (None, None);
        while let Ok(key) = value("") {
            match key {
                // Fractions of a nanosecond are dropped. The reference accepts decimals.
                "start" => start = Some(number::<f64>("start", value(key)?)?),
                "size" => size = Some(number("size", value(key)?)?),
                "id" | "prio" => {
                    number::<u64>(key, value(key)?)?;
                }
                "trigger" | "send_done_trigger" | "recv_done_trigger" | "addon" => {
                    return Err(format!("{key}: triggers are not supported; give start"));
                }
                other => {
                    let other = fpga_input::shortened(other);
                    return Err(format!("unknown word {other}: give start, size, id or prio with a number"));
                }
            }
        }
        let (Some(start), Some(size)) = (start, size) else {
            return Err(
                "a connection without start and size: give FROM->TO start PICOSECONDS size BYTES".to_owned()
            );
        };
        if !(0.0..=1e15).contains(&start) {
            return Err(format!("start = {start}: give picoseconds from 0 to 6e13"));
        }
        return list.push(at, from, to, size, crate::numbers::nearest((start / 1000.0).floor()));
    }
    match head {
        "Nodes" => list.nodes = Some((number("Nodes", value(head)?)?, at)),
        "Connections" => *connections = Some((number("Connections", value(head)?)?, at)),
        // The counts of what is refused may be 0.
        "Triggers" | "Failures" if value(head)? == "0" => {}
        "Triggers" | "trigger" => {
            return Err("triggers are not supported: give start for each connection".to_owned());
        }
        "Failures" | "failure" => {
            return Err("failures are not read from the list: give link_failures in the scenario".to_owned());
        }
        other => {
            let other = fpga_input::shortened(other);
            return Err(format!(
                "unknown line {other}: give Nodes, Connections or FROM->TO start PICOSECONDS size BYTES"
            ));
        }
    }
    match words.next() {
        Some(_) => Err(format!("{head} with more than one number: give one")),
        None => Ok(()),
    }
}
