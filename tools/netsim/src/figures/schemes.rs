//! Comparison of the schemes: time by size, by loss, and speed over loss and disorder.

use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::receiver_window;

use super::float;
use super::measure::{Measured, Point, measure};
use super::picture::{Curve, Extent, Panel, Picture, Scale};
use super::torus::Network;
use super::{
    Figure, FigureError, Options, ProgressCallback, RenderedFigure, SYMBOLS, caption, made, network,
    reference_parameters,
};
use crate::scheme::sender_window::SenderWindowConfig;
use crate::{Scenario, Scheme};

const SIZES: [u64; 4] = [32 << 10, 64 << 10, 128 << 10, 256 << 10];
const LOSSES: [f64; 6] = [0.0, 0.001, 0.002, 0.003, 0.004, 0.005];
const MAX_MESSAGE_BYTES: u64 = 256 << 10;
/// Disorder of the reference set. Source 004 does not give the disorder of its figures 4 to 6.
const DISORDER: u32 = 32;

/// Scheme as a figure shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    scheme: Scheme,
    window: Option<u32>,
    /// Whether it is the literal form of its source.
    literal: bool,
    pub(super) colour: usize,
}

const fn variant(scheme: Scheme, window: Option<u32>, colour: usize) -> Variant {
    Variant { scheme, window, literal: false, colour }
}

pub(super) const VARIANTS: [Variant; 8] = [
    variant(Scheme::ReceiverWindow, Some(128), 0),
    variant(Scheme::ReceiverWindow, Some(64), 5),
    variant(Scheme::SenderWindow, Some(32), 1),
    Variant { literal: true, ..variant(Scheme::SenderWindow, Some(32), 6) },
    variant(Scheme::ReceiverCounter, None, 7),
    variant(Scheme::AdaptiveWindow, Some(128), 3),
    variant(Scheme::Selective, Some(512), 2),
    variant(Scheme::Registry, None, 4),
];

impl Variant {
    pub(super) fn name(&self) -> String {
        let scheme = self.scheme_name();
        self.window.map_or_else(|| scheme.clone(), |window| format!("{scheme}, W = {window}"))
    }

    /// Whether the scheme keeps a full queue full with its retransmissions.
    pub(super) fn floods_queues(&self) -> bool {
        self.literal || self.scheme == Scheme::ReceiverCounter
    }

    /// Name of the scheme in the data rows.
    fn scheme_name(&self) -> String {
        let form = if self.literal { " literal" } else { "" };
        format!("{}{form}", self.scheme.name())
    }

    pub(super) fn apply(&self, scenario: Scenario) -> Scenario {
        let scenario = scenario.scheme(self.scheme);
        let trip = scenario.timers_for();
        match (self.scheme, self.window) {
            (Scheme::ReceiverWindow, Some(window)) => {
                scenario.rules(SchemeConfig::ReceiverWindow(receiver_window::ReceiverWindowConfig {
                    window,
                    ..receiver_window::ReceiverWindowConfig::new(trip)
                }))
            }
            (Scheme::SenderWindow, _) if self.literal => scenario.rules(SenderWindowConfig::literal(trip)),
            // All others use the windows of the specification.
            _ => scenario,
        }
    }

    /// Point of this scheme.
    pub(super) fn point(&self, figure: Figure, scenario: Scenario, loss: f64, disorder: u32) -> Point {
        Point::new(self.apply(scenario)).with(|row| {
            row.figure = figure.name();
            row.scheme = self.scheme_name();
            row.window = self.window;
            (row.loss, row.disorder) = (Some(loss), Some(disorder));
        })
    }
}

/// Schemes of the figures by size and by loss. The torus figures omit one of two windows of the same scheme, whose effect `torus-reorder`
/// shows.
fn variants(net: Network) -> Vec<Variant> {
    let shown = |variant: &Variant| net == Network::PointToPoint || variant.window != Some(64);
    VARIANTS.into_iter().filter(shown).collect()
}

