//! Conversion of a scenario file to a scenario.

use std::path::Path;

use fpga_input::FileKind;
use fpga_netmodel::{BitRate, Blackout, Order, Rate};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::congestion::CongestionConfig;
use fpga_protocol::scheme::any::SchemeConfig;

use super::impairments::{BlackoutEntry, ConditionsEntry, Disorder, Shuffle, Throttle};
use super::network::{EcnEntry, LinkFailureEntry};
use super::{
    File, FileError, FlowEntry, Incast, PacketBytes, Permutation, PlainSwitchEntry, RoutingName,
    SlowLinkEntry, Span, Switch, TopologyName, Traffic, Within, flow_list,
};
use crate::scenario::{Flow, Scenario, ScenarioError};
use crate::scheme::Rules;
use crate::topology::{PlainSwitch, Routing, SlowLink, Topology};

/// Error of values that are valid alone but not together: the key, the item of its list, and the reason.
type Combination<'a> = dyn Fn(&str, Option<usize>, String) -> FileError + 'a;

/// Path identifiers of a sender where switches hash them (ECMP on `clos` and `fat-tree`), unless the file has `paths`.
const DEFAULT_HASHED_PATHS: u16 = 128;

const fn nanos(given: Option<Span>) -> Option<Nanos> {
    match given {
        Some(Within(span)) => Some(Nanos::new(span)),
        None => None,
    }
}

const fn is_on(given: Option<Switch>) -> bool {
    matches!(given, Some(Switch(true)))
}

impl File {
    /// Converts the file to a scenario. `folder` has the list of transfers.
    pub(super) fn scenario(self, together: &Combination<'_>, folder: &Path) -> Result<Scenario, FileError> {
        let mut scenario = Scenario::new(1);
        scenario.scheme = self.scheme.unwrap_or(scenario.scheme);
        if let Some(TopologyName(topology)) = self.topology {
            topology.validate().map_err(|error| together("topology", None, error.to_string()))?;
            scenario.topology = topology;
        }
        scenario.rate = self.rate_gbps.map_or(scenario.rate, |Within(rate)| BitRate::from_gbps(rate));
        scenario.delay = nanos(self.delay_ns).unwrap_or(scenario.delay);
        scenario.queue = self.queue_bytes.map_or(scenario.queue, |Within(queue)| queue);
        if let Some(PacketBytes(log2)) = self.packet_bytes {
            scenario.sender.packet_size_log2 = log2;
            // A segment has as many packets as a mask has bits, whatever their size.
            scenario.sender.segment_size = u32::from(scenario.sender.mask_bits) << log2;
            scenario.sender.big_threshold = scenario.sender.segment_size;
        }
        scenario.seed = self.seed.map_or(0, |Within(seed)| seed);
        scenario.limit = self.limit_ns.map_or(scenario.limit, |Within(limit)| Nanos::new(limit));
        scenario.round_trip = self.round_trip_ns.map(|Within(span)| Nanos::new(span));
        scenario.contexts = self.contexts.map(Within::narrow).or(scenario.contexts);
        self.impairments(&mut scenario, together)?;
        self.network(&mut scenario, together)?;
        scenario.series = self.series_ns.map(|Within(span)| Nanos::new(span));
        scenario = self.traffic.flows(scenario, together, folder)?;
        let switch = |given: Option<Switch>| given.map(|Switch(on)| on);
        let window = self.window.map(Within::narrow);
        let tuned = tune(&scenario, window, switch(self.credit), switch(self.literal));
        scenario.rules = tuned.map_err(|(key, problem)| together(key, None, problem.to_owned()))?;
        let congestion =
            CongestionConfig::DEFAULT.with_packets(scenario.sender.packet_size(), scenario.rate.get());
        scenario.congestion = (!matches!(self.congestion, Some(Switch(false)))).then_some(congestion);
        scenario.controller = self.controller.map(Within::narrow);
        let has_hashed_paths =
            scenario.routing == Routing::Ecmp && matches!(scenario.topology, Topology::Clos(_));
        let paths = if has_hashed_paths { DEFAULT_HASHED_PATHS } else { 1 };
        scenario.paths = self.paths.map_or(paths, |given| u16::try_from(given.0).unwrap_or(paths));
        scenario.validate().map_err(|error| {
            let (key, item) = self.key_of(&error);
            together(key, item, error.to_string())
        })?;
        Ok(scenario)
    }

