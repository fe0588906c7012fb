//! Figures of the adaptive window (source 002): spurious retransmissions by its timeout, and incast (many senders to one receiver) without
//! and with flow control.

use fpga_netmodel::{Conditions, Delay};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::flow;
use fpga_protocol::scheme::adaptive_window::{self, TimeoutRule};
use fpga_protocol::scheme::any::SchemeConfig;

use super::disorder::{DelayDistribution, Delays};
use super::float;
use super::measure::{Measured, Point, measure, most_of_several};
use super::picture::{Curve, CurveKind, Extent, Mark, Panel, Picture, Scale};
use super::schemes::VARIANTS;
use super::{
    Figure, FigureError, MARKER_NOTE, Options, ProgressCallback, RenderedFigure, Row, made, network,
    reference_parameters, runs,
};
use crate::{Flow, RateChange, Scenario, Scheme, Simulation, Topology};

const TRANSFER_BYTES: u64 = 1 << 20;
const DISORDER: u32 = 64;
const LAWS: [DelayDistribution; 3] =
    [DelayDistribution::Exponential, DelayDistribution::Uniform, DelayDistribution::LogNormal];
const LAW_NAMES: &[&str] = &["exponential", "uniform", "log-normal"];
/// Percentage of delays above mean + standard deviation, per distribution. Exponential: exp(-2). Uniform: (1 - 1/sqrt 3) / 2. Log-normal
/// with sigma 1: mean and deviation are 1.6487 and 2.1612 medians, so the share of a normal distribution above ln 3.8099.
const SHARE_ABOVE_MEAN_PLUS_DEVIATION: [f64; 3] = [13.53, 21.13, 9.05];
/// Number of senders to one receiver, and bytes of each.
const SENDERS: u32 = 32;
const BYTES_PER_SENDER: u64 = 128 << 10;
const QUEUES: [u64; 2] = [64 << 10, 256 << 10];
const GOODPUT: &str = "goodput / link rate";
const JAIN: &str = "Jain's index";
/// Bytes of each sender with flow control. A sender needs about a hundred round trips to find its rate.
const LENGTHS: [u64; 2] = [128 << 10, 512 << 10];
/// Schemes without and with flow control, and their colours.
const CONTROLLED: [(Scheme, bool, usize); 3] =
    [(Scheme::AdaptiveWindow, false, 3), (Scheme::AdaptiveWindow, true, 1), (Scheme::Selective, true, 2)];

