//! Results of `dma bench` as a picture: rate and latency by size, with a curve for each direction and wait mode.

use fpga_netsim::figures::picture::{Curve, CurveKind, Panel, Picture, Scale};

use super::report::{BenchReport, ResultRow};

/// Returns the picture of a report. It states if the card is simulated, because pictures are passed on without their reports.
pub(super) fn of(report: &BenchReport) -> Picture {
    let mut ways: Vec<(&str, &str)> = Vec::new();
    for line in &report.results {
        if !ways.contains(&(line.direction, line.mode)) {
            ways.push((line.direction, line.mode));
        }
    }
    let mut picture = Picture::default();
    let simulated = if report.simulated { ", simulated" } else { "" };
    picture.title = format!("dma bench of {}{simulated}", report.card);
    picture.columns = 1;
    picture.caption = report
        .results
        .first()
        .map(|line| {
            format!(
                "{}; 99 %: 99th percentile; markers that would cover each other are drawn side by side",
                line.load()
            )
        })
        .into_iter()
        .collect();
    let mut rate = panel("rate", "rate (GB/s)");
    let mut latency = panel("latency", "latency (µs)");
    latency.y_scale = Scale::Decades;
    for (number, (direction, mode)) in ways.into_iter().enumerate() {
        let lines =
            || report.results.iter().filter(move |line| (line.direction, line.mode) == (direction, mode));
        let curve = |name: String, points: &mut dyn Iterator<Item = (f64, f64)>| {
            Curve::new(name, number).points(points.map(|(x, y)| (x, y, 0.0)))
        };
        let name = format!("{direction}, {mode}");
        rate.curves.push(curve(name.clone(), &mut lines().map(|line| (size(line), line.gb_per_s))));
        let at = |value: fn(&ResultRow) -> Option<f64>| {
            lines().filter_map(move |line| Some((size(line), value(line)?)))
        };
        let half = curve(format!("{name}, median"), &mut at(|line| line.p50_us));
        let most = curve(format!("{name}, 99 %"), &mut at(|line| line.p99_us)).style(CurveKind::Thin);
        latency.curves.extend([half, most]);
    }
    picture.panels = vec![rate, latency];
    picture
}

fn panel(title: &str, y_label: &str) -> Panel {
    let mut panel = Panel::default();
    title.clone_into(&mut panel.title);
    panel.x_label = "size of an operation".to_owned();
    y_label.clone_into(&mut panel.y_label);
    panel.x_scale = Scale::Bytes;
    panel
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
const fn size(line: &ResultRow) -> f64 {
    line.size as f64
}
