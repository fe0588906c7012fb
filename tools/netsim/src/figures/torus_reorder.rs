//! Speed by disorder and window on the network of source 004 (its figure 7): a torus with adaptive routing.

use fpga_firmware::generated::Scheme;
use fpga_netmodel::Delay;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::receiver_window::ReceiverWindowConfig;

use super::measure::{Measured, Point, measure};
use super::picture::{Curve, Extent, Mark, Panel, Picture};
use super::reorder::{PAPER, SIZE, WINDOWS};
use super::torus::Network;
use super::{
    Figure, FigureError, Options, ProgressCallback, RenderedFigure, SYMBOLS, caption, made, network,
};

/// Degrees of disorder with random delay. Adaptive routing alone causes about 2.
const DEGREES: [u32; 6] = [16, 32, 48, 64, 96, 128];

pub(super) fn make(
    figure: Figure,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<RenderedFigure, FigureError> {
    let net = Network::of(figure, options);
    let alone = net.degree(Delay::Constant(Nanos::ZERO), options.seed)?;
    let mut along = vec![(alone, Delay::Constant(Nanos::ZERO))];
    along.extend(DEGREES.map(f64::from).into_iter().zip(net.delays(&DEGREES, options)?));
    let schemes = WINDOWS.map(|(window, colour)| (Some(window), colour)).into_iter().chain([(None, 3)]);
    let schemes: Vec<(Option<u32>, usize)> = schemes.collect();
    let mut points = Vec::new();
    for (window, _) in &schemes {
        for (degree, delay) in &along {
            let scenario = net.parameters(SIZE).data(network(0.0, *delay));
            let scenario = match window {
                Some(window) => {
                    let config = ReceiverWindowConfig::new(scenario.timers_for());
                    scenario.rules(SchemeConfig::ReceiverWindow(ReceiverWindowConfig {
                        window: *window,
                        ..config
                    }))
                }
                None => scenario.scheme(Scheme::Selective),
            };
            let point = Point::new(scenario).with(|row| {
                row.figure = figure.name();
                row.window = window.or(Some(512));
                (row.disorder, row.loss) = (Some(whole(*degree)), Some(0.0));
            });
            points.push(net.point(point));
        }
    }
    let mut measured = measure(points, options, done)?;
    for curve in measured.chunks_mut(along.len()) {
        let ideal = curve.first().map_or((f64::NAN, 0.0), Measured::ideal);
        curve.iter_mut().for_each(|point| point.against(ideal));
        curve.iter_mut().take(1).for_each(Measured::is_ideal);
    }
    let mut panel = Panel {
        x_label: "disorder (packets)".to_owned(),
        y_label: "speed / speed without random delay".to_owned(),
        y_extent: Extent::Between(0.0, 1.05),
        ..Panel::default()
    };
    let mut findings = vec![format!("adaptive routing alone: disorder {alone:.1}")];
    for ((window, colour), curve) in schemes.iter().zip(measured.chunks(along.len())) {
        let name = window.map_or_else(
            || "selective, W = 512".to_owned(),
            |window| format!("receiver-window, W = {window}"),
        );
        let points = along.iter().zip(curve).map(|((degree, _), point)| {
            (*degree, point.row.speed_ratio.unwrap_or(f64::NAN), point.speed_half_width())
        });
        panel.curves.push(Curve::new(name.as_str(), *colour).points(points));
        let one = |point: &Measured| {
            format!(
                "{}: {:.3} ± {:.3}",
                point.row.disorder.unwrap_or(0),
                point.row.speed_ratio.unwrap_or(f64::NAN),
                point.speed_half_width()
            )
        };
        let list = curve.iter().map(one).collect::<Vec<_>>().join(", ");
        findings.push(format!("{name}, speed by disorder: {list}"));
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
                "no loss, exponential delay; missing packets are requested after 2 RTT of the longest route, K = 3. Adaptive routing alone causes \
                 disorder {alone:.0}: there the speed is 1. 004: values that source 004 gives"
            ),
            SYMBOLS,
        ),
        columns: 1,
        panels: vec![panel],
    };
    Ok(made(figure, measured.iter().map(|point| &point.row), picture, findings))
}

/// Degree as a whole number.
fn whole(degree: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to some hundred")]
    let whole = degree.round() as u32;
    whole
}