/// Time by size, every scheme (source 004, figures 4 and 5).
pub(super) fn by_size(
    figure: Figure,
    options: &Options,
    loss: f64,
    done: &mut ProgressCallback<'_>,
) -> Result<RenderedFigure, FigureError> {
    let net = Network::of(figure, options);
    let delay = net.delay(DISORDER, options)?;
    let variants = variants(net);
    let points = variants.iter().flat_map(|variant| {
        SIZES.map(|size| {
            let scenario = net.parameters(size).data(network(loss, delay));
            net.point(variant.point(figure, scenario, loss, DISORDER))
        })
    });
    let measured = measure(points.collect(), options, done)?;
    let mut panel = Panel {
        x_label: "size of the transfer".to_owned(),
        y_label: "mean time (µs)".to_owned(),
        x_scale: Scale::Bytes,
        y_scale: if loss > 0.0 { Scale::Decades } else { Scale::Linear },
        ..Panel::default()
    };
    let mut findings = Vec::new();
    for (variant, points) in variants.iter().zip(measured.chunks(SIZES.len())) {
        let curve = Curve::new(variant.name(), variant.colour);
        panel.curves.push(curve.points(points.iter().map(|point| {
            let half = point.row.ci95_us.unwrap_or(0.0);
            (float(point.row.size_bytes.unwrap_or(0)), point.mean(), half)
        })));
        let size = |point: &Measured| format!("{} KiB", point.row.size_bytes.unwrap_or(0) >> 10);
        findings.push(format!("{}: {}", variant.name(), times(points, size)));
    }
    let loss_text =
        if loss > 0.0 { format!("loss {} ‰ of data packets", loss * 1000.0) } else { "no loss".to_owned() };
    let picture = Picture {
        title: net.title(&format!("Time of a transfer by size, {loss_text}")),
        caption: caption(
            net,
            options,
            &format!("{loss_text}, exponential delay of disorder {DISORDER}, timeouts 2 RTT, K = 3"),
            SYMBOLS,
        ),
        columns: 1,
        panels: vec![panel],
    };
    Ok(made(figure, measured.iter().map(|point| &point.row), picture, findings))
}

