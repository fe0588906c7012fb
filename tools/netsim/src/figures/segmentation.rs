//! Time of a transfer by the size of its segments (source 001, figure 5), with the closed form and the tuner.

use super::float;
use super::picture::{Curve, CurveKind, Mark, Panel, Picture, Scale, binary};
use super::{Figure, RenderedFigure, Row, made};
use crate::tuner::{Pipeline, tune};

const SIZES: [u64; 6] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

pub(super) fn make(figure: Figure) -> RenderedFigure {
    let pipeline = Pipeline::DEFAULT;
    let row = |scheme: &str, total: u64, segment: u64, time: f64, runs: u64| Row {
        figure: figure.name(),
        scheme: scheme.to_owned(),
        topology: "three stages".to_owned(),
        size_bytes: Some(total),
        packet_bytes: Some(pipeline.packet),
        segment_bytes: Some(segment),
        mean_us: Some(time),
        ci95_us: Some(0.0),
        speed_ratio: Some(pipeline.run(total, total) / time),
        failures: Some(0),
        runs: Some(runs),
        ..Row::default()
    };
    let (mut rows, mut panels, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for total in SIZES {
        let segments: Vec<u64> = (9..=24).map(|log2| 1 << log2).filter(|segment| *segment <= total).collect();
        let best = pipeline.best(total);
        let (tuned, tried) = tune(total, pipeline.packet, |segment| pipeline.run(total, segment));
        let curve = |name: &str, colour, time: &dyn Fn(u64) -> f64| {
            let points = segments.iter().map(|segment| (float(*segment), time(*segment), 0.0));
            Curve::new(name, colour).points(points)
        };
        let form = |segment| pipeline.closed_form(total, segment);
        let run = |segment| pipeline.run(total, segment);
        for segment in &segments {
            rows.push(row("registry", total, *segment, run(*segment), 1));
            rows.push(row("closed-form", total, *segment, form(*segment), 0));
        }
        rows.push(row("closed-form best", total, best, form(best), 0));
        rows.push(row("registry tuned", total, tuned, run(tuned), tried.into()));
        let share = Pipeline { header: 0, ..pipeline }.run(total, tuned) / form(best);
        findings.push(format!(
            "{}: whole {:.1} µs, best {:.1} µs with {best} bytes; tuner {tuned} bytes after {tried} tries: {:.1} µs, without headers {share:.3} of the \
             closed form's best; {:.1}x faster than whole, and 512 bytes {:.1}x slower than the best",
            binary(total),
            run(total),
            form(best),
            run(tuned),
            run(total) / run(tuned),
            run(512) / run(tuned),
        ));
        panels.push(Panel {
            title: format!("{} in all", binary(total)),
            x_label: "segment size".to_owned(),
            y_label: "time (µs)".to_owned(),
            x_scale: Scale::Bytes,
            y_scale: Scale::Decades,
            curves: vec![
                curve("closed form: T = k (o + n/B) + 2n/B", 1, &form).style(CurveKind::Thin),
                curve("simulated, with headers", 0, &run),
            ],
            marks: vec![
                Mark::new(float(tuned), run(tuned), "tuner"),
                Mark::new(float(total), run(total), "whole"),
            ],
            ..Panel::default()
        });
    }
    let picture = Picture {
        title: "Time of a transfer by segment size".to_owned(),
        caption: vec![
            "Three stages that forward whole segments (read, wire, write); packets of 512 bytes with 60 bytes of header on the wire. The runs are deterministic: one run per point.".to_owned(),
            "T: time of the transfer. n: bytes of a segment. k: number of segments. o = 0.5 µs: time of a command at the first stage. B = 10 GB/s: rate of each stage. whole: one segment for the whole transfer. tuner: the segment size that the tuner chose.".to_owned(),
        ],
        columns: 2,
        panels,
    };
    made(figure, &rows, picture, findings)
}
