//! Time saved by notifying the application at the receiver (source 001; Lant et al., ARCS 2019).

use fpga_netmodel::BitRate;
use fpga_protocol::Nanos;

use super::float;
use super::picture::{Curve, Mark, Panel, Picture, binary};
use super::{Figure, FigureError, RenderedFigure, Row, made};
use crate::{Scenario, notice};

const SIZES: [(u64, usize); 3] = [(512, 1), (4096, 0), (65_536, 2)];
const HOPS: u64 = 8;

pub(super) fn make(figure: Figure) -> Result<RenderedFigure, FigureError> {
    let (mut rows, mut savings, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    let mut times = Panel {
        title: "4 KiB: time until the application is notified".to_owned(),
        x_label: "hops".to_owned(),
        y_label: "time (µs)".to_owned(),
        ..Panel::default()
    };
    for (size, colour) in SIZES {
        let scenario =
            Scenario::new(size).congestion(None).rate(BitRate::from_gbps(10)).delay(Nanos::new(400));
        let found = notice::by_hops(&scenario, HOPS)?;
        let micros = |span: Nanos| float(span.get()) / 1000.0;
        for row in &found {
            for (scheme, time) in [("registry", row.own), ("registry sender-notice", row.told)] {
                rows.push(Row {
                    figure: figure.name(),
                    scheme: scheme.to_owned(),
                    topology: "point-to-point".to_owned(),
                    size_bytes: Some(size),
                    packet_bytes: Some(512),
                    hops: Some(row.hops),
                    mean_us: Some(micros(time)),
                    ci95_us: Some(0.0),
                    packets_ratio: Some(1.0),
                    speed_ratio: Some(micros(row.own) / micros(time)),
                    failures: Some(0),
                    runs: Some(1),
                    ..Row::default()
                });
            }
        }
        let saved =
            |row: &notice::LatencySaving| float(row.saved().get()) / float(row.told.get().max(1)) * 100.0;
        savings.push(
            Curve::new(binary(size), colour)
                .points(found.iter().map(|row| (float(row.hops), saved(row), 0.0))),
        );
        if let (Some(first), Some(last)) = (found.first(), found.last()) {
            findings.push(format!(
                "{}: {:.1} % saved over one hop, {:.1} % over {}",
                binary(size),
                saved(first),
                saved(last),
                last.hops
            ));
        }
        if size == 4096 {
            let curve = |name: &str, colour, time: &dyn Fn(&notice::LatencySaving) -> Nanos| {
                let points = found.iter().map(|row| (float(row.hops), micros(time(row)), 0.0));
                Curve::new(name, colour).points(points)
            };
            times.curves.push(curve("notified by its own card", 0, &|row| row.own));
            times.curves.push(curve("notified by the sender", 1, &|row| row.told));
        }
    }
    let shares = Panel {
        title: "time saved by the receiver's own completion".to_owned(),
        x_label: "hops".to_owned(),
        y_label: "time saved (%)".to_owned(),
        curves: savings,
        marks: vec![Mark::new(1.0, 20.0, "ARCS 2019: 4 KiB, one hop, about 20 %")],
        ..Panel::default()
    };
    let picture = Picture {
        title: "Notification by the receiver's own card".to_owned(),
        caption: vec![
            "Registry scheme, two hosts, 10 Gbit/s, 400 ns per hop (the paper states neither), packets of 512 bytes. Time: from the submission to the receiver's notification. The runs are deterministic: one run per point.".to_owned(),
        ],
        columns: 1,
        panels: vec![times, shares],
    };
    Ok(made(figure, &rows, picture, findings))
}