    fn impairments(&self, scenario: &mut Scenario, together: &Combination<'_>) -> Result<(), FileError> {
        let conditions =
            |key, entry: ConditionsEntry| entry.conditions().map_err(|problem| together(key, None, problem));
        scenario.data = conditions("data", self.data)?;
        scenario.control = conditions("control", self.control)?;
        match (self.disorder, self.shuffle) {
            (Some(_), Some(_)) => {
                let problem = "disorder and shuffle: give one of them".to_owned();
                return Err(together("shuffle", None, problem));
            }
            (Some(Disorder { degree, patience_ns: Within(patience) }), None) => {
                scenario.order = Order::Degree { degree: degree.narrow(), patience: Nanos::new(patience) };
            }
            (None, Some(Shuffle { depth, patience_ns: Within(patience) })) => {
                let depth = usize::try_from(depth.0).unwrap_or(usize::MAX);
                scenario.order = Order::Random { depth, patience: Nanos::new(patience) };
            }
            (None, None) => {}
        }
        let throttle = |Throttle { rate_mbps: Within(rate), queue_ns: Within(queue) }| Rate {
            rate: BitRate::new(rate.saturating_mul(1_000_000)),
            queue: Nanos::new(queue),
        };
        scenario.throttle = self.throttle.map(throttle);
        let blackout = |entry: &BlackoutEntry| Blackout {
            from: Nanos::new(entry.from_ns.0),
            length: Nanos::new(entry.length_ns.0),
        };
        scenario.blackouts = self.blackouts.iter().flatten().map(blackout).collect();
        Ok(())
    }

    fn network(&self, scenario: &mut Scenario, together: &Combination<'_>) -> Result<(), FileError> {
        scenario.routing = match self.routing {
            Some(RoutingName::Fixed) => Routing::Fixed,
            Some(RoutingName::Ecmp) => Routing::Ecmp,
            Some(RoutingName::AdaptiveFlow) => Routing::AdaptiveFlow,
            Some(RoutingName::RoundRobin) => Routing::RoundRobin,
            Some(RoutingName::Adaptive) | None => Routing::Adaptive,
        };
        let slow = |entry: &SlowLinkEntry| SlowLink {
            from: entry.from.narrow(),
            to: entry.to.narrow(),
            number: entry.number.map(Within::narrow),
            times: entry.times.narrow(),
        };
        scenario.slow = self.slow_links.iter().flatten().map(slow).collect();
        let plain = |entry: &PlainSwitchEntry| PlainSwitch {
            vertex: entry.switch.narrow(),
            drops: is_on(entry.drop),
        };
        scenario.plain_switches = self.plain_switches.iter().flatten().map(plain).collect();
        scenario.outages = self.link_failures.iter().flatten().map(LinkFailureEntry::outage).collect();
        scenario.detection = nanos(self.reroute_ns).unwrap_or(Nanos::ZERO);
        let marking = self.ecn.map(EcnEntry::marking).transpose();
        scenario.marking = marking.map_err(|problem| together("ecn", None, problem))?;
        (scenario.control_first, scenario.trimming) = (is_on(self.control_first), is_on(self.trimming));
        Ok(())
    }

