//! Document 002: what its timeout resends for nothing, and many senders to one receiver.

use fpga_core::Nanos;
use fpga_core::impair::{Conditions, Delay};
use fpga_core::scheme::adaptive_window::{self, Patience};
use fpga_core::scheme::ends::Rules;
use fpga_firmware::generated::Scheme;

use super::disorder::{Delays, Law};
use super::float;
use super::measure::{Measured, Point, measure};
use super::picture::{Curve, Mark, Panel, Picture, Scale, Style};
use super::schemes::VARIANTS;
use super::{Figure, FigureError, Made, Options, frozen, made, network};
use crate::{Flow, Scenario, Topology};

const SIZE: u64 = 1 << 20;
const DISORDER: u32 = 64;
const LAWS: [Law; 3] = [Law::Exponential, Law::Uniform, Law::LogNormal];
const LAW_NAMES: &[&str] = &["exponential", "uniform", "log-normal"];
/// Percent of a law's delays beyond mean + deviation: exp(-2); (1 - 1/sqrt 3) / 2; and, with sigma 1, where mean and deviation are
/// 1.6487 and 2.1612 medians, the normal distribution beyond ln 3.8099.
const BEYOND: [f64; 3] = [13.53, 21.13, 9.05];
/// Senders to one receiver, and bytes of each.
const SENDERS: u32 = 32;
const EACH: u64 = 128 << 10;
const QUEUES: [u64; 2] = [64 << 10, 256 << 10];

/// The ways to be patient: name, rules, colour.
fn timeouts(trip: Nanos) -> [(&'static str, Rules, usize); 4] {
    let rules = |patience, walk: Option<Nanos>, wanted| {
        let config = adaptive_window::Config::new(trip);
        let walk = walk.unwrap_or(config.walk);
        let sender = adaptive_window::Config { patience, walk, ..config };
        Rules::AdaptiveWindow { sender, wanted }
    };
    [
        ("T + d, looked at every 20 ns", rules(Patience::Literal, Some(Nanos::new(20)), None), 1),
        ("T + d, every quarter of a round trip", rules(Patience::Literal, None, None), 6),
        ("mean + 4 deviations (default)", rules(Patience::Safe, None, None), 0),
        ("default, with packets that the receiver wants at once", rules(Patience::Safe, None, Some(trip)), 3),
    ]
}

const SCHEME_NAMES: [&str; 4] = [
    "adaptive-window literal continuous",
    "adaptive-window literal",
    "adaptive-window timeout-only",
    "adaptive-window",
];

pub(super) fn make(
    figure: Figure,
    options: &Options,
    done: &mut dyn FnMut(u64),
) -> Result<Made, FigureError> {
    let trip = frozen(SIZE).timers_for();
    let mut delays = Delays::new(options.seed);
    let mut points = Vec::new();
    for ((_, rules, _), name) in timeouts(trip).into_iter().zip(SCHEME_NAMES) {
        for law in LAWS {
            let delay = delays.of(law, DISORDER)?;
            let scenario = frozen(SIZE).data(network(0.0, delay)).rules(rules);
            points.push(Point::new(scenario).with(|row| {
                row.figure = figure.name();
                name.clone_into(&mut row.scheme);
                row.topology = format!("{} {}", row.topology, law.name());
                (row.loss, row.disorder, row.window) = (Some(0.0), Some(DISORDER), Some(128));
            }));
        }
    }
    let first = points.len();
    // All of them but the receiver's counter: what it sends again for one packet is what the queue drops next, for ever.
    let schemes: Vec<_> = VARIANTS.iter().filter(|variant| !variant.name().contains("counter")).collect();
    for variant in &schemes {
        for queue in QUEUES {
            points.push(variant.point(figure, incast(queue), 0.0, 0).with(|row| {
                row.disorder = None;
                row.topology = format!("{} queue {queue}", row.topology);
            }));
        }
    }
    let mut measured = measure(points, options, done)?;
    let (needless, many) = measured.split_at_mut(first);
    let ideal = float(u64::from(SENDERS) * EACH) / 1e4;
    many.iter_mut().for_each(|point| point.against(ideal));
    let mut findings = Vec::new();
    let mut resent = Panel {
        title: "sent again for nothing, disorder 64, no loss".to_owned(),
        x_label: "law of delay".to_owned(),
        y_label: "packets sent again (% of those needed)".to_owned(),
        x_scale: Scale::Names(LAW_NAMES),
        marks: (0_u32..)
            .zip(BEYOND)
            .map(|(at, share)| Mark::new(f64::from(at), share, "delays beyond T + d"))
            .collect(),
        ..Panel::default()
    };
    for ((name, _, colour), points) in timeouts(trip).into_iter().zip(needless.chunks(LAWS.len())) {
        let along = (0_u32..).map(f64::from).zip(points);
        let curve = Curve::new(name, colour).style(Style::Dots);
        resent.curves.push(
            curve.points(along.map(|(x, point)| (x, point.again * 100.0, point.again_half_width * 100.0))),
        );
        let shares = points.iter().map(|point| format!("{:.3} %", point.again * 100.0)).collect::<Vec<_>>();
        findings.push(format!(
            "{name}: {} sent again for nothing ({})",
            shares.join(", "),
            LAW_NAMES.join(", ")
        ));
    }
    let panel = |title: &str, y_label: &str| Panel {
        title: title.to_owned(),
        x_label: "queue of the port".to_owned(),
        y_label: y_label.to_owned(),
        x_scale: Scale::Bytes,
        y_range: Some((0.0, 1.05)),
        ..Panel::default()
    };
    let mut goodput = panel("32 senders, one receiver: goodput", "goodput / rate of the link");
    let mut fairness = panel("32 senders, one receiver: fairness", "Jain's index");
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
            Curve::new(variant.name(), variant.colour).points(along().map(|(x, point)| (x, point.jain, 0.0))),
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
    let picture = Picture {
        title: "Adaptive window: needless resends, and incast".to_owned(),
        caption: vec![
            "Left: 1 MiB, two hosts, 10 GB/s, 800 ns one way, no loss; right: 128 KiB from each of 32 hosts to one through a switch".to_owned(),
            format!("packets of 512 bytes; {} runs a point, seed {}; bands: 95 % confidence of the mean", options.runs, options.seed),
        ],
        columns: 3,
        panels: vec![resent, goodput, fairness],
    };
    Ok(made(figure, measured.iter().map(|point| &point.row), picture, findings))
}

/// 32 hosts to one through a switch; up to 100 ns of chance, so that runs differ.
fn incast(queue: u64) -> Scenario {
    let flows = (1..=SENDERS).map(|host| Flow::new(host, 0, EACH)).collect();
    let least = Nanos::ZERO;
    let mut scenario = frozen(EACH)
        .topology(Topology::Tree { arity: SENDERS + 1, levels: 1, up: 1 })
        .flows(flows)
        .queue(queue)
        .scheme(Scheme::Selective)
        .data(Conditions::default().delay(Delay::Uniform { least, most: Nanos::new(100) }));
    scenario.contexts = Some(SENDERS + 1);
    scenario.limit = Nanos::from_secs(1);
    scenario
}
