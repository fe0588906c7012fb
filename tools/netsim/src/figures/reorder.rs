//! Speed by disorder and window (source 004, figure 7), with a band over the parameters that the source leaves open.

use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::receiver_window;

use super::disorder::{DelayDistribution, Delays};
use super::measure::{Measured, Point, measure};
use super::picture::{Curve, CurveKind, Extent, Mark, Panel, Picture};
use super::torus::Network;
use super::{
    Figure, FigureError, Options, ProgressCallback, RenderedFigure, SYMBOLS, caption, made, network,
    reference_parameters,
};
use crate::Scheme;

pub(super) const TRANSFER_BYTES: u64 = 256 << 10;
const DEGREES: [u32; 10] = [0, 8, 16, 32, 48, 64, 80, 96, 112, 128];
pub(super) const WINDOWS: [(u32, usize); 3] = [(32, 1), (64, 0), (128, 2)];
/// Degrees of disorder at which the band is measured; 0 is the reference speed.
const BAND: [u32; 5] = [0, 32, 64, 96, 128];
/// One-way delays in nanoseconds: round trips of 20, 31 and 38 packets.
const DISTANCES: [u64; 3] = [500, 800, 1000];
/// Measured values of the sources: degree, window, speed.
pub(super) const PAPER: [(u32, u32, f64); 2] = [(64, 32, 0.70), (64, 64, 0.95)];

pub(super) fn point(
    figure: Figure,
    window: u32,
    degree: u32,
    distance: u64,
    law: DelayDistribution,
    delays: &mut Delays,
) -> Result<Point, FigureError> {
    let scenario = reference_parameters(TRANSFER_BYTES)
        .delay(Nanos::new(distance))
        .data(network(0.0, delays.of(law, degree)?));
    let config = receiver_window::ReceiverWindowConfig {
        window,
        ..receiver_window::ReceiverWindowConfig::new(scenario.timers_for())
    };
    let central = distance == 800 && law == DelayDistribution::Exponential;
    Ok(Point::new(scenario.rules(SchemeConfig::ReceiverWindow(config))).with(|row| {
        row.figure = figure.name();
        (row.window, row.disorder, row.loss) = (Some(window), Some(degree), Some(0.0));
        if !central {
            row.topology = format!("{} {distance} ns {}", row.topology, law.name());
        }
    }))
}

/// Point of the selective scheme, which has to do better than the receiver window.
pub(super) fn selective_point(
    figure: Figure,
    degree: u32,
    delays: &mut Delays,
) -> Result<Point, FigureError> {
    let delay = delays.of(DelayDistribution::Exponential, degree)?;
    let scenario = reference_parameters(TRANSFER_BYTES).data(network(0.0, delay)).scheme(Scheme::Selective);
    Ok(Point::new(scenario).with(|row| {
        row.figure = figure.name();
        (row.window, row.disorder, row.loss) = (Some(512), Some(degree), Some(0.0));
    }))
}