    /// Returns the key whose value causes an error, and the item of its list.
    fn key_of(&self, error: &ScenarioError) -> (&'static str, Option<usize>) {
        let is_list = self.traffic.file.is_some();
        match *error {
            ScenarioError::Controller { .. } | ScenarioError::NoDelays { .. } => ("controller", None),
            // The list's own check names the line.
            ScenarioError::Host { .. } | ScenarioError::Itself { .. } | ScenarioError::Length { .. }
                if is_list =>
            {
                ("file", None)
            }
            ScenarioError::Phases { number } | ScenarioError::Outage { number, .. } => {
                ("link_failures", Some(number))
            }
            ScenarioError::Marking => ("ecn", None),
            ScenarioError::Trimming => ("trimming", None),
            ScenarioError::Interval => ("series_ns", None),
            ScenarioError::Host { number, .. }
            | ScenarioError::Itself { number, .. }
            | ScenarioError::Length { number, .. } => ("flows", Some(number)),
            ScenarioError::SlowLink { number, .. } => ("slow_links", Some(number)),
            ScenarioError::PlainSwitch { number, .. } => ("plain_switches", Some(number)),
            ScenarioError::NoRate => ("rate_gbps", None),
            ScenarioError::Topology(_) => ("topology", None),
            ScenarioError::Memory { .. } if self.contexts.is_none() => ("topology", None),
            ScenarioError::Memory { .. } | ScenarioError::Messages(_) => ("contexts", None),
            ScenarioError::Order(_) if self.shuffle.is_some() => ("shuffle", None),
            ScenarioError::Order(_) => ("disorder", None),
            ScenarioError::Sender(_) | ScenarioError::Receiver(_) => ("packet_bytes", None),
            ScenarioError::NoFlow | ScenarioError::Events { .. } => ("traffic", None),
        }
    }
}

impl Traffic {
    /// Adds the flows to a scenario.
    fn flows(
        &self,
        scenario: Scenario,
        together: &Combination<'_>,
        folder: &Path,
    ) -> Result<Scenario, FileError> {
        match (&self.flows, &self.file, &self.permutation, &self.incast) {
            (None, Some(list), None, None) => {
                let path = folder.join(list);
                let shown = path.display().to_string();
                let list = flow_list::parse(&shown, &FileKind::FLOW_LIST.read(&path)?)?;
                list.check(&shown, scenario.topology.hosts())?;
                Ok(scenario.flows(list.flows))
            }
            (Some(flows), None, None, None) => {
                let flow = |entry: &FlowEntry| Flow {
                    from: entry.from.narrow(),
                    to: entry.to.narrow(),
                    length: entry.bytes.0,
                    at: nanos(entry.at_ns).unwrap_or(Nanos::ZERO),
                };
                Ok(scenario.flows(flows.iter().map(flow).collect()))
            }
            (None, None, Some(Permutation { bytes }), None) => Ok(scenario.permutation(bytes.0)),
            (None, None, None, Some(Incast { senders, bytes })) => {
                let last = u64::from(scenario.topology.hosts() - 1);
                if senders.0 > last {
                    let senders = senders.0;
                    let problem = format!("senders = {senders}: give 1 to {last} (host 0 is the receiver)");
                    return Err(together("incast", None, problem));
                }
                Ok(scenario.incast(senders.narrow(), bytes.0))
            }
            _ => {
                let problem = "give one of flows, file, permutation and incast".to_owned();
                Err(together("traffic", None, problem))
            }
        }
    }
}

/// Scheme parameters given in a file; `None` if there are none.
fn tune(
    scenario: &Scenario,
    window: Option<u32>,
    credit: Option<bool>,
    literal: Option<bool>,
) -> Result<Option<Rules>, (&'static str, &'static str)> {
    if window.is_none() && credit.is_none() && literal.is_none() {
        return Ok(None);
    }
    let mut rules = Rules::new(scenario.scheme, scenario.timers_for());
    if let Some(credit) = credit {
        match &mut rules {
            Some(Rules::Card(SchemeConfig::ReceiverWindow(config))) => config.credit = credit,
            _ => return Err(("credit", "only receiver-window supports it: remove it, or change scheme")),
        }
    }
    if let Some(literal) = literal {
        match &mut rules {
            Some(Rules::SenderWindow(config)) => {
                (config.adaptive, config.whole_buffer) = (!literal, literal);
            }
            _ => return Err(("literal", "only sender-window supports it: remove it, or change scheme")),
        }
    }
    if let Some(window) = window {
        let Some(most) = scenario.scheme.max_window() else {
            return Err(("window", "this scheme has no window: remove it, or change scheme"));
        };
        if window > most {
            return Err(("window", "the window of this scheme is 1 to 128: give less, or change scheme"));
        }
        if let Some(rules) = &mut rules {
            rules.set_window(window);
        }
    }
    Ok(rules)
}