/// Variants of the timeout: legend, configuration, colour. T: mean delay, d: standard deviation, `trip`: round-trip time.
fn timeouts(trip: Nanos) -> [(&'static str, SchemeConfig, usize); 4] {
    let rules = |patience, walk: Option<Nanos>, wanted| {
        let config = adaptive_window::AdaptiveWindowConfig::new(trip);
        let walk = walk.unwrap_or(config.walk);
        let sender = adaptive_window::AdaptiveWindowConfig { patience, walk, ..config };
        SchemeConfig::AdaptiveWindow { sender, overdue: wanted }
    };
    [
        ("T + d, checked every 20 ns", rules(TimeoutRule::Literal, Some(Nanos::new(20)), None), 1),
        ("T + d, checked every RTT/4", rules(TimeoutRule::Literal, None, None), 6),
        ("T + 4d (default)", rules(TimeoutRule::Safe, None, None), 0),
        ("default, with receiver requests", rules(TimeoutRule::Safe, None, Some(trip)), 3),
    ]
}

/// Names of the variants of [`timeouts`] in the data rows.
const SCHEME_NAMES: [&str; 4] = [
    "adaptive-window literal continuous",
    "adaptive-window literal",
    "adaptive-window timeout-only",
    "adaptive-window",
];

pub(super) fn make(
    figure: Figure,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<RenderedFigure, FigureError> {
    let trip = reference_parameters(TRANSFER_BYTES).timers_for();
    let mut delays = Delays::new(options.seed);
    let mut points = Vec::new();
    for ((_, rules, _), name) in timeouts(trip).into_iter().zip(SCHEME_NAMES) {
        for law in LAWS {
            let delay = delays.of(law, DISORDER)?;
            let scenario = reference_parameters(TRANSFER_BYTES).data(network(0.0, delay)).rules(rules);
            points.push(Point::new(scenario).with(|row| {
                row.figure = figure.name();
                name.clone_into(&mut row.scheme);
                row.topology = format!("{} {}", row.topology, law.name());
                (row.loss, row.disorder, row.window) = (Some(0.0), Some(DISORDER), Some(128));
            }));
        }
    }
    let first = points.len();
    // The receiver counter is omitted: it retransmits the whole message for each lost packet, so the queue overflows again and again.
    // So is the sender window in its literal form, with a constant timer shorter than the delay of a full queue.
    let schemes: Vec<_> = VARIANTS.iter().filter(|variant| !variant.floods_queues()).collect();
    for variant in &schemes {
        for queue in QUEUES {
            points.push(variant.point(figure, incast(queue), 0.0, 0).with(|row| {
                row.disorder = None;
                row.topology = format!("{} queue {queue}", row.topology);
            }));
        }
    }
    let second = points.len();
    for (scheme, control, _) in CONTROLLED {
        for length in LENGTHS {
            let scenario = longer(length, control).scheme(scheme);
            points.push(Point::new(scenario).with(|row| {
                row.figure = figure.name();
                row.scheme = controlled_name(scheme, control);
                row.loss = Some(0.0);
            }));
        }
    }
    let mut measured = measure(points, options, done)?;
    let (needless, rest) = measured.split_at_mut(first);
    let (many, controlled) = rest.split_at_mut(second - first);
    many.iter_mut().for_each(|point| point.against((ideal(BYTES_PER_SENDER), 0.0)));
    for point in controlled.iter_mut() {
        let length = point.row.size_bytes.unwrap_or(0);
        point.against((ideal(length), 0.0));
    }
    let mut findings = Vec::new();
    let mut resent = Panel {
        title: "spurious retransmissions".to_owned(),
        x_label: "distribution of the delay".to_owned(),
        y_label: "% of packets needed".to_owned(),
        x_scale: Scale::Names(LAW_NAMES),
        marks: (0_u32..)
            .zip(SHARE_ABOVE_MEAN_PLUS_DEVIATION)
            .map(|(at, share)| Mark::new(f64::from(at), share, "delays beyond T + d"))
            .collect(),
        ..Panel::default()
    };
    for ((name, _, colour), points) in timeouts(trip).into_iter().zip(needless.chunks(LAWS.len())) {
        let along = (0_u32..).map(f64::from).zip(points);
        let curve = Curve::new(name, colour).style(CurveKind::Dots);
        resent.curves.push(
            curve.points(along.map(|(x, point)| (x, point.again * 100.0, point.again_half_width * 100.0))),
        );
        let shares = points.iter().map(|point| format!("{:.3} %", point.again * 100.0)).collect::<Vec<_>>();
        findings.push(format!(
            "{name}: {} spurious retransmissions ({})",
            shares.join(", "),
            LAW_NAMES.join(", ")
        ));
    }
    let panel = |title: &str, y_label: &str, y_extent: Extent| Panel {
        title: title.to_owned(),
        x_label: "queue of the port".to_owned(),
        y_label: y_label.to_owned(),
        x_scale: Scale::Bytes,
        y_extent,
        ..Panel::default()
    };
    let mut goodput = panel("incast: goodput", GOODPUT, Extent::Between(0.0, 1.05));
    let mut fairness = panel("incast: fairness", JAIN, Extent::Data);
    for (variant, points) in schemes.iter().zip(many.chunks(QUEUES.len())) {
        let along = || QUEUES.iter().map(|queue| float(*queue)).zip(points);
        goodput.curves.push(
            Curve::new(variant.name(), variant.colour).points(
                along().map(|(x, point)| {
                    (x, point.row.speed_ratio.unwrap_or(f64::NAN), point.speed_half_width())
                }),
            ),
        );
        fairness.curves.push(
            Curve::new(variant.name(), variant.colour)
                .points(along().map(|(x, point)| (x, point.jain, point.jain_half_width)))
                .at_most(1.0),
        );
        let one = |point: &Measured| {
            format!(
                "goodput {:.3}, Jain {:.3}, {:.2}x packets, {} failures",
                point.row.speed_ratio.unwrap_or(f64::NAN),
                point.jain,
                point.row.packets_ratio.unwrap_or(0.0),
                point.row.failures.unwrap_or(0)
            )
        };
        let list = points.iter().map(one).collect::<Vec<_>>().join("; ");
        findings.push(format!("incast, {}, queues of 64 and 256 KiB: {list}", variant.name()));
    }
    let by_length = |title: &str, y_label: &str, y_extent: Extent| Panel {
        x_label: "size of each transfer".to_owned(),
        ..panel(title, y_label, y_extent)
    };
    let mut carried = by_length("flow control: goodput", GOODPUT, Extent::Between(0.0, 1.05));
    let mut shared = by_length("flow control: fairness", JAIN, Extent::Data);
    for ((scheme, control, colour), points) in CONTROLLED.into_iter().zip(controlled.chunks(LENGTHS.len())) {
        let name = controlled_name(scheme, control);
        let along = || LENGTHS.iter().map(|length| float(*length)).zip(points);
        let speeds = along()
            .map(|(x, point)| (x, point.row.speed_ratio.unwrap_or(f64::NAN), point.speed_half_width()));
        carried.curves.push(Curve::new(name.as_str(), colour).points(speeds));
        let shares = along().map(|(x, point)| (x, point.jain, point.jain_half_width));
        shared.curves.push(Curve::new(name.as_str(), colour).points(shares).at_most(1.0));
        let one = |point: &Measured| {
            format!(
                "goodput {:.3} ± {:.3}, Jain {:.3}, {:.2}x packets",
                point.row.speed_ratio.unwrap_or(f64::NAN),
                point.speed_half_width(),
                point.jain,
                point.row.packets_ratio.unwrap_or(0.0)
            )
        };
        let list = points.iter().map(one).collect::<Vec<_>>().join("; ");
        findings.push(format!("incast, {name}, 128 and 512 KiB of each: {list}"));
    }
    let Recovery { panel: rates, rows, finding } = recovery(figure, options)?;
    findings.push(finding);
    let most = format!("{} (of several transfers: {})", options.runs, most_of_several(options));
    let picture = Picture {
        title: "Adaptive window, incast and flow control".to_owned(),
        caption: vec![
            "Spurious retransmissions: retransmissions of packets that were not lost; 1 MiB between two hosts, disorder 64, no loss. The other panels: 32 hosts to one through a switch; incast: 128 KiB from each host; flow control: queue of 256 KiB. Rates: those that flow control allows while 31 of 32 transfers of 1 MiB end and one continues; one run. Links of 10 GB/s and 800 ns, packets of 512 bytes, of which headers leave 0.9275 of the link rate as goodput.".to_owned(),
            format!("T and d: mean and standard deviation of the last delays that the sender measured. RTT: round-trip time without load. W: window in packets. Jain's index: 1 if all flows have the same rate, 1/32 if one flow uses the whole rate. {} {MARKER_NOTE}", runs(&most, options)),
            "Not shown: receiver-counter under incast, because it retransmits the whole message for one lost packet, so the queue never empties; flow control for the other schemes, which do not support it; selective without flow control is in the incast panels.".to_owned(),
            "Flow control: a port reports while its queue is above 3/4, which halves the rate; a sender checks once per RTT and doubles its rate (by 1/8 of the link rate at most) where the path is free, or adds 1/256 below the median of its delays. 128 KiB from each sender take about 130 RTT; during much of that time the senders search for their rates.".to_owned(),
        ],
        columns: 2,
        panels: vec![resent, rates, goodput, fairness, carried, shared],
    };
    Ok(made(figure, measured.iter().map(|point| &point.row).chain(&rows), picture, findings))
}

/// Time in microseconds that a link takes for `each` bytes from each sender, without headers.
fn ideal(each: u64) -> f64 {
    float(u64::from(SENDERS) * each) / 1e4
}

fn controlled_name(scheme: Scheme, control: bool) -> String {
    let name = scheme.name();
    if control { format!("{name} with flow control") } else { name.to_owned() }
}

/// Decrease and recovery of rates: one run.
struct Recovery {
    panel: Panel,
    rows: Vec<Row>,
    finding: String,
}

/// Runs 31 senders of 1 MiB each and one of 24 MiB, and records the rate of the long one after the others have ended.
fn recovery(figure: Figure, options: &Options) -> Result<Recovery, FigureError> {
    const SHORT: u64 = 1 << 20;
    let mut flows: Vec<_> = (1..SENDERS).map(|host| Flow::new(host, 0, SHORT)).collect();
    flows.push(Flow::new(SENDERS, 0, 24 * SHORT));
    let scenario = longer(SHORT, true).flows(flows).scheme(Scheme::AdaptiveWindow).seed(options.seed);
    let trip = float(scenario.timers_for().get());
    let run = Simulation::new(&scenario).and_then(Simulation::run);
    let report = run.map_err(|source| FigureError::Run {
        point: format!("{} recovery", figure.name()),
        seed: options.seed,
        source,
    })?;
    let others = report.flows.iter().take(SENDERS as usize - 1).filter_map(|flow| flow.received).max();
    let over = others.unwrap_or(Nanos::ZERO);
    // One point every 5 µs gives some hundred points and data rows.
    let grid = Nanos::from_micros(5);
    let end = over.saturating_add(Nanos::new(scenario.timers_for().get().saturating_mul(40)));
    let mut rates = vec![flow::FULL; SENDERS as usize + 1];
    let mut changes = report.rates.iter().peekable();
    let (mut own, mut sum, mut at) = (Vec::new(), Vec::new(), Nanos::ZERO);
    while at <= end {
        while let Some(change) = changes.next_if(|change| change.at <= at) {
            if let Some(rate) = rates.get_mut(change.from as usize) {
                *rate = change.rate;
            }
        }
        let share = |rate: u32| f64::from(rate) / f64::from(flow::FULL);
        let micros = float(at.get()) / 1000.0;
        own.push((micros, rates.last().map_or(0.0, |rate| share(*rate)), 0.0));
        // Sum of the rates of the short transfers that have not ended.
        let others = report.flows.iter().zip(rates.iter().skip(1)).take(SENDERS as usize - 1);
        let sending = others.filter(|(flow, _)| flow.received.is_none_or(|received| received > at));
        sum.push((micros, sending.map(|(_, rate)| share(*rate)).sum::<f64>(), 0.0));
        at = at.saturating_add(grid);
    }
    let row = |name: &str, &(micros, rate, _): &(f64, f64, f64)| Row {
        figure: figure.name(),
        scheme: format!("adaptive-window with flow control: {name}"),
        topology: scenario.topology.to_string(),
        mean_us: Some(micros),
        speed_ratio: Some(rate),
        runs: Some(1),
        seed: Some(options.seed),
        ..Row::default()
    };
    let rows = own.iter().map(|point| row("rate of the remaining sender", point));
    let rows = rows.chain(sum.iter().map(|point| row("sum of the rates of the others", point))).collect();
    let mine = || report.rates.iter().filter(|change| change.from == SENDERS);
    let before = mine().rfind(|change| change.at <= over).map_or(flow::FULL, |change| change.rate);
    let trips = |change: &RateChange| float(change.at.saturating_sub(over).get()) / trip;
    let first = mine().find(|change| change.at > over).map(trips);
    let full = mine().find(|change| change.at > over && change.rate == flow::FULL).map(trips);
    let finding = format!(
        "31 of 32 senders end at {:.0} µs: the rate of the remaining sender, then {:.3} of the link rate, rises after {:.1} round trips and reaches the link rate after {:.1}",
        float(over.get()) / 1000.0,
        f64::from(before) / f64::from(flow::FULL),
        first.unwrap_or(f64::NAN),
        full.unwrap_or(f64::NAN)
    );
    let panel = Panel {
        title: "31 of 32 senders end".to_owned(),
        x_label: "time (µs)".to_owned(),
        y_label: "rate / link rate".to_owned(),
        y_scale: Scale::Decades,
        curves: vec![
            Curve::new("sum of the 31", 3)
                .style(CurveKind::Thin)
                .points(sum.into_iter().filter(|(_, rate, _)| *rate > 0.0)),
            Curve::new("the 32nd", 0).style(CurveKind::Thin).points(own),
        ],
        // The mark is above all curves: at the start, the sum is 31 link rates.
        marks: vec![Mark::new(float(over.get()) / 1000.0, f64::from(SENDERS), "end of the 31")],
        ..Panel::default()
    };
    Ok(Recovery { panel, rows, finding })
}

/// As [`incast`] with a queue of 256 KiB and `each` bytes from each sender; `control` adds a host that runs the controller.
fn longer(each: u64, control: bool) -> Scenario {
    let flows = (1..=SENDERS).map(|host| Flow::new(host, 0, each)).collect();
    let mut scenario =
        incast(256 << 10).topology(Topology::Tree { arity: SENDERS + 2, levels: 1, up: 1 }).flows(flows);
    scenario.controller = control.then_some(SENDERS + 1);
    scenario
}

/// 32 hosts send to one through a switch with `queue` bytes per port. A random delay of up to 100 ns makes runs differ.
fn incast(queue: u64) -> Scenario {
    let flows = (1..=SENDERS).map(|host| Flow::new(host, 0, BYTES_PER_SENDER)).collect();
    let least = Nanos::ZERO;
    let mut scenario = reference_parameters(BYTES_PER_SENDER)
        .topology(Topology::Tree { arity: SENDERS + 1, levels: 1, up: 1 })
        .flows(flows)
        .queue(queue)
        .scheme(Scheme::Selective)
        .data(Conditions::default().delay(Delay::Uniform { least, most: Nanos::new(100) }));
    scenario.contexts = Some(SENDERS + 1);
    scenario.limit = Nanos::from_secs(1);
    scenario
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timeout of T + d, checked every 20 ns, retransmits about the share of packets whose delay exceeds T + d: 14 % for exponential and
    /// 21 % for uniform delays. The default timeout retransmits almost none. The accuracy of twenty runs of 2048 packets is 0.5 % at 14 %;
    /// a quarter of a million packets take the time.
    #[test]
    fn e2_1_mean_plus_deviation_retransmits_late_packets() {
        let options = Options { threads: 2, ..Options::new(20, 1) };
        let mut delays = Delays::new(options.seed);
        let [literal, .., default, _] = timeouts(reference_parameters(TRANSFER_BYTES).timers_for());
        let mut points = Vec::new();
        for (_, rules, _) in [literal, default] {
            for law in LAWS {
                let delay = delays.of(law, DISORDER).unwrap();
                points.push(Point::new(
                    reference_parameters(TRANSFER_BYTES).data(network(0.0, delay)).rules(rules),
                ));
            }
        }
        let found: Vec<f64> = measure(points, &options, &mut |_| std::ops::ControlFlow::Continue(()))
            .unwrap()
            .iter()
            .map(|point| point.again)
            .collect();
        println!("{found:?}");
        let [exponential, uniform, log_normal, safe @ ..] = &found[..] else { panic!("{found:?}") };
        assert!((0.125..0.16).contains(exponential) && (0.19..0.23).contains(uniform), "{found:?}");
        assert!((0.08..0.13).contains(log_normal), "{found:?}");
        // Log-normal delays have a long tail: even the default retransmits about one packet in a thousand.
        let [exponential, uniform, log_normal] = safe else { panic!("{found:?}") };
        assert!(*exponential < 0.001 && *uniform < 0.001 && *log_normal < 0.002, "{found:?}");
    }
}