/// Times of the points of a curve in words, each with the point's `x`.
fn times(points: &[Measured], x: impl Fn(&Measured) -> String) -> String {
    let one = |point: &Measured| {
        let half = point.row.ci95_us.unwrap_or(0.0);
        format!(
            "{}: {:.1} ± {half:.1} µs ({:.2}x)",
            x(point),
            point.mean(),
            point.row.packets_ratio.unwrap_or(0.0)
        )
    };
    points.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Time of the largest transfer by loss (source 004, figure 6).
pub(super) fn by_loss(
    figure: Figure,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<RenderedFigure, FigureError> {
    let net = Network::of(figure, options);
    let delay = net.delay(DISORDER, options)?;
    let variants = variants(net);
    let points = variants.iter().flat_map(|variant| {
        LOSSES.map(|loss| {
            let scenario = net.parameters(MAX_MESSAGE_BYTES).data(network(loss, delay));
            net.point(variant.point(figure, scenario, loss, DISORDER))
        })
    });
    let measured = measure(points.collect(), options, done)?;
    let panel = |title: &str, y_label: &str, y_scale| Panel {
        title: title.to_owned(),
        x_label: "loss of data packets (‰)".to_owned(),
        y_label: y_label.to_owned(),
        y_scale,
        ..Panel::default()
    };
    let mut times_panel = panel("mean time", "mean time (µs)", Scale::Decades);
    let mut packets = panel("packets sent", "packets sent / needed", Scale::Decades);
    let mut findings = Vec::new();
    for (variant, points) in variants.iter().zip(measured.chunks(LOSSES.len())) {
        let x = |point: &Measured| point.row.loss.unwrap_or(0.0) * 1000.0;
        let curve = Curve::new(variant.name(), variant.colour);
        times_panel.curves.push(
            curve.points(
                points.iter().map(|point| (x(point), point.mean(), point.row.ci95_us.unwrap_or(0.0))),
            ),
        );
        let curve = Curve::new(variant.name(), variant.colour);
        packets.curves.push(
            curve.points(points.iter().map(|point| (x(point), 1.0 + point.again, point.again_half_width))),
        );
        if let (Some(first), Some(last)) = (points.first(), points.last()) {
            let growth = (last.mean() / first.mean() - 1.0) * 100.0;
            findings.push(format!(
                "{}: +{growth:.0} % at 5 ‰; {}",
                variant.name(),
                times(points, |point| format!("{} ‰", x(point)))
            ));
        }
    }
    let picture = Picture {
        title: net.title("Transfer of 256 KiB by loss"),
        caption: caption(
            net,
            options,
            &format!("exponential delay of disorder {DISORDER}, timeouts 2 RTT, K = 3"),
            SYMBOLS,
        ),
        columns: 1,
        panels: vec![times_panel, packets],
    };
    Ok(made(figure, measured.iter().map(|point| &point.row), picture, findings))
}

/// Reason why a scheme is missing.
fn infeasible(variant: &Variant) -> String {
    format!(
        "{} is not shown: it repeats all 512 packets until none of them is lost, 172 rounds on average.",
        variant.name()
    )
}

const DISORDERS: [u32; 4] = [0, 16, 64, 128];
const RATES: [f64; 4] = [0.0, 0.001, 0.005, 0.01];

/// Speed of every scheme over loss and disorder, relative to its own without either.
pub(super) fn by_loss_and_disorder(
    figure: Figure,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<RenderedFigure, FigureError> {
    let delays = Network::PointToPoint.delays(&DISORDERS, options)?;
    let delays: Vec<_> = DISORDERS.into_iter().zip(delays).collect();
    // 512 packets with 1 % loss: the receiver counter would take 172 rounds each.
    let feasible = |variant: &Variant, loss: f64| variant.scheme != Scheme::ReceiverCounter || loss < 0.01;
    let mut points = Vec::new();
    for variant in &VARIANTS {
        for loss in RATES.into_iter().filter(|loss| feasible(variant, *loss)) {
            for (disorder, delay) in &delays {
                let scenario = reference_parameters(MAX_MESSAGE_BYTES).data(network(loss, *delay));
                points.push(variant.point(figure, scenario, loss, *disorder));
            }
        }
    }
    let mut measured = measure(points, options, done)?;
    let mut panels: Vec<Panel> = RATES
        .iter()
        .map(|loss| Panel {
            title: format!("loss {} ‰", loss * 1000.0),
            x_label: "disorder (packets)".to_owned(),
            y_label: "relative speed".to_owned(),
            y_extent: Extent::Between(0.0, 1.05),
            notes: VARIANTS.iter().filter(|variant| !feasible(variant, *loss)).map(infeasible).collect(),
            ..Panel::default()
        })
        .collect();
    let mut findings = Vec::new();
    let mut rest = measured.as_mut_slice();
    for variant in &VARIANTS {
        let rates = RATES.iter().filter(|loss| feasible(variant, **loss)).count();
        let (own, others) = rest.split_at_mut(rates * DISORDERS.len());
        rest = others;
        let ideal = own.first().map_or((f64::NAN, 0.0), Measured::ideal);
        for ((panel, points), loss) in panels.iter_mut().zip(own.chunks_mut(DISORDERS.len())).zip(RATES) {
            points.iter_mut().for_each(|point| point.against(ideal));
            if loss == 0.0 {
                points.iter_mut().take(1).for_each(Measured::is_ideal);
            }
            let curve = Curve::new(variant.name(), variant.colour);
            panel.curves.push(curve.points(points.iter().map(|point| {
                let x = f64::from(point.row.disorder.unwrap_or(0));
                (x, point.row.speed_ratio.unwrap_or(f64::NAN), point.speed_half_width())
            })));
            let one = |point: &Measured| {
                format!(
                    "{:.3} ± {:.3} ({:.4}x)",
                    point.row.speed_ratio.unwrap_or(f64::NAN),
                    point.speed_half_width(),
                    point.row.packets_ratio.unwrap_or(0.0)
                )
            };
            let list = points.iter().map(one).collect::<Vec<_>>().join(", ");
            findings.push(format!(
                "{}, loss {} ‰, disorder 0, 16, 64, 128: {list}",
                variant.name(),
                loss * 1000.0
            ));
        }
    }
    let picture = Picture {
        title: "Speed of every scheme by loss and disorder".to_owned(),
        caption: caption(
            Network::PointToPoint,
            options,
            "256 KiB; exponential delay; timeouts 2 RTT, K = 3. Relative speed: mean time of the same scheme without loss and disorder / mean time",
            SYMBOLS,
        ),
        columns: 1,
        panels,
    };
    Ok(made(figure, measured.iter().map(|point| &point.row), picture, findings))
}
