//! Speed by disorder and window on the network of source 004 (its figure 7): a torus with adaptive routing. At the disorder of the source's
//! two values, other distributions of the delay are measured as well: the source does not name its distribution.

use fpga_netmodel::Delay;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::receiver_window::ReceiverWindowConfig;

use super::disorder::DelayDistribution;
use super::measure::{Measured, Point, measure};
use super::picture::{Curve, CurveKind, Extent, Mark, Panel, Picture};
use super::reorder::{PAPER, TRANSFER_BYTES, WINDOWS};
use super::torus::Network;
use super::{
    Figure, FigureError, Options, ProgressCallback, RenderedFigure, SYMBOLS, caption, made, network,
};
use crate::Scheme;

/// Degrees of disorder with random delay. Adaptive routing alone causes about 2.
const DEGREES: [u32; 6] = [16, 32, 48, 64, 96, 128];
/// Degree at which other distributions are measured, and the distributions.
const COMPARED: u32 = 64;
const LAWS: [DelayDistribution; 2] = [DelayDistribution::Uniform, DelayDistribution::LogNormal];
/// Windows of the source's values, and the markers of the other distributions.
const COMPARED_WINDOWS: [(u32, usize); 2] = [(32, 6), (64, 5)];

/// Scheme of a curve: the receiver window with a window, or the selective scheme.
fn point(figure: Figure, net: Network, window: Option<u32>, degree: f64, delay: Delay) -> Point {
    let scenario = net.parameters(TRANSFER_BYTES).data(network(0.0, delay));
    let scenario = match window {
        Some(window) => {
            let config = ReceiverWindowConfig::new(scenario.timers_for());
            scenario.rules(SchemeConfig::ReceiverWindow(ReceiverWindowConfig { window, ..config }))
        }
        None => scenario.scheme(Scheme::Selective),
    };
    net.point(Point::new(scenario).with(|row| {
        row.figure = figure.name();
        row.window = window.or(Some(512));
        (row.disorder, row.loss) = (Some(whole(degree)), Some(0.0));
    }))
}

pub(super) fn make(
    figure: Figure,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<RenderedFigure, FigureError> {
    let net = Network::of(figure, options);
    let alone = net.degree(Delay::Constant(Nanos::ZERO), options.seed)?;
    let mut wanted: Vec<_> = DEGREES.map(|degree| (DelayDistribution::Exponential, degree)).to_vec();
    wanted.extend(LAWS.map(|law| (law, COMPARED)));
    let delays = net.delays_of(&wanted, options)?;
    let (exponential, others) = delays.split_at(DEGREES.len());
    let mut along = vec![(alone, Delay::Constant(Nanos::ZERO))];
    along.extend(DEGREES.map(f64::from).into_iter().zip(exponential.iter().copied()));
    let schemes = WINDOWS.map(|(window, colour)| (Some(window), colour)).into_iter().chain([(None, 3)]);
    let schemes: Vec<(Option<u32>, usize)> = schemes.collect();
    let mut points = Vec::new();
    for (window, _) in &schemes {
        points.extend(along.iter().map(|(degree, delay)| point(figure, net, *window, *degree, *delay)));
    }
    let curves = points.len();
    for (window, _) in COMPARED_WINDOWS {
        for (law, delay) in LAWS.into_iter().zip(others) {
            let point = point(figure, net, Some(window), f64::from(COMPARED), *delay);
            points.push(point.with(|row| row.topology = format!("{} {}", row.topology, law.name())));
        }
    }
    let mut measured = measure(points, options, done)?;
    let (main, compared) = measured.split_at_mut(curves);
    let mut ideals = Vec::new();
    for curve in main.chunks_mut(along.len()) {
        let ideal = curve.first().map_or((f64::NAN, 0.0), Measured::ideal);
        ideals.push((curve.first().and_then(|point| point.row.window), ideal));
        curve.iter_mut().for_each(|point| point.against(ideal));
        curve.iter_mut().take(1).for_each(Measured::is_ideal);
    }
    for point in compared.iter_mut() {
        let own = ideals.iter().find(|(window, _)| *window == point.row.window);
        point.against(own.map_or((f64::NAN, 0.0), |(_, ideal)| *ideal));
    }
    let mut findings = vec![format!("adaptive routing alone: disorder {alone:.1}")];
    let mut panel = Panel {
        x_label: "disorder (packets)".to_owned(),
        y_label: "speed / speed without random delay".to_owned(),
        y_extent: Extent::Between(0.0, 1.05),
        ..Panel::default()
    };
    for ((window, colour), curve) in schemes.iter().zip(main.chunks(along.len())) {
        let name = window.map_or_else(
            || "selective, W = 512".to_owned(),
            |window| format!("receiver-window, W = {window}"),
        );
        let points = along.iter().zip(curve).map(|((degree, _), point)| with_speed(*degree, point));
        panel.curves.push(Curve::new(name.as_str(), *colour).points(points));
        let list = curve.iter().map(speed).collect::<Vec<_>>().join(", ");
        findings.push(format!("{name}, speed by disorder: {list}"));
    }
    for ((window, colour), points) in COMPARED_WINDOWS.into_iter().zip(compared.chunks(LAWS.len())) {
        let name = format!("W = {window}: uniform (lower), log-normal delay");
        let list = points.iter().map(speed).collect::<Vec<_>>().join(", ");
        findings.push(format!("{name}: {list}"));
        let points = points.iter().map(|point| with_speed(f64::from(COMPARED), point));
        panel.curves.push(Curve::new(name, colour).style(CurveKind::Dots).points(points));
    }
    for (degree, window, speed) in PAPER {
        panel.marks.push(Mark::new(f64::from(degree), speed, format!("004: W = {window}, {speed}")));
    }
    let picture = Picture {
        title: net.title("Transfer of 256 KiB without loss: speed by disorder"),
        caption: caption(
            net,
            options,
            &format!(
                "no loss; curves: exponential delay; missing packets are requested after 2 RTT, K = 3. Adaptive routing alone causes disorder \
                 {alone:.0}: there the speed is 1. 004: values that source 004 gives"
            ),
            SYMBOLS,
        ),
        columns: 1,
        panels: vec![panel],
    };
    Ok(made(figure, measured.iter().map(|point| &point.row), picture, findings))
}

/// Coordinates of a point, and half the width of its interval.
fn with_speed(degree: f64, point: &Measured) -> (f64, f64, f64) {
    (degree, point.row.speed_ratio.unwrap_or(f64::NAN), point.speed_half_width())
}

/// Speed of a point in words.
fn speed(point: &Measured) -> String {
    format!(
        "{}: {:.3} ± {:.3}",
        point.row.disorder.unwrap_or(0),
        point.row.speed_ratio.unwrap_or(f64::NAN),
        point.speed_half_width()
    )
}

/// Degree as a whole number.
fn whole(degree: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to some hundred")]
    let whole = degree.round() as u32;
    whole
}