pub(super) fn make(
    figure: Figure,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<RenderedFigure, FigureError> {
    let laws = [DelayDistribution::Exponential, DelayDistribution::Uniform, DelayDistribution::LogNormal];
    let (mut delays, mut points) = (Delays::new(options.seed), Vec::new());
    let main = DEGREES.map(|degree| (DelayDistribution::Exponential, degree));
    let band = laws.into_iter().skip(1).flat_map(|law| BAND.map(|degree| (law, degree)));
    delays.prepare(&main.into_iter().chain(band).collect::<Vec<_>>(), options.threads)?;
    for (window, _) in WINDOWS {
        for degree in DEGREES {
            points.push(point(figure, window, degree, 800, DelayDistribution::Exponential, &mut delays)?);
        }
    }
    for degree in DEGREES {
        points.push(selective_point(figure, degree, &mut delays)?);
    }
    let curves = points.len() / DEGREES.len();
    // The band: every distribution at every distance, for the windows of the paper's points.
    let mut others = Vec::new();
    for (window, _) in WINDOWS.into_iter().take(2) {
        for (distance, law) in DISTANCES.into_iter().flat_map(|distance| laws.map(|law| (distance, law))) {
            if (distance, law) == (800, DelayDistribution::Exponential) {
                continue;
            }
            others.push((window, distance, law));
            for degree in BAND {
                points.push(point(figure, window, degree, distance, law, &mut delays)?);
            }
        }
    }
    let mut measured = measure(points, options, done)?;
    let (main, band) = measured.split_at_mut(curves * DEGREES.len());
    for curve in main.chunks_mut(DEGREES.len()).chain(band.chunks_mut(BAND.len())) {
        let ideal = curve.first().map_or((f64::NAN, 0.0), Measured::ideal);
        curve.iter_mut().for_each(|point| point.against(ideal));
        curve.iter_mut().take(1).for_each(Measured::is_ideal);
    }
    let mut panel = Panel {
        x_label: "disorder (packets)".to_owned(),
        y_label: "speed / speed in order".to_owned(),
        y_extent: Extent::Between(0.0, 1.05),
        ..Panel::default()
    };
    let mut findings = Vec::new();
    for ((window, colour), curve) in WINDOWS.into_iter().zip(main.chunks(DEGREES.len())).take(2) {
        panel.curves.push(spread(window, colour, curve, &others, band));
    }
    let names = WINDOWS.iter().map(|(window, colour)| (format!("receiver-window, W = {window}"), *colour));
    let names = names.chain([("selective, W = 512".to_owned(), 3)]);
    for ((name, colour), curve) in names.zip(main.chunks(DEGREES.len())) {
        let points = curve.iter().map(|point| {
            let x = f64::from(point.row.disorder.unwrap_or(0));
            (x, point.row.speed_ratio.unwrap_or(f64::NAN), point.speed_half_width())
        });
        panel.curves.push(Curve::new(name, colour).points(points));
    }
    for (degree, window, speed) in PAPER {
        panel.marks.push(Mark::new(f64::from(degree), speed, format!("004: W = {window}, {speed}")));
        let at_mark =
            |point: &&Measured| (point.row.window, point.row.disorder) == (Some(window), Some(degree));
        let Some(found) = main.iter().find(at_mark) else { continue };
        let all = band.iter().filter(at_mark).chain([found]).filter_map(|point| point.row.speed_ratio);
        let (low, high) =
            all.fold((f64::INFINITY, 0.0_f64), |(low, high), speed| (low.min(speed), high.max(speed)));
        let exponential = |point: &&Measured| at_mark(point) && point.row.topology.ends_with("exponential");
        let same_law =
            band.iter().filter(exponential).chain([found]).filter_map(|point| point.row.speed_ratio);
        let (least, most) =
            same_law.fold((f64::INFINITY, 0.0_f64), |(low, high), speed| (low.min(speed), high.max(speed)));
        findings.push(format!(
            "window {window}, disorder {degree}: {:.3} ± {:.3} of the speed in order, {:.2}x packets; source 004 has {speed}; \
             {least:.2} to {most:.2} over round trips of 20 to 38 packets, {low:.2} to {high:.2} over these and delay distributions",
            found.row.speed_ratio.unwrap_or(f64::NAN),
            found.speed_half_width(),
            found.row.packets_ratio.unwrap_or(0.0),
        ));
    }
    let needless =
        main.iter().filter(|point| point.row.window == Some(512) && point.row.scheme == "selective");
    for point in needless.filter(|point| matches!(point.row.disorder, Some(64 | 128))) {
        findings.push(format!(
            "selective, disorder {}: {:.3} ± {:.3}, {:.4} % ± {:.4} % spurious retransmissions",
            point.row.disorder.unwrap_or(0),
            point.row.speed_ratio.unwrap_or(f64::NAN),
            point.speed_half_width(),
            point.again * 100.0,
            point.again_half_width * 100.0
        ));
    }
    let picture = Picture {
        title: "Transfer of 256 KiB without loss: speed by disorder".to_owned(),
        caption: caption(
            Network::PointToPoint,
            options,
            "no loss, exponential delay; missing packets are requested after 2 RTT, K = 3; packets beyond the window are requested once per RTT. \
             Wide bands: all of 500 to 1000 ns one way with exponential, uniform and log-normal delay (not measured for W = 128 and for selective). \
             004: values that source 004 gives. The other schemes are in the figure \"selective\"",
            SYMBOLS,
        ),
        columns: 1,
        panels: vec![panel],
    };
    Ok(made(figure, measured.iter().map(|point| &point.row), picture, findings))
}

/// Band of a window: between the lowest and the highest speed of all distances and distributions.
fn spread(
    window: u32,
    colour: usize,
    own: &[Measured],
    others: &[(u32, u64, DelayDistribution)],
    band: &[Measured],
) -> Curve {
    let mut curve = Curve::new(format!("W = {window}: other round trips and distributions"), colour)
        .style(CurveKind::Band);
    for (place, degree) in BAND.into_iter().enumerate() {
        let main = own.iter().filter(|point| point.row.disorder == Some(degree));
        let rest = others.iter().zip(band.chunks(BAND.len())).filter(|((of, ..), _)| *of == window);
        let rest = rest.filter_map(|(_, points)| points.get(place));
        let speeds = main.chain(rest).filter_map(|point| point.row.speed_ratio);
        let (low, high) =
            speeds.fold((f64::INFINITY, 0.0_f64), |(low, high), speed| (low.min(speed), high.max(speed)));
        curve.points.push([f64::from(degree), low, low, high]);
    }
    curve
}
